package perfevent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Options of a Reader. The zero value of each field is its default.
type Options struct {
	// RingBytes is the size of the ring of each CPU, whatever the size of a page is; it is rounded up to a power of two of
	// pages. 0 means 512 KiB.
	RingBytes int
	// Watermark is how many bytes come into a ring before a waiting Read wakes; 0 means an eighth of the ring. 1 wakes at
	// every record, which costs a context switch each.
	Watermark int
	// online lists the CPUs, in tests.
	online func() ([]int, error)
}

// hotplug is how often a Reader looks for CPUs that came or went.
const hotplug = time.Second

// ErrFlushed is returned by Read after Flush, when everything that was in the rings has been delivered.
var ErrFlushed = errors.New("perf rings flushed")

// Reader has a ring for each CPU that runs, and the events that write there. Its methods may be called from any goroutine;
// Reads follow one another, and the function
// that a Read calls must call none of them but Flush and Stats.
type Reader struct {
	opt         Options
	page        int
	epoll, wake int
	closed      atomic.Bool
	flush       atomic.Bool

	reading sync.Mutex // held during Read, so that Close releases nothing under it
	mu      sync.Mutex // of all below; held while records are delivered
	woken   [8]byte
	rings   []*ring
	events  []*Event
	byID    map[uint64]*Event
	last    uint64 // time of the youngest record delivered
	checked time.Time
	rec     Record
	stats   stats
	once    sync.Once
}

type stats struct {
	records [32]atomic.Uint64 // by type; others in other
	other   atomic.Uint64
	unknown atomic.Uint64
	bad     atomic.Uint64
	lost    atomic.Uint64
}

// Stats is what a Reader has seen. Types above 31 count under 31.
type Stats struct {
	Records [32]uint64
	// Unowned are records of no open event: of one that was closed, or made for an event that nobody knows.
	Unowned uint64
	// Bad are records that could not be decoded; they were passed over.
	Bad uint64
	// Lost is what the kernel dropped, by its own count; of which event, says Event.Lost.
	Lost uint64
}

// NewReader makes the rings. The caller adds events and calls Close.
func NewReader(o Options) (_ *Reader, err error) {
	r := &Reader{opt: o, page: os.Getpagesize(), epoll: -1, wake: -1, byID: make(map[uint64]*Event)}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	if r.opt.online == nil {
		r.opt.online = onlineCPUs
	}
	if r.opt.RingBytes, err = ringBytes(o.RingBytes, r.page); err != nil {
		return nil, err
	}
	if r.opt.Watermark == 0 {
		r.opt.Watermark = r.opt.RingBytes / 8
	}
	if r.opt.Watermark < 0 || r.opt.Watermark > r.opt.RingBytes {
		return nil, fmt.Errorf("watermark of %d bytes: 1 to %d are possible", o.Watermark, r.opt.RingBytes)
	}
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("making the epoll descriptor of the perf rings: %w", err)
	}
	if r.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("making the wake-up descriptor of the perf rings: %w", err)
	}
	if err = unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, r.wake, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: -1}); err != nil {
		return nil, fmt.Errorf("waiting on the perf rings: %w", err)
	}
	if err = r.lookCPUs(); err != nil {
		return nil, err
	}
	return r, nil
}

// ringBytes rounds a size up to what can be mapped.
func ringBytes(n, page int) (int, error) {
	if n == 0 {
		n = 512 << 10
	}
	if n < 0 || n > 1<<30 {
		return 0, fmt.Errorf("perf ring of %d bytes: up to 1 GiB for each CPU is possible", n)
	}
	size := page
	for size < n {
		size <<= 1
	}
	return size, nil
}

