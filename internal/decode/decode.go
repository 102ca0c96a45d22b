// Package decode turns the raw facts of a system call (registers and the memory captured with it) into values of package
// event, as strace(1) shows them. It is pure: the same record gives the same values on any machine, live or replayed.
//
// A family of calls is one file with a table of rows ([Spec]) and the functions they name. A decoder adds one top-level
// value per argument, in order. Before the call has returned ([Cx.Entering]) it stops in front of the first argument
// that the kernel still has to fill; after the return it runs from the start and adds them all.
//
// Decoding never fails, it degrades: memory that was not captured or could not be read becomes its address.
package decode

import (
	"strconv"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// Spec is how one call is captured and decoded. Calls without a Spec are shown by their prototype alone.
type Spec struct {
	Name string
	// Enter and Exit are the memory to take with the entry and with the return. Enter32 and Exit32 replace them for
	// ABIs with 4-byte pointers where they differ.
	Enter, Exit     []syscalls.Fetch
	Enter32, Exit32 []syscalls.Fetch
	// Decode adds the arguments. Required.
	Decode func(c *Cx)
	// Ret says how the return value is shown; nil is a decimal number.
	Ret func(c *Cx)
	// RetFD says that the return value is a descriptor.
	RetFD bool
	// NoReturn marks calls that do not come back: exit, exit_group.
	NoReturn bool
}

// Moment says when memory was captured.
type Moment uint8

const (
	In  Moment = iota // at entry; a read that failed then may have been repeated at exit
	Out               // after the return
)

// Options are the choices of the user that change what is decoded, not how it is printed.
type Options struct {
	StrLimit int  // bytes of strings and buffers to show; 0 means 256
	Abbrev   bool // leave out the less telling parts of structures (strace without -v)
	Plain    bool // structures as addresses (strace -e verbose= without the call); strings and buffers stay
}

// Cx is one call being decoded. It is reused from call to call.
type Cx struct {
	event.Builder
	Opt  Options
	ABI  *syscalls.ABI
	Def  *syscalls.Def // nil for a number without name
	Nr   uint32
	Arg  [6]uint64 // zero-extended to 64 bits for ABIs with 4-byte pointers
	Ret  int64     // meaningful when Exited
	Pid  uint32
	Tid  uint32
	Note string // the return value's explanation, set by decoders: "Timeout", "left {…}"

	Noted bool // there is an explanation although it is empty

	Exited bool
	// Memory as captured. EnterSeg is empty when the entry was not seen.
	EnterSeg, ExitSeg wire.Segments

	stop bool // an arg needs the return and it is not there yet
}

// Entering reports that the call has not returned: out-parameters are not there yet.
func (c *Cx) Entering() bool { return !c.Exited }

// Failed reports that the call returned an error.
func (c *Cx) Failed() bool { return c.Exited && c.Ret < 0 && c.Ret >= -4095 }

// Errno is the positive error number of a failed call, else 0.
func (c *Cx) Errno() int {
	if c.Failed() {
		return int(-c.Ret)
	}
	return 0
}

// Ptr32 reports an ABI with 4-byte pointers and longs.
func (c *Cx) Ptr32() bool { return c.ABI.PtrSize == 4 }

// Mem returns up to n captured bytes at addr; fewer when fewer were captured, with the errno of the read that failed (0:
// nobody captured it). cut reports that the program had more.
func (c *Cx) Mem(m Moment, addr uint64, n int) (data []byte, cut bool, errno uint16) {
	data, flags, errno := c.structMem(m, addr, n)
	return data, flags&wire.SegCut != 0, errno
}

// structMem is mem for structures, of which nothing is there when they are to be addresses.
func (c *Cx) structMem(m Moment, addr uint64, n int) (data []byte, flags, errno uint16) {
	if c.Opt.Plain {
		return nil, 0, 0
	}
	return c.mem(m, addr, n)
}

// mem is Mem with the flags of the segment; SegCut says that the program had more than n bytes too.
func (c *Cx) mem(m Moment, addr uint64, n int) (data []byte, flags, errno uint16) {
	if m == In {
		var found bool
		data, flags, errno, found = c.EnterSeg.Find(addr)
		if !found || errno != 0 {
			if d, f, e, ok := c.ExitSeg.Find(addr); ok && (e == 0 || !found) {
				data, flags, errno = d, f, e
			}
		} else if flags&wire.SegFault != 0 {
			// The entry met a page that was not there; the kernel may have brought it in since.
			if d, f, e, ok := c.ExitSeg.Find(addr); ok && e == 0 && len(d) > len(data) {
				data, flags = d, f
			}
		}
	} else {
		data, flags, errno, _ = c.ExitSeg.Find(addr)
	}
	if len(data) > n {
		return data[:n], flags&^wire.SegFault | wire.SegCut, 0
	}
	return data, flags, errno
}

// Bytes returns exactly n bytes at addr, or nil and the errno.
func (c *Cx) Bytes(m Moment, addr uint64, n int) ([]byte, uint16) {
	b, _, errno := c.Mem(m, addr, n)
	if len(b) < n {
		return nil, errno
	}
	return b, 0
}

// Load returns n bytes at addr for a structure. When they are not there it adds the address (or NULL) in their place and
// reports false, as it does for out-parameters of a failed call.
func (c *Cx) Load(m Moment, addr uint64, n int) ([]byte, bool) {
	if addr == 0 {
		c.Ptr(0)
		return nil, false
	}
	if m == Out && (c.Failed() || !c.Exited) {
		c.Ptr(addr)
		return nil, false
	}
	b, errno := c.Bytes(m, addr, n)
	if b == nil {
		c.Unreadable(addr, errno)
		return nil, false
	}
	return b, true
}

// Unreadable adds an address whose memory was asked for and is not there.
func (c *Cx) Unreadable(addr uint64, errno uint16) {
	if addr == 0 {
		c.Ptr(0)
		return
	}
	c.Add(event.Node{Kind: event.KindUnreadable, Num: addr, Errno: errno})
}

// limit is the number of bytes of a string to show.
func (c *Cx) limit() int {
	if c.Opt.StrLimit == 0 {
		return 256
	}
	return c.Opt.StrLimit
}

// Text adds the NUL-terminated string at addr, cut at the string limit.
func (c *Cx) Text(m Moment, addr uint64) { c.text(m, addr, c.limit(), 0) }

// PathAt adds the file name at addr; names are cut where the kernel refuses them, at PATH_MAX with the NUL, not at the
// string limit.
func (c *Cx) PathAt(m Moment, addr uint64) { c.text(m, addr, syscalls.PathMax-1, event.AttrPath) }

const efault = 14 // EFAULT

func (c *Cx) text(m Moment, addr uint64, limit int, attr event.Attr) {
	if addr == 0 {
		c.Ptr(0)
		return
	}
	if m == Out && (c.Failed() || !c.Exited) {
		c.Ptr(addr)
		return
	}
	b, flags, errno := c.mem(m, addr, 1<<20)
	cut := flags&wire.SegCut != 0
	if b == nil {
		c.Unreadable(addr, errno)
		return
	}
	for i, ch := range b {
		if ch == 0 {
			b, cut = b[:i], false
			break
		}
	}
	if cut && len(b) < limit {
		// Memory ends before the text does.
		c.Unreadable(addr, efault)
		return
	}
	n := event.Node{Kind: event.KindString, Data: b, Attr: attr}
	if len(b) > limit {
		n.Data, cut = b[:limit], true
	}
	if cut {
		n.Attr |= event.AttrTruncated
	}
	c.Add(n)
}

// Buffer adds size bytes at addr as a quoted buffer, cut at the string limit and marked so.
func (c *Cx) Buffer(m Moment, addr uint64, size int64) {
	if addr == 0 {
		c.Ptr(0)
		return
	}
	if m == Out && (c.Failed() || !c.Exited) || size < 0 {
		c.Ptr(addr)
		return
	}
	if size == 0 {
		c.Add(event.Node{Kind: event.KindBytes})
		return
	}
	want := size
	if want > int64(c.limit()) {
		want = int64(c.limit())
	}
	b, flags, errno := c.mem(m, addr, int(want))
	if b == nil || int64(len(b)) < want && flags&wire.SegFault != 0 {
		c.Unreadable(addr, errno)
		return
	}
	n := event.Node{Kind: event.KindBytes, Data: b, Num: uint64(size)}
	if int64(len(b)) < size {
		n.Attr |= event.AttrTruncated
	}
	c.Add(n)
}

// FD adds a descriptor (the low 32 bits of v, signed).
func (c *Cx) FD(v uint64) {
	n := event.Node{Kind: event.KindFD, Num: uint64(int64(int32(v)))}
	if int32(v) >= 0 { // what is captured for -100 is the directory that AT_FDCWD stands for
		n.Data = c.fdName(c.fdPath(v))
	}
	c.Add(n)
}

// fdName is what a descriptor refers to as nodes hold it; see [event.KindFD].
func (c *Cx) fdName(data []byte) []byte {
	at := len(data) - wire.FDDeviceSize
	if at <= 0 || data[at] != 0 {
		return data
	}
	var buf [64]byte
	b := append(buf[:0], 0)
	switch data[at+1] {
	case 'c':
		b = append(b, "char "...)
	case 'b':
		b = append(b, "block "...)
	default:
		return data[:at]
	}
	const minorBits = 20
	dev := uint64(U32(data, at+2))
	b = append(strconv.AppendUint(b, dev>>minorBits, 10), ':')
	b = strconv.AppendUint(b, dev&(1<<minorBits-1), 10)
	return c.Keep(append(append(make([]byte, 0, at+len(b)), data[:at]...), b...))
}

// DirFD adds a directory descriptor: AT_FDCWD by name.
func (c *Cx) DirFD(v uint64) {
	if int32(v) == -100 {
		c.Add(event.Node{Kind: event.KindFD, Num: uint64(int64(int32(v))), Sym: "AT_FDCWD", Data: c.fdName(c.fdPath(v))})
		return
	}
	c.FD(v)
}

// returnedFD adds a descriptor that the call returned: what it refers to now, not what its number meant before.
func (c *Cx) returnedFD(v uint64) {
	c.Add(event.Node{Kind: event.KindFD, Num: uint64(int64(int32(v))), Data: c.fdName(fdPathIn(c.ExitSeg, v))})
}

// fdPath is what v referred to at entry, or, of a descriptor that the call made, what it refers to since.
func (c *Cx) fdPath(v uint64) []byte {
	path := fdPathIn(c.EnterSeg, v)
	if path == nil && !(c.Exited && c.Ret >= 0 && int32(v) == int32(c.Ret)) {
		path = fdPathIn(c.ExitSeg, v)
	}
	return path
}

func fdPathIn(s wire.Segments, v uint64) []byte {
	for {
		seg, rest, ok := s.Next()
		if !ok {
			return nil
		}
		s = rest
		if seg.Flags&wire.SegFD != 0 && int32(seg.Addr) == int32(v) {
			return seg.Data
		}
	}
}

// PID adds a process or thread id.
func (c *Cx) PID(v uint64) {
	c.Add(event.Node{Kind: event.KindPID, Num: uint64(int64(int32(v)))})
}

// Name adds v by its name in an enumeration; a number without name keeps its value beside the set's prefix.
func (c *Cx) Name(v uint64, s *constant.Set) {
	s = s.For(c.ABI.Name)
	if name, ok := s.Name(v); ok {
		c.Sym(name, v)
		return
	}
	c.Add(event.Node{Kind: event.KindHex, Num: v, Sym: s.Prefix})
}

// Flags adds v as the names of its bits; bits without a name follow as a number. A zero with a name in the set shows
// that name.
func (c *Cx) Flags(v uint64, s *constant.Set) {
	s = s.For(c.ABI.Name)
	if v == 0 {
		for i := range s.Entries {
			if s.Entries[i].Num == 0 {
				c.Sym(s.Entries[i].Name, 0)
				return
			}
		}
		c.Add(event.Node{Kind: event.KindHex})
		return
	}
	first := true
	left := v
	for i := range s.Entries {
		e := &s.Entries[i]
		if e.Num != 0 && left&e.Num == e.Num {
			if first {
				c.Begin(event.Node{Kind: event.KindFlags, Num: v})
				first = false
			}
			c.Sym(e.Name, e.Num)
			left &^= e.Num
			if left == 0 {
				break
			}
		}
	}
	if first {
		c.Add(event.Node{Kind: event.KindHex, Num: v, Sym: s.Prefix})
		return
	}
	if left != 0 {
		c.Hex(left)
	}
	c.End()
}

// Word reads a pointer-sized number of the call's ABI at off.
func (c *Cx) Word(b []byte, off int) uint64 {
	if c.ABI.PtrSize == 4 {
		return uint64(U32(b, off))
	}
	return U64(b, off)
}

// U16, U32 and U64 read little-endian numbers at off; both architectures are little-endian.
func U16(b []byte, off int) uint16 { return uint16(b[off]) | uint16(b[off+1])<<8 }
func U32(b []byte, off int) uint32 {
	_ = b[off+3]
	return uint32(b[off]) | uint32(b[off+1])<<8 | uint32(b[off+2])<<16 | uint32(b[off+3])<<24
}
func U64(b []byte, off int) uint64 { return uint64(U32(b, off)) | uint64(U32(b, off+4))<<32 }
func I32(b []byte, off int) int64  { return int64(int32(U32(b, off))) }
