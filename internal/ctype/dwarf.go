package ctype

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"strings"
)

// Func is a function as debug data describe it.
type Func struct {
	Name   string
	Params []Param
	Ret    Ref // 0: void
	Entry  uint64
	// Body is the address behind the prologue, where parameters that live in memory are there; 0 when it is not known.
	Body     uint64
	Variadic bool
	Language int64 // DW_LANG_*
	// Movable is set for optimised code of LLVM: what passes the arguments of a function that only its file knows may differ from the
	// convention.
	Movable bool
}

// Param is one parameter.
type Param struct {
	Name string
	Type Ref
	// FrameOffset is where it lives once the function has begun, from the canonical frame address, when InFrame is set.
	FrameOffset int64
	InFrame     bool
}

// ErrNoFunc says that debug data do not describe a function.
var ErrNoFunc = errors.New("its debug data do not describe it")

// builder turns the types of debug data into a table.
type builder struct {
	d     *dwarf.Data
	table *Table
	seen  map[dwarf.Type]Ref
	lang  int64
	// classes and visited are what visit found and where it was.
	classes map[*dwarf.StructType]class
	visited map[dwarf.Offset]bool
	// open are the types that are being made, copies those that were copied from one of them too early.
	open   map[Ref]bool
	copies []copied
	nested int // references to references
}

type copied struct {
	to, from Ref
	name     string
}

// FindFunc describes the function that begins at an address of the file whose debug data d are. Types are added to table.
func FindFunc(d *dwarf.Data, addr uint64, table *Table) (f *Func, err error) {
	defer func() {
		if recover() != nil { // debug/dwarf panics on some malformed data
			f, err = nil, fmt.Errorf("its debug data are malformed")
		}
	}()
	if len(table.Types) == 0 {
		table.Types = append(table.Types, Type{Name: "void"})
	}
	r := d.Reader()
	cu, err := r.SeekPC(addr)
	if err != nil {
		return nil, ErrNoFunc
	}
	b := &builder{d: d, table: table, seen: make(map[dwarf.Type]Ref), classes: make(map[*dwarf.StructType]class), visited: make(map[dwarf.Offset]bool), open: make(map[Ref]bool)}
	defer b.settle()
	e, err := findEntry(r, addr)
	if err != nil {
		return nil, err
	}
	f = &Func{Entry: addr}
	f.Language, _ = cu.Val(dwarf.AttrLanguage).(int64)
	b.lang = f.Language
	producer, _ := cu.Val(dwarf.AttrProducer).(string)
	llvm := strings.Contains(producer, "clang") || strings.Contains(producer, "LLVM")
	f.Body = body(d, cu, addr)
	frameCFA := isCallFrameCFA(e.Val(dwarf.AttrFrameBase))
	origin := b.origin(e)
	f.Name, _ = origin.Val(dwarf.AttrName).(string)
	if off, ok := origin.Val(dwarf.AttrType).(dwarf.Offset); ok {
		f.Ret = b.ref(off)
	}
	if !e.Children {
		return f, nil
	}
	r.Seek(e.Offset)
	if _, err := r.Next(); err != nil {
		return nil, err
	}
	for {
		c, err := r.Next()
		if err != nil || c == nil || c.Tag == 0 {
			return f, err
		}
		switch c.Tag {
		case dwarf.TagFormalParameter:
			if len(f.Params) == maxFields {
				return nil, fmt.Errorf("more than %d parameters", maxFields)
			}
			o := b.origin(c)
			if result, _ := o.Val(dwarf.AttrVarParam).(bool); result && f.Go() {
				break
			}
			p := Param{}
			p.Name, _ = o.Val(dwarf.AttrName).(string)
			if off, ok := o.Val(dwarf.AttrType).(dwarf.Offset); ok {
				p.Type = b.ref(off)
			}
			if expr, ok := c.Val(dwarf.AttrLocation).([]byte); ok && frameCFA {
				p.FrameOffset, p.InFrame = frameOffset(expr)
			}
			if _, fixed := c.Val(dwarf.AttrLocation).([]byte); !fixed && llvm {
				f.Movable = true
			}
			f.Params = append(f.Params, p)
		case dwarf.TagUnspecifiedParameters:
			f.Variadic = true
		}
		if c.Children {
			r.SkipChildren()
		}
	}
}

