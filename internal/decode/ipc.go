package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Commands of msgctl(2), semctl(2) and shmctl(2), include/uapi/linux/{ipc,msg,sem,shm}.h.
const (
	ipc64 = 0x100 // IPC_64: the caller knows the structures of today

	ipcSet, ipcStat, ipcInfo     = 1, 2, 3
	msgStat, msgInfo, msgStatAny = 11, 12, 13
	semStat, semInfo, semStatAny = 18, 19, 20
	shmStat, shmInfo, shmStatAny = 13, 14, 15
)

// Sizes of the structures: struct msqid64_ds, semid64_ds, shmid64_ds of asm-generic and of arch/x86 asm/; msginfo,
// seminfo, shminfo64, shm_info. Those of 32-bit ABIs are second.
const (
	msqidSize, msqidSize32     = 120, 88
	semidSize, semidSize32     = 104, 64
	shmidSize, shmidSize32     = 112, 84
	msginfoSize, seminfoSize   = 32, 40
	shminfoSize, shminfoSize32 = 72, 36
	shmInfoSize, shmInfoSize32 = 48, 24
	sembufSize                 = 6
)

func ipcBoth(arg int, n64, n32 int) (in, out, in32, out32 []syscalls.Fetch) {
	return takes(syscalls.Fixed(arg, n64)), takes(syscalls.Fixed(arg, n64)), takes(syscalls.Fixed(arg, n32)), takes(syscalls.Fixed(arg, n32))
}

// ctl is a call by command on an object's structure.
func ctl(name string, arg, n64, n32 int, decode func(c *Cx)) Spec {
	s := Spec{Name: name, Decode: decode}
	s.Enter, s.Exit, s.Enter32, s.Exit32 = ipcBoth(arg, n64, n32)
	return s
}

// sysvIPC is System V message queues, semaphores and shared memory.
var sysvIPC = []Spec{
	{Name: "msgget", Decode: args(aIpcKey, func(c *Cx, i int) { c.ipcFlags(c.Arg[i], constant.IpcGetFlags) })},
	{
		Name:    "msgsnd",
		Enter:   takes(syscalls.Fixed(1, 8), textAfter(1, 8, syscalls.Arg(2))),
		Enter32: takes(syscalls.Fixed(1, 4), textAfter(1, 4, syscalls.Arg(2))),
		Decode:  args(aInt, func(c *Cx, i int) { c.msgbuf(In, c.Arg[1], c.Arg[2]) }, aUlong, aFlags(constant.MsgsndFlags)),
	},
	{
		Name:   "msgrcv",
		Exit:   takes(syscalls.Fixed(1, 8), textAfter(1, 8, syscalls.Arg(2))),
		Exit32: takes(syscalls.Fixed(1, 4), textAfter(1, 4, syscalls.Arg(2))),
		Decode: args(aInt, out(func(c *Cx, i int) { c.msgbuf(Out, c.Arg[1], c.Arg[2]) }), aUlong, aLong, aFlags(constant.MsgsndFlags)),
	},
	ctl("msgctl", 2, msqidSize, msqidSize32, msgctl),
	{Name: "semget", Decode: args(aIpcKey, aInt, func(c *Cx, i int) { c.ipcFlags(c.Arg[i], constant.IpcGetFlags) })},
	{Name: "semop", Enter: takes(semopFetch), Decode: args(aInt, aSemops, aUint)},
	{Name: "semtimedop", Enter: takes(semopFetch, syscalls.Fixed(3, 16)),
		Decode: args(aInt, aSemops, aUint, func(c *Cx, i int) { c.kernelTimespec(In, c.Arg[i], false) })},
	{Name: "semtimedop_time64", Enter: takes(semopFetch, syscalls.Fixed(3, 16)), Decode: args(aInt, aSemops, aUint, aTimespec64)},
	ctl("semctl", 3, semidSize, semidSize32, semctl),
	{Name: "shmget", Decode: args(aIpcKey, aUlong, aShmgetFlags)},
	{Name: "shmat", Decode: args(aInt, aPtr, aFlags(constant.ShmatFlags)), Ret: retHex},
	{Name: "shmdt", Decode: args(aPtr)},
	ctl("shmctl", 2, shmidSize, shmidSize32, shmctl),
	{Name: "ipc", Decode: ipcCall},
}

var semopFetch = syscalls.Vec(1, syscalls.Arg(2), sembufSize, maxVec)

// textAfter is a buffer off bytes behind a pointer.
func textAfter(arg int, off uint16, n syscalls.Number) syscalls.Fetch {
	f := syscalls.Buf(arg, n)
	f.Off = off
	return f
}

func aIpcKey(c *Cx, i int) { c.Name(uint64(uint32(c.Arg[i])), constant.IpcPrivate) }

