package decode

import (
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Sizes of the structures of signal calls: struct kernel_sigaction of arch/x86 and arm64 asm/signal.h (handler, flags,
// restorer, mask), struct old_sigaction (handler, mask, flags, restorer), stack_t, and siginfo_t.
const (
	sigactionSize, sigactionSize32 = 32, 20
	oldSigactionSize               = 16
	stackSize, stackSize32         = 24, 12
	siginfoFetch                   = 128
)

var (
	fetchSigset = func(arg, size int) syscalls.Fetch {
		return syscalls.Vec(arg, syscalls.Arg(size), 1, sigsetSize)
	}
	sigaltIn, sigaltIn32 = takes(syscalls.Fixed(0, stackSize)), takes(syscalls.Fixed(0, stackSize32))
)

// signals is sigaction(2) and its kin, kill(2), and waiting for signals.
var signals = []Spec{
	{
		Name:    "rt_sigaction",
		Enter:   takes(syscalls.Fixed(1, sigactionSize)),
		Exit:    takes(syscalls.Fixed(2, sigactionSize)),
		Enter32: takes(syscalls.Fixed(1, sigactionSize32)),
		Exit32:  takes(syscalls.Fixed(2, sigactionSize32)),
		Decode:  args(aSignal, aSigaction(In), out(aSigaction(Out)), aUlong),
	},
	{
		Name:   "sigaction",
		Enter:  takes(syscalls.Fixed(1, oldSigactionSize)),
		Exit:   takes(syscalls.Fixed(2, oldSigactionSize)),
		Decode: args(aSignal, atIn(oldSigactionSize, oldSigaction), atOut(oldSigactionSize, oldSigaction)),
	},
	{
		Name:   "signal",
		Decode: args(aSignal, func(c *Cx, i int) { c.sigHandler(c.Arg[i]) }),
		Ret: retNote(func(c *Cx, v uint64) string {
			name, _ := constant.SaHandler.For(c.ABI.Name).Name(uint64(uint32(v)))
			return name
		}),
	},
	{
		Name:   "rt_sigprocmask",
		Enter:  takes(fetchSigset(1, 3)),
		Exit:   takes(fetchSigset(2, 3)),
		Decode: args(aName(constant.SigHow), aSigset(In, 3), out(aSigset(Out, 3)), aUlong),
	},
	{
		Name:   "sigprocmask",
		Enter:  takes(syscalls.Fixed(1, 4)),
		Exit:   takes(syscalls.Fixed(2, 4)),
		Decode: args(aName(constant.SigHow), aOldSigset(In), out(aOldSigset(Out))),
	},
	{
		Name:   "rt_sigpending",
		Exit:   takes(fetchSigset(0, 1)),
		Decode: args(out(func(c *Cx, i int) { c.sigset(Out, c.Arg[0], c.Arg[1], 1) }), aUlong),
	},
	{Name: "sigpending", Exit: takes(syscalls.Fixed(0, 4)), Decode: args(out(aOldSigset(Out)))},
	{Name: "rt_sigsuspend", Enter: takes(fetchSigset(0, 1)), Decode: args(aSigset(In, 1), aUlong)},
	{Name: "sigsuspend", Decode: func(c *Cx) {
		mask := c.Arg[0]
		if c.Def != nil && len(c.Def.Args) > 0 {
			mask = c.Arg[len(c.Def.Args)-1]
		}
		c.SigsetBits(uint64(uint32(mask)), 4)
	}},
	{Name: "ssetmask",
		Decode: func(c *Cx) { c.SigsetBits(uint64(uint32(c.Arg[0])), 4) },
		Ret:    retNote(func(c *Cx, v uint64) string { return sigsetNote("old mask ", uint64(uint32(v)), 4) })},
	{Name: "sgetmask", Decode: args(),
		Ret: retNote(func(c *Cx, v uint64) string { return sigsetNote("mask ", uint64(uint32(v)), 4) })},
	sigtimedwait("rt_sigtimedwait", false),
	sigtimedwait("rt_sigtimedwait_time64", true),
	{Name: "rt_sigqueueinfo", Enter: takes(syscalls.Fixed(2, siginfoFetch)), Decode: args(aPID, aSignal, aSiginfo(In))},
	{Name: "rt_tgsigqueueinfo", Enter: takes(syscalls.Fixed(3, siginfoFetch)), Decode: args(aPID, aPID, aSignal, aSiginfo(In))},
	{Name: "pidfd_send_signal", Enter: takes(syscalls.Fixed(2, siginfoFetch)),
		Decode: args(aFD, aSignal, aSiginfo(In), aFlags(constant.PidfdSignalFlags))},
	{Name: "kill", Decode: args(aPID, aSignal)},
	{Name: "tkill", Decode: args(aPID, aSignal)},
	{Name: "tgkill", Decode: args(aPID, aPID, aSignal)},
	{
		Name:  "sigaltstack",
		Enter: sigaltIn, Exit: takes(syscalls.Fixed(1, stackSize)),
		Enter32: sigaltIn32, Exit32: takes(syscalls.Fixed(1, stackSize32)),
		Decode: args(aStack(In), out(aStack(Out))),
	},
	{Name: "signalfd", Enter: takes(fetchSigset(1, 2)), RetFD: true, Decode: args(aFD, aSigset(In, 2), aUlong)},
	{Name: "signalfd4", Enter: takes(fetchSigset(1, 2)), RetFD: true,
		Decode: args(aFD, aSigset(In, 2), aUlong, aFlags(constant.SignalfdFlags))},
	{Name: "pause", Decode: args()},
	{Name: "rt_sigreturn", Decode: args()},
	{Name: "sigreturn", Decode: args()},
	{Name: "restart_syscall", Decode: func(c *Cx) { c.Sym("<... resuming interrupted system call ...>", 0) }},
}

func aSigset(m Moment, size int) arg {
	return func(c *Cx, i int) { c.Sigset(m, c.Arg[i], c.Arg[size]) }
}

func aOldSigset(m Moment) arg {
	return func(c *Cx, i int) { c.Sigset(m, c.Arg[i], uint64(c.ABI.PtrSize)) }
}

// sigHandler adds a signal's handler: SIG_DFL, SIG_IGN, SIG_ERR or an address.
func (c *Cx) sigHandler(v uint64) {
	if name, ok := constant.SaHandler.For(c.ABI.Name).Name(v); ok {
		c.Sym(name, v)
		return
	}
	c.Ptr(v)
}

// saRestorer is SA_RESTORER: the structure has a restorer.
const saRestorer = 0x04000000

func aSigaction(m Moment) arg {
	return func(c *Cx, i int) {
		n := sigactionSize
		if c.Ptr32() {
			n = sigactionSize32
		}
		b, ok := c.Load(m, c.Arg[i], n)
		if !ok {
			return
		}
		f := c.begin(b)
		handler, flags, restorer := f.num(c.ABI.PtrSize), f.num(c.ABI.PtrSize), f.num(c.ABI.PtrSize)
		c.Field("sa_handler")
		c.sigHandler(handler)
		c.Field("sa_mask")
		c.SigsetBits(f.num(8), sigsetSize)
		c.sigactionEnd(flags, restorer)
	}
}

func (c *Cx) sigactionEnd(flags, restorer uint64) {
	c.Field("sa_flags")
	c.Flags(flags, constant.SaFlags)
	if flags&saRestorer != 0 {
		c.Field("sa_restorer").Ptr(restorer)
	}
	c.End()
}

func oldSigaction(c *Cx, b []byte) {
	c.Struct()
	c.Field("sa_handler")
	c.sigHandler(uint64(U32(b, 0)))
	c.Field("sa_mask")
	c.SigsetBits(uint64(U32(b, 4)), 4)
	c.sigactionEnd(uint64(U32(b, 8)), uint64(U32(b, 12)))
}

func aStack(m Moment) arg {
	return func(c *Cx, i int) {
		n := stackSize
		if c.Ptr32() {
			n = stackSize32
		}
		b, ok := c.Load(m, c.Arg[i], n)
		if !ok {
			return
		}
		f := c.begin(b)
		f.ptr("ss_sp")
		f.flags("ss_flags", 4, constant.SigaltstackFlags)
		f.skip(c.ABI.PtrSize - 4)
		f.word("ss_size")
		f.end()
	}
}

// aSiginfo shows the siginfo_t that the argument points to.
func aSiginfo(m Moment) arg {
	return func(c *Cx, i int) { c.SiginfoAt(m, c.Arg[i]) }
}

// SiginfoAt adds the siginfo_t at addr.
func (c *Cx) SiginfoAt(m Moment, addr uint64) {
	if b, ok := c.Load(m, addr, siginfoFetch); ok {
		Siginfo(c, b)
	}
}

func sigtimedwait(name string, time64 bool) Spec {
	return Spec{
		Name:  name,
		Enter: takes(fetchSigset(0, 3), syscalls.Fixed(2, 16)),
		Exit:  takes(syscalls.Fixed(1, siginfoFetch)),
		Decode: func(c *Cx) {
			aSigset(In, 3)(c, 0)
			if c.Arg[1] == 0 {
				c.Ptr(0)
			} else if c.Entering() {
				return
			} else {
				c.SiginfoAt(Out, c.Arg[1])
			}
			c.kernelTimespec(In, c.Arg[2], time64)
			c.Uint(c.Arg[3])
		},
		Ret: func(c *Cx) {
			if c.Ret > 0 {
				c.Note = constant.SignalName(int(c.Ret))
			}
			c.Int(c.Ret)
		},
	}
}
