package decode

import (
	"github.com/sonde-trace/sonde/internal/constant"
)

// Messages of NETLINK_NETFILTER, NETLINK_CRYPTO and of the family "nlctrl" of NETLINK_GENERIC.

const nftablesSubsys = 10 // NFNL_SUBSYS_NFTABLES

// netfilterTypes are the messages of the subsystems: linux/netfilter/nfnetlink.h numbers them.
var netfilterTypes = [...]*constant.Set{
	1: constant.NfCtMsg, 2: constant.NfCtExpMsg, 3: constant.NfQueueMsg, 4: constant.NfUlogMsg, 5: constant.NfOsfMsg,
	6: constant.NfIpsetMsg, 7: constant.NfAcctMsg, 8: constant.NfCttimeoutMsg, 9: constant.NfCthelperMsg,
	nftablesSubsys: constant.NfTablesMsg, 11: constant.NfCompatMsg, 12: constant.NfHookMsg,
}

// netfilterType adds a type: a subsystem in its high byte, a message in its low one.
func (c *Cx) netfilterType(kind uint16) {
	if name, ok := constant.NfnlMsg.Name(uint64(kind)); ok {
		c.Sym(name, uint64(kind))
		return
	}
	subsys, msg := int(kind>>8), uint64(kind&0xff)
	c.expr("|")
	c.expr("<<")
	c.Name(uint64(subsys), constant.NfnlSubsys)
	c.Uint(8)
	c.End()
	if subsys < len(netfilterTypes) {
		if s := netfilterTypes[subsys]; s != nil {
			c.Name(msg, s)
		} else {
			c.Hex(msg)
		}
	} else {
		c.Hex(msg)
	}
	c.End()
}

// netfilterFlags are the flags of a message by what its name says that it does.
func netfilterFlags(kind uint16) *constant.Set {
	const set, get, del = 1, 2, 3
	var verbs []byte // by message
	switch kind >> 8 {
	case 1:
		verbs = []byte{set, get, del, get, get, get, get, get}
	case 2:
		verbs = []byte{set, get, del, get}
	case 7:
		verbs = []byte{set, get, get, del}
	case 8, 9:
		verbs = []byte{set, get, del}
	case nftablesSubsys:
		verbs = []byte{set, get, del, set, get, del, set, get, del, set, get, del, set, get, del, set, get, 0, set, get, del, get,
			set, get, del, get, del, del, del, del, del, del, del, get}
	case 11, 12:
		verbs = []byte{get}
	}
	if m := int(kind & 0xff); m < len(verbs) {
		return [...]*constant.Set{0: nil, set: constant.NlmsgNewFlags, get: constant.NlmsgGetFlags, del: constant.NlmsgDeleteFlags}[verbs[m]]
	}
	return nil
}

// netfilterMessage: struct nfgenmsg {u8 family, version; be16 res_id} and attributes.
func (c *Cx) netfilterMessage(h []byte, s span) bool {
	const size = 4
	kind := U16(h, 4)
	if kind == nlmsgDone {
		return false
	}
	if s.n < size {
		c.hexSpan(s)
		return true
	}
	b := c.take(s, size)
	if b == nil {
		return true
	}
	c.Struct()
	c.Field("nfgen_family")
	c.Name(uint64(b[0]), constant.AddressFamily)
	c.Field("version")
	c.Name(uint64(b[1]), constant.NfnetlinkVersion)
	c.Field("res_id")
	host, net := uint64(U16(b, 2)), uint64(be16(b[2:]))
	switch {
	case kind>>8 == nftablesSubsys && net == nftablesSubsys:
		c.Sym("htons(NFNL_SUBSYS_NFTABLES)", host)
	case kind>>8 == nftablesSubsys && host == nftablesSubsys:
		// Old kernels and programs had the wrong byte order here.
		c.Sym("NFNL_SUBSYS_NFTABLES", host)
	default:
		c.Call("htons")
		c.Uint(net)
		c.End()
	}
	c.End()
	if s.n <= size {
		return true
	}
	if _, batch := constant.NfnlMsg.Name(uint64(kind)); batch {
		c.hexSpan(s.from(size))
	} else {
		c.attrs(s.from(size), nil, nil)
	}
	return true
}

// cryptoMessage: struct crypto_user_alg {char name[64], driver_name[64], module_name[64]; u32 type, mask, refcnt, flags} and
// attributes, linux/cryptouser.h.
func (c *Cx) cryptoMessage(h []byte, s span) bool {
	const name, size = 64, 208
	if kind := U16(h, 4); kind < 0x10 || kind > 0x13 {
		return false
	}
	if s.n < size {
		c.hexSpan(s)
		return true
	}
	b := c.take(s, size)
	if b == nil {
		return true
	}
	c.Struct()
	c.Field("cru_name")
	c.cstring(b[:name])
	c.Field("cru_driver_name")
	c.cstring(b[name : 2*name])
	c.Field("cru_module_name")
	c.cstring(b[2*name : 3*name])
	c.Field("cru_type").Hex(uint64(U32(b, 192)))
	c.Field("cru_mask").Hex(uint64(U32(b, 196)))
	c.Field("cru_refcnt").Uint(uint64(U32(b, 200)))
	c.Field("cru_flags").Hex(uint64(U32(b, 204)))
	c.End()
	if s.n > size {
		c.attrs(s.from(size), nil, nil)
	}
	return true
}

// each makes an attrFunc of attributes whose types are numbers of elements.
func each(f attrFunc) attrFunc {
	return nested(&attrTable{other: func(c *Cx, _ uint16, s span, x *nlContext) bool { return f(c, s, x) }})
}

var ctrlAttrs = &attrTable{set: constant.CtrlAttr, show: map[uint16]attrFunc{
	1: nlaXint(2), 2: nlaText, 3: nlaUint(4), 4: nlaUint(4), 5: nlaUint(4),
	6: each(nested(&attrTable{set: constant.CtrlAttrOp, show: map[uint16]attrFunc{
		1: nlaEnum(4, constant.CtrlCmd), 2: nlaFlags(4, constant.CtrlOpFlags)}})),
	7:  each(nested(&attrTable{set: constant.CtrlAttrMcastGrp, show: map[uint16]attrFunc{1: nlaText, 2: nlaXint(4)}})),
	8:  each(each(nested(policyTypeAttrs))),
	9:  each(nested(&attrTable{set: constant.CtrlAttrPolicy, show: map[uint16]attrFunc{1: nlaUint(4), 2: nlaUint(4)}})),
	10: nlaUint(4),
}}

var policyTypeAttrs = &attrTable{set: constant.NlPolicyTypeAttr, show: map[uint16]attrFunc{
	1: nlaEnum(4, constant.NlAttrType), 2: nlaInt(8), 3: nlaInt(8), 4: nlaUint(8), 5: nlaUint(8), 6: nlaUint(4), 7: nlaUint(4),
	8: nlaXint(4), 9: nlaXint(4), 10: nlaXint(4), 12: nlaXint(8),
}}