// ipcFlags adds flags and the mode that they stand above.
func (c *Cx) ipcFlags(v uint64, s *constant.Set) {
	v = uint64(uint32(v))
	const mode = 0o777
	if v&^mode == 0 {
		c.Oct(v)
		return
	}
	c.expr("|")
	c.Flags(v&^mode, s)
	c.Oct(v & mode)
	c.End()
}

func aShmgetFlags(c *Cx, i int) {
	const mode, hugeShift, hugeMask = 0o777, 26, 0x3f << 26
	v := uint64(uint32(c.Arg[i]))
	huge := v & hugeMask
	if huge == 0 {
		c.ipcFlags(v, constant.ShmgetFlags)
		return
	}
	c.expr("|")
	if rest := v &^ (mode | hugeMask); rest != 0 {
		c.Flags(rest, constant.ShmgetFlags)
	}
	c.expr("<<")
	c.Uint(huge >> hugeShift)
	c.Add(event.Node{Kind: event.KindSym, Sym: "SHM_HUGE_SHIFT", Num: hugeShift, Attr: event.AttrDecimal})
	c.End()
	c.Oct(v & mode)
	c.End()
}

// msgbuf adds struct msgbuf {long mtype; char mtext[];}.
func (c *Cx) msgbuf(m Moment, addr, size uint64) {
	w := c.ABI.PtrSize
	b, ok := c.Load(m, addr, w)
	if !ok {
		return
	}
	c.Struct()
	c.Field("mtype")
	c.Long(peek(b, 0, w))
	c.Field("mtext")
	c.Buffer(m, addr+uint64(w), int64(min(size, 1<<31)))
	c.End()
}

// ipcCmd adds a command, IPC_64 apart, and returns it.
func (c *Cx) ipcCmd(v uint64, s *constant.Set) uint64 {
	v = uint64(uint32(v))
	if v&ipc64 == 0 {
		c.Name(v, s)
		return v
	}
	c.expr("|")
	c.Sym("IPC_64", ipc64)
	c.Name(v&^ipc64, s)
	c.End()
	return v &^ ipc64
}

// ipcPerm adds struct ipc64_perm and returns where it ends. IPC_SET takes only the first members.
func (f *fields) ipcPerm(name string, set bool) {
	c := f.c
	c.Field(name).Struct()
	key := f.num(4)
	uid, gid, cuid, cgid := f.num(4), f.num(4), f.num(4), f.num(4)
	mode := f.num(4)
	if c.Ptr32() || c.ABI.Name == "x32" {
		mode &= 0xffff
	}
	c.Field("uid")
	c.userID(uid)
	c.Field("gid")
	c.userID(gid)
	c.Field("mode").Oct(mode)
	if !set {
		c.Field("key").Uint(key)
		c.Field("cuid")
		c.userID(cuid)
		c.Field("cgid")
		c.userID(cgid)
	}
	c.End()
	// seq and padding, then two reserved longs.
	if c.Ptr32() {
		f.skip(4 + 8)
	} else {
		f.skip(8 + 16)
	}
}

// stamp is a time: a long, or on 32-bit ABIs two words.
func (f *fields) stamp(name string) {
	if f.c.Ptr32() {
		v := f.num(4) | f.num(4)<<32
		if name != "" {
			f.c.Field(name).Uint(v)
		}
		return
	}
	if v := f.num(8); name != "" {
		f.c.Field(name).Uint(v)
	}
}

func (c *Cx) size32(n64, n32 int) int {
	if c.Ptr32() {
		return n32
	}
	return n64
}

func msgctl(c *Cx) {
	aInt(c, 0)
	addr := c.Arg[2]
	switch cmd := c.ipcCmd(c.Arg[1], constant.MsgctlCmd); cmd {
	case ipcSet:
		c.msqid(In, addr, true)
	case ipcStat, msgStat, msgStatAny:
		if !c.Entering() {
			c.msqid(Out, addr, false)
		}
	case ipcInfo, msgInfo:
		if !c.Entering() {
			c.msginfo(addr)
		}
	default:
		c.Ptr(addr)
	}
}

func (c *Cx) msqid(m Moment, addr uint64, set bool) {
	b, ok := c.Load(m, addr, c.size32(msqidSize, msqidSize32))
	if !ok {
		return
	}
	f := c.begin(b)
	f.ipcPerm("msg_perm", set)
	if set {
		f.stamp("")
		f.stamp("")
		f.stamp("")
		f.skip(2 * c.ABI.PtrSize) // msg_cbytes, msg_qnum
		f.word("msg_qbytes")
		f.end()
		return
	}
	f.stamp("msg_stime")
	f.stamp("msg_rtime")
	f.stamp("msg_ctime")
	f.skip(c.ABI.PtrSize) // msg_cbytes
	f.word("msg_qnum")
	f.word("msg_qbytes")
	f.i4("msg_lspid")
	f.i4("msg_lrpid")
	f.end()
}

