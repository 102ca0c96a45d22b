package bpfgen

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// Probe is the program of one probe on functions, instructions, static probes or kernel functions: at a hit it tests the
// target, takes the slots, tests them, copies memory and sends one record.
type Probe struct {
	Return bool // it runs when a function returns, as a uretprobe or kretprobe
	// ID goes into the record. With Cookie it is what the program was attached with, instead: one program serves many points.
	ID     uint32
	Cookie bool
	// Slots are the words to take at a hit. At a return they come from the entry, whose program kept them.
	Slots   []Word
	Fetches []syscalls.Fetch // FromArg N is slot N of the record
	// Keep makes the entry keep its slots for the return of the same call; the return program then has Keep set too, and makes a
	// record only of calls whose entry did.
	Keep bool
	// Repeats: of Fetches, those from Again on are made only when a read failed at the entry. It wants Keep.
	Repeats bool
	Again   int
	// Alone is set for returns whose entries are not recorded: they count as hits.
	Alone bool
	// AtRet: it runs at a return instruction, not behind it.
	AtRet bool
	Tests []Test // all must hold
	// SP, when set, is the address that stands for the stack pointer: for probes behind a function's beginning.
	SP *Word
	// Kernel probes look at the memory of the kernel.
	Kernel bool
	// Signal is sent to the process at a hit; 0 is none.
	Signal int
	// Tracepoint probes get the tracepoint's record, not registers: slots with Record set and Fields are taken from it.
	Tracepoint bool
	Fields     []Field
}

// Field is bytes of a tracepoint's record, which become a segment whose address is Off.
type Field struct {
	Off     int
	Len     int  // of an array; the most to take of dynamic data
	Dynamic bool // at Off stand the place and the length of the data (__data_loc)
}

// Word is a value: a register, or memory found by following it.
type Word struct {
	Reg     int   // offset in pt_regs; see RegOffset
	Const   int64 // with IsConst
	IsConst bool
	// Record takes it from the tracepoint's record: Width bytes at Reg.
	Record bool
	Width  uint8
	Signed bool
	// Steps are followed in order: the word at value + Add becomes the value. A last step of Width 0 adds only.
	Steps []Step
}

// Step is one step of a Word.
type Step struct {
	Add    int32
	Width  uint8 // bytes to load: 1, 2, 4, 8; 0: none
	Signed bool  // what was loaded is extended by its sign
}

// TestOp is a comparison.
type TestOp uint8

const (
	TestEq TestOp = iota
	TestNe
	TestLt
	TestLe
	TestGt
	TestGe
	TestBits // any of the bits
	TestText // the text of a fetch equals Text, or begins with it (Prefix)
)

// Test compares a slot, or the text of a fetch, with constants: any of the values satisfies it.
type Test struct {
	Slot   int // of the record; for TestText the index of the fetch
	Op     TestOp
	Width  uint8 // bytes of the slot that count: 1, 2, 4, 8
	Signed bool
	Values []uint64
	Text   []byte
	Prefix bool
	Not    bool // of TestText: must differ
}

// MapCalls keeps slots from entry to return: hash {pid_tgid u64, stack pointer u64, id u64} → slots.
const MapCalls = "calls"

// CallKeySize is the size of a key of MapCalls.
const CallKeySize = 24

// Offsets of what programs of probes keep in front of the record, below the refs.
const (
	tmpCall    = -104 // CallKeySize bytes, the key of MapCalls
	tmpMask    = -112 // u64, slots that could not be read
	tmpValue   = -120 // u64
	tmpSegment = -128 // u64, where the segment of the text that is tested begins
)

// maxText bounds the text a program compares with.
const maxText = 256

// Names of registers as offsets in struct pt_regs: arch/x86/include/asm/ptrace.h, arch/arm64/include/asm/ptrace.h.
var regOffsets = map[string]map[string]int{
	"amd64": {
		"r15": 0, "r14": 8, "r13": 16, "r12": 24, "rbp": 32, "rbx": 40, "r11": 48, "r10": 56, "r9": 64, "r8": 72, "rax": 80,
		"rcx": 88, "rdx": 96, "rsi": 104, "rdi": 112, "orig_rax": 120, "rip": 128, "cs": 136, "eflags": 144, "rsp": 152, "ss": 160,
		"arg1": 112, "arg2": 104, "arg3": 96, "arg4": 88, "arg5": 72, "arg6": 64, "ret": 80, "pc": 128, "sp": 152, "fp": 32,
	},
	"arm64": armRegs(),
}

