package unwind

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/objfile"
)

// Table is what is known of the code of one file, by address as the file numbers them.
type Table struct {
	Arch  Arch
	Rows  []Row // by address; each holds up to the next
	Rules []Rule
	// Unsupported counts descriptions that could not be understood, whose code is unknown.
	Unsupported int
}

// ErrMachine says that a file is for another machine than walks are made for.
var ErrMachine = errors.New("neither for amd64 nor for arm64")

// maxSegments is how many program headers fit into the 64 KiB of them that execve(2) takes (fs/binfmt_elf.c, load_elf_phdrs).
const maxSegments = 65536 / 56

// Build makes the table of a file. A file without any description gives a table without rows.
func Build(f *objfile.File) (*Table, error) {
	var arch Arch
	switch f.ELF.Machine {
	case elf.EM_X86_64:
		arch = AMD64
	case elf.EM_AARCH64:
		arch = ARM64
	default:
		return nil, fmt.Errorf("%s: %s: %w", f.Path, f.ELF.Machine, ErrMachine)
	}
	if len(f.ELF.Progs) > maxSegments {
		return nil, fmt.Errorf("%s: %d program headers, more than the kernel loads", f.Path, len(f.ELF.Progs))
	}
	p := NewParser(arch)
	var fdes []FDE
	for _, s := range sections(f) {
		var err error
		if fdes, err = p.ParseFDEs(s, fdes); err != nil {
			p.Unsupported++ // what came before is good
		}
	}
	// Only code that is there: a description far away would make a table as large as the way to it.
	fdes = slices.DeleteFunc(fdes, func(d FDE) bool { return !f.InCode(d.Start) || !f.InCode(d.Start+d.Len-1) })
	c := codeOf(f)
	fdes = c.signals(arch, fdes)
	signal := func(pc uint64) bool { return c.isSignal(arch, pc) }
	rows := p.Compile(fdes, signal)
	if goRows, lo, hi := p.goRows(f, signal); len(goRows) > 0 {
		rows = merge(rows, goRows, lo, hi)
	}
	return &Table{Arch: arch, Rows: rows, Rules: p.Rules, Unsupported: p.Unsupported}, nil
}

// sections are the places of call frame information in a file.
func sections(f *objfile.File) (list []Section) {
	if s := f.ELF.Section(".eh_frame"); s != nil {
		if b, err := f.Section(".eh_frame"); err == nil && len(b) > 0 {
			list = append(list, Section{Data: b, Addr: s.Addr})
		}
	} else {
		list = append(list, byHeader(f)...)
	}
	if b, err := f.Section(".debug_frame"); err == nil && len(b) > 0 {
		list = append(list, Section{Data: b, Debug: true})
	}
	return list
}

// byHeader finds .eh_frame in files without section headers, by the segment that leads to it.
func byHeader(f *objfile.File) []Section {
	for _, p := range f.ELF.Progs {
		if p.Type != elf.PT_GNU_EH_FRAME || p.Filesz < 12 || p.Filesz > 1<<28 {
			continue
		}
		hdr := make([]byte, 12)
		if _, err := p.ReadAt(hdr, 0); err != nil {
			continue
		}
		r := rd{b: hdr, pos: 4}
		at, err := r.ptr(hdr[1], p.Vaddr, p.Vaddr)
		if err != nil {
			continue
		}
		for _, l := range f.ELF.Progs {
			if l.Type == elf.PT_LOAD && at >= l.Vaddr && at-l.Vaddr < l.Filesz && l.Filesz <= uint64(f.Size) {
				b := make([]byte, l.Vaddr+l.Filesz-at)
				if _, err := l.ReadAt(b, int64(at-l.Vaddr)); err == nil {
					return []Section{{Data: b, Addr: at, DataRel: p.Vaddr}}
				}
			}
		}
	}
	return nil
}

// code is the first executable segment of a file, where the code that ends signal handlers is looked for.
type code struct {
	text []byte
	addr uint64
}

// maxCode bounds what is read of it: signal return code is in the vdso and in C libraries, not in the largest programs.
const maxCode = 64 << 20

func codeOf(f *objfile.File) *code {
	for _, p := range f.ELF.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && p.Filesz <= uint64(f.Size) && p.Filesz <= maxCode {
			b := make([]byte, p.Filesz)
			if _, err := p.ReadAt(b, 0); err == nil {
				return &code{b, p.Vaddr}
			}
		}
	}
	return &code{}
}

// The instructions that return from a signal handler: mov $15, %rax; syscall, and mov x8, #139; svc #0 (rt_sigreturn).
var signalReturn = [2][]byte{
	AMD64: {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05},
	ARM64: {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4},
}

func (c *code) isSignal(a Arch, pc uint64) bool {
	w := signalReturn[a]
	o := pc - c.addr
	return pc >= c.addr && o+uint64(len(w)) <= uint64(len(c.text)) && bytes.Equal(c.text[o:o+uint64(len(w))], w)
}

