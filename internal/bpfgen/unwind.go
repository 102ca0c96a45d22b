package bpfgen

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/sonde-trace/sonde/internal/wire"
)

// The walk up a user stack in the kernel. A program that wants a stack copies the registers into the state of its scratch
// slot and calls step for each frame. Step is a global function, which the verifier checks once and alone: loops over the
// whole of it, and tail calls, are beyond what newer verifiers take. Global functions are given numbers only, so the state
// lives in a map.
//
// What a frame's row says comes from tables that package unwind makes of call frame information. Which table a program
// counter belongs to is asked of the kernel (bpf_find_vma, Linux 5.17): the file behind the mapping is the key, so a table
// serves all processes, and nothing has to follow their mappings.

// Maps of the walk.
const (
	MapUnwind = "unwind" // array, as MapScratch by slot: the state, see UnwindStateSize
	MapChunks = "chunks" // array of maps of one array each: the words of all tables, ChunkWords in each
	MapRules  = "rules"  // array of RuleSize bytes
	MapFiles  = "files"  // hash of FileKeySize → FileValueSize: which table a file has
	MapStacks = "stacks" // LRU hash u64 → u32: the ids that were sent
)

// Sizes of the tables.
const (
	ChunkWords    = 1 << 16
	ChunkSize     = 4 * ChunkWords
	MaxChunks     = 1024
	RuleSize      = 16
	MaxRules      = 1 << 16
	FileKeySize   = 16 // inode u64, device u32 (kernel encoding), zero u32; all zero is the vdso
	FileValueSize = 24 // subtrahend u64 (file offset - it = offset in the table), words of: directory, buckets, rows u32; module u32
	MaxFiles      = 1 << 14
	MaxStacks     = 1 << 14

	// A bucket is 1 << BucketBits bytes of code. Its row is a u32: the offset in the bucket in the low BucketBits, the rule above.
	BucketBits = 8
)

// Kinds of a rule's canonical frame address, the first byte of a rule.
const (
	CFANone    = iota
	CFASP      // stack pointer + offset
	CFAFP      // frame pointer + offset
	CFADerefSP // *(stack pointer + offset) + aux
	CFADerefFP
	CFAPLT    // stack pointer + 8, + 8 once pc & 15 is aux or more: stubs of the procedure linkage table (x86)
	CFASignal // the code behind a signal handler: all registers are in the frame
	CFAEnd    // the outermost frame
	CFARegister
	CFAUnsupported
)

// How the frame pointer is restored, the second byte, and the return address, the third.
const (
	FPSame  = iota
	FPAtCFA // *(CFA + offset)
	FPAtFP  // *(frame pointer + offset)
	FPUndefined
	RAAtCFA    = 0 // *(CFA - 8) on x86, *(CFA + aux) on arm64
	RALink     = 1 // the link register
	RARegister = 2
)

// Reasons why a walk ended, in records of stacks.
const (
	WalkRunning  = iota
	WalkEnd      // the outermost frame was reached
	WalkUnmapped // nothing is mapped at the return address
	WalkNoRow    // the file has a table, but nothing for this place, and there is no frame pointer to go by
	WalkUnsupported
	WalkUnreadable // a page of the stack was not there
	WalkBad        // the next frame would lie below
	WalkDeep       // the limit of frames
	WalkNoTable    // the file's table was not loaded
	WalkBusy       // the mappings were being changed
)

// Layout of the state.
const (
	usPC      = 0
	usSP      = 8
	usFP      = 16
	usLR      = 24
	usN       = 32
	usLeaf    = 40 // the pc is exact: the innermost frame, and the one that a signal interrupted
	usWhy     = 48
	usGuessed = 56
	usHash    = 64
	usStart   = 72
	usEnd     = 80
	usDelta   = 88 // pc - it = offset in the table
	usFile    = 96 // pc - it = offset in the file
	usDir     = 104
	usBuckets = 112
	usRows    = 120
	usModule  = 128
	usDev     = 136
	usIno     = 144
	usTwo     = 152 // 16 bytes
	usCFA     = 168
	usNewFP   = 176
	usMax     = 184
	usRA      = 192
	usDwarf   = 200 // 16 registers by DWARF number (x86)
	usRegs    = 328 // a copy of pt_regs, then of a signal frame
	usRegsMax = 344
	usRecord  = 704
	usFrames  = usRecord + wire.StackFrames

	// UnwindStateSize is the size of a value of MapUnwind.
	UnwindStateSize = usFrames + wire.FrameSize*wire.MaxFrames
)

// regsSize is how much of pt_regs a walk needs.
var regsSize = map[string]int32{"amd64": 168, "arm64": 272}

// WalkKernel is what the walk must know of kernel structures.
type WalkKernel struct {
	VMStart, VMEnd, VMPgoff, VMFile, VMMM int // vm_area_struct
	FInode                                int // file
	Ino, Sb                               int // inode
	Dev                                   int // super_block
	VDSO                                  int // mm_struct.context.vdso
	PageShift                             int
}

