package symbol

import (
	"cmp"
	"debug/dwarf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/objfile"
)

// debugInfo answers which functions and lines an address belongs to, from the DWARF data of a module. It keeps an index of the
// units by address, and the units that were asked for, packed. It is safe for concurrent use.
type debugInfo struct {
	file  *objfile.File
	order binary.ByteOrder
	base  uint64 // addresses are kept as 32 bits from here on

	info, abbrev, line, str, lineStr, strOffsets, addrs, ranges, rnglists *objfile.Mapped

	shared *debugInfo // names that several files share; nil for none

	units []uint64    // offsets of all units
	index []unitRange // by address

	mu      sync.Mutex
	kept    map[uint32]*unitTable
	tick    uint64
	size    int    // of kept
	touched uint64 // bytes of units, since pages were given back
	types   map[uint64]*abbrevs
}

type unitRange struct {
	lo, hi uint32 // from base on
	unit   uint32
}

// Bounds against lying files. A unit of a large program has some 100,000 functions, and a large program some million ranges.
const (
	maxRanges    = 16 << 20
	maxSpans     = 4 << 20
	maxUnitBytes = 24 << 20 // of packed units that are kept for one module
	maxInline    = 128
	maxInfo      = 1<<32 - 1 // bytes of .debug_info: spans keep 32 bits
	maxTouched   = 64 << 20  // bytes of units that are read before their pages are given back
)

// openDebugInfo finds the DWARF data of f and makes the index. The error is that of objfile.File.Debug.
func openDebugInfo(f *objfile.File) (*debugInfo, error) {
	file, err := f.Debug()
	if err != nil {
		return nil, err
	}
	d, err := readDebugInfo(file)
	if err != nil {
		return nil, err
	}
	if s := file.Shared(); s != nil {
		d.shared, _ = readDebugInfo(s) // what it names is without a name then
	}
	return d, nil
}

