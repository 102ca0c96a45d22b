package objfile

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"io"
	"iter"
	"slices"
	"strings"
	"unsafe"
)

// maxName bounds the length of a symbol's name that is shown; names of templates of some kilobytes exist.
const maxName = 64 << 10

// A symtab is a symbol table of a file, read in place.
type symtab struct {
	f       *File // the file itself, or the one in .gnu_debugdata, or its debug file
	syms    *elf.Section
	strs    *elf.Section
	dynamic bool
	entry   int // size of an entry
	n       int
}

func newSymtab(f *File, typ elf.SectionType) (symtab, bool) {
	t := symtab{f: f, syms: f.ELF.SectionByType(typ), dynamic: typ == elf.SHT_DYNSYM, entry: 24}
	if f.ELF.Class == elf.ELFCLASS32 {
		t.entry = 16
	}
	if t.syms == nil || t.syms.Type != typ || int(t.syms.Link) >= len(f.ELF.Sections) {
		return t, false
	}
	t.strs = f.ELF.Sections[t.syms.Link]
	if t.strs.Type != elf.SHT_STRTAB || t.syms.FileSize > uint64(f.Size) || t.strs.FileSize > uint64(f.Size) ||
		t.syms.ReaderAt == nil || t.strs.ReaderAt == nil { // nil: compressed
		return t, false
	}
	t.n = min(int(t.syms.FileSize)/t.entry, 1<<28)
	return t, t.n > 0
}

// rawSym is an entry of a symbol table, Elf64_Sym and Elf32_Sym of elf(5).
type rawSym struct {
	name        uint32
	info        byte
	section     uint16
	value, size uint64
}

func (t *symtab) decode(b []byte) rawSym {
	o := t.f.ELF.ByteOrder
	if t.entry == 16 {
		return rawSym{o.Uint32(b), b[12], o.Uint16(b[14:]), uint64(o.Uint32(b[4:])), uint64(o.Uint32(b[8:]))}
	}
	return rawSym{o.Uint32(b), b[4], o.Uint16(b[6:]), o.Uint64(b[8:]), o.Uint64(b[16:])}
}

// all gives the entries of functions that the file has, with their index.
func (t *symtab) all() iter.Seq2[int, rawSym] {
	return func(yield func(int, rawSym) bool) {
		code := make([]bool, len(t.f.ELF.Sections))
		for i, s := range t.f.ELF.Sections {
			code[i] = s.Flags&elf.SHF_EXECINSTR != 0
		}
		buf := make([]byte, 2048*t.entry)
		for i := 0; i < t.n; {
			b := buf[:min(len(buf), (t.n-i)*t.entry)]
			if _, err := t.syms.ReaderAt.ReadAt(b, int64(i)*int64(t.entry)); err != nil {
				return
			}
			for ; len(b) > 0; b, i = b[t.entry:], i+1 {
				s := t.decode(b)
				if int(s.section) >= len(code) || !code[s.section] {
					continue // undefined, absolute, data
				}
				switch elf.SymType(s.info & 15) {
				case elf.STT_FUNC, elf.STT_GNU_IFUNC:
				case elf.STT_NOTYPE:
					sect := t.f.ELF.Sections[s.section]
					if s.value-sect.Addr >= sect.Size { // an end mark: etext
						continue
					}
				default:
					continue
				}
				if s.name != 0 && !yield(i, s) {
					return
				}
			}
		}
	}
}

// name reads one name from the file.
func (t *symtab) name(off uint32) string {
	var buf [256]byte
	var long []byte
	for at := int64(off); ; {
		n, err := t.strs.ReaderAt.ReadAt(buf[:], at)
		if i := bytes.IndexByte(buf[:n], 0); i >= 0 {
			return string(append(long, buf[:i]...))
		}
		long = append(long, buf[:n]...)
		if at += int64(n); err != nil || n == 0 || len(long) > maxName {
			return string(long)
		}
	}
}

