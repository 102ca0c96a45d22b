// Package unwind turns call frame information into tables that say, for every address of a file, where the caller's registers
// are: from .eh_frame and .debug_frame (DWARF 5, section 6.4; LSB, "Exception Frames"), and from the line tables of Go programs. The
// tables are compact enough to be walked in the kernel. It reads files that a traced program controls: whatever they hold, it
// takes time and memory in proportion to their size.
//
// It does not walk stacks itself; that is done by the programs of package bpfgen.
package unwind

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Arch is an instruction set.
type Arch uint8

const (
	AMD64 Arch = iota
	ARM64
)

// CFA kinds.
const (
	CFANone  = iota // no unwind information here (gap, end of FDE)
	CFAReg          // CFA = reg + off
	CFADeref        // CFA = *(reg + off) + aux
	CFAPLT          // x86 PLT expression: rsp + 8 + ((rip&15) >= aux)<<3
	CFAExpr         // a DWARF expression of another form
	CFASig          // signal return trampoline: whole register set is in the ucontext
)

// Register rule kinds.
const (
	RSame   = iota // value unchanged
	ROffset        // *(CFA+off)
	RUndef         // undefined: for the return address, end of stack
	RReg           // value of another register
	RValOff        // CFA+off
	RExpr          // a DWARF expression of another form
	RRegOff        // *(reg + off)  (expression of one DW_OP_breg)
)

const (
	FlagRASigned = 1 << iota // arm64: return address is PAC-signed here
)

type RegRule struct {
	Kind uint8
	Reg  uint8
	Off  int32
}

// Rule is one complete unwind row; comparable, so that it can be interned.
type Rule struct {
	CFAKind, CFAReg, Flags uint8
	CFAOff, CFAAux         int32
	RA                     RegRule
	FP                     RegRule
}

// slotOf is where Rule.R keeps a register by DWARF number; -1: it is not kept, -2: the return address.
func slotOf(a Arch, n uint64) int {
	if a == AMD64 {
		switch {
		case n == 3 || n == 6:
			return int(n/3) - 1
		case n >= 12 && n <= 15:
			return int(n) - 10
		case n == 16:
			return -2
		}
		return -1
	}
	switch {
	case n >= 19 && n <= 29:
		return int(n) - 19
	case n == 30:
		return -2
	}
	return -1
}

// Slots of the frame pointers.
const slotFPAMD64, slotFPARM64 = 1, 10

type cie struct {
	codeAlign  uint64
	dataAlign  int64
	raReg      uint64
	enc        uint8
	hasAug     bool
	signal     bool
	init       []byte
	initRule   Rule
	initRuleOK bool
}

// FDE is the frame description of one range of code.
type FDE struct {
	Start, Len uint64
	cie        *cie
	code       []byte
}

// Section is a run of CFI with its address.
type Section struct {
	Data    []byte
	Addr    uint64
	Debug   bool // .debug_frame
	DataRel uint64
}

// Parser reads the sections of one file. Rules are numbered in the order in which they are met; number 0 is "nothing known".
type Parser struct {
	Arch  Arch
	Rules []Rule

	index map[Rule]uint32
	stash [8]Rule
	// Unsupported counts entries that were left out because they cannot be understood.
	Unsupported int
}

// NewParser returns a parser for files of an architecture.
func NewParser(a Arch) *Parser {
	p := &Parser{Arch: a, index: make(map[Rule]uint32)}
	p.intern(Rule{})
	return p
}

// maxRules bounds the different rules of a file. The largest libraries have about a thousand.
const maxRules = 1 << 14

func (p *Parser) intern(r Rule) uint32 {
	id, ok := p.index[r]
	if !ok {
		if len(p.Rules) == maxRules {
			p.Unsupported++
			return 0
		}
		id = uint32(len(p.Rules))
		p.Rules = append(p.Rules, r)
		p.index[r] = id
	}
	return id
}

// rd reads little-endian numbers; once it is bad it stays so and gives zeros.
type rd struct {
	b   []byte
	pos int
	bad bool
}

func (r *rd) u8() uint8 {
	if r.pos >= len(r.b) {
		r.bad = true
		return 0
	}
	v := r.b[r.pos]
	r.pos++
	return v
}
func (r *rd) n(n int) []byte {
	if n < 0 || n > len(r.b)-r.pos {
		r.bad = true
		r.pos = len(r.b)
		return zeros[:min(max(n, 0), len(zeros))]
	}
	v := r.b[r.pos : r.pos+n]
	r.pos += n
	return v
}

