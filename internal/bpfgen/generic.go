package bpfgen

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// Two generic programs, for entries and for returns, do for many shapes what a program of its own does for one: they walk a list of
// fetches that stands in a map. A program of its own is some 100 ns a call faster, and loading it takes a millisecond or two.
// A generic program takes a fetch and then calls itself for the next, so that the verifier need not walk through all that a list can hold.

// Limits of the lists. What is beyond gets a program of its own.
const (
	genericTurns = 32 // of a list: with the dispatcher a call may tail-call 33 times (MAX_TAIL_CALL_CNT)
	genericRun   = 1  // fetches that are taken before the program calls itself
	genericAny   = 6  // values of a condition
	genericOff   = 4096
)

// Layout of the value of MapFetches: where each list starts, by index in the program array, as a count of fetches (u32); then the
// fetches of all lists, each list with an end mark.
const (
	fetchLists = progMask + 1
	fetchesAt  = 4 * fetchLists

	fetchKind  = 0  // u8, see below
	fetchFlags = 1  // u8
	fetchAnys  = 2  // u8, number of values of the condition
	fetchOff   = 4  // u32, added to the pointer
	fetchMax   = 8  // u32, most bytes to take
	fetchElem  = 12 // u16
	fetchAdd   = 14 // u16
	fetchBase  = 16 // numbers: u8 source, u8 argument or fetch, u8 width, u8, u32 constant or offset
	fetchLen   = 24
	fetchWhen  = 32
	fetchMask  = 40 // u64
	fetchTotal = 48 // number
	fetchAny   = 56 // u64 each
	fetchSize  = fetchAny + 8*genericAny

	kindEnd      = 0
	kindString   = 1
	kindBytes    = 2
	kindStrings8 = 3 // arrays of pointers of 8 and of 4 bytes
	kindStrings4 = 4
	kindIovec8   = 5
	kindIovec4   = 6
	kindSocket   = 7
	kindFD       = 8 // what the descriptor refers to
	kindResultFD = 9

	flagAgain  = 1 // from here on only what could not be read at entry
	flagNot    = 2 // the condition is that the value is none of the values
	flagNarrow = 4 // the value compared has 32 bits
	flagTotal  = 8 // the sum of the buffers is bounded
)

// What a generic program keeps in front of the record, beside what others do.
const (
	tmpIndex = tmpRefs     // u64, written by the dispatchers: 1 + the index in the program array; the upper half counts fetches taken
	tmpLimit = tmpRefs - 8 // u64, most bytes of the fetch at work
	tmpTurn  = tmpRefs - 16
	// tmpPlace is where the data of each fetch are, upwards: u64 offset in the record (0: nowhere) and u64 length.
	tmpPlace = tmpTurn - 16*genericTurns
)

const _ = uint(scratchRecord + tmpPlace - 8) // the places fit

// On the stack of a generic program.
const (
	stList = -48 // address of the first fetch to take
	stRun  = -56 // number of fetches taken in this run
	stCtx  = -64 // the program's context
)

// Lists are the lists of the generic programs.
type Lists struct {
	starts  [fetchLists]uint32
	fetches []byte
	kinds   [2][16]bool // which kinds are there, at entries and returns
}

// GenericMax is the most bytes that the generic programs copy in one piece.
func GenericMax(strLimit int) int { return max(strLimit, syscalls.PathMax) }

// Generic reports whether the generic programs can do what the shape says.
func (sh *Shape) Generic() bool {
	if len(sh.Fetches)+sh.descriptors() >= genericTurns {
		return false
	}
	for i := range sh.Fetches {
		f := &sh.Fetches[i]
		switch f.Kind {
		case syscalls.FetchString, syscalls.FetchBytes, syscalls.FetchSocket:
		case syscalls.FetchStrings, syscalls.FetchIovec:
			if f.Len.Max != 0 && f.Kind == syscalls.FetchStrings {
				return false
			}
		default:
			return false
		}
		if len(f.When.Any) > genericAny || f.Len.Max > syscalls.PathMax || f.When.Value.From != syscalls.FromNothing && len(f.When.Any) == 0 {
			return false
		}
		for _, n := range [...]syscalls.Number{f.Base, f.Len.Number, f.Total, f.When.Value} {
			if n.From == syscalls.FromMem && n.Off >= genericOff {
				return false
			}
		}
	}
	return true
}

