package plan

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"github.com/sonde-trace/sonde/internal/objfile"
	"github.com/sonde-trace/sonde/probe"
)

// The kernel watches a return by replacing the return address on the stack. A program that looks at its own return addresses, or that
// returns to one twice, sees the replacement: an exception of C++ ends there as if nobody caught it, longjmp(3) jumps to where nothing
// is, a Go stack cannot be moved. There returns are watched at the return instructions, or not at all.

// returns decides how the returns of the plan's functions are watched.
func (p *Plan) returns(o *object, env *Env, when probe.When) (probe.When, error) {
	asked := p.Spec.When != probe.WhenDefault
	refuse := func(why string) (probe.When, error) {
		if asked {
			return when, fmt.Errorf("the return of a function of %s cannot be watched: %s", o.name, why)
		}
		p.Notes = append(p.Notes, "returns are not watched: "+why)
		return probe.WhenEntry, nil
	}
	if isGo(o.file) {
		return refuse("it is a Go program, whose stacks move, and which a replaced return address would kill")
	}
	left := 0
	for i := range p.Points {
		pt := &p.Points[i]
		if addr, ok := o.file.Addr(pt.Start); ok && (addr == o.file.ELF.Entry || returnsTwice(pt.Name)) {
			pt.NoReturn = true
			left++
		}
	}
	if left == len(p.Points) {
		return refuse("it is entered without a call, or returns more than once from one")
	}
	if left > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("the returns of %d functions are not watched: they are entered without a call, or return more than once from one", left))
	}
	if !throws(o.file) {
		return when, nil
	}
	p.AtRet = true
	unknown := 0
	for i := range p.Points {
		pt := &p.Points[i]
		if pt.NoReturn {
			continue
		}
		if pt.Returns = returnsOf(o.file, pt.Start, p.sizes[pt.Start]); len(pt.Returns) == 0 {
			pt.NoReturn = true
			unknown++
		}
	}
	if unknown+left == len(p.Points) {
		return refuse("it may throw exceptions, and has no return instruction that is found")
	}
	if unknown > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("the returns of %d functions are not watched: they have no return instruction that is found", unknown))
	}
	return when, nil
}

func isGo(f *objfile.File) bool {
	return f.ELF.Section(".gopclntab") != nil || f.ELF.Section(".go.buildinfo") != nil
}

// throws reports whether exceptions may go through the functions of a file: it has, or asks for, the function by which C++ and Rust
// look for who catches one. C code compiled for exceptions has another.
func throws(f *objfile.File) bool {
	personality := func(name string) bool {
		return strings.HasPrefix(name, "__gxx_personality") || name == "rust_eh_personality" || name == "__cxa_throw"
	}
	imported, err := f.ELF.ImportedSymbols()
	if err == nil && slices.ContainsFunc(imported, func(s elf.ImportedSymbol) bool { return personality(s.Name) }) {
		return true
	}
	for s := range f.OwnFuncs() {
		if personality(s.Name) {
			return true
		}
	}
	return false
}

// returnsTwice reports whether a function returns more than once from one call, or to where it was not called from.
func returnsTwice(name string) bool {
	switch strings.TrimLeft(name, "_") {
	case "setjmp", "sigsetjmp", "longjmp", "siglongjmp", "longjmp_chk", "getcontext", "setcontext", "swapcontext", "makecontext", "vfork", "clone", "clone2", "clone3", "restore_rt", "restore", "start", "sigreturn",
		"libc_vfork", "start_context":
		return true
	}
	return strings.HasPrefix(name, "_dl_runtime_") || strings.HasPrefix(name, "_dl_tlsdesc") || strings.HasPrefix(name, "__morestack")
}

// maxBody bounds the code that is read of one function.
const maxBody = 1 << 20

// returnsOf lists the offsets of the return instructions of a function; none when its code is not understood throughout, as one that was
// missed would look like a call that never ended.
func returnsOf(f *objfile.File, start, size uint64) (list []uint64) {
	if size == 0 || size > maxBody {
		return nil
	}
	code := make([]byte, size)
	if _, err := f.ReadAt(code, int64(start)); err != nil {
		return nil
	}
	if f.ELF.Machine == elf.EM_AARCH64 {
		for i := 0; i+4 <= len(code); i += 4 {
			switch binary.LittleEndian.Uint32(code[i:]) {
			case 0xd65f03c0, 0xd65f0bff, 0xd65f0fff: // ret, retaa, retab
				list = append(list, start+uint64(i))
			}
		}
		return list
	}
	for i := 0; i < len(code); {
		in, err := x86asm.Decode(code[i:], 64)
		if err != nil || in.Len == 0 {
			// Instructions that the decoder does not know are those of vectors; behind an endbr64 or a nop it goes on.
			if n := longNop(code[i:]); n > 0 {
				i += n
				continue
			}
			return nil
		}
		if in.Op == x86asm.RET {
			at := start + uint64(i)
			if i > 0 && code[i-1] == 0xf3 { // repz ret: the prefix is part of it
				at--
			}
			list = append(list, at)
		}
		i += in.Len
	}
	return list
}

// longNop is the length of an endbr64, 0 for another instruction.
func longNop(b []byte) int {
	if len(b) >= 4 && b[0] == 0xf3 && b[1] == 0x0f && b[2] == 0x1e && b[3] == 0xfa {
		return 4
	}
	return 0
}
