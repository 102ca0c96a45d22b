package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// io_uring_setup(2), io_uring_enter(2), io_uring_register(2) (linux/io_uring.h).

// Operations of io_uring_register (enum io_uring_register_op).
const (
	uringBuffers          = 0
	uringFiles            = 2
	uringEventfd          = 4
	uringFilesUpdate      = 6
	uringEventfdAsync     = 7
	uringProbe            = 8
	uringRestrictions     = 11
	uringFiles2           = 13
	uringFilesUpdate2     = 14
	uringBuffers2         = 15
	uringBuffersUpdate    = 16
	uringIowqAff          = 17
	uringIowqMaxWorkers   = 19
	uringRingFDs          = 20
	uringUnregRingFDs     = 21
	uringPbufRing         = 22
	uringUnregPbufRing    = 23
	uringSyncCancel       = 24
	uringFileAllocRange   = 25
	uringPbufStatus       = 26
	uringNapi             = 27
	uringUnregNapi        = 28
	uringClock            = 29
	uringCloneBuffers     = 30
	uringSendMsgRing      = 31
	uringZcrxIfq          = 32
	uringResizeRings      = 33
	uringMemRegion        = 34
	uringQuery            = 35
	uringZcrxCtrl         = 36
	uringRegisteredRing   = 1 << 31 // IORING_REGISTER_USE_REGISTERED_RING
	uringParamsSize       = 120
	uringSetupAttachWq    = 1 << 5
	uringEnterExtArg      = 1 << 3
	uringEnterExtArgReg   = 1 << 6
	uringGeteventsArgSize = 24
)

// whenOp holds for the operations of io_uring_register, with a registered ring or without.
func whenOp(ops ...uint64) syscalls.Cond {
	return syscalls.Cond{Value: syscalls.Arg(1), Mask: 0x7fffffff, Any: ops}
}

func uringFetch(n syscalls.Number, elem, max int, ops ...uint64) syscalls.Fetch {
	return syscalls.Fetch{Kind: syscalls.FetchBytes, Base: syscalls.Arg(2),
		Len: syscalls.Length{Number: n, Elem: uint16(elem), Max: uint32(max)}, When: whenOp(ops...)}
}

