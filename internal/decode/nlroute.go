package decode

import (
	"strconv"

	"github.com/sonde-trace/sonde/internal/constant"
)

// Messages of NETLINK_ROUTE: a structure that begins with an address family, then attributes. See rtnetlink(7) and the
// headers linux/rtnetlink.h, if_link.h, if_addr.h, neighbour.h, fib_rules.h, nexthop.h, netconf.h, net_namespace.h.

// A routeMsg is one kind of message.
type routeMsg struct {
	family string // name of the family member
	size   int
	list   []member
	attrs  *attrTable
}

// routeMsgs are indexed by the first type of each four: new, delete, get, set.
var routeMsgs = map[uint16]*routeMsg{
	16: linkMsg, 20: addrMsg, 24: routeMsgRoute, 28: neighMsg, 32: ruleMsg,
	36: tcMsg, 40: tcMsg, 44: tcMsg, 48: tcaMsg, 56: addrMsg, 60: addrMsg, 64: neighTableMsg, 72: addrLabelMsg,
	80: netconfMsg, 88: nsidMsg, 100: tcMsg, 104: nexthopMsg,
}

// routeMessage adds the payload of a message.
func (c *Cx) routeMessage(h []byte, s span) bool {
	kind := U16(h, 4)
	if kind == nlmsgDone {
		return false
	}
	b := c.take(s, 1)
	if b == nil {
		return true
	}
	family := b[0]
	m := routeMsgs[kind&^3]
	switch {
	case kind == 30 && family == afBridge: // RTM_GETNEIGH of a bridge asks with the message of a link
		m = linkMsg
	case kind&3 == 3 && kind != 19 && kind != 67: // of the set types only those of links and neighbour tables are there
		m = nil
	case kind == 65 || kind > 107: // there is no RTM_DELNEIGHTBL
		m = nil
	}
	if m == nil {
		c.familyOnly(family, s)
		return true
	}
	c.Struct()
	c.Field(m.family)
	c.Name(uint64(family), constant.AddressFamily)
	whole := true
	if m.size > 1 {
		if s.n < m.size {
			c.More()
			whole = false
		} else if b := c.take(s, m.size); b != nil {
			c.members(b, m.list)
		} else {
			whole = false
		}
	}
	c.End()
	if rest := align4(m.size); whole && s.n > rest {
		c.attrs(s.from(rest), m.attrs, &nlContext{family: family})
	}
	return true
}

// familyOnly adds a message of which only the family is known.
func (c *Cx) familyOnly(family uint8, s span) {
	c.Struct()
	c.Field("family")
	c.Name(uint64(family), constant.AddressFamily)
	if s.n > 1 {
		c.Field("data")
		c.hexSpan(s.from(1))
	}
	c.End()
}

var linkMsg = &routeMsg{"ifi_family", 16, []member{
	{"ifi_type", 2, 2, 'e', constant.HardwareType},
	{"ifi_index", 4, 4, 'i', nil},
	{"ifi_flags", 8, 4, 'f', constant.IffFlags},
	{"ifi_change", 12, 4, 'x', nil},
}, linkAttrs}

