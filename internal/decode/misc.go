package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Sizes: struct new_utsname (include/uapi/linux/utsname.h) is 6 texts of 65 bytes, old_utsname 5, oldold_utsname 5 of 9;
// struct sysinfo (include/uapi/linux/sysinfo.h).
const (
	utsField                     = 65
	utsSize                      = 6 * utsField
	sysinfoSize, sysinfoSize32   = 112, 64
	rseqMin, rseqSize, rseqCs    = 32, 36, 32
	kcmpFile, kcmpEpollTfd       = 0, 7
	hostNameMax                  = 64 // __NEW_UTS_LEN
	rebootRestart2               = 0xa1b2c3d4
	syslogRead, syslogReadClear  = 2, 4
	syslogConsoleLevel           = 8
	userDescPtr, userDescCountAt = 1, 2
)

// misc is the calls about the machine and the task that belong to no larger family.
var misc = []Spec{
	{Name: "uname", Exit: takes(syscalls.Fixed(0, utsSize)), Decode: args(atOut(utsSize, utsname))},
	{Name: "olduname", Decode: args(out(aPtr))},
	{Name: "oldolduname", Decode: args(out(aPtr))},
	{Name: "sysinfo", Exit: takes(syscalls.Fixed(0, sysinfoSize)), Exit32: takes(syscalls.Fixed(0, sysinfoSize32)),
		Decode: args(out(sysinfo))},
	{Name: "getcpu", Exit: takes(syscalls.Fixed(0, 4), syscalls.Fixed(1, 4)),
		Decode: args(refOut(4, uintNumber), refOut(4, uintNumber), aPtr)},
	{Name: "getrandom", Exit: takes(syscalls.Buf(0, syscalls.Ret())),
		Decode: args(out(func(c *Cx, i int) {
			at := len(c.Nodes)
			c.Buffer(Out, c.Arg[i], c.Ret)
			if c.Nodes[at].Kind == event.KindBytes {
				c.Nodes[at].Attr |= event.AttrHex
			}
		}), aUlong, aFlags(constant.GetrandomFlags))},
	{Name: "personality", Decode: args(aPersonality),
		Ret: retNote(func(c *Cx, v uint64) string { return personalityText(uint32(v)) })},
	{Name: "set_robust_list", Decode: args(aPtr, aUlong)},
	{Name: "get_robust_list", Exit: takes(syscalls.Fixed(1, 8), syscalls.Fixed(2, 8)),
		Exit32: takes(syscalls.Fixed(1, 4), syscalls.Fixed(2, 4)),
		Decode: args(aPID, out(func(c *Cx, i int) {
			c.ref(Out, c.Arg[i], c.ABI.PtrSize, func(c *Cx, b []byte) { c.Ptr(peek(b, 0, len(b))) })
		}), func(c *Cx, i int) { c.ref(Out, c.Arg[i], c.ABI.PtrSize, uintNumber) })},
	{Name: "rseq",
		Enter: takes(syscalls.Vec(0, syscalls.Arg(1), 1, rseqSize), syscalls.Fetch{Kind: syscalls.FetchBytes,
			Base: syscalls.Mem(0, 8, 8), Len: syscalls.Length{Number: syscalls.Const(rseqCs), Max: rseqCs}}),
		Decode: args(aRseq, aUint, aFlags(constant.RseqFlags), aHex32)},
	{Name: "membarrier",
		Decode: func(c *Cx) {
			args(aName(constant.MembarrierCmd), aFlags(constant.MembarrierFlags))(c)
			if c.Arg[1]&1 != 0 { // MEMBARRIER_CMD_FLAG_CPU
				aInt(c, 2)
			}
		},
		Ret: func(c *Cx) {
			if uint32(c.Arg[0]) == 0 && c.Ret != 0 { // MEMBARRIER_CMD_QUERY
				c.Note = flagsText(c.ABI.Name, uint64(c.Ret), constant.MembarrierCmd)
				retHex(c)
				return
			}
			c.Int(c.Ret)
		}},
	{Name: "kcmp", Decode: kcmp, Enter: takes(syscalls.Fixed(4, 12).If(2, kcmpEpollTfd),
		descriptorIf(syscalls.Arg(3), 2, kcmpFile, kcmpEpollTfd), descriptorIf(syscalls.Arg(4), 2, kcmpFile))},
	{Name: "sethostname", Enter: takes(syscalls.Vec(0, syscalls.Arg(1), 1, hostNameMax)), Decode: args(aHostName, aUint)},
	{Name: "setdomainname", Enter: takes(syscalls.Vec(0, syscalls.Arg(1), 1, hostNameMax)), Decode: args(aHostName, aUint)},
	{Name: "reboot",
		Enter: takes(syscalls.Fetch{Kind: syscalls.FetchString, Base: syscalls.Arg(3), Len: syscalls.Length{Max: 256}}.If(2, rebootRestart2)),
		Decode: func(c *Cx) {
			args(aName(constant.RebootMagic1), aName(constant.RebootMagic2), aName(constant.RebootCmd))(c)
			if uint32(c.Arg[2]) == rebootRestart2 {
				c.rebootText(c.Arg[3])
			}
		}},
	{Name: "syslog", Exit: takes(syscalls.Buf(1, syscalls.Ret()).If(0, 2, 3, 4)), Decode: syslog},
	{Name: "acct", Enter: takes(syscalls.Path(0)), Decode: args(aPath)},
	{Name: "vhangup", Decode: args()},
	{Name: "modify_ldt", Enter: takes(syscalls.Fixed(1, userDescSize)),
		Decode: args(aInt, func(c *Cx, i int) {
			if c.Arg[userDescCountAt] != userDescSize {
				c.Ptr(c.Arg[userDescPtr])
				return
			}
			if b, ok := c.Load(In, c.Arg[i], userDescSize); ok {
				c.userDesc(b)
			}
		}, aUlong)},
	{Name: "set_thread_area", Enter: takes(syscalls.Fixed(0, userDescSize)), Exit: takes(syscalls.Fixed(0, userDescSize)),
		Decode: args(atIn(userDescSize, (*Cx).userDesc)),
		Ret: func(c *Cx) {
			if b, _ := c.Bytes(Out, c.Arg[0], userDescSize); b != nil {
				c.Note = "entry_number=" + decimal(uint64(U32(b, 0)))
			}
			c.Int(c.Ret)
		}},
	{Name: "get_thread_area", Enter: takes(syscalls.Fixed(0, userDescSize)), Exit: takes(syscalls.Fixed(0, userDescSize)),
		Decode: getThreadArea},
}

