package ldso

import (
	"debug/elf"
	"slices"
)

const maxInits = 4096 // functions of one object

// Inits are the addresses of the functions that the linker calls to initialise an object, in its order, as the file numbers addresses:
// DT_PREINIT_ARRAY of a program, DT_INIT, DT_INIT_ARRAY (gABI, "Initialization and Termination Functions").
func (o *Object) Inits() (list []uint64) {
	add := func(addr uint64) {
		if addr != 0 && o.File.InCode(addr) && !slices.Contains(list, addr) {
			list = append(list, addr)
		}
	}
	if o.Loader == nil {
		for _, a := range o.array(elf.DT_PREINIT_ARRAY, elf.DT_PREINIT_ARRAYSZ) {
			add(a)
		}
	}
	if v, ok := o.dyn.value(elf.DT_INIT); ok {
		add(v)
	}
	for _, a := range o.array(elf.DT_INIT_ARRAY, elf.DT_INIT_ARRAYSZ) {
		add(a)
	}
	return list
}

// array reads an array of addresses: what relative relocations put there, else what the file has there.
func (o *Object) array(tag, sizeTag elf.DynTag) []uint64 {
	addr, ok := o.dyn.value(tag)
	size, _ := o.dyn.value(sizeTag)
	off, in := o.File.Offset(addr)
	word := uint64(8)
	if o.File.ELF.Class == elf.ELFCLASS32 {
		word = 4
	}
	n := size / word
	if !ok || !in || n == 0 || n > maxInits {
		return nil
	}
	b := make([]byte, n*word)
	if _, err := o.File.ReadAt(b, int64(off)); err != nil {
		return nil
	}
	list := make([]uint64, n)
	order := o.File.ELF.ByteOrder
	for i := range list {
		if word == 8 {
			list[i] = order.Uint64(b[i*8:])
		} else {
			list[i] = uint64(order.Uint32(b[i*4:]))
		}
	}
	if word == 4 {
		return list // REL: the addends are in place
	}
	table, ok := o.dyn.value(elf.DT_RELA)
	bytes, _ := o.dyn.value(elf.DT_RELASZ)
	at, in := o.File.Offset(table)
	if !ok || !in || bytes > maxStrings || at+bytes > uint64(o.File.Size) {
		return list
	}
	r := make([]byte, bytes)
	if _, err := o.File.ReadAt(r, int64(at)); err != nil {
		return list
	}
	for ; len(r) >= 24; r = r[24:] {
		if where := order.Uint64(r); where >= addr && where < addr+size && (where-addr)%8 == 0 && order.Uint64(r[8:])>>32 == 0 {
			list[(where-addr)/8] = order.Uint64(r[16:])
		}
	}
	return list
}

// Binding is one reference of an object to a symbol, and the object that it is bound to.
type Binding struct {
	Symbol, Version string
	By              *Object
	To              *Object // nil when nothing defines it
	Lazy            bool    // when it is called first, not at the start
	// Shadowed are other objects that define it, which do not count: To interposes them.
	Shadowed []*Object
}

// Bindings finds what each reference of a complete closure is bound to, in the order of objects and of their symbols.
func (c *Closure) Bindings() (list []Binding) {
	for _, o := range c.Objects {
		syms, err := o.File.ELF.DynamicSymbols()
		if err != nil {
			continue // it refers to nothing
		}
		word := uint64(8)
		if o.File.ELF.Class == elf.ELFCLASS32 {
			word = 4
		}
		refs := o.dyn.relocated(elf.DT_JMPREL, elf.DT_PLTRELSZ, o.dyn.pltEntry())
		refs = append(refs, o.dyn.relocated(elf.DT_RELA, elf.DT_RELASZ, 3*word)...)
		refs = append(refs, o.dyn.relocated(elf.DT_REL, elf.DT_RELSZ, 2*word)...)
		slices.Sort(refs)
		var lazy map[uint32]bool
		if !c.now(o) {
			lazy = o.dyn.lazy()
		}
		for _, i := range slices.Compact(refs) {
			if i == 0 || int(i) > len(syms) {
				continue
			}
			s := &syms[i-1]
			if s.Name == "" || elf.ST_BIND(s.Info) == elf.STB_LOCAL {
				continue
			}
			// A program's own definition of a variable in a library is a copy, made from the library's.
			copied := o == c.Program && s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_OBJECT
			b := Binding{Symbol: s.Name, Version: s.Version, By: o, To: c.Lookup(s.Name, s.Version, o, copied), Lazy: lazy[i]}
			if b.To != nil && !copied {
				for _, other := range c.Objects {
					if other != b.To && other.table().has(s.Name, s.Version) {
						b.Shadowed = append(b.Shadowed, other)
					}
				}
			}
			list = append(list, b)
		}
	}
	return list
}
