package plan

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/ctype"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
	"github.com/sonde-trace/sonde/probe"
)

// FormKind says how a value is read.
type FormKind string

const (
	FormInt     FormKind = "int"   // Size bytes, Signed
	FormHex     FormKind = "hex"   // Size bytes
	FormPtr     FormKind = "ptr"   // an address
	FormChar    FormKind = "char"  // one character
	FormBool    FormKind = "bool"  // zero is false
	FormFloat   FormKind = "float" // Size 4 or 8, in memory: registers of floats are not given to probes
	FormString  FormKind = "str"   // a pointer to text that ends at its NUL
	FormBytes   FormKind = "bytes" // a pointer to a buffer of CountSlot, or of Len, bytes
	FormStrings FormKind = "strs"  // a pointer to pointers to text, the last is NULL
	FormArray   FormKind = "array" // a pointer to Len or CountSlot integers of Size bytes
	FormField   FormKind = "field" // bytes of a tracepoint's record at Addr; text when Text is set
	FormVoid    FormKind = "void"  // nothing
	FormTyped   FormKind = "type"  // of a type from debug data: Type, Pieces
)

// Form is how a value is taken and shown.
type Form struct {
	Kind      FormKind `json:"kind"`
	Size      int      `json:"size,omitempty"`
	Signed    bool     `json:"signed,omitempty"`
	Count     string   `json:"count,omitempty"` // the argument that says how long it is
	CountSlot int      `json:"countslot,omitempty"`
	Len       int      `json:"len,omitempty"`
	Text      bool     `json:"text,omitempty"`
	Addr      uint64   `json:"addr,omitempty"`
	// FormTyped: the type, and where its bytes are: in slots, or in the memory at the address in the first.
	Type    ctype.Ref   `json:"type,omitempty"`
	Pieces  []FormPiece `json:"pieces,omitempty"`
	Memory  bool        `json:"memory,omitempty"`
	Missing string      `json:"missing,omitempty"` // why it is not read
}

// FormPiece is a part of a value in a slot.
type FormPiece struct {
	Slot int   `json:"slot"`
	Off  int64 `json:"off,omitempty"` // in the value
}

// integers are the types of the probe language that are numbers: size, signed, shown in hexadecimal.
var integers = map[string]Form{
	"u8": {Kind: FormInt, Size: 1}, "u16": {Kind: FormInt, Size: 2}, "u32": {Kind: FormInt, Size: 4}, "u64": {Kind: FormInt, Size: 8},
	"i8": {Kind: FormInt, Size: 1, Signed: true}, "i16": {Kind: FormInt, Size: 2, Signed: true}, "i32": {Kind: FormInt, Size: 4, Signed: true}, "i64": {Kind: FormInt, Size: 8, Signed: true},
	"x8": {Kind: FormHex, Size: 1}, "x16": {Kind: FormHex, Size: 2}, "x32": {Kind: FormHex, Size: 4}, "x64": {Kind: FormHex, Size: 8},
	"int": {Kind: FormInt, Size: 4, Signed: true}, "uint": {Kind: FormInt, Size: 4}, "short": {Kind: FormInt, Size: 2, Signed: true}, "ushort": {Kind: FormInt, Size: 2},
	"long": {Kind: FormInt, Size: 8, Signed: true}, "ulong": {Kind: FormInt, Size: 8}, "size_t": {Kind: FormInt, Size: 8}, "ssize_t": {Kind: FormInt, Size: 8, Signed: true},
	"char": {Kind: FormChar, Size: 1}, "bool": {Kind: FormBool, Size: 1}, "ptr": {Kind: FormPtr, Size: 8}, "str": {Kind: FormString, Size: 8},
	"bytes": {Kind: FormBytes, Size: 8}, "f32": {Kind: FormFloat, Size: 4}, "f64": {Kind: FormFloat, Size: 8}, "float": {Kind: FormFloat, Size: 4}, "double": {Kind: FormFloat, Size: 8},
	"void": {Kind: FormVoid}, "off_t": {Kind: FormInt, Size: 8, Signed: true}, "pid_t": {Kind: FormInt, Size: 4, Signed: true}, "mode_t": {Kind: FormHex, Size: 4},
}