func armRegs() map[string]int {
	m := map[string]int{"sp": 248, "pc": 256, "pstate": 264, "fp": 29 * 8, "lr": 30 * 8, "ret": 0}
	for i := range 31 {
		m[fmt.Sprintf("x%d", i)] = 8 * i
	}
	for i := range 8 {
		m[fmt.Sprintf("arg%d", i+1)] = 8 * i
	}
	return m
}

// RegOffset is where a register of an architecture stands in its pt_regs. Names are those of the machine (rdi, x0) and of the
// ABI (arg1, ret, sp, pc, fp, lr).
func RegOffset(arch, name string) (int, bool) {
	off, ok := regOffsets[arch][name]
	return off, ok
}

// Need is the size in bytes of the scratch buffer that the probe wants.
func (pr *Probe) Need(strLimit int) int {
	sh := Shape{Ptr: 8, Fetches: pr.Fetches}
	n := wire.HeaderSize + 8*wire.MaxSlots + 2*wire.SegmentHeader + 272 + 16
	for i := range pr.Fields {
		n += wire.SegmentHeader + pr.Fields[i].Len + 16
	}
	for i := range pr.Fetches {
		n += sh.worst(&pr.Fetches[i], strLimit)
	}
	return min(n, maxScratch)
}

// first is the first slot of the record that the probe's own slots fill.
func (pr *Probe) first() int {
	if pr.Return {
		return wire.KeptSlot
	}
	return wire.FirstSlot
}

// NSlots is the number of slots of its records.
func (pr *Probe) NSlots() int {
	if pr.Return && !pr.Keep {
		return pr.first()
	}
	return pr.first() + len(pr.Slots)
}

