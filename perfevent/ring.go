package perfevent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ring is the buffer of one CPU. An event that counts nothing owns it: it decides when readers wake, and it lives as long as
// this process whatever becomes of the events that write here.
type ring struct {
	cpu   int
	owner int // descriptor
	mem   []byte
	data  []byte
	meta  *unix.PerfEventMmapPage

	// Of the read in progress.
	tail, head uint64
	next       []byte // the record at tail, nil at the end
	time       uint64
	scratch    []byte // of a record that wraps; at most 64 KiB, as long as a record can be
}

func openRing(cpu, size, watermark int) (_ *ring, err error) {
	r := &ring{cpu: cpu, owner: -1}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	s := Spec{Kind: KindDummy}
	attr, err := s.Attr("")
	if err != nil {
		return nil, err
	}
	attr.Wakeup = uint32(watermark)
	// Of this process's first thread, which does not end before the process does; an event whose task has ended would say
	// "hang up" for ever. For all tasks it would take privileges.
	if r.owner, err = unix.PerfEventOpen(&attr, os.Getpid(), cpu, -1, unix.PERF_FLAG_FD_CLOEXEC); err != nil {
		return nil, openError(&s, os.Getpid(), cpu, err)
	}
	page := os.Getpagesize()
	if r.mem, err = unix.Mmap(r.owner, 0, page+size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		if errors.Is(err, unix.EPERM) {
			return nil, fmt.Errorf("mapping %d bytes for the ring of CPU %d: %w: without CAP_IPC_LOCK all rings together are limited by perf_event_mlock_kb and ulimit -l", size, cpu, err)
		}
		return nil, fmt.Errorf("mapping %d bytes for the ring of CPU %d: %w", size, cpu, err)
	}
	r.meta = (*unix.PerfEventMmapPage)(unsafe.Pointer(&r.mem[0]))
	r.data = r.mem[page:]
	return r, nil
}

func (r *ring) close() {
	if r.mem != nil {
		unix.Munmap(r.mem)
		r.mem, r.data, r.meta = nil, nil, nil
	}
	if r.owner >= 0 {
		unix.Close(r.owner)
		r.owner = -1
	}
}

// begin fixes what will be read: all that is there now.
func (r *ring) begin() {
	r.head = atomic.LoadUint64(&r.meta.Data_head)
	r.tail = r.meta.Data_tail
	r.peek()
}

// errRing says that the bytes at the tail are no record: only a bug can have written them, and nothing behind is safe.
var errRing = errors.New("the ring holds what is no record")

// peek makes the record at the tail the next one. A record that wraps is put together in scratch.
func (r *ring) peek() error {
	r.next = nil
	have := r.head - r.tail
	if have < headerSize {
		return nil
	}
	size := uint64(len(r.data))
	at := r.tail & (size - 1) // records are multiples of 8: a header never wraps
	n := uint64(binary.LittleEndian.Uint16(r.data[at+6:]))
	if n < headerSize || n > have || n%8 != 0 {
		r.tail = r.head
		r.done()
		return errRing
	}
	if at+n <= size {
		r.next = r.data[at : at+n : at+n]
	} else {
		if r.scratch == nil {
			r.scratch = make([]byte, 1<<16)
		}
		k := copy(r.scratch, r.data[at:])
		copy(r.scratch[k:n], r.data)
		r.next = r.scratch[:n:n]
	}
	r.time = recordTime(r.next)
	return nil
}

// advance passes over the next record. The kernel gets the room back by done.
func (r *ring) advance() error {
	r.tail += uint64(len(r.next))
	return r.peek()
}

func (r *ring) done() { atomic.StoreUint64(&r.meta.Data_tail, r.tail) }
