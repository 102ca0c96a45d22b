package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// socketCalls are the calls on sockets themselves: sys_socket and its kin in net/socket.c. Messages and options have files
// of their own.
var socketCalls = []Spec{
	{Name: "socket", RetFD: true, Decode: args(aFamily, aSocketType, (*Cx).socketProtocolArg), Ret: retFD},
	{
		Name:   "socketpair",
		Exit:   []syscalls.Fetch{syscalls.Fixed(3, 8)},
		Decode: args(aFamily, aSocketType, aUint, out(func(c *Cx, i int) { c.fdPair(c.Arg[i]) })),
	},
	{Name: "bind", Enter: addressIn, Decode: args(aFD, (*Cx).addressArg, aInt)},
	{Name: "connect", Enter: addressIn, Decode: args(aFD, (*Cx).addressArg, aInt)},
	{Name: "listen", Decode: args(aFD, aInt)},
	{Name: "shutdown", Decode: args(aFD, aName(constant.ShutdownHow))},
	{Name: "accept", RetFD: true, Enter: lengthIn(2), Exit: addressOut(1, 2), Decode: (*Cx).accept, Ret: retFD},
	{Name: "accept4", RetFD: true, Enter: lengthIn(2), Exit: addressOut(1, 2), Decode: (*Cx).accept, Ret: retFD},
	{Name: "getsockname", Enter: lengthIn(2), Exit: addressOut(1, 2), Decode: (*Cx).accept},
	{Name: "getpeername", Enter: lengthIn(2), Exit: addressOut(1, 2), Decode: (*Cx).accept},
}

var addressIn = []syscalls.Fetch{sockaddrFetch(1, syscalls.Arg(2)), xdpDescriptor}

// xdpDescriptor is the descriptor in the address that fetch 0 has taken, if it is one of AF_XDP (struct sockaddr_xdp).
var xdpDescriptor = syscalls.Fetch{Kind: syscalls.FetchDescriptor, Base: syscalls.Mem(0, 12, 4),
	When: syscalls.Cond{Value: syscalls.Mem(0, 0, 2), Any: []uint64{44}}}

// lengthIn takes the length that argument arg points to.
func lengthIn(arg int) []syscalls.Fetch { return []syscalls.Fetch{syscalls.Fixed(arg, 4)} }

// addressOut takes an address with the length that the kernel has left.
func addressOut(addr, length int) []syscalls.Fetch {
	return []syscalls.Fetch{syscalls.Fixed(length, 4), sockaddrFetch(addr, syscalls.Mem(0, 0, 4))}
}

func aFamily(c *Cx, i int) { c.Name(uint64(uint32(c.Arg[i])), constant.AddressFamily) }

// retFD shows the descriptor that a call made.
func retFD(c *Cx) { c.returnedFD(uint64(c.Ret)) }

// aSocketType: a type in the low four bits, and flags.
func aSocketType(c *Cx, i int) {
	const typeMask = 0xf // SOCK_TYPE_MASK, include/linux/net.h
	v := uint64(uint32(c.Arg[i]))
	name, ok := constant.SocketType.For(c.ABI.Name).Name(v & typeMask)
	if !ok {
		c.Flags(v, constant.SocketTypeFlags)
		return
	}
	if v&^typeMask == 0 {
		c.Sym(name, v)
		return
	}
	c.Begin(event.Node{Kind: event.KindFlags, Num: v})
	c.Sym(name, v&typeMask)
	c.moreFlags(v&^typeMask, constant.SocketTypeFlags)
	c.End()
}

// moreFlags adds the names of v's bits to the flags that are being added.
func (c *Cx) moreFlags(v uint64, s *constant.Set) {
	s = s.For(c.ABI.Name)
	named := false
	for i := range s.Entries {
		if e := &s.Entries[i]; e.Num != 0 && v&e.Num == e.Num {
			c.Sym(e.Name, e.Num)
			v &^= e.Num
			named = true
		}
	}
	if v != 0 && named {
		c.Hex(v)
	} else if v != 0 {
		c.Add(event.Node{Kind: event.KindHex, Num: v, Sym: s.Prefix})
	}
}