func callFunction(name string) asm.Instruction {
	return asm.Instruction{OpCode: asm.OpCode(asm.JumpClass).SetJumpOp(asm.Call), Src: asm.PseudoCall, Constant: -1}.WithReference(name)
}

func functionPointer(dst asm.Register, name string) asm.Instruction {
	return asm.Instruction{OpCode: asm.LoadImmOp(asm.DWord), Dst: dst, Src: asm.PseudoFunc, Constant: -1}.WithReference(name)
}

// Types of the functions, without which the verifier takes no global function (Documentation/bpf/btf.rst, func_info).
func functionType(name string, linkage btf.FuncLinkage, params ...btf.FuncParam) *btf.Func {
	return &btf.Func{Name: name, Linkage: linkage, Type: &btf.FuncProto{Return: &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}, Params: params}}
}

const (
	stepName = "sonde_step"
	vmaName  = "sonde_vma"
)

// withWalk adds the functions of the walk to a program that calls them.
func (p *Program) withWalk(k *Kernel) *Program {
	number := &btf.Int{Name: "unsigned int", Size: 4}
	step := (&walker{builder: newBuilder(), k: k}).step()
	vma := (&walker{builder: newBuilder(), k: k}).vma()
	pointer := &btf.Pointer{Target: &btf.Void{}}
	mark := func(q *Program, f *btf.Func) {
		q.Insns[0] = btf.WithFuncMetadata(q.Insns[0], f)
	}
	mark(p, functionType(p.Name, btf.GlobalFunc, btf.FuncParam{Name: "ctx", Type: pointer}))
	mark(step, functionType(stepName, btf.GlobalFunc, btf.FuncParam{Name: "slot", Type: number}))
	mark(vma, functionType(vmaName, btf.StaticFunc, btf.FuncParam{Name: "task", Type: pointer}, btf.FuncParam{Name: "vma", Type: pointer}, btf.FuncParam{Name: "found", Type: pointer}))
	for _, q := range []*Program{step, vma} {
		p.Insns = append(p.Insns, q.Insns...)
		p.notes = append(p.notes, q.notes...)
	}
	return p
}

// walk emits the walk of the user stack of the current task and leaves its id, or zero, at tmpStack of the record in base, a
// callee-saved register: that of the scratch slot whose index is at fp+stSlot. It clobbers r8 and the caller-saved registers.
func (g *gen) walk(base asm.Register) {
	g.say("walk the user's stack: begin")
	skip := "nowalk"
	arch := g.Kernel.Arch
	// Tasks of other ABIs have other registers and other tables.
	g.emit(storeImm(base, tmpStack, 0, u64), load(r1, fp, stFlags, u32), asm.JSet.Imm(r1, wire.FlagCompat, skip),
		asm.FnGetCurrentTaskBtf.Call(), asm.Mov.Reg(r1, r0), asm.FnTaskPtRegs.Call(), store(fp, stTmp, r0, u64))
	g.lookup(MapUnwind, stSlot)
	g.emit(asm.JEq.Imm(r0, 0, skip), asm.Mov.Reg(r8, r0),
		asm.Mov.Reg(r1, r8), asm.Add.Imm(r1, usRegs), asm.Mov.Imm(r2, regsSize[arch]), load(r3, fp, stTmp, u64), asm.FnProbeReadKernel.Call())
	copyReg := func(from string, to int) {
		off := regOffsets[arch][from]
		g.emit(load(r1, r8, usRegs+off, u64), store(r8, to, r1, u64))
	}
	copyReg("pc", usPC)
	copyReg("sp", usSP)
	copyReg("fp", usFP)
	if arch == "arm64" {
		copyReg("lr", usLR)
		g.stripPAC(r8, usLR)
	} else {
		for i, name := range dwarfRegs {
			if name != "" {
				copyReg(name, usDwarf+8*i)
			}
		}
	}
	for _, off := range []int{usN, usWhy, usGuessed, usHash, usStart, usEnd, usDev, usIno} {
		g.emit(storeImm(r8, off, 0, u64))
	}
	g.emit(storeImm(r8, usLeaf, 1, u64), storeImm(r8, usMax, int32(g.StackDepth), u64), storeImm(fp, stTmp, 0, u64))
	turn, done := g.label("frame"), g.label("walked")
	g.say("walk the user's stack: a frame at a time")
	g.bind(turn)
	g.emit(load(r1, fp, stTmp, u64), asm.JGE.Imm(r1, int32(g.StackDepth)+1, done), asm.Add.Imm(r1, 1), store(fp, stTmp, r1, u64),
		load(r1, fp, stSlot, u32), callFunction(stepName), asm.JEq.Imm(r0, 0, turn))
	g.bind(done)
	g.say("is this stack known")
	g.emit(load(r1, r8, usHash, u64), load(r2, r8, usWhy, u64), asm.Xor.Reg(r1, r2), store(fp, stTmp, r1, u64))
	sent, lost := g.label("known"), g.label("nostack")
	g.lookup(MapStacks, stTmp)
	g.emit(asm.JNE.Imm(r0, 0, sent))
	g.say("send the stack")
	rec := usRecord
	put := func(off int, size asm.Size) { g.emit(store(r8, rec+off, r1, size)) }
	// It belongs before everything that names it, also what another CPU sent earlier.
	g.emit(storeImm(r8, rec+wire.OffKind, int32(wire.Stack), u32), storeImm(r8, rec+wire.OffTime, 0, u64),
		storeImm(r8, rec+wire.OffProbe, 0, u32), load(r1, fp, stCPU, u32))
	put(wire.OffCPU, u32)
	g.emit(load(r1, fp, stPT, u64))
	put(wire.OffTid, u64)
	g.emit(storeImm(r8, rec+wire.OffIP, 0, u64), storeImm(r8, rec+wire.OffSeq, 0, u64), load(r1, fp, stTmp, u64))
	put(wire.OffStackID, u64)
	g.emit(load(r1, r8, usWhy, u64))
	put(wire.OffStackWhy, u32)
	g.emit(load(r1, r8, usGuessed, u64))
	put(wire.OffStackGuessed, u32)
	g.emit(load(r1, r8, usDev, u64))
	put(wire.OffStackDev, u32)
	g.emit(load(r1, r8, usIno, u64))
	put(wire.OffStackIno, u64)
	g.emit(load(r3, r8, usN, u64), asm.JGT.Imm(r3, wire.MaxFrames, lost), store(r8, rec+wire.OffStackN, r3, u32),
		asm.Mul.Imm(r3, wire.FrameSize), asm.Add.Imm(r3, wire.StackFrames), store(r8, rec+wire.OffSize, r3, u32),
		mapPtr(r1, MapRing), asm.Mov.Reg(r2, r8), asm.Add.Imm(r2, int32(rec)), asm.Mov.Imm(r4, noWakeup), asm.FnRingbufOutput.Call(), asm.JNE.Imm(r0, 0, lost),
		// Only now is it known: an id whose stack was lost is sent again.
		storeImm(fp, stKey, 1, u32), mapPtr(r1, MapStacks), asm.Mov.Reg(r2, fp), asm.Add.Imm(r2, stTmp), asm.Mov.Reg(r3, fp), asm.Add.Imm(r3, stKey),
		asm.Mov.Imm(r4, 0), asm.FnMapUpdateElem.Call())
	g.bind(lost)
	g.bind(sent)
	g.emit(load(r1, fp, stTmp, u64), store(base, tmpStack, r1, u64))
	g.bind(skip)
}

