package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
)

// Netlink attributes: struct nlattr {u16 len, type}, a payload, padding to 4 bytes; the two top bits of a type are flags.

const (
	nlaHeader   = 4
	nlaNested   = 0x8000 // NLA_F_NESTED
	nlaNetOrder = 0x4000 // NLA_F_NET_BYTEORDER
)

// nlContext is what attributes must know of the message around them.
type nlContext struct {
	family uint8
	kind   string // IFLA_INFO_KIND, IFLA_INFO_SLAVE_KIND
	slave  string
}

// An attrFunc adds the payload of an attribute. It reports false, having added nothing, when the payload cannot be what it
// should be.
type attrFunc func(c *Cx, s span, x *nlContext) bool

// An attrTable is the attributes of one kind of message.
type attrTable struct {
	set  *constant.Set
	show map[uint16]attrFunc
	// other shows the types that show has not.
	other func(c *Cx, kind uint16, s span, x *nlContext) bool
}

// attrs adds the attributes in s; without a table, their numbers.
func (c *Cx) attrs(s span, t *attrTable, x *nlContext) {
	c.sequence(s, nlaHeader, func(b []byte) int { return int(U16(b, 0)) }, func(s span) { c.attr(s, t, x) })
}

func (c *Cx) attr(s span, t *attrTable, x *nlContext) {
	n, kind := min(int(U16(s.b, 0)), s.n), U16(s.b, 2)
	if n > nlaHeader {
		c.Array()
	}
	c.Struct()
	c.Field("nla_len").Uint(uint64(U16(s.b, 0)))
	c.Field("nla_type")
	c.attrType(kind, t)
	c.End()
	if n <= nlaHeader {
		return
	}
	p := s.upto(n).from(nlaHeader)
	done := false
	if t != nil {
		base := kind &^ (nlaNested | nlaNetOrder)
		if f := t.show[base]; f != nil {
			done = f(c, p, x)
		} else if t.other != nil {
			done = t.other(c, kind, p, x)
		}
	}
	if !done {
		c.hexSpan(p)
	}
	c.End()
}

func (c *Cx) attrType(kind uint16, t *attrTable) {
	flags := kind & (nlaNested | nlaNetOrder)
	if flags != 0 {
		c.Begin(event.Node{Kind: event.KindExpr, Sym: "|"})
		if kind&nlaNested != 0 {
			c.Sym("NLA_F_NESTED", nlaNested)
		}
		if kind&nlaNetOrder != 0 {
			c.Sym("NLA_F_NET_BYTEORDER", nlaNetOrder)
		}
	}
	if t != nil && t.set != nil {
		c.Name(uint64(kind&^flags), t.set)
	} else {
		c.Hex(uint64(kind &^ flags))
	}
	if flags != 0 {
		c.End()
	}
}

// nested makes an attrFunc of a table.
func nested(t *attrTable) attrFunc {
	return func(c *Cx, s span, x *nlContext) bool {
		c.attrs(s, t, x)
		return true
	}
}

// fixed makes an attrFunc of what has n bytes or more.
func fixed(n int, show func(c *Cx, b []byte)) attrFunc {
	return func(c *Cx, s span, _ *nlContext) bool {
		if s.n < n {
			return false
		}
		if b := c.take(s, n); b != nil {
			show(c, b)
		}
		return true
	}
}

// nlaUint, nlaInt and nlaXint are numbers of n bytes.
func nlaUint(n int) attrFunc { return fixed(n, uintNumber) }
func nlaXint(n int) attrFunc { return fixed(n, hexNumber) }
func nlaInt(n int) attrFunc {
	return fixed(n, func(c *Cx, b []byte) { c.Int(signed(b)) })
}

func signed(b []byte) int64 {
	shift := 64 - 8*len(b)
	return int64(peek(b, 0, len(b))<<shift) >> shift
}

