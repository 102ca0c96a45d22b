package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"iter"
	"runtime"
	"sort"
	"strings"

	"github.com/sonde-trace/sonde/internal/objfile"
)

// GoTable is the line table of a Go program, .gopclntab, which also stripped programs have: functions, lines, and the calls
// that were inlined. The layouts are those of Go 1.18 to 1.26 (runtime/symtab.go, internal/abi/symtab.go); older ones are not
// read. It is safe for concurrent use.
type GoTable struct {
	data    *objfile.Mapped
	rodata  *objfile.Mapped // with the inline trees
	roBase  uint64          // address of rodata
	goFunc  uint64          // address that inline trees count from; 0 when it was not found
	text    uint64
	n       int // functions
	quantum uint64
	names   uint64 // places of the parts
	units   uint64
	files   uint64
	pcs     uint64
	funcs   uint64
}

// GoFunc is a function of a Go program.
type GoFunc struct {
	Name        string
	Entry, Size uint64
}

// Values of internal/abi: magic numbers of 1.18 and 1.20, and the indices of tables.
const (
	goMagic118      = 0xfffffff0
	goMagic120      = 0xfffffff1
	goPCDataInline  = 2
	goFuncDataTrees = 3
	goInlineSize    = 16 // of runtime.inlinedCall
	maxGoInlines    = 64 // of one instruction
)

// GoTableOf reads the head of the line table of f; nil when f has none, or one of another layout.
func GoTableOf(f *objfile.File) *GoTable {
	name := ".gopclntab"
	s := f.ELF.Section(name)
	if s == nil {
		name = ".data.rel.ro.gopclntab"
		if s = f.ELF.Section(name); s == nil {
			return nil
		}
	}
	if f.ELF.Class != elf.ELFCLASS64 || f.ELF.ByteOrder != binary.LittleEndian {
		return nil
	}
	m, err := f.Map(name)
	if err != nil {
		return nil
	}
	t := &GoTable{data: m}
	ok := false
	if objfile.Guard(func() error { ok = t.head(f, s.Addr); return nil }) != nil || !ok {
		return nil
	}
	return t
}

func (t *GoTable) head(f *objfile.File, addr uint64) bool {
	b := t.data.Bytes()
	if len(b) < 72 || b[7] != 8 || b[6] == 0 || b[6] > 4 {
		return false
	}
	le := binary.LittleEndian
	magic := le.Uint32(b)
	if magic != goMagic118 && magic != goMagic120 {
		return false
	}
	w := func(i int) uint64 { return le.Uint64(b[8+8*i:]) }
	t.quantum = uint64(b[6])
	t.names, t.units, t.files, t.pcs, t.funcs = w(3), w(4), w(5), w(6), w(7)
	for _, off := range []uint64{t.names, t.units, t.files, t.pcs, t.funcs} {
		if off >= uint64(len(b)) {
			return false
		}
	}
	if n := w(0); n > 0 && n <= (uint64(len(b))-t.funcs)/8-1 {
		t.n = int(n)
	} else {
		return false
	}
	t.text = w(2)
	mod := moduleData(f, addr, addr+t.names)
	if mod.text != 0 {
		t.text = mod.text
	} else if s := f.ELF.Section(".text"); s != nil && t.text == 0 {
		t.text = s.Addr
	}
	if magic == goMagic120 { // before, inline trees had another layout
		t.goFunc = mod.goFunc
	}
	for _, s := range f.ELF.Sections {
		if t.goFunc != 0 && s.Type == elf.SHT_PROGBITS && t.goFunc-s.Addr < s.Size && s.Flags&elf.SHF_ALLOC != 0 {
			if m, err := f.Map(s.Name); err == nil && m != nil {
				t.rodata, t.roBase = m, s.Addr
			}
		}
	}
	return true
}

// goModule is what we need of runtime.moduledata.
type goModule struct{ text, goFunc uint64 }

// moduleData finds runtime.moduledata: it begins with the address of the line table, and the next word is that of the names
// in it. In a position-independent program the words are in relocations.
func moduleData(f *objfile.File, table, names uint64) (m goModule) {
	const words = 41 // up to gofunc
	read := func(at func(i int) uint64) goModule {
		return goModule{text: at(22), goFunc: at(40)}
	}
	le := binary.LittleEndian
	for _, s := range f.ELF.Sections {
		if s.Type != elf.SHT_PROGBITS || s.Flags&elf.SHF_ALLOC == 0 || s.Flags&elf.SHF_EXECINSTR != 0 ||
			!strings.HasPrefix(s.Name, ".data") && s.Name != ".noptrdata" && s.Name != ".go.module" {
			continue
		}
		mapped, err := f.Map(s.Name)
		if err != nil {
			continue
		}
		var want [16]byte
		le.PutUint64(want[:], table)
		le.PutUint64(want[8:], names)
		b := mapped.Bytes()
		for from := 0; ; {
			i := bytes.Index(b[from:], want[:])
			if i < 0 {
				break
			}
			if i += from; i%8 == 0 && i+8*words <= len(b) {
				m = read(func(k int) uint64 { return le.Uint64(b[i+8*k:]) })
				break
			}
			from = i + 1
		}
		runtime.KeepAlive(mapped)
		if m.text != 0 {
			return m
		}
	}
	relative := uint32(elf.R_X86_64_RELATIVE)
	if f.ELF.Machine == elf.EM_AARCH64 {
		relative = uint32(elf.R_AARCH64_RELATIVE)
	}
	for _, s := range f.ELF.Sections {
		if s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 {
			continue
		}
		mapped, err := f.Map(s.Name)
		if err != nil {
			continue
		}
		b := mapped.Bytes()
		for i := 0; i+24*words <= len(b); i += 24 {
			slot := le.Uint64(b[i:])
			if le.Uint64(b[i+16:]) != table || uint32(le.Uint64(b[i+8:])) != relative {
				continue
			}
			got := map[uint64]uint64{}
			for k := i; k+24 <= len(b) && k < i+24*4*words; k += 24 {
				if uint32(le.Uint64(b[k+8:])) == relative {
					got[(le.Uint64(b[k:])-slot)/8] = le.Uint64(b[k+16:])
				}
			}
			if got[1] == names {
				m = read(func(k int) uint64 { return got[uint64(k)] })
			}
		}
		runtime.KeepAlive(mapped)
	}
	return m
}