func (c *Cx) msginfo(addr uint64) {
	b, ok := c.Load(Out, addr, msginfoSize)
	if !ok {
		return
	}
	f := c.begin(b)
	for _, name := range [7]string{"msgpool", "msgmap", "msgmax", "msgmnb", "msgmni", "msgssz", "msgtql"} {
		f.i4(name)
	}
	f.u2("msgseg")
	f.end()
}

func aSemops(c *Cx, i int) {
	c.list(In, c.Arg[i], uint64(uint32(c.Arg[2])), sembufSize, func(c *Cx, b []byte) {
		f := c.begin(b)
		f.u2("sem_num")
		f.i2("sem_op")
		f.flags("sem_flg", 2, constant.SemopFlags)
		f.end()
	})
}

func semctl(c *Cx) {
	aInt(c, 0)
	aInt(c, 1)
	addr := c.Arg[3]
	switch cmd := c.ipcCmd(c.Arg[2], constant.SemctlCmd); cmd {
	case ipcSet:
		c.semid(In, addr, true)
	case ipcStat, semStat, semStatAny:
		if !c.Entering() {
			c.semid(Out, addr, false)
		}
	case ipcInfo, semInfo:
		if c.Entering() {
			return
		}
		if b, ok := c.Load(Out, addr, seminfoSize); ok {
			f := c.begin(b)
			for _, name := range [10]string{"semmap", "semmni", "semmns", "semmnu", "semmsl", "semopm", "semume", "semusz", "semvmx", "semaem"} {
				f.i4(name)
			}
			f.end()
		}
	default:
		c.Ptr(addr)
	}
}

func (c *Cx) semid(m Moment, addr uint64, set bool) {
	b, ok := c.Load(m, addr, c.size32(semidSize, semidSize32))
	if !ok {
		return
	}
	f := c.begin(b)
	f.ipcPerm("sem_perm", set)
	if !set {
		// On x86 each time has a reserved word behind it, include/uapi/asm/sembuf.h.
		reserved := c.ABI.Name == "amd64" || c.ABI.Name == "x32"
		f.stamp("sem_otime")
		if reserved {
			f.skip(8)
		}
		f.stamp("sem_ctime")
		if reserved {
			f.skip(8)
		}
		f.word("sem_nsems")
	}
	f.end()
}

func shmctl(c *Cx) {
	aInt(c, 0)
	addr := c.Arg[2]
	switch cmd := c.ipcCmd(c.Arg[1], constant.ShmctlCmd); cmd {
	case ipcSet:
		c.shmid(In, addr, true)
	case ipcStat, shmStat, shmStatAny:
		if !c.Entering() {
			c.shmid(Out, addr, false)
		}
	case ipcInfo:
		if c.Entering() {
			return
		}
		if b, ok := c.Load(Out, addr, c.size32(shminfoSize, shminfoSize32)); ok {
			f := c.begin(b)
			for _, name := range [5]string{"shmmax", "shmmin", "shmmni", "shmseg", "shmall"} {
				f.word(name)
			}
			f.end()
		}
	case shmInfo:
		if c.Entering() {
			return
		}
		if b, ok := c.Load(Out, addr, c.size32(shmInfoSize, shmInfoSize32)); ok {
			f := c.begin(b)
			f.i4("used_ids")
			f.skip(c.ABI.PtrSize - 4)
			for _, name := range [5]string{"shm_tot", "shm_rss", "shm_swp", "swap_attempts", "swap_successes"} {
				f.word(name)
			}
			f.end()
		}
	default:
		c.Ptr(addr)
	}
}

func (c *Cx) shmid(m Moment, addr uint64, set bool) {
	b, ok := c.Load(m, addr, c.size32(shmidSize, shmidSize32))
	if !ok {
		return
	}
	f := c.begin(b)
	f.ipcPerm("shm_perm", set)
	if !set {
		size := f.num(c.ABI.PtrSize)
		at := f.off
		f.stamp("")
		f.stamp("")
		f.stamp("")
		c.Field("shm_segsz").Uint(size)
		f.pid("shm_cpid")
		f.pid("shm_lpid")
		f.word("shm_nattch")
		f.off = at
		f.stamp("shm_atime")
		f.stamp("shm_dtime")
		f.stamp("shm_ctime")
	}
	f.end()
}

// ipcCall is ipc(2), through which i386 makes all of them: call and version, then five words.
func ipcCall(c *Cx) {
	op := uint64(uint32(c.Arg[0]))
	call, version := op&0xffff, op>>16
	show := func() {
		if name, ok := constant.IpcCall.Name(call); ok {
			c.Add(event.Node{Kind: event.KindSym, Sym: name, Num: call, Attr: event.AttrDecimal})
		} else {
			c.Uint(call)
		}
	}
	if version != 0 {
		c.open(op)
		c.expr("<<")
		c.Uint(version)
		c.Uint(16)
		c.End()
		show()
		c.End()
	} else {
		show()
	}
	n := 6
	if c.Def != nil {
		n = min(n, len(c.Def.Args))
	}
	for _, v := range c.Arg[1:n] {
		c.Hex(v)
	}
}