// findEntry looks in the unit that r is in for the function that begins at addr. Functions are in namespaces and classes too.
func findEntry(r *dwarf.Reader, addr uint64) (*dwarf.Entry, error) {
	for depth := 1; depth > 0; {
		e, err := r.Next()
		if err != nil {
			return nil, err
		}
		if e == nil {
			break
		}
		switch e.Tag {
		case 0:
			depth--
			continue
		case dwarf.TagSubprogram:
			if low, ok := e.Val(dwarf.AttrLowpc).(uint64); ok && low == addr {
				return e, nil
			}
		case dwarf.TagNamespace, dwarf.TagClassType, dwarf.TagStructType, dwarf.TagModule:
			if e.Children {
				depth++
			}
			continue
		case dwarf.TagCompileUnit:
			return nil, ErrNoFunc // the next one
		}
		if e.Children {
			r.SkipChildren()
		}
	}
	return nil, ErrNoFunc
}

// origin is the entry that says what an instance or a definition leaves out: its abstract origin or its declaration.
func (b *builder) origin(e *dwarf.Entry) *dwarf.Entry {
	for range 8 {
		off, ok := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
		if !ok {
			if off, ok = e.Val(dwarf.AttrSpecification).(dwarf.Offset); !ok {
				return e
			}
		}
		r := b.d.Reader()
		r.Seek(off)
		o, err := r.Next()
		if err != nil || o == nil {
			return e
		}
		e = o
	}
	return e
}

// body is the second address of the function in the line table, which stands behind the prologue as compilers write it (gdb does the
// same).
func body(d *dwarf.Data, cu *dwarf.Entry, addr uint64) uint64 {
	lr, err := d.LineReader(cu)
	if err != nil || lr == nil {
		return 0
	}
	var le dwarf.LineEntry
	if lr.SeekPC(addr, &le) != nil || le.Address != addr {
		return 0
	}
	for range 64 {
		if lr.Next(&le) != nil || le.EndSequence {
			return 0
		}
		if le.PrologueEnd || le.Address > addr {
			return le.Address
		}
	}
	return 0
}

// DWARF expressions (DWARF 5, section 2.5).
const (
	opFbreg        = 0x91
	opCallFrameCFA = 0x9c
)

func isCallFrameCFA(v any) bool {
	expr, ok := v.([]byte)
	return ok && len(expr) == 1 && expr[0] == opCallFrameCFA
}

// frameOffset reads DW_OP_fbreg N that stands alone.
func frameOffset(expr []byte) (int64, bool) {
	if len(expr) < 2 || expr[0] != opFbreg {
		return 0, false
	}
	var v int64
	for i, shift := 1, uint(0); i < len(expr) && shift < 64; i, shift = i+1, shift+7 {
		c := expr[i]
		v |= int64(c&0x7f) << shift
		if c&0x80 == 0 {
			if c&0x40 != 0 && shift+7 < 64 {
				v |= -1 << (shift + 7)
			}
			return v, i == len(expr)-1
		}
	}
	return 0, false
}

// ref is the number of the type at an offset of the debug data.
func (b *builder) ref(off dwarf.Offset) Ref {
	if classes(b.lang) {
		b.visit(off, 0)
		r := b.d.Reader()
		r.Seek(off)
		if e, err := r.Next(); err == nil && e != nil && (e.Tag == dwarf.TagReferenceType || e.Tag == dwarf.TagRvalueReferenceType) {
			if to, ok := e.Val(dwarf.AttrType).(dwarf.Offset); ok && b.nested < maxDepth {
				b.nested++
				defer func() { b.nested-- }()
				return b.add(Type{Kind: KindPointer, Size: 8, Elem: b.ref(to)})
			}
		}
	}
	t, err := b.d.Type(off)
	if err != nil {
		return b.add(Type{Kind: KindUnknown})
	}
	return b.of(t)
}

// settle copies again what was copied from a type that was not made yet.
func (b *builder) settle() {
	for _, c := range b.copies {
		t := *b.table.Get(c.from)
		if c.name != "" && t.Kind != KindPointer {
			t.Name = c.name
		}
		b.table.Types[c.to] = t
	}
}

func (b *builder) add(t Type) Ref {
	if len(b.table.Types) >= maxTypes {
		return -1
	}
	b.table.Types = append(b.table.Types, t)
	return Ref(len(b.table.Types) - 1)
}

// of adds a type and what it refers to. The place is taken first: structures refer to themselves.
func (b *builder) of(t dwarf.Type) Ref {
	if t == nil {
		return 0
	}
	if r, ok := b.seen[t]; ok {
		return r
	}
	r := b.add(Type{Kind: KindUnknown})
	if r < 0 {
		return r
	}
	b.seen[t] = r
	b.open[r] = true
	made := b.make(t)
	delete(b.open, r)
	b.table.Types[r] = made
	switch t := t.(type) {
	case *dwarf.TypedefType:
		if from := b.seen[t.Type]; b.open[from] {
			b.copies = append(b.copies, copied{r, from, t.Name})
		}
	case *dwarf.QualType:
		if from := b.seen[t.Type]; b.open[from] {
			b.copies = append(b.copies, copied{r, from, ""})
		}
	}
	return r
}