var linkAttrs = &attrTable{set: constant.IflaAttr, show: map[uint16]attrFunc{
	1: nlaHWAddr, 2: nlaHWAddr, 3: nlaText, 4: nlaUint(4), 5: nlaUint(4), 6: nlaText, 7: linkStats,
	10: nlaUint(4), 12: linkProtinfo, 13: nlaUint(4), 14: linkMap, 15: nlaUint(4), 16: nlaUint(1), 17: nlaUint(1),
	18: linkInfo, 19: nlaUint(4), 20: nlaText, 21: nlaUint(4), 23: linkStats64, 24: nested(vfPortAttrs), 25: nested(portAttrs),
	26: linkAFSpec, 27: nlaUint(4), 28: nlaFD, 29: nlaFlags(4, constant.RtextFilter), 30: nlaUint(4), 31: nlaUint(4),
	32: nlaUint(4), 33: nlaUint(1), 35: nlaUint(4), 37: nlaInt(4), 38: nlaText, 39: nlaUint(1), 40: nlaUint(4),
	41: nlaUint(4), 43: nested(xdpAttrs), 44: anyEnum(4, constant.IflaEvent), 45: nlaInt(4), 46: nlaInt(4), 47: nlaUint(4),
	48: nlaUint(4), 49: nlaIfindex, 50: nlaUint(4), 51: nlaUint(4), 52: linkProps, 53: nlaText, 54: nlaHWAddr,
	55: nested(protoDownAttrs), 56: nlaText, 57: nlaText, 58: nlaUint(4), 59: nlaUint(4), 60: nlaUint(4), 61: nlaUint(4),
	62: nlaUint(4), 63: nlaUint(4), 64: nlaUint(4), 66: nlaUint(8), 67: nlaUint(1), 68: nlaUint(2), 69: nlaUint(2),
}}

// linkStatNames are the members of struct rtnl_link_stats; rtnl_link_stats64 has wider ones, and one more.
var linkStatNames = []string{"rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped",
	"multicast", "collisions", "rx_length_errors", "rx_over_errors", "rx_crc_errors", "rx_frame_errors", "rx_fifo_errors",
	"rx_missed_errors", "tx_aborted_errors", "tx_carrier_errors", "tx_fifo_errors", "tx_heartbeat_errors", "tx_window_errors",
	"rx_compressed", "tx_compressed", "rx_nohandler", "rx_otherhost_dropped"}

var (
	linkStats32Members = numbersOf(4, linkStatNames[:24]...)
	linkStats64Members = numbersOf(8, linkStatNames...)
)

// grown shows a structure that has had several sizes: the largest that fits, but of the smaller ones only when it fits
// just so.
func grown(list []member, counts ...int) attrFunc {
	return func(c *Cx, s span, _ *nlContext) bool {
		for i, n := range counts {
			size := n * list[0].size
			if s.n == size || i == 0 && s.n > size {
				return structure(size, list[:n])(c, s, nil)
			}
		}
		return false
	}
}

var (
	linkStats   = grown(linkStats32Members, 24, 23)
	linkStats64 = grown(linkStats64Members, 25, 24, 23)
)

var linkMap = structure(28, []member{{"mem_start", 0, 8, 'x', nil}, {"mem_end", 8, 8, 'x', nil}, {"base_addr", 16, 8, 'x', nil},
	{"irq", 24, 2, 'u', nil}, {"dma", 26, 1, 'u', nil}, {"port", 27, 1, 'u', nil}})

func linkProtinfo(c *Cx, s span, x *nlContext) bool {
	switch x.family {
	case afBridge:
		c.attrs(s, brportAttrs, x)
	case afInet6:
		c.attrs(s, inet6Attrs, x)
	default:
		c.hexSpan(s)
	}
	return true
}

var bridgeID = fixed(8, func(c *Cx, b []byte) {
	c.Struct()
	c.Field("prio")
	c.array(b[:2], 1, uintNumber)
	c.Field("addr")
	c.hwAddr(b[2:8])
	c.End()
})

var brportAttrs = &attrTable{set: constant.IflaBrportAttr, show: map[uint16]attrFunc{
	1: nlaUint(1), 2: nlaUint(2), 3: nlaUint(4), 4: nlaUint(1), 5: nlaUint(1), 6: nlaUint(1), 7: nlaUint(1), 8: nlaUint(1),
	9: nlaUint(1), 10: nlaUint(1), 11: nlaUint(1), 12: nlaUint(1), 13: bridgeID, 14: bridgeID, 15: nlaUint(2), 16: nlaUint(2),
	17: nlaUint(2), 18: nlaUint(2), 19: nlaUint(1), 20: nlaUint(1), 21: nlaClock, 22: nlaClock, 23: nlaClock, 25: nlaUint(1),
	27: nlaUint(1), 28: nlaUint(1), 29: nlaUint(1), 30: nlaUint(1), 31: nlaXint(2), 32: nlaUint(1), 33: nlaUint(1),
	34: nlaIfindex, 35: nlaUint(1), 36: nlaUint(1), 37: nlaUint(4), 38: nlaUint(4), 39: nlaUint(1), 40: nlaUint(1),
	41: nlaUint(4), 42: nlaUint(4), 43: nlaUint(1), 44: nlaUint(4), 45: nlaUint(1),
}}

