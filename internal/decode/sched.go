package decode

import (
	"strconv"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// scheduling is limits, priorities and the scheduler.
var scheduling = []Spec{
	{Name: "getrlimit", Exit: takes(syscalls.Fixed(1, 16)), Exit32: takes(syscalls.Fixed(1, 8)),
		Decode: args(aName(constant.RlimitResource), out(aRlimit(Out)))},
	{Name: "ugetrlimit", Exit: takes(syscalls.Fixed(1, 16)), Exit32: takes(syscalls.Fixed(1, 8)),
		Decode: args(aName(constant.RlimitResource), out(aRlimit(Out)))},
	{Name: "setrlimit", Enter: takes(syscalls.Fixed(1, 16)), Enter32: takes(syscalls.Fixed(1, 8)),
		Decode: args(aName(constant.RlimitResource), aRlimit(In))},
	{Name: "prlimit64", Enter: takes(syscalls.Fixed(2, 16)), Exit: takes(syscalls.Fixed(3, 16)),
		Decode: args(aPID, aName(constant.RlimitResource), atIn(16, rlimit), atOut(16, rlimit))},
	{Name: "getrusage", Exit: takes(syscalls.Fixed(1, rusageSize)), Exit32: takes(syscalls.Fixed(1, rusageSize32)),
		Decode: args(aName(constant.RusageWho), out(func(c *Cx, i int) { c.rusage(c.Arg[i]) }))},
	{Name: "getpriority", Decode: args(aName(constant.PriorityWhich), aPriorityWho)},
	{Name: "setpriority", Decode: args(aName(constant.PriorityWhich), aPriorityWho, aInt)},
	{Name: "nice", Decode: args(aInt)},
	{Name: "ioprio_get", Decode: args(aName(constant.IoprioWho), aIoprioWho),
		Ret: func(c *Cx) {
			c.Note = ioprioText(uint32(c.Ret))
			c.Int(c.Ret)
		}},
	{Name: "ioprio_set", Decode: args(aName(constant.IoprioWho), aIoprioWho, aIoprio)},

	{Name: "sched_yield", Decode: args()},
	{Name: "sched_getscheduler", Decode: args(aPID),
		Ret: retNote(func(c *Cx, v uint64) string { return policyText(v) })},
	{Name: "sched_setscheduler", Enter: takes(syscalls.Fixed(2, 4)), Decode: args(aPID, aPolicy, atIn(4, schedParam))},
	{Name: "sched_getparam", Exit: takes(syscalls.Fixed(1, 4)), Decode: args(aPID, atOut(4, schedParam))},
	{Name: "sched_setparam", Enter: takes(syscalls.Fixed(1, 4)), Decode: args(aPID, atIn(4, schedParam))},
	{Name: "sched_get_priority_min", Decode: args(aName(constant.SchedPolicy))},
	{Name: "sched_get_priority_max", Decode: args(aName(constant.SchedPolicy))},
	rrInterval("sched_rr_get_interval", false), rrInterval("sched_rr_get_interval_time64", true),
	{Name: "sched_getattr", Exit: takes(syscalls.Vec(1, syscalls.Arg(2), 1, schedAttrVer1)),
		Decode: args(aPID, out(aSchedGetattr), aUint, aFlags(constant.SchedGetattrFlags))},
	{Name: "sched_setattr", Enter: takes(syscalls.Fixed(1, 4), schedAttrFetch), Exit: takes(syscalls.Fixed(1, 4)),
		Decode: schedSetattr},
	{Name: "sched_setaffinity", Enter: takes(syscalls.Vec(2, syscalls.Arg(1), 1, maxCPUMask)),
		Decode: args(aPID, aUint, func(c *Cx, i int) { c.cpuMask(In, c.Arg[i], uint64(uint32(c.Arg[1]))) })},
	{Name: "sched_getaffinity", Exit: takes(syscalls.Vec(2, syscalls.Ret(), 1, maxCPUMask)),
		Decode: args(aPID, aUint, out(func(c *Cx, i int) { c.cpuMask(Out, c.Arg[i], uint64(uint32(c.Ret))) }))},
}

func aRlimit(m Moment) arg {
	return func(c *Cx, i int) {
		n := 16
		if c.Ptr32() && c.ABI.Name != "x32" {
			n = 8
		}
		if b, ok := c.Load(m, c.Arg[i], n); ok {
			rlimit(c, b)
		}
	}
}

// rlimit adds struct rlimit64, or the 32-bit struct rlimit.
func rlimit(c *Cx, b []byte) {
	w := len(b) / 2
	c.Struct()
	c.Field("rlim_cur")
	c.limitValue(peek(b, 0, w), w)
	c.Field("rlim_max")
	c.limitValue(peek(b, w, w), w)
	c.End()
}

func (c *Cx) limitValue(v uint64, width int) {
	switch {
	case width == 8 && v == 1<<64-1:
		c.Add(event.Node{Kind: event.KindSym, Sym: "RLIM64_INFINITY", Num: v, Attr: event.AttrDecimal})
	case width == 4 && v == 1<<32-1:
		c.Add(event.Node{Kind: event.KindSym, Sym: "RLIM_INFINITY", Num: v, Attr: event.AttrDecimal})
	case v > 1024 && v%1024 == 0:
		var buf [32]byte
		b := append(strconv.AppendUint(buf[:0], v/1024, 10), "*1024"...)
		c.Add(event.Node{Kind: event.KindSym, Data: c.Keep(b), Num: v, Attr: event.AttrDecimal})
	default:
		c.Uint(v)
	}
}

func aPriorityWho(c *Cx, i int) {
	if w := uint32(c.Arg[0]); w == 0 || w == 1 { // PRIO_PROCESS, PRIO_PGRP
		c.PID(c.Arg[i])
		return
	}
	c.Int(int64(int32(c.Arg[i])))
}

func aIoprioWho(c *Cx, i int) {
	if w := uint32(c.Arg[0]); w == 1 || w == 2 { // IOPRIO_WHO_PROCESS, IOPRIO_WHO_PGRP
		c.PID(c.Arg[i])
		return
	}
	c.Int(int64(int32(c.Arg[i])))
}

// ioprioText is an I/O priority as IOPRIO_PRIO_VALUE makes it, include/uapi/linux/ioprio.h.
func ioprioText(v uint32) string {
	const shift = 13
	var class []byte
	if name, ok := constant.IoprioClass.Name(uint64(v >> shift)); ok {
		class = []byte(name)
	} else {
		class = append(appendHex(nil, uint64(v>>shift)), " /* IOPRIO_CLASS_??? */"...)
	}
	return "IOPRIO_PRIO_VALUE(" + string(class) + ", " + strconv.Itoa(int(v&(1<<shift-1))) + ")"
}

func aIoprio(c *Cx, i int) {
	v := uint32(c.Arg[i])
	c.Add(event.Node{Kind: event.KindSym, Attr: event.AttrDecimal, Num: uint64(int64(int32(v))), Data: c.Keep([]byte(ioprioText(v)))})
}

// schedResetOnFork is a bit beside the policy, SCHED_RESET_ON_FORK.
const schedResetOnFork = 0x40000000

func policyText(v uint64) string {
	name, ok := constant.SchedPolicy.Name(v &^ schedResetOnFork)
	if v&schedResetOnFork == 0 {
		return name
	}
	if !ok {
		name = string(appendHex(nil, v&^schedResetOnFork))
	}
	return "SCHED_RESET_ON_FORK|" + name
}

func aPolicy(c *Cx, i int) {
	v := uint64(uint32(c.Arg[i]))
	if v&schedResetOnFork == 0 || int32(v) < 0 {
		c.Name(v, constant.SchedPolicy)
		return
	}
	c.open(v)
	c.Sym("SCHED_RESET_ON_FORK", schedResetOnFork)
	if name, ok := constant.SchedPolicy.Name(v &^ schedResetOnFork); ok {
		c.Sym(name, v&^schedResetOnFork)
	} else {
		c.Hex(v &^ schedResetOnFork)
	}
	c.End()
}

func schedParam(c *Cx, b []byte) {
	c.Struct()
	c.Field("sched_priority").Int(I32(b, 0))
	c.End()
}

func rrInterval(name string, time64 bool) Spec {
	return Spec{
		Name: name, Exit: takes(syscalls.Fixed(1, 16)),
		Decode: args(aPID, out(func(c *Cx, i int) {
			if c.Failed() {
				c.Ptr(c.Arg[i])
				return
			}
			c.kernelTimespec(Out, c.Arg[i], time64)
		})),
	}
}

// struct sched_attr, include/uapi/linux/sched/types.h.
const schedAttrVer0, schedAttrVer1 = 48, 56

// schedAttrFetch takes the structure by the size that it gives itself; a size of zero stands for the first version.
var schedAttrFetch = syscalls.Fetch{Kind: syscalls.FetchBytes, Base: syscalls.Arg(1),
	Len: syscalls.Length{Number: syscalls.Const(schedAttrVer1), Max: schedAttrVer1}}

func aSchedGetattr(c *Cx, i int) {
	usize := uint32(c.Arg[2])
	if usize == 0 {
		c.Ptr(c.Arg[i])
		return
	}
	b, ok := c.Load(Out, c.Arg[i], int(min(usize, schedAttrVer1)))
	if !ok {
		return
	}
	size := uint32(peek(b, 0, 4))
	c.schedAttr(b, size, size, false)
}

// schedAttr adds the structure of which size bytes are known; whole is the size that it claims.
func (c *Cx) schedAttr(b []byte, size, whole uint32, set bool) {
	f := c.begin(b)
	f.u4("size")
	if size >= schedAttrVer0 {
		const keepPolicy, keepParams = 0x08, 0x10
		policy, flags := f.num(4), f.num(8)
		if !set || int32(policy) < 0 || flags&(keepPolicy|keepParams) == 0 {
			c.Field("sched_policy")
			c.Name(policy, constant.SchedPolicy)
		}
		c.Field("sched_flags")
		c.Flags(flags, constant.SchedFlags)
		if !set || flags&keepParams == 0 {
			f.i4("sched_nice")
			f.u4("sched_priority")
			f.u8("sched_runtime")
			f.u8("sched_deadline")
			f.u8("sched_period")
		} else {
			f.skip(32)
		}
		if size >= schedAttrVer1 {
			f.u4("sched_util_min")
			f.u4("sched_util_max")
		}
	}
	if whole > size || size > schedAttrVer1 {
		c.More()
	}
	c.End()
}

func schedSetattr(c *Cx) {
	aPID(c, 0)
	addr := c.Arg[1]
	const e2big = 7
	change := !c.Entering() && c.Errno() == e2big
	var after []byte
	if change {
		if after, _ = c.Bytes(Out, addr, 4); after == nil {
			change = false
		}
	}
	if change {
		c.Begin(event.Node{Kind: event.KindChange})
	}
	c.schedSetattrIn(addr)
	if change {
		c.Struct()
		c.Field("size").Uint(uint64(U32(after, 0)))
		c.End()
		c.End()
	}
	if !c.Entering() {
		c.Hex(uint64(uint32(c.Arg[2])))
	}
}

func (c *Cx) schedSetattrIn(addr uint64) {
	b, ok := c.Load(In, addr, 4)
	if !ok {
		return
	}
	usize := U32(b, 0)
	if usize == 0 {
		usize = schedAttrVer0
	}
	size := min(usize, schedAttrVer1)
	if size >= schedAttrVer0 {
		if b, ok = c.Load(In, addr, int(size)); !ok {
			return
		}
	}
	c.schedAttr(b, size, usize, true)
}

// maxCPUMask is how much of an affinity mask is taken: 8192 CPUs, the most that a kernel is built for.
const maxCPUMask = 1024

// cpuMask adds the CPUs of an affinity mask of size bytes: [0 1].
func (c *Cx) cpuMask(m Moment, addr, size uint64) {
	if addr == 0 || m == Out && c.Failed() {
		c.Ptr(addr)
		return
	}
	if size == 0 {
		c.Array()
		c.End()
		return
	}
	want := min(size, cpusetSize)
	b, errno := c.Bytes(m, addr, int(want))
	if b == nil {
		c.Unreadable(addr, errno)
		return
	}
	c.Begin(event.Node{Kind: event.KindSet})
	for i := range 8 * len(b) {
		if b[i/8]>>(i%8)&1 != 0 {
			c.Int(int64(i))
		}
	}
	if want < size {
		c.More()
	}
	c.End()
}

// cpusetSize is the part of a mask that is shown.
const cpusetSize = 128