// Add makes the list of a shape, whose index in the program array is given.
func (l *Lists) Add(index int, sh *Shape, strLimit int) error {
	if index >= fetchLists {
		return errors.New("too many shapes for the generic programs")
	}
	check := &shape{sh: sh}
	if err := check.collectRefs(); err != nil {
		return err
	}
	l.starts[index] = uint32(len(l.fetches) / fetchSize)
	side, first := 0, 0
	if sh.Exit {
		side = 1
	}
	add := func(b [fetchSize]byte) {
		l.kinds[side][b[fetchKind]] = true
		l.fetches = append(l.fetches, b[:]...)
	}
	if sh.RetFD {
		// In front: what is behind may be left out, see flagAgain.
		add([fetchSize]byte{fetchKind: kindResultFD})
		first = 1
	}
	for i := range sh.Fetches {
		f := &sh.Fetches[i]
		var b [fetchSize]byte
		put32 := func(at int, v uint32) { binary.LittleEndian.PutUint32(b[at:], v) }
		elem := max(1, f.Len.Elem)
		switch f.Kind {
		case syscalls.FetchString:
			b[fetchKind] = kindString
		case syscalls.FetchBytes:
			b[fetchKind] = kindBytes
		case syscalls.FetchSocket:
			b[fetchKind] = kindSocket
		case syscalls.FetchStrings:
			b[fetchKind] = kindStrings8
			if sh.Ptr == 4 {
				b[fetchKind] = kindStrings4
			}
		case syscalls.FetchIovec:
			b[fetchKind], elem = kindIovec8, 16
			if sh.Ptr == 4 {
				b[fetchKind], elem = kindIovec4, 8
			}
		}
		if sh.Again > 0 && i == sh.Again {
			b[fetchFlags] |= flagAgain
		}
		put32(fetchOff, uint32(f.Off))
		put32(fetchMax, uint32(maxLen(f, strLimit)))
		binary.LittleEndian.PutUint16(b[fetchElem:], elem)
		if f.Kind != syscalls.FetchIovec {
			binary.LittleEndian.PutUint16(b[fetchAdd:], f.Len.Add)
		}
		number := func(at int, n syscalls.Number) {
			b[at], b[at+1], b[at+2] = byte(n.From), byte(n.N), n.Width
			switch n.From {
			case syscalls.FromConst:
				put32(at+4, n.N)
			case syscalls.FromMem:
				b[at+1] += byte(first)
				put32(at+4, uint32(n.Off))
			}
		}
		number(fetchBase, f.Base)
		number(fetchLen, f.Len.Number)
		number(fetchWhen, f.When.Value)
		number(fetchTotal, f.Total)
		if f.Total.From != syscalls.FromNothing {
			b[fetchFlags] |= flagTotal
		}
		c := &f.When
		if c.Not {
			b[fetchFlags] |= flagNot
		}
		if narrow(c) {
			b[fetchFlags] |= flagNarrow
		}
		mask := c.Mask
		if mask == 0 {
			mask = ^uint64(0)
		}
		binary.LittleEndian.PutUint64(b[fetchMask:], mask)
		b[fetchAnys] = byte(len(c.Any))
		for k, v := range c.Any {
			binary.LittleEndian.PutUint64(b[fetchAny+8*k:], v)
		}
		add(b)
	}
	for i := range 6 {
		if sh.FDs&(1<<i) != 0 {
			add([fetchSize]byte{fetchKind: kindFD, fetchBase: byte(syscalls.FromArg), fetchBase + 1: byte(i)})
		}
	}
	add([fetchSize]byte{fetchKind: kindEnd})
	return nil
}

// Value is the value of MapFetches.
func (l *Lists) Value() []byte {
	b := make([]byte, l.Size())
	for i, s := range l.starts {
		binary.LittleEndian.PutUint32(b[4*i:], s)
	}
	copy(b[fetchesAt:], l.fetches)
	return b
}