// formOf understands a type as written in an expression.
func formOf(t *probe.Type) (Form, error) {
	if t == nil {
		return Form{Kind: FormHex, Size: 8}, nil
	}
	f, ok := integers[t.Name]
	if !ok {
		if t.Pointers > 0 {
			return Form{Kind: FormPtr, Size: 8}, nil
		} else {
			return f, fmt.Errorf("type %s is not known", t.Name)
		}
	}
	switch {
	case t.Pointers == 1 && t.Name == "char":
		f = Form{Kind: FormString, Size: 8}
	case t.Pointers > 0:
		f = Form{Kind: FormPtr, Size: 8}
	}
	if !t.Array {
		if f.Kind == FormBytes {
			return f, fmt.Errorf("bytes need a length: bytes[n] or bytes[ARGUMENT]")
		}
		return f, nil
	}
	switch {
	case f.Kind == FormString && t.Count == nil:
		f = Form{Kind: FormStrings, Size: 8}
	case t.Count == nil:
		return f, fmt.Errorf("%s[] needs a length", t.Name)
	case f.Kind == FormInt || f.Kind == FormHex:
		f.Kind = FormArray
	case f.Kind == FormBytes || f.Kind == FormChar:
		f = Form{Kind: FormBytes, Size: 8}
	default:
		return f, fmt.Errorf("arrays of %s are not read", t.Name)
	}
	if t.Count != nil {
		switch c := t.Count; {
		case c.Arg != "":
			f.Count = c.Arg
		case c.Reg == "" && c.Deref == nil && c.Const >= 0 && c.Const <= 1<<20:
			f.Len = int(c.Const)
		default:
			return f, fmt.Errorf("a length is a number or the name of an argument")
		}
	}
	return f, nil
}

// take adds the fetches that the value in a slot of the record needs.
func (f *Form) take(t *taker, slot int) {
	count := syscalls.Const(f.Len)
	if f.Count != "" {
		count = syscalls.Arg(f.CountSlot)
	}
	switch f.Kind {
	case FormString:
		t.fetches = append(t.fetches, syscalls.Str(slot))
	case FormBytes:
		t.fetches = append(t.fetches, syscalls.Buf(slot, count))
	case FormStrings:
		t.fetches = append(t.fetches, syscalls.Fetch{Kind: syscalls.FetchStrings, Base: syscalls.Arg(slot)})
	case FormArray:
		t.fetches = append(t.fetches, syscalls.Vec(slot, count, f.Size, 4096))
	}
}

// Values reads the values of one record. It is used by one goroutine and keeps no memory of the record.
type Values struct {
	event.Builder
	Types *ctype.Table
	words [64]byte // a value put together from slots
	Rec   wire.Record
	Again wire.Segments // of the return: what could not be read at the entry
	Limit int           // bytes of strings to show
}

// Args adds the arguments of a plan.
func (v *Values) Args(list []Arg) {
	for i := range list {
		v.Builder.Field(list[i].Name)
		v.Value(&list[i].Form, list[i].Slot)
	}
}

// Value adds the value in a slot.
func (v *Values) Value(f *Form, slot int) {
	switch f.Kind {
	case FormField:
		v.field(f)
		return
	case FormTyped:
		v.typed(f)
		return
	}
	if slot >= v.Rec.NSlots() {
		v.Add(event.Node{Kind: event.KindUnreadable})
		return
	}
	raw, ok := v.Rec.Slot(slot)
	if !ok {
		v.Add(event.Node{Kind: event.KindUnreadable, Errno: 14}) // EFAULT: the only way a read of memory fails
		return
	}
	v.scalar(f, raw)
}

