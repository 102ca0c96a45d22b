package bpfgen

import (
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf/asm"

	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// Shape is one program that adds copies of the caller's memory to a record begun by a dispatcher. Calls with the same fetches share it.
type Shape struct {
	Exit    bool // it runs at the return
	Ptr     int  // size of pointers in the caller's memory
	Fetches []syscalls.Fetch
	// Again, when positive, is the index of the first fetch that runs only to repeat what could not be read at entry.
	Again int
	// FDs has bit i set for each argument that is a descriptor to name, RetFD is set when the return value is one.
	FDs   uint8
	RetFD bool
}

// maxScratch bounds the data of one record. Fetches that might not fit are cut, and the record says so.
const maxScratch = 256 << 10

// slack is room behind a record for reads whose bound the verifier cannot see.
const slack = 2*pageSize + 64

const pageSize = 4096

// Need is the size in bytes of the scratch buffer that the shape wants with a string limit.
func (sh *Shape) Need(strLimit int) int {
	n := wire.ExitSize + 2*wire.SegmentHeader + 272 + 16
	for i := range sh.Fetches {
		n += sh.worst(&sh.Fetches[i], strLimit)
	}
	for range sh.descriptors() {
		n += wire.SegmentHeader + pathArea + 64
	}
	return min(n, maxScratch)
}

// descriptors is the number of descriptors that the shape names.
func (sh *Shape) descriptors() int {
	n := bits.OnesCount8(sh.FDs)
	if sh.RetFD {
		n++
	}
	return n
}

// worst is the most that a fetch can add to a record.
func (sh *Shape) worst(f *syscalls.Fetch, strLimit int) int {
	one := func(n int) int { return wire.SegmentHeader + n + 2 + 8 }
	switch f.Kind {
	case syscalls.FetchSocket:
		return one(socketSize)
	case syscalls.FetchDescriptor:
		return one(pathArea + 64)
	case syscalls.FetchStrings:
		return one((syscalls.MaxStrings+1)*sh.Ptr) + syscalls.MaxStrings*one(maxLen(f, strLimit))
	case syscalls.FetchIovec:
		return one(syscalls.MaxIovecs*2*sh.Ptr) + syscalls.MaxIovecs*one(strLimit)
	default:
		return one(maxLen(f, strLimit))
	}
}

// maxLen is the most bytes that a fetch copies in one segment.
func maxLen(f *syscalls.Fetch, strLimit int) int {
	if f.Len.Max != 0 && f.Kind != syscalls.FetchIovec {
		return int(f.Len.Max)
	}
	return strLimit
}

// Shape programs keep what must outlive a few instructions in the scratch buffer, in front of the record (offsets from
// the record): what the verifier sees on the stack multiplies the states it walks, what lies in a map does not.
const (
	tmpErrno = -8   // u64, result of the failed read
	tmpWant  = -16  // u64, bytes wanted
	tmpFail  = -24  // u64, some read failed
	tmpBase  = -32  // u64, record offset of the array that is being walked
	tmpCount = -40  // u64, elements in it
	tmpLeft  = -48  // u64, bytes that a bounded sum of buffers may still take
	tmpAddr  = -56  // u64, a pointer
	tmpGot   = -64  // u64, bytes copied page by page
	tmpSize  = -72  // u64, size of the record so far
	tmpRetry = -160 // u64, written by the dispatcher of returns: some read failed at entry
	tmpStack = -168 // u64, written by whoever walked the stack: its id, or zero
	tmpRefs  = -192 // u64 each, downwards: numbers taken from the data of earlier fetches
	maxRefs  = (scratchRecord+tmpRefs)/8 - 1
)

// A memRef is a number that a later fetch takes from the data of an earlier one.
type memRef struct {
	fetch uint32
	off   uint16
	width uint8
}

// shape is one shape program being generated. Registers: r7 the record, r8 its size while a segment is made (kept at
// tmpSize in between), r6 and r9 scratch that survives calls.
type shape struct {
	*gen
	sh       *Shape
	strLimit int
	capacity int
	refs     []memRef
	generic  bool   // it walks lists of fetches: the index of a fetch is at tmpTurn
	probe    *Probe // nil for system calls
}

// Compile generates the program of a shape. scratch is the size of the scratch buffers, at least that of [ScratchSize].
func (s *Syscalls) Compile(sh *Shape, strLimit, scratch int) (*Program, error) {
	g, err := s.gen(sh.Exit)
	if err != nil {
		return nil, err
	}
	p := &shape{gen: g, sh: sh, strLimit: strLimit, capacity: scratch - scratchRecord - slack - pathSpace}
	if err := p.collectRefs(); err != nil {
		return nil, err
	}
	p.say("find the record that the dispatcher began")
	p.takeRecord()
	for i := range p.refs {
		p.emit(storeImm(r7, tmpRefs-8*i, 0, u64))
	}
	first := p.label("first")
	for i := range sh.Fetches {
		if sh.Again > 0 && i == sh.Again {
			p.say("did a read fail at entry")
			p.emit(load(r1, r7, tmpRetry, u64), asm.JEq.Imm(r1, 0, first))
		}
		if err := p.fetch(i); err != nil {
			return nil, fmt.Errorf("fetch %d: %w", i, err)
		}
	}
	p.bind(first)
	for i := range 6 {
		if sh.FDs&(1<<i) != 0 {
			p.say("what descriptor argument %d refers to", i)
			p.emit(load(r3, r7, p.args()+8*i, u64))
			p.descriptor(len(sh.Fetches) + i)
		}
	}
	if sh.RetFD {
		failed := p.label("failed")
		p.say("what the returned descriptor refers to")
		p.emit(load(r3, r7, wire.OffRet, u64), asm.JSLT.Imm(r3, 0, failed))
		p.descriptor(len(sh.Fetches) + 6)
		p.bind(failed)
	}
	p.send()
	name := "sonde_in"
	if sh.Exit {
		name = "sonde_out"
	}
	return p.program(name), nil
}

// takeRecord leaves the address of the record that the dispatcher began in r7.
func (p *shape) takeRecord() {
	p.findRecord()
	p.beginSize()
}

func (p *shape) findRecord() {
	p.emit(asm.FnGetCurrentPidTgid.Call(), store(fp, stPT, r0, u64))
	p.emit(asm.FnGetSmpProcessorId.Call(), store(fp, stCPU, r0, u32))
	p.findOwned(r7, "exit")
	p.emit(asm.Add.Imm(r7, scratchRecord))
}

func (p *shape) beginSize() {
	size := wire.EnterSize
	if p.sh.Exit {
		size = wire.ExitSize
	}
	p.emit(storeImm(r7, tmpSize, int32(size), u64), storeImm(r7, tmpFail, 0, u64))
	if p.StackDepth > 0 && !p.sh.Exit {
		p.stackSegment()
	}
	if p.Regs && !p.sh.Exit {
		p.registersSegment()
	}
}

// send sends the record and ends the program.
func (p *shape) send() {
	lostRing := StatEntryRing
	if p.sh.Exit {
		lostRing = StatExitRing
	}
	p.say("send the record")
	full, failed, huge, sent := p.label("full"), p.label("failed"), p.label("huge"), p.label("sent")
	release := storeImm(r7, scratchOwner-scratchRecord, 0, u64)
	p.emit(load(r8, r7, tmpSize, u64), asm.JGT.Imm(r8, int32(p.capacity), huge), store(r7, wire.OffSize, r8, u32), load(r6, r7, wire.OffSeq, u32),
		load(r9, r7, tmpFail, u64))
	p.wakeFlags(r4, r6)
	p.emit(mapPtr(r1, MapRing), asm.Mov.Reg(r2, r7), asm.Mov.Reg(r3, r8), asm.FnRingbufOutput.Call(), release, asm.JNE.Imm(r0, 0, full))
	if !p.sh.Exit {
		p.emit(asm.JNE.Imm(r9, 0, failed))
	}
	p.bind(sent)
	p.bind("exit")
	p.emit(asm.Mov.Imm(r0, 0), asm.Return())
	p.later(func() {
		p.bind(huge) // for the verifier: the size is always within the buffer
		p.emit(release, asm.Ja.Label(full))
	})
	p.later(func() {
		p.say("the record is lost")
		p.bind(full)
		p.statistics()
		p.count(r9, lostRing)
		if !p.sh.Exit {
			p.lostEntry()
		}
		p.emit(asm.Ja.Label(sent))
	})
	if !p.sh.Exit {
		p.later(func() {
			p.say("some memory could not be read: try again at the return")
			p.bind(failed)
			p.statistics()
			p.setState(stateRetry)
			p.emit(asm.Ja.Label(sent))
		})
	}
}

// ScratchSize is the size of the scratch buffers for a set of shapes.
func ScratchSize(shapes []*Shape, strLimit int) int {
	n := wire.ExitSize
	for _, sh := range shapes {
		n = max(n, sh.Need(strLimit))
	}
	return ScratchFor(n)
}

// ScratchFor is the size of scratch buffers for records of n bytes.
func ScratchFor(n int) int { return (scratchRecord + n + slack + pathSpace + 4095) &^ 4095 }

// collectRefs lists the numbers that fetches take from memory, so that each is kept on the stack when its fetch succeeds.
func (p *shape) collectRefs() error {
	add := func(at int, n syscalls.Number) error {
		if n.From != syscalls.FromMem {
			return nil
		}
		if int(n.N) >= at || p.sh.Fetches[n.N].Kind != syscalls.FetchBytes && p.sh.Fetches[n.N].Kind != syscalls.FetchSocket {
			return fmt.Errorf("fetch %d takes a number from fetch %d, which is not bytes taken before it", at, n.N)
		}
		if n.Width != 1 && n.Width != 2 && n.Width != 4 && n.Width != 8 {
			return fmt.Errorf("fetch %d takes a number of %d bytes; 1, 2, 4 and 8 are possible", at, n.Width)
		}
		if p.ref(n) < 0 {
			p.refs = append(p.refs, memRef{n.N, n.Off, n.Width})
		}
		return nil
	}
	if len(p.sh.Fetches) > 4*syscalls.MaxFetches {
		return fmt.Errorf("%d fetches in one direction; at most %d are possible", len(p.sh.Fetches), 4*syscalls.MaxFetches)
	}
	for i := range p.sh.Fetches {
		f := &p.sh.Fetches[i]
		for _, n := range []syscalls.Number{f.Base, f.Len.Number, f.Total, f.When.Value} {
			if err := add(i, n); err != nil {
				return err
			}
		}
	}
	if len(p.refs) > maxRefs {
		return fmt.Errorf("%d numbers taken from memory; at most %d are possible", len(p.refs), maxRefs)
	}
	return nil
}

func (p *shape) ref(n syscalls.Number) int {
	for i, r := range p.refs {
		if r == (memRef{n.N, n.Off, n.Width}) {
			return i
		}
	}
	return -1
}

func (p *shape) args() int {
	if p.probe != nil {
		return wire.HeaderSize
	}
	if p.exit {
		return wire.OffExitArgs
	}
	return wire.OffEnterArgs
}

// number loads an operand. It clobbers nothing else.
func (p *shape) number(dst asm.Register, n syscalls.Number) error {
	switch n.From {
	case syscalls.FromNothing:
		p.emit(asm.Mov.Imm(dst, 0))
	case syscalls.FromConst:
		p.emit(asm.LoadImm(dst, int64(n.N), asm.DWord))
	case syscalls.FromArg:
		if p.probe != nil && int(n.N) >= p.probe.NSlots() {
			return fmt.Errorf("value %d of a probe; there are %d", n.N, p.probe.NSlots())
		} else if p.probe == nil && n.N > 5 {
			return fmt.Errorf("argument %d of a system call; there are 6", n.N)
		}
		p.emit(load(dst, r7, p.args()+8*int(n.N), u64))
	case syscalls.FromIoctlSize:
		if n.N > 5 {
			return fmt.Errorf("argument %d of a system call; there are 6", n.N)
		}
		p.emit(load(dst, r7, p.args()+8*int(n.N), u64), asm.RSh.Imm(dst, 16), asm.And.Imm(dst, 0x3fff))
	case syscalls.FromRet:
		if !p.exit {
			return fmt.Errorf("the return value is not known at entry")
		}
		positive, at := p.label("pos"), wire.OffRet
		if p.probe != nil {
			at = wire.HeaderSize + 8*wire.SlotRet
		}
		p.emit(load(dst, r7, at, u64), asm.JSGE.Imm(dst, 0, positive), asm.Mov.Imm(dst, 0))
		p.bind(positive)
	case syscalls.FromMem:
		p.emit(load(dst, r7, tmpRefs-8*p.ref(n), u64))
	default:
		return fmt.Errorf("number source %d is not known", n.From)
	}
	return nil
}

// narrow reports whether a condition compares 32 bits. Commands are ints: what stands in the upper half of the register means nothing.
func narrow(c *syscalls.Cond) bool {
	narrow := c.Value.From == syscalls.FromArg && c.Mask == 0 && len(c.Any) > 0
	for _, v := range c.Any {
		narrow = narrow && v != 0 && v <= 0xffffffff
	}
	return narrow
}

// when jumps to skip unless the condition holds.
func (p *shape) when(c *syscalls.Cond, skip string) error {
	if c.Value.From == syscalls.FromNothing {
		return nil
	}
	if err := p.number(r1, c.Value); err != nil {
		return err
	}
	if narrow(c) {
		p.emit(asm.Mov.Reg32(r1, r1))
	}
	if c.Mask != 0 {
		p.emit(asm.LoadImm(r2, int64(c.Mask), asm.DWord), asm.And.Reg(r1, r2))
	}
	ok := p.label("when")
	for _, v := range c.Any {
		if c.Not {
			p.jumpIf(asm.JEq, r1, v, skip)
		} else {
			p.jumpIf(asm.JEq, r1, v, ok)
		}
	}
	if !c.Not {
		p.emit(asm.Ja.Label(skip))
	}
	p.bind(ok)
	return nil
}

// pointer loads the pointer of a fetch into r3 and jumps to skip when it is NULL.
func (p *shape) pointer(f *syscalls.Fetch, skip string) error {
	if f.Base.From != syscalls.FromArg && f.Base.From != syscalls.FromMem {
		return fmt.Errorf("the pointer must come from an argument or from memory")
	}
	if err := p.number(r3, f.Base); err != nil {
		return err
	}
	p.emit(asm.JEq.Imm(r3, 0, skip))
	if f.Off != 0 {
		p.emit(asm.Add.Imm(r3, int32(f.Off)))
	}
	return nil
}

// length loads the number of bytes that a fetch wants into r2.
func (p *shape) length(l *syscalls.Length) error {
	if err := p.number(r2, l.Number); err != nil {
		return err
	}
	if l.Elem > 1 {
		// A huge count times the element must not wrap to a small number.
		fits := p.label("fits")
		p.emit(asm.LoadImm(r1, 1<<32, asm.DWord), asm.JLE.Reg(r2, r1, fits), asm.Mov.Reg(r2, r1))
		p.bind(fits)
		p.emit(asm.Mul.Imm(r2, int32(l.Elem)))
	}
	if l.Add != 0 {
		p.emit(asm.Add.Imm(r2, int32(l.Add)))
	}
	return nil
}

func (p *shape) fetch(i int) error {
	f := &p.sh.Fetches[i]
	next := p.label("next")
	p.say("fetch %d: %s", i, describe(f))
	if err := p.when(&f.When, next); err != nil {
		return err
	}
	switch f.Kind {
	case syscalls.FetchSocket:
		err := p.socket(i, f, next)
		p.bind(next)
		return err
	case syscalls.FetchDescriptor:
		if p.Paths {
			if err := p.number(r3, f.Base); err != nil {
				return err
			}
			p.descriptor(i)
		}
		p.bind(next)
		return nil
	}
	if err := p.pointer(f, next); err != nil {
		return err
	}
	var err error
	switch f.Kind {
	case syscalls.FetchString:
		p.room(wire.SegmentHeader+maxLen(f, p.strLimit)+16, next)
		p.text(i, maxLen(f, p.strLimit))
	case syscalls.FetchBytes:
		if f.Len.From == syscalls.FromConst {
			// The common case: the length is known now, and is the most that is taken.
			n := int(f.Len.N)*max(1, int(f.Len.Elem)) + int(f.Len.Add)
			most := min(n, maxLen(f, p.strLimit))
			if most > 0 {
				p.room(wire.SegmentHeader+most+16, next)
				p.emit(asm.Mov.Imm(r2, int32(most)))
				p.bytes(i, most, n > most, next)
			}
		} else {
			p.emit(store(r7, tmpAddr, r3, u64))
			if err = p.length(&f.Len); err != nil {
				return err
			}
			most := maxLen(f, p.strLimit)
			p.emit(load(r3, r7, tmpAddr, u64), asm.JEq.Imm(r2, 0, next))
			p.room(wire.SegmentHeader+most+16, next)
			p.bytes(i, most, false, next)
		}
	case syscalls.FetchStrings:
		p.strings(i, f, next)
	case syscalls.FetchIovec:
		err = p.iovec(i, f, next)
	default:
		err = fmt.Errorf("kind %d is not known", f.Kind)
	}
	p.bind(next)
	return err
}

// room loads the size of the record so far into r8, and jumps to skip, marking the record, when n more bytes might not
// fit. The size comes from memory, so that the verifier sees the same state in front of each fetch, whatever came before: with
// a size in a register, each condition would double what it has to walk.
func (p *shape) room(n int, skip string) {
	cut := p.label("noroom")
	p.emit(load(r8, r7, tmpSize, u64), asm.JGT.Imm(r8, int32(max(0, p.capacity-n)), cut))
	p.later(func() {
		p.bind(cut)
		p.mark(wire.FlagTruncated)
		p.emit(asm.Ja.Label(skip))
	})
}

// mark sets a flag of the record. It clobbers r4.
func (p *shape) mark(flag int32) {
	p.emit(load(r4, r7, wire.OffFlags, u16), asm.Or.Imm(r4, flag), store(r7, wire.OffFlags, r4, u16))
}

// begin writes the segment header's address (r3), flags and fetch index, and leaves the address of the data in r1.
func (p *shape) begin(index int, flags int32) {
	p.emit(asm.Mov.Reg(r1, r7), asm.Add.Reg(r1, r8), store(r1, 0, r3, u64))
	if p.generic {
		p.emit(load(r4, r7, tmpTurn, u64), store(r1, 14, r4, u16))
	}
	p.flags(index, flags)
}

// flags writes the flags and the fetch index of the segment at r1.
func (p *shape) flags(index int, flags int32) {
	if p.generic {
		p.emit(storeImm(r1, 12, flags, u16))
		return
	}
	p.emit(storeImm(r1, 12, flags|int32(index)<<16, u32))
}

// end closes the segment whose data has r9 bytes: length, padding with zeros, and the new size of the record.
func (p *shape) end() {
	p.emit(asm.Mov.Reg(r1, r7), asm.Add.Reg(r1, r8), store(r1, 8, r9, u32),
		asm.Add.Reg(r1, r9), storeImm(r1, wire.SegmentHeader, 0, u64),
		asm.Add.Reg(r8, r9), asm.Add.Imm(r8, wire.SegmentHeader+7), asm.And.Imm(r8, -8), store(r7, tmpSize, r8, u64))
}

// text copies the string at r3, at most limit bytes without its NUL.
func (p *shape) text(index, limit int) {
	bad, got, long, done := p.label("bad"), p.label("got"), p.label("long"), p.label("done")
	p.begin(index, wire.SegString)
	p.emit(asm.Add.Imm(r1, wire.SegmentHeader), asm.Mov.Imm(r2, int32(limit+2)), p.readString(),
		asm.JGT.Imm(r0, int32(limit+2), bad), // errors are huge as unsigned numbers
		// The result counts the NUL, but for an empty string on 5.10, where it is 0.
		asm.Mov.Reg(r9, r0), asm.JEq.Imm(r0, 0, got), asm.Sub.Imm(r9, 1), asm.JGT.Imm(r9, int32(limit), long))
	p.bind(got)
	p.end()
	p.bind(done)
	p.later(func() {
		p.bind(long)
		p.emit(asm.Mov.Imm(r9, int32(limit)))
		p.setCut(index, wire.SegString)
		p.emit(asm.Ja.Label(got))
	})
	p.later(func() {
		p.bind(bad)
		p.emit(asm.Mov.Imm(r9, int32(limit)))
		p.partial(index, wire.SegString, limit, got, done)
	})
}

// setCut marks the segment as cut. It clobbers r1.
func (p *shape) setCut(index int, flags int32) {
	p.emit(asm.Mov.Reg(r1, r7), asm.Add.Reg(r1, r8))
	p.flags(index, flags|wire.SegCut)
}

// bytes copies r2 bytes at r3, at most limit. cut says that the program has more than r2.
func (p *shape) bytes(index, limit int, cut bool, next string) {
	bad, got, done := p.label("bad"), p.label("got"), p.label("done")
	flags := int32(0)
	if cut {
		flags = wire.SegCut
	}
	p.begin(index, flags)
	p.atMost(index, limit)
	p.emit(asm.Mov.Reg(r9, r2), asm.Add.Imm(r1, wire.SegmentHeader), p.read(), asm.JNE.Imm(r0, 0, bad))
	p.bind(got)
	p.keepRefs(index)
	p.end()
	p.bind(done)
	p.later(func() {
		p.bind(bad)
		p.partial(index, flags, limit, got, done)
	})
}

// atMost cuts r2 to limit, and marks the segment at r1 when it does.
func (p *shape) atMost(index, limit int) {
	long, fits := p.label("long"), p.label("fits")
	p.emit(asm.JGT.Imm(r2, int32(limit), long))
	p.bind(fits)
	p.later(func() {
		p.bind(long)
		p.emit(asm.Mov.Imm(r2, int32(limit)))
		p.flags(index, wire.SegCut)
		p.emit(asm.Ja.Label(fits))
	})
}

// keepRefs copies the numbers that later fetches want from the r9 bytes just read to the stack.
func (p *shape) keepRefs(index int) {
	if p.generic {
		p.place()
		return
	}
	for i, ref := range p.refs {
		if ref.fetch != uint32(index) {
			continue
		}
		size := map[uint8]asm.Size{1: u8, 2: u16, 4: u32, 8: u64}[ref.width]
		short := p.label("short")
		p.emit(asm.JLT.Imm(r9, int32(ref.off)+int32(ref.width), short),
			asm.Mov.Reg(r1, r7), asm.Add.Reg(r1, r8), load(r1, r1, wire.SegmentHeader+int(ref.off), size), store(r7, tmpRefs-8*i, r1, u64))
		p.bind(short)
	}
}

// partial copies page by page what can be read of the r9 bytes at the segment's address, after the read of all of them
// failed with r0. With some bytes it goes on at got, with r9 their number; with none it records the error and goes on at
// done.
func (p *shape) partial(index int, flags int32, limit int, got, done string) {
	p.say("copy up to the page that cannot be read")
	stop, none := p.label("stop"), p.label("none")
	p.emit(store(r7, tmpErrno, r0, u64), store(r7, tmpWant, r9, u64), storeImm(r7, tmpFail, 1, u64), storeImm(r7, tmpGot, 0, u64))
	// The count goes through memory, so that the verifier sees one state at the stop and not one per page.
	// Data that begins within a page touches one more, but then the last one cannot be read: all of it failed together.
	pages := (limit + pageSize - 1) / pageSize
	for range pages {
		left := p.label("left")
		p.emit(load(r9, r7, tmpGot, u64), asm.JGT.Imm(r9, int32(limit), stop),
			asm.Mov.Reg(r1, r7), asm.Add.Reg(r1, r8), load(r3, r1, 0, u64), asm.Add.Reg(r3, r9),
			asm.Mov.Reg(r4, r3), asm.And.Imm(r4, pageSize-1), asm.Mov.Imm(r6, pageSize), asm.Sub.Reg(r6, r4),
			load(r2, r7, tmpWant, u64), asm.Sub.Reg(r2, r9), asm.JSLE.Imm(r2, 0, stop),
			asm.JGE.Reg(r2, r6, left), asm.Mov.Reg(r6, r2))
		p.bind(left)
		// The verifier of 5.10 learns nothing from comparing two registers.
		p.emit(asm.JGT.Imm(r6, pageSize, stop),
			asm.Add.Imm(r1, wire.SegmentHeader), asm.Add.Reg(r1, r9), asm.Mov.Reg(r2, r6),
			p.read(), asm.JNE.Imm(r0, 0, stop), asm.Add.Reg(r9, r6), store(r7, tmpGot, r9, u64))
	}
	p.bind(stop)
	p.emit(load(r9, r7, tmpGot, u64), asm.JEq.Imm(r9, 0, none), asm.JGT.Imm(r9, int32(limit), none),
		load(r2, r7, tmpWant, u64), asm.JGE.Reg(r9, r2, got))
	p.emit(asm.Mov.Reg(r1, r7), asm.Add.Reg(r1, r8))
	p.flags(index, flags|wire.SegCut|wire.SegFault)
	p.emit(asm.Ja.Label(got))
	p.later(func() {
		p.say("nothing can be read")
		p.bind(none)
		p.mark(wire.FlagUnreadable)
		p.emit(asm.Mov.Reg(r1, r7), asm.Add.Reg(r1, r8), load(r2, r7, tmpErrno, u64), store(r1, 8, r2, u32),
			asm.Add.Imm(r8, wire.SegmentHeader), store(r7, tmpSize, r8, u64), asm.Ja.Label(done))
	})
}

// stLoop is the counter of the loop over an array. It stays on the stack, where the verifier knows its value: that is how it
// sees that the loop makes progress.
const stLoop = -40

// loop emits body up to n times; body leaves with a jump to end. At its start r2 holds the number of the turn.
func (p *shape) loop(n int, end string, body func()) {
	turn := p.label("turn")
	p.emit(storeImm(fp, stLoop, 0, u64))
	p.bind(turn)
	p.emit(load(r2, fp, stLoop, u64), asm.JGE.Imm(r2, int32(n), end), asm.Mov.Reg(r1, r2), asm.Add.Imm(r1, 1), store(fp, stLoop, r1, u64))
	body()
	p.emit(asm.Ja.Label(turn))
}

// element leaves the address of element r2 of the array at tmpBase in r1; at the end of the array it jumps to end.
func (p *shape) element(size int, end string) {
	p.emit(load(r1, r7, tmpCount, u64), asm.JGE.Reg(r2, r1, end), asm.Mul.Imm(r2, int32(size)),
		load(r1, r7, tmpBase, u64), asm.JGT.Imm(r1, int32(p.capacity), end), asm.Add.Reg(r1, r2), asm.Add.Reg(r1, r7))
}

// strings walks a NULL-terminated array of pointers at r3.
func (p *shape) strings(index int, f *syscalls.Fetch, next string) {
	size := p.sh.Ptr
	word := u64
	if size == 4 {
		word = u32
	}
	p.room(wire.SegmentHeader+(syscalls.MaxStrings+1)*size+16, next)
	p.begin(index, 0)
	// The pointers first, one by one, since nobody says how many there are.
	p.emit(asm.Mov.Reg(r6, r8), asm.Add.Imm(r6, wire.SegmentHeader), store(r7, tmpBase, r6, u64),
		storeImm(r7, tmpCount, 0, u64), storeImm(r7, tmpGot, 0, u64))
	counted, failed, more := p.label("counted"), p.label("failed"), p.label("more")
	p.loop(syscalls.MaxStrings+1, more, func() {
		p.emit(asm.Mul.Imm(r2, int32(size)), asm.Mov.Reg(r6, r2),
			asm.Mov.Reg(r1, r7), asm.Add.Reg(r1, r8), load(r3, r1, 0, u64), asm.Add.Reg(r3, r6),
			asm.Add.Imm(r1, wire.SegmentHeader), asm.Add.Reg(r1, r6), asm.Mov.Imm(r2, int32(size)), p.read(), asm.JNE.Imm(r0, 0, failed),
			asm.Mov.Reg(r1, r7), asm.Add.Reg(r1, r8), asm.Add.Reg(r1, r6), load(r1, r1, wire.SegmentHeader, word),
			asm.Add.Imm(r6, int32(size)), store(r7, tmpGot, r6, u64), asm.JEq.Imm(r1, 0, counted),
			load(r1, r7, tmpCount, u64), asm.Add.Imm(r1, 1), store(r7, tmpCount, r1, u64))
	})
	p.bind(more)
	p.setCut(index, 0)
	p.bind(counted)
	most := int32((syscalls.MaxStrings + 1) * size)
	p.emit(load(r9, r7, tmpGot, u64), asm.JGT.Imm(r9, most, next))
	p.end()
	p.later(func() {
		p.say("the array of pointers ends at a page that cannot be read")
		p.bind(failed)
		none := p.label("none")
		p.emit(storeImm(r7, tmpFail, 1, u64), store(r7, tmpErrno, r0, u64), load(r9, r7, tmpGot, u64), asm.JEq.Imm(r9, 0, none))
		p.emit(asm.Mov.Reg(r1, r7), asm.Add.Reg(r1, r8))
		p.flags(index, wire.SegCut|wire.SegFault)
		p.emit(asm.Ja.Label(counted))
		p.bind(none)
		p.mark(wire.FlagUnreadable)
		p.emit(asm.Mov.Reg(r1, r7), asm.Add.Reg(r1, r8), load(r2, r7, tmpErrno, u64), store(r1, 8, r2, u32),
			asm.Add.Imm(r8, wire.SegmentHeader), store(r7, tmpSize, r8, u64), asm.Ja.Label(next))
	})
	limit := maxLen(f, p.strLimit)
	one := wire.SegmentHeader + limit + 16
	p.loop(syscalls.MaxStrings, next, func() {
		p.element(size, next)
		p.emit(load(r3, r1, 0, word))
		p.room(one, next)
		p.text(index, limit)
	})
}

// iovec walks an array of struct iovec at r3.
func (p *shape) iovec(index int, f *syscalls.Fetch, next string) error {
	size := 2 * p.sh.Ptr
	p.emit(store(r7, tmpAddr, r3, u64))
	if f.Total.From != syscalls.FromNothing {
		if err := p.number(r1, f.Total); err != nil {
			return err
		}
		p.emit(store(r7, tmpLeft, r1, u64))
	}
	l := f.Len
	l.Elem, l.Add = uint16(size), 0
	if err := p.length(&l); err != nil {
		return err
	}
	p.buffers(index, f.Total.From != syscalls.FromNothing, next)
	return nil
}

// buffers copies the array of struct iovec at tmpAddr, which has r2 bytes, and the buffers: all together, where total says so, at most
// tmpLeft bytes.
func (p *shape) buffers(index int, total bool, next string) {
	size, word := 2*p.sh.Ptr, u64
	if p.sh.Ptr == 4 {
		word = u32
	}
	most := syscalls.MaxIovecs * size
	p.emit(load(r3, r7, tmpAddr, u64), asm.JEq.Imm(r2, 0, next), storeImm(r7, tmpCount, 0, u64))
	p.room(wire.SegmentHeader+most+16, next)
	bad, got := p.label("bad"), p.label("got")
	p.begin(index, 0)
	p.atMost(index, most)
	p.emit(asm.Mov.Reg(r9, r2), asm.Add.Imm(r1, wire.SegmentHeader), p.read(), asm.JNE.Imm(r0, 0, bad))
	p.bind(got)
	shift := int32(4)
	if size == 8 {
		shift = 3
	}
	p.emit(asm.Mov.Reg(r1, r8), asm.Add.Imm(r1, wire.SegmentHeader), store(r7, tmpBase, r1, u64),
		asm.Mov.Reg(r1, r9), asm.RSh.Imm(r1, shift), store(r7, tmpCount, r1, u64))
	p.end()
	p.later(func() {
		p.bind(bad)
		p.partial(index, 0, most, got, next)
	})
	one := wire.SegmentHeader + p.strLimit + 16
	p.loop(syscalls.MaxIovecs, next, func() {
		p.element(size, next)
		skip := p.label("skip")
		p.emit(load(r3, r1, 0, word), load(r2, r1, p.sh.Ptr, word))
		if total {
			within := p.label("within")
			p.emit(load(r4, r7, tmpLeft, u64), asm.JEq.Imm(r4, 0, next), asm.JLE.Reg(r2, r4, within), asm.Mov.Reg(r2, r4))
			p.bind(within)
			p.emit(asm.Sub.Reg(r4, r2), store(r7, tmpLeft, r4, u64))
		}
		p.emit(asm.JEq.Imm(r2, 0, skip), asm.JEq.Imm(r3, 0, skip))
		p.room(one, next)
		p.bytes(index|iovecBuffer, p.strLimit, false, next)
		p.bind(skip)
	})
}

// iovecBuffer keeps the buffers of an iovec apart from the bytes that numbers are taken from.
const iovecBuffer = 0x100

// describe says in words what a fetch takes, for verifier errors.
func describe(f *syscalls.Fetch) string {
	kind := map[syscalls.FetchKind]string{syscalls.FetchString: "string", syscalls.FetchBytes: "bytes", syscalls.FetchStrings: "array of strings", syscalls.FetchIovec: "iovec"}[f.Kind]
	return fmt.Sprintf("%s at %s, length %s × %d + %d, at most %d", kind, operand(f.Base), operand(f.Len.Number), max(1, int(f.Len.Elem)), f.Len.Add, f.Len.Max)
}

func operand(n syscalls.Number) string {
	switch n.From {
	case syscalls.FromConst:
		return fmt.Sprint(n.N)
	case syscalls.FromArg:
		return fmt.Sprintf("argument %d", n.N)
	case syscalls.FromIoctlSize:
		return fmt.Sprintf("the size in the command in argument %d", n.N)
	case syscalls.FromRet:
		return "the return value"
	case syscalls.FromMem:
		return fmt.Sprintf("%d bytes at %d of fetch %d", n.Width, n.Off, n.N)
	}
	return "nothing"
}