// Size is the size of the value of MapFetches: behind the last list the verifier wants room for one of full length.
func (l *Lists) Size() int { return fetchesAt + len(l.fetches) + (genericTurns+genericRun)*fetchSize }

// Generic generates the program that walks the lists, for entries or for returns.
func (s *Syscalls) Generic(exit bool, l *Lists, strLimit, scratch int) (*Program, error) {
	sh := &Shape{Exit: exit, Ptr: 8}
	g, err := s.gen(exit)
	if err != nil {
		return nil, err
	}
	p := &shape{gen: g, sh: sh, strLimit: strLimit, generic: true, capacity: scratch - scratchRecord - slack - pathSpace}
	most := GenericMax(strLimit)
	kinds := l.kinds[0]
	if exit {
		kinds = l.kinds[1]
	}
	p.say("find the record that the dispatcher began")
	p.emit(store(fp, stCtx, r1, u64))
	p.findRecord()
	goOn, done, next := p.label("goon"), p.label("fetched"), p.label("next")
	p.emit(load(r6, r7, tmpIndex, u64), asm.Mov.Reg(r9, r6), asm.RSh.Imm(r9, 32), asm.JNE.Imm(r9, 0, goOn))
	p.beginSize()
	for i := range genericTurns {
		p.emit(storeImm(r7, tmpPlace+16*i, 0, u64))
	}
	p.bind(goOn)
	p.say("find the list of fetches")
	p.emit(asm.Mov.Reg32(r2, r6), asm.Sub.Imm(r2, 1), asm.JGE.Imm(r2, fetchLists, done), asm.LSh.Imm(r2, 2),
		mapValue(r1, MapFetches, 0), asm.Add.Reg(r1, r2), load(r2, r1, 0, u32), asm.JGE.Imm(r2, int32(max(1, len(l.fetches)/fetchSize)), done),
		asm.JGE.Imm(r9, genericTurns, done), asm.Mov.Reg(r3, r9), asm.Mul.Imm(r3, fetchSize), asm.Mul.Imm(r2, fetchSize),
		mapValue(r1, MapFetches, fetchesAt), asm.Add.Reg(r1, r2), asm.Add.Reg(r1, r3), store(fp, stList, r1, u64),
		storeImm(fp, stRun, 0, u64), asm.Sub.Imm(r9, 1), store(r7, tmpTurn, r9, u64))
	p.bind(next)
	onward := p.label("onward")
	p.emit(load(r2, fp, stRun, u64), asm.JGE.Imm(r2, genericRun, onward), asm.Mov.Reg(r1, r2), asm.Add.Imm(r1, 1), store(fp, stRun, r1, u64),
		load(r1, r7, tmpTurn, u64), asm.Add.Imm(r1, 1), store(r7, tmpTurn, r1, u64),
		asm.Mul.Imm(r2, fetchSize), load(r6, fp, stList, u64), asm.Add.Reg(r6, r2))
	again, always := p.label("again"), p.label("always")
	p.emit(load(r1, r6, fetchKind, u8), asm.JEq.Imm(r1, kindEnd, done), load(r1, r6, fetchFlags, u8), asm.JSet.Imm(r1, flagAgain, again))
	p.bind(always)
	p.later(func() {
		p.say("did a read fail at entry")
		p.bind(again)
		p.emit(load(r1, r7, tmpRetry, u64), asm.JEq.Imm(r1, 0, done), asm.Ja.Label(always))
	})
	p.later(func() {
		p.say("go on in another run")
		p.bind(onward)
		p.emit(load(r1, r7, tmpTurn, u64), asm.Add.Imm(r1, 1), asm.LSh.Imm(r1, 32), load(r3, r7, tmpIndex, u32), asm.Or.Reg(r1, r3),
			store(r7, tmpIndex, r1, u64), asm.Sub.Imm(r3, 1), load(r1, fp, stCtx, u64), mapPtr(r2, MapProgs), asm.FnTailCall.Call())
		// Not reached: no list is that long.
		p.mark(wire.FlagTruncated)
		p.emit(asm.Ja.Label(done))
	})
	p.condition(next)
	p.say("the pointer of a fetch")
	p.operand(fetchBase)
	p.emit(load(r9, r6, fetchKind, u8))
	descriptors := kinds[kindSocket] || kinds[kindFD] || kinds[kindResultFD]
	if descriptors {
		p.emit(asm.JGE.Imm(r9, kindSocket, "descriptor"))
	}
	p.emit(asm.JEq.Imm(r2, 0, next), load(r3, r6, fetchOff, u32), asm.Add.Reg(r3, r2), store(r7, tmpAddr, r3, u64),
		load(r1, r6, fetchMax, u32), store(r7, tmpLimit, r1, u64))
	jump := func(kind int, label string) {
		if kinds[kind] {
			p.emit(asm.JEq.Imm(r9, int32(kind), label))
		}
	}
	jump(kindBytes, "bytes")
	jump(kindStrings8, "strings8")
	jump(kindStrings4, "strings4")
	jump(kindIovec8, "iovec8")
	jump(kindIovec4, "iovec4")
	p.genericText(most, next)
	p.later(func() {
		p.bind("bytes")
		p.genericBytes(most, next)
	})
	for _, ptr := range []int{8, 4} {
		p.later(func() {
			p.say("an array of strings")
			p.bind(fmt.Sprintf("strings%d", ptr))
			p.sh = &Shape{Exit: exit, Ptr: ptr}
			p.strings(0, &syscalls.Fetch{}, next)
			p.emit(asm.Ja.Label(next))
		})
		p.later(func() {
			p.say("an iovec")
			p.bind(fmt.Sprintf("iovec%d", ptr))
			p.sh = &Shape{Exit: exit, Ptr: ptr}
			total, counted := p.label("total"), p.label("counted")
			p.emit(load(r1, r6, fetchFlags, u8), asm.Mov.Imm(r2, -1), asm.RSh.Imm(r2, 1), asm.JSet.Imm(r1, flagTotal, total), asm.Ja.Label(counted))
			p.bind(total)
			p.operand(fetchTotal)
			p.bind(counted)
			p.emit(store(r7, tmpLeft, r2, u64))
			p.size()
			p.buffers(0, true, next)
			p.emit(asm.Ja.Label(next))
		})
	}
	if descriptors {
		p.later(func() {
			p.say("a descriptor")
			p.bind("descriptor")
			p.emit(asm.Mov.Reg(r3, r2))
			if kinds[kindSocket] && (kinds[kindFD] || kinds[kindResultFD]) {
				p.emit(asm.JEq.Imm(r9, kindSocket, "socket"))
			}
			if kinds[kindFD] || kinds[kindResultFD] {
				if exit {
					named := p.label("named")
					p.emit(asm.JNE.Imm(r9, kindResultFD, named), load(r3, r7, wire.OffRet, u64), asm.JSLT.Imm(r3, 0, next))
					p.bind(named)
				}
				p.descriptor(0)
				p.emit(asm.Ja.Label(next))
			}
			if kinds[kindSocket] {
				p.bind("socket")
				p.socketOf(0, next)
				p.emit(asm.Ja.Label(next))
			}
		})
	}
	p.later(func() {
		p.bind(done)
		p.send()
	})
	name := "sonde_anyin"
	if exit {
		name = "sonde_anyout"
	}
	return p.program(name), nil
}

