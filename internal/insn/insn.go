// Package insn finds the instruction that made a debug register fire, from the code around it and the registers at the trap:
// on x86 a data breakpoint is told after the access (Intel SDM volume 3, 19.2.4), on arm64 before it (Arm ARM D2.10). It knows
// stores and what they leave in memory as far as that needs; it is no emulator, and it never reads memory itself.
//
// Code and registers are those of a traced program: whatever they are, the answer is an instruction or that there is none.
package insn

import (
	"encoding/binary"
	"strings"

	"golang.org/x/arch/arm64/arm64asm"
	"golang.org/x/arch/x86/x86asm"
)

// Access is an instruction that accessed memory.
type Access struct {
	Addr  uint64 // of the instruction
	Text  string // in the syntax of GNU as
	Store bool   // it writes memory; false also when that is not known
	// Of a store on arm64: what it writes and where.
	value [16]byte
	size  int
	at    uint64
	op    byte // 0: replaces; '+', '|', '^', '&' (not): combined with what is there, size bytes little-endian
}

// Reg returns a general register by the number that instructions give it; ok is false for those that are not known. On arm64
// number 31 is the stack pointer.
type Reg func(n int) (v uint64, ok bool)

// Find finds the instruction that accessed [addr, addr+size) on amd64, where code is what stands in front of ip; or on arm64,
// where code begins with the instruction at ip.
func Find(arch string, code []byte, ip, addr, size uint64, reg Reg) (Access, bool) {
	if arch == "arm64" {
		return findARM64(code, ip, addr, reg)
	}
	return findAMD64(code, ip, addr, size, reg)
}

// findAMD64 looks for the last instruction in code. Instructions have no marks where they begin, but decoding from any byte on
// falls into step with the real ones after a few: the beginning that most starts lead to is taken, and one that accesses the
// right address before all others.
func findAMD64(code []byte, ip, addr, size uint64, reg Reg) (a Access, ok bool) {
	const longest = 15
	n := len(code)
	var votes [longest + 1]int // by length of the last instruction
	lead := max(0, n-longest)
	for start := range n {
		last := 0
		for at := start; at < n; {
			in, err := x86asm.Decode(code[at:], 64)
			if err != nil || in.Len == 0 || at+in.Len > n {
				last = 0
				break
			}
			if at += in.Len; at == n {
				last = in.Len
			}
		}
		if last > 0 && last <= longest {
			if votes[last]++; start < lead {
				votes[last]++ // more steps to fall into line
			}
		}
	}
	best, bestScore := x86asm.Inst{}, 0
	for l := longest; l > 0; l-- {
		if votes[l] == 0 || l > n {
			continue
		}
		in, err := x86asm.Decode(code[n-l:], 64)
		if err != nil || in.Len != l {
			continue
		}
		score := votes[l]
		if touchesAMD64(&in, ip, addr, size, reg) {
			score += 1000
		}
		if score > bestScore {
			best, bestScore = in, score
		}
	}
	if bestScore == 0 {
		return a, false
	}
	a.Addr = ip - uint64(best.Len)
	a.Text = x86asm.GNUSyntax(best, a.Addr, nil)
	_, memory := best.Args[0].(x86asm.Mem)
	a.Store = memory && best.Op != x86asm.CMP && best.Op != x86asm.TEST
	switch best.Op {
	case x86asm.PUSH, x86asm.CALL, x86asm.STOSB, x86asm.STOSW, x86asm.STOSD, x86asm.STOSQ, x86asm.MOVSB, x86asm.MOVSW, x86asm.MOVSQ:
		a.Store = true
	}
	return a, true
}

// amd64Regs are the numbers of x86asm's 64-bit registers.
func amd64Reg(r x86asm.Reg) (int, bool) {
	if r >= x86asm.RAX && r <= x86asm.R15 {
		return int(r - x86asm.RAX), true
	}
	return 0, false
}

// touchesAMD64 reports whether an operand in memory lies in the watched bytes, by the registers after the instruction.
func touchesAMD64(in *x86asm.Inst, ip, addr, size uint64, reg Reg) bool {
	for _, arg := range in.Args {
		m, ok := arg.(x86asm.Mem)
		if !ok || m.Segment == x86asm.FS || m.Segment == x86asm.GS {
			continue
		}
		ea := uint64(m.Disp)
		known := true
		add := func(r x86asm.Reg, scale uint64) {
			if r == 0 || !known {
				return
			}
			if r == x86asm.RIP {
				ea += ip
				return
			}
			n, ok := amd64Reg(r)
			v, have := uint64(0), false
			if ok {
				v, have = reg(n)
			}
			known = have
			ea += v * scale
		}
		add(m.Base, 1)
		add(m.Index, uint64(m.Scale))
		width := uint64(max(in.MemBytes, 1))
		if known && ea < addr+size && addr < ea+width {
			return true
		}
	}
	return false
}

