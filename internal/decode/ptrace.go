package decode

import (
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Requests of ptrace(2), include/uapi/linux/ptrace.h and asm/ptrace.h of x86 and arm64.
const (
	ptraceTraceme    = 0
	ptracePeektext   = 1
	ptracePeekdata   = 2
	ptracePeekuser   = 3
	ptracePokeuser   = 6
	ptraceCont       = 7
	ptraceKill       = 8
	ptraceSinglestep = 9
	ptraceGetregs    = 12
	ptraceSetregs    = 13
	ptraceGetfpregs  = 14
	ptraceSetfpregs  = 15
	ptraceAttach     = 16
	ptraceDetach     = 17
	ptraceOldOptions = 21
	ptraceSyscall    = 24
	ptraceSysemu     = 31
	ptraceSysemuStep = 32
	ptraceBlockStep  = 33

	ptraceSetoptions         = 0x4200
	ptraceGeteventmsg        = 0x4201
	ptraceGetsiginfo         = 0x4202
	ptraceSetsiginfo         = 0x4203
	ptraceGetregset          = 0x4204
	ptraceSetregset          = 0x4205
	ptraceSeize              = 0x4206
	ptraceInterrupt          = 0x4207
	ptraceListen             = 0x4208
	ptracePeeksiginfo        = 0x4209
	ptraceGetsigmask         = 0x420a
	ptraceSetsigmask         = 0x420b
	ptraceSeccompGetFilter   = 0x420c
	ptraceSeccompGetMetadata = 0x420d
	ptraceGetSyscallInfo     = 0x420e
	ptraceSetSyscallInfo     = 0x4212

	syscallInfoMax = 136 // struct ptrace_syscall_info of 7.0
	ptraceEventMsg = 4   // what a second siginfo_t would need is not taken: PTRACE_PEEKSIGINFO shows so many
)

var ptraceCalls = []Spec{{
	Name: "ptrace",
	Enter: takes(
		syscalls.Fixed(3, siginfoFetch).If(0, ptraceSetsiginfo),
		syscalls.Fixed(3, 16).If(0, ptraceSetsigmask, ptraceSeccompGetMetadata, ptraceGetregset, ptraceSetregset),
		syscalls.Fixed(2, 16).If(0, ptracePeeksiginfo),
		syscalls.Vec(3, syscalls.Arg(2), 1, syscallInfoMax).If(0, ptraceSetSyscallInfo)),
	Exit: takes(
		syscalls.Fixed(3, 8).If(0, ptracePeektext, ptracePeekdata, ptracePeekuser, ptraceGeteventmsg, ptraceGetsigmask),
		syscalls.Fixed(3, siginfoFetch).If(0, ptraceGetsiginfo),
		syscalls.Fixed(3, 16).If(0, ptraceGetregset, ptraceSetregset, ptraceSeccompGetMetadata),
		syscalls.Vec(3, syscalls.Ret(), siginfoFetch, ptraceEventMsg*siginfoFetch).If(0, ptracePeeksiginfo),
		syscalls.Vec(3, syscalls.Arg(2), 1, syscallInfoMax).If(0, ptraceGetSyscallInfo)),
	Decode: ptrace,
}}

func ptrace(c *Cx) {
	op, addr, data := c.Arg[0], c.Arg[2], c.Arg[3]
	c.Name(op, constant.PtraceRequest)
	if op == ptraceTraceme {
		return
	}
	c.PID(c.Arg[1])
	switch op {
	case ptraceAttach, ptraceInterrupt, ptraceKill, ptraceListen:
		return
	case ptraceGetregset, ptraceSetregset:
		c.Name(uint64(uint32(addr)), constant.ElfNote)
	case ptraceGetsigmask, ptraceSetsigmask, ptraceSeccompGetFilter, ptraceSeccompGetMetadata, ptraceGetSyscallInfo,
		ptraceSetSyscallInfo:
		c.Uint(addr)
	case ptracePeeksiginfo:
		if b, ok := c.Load(In, addr, 16); ok {
			f := c.begin(b)
			f.u8("off")
			f.flags("flags", 4, constant.PeeksiginfoFlags)
			f.u4("nr")
			f.end()
		}
	case ptraceGetregs, ptraceSetregs, ptraceGetfpregs, ptraceSetfpregs:
		// Where the ABI has them, addr means nothing.
		if c.ABI.Name == "arm64" {
			c.Ptr(addr)
		}
	default:
		c.Ptr(addr)
	}
	c.ptraceData(op, addr, data)
}

func (c *Cx) ptraceData(op, addr, data uint64) {
	switch op {
	case ptraceCont, ptraceDetach, ptraceSyscall, ptraceSinglestep, ptraceBlockStep, ptraceSysemu, ptraceSysemuStep:
		c.Signal(data)
		return
	case ptraceSeize, ptraceSetoptions:
		c.Flags(data, constant.PtraceOptions)
		return
	case ptraceOldOptions:
		if c.ABI.Name != "arm64" {
			c.Flags(data, constant.PtraceOptions)
			return
		}
	case ptraceSetsiginfo:
		c.SiginfoAt(In, data)
		return
	case ptraceSetsigmask:
		c.Sigset(In, data, addr)
		return
	case ptraceSetregset:
		c.regset(data)
		return
	case ptraceSeccompGetMetadata:
		c.filterMetadata(data, addr)
		return
	case ptraceSetSyscallInfo:
		c.syscallInfo(In, data, addr)
		return
	}
	switch op {
	case ptracePeekdata, ptracePeektext, ptracePeekuser, ptraceGeteventmsg, ptraceGetsiginfo, ptraceGetsigmask,
		ptracePeeksiginfo, ptraceGetregset, ptraceGetSyscallInfo, ptraceSeccompGetFilter, ptraceGetregs, ptraceGetfpregs:
		if c.Entering() {
			return
		}
	}
	switch op {
	case ptracePeekdata, ptracePeektext, ptracePeekuser:
		c.ref(Out, data, c.ABI.PtrSize, func(c *Cx, b []byte) { c.Ptr(peek(b, 0, len(b))) })
	case ptraceGeteventmsg:
		c.ref(Out, data, c.ABI.PtrSize, uintNumber)
	case ptraceGetregset:
		c.regset(data)
	case ptraceGetsiginfo:
		c.SiginfoAt(Out, data)
	case ptraceGetsigmask:
		c.Sigset(Out, data, addr)
	case ptracePeeksiginfo:
		if c.Failed() {
			c.Ptr(data)
			return
		}
		c.list(Out, data, uint64(c.Ret), siginfoFetch, Siginfo)
	case ptraceGetSyscallInfo:
		c.syscallInfo(Out, data, min(addr, uint64(max(c.Ret, 0))))
	default:
		c.Ptr(data)
	}
}

// regset adds the struct iovec that tells where a register set is, with the length before and after.
func (c *Cx) regset(addr uint64) {
	w := c.ABI.PtrSize
	b, errno := c.Bytes(In, addr, 2*w)
	if b == nil {
		c.Unreadable(addr, errno)
		return
	}
	c.Struct()
	c.Field("iov_base").Ptr(peek(b, 0, w))
	length := peek(b, w, w)
	after := length
	if !c.Entering() {
		if b, _ := c.Bytes(Out, addr, 2*w); b != nil {
			after = peek(b, w, w)
		}
	}
	c.Field("iov_len")
	c.change(length, after, func(v uint64) { c.Uint(v) })
	c.End()
}

// filterMetadata adds struct seccomp_metadata {u64 filter_off, flags;}.
func (c *Cx) filterMetadata(addr, size uint64) {
	if size < 8 {
		c.Ptr(addr)
		return
	}
	b, ok := c.Load(In, addr, 8)
	if !ok {
		return
	}
	c.Struct()
	c.Field("filter_off").Uint(U64(b, 0))
	if size = uint64(max(c.Ret, 0)); !c.Entering() && !c.Failed() && size > 8 {
		if b, _ := c.Bytes(Out, addr, 16); b == nil || size < 16 {
			c.Sym("???", 0)
		} else {
			c.Field("flags")
			c.Flags(U64(b, 8), constant.SeccompFilterFlags)
			if size > 16 {
				c.More()
			}
		}
	}
	c.End()
}

// syscallInfo adds struct ptrace_syscall_info: what is known of size bytes.
func (c *Cx) syscallInfo(m Moment, addr, size uint64) {
	n := min(size, syscallInfoMax)
	b, errno := c.Bytes(m, addr, int(n))
	if n == 0 || b == nil {
		if n == 0 {
			c.Ptr(addr)
		} else {
			c.Unreadable(addr, errno)
		}
		return
	}
	const entry, exit, seccomp = 1, 2, 3
	op := uint64(b[0])
	f := c.begin(b)
	defer f.end()
	f.enum("op", 1, constant.SyscallInfoOp)
	if n <= 1 {
		return
	}
	f.nonzero("reserved", 1)
	f.nonzero("flags", 2)
	if n < 8 {
		return
	}
	arch := peek(b, 4, 4)
	f.enum("arch", 4, constant.AuditArch)
	if n < 16 {
		return
	}
	f.p8("instruction_pointer")
	if n < 24 {
		return
	}
	f.p8("stack_pointer")
	if n < 32 {
		return
	}
	switch op {
	case entry, seccomp:
		name := "entry"
		if op == seccomp {
			name = "seccomp"
		}
		c.Field(name).Struct()
		c.Field("nr")
		if nr := f.num(8); nr>>32 != 0 {
			c.Uint(nr)
		} else {
			c.callName(uint32(nr), arch)
		}
		if n >= 40 {
			f.array("args", 8, int(min(6, (n-32)/8)), hexNumber)
			if op == seccomp && n >= 84 {
				f.u4("ret_data")
			}
		}
		c.End()
	case exit:
		c.Field("exit").Struct()
		rval := f.num(8)
		isError := n >= 33 && b[32] != 0
		c.Field("rval")
		if isError {
			c.negativeErrno(uint32(rval))
		} else {
			c.Int(int64(rval))
		}
		if n >= 33 {
			c.Field("is_error").Uint(uint64(b[32]))
		}
		c.End()
	}
}