// stackSegment adds the id that walk left to the record. The record's size is at tmpSize.
func (p *shape) stackSegment() {
	p.say("note the stack in the record")
	none := p.label("nostack")
	p.room(wire.SegmentHeader, none)
	p.emit(load(r1, r7, tmpStack, u64), asm.JEq.Imm(r1, 0, none), asm.Mov.Reg(r2, r7), asm.Add.Reg(r2, r8),
		store(r2, 0, r1, u64), storeImm(r2, 8, 0, u32), storeImm(r2, 12, wire.SegStack, u32), asm.Add.Imm(r8, wire.SegmentHeader), store(r7, tmpSize, r8, u64))
	p.bind(none)
}

// registersSegment adds the registers to the record. The record's size is at tmpSize. It clobbers r8 and the caller-saved registers.
func (p *shape) registersSegment() {
	p.say("copy the registers")
	none := p.label("noregs")
	n := regsSize[p.Kernel.Arch]
	p.emit(asm.FnGetCurrentTaskBtf.Call(), asm.Mov.Reg(r1, r0), asm.FnTaskPtRegs.Call(), store(fp, stTmp, r0, u64))
	p.room(wire.SegmentHeader+int(n)+16, none)
	p.emit(asm.Mov.Reg(r1, r7), asm.Add.Reg(r1, r8), storeImm(r1, 0, 0, u64), storeImm(r1, 8, n, u32), storeImm(r1, 12, wire.SegRegs, u32),
		asm.Add.Imm(r1, wire.SegmentHeader), asm.Mov.Imm(r2, n), load(r3, fp, stTmp, u64), asm.FnProbeReadKernel.Call(), asm.JNE.Imm(r0, 0, none),
		load(r8, r7, tmpSize, u64), asm.Add.Imm(r8, wire.SegmentHeader+n), store(r7, tmpSize, r8, u64))
	p.bind(none)
}

// RegNames are the registers of an architecture in the order in which people read them; RegOffset says where each is.
func RegNames(arch string) []string {
	if arch == "amd64" {
		return strings.Fields("rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip eflags")
	}
	var list []string
	for i := range 31 {
		list = append(list, fmt.Sprintf("x%d", i))
	}
	return append(list, "sp", "pc", "pstate")
}

// dwarfRegs are the registers of x86 by DWARF number (psABI, figure 3.36); the frame and stack pointers have fields of their own.
var dwarfRegs = [16]string{"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "", "", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"}