// maxSignals bounds how often signal return code is looked at in a file: the vdso and C libraries have it once or twice.
const maxSignals = 64

// signals adds descriptions of signal return code that has none: in the vdso of arm64, and in musl. They begin early, so that the
// address before the return address is in them too.
func (c *code) signals(a Arch, fdes []FDE) []FDE {
	w, back := signalReturn[a], uint64(1)
	if a == ARM64 {
		back = 4
	}
	have := len(fdes)
	for o, n := 0, 0; n < maxSignals; n++ {
		i := bytes.Index(c.text[o:], w)
		if i < 0 {
			break
		}
		o += i
		at := c.addr + uint64(o)
		o += len(w)
		if a == ARM64 && at&3 != 0 || at < back || slices.ContainsFunc(fdes[:have], func(f FDE) bool { return at-f.Start < f.Len }) {
			continue
		}
		fdes = append(fdes, FDE{Start: at - back, Len: uint64(len(w)) + back, cie: &cie{signal: true}})
	}
	return fdes
}

// Lookup returns the rule for an address.
func (t *Table) Lookup(pc uint64) (Rule, bool) {
	i, found := slices.BinarySearchFunc(t.Rows, pc, func(r Row, pc uint64) int {
		switch {
		case r.PC < pc:
			return -1
		case r.PC > pc:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	if i < 0 || t.Rows[i].Rule == 0 {
		return Rule{}, false
	}
	return t.Rules[t.Rows[i].Rule], true
}

// KernelRule is a rule as the programs of package bpfgen read it: kinds of the CFA, of the frame pointer and of the return
// address, a register; then three offsets.
type KernelRule struct {
	CFA, FP, RA, Reg   uint8
	CFAOff, FPOff, Aux int32
}

// Bytes is the rule's layout in the map.
func (k KernelRule) Bytes() (b [bpfgen.RuleSize]byte) {
	b[0], b[1], b[2], b[3] = k.CFA, k.FP, k.RA, k.Reg
	for i, v := range []int32{k.CFAOff, k.FPOff, k.Aux} {
		for j := range 4 {
			b[4+4*i+j] = byte(uint32(v) >> (8 * j))
		}
	}
	return b
}

// Kernel makes the form of a rule that is walked in the kernel. The zero KernelRule is "nothing known".
func (t *Table) Kernel(r *Rule) KernelRule {
	sp, fp := uint8(7), uint8(6)
	if t.Arch == ARM64 {
		sp, fp = 31, 29
	}
	unsupported := KernelRule{CFA: bpfgen.CFAUnsupported}
	k := KernelRule{CFAOff: r.CFAOff, Aux: r.CFAAux}
	if r.RA.Kind == RUndef {
		return KernelRule{CFA: bpfgen.CFAEnd}
	}
	switch r.CFAKind {
	case CFANone:
		return KernelRule{}
	case CFASig:
		return KernelRule{CFA: bpfgen.CFASignal}
	case CFAReg:
		switch {
		case r.CFAReg == sp:
			k.CFA = bpfgen.CFASP
		case r.CFAReg == fp:
			k.CFA = bpfgen.CFAFP
		case t.Arch == AMD64 && r.CFAReg <= 15:
			k.CFA, k.Reg = bpfgen.CFARegister, r.CFAReg
		default:
			return unsupported
		}
	case CFADeref:
		switch r.CFAReg {
		case sp:
			k.CFA = bpfgen.CFADerefSP
		case fp:
			k.CFA = bpfgen.CFADerefFP
		default:
			return unsupported
		}
	case CFAPLT:
		k.CFA = bpfgen.CFAPLT
	default:
		return unsupported
	}
	switch {
	case r.FP.Kind == RSame:
	case r.FP.Kind == ROffset:
		k.FP, k.FPOff = bpfgen.FPAtCFA, r.FP.Off
	case r.FP.Kind == RRegOff && r.FP.Reg == fp:
		k.FP, k.FPOff = bpfgen.FPAtFP, r.FP.Off
	default:
		k.FP = bpfgen.FPUndefined
	}
	switch {
	case t.Arch == ARM64 && r.RA.Kind == RSame:
		k.RA = bpfgen.RALink
	case t.Arch == ARM64 && r.RA.Kind == ROffset:
		if k.CFA == bpfgen.CFADerefSP || k.CFA == bpfgen.CFADerefFP {
			return unsupported
		}
		k.Aux = r.RA.Off
	case t.Arch == AMD64 && r.RA.Kind == ROffset && r.RA.Off == -8:
	case t.Arch == AMD64 && r.RA.Kind == RReg && k.CFA != bpfgen.CFARegister:
		k.RA, k.Reg = bpfgen.RARegister, r.RA.Reg
	default:
		return unsupported
	}
	return k
}
