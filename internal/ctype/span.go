package ctype

import (
	"bytes"
	"debug/dwarf"
	"strings"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// base is a base class of a class.
type base struct {
	off int64
	typ dwarf.Offset
}

// class is what debug/dwarf leaves out of a structure.
type class struct {
	bases []base
	elem  dwarf.Offset // its first type parameter
	byRef bool
}

// What one function's types may need.
const (
	maxClasses = 2048
	passByRef  = 4 // DW_CC_pass_by_reference (DWARF 5, table 7.18)
)

// visit reads bases and parameters of the classes that a type consists of or points to. It reports whether the type itself, or a part
// of it, is not copied by its bytes.
func (b *builder) visit(off dwarf.Offset, depth int) (byRef bool) {
	if byRef, ok := b.visited[off]; ok {
		return byRef
	}
	if depth > 3*maxDepth || len(b.visited) >= maxClasses {
		return false
	}
	b.visited[off] = false
	r := b.d.Reader()
	r.Seek(off)
	e, err := r.Next()
	if err != nil || e == nil {
		return false
	}
	switch e.Tag {
	case dwarf.TagPointerType, dwarf.TagReferenceType, dwarf.TagRvalueReferenceType, dwarf.TagConstType, dwarf.TagVolatileType, dwarf.TagTypedef, dwarf.TagArrayType:
		if to, ok := e.Val(dwarf.AttrType).(dwarf.Offset); ok {
			v := b.visit(to, depth+1)
			byRef = v && e.Tag != dwarf.TagPointerType && e.Tag != dwarf.TagReferenceType && e.Tag != dwarf.TagRvalueReferenceType
		}
		b.visited[off] = byRef
		return byRef
	case dwarf.TagStructType, dwarf.TagClassType:
	default:
		return false
	}
	t, err := b.d.Type(off)
	st, ok := t.(*dwarf.StructType)
	if err != nil || !ok {
		return false
	}
	var c class
	if v, ok := e.Val(dwarf.AttrCalling).(int64); ok {
		c.byRef = v == passByRef
	}
	name, _, _ := strings.Cut(st.StructName, "<")
	for e.Children {
		k, err := r.Next()
		if err != nil || k == nil || k.Tag == 0 {
			break
		}
		to, typed := k.Val(dwarf.AttrType).(dwarf.Offset)
		switch {
		case k.Tag == dwarf.TagSubprogram:
			c.byRef = b.wroteCopy(k, name, off) || c.byRef
		case !typed:
		case k.Tag == dwarf.TagInheritance:
			c.byRef = b.visit(to, depth+1) || c.byRef
			at, fixed := k.Val(dwarf.AttrDataMemberLoc).(int64)
			if fixed && len(c.bases) < 64 { // virtual bases have no fixed place
				c.bases = append(c.bases, base{at, to})
			}
			c.byRef = c.byRef || !fixed
		case k.Tag == dwarf.TagTemplateTypeParameter:
			b.visit(to, depth+1)
			if c.elem == 0 {
				c.elem = to
			}
		case k.Tag == dwarf.TagMember:
			v := b.visit(to, depth+1)
			mname, _ := k.Val(dwarf.AttrName).(string)
			c.byRef = c.byRef || v || strings.HasPrefix(mname, "_vptr")
		}
		if k.Children {
			r.SkipChildren()
		}
	}
	c.byRef = c.byRef && b.lang != langRust
	b.classes[st] = c
	b.visited[off] = c.byRef
	return c.byRef
}

// wroteCopy reports whether a member function makes its class one that is not copied by its bytes: a destructor, or a constructor from
// another object of the class, that the program wrote (Itanium C++ ABI, section 1.1, non-trivial for the purposes of calls).
func (b *builder) wroteCopy(fn *dwarf.Entry, class string, off dwarf.Offset) bool {
	name, _ := fn.Val(dwarf.AttrName).(string)
	artificial, _ := fn.Val(dwarf.AttrArtificial).(bool)
	if class == "" || artificial || fn.Val(dwarf.AttrDefaulted) != nil || fn.Val(dwarf.AttrDeleted) != nil || strings.TrimPrefix(name, "~") != class {
		return false
	}
	if name[0] == '~' {
		return true
	}
	r := b.d.Reader()
	r.Seek(fn.Offset)
	if _, err := r.Next(); err != nil || !fn.Children {
		return false
	}
	for i := 0; ; i++ {
		k, err := r.Next()
		if err != nil || k == nil || k.Tag != dwarf.TagFormalParameter {
			return false
		}
		if to, ok := k.Val(dwarf.AttrType).(dwarf.Offset); ok && i == 1 {
			return b.referred(to) == off
		}
		if k.Children {
			r.SkipChildren()
		}
	}
}

// referred is the type that a reference is to, 0 for a type that is none.
func (b *builder) referred(off dwarf.Offset) dwarf.Offset {
	reference := false
	for range 4 {
		r := b.d.Reader()
		r.Seek(off)
		e, err := r.Next()
		if err != nil || e == nil {
			return 0
		}
		switch e.Tag {
		case dwarf.TagReferenceType, dwarf.TagRvalueReferenceType:
			reference = true
		case dwarf.TagConstType:
		default:
			if reference {
				return off
			}
			return 0
		}
		to, ok := e.Val(dwarf.AttrType).(dwarf.Offset)
		if !ok {
			return 0
		}
		off = to
	}
	return 0
}

// inherit puts the members of base classes, which have some, in front of a class's own.
func (b *builder) inherit(s *Type, c *class) {
	var list []Field
	for _, x := range c.bases {
		t, err := b.d.Type(x.typ)
		if err != nil {
			continue
		}
		r := b.of(t)
		if bt := b.table.Get(r); len(bt.Fields) > 0 && x.off >= 0 {
			list = append(list, Field{Name: bt.Name, Off: x.off, Type: r})
		}
	}
	s.Fields = append(list, s.Fields...)
}

func (t *Type) field(name string) *Field {
	for i := range t.Fields {
		if t.Fields[i].Name == name {
			return &t.Fields[i]
		}
	}
	return nil
}

// address finds the first pointer in a type.
func (t *Table) address(x *Type, at int64, depth int) (off int64, elem Ref, ok bool) {
	if depth > maxDepth {
		return 0, 0, false
	}
	if x.Kind == KindPointer {
		return at, x.Elem, true
	}
	if x.Kind == KindStruct {
		for _, f := range x.Fields {
			if off, elem, ok = t.address(t.Get(f.Type), at+f.Off, depth+1); ok {
				return off, elem, ok
			}
		}
	}
	return 0, 0, false
}

// span recognises the texts and lists of the libraries of C++, Go and Rust by the names of the types and of their members.
func (b *builder) span(s *Type, c *class) *Span {
	t := b.table
	two := func(ptr, n string) *Span {
		p, l := s.field(ptr), s.field(n)
		if p == nil || l == nil || t.Get(p.Type).Kind != KindPointer || t.Get(l.Type).Size != 8 {
			return nil
		}
		return &Span{Ptr: p.Off, Len: l.Off, Elem: t.Get(p.Type).Elem}
	}
	text := func(x *Span) *Span {
		if x != nil {
			x.Text = true
		}
		return x
	}
	switch name := s.Name; {
	case name == "string": // Go
		return text(two("str", "len"))
	case strings.HasPrefix(name, "[]"):
		return two("array", "len")
	case name == "&str", name == "&mut str": // Rust
		return text(two("data_ptr", "length"))
	case strings.HasPrefix(name, "&[") || strings.HasPrefix(name, "&mut ["):
		return two("data_ptr", "length")
	case name == "String":
		if f := s.field("vec"); f != nil && f.Off == 0 {
			if v := t.Get(f.Type).Span; v != nil {
				x := *v
				return text(&x)
			}
		}
	case strings.HasPrefix(name, "Vec<"):
		buf, n := s.field("buf"), s.field("len")
		if buf == nil || n == nil || c.elem == 0 {
			return nil
		}
		if off, _, ok := t.address(t.Get(buf.Type), buf.Off, 0); ok {
			return &Span{Ptr: off, Len: n.Off, Elem: b.ref(c.elem)}
		}
	case strings.HasPrefix(name, "basic_string<char,"): // libstdc++
		p, n := s.field("_M_dataplus"), s.field("_M_string_length")
		switch {
		case p != nil && n != nil:
			return &Span{Ptr: p.Off, Len: n.Off, Text: true}
		case p != nil && s.Size == 8: // the ABI before C++11 has its length before the text
			return &Span{Ptr: p.Off, Len: -1, Text: true}
		}
	case strings.HasPrefix(name, "basic_string_view<char,"):
		if x := text(two("_M_str", "_M_len")); x != nil {
			return x
		}
		return text(two("__data_", "__size_"))
	case strings.HasPrefix(name, "vector<") && !strings.HasPrefix(name, "vector<bool") && s.Size == 24:
		if off, elem, ok := t.address(s, 0, 0); ok && off == 0 {
			return &Span{Len: 8, End: true, Elem: elem}
		}
	}
	return nil
}

// most is how many bytes of a span's elements are taken.
func (t *Table) most(s *Span) uint32 {
	return uint32(min(maxShown*t.Get(s.Elem).Size, maxTaken))
}

// fetch is what a span needs; at gives a number at an offset of the structure.
func (t *Table) fetch(s *Span, at func(off int64) (syscalls.Number, bool)) (f syscalls.Fetch, ok bool) {
	if f.Base, ok = at(s.Ptr); !ok {
		return f, false
	}
	if s.Len < 0 {
		f.Kind = syscalls.FetchString
		return f, true
	}
	f.Kind = syscalls.FetchBytes
	f.Len.Number, ok = at(s.Len)
	if s.Text {
		return f, ok
	}
	size := t.Get(s.Elem).Size
	if size <= 0 || size > maxTaken {
		return f, false
	}
	f.Len.Elem, f.Len.Max = uint16(size), t.most(s)
	if s.End {
		f.Len = syscalls.Length{Number: syscalls.Const(int(f.Len.Max)), Max: f.Len.Max}
	}
	return f, ok
}

// InSlots lists the memory that a structure needs which stands in slots: slot gives that of the word at an offset.
func (t *Table) InSlots(r Ref, slot func(off int64) (int, bool)) []syscalls.Fetch {
	return t.inSlots(t.Get(r), 0, 0, slot, nil)
}

func (t *Table) inSlots(x *Type, at int64, depth int, slot func(off int64) (int, bool), list []syscalls.Fetch) []syscalls.Fetch {
	if x.Kind != KindStruct || depth > maxDepth || len(list) >= maxTexts {
		return list
	}
	if x.Span != nil {
		f, ok := t.fetch(x.Span, func(off int64) (syscalls.Number, bool) {
			n, ok := slot(at + off)
			return syscalls.Arg(n), ok
		})
		if ok {
			list = append(list, f)
		}
		return list
	}
	for _, f := range x.Fields {
		if f.Bits == 0 {
			list = t.inSlots(t.Get(f.Type), at+f.Off, depth+1, slot, list)
		}
	}
	return list
}

// spans lists the spans in an object that was taken up to n bytes, as fetch number first.
func (t *Table) spans(e *Type, at, n int64, first, depth int, list []syscalls.Fetch) []syscalls.Fetch {
	if depth > maxDepth || len(list) > maxTexts || e.Kind != KindStruct {
		return list
	}
	if e.Span != nil {
		f, ok := t.fetch(e.Span, func(off int64) (syscalls.Number, bool) {
			return syscalls.Mem(first, int(at+off), 8), at+off >= 0 && at+off+8 <= n
		})
		if ok {
			list = append(list, f)
		}
		return list
	}
	for _, f := range e.Fields {
		if f.Bits == 0 {
			list = t.spans(t.Get(f.Type), at+f.Off, n, first, depth+1, list)
		}
	}
	return list
}

// held shows what a structure with a span holds.
func (r *Reader) held(s *Span, data []byte, depth int) {
	word := func(off int64) (uint64, bool) {
		if off < 0 || off+8 > int64(len(data)) {
			return 0, false
		}
		return number(data[off:], 8), true
	}
	addr, ok := word(s.Ptr)
	if !ok {
		r.unread("beyond what was taken")
		return
	}
	e := r.Table.Get(s.Elem)
	n := uint64(0)
	if s.Len >= 0 {
		if n, ok = word(s.Len); !ok {
			r.unread("beyond what was taken")
			return
		}
	}
	if s.End {
		if e.Size <= 0 || n < addr || (n-addr)%uint64(e.Size) != 0 {
			r.unread("not made yet")
			return
		}
		n = (n - addr) / uint64(e.Size)
	}
	var mem []byte
	var flags uint16
	if n > 0 || s.Len < 0 {
		b, fl, errno, found := r.Find(addr)
		if !found || errno != 0 {
			r.Add(event.Node{Kind: event.KindUnreadable, Num: addr, Errno: errno})
			return
		}
		mem, flags = b, fl
	}
	raw := !s.Text && e.Size == 1 && (e.Kind == KindChar || e.Kind == KindInt && !e.Signed)
	switch {
	case s.Text && s.Len < 0:
		// Of elements of a list no text is taken: what is found is memory that was taken for something else.
		t, ended := upToNUL(mem)
		r.text(t, !ended && (r.listed || flags&wire.SegCut != 0))
	case s.Text || raw:
		node := event.Node{Kind: event.KindString, Data: mem[:min(uint64(len(mem)), n)]}
		if raw {
			node.Kind = event.KindBytes
		}
		if r.Limit > 0 && len(node.Data) > r.Limit {
			node.Data = node.Data[:r.Limit]
		}
		if uint64(len(node.Data)) < n {
			node.Attr, node.Num = event.AttrTruncated, n
		}
		r.Add(node)
	case e.Size <= 0:
		r.unread("of elements that are not described")
	default:
		r.Array()
		was := r.listed
		r.listed = true
		for i := int64(0); uint64(i) < n; i++ {
			if i == maxShown || (i+1)*e.Size > int64(len(mem)) || depth > maxDepth {
				r.More()
				break
			}
			r.show(e, mem[i*e.Size:(i+1)*e.Size], depth+1)
		}
		r.listed = was
		r.End()
	}
}

// upToNUL cuts a text at its end: the longest copy of its memory may be one of something larger.
func upToNUL(b []byte) (text []byte, ended bool) {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i], true
	}
	return b, false
}
