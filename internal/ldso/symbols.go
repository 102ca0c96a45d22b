package ldso

import (
	"debug/elf"
	"slices"
)

// symbolTable is what an object gives to others.
type symbolTable struct {
	defined  map[string][]definition
	versions map[string]bool // that it defines
	versus   bool            // it has versions at all
}

type definition struct {
	version string
	hidden  bool // not the version that an unversioned reference gets
	typ     elf.SymType
	weak    bool
	value   uint64
	size    uint64
}

// Fault is something that the linker finds missing when all files are there.
type Fault struct {
	Symbol  string  // "" when a whole version is missing
	Version string  // of the symbol, or the one that is missing
	By      *Object // who refers to it
	In      *Object // whose version it should be; nil when any object could have it
	Lazy    bool    // only noticed when it is called
}

// Faults checks versions and symbols of a complete closure. A version comes before all symbols, as in the linker. At most most are
// returned.
func (c *Closure) Faults(most int) (list []Fault) {
	if c.Linker.Libc == "glibc" {
		for _, o := range c.Objects {
			needs, err := o.File.ELF.DynamicVersionNeeds()
			if err != nil {
				continue // no versions are asked for
			}
			for _, need := range needs {
				in := c.named(need.Name)
				if in == nil || !in.table().versus {
					continue // the linker only warns
				}
				for _, dep := range need.Needs {
					if dep.Flags&elf.VER_FLG_WEAK == 0 && !in.table().versions[dep.Dep] {
						list = append(list, Fault{Version: dep.Dep, By: o, In: in})
					}
				}
			}
		}
		if len(list) > 0 {
			return list[:min(most, len(list))]
		}
	}
	for _, o := range c.Objects {
		syms, err := o.File.ELF.DynamicSymbols()
		if err != nil {
			continue // it refers to nothing
		}
		var lazy map[uint32]bool
		if !c.now(o) {
			lazy = o.dyn.lazy()
		}
		for i := range syms {
			s := &syms[i]
			if s.Section != elf.SHN_UNDEF || elf.ST_BIND(s.Info) == elf.STB_WEAK || s.Name == "" {
				continue
			}
			if c.Lookup(s.Name, s.Version, o, false) == nil {
				list = append(list, Fault{Symbol: s.Name, Version: s.Version, By: o, Lazy: lazy[uint32(i+1)]})
				if len(list) >= most {
					break
				}
			}
		}
	}
	// What stops the program comes first.
	slices.SortStableFunc(list, func(a, b Fault) int {
		switch {
		case a.Lazy == b.Lazy:
			return 0
		case b.Lazy:
			return -1
		}
		return 1
	})
	return list
}

// now reports whether everything of o is bound at the start.
func (c *Closure) now(o *Object) bool {
	flags, _ := o.dyn.value(elf.DT_FLAGS)
	flags1, _ := o.dyn.value(elf.DT_FLAGS_1)
	_, bind := o.dyn.value(elf.DT_BIND_NOW)
	return bind || flags&uint64(elf.DF_BIND_NOW) != 0 || flags1&uint64(elf.DF_1_NOW) != 0 || c.env("LD_BIND_NOW") != "" || c.Linker.Libc == "musl"
}

func (c *Closure) named(name string) *Object {
	for _, o := range c.Objects {
		if o.Soname == name || slices.Contains(o.names, name) || o.Path == name {
			return o
		}
	}
	return nil
}

// Lookup finds the object that a reference of from is bound to: the first one that defines the symbol, in the order of the global
// scope. copied leaves the program out, as a copy relocation does.
func (c *Closure) Lookup(name, version string, from *Object, copied bool) *Object {
	scope := c.Objects
	if flags, _ := from.dyn.value(elf.DT_FLAGS); flags&uint64(elf.DF_SYMBOLIC) != 0 {
		scope = append([]*Object{from}, scope...)
	} else if _, ok := from.dyn.value(elf.DT_SYMBOLIC); ok {
		scope = append([]*Object{from}, scope...)
	}
	for _, o := range scope {
		if copied && o == c.Program {
			continue
		}
		if o.table().has(name, version) {
			return o
		}
	}
	return nil
}

// has follows do_lookup_x and check_match (elf/dl-lookup.c).
func (t *symbolTable) has(name, version string) bool {
	for _, d := range t.defined[name] {
		switch {
		case !t.versus:
			return true
		case version == "":
			if !d.hidden {
				return true
			}
		case d.version == version, d.version == "" && !d.hidden:
			return true
		}
	}
	return false
}

func (o *Object) table() *symbolTable {
	if o.symbols != nil {
		return o.symbols
	}
	t := &symbolTable{defined: make(map[string][]definition), versions: make(map[string]bool)}
	o.symbols = t
	if defs, err := o.File.ELF.DynamicVersions(); err == nil {
		for _, d := range defs {
			t.versus = true
			t.versions[d.Name] = true
		}
	}
	syms, err := o.File.ELF.DynamicSymbols()
	if err != nil {
		return t // it defines nothing
	}
	for i := range syms {
		s := &syms[i]
		bind, vis := elf.ST_BIND(s.Info), elf.ST_VISIBILITY(s.Other)
		if s.Section == elf.SHN_UNDEF || bind == elf.STB_LOCAL || vis == elf.STV_HIDDEN || vis == elf.STV_INTERNAL {
			continue
		}
		t.defined[s.Name] = append(t.defined[s.Name], definition{
			version: s.Version, hidden: s.HasVersion && s.VersionIndex.IsHidden(), typ: elf.ST_TYPE(s.Info),
			weak: bind == elf.STB_WEAK, value: s.Value, size: s.Size,
		})
	}
	return t
}