// operand loads the number that is described at an offset of the fetch at r6 into r2. It clobbers r1 and r3 to r5.
func (p *shape) operand(at int) {
	arg, zero, ok := p.label("arg"), p.label("zero"), p.label("ok")
	p.emit(load(r1, r6, at, u8), load(r2, r6, at+4, u32), asm.JEq.Imm(r1, int32(syscalls.FromConst), ok), load(r3, r6, at+1, u8))
	if p.exit {
		other := p.label("other")
		p.emit(asm.JNE.Imm(r1, int32(syscalls.FromRet), other), load(r2, r7, wire.OffRet, u64), asm.JSGE.Imm(r2, 0, ok), asm.Ja.Label(zero))
		p.bind(other)
	}
	p.emit(asm.JNE.Imm(r1, int32(syscalls.FromMem), arg),
		// Memory of an earlier fetch: nothing when that is not there, or too short.
		asm.JGE.Imm(r3, genericTurns, zero), asm.LSh.Imm(r3, 4), asm.Mov.Reg(r4, r7), asm.Add.Reg(r4, r3),
		load(r5, r4, tmpPlace, u64), asm.JEq.Imm(r5, 0, zero), asm.JGT.Imm(r5, int32(p.capacity), zero), load(r3, r4, tmpPlace+8, u64),
		load(r1, r6, at+2, u8), asm.Mov.Reg(r4, r2), asm.Add.Reg(r4, r1), asm.JGT.Reg(r4, r3, zero), asm.JGE.Imm(r2, genericOff, zero),
		asm.Add.Reg(r5, r2), asm.Add.Reg(r5, r7), load(r2, r5, 0, u64),
		asm.LSh.Imm(r1, 3), asm.Mov.Imm(r3, 64), asm.Sub.Reg(r3, r1), asm.And.Imm(r3, 63), asm.LSh.Reg(r2, r3), asm.RSh.Reg(r2, r3), asm.Ja.Label(ok))
	p.bind(arg)
	p.emit(asm.JGT.Imm(r3, 5, zero), asm.JEq.Imm(r1, int32(syscalls.FromNothing), zero), asm.LSh.Imm(r3, 3), asm.Add.Reg(r3, r7),
		load(r2, r3, p.args(), u64), asm.JEq.Imm(r1, int32(syscalls.FromArg), ok), asm.RSh.Imm(r2, 16), asm.And.Imm(r2, 0x3fff), asm.Ja.Label(ok))
	p.bind(zero)
	p.emit(asm.Mov.Imm(r2, 0))
	p.bind(ok)
	// Through memory, so that the verifier walks what follows once and not for each source.
	p.emit(store(r7, tmpWant, r2, u64), load(r2, r7, tmpWant, u64))
}