var inet6Attrs = &attrTable{set: constant.IflaInet6Attr, show: map[uint16]attrFunc{
	1: nlaFlags(4, constant.Inet6IfFlags), 2: nlaIndexed(4, constant.Inet6Devconf, intNumber),
	3: nlaIndexed(8, constant.SnmpIP, uintNumber),
	5: structure(16, numbersOf(4, "max_reasm_len", "tstamp", "reachable_time", "retrans_time")),
	6: nlaIndexed(8, constant.SnmpIcmp6, uintNumber), 7: nlaIn6Addr, 8: nlaEnum(1, constant.AddrGenMode), 9: nlaUint(4),
}}

// inetDevconf names the elements of IFLA_INET_CONF: the array begins with number 1.
var inetDevconf = renamed(constant.Ipv4Devconf, func(e constant.Entry) constant.Entry {
	return constant.Entry{Name: e.Name + "-1", Num: e.Num - 1}
})

// renamed makes a set whose entries are those of another, changed.
func renamed(s *constant.Set, change func(constant.Entry) constant.Entry) *constant.Set {
	r := &constant.Set{Prefix: s.Prefix, Flags: s.Flags}
	for _, e := range s.Entries {
		r.Entries = append(r.Entries, change(e))
	}
	return r
}

var inetAttrs = &attrTable{set: constant.IflaInetAttr, show: map[uint16]attrFunc{
	1: nlaIndexed(4, inetDevconf, intNumber),
}}

var mctpAttrs = &attrTable{set: constant.IflaMctpAttr, show: map[uint16]attrFunc{1: nlaUint(4), 2: nlaXint(1)}}

// linkAFSpec: attributes by family, each with a table of its own; of a bridge, those of the bridge.
func linkAFSpec(c *Cx, s span, x *nlContext) bool {
	if x.family == afBridge {
		c.attrs(s, bridgeAFAttrs, x)
	} else {
		c.attrs(s, afSpecAttrs, x)
	}
	return true
}

var afSpecAttrs = &attrTable{set: constant.AddressFamily, other: func(c *Cx, kind uint16, s span, x *nlContext) bool {
	switch kind {
	case afInet:
		c.attrs(s, inetAttrs, x)
	case afInet6:
		c.attrs(s, inet6Attrs, x)
	case afMCTP:
		c.attrs(s, mctpAttrs, x)
	default:
		return false
	}
	return true
}}

var bridgeVlanInfo = func(c *Cx, s span, _ *nlContext) bool {
	if s.n < 4 {
		return false
	}
	b := c.take(s, 4)
	if b == nil {
		return true
	}
	c.Struct()
	c.Field("flags")
	c.Flags(uint64(U16(b, 0)), constant.BridgeVlanFlags)
	c.Field("vid").Uint(uint64(U16(b, 2)))
	c.End()
	if s.n > 4 {
		c.hexSpan(s.from(4))
	}
	return true
}

var bridgeAFAttrs = &attrTable{set: constant.IflaBridgeAttr, show: map[uint16]attrFunc{
	0: nlaFlags(2, constant.BridgeFlags), 1: nlaEnum(2, constant.BridgeMode), 2: bridgeVlanInfo,
	3: nested(&attrTable{set: constant.IflaBridgeTunnelAttr, show: map[uint16]attrFunc{
		1: nlaUint(4), 2: nlaUint(2), 3: nlaFlags(2, constant.BridgeVlanFlags)}}),
}}