func readDebugInfo(file *objfile.File) (*debugInfo, error) {
	d := &debugInfo{file: file, order: file.ELF.ByteOrder, kept: map[uint32]*unitTable{}, types: map[uint64]*abbrevs{}}
	sections := []struct {
		name string
		to   **objfile.Mapped
	}{{"info", &d.info}, {"abbrev", &d.abbrev}, {"line", &d.line}, {"str", &d.str}, {"line_str", &d.lineStr},
		{"str_offsets", &d.strOffsets}, {"addr", &d.addrs}, {"ranges", &d.ranges}, {"rnglists", &d.rnglists}}
	errs := make([]error, len(sections))
	var wg sync.WaitGroup
	for i, s := range sections { // at once: those that are compressed take time
		wg.Go(func() {
			m, err := file.Map(".debug_" + s.name)
			if err == nil && m == nil {
				m, err = file.Map(".zdebug_" + s.name)
			}
			*s.to, errs[i] = m, err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("debug data: %w", err)
	}
	if len(d.info.Bytes()) == 0 {
		return nil, fmt.Errorf("%s: %w", file.Path, objfile.ErrNoDebug)
	}
	// Address 0 of a linked file is no code; units of functions that the linker dropped say 0.
	d.base = 1
	for i, p := range file.ELF.Progs {
		if i == 0 || p.Vaddr < d.base {
			d.base = p.Vaddr
		}
	}
	if len(d.info.Bytes()) > maxInfo {
		return nil, fmt.Errorf("%s: more than 4 GiB of debug data are not read", file.Path)
	}
	if err := objfile.Guard(d.makeIndex); err != nil {
		return nil, fmt.Errorf("%s: %w", file.Path, err)
	}
	return d, nil
}

// bytes is what d takes in our memory.
func (d *debugInfo) bytes() int {
	if d == nil {
		return 0
	}
	n := 8*cap(d.units) + 12*cap(d.index)
	for _, m := range []*objfile.Mapped{d.info, d.abbrev, d.line, d.str, d.lineStr, d.strOffsets, d.addrs, d.ranges, d.rnglists} {
		n += m.Heap()
	}
	return n
}

func (d *debugInfo) makeIndex() error {
	budget := maxRanges
	for off := uint64(0); off < uint64(len(d.info.Bytes())); {
		u, err := d.unitAt(off)
		if err != nil {
			break // what came before is good
		}
		n := uint32(len(d.units))
		d.units = append(d.units, off)
		off = u.end
		if u.die >= u.end || u.kind != unitCompile && u.kind != unitSkeleton {
			continue
		}
		var e entry
		if err := d.root(&u, nil, &e); err != nil {
			continue
		}
		d.rangesOf(&u, &e, &budget, func(lo, hi uint64) {
			if lo -= d.base; lo < 1<<32 && hi-d.base <= 1<<32-1 && (lo != 0 || d.base != 0) {
				d.index = append(d.index, unitRange{uint32(lo), uint32(hi - d.base), n})
			}
		})
	}
	slices.SortStableFunc(d.index, func(a, b unitRange) int { return cmp.Compare(a.lo, b.lo) })
	d.index = slices.Clip(d.index)
	d.release()
	return nil
}

// release gives the pages of the large sections back; they come again when they are read.
func (d *debugInfo) release() {
	d.touched = 0
	for _, m := range []*objfile.Mapped{d.info, d.line, d.rnglists, d.ranges} {
		m.Release()
	}
}

// root reads the first entry of a unit, whose bases the others need.
func (d *debugInfo) root(u *unit, t *abbrevs, e *entry) error {
	c := cursor{b: d.info.Bytes()[:u.end], pos: int(u.die), o: d.order}
	if t == nil {
		head := c
		code := head.uleb()
		var err error
		if t, err = d.readAbbrevs(u, code); err != nil {
			return err
		}
	}
	// The bases may come after what needs them: read twice.
	for range 2 {
		c.pos = int(u.die)
		if !d.entry(u, t, &c, e) || c.bad {
			return errDWARF
		}
	}
	u.low, u.stmtList = e.low, e.stmtList
	return nil
}

// span is a range of a function, or of a call that was inlined.
type span struct {
	lo, hi   uint32
	die      uint32 // where the name is: the origin of an inlined function
	outer    int32  // the span that holds it; -1
	callLine uint32
	callFile uint16
	inlined  bool
	entry    bool // the function, or the call that was inlined, begins here: others are further ranges of it
}

type lineRow struct {
	pc   uint32
	line int32 // 0: nothing is known from here on
	file uint32
}

// unitTable is a unit, packed.
type unitTable struct {
	used  uint64
	spans []span // by lo, outer ones first
	rows  []lineRow
	files []string
}

func (t *unitTable) bytes() int {
	n := 200 + 24*cap(t.spans) + 12*cap(t.rows)
	for _, f := range t.files {
		n += 16 + len(f)
	}
	return n
}

// frames are the functions at pc, the innermost first, and where the outermost begins.
func (d *debugInfo) frames(pc uint64) (out []event.Frame, start uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	err = objfile.Guard(func() error { out, start = d.lookup(pc); return nil })
	return out, start, err
}

func (d *debugInfo) lookup(pc uint64) (out []event.Frame, start uint64) {
	rel := pc - d.base
	if rel >= 1<<32-1 {
		return nil, 0
	}
	at := uint32(rel)
	i, found := slices.BinarySearchFunc(d.index, at, func(r unitRange, at uint32) int { return cmp.Compare(r.lo, at) })
	for found && i+1 < len(d.index) && d.index[i+1].lo == at {
		i++
	}
	if !found {
		i--
	}
	for n := 0; i >= 0 && n < 16; i, n = i-1, n+1 {
		if at >= d.index[i].hi {
			continue
		}
		t := d.unit(d.index[i].unit)
		if t == nil {
			continue
		}
		if out, start = d.inUnit(t, at); len(out) > 0 {
			return out, start
		}
	}
	return nil, 0
}

func (d *debugInfo) inUnit(t *unitTable, at uint32) (out []event.Frame, start uint64) {
	file, line := t.lineAt(at)
	i, found := slices.BinarySearchFunc(t.spans, at, func(s span, at uint32) int { return cmp.Compare(s.lo, at) })
	for found && i+1 < len(t.spans) && t.spans[i+1].lo == at {
		i++
	}
	if !found {
		i--
	}
	k := int32(i)
	for k >= 0 && at >= t.spans[k].hi {
		k = t.spans[k].outer
	}
	if k < 0 {
		if line == 0 {
			return nil, 0
		}
		return []event.Frame{{File: file, Line: line}}, 0
	}
	for n := 0; k >= 0 && n < maxInline; n++ {
		s := &t.spans[k]
		out = append(out, event.Frame{Func: d.name(uint64(s.die)), File: file, Line: line, Inlined: s.inlined})
		if !s.inlined {
			return out, d.base + uint64(s.lo)
		}
		file, line = "", int(s.callLine)
		if int(s.callFile) < len(t.files) {
			file = t.files[s.callFile]
		}
		k = s.outer
	}
	if line == 0 && file == "" {
		return out, 0
	}
	return append(out, event.Frame{File: file, Line: line}), 0
}

func (t *unitTable) lineAt(at uint32) (file string, line int) {
	i, found := slices.BinarySearchFunc(t.rows, at, func(r lineRow, at uint32) int { return cmp.Compare(r.pc, at) })
	for found && i+1 < len(t.rows) && t.rows[i+1].pc == at {
		i++
	}
	if !found {
		i--
	}
	if i < 0 || t.rows[i].line == 0 {
		return "", 0
	}
	if f := t.rows[i].file; f < uint32(len(t.files)) {
		file = t.files[f]
	}
	return file, int(t.rows[i].line)
}

// unit gives a packed unit; nil when it cannot be read.
func (d *debugInfo) unit(n uint32) *unitTable {
	d.tick++
	t, ok := d.kept[n]
	if !ok {
		t = d.pack(n)
		d.kept[n] = t
		d.size += t.bytes()
		for d.size > maxUnitBytes && len(d.kept) > 1 {
			var oldest uint32
			used := d.tick + 1
			for k, x := range d.kept {
				if k != n && x.used < used {
					oldest, used = k, x.used
				}
			}
			d.size -= d.kept[oldest].bytes()
			delete(d.kept, oldest)
		}
	}
	t.used = d.tick
	return t
}

// abbrevsOf keeps some tables: units of one program share them, and names are looked up in many units.
func (d *debugInfo) abbrevsOf(u *unit) (*abbrevs, error) {
	key := u.abbrevOff<<4 | uint64(u.addrSize/8)<<2 | uint64(u.offSize/8)
	if t := d.types[key]; t != nil {
		return t, nil
	}
	t, err := d.readAbbrevs(u, 0)
	if err != nil {
		return nil, err
	}
	if len(d.types) >= 32 {
		clear(d.types)
	}
	d.types[key] = t
	return t, nil
}

func (d *debugInfo) pack(n uint32) *unitTable {
	t := &unitTable{}
	u, err := d.unitAt(d.units[n])
	if err != nil {
		return t
	}
	abbrevs, err := d.abbrevsOf(&u)
	if err != nil {
		return t
	}
	var e entry
	if err := d.root(&u, abbrevs, &e); err != nil {
		return t
	}
	d.packSpans(&u, abbrevs, t)
	d.packLines(&u, t)
	if d.touched += u.end - u.off; d.touched > maxTouched {
		d.release()
	}
	return t
}

// packSpans walks the entries of a unit. Types are stepped over where the data tells how.
func (d *debugInfo) packSpans(u *unit, abbrevs *abbrevs, t *unitTable) {
	c := cursor{b: d.info.Bytes()[:u.end], pos: int(u.die), o: d.order}
	var e entry
	budget := maxSpans
	for depth := 0; c.pos < len(c.b) && !c.bad; {
		at := uint64(c.pos)
		// What is never looked at and has one size is skipped in one step.
		look := c
		if a := abbrevs.get(look.uleb()); a != nil && a.size >= 0 && !a.children && a.tag != tagSubprogram && a.tag != tagInlinedSubroutine {
			c.pos = look.pos + a.size
			continue
		}
		if !d.entry(u, abbrevs, &c, &e) {
			if depth--; depth <= 0 || c.bad {
				break
			}
			continue
		}
		if e.children {
			depth++
		}
		switch e.tag {
		case tagSubprogram, tagInlinedSubroutine:
			before, name := len(t.spans), at
			if e.origin != 0 && !e.originShared && e.tag == tagInlinedSubroutine {
				name = e.origin
			}
			d.rangesOf(u, &e, &budget, func(lo, hi uint64) {
				if lo -= d.base; lo < 1<<32 && hi-d.base < 1<<32 && len(t.spans) < maxSpans {
					t.spans = append(t.spans, span{lo: uint32(lo), hi: uint32(hi - d.base), die: uint32(name), outer: int32(len(t.spans)),
						callFile: uint16(min(e.callFile, 1<<16-1)), callLine: uint32(e.callLine), inlined: e.tag == tagInlinedSubroutine, entry: len(t.spans) == before})
				}
			})
			if len(t.spans) > before || e.tag == tagInlinedSubroutine {
				continue
			}
		case tagClassType, tagStructureType, tagUnionType, tagEnumerationType, tagSubroutineType:
		default:
			if depth == 0 && !e.children {
				return // a unit without entries
			}
			continue
		}
		if e.children && e.sibling > uint64(c.pos) && e.sibling < u.end {
			c.pos = int(e.sibling)
			depth--
		}
	}
	// Of equal ranges the one that holds the other came first; until here outer is the place in that order.
	slices.SortFunc(t.spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.lo, b.lo), cmp.Compare(b.hi, a.hi), cmp.Compare(a.outer, b.outer))
	})
	t.spans = slices.Clip(t.spans)
	var open []int32
	for i := range t.spans {
		s := &t.spans[i]
		for len(open) > 0 && t.spans[open[len(open)-1]].hi <= s.lo {
			open = open[:len(open)-1]
		}
		if s.outer = -1; len(open) > 0 {
			s.outer = open[len(open)-1]
		}
		open = append(open, int32(i))
	}
}