// condition jumps to skip unless the condition of the fetch at r6 holds.
func (p *shape) condition(skip string) {
	p.say("the condition of a fetch")
	holds, wide, hit, miss := p.label("holds"), p.label("wide"), p.label("hit"), p.label("miss")
	p.emit(load(r1, r6, fetchWhen, u8), asm.JEq.Imm(r1, int32(syscalls.FromNothing), holds))
	p.operand(fetchWhen)
	p.emit(load(r1, r6, fetchFlags, u8), asm.Mov.Reg(r5, r1), asm.And.Imm(r5, flagNot), asm.And.Imm(r1, flagNarrow), asm.JEq.Imm(r1, 0, wide), asm.Mov.Reg32(r2, r2))
	p.bind(wide)
	p.emit(load(r1, r6, fetchMask, u64), asm.And.Reg(r2, r1), load(r4, r6, fetchAnys, u8))
	for k := range genericAny {
		p.emit(asm.JLE.Imm(r4, int32(k), miss), load(r3, r6, fetchAny+8*k, u64), asm.JEq.Reg(r2, r3, hit))
	}
	p.bind(miss)
	p.emit(asm.JEq.Imm(r5, 0, skip), asm.Ja.Label(holds))
	p.bind(hit)
	p.emit(asm.JNE.Imm(r5, 0, skip))
	p.bind(holds)
}

// genericRoom loads the size of the record so far into r8, and jumps to skip when a segment of r2 bytes might not fit. It clobbers r1.
func (p *shape) genericRoom(skip string) {
	cut := p.label("noroom")
	p.emit(load(r8, r7, tmpSize, u64), asm.JGT.Imm(r8, int32(p.capacity), cut),
		asm.Mov.Reg(r1, r8), asm.Add.Reg(r1, r2), asm.JGT.Imm(r1, int32(max(0, p.capacity-wire.SegmentHeader-16)), cut))
	p.later(func() {
		p.bind(cut)
		p.mark(wire.FlagTruncated)
		p.emit(asm.Ja.Label(skip))
	})
}