// CompileProbe generates the program of a probe. scratch is the size of the scratch buffers.
func (s *Syscalls) CompileProbe(pr *Probe, strLimit, scratch int) (*Program, error) {
	g, err := s.gen(pr.Return)
	if err != nil {
		return nil, err
	}
	if pr.NSlots() > wire.MaxSlots {
		return nil, fmt.Errorf("%d values; at most %d are possible", len(pr.Slots), wire.MaxSlots-pr.first())
	}
	p := &shape{gen: g, sh: &Shape{Exit: pr.Return, Ptr: 8, Fetches: pr.Fetches}, strLimit: strLimit,
		capacity: scratch - scratchRecord - slack - pathSpace, probe: pr}
	if err := p.collectRefs(); err != nil {
		return nil, err
	}
	p.emit(asm.Mov.Reg(r6, r1))
	p.emit(asm.FnGetCurrentPidTgid.Call())
	p.tasks(&s.Target, "exit")
	if s.Target.Procs {
		p.emit(asm.JSet.Imm(r7, ProcPending, "exit"))
	}
	p.identity(&s.Target, "exit")
	p.statistics()
	p.emit(storeImm(fp, stFlags, 0, u32))
	p.say("take a scratch buffer")
	p.acquire("busy")
	p.emit(asm.Mov.Reg(r7, r5), asm.Add.Imm(r7, scratchRecord))
	made, lostRing, lostScratch := StatMade, StatEntryRing, StatEntryScratch
	if pr.Return && !pr.Alone {
		made, lostRing, lostScratch = StatReturned, StatExitRing, StatExitScratch
	}
	p.identify()
	if pr.Keep {
		p.callKey()
		if pr.Return {
			p.restore()
		}
	}
	p.slots()
	for i := range pr.Tests {
		if pr.Tests[i].Op != TestText {
			if err := p.test(&pr.Tests[i]); err != nil {
				return nil, err
			}
		}
	}
	size := wire.HeaderSize + 8*pr.NSlots()
	p.emit(storeImm(r7, tmpSize, int32(size), u64), storeImm(r7, tmpFail, 0, u64), storeImm(r7, wire.OffFlags, 0, u16))
	for i := range p.refs {
		p.emit(storeImm(r7, tmpRefs-8*i, 0, u64))
	}
	p.emit(asm.FnKtimeGetNs.Call(), store(r7, wire.OffTime, r0, u64))
	for i := range pr.Fields {
		p.field(&pr.Fields[i], len(pr.Fetches)+i)
	}
	first := p.label("first")
	for i := range pr.Fetches {
		if pr.Repeats && i == pr.Again {
			p.say("did a read fail at entry")
			p.emit(load(r1, r7, tmpRetry, u64), asm.JEq.Imm(r1, 0, first))
		}
		if p.tested(i) {
			p.emit(load(r1, r7, tmpSize, u64), store(r7, tmpSegment, r1, u64))
		}
		if err := p.fetch(i); err != nil {
			return nil, fmt.Errorf("fetch %d: %w", i, err)
		}
		for k := range pr.Tests {
			if t := &pr.Tests[k]; t.Op == TestText && t.Slot == i {
				if err := p.testText(t, i); err != nil {
					return nil, err
				}
			}
		}
	}
	p.bind(first)
	if pr.Keep && !pr.Return {
		p.keep()
	}
	stacks := s.StackDepth > 0 && (!pr.Return || pr.Alone)
	if stacks {
		p.walk(r7)
		p.stackSegment()
	}
	if s.Regs && (!pr.Return || pr.Alone) {
		p.registersSegment()
	}
	p.say("the rest of the header")
	p.statistics()
	p.sequence(made)
	if pr.Signal != 0 {
		p.say("send the signal")
		p.emit(asm.Mov.Imm(r1, int32(pr.Signal)), asm.FnSendSignal.Call())
	}
	p.waitForRoom()
	kind := int32(wire.Hit)
	if pr.Return {
		kind = int32(wire.Return)
	}
	p.emit(storeImm(r7, wire.OffKind, kind|int32(pr.NSlots())<<8, u16), store(r7, wire.OffSeq, r8, u32),
		load(r1, fp, stCPU, u32), store(r7, wire.OffCPU, r1, u32), load(r1, fp, stPT, u64), store(r7, wire.OffTid, r1, u64))
	full, huge := p.label("full"), p.label("huge")
	release := storeImm(r7, scratchOwner-scratchRecord, 0, u64)
	p.say("send the record")
	p.emit(asm.Mov.Reg(r6, r8), load(r8, r7, tmpSize, u64), asm.JGT.Imm(r8, int32(p.capacity), huge), store(r7, wire.OffSize, r8, u32))
	p.wakeFlags(r4, r6)
	p.emit(mapPtr(r1, MapRing), asm.Mov.Reg(r2, r7), asm.Mov.Reg(r3, r8), asm.FnRingbufOutput.Call(), release, asm.JNE.Imm(r0, 0, full))
	p.bind("exit")
	p.emit(asm.Mov.Imm(r0, 0), asm.Return())
	p.later(func() {
		p.say("not of interest")
		p.bind("drop")
		p.emit(release, asm.Ja.Label("exit"))
	})
	p.later(func() {
		p.bind(huge) // for the verifier: the size is always within the buffer
		p.emit(release, asm.Ja.Label(full))
	})
	p.later(func() {
		p.say("the record is lost")
		p.bind(full)
		p.count(r9, lostRing)
		if !pr.Return || pr.Alone {
			p.lossOfThread()
		}
		p.emit(asm.Ja.Label("exit"))
	})
	p.later(func() {
		p.say("no scratch buffer is free")
		p.bind("busy")
		p.count(r9, made)
		p.count(r9, lostScratch)
		if !pr.Return || pr.Alone {
			p.lossOfThread()
		}
		p.emit(asm.Ja.Label("exit"))
	})
	name := "sonde_hit"
	switch {
	case pr.Tracepoint:
		name = "sonde_tp"
	case pr.Return:
		name = "sonde_ret"
	}
	prog := p.program(name)
	if stacks {
		prog.withWalk(&s.Kernel)
	}
	return prog, nil
}

// register loads a register of the interrupted program.
func (p *shape) register(dst asm.Register, off int) { p.emit(load(dst, r6, off, u64)) }