var xdpAttrs = &attrTable{set: constant.IflaXdpAttr, show: map[uint16]attrFunc{
	1: nlaFD, 2: nlaEnum(1, constant.XdpAttached), 3: anyFlags(4, constant.XdpFlags), 4: nlaUint(4), 5: nlaUint(4),
	6: nlaUint(4), 7: nlaUint(4), 8: nlaFD,
}}

var protoDownAttrs = &attrTable{set: constant.ProtoDownReasonAttr, show: map[uint16]attrFunc{1: nlaXint(4), 2: nlaXint(4)}}

var portAttrs = &attrTable{set: constant.IflaPortAttr, show: map[uint16]attrFunc{
	1: nlaUint(4), 2: nlaText, 3: fixed(8, func(c *Cx, b []byte) {
		c.Struct()
		c.Field("vsi_mgr_id").Uint(uint64(b[0]))
		c.Field("vsi_type_id")
		c.hexBytes(b[1:4])
		c.Field("vsi_type_version").Uint(uint64(b[4]))
		if !allZero(b[5:8]) {
			c.Field("pad")
			c.hexBytes(b[5:8])
		}
		c.End()
	}), 6: nlaUint(1), 7: nlaUint(2),
}}

var vfPortAttrs = &attrTable{set: constant.IflaVfPortAttr, show: map[uint16]attrFunc{1: nested(portAttrs)}}

// linkProps: IFLA_ALT_IFNAME alone.
func linkProps(c *Cx, s span, x *nlContext) bool {
	const altIfname = 53
	c.attrs(s, &attrTable{set: constant.IflaAttr, show: map[uint16]attrFunc{altIfname: nlaText}}, x)
	return true
}

// linkInfo: a kind of device, and data whose attributes depend on the kind.
func linkInfo(c *Cx, s span, x *nlContext) bool {
	inner := *x
	c.attrs(s, linkInfoAttrs, &inner)
	return true
}

var linkInfoAttrs = &attrTable{set: constant.IflaInfoAttr, show: map[uint16]attrFunc{
	1: func(c *Cx, s span, x *nlContext) bool {
		x.kind = kindName(s)
		return nlaUntilNUL(c, s, x)
	},
	3: func(c *Cx, s span, x *nlContext) bool {
		if x.kind != "can" {
			return false
		}
		return canStats(c, s, x)
	},
	4: func(c *Cx, s span, x *nlContext) bool {
		x.slave = kindName(s)
		return nlaUntilNUL(c, s, x)
	},
	5: func(c *Cx, s span, x *nlContext) bool {
		if x.slave != "bridge" {
			return false
		}
		c.attrs(s, brportAttrs, x)
		return true
	},
}}

var canStats = structure(24, numbersOf(4, "bus_error", "error_warning", "error_passive", "bus_off", "arbitration_lost", "restarts"))

// kindName is the name of a kind of device, empty when it is none.
func kindName(s span) string {
	if s.n >= 16 || len(s.b) < s.n {
		return ""
	}
	for i, ch := range s.b[:s.n] {
		if ch == 0 {
			return string(s.b[:i])
		}
	}
	return string(s.b[:s.n])
}

var addrMsg = &routeMsg{"ifa_family", 8, []member{
	{"ifa_prefixlen", 1, 1, 'u', nil}, {"ifa_flags", 2, 1, 'f', constant.IfaFlags},
	{"ifa_scope", 3, 1, 'e', constant.RtScope}, {"ifa_index", 4, 4, 'i', nil},
}, &attrTable{set: constant.IfaAttr, show: map[uint16]attrFunc{
	1: nlaAddr, 2: nlaAddr, 3: nlaText, 4: nlaAddr, 5: nlaAddr,
	6: structure(16, numbersOf(4, "ifa_prefered", "ifa_valid", "cstamp", "tstamp")),
	7: nlaAddr, 8: anyFlags(4, constant.IfaFlags), 9: nlaUint(4), 10: nlaInt(4),
}}}