// zeros is what a reader that has gone bad gives.
var zeros [8]byte

func (r *rd) u16() uint16 { return binary.LittleEndian.Uint16(r.n(2)) }
func (r *rd) u32() uint32 { return binary.LittleEndian.Uint32(r.n(4)) }
func (r *rd) u64() uint64 { return binary.LittleEndian.Uint64(r.n(8)) }
func (r *rd) uleb() uint64 {
	var v uint64
	for s := uint(0); ; s += 7 {
		b := r.u8()
		if s < 64 {
			v |= uint64(b&0x7f) << s
		}
		if b&0x80 == 0 {
			return v
		}
	}
}
func (r *rd) sleb() int64 {
	var v int64
	s := uint(0)
	for {
		b := r.u8()
		if s < 64 {
			v |= int64(b&0x7f) << s
		}
		s += 7
		if b&0x80 == 0 {
			if b&0x40 != 0 && s < 64 {
				v |= -1 << s
			}
			return v
		}
	}
}

var errEnc = errors.New("unsupported pointer encoding")

func (r *rd) ptr(enc uint8, addr, dataRel uint64) (uint64, error) {
	if enc == 0xff {
		return 0, nil
	}
	at := addr + uint64(r.pos)
	var v uint64
	switch enc & 0xf {
	case 0x00, 0x04, 0x0c, 0x08:
		v = r.u64()
	case 0x01:
		v = r.uleb()
	case 0x02:
		v = uint64(r.u16())
	case 0x03:
		v = uint64(r.u32())
	case 0x09:
		v = uint64(r.sleb())
	case 0x0a:
		v = uint64(int64(int16(r.u16())))
	case 0x0b:
		v = uint64(int64(int32(r.u32())))
	default:
		return 0, errEnc
	}
	switch enc & 0x70 {
	case 0:
	case 0x10:
		v += at
	case 0x30:
		v += dataRel
	default:
		return 0, errEnc
	}
	return v, nil
}

// ParseFDEs lists the FDEs of a section (unsorted). Bad entries are skipped. An FDE may stand before its CIE, so that CIEs are read
// first: each once, whatever refers to it.
func (p *Parser) ParseFDEs(s Section, out []FDE) ([]FDE, error) {
	cies := map[uint64]*cie{}
	err := entries(s, func(e entry) {
		if !e.isCIE {
			return
		}
		if c, err := p.parseCIE(e.body, s.Addr+uint64(e.bodyAt), s.DataRel); err == nil {
			cies[uint64(e.start)] = c
		}
	})
	entries(s, func(e entry) {
		if e.isCIE {
			return
		}
		c := cies[e.cie]
		f := rd{b: e.body}
		if c == nil {
			p.Unsupported++
			return
		}
		st, err := f.ptr(c.enc, s.Addr+uint64(e.bodyAt), s.DataRel)
		if err != nil {
			p.Unsupported++
			return
		}
		n, err := f.ptr(c.enc&0x0f, 0, 0)
		if err == nil && c.hasAug {
			f.n(int(min(f.uleb(), uint64(len(f.b))+1)))
		}
		if err != nil || f.bad || st+n < st {
			p.Unsupported++
			return
		}
		if st != 0 && n != 0 {
			out = append(out, FDE{Start: st, Len: n, cie: c, code: f.b[f.pos:]})
		}
	})
	return out, err
}

// entry is a CIE or an FDE: where it starts in the section, what follows its identifier, and for an FDE where its CIE starts.
type entry struct {
	start, bodyAt int
	body          []byte
	isCIE         bool
	cie           uint64
}

// entries calls do for each entry of a section, up to one that is longer than the section.
func entries(s Section, do func(entry)) error {
	r := rd{b: s.Data}
	for r.pos+4 <= len(r.b) {
		e := entry{start: r.pos}
		ln := uint64(r.u32())
		if ln == 0 {
			continue // a terminator; linkers leave several in the middle (crtend.o first)
		}
		is64 := ln == 0xffffffff
		if is64 {
			ln = r.u64()
		}
		idpos := r.pos
		if r.bad || ln > uint64(len(r.b)-idpos) {
			return fmt.Errorf("the entry at %#x is longer than its section", e.start)
		}
		end := idpos + int(ln)
		var id uint64
		if is64 && s.Debug {
			id = r.u64()
		} else if id = uint64(r.u32()); s.Debug && id == 0xffffffff {
			id = ^uint64(0)
		}
		if r.bad || r.pos > end {
			r.pos, r.bad = end, false
			continue
		}
		e.bodyAt, e.body = r.pos, r.b[r.pos:end]
		e.isCIE = !s.Debug && id == 0 || s.Debug && id == ^uint64(0)
		if e.cie = id; !s.Debug {
			e.cie = uint64(idpos) - id
		}
		do(e)
		r.pos = end
	}
	return nil
}