// strings reads the whole string table, for those who need most of it.
func (t *symtab) strings() string {
	b := make([]byte, t.strs.FileSize)
	n, err := t.strs.ReaderAt.ReadAt(b, 0)
	if err != nil && err != io.EOF || n == 0 {
		return ""
	}
	return unsafe.String(&b[0], n) // nobody has b
}

func cstring(s string, off uint32) string {
	if uint64(off) >= uint64(len(s)) {
		return ""
	}
	s = s[off:]
	s = s[:min(len(s), maxName)]
	if i := strings.IndexByte(s, 0); i >= 0 {
		return s[:i]
	}
	return s
}

// isMapping: ARM's mapping symbols mark instructions and data, not functions (ELF for the Arm 64-bit Architecture, 5.5.4);
// RISC-V has the same.
func isMapping(name string) bool {
	return len(name) >= 2 && name[0] == '$' && strings.IndexByte("xdat", name[1]) >= 0 && (len(name) == 2 || name[2] == '.')
}

// symtabs are the tables that name the functions of f: its own, that in .gnu_debugdata, and, when f is stripped and debug is
// set, that of its debug file.
func (f *File) symtabs(debug bool) []symtab {
	var list []symtab
	add := func(f *File, typ elf.SectionType) bool {
		t, ok := newSymtab(f, typ)
		if ok {
			list = append(list, t)
		}
		return ok
	}
	add(f, elf.SHT_DYNSYM)
	if add(f, elf.SHT_SYMTAB) {
		return list
	}
	if m := f.MiniDebug(); m != nil {
		add(m, elf.SHT_SYMTAB)
	}
	if debug {
		if d, err := f.Debug(); err == nil && d != f {
			add(d, elf.SHT_SYMTAB)
		}
	}
	return list
}

// EachFunc gives the entries of the symbol tables that name a function, in no order and with duplicates. A name without a
// type counts when it is in a section of code. Size is 0 where the table says so. The names share one large string: clone
// those that are kept.
func (f *File) EachFunc() iter.Seq[Symbol] { return f.eachFunc(true) }

// OwnFuncs is EachFunc without the names that only a debug file has: it asks nobody for one.
func (f *File) OwnFuncs() iter.Seq[Symbol] { return f.eachFunc(false) }

func (f *File) eachFunc(debug bool) iter.Seq[Symbol] {
	return func(yield func(Symbol) bool) {
		for _, t := range f.symtabs(debug) {
			for _, s := range t.each() {
				if !yield(s) {
					return
				}
			}
		}
	}
}

func (t *symtab) each() iter.Seq2[int, Symbol] {
	return func(yield func(int, Symbol) bool) {
		strs, versions := t.strings(), t.versions()
		for i, s := range t.all() {
			if sym := t.named(i, s, strs, versions); sym.Name != "" && !yield(i, sym) {
				return
			}
		}
	}
}

// named makes the symbol of entry i; its name is empty when it names no function.
func (t *symtab) named(i int, s rawSym, strs string, v versions) Symbol {
	name := cstring(strs, s.name)
	if isMapping(name) {
		return Symbol{}
	}
	sym := t.symbol(s, name)
	if !t.dynamic {
		if at := strings.IndexByte(name, '@'); at > 0 { // the linker leaves versions in the names
			sym.Name, sym.Version = name[:at], strings.TrimLeft(name[at:], "@")
			sym.Hidden = !strings.HasPrefix(name[at:], "@@")
		}
		return sym
	}
	sym.Version, sym.Hidden = v.of(i)
	return sym
}

func (t *symtab) symbol(s rawSym, name string) Symbol {
	return Symbol{Name: name, Addr: s.value, Size: s.size, Type: elf.ST_TYPE(s.info), Bind: elf.ST_BIND(s.info), Dynamic: t.dynamic}
}

// versions of the symbols of a dynamic table, .gnu.version and .gnu.version_d (LSB, "Symbol Versioning").
type versions struct {
	index []byte
	names map[uint16]string
	order binary.ByteOrder
}