var uringCalls = []Spec{
	{
		Name:  "io_uring_setup",
		RetFD: true,
		Enter: []syscalls.Fetch{syscalls.Fixed(1, uringParamsSize),
			{Kind: syscalls.FetchDescriptor, Base: syscalls.Mem(0, 24, 4), When: syscalls.Cond{Value: syscalls.Mem(0, 8, 4), Mask: 1 << 5, Any: []uint64{1 << 5}}}}, // IORING_SETUP_ATTACH_WQ
		Exit:   []syscalls.Fetch{syscalls.Fixed(1, uringParamsSize)},
		Decode: args(aUint, (*Cx).uringSetup),
		Ret:    retFD,
	},
	{
		Name: "io_uring_enter",
		Enter: []syscalls.Fetch{
			syscalls.Fixed(4, uringGeteventsArgSize),
			memOf(syscalls.FetchBytes, syscalls.Mem(0, 0, 8), syscalls.Const(8), 0, 8,
				syscalls.Cond{Value: syscalls.Arg(3), Mask: uringEnterExtArg, Any: []uint64{uringEnterExtArg}}),
			memOf(syscalls.FetchBytes, syscalls.Mem(0, 16, 8), syscalls.Const(16), 0, 16,
				syscalls.Cond{Value: syscalls.Arg(3), Mask: uringEnterExtArg, Any: []uint64{uringEnterExtArg}}),
		},
		Decode: decodeUringEnter,
	},
	{
		Name: "io_uring_register",
		Enter: []syscalls.Fetch{
			{Kind: syscalls.FetchBytes, Base: syscalls.Arg(2), Len: syscalls.Length{Number: syscalls.Const(uringParamsSize), Max: uringParamsSize}},
			uringFetch(syscalls.Arg(3), 16, 4096, uringBuffers, uringRestrictions, uringRingFDs, uringUnregRingFDs),
			uringFetch(syscalls.Arg(3), 4, 1024, uringFiles, uringEventfd, uringEventfdAsync, uringIowqMaxWorkers),
			uringFetch(syscalls.Const(16), 0, 16, uringFilesUpdate),
			memOf(syscalls.FetchBytes, syscalls.Mem(3, 8, 8), syscalls.Arg(3), 4, 1024, whenOp(uringFilesUpdate)),
			uringFetch(syscalls.Number{From: syscalls.FromArg, N: 3}, 8, 8*256, uringProbe),
			uringFetch(syscalls.Arg(3), 1, 4096, uringFiles2, uringFilesUpdate2, uringBuffers2, uringBuffersUpdate, uringIowqAff),
			memOf(syscalls.FetchBytes, syscalls.Mem(6, 16, 8), syscalls.Mem(6, 0, 4), 4, 1024, whenOp(uringFiles2)),
			memOf(syscalls.FetchBytes, syscalls.Mem(6, 16, 8), syscalls.Mem(6, 0, 4), 16, 4096, whenOp(uringBuffers2)),
			memOf(syscalls.FetchBytes, syscalls.Mem(6, 24, 8), syscalls.Mem(6, 0, 4), 8, 2048, whenOp(uringFiles2, uringBuffers2)),
			memOf(syscalls.FetchBytes, syscalls.Mem(6, 8, 8), syscalls.Mem(6, 24, 4), 4, 1024, whenOp(uringFilesUpdate2)),
			memOf(syscalls.FetchBytes, syscalls.Mem(6, 8, 8), syscalls.Mem(6, 24, 4), 16, 4096, whenOp(uringBuffersUpdate)),
			memOf(syscalls.FetchBytes, syscalls.Mem(6, 16, 8), syscalls.Mem(6, 24, 4), 8, 2048, whenOp(uringFilesUpdate2, uringBuffersUpdate)),
			uringFetch(syscalls.Const(128), 0, 128, uringSendMsgRing, uringZcrxIfq, uringZcrxCtrl),
			memOf(syscalls.FetchBytes, syscalls.Mem(13, 48, 8), syscalls.Const(32), 0, 32, whenOp(uringSendMsgRing)),
			uringFetch(syscalls.Const(40), 0, 40, uringQuery),
			memOf(syscalls.FetchBytes, syscalls.Mem(15, 0, 8), syscalls.Const(40), 0, 40, whenOp(uringQuery)),
			memOf(syscalls.FetchBytes, syscalls.Mem(16, 0, 8), syscalls.Const(40), 0, 40, whenOp(uringQuery)),
			memOf(syscalls.FetchBytes, syscalls.Mem(17, 0, 8), syscalls.Const(40), 0, 40, whenOp(uringQuery)),
			memOf(syscalls.FetchBytes, syscalls.Mem(15, 8, 8), syscalls.Const(48), 0, 48, whenOp(uringQuery)),
			memOf(syscalls.FetchBytes, syscalls.Mem(16, 8, 8), syscalls.Const(48), 0, 48, whenOp(uringQuery)),
			memOf(syscalls.FetchBytes, syscalls.Mem(17, 8, 8), syscalls.Const(48), 0, 48, whenOp(uringQuery)),
			{Kind: syscalls.FetchBytes, Base: syscalls.Arg(2), Len: syscalls.Length{Number: syscalls.Arg(3), Elem: 8, Add: 16, Max: 8*256 + 16},
				When: whenOp(uringProbe)},
		},
		Exit: []syscalls.Fetch{
			{Kind: syscalls.FetchBytes, Base: syscalls.Arg(2), Len: syscalls.Length{Number: syscalls.Arg(3), Elem: 8, Add: 16, Max: 8*256 + 16},
				When: whenOp(uringProbe)},
			uringFetch(syscalls.Arg(3), 4, 1024, uringIowqMaxWorkers),
			uringFetch(syscalls.Const(40), 0, 40, uringPbufStatus),
			uringFetch(syscalls.Const(16), 0, 16, uringNapi, uringUnregNapi),
			uringFetch(syscalls.Const(72), 0, 72, uringZcrxCtrl),
		},
		Decode: decodeUringRegister,
	},
}

