package decode

import (
	"strconv"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/wire"
)

// fields walks a structure in memory order and adds each member under its name. Bytes past the end read as zero, as the
// kernel takes the missing tail of an extensible structure. Numbers stand at the offset reached so far: the caller skips
// padding.
type fields struct {
	c   *Cx
	b   []byte
	off int
}

// begin opens a structure whose bytes are b.
func (c *Cx) begin(b []byte) *fields {
	c.Struct()
	return c.at(b, 0)
}

// at reads members of a structure from off on. The reader is reused by the next call: nested structures take their own
// with sub.
func (c *Cx) at(b []byte, off int) *fields { return &fields{c: c, b: b, off: off} }

// end closes the structure.
func (f *fields) end() { f.c.End() }

// reached reports that the structure has more than the members read so far.
func (f *fields) reached() bool { return len(f.b) > f.off }

func (f *fields) skip(n int) *fields {
	f.off += n
	return f
}

// num takes the next number of width bytes.
func (f *fields) num(width int) uint64 {
	v := peek(f.b, f.off, width)
	f.off += width
	return v
}

// peek is the little-endian number of width bytes at off; what lies past the end is zero.
func peek(b []byte, off, width int) uint64 {
	var v uint64
	for i := 0; i < width && off+i < len(b); i++ {
		v |= uint64(b[off+i]) << (8 * i)
	}
	return v
}

// take is the next n bytes, fewer at the end of what is there.
func (f *fields) take(n int) []byte {
	b := f.b[min(f.off, len(f.b)):min(f.off+n, len(f.b))]
	f.off += n
	return b
}

// Unsigned decimal, hexadecimal and signed numbers. The digit is the number of bytes.
func (f *fields) u1(name string) { f.c.Field(name).Uint(f.num(1)) }
func (f *fields) u2(name string) { f.c.Field(name).Uint(f.num(2)) }
func (f *fields) u4(name string) { f.c.Field(name).Uint(f.num(4)) }
func (f *fields) u8(name string) { f.c.Field(name).Uint(f.num(8)) }
func (f *fields) x1(name string) { f.c.Field(name).Hex(f.num(1)) }
func (f *fields) x2(name string) { f.c.Field(name).Hex(f.num(2)) }
func (f *fields) x4(name string) { f.c.Field(name).Hex(f.num(4)) }
func (f *fields) x8(name string) { f.c.Field(name).Hex(f.num(8)) }
func (f *fields) i1(name string) { f.c.Field(name).Int(int64(int8(f.num(1)))) }
func (f *fields) i2(name string) { f.c.Field(name).Int(int64(int16(f.num(2)))) }
func (f *fields) i4(name string) { f.c.Field(name).Int(int64(int32(f.num(4)))) }
func (f *fields) i8(name string) { f.c.Field(name).Int(int64(f.num(8))) }

// word, xword and iword are numbers of the ABI's word size.
func (f *fields) word(name string)  { f.c.Field(name).Uint(f.num(f.c.ABI.PtrSize)) }
func (f *fields) xword(name string) { f.c.Field(name).Hex(f.num(f.c.ABI.PtrSize)) }
func (f *fields) iword(name string) { f.c.Field(name); f.c.Long(f.num(f.c.ABI.PtrSize)) }

// p8 is an address in 8 bytes, ptr one in the ABI's word.
func (f *fields) p8(name string)  { f.c.Field(name).Ptr(f.num(8)) }
func (f *fields) ptr(name string) { f.c.Field(name).Ptr(f.num(f.c.ABI.PtrSize)) }

func (f *fields) fd(name string)    { f.c.Field(name); f.c.FD(f.num(4)) }
func (f *fields) dirfd(name string) { f.c.Field(name); f.c.DirFD(f.num(4)) }
func (f *fields) pid(name string)   { f.c.Field(name); f.c.PID(f.num(4)) }

// id is a user or group: -1 stands for none.
func (f *fields) id(name string) { f.c.Field(name); f.c.userID(f.num(4)) }

func (c *Cx) userID(v uint64) {
	if uint32(v) == 0xffffffff {
		c.Int(-1)
		return
	}
	c.Uint(uint64(uint32(v)))
}

// dev is a device number in the kernel's 32-bit form, in width bytes.
func (f *fields) dev(name string, width int) {
	v := f.num(width)
	f.c.Field(name).Begin(event.Node{Kind: event.KindCall, Sym: "makedev", Num: v, Attr: event.AttrHex})
	f.c.Hex(v>>8&0xfff | v>>32&^0xfff)
	f.c.Hex(v&0xff | v>>12&0xffffff00)
	f.c.End()
}

// enum and flags take width bytes by a set.
func (f *fields) enum(name string, width int, s *constant.Set) {
	v := f.num(width)
	f.c.Field(name)
	f.c.Name(v, s)
}