// parseCIE reads what follows the identifier of a CIE, and is at addr.
func (p *Parser) parseCIE(b []byte, addr, dataRel uint64) (*cie, error) {
	r := rd{b: b}
	c := &cie{}
	ver := r.u8()
	if ver != 1 && ver != 3 && ver != 4 {
		return nil, fmt.Errorf("CIE version %d", ver)
	}
	z := bytes.IndexByte(b[r.pos:], 0)
	if z < 0 {
		return nil, errors.New("bad CIE")
	}
	aug := b[r.pos : r.pos+z]
	r.pos += z + 1
	if ver == 4 {
		r.n(2)
	}
	if c.codeAlign = r.uleb(); c.codeAlign > maxCodeAlign {
		return nil, fmt.Errorf("code in units of %d bytes", c.codeAlign)
	}
	c.dataAlign = r.sleb()
	if ver == 1 {
		c.raReg = uint64(r.u8())
	} else {
		c.raReg = r.uleb()
	}
	if len(aug) > 0 && aug[0] == 'z' {
		c.hasAug = true
		n := r.uleb()
		if n > uint64(len(b)-r.pos) {
			return nil, errors.New("an augmentation longer than its entry")
		}
		end := r.pos + int(n)
		for _, ch := range aug[1:] {
			switch ch {
			case 'L':
				r.u8()
			case 'R':
				c.enc = r.u8()
			case 'P':
				e := r.u8()
				if _, err := r.ptr(e&0x7f, addr, dataRel); err != nil {
					return nil, err
				}
			case 'S':
				c.signal = true
			case 'B', 'G': // arm64 B-key / MTE tagged frame: nothing to read
			default: // unknown: the length lets us go on
				goto done
			}
		}
	done:
		r.pos = end
	} else if len(aug) > 0 {
		return nil, fmt.Errorf("augmentation %q", aug)
	}
	if r.bad {
		return nil, errors.New("short CIE")
	}
	c.init = b[r.pos:]
	vm := vmState{p: p, c: c}
	if err := vm.run(c.init, 0, nil); err != nil {
		return nil, err
	}
	c.initRule = vm.cur
	return c, nil
}

// maxCodeAlign bounds the unit in which code advances: an instruction has 1 byte or more on x86, 4 on arm64.
const maxCodeAlign = 16

type vmState struct {
	p     *Parser
	c     *cie
	cur   Rule
	stack *[8]Rule
	sp    int
}

func (v *vmState) reg(n uint64) *RegRule {
	if n >= 128 {
		return nil
	}
	if n == v.c.raReg {
		return &v.cur.RA
	}
	s := slotOf(v.p.Arch, n)
	if s != slotFPAMD64 && v.p.Arch == AMD64 || s != slotFPARM64 && v.p.Arch == ARM64 {
		return nil // a walk needs the frame pointer alone
	}
	return &v.cur.FP
}

func (v *vmState) set(n uint64, k uint8, reg uint8, off int64) {
	if r := v.reg(n); r != nil {
		*r = RegRule{k, reg, int32(off)}
	}
}

func (v *vmState) restore(n uint64) {
	r := v.reg(n)
	if r == nil {
		return
	}
	tmp := v.cur
	v.cur = v.c.initRule
	val := *v.reg(n)
	v.cur = tmp
	*v.reg(n) = val
}

