package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Commands of fsconfig(2), linux/mount.h.
const (
	fsconfigSetFlag, fsconfigSetString, fsconfigSetBinary, fsconfigSetPath = 0, 1, 2, 3
	fsconfigSetPathEmpty, fsconfigSetFD, fsconfigCreate, fsconfigReconf    = 4, 5, 6, 7
)

const maxFsconfigBlob = 1 << 20 // fs/fsopen.c

func fsconfig(c *Cx) {
	c.FD(c.Arg[0])
	cmd := uint32(c.Arg[1])
	c.Name(uint64(cmd), constant.FsconfigCmd)
	key, value, aux := c.Arg[2], c.Arg[3], c.Arg[4]
	switch cmd {
	case fsconfigSetFlag:
		c.Text(In, key)
		c.Ptr(value)
		c.Int(int64(int32(aux)))
	case fsconfigSetString:
		c.Text(In, key)
		c.Text(In, value)
		c.Int(int64(int32(aux)))
	case fsconfigSetBinary:
		c.Text(In, key)
		if n := int64(int32(aux)); n <= 0 || n > maxFsconfigBlob {
			c.Ptr(value)
		} else {
			c.Buffer(In, value, n)
		}
		c.Int(int64(int32(aux)))
	case fsconfigSetPath, fsconfigSetPathEmpty:
		c.Text(In, key)
		c.PathAt(In, value)
		c.DirFD(aux)
	case fsconfigSetFD:
		c.Text(In, key)
		c.Ptr(value)
		c.FD(aux)
	default:
		c.Ptr(key)
		c.Ptr(value)
		c.Int(int64(int32(aux)))
	}
}

// sigevent adds struct sigevent, asm-generic/siginfo.h, in the layout of 64-bit ABIs.
func (c *Cx) sigevent(addr uint64) {
	if c.Ptr32() {
		c.Ptr(addr)
		return
	}
	c.obj(In, addr, 64, func(c *Cx, b []byte) {
		c.Struct()
		c.Field("sigev_value").Struct()
		c.Field("sival_int").Int(I32(b, 0))
		c.Field("sival_ptr").Ptr(U64(b, 0))
		c.End()
		notify := uint64(U32(b, 12))
		c.Field("sigev_signo")
		switch notify {
		case 0, 2, 4: // SIGEV_SIGNAL, SIGEV_THREAD, SIGEV_THREAD_ID
			c.Signal(uint64(U32(b, 8)))
		default:
			c.Uint(uint64(U32(b, 8)))
		}
		c.Field("sigev_notify")
		c.Name(notify, constant.SigevNotify)
		switch notify {
		case 4:
			c.Field("sigev_notify_thread_id")
			c.PID(uint64(U32(b, 16)))
		case 2:
			c.Field("sigev_notify_function").Ptr(U64(b, 16))
			c.Field("sigev_notify_attributes").Ptr(U64(b, 24))
		}
		c.End()
	})
}

func aFanotifyInit(c *Cx, i int) {
	v := uint64(uint32(c.Arg[i]))
	class, rest := v&0xc, v&^0xc
	if rest == 0 {
		c.Name(class, constant.FanotifyClass)
		return
	}
	c.beginFlags(v)
	if name, ok := constant.FanotifyClass.Name(class); ok {
		c.Sym(name, class)
	} else {
		c.Hex(class)
	}
	c.moreFlags(rest, constant.FanotifyInit)
	c.End()
}

// swapFlags shows the priority in the low bits as a number.
func aSwapFlags(c *Cx, i int) {
	v := uint64(uint32(c.Arg[i]))
	prio, flags := v&0x7fff, v&^0x7fff
	switch {
	case flags == 0:
		c.Uint(prio)
	case prio == 0:
		c.Flags(flags, constant.SwapFlags)
	default:
		c.beginFlags(v)
		c.moreFlags(flags, constant.SwapFlags)
		c.Uint(prio)
		c.End()
	}
}

// timex adds struct timex, linux/timex.h, of 64-bit ABIs; it is shown as it was when the call returned.
func (c *Cx) timex(addr uint64) {
	if c.Ptr32() && c.ABI.Name != "x32" {
		c.Ptr(addr)
		return
	}
	b, ok := c.Load(Out, addr, 208)
	if !ok {
		return
	}
	f := c.begin(b)
	f.flags("modes", 4, constant.AdjtimexModes)
	f.skip(4)
	for _, n := range [...]string{"offset", "freq", "maxerror", "esterror"} {
		f.i8(n)
	}
	f.flags("status", 4, constant.AdjtimexStatus)
	f.skip(4)
	for _, n := range [...]string{"constant", "precision", "tolerance"} {
		f.i8(n)
	}
	c.Field("time")
	c.timespecOf(f.take(16), "tv_usec")
	for _, n := range [...]string{"tick", "ppsfreq", "jitter"} {
		f.i8(n)
	}
	f.i4("shift")
	f.skip(4)
	for _, n := range [...]string{"stabil", "jitcnt", "calcnt", "errcnt", "stbcnt"} {
		f.i8(n)
	}
	f.i4("tai")
	f.end()
}

