package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Netlink messages: linux/netlink.h. A buffer is a sequence of struct nlmsghdr {u32 len; u16 type, flags; u32 seq, pid},
// each with a payload, padded to 4 bytes. What a type means depends on the protocol of the socket.

// Netlink protocols that the decoders tell apart.
const (
	netlinkUnknown   = -1 // nobody has looked
	netlinkRoute     = 0
	netlinkSockDiag  = 4
	netlinkXfrm      = 6
	netlinkSelinux   = 7
	netlinkAudit     = 9
	netlinkNetfilter = 12
	netlinkUevent    = 15
	netlinkGeneric   = 16
	netlinkCrypto    = 21
)

const (
	nlmsgHeader  = 16
	nlmsgMinType = 0x10
	nlmsgError   = 2
	nlmsgDone    = 3
	nlmsgRequest = 0x1   // NLM_F_REQUEST
	nlmsgCapped  = 0x100 // NLM_F_CAPPED

	// netlinkMax is how many bytes of a netlink buffer are taken: messages mean nothing when cut at the string limit.
	netlinkMax = 8192
)

// ifNetlink restricts a fetch to netlink sockets, or to all others; fetch at is the FetchSocket.
func ifNetlink(at int, f syscalls.Fetch) syscalls.Fetch {
	f.When = syscalls.Cond{Value: syscalls.Mem(at, 0, 2), Any: []uint64{afNetlink}}
	return f
}

func ifNotNetlink(at int, f syscalls.Fetch) syscalls.Fetch {
	f = ifNetlink(at, f)
	f.When.Not = true
	return f
}

// bufferFetches takes the buffer of argument arg, n bytes long, whole when it is a netlink message.
func bufferFetches(at, arg int, n syscalls.Number) []syscalls.Fetch {
	return []syscalls.Fetch{
		ifNotNetlink(at, syscalls.Buf(arg, n)),
		ifNetlink(at, syscalls.Vec(arg, n, 1, netlinkMax)),
	}
}

// netlinkProtocol is the protocol of the netlink socket of descriptor fd; ok is false for other sockets, and when nobody
// has looked at a socket whose peer is not a netlink address either.
func (c *Cx) netlinkProtocol(fd uint64, peer int) (protocol int, ok bool) {
	if k, known := c.socket(fd); known {
		return k.protocol, k.family == afNetlink
	}
	return netlinkUnknown, peer == afNetlink
}

// A span is a piece of the program's memory that is being taken apart: what was captured of n bytes at addr.
type span struct {
	b    []byte
	addr uint64
	n    int
}

// from is what follows the first off bytes.
func (s span) from(off int) span {
	return span{s.b[min(off, len(s.b)):], s.addr + uint64(off), s.n - off}
}

// upto is the first n bytes.
func (s span) upto(n int) span { return span{s.b[:min(n, len(s.b))], s.addr, n} }

// take returns the first n bytes; when they are not there it adds the address and returns nil.
func (c *Cx) take(s span, n int) []byte {
	if len(s.b) < n {
		c.Unreadable(s.addr, 0)
		return nil
	}
	return s.b[:n]
}

// hexSpan adds all of s as \xNN, cut at the string limit.
func (c *Cx) hexSpan(s span) { c.textSpan(s, event.AttrHex) }

func (c *Cx) textSpan(s span, attr event.Attr) {
	want := min(s.n, c.limit())
	if len(s.b) < want {
		c.Unreadable(s.addr, 0)
		return
	}
	node := event.Node{Kind: event.KindBytes, Data: s.b[:want], Num: uint64(s.n), Attr: attr}
	if want < s.n {
		node.Attr |= event.AttrTruncated
	}
	c.Add(node)
}

// cutShort marks the place where memory ends in the middle of a sequence, or stands for its beginning.
func (c *Cx) cutShort(s span, inArray bool) {
	if !inArray {
		c.Unreadable(s.addr, 0)
		return
	}
	c.More()
	c.Add(event.Node{Kind: event.KindNote, Num: s.addr})
}

