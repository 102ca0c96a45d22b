package symbol

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// This file reads the parts of DWARF 2 to 5 (dwarfstd.org) that say which functions, also inlined ones, an address belongs to. It
// reads one unit at a time from mapped sections: debug/dwarf takes seconds and hundreds of megabytes to open large files.

// Tags, attributes, forms and unit types of DWARF that are looked at (section 7.5, and GNU's extensions).
const (
	tagClassType         = 0x02
	tagEnumerationType   = 0x04
	tagCompileUnit       = 0x11
	tagStructureType     = 0x13
	tagSubroutineType    = 0x15
	tagUnionType         = 0x17
	tagInlinedSubroutine = 0x1d
	tagSubprogram        = 0x2e
	tagPartialUnit       = 0x3c
	tagSkeletonUnit      = 0x4a

	attrSibling        = 0x01
	attrName           = 0x03
	attrStmtList       = 0x10
	attrLowPC          = 0x11
	attrHighPC         = 0x12
	attrAbstractOrigin = 0x31
	attrSpecification  = 0x47
	attrRanges         = 0x55
	attrCallFile       = 0x58
	attrCallLine       = 0x59
	attrLinkageName    = 0x6e
	attrStrOffsetsBase = 0x72
	attrAddrBase       = 0x73
	attrRnglistsBase   = 0x74
	attrMIPSLinkage    = 0x2007

	formAddr          = 0x01
	formBlock2        = 0x03
	formBlock4        = 0x04
	formData2         = 0x05
	formData4         = 0x06
	formData8         = 0x07
	formString        = 0x08
	formBlock         = 0x09
	formBlock1        = 0x0a
	formData1         = 0x0b
	formFlag          = 0x0c
	formSdata         = 0x0d
	formStrp          = 0x0e
	formUdata         = 0x0f
	formRefAddr       = 0x10
	formRef1          = 0x11
	formRef2          = 0x12
	formRef4          = 0x13
	formRef8          = 0x14
	formRefUdata      = 0x15
	formIndirect      = 0x16
	formSecOffset     = 0x17
	formExprloc       = 0x18
	formFlagPresent   = 0x19
	formStrx          = 0x1a
	formAddrx         = 0x1b
	formRefSup4       = 0x1c
	formStrpSup       = 0x1d
	formData16        = 0x1e
	formLineStrp      = 0x1f
	formRefSig8       = 0x20
	formImplicitConst = 0x21
	formLoclistx      = 0x22
	formRnglistx      = 0x23
	formRefSup8       = 0x24
	formStrx1         = 0x25
	formStrx2         = 0x26
	formStrx3         = 0x27
	formStrx4         = 0x28
	formAddrx1        = 0x29
	formAddrx2        = 0x2a
	formAddrx3        = 0x2b
	formAddrx4        = 0x2c
	formGNUAddrIndex  = 0x1f01
	formGNUStrIndex   = 0x1f02
	formGNURefAlt     = 0x1f20
	formGNUStrpAlt    = 0x1f21

	unitCompile  = 0x01
	unitType     = 0x02
	unitPartial  = 0x03
	unitSkeleton = 0x04
)

var errDWARF = errors.New("damaged debug data")

// cursor reads bytes; after the end it gives zeros and is bad.
type cursor struct {
	b   []byte
	pos int
	o   binary.ByteOrder
	bad bool
}

func (c *cursor) take(n int) []byte {
	if n < 0 || c.bad || n > len(c.b)-c.pos {
		c.bad = true
		return nil
	}
	b := c.b[c.pos : c.pos+n]
	c.pos += n
	return b
}

func (c *cursor) uint(n int) (v uint64) {
	b := c.take(n)
	if b == nil {
		return 0
	}
	switch n {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(c.o.Uint16(b))
	case 3:
		if c.o == binary.ByteOrder(binary.LittleEndian) {
			return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16
		}
		return uint64(b[2]) | uint64(b[1])<<8 | uint64(b[0])<<16
	case 4:
		return uint64(c.o.Uint32(b))
	case 8:
		return c.o.Uint64(b)
	}
	c.bad = true
	return 0
}