// typed shows a value of a type from debug data.
func (v *Values) typed(f *Form) {
	if f.Missing != "" || v.Types == nil {
		v.Add(event.Node{Kind: event.KindUnreadable, Sym: f.Missing})
		return
	}
	r := ctype.Reader{Table: v.Types, Find: v.find, Limit: v.Limit, Builder: &v.Builder}
	var data []byte
	for _, p := range f.Pieces {
		if p.Slot < 0 || p.Slot >= v.Rec.NSlots() || p.Off < 0 || p.Off+8 > int64(len(v.words)) {
			v.Add(event.Node{Kind: event.KindUnreadable})
			return
		}
		raw, ok := v.Rec.Slot(p.Slot)
		switch {
		case !ok:
			v.Add(event.Node{Kind: event.KindUnreadable, Errno: 14})
			return
		case f.Memory:
			bytes, _, errno, found := v.find(raw)
			if !found || errno != 0 {
				v.Add(event.Node{Kind: event.KindUnreadable, Num: raw, Errno: errno})
				return
			}
			data = bytes
		default:
			binary.LittleEndian.PutUint64(v.words[p.Off:], raw)
			data = v.words[:p.Off+8]
		}
	}
	r.Show(f.Type, data)
}

func (v *Values) scalar(f *Form, raw uint64) {
	n := narrow(raw, f.Size, f.Signed)
	switch f.Kind {
	case FormInt:
		if f.Signed {
			v.Int(int64(n))
		} else {
			v.Uint(n)
		}
	case FormHex:
		v.Hex(n)
	case FormPtr:
		v.Ptr(n)
	case FormChar:
		v.Add(event.Node{Kind: event.KindChar, Num: n})
	case FormBool:
		v.Add(event.Node{Kind: event.KindBool, Num: n})
	case FormString:
		v.text(n)
	case FormBytes:
		v.bytes(f, n)
	case FormStrings:
		v.strings(n)
	case FormArray:
		v.array(f, n)
	case FormVoid:
		v.Sym("void", 0)
	default:
		v.Add(event.Node{Kind: event.KindUnreadable, Num: raw})
	}
}

// narrow cuts a word to size bytes and extends it: what stands in the upper part of a register means nothing.
func narrow(v uint64, size int, signed bool) uint64 {
	if size <= 0 || size >= 8 {
		return v
	}
	shift := 64 - 8*size
	if signed {
		return uint64(int64(v<<shift) >> shift)
	}
	return v << shift >> shift
}

// find looks for memory in the record, and for what could not be read then in that of the return.
func (v *Values) find(addr uint64) (data []byte, flags, errno uint16, found bool) {
	data, flags, errno, found = v.Rec.Segments().Find(addr)
	if !found || errno != 0 || flags&wire.SegFault != 0 {
		if d, f, e, ok := v.Again.Find(addr); ok && e == 0 && len(d) >= len(data) {
			return d, f, e, ok
		}
	}
	return data, flags, errno, found
}

func (v *Values) text(addr uint64) {
	if addr == 0 {
		v.Ptr(0)
		return
	}
	data, flags, errno, found := v.find(addr)
	if !found || errno != 0 {
		v.Add(event.Node{Kind: event.KindUnreadable, Num: addr, Errno: errno})
		return
	}
	n := event.Node{Kind: event.KindString, Data: data}
	if flags&wire.SegCut != 0 {
		n.Attr |= event.AttrTruncated
	}
	if v.Limit > 0 && len(data) > v.Limit {
		n.Data, n.Attr, n.Num = data[:v.Limit], n.Attr|event.AttrTruncated, uint64(len(data))
	}
	v.Add(n)
}

// length is the number of elements of a value.
func (v *Values) length(f *Form) (uint64, bool) {
	if f.Count == "" {
		return uint64(f.Len), true
	}
	if f.CountSlot >= v.Rec.NSlots() {
		return 0, false
	}
	return v.Rec.Slot(f.CountSlot)
}