// stripPAC removes the signature of a return address: user addresses have 48 bits, or 52 where the kernel was asked for more,
// which leaves the top byte and the bits below it to the signature (arch/arm64/include/asm/pointer_auth.h).
func (b *builder) stripPAC(base asm.Register, off int) {
	b.emit(load(r1, base, off, u64), asm.LSh.Imm(r1, 16), asm.RSh.Imm(r1, 16), store(base, off, r1, u64))
}

// walker generates the functions of the walk.
type walker struct {
	*builder
	k *Kernel
}

// Words on the stack of step.
const (
	wkKey = -8  // u32
	wkVMA = -56 // what vma found: start, end, offset in the file, inode, device u32 and found u32
	vmSt  = 0
	vmEnd = 8
	vmOff = 16
	vmIno = 24
	vmDev = 32
	vmHit = 36
	wkFK  = -72 // FileKeySize
)

// vma is the callback of bpf_find_vma: it notes the mapping and its file. found is 1 for a file, 2 for none.
func (w *walker) vma() *Program {
	k := &w.k.Walk
	w.say("walk: the mapping")
	w.bind(vmaName)
	w.emit(asm.Mov.Reg(r6, r2), asm.Mov.Reg(r7, r3),
		load(r1, r6, k.VMStart, u64), store(r7, vmSt, r1, u64), load(r1, r6, k.VMEnd, u64), store(r7, vmEnd, r1, u64),
		load(r1, r6, k.VMPgoff, u64), asm.LSh.Imm(r1, int32(k.PageShift)), store(r7, vmOff, r1, u64),
		storeImm(r7, vmIno, 0, u64), storeImm(r7, vmDev, 0, u32), storeImm(r7, vmHit, 2, u32),
		load(r8, r6, k.VMFile, u64), asm.JNE.Imm(r8, 0, "vma.file"))
	// Without a file: the vdso, or memory of the program's own.
	w.emit(load(r1, r6, k.VMMM, u64), asm.JEq.Imm(r1, 0, "vma.out"), load(r1, r1, k.VDSO, u64), load(r2, r6, k.VMStart, u64), asm.JNE.Reg(r1, r2, "vma.out"),
		storeImm(r7, vmOff, 0, u64), storeImm(r7, vmHit, 1, u32), asm.Ja.Label("vma.out"))
	w.bind("vma.file")
	w.emit(load(r8, r8, k.FInode, u64), asm.JEq.Imm(r8, 0, "vma.out"), load(r1, r8, k.Ino, u64), store(r7, vmIno, r1, u64),
		load(r1, r8, k.Sb, u64), asm.JEq.Imm(r1, 0, "vma.out"), load(r1, r1, k.Dev, u32), store(r7, vmDev, r1, u32), storeImm(r7, vmHit, 1, u32))
	w.bind("vma.out")
	w.emit(asm.Mov.Imm(r0, 0), asm.Return())
	return w.program(vmaName)
}

// end emits a block that ends the walk for a reason.
func (w *walker) end(label string, why int32) {
	w.later(func() {
		w.bind(label)
		w.emit(storeImm(r6, usWhy, why, u64), asm.Mov.Imm(r0, 1), asm.Return())
	})
}

// readUser reads n bytes of the user's memory at the address in r3 to state + to, and leaves at fail.
func (w *walker) readUser(to int, n int32, fail string) {
	w.emit(asm.Mov.Reg(r1, r6), asm.Add.Imm(r1, int32(to)), asm.Mov.Imm(r2, n), asm.FnProbeReadUser.Call(), asm.JNE.Imm(r0, 0, fail))
}

// chunk puts the address of the words of the chunk that the word index in r8 lies in into r0. It clobbers the caller-saved
// registers.
func (w *walker) chunk(fail string) {
	w.emit(asm.Mov.Reg(r1, r8), asm.RSh.Imm(r1, 16), store(fp, wkKey, r1, u32))
	w.lookup(MapChunks, wkKey)
	w.emit(asm.JEq.Imm(r0, 0, fail), storeImm(fp, wkKey, 0, u32), asm.Mov.Reg(r1, r0), asm.Mov.Reg(r2, fp), asm.Add.Imm(r2, wkKey), asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(r0, 0, fail))
}

// at loads the word with the index in idx of the chunk in base.
func (w *walker) at(dst, base, idx asm.Register) {
	if dst != idx {
		w.emit(asm.Mov.Reg(dst, idx))
	}
	w.emit(asm.And.Imm(dst, ChunkWords-1), asm.LSh.Imm(dst, 2), asm.Add.Reg(dst, base), load(dst, dst, 0, u32))
}

