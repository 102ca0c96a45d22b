package ctype

import (
	"math"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// maxTaken bounds what is taken of one object behind a pointer, maxTexts the texts that its members point to.
const (
	maxTaken = 1024
	maxTexts = 6
	maxDepth = 8  // of structures within structures
	maxShown = 32 // elements of an array
)

// Fetches lists the memory that a value needs which stands in one slot of a record: what a pointer points to, and the texts that
// members of that point to. first is how many fetches come before these in the list.
func (t *Table) Fetches(r Ref, slot, first int) (list []syscalls.Fetch) {
	p := t.Get(r)
	if p.Kind != KindPointer {
		return nil
	}
	e := t.Get(p.Elem)
	switch e.Kind {
	case KindChar:
		return []syscalls.Fetch{syscalls.Str(slot)}
	case KindVoid, KindFunc, KindUnknown:
		return nil
	case KindPointer:
		if t.Get(e.Elem).Kind == KindChar {
			return []syscalls.Fetch{syscalls.Fixed(slot, 8), {Kind: syscalls.FetchString, Base: syscalls.Mem(first, 0, 8)}}
		}
	}
	return t.Object(p.Elem, slot, first)
}

// Object lists the memory of an object whose address is in a slot.
func (t *Table) Object(r Ref, slot, first int) (list []syscalls.Fetch) {
	e := t.Get(r)
	if e.Size <= 0 {
		return nil
	}
	n := min(e.Size, maxTaken)
	list = append(list, syscalls.Fixed(slot, int(n)))
	list = t.spans(e, 0, n, first, 0, list)
	for _, off := range t.texts(e, 0, 0, nil) {
		if off+8 <= n && len(list) <= maxTexts {
			list = append(list, syscalls.Fetch{Kind: syscalls.FetchString, Base: syscalls.Mem(first, int(off), 8)})
		}
	}
	return list
}

// texts lists the offsets of pointers to characters in an object.
func (t *Table) texts(e *Type, at int64, depth int, list []int64) []int64 {
	if depth > maxDepth || len(list) >= maxTexts {
		return list
	}
	switch e.Kind {
	case KindPointer:
		if t.Get(e.Elem).Kind == KindChar && at >= 0 && at < 1<<15 {
			list = append(list, at)
		}
	case KindStruct:
		if e.Span != nil {
			return list
		}
		for _, f := range e.Fields {
			if f.Bits == 0 {
				list = t.texts(t.Get(f.Type), at+f.Off, depth+1, list)
			}
		}
	}
	return list
}

// Reader shows values from the memory of one record. It is used by one goroutine.
type Reader struct {
	Table *Table
	// Find returns the memory that was taken at an address, as wire.Segments.Find does.
	Find  func(addr uint64) (data []byte, flags, errno uint16, found bool)
	Limit int // bytes of text to show; 0: all
	*event.Builder
	listed bool // elements of a list are shown
}

// Show adds the value whose bytes are in data.
func (r *Reader) Show(ref Ref, data []byte) { r.show(r.Table.Get(ref), data, 0) }

func (r *Reader) unread(reason string) {
	r.Add(event.Node{Kind: event.KindUnreadable, Sym: reason})
}

func (r *Reader) show(t *Type, data []byte, depth int) {
	if t.Size > 0 && int64(len(data)) < t.Size && t.Kind != KindStruct && t.Kind != KindUnion && t.Kind != KindArray {
		r.unread("beyond what was taken")
		return
	}
	switch t.Kind {
	case KindInt, KindEnum, KindChar, KindBool:
		if t.Size > 8 {
			r.Add(event.Node{Kind: event.KindBytes, Data: data[:t.Size]})
			return
		}
		r.number(t, number(data, t.Size))
	case KindFloat:
		switch t.Size {
		case 4:
			r.Add(event.Node{Kind: event.KindFloat, Attr: event.AttrSingle, Num: math.Float64bits(float64(math.Float32frombits(uint32(number(data, 4)))))})
		case 8:
			r.Add(event.Node{Kind: event.KindFloat, Num: number(data, 8)})
		default:
			r.Add(event.Node{Kind: event.KindBytes, Data: data[:min(t.Size, int64(len(data)))]})
		}
	case KindPointer:
		r.pointer(t, number(data, min(t.Size, 8)), depth)
	case KindStruct, KindUnion:
		if t.Span != nil {
			r.held(t.Span, data, depth)
			return
		}
		r.structure(t, data, depth)
	case KindArray:
		r.array(t, data, depth)
	case KindVoid:
		r.Sym("void", 0)
	default:
		if len(data) == 0 || t.Size <= 0 {
			r.unread("of a type that is not described")
			return
		}
		r.Add(event.Node{Kind: event.KindBytes, Data: data[:min(t.Size, int64(len(data)))]})
	}
}

// number reads n bytes, little-endian.
func number(b []byte, n int64) (v uint64) {
	for i := min(n, int64(len(b)), 8) - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v
}

func signed(v uint64, size int64) int64 {
	if size <= 0 || size >= 8 {
		return int64(v)
	}
	shift := 64 - 8*uint(size)
	return int64(v<<shift) >> shift
}

func (r *Reader) number(t *Type, v uint64) {
	switch t.Kind {
	case KindBool:
		r.Add(event.Node{Kind: event.KindBool, Num: v})
	case KindChar:
		r.Add(event.Node{Kind: event.KindChar, Num: v & 0xff})
	case KindEnum:
		n := int64(v)
		if t.Signed {
			n = signed(v, t.Size)
		}
		for _, x := range t.Values {
			if x.Num == n {
				r.Add(event.Node{Kind: event.KindSym, Data: []byte(x.Name), Num: v})
				return
			}
		}
		r.flags(t, v)
	default:
		if t.Signed {
			r.Int(signed(v, t.Size))
		} else {
			r.Uint(v)
		}
	}
}

// flags shows the number of an enumeration that has no name for it: as several of its names together when they are bits, else as
// the number.
func (r *Reader) flags(t *Type, v uint64) {
	rest := v
	for _, x := range t.Values {
		if n := uint64(x.Num); n != 0 && n&(n-1) == 0 {
			rest &^= n
		}
	}
	if rest != 0 || v == 0 {
		r.Int(signed(v, t.Size))
		return
	}
	r.Begin(event.Node{Kind: event.KindFlags, Num: v})
	for _, x := range t.Values {
		if n := uint64(x.Num); n != 0 && n&(n-1) == 0 && v&n != 0 {
			r.Add(event.Node{Kind: event.KindSym, Data: []byte(x.Name), Num: n})
		}
	}
	r.End()
}

// pointer shows what was taken of the memory at addr, or the address.
func (r *Reader) pointer(t *Type, addr uint64, depth int) {
	e := r.Table.Get(t.Elem)
	if addr == 0 {
		r.Ptr(0)
		return
	}
	data, flags, errno, found := r.Find(addr)
	switch {
	case e.Kind == KindVoid || e.Kind == KindFunc || e.Kind == KindUnknown || !found || depth > maxDepth:
		r.Ptr(addr)
	case errno != 0:
		r.Add(event.Node{Kind: event.KindUnreadable, Num: addr, Errno: errno})
	case e.Kind == KindChar:
		text, ended := upToNUL(data)
		r.text(text, !ended && flags&wire.SegCut != 0)
	case depth > 0:
		r.Ptr(addr) // one step is followed, and text behind it
	case e.Kind == KindStruct || e.Kind == KindUnion || e.Kind == KindArray:
		r.show(e, data, depth+1)
	case e.Size > 0 && int64(len(data)) >= e.Size:
		// As strace shows what a pointer to a number points to.
		r.Array()
		r.show(e, data, depth+1)
		r.End()
	default:
		r.Ptr(addr)
	}
}

func (r *Reader) text(data []byte, cut bool) {
	n := event.Node{Kind: event.KindString, Data: data}
	if r.Limit > 0 && len(data) > r.Limit {
		n.Data, cut = data[:r.Limit], true
	}
	if cut {
		n.Attr, n.Num = event.AttrTruncated, uint64(len(data))
	}
	r.Add(n)
}

func (r *Reader) structure(t *Type, data []byte, depth int) {
	if len(t.Fields) == 0 && (t.Size == 0 || t.Size > 1) { // enumerations of Rust are such
		r.unread("of a type that is not described")
		return
	}
	r.Struct()
	for i := range t.Fields {
		f := &t.Fields[i]
		r.Field(f.Name)
		ft := r.Table.Get(f.Type)
		switch {
		case depth > maxDepth:
			r.More()
		case f.Off < 0 || f.Off >= int64(len(data)) && (ft.Size > 0 || f.Bits > 0):
			r.unread("beyond what was taken")
		case f.Bits > 0:
			r.bits(f, ft, data)
		default:
			end := int64(len(data))
			if ft.Size > 0 {
				end = min(end, f.Off+ft.Size)
			}
			r.show(ft, data[min(f.Off, end):end], depth+1)
		}
	}
	r.End()
}

func (r *Reader) bits(f *Field, t *Type, data []byte) {
	n := int64(f.BitOff+f.Bits+7) / 8
	if f.Off+n > int64(len(data)) || n > 9 {
		r.unread("beyond what was taken")
		return
	}
	v := number(data[f.Off:], 8) >> f.BitOff
	if n == 9 {
		v |= uint64(data[f.Off+8]) << (64 - f.BitOff)
	}
	if f.Bits < 64 {
		v &= 1<<f.Bits - 1
	}
	if t.Signed && f.Bits < 64 && t.Kind == KindInt {
		v = uint64(int64(v<<(64-f.Bits)) >> (64 - f.Bits))
		r.Int(int64(v))
		return
	}
	r.number(&Type{Kind: t.Kind, Size: 8, Signed: t.Signed, Values: t.Values}, v)
}

func (r *Reader) array(t *Type, data []byte, depth int) {
	e := r.Table.Get(t.Elem)
	if e.Kind == KindChar && e.Size == 1 {
		if t.Count >= 0 {
			data = data[:min(t.Count, int64(len(data)))]
		}
		cut := int64(len(data)) < t.Count
		for i, c := range data {
			if c == 0 {
				data, cut = data[:i], false
				break
			}
		}
		r.text(data, cut)
		return
	}
	if e.Size <= 0 || t.Count < 0 {
		r.unread("of a length that is not known")
		return
	}
	r.Array()
	for i := range t.Count {
		if i == maxShown || (i+1)*e.Size > int64(len(data)) || depth > maxDepth {
			r.More()
			break
		}
		r.show(e, data[i*e.Size:(i+1)*e.Size], depth+1)
	}
	r.End()
}

// Describe gives the C notation of a type, for people.
func (t *Table) Describe(r Ref) string { return t.describe(r, 0) }

func (t *Table) describe(r Ref, depth int) string {
	x := t.Get(r)
	if depth > maxDepth {
		return "…"
	}
	switch x.Kind {
	case KindPointer:
		return t.describe(x.Elem, depth+1) + "*"
	case KindStruct, KindUnion, KindEnum:
		word := map[Kind]string{KindStruct: "struct", KindUnion: "union", KindEnum: "enum"}[x.Kind]
		if x.Name == "" {
			return word
		}
		return word + " " + x.Name
	case KindArray:
		return t.describe(x.Elem, depth+1) + "[]"
	case KindFunc:
		return "function"
	case KindUnknown:
		return "unknown"
	}
	return x.Name
}