func (c *Cx) uringSetup(i int) {
	b, errno := c.Bytes(In, c.Arg[i], uringParamsSize)
	if b == nil {
		c.Unreadable(c.Arg[i], errno)
		return
	}
	if c.Entering() {
		c.stop = true
		return
	}
	f := c.begin(b)
	flags := peek(b, 8, 4)
	f.skip(8).flags("flags", 4, constant.UringSetup)
	f.x4("sq_thread_cpu")
	f.u4("sq_thread_idle")
	f.skip(4)
	if flags&uringSetupAttachWq != 0 {
		f.fd("wq_fd")
	} else {
		f.skip(4)
	}
	f.nonzeros("resv", 4, 3)
	if o, ok := c.Bytes(Out, c.Arg[i], uringParamsSize); ok == 0 && o != nil && !c.Failed() {
		g := c.at(o, 0)
		g.u4("sq_entries")
		g.u4("cq_entries")
		g.off = 20
		g.flags("features", 4, constant.UringFeature)
		c.Field("sq_off")
		c.uringOffsets(o[40:80], "dropped", "array")
		c.Field("cq_off")
		c.uringOffsets(o[80:120], "cqes", "flags")
	}
	f.end()
}

// uringOffsets adds struct io_sqring_offsets or io_cqring_offsets, which differ in two names.
func (c *Cx) uringOffsets(b []byte, sixth, seventh string) {
	fifth := "overflow"
	if sixth == "dropped" {
		fifth = "flags"
	}
	f := c.begin(b)
	for _, name := range [...]string{"head", "tail", "ring_mask", "ring_entries", fifth, sixth, seventh} {
		f.u4(name)
	}
	f.nonzero("resv1", 4)
	f.x8("user_addr")
	f.end()
}

func decodeUringEnter(c *Cx) {
	flags := uint64(uint32(c.Arg[3]))
	c.FD(c.Arg[0])
	c.Uint(uint64(uint32(c.Arg[1])))
	c.Uint(uint64(uint32(c.Arg[2])))
	c.Flags(flags, constant.UringEnter)
	switch flags & (uringEnterExtArg | uringEnterExtArgReg) {
	case uringEnterExtArgReg: // an offset in a registered region
		c.Uint(c.Arg[4])
	case uringEnterExtArg:
		c.obj(In, c.Arg[4], uringGeteventsArgSize, func(c *Cx, b []byte) {
			c.Struct()
			size := peek(b, 8, 4)
			c.Field("sigmask")
			c.Sigset(In, peek(b, 0, 8), size)
			c.Field("sigmask_sz").Uint(size)
			c.Field("min_wait_usec").Uint(peek(b, 12, 4))
			c.Field("ts")
			c.kernelTimespec(In, peek(b, 16, 8), true)
			c.End()
		})
	default:
		c.Sigset(In, c.Arg[4], c.Arg[5])
	}
	c.Uint(c.Arg[5])
}

func decodeUringRegister(c *Cx) {
	op, arg, n := uint32(c.Arg[1])&^uringRegisteredRing, c.Arg[2], uint64(uint32(c.Arg[3]))
	if registered := uint32(c.Arg[1]) & uringRegisteredRing; registered != 0 {
		c.Uint(uint64(uint32(c.Arg[0])))
		c.expr("|")
		c.Name(uint64(op), constant.UringRegister)
		c.Sym("IORING_REGISTER_USE_REGISTERED_RING", uringRegisteredRing)
		c.End()
	} else {
		c.FD(c.Arg[0])
		c.Name(uint64(op), constant.UringRegister)
	}
	if !c.uringArg(op, arg, n) {
		return
	}
	c.Uint(n)
}

