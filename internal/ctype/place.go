package ctype

// Piece is eight bytes, or less, of an argument.
type Piece struct {
	Reg     int   // number of the integer argument register, counted from 0; -1: not in one
	Stack   int64 // bytes above the stack pointer at the function's entry, when InStack is set; for arm64 from the stack pointer itself
	InStack bool
	Vector  bool  // in a vector register, which the kernel does not give to a probe
	Off     int64 // of the piece in the argument
}

// Place is where an argument is when a function is entered.
type Place struct {
	Pieces []Piece
	// Pointer is set when what is passed is the address of a copy.
	Pointer bool
	// Unknown is set when the convention of the language does not tell.
	Unknown bool
}

// Unreadable reports whether a part of the argument cannot be read.
func (p *Place) Unreadable() bool {
	for _, x := range p.Pieces {
		if x.Vector {
			return true
		}
	}
	return false
}

// convention counts registers and stack as arguments are given out.
type convention struct {
	t        *Table
	arch     string
	regs     int // integer registers taken
	vectors  int
	stack    int64
	intRegs  int
	vecRegs  int
	retSpace bool
}

// Places gives the places of all parameters: System V psABI for AMD64, section 3.2.3; AAPCS64, section 6.8.2.
func Places(t *Table, f *Func, arch string) []Place {
	switch {
	case f.Go():
		return goPlaces(t, f, arch)
	case f.Language == langRust:
		return rustPlaces(t, f, arch)
	}
	return cPlaces(t, f, arch)
}

func newConvention(t *Table, f *Func, arch string) *convention {
	c := &convention{t: t, arch: arch, intRegs: 6, vecRegs: 8}
	if arch == "arm64" {
		c.intRegs = 8
	} else {
		c.stack = 8 // the return address
		if r := t.Get(f.Ret); (r.Kind == KindStruct || r.Kind == KindUnion) && (r.Size > 16 || r.Size == 0 || r.ByRef) {
			c.regs = 1 // the address of the result comes first
		}
	}
	return c
}

func cPlaces(t *Table, f *Func, arch string) []Place {
	c := newConvention(t, f, arch)
	out := make([]Place, len(f.Params))
	for i := range f.Params {
		out[i] = c.place(t.Get(f.Params[i].Type))
	}
	return out
}

func (c *convention) onStack(size, align int64) Place {
	if align < 8 {
		align = 8
	}
	c.stack = (c.stack-c.base()+align-1)&^(align-1) + c.base()
	p := Place{}
	for off := int64(0); off < size || off == 0; off += 8 {
		p.Pieces = append(p.Pieces, Piece{Reg: -1, InStack: true, Stack: c.stack + off, Off: off})
	}
	c.stack += (size + 7) &^ 7
	return p
}

func (c *convention) base() int64 {
	if c.arch == "arm64" {
		return 0
	}
	return 8
}

func (c *convention) integer() Piece {
	if c.regs < c.intRegs {
		c.regs++
		return Piece{Reg: c.regs - 1}
	}
	p := Piece{Reg: -1, InStack: true, Stack: c.stack}
	c.stack += 8
	return p
}

func (c *convention) place(t *Type) Place {
	if t.ByRef { // Itanium C++ ABI, section 3.1.2.3
		return Place{Pieces: []Piece{c.integer()}, Pointer: true}
	}
	switch t.Kind {
	case KindFloat:
		if t.Size > 8 && c.arch == "amd64" {
			return c.onStack(16, 16)
		}
		if c.vectors < c.vecRegs {
			c.vectors++
			return Place{Pieces: []Piece{{Reg: -1, Vector: true}}}
		}
		return c.onStack(8, 8)
	case KindStruct, KindUnion, KindArray:
		return c.aggregate(t)
	case KindInt:
		if t.Size == 16 {
			return c.words(2)
		}
	}
	return Place{Pieces: []Piece{c.integer()}}
}

// words takes n registers, or all from the stack.
func (c *convention) words(n int) Place {
	if c.regs+n > c.intRegs {
		if c.arch == "arm64" {
			c.regs = c.intRegs // none is used behind one that did not fit
		}
		return c.onStack(int64(8*n), 8)
	}
	p := Place{}
	for i := range n {
		x := c.integer()
		x.Off = int64(8 * i)
		p.Pieces = append(p.Pieces, x)
	}
	return p
}

func (c *convention) aggregate(t *Type) Place {
	if t.Size == 0 {
		return Place{Pieces: []Piece{c.integer()}} // of a type that is not described
	}
	if c.arch == "arm64" {
		if n := c.homogeneous(t); n > 0 {
			p := Place{}
			if c.vectors+n <= c.vecRegs {
				c.vectors += n
				for range n {
					p.Pieces = append(p.Pieces, Piece{Reg: -1, Vector: true})
				}
				return p
			}
			c.vectors = c.vecRegs
			return c.onStack(t.Size, 8)
		}
		if t.Size > 16 {
			return Place{Pieces: []Piece{c.integer()}, Pointer: true}
		}
		return c.words(int(t.Size+7) / 8)
	}
	if t.Size > 16 {
		return c.onStack(t.Size, 8)
	}
	// Each eightbyte is an integer unless all in it are floats.
	n := int(t.Size+7) / 8
	integer := [2]bool{}
	c.classify(t, 0, &integer, 0)
	ints, vecs := 0, 0
	for i := range n {
		if integer[i] {
			ints++
		} else {
			vecs++
		}
	}
	if c.regs+ints > c.intRegs || c.vectors+vecs > c.vecRegs {
		return c.onStack(t.Size, 8)
	}
	p := Place{}
	for i := range n {
		x := Piece{Reg: -1, Vector: true}
		if integer[i] {
			x = c.integer()
		} else {
			c.vectors++
		}
		x.Off = int64(8 * i)
		p.Pieces = append(p.Pieces, x)
	}
	return p
}

// classify marks the eightbytes that hold something other than a float.
func (c *convention) classify(t *Type, at int64, integer *[2]bool, depth int) {
	switch {
	case depth > 16 || at < 0 || at >= 16:
	case t.Kind == KindStruct || t.Kind == KindUnion:
		for _, f := range t.Fields {
			if f.Bits > 0 {
				integer[min((at+f.Off)/8, 1)] = true
				continue
			}
			c.classify(c.t.Get(f.Type), at+f.Off, integer, depth+1)
		}
	case t.Kind == KindArray:
		e := c.t.Get(t.Elem)
		for i := int64(0); i < t.Count && e.Size > 0 && at+i*e.Size < 16; i++ {
			c.classify(e, at+i*e.Size, integer, depth+1)
		}
	case t.Kind != KindFloat || t.Size > 8:
		integer[at/8] = true
	}
}

// homogeneous is the number of members of an aggregate of one to four floats of one size, else 0.
func (c *convention) homogeneous(t *Type) int {
	size, n := int64(0), 0
	var walk func(t *Type, depth int) bool
	walk = func(t *Type, depth int) bool {
		switch {
		case depth > 8 || n > 4:
			return false
		case t.Kind == KindStruct:
			for _, f := range t.Fields {
				if f.Bits > 0 || !walk(c.t.Get(f.Type), depth+1) {
					return false
				}
			}
			return true
		case t.Kind == KindArray:
			for range min(max(t.Count, 0), 5) {
				if !walk(c.t.Get(t.Elem), depth+1) {
					return false
				}
			}
			return t.Count > 0
		case t.Kind == KindFloat && (size == 0 || size == t.Size):
			size = t.Size
			n++
			return true
		}
		return false
	}
	if !walk(t, 0) || n == 0 || n > 4 {
		return 0
	}
	return n
}
