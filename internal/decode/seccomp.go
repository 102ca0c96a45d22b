package decode

import (
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Operations of seccomp(2) (linux/seccomp.h).
const (
	seccompSetModeFilter  = 1
	seccompGetActionAvail = 2
	seccompGetNotifSizes  = 3
)

func seccompFetches(list []syscalls.Fetch) []syscalls.Fetch {
	for i := range list {
		list[i].When = whenArg(0, seccompSetModeFilter)
	}
	return append(list, syscalls.Fixed(2, 4).If(0, seccompGetActionAvail))
}

var seccompCalls = []Spec{{
	Name:    "seccomp",
	Enter:   seccompFetches(SockFprogFetches(2, 0)),
	Enter32: seccompFetches(SockFprogFetches32(2, 0)),
	Exit:    []syscalls.Fetch{syscalls.Fixed(2, 6).If(0, seccompGetNotifSizes)},
	Decode: func(c *Cx) {
		op, flags := uint32(c.Arg[0]), uint64(uint32(c.Arg[1]))
		c.Name(uint64(op), constant.SeccompOps)
		if op == seccompSetModeFilter {
			c.Flags(flags, constant.SeccompFilterFlags)
		} else {
			c.Hex(flags)
		}
		switch op {
		case seccompSetModeFilter:
			c.SeccompFprog(In, c.Arg[2])
		case seccompGetActionAvail:
			c.ref(In, c.Arg[2], 4, func(c *Cx, b []byte) { c.Name(peek(b, 0, 4), constant.SeccompRetAction) })
		case seccompGetNotifSizes:
			if c.Entering() {
				return
			}
			if b, ok := c.Load(Out, c.Arg[2], 6); ok {
				f := c.begin(b)
				f.u2("seccomp_notif")
				f.u2("seccomp_notif_resp")
				f.u2("seccomp_data")
				f.end()
			}
		default:
			c.Ptr(c.Arg[2])
		}
	},
}}