// one adds what show makes of the structure of size bytes at addr when the call has one argument, else the address.
func (c *Cx) one(n, addr uint64, size int, show func(c *Cx, b []byte)) {
	if n != 1 {
		c.Ptr(addr)
		return
	}
	c.obj(In, addr, size, show)
}

// uringArg adds the argument of an operation; false: the call has to return first.
func (c *Cx) uringArg(op uint32, arg, n uint64) bool {
	switch op {
	case uringBuffers:
		c.vectors(In, arg, n, false)
	case uringFiles, uringEventfd, uringEventfdAsync:
		c.list(In, arg, n, 4, fdNumber)
	case uringFilesUpdate:
		c.obj(In, arg, 16, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.u4("offset")
			f.nonzero("resv", 4)
			c.Field("fds")
			c.list(In, f.num(8), n, 4, uringUpdatedFD)
			f.end()
		})
	case uringProbe:
		return c.uringProbe(arg, n)
	case uringRestrictions:
		c.list(In, arg, n, 16, uringRestriction)
	case uringFiles2, uringBuffers2, uringFilesUpdate2, uringBuffersUpdate:
		c.uringResources(op, arg, n)
	case uringIowqAff:
		c.affinity(In, arg, n)
	case uringIowqMaxWorkers:
		return c.uringWorkers(arg, n)
	case uringRingFDs:
		c.list(In, arg, n, 16, func(c *Cx, b []byte) {
			f := c.begin(b)
			if peek(b, 0, 4) == 0xffffffff {
				f.i4("offset")
			} else {
				f.u4("offset")
			}
			f.nonzero("resv", 4)
			f.fd("data")
			f.end()
		})
	case uringUnregRingFDs:
		c.list(In, arg, n, 16, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.u4("offset")
			f.nonzero("resv", 4)
			f.nonzero("data", 8)
			f.end()
		})
	case uringPbufRing, uringUnregPbufRing:
		c.one(n, arg, 40, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.p8("ring_addr")
			f.u4("ring_entries")
			f.u2("bgid")
			f.x2("flags")
			f.u4("min_left")
			f.nonzeros("resv", 4, 5)
			f.end()
		})
	case uringSyncCancel:
		c.one(n, arg, 64, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.p8("addr")
			f.fd("fd")
			f.flags("flags", 4, constant.UringAsyncCancel)
			c.Field("timeout").Struct()
			f.i8("tv_sec")
			f.i8("tv_nsec")
			c.End()
			f.enum("opcode", 1, constant.UringOp)
			f.nonzeros("pad", 1, 7)
			f.nonzeros("pad2", 8, 3)
			f.end()
		})
	case uringFileAllocRange:
		c.one(n, arg, 16, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.u4("off")
			f.u4("len")
			f.nonzero("resv", 8)
			f.end()
		})
	case uringPbufStatus:
		if n != 1 {
			c.Ptr(arg)
			break
		}
		if c.Entering() {
			return false
		}
		if b, ok := c.Load(Out, arg, 40); ok {
			f := c.begin(b)
			f.x4("buf_group")
			f.x4("head")
			f.nonzeros("resv", 4, 8)
			f.end()
		}
	case uringNapi:
		return c.uringNapi(arg, n)
	case uringUnregNapi:
		if n != 1 {
			c.Ptr(arg)
			break
		}
		if c.Entering() {
			return false
		}
		if b, ok := c.Load(Out, arg, 16); ok {
			uringNapiStruct(c, b)
		}
	case uringClock:
		if n != 0 {
			c.Ptr(arg)
			break
		}
		c.obj(In, arg, 16, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.enum("clockid", 4, constant.PerfClock)
			f.nonzeros("__resv", 4, 3)
			f.end()
		})
	case uringCloneBuffers:
		c.one(n, arg, 32, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.fd("src_fd")
			f.flags("flags", 4, constant.UringCloneBuffers)
			f.u4("src_off")
			f.u4("dst_off")
			f.u4("nr")
			f.nonzeros("pad", 4, 3)
			f.end()
		})
	case uringSendMsgRing:
		c.one(n, arg, 64, func(c *Cx, b []byte) { c.uringSqe(arg, b) })
	case uringZcrxIfq:
		c.one(n, arg, 96, uringZcrxIfqReg)
	case uringResizeRings:
		c.one(n, arg, uringParamsSize, uringResize)
	case uringMemRegion:
		c.one(n, arg, 32, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.p8("region_uptr")
			f.flags("flags", 8, constant.UringMemRegion)
			f.nonzeros("__resv", 8, 2)
			f.end()
		})
	case uringQuery:
		if n != 0 {
			c.Ptr(arg)
			break
		}
		c.uringQueries(arg, 0)
	case uringZcrxCtrl:
		return c.uringZcrxCtrl(arg, n)
	default:
		c.Ptr(arg)
	}
	return true
}