// lookCPUs opens rings of CPUs that came up and closes those of CPUs that went down: their events do not come back with them.
func (r *Reader) lookCPUs() error {
	online, err := r.opt.online()
	if err != nil {
		return err
	}
	r.checked = time.Now()
	r.rings = slices.DeleteFunc(r.rings, func(g *ring) bool {
		if slices.Contains(online, g.cpu) {
			return false
		}
		for _, e := range r.events {
			e.closeOn(g.cpu)
		}
		g.close() // its records were read: see collect
		return true
	})
	for _, cpu := range online {
		if slices.ContainsFunc(r.rings, func(g *ring) bool { return g.cpu == cpu }) {
			continue
		}
		g, err := openRing(cpu, r.opt.RingBytes, r.opt.Watermark)
		if errors.Is(err, unix.ENODEV) {
			continue // it went down again
		}
		if err != nil {
			return err
		}
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(cpu)}
		if err := unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, g.owner, &ev); err != nil {
			g.close()
			return fmt.Errorf("waiting on the ring of CPU %d: %w", cpu, err)
		}
		r.rings = append(r.rings, g)
		for _, e := range r.events {
			if err := e.openOn(g); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, unix.ENODEV) {
				return err
			}
		}
	}
	return nil
}

// Event is one Spec, open for a task or for all tasks, on every CPU.
type Event struct {
	Spec Spec
	// Tid is the task; -1 for all.
	Tid int
	// Tag is the caller's.
	Tag any

	r          *Reader
	sampleType uint64
	fds        map[int]int // by CPU
	ids        []uint64
	enabled    bool
	lost       atomic.Uint64
	throttled  atomic.Uint64
}

// Open opens an event for the thread tid (0: the calling thread; -1: all tasks) and adds it to r. A task that has ended is
// os.ErrProcessDone; a breakpoint for which there is no debug register left is ErrSlots.
func (r *Reader) Open(s Spec, tid int) (*Event, error) {
	if tid == 0 {
		tid = unix.Gettid()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return nil, fmt.Errorf("opening a %s event: %w", s.Kind, os.ErrClosed)
	}
	e := &Event{Spec: s, Tid: tid, r: r, fds: make(map[int]int), enabled: !s.Disabled}
	for _, g := range r.rings {
		if err := e.openOn(g); err != nil && !errors.Is(err, unix.ENODEV) {
			e.closeAll()
			return nil, err
		}
	}
	r.events = append(r.events, e)
	return e, nil
}

func (e *Event) openOn(g *ring) error {
	attr, err := e.Spec.Attr(runtime.GOARCH)
	if err != nil {
		return err
	}
	if !e.enabled {
		attr.Bits |= unix.PerfBitDisabled
	} else {
		attr.Bits &^= unix.PerfBitDisabled
	}
	e.sampleType = attr.Sample_type
	fd, err := unix.PerfEventOpen(&attr, e.Tid, g.cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return openError(&e.Spec, e.Tid, g.cpu, err)
	}
	id, err := eventID(fd)
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_OUTPUT, g.owner)
	}
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("leading a %s event to the ring of CPU %d: %w", e.Spec.Kind, g.cpu, err)
	}
	e.fds[g.cpu] = fd
	e.ids = append(e.ids, id)
	e.r.byID[id] = e
	return nil
}

func (e *Event) closeOn(cpu int) {
	if fd, ok := e.fds[cpu]; ok {
		unix.Close(fd)
		delete(e.fds, cpu)
	}
}

func (e *Event) closeAll() {
	for cpu := range e.fds {
		e.closeOn(cpu)
	}
	for _, id := range e.ids {
		delete(e.r.byID, id)
	}
}

// Close ends the event. Its records that are still in the rings count as unowned when they are read.
func (e *Event) Close() error {
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	e.closeAll()
	e.r.events = slices.DeleteFunc(e.r.events, func(x *Event) bool { return x == e })
	return nil
}

// Enable lets the event count, Disable stops it, on all CPUs; when Disable has returned, nothing more is written.
func (e *Event) Enable() error  { return e.each(unix.PERF_EVENT_IOC_ENABLE, true) }
func (e *Event) Disable() error { return e.each(unix.PERF_EVENT_IOC_DISABLE, false) }

func (e *Event) each(request uint, on bool) error {
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	return e.set(request, on)
}

func (e *Event) set(request uint, on bool) error {
	e.enabled = on
	for cpu, fd := range e.fds {
		if err := unix.IoctlSetInt(fd, request, 0); err != nil {
			return fmt.Errorf("switching a %s event on CPU %d: %w", e.Spec.Kind, cpu, err)
		}
	}
	return nil
}

