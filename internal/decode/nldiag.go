package decode

import "github.com/sonde-trace/sonde/internal/constant"

// Messages of NETLINK_SOCK_DIAG, see sock_diag(7): what ss(8) asks and is told. linux/sock_diag.h, inet_diag.h,
// unix_diag.h, packet_diag.h, netlink_diag.h.

// sockDiagMessage adds the payload of a message: a request or an answer, by the header's flags.
func (c *Cx) sockDiagMessage(h []byte, s span) bool {
	const getsock, dccpGetsock = 18, 19 // TCPDIAG_GETSOCK, DCCPDIAG_GETSOCK: before there was sock_diag
	kind := U16(h, 4)
	if kind == nlmsgDone {
		return false
	}
	b := c.take(s, 1)
	if b == nil {
		return true
	}
	family := b[0]
	request := U16(h, 6)&nlmsgRequest != 0
	var d *diagMsg
	switch family {
	case afUnix:
		d = pick(request, unixDiagReq, unixDiagAnswer)
	case afInet, afInet6:
		d = pick(request, inetDiagReq, inetDiagAnswer)
		if request && (kind == getsock || kind == dccpGetsock) {
			d = inetDiagReqCompat
		}
	case afNetlink:
		d = pick(request, netlinkDiagReq, netlinkDiagAnswer)
	case afPacket:
		d = pick(request, packetDiagReq, packetDiagAnswer)
	}
	if d == nil || s.n <= 1 {
		c.familyOnly(family, s)
		return true
	}
	c.Struct()
	c.Field(d.family)
	c.Name(uint64(family), constant.AddressFamily)
	whole := false
	if s.n < d.size {
		c.More()
	} else if b := c.take(s, d.size); b != nil {
		d.show(c, b)
		whole = true
	}
	c.End()
	if rest := align4(d.size); whole && d.attrs != nil && s.n > rest {
		c.attrs(s.from(rest), d.attrs, &nlContext{family: family})
	}
	return true
}

func pick(first bool, a, b *diagMsg) *diagMsg {
	if first {
		return a
	}
	return b
}

// A diagMsg is one form of message.
type diagMsg struct {
	family string
	size   int
	show   func(c *Cx, b []byte)
	attrs  *attrTable
}

// listed makes a show function of members.
func listed(list ...member) func(c *Cx, b []byte) {
	return func(c *Cx, b []byte) { c.members(b, list) }
}

// Bits of states and of attributes are shown as shifts.
var (
	tcpStateBits = shifted("1<<TCP_???", constant.TcpState, "1<<", "", 0)
	inetDiagBits = shifted("1<<INET_DIAG_???-1", constant.InetDiagAttr, "1<<(", "-1)", 1)
)

// shifted makes a flag set of an enumeration: bit N-base stands for number N.
func shifted(prefix string, s *constant.Set, before, after string, base uint64) *constant.Set {
	r := &constant.Set{Prefix: prefix, Flags: true}
	for _, e := range s.Entries {
		if e.Num >= base && (base == 0 || e.Num > 0) {
			r.Entries = append(r.Entries, constant.Entry{Name: before + e.Name + after, Num: 1 << (e.Num - base)})
		}
	}
	return r
}

// inetDiagSockid adds a struct inet_diag_sockid of 48 bytes.
func (c *Cx) inetDiagSockid(b []byte, family uint8) {
	addr := func(name string, b []byte) {
		c.Field(name)
		switch family {
		case afInet:
			c.inetAddr(b[:4])
		case afInet6:
			c.inet6Addr(b)
		default:
			c.hexBytes(b)
		}
	}
	c.Field("id").Struct()
	c.netPort("idiag_sport", b[0:2])
	c.netPort("idiag_dport", b[2:4])
	addr("idiag_src", b[4:20])
	addr("idiag_dst", b[20:36])
	c.Field("idiag_if")
	c.ifIndex(U32(b, 36))
	c.Field("idiag_cookie")
	c.array(b[40:48], 4, uintNumber)
	c.End()
}

var inetDiagReqAttrs = &attrTable{set: constant.InetDiagReqAttr, show: map[uint16]attrFunc{
	1: inetDiagBytecode, 3: nlaIPProto,
}}

var inetDiagReq = &diagMsg{"sdiag_family", 56, func(c *Cx, b []byte) {
	c.Field("sdiag_protocol")
	c.Name(uint64(b[1]), constant.InetProtocol)
	c.Field("idiag_ext")
	c.Flags(uint64(b[2]), inetDiagBits)
	c.Field("idiag_states")
	c.Flags(uint64(U32(b, 4)), tcpStateBits)
	c.inetDiagSockid(b[8:56], b[0])
}, inetDiagReqAttrs}