// step handles one frame: it notes it, finds its row, and computes the caller's registers. It returns 1 at the end.
// Registers: r6 the state, r7 the pc to look up, r8 and r9 as needed.
func (w *walker) step() *Program {
	w.say("walk: note the frame")
	w.bind(stepName)
	w.emit(store(fp, wkKey, r1, u32))
	w.lookup(MapUnwind, wkKey)
	w.emit(asm.JNE.Imm(r0, 0, "s.state"), asm.Mov.Imm(r0, 1), asm.Return())
	w.bind("s.state")
	w.emit(asm.Mov.Reg(r6, r0), load(r7, r6, usPC, u64), load(r1, r6, usLeaf, u64), asm.JNE.Imm(r1, 0, "s.exact"), asm.Sub.Imm(r7, 1))
	w.bind("s.exact")
	w.end("s.deep", WalkDeep)
	w.end("s.unmapped", WalkUnmapped)
	w.end("s.busy", WalkBusy)
	w.end("s.notable", WalkNoTable)
	w.end("s.norow", WalkNoRow)
	w.end("s.unsup", WalkUnsupported)
	w.end("s.read", WalkUnreadable)
	w.end("s.bad", WalkBad)
	w.end("s.over", WalkEnd)
	w.emit(load(r1, r6, usN, u64), load(r2, r6, usMax, u64), asm.JGE.Reg(r1, r2, "s.deep"))

	w.mapping()
	w.note()
	w.findRow()
	w.rule()
	return w.program(stepName)
}

// mapping finds the mapping of r7 and its table, unless it is that of the frame before.
func (w *walker) mapping() {
	w.say("walk: which file is mapped there")
	w.emit(load(r1, r6, usStart, u64), load(r2, r6, usEnd, u64), asm.Mov.Reg(r3, r7), asm.Sub.Reg(r3, r1), asm.Sub.Reg(r2, r1), asm.JLT.Reg(r3, r2, "s.mapped"))
	w.emit(storeImm(r6, usStart, 0, u64), storeImm(r6, usEnd, 0, u64), storeImm(r6, usModule, 0, u64), storeImm(r6, usBuckets, 0, u64), storeImm(r6, usFile, 0, u64))
	for off := wkVMA; off < wkVMA+40; off += 8 {
		w.emit(storeImm(fp, off, 0, u64))
	}
	w.emit(asm.FnGetCurrentTaskBtf.Call(), asm.Mov.Reg(r1, r0), asm.Mov.Reg(r2, r7), functionPointer(r3, vmaName), asm.Mov.Reg(r4, fp), asm.Add.Imm(r4, wkVMA),
		asm.Mov.Imm(r5, 0), asm.FnFindVma.Call(),
		load(r1, fp, wkVMA+vmHit, u32), asm.JNE.Imm(r1, 0, "s.found"),
		// -EBUSY, or nothing is there: the frame is noted all the same.
		asm.Mov.Imm(r8, WalkUnmapped), asm.JEq.Imm32(r0, -16, "s.isbusy"), asm.Ja.Label("s.nofile"))
	w.bind("s.isbusy")
	w.emit(asm.Mov.Imm(r8, WalkBusy))
	w.bind("s.nofile")
	w.emit(store(r6, usWhy, r8, u64))
	w.noteFrame("s.n1")
	w.emit(asm.Mov.Imm(r0, 1), asm.Return())
	w.bind("s.found")
	w.emit(load(r2, fp, wkVMA+vmSt, u64), store(r6, usStart, r2, u64), load(r3, fp, wkVMA+vmEnd, u64), store(r6, usEnd, r3, u64),
		asm.JEq.Imm(r1, 2, "s.mapped"))
	w.emit(load(r1, fp, wkVMA+vmIno, u64), store(fp, wkFK, r1, u64), load(r1, fp, wkVMA+vmDev, u32), store(fp, wkFK+8, r1, u64))
	// The frame's place in the file: pc - (start - offset).
	w.emit(load(r1, fp, wkVMA+vmOff, u64), asm.Sub.Reg(r2, r1), store(r6, usFile, r2, u64))
	w.lookup(MapFiles, wkFK)
	w.emit(asm.JNE.Imm(r0, 0, "s.table"),
		// Never guess through a file whose table may come: the user is told which file it is.
		load(r1, fp, wkFK, u64), store(r6, usIno, r1, u64), load(r1, fp, wkFK+8, u64), store(r6, usDev, r1, u64), storeImm(r6, usWhy, WalkNoTable, u64))
	w.noteFrame("s.n2")
	w.emit(asm.Mov.Imm(r0, 1), asm.Return())
	w.bind("s.table")
	w.emit(load(r1, r0, 0, u64), load(r2, r6, usFile, u64), asm.Add.Reg(r2, r1), store(r6, usDelta, r2, u64))
	for i, off := range []int{usDir, usBuckets, usRows, usModule} {
		w.emit(load(r1, r0, 8+4*i, u32), store(r6, off, r1, u64))
	}
	w.bind("s.mapped")
}

func (w *walker) note() { w.noteFrame("s.n0") }

