package symbol

import (
	"cmp"
	"debug/dwarf"
	"errors"
	"slices"

	"github.com/sonde-trace/sonde/internal/objfile"
)

// Units gives the debug data of a file by unit, for those who read types with debug/dwarf: opening all of a large file with it takes
// seconds and as much memory as the data. It is safe for concurrent use.
type Units struct{ d *debugInfo }

// OpenUnits finds the debug data of f, as objfile.File.Debug does.
func OpenUnits(f *objfile.File) (*Units, error) {
	d, err := openDebugInfo(f)
	if err != nil {
		return nil, err
	}
	return &Units{d}, nil
}

// ErrNoUnit says that debug data say nothing of an address.
var ErrNoUnit = errors.New("its debug data do not describe it")

// At calls fn with the data of a unit that has code at addr, until fn takes one: returns nil. The data hold this unit alone, or, when it
// refers to others, all. They are valid, with what comes from them and is not text, until fn returns.
func (u *Units) At(addr uint64, fn func(*dwarf.Data) error) error {
	d := u.d
	d.mu.Lock()
	defer d.mu.Unlock()
	err := ErrNoUnit
	rel := addr - d.base
	if rel >= 1<<32-1 {
		return err
	}
	i, found := slices.BinarySearchFunc(d.index, uint32(rel), func(r unitRange, at uint32) int { return cmp.Compare(r.lo, at) })
	for found && i+1 < len(d.index) && d.index[i+1].lo == uint32(rel) {
		i++
	}
	if !found {
		i--
	}
	for n := 0; i >= 0 && n < 16; i, n = i-1, n+1 {
		if uint32(rel) >= d.index[i].hi {
			continue
		}
		e := objfile.Guard(func() error {
			data, err := d.unitData(d.units[d.index[i].unit])
			if err != nil {
				return err
			}
			return fn(data)
		})
		if e == nil {
			return nil
		}
		err = e
	}
	return err
}

// unitData makes data of the unit at an offset.
func (d *debugInfo) unitData(off uint64) (*dwarf.Data, error) {
	head, err := d.unitAt(off)
	if err != nil {
		return nil, err
	}
	abbrevs, err := d.abbrevsOf(&head)
	if err != nil {
		return nil, err
	}
	if abbrevs.refersOut() {
		return d.file.DWARF()
	}
	return d.oneUnit(&head)
}

// oneUnit makes data that hold a unit alone.
func (d *debugInfo) oneUnit(u *unit) (*dwarf.Data, error) {
	data, err := dwarf.New(d.abbrev.Bytes(), nil, nil, d.info.Bytes()[u.off:u.end], d.line.Bytes(), nil, d.ranges.Bytes(), d.str.Bytes())
	if err != nil {
		return nil, err
	}
	for _, s := range []struct {
		name string
		m    *objfile.Mapped
	}{{".debug_line_str", d.lineStr}, {".debug_str_offsets", d.strOffsets}, {".debug_addr", d.addrs}, {".debug_rnglists", d.rnglists}} {
		if s.m == nil {
			continue
		}
		if err := data.AddSection(s.name, s.m.Bytes()); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// refersOut reports whether entries of a table can refer to other units, or to types by signature.
func (a *abbrevs) refersOut() bool {
	out := func(x *abbrev) bool {
		return slices.ContainsFunc(x.attrs, func(at attr) bool {
			return at.form == formRefAddr || at.form == formRefSig8 || at.form == formGNURefAlt || at.form == formIndirect
		})
	}
	for i := range a.dense {
		if out(&a.dense[i]) {
			return true
		}
	}
	for _, x := range a.sparse {
		if out(x) {
			return true
		}
	}
	return false
}