func utsname(c *Cx, b []byte) {
	f := c.begin(b)
	f.text("sysname", utsField)
	f.text("nodename", utsField)
	if c.Opt.Abbrev {
		c.More()
	} else {
		f.text("release", utsField)
		f.text("version", utsField)
		f.text("machine", utsField)
		f.text("domainname", utsField)
	}
	f.end()
}

func sysinfo(c *Cx, i int) {
	n := sysinfoSize
	if c.Ptr32() {
		n = sysinfoSize32
	}
	b, ok := c.Load(Out, c.Arg[i], n)
	if !ok {
		return
	}
	f := c.begin(b)
	f.word("uptime")
	f.array("loads", c.ABI.PtrSize, 3, uintNumber)
	for _, name := range [6]string{"totalram", "freeram", "sharedram", "bufferram", "totalswap", "freeswap"} {
		f.word(name)
	}
	f.u2("procs")
	f.skip(c.ABI.PtrSize - 2)
	f.word("totalhigh")
	f.word("freehigh")
	f.u4("mem_unit")
	f.end()
}

// personalityMask is PER_MASK: the type; the rest are flags.
const personalityMask = 0xff

func aPersonality(c *Cx, i int) {
	v := uint64(uint32(c.Arg[i]))
	if v == 0xffffffff {
		c.Hex(v)
		return
	}
	flags := v &^ personalityMask
	if flags == 0 {
		c.Name(v, constant.Personality)
		return
	}
	c.expr("|")
	c.Name(v&personalityMask, constant.Personality)
	c.Flags(flags, constant.PersonalityFlags)
	c.End()
}

func personalityText(v uint32) string {
	name, ok := constant.Personality.Name(uint64(v & personalityMask))
	if !ok {
		name = string(appendHex(nil, uint64(v&personalityMask))) + " /* PER_??? */"
	}
	if flags := uint64(v &^ personalityMask); flags != 0 {
		name += "|" + flagsText("amd64", flags, constant.PersonalityFlags)
	}
	return name
}

// aRseq adds a struct rseq, include/uapi/linux/rseq.h, and the critical section that it points to.
func aRseq(c *Cx, i int) {
	addr, size := c.Arg[0], uint64(uint32(c.Arg[1]))
	if size < rseqMin || addr%rseqMin != 0 {
		c.Ptr(addr)
		return
	}
	b, ok := c.Load(In, addr, int(min(size, rseqSize)))
	if !ok {
		return
	}
	f := c.begin(b)
	c.Field("cpu_id_start")
	c.rseqCPU(uint32(f.num(4)))
	c.Field("cpu_id")
	c.rseqCPU(uint32(f.num(4)))
	c.Field("rseq_cs")
	c.rseqSection(f.num(8))
	f.flags("flags", 4, constant.RseqCsFlags)
	f.u4("node_id")
	f.u4("mm_cid")
	c.Field("slice_ctrl").Struct()
	f.u1("request")
	f.u1("granted")
	f.x2("__reserved")
	c.End()
	f.x1("__reserved")
	f.end()
}

func (c *Cx) rseqCPU(v uint32) {
	switch int32(v) {
	case -1:
		c.Add(event.Node{Kind: event.KindSym, Sym: "RSEQ_CPU_ID_UNINITIALIZED", Num: 1<<64 - 1, Attr: event.AttrDecimal})
	case -2:
		c.Add(event.Node{Kind: event.KindSym, Sym: "RSEQ_CPU_ID_REGISTRATION_FAILED", Num: 1<<64 - 2, Attr: event.AttrDecimal})
	default:
		c.Uint(uint64(v))
	}
}