// noteFrame appends the frame to the record and to the hash: the pc, and the module with the place in the file.
func (w *walker) noteFrame(label string) {
	anon := label + ".anon"
	w.emit(load(r1, r6, usN, u64), asm.And.Imm(r1, wire.MaxFrames-1), asm.Mov.Reg(r2, r1), asm.Add.Imm(r2, 1), store(r6, usN, r2, u64),
		asm.Mul.Imm(r1, wire.FrameSize), asm.Add.Reg(r1, r6),
		load(r2, r6, usPC, u64), store(r1, usFrames, r2, u64),
		// Place, module and whether the pc is exact in one word.
		load(r3, r6, usModule, u64), asm.Mov.Reg(r4, r2), asm.JEq.Imm(r3, 0, anon),
		load(r4, r6, usFile, u64), asm.Sub.Reg(r2, r4), asm.LSh.Imm(r2, 64-wire.FrameOffsetBits), asm.RSh.Imm(r2, 64-wire.FrameOffsetBits),
		asm.LSh.Imm(r3, wire.FrameModuleShift), asm.Or.Reg(r2, r3), asm.Mov.Reg(r4, r2))
	w.bind(anon)
	w.emit(load(r5, r6, usLeaf, u64), asm.LSh.Imm(r5, wire.FrameExactShift))
	zero := label + ".zero"
	w.emit(asm.Mov.Imm(r2, 0), asm.JEq.Imm(r3, 0, zero), asm.Mov.Reg(r2, r4))
	w.bind(zero)
	w.emit(asm.Or.Reg(r2, r5), store(r1, usFrames+8, r2, u64),
		load(r2, r6, usHash, u64), asm.Xor.Reg(r2, r4), asm.LoadImm(r3, -0x61c8864680b583eb, asm.DWord), asm.Mul.Reg(r2, r3),
		asm.Mov.Reg(r3, r2), asm.RSh.Imm(r3, 29), asm.Xor.Reg(r2, r3), store(r6, usHash, r2, u64))
}

// findRow leaves the id of the rule for r7 in r9; without one it tries the frame pointer.
func (w *walker) findRow() {
	w.say("walk: find the row")
	// offset in the table → bucket
	w.emit(load(r1, r6, usDelta, u64), asm.Sub.Reg(r7, r1), asm.Mov.Reg(r1, r7), asm.RSh.Imm(r1, BucketBits), load(r2, r6, usBuckets, u64), asm.JGE.Reg(r1, r2, "s.guess"),
		load(r8, r6, usDir, u64), asm.Add.Reg(r8, r1), asm.And.Imm(r7, 1<<BucketBits-1))
	w.chunk("s.unsup")
	w.at(r9, r0, r8)
	// The next word of the directory ends the bucket; it may be in the next chunk.
	w.emit(asm.Add.Imm(r8, 1), asm.Mov.Reg(r1, r8), asm.And.Imm(r1, ChunkWords-1), asm.JNE.Imm(r1, 0, "s.same"))
	w.chunk("s.unsup")
	w.bind("s.same")
	w.at(r1, r0, r8)
	w.emit(load(r2, r6, usRows, u64), asm.Add.Reg(r9, r2), asm.Add.Reg(r1, r2), store(r6, usTwo, r1, u64), store(r6, usTwo+8, r9, u64), asm.Mov.Reg(r8, r9))
	w.chunk("s.unsup")
	// First row of the bucket [r9, hi) that begins behind r7: nine halvings of at most 256 rows. The loop is laid out straight, so
	// that the verifier walks it once.
	w.emit(load(r8, r6, usTwo, u64), asm.Mov.Reg(r5, r0))
	for i := range 9 {
		next, right := "s.half"+string(rune('0'+i)), "s.right"+string(rune('0'+i))
		w.emit(asm.JGE.Reg(r9, r8, "s.row"), asm.Mov.Reg(r1, r9), asm.Add.Reg(r1, r8), asm.RSh.Imm(r1, 1))
		w.at(r2, r5, r1)
		w.emit(asm.And.Imm(r2, 1<<BucketBits-1), asm.JLE.Reg(r2, r7, right), asm.Mov.Reg(r8, r1), asm.Ja.Label(next))
		w.bind(right)
		w.emit(asm.Mov.Reg(r9, r1), asm.Add.Imm(r9, 1))
		w.bind(next)
	}
	w.bind("s.row")
	// The row before holds; if that is in an earlier bucket its chunk may be another.
	w.emit(load(r1, r6, usRows, u64), asm.JLE.Reg(r9, r1, "s.guess"), asm.Sub.Imm(r9, 1), asm.Mov.Reg(r8, r9))
	w.chunk("s.unsup")
	w.at(r9, r0, r8)
	w.emit(asm.RSh.Imm(r9, BucketBits), asm.JEq.Imm(r9, 0, "s.guess"))
	w.later(func() {
		w.say("walk: no row, so by the frame pointer")
		w.bind("s.guess")
		// The dynamic linker's and other entries have no row; the frame pointer is zero there (psABI, 3.4.1 "Initial Stack and Register
		// State").
		w.emit(load(r3, r6, usFP, u64), asm.JEq.Imm(r3, 0, "s.nofp"), load(r1, r6, usSP, u64), asm.JLT.Reg(r3, r1, "s.norow"), asm.Mov.Reg(r1, r3), asm.And.Imm(r1, 7), asm.JNE.Imm(r1, 0, "s.norow"))
		w.readUser(usTwo, 16, "s.norow")
		w.emit(load(r1, r6, usTwo+8, u64))
		if w.k.Arch == "arm64" {
			w.stripPAC(r6, usTwo+8)
		}
		w.emit(asm.JLT.Imm(r1, 4096, "s.norow"), load(r2, r6, usFP, u64), asm.Add.Imm(r2, 16), store(r6, usSP, r2, u64),
			load(r2, r6, usTwo, u64), store(r6, usFP, r2, u64), store(r6, usPC, r1, u64), storeImm(r6, usLeaf, 0, u64),
			load(r1, r6, usGuessed, u64), asm.Add.Imm(r1, 1), store(r6, usGuessed, r1, u64), asm.Mov.Imm(r0, 0), asm.Return())
		w.bind("s.nofp")
		w.emit(load(r1, r6, usModule, u64), asm.JNE.Imm(r1, 0, "s.over"), asm.Ja.Label("s.norow"))
	})
}