// cfaExpr recognises the expressions that compilers and linkers really emit.
func (v *vmState) cfaExpr(e []byte) {
	c := &v.cur
	c.CFAOff, c.CFAAux, c.CFAReg = 0, 0, 0
	// PLT: breg7 8; breg16 0; lit15; and; litN; ge; lit3; shl; plus
	if len(e) == 11 && e[0] == 0x77 && e[1] == 8 && e[2] == 0x80 && e[3] == 0 && e[4] == 0x3f && e[5] == 0x1a &&
		e[6] >= 0x30 && e[6] <= 0x4f && e[7] == 0x2a && e[8] == 0x33 && e[9] == 0x24 && e[10] == 0x22 {
		c.CFAKind = CFAPLT
		c.CFAAux = int32(e[6] - 0x30)
		return
	}
	r := rd{b: e}
	if op := r.u8(); op >= 0x70 && op <= 0x8f {
		reg := op - 0x70
		off := r.sleb()
		if !r.bad && r.pos < len(e) && r.u8() == 0x06 {
			if r.pos == len(e) {
				c.CFAKind, c.CFAReg, c.CFAOff, c.CFAAux = CFADeref, reg, int32(off), 0
				return
			}
			if r.u8() == 0x23 {
				add := r.uleb()
				if r.pos == len(e) {
					c.CFAKind, c.CFAReg, c.CFAOff, c.CFAAux = CFADeref, reg, int32(off), int32(add)
					return
				}
			}
		}
	}
	c.CFAKind = CFAExpr
}

func (v *vmState) regExpr(n uint64, e []byte, val bool) {
	r := rd{b: e}
	if op := r.u8(); !val && op >= 0x70 && op <= 0x8f {
		off := r.sleb()
		if !r.bad && r.pos == len(e) {
			v.set(n, RRegOff, op-0x70, off)
			return
		}
	}
	v.set(n, RExpr, 0, 0)
}

// run executes CFA code; emit is called with the row that holds from loc on, each time loc is about to advance.
func (v *vmState) run(code []byte, loc uint64, emit func(loc uint64, r *Rule)) error {
	if emit == nil {
		emit = func(uint64, *Rule) {}
	}
	r := rd{b: code}
	c := v.c
	advance := func(n uint64) error {
		emit(loc, &v.cur)
		if loc+n*c.codeAlign < loc {
			return errors.New("code behind the end of memory")
		}
		loc += n * c.codeAlign
		return nil
	}
	for r.pos < len(code) {
		op := r.u8()
		var err error
		switch op & 0xc0 {
		case 0x40:
			if err := advance(uint64(op & 0x3f)); err != nil {
				return err
			}
			continue
		case 0x80:
			v.set(uint64(op&0x3f), ROffset, 0, int64(r.uleb())*c.dataAlign)
			continue
		case 0xc0:
			v.restore(uint64(op & 0x3f))
			continue
		}
		switch op {
		case 0x00:
		case 0x01:
			// Relative encodings are of no compiler.
			n, e := r.ptr(c.enc, 0, 0)
			if e != nil || c.enc&0x70 != 0 || n < loc {
				return errors.New("DW_CFA_set_loc of a form that is not known")
			}
			emit(loc, &v.cur)
			loc = n
		case 0x02:
			err = advance(uint64(r.u8()))
		case 0x03:
			err = advance(uint64(r.u16()))
		case 0x04:
			err = advance(uint64(r.u32()))
		case 0x05:
			n := r.uleb()
			v.set(n, ROffset, 0, int64(r.uleb())*c.dataAlign)
		case 0x06:
			v.restore(r.uleb())
		case 0x07:
			v.set(r.uleb(), RUndef, 0, 0)
		case 0x08:
			v.set(r.uleb(), RSame, 0, 0)
		case 0x09:
			n := r.uleb()
			v.set(n, RReg, uint8(r.uleb()), 0)
		case 0x0a:
			if v.stack == nil {
				v.stack = &v.p.stash
			}
			if v.sp >= len(v.stack) {
				return errors.New("remember_state overflow")
			}
			v.stack[v.sp] = v.cur
			v.sp++
		case 0x0b:
			if v.sp == 0 {
				return errors.New("restore_state underflow")
			}
			v.sp--
			v.cur = v.stack[v.sp]
		case 0x0c:
			v.cur.CFAKind, v.cur.CFAReg = CFAReg, uint8(r.uleb())
			v.cur.CFAOff, v.cur.CFAAux = int32(r.uleb()), 0
		case 0x0d:
			v.cur.CFAReg = uint8(r.uleb())
			v.cur.CFAKind = CFAReg
		case 0x0e:
			v.cur.CFAOff = int32(r.uleb())
		case 0x0f:
			v.cfaExpr(r.n(int(min(r.uleb(), uint64(len(code))))))
		case 0x10:
			n := r.uleb()
			v.regExpr(n, r.n(int(min(r.uleb(), uint64(len(code))))), false)
		case 0x11:
			n := r.uleb()
			v.set(n, ROffset, 0, r.sleb()*c.dataAlign)
		case 0x12:
			v.cur.CFAKind, v.cur.CFAReg = CFAReg, uint8(r.uleb())
			v.cur.CFAOff, v.cur.CFAAux = int32(r.sleb()*c.dataAlign), 0
		case 0x13:
			v.cur.CFAOff = int32(r.sleb() * c.dataAlign)
		case 0x14:
			n := r.uleb()
			v.set(n, RValOff, 0, int64(r.uleb())*c.dataAlign)
		case 0x15:
			n := r.uleb()
			v.set(n, RValOff, 0, r.sleb()*c.dataAlign)
		case 0x16:
			n := r.uleb()
			v.regExpr(n, r.n(int(min(r.uleb(), uint64(len(code))))), true)
		case 0x2c: // DW_CFA_AARCH64_negate_ra_state_with_pc
			v.cur.Flags ^= FlagRASigned
		case 0x2d: // DW_CFA_AARCH64_negate_ra_state (GNU_window_save elsewhere)
			if v.p.Arch == ARM64 {
				v.cur.Flags ^= FlagRASigned
			}
		case 0x2e:
			r.uleb()
		case 0x2f:
			n := r.uleb()
			v.set(n, ROffset, 0, -int64(r.uleb())*c.dataAlign)
		default:
			return fmt.Errorf("CFA opcode %#x", op)
		}
		if err != nil {
			return err
		}
		if r.bad {
			return errors.New("truncated CFA code")
		}
	}
	emit(loc, &v.cur)
	return nil
}

