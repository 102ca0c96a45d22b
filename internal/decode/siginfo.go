package decode

import (
	"github.com/sonde-trace/sonde/internal/constant"
)

// Signal adds a signal number by name.
func (c *Cx) Signal(v uint64) {
	if name := constant.SignalName(int(int32(v))); name != "" {
		c.Sym(name, v)
		return
	}
	c.Int(int64(int32(v)))
}

// Offsets in siginfo_t of 64-bit ABIs, include/uapi/asm-generic/siginfo.h: three numbers, then a union that is aligned as
// a pointer is.
const (
	siErrno = 4
	siCode  = 8
	siUnion = 16
	// SiginfoSize is the part that the kernel fills; the rest of the 128 bytes is padding.
	SiginfoSize = 48
)

// Siginfo adds the siginfo_t in b, of at least SiginfoSize bytes, in the layout of 64-bit ABIs: the members that its code
// and signal give a meaning.
func Siginfo(c *Cx, b []byte) {
	if len(b) < SiginfoSize {
		c.More()
		return
	}
	signo, code := int(int32(U32(b, 0))), int32(U32(b, siCode))
	c.Struct()
	defer c.End()
	c.Field("si_signo")
	c.Signal(uint64(signo))
	c.Field("si_code")
	siginfoCode(c, signo, code)
	if e := U32(b, siErrno); e != 0 {
		c.Field("si_errno")
		if n := constant.ErrnoOf(int(int32(e))); n.Name != "" {
			c.Sym(n.Name, uint64(e))
		} else {
			c.Int(int64(int32(e)))
		}
	}
	u := b[siUnion:]
	pidUID := func() {
		c.Field("si_pid")
		c.PID(uint64(U32(u, 0)))
		c.Field("si_uid").Uint(uint64(U32(u, 4)))
	}
	value := func() {
		c.Field("si_int").Int(I32(u, 8))
		c.Field("si_ptr").Ptr(U64(u, 8))
	}
	switch {
	case code == siKernel || code == siUser || code == siTkill || code == siDethread:
		if signo == sigchld && code == siKernel || U64(u, 0) != 0 || code != siKernel {
			pidUID()
		}
		return
	case code == siTimer:
		c.Field("si_timerid").Hex(uint64(U32(u, 0)))
		c.Field("si_overrun").Int(I32(u, 4))
		value()
		return
	case code < 0:
		pidUID()
		if U64(u, 8) != 0 {
			value()
		}
		return
	}
	switch signo {
	case sigchld:
		pidUID()
		c.Field("si_status")
		if status := U32(u, 8); code == cldExited {
			c.Int(int64(int32(status)))
		} else {
			c.Signal(uint64(status))
		}
		// Both are clock_t, in ticks of sysconf(_SC_CLK_TCK).
		c.Field("si_utime").Int(int64(U64(u, 16)))
		c.Field("si_stime").Int(int64(U64(u, 24)))
	case sigill, sigfpe, sigsegv, sigbus, sigtrap:
		c.Field("si_addr").Ptr(U64(u, 0))
		switch {
		case signo == sigsegv && code == segvBndErr:
			c.Field("si_lower").Ptr(U64(u, 16))
			c.Field("si_upper").Ptr(U64(u, 24))
		case signo == sigsegv && code == segvPkuErr:
			c.Field("si_pkey").Int(I32(u, 16))
		case signo == sigbus && (code == busMceAR || code == busMceAO):
			c.Field("si_addr_lsb").Int(int64(int16(U16(u, 8))))
		}
	case sigio:
		c.Field("si_band").Int(int64(U64(u, 0)))
		c.Field("si_fd")
		c.FD(uint64(U32(u, 8)))
	case sigsys:
		c.Field("si_call_addr").Ptr(U64(u, 0))
		c.Field("si_syscall").Int(I32(u, 8))
		c.Field("si_arch").Hex(uint64(U32(u, 12)))
	default:
		if U64(u, 0) != 0 || U64(u, 8) != 0 {
			pidUID()
			if U64(u, 8) != 0 {
				value()
			}
		}
	}
}

// Numbers that decide which members count: include/uapi/asm-generic/{signal,siginfo}.h.
const (
	sigill, sigtrap, sigbus, sigfpe, sigsegv, sigchld, sigio, sigsys = 4, 5, 7, 8, 11, 17, 29, 31

	siUser, siKernel, siTimer, siTkill, siDethread = 0, 0x80, -2, -6, -7
	cldExited                                      = 1
	segvBndErr, segvPkuErr                         = 3, 4
	busMceAR, busMceAO                             = 4, 5
)

// siginfoCode adds si_code by the names of its signal, or by those common to all.
func siginfoCode(c *Cx, signo int, code int32) {
	v := uint64(uint32(code))
	if name, ok := constant.SigCode.Name(v); ok {
		c.Sym(name, v)
		return
	}
	if s := codesOf(signo); s != nil {
		if name, ok := s.Name(v); ok {
			c.Sym(name, v)
			return
		}
	}
	c.Int(int64(code))
}

func codesOf(signo int) *constant.Set {
	switch signo {
	case sigill:
		return constant.IllCode
	case sigfpe:
		return constant.FpeCode
	case sigsegv:
		return constant.SegvCode
	case sigbus:
		return constant.BusCode
	case sigtrap:
		return constant.TrapCode
	case sigchld:
		return constant.ChildCode
	case sigio:
		return constant.PollCode
	case sigsys:
		return constant.SysCode
	}
	return nil
}