// packLines runs the line program of a unit; debug/dwarf knows them, and is given this unit alone.
func (d *debugInfo) packLines(u *unit, t *unitTable) {
	if !u.stmtList {
		return
	}
	data, err := d.oneUnit(u)
	if err != nil {
		return
	}
	root, err := data.Reader().Next()
	if err != nil || root == nil {
		return
	}
	lines, err := data.LineReader(root)
	if err != nil || lines == nil {
		return
	}
	place := map[*dwarf.LineFile]uint32{}
	add := func(f *dwarf.LineFile) uint32 {
		if f == nil {
			return ^uint32(0)
		}
		n, ok := place[f]
		if !ok {
			n = uint32(len(t.files))
			place[f] = n
			t.files = append(t.files, f.Name)
		}
		return n
	}
	// Calls name files by their number in this list, so it comes first and whole.
	for _, f := range lines.Files() {
		if f == nil {
			t.files = append(t.files, "")
			continue
		}
		place[f] = uint32(len(t.files))
		t.files = append(t.files, f.Name)
	}
	var le dwarf.LineEntry
	last := lineRow{line: -1}
	for len(t.rows) < maxSpans {
		if err := lines.Next(&le); err != nil {
			break
		}
		rel := le.Address - d.base
		if rel >= 1<<32 {
			continue
		}
		r := lineRow{uint32(rel), int32(le.Line), add(le.File)}
		if le.EndSequence {
			r.line, r.file = 0, 0
		}
		if r.line != last.line || r.file != last.file {
			t.rows = append(t.rows, r)
		}
		if last = r; le.EndSequence {
			last = lineRow{line: -1}
		}
	}
	// Where one sequence ends another may begin: the end comes first.
	slices.SortStableFunc(t.rows, func(a, b lineRow) int {
		if a.pc == b.pc && (a.line == 0) != (b.line == 0) {
			if a.line == 0 {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.pc, b.pc)
	})
	t.rows = slices.Clip(t.rows)
}

// name is the demangled name of a function.
func (d *debugInfo) name(die uint64) string { return Demangle(d.symbolName(die)) }

// symbolName is the name of a function, that of the linker if there is one, which an entry or what it stands for has.
func (d *debugInfo) symbolName(die uint64) string {
	plain := ""
	for range 8 {
		if d == nil {
			break
		}
		i, found := slices.BinarySearch(d.units, die)
		if !found {
			i--
		}
		if i < 0 {
			break
		}
		u, err := d.unitAt(d.units[i])
		if err != nil || die < u.die || die >= u.end {
			break
		}
		t, err := d.abbrevsOf(&u)
		if err != nil {
			break
		}
		var e entry
		if d.root(&u, t, &e) != nil {
			break
		}
		c := cursor{b: d.info.Bytes()[:u.end], pos: int(die), o: d.order}
		if !d.entry(&u, t, &c, &e) {
			break
		}
		if s := d.text(&u, e.linkage); s != "" {
			return s
		}
		if plain == "" {
			plain = d.text(&u, e.name)
		}
		if e.origin == 0 {
			break
		}
		if die = e.origin; e.originShared {
			d = d.shared
		}
	}
	return plain
}
