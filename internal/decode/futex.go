package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Operations of futex(2), include/uapi/linux/futex.h, without FUTEX_PRIVATE_FLAG and FUTEX_CLOCK_REALTIME.
const (
	futexWait = iota
	futexWake
	futexFD
	futexRequeue
	futexCmpRequeue
	futexWakeOp
	futexLockPI
	futexUnlockPI
	futexTrylockPI
	futexWaitBitset
	futexWakeBitset
	futexWaitRequeuePI
	futexCmpRequeuePI
	futexLockPI2

	futexCmdMask = 127
)

// futexes is futex(2) and futex2.
var futexes = []Spec{
	{Name: "futex", Enter: takes(futexTimeout), Enter32: takes(futexTimeout), Decode: func(c *Cx) { futex(c, false) }},
	{Name: "futex_time64", Enter: takes(futexTimeout), Decode: func(c *Cx) { futex(c, true) }},
	{Name: "futex_waitv",
		Enter: takes(syscalls.Vec(0, syscalls.Arg(1), waiterSize, maxWaiters*waiterSize), syscalls.Fixed(3, 16)),
		Decode: args(func(c *Cx, i int) { c.waiters(c.Arg[0], uint64(uint32(c.Arg[1]))) },
			aUint, aHex32, aTimespec64, aName(constant.FutexClock))},
	{Name: "futex_wake", Decode: args(aPtr, aFutexBitset, aInt, aFutex2Flags)},
	{Name: "futex_wait", Enter: takes(syscalls.Fixed(4, 16)),
		Decode: args(aPtr, aUlong, aFutexBitset, aFutex2Flags, aTimespec64, aName(constant.FutexClock))},
	{Name: "futex_requeue", Enter: takes(syscalls.Fixed(0, 2*waiterSize)),
		Decode: args(func(c *Cx, i int) { c.waiters(c.Arg[0], 2) }, aHex32, aInt, aInt)},
}

// futexTimeout is taken for the operations that have one.
var futexTimeout = func() syscalls.Fetch {
	f := syscalls.Fixed(3, 16)
	f.When = syscalls.Cond{Value: syscalls.Arg(1), Mask: futexCmdMask,
		Any: []uint64{futexWait, futexLockPI, futexWaitBitset, futexWaitRequeuePI, futexLockPI2}}
	return f
}()

func aTimespec64(c *Cx, i int) { c.kernelTimespec(In, c.Arg[i], true) }

func aFutexBitset(c *Cx, i int) { c.Name(c.Arg[i], constant.FutexBitset) }

func futex(c *Cx, time64 bool) {
	c.Ptr(c.Arg[0])
	c.futexOp(uint64(uint32(c.Arg[1])))
	val := func() { c.Uint(uint64(uint32(c.Arg[2]))) }
	timeout := func() { c.kernelTimespec(In, c.Arg[3], time64) }
	val2 := func() { c.Uint(uint64(uint32(c.Arg[3]))) }
	uaddr2 := func() { c.Ptr(c.Arg[4]) }
	val3 := uint64(uint32(c.Arg[5]))
	switch c.Arg[1] & futexCmdMask {
	case futexWait:
		val()
		timeout()
	case futexLockPI, futexLockPI2:
		timeout()
	case futexWaitBitset:
		val()
		timeout()
		c.Name(val3, constant.FutexBitset)
	case futexWakeBitset:
		val()
		c.Name(val3, constant.FutexBitset)
	case futexRequeue:
		val()
		val2()
		uaddr2()
	case futexCmpRequeue, futexCmpRequeuePI:
		val()
		val2()
		uaddr2()
		c.Uint(val3)
	case futexWakeOp:
		val()
		val2()
		uaddr2()
		c.futexWakeOp(val3)
	case futexWaitRequeuePI:
		val()
		timeout()
		uaddr2()
	case futexFD, futexWake:
		val()
	case futexUnlockPI, futexTrylockPI:
	default:
		val()
		c.Ptr(c.Arg[3])
		uaddr2()
		c.Hex(val3)
	}
}

// futexOp adds an operation: FUTEX_CLOCK_REALTIME stands beside those that know it.
func (c *Cx) futexOp(v uint64) {
	const private, realtime = 128, 256
	if v&realtime != 0 {
		switch v &^ (private | realtime) {
		case futexWait, futexWaitBitset, futexWaitRequeuePI:
			name, _ := constant.FutexOp.Name(v &^ realtime)
			c.open(v)
			c.Sym(name, v&^realtime)
			c.Sym("FUTEX_CLOCK_REALTIME", realtime)
			c.End()
			return
		}
	}
	if v == futexFD|private {
		c.open(v)
		c.Sym("FUTEX_FD", futexFD)
		c.Sym("FUTEX_PRIVATE_FLAG", private)
		c.End()
		return
	}
	c.Name(v, constant.FutexOp)
}

// futexWakeOp adds the operation and the comparison that FUTEX_WAKE_OP packs into a number: FUTEX_OP.
func (c *Cx) futexWakeOp(v uint64) {
	const opargShift = 8
	part := func(value func(), shift uint64) {
		c.expr("<<")
		value()
		c.Uint(shift)
		c.End()
	}
	named := func(s *constant.Set, n, shift uint64, unknown string) {
		part(func() { c.Name(n, s) }, shift)
		if _, ok := s.Name(n); !ok {
			c.Builder.Note(unknown)
		}
	}
	c.open(v)
	if v>>28&opargShift != 0 {
		part(func() { c.Sym("FUTEX_OP_OPARG_SHIFT", opargShift) }, 28)
	}
	named(constant.FutexWakeOp, v>>28&7, 28, "FUTEX_OP_???")
	part(func() { c.Hex(v >> 12 & 0xfff) }, 12)
	named(constant.FutexWakeCmp, v>>24&0xf, 24, "FUTEX_OP_CMP_???")
	c.Hex(v & 0xfff)
	c.End()
}

// struct futex_waitv {u64 val, uaddr; u32 flags, reserved;}, at most FUTEX_WAITV_MAX of them.
const waiterSize, maxWaiters = 24, 128

func (c *Cx) waiters(addr, n uint64) {
	shown := 0
	c.list(In, addr, n, waiterSize, func(c *Cx, b []byte) {
		if shown++; shown > maxWaiters {
			if shown == maxWaiters+1 {
				c.More()
			}
			return
		}
		f := c.begin(b)
		f.x8("val")
		f.p8("uaddr")
		c.Field("flags")
		c.futex2Flags(f.num(4))
		f.nonzero("__reserved", 4)
		f.end()
	})
}

func aFutex2Flags(c *Cx, i int) { c.futex2Flags(uint64(uint32(c.Arg[i]))) }

func (c *Cx) futex2Flags(v uint64) {
	const sizeMask = 3
	name, _ := constant.Futex2Size.Name(v & sizeMask)
	if v&^sizeMask == 0 {
		c.Sym(name, v)
		return
	}
	c.Begin(event.Node{Kind: event.KindFlags, Num: v})
	c.Sym(name, v&sizeMask)
	c.flagNames(v&^sizeMask, constant.Futex2Flags)
	c.End()
}