var addrLabelMsg = &routeMsg{"ifal_family", 12, []member{
	{"ifal_prefixlen", 2, 1, 'u', nil}, {"ifal_flags", 3, 1, 'u', nil},
	{"ifal_index", 4, 4, 'i', nil}, {"ifal_seq", 8, 4, 'u', nil},
}, &attrTable{set: constant.IfalAttr, show: map[uint16]attrFunc{1: nlaAddr, 2: nlaUint(4)}}}

var routeMsgRoute = &routeMsg{"rtm_family", 12, []member{
	{"rtm_dst_len", 1, 1, 'u', nil}, {"rtm_src_len", 2, 1, 'u', nil}, {"rtm_tos", 3, 1, 'f', constant.IptosFlags},
	{"rtm_table", 4, 1, 'e', rtTableAny}, {"rtm_protocol", 5, 1, 'e', constant.RtProtocol},
	{"rtm_scope", 6, 1, 'e', constant.RtScope}, {"rtm_type", 7, 1, 'e', constant.RtnType},
	{"rtm_flags", 8, 4, 'f', constant.RtmFlags},
}, routeAttrs()}

// rtTableAny is RtTable for numbers of which most have no name, and need none.
var rtTableAny = &constant.Set{Entries: constant.RtTable.Entries}

// routeAttrs makes the table of RTA_*: RTA_MULTIPATH holds attributes of the table that it is in.
func routeAttrs() *attrTable {
	t := &attrTable{set: constant.RtaAttr}
	t.show = map[uint16]attrFunc{
		1: nlaAddr, 2: nlaAddr, 3: nlaIfindex, 4: nlaIfindex, 5: nlaAddr, 6: nlaUint(4), 7: nlaAddr, 8: nested(metricsAttrs),
		9:  func(c *Cx, s span, x *nlContext) bool { return c.multipath(s, t, x) },
		10: nlaUint(4), 11: nlaUint(4),
		12: structure(32, []member{{"rta_clntref", 0, 4, 'u', nil}, {"rta_lastuse", 4, 4, 'u', nil}, {"rta_expires", 8, 4, 'u', nil},
			{"rta_error", 12, 4, 'u', nil}, {"rta_used", 16, 4, 'u', nil}, {"rta_id", 20, 4, 'x', nil},
			{"rta_ts", 24, 4, 'u', nil}, {"rta_tsage", 28, 4, 'u', nil}}),
		14: nlaUint(4), 15: anyEnum(4, rtTableAny), 16: nlaUint(4),
		17: structure(24, numbersOf(8, "mfcs_packets", "mfcs_bytes", "mfcs_wrong_if")),
		18: routeVia, 19: nlaAddr, 20: nlaUint(1), 21: anyEnum(2, constant.LwtunnelEncap), 23: nlaUint(8), 25: nlaUint(4),
		26: nlaUint(1), 27: nlaUint(1), 28: nlaUint(2), 29: nlaUint(2), 30: nlaUint(4), 31: nlaBE32,
	}
	return t
}

var metricsAttrs = &attrTable{set: constant.RtaxAttr, show: map[uint16]attrFunc{
	1: nlaUint(4), 2: nlaUint(4), 3: nlaUint(4), 4: nlaUint(4), 5: nlaUint(4), 6: nlaUint(4), 7: nlaUint(4), 8: nlaUint(4),
	9: nlaUint(4), 10: nlaUint(4), 11: nlaUint(4), 12: nlaUint(4), 13: nlaUint(4), 14: nlaUint(4), 15: nlaUint(4), 16: nlaText,
}}

func routeVia(c *Cx, s span, _ *nlContext) bool {
	if s.n < 2 {
		return false
	}
	b := c.take(s, 2)
	if b == nil {
		return true
	}
	family := U16(b, 0)
	c.Struct()
	c.Field("rtvia_family")
	c.Name(uint64(family), constant.AddressFamily)
	if s.n > 2 {
		c.Field("rtvia_addr")
		c.inetSpan(s.from(2), int(family))
	}
	c.End()
	return true
}

