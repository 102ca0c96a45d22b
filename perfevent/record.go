package perfevent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Types of records that [Record] decodes. Others are delivered as they are.
const (
	RecordMmap        = unix.PERF_RECORD_MMAP
	RecordLost        = unix.PERF_RECORD_LOST
	RecordComm        = unix.PERF_RECORD_COMM
	RecordExit        = unix.PERF_RECORD_EXIT
	RecordThrottle    = unix.PERF_RECORD_THROTTLE
	RecordUnthrottle  = unix.PERF_RECORD_UNTHROTTLE
	RecordFork        = unix.PERF_RECORD_FORK
	RecordSample      = unix.PERF_RECORD_SAMPLE
	RecordMmap2       = unix.PERF_RECORD_MMAP2
	RecordLostSamples = unix.PERF_RECORD_LOST_SAMPLES
)

// Bits of Record.Misc.
const (
	MiscCommExec    = 1 << 13 // COMM: an execve gave the name
	MiscMmapData    = 1 << 13 // MMAP2: not executable
	MiscMmapBuildID = 1 << 14 // MMAP2: a build-id instead of device and inode
	MiscSwitchOut   = 1 << 13
)

const headerSize = 8

// Record is a view of one record. All its slices lie in the ring or in the bytes that were decoded: they are valid until the
// function that was given the record returns, or as long as these bytes are.
type Record struct {
	Raw  []byte // all of it, header included
	Type uint32
	Misc uint16
	// Event is whose record it is; nil when nothing says so: an event that was closed, or a record without an id.
	Event    *Event
	Pid, Tid uint32
	Time     uint64 // CLOCK_MONOTONIC, ns
	CPU      uint32
	// Late is set when a record with a later time was delivered before.
	Late bool
	// Sample is filled for RecordSample.
	Sample Sample
	body   []byte // without header and trailing ids
}

// Sample is what happened and what was taken with it.
type Sample struct {
	IP        uint64
	Addr      uint64 // KindBreak: of the access
	Callchain Words  // with the PERF_CONTEXT_* marks
	Raw       []byte // KindBPFOutput: what the program sent, and up to 7 bytes of padding
	Regs      Regs
	Stack     []byte // as far as it could be read; the kernel says how much that is
}

// Words are 64-bit little-endian words in place.
type Words []byte

func (w Words) Len() int        { return len(w) / 8 }
func (w Words) At(i int) uint64 { return binary.LittleEndian.Uint64(w[8*i:]) }

// Mmap2 is a new mapping of a task.
type Mmap2 struct {
	Addr, Len, Offset uint64
	Major, Minor      uint32
	Inode, InodeGen   uint64
	BuildID           []byte // instead of the device and inode, with MiscMmapBuildID
	Prot, Flags       uint32
	Path              []byte // as the kernel names it: a path, "//anon", "[vdso]"
}

// Task is what FORK and EXIT say: a task and the one that made it.
type Task struct {
	Pid, ParentPid, Tid, ParentTid uint32
	Time                           uint64
}

var errShort = errors.New("the record ends early")