// uringUpdatedFD is a descriptor to put in place, or a name for what to do instead.
func uringUpdatedFD(c *Cx, b []byte) {
	if v := peek(b, 0, 4); int32(v) < -1 {
		c.nameD(v, constant.UringFilesUpdate)
	} else {
		c.FD(v)
	}
}

func (c *Cx) uringProbe(addr, n uint64) bool {
	if n > 256 {
		c.Ptr(addr)
		return true
	}
	size := int(16 + 8*n)
	in, errno := c.Bytes(In, addr, size)
	if in == nil {
		c.Unreadable(addr, errno)
		return true
	}
	if c.Entering() {
		return false
	}
	filled := !allZero(in)
	out, _ := c.Bytes(Out, addr, size)
	shown := out != nil && !c.Failed()
	switch {
	case filled && shown:
		c.Begin(event.Node{Kind: event.KindChange})
		c.uringProbeStruct(in, n, n)
		c.uringProbeStruct(out, min(peek(out, 1, 1), n), n)
		c.End()
	case filled:
		c.uringProbeStruct(in, n, n)
	case shown:
		c.uringProbeStruct(out, min(peek(out, 1, 1), n), n)
	default:
		c.Ptr(addr)
	}
	return true
}

// uringProbeStruct adds a struct io_uring_probe of which n operations count; the caller has room for room.
func (c *Cx) uringProbeStruct(b []byte, n, room uint64) {
	f := c.begin(b)
	f.enumU("last_op", 1, constant.UringOp)
	total := peek(b, 1, 1)
	f.u1("ops_len")
	f.nonzero("resv", 2)
	f.nonzeros("resv2", 4, 3)
	c.Field("ops").Array()
	for i := range n {
		if c.Opt.Abbrev && int(i) >= c.limit() {
			c.More()
			break
		}
		g := c.begin(b[16+8*i : 24+8*i])
		g.enumU("op", 1, constant.UringOp)
		g.nonzero("resv", 1)
		g.flags("flags", 2, constant.UringOpFlags)
		g.nonzero("resv2", 4)
		g.end()
	}
	if c.Exited && room < total && n == room && !c.Failed() {
		c.More()
	}
	c.End()
	f.end()
}

func uringRestriction(c *Cx, b []byte) {
	f := c.begin(b)
	op := peek(b, 0, 2)
	f.enum("opcode", 2, constant.UringRestriction)
	switch op {
	case 0:
		f.enum("register_op", 1, constant.UringRegister)
	case 1:
		f.enum("sqe_op", 1, constant.UringOp)
	case 2, 3:
		f.flags("sqe_flags", 1, constant.UringSqeFlags)
	default:
		c.Builder.Note("op: " + hexText(f.num(1)))
	}
	f.nonzero("resv", 1)
	f.nonzeros("resv2", 4, 3)
	f.end()
}