var inetDiagReqCompat = &diagMsg{"idiag_family", 60, func(c *Cx, b []byte) {
	c.Field("idiag_src_len").Uint(uint64(b[1]))
	c.Field("idiag_dst_len").Uint(uint64(b[2]))
	c.Field("idiag_ext")
	c.Flags(uint64(b[3]), inetDiagBits)
	c.inetDiagSockid(b[4:52], b[0])
	c.Field("idiag_states")
	c.Flags(uint64(U32(b, 52)), tcpStateBits)
	c.Field("idiag_dbs").Uint(uint64(U32(b, 56)))
}, inetDiagReqAttrs}

var inetDiagAnswer = &diagMsg{"idiag_family", 72, func(c *Cx, b []byte) {
	c.Field("idiag_state")
	c.Name(uint64(b[1]), constant.TcpState)
	c.Field("idiag_timer").Uint(uint64(b[2]))
	c.Field("idiag_retrans").Uint(uint64(b[3]))
	c.inetDiagSockid(b[4:52], b[0])
	c.Field("idiag_expires").Uint(uint64(U32(b, 52)))
	c.Field("idiag_rqueue").Uint(uint64(U32(b, 56)))
	c.Field("idiag_wqueue").Uint(uint64(U32(b, 60)))
	c.Field("idiag_uid").Uint(uint64(U32(b, 64)))
	c.Field("idiag_inode").Uint(uint64(U32(b, 68)))
}, &attrTable{set: constant.InetDiagAttr, show: map[uint16]attrFunc{
	1: structure(16, numbersOf(4, "idiag_rmem", "idiag_wmem", "idiag_fmem", "idiag_tmem")),
	3: structure(16, numbersOf(4, "tcpv_enabled", "tcpv_rttcnt", "tcpv_rtt", "tcpv_minrtt")),
	4: nlaText, 5: nlaUint(1), 6: nlaUint(1), 7: nlaIndexed(4, constant.SkMeminfo, uintNumber),
	8: number(1, func(c *Cx, v uint64) { c.flagsVerbose(v, shutdownBits) }),
	9: structure(16, []member{{"dctcp_enabled", 0, 2, 'u', nil}, {"dctcp_ce_state", 2, 2, 'u', nil}, {"dctcp_alpha", 4, 4, 'u', nil},
		{"dctcp_ab_ecn", 8, 4, 'u', nil}, {"dctcp_ab_tot", 12, 4, 'u', nil}}),
	10: nlaIPProto, 11: nlaUint(1), 12: nlaArray(sockaddrMax, (*Cx).sockaddr), 13: nlaArray(sockaddrMax, (*Cx).sockaddr),
	15: nlaUint(4),
	16: structure(20, []member{{"bbr_bw_lo", 0, 4, 'x', nil}, {"bbr_bw_hi", 4, 4, 'x', nil}, {"bbr_min_rtt", 8, 4, 'u', nil},
		{"bbr_pacing_gain", 12, 4, 'u', nil}, {"bbr_cwnd_gain", 16, 4, 'u', nil}}),
	17: nlaUint(4), 18: nlaArray(100, (*Cx).tcpMD5), 21: nlaUint(8), 22: inetDiagSockopt,
}}}

// shutdownBits: include/net/sock.h.
var shutdownBits = &constant.Set{Prefix: "???_SHUTDOWN", Flags: true,
	Entries: []constant.Entry{{Name: "RCV_SHUTDOWN", Num: 1}, {Name: "SEND_SHUTDOWN", Num: 2}}}

// tcpMD5 adds a struct tcp_diag_md5sig.
func (c *Cx) tcpMD5(b []byte) {
	c.Struct()
	c.Field("tcpm_family")
	c.Name(uint64(b[0]), constant.AddressFamily)
	c.Field("tcpm_prefixlen").Uint(uint64(b[1]))
	c.Field("tcpm_keylen").Uint(uint64(U16(b, 2)))
	c.Field("tcpm_addr")
	switch b[0] {
	case afInet:
		c.inetAddr(b[4:8])
	case afInet6:
		c.inet6Addr(b[4:20])
	default:
		c.hexBytes(b[4:20])
	}
	c.Field("tcpm_key")
	c.hexBytes(b[20 : 20+min(int(U16(b, 2)), 80)])
	c.End()
}

