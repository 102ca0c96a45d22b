package decode

import (
	"fmt"
	"math/bits"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// optionCalls are getsockopt(2) and setsockopt(2).
var optionCalls = []Spec{
	{
		Name:    "setsockopt",
		Enter:   append([]syscalls.Fetch{optionFetch(syscalls.Arg(4))}, optionFilter(8)),
		Enter32: append([]syscalls.Fetch{optionFetch(syscalls.Arg(4))}, optionFilter(4)),
		Decode:  (*Cx).setsockopt,
	},
	{
		Name:  "getsockopt",
		Enter: lengthIn(4),
		Exit: []syscalls.Fetch{
			syscalls.Fixed(4, 4),
			optionFetch(syscalls.Mem(0, 0, 4)),
			syscalls.Vec(3, syscalls.Mem(0, 0, 4), sockFilterSize, 4096).If(2, soAttachFilter),
		},
		Decode: (*Cx).getsockopt,
	},
}

const optionMax = 512 // bytes of a value that are taken

func optionFetch(n syscalls.Number) syscalls.Fetch {
	return syscalls.Fetch{Kind: syscalls.FetchBytes, Base: syscalls.Arg(3), Len: syscalls.Length{Number: n, Max: optionMax}}
}

// optionFilter takes the program of a struct sock_fprog, the first fetch, with pointers of ptr bytes.
func optionFilter(ptr int) syscalls.Fetch {
	f := syscalls.Fetch{Kind: syscalls.FetchBytes, Base: syscalls.Mem(0, ptr, ptr),
		Len: syscalls.Length{Number: syscalls.Mem(0, 0, 2), Elem: sockFilterSize, Max: 4096}}
	return f.If(2, soAttachFilter, soAttachReuseportCBPF)
}

// Levels and options that the decoders tell apart: include/linux/socket.h, asm-generic/socket.h (amd64, arm64, i386 and arm
// all use it), linux/in.h, linux/in6.h, linux/if_packet.h, linux/tcp.h, linux/tipc.h, linux/netlink.h.
const (
	solTCP     = 6
	solIPv6    = 41
	solRaw     = 255
	solPacket  = 263
	solNetlink = 270
	solTIPC    = 271

	soLinger              = 13
	soPeercred            = 17
	soRcvtimeoOld         = 20
	soSndtimeoOld         = 21
	soError               = 4
	soAttachFilter        = 26
	soAttachReuseportCBPF = 51
	soTxrehash            = 74
	soPeerpidfd           = 77
	soRcvtimeoNew         = 66
	soSndtimeoNew         = 67

	ipAddMembership  = 35
	ipDropMembership = 36
	mcastJoinGroup   = 42
	mcastLeaveGroup  = 45
	ipLocalPortRange = 51
	ipProtocol       = 52

	ipv6AddMembership  = 20
	ipv6DropMembership = 21
	ipv6JoinAnycast    = 27
	ipv6LeaveAnycast   = 28

	packetAddMembership  = 1
	packetDropMembership = 2
	packetRxRing         = 5
	packetStatistics     = 6
	packetTxRing         = 13

	icmpFilter             = 1
	netlinkListMemberships = 9
	tcpAOAddKey            = 38
	tipcImportance         = 127
	tipcGroupJoin          = 135
)

// optionLevels name the options of a level.
var optionLevels = map[uint32]struct{ common, get, set *constant.Set }{
	solSocket:  {nil, constant.GetSocketOption, constant.SocketOption},
	solIP:      {constant.IPOption, constant.GetIPOption, constant.SetIPOption},
	afVsock:    {constant.VsockOption, nil, nil}, // vsock takes its family for a level
	solIPv6:    {constant.IPv6Option, constant.GetIPv6Option, constant.SetIPv6Option},
	256:        {constant.IpxOption, nil, nil},
	257:        {constant.Ax25Option, nil, nil},
	solPacket:  {constant.PacketOption, nil, nil},
	solTCP:     {constant.TcpOption, nil, nil},
	101:        {constant.CanRawOption, nil, nil},
	132:        {constant.SctpOption, nil, nil},
	solRaw:     {constant.RawOption, nil, nil},
	solNetlink: {constant.NetlinkOption, nil, nil},
	17:         {constant.UdpOption, nil, nil},
	266:        {constant.IrdaOption, nil, nil},
	268:        {constant.LlcOption, nil, nil},
	269:        {constant.DccpOption, nil, nil},
	solTIPC:    {constant.TipcOption, nil, nil},
	272:        {constant.RxrpcOption, nil, nil},
	273:        {constant.PppoL2tpOption, nil, nil},
	274:        {constant.BluetoothOption, nil, nil},
	275:        {constant.PhonetPipeOption, nil, nil},
	276:        {constant.RdsOption, nil, nil},
	277:        {constant.IucvOption, nil, nil},
	278:        {constant.CaifOption, nil, nil},
	279:        {constant.AlgOption, nil, nil},
	280:        {constant.NfcLlcpOption, nil, nil},
	281:        {constant.KcmOption, nil, nil},
	282:        {constant.TlsOption, nil, nil},
	283:        {constant.XdpOption, nil, nil},
}

// optionName adds descriptor, level and name.
func (c *Cx) optionName(get bool) {
	level, name := uint32(c.Arg[1]), uint64(uint32(c.Arg[2]))
	c.FD(c.Arg[0])
	c.nameOr(uint64(level), constant.SocketLevel, "SOL_??")
	sets, ok := optionLevels[level]
	if !ok {
		c.Uint(name)
		return
	}
	own := sets.set
	if get {
		own = sets.get
	}
	if sets.common == nil {
		c.Name(name, own)
		return
	}
	if _, found := sets.common.For(c.ABI.Name).Name(name); !found && own != nil {
		c.Name(name, own)
		return
	}
	c.Name(name, sets.common)
}

func (c *Cx) setsockopt() {
	c.optionName(false)
	c.optionIn(uint32(c.Arg[1]), uint32(c.Arg[2]), c.Arg[3], I32Arg(c.Arg[4]))
	c.Int(I32Arg(c.Arg[4]))
}

// I32Arg is an argument of type int.
func I32Arg(v uint64) int64 { return int64(int32(v)) }

func (c *Cx) getsockopt() {
	c.optionName(true)
	before, ok := c.length(In, c.Arg[4])
	if !ok {
		c.Ptr(c.Arg[3])
		c.Ptr(c.Arg[4])
		return
	}
	if c.Entering() {
		return
	}
	after, ok := c.length(Out, c.Arg[4])
	switch {
	case !ok:
		c.Ptr(c.Arg[3])
		c.lengthChange(before, before)
		return
	case c.Failed():
		c.Ptr(c.Arg[3])
	default:
		c.optionOut(uint32(c.Arg[1]), uint32(c.Arg[2]), c.Arg[3], before, after)
	}
	c.lengthChange(before, after)
}

// optionIn adds the value of an option that is being set.
func (c *Cx) optionIn(level, name uint32, addr uint64, n int64) {
	if addr == 0 {
		c.optionDefault(In, addr, n)
		return
	}
	switch level {
	case solSocket:
		switch name {
		case soLinger:
			c.optionStruct(In, addr, n, 8, (*Cx).linger)
			return
		case soAttachFilter, soAttachReuseportCBPF:
			if n == int64(2*c.ABI.PtrSize) {
				c.SockFprog(In, addr)
			} else {
				c.Ptr(addr)
			}
			return
		case soTxrehash:
			c.txrehash(In, addr, n)
			return
		}
		if isIntOption(name) {
			c.optionInt(In, addr, n)
			return
		}
		if c.optionTime(In, name, addr, n) {
			return
		}
	case solIP:
		switch name {
		case ipAddMembership, ipDropMembership:
			c.optionStruct(In, addr, n, 8, (*Cx).ipMreq)
			return
		case mcastJoinGroup, mcastLeaveGroup:
			c.groupReq(addr, n)
			return
		case ipLocalPortRange:
			c.portRange(In, addr, n)
			return
		}
	case solIPv6:
		switch name {
		case ipv6AddMembership, ipv6DropMembership, ipv6JoinAnycast, ipv6LeaveAnycast:
			c.optionStruct(In, addr, n, 20, (*Cx).ipv6Mreq)
			return
		case mcastJoinGroup, mcastLeaveGroup:
			c.groupReq(addr, n)
			return
		}
	case solPacket:
		switch name {
		case packetRxRing, packetTxRing:
			c.optionExact(addr, n, 16, (*Cx).tpacketReq)
			return
		case packetAddMembership, packetDropMembership:
			c.optionExact(addr, n, 16, (*Cx).packetMreq)
			return
		}
	case solRaw:
		if name == icmpFilter {
			c.icmpFilter(In, addr, n)
			return
		}
	case solNetlink:
		c.optionInt(In, addr, n)
		return
	case solTCP:
		if name == tcpAOAddKey {
			c.tcpAOAdd(addr, n)
			return
		}
	case solTIPC:
		c.tipcOption(In, name, addr, n)
		return
	}
	c.optionDefault(In, addr, n)
}

// optionOut adds the value that getsockopt has returned. A forged length may be negative.
func (c *Cx) optionOut(level, name uint32, addr uint64, before, n int64) {
	if before <= 0 || n <= 0 {
		c.Ptr(addr)
		return
	}
	if addr == 0 {
		c.optionDefault(Out, addr, n)
		return
	}
	switch level {
	case solSocket:
		switch name {
		case soLinger:
			c.optionPart(addr, min(n, 8), (*Cx).lingerPart)
			return
		case soPeercred:
			c.optionPart(addr, min(n, 12), (*Cx).ucredPart)
			return
		case soAttachFilter:
			if n == n&0xffff {
				c.filterInsns(Out, addr, uint64(n), (*Cx).socketFilterK)
			} else {
				c.Ptr(addr)
			}
			return
		case soError:
			c.optionWord(addr, n, func(c *Cx, b []byte) { c.errnoValue(I32(b, 0)) })
			return
		case soTxrehash:
			c.txrehash(Out, addr, n)
			return
		case soPeerpidfd:
			c.optionWord(addr, n, fdNumber)
			return
		}
		if isIntOption(name) {
			c.optionWord(addr, n, intNumber)
			return
		}
		if c.optionTime(Out, name, addr, n) {
			return
		}
	case solIP:
		switch name {
		case ipLocalPortRange:
			c.portRange(Out, addr, n)
			return
		case ipProtocol:
			if n == 4 {
				c.ref(Out, addr, 4, func(c *Cx, b []byte) { c.Name(uint64(U32(b, 0)), constant.InetProtocol) })
			} else {
				c.blob(Out, addr, uint64(n))
			}
			return
		}
	case solPacket:
		if name == packetStatistics {
			c.optionPart(addr, min(n, 12), func(c *Cx, b []byte) {
				c.part(b, 0, 4, "tp_packets", uintNumber)
				c.part(b, 4, 4, "tp_drops", uintNumber)
				c.part(b, 8, 4, "tp_freeze_q_cnt", uintNumber)
			})
			return
		}
	case solRaw:
		if name == icmpFilter {
			c.icmpFilter(Out, addr, n)
			return
		}
	case solNetlink:
		if name == netlinkListMemberships {
			c.list(Out, addr, uint64(min(before, n))/4, 4, uintNumber)
		} else {
			c.ref(Out, addr, 4, intNumber)
		}
		return
	case solTIPC:
		c.tipcOption(Out, name, addr, n)
		return
	}
	c.optionDefault(Out, addr, n)
}

// isIntOption reports an option of SOL_SOCKET that is known to be an int.
func isIntOption(name uint32) bool {
	switch name {
	case 1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 18, 19, 27, 29, 30, 32, 33, 34, 35, 36, 37, 40, 41, 42, 43, 44, 45, 46,
		49, 53, 56, 60, 63, 64, 65, 68, 69, 70, 73, 75, 76, 82, 83, 84:
		return true
	}
	return false
}

// optionDefault adds a value of which nothing is known: as a number when it has the size of one.
func (c *Cx) optionDefault(m Moment, addr uint64, n int64) {
	if n == 4 {
		c.ref(m, addr, 4, intNumber)
		return
	}
	c.Buffer(m, addr, n)
}

// optionInt adds [int], or the address when the value is too short.
func (c *Cx) optionInt(m Moment, addr uint64, n int64) {
	if n < 4 {
		c.Ptr(addr)
		return
	}
	c.ref(m, addr, 4, intNumber)
}

// optionWord adds [value] of four bytes after the call, or the bytes when there are fewer.
func (c *Cx) optionWord(addr uint64, n int64, show func(c *Cx, b []byte)) {
	if n < 4 {
		c.blob(Out, addr, uint64(n))
		return
	}
	c.ref(Out, addr, 4, show)
}

// optionStruct adds a structure of size bytes, or its address when the value is shorter.
func (c *Cx) optionStruct(m Moment, addr uint64, n int64, size int, show func(c *Cx, b []byte)) {
	if n < int64(size) {
		c.Ptr(addr)
		return
	}
	if b, ok := c.Load(m, addr, size); ok {
		c.Struct()
		show(c, b)
		c.End()
	}
}

// optionExact is optionStruct for values that must have just this size.
func (c *Cx) optionExact(addr uint64, n int64, size int, show func(c *Cx, b []byte)) {
	if n > int64(size) {
		c.Ptr(addr)
		return
	}
	c.optionStruct(In, addr, n, size, show)
}

// optionPart adds a structure of which the kernel has written n bytes.
func (c *Cx) optionPart(addr uint64, n int64, show func(c *Cx, b []byte)) {
	if b, ok := c.Load(Out, addr, int(n)); ok {
		c.Struct()
		show(c, b)
		c.End()
	}
}

// part adds the member of size bytes at off, in bytes when only a part of it is there.
func (c *Cx) part(b []byte, off, size int, name string, show func(c *Cx, b []byte)) {
	if len(b) <= off {
		return
	}
	c.Field(name)
	if len(b) < off+size {
		c.hexBytes(b[off:])
		return
	}
	show(c, b[off:off+size])
}

func (c *Cx) linger(b []byte) {
	c.Field("l_onoff").Int(I32(b, 0))
	c.Field("l_linger").Int(I32(b, 4))
}

func (c *Cx) lingerPart(b []byte) {
	c.part(b, 0, 4, "l_onoff", intNumber)
	c.part(b, 4, 4, "l_linger", intNumber)
}

func (c *Cx) ucredPart(b []byte) {
	c.part(b, 0, 4, "pid", func(c *Cx, b []byte) { c.PID(uint64(U32(b, 0))) })
	c.part(b, 4, 4, "uid", func(c *Cx, b []byte) { c.userID(uint64(U32(b, 0))) })
	c.part(b, 8, 4, "gid", func(c *Cx, b []byte) { c.userID(uint64(U32(b, 0))) })
}

// errnoValue adds an error number by name.
func (c *Cx) errnoValue(v int64) {
	if v > 0 && v < 1<<16 {
		if name := constant.ErrnoOf(int(v)).Name; name != "" {
			c.Add(event.Node{Kind: event.KindSym, Attr: event.AttrDecimal, Sym: name, Num: uint64(v)})
			return
		}
	}
	c.Int(v)
}

func (c *Cx) txrehash(m Moment, addr uint64, n int64) {
	if n < 4 {
		if m == In {
			c.Ptr(addr)
		} else {
			c.blob(m, addr, uint64(n))
		}
		return
	}
	c.ref(m, addr, 4, func(c *Cx, b []byte) { c.nameD(uint64(U32(b, 0)), constant.TxRehash) })
}

// optionTime adds the struct timeval of the timeouts; it reports false when the option is another or the size is not.
func (c *Cx) optionTime(m Moment, name uint32, addr uint64, n int64) bool {
	word := c.ABI.PtrSize
	switch name {
	case soRcvtimeoOld, soSndtimeoOld:
	case soRcvtimeoNew, soSndtimeoNew:
		word = 8
	default:
		return false
	}
	if n != int64(2*word) {
		return false
	}
	if b, ok := c.Load(m, addr, 2*word); ok {
		c.timePair(b, word, "tv_usec")
	}
	return true
}

func (c *Cx) ipMreq(b []byte) {
	c.Field("imr_multiaddr")
	c.inetAddr(b[0:4])
	c.Field("imr_interface")
	c.inetAddr(b[4:8])
}

func (c *Cx) ipv6Mreq(b []byte) {
	c.Field("ipv6mr_multiaddr")
	c.inet6Addr(b[0:16])
	c.Field("ipv6mr_interface")
	c.ifIndex(U32(b, 16))
}

// groupReq adds a struct group_req: an interface and an address, which is aligned to a word.
func (c *Cx) groupReq(addr uint64, n int64) {
	at := c.ABI.PtrSize
	c.optionStruct(In, addr, n, at+sockaddrMax, func(c *Cx, b []byte) {
		c.Field("gr_interface")
		c.ifIndex(U32(b, 0))
		c.Field("gr_group")
		c.sockaddr(b[at:])
	})
}

// portRange adds the two ends of a range of ports, of which zero is open.
func (c *Cx) portRange(m Moment, addr uint64, n int64) {
	if n != 4 {
		if n < 0 {
			c.Ptr(addr)
		} else {
			c.blob(m, addr, uint64(n))
		}
		return
	}
	c.ref(m, addr, 4, func(c *Cx, b []byte) {
		v := U32(b, 0)
		lo, hi := v&0xffff, v>>16
		node := event.Node{Kind: event.KindHex, Num: uint64(v)}
		switch {
		case v == 0 || lo != 0 && hi != 0 && lo > hi:
		case lo == 0:
			node.Sym = fmt.Sprintf("..%d", hi)
		case hi == 0:
			node.Sym = fmt.Sprintf("%d..", lo)
		default:
			node.Sym = fmt.Sprintf("%d..%d", lo, hi)
		}
		c.Add(node)
	})
}

func (c *Cx) tpacketReq(b []byte) {
	c.Field("tp_block_size").Uint(uint64(U32(b, 0)))
	c.Field("tp_block_nr").Uint(uint64(U32(b, 4)))
	c.Field("tp_frame_size").Uint(uint64(U32(b, 8)))
	c.Field("tp_frame_nr").Uint(uint64(U32(b, 12)))
}

func (c *Cx) packetMreq(b []byte) {
	n := U16(b, 6)
	c.Field("mr_ifindex")
	c.ifIndex(U32(b, 0))
	c.Field("mr_type")
	c.Name(uint64(U16(b, 4)), constant.PacketMembership)
	c.Field("mr_alen").Uint(uint64(n))
	c.Field("mr_address")
	c.hwAddr(b[8 : 8+min(int(n), 8)])
}

// icmpFilter adds the types that a raw socket does not see: the set bits, or those that are not set when they are fewer.
func (c *Cx) icmpFilter(m Moment, addr uint64, n int64) {
	if n <= 0 {
		c.Ptr(addr)
		return
	}
	b, ok := c.Load(m, addr, int(min(n, 4)))
	if !ok {
		return
	}
	v := ^uint32(0)
	for i, x := range b {
		v = v&^(0xff<<(8*i)) | uint32(x)<<(8*i)
	}
	node := event.Node{Kind: event.KindSet, Num: uint64(v)}
	if bits.OnesCount32(v) > 16 {
		v, node.Attr = ^v, event.AttrInverted
	}
	c.Begin(node)
	for ; v != 0; v &= v - 1 {
		c.Name(uint64(bits.TrailingZeros32(v)), constant.IcmpType)
	}
	c.End()
}

// tcpAOAdd adds a struct tcp_ao_add of linux/tcp.h; what the value lacks of it is zero.
func (c *Cx) tcpAOAdd(addr uint64, n int64) {
	const size, algAt, ifAt, flagsAt, prefixAt, keyAt, keyMax = 288, 128, 192, 196, 202, 208, 80
	if n <= 0 {
		c.Ptr(addr)
		return
	}
	got, ok := c.Load(In, addr, int(min(n, size)))
	if !ok {
		return
	}
	var full [size]byte
	copy(full[:], got)
	b := c.Keep(full[:])
	c.Struct()
	c.Field("addr")
	c.sockaddr(b[:algAt])
	c.Field("prefix").Uint(uint64(b[prefixAt]))
	c.Field("alg_name")
	c.cstring(b[algAt:ifAt])
	c.Field("ifindex")
	c.ifIndex(U32(b, ifAt))
	c.Field("set_current").Uint(uint64(b[flagsAt] & 1))
	c.Field("set_rnext").Uint(uint64(b[flagsAt] >> 1 & 1))
	c.Field("sndid").Uint(uint64(b[203]))
	c.Field("rcvid").Uint(uint64(b[204]))
	c.Field("maclen").Uint(uint64(b[205]))
	c.Field("keyflags")
	c.Flags(uint64(b[206]), constant.TcpAoKeyFlags)
	c.Field("key")
	c.hexBytes(b[keyAt : keyAt+min(int(b[207]), keyMax)])
	c.Field("keylen").Uint(uint64(b[207]))
	c.End()
}

func (c *Cx) tipcOption(m Moment, name uint32, addr uint64, n int64) {
	switch name {
	case tipcImportance:
		if n < 4 {
			c.Ptr(addr)
			return
		}
		c.ref(m, addr, 4, func(c *Cx, b []byte) { c.nameOr(uint64(U32(b, 0)), constant.TipcImportance, "TIPC_???_IMPORTANCE") })
	case tipcGroupJoin:
		c.optionStruct(m, addr, n, 16, func(c *Cx, b []byte) {
			c.Field("type").Uint(uint64(U32(b, 0)))
			c.Field("instance").Uint(uint64(U32(b, 4)))
			c.Field("scope")
			c.nameOr(uint64(U32(b, 8)), constant.TipcScope, "TIPC_???_SCOPE")
			c.Field("flags")
			c.Flags(uint64(U32(b, 12)), constant.TipcGroupFlags)
		})
	default:
		c.ref(m, addr, 4, intNumber)
	}
}
