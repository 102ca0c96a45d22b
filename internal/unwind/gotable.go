package unwind

import (
	"encoding/binary"

	"github.com/sonde-trace/sonde/internal/objfile"
)

// Layout of .gopclntab since Go 1.20: runtime/symtab.go, pcHeader and _func; flags: internal/abi/symtab.go.
const (
	goMagic    = 0xfffffff1
	goHeader   = 72
	goTopFrame = 1
	goSPWrite  = 2
)

// goRows makes rows of a Go program's line table, whose pcsp columns say how far the stack pointer is from the frame's start. It is
// there in stripped programs too, and exact where a function begins, where the frame pointer is still the caller's. The code it
// covers is [lo, hi). The runtime's own signal return code is where signal says.
func (p *Parser) goRows(f *objfile.File, signal func(pc uint64) bool) (rows []Row, lo, hi uint64) {
	s := f.ELF.Section(".gopclntab")
	if s == nil {
		s = f.ELF.Section(".data.rel.ro.gopclntab")
	}
	t := f.ELF.Section(".text")
	if s == nil || t == nil {
		return nil, 0, 0
	}
	d, err := f.Section(s.Name)
	le := binary.LittleEndian
	if err != nil || len(d) < goHeader || le.Uint32(d) != goMagic || d[7] != 8 {
		return nil, 0, 0
	}
	quantum := uint64(d[6])
	word := func(i int) uint64 { return le.Uint64(d[8+8*i:]) }
	size := uint64(len(d))
	nfunc, text, pctab, funcs := word(0), word(2), word(6), word(7)
	if quantum != 1 && quantum != 4 || pctab >= size || funcs >= size || nfunc >= (size-funcs)/8 {
		return nil, 0, 0
	}
	if text == 0 {
		text = t.Addr // it is relocated, or Go 1.26 and later
	}
	table := d[funcs:]
	add := func(pc uint64, r Rule) {
		id := p.intern(r)
		if n := len(rows); n > 0 && (rows[n-1].Rule == id || rows[n-1].PC >= pc) {
			return
		}
		rows = append(rows, Row{pc, id})
	}
	end := uint64(0)
	for i := range nfunc {
		start := text + uint64(le.Uint32(table[8*i:]))
		end = text + uint64(le.Uint32(table[8*i+8:]))
		at := uint64(le.Uint32(table[8*i+4:]))
		if at+44 > uint64(len(table)) || end < start || !f.InCode(start) || !f.InCode(max(end, 1)-1) {
			return nil, 0, 0
		}
		if start == end {
			continue
		}
		fn := table[at:]
		flag, pcsp := fn[41], le.Uint32(fn[16:])
		switch {
		case signal(start):
			add(start, Rule{CFAKind: CFASig})
			continue
		case flag&goTopFrame != 0:
			add(start, Rule{CFAKind: CFAReg, RA: RegRule{Kind: RUndef}})
			continue
		case pcsp == 0:
			add(start, p.goRule(0))
			continue
		case flag&goSPWrite != 0: // it switches stacks
			add(start, p.goFP())
			continue
		}
		r := rd{b: d[pctab:], pos: int(pcsp)}
		if uint64(pcsp) >= size-pctab {
			return nil, 0, 0
		}
		pc, val := start, int64(-1)
		for first := true; ; first = false {
			u := r.uleb()
			if u == 0 && !first {
				break
			}
			val += int64(u>>1) ^ -int64(u&1)
			add(pc, p.goRule(val))
			// Each step covers code, so that functions which share a column cost no more than their code.
			n := r.uleb()
			if r.bad || n == 0 || n > (end-pc)/quantum {
				break
			}
			if pc += n * quantum; pc >= end {
				break
			}
		}
	}
	if len(rows) == 0 {
		return nil, 0, 0
	}
	return append(rows, Row{end, 0}), rows[0].PC, end
}

func (p *Parser) goRule(sp int64) Rule {
	if p.Arch == ARM64 {
		r := Rule{CFAKind: CFAReg, CFAReg: 31, CFAOff: int32(sp)}
		if sp > 0 {
			r.RA = RegRule{Kind: ROffset, Off: int32(-sp)}
			r.FP = RegRule{Kind: ROffset, Off: int32(-sp - 8)}
		}
		return r
	}
	r := Rule{CFAKind: CFAReg, CFAReg: 7, CFAOff: int32(sp + 8), RA: RegRule{Kind: ROffset, Off: -8}}
	if sp > 0 {
		r.FP = RegRule{Kind: ROffset, Off: -16}
	}
	return r
}

func (p *Parser) goFP() Rule {
	if p.Arch == ARM64 {
		r := Rule{CFAKind: CFAReg, CFAReg: 29, CFAOff: 16, RA: RegRule{Kind: ROffset, Off: -8}}
		r.FP = RegRule{Kind: ROffset, Off: -16}
		return r
	}
	r := Rule{CFAKind: CFAReg, CFAReg: 6, CFAOff: 16, RA: RegRule{Kind: ROffset, Off: -8}}
	r.FP = RegRule{Kind: ROffset, Off: -16}
	return r
}

// merge puts rows of a better source (covering [lo,hi)) into rows.
func merge(rows, better []Row, lo, hi uint64) []Row {
	if len(better) == 0 {
		return rows
	}
	var out []Row
	var tail uint32
	i := 0
	for ; i < len(rows) && rows[i].PC < lo; i++ {
		out = append(out, rows[i])
	}
	for ; i < len(rows) && rows[i].PC < hi; i++ {
		tail = rows[i].Rule
	}
	out = append(out, better...)
	if n := len(out); out[n-1].PC == hi && (i >= len(rows) || rows[i].PC != hi) {
		out[n-1].Rule = tail
	}
	return append(out, rows[i:]...)
}