func (f *fields) flags(name string, width int, s *constant.Set) {
	v := f.num(width)
	f.c.Field(name)
	f.c.Flags(v, s)
}

// enumU and enumD are enumerations whose numbers without name are decimal.
func (f *fields) enumU(name string, width int, s *constant.Set) {
	v := f.num(width)
	f.c.Field(name)
	f.c.nameU(v, s)
}

func (f *fields) enumD(name string, width int, s *constant.Set) {
	v := f.num(width)
	f.c.Field(name)
	f.c.nameD(v, s)
}

func (c *Cx) nameU(v uint64, s *constant.Set) {
	s = s.For(c.ABI.Name)
	if name, ok := s.Name(v); ok {
		c.Add(event.Node{Kind: event.KindSym, Sym: name, Num: v, Attr: event.AttrDecimal})
		return
	}
	c.Add(event.Node{Kind: event.KindUint, Num: v, Sym: s.Prefix})
}

func (c *Cx) nameD(v uint64, s *constant.Set) {
	s = s.For(c.ABI.Name)
	v = uint64(uint32(v))
	if name, ok := s.Name(v); ok {
		c.Add(event.Node{Kind: event.KindSym, Sym: name, Num: uint64(int64(int32(v))), Attr: event.AttrDecimal})
		return
	}
	c.Add(event.Node{Kind: event.KindInt, Num: uint64(int64(int32(v))), Sym: s.Prefix})
}

// text is a NUL-terminated string in an array of n bytes; without a NUL its last byte is not part of it.
func (f *fields) text(name string, n int) { f.c.Field(name); f.c.cstring(f.take(n)) }

func (c *Cx) cstring(b []byte) {
	n := event.Node{Kind: event.KindString, Data: b, Attr: event.AttrTruncated | event.AttrPath}
	for i, ch := range b {
		if ch == 0 {
			n.Data, n.Attr = b[:i], event.AttrPath
			break
		}
	}
	if n.Attr&event.AttrTruncated != 0 && len(b) > 0 {
		n.Data = b[:len(b)-1]
	}
	c.Add(n)
}

// hex is n bytes, each shown as \xNN.
func (f *fields) hex(name string, n int) {
	b := f.take(n)
	f.c.Field(name)
	f.c.Add(event.Node{Kind: event.KindBytes, Data: b, Num: uint64(len(b)), Attr: event.AttrHex | event.AttrPath})
}

// nonzero is a reserved member of width bytes, shown only when it is used.
func (f *fields) nonzero(name string, width int) {
	if v := f.num(width); v != 0 {
		f.c.Field(name).Hex(v)
	}
}

// nonzeros is a reserved array of n numbers, shown only when one is used.
func (f *fields) nonzeros(name string, width, n int) {
	b := f.take(width * n)
	if !allZero(b) {
		f.c.Field(name)
		f.c.numbers(b, width, n, hexNumber)
	}
}

// array is a member with n elements of width bytes each, by elem.
func (f *fields) array(name string, width, n int, elem func(c *Cx, b []byte)) {
	b := f.take(width * n)
	f.c.Field(name)
	f.c.numbers(b, width, n, elem)
}

// numbers adds the n elements of b, at most as many as the string limit unless everything is asked for.
func (c *Cx) numbers(b []byte, width, n int, elem func(c *Cx, b []byte)) {
	c.Array()
	for i := range n {
		if c.Opt.Abbrev && i >= c.limit() {
			c.More()
			break
		}
		if (i+1)*width > len(b) {
			break
		}
		elem(c, b[i*width:(i+1)*width])
	}
	c.End()
}

func hexNumber(c *Cx, b []byte)  { c.Hex(peek(b, 0, len(b))) }
func uintNumber(c *Cx, b []byte) { c.Uint(peek(b, 0, len(b))) }
func intNumber(c *Cx, b []byte)  { c.Int(int64(int32(peek(b, 0, len(b))))) }
func fdNumber(c *Cx, b []byte)   { c.FD(peek(b, 0, 4)) }

func allZero(b []byte) bool {
	for _, ch := range b {
		if ch != 0 {
			return false
		}
	}
	return true
}

// list adds the array of n elements of size bytes at addr. Where memory ends before the array does, the address of the
// first element that is missing follows. What the kernel should have filled is an address when the call failed.
func (c *Cx) list(m Moment, addr, n uint64, size int, elem func(c *Cx, b []byte)) {
	if addr == 0 {
		c.Ptr(0)
		return
	}
	if n == 0 {
		c.Array()
		c.End()
		return
	}
	if n > 1<<48 || addr+n*uint64(size) <= addr {
		c.Ptr(addr)
		return
	}
	if m == Out && c.Failed() {
		c.Ptr(addr)
		return
	}
	show := min(n, 1<<16)
	if c.Opt.Abbrev {
		show = min(show, uint64(c.limit()))
	}
	b, flags, errno := c.structMem(m, addr, int(min(n, show+1))*size)
	if len(b) < size {
		c.Unreadable(addr, errno)
		return
	}
	c.Array()
	have := uint64(len(b) / size)
	for i := range min(have, show) {
		elem(c, b[int(i)*size:int(i+1)*size])
	}
	switch {
	case have < min(n, show+1) && flags&wire.SegFault != 0:
		c.More()
		c.Add(event.Node{Kind: event.KindNote, Num: addr + have*uint64(size)})
	case have < show || show < n:
		c.More()
	}
	c.End()
}