func (t *symtab) versions() (v versions) {
	if !t.dynamic {
		return v
	}
	index, err := t.f.Section(".gnu.version")
	s := t.f.ELF.SectionByType(elf.SHT_GNU_VERDEF)
	if err != nil || s == nil || int(s.Link) >= len(t.f.ELF.Sections) {
		return v
	}
	defs, err := t.f.sectionData(s)
	if err != nil {
		return v
	}
	strs, err := t.f.sectionData(t.f.ELF.Sections[s.Link])
	if err != nil {
		return v
	}
	v = versions{index, map[uint16]string{}, t.f.ELF.ByteOrder}
	const base = 1 // VER_FLG_BASE: the name of the file itself
	for at := uint64(0); at+20 <= uint64(len(defs)) && len(v.names) < 1<<15; {
		d := defs[at:]
		aux, next := uint64(v.order.Uint32(d[12:])), uint64(v.order.Uint32(d[16:]))
		if v.order.Uint16(d[2:])&base == 0 && aux+4 <= uint64(len(d)) {
			if name := v.order.Uint32(d[aux:]); uint64(name) < uint64(len(strs)) {
				b := strs[name:min(uint64(len(strs)), uint64(name)+256)]
				b, _, _ = bytes.Cut(b, []byte{0})
				v.names[v.order.Uint16(d[4:])&0x7fff] = string(b)
			}
		}
		if next == 0 {
			break
		}
		at += next
	}
	return v
}

func (v versions) of(i int) (name string, hidden bool) {
	if 2*i+2 > len(v.index) {
		return "", false
	}
	n := v.order.Uint16(v.index[2*i:])
	return v.names[n&0x7fff], n&0x8000 != 0
}

// Funcs is a table of the functions of a file by address, one name for each. It takes 12 bytes a function, the names stay
// in the file. It is safe for concurrent use; when the file is closed its names are empty.
type Funcs struct {
	base uint64
	rows []funcRow
	tabs []symtab
}

type funcRow struct {
	addr, size uint32 // addr is from base on
	sym        uint32 // entry, with the table in the highest bits
}

const tableShift = 29 // of funcRow.sym; symtabs gives four tables at most

// Funcs makes the table at the first call.
func (f *File) Funcs() *Funcs { return f.funcs() }

func (f *File) readFuncs() *Funcs {
	t := &Funcs{tabs: f.symtabs(true)}
	first := true
	for _, p := range f.ELF.Progs {
		if p.Type == elf.PT_LOAD && (first || p.Vaddr < t.base) {
			t.base, first = p.Vaddr, false
		}
	}
	// Sorted by address as numbers; only entries that share an address are compared by name.
	type entry struct {
		row  funcRow
		name uint32
		info byte
	}
	var list []entry
	var keys []uint64
	for k := range t.tabs {
		for i, s := range t.tabs[k].all() {
			if off := s.value - t.base; off < 1<<32 && len(list) < 1<<31 {
				keys = append(keys, off<<32|uint64(len(list)))
				list = append(list, entry{funcRow{uint32(off), uint32(min(s.size, 1<<32-1)), uint32(k)<<tableShift | uint32(i)}, s.name, s.info})
			}
		}
	}
	slices.Sort(keys)
	strs, vers := make([]string, len(t.tabs)), make([]versions, len(t.tabs))
	for k := range t.tabs {
		strs[k], vers[k] = t.tabs[k].strings(), t.tabs[k].versions()
	}
	symbol := func(e *entry) Symbol {
		k, i := e.row.sym>>tableShift, e.row.sym&(1<<tableShift-1)
		return t.tabs[k].named(int(i), rawSym{name: e.name, info: e.info, size: uint64(e.row.size)}, strs[k], vers[k])
	}
	n := 0
	for i := 0; i < len(keys); {
		j := i + 1
		for j < len(keys) && keys[j]>>32 == keys[i]>>32 {
			j++
		}
		best, bestName := -1, Symbol{}
		for _, k := range keys[i:j] {
			e := &list[uint32(k)]
			if j == i+1 && elf.ST_TYPE(e.info) != elf.STT_NOTYPE {
				best = int(uint32(k))
			} else if s := symbol(e); s.Name != "" && (best < 0 || CompareNames(s, bestName) < 0) {
				best, bestName = int(uint32(k)), s
			}
		}
		if best >= 0 {
			keys[n] = keys[i]>>32<<32 | uint64(best)
			n++
		}
		i = j
	}
	keys = keys[:n]
	// Sizes of 0 last to the next name or the end of the section; within a function that has a size they are labels.
	rows := make([]funcRow, 0, n)
	var end uint64 // of what has a size
	for i, k := range keys {
		r := list[uint32(k)].row
		if r.size == 0 {
			if uint64(r.addr) < end {
				continue
			}
			_, size := f.codeSection(t.base + uint64(r.addr))
			if i+1 < len(keys) {
				size = min(size, keys[i+1]>>32-uint64(r.addr))
			}
			r.size = uint32(min(size, 1<<32-1))
		} else {
			end = max(end, uint64(r.addr)+uint64(r.size))
		}
		rows = append(rows, r)
	}
	t.rows = rows
	return t
}