// multipath adds a list of struct rtnexthop, each with attributes.
func (c *Cx) multipath(s span, t *attrTable, x *nlContext) bool {
	const head = 8
	if s.n < head {
		return false
	}
	if len(s.b) < head {
		c.Unreadable(s.addr, 0)
		return true
	}
	array := int(U16(s.b, 0)) < s.n
	if array {
		c.Array()
	}
	for {
		b := c.take(s, head)
		if b == nil {
			break
		}
		n := min(int(U16(b, 0)), s.n)
		if n > head {
			c.Array()
		}
		c.Struct()
		c.Field("rtnh_len").Uint(uint64(U16(b, 0)))
		c.Field("rtnh_flags")
		c.Flags(uint64(b[2]), constant.RtnhFlags)
		c.Field("rtnh_hops").Uint(uint64(b[3]))
		c.Field("rtnh_ifindex")
		c.ifIndex(U32(b, 4))
		c.End()
		if n > head {
			c.attrs(s.upto(n).from(head), t, x)
			c.End()
		}
		if n == 0 || align4(n) >= s.n {
			break
		}
		s = s.from(align4(n))
	}
	if array {
		c.End()
	}
	return true
}

var neighMsg = &routeMsg{"ndm_family", 12, []member{
	{"ndm_ifindex", 4, 4, 'i', nil}, {"ndm_state", 8, 2, 'f', constant.NudState},
	{"ndm_flags", 10, 1, 'f', constant.NtfFlags}, {"ndm_type", 11, 1, 'e', constant.RtnType},
}, &attrTable{set: constant.NdaAttr, show: map[uint16]attrFunc{
	1: nlaAddr, 2: nlaHWAddr, 3: structure(16, numbersOf(4, "ndm_confirmed", "ndm_used", "ndm_updated", "ndm_refcnt")),
	4: nlaUint(4), 5: nlaUint(2), 6: nlaBE16, 7: nlaUint(4), 8: nlaIfindex, 9: nlaIfindex, 10: nlaUint(4), 11: nlaUint(4),
	12: nlaIPProto, 13: nlaUint(4),
	14: nested(&attrTable{set: constant.NfeaAttr, show: map[uint16]attrFunc{1: nlaFlags(1, constant.FdbNotify)}}),
	15: nlaFlags(4, constant.NtfExtFlags), 16: nlaFlags(2, constant.NudState), 17: nlaFlags(1, constant.NtfFlags),
}}}

var neighTableMsg = &routeMsg{"ndtm_family", 1, nil, &attrTable{set: constant.NdtaAttr, show: map[uint16]attrFunc{
	1: nlaText, 2: nlaUint(4), 3: nlaUint(4), 4: nlaUint(4),
	5: structure(32, []member{{"ndtc_key_len", 0, 2, 'u', nil}, {"ndtc_entry_size", 2, 2, 'u', nil}, {"ndtc_entries", 4, 4, 'u', nil},
		{"ndtc_last_flush", 8, 4, 'u', nil}, {"ndtc_last_rand", 12, 4, 'u', nil}, {"ndtc_hash_rnd", 16, 4, 'u', nil},
		{"ndtc_hash_mask", 20, 4, '0', nil}, {"ndtc_hash_chain_gc", 24, 4, 'u', nil}, {"ndtc_proxy_qlen", 28, 4, 'u', nil}}),
	6: nested(&attrTable{set: constant.NdtpaAttr, show: map[uint16]attrFunc{
		1: nlaIfindex, 2: nlaUint(4), 3: nlaUint(8), 4: nlaUint(8), 5: nlaUint(8), 6: nlaUint(8), 7: nlaUint(8), 8: nlaUint(4),
		9: nlaUint(4), 10: nlaUint(4), 11: nlaUint(4), 12: nlaUint(8), 13: nlaUint(8), 14: nlaUint(4), 15: nlaUint(8),
		16: nlaUint(4), 17: nlaUint(4), 19: nlaUint(8)}}),
	7: grown(numbersOf(8, "ndts_allocs", "ndts_destroys", "ndts_hash_grows", "ndts_res_failed", "ndts_lookups", "ndts_hits",
		"ndts_rcv_probes_mcast", "ndts_rcv_probes_ucast", "ndts_periodic_gc_runs", "ndts_forced_gc_runs", "ndts_table_fulls"), 11, 10),
	8: nlaUint(8),
}}}