// uringResources adds struct io_uring_rsrc_register or io_uring_rsrc_update2 of size bytes.
func (c *Cx) uringResources(op uint32, addr, size uint64) {
	if size < 32 {
		c.Ptr(addr)
		return
	}
	c.obj(In, addr, 32, func(c *Cx, b []byte) {
		f := c.begin(b)
		update := op == uringFilesUpdate2 || op == uringBuffersUpdate
		count := peek(b, 0, 4)
		if update {
			count = peek(b, 24, 4)
			f.u4("offset")
			f.nonzero("resv", 4)
		} else {
			f.u4("nr")
			f.flags("flags", 4, constant.UringRsrcRegister)
			f.nonzero("resv2", 8)
		}
		c.Field("data")
		switch data := f.num(8); op {
		case uringFiles2:
			c.list(In, data, count, 4, fdNumber)
		case uringFilesUpdate2:
			c.list(In, data, count, 4, uringUpdatedFD)
		default:
			c.vectors(In, data, count, false)
		}
		c.Field("tags")
		c.list(In, f.num(8), count, 8, hexNumber)
		if update {
			f.u4("nr")
			f.nonzero("resv2", 4)
		}
		c.tail(In, addr, 32, min(size, 4096))
		f.end()
	})
}

// affinity adds the CPUs of the set of n bytes at addr.
func (c *Cx) affinity(m Moment, addr, n uint64) {
	if addr == 0 || n == 0 {
		if addr == 0 {
			c.Ptr(0)
			return
		}
		c.Begin(event.Node{Kind: event.KindSet})
		c.End()
		return
	}
	word := uint64(c.ABI.PtrSize)
	size := (min(n, 4096) + word - 1) &^ (word - 1)
	c.obj(m, addr, int(size), func(c *Cx, b []byte) {
		c.Begin(event.Node{Kind: event.KindSet})
		for i := range 8 * len(b) {
			if b[i/8]>>(i%8)&1 != 0 {
				c.Uint(uint64(i))
			}
		}
		c.End()
	})
}

func (c *Cx) uringWorkers(addr, n uint64) bool {
	show := func(m Moment) {
		i := 0
		c.list(m, addr, n, 4, func(c *Cx, b []byte) {
			name := [...]string{"IO_WQ_BOUND", "IO_WQ_UNBOUND"}
			if i < len(name) {
				c.Index(name[i])
			} else {
				c.Index(uintText(uint64(i)) + " /* IO_WQ_??? */")
			}
			i++
			c.Uint(peek(b, 0, 4))
		})
	}
	b, _ := c.Bytes(In, addr, int(min(n, 256)*4))
	if n == 0 || b == nil {
		show(In)
		return true
	}
	if c.Entering() {
		return false
	}
	c.Begin(event.Node{Kind: event.KindChange})
	show(In)
	show(Out)
	c.End()
	return true
}

func (c *Cx) uringNapi(addr, n uint64) bool {
	if n != 1 {
		c.Ptr(addr)
		return true
	}
	in, errno := c.Bytes(In, addr, 16)
	if in == nil {
		c.Unreadable(addr, errno)
		return true
	}
	if c.Entering() {
		return false
	}
	if c.Failed() {
		uringNapiStruct(c, in)
		return true
	}
	c.Begin(event.Node{Kind: event.KindChange})
	uringNapiStruct(c, in)
	c.obj(Out, addr, 16, uringNapiStruct)
	c.End()
	return true
}

func uringNapiStruct(c *Cx, b []byte) {
	f := c.begin(b)
	f.x4("busy_poll_to")
	f.x1("prefer_busy_poll")
	op := peek(b, 5, 1)
	f.enum("opcode", 1, constant.UringNapiOp)
	f.nonzeros("pad", 1, 2)
	if op == 0 {
		f.enum("op_param", 4, constant.UringNapiTracking)
	} else {
		f.x4("op_param")
	}
	f.nonzero("resv", 4)
	f.end()
}

