package elfinfo

import (
	"debug/elf"
	"fmt"
	"strings"

	"github.com/sonde-trace/sonde/internal/objfile"
)

func wordSize(f *objfile.File) uint64 {
	if f.ELF.Class == elf.ELFCLASS32 {
		return 4
	}
	return 8
}

// number reads a word of the file's byte order.
func number(f *objfile.File, b []byte) uint64 {
	if len(b) == 4 {
		return uint64(f.ELF.ByteOrder.Uint32(b))
	}
	return f.ELF.ByteOrder.Uint64(b)
}

func signed(v, word uint64) int64 {
	if word == 4 {
		return int64(int32(v))
	}
	return int64(v)
}

// named is a constant of debug/elf without its prefix, or its number when it has no name.
func named(s, prefix string, v uint64) string {
	if t, ok := strings.CutPrefix(s, prefix); ok && !strings.ContainsAny(t, "+ ") {
		return t
	}
	return fmt.Sprintf("%#x", v)
}

func segmentType(t elf.ProgType, m elf.Machine) string {
	if m == elf.EM_RISCV && t == 0x70000003 {
		return "RISCV_ATTRIBUTES"
	}
	if m == elf.EM_ARM && t == 0x70000001 {
		return "EXIDX"
	}
	return named(t.String(), "PT_", uint64(t))
}

func segmentFlags(f elf.ProgFlag) string {
	b := []byte("   ")
	for i, bit := range []elf.ProgFlag{elf.PF_R, elf.PF_W, elf.PF_X} {
		if f&bit != 0 {
			b[i] = "RWE"[i]
		}
	}
	return string(b)
}

func sectionType(t elf.SectionType, m elf.Machine) string {
	switch {
	case t == shtRelr:
		return "RELR"
	case m == elf.EM_X86_64 && t == 0x70000001:
		return "X86_64_UNWIND"
	case m == elf.EM_ARM && t == 0x70000001:
		return "ARM_EXIDX"
	case m == elf.EM_ARM && t == 0x70000003:
		return "ARM_ATTRIBUTES"
	case m == elf.EM_RISCV && t == 0x70000003:
		return "RISCV_ATTRIBUTES"
	case t == elf.SHT_GNU_VERDEF:
		return "VERDEF"
	case t == elf.SHT_GNU_VERNEED:
		return "VERNEED"
	case t == elf.SHT_GNU_VERSYM:
		return "VERSYM"
	}
	return named(t.String(), "SHT_", uint64(t))
}

// sectionFlags are the letters of readelf -S. R, to be kept, is GNU's and FreeBSD's; in other files its bit is o, of the system.
func sectionFlags(f elf.SectionFlag, abi elf.OSABI) string {
	var b strings.Builder
	for _, l := range []struct {
		bit elf.SectionFlag
		c   byte
	}{{elf.SHF_WRITE, 'W'}, {elf.SHF_ALLOC, 'A'}, {elf.SHF_EXECINSTR, 'X'}, {elf.SHF_MERGE, 'M'}, {elf.SHF_STRINGS, 'S'}, {elf.SHF_INFO_LINK, 'I'}, {elf.SHF_LINK_ORDER, 'L'},
		{elf.SHF_GROUP, 'G'}, {elf.SHF_TLS, 'T'}, {elf.SHF_COMPRESSED, 'C'}} {
		if f&l.bit != 0 {
			b.WriteByte(l.c)
		}
	}
	own := f & elf.SHF_MASKOS
	if own&shfRetain != 0 && (abi == elf.ELFOSABI_LINUX || abi == elf.ELFOSABI_FREEBSD) {
		b.WriteByte('R')
		own &^= shfRetain
	}
	if own != 0 {
		b.WriteByte('o')
	}
	return b.String()
}

const shfRetain = elf.SectionFlag(0x200000) // SHF_GNU_RETAIN

func dynTag(t elf.DynTag, m elf.Machine) string {
	switch {
	case t == 35:
		return "RELRSZ"
	case t == 36:
		return "RELR"
	case t == 37:
		return "RELRENT"
	case m == elf.EM_AARCH64 && t == 0x70000001:
		return "AARCH64_BTI_PLT"
	case m == elf.EM_AARCH64 && t == 0x70000003:
		return "AARCH64_PAC_PLT"
	}
	return named(t.String(), "DT_", uint64(t))
}

// relocType is the name that the file's architecture has for a relocation.
func relocType(m elf.Machine, t uint32) string {
	s := ""
	switch m {
	case elf.EM_X86_64:
		s = elf.R_X86_64(t).String()
	case elf.EM_AARCH64:
		switch t { // names of the ELF for AArch64 that binutils shortens
		case 1024, 1025, 1026, 1027, 1028, 1029, 1030, 1031, 1032:
			s = "R_AARCH64_" + [...]string{"COPY", "GLOB_DAT", "JUMP_SLOT", "RELATIVE", "TLS_DTPMOD64", "TLS_DTPREL64", "TLS_TPREL64", "TLSDESC", "IRELATIVE"}[t-1024]
		default:
			s = elf.R_AARCH64(t).String()
		}
	case elf.EM_386:
		s = elf.R_386(t).String()
	case elf.EM_ARM:
		s = elf.R_ARM(t).String()
	case elf.EM_RISCV:
		s = elf.R_RISCV(t).String()
	case elf.EM_PPC64:
		s = elf.R_PPC64(t).String()
	case elf.EM_PPC:
		s = elf.R_PPC(t).String()
	case elf.EM_S390:
		s = elf.R_390(t).String()
	case elf.EM_MIPS:
		s = elf.R_MIPS(t).String()
	case elf.EM_LOONGARCH:
		s = elf.R_LARCH(t).String()
	}
	if !strings.HasPrefix(s, "R_") || strings.Contains(s, "+") {
		return fmt.Sprintf("type %d", t)
	}
	if s == "R_X86_64_JMP_SLOT" {
		return "R_X86_64_JUMP_SLOT" // the psABI's name
	}
	if s == "R_386_JMP_SLOT" {
		return "R_386_JUMP_SLOT"
	}
	return s
}

// relativeOf is the number of the relocation that adds the load address only, which RELR stands for.
func relativeOf(m elf.Machine) uint32 {
	switch m {
	case elf.EM_X86_64, elf.EM_386:
		return 8
	case elf.EM_AARCH64:
		return 1027
	case elf.EM_ARM:
		return 23
	case elf.EM_RISCV, elf.EM_LOONGARCH:
		return 3
	case elf.EM_PPC64, elf.EM_PPC:
		return 22
	case elf.EM_S390:
		return 12
	}
	return 0
}
