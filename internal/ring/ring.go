// Package ring reads BPF ring buffers in place. It knows the framing that the kernel puts around each record
// (kernel/bpf/ringbuf.c), not the meaning of the records; of those it relies on one thing only, that each starts with its own
// size, a multiple of 8. It never blocks a producer longer than it takes to copy what is there.
package ring

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bits of the u32 in front of each record and the size of that header (include/uapi/linux/bpf.h).
const (
	busyBit    = 1 << 31
	discardBit = 1 << 30
	lenMask    = discardBit - 1
	headerSize = 8
)

// publish is how many bytes are read before the producers learn of the room.
const publish = 256 << 10

// Reader reads one BPF ring buffer. One goroutine may call Read; Close may be called from any other.
type Reader struct {
	consPage, dataPages []byte
	cons, prod          *uint64
	data                []byte
	mask                uint64

	epoll, wake int
	closed      atomic.Bool
	// reading is held during Read, so that Close unmaps nothing under it.
	reading sync.Mutex
	once    sync.Once
}

// New maps the ring buffer map fd of size bytes. The fd may be closed afterwards.
func New(fd, size int) (_ *Reader, err error) {
	r := &Reader{mask: uint64(size - 1), epoll: -1, wake: -1}
	defer func() {
		if err != nil {
			r.release()
		}
	}()
	page := os.Getpagesize()
	if size < page || size&(size-1) != 0 {
		return nil, fmt.Errorf("mapping the ring: %d bytes is not a power of two of at least a page", size)
	}
	if r.consPage, err = unix.Mmap(fd, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("mapping the ring's consumer page: %w", err)
	}
	// The kernel offers the data twice in a row, so that a record never wraps. Mapping it once and copying a wrapped
	// record in two halves keeps the resident memory at the size of the ring.
	if r.dataPages, err = unix.Mmap(fd, int64(page), page+size, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("mapping the ring's %d bytes: %w", size, err)
	}
	r.cons = (*uint64)(unsafe.Pointer(&r.consPage[0]))
	r.prod = (*uint64)(unsafe.Pointer(&r.dataPages[0]))
	r.data = r.dataPages[page:]
	if r.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("making the ring's wake-up descriptor: %w", err)
	}
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("making the ring's epoll descriptor: %w", err)
	}
	for _, f := range [2]int{fd, r.wake} {
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(f)}
		if f == fd {
			// Edge-triggered: producers rarely wake us, and what is there is always read at once.
			ev.Events |= unix.EPOLLET
		}
		if err = unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, f, &ev); err != nil {
			return nil, fmt.Errorf("waiting on the ring: %w", err)
		}
	}
	return r, nil
}

// Read appends all committed records to dst in ring order, back to back, and returns the extended slice. When there are
// none it waits for a producer's wake-up or the deadline and looks again; it returns os.ErrDeadlineExceeded if there still
// are none: producers also wake the reader when it should look at another ring. They do so only when the ring fills up and
// when a process ends, so callers read with deadlines of about 10 ms. A zero deadline waits for a wake-up without limit; one
// in the past does not wait. At most max bytes are appended but at least one record; 0 means no limit. After Close it
// returns os.ErrClosed.
func (r *Reader) Read(dst []byte, max int, deadline time.Time) ([]byte, error) {
	r.reading.Lock()
	defer r.reading.Unlock()
	for waited := false; ; waited = true {
		if r.closed.Load() {
			return dst, fmt.Errorf("reading the ring: %w", os.ErrClosed)
		}
		out := r.drain(dst, max)
		if len(out) > len(dst) {
			return out, nil
		}
		if waited {
			return dst, os.ErrDeadlineExceeded
		}
		timeout := -1
		if !deadline.IsZero() {
			left := time.Until(deadline)
			if left <= 0 {
				return dst, os.ErrDeadlineExceeded
			}
			timeout = int((left + time.Millisecond - 1) / time.Millisecond)
		}
		if err := r.wait(timeout); err != nil {
			return dst, err
		}
	}
}