func (v *Values) bytes(f *Form, addr uint64) {
	want, ok := v.length(f)
	switch {
	case addr == 0:
		v.Ptr(0)
		return
	case !ok:
		v.Add(event.Node{Kind: event.KindUnreadable, Num: addr, Errno: 14})
		return
	case want == 0:
		v.Add(event.Node{Kind: event.KindBytes})
		return
	}
	data, _, errno, found := v.find(addr)
	if !found || errno != 0 {
		v.Add(event.Node{Kind: event.KindUnreadable, Num: addr, Errno: errno})
		return
	}
	if uint64(len(data)) > want {
		data = data[:want]
	}
	if v.Limit > 0 && len(data) > v.Limit {
		data = data[:v.Limit]
	}
	n := event.Node{Kind: event.KindBytes, Data: data}
	if uint64(len(data)) < want {
		n.Attr, n.Num = event.AttrTruncated, want
	}
	v.Add(n)
}

func (v *Values) strings(addr uint64) {
	data, _, errno, found := v.find(addr)
	if addr == 0 {
		v.Ptr(0)
		return
	}
	if !found || errno != 0 {
		v.Add(event.Node{Kind: event.KindUnreadable, Num: addr, Errno: errno})
		return
	}
	v.Array()
	ended := false
	for ; len(data) >= 8; data = data[8:] {
		p := le64(data)
		if p == 0 {
			ended = true
			break
		}
		v.text(p)
	}
	if !ended {
		v.More()
	}
	v.End()
}

func (v *Values) array(f *Form, addr uint64) {
	want, ok := v.length(f)
	data, _, errno, found := v.find(addr)
	switch {
	case addr == 0:
		v.Ptr(0)
		return
	case !ok || want > 0 && (!found || errno != 0):
		v.Add(event.Node{Kind: event.KindUnreadable, Num: addr, Errno: errno})
		return
	}
	v.Array()
	element := Form{Kind: FormInt, Size: f.Size, Signed: f.Signed}
	n := uint64(0)
	for ; n < want && len(data) >= f.Size; n++ {
		var word [8]byte
		copy(word[:], data[:f.Size])
		v.scalar(&element, le64(word[:]))
		data = data[f.Size:]
	}
	if n < want {
		v.More()
	}
	v.End()
}

// field adds bytes of a tracepoint's record, whose segments carry their place in it as the address.
func (v *Values) field(f *Form) {
	data, flags, errno, found := v.find(f.Addr)
	if !found || errno != 0 {
		v.Add(event.Node{Kind: event.KindUnreadable, Errno: errno})
		return
	}
	kind := event.KindBytes
	if f.Text {
		kind = event.KindString
		for i, c := range data {
			if c == 0 {
				data = data[:i]
				break
			}
		}
	}
	n := event.Node{Kind: kind, Data: data}
	if flags&wire.SegCut != 0 {
		n.Attr = event.AttrTruncated
	}
	v.Add(n)
}

func le64(b []byte) (v uint64) {
	for i := 7; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v
}

// Describe says in words what a form is.
func (f *Form) Describe(types *ctype.Table) string {
	switch f.Kind {
	case FormTyped:
		if f.Missing != "" {
			return types.Describe(f.Type) + ", not read: " + f.Missing
		}
		return types.Describe(f.Type)
	case FormInt:
		if f.Signed {
			return "i" + strconv.Itoa(8*f.Size)
		}
		return "u" + strconv.Itoa(8*f.Size)
	case FormHex:
		return "x" + strconv.Itoa(8*f.Size)
	case FormBytes:
		if f.Count != "" {
			return "bytes[" + f.Count + "]"
		}
		return fmt.Sprintf("bytes[%d]", f.Len)
	}
	return string(f.Kind)
}