// inetDiagSockopt: struct inet_diag_sockopt is bits; those that are not set are left out unless everything is asked for.
func inetDiagSockopt(c *Cx, s span, _ *nlContext) bool {
	if s.n < 2 {
		return false
	}
	b := c.take(s, 2)
	if b == nil {
		return true
	}
	v := U16(b, 0)
	c.Struct()
	for i, name := range [...]string{"recverr", "is_icsk", "freebind", "hdrincl", "mc_loop", "transparent", "mc_all", "nodefrag",
		"bind_address_no_port", "recverr_rfc4884", "defer_connect"} {
		if bit := v >> i & 1; bit != 0 || !c.Opt.Abbrev {
			c.Field(name).Uint(uint64(bit))
		}
	}
	if rest := v >> 11; rest != 0 || !c.Opt.Abbrev {
		c.Field("unused").Hex(uint64(rest))
		c.Builder.Note("bits 3..8")
	}
	c.End()
	if s.n > 2 && len(s.b) >= s.n && !allZero(s.b[2:s.n]) {
		c.hexSpan(s.from(2))
	}
	return true
}

// inetDiagBytecode: one operation of a filter, and the operand that follows it.
func inetDiagBytecode(c *Cx, s span, _ *nlContext) bool {
	if s.n < 4 {
		return false
	}
	b := c.take(s, 4)
	if b == nil {
		return true
	}
	c.bytecodeOp(b)
	if s.n == 4 {
		return true
	}
	p := s.from(4)
	switch b[0] {
	case 7, 8: // INET_DIAG_BC_S_COND, INET_DIAG_BC_D_COND
		c.hostcond(p)
	case 9: // INET_DIAG_BC_DEV_COND
		if !nlaIfindex(c, p, nil) {
			c.hexSpan(p)
		}
	case 2, 3, 4, 5: // INET_DIAG_BC_S_GE, S_LE, D_GE, D_LE
		if !fixed(4, (*Cx).bytecodeOp)(c, p, nil) {
			c.hexSpan(p)
		}
	case 10: // INET_DIAG_BC_MARK_COND
		if !structure(8, numbersOf(4, "mark", "mask"))(c, p, nil) {
			c.hexSpan(p)
		}
	default:
		c.hexSpan(p)
	}
	return true
}

func (c *Cx) bytecodeOp(b []byte) {
	c.Struct()
	c.Field("code")
	c.Name(uint64(b[0]), constant.InetDiagBytecode)
	c.Field("yes").Uint(uint64(b[1]))
	c.Field("no").Uint(uint64(U16(b, 2)))
	c.End()
}

func (c *Cx) hostcond(s span) {
	if s.n < 8 {
		c.hexSpan(s)
		return
	}
	b := c.take(s, 8)
	if b == nil {
		return
	}
	c.Struct()
	c.Field("family")
	c.Name(uint64(b[0]), constant.AddressFamily)
	c.Field("prefix_len").Uint(uint64(b[1]))
	c.Field("port").Int(I32(b, 4))
	if s.n > 8 {
		c.Field("addr")
		c.inetSpan(s.from(8), int(b[0]))
	}
	c.End()
}

var unixDiagReq = &diagMsg{"sdiag_family", 24, listed(
	member{"sdiag_protocol", 1, 1, 'u', nil}, member{"udiag_states", 4, 4, 'f', tcpStateBits}, member{"udiag_ino", 8, 4, 'u', nil},
	member{"udiag_show", 12, 4, 'f', constant.UnixDiagShow}, member{"udiag_cookie", 16, 8, 'c', nil}), nil}

var unixDiagAnswer = &diagMsg{"udiag_family", 16, listed(
	member{"udiag_type", 1, 1, 'e', constant.SocketType}, member{"udiag_state", 2, 1, 'e', constant.TcpState},
	member{"udiag_ino", 4, 4, 'u', nil}, member{"udiag_cookie", 8, 8, 'c', nil}),
	&attrTable{set: constant.UnixDiagAttr, show: map[uint16]attrFunc{
		0: nlaText,
		1: fixed(8, func(c *Cx, b []byte) {
			c.Struct()
			c.at(b, 4).dev("udiag_vfs_dev", 4)
			c.Field("udiag_vfs_ino").Uint(uint64(U32(b, 0)))
			c.End()
		}),
		2: nlaUint(4), 3: nlaArray(4, uintNumber), 4: structure(8, numbersOf(4, "udiag_rqueue", "udiag_wqueue")),
		5: nlaIndexed(4, constant.SkMeminfo, uintNumber), 6: nlaUint(1), 7: nlaUID,
	}}}