// sequence walks records that begin with their length, which size takes from head bytes, padded to 4 bytes: it adds them
// as an array when there are several. show adds the record at the start of what is left.
func (c *Cx) sequence(s span, head int, size func(b []byte) int, show func(s span)) {
	array := false
	for i := 1; ; i++ {
		if s.n < head {
			c.hexSpan(s)
			break
		}
		if len(s.b) < head {
			c.cutShort(s, array)
			break
		}
		if c.Opt.Abbrev && i > c.limit() {
			c.More()
			break
		}
		n := size(s.b)
		next := n >= head && s.n > align4(n)
		if next && !array {
			c.Array()
			array = true
		}
		show(s)
		if !next {
			break
		}
		s = s.from(align4(n))
	}
	if array {
		c.End()
	}
}

func align4(n int) int { return (n + 3) &^ 3 }

// netlinkBuffer adds n bytes at addr as netlink messages.
func (c *Cx) netlinkBuffer(m Moment, addr uint64, n int64, protocol int) {
	if addr == 0 {
		c.Ptr(0)
		return
	}
	if n > 1<<30 {
		n = 1 << 30
	}
	b, _, _ := c.Mem(m, addr, int(n))
	s := span{b, addr, int(n)}
	if protocol == netlinkUevent {
		c.uevent(s)
		return
	}
	c.sequence(s, nlmsgHeader, func(b []byte) int { return int(min(U32(b, 0), 1<<30)) }, func(s span) {
		c.nlmsg(s, protocol)
	})
}

// nlmsg adds the message at the start of s.
func (c *Cx) nlmsg(s span, protocol int) {
	b := s.b[:nlmsgHeader]
	n := int(min(U32(b, 0), uint32(s.n)))
	if n <= nlmsgHeader {
		c.nlmsghdr(b, protocol)
		return
	}
	c.Array()
	c.nlmsghdr(b, protocol)
	c.nlmsgPayload(b, s.upto(n).from(nlmsgHeader), protocol)
	c.End()
}

func (c *Cx) nlmsghdr(b []byte, protocol int) {
	kind := U16(b, 4)
	c.Struct()
	c.Field("nlmsg_len").Uint(uint64(U32(b, 0)))
	c.Field("nlmsg_type")
	c.nlmsgType(kind, protocol)
	c.Field("nlmsg_flags")
	c.flags2(uint64(U16(b, 6)), constant.NlmsgFlags, nlmsgFlagsOf(kind, protocol))
	c.Field("nlmsg_seq").Uint(uint64(U32(b, 8)))
	c.Field("nlmsg_pid")
	c.PID(uint64(U32(b, 12)))
	c.End()
}

// flags2 is Flags by two sets, of which the second may be nil.
func (c *Cx) flags2(v uint64, s, more *constant.Set) {
	if v == 0 || more == nil {
		c.Flags(v, s)
		return
	}
	at := len(c.Nodes)
	c.Begin(event.Node{Kind: event.KindFlags, Num: v})
	for _, set := range [2]*constant.Set{s, more} {
		for i := range set.Entries {
			if e := &set.Entries[i]; e.Num != 0 && v&e.Num == e.Num {
				c.Sym(e.Name, e.Num)
				v &^= e.Num
			}
		}
	}
	if v != 0 {
		node := event.Node{Kind: event.KindHex, Num: v}
		if len(c.Nodes) == at+1 {
			node.Sym = s.Prefix
		}
		c.Add(node)
	}
	c.End()
}

// nlmsgTypes name the message types of a protocol.
var nlmsgTypes = map[int]*constant.Set{
	netlinkAudit: constant.AuditType, netlinkCrypto: constant.CryptoMsg, netlinkRoute: constant.RtmType,
	netlinkSelinux: constant.SelinuxMsg, netlinkSockDiag: constant.SockDiagMsg, netlinkXfrm: constant.XfrmMsg,
}

func (c *Cx) nlmsgType(kind uint16, protocol int) {
	v := uint64(kind)
	if kind < nlmsgMinType {
		c.Name(v, constant.NlmsgType)
		return
	}
	switch protocol {
	case netlinkGeneric:
		c.genericFamily(kind)
		return
	case netlinkNetfilter:
		c.netfilterType(kind)
		return
	}
	if s := nlmsgTypes[protocol]; s != nil {
		c.Name(v, s)
		return
	}
	c.Name(v, constant.NlmsgType)
}

