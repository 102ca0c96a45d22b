package event

import "bytes"

// Kind says how a [Node] is to be read and printed.
type Kind uint8

const (
	KindInvalid Kind = iota
	// Numbers. Num holds the value; KindInt reads it as int64.
	KindInt  // decimal, signed
	KindUint // decimal, unsigned; Sym as for KindHex
	KindHex  // 0x1f; zero prints as 0. Sym, when set, names the set in which Num has no name: 0x1f /* O_??? */
	KindOct  // file modes: at least three digits, 0644, 000
	// Addresses in the traced program.
	KindPtr   // 0x7ffc1234
	KindNull  // NULL
	KindFloat // Num is math.Float64bits; AttrSingle: of a float widened
	KindBool  // false, true
	KindChar  // a character, Num: 'a', '\n', '\377'
	// Names. Sym (or Data, when the name is made at run time) is the name, Num the number it stands for.
	KindSym
	KindFlags // children are the set bits in order (KindSym, KindHex, KindOct), Num is the whole value: A|B|0x40
	// Bytes of the traced program, in Data. Num is the full length where it is known to be longer than Data.
	KindString // text that ends at its NUL; the NUL is not part of Data
	KindBytes  // a buffer, may hold zero bytes; Sym is shown in front: @"name" of an abstract socket
	KindHWAddr // a link-layer address, in Data: 00:16:3e:5e:6c:07
	// Containers. Their children are the nodes up to End.
	KindStruct // {a=1, b=2}; a child without Name prints its value alone
	KindArray  // [a, b]
	KindSet    // [A B], as for signal sets and fd sets; AttrInverted prints ~[A B]
	KindCall   // Sym is the macro: makedev(0x8, 0x1), htons(80); Data, when set, are the bytes in memory: the raw form. The
	// macro inet_pton stores into its field: it is shown as inet_pton(AF_INET6, "::1", &name), without name= in front
	KindChange // two children: what was there at entry and at exit, a => b
	KindExpr   // Sym is the operator between the children: 0x5<<32, SKF_AD_OFF+4, BPF_LD|BPF_W|BPF_ABS; in front of a single one
	// Identities.
	// Num is the descriptor (int32); Data, when set, is what it refers to: 3</etc/passwd>. Of a device, which one follows behind a
	// NUL: "/dev/tty\x00char 5:0"; see SplitFD.
	KindFD
	KindPID // Num is the id; Data, when set, is the comm: 12<bash>
	// Notes, which are not values.
	KindNote // follows the value it explains: /* 20 vars */; without Sym, Num is the address where memory ended: /* 0x7ffc1000 */
	KindMore // ...: the program had more here than was asked for
	// KindUnreadable is a value that was asked for and could not be read: Num is the address in the program,
	// Errno the reason, or Sym in words (neither: nobody captured it). Without an address it is shown as ???.
	KindUnreadable
)

// Attr refines a Node.
type Attr uint16

const (
	AttrTruncated Attr = 1 << iota // Data is shorter than the value in the program
	AttrInverted                   // KindSet holds what is absent
	AttrDecimal                    // KindSym, KindFlags: raw form is decimal, not hexadecimal
	AttrOctal                      // KindSym, KindFlags: raw form is octal
	AttrIndexed                    // a child whose Name is an array index: [NAME]=value
	AttrPath                       // KindString is a file name: never cut by the string limit
	AttrHex                        // KindString, KindBytes: every byte is shown as \xNN; KindCall: Num is the raw form, decimal with AttrDecimal
	AttrSingle                     // KindFloat: it was a float, whose shortest text is shown
	AttrVerbose                    // KindSym, KindFlags: the number is always shown, with the name beside it; KindNote: it is left out where numbers alone are wanted
)

// Node is one value of a decoded call. A value with parts is a run of nodes in preorder: the container, then its
// descendants up to, not including, End. A Node's Data may alias a record buffer: it is valid only until the batch
// that carried it is released.
type Node struct {
	Kind  Kind
	Attr  Attr
	Errno uint16 // KindUnreadable: why; KindHex: the least width, zero-padded, as in %#08x
	End   int32  // index in the same Tree one past the last descendant; own index + 1 for a leaf
	Num   uint64
	Name  string // argument or field name
	Sym   string // symbolic name; never from the traced program
	Data  []byte // bytes from the traced program, unescaped
}