// nlaText is text that ends in a NUL, which is not shown; nlaBytes is a buffer.
func nlaText(c *Cx, s span, _ *nlContext) bool {
	want := min(s.n, c.limit()+1)
	if len(s.b) < want {
		c.Unreadable(s.addr, 0)
		return true
	}
	node := event.Node{Kind: event.KindBytes, Num: uint64(s.n)}
	switch {
	case s.n <= c.limit()+1 && s.b[s.n-1] == 0:
		node.Data = s.b[:s.n-1]
	default:
		node.Data, node.Attr = s.b[:min(s.n, c.limit())], event.AttrTruncated
	}
	c.Add(node)
	return true
}

func nlaBytes(c *Cx, s span, _ *nlContext) bool {
	c.textSpan(s, 0)
	return true
}

// nlaUntilNUL is text that ends at its first NUL.
func nlaUntilNUL(c *Cx, s span, _ *nlContext) bool {
	want := min(s.n, c.limit()+1)
	if len(s.b) < want {
		c.Unreadable(s.addr, 0)
		return true
	}
	node := event.Node{Kind: event.KindString, Data: s.b[:want]}
	for i, ch := range node.Data {
		if ch == 0 {
			node.Data = node.Data[:i]
			c.Add(node)
			return true
		}
	}
	if len(node.Data) > c.limit() {
		node.Data = node.Data[:c.limit()]
		node.Attr = event.AttrTruncated
	}
	c.Add(node)
	return true
}

// nlaEnum and nlaFlags are numbers by a set: of n bytes, or of as many as there are when n is zero.
func nlaEnum(n int, set *constant.Set) attrFunc {
	return number(n, func(c *Cx, v uint64) { c.Name(v, set) })
}

func nlaFlags(n int, set *constant.Set) attrFunc {
	return number(n, func(c *Cx, v uint64) { c.Flags(v, set) })
}

func number(n int, show func(c *Cx, v uint64)) attrFunc {
	return func(c *Cx, s span, _ *nlContext) bool {
		if s.n > 8 || s.n < n {
			return false
		}
		size := s.n
		if n > 0 {
			size = n
		}
		if b := c.take(s, size); b != nil {
			show(c, peek(b, 0, size))
		}
		return true
	}
}

// anyEnum and anyFlags are like them without a bound on what follows.
func anyEnum(n int, set *constant.Set) attrFunc {
	return fixed(n, func(c *Cx, b []byte) { c.Name(peek(b, 0, n), set) })
}

func anyFlags(n int, set *constant.Set) attrFunc {
	return fixed(n, func(c *Cx, b []byte) { c.Flags(peek(b, 0, n), set) })
}

var (
	nlaIfindex = fixed(4, func(c *Cx, b []byte) { c.ifIndex(U32(b, 0)) })
	nlaFD      = fixed(4, fdNumber)
	nlaUID     = fixed(4, func(c *Cx, b []byte) { c.userID(uint64(U32(b, 0))) })
	nlaInAddr  = fixed(4, (*Cx).inetAddr)
	nlaIn6Addr = fixed(16, (*Cx).inet6Addr)
	nlaBE16    = fixed(2, (*Cx).htons)
	nlaBE32    = fixed(4, (*Cx).htonl)
	nlaBE64    = fixed(8, func(c *Cx, b []byte) {
		c.Call("htobe64")
		c.Uint(uint64(be32(b))<<32 | uint64(be32(b[4:])))
		c.End()
	})
	nlaIPProto    = nlaEnum(0, constant.InetProtocol)
	nlaEtherProto = number(2, func(c *Cx, v uint64) {
		c.Call("htons")
		c.nameOr(v>>8&0xff|v&0xff<<8, constant.EthernetProtocol, "ETHER_P_???")
		c.End()
	})
)

// nlaHWAddr is a link-layer address of up to MAX_ADDR_LEN bytes.
func nlaHWAddr(c *Cx, s span, _ *nlContext) bool {
	const maxAddr = 32
	if s.n > maxAddr {
		return false
	}
	if b := c.take(s, s.n); b != nil {
		c.hwAddr(b)
	}
	return true
}

// nlaClock is a time in ticks of 1/100 s (USER_HZ).
func nlaClock(c *Cx, s span, _ *nlContext) bool { return c.ticks(s, 100, 2) }