// Operations of a submission queue entry that give a member another meaning.
const (
	uringOpNop            = 0
	uringOpMsgRing        = 40
	uringOpFixedFDInstall = 54
	uringOpNop128         = 63
	uringOpCmd128         = 64
)

// uringSqe adds the struct io_uring_sqe at addr.
func (c *Cx) uringSqe(addr uint64, b []byte) {
	op := int(b[0])
	f := c.begin(b)
	f.enumU("opcode", 1, constant.UringOp)
	f.flags("flags", 1, constant.UringSqeFlags)
	switch op {
	case 13: // IORING_OP_ACCEPT
		f.flags("ioprio", 2, constant.UringAccept)
	case 26, 9, 47, 48, 27, 10, 58: // send and receive
		f.flags("ioprio", 2, constant.UringRecvsend)
	default:
		f.u2("ioprio")
	}
	f.fd("fd")
	f.x8("off")
	f.x8("addr")
	f.u4("len")
	switch op {
	case uringOpNop, uringOpNop128:
		f.flags("nop_flags", 4, constant.UringNop)
	case uringOpFixedFDInstall:
		f.flags("install_fd_flags", 4, constant.UringFixedFd)
	case uringOpMsgRing:
		f.flags("msg_ring_flags", 4, constant.UringMsgRing)
	default:
		f.x4("rw_flags")
	}
	f.x8("user_data")
	f.x2("buf_index")
	f.u2("personality")
	f.x4("file_index")
	mask := peek(b, 56, 8)
	switch op {
	case 22, 23, 1, 2, 4, 5, 60, 61, 26, 27, 9, 10, 47, 58, 49: // reads, writes, sends and receives
	default:
		mask = 0
	}
	if mask == 0 {
		f.off = 48
		f.x8("optval")
	} else {
		c.Field("attr_type_mask")
		c.Flags(mask, constant.UringRwAttr)
		c.Field("attr_ptr")
		attr := peek(b, 48, 8)
		if mask&1 == 0 {
			c.Ptr(attr)
		} else {
			c.obj(In, attr, 32, func(c *Cx, b []byte) {
				g := c.begin(b)
				g.x2("flags")
				g.x2("app_tag")
				g.u4("len")
				g.x8("addr")
				g.x8("seed")
				g.x8("rsvd")
				g.end()
			})
		}
	}
	if op == uringOpNop128 || op == uringOpCmd128 {
		c.Field("cmd")
		c.list(In, addr+64, 64, 1, hexNumber)
	}
	f.end()
}

func uringZcrxIfqReg(c *Cx, b []byte) {
	f := c.begin(b)
	f.u4("if_idx")
	f.u4("if_rxq")
	f.u4("rq_entries")
	f.flags("flags", 4, constant.UringZcrxReg)
	f.p8("area_ptr")
	f.p8("region_ptr")
	c.Field("offsets").Struct()
	f.u4("head")
	f.u4("tail")
	f.u4("rqes")
	f.nonzero("__resv2", 4)
	f.nonzeros("__resv", 8, 2)
	c.End()
	f.u4("zcrx_id")
	f.u4("rx_buf_len")
	f.p8("event_desc")
	f.nonzeros("__resv", 8, 2)
	f.end()
}

func uringResize(c *Cx, b []byte) {
	f := c.begin(b)
	f.u4("sq_entries")
	f.u4("cq_entries")
	f.flags("flags", 4, constant.UringSetup)
	for _, m := range [...]struct {
		name string
		off  int
	}{{"sq_off", 40 + 32}, {"cq_off", 80 + 32}} {
		if v := peek(b, m.off, 8); v != 0 {
			c.Field(m.name).Struct()
			c.Field("user_addr").Hex(v)
			c.End()
		}
	}
	f.off = 28
	f.nonzeros("resv", 4, 3)
	f.end()
}

const maxUringQueries = 1000