// genericText copies the string at tmpAddr, at most tmpLimit bytes without its NUL, which are at most most.
func (p *shape) genericText(most int, next string) {
	p.say("a string")
	bad, got, long := p.label("bad"), p.label("got"), p.label("long")
	p.emit(load(r2, r7, tmpLimit, u64), asm.JGT.Imm(r2, int32(most), next))
	p.genericRoom(next)
	p.emit(load(r3, r7, tmpAddr, u64))
	p.begin(0, wire.SegString)
	p.emit(asm.Add.Imm(r1, wire.SegmentHeader), asm.Add.Imm(r2, 2), p.readString(),
		asm.JGT.Imm(r0, int32(most+2), bad), load(r1, r7, tmpLimit, u64), asm.Mov.Reg(r9, r0), asm.JEq.Imm(r0, 0, got), asm.Sub.Imm(r9, 1),
		asm.JGT.Imm(r9, int32(most), long), asm.JGT.Reg(r9, r1, long))
	p.bind(got)
	p.end()
	p.emit(asm.Ja.Label(next))
	p.later(func() {
		p.bind(long)
		p.emit(asm.Mov.Reg(r9, r1), asm.JGT.Imm(r9, int32(most), next))
		p.setCut(0, wire.SegString)
		p.emit(asm.Ja.Label(got))
	})
	p.later(func() {
		p.bind(bad)
		p.emit(load(r9, r7, tmpLimit, u64))
		p.partial(0, wire.SegString, most, got, next)
	})
}

// genericBytes copies the bytes at tmpAddr that the fetch at r6 says.
func (p *shape) genericBytes(most int, next string) {
	p.say("bytes")
	bad, got, long := p.label("bad"), p.label("got"), p.label("long")
	p.size()
	p.emit(asm.JEq.Imm(r2, 0, next),
		// r5: flags of the segment.
		asm.Mov.Imm(r5, 0), load(r1, r7, tmpLimit, u64), asm.JGT.Reg(r2, r1, long))
	sized := p.label("sized")
	p.bind(sized)
	p.emit(asm.JGT.Imm(r2, int32(most), next), asm.JEq.Imm(r2, 0, next))
	p.genericRoom(next)
	p.emit(load(r3, r7, tmpAddr, u64))
	p.begin(0, 0)
	p.emit(store(r1, 12, r5, u16), asm.Mov.Reg(r9, r2), asm.Add.Imm(r1, wire.SegmentHeader), p.read(), asm.JNE.Imm(r0, 0, bad))
	p.bind(got)
	p.place()
	p.end()
	p.emit(asm.Ja.Label(next))
	p.later(func() {
		p.bind(long)
		p.emit(asm.Mov.Reg(r2, r1), asm.Mov.Imm(r5, wire.SegCut), asm.Ja.Label(sized))
	})
	p.later(func() {
		p.bind(bad)
		p.partial(0, 0, most, got, next)
	})
}

// size loads the number of bytes that the fetch at r6 wants into r2.
func (p *shape) size() {
	fits := p.label("fits")
	p.operand(fetchLen)
	// A huge count times the element must not wrap to a small number.
	p.emit(asm.LoadImm(r1, 1<<32, asm.DWord), asm.JLE.Reg(r2, r1, fits), asm.Mov.Reg(r2, r1))
	p.bind(fits)
	p.emit(load(r1, r6, fetchElem, u16), asm.Mul.Reg(r2, r1), load(r1, r6, fetchAdd, u16), asm.Add.Reg(r2, r1))
}

// place notes where the r9 bytes of the segment at r8 are, for later fetches. It clobbers r1 and r2.
func (p *shape) place() {
	none := p.label("noplace")
	p.emit(load(r1, r7, tmpTurn, u64), asm.JGE.Imm(r1, genericTurns, none), asm.LSh.Imm(r1, 4), asm.Mov.Reg(r2, r7), asm.Add.Reg(r2, r1),
		asm.Mov.Reg(r1, r8), asm.Add.Imm(r1, wire.SegmentHeader), store(r2, tmpPlace, r1, u64), store(r2, tmpPlace+8, r9, u64))
	p.bind(none)
}