// at reads a word of 32 bits; 0 outside the table.
func (t *GoTable) at(off uint64) uint32 {
	b := t.data.Bytes()
	if off > uint64(len(b)) || uint64(len(b))-off < 4 {
		return 0
	}
	return binary.LittleEndian.Uint32(b[off:])
}

func (t *GoTable) text0(off uint64) string {
	b := t.data.Bytes()
	if off >= uint64(len(b)) {
		return ""
	}
	b = b[off:min(uint64(len(b)), off+16<<10)]
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// row is where function i begins, and its record.
func (t *GoTable) row(i int) (entry, record uint64) {
	return t.text + uint64(t.at(t.funcs+8*uint64(i))), t.funcs + uint64(t.at(t.funcs+8*uint64(i)+4))
}

func (t *GoTable) fn(i int) GoFunc {
	entry, record := t.row(i)
	end, _ := t.row(i + 1)
	if end < entry {
		end = entry
	}
	return GoFunc{t.text0(t.names + uint64(t.at(record+4))), entry, end - entry}
}

// All gives the functions by address.
func (t *GoTable) All() iter.Seq[GoFunc] {
	return func(yield func(GoFunc) bool) {
		var batch []GoFunc
		for i := 0; i < t.n; {
			batch = batch[:0]
			err := objfile.Guard(func() error {
				for ; i < t.n && len(batch) < 512; i++ {
					batch = append(batch, t.fn(i))
				}
				return nil
			})
			for _, f := range batch {
				if f.Name != "" && !yield(f) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}

// goFrame is one function at an address, the innermost first.
type goFrame struct {
	name    string
	file    string
	line    int
	inlined bool
	entry   uint64 // of the function that is not inlined
}

// frames names the instruction at pc. For a return address pc is one less. It runs below Guard.
func (t *GoTable) frames(pc uint64, out []goFrame) []goFrame {
	if pc < t.text {
		return out
	}
	i := sort.Search(t.n, func(i int) bool { e, _ := t.row(i); return e > pc }) - 1
	if i < 0 {
		return out
	}
	fn := t.fn(i)
	if pc-fn.Entry >= fn.Size || fn.Name == "" {
		return out
	}
	_, rec := t.row(i)
	nPCData, nFuncData := uint64(t.at(rec+28)), uint64(t.data.Bytes()[min(rec+43, uint64(len(t.data.Bytes())-1))])
	where := func(pc uint64) (string, int) {
		file := t.value(t.at(rec+20), fn.Entry, pc)
		line := t.value(t.at(rec+24), fn.Entry, pc)
		return t.file(t.at(rec+32), file), max(int(line), 0) // padding has none
	}
	if nPCData > goPCDataInline && nPCData < 64 && nFuncData > goFuncDataTrees && t.rodata != nil {
		table := t.at(rec + 44 + 4*goPCDataInline)
		tree := t.at(rec + 44 + 4*nPCData + 4*goFuncDataTrees)
		ro := t.rodata.Bytes()
		for n := 0; table != 0 && tree != ^uint32(0) && n < maxGoInlines; n++ {
			k := t.value(table, fn.Entry, pc)
			if k < 0 {
				break
			}
			off := t.goFunc + uint64(tree) + uint64(k)*goInlineSize - t.roBase
			if off > uint64(len(ro)) || uint64(len(ro))-off < goInlineSize {
				break
			}
			call := ro[off : off+goInlineSize]
			name := t.text0(t.names + uint64(binary.LittleEndian.Uint32(call[4:])))
			file, line := where(pc)
			out = append(out, goFrame{name, file, line, true, fn.Entry})
			parent := fn.Entry + uint64(binary.LittleEndian.Uint32(call[8:]))
			if parent-fn.Entry >= fn.Size {
				break
			}
			pc = parent
		}
	}
	file, line := where(pc)
	return append(out, goFrame{fn.Name, file, line, false, fn.Entry})
}

// value runs a pc-value table up to pc; -1 when it says nothing.
func (t *GoTable) value(table uint32, entry, pc uint64) int32 {
	if table == 0 {
		return -1
	}
	b := t.data.Bytes()
	at := t.pcs + uint64(table)
	if at >= uint64(len(b)) {
		return -1
	}
	b = b[at:]
	val, here := int32(-1), entry
	for first := true; ; first = false {
		u, n := binary.Uvarint(b)
		if n <= 0 || u == 0 && !first {
			return -1
		}
		b = b[n:]
		d, n := binary.Uvarint(b)
		if n <= 0 {
			return -1
		}
		b = b[n:]
		val += int32(u>>1) ^ -int32(u&1)
		if here += d * t.quantum; pc < here {
			return val
		}
	}
}

// file is the name of file n of a compilation unit.
func (t *GoTable) file(unit uint32, n int32) string {
	if n < 0 {
		return ""
	}
	off := t.at(t.units + 4*(uint64(unit)+uint64(n)))
	if off == ^uint32(0) {
		return ""
	}
	return t.text0(t.files + uint64(off))
}
