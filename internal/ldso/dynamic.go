package ldso

import (
	"debug/elf"
	"errors"
	"fmt"

	"github.com/sonde-trace/sonde/internal/objfile"
)

// dynamic is the dynamic section of a file, found as the linker finds it: by its program header.
type dynamic struct {
	f       *objfile.File
	entries []entry
	strings []byte
}

type entry struct {
	tag elf.DynTag
	val uint64
}

const (
	maxDynamic = 4096     // entries
	maxStrings = 64 << 20 // bytes of the string table
)

var errDynamic = errors.New("its dynamic section cannot be read")

func readDynamic(f *objfile.File) (*dynamic, error) {
	d := &dynamic{f: f}
	for _, p := range f.ELF.Progs {
		if p.Type != elf.PT_DYNAMIC {
			continue
		}
		word := uint64(8)
		if f.ELF.Class == elf.ELFCLASS32 {
			word = 4
		}
		b := make([]byte, min(p.Filesz, maxDynamic*2*word))
		if _, err := f.ReadAt(b, int64(p.Off)); err != nil {
			return nil, fmt.Errorf("%s: %w: %v", f.Path, errDynamic, err)
		}
		for ; uint64(len(b)) >= 2*word; b = b[2*word:] {
			var e entry
			if word == 8 {
				e = entry{elf.DynTag(f.ELF.ByteOrder.Uint64(b)), f.ELF.ByteOrder.Uint64(b[8:])}
			} else {
				e = entry{elf.DynTag(int32(f.ELF.ByteOrder.Uint32(b))), uint64(f.ELF.ByteOrder.Uint32(b[4:]))}
			}
			if e.tag == elf.DT_NULL {
				break
			}
			d.entries = append(d.entries, e)
		}
		break
	}
	addr, ok := d.value(elf.DT_STRTAB)
	if !ok {
		return d, nil
	}
	size, _ := d.value(elf.DT_STRSZ)
	off, ok := f.Offset(addr)
	if !ok || size > maxStrings || off+size > uint64(f.Size) {
		return nil, fmt.Errorf("%s: %w: its strings are outside the file", f.Path, errDynamic)
	}
	d.strings = make([]byte, size)
	if _, err := f.ReadAt(d.strings, int64(off)); err != nil {
		return nil, fmt.Errorf("%s: %w: %v", f.Path, errDynamic, err)
	}
	return d, nil
}

func (d *dynamic) value(tag elf.DynTag) (uint64, bool) {
	for i := range d.entries {
		if d.entries[i].tag == tag {
			return d.entries[i].val, true
		}
	}
	return 0, false
}

func (d *dynamic) text(off uint64) string {
	if off >= uint64(len(d.strings)) {
		return ""
	}
	s := d.strings[off:]
	for i, c := range s[:min(len(s), 4096)] {
		if c == 0 {
			return string(s[:i])
		}
	}
	return ""
}

// all are the strings of the entries with a tag.
func (d *dynamic) all(tag elf.DynTag) (list []string) {
	for i := range d.entries {
		if d.entries[i].tag == tag {
			list = append(list, d.text(d.entries[i].val))
		}
	}
	return list
}

func (d *dynamic) one(tag elf.DynTag) string {
	if v, ok := d.value(tag); ok {
		return d.text(v)
	}
	return ""
}

// lazy gives the indices of the symbols that only the procedure linkage table refers to: their absence is not noticed before
// they are called, unless everything is bound at the start.
func (d *dynamic) lazy() map[uint32]bool {
	set := make(map[uint32]bool)
	for _, i := range d.relocated(elf.DT_JMPREL, elf.DT_PLTRELSZ, d.pltEntry()) {
		set[i] = true
	}
	word := uint64(8)
	if d.f.ELF.Class == elf.ELFCLASS32 {
		word = 4
	}
	for _, i := range append(d.relocated(elf.DT_RELA, elf.DT_RELASZ, 3*word), d.relocated(elf.DT_REL, elf.DT_RELSZ, 2*word)...) {
		delete(set, i)
	}
	return set
}

func (d *dynamic) pltEntry() uint64 {
	n := uint64(8)
	if d.f.ELF.Class == elf.ELFCLASS32 {
		n = 4
	}
	if v, _ := d.value(elf.DT_PLTREL); elf.DynTag(v) == elf.DT_REL {
		return 2 * n
	}
	return 3 * n
}

// relocated are the symbols of a relocation table.
func (d *dynamic) relocated(table, size elf.DynTag, entry uint64) (list []uint32) {
	addr, ok := d.value(table)
	n, _ := d.value(size)
	off, in := d.f.Offset(addr)
	if !ok || !in || n > maxStrings || off+n > uint64(d.f.Size) {
		return nil
	}
	b := make([]byte, n)
	if _, err := d.f.ReadAt(b, int64(off)); err != nil {
		return nil
	}
	for ; uint64(len(b)) >= entry; b = b[entry:] {
		if d.f.ELF.Class == elf.ELFCLASS64 {
			list = append(list, uint32(d.f.ELF.ByteOrder.Uint64(b[8:])>>32))
		} else {
			list = append(list, d.f.ELF.ByteOrder.Uint32(b[4:])>>8)
		}
	}
	return list
}