// FDs are the event's descriptors by CPU, for a BPF map of type perf_event_array or PERF_EVENT_IOC_SET_BPF. They stay the event's.
func (e *Event) FDs() map[int]int {
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	out := make(map[int]int, len(e.fds))
	for cpu, fd := range e.fds {
		out[cpu] = fd
	}
	return out
}

// Count is how often the event happened, over all CPUs, by the kernel's own count, inherited ones with it.
func (e *Event) Count() (uint64, error) {
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	var sum uint64
	for cpu, fd := range e.fds {
		n, err := readCount(fd)
		if err != nil {
			return 0, fmt.Errorf("reading the count of a %s event on CPU %d: %w", e.Spec.Kind, cpu, err)
		}
		sum += n
	}
	return sum, nil
}

// Lost is how many records of the event the kernel dropped; Throttled how often it paused the event because it came too often.
func (e *Event) Lost() uint64      { return e.lost.Load() }
func (e *Event) Throttled() uint64 { return e.throttled.Load() }

// Read delivers the records that are there, in the order of their times, and returns their number. When there are none it
// waits: for the watermark of a ring, Flush, Close, or the deadline, and looks again; a deadline in the past does not wait, a
// zero one has no end. If there still are none it returns os.ErrDeadlineExceeded.
//
// deliver gets a view that is valid until it returns: it should take what it needs and leave the work to others, as the rings
// get their room back only when all has been delivered. Its error ends the Read and is returned; the records behind are kept.
// After Close, Read returns os.ErrClosed. After Flush it delivers everything and returns ErrFlushed, once.
func (r *Reader) Read(deliver func(*Record) error, deadline time.Time) (int, error) {
	r.reading.Lock()
	defer r.reading.Unlock()
	for {
		n, flush, err := r.collect(deliver)
		switch {
		case err != nil:
			return n, err
		case flush:
			return n, ErrFlushed
		case n > 0:
			return n, nil
		}
		left := hotplug
		if !deadline.IsZero() {
			if left = min(time.Until(deadline), hotplug); left <= 0 {
				return 0, os.ErrDeadlineExceeded
			}
		}
		if err := r.wait(left); err != nil {
			return 0, err
		}
	}
}

func (r *Reader) wait(d time.Duration) error {
	var buf [8]unix.EpollEvent
	_, err := unix.EpollWait(r.epoll, buf[:], int((d+time.Millisecond-1)/time.Millisecond))
	if err != nil && err != unix.EINTR {
		return fmt.Errorf("waiting on the perf rings: %w", err)
	}
	return nil
}

func (r *Reader) errClosed() error { return fmt.Errorf("reading the perf rings: %w", os.ErrClosed) }

// collect delivers what all rings hold now, merged by time.
func (r *Reader) collect(deliver func(*Record) error) (n int, flush bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// The wake-up is taken back before looking, so that none is missed.
	unix.Read(r.wake, r.woken[:])
	if r.closed.Load() {
		return 0, false, r.errClosed()
	}
	flush = r.flush.Swap(false)
	for _, g := range r.rings {
		g.begin()
	}
	defer r.done()
	for {
		var first *ring
		for _, g := range r.rings {
			if g.next != nil && (first == nil || g.time < first.time) {
				first = g
			}
		}
		if first == nil {
			break
		}
		n++
		err := r.one(first.next, deliver)
		if e := first.advance(); e != nil {
			r.stats.bad.Add(1)
		}
		if err != nil {
			r.flush.CompareAndSwap(false, flush)
			return n, false, err
		}
		if r.closed.Load() {
			return n, false, r.errClosed()
		}
	}
	if time.Since(r.checked) >= hotplug {
		if err := r.lookCPUs(); err != nil {
			return n, false, err
		}
	}
	return n, flush, nil
}

// done gives the room of what was read back to the kernel.
func (r *Reader) done() {
	for _, g := range r.rings {
		g.done()
	}
}