// nlctrlID is the family of generic netlink that tells the numbers of the others (GENL_ID_CTRL); all but it are given out
// while the kernel runs.
const nlctrlID = 0x10

func (c *Cx) genericFamily(kind uint16) {
	if kind == nlctrlID {
		c.Sym("nlctrl", nlctrlID)
		return
	}
	c.Add(event.Node{Kind: event.KindHex, Num: uint64(kind), Sym: "GENERIC_FAMILY_???"})
}

// nlmsgFlagsOf are the flags that a type of message has beside those of all.
func nlmsgFlagsOf(kind uint16, protocol int) *constant.Set {
	if kind < nlmsgMinType {
		if kind == nlmsgError {
			return constant.NlmsgAckFlags
		}
		return nil
	}
	switch protocol {
	case netlinkCrypto:
		switch kind {
		case 0x10: // CRYPTO_MSG_NEWALG
			return constant.NlmsgNewFlags
		case 0x11, 0x14: // CRYPTO_MSG_DELALG, CRYPTO_MSG_DELRNG
			return constant.NlmsgDeleteFlags
		case 0x13: // CRYPTO_MSG_GETALG
			return constant.NlmsgGetFlags
		}
	case netlinkGeneric, netlinkSockDiag:
		return constant.NlmsgGetFlags
	case netlinkNetfilter:
		return netfilterFlags(kind)
	case netlinkRoute:
		const delAction = 49 // RTM_DELACTION takes the flags of a dump
		if kind == delAction {
			return constant.NlmsgGetFlags
		}
		// The types of a kind stand in fours: new, delete, get, set.
		return [4]*constant.Set{constant.NlmsgNewFlags, constant.NlmsgDeleteFlags, constant.NlmsgGetFlags, nil}[kind&3]
	case netlinkXfrm:
		switch kind {
		case 0x10, 0x13, 0x1e, 0x22, 0x24: // NEWSA, NEWPOLICY, NEWAE, NEWSADINFO, NEWSPDINFO
			return constant.NlmsgNewFlags
		case 0x11, 0x14: // DELSA, DELPOLICY
			return constant.NlmsgDeleteFlags
		case 0x12, 0x15, 0x1f, 0x23, 0x25: // GETSA, GETPOLICY, GETAE, GETSADINFO, GETSPDINFO
			return constant.NlmsgGetFlags
		}
	}
	return nil
}

// nlmsgPayload adds what follows the header h.
func (c *Cx) nlmsgPayload(h []byte, s span, protocol int) {
	kind := U16(h, 4)
	if kind == nlmsgError {
		c.nlmsgerr(s, protocol, U16(h, 6)&nlmsgCapped != 0)
		return
	}
	if kind >= nlmsgMinType || kind == nlmsgDone {
		done := false
		switch protocol {
		case netlinkCrypto:
			done = c.cryptoMessage(h, s)
		case netlinkGeneric:
			done = c.genericMessage(h, s)
		case netlinkNetfilter:
			done = c.netfilterMessage(h, s)
		case netlinkRoute:
			done = c.routeMessage(h, s)
		case netlinkSelinux:
			done = c.selinuxMessage(h, s)
		case netlinkSockDiag:
			done = c.sockDiagMessage(h, s)
		}
		if done {
			return
		}
	}
	if kind == nlmsgDone && s.n == 4 {
		if b := c.take(s, 4); b != nil {
			c.Int(I32(b, 0))
		}
		return
	}
	c.hexSpan(s)
}

var nlmsgerrAttrs = &attrTable{set: constant.NlmsgerrAttr, show: map[uint16]attrFunc{
	1: nlaText, 2: nlaUint(4), 3: func(c *Cx, s span, _ *nlContext) bool { c.spanArray(s, 1, uintNumber); return true },
}}