// cursor cuts fields off a record and remembers that one was missing.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.bad = true
		return nil
	}
	b := c.b[:n:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// words takes n words.
func (c *cursor) words(n uint64) Words {
	if n > uint64(len(c.b))/8 {
		c.bad = true
		return nil
	}
	return Words(c.take(8 * n))
}

// id finds the event of a record: the identifier comes first in samples and last in all others.
func recordID(b []byte) (id uint64, ok bool) {
	if len(b) < headerSize+8 {
		return 0, false
	}
	if binary.LittleEndian.Uint32(b) == RecordSample {
		return binary.LittleEndian.Uint64(b[headerSize:]), true
	}
	return binary.LittleEndian.Uint64(b[len(b)-8:]), true
}

// recordTime is the time of a record, 0 when it has none.
func recordTime(b []byte) uint64 {
	if binary.LittleEndian.Uint32(b) == RecordSample {
		if len(b) < headerSize+32 {
			return 0
		}
		return binary.LittleEndian.Uint64(b[headerSize+24:]) // identifier, ip, pid and tid, time
	}
	if len(b) < headerSize+trailerSize {
		return 0
	}
	return binary.LittleEndian.Uint64(b[len(b)-24:]) // pid and tid, time, cpu, identifier
}

// trailerSize is what sample_id_all puts behind all records but samples: pid, tid, time, cpu, reserved, identifier.
const trailerSize = 32

// decode fills r from the bytes of one record of an event that takes sampleType and regs.
func (r *Record) decode(b []byte, sampleType, regs uint64) error {
	if len(b) < headerSize || int(binary.LittleEndian.Uint16(b[6:])) != len(b) {
		return fmt.Errorf("record of %d bytes: %w", len(b), errShort)
	}
	*r = Record{Raw: b, Type: binary.LittleEndian.Uint32(b), Misc: binary.LittleEndian.Uint16(b[4:]), Event: r.Event, Late: r.Late}
	if r.Type != RecordSample {
		if len(b) < headerSize+trailerSize {
			return fmt.Errorf("record of type %d, %d bytes: %w", r.Type, len(b), errShort)
		}
		c := cursor{b: b[len(b)-trailerSize:]}
		r.Pid, r.Tid, r.Time, r.CPU = c.u32(), c.u32(), c.u64(), c.u32()
		r.body = b[headerSize : len(b)-trailerSize]
		return nil
	}
	// The order is that of perf_event_open(2) under PERF_RECORD_SAMPLE, which is not that of the bits.
	c := cursor{b: b[headerSize:]}
	c.u64()
	s := &r.Sample
	s.IP = c.u64()
	r.Pid, r.Tid, r.Time = c.u32(), c.u32(), c.u64()
	if sampleType&unix.PERF_SAMPLE_ADDR != 0 {
		s.Addr = c.u64()
	}
	r.CPU = c.u32()
	c.u32()
	if sampleType&unix.PERF_SAMPLE_CALLCHAIN != 0 {
		s.Callchain = c.words(c.u64())
	}
	if sampleType&unix.PERF_SAMPLE_RAW != 0 {
		s.Raw = c.take(uint64(c.u32()))
	}
	if sampleType&unix.PERF_SAMPLE_REGS_USER != 0 {
		if s.Regs.ABI = ABI(c.u64()); s.Regs.ABI != ABINone {
			s.Regs.Mask = regs
			n := uint64(0)
			for m := regs; m != 0; m &= m - 1 {
				n++
			}
			s.Regs.Values = c.words(n)
		}
	}
	if sampleType&unix.PERF_SAMPLE_STACK_USER != 0 {
		// Without a stack the size is 0 and nothing follows, not even how much of it was filled.
		if size := c.u64(); size > 0 {
			data, filled := c.take(size), c.u64()
			if filled > uint64(len(data)) {
				c.bad = true
				filled = 0
			}
			s.Stack = data[:filled]
		}
	}
	if c.bad {
		return fmt.Errorf("sample of %d bytes: %w", len(b), errShort)
	}
	return nil
}

// Mmap2 decodes a RecordMmap2.
func (r *Record) Mmap2() (m Mmap2, ok bool) {
	if r.Type != RecordMmap2 {
		return m, false
	}
	c := cursor{b: r.body}
	c.u64() // pid and tid, which r has
	m.Addr, m.Len, m.Offset = c.u64(), c.u64(), c.u64()
	if r.Misc&MiscMmapBuildID != 0 {
		if b := c.take(24); b != nil {
			m.BuildID = b[4 : 4+min(int(b[0]), 20)]
		}
	} else {
		m.Major, m.Minor, m.Inode, m.InodeGen = c.u32(), c.u32(), c.u64(), c.u64()
	}
	m.Prot, m.Flags = c.u32(), c.u32()
	m.Path = text(c.b)
	return m, !c.bad
}

// Comm decodes a RecordComm: the new name, which is no more than 15 bytes of anything.
func (r *Record) Comm() (name []byte, exec, ok bool) {
	if r.Type != RecordComm || len(r.body) < 8 {
		return nil, false, false
	}
	return text(r.body[8:]), r.Misc&MiscCommExec != 0, true
}

// Task decodes a RecordFork or RecordExit.
func (r *Record) Task() (t Task, ok bool) {
	if r.Type != RecordFork && r.Type != RecordExit {
		return t, false
	}
	c := cursor{b: r.body}
	t.Pid, t.ParentPid, t.Tid, t.ParentTid, t.Time = c.u32(), c.u32(), c.u32(), c.u32(), c.u64()
	return t, !c.bad
}

// Lost decodes a RecordLost or RecordLostSamples: how many records the kernel dropped.
func (r *Record) Lost() (n uint64, ok bool) {
	c := cursor{b: r.body}
	switch r.Type {
	case RecordLost:
		c.u64() // the id of the event, of an inherited one its own, which nobody knows
	case RecordLostSamples:
	default:
		return 0, false
	}
	n = c.u64()
	return n, !c.bad
}

// text cuts at the first NUL.
func text(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}