var packetDiagReq = &diagMsg{"sdiag_family", 20, listed(
	member{"sdiag_protocol", 1, 1, 'x', nil}, member{"pdiag_ino", 4, 4, 'u', nil},
	member{"pdiag_show", 8, 4, 'f', constant.PacketDiagShow}, member{"pdiag_cookie", 12, 8, 'c', nil}), nil}

var packetRing = structure(28, numbersOf(4, "pdr_block_size", "pdr_block_nr", "pdr_frame_size", "pdr_frame_nr", "pdr_retire_tmo",
	"pdr_sizeof_priv", "pdr_features"))

var packetDiagAnswer = &diagMsg{"pdiag_family", 16, listed(
	member{"pdiag_type", 1, 1, 'e', constant.SocketType}, member{"pdiag_num", 2, 2, 'e', constant.EthernetProtocol},
	member{"pdiag_ino", 4, 4, 'u', nil}, member{"pdiag_cookie", 8, 8, 'c', nil}),
	&attrTable{set: constant.PacketDiagAttr, show: map[uint16]attrFunc{
		0: structure(24, []member{{"pdi_index", 0, 4, 'i', nil}, {"pdi_version", 4, 4, 'e', constant.TpacketVersion},
			{"pdi_reserve", 8, 4, 'u', nil}, {"pdi_copy_thresh", 12, 4, 'u', nil}, {"pdi_tstamp", 16, 4, 'u', nil},
			{"pdi_flags", 20, 4, 'f', constant.PacketDiagFlags}}),
		1: nlaArray(44, func(c *Cx, b []byte) {
			c.Struct()
			c.members(b, []member{{"pdmc_index", 0, 4, 'i', nil}, {"pdmc_count", 4, 4, 'u', nil}, {"pdmc_type", 8, 2, 'u', nil},
				{"pdmc_alen", 10, 2, 'u', nil}})
			c.Field("pdmc_addr")
			c.hexBytes(b[12 : 12+min(int(U16(b, 10)), 32)])
			c.End()
		}),
		2: packetRing, 3: packetRing, 4: nlaUint(4), 5: nlaUID, 6: nlaIndexed(4, constant.SkMeminfo, uintNumber),
	}}}

var netlinkDiagReq = &diagMsg{"sdiag_family", 20, func(c *Cx, b []byte) {
	const all = 0xff // NDIAG_PROTO_ALL
	c.Field("sdiag_protocol")
	if b[1] == all {
		c.Sym("NDIAG_PROTO_ALL", all)
	} else {
		c.Name(uint64(b[1]), constant.NetlinkProtocol)
	}
	c.members(b, []member{{"ndiag_ino", 4, 4, 'u', nil}, {"ndiag_show", 8, 4, 'f', constant.NetlinkDiagShow}, {"ndiag_cookie", 12, 8, 'c', nil}})
}, nil}

var netlinkDiagRing = structure(16, numbersOf(4, "ndr_block_size", "ndr_block_nr", "ndr_frame_size", "ndr_frame_nr"))

var netlinkDiagAnswer = &diagMsg{"ndiag_family", 28, listed(
	member{"ndiag_type", 1, 1, 'e', constant.SocketType}, member{"ndiag_protocol", 2, 1, 'e', constant.NetlinkProtocol},
	member{"ndiag_state", 3, 1, 'e', constant.NetlinkState}, member{"ndiag_portid", 4, 4, 'u', nil},
	member{"ndiag_dst_portid", 8, 4, 'u', nil}, member{"ndiag_dst_group", 12, 4, 'u', nil}, member{"ndiag_ino", 16, 4, 'u', nil},
	member{"ndiag_cookie", 20, 8, 'c', nil}),
	&attrTable{set: constant.NetlinkDiagAttr, show: map[uint16]attrFunc{
		0: nlaIndexed(4, constant.SkMeminfo, uintNumber),
		1: func(c *Cx, s span, x *nlContext) bool {
			return nlaArray(c.ABI.PtrSize, func(c *Cx, b []byte) { c.hex0(peek(b, 0, len(b)), 2*len(b)) })(c, s, x)
		},
		2: netlinkDiagRing, 3: netlinkDiagRing, 4: anyFlags(4, constant.NetlinkDiagFlags),
	}}}
