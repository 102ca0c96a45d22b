package decode

import (
	"strconv"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Signal adds a signal number by name.
func (c *Cx) Signal(v uint64) {
	n := int64(int32(v))
	if name := constant.SignalName(int(n)); name != "" {
		c.Add(event.Node{Kind: event.KindSym, Sym: name, Num: uint64(n), Attr: event.AttrDecimal})
		return
	}
	c.Int(n)
}

// SiginfoSize is the part of siginfo_t that the kernel fills in 64-bit ABIs, include/uapi/asm-generic/siginfo.h; the rest
// of the 128 bytes is padding.
const SiginfoSize = 48

// siginfoLayout is where the members of siginfo_t are: three numbers, then a union that is aligned as a pointer is.
type siginfoLayout struct {
	union, word int
}

// Siginfo adds the siginfo_t in b, of at least SiginfoSize bytes, in the layout of the call's ABI: the members that its
// code and signal give a meaning. Signals that the kernel reports have the layout of the machine's own ABI.
func Siginfo(c *Cx, b []byte) {
	if len(b) < SiginfoSize {
		c.More()
		return
	}
	l := siginfoLayout{16, 8}
	if c.Ptr32() {
		l = siginfoLayout{12, 4}
	}
	signo, code := int(int32(U32(b, 0))), int32(U32(b, 8))
	c.Struct()
	if signo != 0 {
		c.Field("si_signo")
		c.Signal(uint64(uint32(signo)))
		c.Field("si_code")
		siginfoCode(c, signo, code)
		if e := U32(b, 4); e != 0 {
			c.Field("si_errno")
			c.errnoName(e)
		}
		c.siginfoUnion(b[l.union:], l.word, signo, code)
	}
	c.End()
}

// errnoName adds a positive error number by name.
func (c *Cx) errnoName(e uint32) {
	if n := constant.ErrnoOf(int(int32(e))); n.Name != "" {
		c.Add(event.Node{Kind: event.KindSym, Sym: n.Name, Num: uint64(e), Attr: event.AttrDecimal})
		return
	}
	c.Uint(uint64(e))
}

// siginfoUnion adds the members in the union u that count.
func (c *Cx) siginfoUnion(u []byte, w, signo int, code int32) {
	ptr := func(off int) uint64 { return peek(u, off, w) }
	source := func() {
		c.Field("si_pid")
		c.PID(uint64(U32(u, 0)))
		c.Field("si_uid")
		c.userID(uint64(U32(u, 4)))
	}
	value := func() {
		c.Field("si_int").Int(I32(u, 8))
		c.Field("si_ptr").Ptr(ptr(8))
	}
	poll := func() {
		c.Field("si_band")
		c.Long(ptr(0))
		c.Field("si_fd")
		c.FD(uint64(U32(u, w)))
	}
	if code <= 0 {
		switch code {
		case siUser, siTkill:
			source()
		case siTimer:
			c.Field("si_timerid").Hex(uint64(U32(u, 0)))
			c.Field("si_overrun").Int(I32(u, 4))
			value()
		case siSigio:
			poll()
		default:
			source()
			if ptr(8) != 0 {
				value()
			}
		}
		return
	}
	switch signo {
	case sigchld:
		source()
		c.Field("si_status")
		if status := U32(u, 8); code == cldExited {
			c.Int(int64(int32(status)))
		} else {
			c.Signal(uint64(status))
		}
		times := (12 + w - 1) / w * w
		c.Field("si_utime")
		c.clockTicks(ptr(times))
		c.Field("si_stime")
		c.clockTicks(ptr(times + w))
	case sigill, sigfpe, sigsegv, sigbus, sigtrap:
		c.Field("si_addr").Ptr(ptr(0))
		switch {
		case signo == sigsegv && code == segvBndErr:
			c.Field("si_lower").Ptr(ptr(2 * w))
			c.Field("si_upper").Ptr(ptr(3 * w))
		case signo == sigsegv && code == segvPkuErr:
			c.Field("si_pkey").Uint(uint64(U32(u, 2*w)))
		case signo == sigbus && (code == busMceAR || code == busMceAO):
			c.Field("si_addr_lsb").Hex(uint64(U16(u, w)))
		case signo == sigtrap && code == trapPerf:
			c.Field("si_perf_data").Hex(ptr(w))
			c.Field("si_perf_type")
			c.Name(uint64(U32(u, 2*w)), constant.PerfTypeID)
			c.Field("si_perf_flags")
			c.Flags(uint64(U32(u, 2*w+4)), constant.TrapPerfFlags)
		}
	case sigio:
		if code >= pollIn && code <= pollHup {
			poll()
		}
	case sigsys:
		c.Field("si_call_addr").Ptr(ptr(0))
		c.Field("si_syscall")
		arch := uint64(U32(u, w+4))
		c.callName(U32(u, w), arch)
		c.Field("si_arch")
		c.Name(arch, constant.AuditArch)
	default:
		if U32(u, 0) != 0 || U32(u, 4) != 0 {
			source()
		}
		if ptr(8) != 0 {
			value()
		}
	}
}

// callName adds a system call by the number that it has in an audit architecture.
func (c *Cx) callName(nr uint32, arch uint64) {
	var abi *syscalls.ABI
	switch arch { // include/uapi/linux/audit.h
	case 0xc000003e:
		abi = syscalls.AMD64
		if nr&0x40000000 != 0 {
			abi = syscalls.X32
		}
	case 0x40000003:
		abi = syscalls.I386
	case 0xc00000b7:
		abi = syscalls.ARM64
	case 0x40000028:
		abi = syscalls.ARM
	default:
		c.Uint(uint64(nr))
		return
	}
	if d := abi.Lookup(nr &^ 0x40000000); d != nil {
		c.Add(event.Node{Kind: event.KindSym, Attr: event.AttrDecimal, Num: uint64(nr), Data: c.Keep([]byte("__NR_" + d.Name))})
		return
	}
	c.Uint(uint64(nr))
}

// clockTicks adds a clock_t. The kernel counts 100 a second for user space (USER_HZ) on all ABIs here.
func (c *Cx) clockTicks(v uint64) {
	c.Uint(v)
	if v != 0 {
		c.noteSeconds(int64(v), 100, 2)
	}
}

// Numbers that decide which members count: include/uapi/asm-generic/{signal,siginfo}.h.
const (
	sigill, sigtrap, sigbus, sigfpe, sigsegv, sigchld, sigio, sigprof, sigsys = 4, 5, 7, 8, 11, 17, 29, 27, 31

	siUser, siTimer, siSigio, siTkill = 0, -2, -5, -6
	cldExited                         = 1
	segvBndErr, segvPkuErr            = 3, 4
	busMceAR, busMceAO                = 4, 5
	trapPerf                          = 6
	pollIn, pollHup                   = 1, 6
)

// siginfoCode adds si_code by the names of its signal, or by those common to all.
func siginfoCode(c *Cx, signo int, code int32) {
	v := uint64(uint32(code))
	name, ok := constant.SigCode.Name(v)
	if !ok {
		if s := codesOf(signo); s != nil {
			name, ok = s.Name(v)
		}
	}
	if ok {
		c.Sym(name, v)
		return
	}
	c.Hex(v)
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

// noteSeconds explains a number of ticks, hz a second, with so many digits of a fraction.
func (c *Cx) noteSeconds(v, hz int64, digits int) {
	var buf [48]byte
	b := buf[:0]
	if v < 0 {
		b, v = append(b, '-'), -v
	}
	b = append(strconv.AppendUint(b, uint64(v)/uint64(hz), 10), '.')
	frac := strconv.FormatUint(uint64(v)%uint64(hz), 10)
	for i := len(frac); i < digits; i++ {
		b = append(b, '0')
	}
	b = append(append(b, frac...), " s"...)
	c.Add(event.Node{Kind: event.KindNote, Attr: event.AttrVerbose, Data: c.Keep(b)})
}