func timexState(c *Cx) {
	c.Int(c.Ret)
	if name, ok := constant.AdjtimexState.Name(uint64(c.Ret)); ok {
		c.Note = name
	}
}

var mountCalls = []Spec{
	{Name: "move_mount", Enter: fetches{path(1), path(3)}, Decode: args(aDirFD, aPath, aDirFD, aPath, aFlags(constant.MoveMountFlags))},
	{Name: "open_tree", RetFD: true, Enter: path1, Decode: args(aDirFD, aPath, aFlags(constant.OpenTreeFlags)), Ret: retFD},
	{Name: "fsopen", RetFD: true, Enter: fetches{syscalls.Str(0)}, Decode: args(aText, aFlags(constant.FsopenFlags)), Ret: retFD},
	{Name: "fspick", RetFD: true, Enter: path1, Decode: args(aDirFD, aPath, aFlags(constant.FspickFlags)), Ret: retFD},
	{Name: "fsmount", RetFD: true, Decode: args(aFD, aFlags(constant.FsmountFlags), aFlags(constant.MountAttr)), Ret: retFD},
	{Name: "fsconfig", Enter: fetches{
		syscalls.Str(2),
		syscalls.Str(3).If(1, fsconfigSetString),
		syscalls.Path(3).If(1, fsconfigSetPath, fsconfigSetPathEmpty),
		syscalls.Buf(3, syscalls.Arg(4)).If(1, fsconfigSetBinary),
	}, Decode: fsconfig},
	{Name: "swapon", Enter: path0, Decode: args(aPath, aSwapFlags)},
	{Name: "fanotify_init", RetFD: true, Decode: args(aFanotifyInit, func(c *Cx, i int) { c.OpenFlags(uint64(uint32(c.Arg[i]))) }), Ret: retFD},
	{Name: "fanotify_mark", Enter: fetches{path(4)}, Decode: func(c *Cx) {
		c.FD(c.Arg[0])
		c.Flags(uint64(uint32(c.Arg[1])), constant.FanotifyMark)
		i := 3
		mask := c.Arg[2]
		if c.ABI.PtrSize == 4 && c.ABI.Name != "x32" {
			mask, i = mask|c.Arg[3]<<32, 4
		}
		c.Flags(mask, constant.FanotifyMask)
		if int32(c.Arg[i]) == -1 {
			c.Add(event.Node{Kind: event.KindSym, Sym: "FAN_NOFD", Num: ^uint64(0), Attr: event.AttrDecimal})
		} else {
			c.DirFD(c.Arg[i])
		}
		c.PathAt(In, c.Arg[min(i+1, 5)])
	}},
	{Name: "timer_create", Enter: fetches{syscalls.Fixed(1, 64)}, Exit: fetches{syscalls.Fixed(2, 4)},
		Decode: args(aClock, func(c *Cx, i int) { c.sigevent(c.Arg[i]) }, out(func(c *Cx, i int) { c.ref(Out, c.Arg[i], 4, intNumber) }))},
	{Name: "adjtimex", Exit: fetches{syscalls.Fixed(0, 208)}, Decode: args(out(func(c *Cx, i int) { c.timex(c.Arg[i]) })), Ret: timexState},
	{Name: "clock_adjtime", Exit: fetches{syscalls.Fixed(1, 208)}, Decode: args(aClock, out(func(c *Cx, i int) { c.timex(c.Arg[i]) })), Ret: timexState},
	{Name: "times", Exit: fetches{syscalls.Fixed(0, 32)}, Decode: args(out(func(c *Cx, i int) {
		w := c.ABI.PtrSize
		b, ok := c.Load(Out, c.Arg[i], 4*w)
		if !ok {
			return
		}
		f := c.begin(b)
		for _, n := range [...]string{"tms_utime", "tms_stime", "tms_cutime", "tms_cstime"} {
			v := f.num(w)
			f.c.Field(n)
			f.c.clockTicks(v)
		}
		f.end()
	})), Ret: func(c *Cx) { c.Add(event.Node{Kind: event.KindUint, Num: uint64(c.Ret)}) }},
}