// rule applies the rule with the id in r9.
func (w *walker) rule() {
	arm := w.k.Arch == "arm64"
	w.say("walk: apply the rule")
	w.emit(store(fp, wkKey, r9, u32))
	w.lookup(MapRules, wkKey)
	// r8: the rule
	w.emit(asm.JEq.Imm(r0, 0, "s.unsup"), asm.Mov.Reg(r8, r0), load(r1, r8, 0, u8), load(r2, r8, 4, u32), asm.LSh.Imm(r2, 32), asm.ArSh.Imm(r2, 32))
	w.emit(asm.JEq.Imm(r1, CFASP, "s.sp"), asm.JEq.Imm(r1, CFAFP, "s.fp"), asm.JEq.Imm(r1, CFAEnd, "s.over"), asm.JEq.Imm(r1, CFASignal, "s.signal"),
		asm.JEq.Imm(r1, CFADerefSP, "s.dsp"), asm.JEq.Imm(r1, CFADerefFP, "s.dfp"))
	if !arm {
		w.emit(asm.JEq.Imm(r1, CFAPLT, "s.plt"), asm.JEq.Imm(r1, CFARegister, "s.reg"))
	}
	w.emit(asm.Ja.Label("s.unsup"))
	w.bind("s.sp")
	w.emit(load(r9, r6, usSP, u64), asm.Add.Reg(r9, r2), asm.Ja.Label("s.cfa"))
	w.bind("s.fp")
	w.emit(load(r9, r6, usFP, u64), asm.Add.Reg(r9, r2), asm.Ja.Label("s.cfa"))
	w.bind("s.dsp")
	w.emit(load(r3, r6, usSP, u64), asm.Add.Reg(r3, r2), asm.Ja.Label("s.deref"))
	w.bind("s.dfp")
	w.emit(load(r3, r6, usFP, u64), asm.Add.Reg(r3, r2))
	w.bind("s.deref")
	w.readUser(usTwo, 8, "s.read")
	w.emit(load(r9, r6, usTwo, u64), load(r1, r8, 12, u32), asm.LSh.Imm(r1, 32), asm.ArSh.Imm(r1, 32), asm.Add.Reg(r9, r1), asm.Ja.Label("s.cfa"))
	if !arm {
		w.bind("s.plt")
		w.emit(load(r9, r6, usSP, u64), asm.Add.Imm(r9, 8), load(r1, r6, usPC, u64), asm.And.Imm(r1, 15), load(r2, r8, 12, u32), asm.JLT.Reg(r1, r2, "s.cfa"),
			asm.Add.Imm(r9, 8), asm.Ja.Label("s.cfa"))
		w.bind("s.reg")
		w.emit(load(r1, r6, usLeaf, u64), asm.JEq.Imm(r1, 0, "s.unsup"), load(r1, r8, 3, u8), asm.And.Imm(r1, 15), asm.LSh.Imm(r1, 3), asm.Add.Reg(r1, r6),
			load(r9, r1, usDwarf, u64), asm.Add.Reg(r9, r2))
	}
	w.bind("s.cfa") // r9
	w.emit(load(r1, r6, usFP, u64), store(r6, usNewFP, r1, u64))
	if arm {
		w.callerARM64()
	} else {
		w.callerAMD64()
	}
	w.bind("s.caller") // r9: CFA; the return address at usRA; the frame pointer at usNewFP
	w.emit(load(r1, r6, usSP, u64), asm.JLT.Reg(r9, r1, "s.bad"), asm.JNE.Reg(r9, r1, "s.up"), load(r1, r6, usLeaf, u64), asm.JEq.Imm(r1, 0, "s.bad"))
	w.bind("s.up")
	w.emit(store(r6, usSP, r9, u64), load(r1, r6, usNewFP, u64), store(r6, usFP, r1, u64), load(r1, r6, usRA, u64), store(r6, usPC, r1, u64),
		storeImm(r6, usLeaf, 0, u64), asm.JEq.Imm(r1, 0, "s.over"), asm.Mov.Imm(r0, 0), asm.Return())
	w.later(func() {
		w.say("walk: a signal's frame")
		w.bind("s.signal")
		if arm {
			// struct rt_sigframe: siginfo of 128 bytes, ucontext whose mcontext begins at 176: fault address, x0..x30, sp, pc
			// (arch/arm64/kernel/signal.c, include/uapi/asm/{ucontext,sigcontext}.h).
			w.emit(load(r3, r6, usSP, u64), asm.Add.Imm(r3, 312))
			w.readUser(usRegs, 34*8, "s.read")
			w.emit(load(r1, r6, usRegs+29*8, u64), store(r6, usFP, r1, u64), load(r1, r6, usRegs+30*8, u64), store(r6, usLR, r1, u64))
			w.stripPAC(r6, usLR)
			w.emit(load(r1, r6, usRegs+31*8, u64), store(r6, usSP, r1, u64), load(r1, r6, usRegs+32*8, u64), store(r6, usPC, r1, u64))
		} else {
			// The return address is popped: ucontext is at the stack pointer, its registers at 40: r8..r15, rdi, rsi, rbp, rbx, rdx, rax, rcx,
			// rsp, rip (arch/x86/include/uapi/asm/{ucontext,sigcontext}.h).
			w.emit(load(r3, r6, usSP, u64), asm.Add.Imm(r3, 40))
			w.readUser(usRegs, 17*8, "s.read")
			for _, c := range [][2]int{{10, usFP}, {15, usSP}, {16, usPC}, {13, usDwarf}, {12, usDwarf + 8}, {14, usDwarf + 16}, {11, usDwarf + 24}, {9, usDwarf + 32}, {8, usDwarf + 40}} {
				w.emit(load(r1, r6, usRegs+8*c[0], u64), store(r6, c[1], r1, u64))
			}
			for i := range 8 {
				w.emit(load(r1, r6, usRegs+8*i, u64), store(r6, usDwarf+64+8*i, r1, u64))
			}
		}
		w.emit(storeImm(r6, usLeaf, 1, u64), asm.Mov.Imm(r0, 0), asm.Return())
	})
}