func (c *Cx) rseqSection(raw uint64) {
	addr := raw
	if c.Ptr32() {
		addr = uint64(uint32(raw))
	}
	b, _ := c.Bytes(In, addr, rseqCs)
	if addr == 0 || b == nil {
		c.Ptr(raw)
		return
	}
	f := c.begin(b)
	f.u4("version")
	f.flags("flags", 4, constant.RseqCsFlags)
	f.x8("start_ip")
	f.x8("post_commit_offset")
	f.x8("abort_ip")
	f.end()
	c.Add(event.Node{Kind: event.KindNote, Num: addr})
}

// fdOf adds a descriptor of a process; what it refers to is known when that is the caller.
func (c *Cx) fdOf(pid, fd uint64) {
	if id := uint32(pid); id == c.Pid || id == c.Tid {
		c.FD(fd)
		return
	}
	c.otherFD(fd)
}

func kcmp(c *Cx) {
	aPID(c, 0)
	aPID(c, 1)
	aName(constant.KcmpType)(c, 2)
	switch uint32(c.Arg[2]) {
	case kcmpFile:
		c.fdOf(c.Arg[0], c.Arg[3])
		c.fdOf(c.Arg[1], c.Arg[4])
	case kcmpEpollTfd:
		c.fdOf(c.Arg[0], c.Arg[3])
		b, ok := c.Load(In, c.Arg[4], 12)
		if !ok {
			return
		}
		c.Struct()
		c.Field("efd").Int(I32(b, 0))
		c.Field("tfd").Int(I32(b, 4))
		c.Field("toff").Uint(uint64(U32(b, 8)))
		c.End()
	case 1, 2, 3, 4, 5, 6: // these have no further arguments
	default:
		c.Hex(c.Arg[3])
		c.Hex(c.Arg[4])
	}
}

// otherFD adds a descriptor of another process: what it refers to here means nothing.
func (c *Cx) otherFD(v uint64) { c.Int(int64(int32(v))) }

func aHostName(c *Cx, i int) {
	n := uint64(uint32(c.Arg[1]))
	if n > hostNameMax {
		c.Ptr(c.Arg[i])
		return
	}
	c.Buffer(In, c.Arg[i], int64(n))
}

func syslog(c *Cx) {
	op := uint64(uint32(c.Arg[0]))
	if name, ok := constant.SyslogAction.Name(op); ok {
		c.Add(event.Node{Kind: event.KindSym, Sym: name, Num: op, Attr: event.AttrVerbose | event.AttrDecimal})
	} else {
		c.Add(event.Node{Kind: event.KindInt, Num: uint64(int64(int32(op))), Sym: constant.SyslogAction.Prefix})
	}
	level := uint64(uint32(c.Arg[2]))
	switch {
	case op >= syslogRead && op <= syslogReadClear:
		if c.Entering() {
			return
		}
		if c.Failed() {
			c.Ptr(c.Arg[1])
		} else {
			c.Buffer(Out, c.Arg[1], c.Ret)
		}
		aInt(c, 2)
	case op == syslogConsoleLevel:
		c.Ptr(c.Arg[1])
		if name, ok := constant.SyslogLevel.Name(level); ok {
			c.Add(event.Node{Kind: event.KindSym, Sym: name, Num: level, Attr: event.AttrVerbose | event.AttrDecimal})
		} else {
			if level == 8 { // one above the last, so that all are shown
				c.Add(event.Node{Kind: event.KindSym, Sym: "LOGLEVEL_DEBUG+1", Num: level, Attr: event.AttrVerbose | event.AttrDecimal})
				return
			}
			c.Add(event.Node{Kind: event.KindInt, Num: uint64(int64(int32(level))), Sym: constant.SyslogLevel.Prefix})
		}
	default:
		if _, ok := constant.SyslogAction.Name(op); ok {
			return
		}
		c.Ptr(c.Arg[1])
		aInt(c, 2)
	}
}

// getThreadArea shows the number that is asked for, and after the return all that it has.
func getThreadArea(c *Cx) {
	before, ok := c.Load(In, c.Arg[0], 4)
	if !ok {
		return
	}
	old := uint64(U32(before, 0))
	c.Struct()
	c.Field("entry_number")
	if c.Entering() {
		c.userID(old)
		c.End()
		return
	}
	b, _ := c.Bytes(Out, c.Arg[0], userDescSize)
	if c.Failed() || b == nil {
		c.userID(old)
		c.More()
	} else {
		c.change(old, uint64(U32(b, 0)), c.userID)
		c.userDescRest(b)
	}
	c.End()
}

// rebootText adds the command that is given to what comes after: the kernel reads at most 255 bytes of it.
func (c *Cx) rebootText(addr uint64) {
	const most = 255
	if b, _, _ := c.Mem(In, addr, most); len(b) == most && c.limit() >= most {
		c.Add(event.Node{Kind: event.KindString, Data: b, Attr: event.AttrTruncated})
		return
	}
	c.Text(In, addr)
}
