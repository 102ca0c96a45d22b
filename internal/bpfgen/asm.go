// Package bpfgen writes the kernel programs of a trace as BPF instructions: the dispatchers of system calls, one program
// per shape of memory to copy, and the programs that follow tasks through their lives. Records have the layout of package
// wire. It generates only: loading and attaching is package attach's.
//
// Programs name their maps symbolically (the Map constants), so that equal plans give equal instructions. They keep to what
// kernel 5.10 verifies on amd64 and arm64 unless [Kernel] says that more is there.
package bpfgen

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf/asm"
)

// Program is one generated program.
type Program struct {
	Name  string // as the kernel shows it, at most 15 bytes
	Insns asm.Instructions
	// notes[i] says in words what instruction i belongs to.
	notes []string
}

// Note returns what the instruction at a raw offset (as verifier logs count: 64-bit loads count twice) does, in words.
func (p *Program) Note(offset int) string {
	at := 0
	for i := range p.Insns {
		w := int(p.Insns[i].Width())
		if offset < at+w {
			return p.notes[i]
		}
		at += w
	}
	return ""
}

// Short names of the registers. Across helper calls only r6 to r9 survive.
const (
	r0 = asm.R0
	r1 = asm.R1
	r2 = asm.R2
	r3 = asm.R3
	r4 = asm.R4
	r5 = asm.R5
	r6 = asm.R6
	r7 = asm.R7
	r8 = asm.R8
	r9 = asm.R9
	fp = asm.RFP
)

const (
	u8  = asm.Byte
	u16 = asm.Half
	u32 = asm.Word
	u64 = asm.DWord
)

// builder collects instructions. Labels bind to the next instruction; several may bind to one. Blocks queued with later are
// emitted behind the main line, so that the verifier walks the successful path first and finds the states of the other
// paths contained in it.
type builder struct {
	insns   asm.Instructions
	notes   []string
	note    string
	pending []string
	alias   map[string]string
	labels  int
	queue   []func()
}

// builders are used again and again: the memory of a program in the making is touched once, which is most of its price.
var builders = sync.Pool{New: func() any { return &builder{alias: make(map[string]string)} }}

func newBuilder() *builder { return builders.Get().(*builder) }

// release gives the builder back. What program returned is not part of it.
func (b *builder) release() {
	clear(b.alias)
	*b = builder{insns: b.insns[:0], notes: b.notes[:0], alias: b.alias}
	builders.Put(b)
}

// say sets the words for the instructions that follow.
func (b *builder) say(format string, args ...any) { b.note = fmt.Sprintf(format, args...) }

func (b *builder) emit(list ...asm.Instruction) {
	for _, in := range list {
		if len(b.pending) > 0 {
			for _, a := range b.pending[1:] {
				b.alias[a] = b.pending[0]
			}
			in = in.WithSymbol(b.pending[0])
			b.pending = nil
		}
		b.insns = append(b.insns, in)
		b.notes = append(b.notes, b.note)
	}
}

// label returns a fresh label.
func (b *builder) label(stem string) string {
	b.labels++
	return fmt.Sprintf("%s%d", stem, b.labels)
}

func (b *builder) bind(label string) { b.pending = append(b.pending, label) }

// later queues a block; it must end in a jump or return.
func (b *builder) later(block func()) {
	note := b.note
	b.queue = append(b.queue, func() { b.note = note; block() })
}