func sizeOf(n int64) int64 {
	if n < 0 || n > maxSize {
		return 0
	}
	return n
}

func (b *builder) make(t dwarf.Type) Type {
	name, size := t.Common().Name, sizeOf(t.Common().ByteSize)
	switch t := t.(type) {
	case *dwarf.VoidType:
		return Type{Name: "void"}
	case *dwarf.IntType:
		return Type{Kind: KindInt, Name: name, Size: size, Signed: true}
	case *dwarf.UintType:
		return Type{Kind: KindInt, Name: name, Size: size}
	case *dwarf.CharType:
		return Type{Kind: KindChar, Name: name, Size: size, Signed: true}
	case *dwarf.UcharType:
		kind := KindChar
		if name != "unsigned char" && name != "char" && name != "u8" {
			kind = KindInt
		}
		return Type{Kind: kind, Name: name, Size: size}
	case *dwarf.BoolType:
		return Type{Kind: KindBool, Name: name, Size: size}
	case *dwarf.FloatType:
		return Type{Kind: KindFloat, Name: name, Size: size}
	case *dwarf.AddrType:
		return Type{Kind: KindPointer, Name: name, Size: size}
	case *dwarf.PtrType:
		if size == 0 {
			size = 8
		}
		return Type{Kind: KindPointer, Size: size, Elem: b.of(t.Type)}
	case *dwarf.TypedefType:
		of := *b.table.Get(b.of(t.Type))
		if of.Kind != KindPointer {
			of.Name = name
		}
		return of
	case *dwarf.QualType:
		return *b.table.Get(b.of(t.Type))
	case *dwarf.ArrayType:
		count := t.Count
		if count < 0 || count > maxSize {
			count = -1
		}
		elem := b.of(t.Type)
		if size = 0; count > 0 {
			size = sizeOf(count * b.table.Get(elem).Size)
		}
		return Type{Kind: KindArray, Name: name, Size: size, Elem: elem, Count: count}
	case *dwarf.EnumType:
		e := Type{Kind: KindEnum, Name: t.EnumName, Size: size}
		for i, v := range t.Val {
			if i == maxValues {
				break
			}
			if v.Val < 0 {
				e.Signed = true
			}
			e.Values = append(e.Values, Value{v.Name, v.Val})
		}
		return e
	case *dwarf.StructType:
		kind := KindStruct
		if t.Kind == "union" {
			kind = KindUnion
		}
		s := Type{Kind: kind, Name: t.StructName, Size: size}
		if t.Incomplete {
			return s
		}
		for i, f := range t.Field {
			if i == maxFields {
				break
			}
			s.Fields = append(s.Fields, b.field(f))
		}
		c := b.classes[t]
		s.ByRef = c.byRef
		b.inherit(&s, &c)
		s.Span = b.span(&s, &c)
		return s
	case *dwarf.FuncType:
		return Type{Kind: KindFunc, Name: name}
	case *dwarf.UnsupportedType:
		switch t.Tag {
		case dwarf.TagReferenceType, dwarf.TagRvalueReferenceType:
			return Type{Kind: KindPointer, Size: 8}
		}
	}
	return Type{Kind: KindUnknown, Name: name, Size: size}
}

// field gives a bit-field by bits from a byte, in either of the ways in which DWARF has them (DWARF 5, section 5.7.6).
func (b *builder) field(f *dwarf.StructField) Field {
	out := Field{Name: f.Name, Off: f.ByteOffset, Type: b.of(f.Type)}
	if f.BitSize == 0 || f.BitSize > 64 {
		return out
	}
	out.Bits = int(f.BitSize)
	var bit int64
	switch {
	case f.DataBitOffset != 0:
		bit = f.DataBitOffset
	case f.BitOffset != 0 || f.ByteSize != 0: // from the highest bit of a storage unit
		storage := f.ByteSize
		if storage == 0 {
			storage = b.table.Get(out.Type).Size
		}
		bit = f.ByteOffset*8 + storage*8 - f.BitOffset - f.BitSize
	default:
		bit = f.ByteOffset * 8
	}
	out.Off, out.BitOff = bit/8, int(bit%8)
	return out
}