// obj adds what show makes of the n bytes at addr, or the address. It does not care whether the call failed.
func (c *Cx) obj(m Moment, addr uint64, n int, show func(c *Cx, b []byte)) {
	b, errno := c.Bytes(m, addr, n)
	if b == nil {
		c.Unreadable(addr, errno)
		return
	}
	show(c, b)
}

// ref adds [value], the number of width bytes at addr.
func (c *Cx) ref(m Moment, addr uint64, width int, elem func(c *Cx, b []byte)) {
	b, ok := c.Load(m, addr, width)
	if !ok {
		return
	}
	c.Array()
	elem(c, b)
	c.End()
}

// change adds old => new, or new alone when they are equal. The pending field name belongs to the whole.
func (c *Cx) change(old, now uint64, show func(v uint64)) {
	if old == now {
		show(now)
		return
	}
	c.Begin(event.Node{Kind: event.KindChange})
	show(old)
	show(now)
	c.End()
}

// expr opens an expression with the operator op between its parts.
func (c *Cx) expr(op string) { c.Begin(event.Node{Kind: event.KindExpr, Sym: op}) }

// endExpr closes the expression that began at node number at; one with a single part is that part.
func (c *Cx) endExpr(at int) {
	c.End()
	nodes := c.Nodes
	if at+1 >= len(nodes) || int(nodes[at+1].End) != len(nodes) {
		return
	}
	name, attr := nodes[at].Name, nodes[at].Attr
	copy(nodes[at:], nodes[at+1:])
	c.Nodes = nodes[:len(nodes)-1]
	for i := at; i < len(c.Nodes); i++ {
		c.Nodes[i].End--
	}
	c.Nodes[at].Name = name
	c.Nodes[at].Attr |= attr
}

// extra shows the tail of a structure of which only the first known bytes are known, when it is not all zero: ... when
// abbreviated.
func (c *Cx) extra(b []byte, known int) {
	if len(b) <= known || allZero(b[known:]) {
		return
	}
	if c.Opt.Abbrev {
		c.More()
		return
	}
	c.Field("extra_data").Add(event.Node{Kind: event.KindBytes, Data: b[known:], Num: uint64(len(b) - known),
		Attr: event.AttrHex | event.AttrPath})
	c.Builder.Note(sprintBytes(known, len(b)-1))
}

// textN adds the string at addr that takes at most n bytes there; without a NUL in them it is cut.
func (c *Cx) textN(m Moment, addr, n uint64) {
	if addr == 0 {
		c.Ptr(0)
		return
	}
	limit := c.limit()
	b, flags, errno := c.mem(m, addr, int(min(n, uint64(limit)+1)))
	if b == nil && n > 0 {
		c.Unreadable(addr, errno)
		return
	}
	node := event.Node{Kind: event.KindString, Data: b, Attr: event.AttrTruncated}
	for i, ch := range b {
		if ch == 0 {
			node.Data, node.Attr = b[:i], 0
			break
		}
	}
	if flags&(wire.SegString|wire.SegCut) == wire.SegString {
		node.Attr = 0 // text is captured up to its NUL
	}
	if node.Attr != 0 && flags&wire.SegFault != 0 && uint64(len(b)) < min(n, uint64(limit)+1) {
		c.Unreadable(addr, efault)
		return
	}
	if len(node.Data) > limit {
		node.Data, node.Attr = node.Data[:limit], event.AttrTruncated
	}
	if n == 0 {
		node.Attr = 0
	}
	c.Add(node)
}

// blob adds n bytes at addr as a buffer of which every byte is shown as \xNN.
func (c *Cx) blob(m Moment, addr, n uint64) {
	at := len(c.Nodes)
	c.Buffer(m, addr, int64(min(n, 1<<31)))
	if at < len(c.Nodes) && c.Nodes[at].Kind == event.KindBytes {
		c.Nodes[at].Attr |= event.AttrHex
	}
}

// sprintBytes names a range of bytes in a note.
func sprintBytes(from, to int) string {
	return "bytes " + strconv.Itoa(from) + ".." + strconv.Itoa(to)
}

func hexText(v uint64) string {
	if v == 0 {
		return "0"
	}
	return "0x" + strconv.FormatUint(v, 16)
}

func uintText(v uint64) string { return strconv.FormatUint(v, 10) }