// codeSection finds the section of code of an address, and how many bytes of it follow.
func (f *File) codeSection(addr uint64) (s *elf.Section, rest uint64) {
	for _, s := range f.ELF.Sections {
		if s.Flags&elf.SHF_EXECINSTR != 0 && addr-s.Addr < s.Size {
			return s, s.Size - (addr - s.Addr)
		}
	}
	return nil, 0
}

// Len is the number of functions.
func (t *Funcs) Len() int { return len(t.rows) }

// Bytes is what the table takes in memory.
func (t *Funcs) Bytes() int { return 12*len(t.rows) + 64*len(t.tabs) }

// Lookup finds the function that addr is in; of several the one that starts last. Its Size is at least one byte: where the
// table gives none the function lasts to the next name.
func (t *Funcs) Lookup(addr uint64) (Symbol, bool) {
	off := addr - t.base
	if off >= 1<<32 {
		return Symbol{}, false
	}
	i, found := slices.BinarySearchFunc(t.rows, uint32(off), func(r funcRow, off uint32) int { return cmp.Compare(r.addr, off) })
	if !found {
		i--
	}
	// A function within a function is rare and such are few: entry points of assembly.
	for n := 0; i >= 0 && n < 64; i, n = i-1, n+1 {
		if r := t.rows[i]; uint32(off)-r.addr < r.size {
			return t.at(i), true
		}
	}
	return Symbol{}, false
}

// at is the function number i by address.
func (t *Funcs) at(i int) Symbol {
	r := t.rows[i]
	tab := &t.tabs[r.sym>>tableShift]
	b := make([]byte, tab.entry)
	if _, err := tab.syms.ReaderAt.ReadAt(b, int64(r.sym&(1<<tableShift-1))*int64(tab.entry)); err != nil {
		return Symbol{Addr: t.base + uint64(r.addr), Size: uint64(r.size)}
	}
	raw := tab.decode(b)
	name, _, _ := strings.Cut(tab.name(raw.name), "@")
	s := tab.symbol(raw, name)
	s.Addr, s.Size = t.base+uint64(r.addr), uint64(r.size)
	return s
}

// CompareNames puts the better name of one address first: one with a type, a size, seen by other files, of the default
// version, with fewer underscores in front, shorter.
func CompareNames(a, b Symbol) int {
	no := func(x, y bool) int { // false first
		if x == y {
			return 0
		} else if x {
			return 1
		}
		return -1
	}
	lead := func(s string) int { return len(s) - len(strings.TrimLeft(s, "_")) }
	return cmp.Or(
		no(a.Type == elf.STT_NOTYPE, b.Type == elf.STT_NOTYPE),
		no(a.Size == 0, b.Size == 0),
		no(a.Bind == elf.STB_LOCAL, b.Bind == elf.STB_LOCAL),
		no(a.Hidden, b.Hidden),
		cmp.Compare(lead(a.Name), lead(b.Name)),
		cmp.Compare(len(a.Name), len(b.Name)),
		cmp.Compare(a.Name, b.Name),
		no(!a.Dynamic, !b.Dynamic),
	)
}