// familyProtocols name the protocols of a family.
var familyProtocols = map[uint32]*constant.Set{
	afInet: constant.InetProtocol, afInet6: constant.InetProtocol, afNetlink: constant.NetlinkProtocol,
	afIrda: constant.CanProtocol, afCAN: constant.CanProtocol, afBluetooth: constant.BluetoothProtocol,
	afRxrpc: constant.AddressFamily, afISDN: constant.IsdnProtocol, afPhonet: constant.PhonetProtocol,
	afCAIF: constant.CaifProtocol, afNFC: constant.NfcProtocol, afKCM: constant.KcmProtocol, afSMC: constant.SmcProtocol,
}

func (c *Cx) socketProtocolArg(i int) {
	family, v := uint32(c.Arg[0]), uint64(uint32(c.Arg[i]))
	switch family {
	case afAX25:
		c.nameVerbose(v, constant.Ax25Protocol)
		return
	case afPacket:
		c.Call("htons")
		c.Name(v>>8&0xff|v&0xff<<8, constant.EthernetProtocol)
		c.End()
		return
	}
	if s := familyProtocols[family]; s != nil {
		c.Name(v, s)
		return
	}
	c.Uint(v)
}

// fdPair adds the two descriptors at addr.
func (c *Cx) fdPair(addr uint64) {
	b, ok := c.Load(Out, addr, 8)
	if !ok {
		return
	}
	c.Array()
	c.FD(uint64(U32(b, 0)))
	c.FD(uint64(U32(b, 4)))
	c.End()
}

// addressArg adds the address of argument i, whose length is in the next argument.
func (c *Cx) addressArg(i int) { c.Sockaddr(In, c.Arg[i], int64(int32(c.Arg[i+1]))) }

// accept: a descriptor, room for an address, and its length; accept4 has flags too.
func (c *Cx) accept() {
	c.FD(c.Arg[0])
	if !c.addressResult(1, 2) {
		return
	}
	if c.Def != nil && c.Def.Name == "accept4" {
		c.Flags(uint64(uint32(c.Arg[3])), constant.SocketTypeFlags)
	}
}

// addressResult adds an address that the kernel fills in and its length, which is a value and a result; it reports false
// when they are not there yet.
func (c *Cx) addressResult(addr, length int) bool {
	before, ok := c.length(In, c.Arg[length])
	if !ok || c.Arg[addr] == 0 {
		c.Ptr(c.Arg[addr])
		c.Ptr(c.Arg[length])
		return true
	}
	if c.Entering() {
		return false
	}
	after, ok := c.length(Out, c.Arg[length])
	if c.Failed() || !ok {
		c.Ptr(c.Arg[addr])
		c.lengthChange(before, before)
		return true
	}
	c.Sockaddr(Out, c.Arg[addr], min(before, after))
	c.lengthChange(before, after)
	return true
}

// length reads the socklen_t, or int, at addr.
func (c *Cx) length(m Moment, addr uint64) (n int64, ok bool) {
	b, _ := c.Bytes(m, addr, 4)
	if addr == 0 || b == nil {
		return 0, false
	}
	return I32(b, 0), true
}

// lengthChange adds [before => after].
func (c *Cx) lengthChange(before, after int64) {
	c.Array()
	c.change(uint64(before), uint64(after), func(v uint64) { c.Int(int64(v)) })
	c.End()
}

// socketKind is what the kernel said about the socket of descriptor v at the time of the call: see socket(2).
type socketKind struct{ family, kind, protocol int }

// socket finds the socket of descriptor v; ok is false when it is none, or nobody looked.
func (c *Cx) socket(v uint64) (k socketKind, ok bool) {
	for _, s := range [2]wire.Segments{c.EnterSeg, c.ExitSeg} {
		for {
			seg, rest, more := s.Next()
			if !more {
				break
			}
			s = rest
			if seg.Flags&wire.SegSocket != 0 && uint32(seg.Addr) == uint32(v) && len(seg.Data) >= 6 {
				return socketKind{int(U16(seg.Data, 0)), int(U16(seg.Data, 2)), int(U16(seg.Data, 4))}, true
			}
		}
	}
	return socketKind{}, false
}
