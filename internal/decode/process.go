package decode

import (
	"strconv"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// envPointers is how much of an environment's pointers is taken to count its variables.
const envPointers = 4096

func stringsOf(arg int) syscalls.Fetch {
	return syscalls.Fetch{Kind: syscalls.FetchStrings, Base: syscalls.Arg(arg)}
}

func execFetches(first int) []syscalls.Fetch {
	return takes(syscalls.Path(first), stringsOf(first+1), syscalls.Fixed(first+2, envPointers), stringsOf(first+2))
}

// processes is the life of a process: execve(2), fork(2), clone(2), exit(2), wait(2).
var processes = []Spec{
	{Name: "execve", Enter: execFetches(0), Decode: args(aPath, aArgv, aEnvp)},
	{Name: "execveat", Enter: execFetches(1), Decode: args(aDirFD, aPath, aArgv, aEnvp, aFlags(constant.ExecveatFlags))},
	{Name: "fork", Decode: args(), Ret: retPID},
	{Name: "vfork", Decode: args(), Ret: retPID},
	{
		Name:  "clone",
		Enter: takes(syscalls.Fixed(3, userDescSize)),
		Exit:  takes(syscalls.Fixed(2, 4)), Decode: clone, Ret: retPID,
	},
	{
		Name: "clone3",
		Enter: takes(
			syscalls.Vec(0, syscalls.Arg(1), 1, 4096),
			syscalls.Fetch{Kind: syscalls.FetchBytes, Base: syscalls.Mem(0, 64, 8),
				Len: syscalls.Length{Number: syscalls.Mem(0, 72, 8), Elem: 4, Max: 4 * maxSetTid}}),
		Exit: takes(
			syscalls.Vec(0, syscalls.Arg(1), 1, 4096),
			syscalls.Fetch{Kind: syscalls.FetchBytes, Base: syscalls.Mem(0, 8, 8), Len: syscalls.Length{Number: syscalls.Const(4), Max: 4}},
			syscalls.Fetch{Kind: syscalls.FetchBytes, Base: syscalls.Mem(0, 24, 8), Len: syscalls.Length{Number: syscalls.Const(4), Max: 4}}),
		Decode: clone3, Ret: retPID,
	},
	{Name: "exit", NoReturn: true, Decode: args(aInt)},
	{Name: "exit_group", NoReturn: true, Decode: args(aInt)},
	{
		Name:   "wait4",
		Exit:   takes(syscalls.Fixed(1, 4), syscalls.Fixed(3, rusageSize)),
		Exit32: takes(syscalls.Fixed(1, 4), syscalls.Fixed(3, rusageSize32)),
		Decode: args(aPID, out(aWaitStatus), aFlags(constant.WaitFlags), func(c *Cx, i int) {
			if c.Ret > 0 {
				c.rusage(c.Arg[i])
			} else {
				c.Ptr(c.Arg[i])
			}
		}),
		Ret: retPID,
	},
	{Name: "waitpid", Exit: takes(syscalls.Fixed(1, 4)), Decode: args(aPID, out(aWaitStatus), aFlags(constant.WaitFlags)), Ret: retPID},
	{
		Name:   "waitid",
		Exit:   takes(syscalls.Fixed(2, siginfoFetch), syscalls.Fixed(4, rusageSize)),
		Exit32: takes(syscalls.Fixed(2, siginfoFetch), syscalls.Fixed(4, rusageSize32)),
		Decode: args(aName(constant.WaitIDType), func(c *Cx, i int) {
			switch uint32(c.Arg[0]) {
			case 1, 2: // P_PID, P_PGID
				c.PID(c.Arg[i])
			case 3: // P_PIDFD
				c.FD(c.Arg[i])
			default:
				c.Int(int64(int32(c.Arg[i])))
			}
		}, out(aSiginfo(Out)), aFlags(constant.WaitFlags), func(c *Cx, i int) { c.rusage(c.Arg[i]) }),
	},
	{Name: "unshare", Decode: args(func(c *Cx, i int) { c.Flags(c.Arg[i], constant.UnshareFlags) })},
	{Name: "setns", Decode: args(aFD, aFlags(constant.NamespaceTypes))},
	{Name: "pidfd_open", RetFD: true, Decode: args(aPID, aFlags(constant.PidfdOpenFlags))},
	{Name: "pidfd_getfd", RetFD: true, Decode: args(aFD, aInt, aHex32)},
	{Name: "process_mrelease", Decode: args(aFD, aHex32)},
}

func aArgv(c *Cx, i int) { c.argv(In, c.Arg[i]) }

// aEnvp shows an environment: all of it, or how many variables it has.
func aEnvp(c *Cx, i int) {
	addr := c.Arg[i]
	if !c.Opt.Abbrev {
		c.argv(In, addr)
		return
	}
	c.Ptr(addr)
	if addr == 0 {
		return
	}
	w := c.ABI.PtrSize
	b, cut, _ := c.Mem(In, addr, envPointers)
	n, ended := 0, false
	for ; (n+1)*w <= len(b); n++ {
		if c.Word(b, n*w) == 0 {
			ended = true
			break
		}
	}
	if n == 0 && !ended {
		return
	}
	var buf [48]byte
	text := strconv.AppendInt(buf[:0], int64(n), 10)
	if !ended && n*w+w > envPointers {
		text = append(text, '+')
	}
	text = append(text, " var"...)
	if n != 1 {
		text = append(text, 's')
	}
	if !ended && (cut || len(b) < envPointers) {
		text = append(text, ", unterminated"...)
	}
	c.Add(event.Node{Kind: event.KindNote, Data: c.Keep(text)})
}

// argv adds a NULL-terminated array of strings.
func (c *Cx) argv(m Moment, addr uint64) {
	if addr == 0 {
		c.Ptr(0)
		return
	}
	w := c.ABI.PtrSize
	b, _, errno := c.Mem(m, addr, envPointers)
	if len(b) < w {
		c.Unreadable(addr, errno)
		return
	}
	c.Array()
	defer c.End()
	for n := 0; ; n++ {
		if (n+1)*w > len(b) {
			c.More()
			if n < syscalls.MaxStrings {
				c.Add(event.Node{Kind: event.KindNote, Num: addr + uint64(n*w)})
			}
			return
		}
		p := c.Word(b, n*w)
		if p == 0 {
			return
		}
		if n >= syscalls.MaxStrings || c.Opt.Abbrev && n >= c.limit() {
			c.More()
			return
		}
		c.Text(m, p)
	}
}

// Bits of clone(2)'s flags that decide which arguments count, include/uapi/linux/sched.h.
const (
	csignal            = 0xff
	clonePidfd         = 0x00001000
	cloneSettls        = 0x00080000
	cloneParentSettid  = 0x00100000
	cloneChildCleartid = 0x00200000
	cloneChildSettid   = 0x01000000
	cloneIntoCgroup    = 0x200000000
)

func clone(c *Cx) {
	flags := c.Arg[0]
	c.Field("child_stack").Ptr(c.Arg[1])
	sig := flags & csignal
	flags &^= csignal
	c.Field("flags")
	if flags == 0 {
		c.cloneSignal(sig)
	} else {
		c.open(c.Arg[0])
		c.flagNames(flags, constant.CloneFlags)
		if sig != 0 {
			c.cloneSignal(sig)
		}
		c.End()
	}
	const later = cloneParentSettid | clonePidfd | cloneChildSettid | cloneChildCleartid | cloneSettls
	if flags&later == 0 || c.Entering() {
		return
	}
	tls, ctid := 4, 3 // include/linux/syscalls.h: CONFIG_CLONE_BACKWARDS swaps them
	switch c.ABI.Name {
	case "i386", "arm64", "arm":
		tls, ctid = 3, 4
	}
	if flags&(cloneParentSettid|clonePidfd) != 0 {
		c.Field("parent_tid")
		show := fdNumber
		if flags&cloneParentSettid != 0 {
			show = pidNumber
		}
		c.ref(Out, c.Arg[2], 4, show)
	}
	if flags&cloneSettls != 0 {
		c.Field("tls")
		c.tls(c.Arg[tls])
	}
	if flags&(cloneChildSettid|cloneChildCleartid) != 0 {
		c.Field("child_tidptr").Ptr(c.Arg[ctid])
	}
}

func (c *Cx) cloneSignal(sig uint64) {
	c.Signal(sig)
}

// tls adds clone's thread area: on i386 a struct user_desc, elsewhere an address.
func (c *Cx) tls(addr uint64) {
	if c.ABI.Name != "i386" {
		c.Ptr(addr)
		return
	}
	if b, ok := c.Load(In, addr, userDescSize); ok {
		c.userDesc(b)
	}
}

func pidNumber(c *Cx, b []byte) { c.PID(peek(b, 0, 4)) }

// struct clone_args, include/uapi/linux/sched.h, VER0 to VER2.
const (
	cloneArgsVer0, cloneArgsVer1, cloneArgsVer2 = 64, 80, 88

	maxSetTid = 32 // MAX_PID_NS_LEVEL
)

func clone3(c *Cx) {
	addr, size := c.Arg[0], c.Arg[1]
	known := min(size, cloneArgsVer2)
	if known < cloneArgsVer0 {
		c.Ptr(addr)
		c.Uint(size)
		return
	}
	b, ok := c.Load(In, addr, int(known))
	if !ok {
		c.Uint(size)
		return
	}
	f := c.at(b, 0)
	flags, pidfd, childTid, parentTid := f.num(8), f.num(8), f.num(8), f.num(8)
	exitSignal, stack, stackSize, tls := f.num(8), f.num(8), f.num(8), f.num(8)
	setTid, setTidSize, cgroup := f.num(8), f.num(8), f.num(8)

	change := !c.Entering() && !c.Failed() && (flags&(clonePidfd|cloneParentSettid) != 0 || c.hasCloneTail(addr, known, size))
	if change {
		c.Begin(event.Node{Kind: event.KindChange})
	}
	c.Struct()
	c.Field("flags")
	c.Flags(flags, constant.Clone3Flags)
	if flags&clonePidfd != 0 {
		c.Field("pidfd").Ptr(pidfd)
	}
	if flags&(cloneChildSettid|cloneChildCleartid) != 0 {
		c.Field("child_tid").Ptr(childTid)
	}
	if flags&cloneParentSettid != 0 {
		c.Field("parent_tid").Ptr(parentTid)
	}
	c.Field("exit_signal")
	if exitSignal < 1<<31-1 {
		c.Signal(exitSignal)
	} else {
		c.Uint(exitSignal)
	}
	c.Field("stack").Ptr(stack)
	c.Field("stack_size").Hex(stackSize)
	if flags&cloneSettls != 0 {
		c.Field("tls")
		c.tls(tls)
	}
	if setTid != 0 || setTidSize != 0 {
		c.Field("set_tid")
		if setTid == 0 || setTidSize == 0 || setTidSize > maxSetTid {
			c.Ptr(setTid)
		} else {
			c.list(In, setTid, setTidSize, 4, intNumber)
		}
		c.Field("set_tid_size").Uint(setTidSize)
	}
	if known > cloneArgsVer1 && (cgroup != 0 || flags&cloneIntoCgroup != 0) {
		c.Field("cgroup").Uint(cgroup)
	}
	c.cloneTail(addr, known, size)
	c.End()
	if change {
		c.Struct()
		if flags&clonePidfd != 0 {
			c.Field("pidfd")
			c.ref(Out, pidfd, 4, fdNumber)
		}
		if flags&cloneParentSettid != 0 {
			c.Field("parent_tid")
			c.ref(Out, parentTid, 4, pidNumber)
		}
		c.cloneTail(addr, known, size) // a kernel that knows more may have filled it
		c.End()
		c.End()
	}
	if c.Entering() && (flags&(clonePidfd|cloneParentSettid) != 0 || size > known) {
		return
	}
	c.Uint(size)
}

// hasCloneTail reports that cloneTail shows something.
func (c *Cx) hasCloneTail(addr, known, size uint64) bool {
	at := len(c.Nodes)
	c.cloneTail(addr, known, size)
	there := len(c.Nodes) > at
	c.Nodes = c.Nodes[:at]
	return there
}

// cloneTail shows bytes behind what is known of the structure when they are not all zero.
func (c *Cx) cloneTail(addr, known, size uint64) {
	if size <= known {
		return
	}
	b, _, _ := c.Mem(In, addr, int(min(size, 4096)))
	if uint64(len(b)) < min(size, 4096) {
		c.Add(event.Node{Kind: event.KindUnreadable})
		return
	}
	tail := b[known:]
	if !allZero(tail) {
		c.Add(event.Node{Kind: event.KindBytes, Data: tail, Num: uint64(len(tail)), Attr: event.AttrHex | event.AttrPath,
			Sym: "/* " + sprintBytes(int(known), len(b)-1) + " */ "})
	}
}

// aWaitStatus shows the status that wait(2) fills: [{WIFEXITED(s) && WEXITSTATUS(s) == 0}].
func aWaitStatus(c *Cx, i int) {
	if c.Ret == 0 {
		c.Ptr(c.Arg[i])
		return
	}
	if b, ok := c.Load(Out, c.Arg[i], 4); ok {
		c.Array()
		c.WaitStatus(U32(b, 0))
		c.End()
	}
}

// WaitStatus adds a wait(2) status, as the macros of sys/wait.h take it apart; the bits that none of them reads follow.
func (c *Cx) WaitStatus(status uint32) {
	var buf [96]byte
	b := append(buf[:0], '{')
	low, high := status&0x7f, status>>8&0xff
	left := status
	switch {
	case status&0xff == 0x7f: // WIFSTOPPED
		b = append(b, "WIFSTOPPED(s) && WSTOPSIG(s) == "...)
		b = appendSignal(b, high&0x7f)
		if high&0x80 != 0 {
			b = append(b, " | 0x80"...)
		}
		left &^= 0xff7f
	case int8(low+1)>>1 > 0: // WIFSIGNALED
		b = append(b, "WIFSIGNALED(s) && WTERMSIG(s) == "...)
		b = appendSignal(b, low)
		if status&0x80 != 0 {
			b = append(b, " && WCOREDUMP(s)"...)
		}
		left &^= 0xff
	case low == 0: // WIFEXITED
		b = append(b, "WIFEXITED(s) && WEXITSTATUS(s) == "...)
		b = strconv.AppendUint(b, uint64(high), 10)
		left &^= 0xff00
	case status == 0xffff:
		b = append(b, "WIFCONTINUED(s)"...)
		left = 0
	default:
		c.Hex(uint64(status))
		return
	}
	b = append(b, '}')
	n := event.Node{Kind: event.KindSym, Data: c.Keep(b), Num: uint64(status)}
	if left == 0 {
		c.Add(n)
		return
	}
	c.open(uint64(status))
	c.Add(n)
	if ev := left >> 16; ev != 0 {
		c.expr("<<")
		c.Name(uint64(ev), constant.PtraceEvent)
		c.Uint(16)
		c.End()
	}
	if left &= 0xffff; left != 0 {
		c.Hex(uint64(left))
	}
	c.End()
}

func appendSignal(b []byte, n uint32) []byte {
	if name := constant.SignalName(int(n)); name != "" {
		return append(b, name...)
	}
	return strconv.AppendUint(b, uint64(n), 10)
}

// struct rusage, include/uapi/linux/resource.h: two timevals and 14 longs.
const rusageSize, rusageSize32 = 144, 72

// rusage adds the struct rusage at addr.
func (c *Cx) rusage(addr uint64) {
	n, tv := rusageSize, 16
	if c.Ptr32() && c.ABI.Name != "x32" {
		n, tv = rusageSize32, 8
	}
	b, ok := c.Load(Out, addr, n)
	if !ok {
		return
	}
	c.Struct()
	c.Field("ru_utime")
	c.timePair(b[:tv], tv/2, "tv_usec")
	c.Field("ru_stime")
	c.timePair(b[tv:2*tv], tv/2, "tv_usec")
	if c.Opt.Abbrev {
		c.More()
		c.End()
		return
	}
	for i, name := range rusageNames {
		c.Field(name).Uint(peek(b, 2*tv+i*tv/2, tv/2))
	}
	c.End()
}

var rusageNames = [14]string{"ru_maxrss", "ru_ixrss", "ru_idrss", "ru_isrss", "ru_minflt", "ru_majflt", "ru_nswap",
	"ru_inblock", "ru_oublock", "ru_msgsnd", "ru_msgrcv", "ru_nsignals", "ru_nvcsw", "ru_nivcsw"}