// callerAMD64 finds the return address and the frame pointer of the caller, with the CFA in r9 and the rule in r8.
func (w *walker) callerAMD64() {
	w.emit(load(r1, r8, 2, u8), asm.JEq.Imm(r1, RARegister, "s.rareg"),
		asm.Mov.Reg(r3, r9), asm.Sub.Imm(r3, 8))
	w.readUser(usRA, 8, "s.read")
	w.emit(load(r1, r8, 1, u8), asm.JEq.Imm(r1, FPAtCFA, "s.fpcfa"), asm.JEq.Imm(r1, FPAtFP, "s.fpfp"), asm.Ja.Label("s.caller"))
	w.bind("s.fpcfa")
	// A saved register below the stack pointer is popped already: compilers do not describe the ends of functions.
	w.emit(load(r3, r8, 8, u32), asm.LSh.Imm(r3, 32), asm.ArSh.Imm(r3, 32), asm.Add.Reg(r3, r9), load(r1, r6, usSP, u64), asm.JLT.Reg(r3, r1, "s.caller"))
	w.readUser(usNewFP, 8, "s.read")
	w.emit(asm.Ja.Label("s.caller"))
	w.bind("s.fpfp")
	w.emit(load(r3, r8, 8, u32), asm.LSh.Imm(r3, 32), asm.ArSh.Imm(r3, 32), load(r1, r6, usFP, u64), asm.Add.Reg(r3, r1))
	w.readUser(usNewFP, 8, "s.read")
	w.emit(asm.Ja.Label("s.caller"))
	w.later(func() {
		w.bind("s.rareg")
		w.emit(load(r1, r6, usLeaf, u64), asm.JEq.Imm(r1, 0, "s.unsup"), load(r1, r8, 3, u8), asm.And.Imm(r1, 15), asm.LSh.Imm(r1, 3), asm.Add.Reg(r1, r6),
			load(r1, r1, usDwarf, u64), store(r6, usRA, r1, u64), asm.Ja.Label("s.caller"))
	})
}

// callerARM64 is the same for arm64: the return address is in the link register in the innermost frame, or beside the frame
// pointer.
func (w *walker) callerARM64() {
	w.emit(load(r1, r8, 2, u8), asm.JNE.Imm(r1, RALink, "s.ramem"), load(r1, r6, usLeaf, u64), asm.JEq.Imm(r1, 0, "s.bad"),
		load(r1, r6, usLR, u64), store(r6, usRA, r1, u64), asm.Ja.Label("s.rafp"))
	w.bind("s.ramem")
	w.emit(load(r3, r8, 12, u32), asm.LSh.Imm(r3, 32), asm.ArSh.Imm(r3, 32), asm.Add.Reg(r3, r9))
	w.readUser(usRA, 8, "s.read")
	w.stripPAC(r6, usRA)
	w.bind("s.rafp")
	w.emit(load(r1, r8, 1, u8), asm.JNE.Imm(r1, FPAtCFA, "s.caller"),
		load(r3, r8, 8, u32), asm.LSh.Imm(r3, 32), asm.ArSh.Imm(r3, 32), asm.Add.Reg(r3, r9))
	w.readUser(usNewFP, 8, "s.read")
}