// findARM64 decodes one instruction and what it stores: Arm ARM C4.1.88, loads and stores.
func findARM64(code []byte, ip, addr uint64, reg Reg) (a Access, ok bool) {
	if len(code) < 4 {
		return a, false
	}
	in, err := arm64asm.Decode(code[:4])
	if err != nil {
		return a, false
	}
	a.Addr, a.Text = ip, strings.ReplaceAll(arm64asm.GNUSyntax(in), "\t", " ")
	w := binary.LittleEndian.Uint32(code)
	field := func(low, width int) int { return int(w >> low & (1<<width - 1)) }
	signed := func(low, width int) int64 { return int64(field(low, width)) << (64 - width) >> (64 - width) }
	bytes := 1 << field(30, 2)
	base, known := reg(field(5, 5))
	value := func(n int) uint64 {
		if n == 31 {
			return 0 // the zero register
		}
		v, have := reg(n)
		known = known && have
		return v
	}
	put := func(off int, v uint64, n int) {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], v)
		copy(a.value[off:], b[:n])
	}
	switch {
	case w>>24&0x3f == 0x08: // exclusive and ordered: stxr, stlr; load when bit 22
		a.Store = w>>22&1 == 0
		a.at, a.size = base, bytes
		put(0, value(field(0, 5)), bytes)
	case w>>27&7 == 5: // pairs
		a.Store = w>>22&1 == 0
		if w>>26&1 != 0 {
			known = false // of vector registers
			break
		}
		bytes = 4 << (field(30, 2) >> 1)
		a.at, a.size = base, 2*bytes
		if field(23, 2) != 1 { // not after the access
			a.at += uint64(signed(15, 7) * int64(bytes))
		}
		put(0, value(field(0, 5)), bytes)
		put(bytes, value(field(10, 5)), bytes)
	case w>>27&7 == 7 && w>>24&3 == 0 && w>>21&1 == 1 && field(10, 2) == 0: // atomics
		a.Store = true
		a.at, a.size = base, bytes
		put(0, value(field(16, 5)), bytes)
		switch op := field(12, 4); op {
		case 8: // swp
		case 0, 1, 2, 3:
			a.op = "+&^|"[op]
		default:
			known = false // minima and maxima
		}
	case w>>27&7 == 7:
		a.Store = field(22, 2) == 0 || w>>26&1 != 0 && field(22, 2) == 2
		if w>>26&1 != 0 {
			known = false
			break
		}
		a.at, a.size = base, bytes
		switch {
		case field(24, 2) == 1:
			a.at += uint64(field(10, 12) * bytes)
		case w>>21&1 == 0:
			if field(10, 2) != 1 {
				a.at += uint64(signed(12, 9))
			}
		default: // by a register
			off := value(field(16, 5))
			switch field(13, 3) {
			case 2:
				off = uint64(uint32(off))
			case 6:
				off = uint64(int64(int32(off)))
			}
			if w>>12&1 != 0 {
				off *= uint64(bytes)
			}
			a.at += off
		}
		put(0, value(field(0, 5)), bytes)
	default:
		known = false
	}
	if !known || !a.Store {
		a.size = 0
	}
	return a, true
}

// After returns what the store leaves at addr, where before is now; ok is false when that is not known.
func (a *Access) After(addr uint64, before []byte) (after []byte, ok bool) {
	if a.size == 0 || a.at >= addr+uint64(len(before)) || addr >= a.at+uint64(a.size) {
		return nil, false
	}
	value := a.value
	if a.op != 0 {
		if a.at != addr || len(before) < a.size || a.size > 8 {
			return nil, false
		}
		var b [8]byte
		copy(b[:], before[:a.size])
		was, with := binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(value[:])
		switch a.op {
		case '+':
			was += with
		case '&':
			was &^= with
		case '^':
			was ^= with
		case '|':
			was |= with
		}
		binary.LittleEndian.PutUint64(value[:], was)
	}
	after = append(after, before...)
	for i := range a.size {
		if at := a.at + uint64(i); at >= addr && at < addr+uint64(len(after)) {
			after[at-addr] = value[i]
		}
	}
	return after, true
}