// identify writes the probe's id, the instruction pointer and the stack pointer.
func (p *shape) identify() {
	p.say("which probe")
	if p.probe.Cookie {
		p.emit(asm.Mov.Reg(r1, r6), asm.FnGetAttachCookie.Call(), store(r7, wire.OffProbe, r0, u32))
	} else {
		p.emit(asm.Mov.Imm(r1, int32(p.probe.ID)), store(r7, wire.OffProbe, r1, u32))
	}
	if p.probe.Tracepoint {
		p.emit(storeImm(r7, wire.OffIP, 0, u64), storeImm(r7, wire.HeaderSize+8*wire.SlotSP, 0, u64), storeImm(r7, tmpMask, 0, u64))
		return
	}
	p.register(r1, p.arch.ip)
	p.emit(store(r7, wire.OffIP, r1, u64))
	if sp := p.probe.SP; sp != nil {
		p.register(r1, sp.Reg)
		for _, st := range sp.Steps {
			p.emit(asm.Add.Imm(r1, st.Add))
		}
	} else {
		p.register(r1, regOffsets[p.Kernel.Arch]["sp"])
	}
	p.emit(store(r7, wire.HeaderSize+8*wire.SlotSP, r1, u64), storeImm(r7, tmpMask, 0, u64))
	if p.probe.Return {
		second := 96 // rdx
		if p.Kernel.Arch == "arm64" {
			second = 8 // x1
		}
		p.register(r1, regOffsets[p.Kernel.Arch]["ret"])
		p.emit(store(r7, wire.HeaderSize+8*wire.SlotRet, r1, u64))
		p.register(r1, second)
		p.emit(store(r7, wire.HeaderSize+8*wire.SlotRet2, r1, u64))
	}
}

// callKey makes the key of the current call: the thread, the place of its frame, the probe. On x86 the return has popped the
// return address off the stack, so the stack pointer is 8 more than at the entry.
func (p *shape) callKey() {
	p.emit(load(r1, fp, stPT, u64), store(r7, tmpCall, r1, u64), load(r1, r7, wire.HeaderSize+8*wire.SlotSP, u64))
	if p.probe.Return && !p.probe.AtRet && p.Kernel.Arch == "amd64" {
		p.emit(asm.Sub.Imm(r1, 8))
	}
	p.emit(store(r7, tmpCall+8, r1, u64), load(r1, r7, wire.OffProbe, u32), store(r7, tmpCall+16, r1, u64))
}

func (p *shape) callLookup() {
	p.emit(mapPtr(r1, MapCalls), asm.Mov.Reg(r2, r7), asm.Add.Imm(r2, tmpCall))
}

// slotsAt is the first byte of the probe's own slots in the record.
func (p *shape) slotsAt() int { return wire.HeaderSize + 8*p.probe.first() }

// keep stores the slots for the return: the record from the sequence number, which stands beside the mask, on. The words behind
// the probe's own slots are whatever was there.
func (p *shape) keep() {
	p.say("keep the values for the return")
	// The sequence number is not known yet: in its place stands whether a read failed.
	p.emit(load(r1, r7, tmpFail, u64), store(r7, wire.OffSeq, r1, u32))
	p.callLookup()
	p.emit(asm.Mov.Reg(r3, r7), asm.Add.Imm(r3, int32(wire.OffSeq)), asm.Mov.Imm(r4, 0), asm.FnMapUpdateElem.Call())
	full, done := p.label("nokeep"), p.label("kept")
	p.emit(asm.JNE.Imm(r0, 0, full))
	p.bind(done)
	p.later(func() {
		p.bind(full)
		p.statistics()
		p.count(r9, StatStateFull)
		p.emit(asm.Ja.Label(done))
	})
}

// KeptSize is the size of a value of MapCalls.
const KeptSize = wire.HeaderSize - wire.OffSeq + 8*wire.MaxSlots

// restore copies the slots of the entry into the record of the return, and leaves when there was no entry.
func (p *shape) restore() {
	p.say("take the values of the entry")
	p.callLookup()
	p.emit(asm.FnMapLookupElem.Call(), asm.JEq.Imm(r0, 0, "drop"))
	kept := wire.HeaderSize - wire.OffSeq
	p.emit(load(r1, r0, 0, u32), store(r7, tmpRetry, r1, u64))
	p.emit(load(r1, r0, wire.OffMask-wire.OffSeq, u32), asm.LSh.Imm(r1, wire.KeptSlot-wire.FirstSlot), store(r7, tmpMask, r1, u64))
	for i := range p.probe.Slots {
		p.emit(load(r1, r0, kept+8*(wire.FirstSlot+i), u64), store(r7, p.slotsAt()+8*i, r1, u64))
	}
	p.callLookup()
	p.emit(asm.FnMapDeleteElem.Call())
}