// one decodes, counts and delivers a record.
func (r *Reader) one(b []byte, deliver func(*Record) error) error {
	id, ok := recordID(b)
	rec := &r.rec
	rec.Event = nil
	var sampleType, regs uint64
	if ok {
		if rec.Event = r.byID[id]; rec.Event != nil {
			sampleType, regs = rec.Event.sampleType, rec.Event.Spec.UserRegs
		}
	}
	if err := rec.decode(b, sampleType, regs); err != nil {
		r.stats.bad.Add(1)
		return nil
	}
	r.stats.records[min(rec.Type, 31)].Add(1)
	if rec.Event == nil {
		r.stats.unknown.Add(1)
	}
	switch rec.Type {
	case RecordLost, RecordLostSamples:
		if n, ok := rec.Lost(); ok {
			r.stats.lost.Add(n)
			if rec.Event != nil {
				rec.Event.lost.Add(n)
			}
		}
	case RecordThrottle:
		if rec.Event != nil {
			rec.Event.throttled.Add(1)
		}
	}
	rec.Late = rec.Time < r.last
	r.last = max(r.last, rec.Time)
	return deliver(rec)
}

// Decode makes a Record of bytes that were copied from Record.Raw, in any goroutine: the way to hand the work on. e is the
// record's event.
func (e *Event) Decode(raw []byte, rec *Record) error {
	rec.Event, rec.Late = e, false
	return rec.decode(raw, e.sampleType, e.Spec.UserRegs)
}

// Run delivers records until ctx is done; then it disables all events, delivers what is left and returns nil. Otherwise it
// returns the error of deliver or of reading.
func (r *Reader) Run(ctx context.Context, deliver func(*Record) error) error {
	stop := context.AfterFunc(ctx, func() {
		if r.Disable() == nil {
			r.Flush()
		} else {
			r.Close()
		}
	})
	defer stop()
	for {
		if _, err := r.Read(deliver, time.Time{}); errors.Is(err, ErrFlushed) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// Disable stops all events; when it has returned, nothing more is written.
func (r *Reader) Disable() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if err := e.set(unix.PERF_EVENT_IOC_DISABLE, false); err != nil {
			return err
		}
	}
	return nil
}

// Flush has the Read in progress, or the next one, deliver all that is in the rings and return ErrFlushed.
func (r *Reader) Flush() {
	r.flush.Store(true)
	r.signal()
}

func (r *Reader) signal() {
	one := [8]byte{0: 1}
	unix.Write(r.wake, one[:])
}

// Stats returns what was seen so far.
func (r *Reader) Stats() Stats {
	s := Stats{Unowned: r.stats.unknown.Load(), Bad: r.stats.bad.Load(), Lost: r.stats.lost.Load()}
	for i := range s.Records {
		s.Records[i] = r.stats.records[i].Load()
	}
	return s
}

// eventID asks for the number by which records name an event.
func eventID(fd int) (uint64, error) {
	n, err := unix.IoctlGetInt(fd, unix.PERF_EVENT_IOC_ID)
	return uint64(n), err
}

func readCount(fd int) (uint64, error) {
	var b [8]byte
	if n, err := unix.Read(fd, b[:]); err != nil {
		return 0, err
	} else if n != len(b) {
		return 0, fmt.Errorf("%d bytes came", n)
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// RingBytes is the size of each ring; CPUs the CPUs that have one.
func (r *Reader) RingBytes() int { return r.opt.RingBytes }

func (r *Reader) CPUs() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []int
	for _, g := range r.rings {
		list = append(list, g.cpu)
	}
	slices.Sort(list)
	return list
}

// Close closes all events and rings. A Read in progress ends with os.ErrClosed first: it delivers at most one record more.
// Close may be called more than once, but not by the function that a Read calls.
func (r *Reader) Close() error {
	r.once.Do(func() {
		r.closed.Store(true)
		if r.wake >= 0 {
			r.signal()
		}
		r.reading.Lock()
		defer r.reading.Unlock()
		r.release()
	})
	return nil
}

func (r *Reader) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		e.closeAll()
	}
	r.events = nil
	for _, g := range r.rings {
		g.close()
	}
	r.rings = nil
	for _, fd := range []int{r.epoll, r.wake} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}