// nlaAddr is an address of the message's family.
func nlaAddr(c *Cx, s span, x *nlContext) bool {
	c.inetSpan(s, int(x.family))
	return true
}

// inetSpan adds an address of a family, or bytes when it is another or too short.
func (c *Cx) inetSpan(s span, family int) {
	size := 0
	switch family {
	case afInet:
		size = 4
	case afInet6:
		size = 16
	}
	if size == 0 || s.n < size {
		c.hexSpan(s)
		return
	}
	b := c.take(s, size)
	if b == nil {
		return
	}
	if size == 4 {
		c.inetAddr(b)
	} else {
		c.inet6Addr(b)
	}
}

// spanArray adds the whole elements of width bytes in s.
func (c *Cx) spanArray(s span, width int, elem func(c *Cx, b []byte)) {
	n := s.n / width
	if n == 0 {
		c.Array()
		c.End()
		return
	}
	if len(s.b) < width {
		c.Unreadable(s.addr, 0)
		return
	}
	c.Array()
	for i := range n {
		if c.Opt.Abbrev && i >= c.limit() {
			c.More()
			break
		}
		if (i+1)*width > len(s.b) {
			c.cutShort(s.from(i*width), true)
			break
		}
		elem(c, s.b[i*width:(i+1)*width])
	}
	c.End()
}

// nlaArray is an array of one element at least.
func nlaArray(width int, elem func(c *Cx, b []byte)) attrFunc {
	return func(c *Cx, s span, _ *nlContext) bool {
		if s.n < width {
			return false
		}
		c.spanArray(s, width, elem)
		return true
	}
}

// nlaIndexed is an array whose elements have names by a set.
func nlaIndexed(width int, set *constant.Set, elem func(c *Cx, b []byte)) attrFunc {
	return func(c *Cx, s span, _ *nlContext) bool {
		if s.n < width {
			return false
		}
		i := uint64(0)
		c.spanArray(s, width, func(c *Cx, b []byte) {
			if name, ok := set.Name(i); ok {
				c.Index(name)
			} else {
				c.Index(unknownIndex(i, set.Prefix))
			}
			i++
			elem(c, b)
		})
		return true
	}
}

// ticks adds a time that counts hz in a second, with the seconds beside it.
func (c *Cx) ticks(s span, hz uint64, digits int) bool {
	if s.n > 8 {
		return false
	}
	b := c.take(s, s.n)
	if b == nil {
		return true
	}
	v := peek(b, 0, s.n)
	c.Add(event.Node{Kind: event.KindUint, Num: v, Sym: secondsText(v, hz, digits)})
	return true
}

// A member is one field of a structure at the head of a message or in an attribute.
type member struct {
	name string
	off  int
	size int
	form byte // u, d, x; 0 as %#0*x; i interface, e and f by set, F as u but only when set is not zero
	set  *constant.Set
}

// members adds fields in order.
func (c *Cx) members(b []byte, list []member) {
	for i := range list {
		m := &list[i]
		v := peek(b, m.off, m.size)
		if m.form == 'X' && v == 0 {
			continue
		}
		c.Field(m.name)
		switch m.form {
		case 'd':
			c.Int(signed(b[m.off : m.off+m.size]))
		case 'x', 'X':
			c.Hex(v)
		case '0':
			c.hex0(v, 2*m.size)
		case 'i':
			c.ifIndex(uint32(v))
		case 'e':
			c.Name(v, m.set)
		case 'f':
			c.Flags(v, m.set)
		case 'c':
			c.array(b[m.off:m.off+m.size], 4, uintNumber)
		default:
			c.Uint(v)
		}
	}
}

// structure makes an attrFunc of a structure of n bytes.
func structure(n int, list []member) attrFunc {
	return fixed(n, func(c *Cx, b []byte) {
		c.Struct()
		c.members(b, list)
		c.End()
	})
}

// numbers4 lists members of four bytes each, one after the other.
func numbersOf(size int, names ...string) []member {
	list := make([]member, len(names))
	for i, n := range names {
		list[i] = member{name: n, off: i * size, size: size}
	}
	return list
}