// slots takes the values that are asked for.
func (p *shape) slots() {
	if !p.probe.Return {
		for i := range p.probe.Slots {
			p.slot(i)
		}
	}
	p.emit(load(r1, r7, tmpMask, u64), store(r7, wire.OffMask, r1, u32))
}

func (p *shape) slot(i int) {
	sl := &p.probe.Slots[i]
	p.say("value %d", i)
	at := p.slotsAt() + 8*i
	switch {
	case sl.IsConst:
		p.emit(asm.LoadImm(r1, sl.Const, asm.DWord))
	case sl.Record:
		p.emit(load(r1, r6, sl.Reg, map[uint8]asm.Size{1: u8, 2: u16, 4: u32, 8: u64}[sl.Width]))
		if sl.Signed && sl.Width < 8 {
			shift := int32(64 - 8*int(sl.Width))
			p.emit(asm.LSh.Imm(r1, shift), asm.ArSh.Imm(r1, shift))
		}
	default:
		p.register(r1, sl.Reg)
	}
	bad, done := p.label("bad"), p.label("slot")
	failed := false
	for _, st := range sl.Steps {
		if st.Add != 0 {
			p.emit(asm.Add.Imm(r1, st.Add))
		}
		if st.Width == 0 {
			continue
		}
		failed = true
		p.emit(asm.Mov.Reg(r3, r1), storeImm(r7, tmpValue, 0, u64), asm.Mov.Reg(r1, r7), asm.Add.Imm(r1, tmpValue), asm.Mov.Imm(r2, int32(st.Width)),
			p.read(), asm.JNE.Imm(r0, 0, bad), load(r1, r7, tmpValue, u64))
		if st.Signed && st.Width < 8 {
			shift := int32(64 - 8*int(st.Width))
			p.emit(asm.LSh.Imm(r1, shift), asm.ArSh.Imm(r1, shift))
		}
	}
	p.bind(done)
	p.emit(store(r7, at, r1, u64))
	if failed {
		p.later(func() {
			p.bind(bad)
			p.emit(load(r1, r7, tmpMask, u64), asm.LoadImm(r2, int64(1)<<(p.probe.first()+i), asm.DWord), asm.Or.Reg(r1, r2), store(r7, tmpMask, r1, u64),
				asm.Mov.Imm(r1, 0), asm.Ja.Label(done))
		})
	}
}

// read is the helper that reads the memory the probe looks at.
func (p *shape) read() asm.Instruction {
	if p.probe != nil && p.probe.Kernel {
		return asm.FnProbeReadKernel.Call()
	}
	return asm.FnProbeReadUser.Call()
}

func (p *shape) readString() asm.Instruction {
	if p.probe != nil && p.probe.Kernel {
		return asm.FnProbeReadKernelStr.Call()
	}
	return asm.FnProbeReadUserStr.Call()
}

// tested reports whether a test looks at the text of a fetch.
func (p *shape) tested(fetch int) bool {
	for i := range p.probe.Tests {
		if t := &p.probe.Tests[i]; t.Op == TestText && t.Slot == fetch {
			return true
		}
	}
	return false
}

// field copies a field of the tracepoint's record, whose address is in r6.
func (p *shape) field(f *Field, index int) {
	next, got, bad := p.label("next"), p.label("got"), p.label("bad")
	p.say("field at %d", f.Off)
	p.room(wire.SegmentHeader+f.Len+16, next)
	p.emit(asm.Mov.Imm(r3, int32(f.Off)))
	p.begin(index, 0)
	if f.Dynamic {
		p.emit(load(r2, r6, f.Off, u32), asm.Mov.Reg(r3, r2), asm.And.Imm(r3, 0xffff), asm.RSh.Imm(r2, 16))
		p.atMost(index, f.Len)
		p.emit(asm.Add.Reg(r3, r6))
	} else {
		p.emit(asm.Mov.Imm(r2, int32(f.Len)), asm.Mov.Reg(r3, r6), asm.Add.Imm(r3, int32(f.Off)))
	}
	p.emit(asm.Mov.Reg(r9, r2), asm.Add.Imm(r1, wire.SegmentHeader), asm.FnProbeReadKernel.Call(), asm.JNE.Imm(r0, 0, bad))
	p.bind(got)
	p.end()
	p.bind(next)
	p.later(func() {
		p.bind(bad)
		p.mark(wire.FlagUnreadable)
		p.emit(asm.Mov.Reg(r1, r7), asm.Add.Reg(r1, r8), store(r1, 8, r0, u32),
			asm.Add.Imm(r8, wire.SegmentHeader), store(r7, tmpSize, r8, u64), asm.Ja.Label(next))
	})
}

