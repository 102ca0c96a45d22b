package decode

import (
	"fmt"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// messageCalls send and receive: plain buffers, struct msghdr and arrays of struct mmsghdr (include/linux/socket.h).
var messageCalls = []Spec{
	{
		Name:   "send", // i386 and arm have it; its twin of the other ABIs is sendto
		Enter:  append([]syscalls.Fetch{syscalls.Socket(0)}, bufferFetches(0, 1, syscalls.Arg(2))...),
		Decode: args(aFD, (*Cx).sendBuffer, aUlong, aMsgFlags),
	},
	{
		Name: "sendto",
		Enter: append([]syscalls.Fetch{syscalls.Socket(0), sockaddrFetch(4, syscalls.Arg(5))},
			bufferFetches(0, 1, syscalls.Arg(2))...),
		Decode: args(aFD, (*Cx).sendBuffer, aUlong, aMsgFlags, (*Cx).addressArg, aInt),
	},
	{
		Name:   "recv",
		Exit:   append([]syscalls.Fetch{syscalls.Socket(0)}, bufferFetches(0, 1, syscalls.Ret())...),
		Decode: args(aFD, out((*Cx).recvBuffer), aUlong, aMsgFlags),
	},
	{
		Name:  "recvfrom",
		Enter: lengthIn(5),
		Exit: append([]syscalls.Fetch{syscalls.Socket(0), syscalls.Fixed(5, 4), sockaddrFetch(4, syscalls.Mem(1, 0, 4))},
			bufferFetches(0, 1, syscalls.Ret())...),
		Decode: args(aFD, out((*Cx).recvBuffer), aUlong, aMsgFlags, (*Cx).recvAddress),
	},
	{
		Name:  "sendmsg",
		Enter: msghdrFetches(msghdr64, false), Enter32: msghdrFetches(msghdr32, false),
		Decode: (*Cx).sendmsg,
	},
	{
		Name:  "recvmsg",
		Enter: []syscalls.Fetch{syscalls.Fixed(1, 56)}, Enter32: []syscalls.Fetch{syscalls.Fixed(1, 28)},
		Exit: msghdrFetches(msghdr64, true), Exit32: msghdrFetches(msghdr32, true),
		Decode: (*Cx).recvmsg,
	},
	{
		Name:  "sendmmsg",
		Enter: mmsghdrFetches(msghdr64, syscalls.Arg(2)), Enter32: mmsghdrFetches(msghdr32, syscalls.Arg(2)),
		Exit:   []syscalls.Fetch{syscalls.Vec(1, syscalls.Ret(), msghdr64.element, maxMmsghdr*msghdr64.element)},
		Exit32: []syscalls.Fetch{syscalls.Vec(1, syscalls.Ret(), msghdr32.element, maxMmsghdr*msghdr32.element)},
		Decode: (*Cx).sendmmsg,
	},
	recvmmsg("recvmmsg", false),
	recvmmsg("recvmmsg_time64", true),
}

func recvmmsg(name string, time64 bool) Spec {
	enter := func(l *msghdrLayout, timeout int) []syscalls.Fetch {
		return []syscalls.Fetch{syscalls.Vec(1, syscalls.Arg(2), l.element, maxMmsghdr*l.element), syscalls.Fixed(4, timeout)}
	}
	exit := func(l *msghdrLayout, timeout int) []syscalls.Fetch {
		return append(mmsghdrFetches(l, syscalls.Ret()), syscalls.Fixed(4, timeout))
	}
	timeout32 := 8
	if time64 {
		timeout32 = 16
	}
	return Spec{
		Name:  name,
		Enter: enter(msghdr64, 16), Enter32: enter(msghdr32, timeout32),
		Exit: exit(msghdr64, 16), Exit32: exit(msghdr32, timeout32),
		Decode: func(c *Cx) { c.recvmmsg(time64) },
	}
}

func aMsgFlags(c *Cx, i int) { c.Flags(uint64(uint32(c.Arg[i])), constant.MsgFlags) }

// sendBuffer adds the buffer of argument i, whose size is in the next argument.
func (c *Cx) sendBuffer(i int) { c.socketBuffer(In, c.Arg[i], clampLen(c.Arg[i+1])) }

// recvBuffer adds what a call has received: the return value may be larger than the buffer (MSG_TRUNC).
func (c *Cx) recvBuffer(i int) {
	if c.Failed() {
		c.Ptr(c.Arg[i])
		return
	}
	c.socketBuffer(Out, c.Arg[i], min(c.Ret, clampLen(c.Arg[i+1])))
}

// socketBuffer adds what is sent to or received from the socket of argument 0.
func (c *Cx) socketBuffer(m Moment, addr uint64, n int64) {
	if protocol, ok := c.netlinkProtocol(c.Arg[0], afUnspec); ok {
		c.netlinkBuffer(m, addr, n, protocol)
		return
	}
	c.Buffer(m, addr, n)
}

// clampLen is a length from a register as a number that cannot be taken for negative.
func clampLen(v uint64) int64 { return int64(min(v, 1<<62)) }

// recvAddress adds src_addr and addrlen of recvfrom.
func (c *Cx) recvAddress(i int) {
	after, ok := c.length(Out, c.Arg[i+1])
	if !ok || c.Arg[i] == 0 {
		c.Ptr(c.Arg[i])
		c.Ptr(c.Arg[i+1])
		return
	}
	before, ok := c.length(In, c.Arg[i+1])
	if !ok {
		before = after
	}
	if c.Failed() {
		c.Ptr(c.Arg[i])
		c.lengthChange(before, before)
		return
	}
	c.Sockaddr(Out, c.Arg[i], min(before, after))
	c.lengthChange(before, after)
}

// msghdrLayout is struct msghdr (struct user_msghdr, compat_msghdr) and struct mmsghdr, which adds the length that was
// sent or received.
type msghdrLayout struct {
	ptr                                                    int
	name, namelen, iov, iovlen, control, controllen, flags int
	size, msgLen, element                                  int
	cmsg                                                   int // struct cmsghdr
}

var (
	msghdr64 = &msghdrLayout{ptr: 8, name: 0, namelen: 8, iov: 16, iovlen: 24, control: 32, controllen: 40, flags: 48,
		size: 56, msgLen: 56, element: 64, cmsg: 16}
	msghdr32 = &msghdrLayout{ptr: 4, name: 0, namelen: 4, iov: 8, iovlen: 12, control: 16, controllen: 20, flags: 24,
		size: 28, msgLen: 28, element: 32, cmsg: 12}
)

func (c *Cx) msghdrLayout() *msghdrLayout {
	if c.Ptr32() {
		return msghdr32
	}
	return msghdr64
}

const (
	controlMax = 4096 // bytes of control messages; the kernel's own limit is net.core.optmem_max, 128 KiB
	maxMmsghdr = 32   // elements of a struct mmsghdr array whose heads are taken
	fullMmsg   = 4    // of those, how many with all that they point to
)

// msghdrFetches takes the struct msghdr of argument 1 and what it points to.
func msghdrFetches(l *msghdrLayout, received bool) []syscalls.Fetch {
	const socket, header, iov = 0, 1, 5
	f := []syscalls.Fetch{syscalls.Socket(0), syscalls.Fixed(1, l.size)}
	var total syscalls.Number
	if received {
		total = syscalls.Ret()
	}
	parts := msgPartFetches(l, header, 0, total)
	parts[1] = ifNotNetlink(socket, parts[1])
	f = append(f, parts...)
	// Of a netlink message, the first buffer whole: programs use one.
	vec := syscalls.Fetch{Kind: syscalls.FetchBytes, Base: syscalls.Mem(header, l.iov, l.ptr),
		Len: syscalls.Length{Number: syscalls.Mem(header, l.iovlen, l.ptr), Elem: uint16(2 * l.ptr), Max: uint32(32 * l.ptr)}}
	buf := syscalls.Fetch{Kind: syscalls.FetchBytes, Base: syscalls.Mem(iov, 0, l.ptr),
		Len: syscalls.Length{Number: syscalls.Mem(iov, l.ptr, l.ptr), Max: netlinkMax}}
	if received {
		buf.Len.Number = total
	}
	return append(f, ifNetlink(socket, vec), ifNetlink(socket, buf))
}

// msgPartFetches takes what the header at off in the data of fetch at points to.
func msgPartFetches(l *msghdrLayout, at, off int, total syscalls.Number) []syscalls.Fetch {
	ref := func(o, width int) syscalls.Number { return syscalls.Mem(at, off+o, width) }
	return []syscalls.Fetch{
		{Kind: syscalls.FetchBytes, Base: ref(l.name, l.ptr), Len: syscalls.Length{Number: ref(l.namelen, 4), Max: sockaddrMax}},
		{Kind: syscalls.FetchIovec, Base: ref(l.iov, l.ptr), Len: syscalls.Length{Number: ref(l.iovlen, l.ptr)}, Total: total},
		{Kind: syscalls.FetchBytes, Base: ref(l.control, l.ptr), Len: syscalls.Length{Number: ref(l.controllen, l.ptr), Max: controlMax}},
	}
}

// mmsghdrFetches takes an array of n struct mmsghdr.
func mmsghdrFetches(l *msghdrLayout, n syscalls.Number) []syscalls.Fetch {
	f := []syscalls.Fetch{syscalls.Vec(1, n, l.element, maxMmsghdr*l.element)}
	for i := range fullMmsg {
		f = append(f, msgPartFetches(l, 0, i*l.element, syscalls.Number{})...)
	}
	return f
}

func (c *Cx) sendmsg() {
	c.FD(c.Arg[0])
	if b, errno := c.Bytes(In, c.Arg[1], c.msghdrLayout().size); b == nil {
		c.Unreadable(c.Arg[1], errno)
	} else {
		c.msghdr(In, b, noLength, noLength)
	}
	aMsgFlags(c, 2)
}

func (c *Cx) recvmsg() {
	l := c.msghdrLayout()
	c.FD(c.Arg[0])
	before, errno := c.Bytes(In, c.Arg[1], l.size)
	if before == nil {
		c.Unreadable(c.Arg[1], errno)
		aMsgFlags(c, 2)
		return
	}
	if c.Entering() {
		return
	}
	namelen := I32(before, l.namelen)
	if c.Failed() {
		c.Struct()
		c.Field("msg_namelen").Int(namelen)
		c.End()
	} else if b, errno := c.Bytes(Out, c.Arg[1], l.size); b == nil {
		c.Unreadable(c.Arg[1], errno)
	} else {
		c.msghdr(Out, b, namelen, c.Ret)
	}
	aMsgFlags(c, 2)
}

// noLength says that a length has no bound beside its own.
const noLength = -1 << 63

// msghdr adds the struct msghdr in b. namelen is what msg_namelen was before the call, data the number of bytes that the
// buffers hold in all.
func (c *Cx) msghdr(m Moment, b []byte, namelen, data int64) {
	l := c.msghdrLayout()
	after := I32(b, l.namelen)
	c.Struct()
	c.Field("msg_name")
	family := c.Sockaddr(m, c.Word(b, l.name), max(min(after, orElse(namelen, after)), -1))
	c.Field("msg_namelen")
	c.change(uint64(orElse(namelen, after)), uint64(after), func(v uint64) { c.Int(int64(v)) })
	c.Field("msg_iov")
	n := c.Word(b, l.iovlen)
	show := (*Cx).Buffer
	if protocol, ok := c.netlinkProtocol(c.Arg[0], family); ok {
		show = func(c *Cx, m Moment, addr uint64, n int64) { c.netlinkBuffer(m, addr, n, protocol) }
	}
	c.iovecOf(m, c.Word(b, l.iov), n, data, show)
	c.Field("msg_iovlen").Uint(n)
	c.control(m, c.Word(b, l.control), c.Word(b, l.controllen))
	c.Field("msg_controllen").Uint(c.Word(b, l.controllen))
	c.Field("msg_flags")
	c.Flags(uint64(U32(b, l.flags)), constant.MsgFlags)
	c.End()
}

func orElse(v, other int64) int64 {
	if v == noLength {
		return other
	}
	return v
}

// iovec adds an array of n struct iovec whose buffers hold data bytes in all.
func (c *Cx) iovec(m Moment, addr, n uint64, data int64) { c.iovecOf(m, addr, n, data, (*Cx).Buffer) }

// iovecOf is iovec with show to add a buffer.
func (c *Cx) iovecOf(m Moment, addr, n uint64, data int64, show func(c *Cx, m Moment, addr uint64, n int64)) {
	c.list(m, addr, n, 2*c.ABI.PtrSize, func(c *Cx, b []byte) {
		size := c.Word(b, c.ABI.PtrSize)
		have := clampLen(size)
		if data != noLength {
			have = min(have, data)
			data -= have
		}
		c.Struct()
		c.Field("iov_base")
		show(c, m, c.Word(b, 0), have)
		c.Field("iov_len").Uint(size)
		c.End()
	})
}

func (c *Cx) sendmmsg() {
	c.FD(c.Arg[0])
	sent := int64(0)
	if c.Exited && !c.Failed() {
		sent = c.Ret
	}
	if c.Entering() {
		return
	}
	c.mmsghdrs(In, c.Arg[1], uint64(uint32(c.Arg[2])), sent)
	c.Uint(uint64(uint32(c.Arg[2])))
	aMsgFlags(c, 3)
}

const iovMax = 1024 // UIO_MAXIOV

// mmsghdrs adds an array of n struct mmsghdr at addr, of which the first sent have a result.
func (c *Cx) mmsghdrs(m Moment, addr, n uint64, sent int64) {
	l := c.msghdrLayout()
	at := uint64(0)
	c.list(m, addr, n, l.element, func(c *Cx, b []byte) {
		i := at
		at++
		if i >= iovMax {
			if i == iovMax {
				c.More()
			}
			return
		}
		namelen, data := int64(noLength), int64(noLength)
		result := b
		if m == Out {
			data = int64(U32(b, l.msgLen))
			if before, _ := c.Bytes(In, addr+i*uint64(l.element), l.element); before != nil {
				namelen = I32(before, l.namelen)
			}
		} else if int64(i) < sent {
			result, _ = c.Bytes(Out, addr+i*uint64(l.element), l.element)
		}
		c.Struct()
		c.Field("msg_hdr")
		c.msghdr(m, b, namelen, data)
		if int64(i) < sent && result != nil {
			c.Field("msg_len").Uint(uint64(U32(result, l.msgLen)))
		}
		c.End()
	})
}

func (c *Cx) recvmmsg(time64 bool) {
	c.FD(c.Arg[0])
	if c.Entering() {
		return
	}
	if c.Failed() {
		c.Ptr(c.Arg[1])
	} else {
		c.mmsghdrs(Out, c.Arg[1], uint64(c.Ret), c.Ret)
	}
	c.Uint(uint64(uint32(c.Arg[2])))
	aMsgFlags(c, 3)
	c.kernelTimespec(In, c.Arg[4], time64)
	switch {
	case c.Failed():
	case c.Ret == 0:
		c.Note = "Timeout"
	case c.Arg[4] != 0:
		c.left(c.Arg[4], time64)
	}
}

// kernelTimespec adds the struct timespec at addr, of the ABI's word size unless time64.
func (c *Cx) kernelTimespec(m Moment, addr uint64, time64 bool) {
	word := 8
	if c.Ptr32() && !time64 {
		word = 4
	}
	b, errno := c.Bytes(m, addr, 2*word)
	if b == nil {
		c.Unreadable(addr, errno)
		return
	}
	c.timePair(b, word, "tv_nsec")
}

// timePair adds seconds and a fraction of word bytes each.
func (c *Cx) timePair(b []byte, word int, fraction string) {
	c.Struct()
	if word == 4 {
		c.Field("tv_sec").Int(I32(b, 0))
		c.Field(fraction).Uint(uint64(int64(int32(U32(b, 4)))))
	} else {
		c.Field("tv_sec").Int(int64(U64(b, 0)))
		c.Field(fraction).Uint(U64(b, 8))
	}
	c.End()
}

// left notes the time that is left of the timeout at addr.
func (c *Cx) left(addr uint64, time64 bool) {
	word := 8
	if c.Ptr32() && !time64 {
		word = 4
	}
	b, _ := c.Bytes(Out, addr, 2*word)
	if b == nil {
		return
	}
	sec, nsec := int64(peek(b, 0, word)), peek(b, word, word)
	if word == 4 {
		sec = int64(int32(sec))
	}
	c.Note = fmt.Sprintf("left {tv_sec=%d, tv_nsec=%d}", sec, nsec)
}

// Control messages: struct cmsghdr {size_t cmsg_len; int cmsg_level, cmsg_type}, data, padding to a word.

const (
	solIP     = 0
	solSocket = 1
)

// control adds msg_control, an array of n bytes, if there is one.
func (c *Cx) control(m Moment, addr, n uint64) {
	if n == 0 {
		return
	}
	l := c.msghdrLayout()
	c.Field("msg_control")
	head := uint64(l.cmsg)
	b, _, errno := c.Mem(m, addr, int(min(n, 1<<17)))
	if addr == 0 || uint64(len(b)) < head || n < head || uint64(len(b)) < min(n, controlMax) {
		c.Unreadable(addr, errno)
		return
	}
	c.Array()
	left := b
	for uint64(len(left)) >= head {
		size := c.Word(left, 0)
		level, kind := U32(left, l.ptr), U32(left, l.ptr+4)
		data := left[head:max(head, min(size, uint64(len(left))))]
		c.Struct()
		c.Field("cmsg_len").Uint(size)
		c.Field("cmsg_level")
		c.Name(uint64(level), constant.SocketLevel)
		c.Field("cmsg_type")
		c.controlData(level, kind, data)
		c.End()
		if size < head {
			left = left[head:]
			break
		}
		word := uint64(l.ptr)
		if size > uint64(len(left)) {
			left = nil
			break
		}
		left = left[min(uint64(len(left)), (size+word-1)&^(word-1)):]
	}
	if len(left) > 0 {
		c.More()
		c.Add(event.Node{Kind: event.KindNote, Num: addr + uint64(len(b)-len(left))})
	} else if uint64(len(b)) < n {
		c.More()
	}
	c.End()
}

// controlData adds the type of a control message, and its data under the name cmsg_data.
func (c *Cx) controlData(level, kind uint32, data []byte) {
	var show func(c *Cx, b []byte)
	atLeast := 1
	switch level {
	case solSocket:
		c.Name(uint64(kind), constant.SocketControl)
		show, atLeast = socketControl(kind)
	case solIP:
		c.Name(uint64(kind), constant.IPControl)
		show, atLeast = ipControl(kind)
	default:
		c.Hex(uint64(kind))
	}
	if len(data) == 0 {
		return
	}
	c.Field("cmsg_data")
	if show == nil || len(data) < atLeast {
		c.hexBytes(data)
		return
	}
	show(c, data)
}

// Types of SOL_SOCKET: include/linux/socket.h; the options are in asm-generic/socket.h.
func socketControl(kind uint32) (show func(c *Cx, b []byte), atLeast int) {
	switch kind {
	case 1: // SCM_RIGHTS
		return func(c *Cx, b []byte) { c.array(b, 4, fdNumber) }, 4
	case 2: // SCM_CREDENTIALS
		return (*Cx).ucred, 12
	case 3: // SCM_SECURITY
		return (*Cx).whole, 1
	case 4: // SCM_PIDFD
		return fdNumber, 4
	case 29: // SO_TIMESTAMP_OLD
		return func(c *Cx, b []byte) { c.timesOrUnknown(b, c.ABI.PtrSize, "tv_usec", 1) }, 1
	case 35: // SO_TIMESTAMPNS_OLD
		return func(c *Cx, b []byte) { c.timesOrUnknown(b, c.ABI.PtrSize, "tv_nsec", 1) }, 1
	case 37: // SO_TIMESTAMPING_OLD
		return func(c *Cx, b []byte) { c.timesOrUnknown(b, c.ABI.PtrSize, "tv_nsec", 3) }, 1
	case 63: // SO_TIMESTAMP_NEW
		return func(c *Cx, b []byte) { c.timesOrUnknown(b, 8, "tv_usec", 1) }, 1
	case 64: // SO_TIMESTAMPNS_NEW
		return func(c *Cx, b []byte) { c.timesOrUnknown(b, 8, "tv_nsec", 1) }, 1
	case 65: // SO_TIMESTAMPING_NEW
		return func(c *Cx, b []byte) { c.timesOrUnknown(b, 8, "tv_nsec", 3) }, 1
	}
	return nil, 0
}

// array adds the whole elements of width bytes in b.
func (c *Cx) array(b []byte, width int, elem func(c *Cx, b []byte)) {
	c.numbers(b, width, len(b)/width, elem)
}

// timesOrUnknown adds n times, as an array when there are several, or ??? when b is too short.
func (c *Cx) timesOrUnknown(b []byte, word int, fraction string, n int) {
	if len(b) < 2*word*n {
		c.Sym("???", 0)
		return
	}
	if n == 1 {
		c.timePair(b, word, fraction)
		return
	}
	c.Array()
	for i := range n {
		c.timePair(b[2*word*i:], word, fraction)
	}
	c.End()
}

// ucred adds a struct ucred: see unix(7).
func (c *Cx) ucred(b []byte) {
	c.Struct()
	c.Field("pid")
	c.PID(uint64(U32(b, 0)))
	c.Field("uid")
	c.userID(uint64(U32(b, 4)))
	c.Field("gid")
	c.userID(uint64(U32(b, 8)))
	c.End()
}

// Types of SOL_IP: ip(7).
func ipControl(kind uint32) (show func(c *Cx, b []byte), atLeast int) {
	switch kind {
	case 8: // IP_PKTINFO
		return (*Cx).inPktinfo, 12
	case 2, 23: // IP_TTL, IP_CHECKSUM
		return func(c *Cx, b []byte) { c.array(b, 4, uintNumber) }, 4
	case 1, 6, 7: // IP_TOS, IP_RECVOPTS, IP_RETOPTS
		return func(c *Cx, b []byte) { c.array(b, 1, hexNumber) }, 1
	case 11: // IP_RECVERR
		return (*Cx).ipRecverr, 32
	case 20: // IP_ORIGDSTADDR
		return func(c *Cx, b []byte) { c.sockaddr(b[:min(len(b), sockaddrMax)]) }, sockaddrIn
	case 52: // IP_PROTOCOL
		return func(c *Cx, b []byte) {
			c.Array()
			c.nameOr(uint64(U32(b, 0)), constant.InetProtocol, "IP_???")
			c.End()
		}, 4
	case 3: // SCM_SECURITY
		return (*Cx).whole, 1
	}
	return nil, 0
}

// nameOr is Name with another word for numbers without a name.
func (c *Cx) nameOr(v uint64, s *constant.Set, unknown string) {
	c.Name(v, s)
	if n := &c.Nodes[len(c.Nodes)-1]; n.Kind == event.KindHex {
		n.Sym = unknown
	}
}

// inPktinfo adds a struct in_pktinfo.
func (c *Cx) inPktinfo(b []byte) {
	c.Struct()
	c.Field("ipi_ifindex")
	c.ifIndex(U32(b, 0))
	c.Field("ipi_spec_dst")
	c.inetAddr(b[4:8])
	c.Field("ipi_addr")
	c.inetAddr(b[8:12])
	c.End()
}

// ipRecverr adds a struct sock_extended_err and the address of the offender.
func (c *Cx) ipRecverr(b []byte) {
	c.Struct()
	c.Field("ee_errno").Uint(uint64(U32(b, 0)))
	c.Field("ee_origin").Uint(uint64(b[4]))
	c.Field("ee_type").Uint(uint64(b[5]))
	c.Field("ee_code").Uint(uint64(b[6]))
	c.Field("ee_info").Uint(uint64(U32(b, 8)))
	c.Field("ee_data").Uint(uint64(U32(b, 12)))
	c.Field("offender")
	c.sockaddr(b[16:32])
	c.End()
}