// nlmsgerr adds a struct nlmsgerr: an error number, the header that it answers, and unless capped the message that had it;
// then attributes.
func (c *Cx) nlmsgerr(s span, protocol int, capped bool) {
	const size = 4 + nlmsgHeader
	if s.n < size {
		c.hexSpan(s)
		return
	}
	b := c.take(s, size)
	if b == nil {
		return
	}
	msg := s.from(4)
	payload := nlmsgHeader
	if !capped {
		payload = max(nlmsgHeader, int(min(U32(b, 4), 1<<30)))
	}
	payload = min(msg.n, payload)
	more := msg.n > payload
	if more {
		c.Array()
	}
	c.Struct()
	c.Field("error")
	c.nlError(I32(b, 0))
	c.Field("msg")
	c.nlmsg(msg.upto(payload), protocol)
	c.End()
	if more {
		c.attrs(msg.from(payload), nlmsgerrAttrs, nil)
		c.End()
	}
}

// nlError adds an error number as the kernel has it: -ENOENT.
func (c *Cx) nlError(v int64) {
	if v < 0 && v > -(1<<16) {
		if name := constant.ErrnoOf(int(-v)).Name; name != "" {
			c.Add(event.Node{Kind: event.KindSym, Attr: event.AttrDecimal, Sym: "-" + name, Num: uint64(v)})
			return
		}
	}
	c.Int(v)
}

// uevent adds a message of udev's monitor: a header that udevd writes, or text from the kernel.
func (c *Cx) uevent(s span) {
	const size, prefix = 40, "libudev\x00"
	if s.n < size || len(s.b) < size || string(s.b[:len(prefix)]) != prefix {
		c.textSpan(s, 0)
		return
	}
	b := s.b[:size]
	if s.n > size {
		c.Array()
	}
	htonl := func(name string, off int) {
		c.Field(name).Call("htonl")
		c.Hex(uint64(be32(b[off:])))
		c.End()
	}
	c.Struct()
	c.Field("prefix")
	c.cstring(b[:8])
	htonl("magic", 8)
	c.Field("header_size").Uint(uint64(U32(b, 12)))
	c.Field("properties_off").Uint(uint64(U32(b, 16)))
	c.Field("properties_len").Uint(uint64(U32(b, 20)))
	htonl("filter_subsystem_hash", 24)
	htonl("filter_devtype_hash", 28)
	htonl("filter_tag_bloom_hi", 32)
	htonl("filter_tag_bloom_lo", 36)
	c.End()
	if s.n > size {
		c.textSpan(s.from(size), 0)
		c.End()
	}
}

// selinuxMessage: linux/selinux_netlink.h.
func (c *Cx) selinuxMessage(h []byte, s span) bool {
	kind := U16(h, 4)
	if kind != 0x10 && kind != 0x11 {
		return false
	}
	if s.n < 4 {
		c.hexSpan(s)
		return true
	}
	if b := c.take(s, 4); b != nil {
		c.Struct()
		if kind == 0x10 { // SELNL_MSG_SETENFORCE
			c.Field("val").Int(I32(b, 0))
		} else {
			c.Field("seqno").Uint(uint64(U32(b, 0)))
		}
		c.End()
	}
	return true
}

// genericMessage: struct genlmsghdr {u8 cmd, version; u16 reserved} and attributes, linux/genetlink.h.
func (c *Cx) genericMessage(h []byte, s span) bool {
	const size = 4
	if s.n < size || U16(h, 4) == nlmsgDone {
		return false
	}
	b := c.take(s, size)
	if b == nil {
		return true
	}
	c.Struct()
	c.Field("cmd")
	ctrl := U16(h, 4) == nlctrlID
	if ctrl {
		c.Name(uint64(b[0]), constant.CtrlCmd)
	} else {
		c.Hex(uint64(b[0]))
	}
	c.Field("version").Uint(uint64(b[1]))
	if r := U16(b, 2); r != 0 {
		c.Field("reserved").Hex(uint64(r))
	}
	c.End()
	if s.n > size {
		if ctrl {
			c.attrs(s.from(size), ctrlAttrs, nil)
		} else {
			c.attrs(s.from(size), nil, nil)
		}
	}
	return true
}
