// Package wire is the layout of the records that kernel programs put into the ring, written once: the generator of
// those programs takes the offsets from here, and so does the reader.
//
// All numbers are little-endian. A record starts 8-aligned with a Header; what follows depends on its kind:
//
//	SysEnter  args [6]u64, then segments
//	SysExit   ret i64, args [6]u64, then segments
//	Hit       slots [n]u64, then segments; n is at OffSlots. Slot 0 is the stack pointer
//	Return    slots [n]u64, then segments; slot 0 is the stack pointer after the return, 1 and 2 are the return registers
//	Break     as Hit: slot 1 is the address, the first segment what the watched memory holds, the one at address 0 lines of
//	          start, end, offset and path of the process's code
//	Stack     id u64, why u32, frames u32, guessed u32, device u32, inode u64, then FrameSize bytes for each frame: the pc, then
//	          the place in the file, the module and whether the pc is exact (the others are return addresses) in one word
//	Module    number u32, length of the build-id u32, the build-id, the path
//	Fork      child tid u32, child tgid u32, clone flags u64
//	Exec      old tid u32, pad u32, comm [16]byte
//	Exit      wait status u32, group dead u32
//	Signal    signo i32, result u32 (0 delivered, 1 ignored), siginfo [128]byte (kernel part; rest zero)
//	Rename    comm [16]byte
//
// A segment is a copy of user memory: addr u64, len i32 (or -errno), flags u16, fetch index u16, then the data, padded to
// 8 bytes. Segments run to the end of the record.
package wire

import "encoding/binary"

// Kind of a record.
type Kind uint8

const (
	Hit      Kind = 1 // a probe in a program or in the kernel
	Return   Kind = 2 // a probed function returned
	SysEnter Kind = 3
	SysExit  Kind = 4
	// Break is no event: a breakpoint was armed in a process. Sessions make it.
	Break Kind = 5
	// Stack is no event: the frames of a stack, sent once. Records of events name it by its id, in a segment with SegStack.
	Stack Kind = 7
	// Module is no event: what the number of a module in stacks stands for. The kernel sends none; sessions make them.
	Module Kind = 8
	Fork   Kind = 16
	Exec   Kind = 17
	Exit   Kind = 18
	Signal Kind = 19
	Rename Kind = 20
	// Tick is no event and has no body: nothing came up to its time. The kernel sends none; sessions put it into
	// recordings.
	Tick Kind = 21
)

// Flags of a record.
const (
	FlagTruncated  = 1  // a segment was cut for want of space in the record
	FlagUnreadable = 2  // a segment holds -errno
	FlagRegs       = 4  // registers follow
	FlagStack      = 8  // a stack copy follows
	FlagStackID    = 16 // a stack id follows
	FlagCompat     = 32 // the task entered through the 32-bit gate
	FlagAnswered   = 64 // an entry that was recorded at its return: the kernel answered the call without running it
)