// test leaves at drop unless the slot satisfies t. A slot that could not be read satisfies it: what cannot be decided here
// is decided, and marked, where the event is decoded.
func (p *shape) test(t *Test) error {
	if t.Slot < 0 || t.Slot >= p.probe.NSlots() {
		return fmt.Errorf("a test of value %d; there are %d", t.Slot, p.probe.NSlots())
	}
	p.say("test value %d", t.Slot)
	ok := p.label("holds")
	p.emit(load(r1, r7, tmpMask, u64), asm.LoadImm(r2, int64(1)<<t.Slot, asm.DWord), asm.JSet.Reg(r1, r2, ok),
		load(r1, r7, wire.HeaderSize+8*t.Slot, u64))
	if t.Width < 8 && t.Width > 0 {
		shift := int32(64 - 8*int(t.Width))
		p.emit(asm.LSh.Imm(r1, shift))
		if t.Signed {
			p.emit(asm.ArSh.Imm(r1, shift))
		} else {
			p.emit(asm.RSh.Imm(r1, shift))
		}
	}
	ops := map[TestOp][2]asm.JumpOp{TestEq: {asm.JEq, asm.JEq}, TestLt: {asm.JLT, asm.JSLT}, TestLe: {asm.JLE, asm.JSLE}, TestGt: {asm.JGT, asm.JSGT},
		TestGe: {asm.JGE, asm.JSGE}, TestBits: {asm.JSet, asm.JSet}, TestNe: {asm.JEq, asm.JEq}}
	pair, known := ops[t.Op]
	if !known {
		return fmt.Errorf("comparison %d is not known", t.Op)
	}
	op := pair[0]
	if t.Signed {
		op = pair[1]
	}
	for _, v := range t.Values {
		target := ok
		if t.Op == TestNe {
			target = "drop"
		}
		p.jumpIf(op, r1, v, target)
	}
	if t.Op != TestNe {
		p.emit(asm.Ja.Label("drop"))
	}
	p.bind(ok)
	return nil
}

// testText compares the text just fetched. A text that could not be read, or only in part, satisfies the test: it is
// decided where the event is decoded.
func (p *shape) testText(t *Test, index int) error {
	n := len(t.Text)
	if n > maxText {
		return fmt.Errorf("a text of %d bytes to compare with; at most %d are possible", n, maxText)
	}
	if t.Not && t.Prefix {
		return fmt.Errorf("a text that must not begin with another is not tested here")
	}
	p.say("compare the text of fetch %d", index)
	ok, differs := p.label("holds"), "drop"
	if t.Not {
		ok, differs = "drop", p.label("holds")
	}
	through := p.label("undecided")
	// The segment begins where the record ended before the fetch.
	p.emit(load(r1, r7, tmpSegment, u64), load(r2, r7, tmpSize, u64), asm.JEq.Reg(r1, r2, through), asm.JGT.Imm(r1, int32(p.capacity-n-64), through), asm.Add.Reg(r1, r7),
		load(r2, r1, 8, u32), asm.JGT.Imm(r2, maxScratch, through), // errors are huge
		load(r3, r1, 12, u16), asm.JSet.Imm(r3, wire.SegCut|wire.SegFault, through))
	if t.Prefix {
		p.emit(asm.JLT.Imm(r2, int32(n), differs))
	} else {
		p.emit(asm.JNE.Imm(r2, int32(n), differs))
	}
	for i := 0; i < n; {
		w, size := 1, u8
		for _, c := range []struct {
			w    int
			size asm.Size
		}{{8, u64}, {4, u32}, {2, u16}} {
			if n-i >= c.w {
				w, size = c.w, c.size
				break
			}
		}
		var v uint64
		for k := w - 1; k >= 0; k-- {
			v = v<<8 | uint64(t.Text[i+k])
		}
		p.emit(load(r3, r1, wire.SegmentHeader+i, size))
		p.jumpIf(asm.JNE, r3, v, differs)
		i += w
	}
	if t.Not {
		p.emit(asm.Ja.Label("drop"))
		p.bind(differs)
	} else {
		p.bind(ok)
	}
	p.bind(through)
	return nil
}