// Row of the intermediate table.
type Row struct {
	PC   uint64
	Rule uint32
}

// MinGap: gaps shorter than this between functions are padding and get no end marker.
const MinGap = 16

// Compile turns FDEs into sorted rows.
func (p *Parser) Compile(fdes []FDE, sig func(pc uint64) bool) []Row {
	slices.SortStableFunc(fdes, func(a, b FDE) int { return cmp.Compare(a.Start, b.Start) })
	var rows []Row
	var prevEnd uint64
	add := func(pc uint64, id uint32) {
		if n := len(rows); n > 0 {
			if rows[n-1].PC == pc {
				rows[n-1].Rule = id
				if n > 1 && rows[n-2].Rule == id {
					rows = rows[:n-1]
				}
				return
			}
			if rows[n-1].Rule == id {
				return
			}
		}
		rows = append(rows, Row{pc, id})
	}
	for i := range fdes {
		f := &fdes[i]
		if f.Start+f.Len <= prevEnd || f.Start+f.Len < f.Start { // folded functions, .eh_frame beside .debug_frame
			continue
		}
		if prevEnd != 0 && f.Start > prevEnd+MinGap {
			add(prevEnd, 0)
		}
		// Where two descriptions overlap the first holds, so that rows stay in order.
		floor, have := max(f.Start, prevEnd), len(rows)
		err := p.rowsOf(f, sig, func(pc uint64, id uint32) { add(max(pc, floor), id) })
		if err != nil {
			p.Unsupported++
			rows = rows[:have]
			add(floor, 0)
		}
		prevEnd = f.Start + f.Len
	}
	if prevEnd != 0 {
		add(prevEnd, 0)
	}
	return rows
}

func (p *Parser) rowsOf(f *FDE, sig func(pc uint64) bool, add func(uint64, uint32)) error {
	if f.cie.signal || sig != nil && f.Len >= 8 && f.Len <= 16 && sig(f.Start) {
		// The FDE may start one byte early so that pc-1 finds it.
		add(f.Start, p.intern(Rule{CFAKind: CFASig}))
		return nil
	}
	vm := vmState{p: p, c: f.cie, cur: f.cie.initRule}
	end := f.Start + f.Len
	return vm.run(f.code, f.Start, func(loc uint64, r *Rule) {
		if loc >= end {
			return
		}
		if r.CFAKind == CFANone || r.RA.Kind == RUndef {
			add(loc, p.intern(p.normal(*r)))
			return
		}
		add(loc, p.intern(*r))
	})
}

// normal canonicalises a rule.
func (p *Parser) normal(r Rule) Rule {
	if r.CFAKind == CFANone {
		return Rule{}
	}
	if r.RA.Kind == RUndef {
		return Rule{CFAKind: r.CFAKind, CFAReg: r.CFAReg, RA: RegRule{Kind: RUndef}}
	}
	if p.Arch == AMD64 {
		r.Flags = 0
	}
	return r
}