// Offsets in the header (record v1).
const (
	OffSize    = 0  // u32, header included
	OffKind    = 4  // u8
	OffSlots   = 5  // u8, number of slots of a Hit or Return
	OffFlags   = 6  // u16
	OffTime    = 8  // u64, CLOCK_MONOTONIC ns
	OffProbe   = 16 // u32, syscall number (as the task passed it) or probe id
	OffCPU     = 20 // u32
	OffTid     = 24 // u32
	OffTgid    = 28 // u32
	OffIP      = 32 // u64, user instruction pointer
	OffSeq     = 40 // u32, count of records of this kind attempted on this CPU; a gap is a loss
	OffMask    = 44 // u32, bit i: slot i could not be read
	HeaderSize = 48

	OffEnterArgs = HeaderSize
	EnterSize    = OffEnterArgs + 6*8

	OffRet      = HeaderSize
	OffExitArgs = OffRet + 8
	ExitSize    = OffExitArgs + 6*8

	// MaxSlots is the most slots of a record, as many as OffMask has bits.
	MaxSlots  = 32
	SlotSP    = 0
	SlotRet   = 1 // Return: the first return register
	SlotRet2  = 2 // Return: the second
	FirstSlot = 1 // Hit: the first that the probe chose
	KeptSlot  = 3 // Return: the first slot kept from the entry

	OffStackID      = HeaderSize
	OffStackWhy     = HeaderSize + 8
	OffStackN       = HeaderSize + 12
	OffStackGuessed = HeaderSize + 16
	OffStackDev     = HeaderSize + 20
	OffStackIno     = HeaderSize + 24
	StackFrames     = HeaderSize + 32
	FrameSize       = 16
	MaxFrames       = 512
	// A frame's second word.
	FrameOffsetBits  = 44
	FrameModuleShift = 44
	FrameModuleBits  = 19
	FrameExactShift  = 63

	SegmentHeader = 16
	// Segment flags.
	SegString = 1  // text; ended by a NUL in the program unless SegCut is set
	SegCut    = 2  // the program had more than was copied
	SegFault  = 8  // with SegCut: the rest could not be read; a later record of the call may have all of it
	SegSocket = 16 // not memory: Addr is a descriptor, data is its socket's family, type and protocol (u16 each) and two zero bytes
	SegRegs   = 64 // not the caller's memory: the registers, as the kernel's struct pt_regs has them
	SegStack  = 32 // not memory: Addr is the id of the stack at the event, and there is no data
	// SegFD is not memory: Addr is a descriptor (or AT_FDCWD), data is what it refers to at the time of the call. For the file of a
	// device FDDeviceSize bytes follow: a NUL, 'c' or 'b', and the kernel's own dev_t, 32 bits (include/linux/kdev_t.h).
	SegFD = 4
)

// FDDeviceSize is the size of what follows the name of a device in a SegFD.
const FDDeviceSize = 6

// Record is one record's bytes. Its methods assume Valid.
type Record []byte

// Valid reports whether r is long enough for its kind; recordings come from anywhere.
func (r Record) Valid() bool {
	if len(r) < HeaderSize || int(binary.LittleEndian.Uint32(r)) != len(r) {
		return false
	}
	switch r.Kind() {
	case SysEnter:
		return len(r) >= EnterSize
	case SysExit:
		return len(r) >= ExitSize
	case Hit, Return, Break:
		least := FirstSlot
		if r.Kind() == Return {
			least = KeptSlot
		}
		return r.NSlots() >= least && r.NSlots() <= MaxSlots && len(r) >= HeaderSize+8*r.NSlots()
	case Stack:
		return len(r) >= StackFrames && uint64(binary.LittleEndian.Uint32(r[OffStackN:]))*FrameSize == uint64(len(r)-StackFrames)
	case Module:
		return len(r) >= HeaderSize+8 && uint64(binary.LittleEndian.Uint32(r[HeaderSize+4:])) <= uint64(len(r)-HeaderSize-8)
	case Fork, Exec, Exit, Signal, Rename:
		return len(r) >= HeaderSize+LifeSize(r.Kind())
	}
	return true
}

// LifeSize is the size of the body of a life-cycle record.
func LifeSize(k Kind) int {
	switch k {
	case Fork, Rename:
		return 16
	case Exec:
		return 24
	case Exit:
		return 8
	case Signal:
		return 136
	}
	return 0
}

func (r Record) Kind() Kind    { return Kind(r[OffKind]) }
func (r Record) Flags() uint16 { return binary.LittleEndian.Uint16(r[OffFlags:]) }
func (r Record) Time() uint64  { return binary.LittleEndian.Uint64(r[OffTime:]) }
func (r Record) Probe() uint32 { return binary.LittleEndian.Uint32(r[OffProbe:]) }
func (r Record) CPU() uint32   { return binary.LittleEndian.Uint32(r[OffCPU:]) }
func (r Record) Tid() uint32   { return binary.LittleEndian.Uint32(r[OffTid:]) }
func (r Record) Tgid() uint32  { return binary.LittleEndian.Uint32(r[OffTgid:]) }
func (r Record) IP() uint64    { return binary.LittleEndian.Uint64(r[OffIP:]) }
func (r Record) Seq() uint32   { return binary.LittleEndian.Uint32(r[OffSeq:]) }
func (r Record) Body() []byte  { return r[HeaderSize:] }
func (r Record) Ret() int64    { return int64(binary.LittleEndian.Uint64(r[OffRet:])) }