// program resolves labels and drops what cannot be reached: the verifier refuses unreachable instructions, so optional
// blocks may be emitted freely. The builder is not to be used afterwards.
func (b *builder) program(name string) *Program {
	for len(b.queue) > 0 {
		q := b.queue
		b.queue = nil
		for _, block := range q {
			block()
		}
	}
	at := make(map[string]int)
	for i := range b.insns {
		if ref := b.insns[i].Reference(); ref != "" {
			if a, ok := b.alias[ref]; ok {
				b.insns[i] = b.insns[i].WithReference(a)
			}
		}
		if s := b.insns[i].Symbol(); s != "" {
			at[s] = i
		}
	}
	live := make([]bool, len(b.insns))
	work := []int{0}
	for len(work) > 0 {
		i := work[len(work)-1]
		work = work[:len(work)-1]
		for i < len(b.insns) && !live[i] {
			live[i] = true
			if op := b.insns[i].OpCode; op.Class().IsJump() {
				if op.JumpOp() == asm.Exit {
					break
				}
				if op.JumpOp() != asm.Call {
					target, ok := at[b.insns[i].Reference()]
					if !ok {
						panic("bpfgen: jump to unbound label " + b.insns[i].Reference())
					}
					work = append(work, target)
					if op.JumpOp() == asm.Ja {
						break
					}
				}
			}
			i++
		}
	}
	n := 0
	for _, l := range live {
		if l {
			n++
		}
	}
	p := &Program{Name: name, Insns: make(asm.Instructions, 0, n), notes: make([]string, 0, n)}
	for i := range b.insns {
		if live[i] {
			p.Insns = append(p.Insns, b.insns[i])
			p.notes = append(p.notes, b.notes[i])
		}
	}
	b.release()
	return p
}

// storeImm stores a constant. asm.StoreImm of cilium/ebpf v0.22.0 refuses 64 bits.
func storeImm(dst asm.Register, off int, v int32, size asm.Size) asm.Instruction {
	return asm.Instruction{OpCode: asm.StoreImmOp(size), Dst: dst, Offset: int16(off), Constant: int64(v)}
}

func load(dst, src asm.Register, off int, size asm.Size) asm.Instruction {
	return asm.LoadMem(dst, src, int16(off), size)
}

func store(dst asm.Register, off int, src asm.Register, size asm.Size) asm.Instruction {
	return asm.StoreMem(dst, int16(off), src, size)
}

// atomic makes an atomic instruction. The DSL of cilium/ebpf v0.22.0 loses the operation when it marshals (every atomic
// becomes a plain add); Constant carries it through.
func atomic(op asm.AtomicOp, dst, src asm.Register, off int) asm.Instruction {
	in := op.Mem(dst, src, asm.DWord, int16(off))
	in.Constant = int64(op >> 8)
	return in
}

// xadd adds src to the 64-bit word at dst+off, atomically and without a result; every kernel has it.
func xadd(dst asm.Register, off int, src asm.Register) asm.Instruction {
	return atomic(asm.AddAtomic, dst, src, off)
}

// mapPtr loads a map by name.
func mapPtr(dst asm.Register, name string) asm.Instruction {
	return asm.LoadMapPtr(dst, 0).WithReference(name)
}

// mapValue loads the address of the value of a one-element array.
func mapValue(dst asm.Register, name string, off int) asm.Instruction {
	return asm.LoadMapValue(dst, 0, uint32(off)).WithReference(name)
}

// lookup finds the element of a map whose key stands at fp+key; r0 is its address or zero.
func (b *builder) lookup(name string, key int) {
	b.emit(mapPtr(r1, name), asm.Mov.Reg(r2, fp), asm.Add.Imm(r2, int32(key)), asm.FnMapLookupElem.Call())
}

// jumpIf compares a register with a constant of any size. It clobbers r5 for large ones.
func (b *builder) jumpIf(op asm.JumpOp, reg asm.Register, v uint64, label string) {
	if uint64(int64(int32(v))) == v {
		b.emit(op.Imm(reg, int32(v), label))
		return
	}
	b.emit(asm.LoadImm(r5, int64(v), asm.DWord), op.Reg(reg, r5, label))
}

// count adds one to a counter of the CPU's statistics, whose address is in reg. It clobbers r1.
func (b *builder) count(reg asm.Register, off int) {
	b.emit(asm.Mov.Imm(r1, 1), xadd(reg, off, r1))
}
