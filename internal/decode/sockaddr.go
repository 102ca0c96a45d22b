package decode

import (
	"strconv"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Socket addresses: struct sockaddr of every family (include/uapi/linux and, for Bluetooth and IEEE 802.15.4, include/net).

// Address families that the decoders tell apart: include/linux/socket.h.
const (
	afUnspec     = 0
	afUnix       = 1
	afInet       = 2
	afAX25       = 3
	afIPX        = 4
	afBridge     = 7
	afX25        = 9
	afInet6      = 10
	afNetlink    = 16
	afPacket     = 17
	afIrda       = 23
	afMPLS       = 28
	afCAN        = 29
	afTIPC       = 30
	afBluetooth  = 31
	afRxrpc      = 33
	afISDN       = 34
	afPhonet     = 35
	afIEEE802154 = 36
	afCAIF       = 37
	afAlg        = 38
	afNFC        = 39
	afVsock      = 40
	afKCM        = 41
	afQrtr       = 42
	afSMC        = 43
	afXDP        = 44
	afMCTP       = 45
)

const (
	sockaddrMax  = 128 // struct sockaddr_storage
	sockaddrIn   = 16
	sockaddrIn6  = 28
	sin6Min      = 24 // without the scope: RFC 2133
	sockaddrUn   = 110
	sizeofFamily = 2
)

// sockaddrFamilies are the families with a form of their own, and the length from which an address has it.
var sockaddrFamilies = [...]struct {
	min  int
	show func(c *Cx, b []byte)
}{
	afUnix:       {sizeofFamily + 1, (*Cx).sockaddrUnix},
	afInet:       {sockaddrIn, (*Cx).sockaddrInet},
	afAX25:       {16, (*Cx).sockaddrAX25},
	afIPX:        {16, (*Cx).sockaddrIPX},
	afX25:        {18, (*Cx).sockaddrX25},
	afInet6:      {sin6Min, (*Cx).sockaddrInet6},
	afNetlink:    {12, (*Cx).sockaddrNetlink},
	afPacket:     {20, (*Cx).sockaddrPacket},
	afTIPC:       {16, (*Cx).sockaddrTIPC},
	afBluetooth:  {sizeofFamily + 1, (*Cx).sockaddrBluetooth},
	afRxrpc:      {36, (*Cx).sockaddrRxrpc},
	afIEEE802154: {20, (*Cx).sockaddrIEEE802154},
	afAlg:        {25, (*Cx).sockaddrAlg},
	afNFC:        {16, (*Cx).sockaddrNFC},
	afVsock:      {16, (*Cx).sockaddrVsock},
	afQrtr:       {12, (*Cx).sockaddrQrtr},
	afXDP:        {16, (*Cx).sockaddrXDP},
	afMCTP:       {12, (*Cx).sockaddrMCTP},
}

// sockaddrFetch takes the address that argument arg points to, n bytes long.
func sockaddrFetch(arg int, n syscalls.Number) syscalls.Fetch {
	return syscalls.Fetch{Kind: syscalls.FetchBytes, Base: syscalls.Arg(arg), Len: syscalls.Length{Number: n, Max: sockaddrMax}}
}

// Sockaddr adds the socket address of n bytes at addr and returns its family, or -1 when it shows no more than where the
// address would be.
func (c *Cx) Sockaddr(m Moment, addr uint64, n int64) int {
	if n < sizeofFamily {
		c.Ptr(addr)
		return -1
	}
	b, errno := c.Bytes(m, addr, int(min(n, sockaddrMax)))
	if b == nil {
		c.Unreadable(addr, errno)
		return -1
	}
	c.sockaddr(b)
	return int(U16(b, 0))
}

// sockaddr adds the address in b, which has two bytes or more.
func (c *Cx) sockaddr(b []byte) {
	family := int(U16(b, 0))
	c.Struct()
	c.Field("sa_family")
	c.Name(uint64(family), constant.AddressFamily)
	if len(b) > sizeofFamily {
		if family < len(sockaddrFamilies) && sockaddrFamilies[family].show != nil && len(b) >= sockaddrFamilies[family].min {
			sockaddrFamilies[family].show(c, b)
		} else {
			c.sockaddrRaw(b)
		}
	}
	c.End()
}

func (c *Cx) sockaddrRaw(b []byte) {
	c.Field("sa_data")
	c.whole(b[sizeofFamily:])
}

// whole adds bytes in full, whatever the string limit.
func (c *Cx) whole(b []byte) {
	c.Add(event.Node{Kind: event.KindBytes, Data: b, Num: uint64(len(b)), Attr: event.AttrPath})
}

// hexBytes is whole with every byte as \xNN.
func (c *Cx) hexBytes(b []byte) {
	c.Add(event.Node{Kind: event.KindBytes, Data: b, Num: uint64(len(b)), Attr: event.AttrPath | event.AttrHex})
}

// untilNUL adds the text in b up to its NUL, or all of it.
func (c *Cx) untilNUL(b []byte) {
	for i, ch := range b {
		if ch == 0 {
			b = b[:i]
			break
		}
	}
	c.Add(event.Node{Kind: event.KindString, Data: b, Attr: event.AttrPath})
}

// sockaddrUnix: a path, or after a NUL a name of the abstract namespace, which may hold anything. See unix(7).
func (c *Cx) sockaddrUnix(b []byte) {
	path := b[sizeofFamily:min(len(b), sockaddrUn)]
	c.Field("sun_path")
	if path[0] != 0 {
		c.untilNUL(path)
		return
	}
	c.Add(event.Node{Kind: event.KindBytes, Sym: "@", Data: path[1:], Num: uint64(len(path) - 1), Attr: event.AttrPath})
}

func (c *Cx) sockaddrInet(b []byte) {
	c.netPort("sin_port", b[2:4])
	c.Field("sin_addr")
	c.inetAddr(b[4:8])
}

func (c *Cx) sockaddrInet6(b []byte) {
	c.netPort("sin6_port", b[2:4])
	c.Field("sin6_flowinfo")
	c.htonl(b[4:8])
	c.Field("sin6_addr")
	c.inet6Addr(b[8:24])
	if len(b) <= sin6Min {
		return
	}
	scope := uint32(peek(b, 24, 4))
	c.Field("sin6_scope_id")
	// fe80::/10 and ffx2::/16 are valid on one link only; the scope is its index.
	if b[8] == 0xfe && b[9]&0xc0 == 0x80 || b[8] == 0xff && b[9]&0x0f == 2 {
		c.ifIndex(scope)
	} else {
		c.Uint(uint64(scope))
	}
}

// ifIndex adds an interface by its index. Decoding is pure: the only name that can be known is that of index 1, which is
// the loopback device of every network namespace (LOOPBACK_IFINDEX, include/net/net_namespace.h).
func (c *Cx) ifIndex(v uint32) {
	if v == 1 {
		c.Add(event.Node{Kind: event.KindSym, Attr: event.AttrDecimal, Sym: `if_nametoindex("lo")`, Num: 1})
		return
	}
	c.Uint(uint64(v))
}

// rawCall opens a macro that converts the bytes raw.
func (c *Cx) rawCall(macro string, raw []byte) {
	c.Begin(event.Node{Kind: event.KindCall, Sym: macro, Data: raw})
}

// netPort adds a port number in network order, htonl and htons other numbers.
func (c *Cx) netPort(name string, b []byte) {
	c.Field(name)
	c.htons(b)
}

func (c *Cx) htons(b []byte) {
	c.rawCall("htons", b)
	c.Uint(uint64(b[0])<<8 | uint64(b[1]))
	c.End()
}

func (c *Cx) htonl(b []byte) {
	c.rawCall("htonl", b)
	c.Uint(uint64(be32(b)))
	c.End()
}

func be16(b []byte) uint16 { return uint16(b[0])<<8 | uint16(b[1]) }
func be32(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

// inetAddr adds the IPv4 address in the 4 bytes of b.
func (c *Cx) inetAddr(b []byte) {
	c.rawCall("inet_addr", b)
	c.inetText(b)
	c.End()
}

// inet6Addr adds the IPv6 address in the 16 bytes of b.
func (c *Cx) inet6Addr(b []byte) {
	c.rawCall("inet_pton", b)
	c.Sym("AF_INET6", afInet6)
	c.inetText(b)
	c.End()
}

// inetText adds an address of 4 or 16 bytes as text.
func (c *Cx) inetText(b []byte) {
	var buf [48]byte
	t := buf[:0]
	if len(b) == 4 {
		t = appendInet(t, b)
	} else {
		t = appendInet6(t, b)
	}
	c.Add(event.Node{Kind: event.KindString, Data: c.Keep(t), Attr: event.AttrPath})
}

func appendInet(t, b []byte) []byte {
	for i, v := range b[:4] {
		if i > 0 {
			t = append(t, '.')
		}
		t = strconv.AppendUint(t, uint64(v), 10)
	}
	return t
}

// appendInet6 writes an address as inet_ntop(3) does: the longest run of two or more zero groups is left out, and what
// embeds an IPv4 address (::a.b.c.d, ::ffff:a.b.c.d) shows it in dotted form.
func appendInet6(t, b []byte) []byte {
	var g [8]uint16
	for i := range g {
		g[i] = be16(b[2*i:])
	}
	at, n := -1, 1
	for i := 0; i < 8; i++ {
		j := i
		for j < 8 && g[j] == 0 {
			j++
		}
		if j-i > n {
			at, n = i, j-i
		}
		i = j
	}
	for i := 0; i < 8; i++ {
		if i == at {
			t = append(t, ':')
			if i += n - 1; i == 7 {
				t = append(t, ':')
			}
			continue
		}
		if i > 0 {
			t = append(t, ':')
		}
		if i == 6 && at == 0 && (n == 6 || n == 5 && g[5] == 0xffff) {
			return appendInet(t, b[12:])
		}
		t = strconv.AppendUint(t, uint64(g[i]), 16)
	}
	return t
}

// hwAddr adds a link-layer address.
func (c *Cx) hwAddr(b []byte) {
	c.Add(event.Node{Kind: event.KindHWAddr, Data: b})
}

// hexArray adds bytes as an array of hexadecimal numbers.
func (c *Cx) hexArray(b []byte) {
	c.Array()
	for _, v := range b {
		c.hex0(uint64(v), 2)
	}
	c.End()
}

// hex0 adds a hexadecimal number of at least width characters, as %#08x does.
func (c *Cx) hex0(v uint64, width int) {
	c.Add(event.Node{Kind: event.KindHex, Num: v, Errno: uint16(width)})
}

// sockaddrAX25: a call sign and up to 8 digipeaters, struct full_sockaddr_ax25.
func (c *Cx) sockaddrAX25(b []byte) {
	const digis, call = 16, 7
	n := int(int32(U32(b, 12)))
	full := n != 0 || len(b) > digis
	if full {
		c.Field("fsa_ax25").Struct()
	}
	c.Field("sax25_call")
	c.ax25Address(b[2 : 2+call])
	c.Field("sax25_ndigis").Int(int64(n))
	if !full {
		return
	}
	c.End()
	has, want := min((len(b)-digis)/call, 8), max(0, min(n, 8))
	if want > 0 {
		c.Field("fsa_digipeater").Array()
		for i := range min(has, want) {
			c.ax25Address(b[digis+call*i : digis+call*(i+1)])
		}
		if want > has {
			c.More()
		}
		c.End()
	}
	if len(b) > digis+call*has {
		c.More()
	}
}

// ax25Address adds a call sign and its SSID. Letters stand shifted left by one bit. One that is not as it should be is
// shown in bytes too; one that cannot be shown as text, in bytes alone.
func (c *Cx) ax25Address(b []byte) {
	odd := false
	space, char := false, false
	for _, ch := range b[:6] {
		odd = odd || ch&1 != 0
		ch >>= 1
		if ch == ' ' {
			space = true
		} else {
			char = true
			odd = odd || space
		}
		odd = odd || (ch < '0' || ch > '9') && (ch < 'A' || ch > 'Z') && ch != ' '
		if ch < ' ' || ch > '~' || ch == '*' || ch == '/' {
			c.ax25Bytes(b)
			return
		}
	}
	odd = odd || b[6]&^0x1e != 0 || !char && b[6] != 0
	var buf [16]byte
	t := buf[:0]
	end := 6
	for end > 0 && b[end-1]>>1 == ' ' {
		end--
	}
	for _, ch := range b[:end] {
		t = append(t, ch>>1)
	}
	t = append(t, '-')
	t = strconv.AppendUint(t, uint64(b[6]>>1&0xf), 10)
	if t[0] == '-' && t[1] == '0' {
		t = append(t[:0], '*')
	}
	if odd {
		c.ax25Bytes(b)
		c.Builder.Note(string(t)) // printable, see above
		return
	}
	c.Sym(string(t), 0)
}

func (c *Cx) ax25Bytes(b []byte) {
	c.Struct()
	c.Field("ax25_call")
	c.hexBytes(b)
	c.End()
}

func (c *Cx) sockaddrIPX(b []byte) {
	c.netPort("sipx_port", b[2:4])
	c.Field("sipx_network")
	c.rawCall("htonl", nil)
	c.Hex(uint64(be32(b[4:8])))
	c.End()
	c.Field("sipx_node")
	c.hexArray(b[8:14])
	c.Field("sipx_type")
	c.hex0(uint64(b[14]), 2)
	if b[15] != 0 {
		c.Field("sipx_zero").Hex(uint64(b[15]))
	}
}

func (c *Cx) sockaddrX25(b []byte) {
	c.Field("sx25_addr").Struct()
	c.Field("x25_addr")
	c.cstring(b[2:18])
	c.End()
}

func (c *Cx) sockaddrNetlink(b []byte) {
	if pad := U16(b, 2); pad != 0 {
		c.Field("nl_pad").Hex(uint64(pad))
	}
	c.Field("nl_pid")
	c.PID(uint64(U32(b, 4)))
	c.Field("nl_groups")
	c.hex0(uint64(U32(b, 8)), 8)
}

// sockaddrPacket: see packet(7).
func (c *Cx) sockaddrPacket(b []byte) {
	c.Field("sll_protocol")
	c.rawCall("htons", b[2:4])
	c.Name(uint64(be16(b[2:4])), constant.EthernetProtocol)
	c.End()
	c.Field("sll_ifindex")
	c.ifIndex(U32(b, 4))
	c.Field("sll_hatype")
	c.Name(uint64(U16(b, 8)), constant.HardwareType)
	c.Field("sll_pkttype")
	c.Name(uint64(b[10]), constant.PacketType)
	n := int(b[11])
	c.Field("sll_halen").Uint(uint64(n))
	if n == 0 {
		return
	}
	c.Field("sll_addr").Array()
	for i := range n {
		if 12+i >= len(b) {
			c.More()
			break
		}
		c.hex0(uint64(b[12+i]), 2)
	}
	c.End()
}

func (c *Cx) sockaddrTIPC(b []byte) {
	kind := b[2]
	c.Field("addrtype")
	c.Name(uint64(kind), constant.TipcAddressType)
	c.Field("scope")
	if scope := int8(b[3]); scope < 0 {
		c.expr("-")
		c.Name(uint64(-int64(scope)), constant.TipcScope)
		c.End()
	} else {
		c.Name(uint64(scope), constant.TipcScope)
	}
	c.Field("addr")
	switch kind {
	case 1: // TIPC_SERVICE_RANGE
		c.Struct()
		c.Field("nameseq").Struct()
		c.Field("type").Uint(uint64(U32(b, 4)))
		c.Field("lower").Uint(uint64(U32(b, 8)))
		c.Field("upper").Uint(uint64(U32(b, 12)))
	case 2: // TIPC_SERVICE_ADDR
		c.Struct()
		c.Field("name").Struct()
		c.Field("name").Struct()
		c.Field("type").Uint(uint64(U32(b, 4)))
		c.Field("instance").Uint(uint64(U32(b, 8)))
		c.End()
		c.Field("domain").Hex(uint64(U32(b, 12)))
	case 3: // TIPC_SOCKET_ADDR
		c.Struct()
		c.Field("id").Struct()
		c.Field("ref").Uint(uint64(U32(b, 4)))
		c.Field("node").Hex(uint64(U32(b, 8)))
	default:
		c.whole(b[4:16])
		return
	}
	c.End()
	c.End()
}

// sockaddrBluetooth: what an address holds is told by its length alone.
func (c *Cx) sockaddrBluetooth(b []byte) {
	switch len(b) {
	case 4, 6: // struct sockaddr_hci
		c.Field("hci_dev").Call("htobs")
		c.Uint(uint64(U16(b, 2)))
		c.End()
		if len(b) == 6 {
			c.Field("hci_channel")
			c.Name(uint64(U16(b, 4)), constant.HciChannel)
		}
	case 8: // struct sockaddr_sco
		c.Field("sco_bdaddr")
		c.hwAddr(b[2:8])
	case 10: // struct sockaddr_rc
		c.Field("rc_bdaddr")
		c.hwAddr(b[2:8])
		c.Field("rc_channel").Uint(uint64(b[8]))
	case 12, 14: // struct sockaddr_l2
		c.Field("l2_psm")
		c.bluetoothNumber(U16(b, 2), constant.L2capPsm, []uint16{0x1001, 0x80}, 0xff)
		c.Field("l2_bdaddr")
		c.hwAddr(b[4:10])
		c.Field("l2_cid")
		c.bluetoothNumber(U16(b, 10), constant.L2capCid, []uint16{0x40}, 0xffff)
		if len(b) == 14 {
			c.Field("l2_bdaddr_type")
			c.Name(uint64(b[12]), constant.BluetoothAddressType)
		}
	default:
		c.sockaddrRaw(b)
	}
}

// bluetoothNumber adds a PSM or CID by name, or as an offset from the start of a dynamic range; starts go from the last
// range to the first, and the first but one ends at end.
func (c *Cx) bluetoothNumber(v uint16, s *constant.Set, starts []uint16, end uint16) {
	c.Call("htobs")
	defer c.End()
	if _, ok := s.Name(uint64(v)); !ok {
		for i, start := range starts {
			if v >= start && (i == 0 || v <= end) {
				c.expr("+")
				c.Name(uint64(start), s)
				c.Uint(uint64(v - start))
				c.End()
				return
			}
		}
	}
	c.Name(uint64(v), s)
}

// sockaddrRxrpc: a service and the address of its transport, linux/rxrpc.h.
func (c *Cx) sockaddrRxrpc(b []byte) {
	c.Field("srx_service")
	c.nameVerbose(uint64(U16(b, 2)), constant.RxrpcService)
	c.Field("transport_type")
	c.Name(uint64(U16(b, 4)), constant.SocketType)
	n := int(U16(b, 6))
	c.Field("transport_len").Uint(uint64(n))
	have := min(n, len(b)-8)
	family := U16(b, 8)
	c.Field("transport").Struct()
	name, atLeast, show := "family", 0, (func(*Cx, []byte))(nil)
	switch family {
	case afInet:
		c.Field("sin").Struct()
		name, atLeast, show = "sin_family", sockaddrIn, (*Cx).sockaddrInet
	case afInet6:
		c.Field("sin6").Struct()
		name, atLeast, show = "sin6_family", sin6Min, (*Cx).sockaddrInet6
	}
	c.Field(name)
	c.Name(uint64(family), constant.AddressFamily)
	if show != nil && n >= atLeast {
		show(c, b[8:8+max(have, atLeast)])
	} else if have > sizeofFamily {
		c.whole(b[8+sizeofFamily : 8+have])
	}
	if show != nil {
		c.End()
	}
	c.End()
}

// nameVerbose adds v with its name beside it.
func (c *Cx) nameVerbose(v uint64, s *constant.Set) {
	if name, ok := s.Name(v); ok {
		c.Add(event.Node{Kind: event.KindSym, Attr: event.AttrVerbose, Sym: name, Num: v})
		return
	}
	c.Add(event.Node{Kind: event.KindHex, Num: v, Sym: s.Prefix})
}

// flagsVerbose adds v with the names of its bits beside it.
func (c *Cx) flagsVerbose(v uint64, s *constant.Set) {
	at := len(c.Nodes)
	c.Flags(v, s)
	if k := c.Nodes[at].Kind; k == event.KindFlags || k == event.KindSym {
		c.Nodes[at].Attr |= event.AttrVerbose
	}
}

func (c *Cx) sockaddrIEEE802154(b []byte) {
	kind := U32(b, 4)
	c.Field("addr").Struct()
	c.Field("addr_type")
	c.nameVerbose(uint64(kind), constant.Ieee802154AddressType)
	c.Field("pan_id")
	c.nameVerbose(uint64(U16(b, 8)), constant.Ieee802154PanID)
	switch kind {
	case 0:
	case 2:
		c.Field("short_addr")
		c.nameVerbose(uint64(U16(b, 10)), constant.Ieee802154Address)
	default:
		c.Field("hwaddr")
		c.hwAddr(b[10:18])
	}
	c.End()
}

// sockaddrAlg: struct sockaddr_alg_new of linux/if_alg.h, whose name runs to the end.
func (c *Cx) sockaddrAlg(b []byte) {
	c.Field("salg_type")
	c.cstring(b[2:16])
	c.Field("salg_feat")
	c.flagsVerbose(uint64(U32(b, 16)), constant.AlgAddressFlags)
	c.Field("salg_mask")
	c.flagsVerbose(uint64(U32(b, 20)), constant.AlgAddressFlags)
	c.Field("salg_name")
	c.cstring(b[24:])
}

// sockaddrNFC: struct sockaddr_nfc or, longer, sockaddr_nfc_llcp of linux/nfc.h.
func (c *Cx) sockaddrNFC(b []byte) {
	const name, nameMax = 18, 63
	c.Field("dev_idx")
	c.ifIndex(U32(b, 4))
	c.Field("target_idx").Hex(uint64(U32(b, 8)))
	c.Field("nfc_protocol")
	c.Name(uint64(U32(b, 12)), constant.NfcAddressProtocol)
	lenAt := 84
	if !c.Ptr32() {
		lenAt = 88
	}
	if len(b) < lenAt+c.ABI.PtrSize {
		if len(b) > 16 {
			c.More()
		}
		return
	}
	n := c.Word(b, lenAt)
	c.Field("dsap")
	c.nameVerbose(uint64(b[16]), constant.NfcSap)
	c.Field("ssap")
	c.nameVerbose(uint64(b[17]), constant.NfcSap)
	c.Field("service_name")
	c.whole(b[name : name+int(min(n, nameMax))])
	c.Field("service_name_len").Uint(n)
}

func (c *Cx) sockaddrVsock(b []byte) {
	if v := U16(b, 2); v != 0 {
		c.Field("svm_reserved1").Hex(uint64(v))
	}
	c.Field("svm_cid")
	c.Name(uint64(U32(b, 8)), constant.VsockCid)
	c.Field("svm_port")
	c.Name(uint64(U32(b, 4)), constant.VsockPort)
	c.Field("svm_flags")
	c.Flags(uint64(b[12]), constant.VsockFlags)
	if !allZero(b[13:16]) {
		c.Field("svm_zero")
		c.hexBytes(b[13:16])
	}
}

func (c *Cx) sockaddrQrtr(b []byte) {
	c.Field("sq_node")
	c.Name(uint64(U32(b, 4)), constant.QrtrNode)
	c.Field("sq_port")
	c.Name(uint64(U32(b, 8)), constant.QrtrPort)
}

func (c *Cx) sockaddrXDP(b []byte) {
	const sharedUmem = 1
	flags, fd := U16(b, 2), U32(b, 12)
	c.Field("sxdp_flags")
	c.Flags(uint64(flags), constant.XdpAddressFlags)
	c.Field("sxdp_ifindex")
	c.ifIndex(U32(b, 4))
	c.Field("sxdp_queue_id").Uint(uint64(U32(b, 8)))
	if flags&sharedUmem != 0 {
		c.Field("sxdp_shared_umem_fd")
		c.FD(uint64(fd))
	} else if fd != 0 {
		c.Field("sxdp_shared_umem_fd").Hex(uint64(fd))
	}
}

func (c *Cx) sockaddrMCTP(b []byte) {
	if v := U16(b, 2); v != 0 {
		c.Field("__smctp_pad0").Hex(uint64(v))
	}
	c.Field("smctp_network")
	c.Name(uint64(U32(b, 4)), constant.MctpNet)
	c.Field("smctp_addr").Struct()
	c.Field("s_addr")
	c.Name(uint64(b[8]), constant.MctpAddress)
	c.End()
	c.Field("smctp_type").Hex(uint64(b[9]))
	c.Field("smctp_tag").Hex(uint64(b[10]))
	if b[11] != 0 {
		c.Field("__smctp_pad1").Hex(uint64(b[11]))
	}
}