// Tree is a sequence of values in preorder.
type Tree []Node

// Next returns the index of the sibling after node i.
func (t Tree) Next(i int) int { return int(t[i].End) }

// Builder appends nodes to a Tree. The zero value is ready; Reset keeps the storage, so that building costs no
// allocation once warm. A Builder is not safe for concurrent use.
type Builder struct {
	Nodes Tree
	open  []int32
	name  string
	attr  Attr
	kept  []byte
}

// Reset empties the tree and keeps its storage.
func (b *Builder) Reset() {
	b.Nodes = b.Nodes[:0]
	b.open = b.open[:0]
	b.kept = b.kept[:0]
	b.name, b.attr = "", 0
}

// Keep copies text that was made, not captured, into the builder, for the Data of a node. It is valid until Reset.
func (b *Builder) Keep(text []byte) []byte {
	n := len(b.kept)
	b.kept = append(b.kept, text...)
	return b.kept[n:len(b.kept):len(b.kept)]
}

// Len is the number of nodes built so far.
func (b *Builder) Len() int { return len(b.Nodes) }

// Name sets the name of the node that is added next and returns b, so that a field reads b.Field("x").Int(1).
func (b *Builder) Field(name string) *Builder {
	b.name = name
	return b
}

// Index is Field for an array element that is shown with its index or its enumerator: [name]=value.
func (b *Builder) Index(name string) *Builder {
	b.name, b.attr = name, AttrIndexed
	return b
}

// Add appends a leaf. It gives it the pending field name if it has none.
func (b *Builder) Add(n Node) {
	if n.Name == "" {
		n.Name = b.name
	}
	n.Attr |= b.attr
	b.name, b.attr = "", 0
	n.End = int32(len(b.Nodes)) + 1
	b.Nodes = append(b.Nodes, n)
}

// Begin opens a container; every node added before the matching End is inside it.
func (b *Builder) Begin(n Node) {
	b.Add(n)
	b.open = append(b.open, int32(len(b.Nodes)-1))
}

// End closes the container opened last.
func (b *Builder) End() {
	last := len(b.open) - 1
	i := b.open[last]
	b.open = b.open[:last]
	b.Nodes[i].End = int32(len(b.Nodes))
}

// Short forms for the common leaves and containers.

func (b *Builder) Int(v int64)                 { b.Add(Node{Kind: KindInt, Num: uint64(v)}) }
func (b *Builder) Uint(v uint64)               { b.Add(Node{Kind: KindUint, Num: v}) }
func (b *Builder) Hex(v uint64)                { b.Add(Node{Kind: KindHex, Num: v}) }
func (b *Builder) Oct(v uint64)                { b.Add(Node{Kind: KindOct, Num: v}) }
func (b *Builder) Sym(name string, num uint64) { b.Add(Node{Kind: KindSym, Sym: name, Num: num}) }
func (b *Builder) Struct()                     { b.Begin(Node{Kind: KindStruct}) }
func (b *Builder) Array()                      { b.Begin(Node{Kind: KindArray}) }
func (b *Builder) Call(macro string)           { b.Begin(Node{Kind: KindCall, Sym: macro}) }
func (b *Builder) More()                       { b.Add(Node{Kind: KindMore}) }
func (b *Builder) Note(text string)            { b.Add(Node{Kind: KindNote, Sym: text}) }

// Ptr adds an address, or NULL when it is zero.
func (b *Builder) Ptr(addr uint64) {
	if addr == 0 {
		b.Add(Node{Kind: KindNull})
		return
	}
	b.Add(Node{Kind: KindPtr, Num: addr})
}

// SplitFD takes the Data of a KindFD apart: the name, and the device ("char 5:0") where it is one.
func SplitFD(data []byte) (name, device []byte) {
	name, device, _ = bytes.Cut(data, []byte{0})
	return name, device
}