var ruleMsg = &routeMsg{"family", 12, []member{
	{"dst_len", 1, 1, 'u', nil}, {"src_len", 2, 1, 'u', nil}, {"tos", 3, 1, 'f', constant.IptosFlags},
	{"table", 4, 1, 'e', constant.RtTable}, {"action", 7, 1, 'e', constant.FrAct}, {"flags", 8, 4, 'f', constant.FibRuleFlags},
}, &attrTable{set: constant.FraAttr, show: map[uint16]attrFunc{
	1: nlaAddr, 2: nlaAddr, 3: nlaText, 4: nlaUint(4), 6: nlaUint(4), 10: nlaUint(4), 11: nlaUint(4), 12: nlaBE64,
	13: nlaUint(4), 14: nlaUint(4), 15: anyEnum(4, rtTableAny), 16: nlaUint(4), 17: nlaText, 19: nlaUint(1),
	20: structure(8, numbersOf(4, "start", "end")), 21: anyEnum(1, constant.RtProtocol), 22: nlaIPProto,
	23: structure(4, numbersOf(2, "start", "end")), 24: structure(4, numbersOf(2, "start", "end")), 25: nlaUint(1),
	26: nlaBE32, 27: nlaBE32, 28: nlaXint(2), 29: nlaXint(2), 30: nlaXint(1),
}}}

var netconfMsg = &routeMsg{"ncm_family", 1, nil, &attrTable{set: constant.NetconfaAttr, show: map[uint16]attrFunc{
	1: nlaIfindex, 2: nlaInt(4), 3: nlaInt(4), 4: nlaInt(4), 5: nlaInt(4), 6: nlaInt(4), 7: nlaInt(4), 8: nlaInt(4), 9: nlaInt(4),
}}}

var nsidMsg = &routeMsg{"rtgen_family", 1, nil, &attrTable{set: constant.NetnsaAttr, show: map[uint16]attrFunc{
	1: nlaInt(4), 2: nlaUint(4), 3: nlaFD, 4: nlaInt(4), 5: nlaInt(4),
}}}

var nexthopMsg = &routeMsg{"nh_family", 8, []member{
	{"nh_scope", 1, 1, 'e', constant.RtScope}, {"nh_protocol", 2, 1, 'e', constant.RtProtocol}, {"resvd", 3, 1, 'X', nil},
	{"nh_flags", 4, 4, 'f', constant.RtnhFlags},
}, &attrTable{set: constant.NhaAttr, show: map[uint16]attrFunc{
	1: nlaUint(4), 2: nlaArray(8, func(c *Cx, b []byte) {
		c.Struct()
		c.Field("id").Uint(uint64(U32(b, 0)))
		c.Field("weight").Uint(uint64(b[4]))
		c.Field("weight_high").Uint(uint64(b[5]))
		if r := U16(b, 6); r != 0 {
			c.Field("resvd2").Hex(uint64(r))
		}
		c.End()
	}), 3: nlaEnum(2, constant.NexthopGrpType), 4: nlaUint(4), 5: nlaIfindex, 6: nlaAddr, 7: anyEnum(2, constant.LwtunnelEncap),
	9: nlaUint(4), 10: nlaIfindex, 11: nlaUint(4),
	12: nested(&attrTable{set: constant.NhaResGroupAttr, show: map[uint16]attrFunc{
		1: nlaUint(2), 2: nlaClock, 3: nlaClock, 4: nlaClock}}),
	13: nested(&attrTable{set: constant.NhaResBucketAttr, show: map[uint16]attrFunc{
		1: nlaUint(2), 2: nlaClock, 3: nlaUint(4)}}),
}}}

