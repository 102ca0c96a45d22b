// Package ctype knows the types of values in a program's memory, where the calling convention puts arguments, and how bytes
// become values of package event. Types come from debug data; a table of them goes into recordings, so that they are read elsewhere
// as they were read here.
//
// It reads no program and no memory itself. What debug data say is not trusted: sizes, offsets and the depth of nesting are bounded.
package ctype

// Kind says what a type is.
type Kind uint8

const (
	KindVoid Kind = iota
	KindInt       // Size bytes; Signed
	KindBool
	KindChar  // one character
	KindFloat // Size 4 or 8; 10, 12 or 16 are the extended ones, shown as bytes
	KindEnum  // Size bytes; Values
	KindPointer
	KindArray // Count elements of Elem; Count -1: not known
	KindStruct
	KindUnion
	KindFunc // code
	KindUnknown
)

// Ref is the number of a type in its Table.
type Ref int32

// Type is one type.
type Type struct {
	Kind   Kind    `json:"k"`
	Name   string  `json:"n,omitempty"` // as the source has it: size_t, struct point
	Size   int64   `json:"s,omitempty"` // bytes
	Signed bool    `json:"i,omitempty"`
	Elem   Ref     `json:"e,omitempty"` // KindPointer, KindArray
	Count  int64   `json:"c,omitempty"`
	Fields []Field `json:"f,omitempty"`
	Values []Value `json:"v,omitempty"`
	// Span is set for structures that hold texts or lists: they are shown as what they hold.
	Span *Span `json:"p,omitempty"`
	// ByRef is set for C++ classes that are not copied by their bytes: what is passed is the address of an object.
	ByRef bool `json:"r,omitempty"`
}

// Span says where a structure has its text or its elements.
type Span struct {
	Ptr  int64 `json:"o,omitempty"` // offset of the address of the first
	Len  int64 `json:"n,omitempty"` // offset of their number; -1: a NUL ends them
	End  bool  `json:"z,omitempty"` // at Len stands the address behind the last instead
	Text bool  `json:"t,omitempty"`
	Elem Ref   `json:"e,omitempty"`
}

// Field is a member of a structure or union.
type Field struct {
	Name string `json:"n,omitempty"` // empty for anonymous members
	Off  int64  `json:"o,omitempty"` // bytes
	Type Ref    `json:"t"`
	// Bits is the width of a bit-field, which begins BitOff bits from the lowest bit of the byte at Off (little-endian).
	Bits   int `json:"b,omitempty"`
	BitOff int `json:"x,omitempty"`
}

// Value is a name of an enumeration.
type Value struct {
	Name string `json:"n"`
	Num  int64  `json:"v"`
}

// Table holds types that refer to each other. Number 0 is void.
type Table struct {
	Types []Type `json:"types"`
}

// Bounds of what debug data may say.
const (
	maxTypes  = 4096 // in one table
	maxFields = 1024
	maxValues = 4096
	maxSize   = 1 << 30
)

// Get returns a type; one that does not exist is unknown.
func (t *Table) Get(r Ref) *Type {
	if r < 0 || int(r) >= len(t.Types) {
		return &unknown
	}
	return &t.Types[r]
}

var unknown = Type{Kind: KindUnknown}

// Scalar reports whether a type fits a register as one number.
func (t *Type) Scalar() bool {
	switch t.Kind {
	case KindInt, KindBool, KindChar, KindEnum, KindPointer:
		return t.Size <= 8
	}
	return false
}