// Args returns the six argument registers of a SysEnter or SysExit record.
func (r Record) Args() (a [6]uint64) {
	off := OffEnterArgs
	if r.Kind() == SysExit {
		off = OffExitArgs
	}
	for i := range a {
		a[i] = binary.LittleEndian.Uint64(r[off+8*i:])
	}
	return a
}

// NSlots is the number of slots of a Hit or Return record.
func (r Record) NSlots() int { return int(r[OffSlots]) }

// Slot is slot i; ok is false when it could not be read.
func (r Record) Slot(i int) (v uint64, ok bool) {
	return binary.LittleEndian.Uint64(r[HeaderSize+8*i:]), binary.LittleEndian.Uint32(r[OffMask:])>>i&1 == 0
}

// Segments returns the segments of a SysEnter, SysExit, Hit or Return record.
func (r Record) Segments() Segments {
	switch r.Kind() {
	case SysExit:
		return Segments(r[ExitSize:])
	case Hit, Return, Break:
		return Segments(r[HeaderSize+8*r.NSlots():])
	}
	return Segments(r[EnterSize:])
}

// Regs are the registers at the event of a record, as the architecture's struct pt_regs has them; nil when they were not taken.
func (r Record) Regs() []byte {
	switch r.Kind() {
	case Hit, Return, SysEnter:
	default:
		return nil
	}
	for s := r.Segments(); ; {
		seg, rest, ok := s.Next()
		if !ok {
			return nil
		}
		if seg.Flags&SegRegs != 0 && seg.Errno == 0 {
			return seg.Data
		}
		s = rest
	}
}

// StackID is the id of the stack at the event of a record, 0 for none.
func (r Record) StackID() uint64 {
	switch r.Kind() {
	case Hit, Return, SysEnter:
	default:
		return 0
	}
	for s := r.Segments(); ; {
		seg, rest, ok := s.Next()
		if !ok {
			return 0
		}
		if seg.Flags&SegStack != 0 {
			return seg.Addr
		}
		s = rest
	}
}

// Segments is a run of segments.
type Segments []byte

// Segment is one copy of user memory.
type Segment struct {
	Addr  uint64
	Data  []byte
	Errno uint16 // not zero: the read failed, Data is empty
	Flags uint16
}

// Next splits off the first segment; ok is false at the end or on malformed bytes.
func (s Segments) Next() (seg Segment, rest Segments, ok bool) {
	if len(s) < SegmentHeader {
		return seg, nil, false
	}
	n := int32(binary.LittleEndian.Uint32(s[8:]))
	seg.Addr = binary.LittleEndian.Uint64(s)
	seg.Flags = binary.LittleEndian.Uint16(s[12:])
	s = s[SegmentHeader:]
	if n < 0 {
		seg.Errno = uint16(-n)
		return seg, s, true
	}
	pad := (int(n) + 7) &^ 7
	if int(n) > len(s) {
		return Segment{}, nil, false
	}
	if pad > len(s) {
		pad = len(s)
	}
	seg.Data = s[:n:n]
	return seg, s[pad:], true
}

// Find returns the captured bytes that begin at addr, the longest copy of them: those that were read (data), the flags of
// their segment, or the errno of the failed read. found is false when nothing was captured there.
func (s Segments) Find(addr uint64) (data []byte, flags, errno uint16, found bool) {
	for {
		seg, rest, ok := s.Next()
		if !ok {
			return data, flags, errno, found
		}
		s = rest
		switch {
		case seg.Flags&(SegFD|SegSocket|SegStack|SegRegs) != 0:
		case seg.Errno != 0:
			if seg.Addr == addr && !found {
				errno, found = seg.Errno, true
			}
		case addr == seg.Addr || addr > seg.Addr && addr-seg.Addr < uint64(len(seg.Data)):
			// Another segment may hold more of the same memory, or hold it read successfully.
			if d := seg.Data[addr-seg.Addr:]; !found || errno != 0 || len(d) > len(data) {
				data, flags, errno, found = d, seg.Flags, 0, true
			}
		}
	}
}