var tcMsg = &routeMsg{"tcm_family", 20, []member{
	{"tcm_ifindex", 4, 4, 'i', nil}, {"tcm_handle", 8, 4, 'u', nil}, {"tcm_parent", 12, 4, 'u', nil}, {"tcm_info", 16, 4, 'u', nil},
}, &attrTable{set: constant.TcaAttr, show: map[uint16]attrFunc{
	1: nlaText,
	3: structure(36, []member{{"bytes", 0, 8, 'u', nil}, {"packets", 8, 4, 'u', nil}, {"drops", 12, 4, 'u', nil},
		{"overlimits", 16, 4, 'u', nil}, {"bps", 20, 4, 'u', nil}, {"pps", 24, 4, 'u', nil}, {"qlen", 28, 4, 'u', nil}, {"backlog", 32, 4, 'u', nil}}),
	5: structure(2, []member{{"interval", 0, 1, 'd', nil}, {"ewma_log", 1, 1, 'u', nil}}),
	6: nlaUint(4), 7: nested(tcStatsAttrs),
	8: nested(&attrTable{set: constant.TcaStabAttr, show: map[uint16]attrFunc{
		1: structure(24, []member{{"cell_log", 0, 1, 'u', nil}, {"size_log", 1, 1, 'u', nil}, {"cell_align", 2, 2, 'd', nil},
			{"overhead", 4, 4, 'd', nil}, {"linklayer", 8, 4, 'u', nil}, {"mpu", 12, 4, 'u', nil}, {"mtu", 16, 4, 'u', nil}, {"tsize", 20, 4, 'u', nil}}),
		2: nlaArray(2, uintNumber)}}),
	11: nlaUint(4), 12: nlaUint(1), 13: nlaUint(4), 14: nlaUint(4), 15: nlaUint(4), 16: nlaText,
}}}

var gnetBasic = structure(12, []member{{"bytes", 0, 8, 'u', nil}, {"packets", 8, 4, 'u', nil}})

var tcStatsAttrs = &attrTable{set: constant.TcaStatsAttr, show: map[uint16]attrFunc{
	1: gnetBasic, 2: structure(8, numbersOf(4, "bps", "pps")),
	3: structure(20, numbersOf(4, "qlen", "backlog", "drops", "requeues", "overlimits")),
	5: structure(16, numbersOf(8, "bps", "pps")), 7: gnetBasic, 8: nlaUint(8),
}}

var tcaMsg = &routeMsg{"tca_family", 1, nil, &attrTable{set: constant.TcaRootAttr, show: map[uint16]attrFunc{
	1: nested(&attrTable{other: func(c *Cx, _ uint16, s span, x *nlContext) bool {
		c.attrs(s, tcActionAttrs, x)
		return true
	}}),
	2: nlaFlags(4, constant.TcaRootFlags), 3: nlaUint(4),
	4: func(c *Cx, s span, _ *nlContext) bool { return c.ticks(s, 1000, 3) }, 5: nlaText,
}}}

var tcActionAttrs = &attrTable{set: constant.TcaActAttr, show: map[uint16]attrFunc{
	1: nlaText, 3: nlaUint(4), 4: nested(tcStatsAttrs), 7: nlaFlags(4, constant.TcaActFlags),
	8: nlaFlags(4, constant.TcaActHwStats), 9: nlaFlags(4, constant.TcaActHwStats), 10: nlaUint(4),
}}

// secondsText is a count of which hz make a second, in seconds; empty for none.
func secondsText(v, hz uint64, digits int) string {
	if v == 0 {
		return ""
	}
	frac := strconv.FormatUint(v%hz, 10)
	for len(frac) < digits {
		frac = "0" + frac
	}
	return strconv.FormatUint(v/hz, 10) + "." + frac + " s"
}

// unknownIndex is the index of an element that has no name.
func unknownIndex(i uint64, prefix string) string {
	return "0x" + strconv.FormatUint(i, 16) + " /* " + prefix + " */"
}