// Wait waits for a producer's wake-up, whatever is in the ring already, but not longer than d.
func (r *Reader) Wait(d time.Duration) error {
	r.reading.Lock()
	defer r.reading.Unlock()
	if r.closed.Load() {
		return fmt.Errorf("waiting on the ring: %w", os.ErrClosed)
	}
	return r.wait(int((max(d, 0) + time.Millisecond - 1) / time.Millisecond))
}

// wait waits timeout milliseconds; -1 is for ever.
func (r *Reader) wait(timeout int) error {
	var ev [2]unix.EpollEvent
	for {
		_, err := unix.EpollWait(r.epoll, ev[:], timeout)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("waiting on the ring: %w", err)
		}
	}
}

// drain copies committed records until a busy one, the end or max.
func (r *Reader) drain(dst []byte, max int) []byte {
	cons := atomic.LoadUint64(r.cons)
	published := cons
	start := len(dst)
	for {
		prod := atomic.LoadUint64(r.prod)
		if cons >= prod {
			break
		}
		for cons < prod {
			off := cons & r.mask
			h := atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.data[off])))
			if h&busyBit != 0 {
				atomic.StoreUint64(r.cons, cons)
				return dst
			}
			n := uint64(h & lenMask)
			if cons+headerSize+n > prod {
				// Never seen: the kernel publishes whole records. Whatever is there cannot be told apart any more.
				atomic.StoreUint64(r.cons, prod)
				return dst
			}
			if h&discardBit == 0 {
				if max > 0 && len(dst) > start && len(dst)-start+int(n) > max {
					atomic.StoreUint64(r.cons, cons)
					return dst
				}
				dst = r.copyRecord(dst, (off+headerSize)&r.mask, n)
			}
			cons += (n + headerSize + 7) &^ 7
			if cons-published >= publish {
				atomic.StoreUint64(r.cons, cons)
				published = cons
			}
		}
	}
	atomic.StoreUint64(r.cons, cons)
	return dst
}

// copyRecord appends n bytes at off, which may wrap, and pads them to 8.
func (r *Reader) copyRecord(dst []byte, off, n uint64) []byte {
	if end := off + n; end <= uint64(len(r.data)) {
		dst = append(dst, r.data[off:end]...)
	} else {
		dst = append(dst, r.data[off:]...)
		dst = append(dst, r.data[:end-uint64(len(r.data))]...)
	}
	if n&7 != 0 {
		var zero [8]byte
		dst = append(dst, zero[:8-n&7]...)
	}
	return dst
}

// Pending returns the number of bytes that wait in the ring, framing included.
func (r *Reader) Pending() int {
	r.reading.Lock()
	defer r.reading.Unlock()
	if r.closed.Load() {
		return 0
	}
	return int(atomic.LoadUint64(r.prod) - atomic.LoadUint64(r.cons))
}

// Size returns the size of the ring in bytes.
func (r *Reader) Size() int { return int(r.mask) + 1 }

// Close unblocks Read and unmaps the ring. It may be called more than once.
func (r *Reader) Close() error {
	var err error
	r.once.Do(func() {
		r.closed.Store(true)
		one := [8]byte{1}
		if _, e := unix.Write(r.wake, one[:]); e != nil {
			err = fmt.Errorf("waking the ring's reader: %w", e)
		}
		r.reading.Lock()
		defer r.reading.Unlock()
		r.release()
	})
	return err
}

func (r *Reader) release() {
	if r.consPage != nil {
		unix.Munmap(r.consPage)
	}
	if r.dataPages != nil {
		unix.Munmap(r.dataPages)
	}
	if r.wake >= 0 {
		unix.Close(r.wake)
	}
	if r.epoll >= 0 {
		unix.Close(r.epoll)
	}
	r.consPage, r.dataPages, r.data = nil, nil, nil
	runtime.KeepAlive(r)
}