// uringQueries adds the list of queries that begins at addr; each holds the next.
func (c *Cx) uringQueries(addr uint64, depth int) {
	b, errno := c.Bytes(In, addr, 40)
	if b == nil {
		c.Unreadable(addr, errno)
		return
	}
	if depth >= maxUringQueries || c.Opt.Abbrev && depth >= c.limit() {
		c.Ptr(addr)
		c.Builder.Note("...")
		return
	}
	next, data, op, size := peek(b, 0, 8), peek(b, 8, 8), peek(b, 16, 4), peek(b, 20, 4)
	f := c.begin(b)
	f.skip(8).p8("query_data")
	f.enum("query_op", 4, constant.UringQueryOp)
	f.u4("size")
	f.i4("result")
	f.nonzeros("__resv", 4, 3)
	if data != 0 && size > 0 {
		c.Field("query_data")
		c.uringQueryData(op, data)
	}
	c.Field("next_entry")
	c.uringQueries(next, depth+1)
	f.end()
}

func (c *Cx) uringQueryData(op, addr uint64) {
	switch op {
	case 0: // IO_URING_QUERY_OPCODES
		c.obj(In, addr, 48, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.u4("nr_request_opcodes")
			f.u4("nr_register_opcodes")
			f.flags("feature_flags", 8, constant.UringFeature)
			f.flags("ring_setup_flags", 8, constant.UringSetup)
			f.flags("enter_flags", 8, constant.UringEnter)
			f.flags("sqe_flags", 8, constant.UringSqeFlags)
			f.u4("nr_query_opcodes")
			f.nonzero("__pad", 4)
			f.end()
		})
	case 1: // IO_URING_QUERY_ZCRX
		c.obj(In, addr, 40, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.flags("register_flags", 8, constant.UringZcrxReg)
			f.flags("area_flags", 8, constant.UringZcrxArea)
			f.u4("nr_ctrl_opcodes")
			f.x4("features")
			f.u4("rq_hdr_size")
			f.u4("rq_hdr_alignment")
			f.nonzero("__resv2", 8)
			f.end()
		})
	case 2: // IO_URING_QUERY_SCQ
		c.obj(In, addr, 16, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.u8("hdr_size")
			f.u8("hdr_alignment")
			f.end()
		})
	case 3: // IO_URING_QUERY_ZCRX_EVENT
		c.obj(In, addr, 48, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.x4("event_flags")
			f.u4("stats_size")
			f.u4("stats_off_alignment")
			f.nonzero("__resv1", 4)
			f.nonzeros("__resv2", 8, 4)
			f.end()
		})
	default:
		c.Ptr(addr)
	}
}

func (c *Cx) uringZcrxCtrl(addr, n uint64) bool {
	if n != 1 {
		c.Ptr(addr)
		return true
	}
	b, errno := c.Bytes(In, addr, 72)
	if b == nil {
		c.Unreadable(addr, errno)
		return true
	}
	op := peek(b, 4, 4)
	if op == 1 && c.Entering() {
		return false
	}
	f := c.begin(b)
	f.u4("zcrx_id")
	f.enum("op", 4, constant.UringZcrxCtrl)
	f.nonzeros("__resv", 8, 2)
	switch op {
	case 0: // ZCRX_CTRL_FLUSH_RQ
		c.Field("zc_flush").Struct()
		f.nonzeros("__resv", 8, 6)
		c.End()
	case 1: // ZCRX_CTRL_EXPORT
		if o, _ := c.Bytes(Out, addr, 72); o != nil && !c.Failed() {
			f.b = o
			c.Field("zc_export").Struct()
			f.fd("zcrx_fd")
			f.nonzeros("__resv1", 4, 11)
			c.End()
		}
	case 2: // ZCRX_CTRL_ARM_EVENT
		c.Field("zc_arm_event").Struct()
		f.enum("event_type", 4, constant.UringZcrxEvent)
		f.nonzeros("__resv", 4, 11)
		c.End()
	}
	f.end()
	return true
}