func (c *cursor) uleb() (v uint64) {
	for shift := 0; ; shift += 7 {
		if c.bad || c.pos >= len(c.b) || shift > 63 {
			c.bad = true
			return 0
		}
		b := c.b[c.pos]
		c.pos++
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
}

func (c *cursor) sleb() (v int64) {
	for shift := 0; ; {
		if c.bad || c.pos >= len(c.b) || shift > 63 {
			c.bad = true
			return 0
		}
		b := c.b[c.pos]
		c.pos++
		v |= int64(b&0x7f) << shift
		shift += 7
		if b < 0x80 {
			if b&0x40 != 0 && shift < 64 {
				v |= -1 << shift
			}
			return v
		}
	}
}

func (c *cursor) cstring() []byte {
	if c.bad {
		return nil
	}
	i := bytes.IndexByte(c.b[c.pos:], 0)
	if i < 0 {
		c.bad = true
		return nil
	}
	b := c.b[c.pos : c.pos+i]
	c.pos += i + 1
	return b
}

// unit is the head of a unit of .debug_info.
type unit struct {
	off, end  uint64 // of the unit in the section
	die       uint64 // the first entry
	version   int
	addrSize  int
	offSize   int // 4, or 8 for the 64-bit format
	kind      byte
	abbrevOff uint64

	// Of the root entry.
	low, strOffsets, addrBase, rnglists uint64
	stmtList                            bool
}

// unitAt reads the head of the unit at an offset (DWARF 5, section 7.5.1).
func (d *debugInfo) unitAt(off uint64) (u unit, err error) {
	info := d.info.Bytes()
	if off >= uint64(len(info)) {
		return u, errDWARF
	}
	c := cursor{b: info, pos: int(off), o: d.order}
	u.off, u.offSize = off, 4
	size := c.uint(4)
	if size == 0xffffffff {
		size, u.offSize = c.uint(8), 8
	} else if size >= 0xfffffff0 {
		return u, errDWARF
	}
	if c.bad || size > uint64(len(info)-c.pos) || size == 0 {
		return u, errDWARF
	}
	u.end = uint64(c.pos) + size
	u.version = int(c.uint(2))
	u.kind = unitCompile
	switch {
	case u.version >= 2 && u.version <= 4:
		u.abbrevOff = c.uint(u.offSize)
		u.addrSize = int(c.uint(1))
	case u.version == 5:
		u.kind = byte(c.uint(1))
		u.addrSize = int(c.uint(1))
		u.abbrevOff = c.uint(u.offSize)
		switch u.kind {
		case unitSkeleton, 5: // and split units have an id
			c.take(8)
		case unitType, 6:
			c.take(8 + u.offSize)
		}
	default:
		u.die = u.end // a version that is not known: skipped
		return u, nil
	}
	if c.bad || u.addrSize != 4 && u.addrSize != 8 {
		return u, errDWARF
	}
	u.die = uint64(c.pos)
	u.strOffsets = uint64(2 * u.offSize) // where entries begin when the root does not say: behind the head of the table
	u.addrBase, u.rnglists = 8, 12
	return u, nil
}

// attr is an attribute of an abbreviation.
type attr struct {
	name, form uint16
	value      int64 // of formImplicitConst
}

// abbrev says how an entry is laid out.
type abbrev struct {
	tag      uint16
	children bool
	size     int // of the entry when it is always the same, else -1
	attrs    []attr
}

// abbrevs is a table of abbreviations. Codes are dense in practice; others are in sparse.
type abbrevs struct {
	dense  []abbrev
	sparse map[uint64]*abbrev
}

func (a *abbrevs) get(code uint64) *abbrev {
	if code-1 < uint64(len(a.dense)) {
		return &a.dense[code-1]
	}
	return a.sparse[code]
}

// readAbbrevs reads the table at an offset, up to the code last when that is not 0.
func (d *debugInfo) readAbbrevs(u *unit, last uint64) (*abbrevs, error) {
	b := d.abbrev.Bytes()
	if u.abbrevOff >= uint64(len(b)) {
		return nil, errDWARF
	}
	c := cursor{b: b, pos: int(u.abbrevOff), o: d.order}
	t := &abbrevs{}
	for {
		code := c.uleb()
		if code == 0 || c.bad {
			break
		}
		a := abbrev{tag: uint16(c.uleb()), children: c.uint(1) != 0}
		for {
			at := attr{name: uint16(c.uleb()), form: uint16(c.uleb())}
			if at.form == formImplicitConst {
				at.value = c.sleb()
			}
			if c.bad {
				return nil, errDWARF
			}
			if at.name == 0 && at.form == 0 {
				break
			}
			a.attrs = append(a.attrs, at)
			if n := u.formSize(at.form); n < 0 {
				a.size = -1
			} else if a.size >= 0 {
				a.size += n
			}
		}
		if code == uint64(len(t.dense))+1 {
			t.dense = append(t.dense, a)
		} else if t.get(code) == nil {
			if t.sparse == nil {
				t.sparse = map[uint64]*abbrev{}
			}
			t.sparse[code] = &a
		}
		if code == last {
			break
		}
	}
	if c.bad {
		return nil, errDWARF
	}
	return t, nil
}

// formSize is the size of a value, -1 when it depends on the value.
func (u *unit) formSize(form uint16) int {
	switch form {
	case formFlagPresent, formImplicitConst:
		return 0
	case formData1, formFlag, formRef1, formStrx1, formAddrx1:
		return 1
	case formData2, formRef2, formStrx2, formAddrx2:
		return 2
	case formStrx3, formAddrx3:
		return 3
	case formData4, formRef4, formRefSup4, formStrx4, formAddrx4:
		return 4
	case formData8, formRef8, formRefSig8, formRefSup8:
		return 8
	case formData16:
		return 16
	case formAddr:
		return u.addrSize
	case formStrp, formSecOffset, formLineStrp, formStrpSup, formGNURefAlt, formGNUStrpAlt:
		return u.offSize
	case formRefAddr:
		if u.version == 2 {
			return u.addrSize
		}
		return u.offSize
	}
	return -1
}

// value reads a value of a form. For blocks and strings within the entry, v is where they are.
func (u *unit) value(c *cursor, a attr) (v uint64, form uint16) {
	form = a.form
	for form == formIndirect {
		if form = uint16(c.uleb()); c.bad {
			return 0, form
		}
	}
	if form == formImplicitConst {
		return uint64(a.value), form
	}
	if form == formFlagPresent {
		return 1, form
	}
	if form == formData16 {
		c.take(16)
		return 0, form
	}
	if n := u.formSize(form); n >= 0 {
		return c.uint(n), form
	}
	n := uint64(0)
	switch form {
	case formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx, formGNUAddrIndex, formGNUStrIndex:
		return c.uleb(), form
	case formSdata:
		return uint64(c.sleb()), form
	case formString:
		v = uint64(c.pos)
		c.cstring()
		return v, form
	case formBlock1:
		n = c.uint(1)
	case formBlock2:
		n = c.uint(2)
	case formBlock4:
		n = c.uint(4)
	case formBlock, formExprloc:
		n = c.uleb()
	default:
		c.bad = true
		return 0, form
	}
	v = uint64(c.pos)
	if n > uint64(len(c.b)) {
		c.bad = true
		return 0, form
	}
	c.take(int(n))
	return v, form
}

// entry is what is looked at of an entry.
type entry struct {
	tag                    uint16
	children               bool
	sibling                uint64
	low, high              uint64
	hasLow, hasHigh        bool
	highIsSize             bool
	ranges                 uint64
	hasRanges, rangesIndex bool
	origin                 uint64 // abstract origin or specification; 0 none
	originShared           bool   // it is in the file of shared data
	callFile, callLine     uint64
	stmtList               bool
	name, linkage          strRef
}

// strRef is a string that was not looked up yet.
type strRef struct {
	form uint16
	v    uint64
}

// entry reads the entry at c; ok is false at the end of a list of children.
func (d *debugInfo) entry(u *unit, t *abbrevs, c *cursor, e *entry) (ok bool) {
	*e = entry{}
	code := c.uleb()
	if code == 0 {
		return false
	}
	a := t.get(code)
	if a == nil {
		c.bad = true
		return false
	}
	e.tag, e.children = a.tag, a.children
	for _, at := range a.attrs {
		v, form := u.value(c, at)
		if c.bad {
			return false
		}
		switch at.name {
		case attrSibling:
			e.sibling, _ = u.ref(v, form)
		case attrName:
			e.name = strRef{form, v}
		case attrLinkageName, attrMIPSLinkage:
			e.linkage = strRef{form, v}
		case attrLowPC:
			e.low, e.hasLow = d.addr(u, v, form)
		case attrHighPC:
			switch form {
			case formAddr, formAddrx, formAddrx1, formAddrx2, formAddrx3, formAddrx4, formGNUAddrIndex:
				e.high, e.hasHigh = d.addr(u, v, form)
			default:
				e.high, e.hasHigh, e.highIsSize = v, true, true
			}
		case attrRanges:
			e.ranges, e.hasRanges, e.rangesIndex = v, true, form == formRnglistx
		case attrAbstractOrigin, attrSpecification:
			if r, ok := u.ref(v, form); ok {
				e.origin = r
			} else if form == formGNURefAlt || form == formRefSup4 || form == formRefSup8 {
				e.origin, e.originShared = v, true
			}
		case attrCallFile:
			e.callFile = v
		case attrCallLine:
			e.callLine = v
		case attrStmtList:
			e.stmtList = true
		case attrStrOffsetsBase:
			u.strOffsets = v
		case attrAddrBase, 0x2133: // DW_AT_GNU_addr_base
			u.addrBase = v
		case attrRnglistsBase:
			u.rnglists = v
		}
	}
	if e.highIsSize {
		e.high += e.low
	}
	return true
}

// ref is the place in .debug_info that a reference means.
func (u *unit) ref(v uint64, form uint16) (uint64, bool) {
	switch form {
	case formRef1, formRef2, formRef4, formRef8, formRefUdata:
		return u.off + v, v < u.end-u.off
	case formRefAddr:
		return v, true
	}
	return 0, false // another file, or a type's signature
}

func (d *debugInfo) addr(u *unit, v uint64, form uint16) (uint64, bool) {
	if form == formAddr {
		return v, true
	}
	return d.word(d.addrs.Bytes(), u.addrBase, v, u.addrSize)
}

// word reads entry i of a table.
func (d *debugInfo) word(b []byte, base, i uint64, size int) (uint64, bool) {
	if i > uint64(len(b)) || base > uint64(len(b)) {
		return 0, false
	}
	c := cursor{b: b, pos: int(min(base+i*uint64(size), uint64(len(b)))), o: d.order}
	v := c.uint(size)
	return v, !c.bad
}

// text looks up a string.
func (d *debugInfo) text(u *unit, s strRef) string {
	var b []byte
	at := s.v
	switch s.form {
	case formString:
		b = d.info.Bytes()
	case formStrp:
		b = d.str.Bytes()
	case formLineStrp:
		b = d.lineStr.Bytes()
	case formStrx, formStrx1, formStrx2, formStrx3, formStrx4, formGNUStrIndex:
		v, ok := d.word(d.strOffsets.Bytes(), u.strOffsets, s.v, u.offSize)
		if !ok {
			return ""
		}
		b, at = d.str.Bytes(), v
	case formGNUStrpAlt, formStrpSup:
		if d.shared != nil {
			b = d.shared.str.Bytes()
		}
	default:
		return ""
	}
	if at >= uint64(len(b)) {
		return ""
	}
	b = b[at:min(uint64(len(b)), at+64<<10)]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// rangesOf calls fn with the ranges of an entry; budget bounds how many are read in all.
func (d *debugInfo) rangesOf(u *unit, e *entry, budget *int, fn func(lo, hi uint64)) {
	if !e.hasRanges {
		if e.hasLow && e.hasHigh && e.high > e.low {
			fn(e.low, e.high)
		}
		return
	}
	base := u.low
	emit := func(lo, hi uint64) {
		if hi > lo {
			fn(lo, hi)
		}
	}
	if u.version < 5 {
		c := cursor{b: d.ranges.Bytes(), pos: int(min(e.ranges, uint64(len(d.ranges.Bytes())))), o: d.order}
		most := ^uint64(0) >> (64 - 8*u.addrSize)
		for ; *budget > 0; *budget-- {
			lo, hi := c.uint(u.addrSize), c.uint(u.addrSize)
			if c.bad || lo == 0 && hi == 0 {
				return
			}
			if lo == most {
				base = hi
			} else {
				emit(base+lo, base+hi)
			}
		}
		return
	}
	b := d.rnglists.Bytes()
	at := e.ranges
	if e.rangesIndex {
		v, ok := d.word(b, u.rnglists, at, u.offSize)
		if !ok {
			return
		}
		at = u.rnglists + v
	}
	c := cursor{b: b, pos: int(min(at, uint64(len(b)))), o: d.order}
	index := func() uint64 { v, _ := d.word(d.addrs.Bytes(), u.addrBase, c.uleb(), u.addrSize); return v }
	for ; *budget > 0; *budget-- { // DWARF 5, section 7.25
		switch c.uint(1) {
		case 1: // base_addressx
			base = index()
		case 2: // startx_endx
			lo := index()
			emit(lo, index())
		case 3: // startx_length
			lo := index()
			emit(lo, lo+c.uleb())
		case 4: // offset_pair
			lo, hi := c.uleb(), c.uleb()
			emit(base+lo, base+hi)
		case 5: // base_address
			base = c.uint(u.addrSize)
		case 6: // start_end
			lo := c.uint(u.addrSize)
			emit(lo, c.uint(u.addrSize))
		case 7: // start_length
			lo := c.uint(u.addrSize)
			emit(lo, lo+c.uleb())
		default:
			return
		}
		if c.bad {
			return
		}
	}
}
