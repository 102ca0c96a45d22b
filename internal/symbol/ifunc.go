package symbol

import (
	"debug/elf"
	"slices"
	"strings"

	"golang.org/x/arch/arm64/arm64asm"
	"golang.org/x/arch/x86/x86asm"

	"github.com/sonde-trace/sonde/internal/objfile"
)

// maxResolver bounds the code of a resolver that is looked at.
const maxResolver = 8 << 10

// ifuncTargets are the functions that the resolver of an indirect function can return: the addresses in code that it
// loads without calling them. A table of symbols, where there is one, gives them names.
func ifuncTargets(f *objfile.File, resolver objfile.Symbol) []objfile.Symbol {
	off, ok := f.Offset(resolver.Addr)
	if !ok {
		return nil
	}
	size := resolver.Size
	if s, ok := f.Funcs().Lookup(resolver.Addr); size == 0 && ok {
		size = s.Size
	}
	code := make([]byte, min(size, maxResolver))
	if n, _ := f.ReadAt(code, int64(off)); n < len(code) {
		code = code[:n]
	}
	var addrs []uint64
	switch f.ELF.Machine {
	case elf.EM_X86_64:
		addrs = loadsAMD64(code, resolver.Addr)
	case elf.EM_AARCH64:
		addrs = loadsARM64(code, resolver.Addr)
	}
	var out []objfile.Symbol
	seen := map[uint64]bool{}
	for _, a := range addrs {
		if seen[a] || !f.InCode(a) || a >= resolver.Addr && a < resolver.Addr+size {
			continue
		}
		seen[a] = true
		s, ok := f.Funcs().Lookup(a)
		if !ok || s.Addr != a {
			s = objfile.Symbol{Addr: a, Type: elf.STT_FUNC}
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		out = byName(f, resolver)
	}
	slices.SortFunc(out, func(a, b objfile.Symbol) int {
		if a.Addr < b.Addr {
			return -1
		}
		return 1
	})
	return out
}

// loadsAMD64: lea addr(%rip), %reg and mov $addr, %reg.
func loadsAMD64(code []byte, pc uint64) (out []uint64) {
	for at := 0; at < len(code); {
		in, err := x86asm.Decode(code[at:], 64)
		if err != nil {
			at++
			continue
		}
		next := pc + uint64(at+in.Len)
		switch in.Op {
		case x86asm.LEA:
			if m, ok := in.Args[1].(x86asm.Mem); ok && m.Base == x86asm.RIP && m.Index == 0 {
				out = append(out, next+uint64(m.Disp))
			}
		case x86asm.MOV:
			if imm, ok := in.Args[1].(x86asm.Imm); ok && imm > 0x1000 {
				if _, ok := in.Args[0].(x86asm.Reg); ok {
					out = append(out, uint64(imm))
				}
			}
		}
		at += in.Len
	}
	return out
}

// loadsARM64: adrp and add, adr.
func loadsARM64(code []byte, pc uint64) (out []uint64) {
	var page [32]uint64 // by register
	var known [32]bool
	for at := 0; at+4 <= len(code); at += 4 {
		in, err := arm64asm.Decode(code[at:])
		if err != nil {
			continue
		}
		here := pc + uint64(at)
		reg := func(i int) (int, bool) {
			switch r := in.Args[i].(type) {
			case arm64asm.Reg:
				n := int(r) - int(arm64asm.X0)
				return n, n >= 0 && n < 32
			case arm64asm.RegSP:
				n := int(r) - int(arm64asm.X0)
				return n, n >= 0 && n < 32
			}
			return 0, false
		}
		switch in.Op {
		case arm64asm.ADRP, arm64asm.ADR:
			rel, ok := in.Args[1].(arm64asm.PCRel)
			d, ok2 := reg(0)
			if !ok || !ok2 {
				continue
			}
			if in.Op == arm64asm.ADR {
				out = append(out, here+uint64(rel))
			} else {
				page[d], known[d] = here&^0xfff+uint64(rel), true
			}
		case arm64asm.ADD:
			n, ok := reg(1)
			_, imm := in.Args[2].(arm64asm.ImmShift)
			if !ok || !imm || !known[n] {
				continue
			}
			// The immediate is bits 21 to 10 of the instruction, shifted by 12 with bit 22; the library keeps it to itself.
			w := uint32(code[at]) | uint32(code[at+1])<<8 | uint32(code[at+2])<<16 | uint32(code[at+3])<<24
			v := uint64(w >> 10 & 0xfff)
			if w>>22&1 != 0 {
				v <<= 12
			}
			out = append(out, page[n]+v)
		}
	}
	return out
}

// byName takes functions that are named after the indirect one: strlen has __strlen_sse2 and __strlen_avx2.
func byName(f *objfile.File, resolver objfile.Symbol) (out []objfile.Symbol) {
	base := strings.TrimLeft(resolver.Name, "_")
	for s := range f.EachFunc() {
		rest, ok := strings.CutPrefix(strings.TrimLeft(s.Name, "_"), base+"_")
		if !ok || s.Type != elf.STT_FUNC || s.Addr == resolver.Addr {
			continue
		}
		for _, isa := range []string{"sse", "ssse", "avx", "evex", "erms", "generic", "asimd", "sve", "mte", "neon", "falkor", "thunderx", "simd"} {
			if strings.HasPrefix(rest, isa) && !slices.ContainsFunc(out, func(x objfile.Symbol) bool { return x.Addr == s.Addr }) {
				s.Name = strings.Clone(s.Name)
				out = append(out, s)
				break
			}
		}
	}
	return out
}
