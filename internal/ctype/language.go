package ctype

// Values of DW_AT_language (DWARF 5, table 7.17).
const (
	langCPlusPlus   = 0x04
	langGo          = 0x16
	langCPlusPlus11 = 0x1a
	langRust        = 0x1c
	langCPlusPlus14 = 0x21
	langCPlusPlus17 = 0x2b
	langCPlusPlus20 = 0x2c
)

// Go reports whether a function is one of Go, which has a convention and registers of its own.
func (f *Func) Go() bool { return f.Language == langGo }

// classes reports whether types of a language have base classes and parameters, which debug/dwarf leaves out.
func classes(lang int64) bool {
	switch lang {
	case langCPlusPlus, langCPlusPlus11, langCPlusPlus14, langCPlusPlus17, langCPlusPlus20, langRust:
		return true
	}
	return false
}

// leaf is a scalar in an aggregate.
type leaf struct {
	t   *Type
	off int64
}

// maxLeaves is more than registers hold.
const maxLeaves = 32

// leaves lists the scalars of a type. It fails on arrays of more than one element, unions, bit-fields and what is not described.
func (t *Table) leaves(x *Type, at int64, depth int, list []leaf) ([]leaf, bool) {
	switch {
	case depth > maxDepth || len(list) >= maxLeaves:
		return list, false
	case x.Kind == KindStruct:
		if len(x.Fields) == 0 && x.Size > 0 {
			return list, false
		}
		for _, f := range x.Fields {
			if f.Bits > 0 {
				return list, false
			}
			var ok bool
			if list, ok = t.leaves(t.Get(f.Type), at+f.Off, depth+1, list); !ok {
				return list, false
			}
		}
		return list, true
	case x.Kind == KindArray && x.Count == 0:
		return list, true
	case x.Kind == KindArray && x.Count == 1:
		return t.leaves(t.Get(x.Elem), at, depth+1, list)
	case x.Kind == KindFloat && x.Size <= 8 || x.Scalar():
		return append(list, leaf{x, at}), true
	}
	return list, false
}

// goPlaces: Go's internal ABI (src/cmd/compile/abi-internal.md): each scalar of an argument takes a register of its own, or the whole
// argument goes to the stack, above the return address or the word kept for the link register.
func goPlaces(t *Table, f *Func, arch string) []Place {
	ints, floats := 9, 15
	if arch == "arm64" {
		ints, floats = 16, 16
	}
	stack := int64(8)
	out := make([]Place, len(f.Params))
	usedInt, usedFloat := 0, 0
	for i := range f.Params {
		x := t.Get(f.Params[i].Type)
		list, ok := t.leaves(x, 0, 0, nil)
		n, v := usedInt, usedFloat
		var p Place
		for _, l := range list {
			if l.t.Kind == KindFloat {
				v++
				p.Pieces = append(p.Pieces, Piece{Reg: -1, Vector: true, Off: l.off})
			} else {
				p.Pieces = append(p.Pieces, Piece{Reg: n, Off: l.off})
				n++
			}
		}
		if ok && n <= ints && v <= floats {
			usedInt, usedFloat = n, v
			out[i] = p
			continue
		}
		if x.Size <= 0 {
			for ; i < len(out); i++ {
				out[i].Unknown = true
			}
			break
		}
		align := int64(1)
		if ok {
			for _, l := range list {
				align = max(align, l.t.Size)
			}
		} else {
			align = min(8, x.Size&-x.Size)
		}
		stack = (stack + align - 1) / align * align
		p = Place{}
		for off := int64(0); off < x.Size; off += 8 {
			p.Pieces = append(p.Pieces, Piece{Reg: -1, InStack: true, Stack: stack + off, Off: off})
			if len(p.Pieces) == maxLeaves {
				break
			}
		}
		out[i] = p
		stack += x.Size
	}
	return out
}

// rustPlaces: Rust promises no convention. What its compilers do with one scalar, two scalars (a register for each) and more than two
// words (an address) has long been the same; of other values, and of all that come behind them, the places are not known.
func rustPlaces(t *Table, f *Func, arch string) []Place {
	c := newConvention(t, f, arch)
	out := make([]Place, len(f.Params))
	for i := range f.Params {
		x := t.Get(f.Params[i].Type)
		if x.Kind != KindStruct && x.Kind != KindUnion && x.Kind != KindArray {
			out[i] = c.place(x)
			continue
		}
		if x.Size > 16 {
			out[i] = Place{Pieces: []Piece{c.integer()}, Pointer: true}
			continue
		}
		list, ok := t.leaves(x, 0, 0, nil)
		if !ok || len(list) > 2 {
			for ; i < len(out); i++ {
				out[i].Unknown = true
			}
			break
		}
		for _, l := range list {
			p := c.place(l.t)
			p.Pieces[0].Off = l.off
			out[i].Pieces = append(out[i].Pieces, p.Pieces[0])
		}
	}
	return out
}
