package decode

import (
	"bytes"
	"strconv"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// beginFlags opens a run of flags that stand for v.
func (c *Cx) beginFlags(v uint64) { c.Begin(event.Node{Kind: event.KindFlags, Num: v}) }

// Commands of fcntl(2) by what their argument is; asm-generic/fcntl.h and linux/fcntl.h.
const (
	fDupfd, fGetfd, fSetfd, fGetfl, fSetfl          = 0, 1, 2, 3, 4
	fGetlk, fSetlk, fSetlkw, fSetown, fGetown       = 5, 6, 7, 8, 9
	fSetsig, fGetsig, fGetlk64, fSetlk64, fSetlkw64 = 10, 11, 12, 13, 14
	fSetownEx, fGetownEx, fGetownerUIDs             = 15, 16, 17
	fOfdGetlk, fOfdSetlk, fOfdSetlkw                = 36, 37, 38
	fSetlease, fGetlease, fNotify, fDupfdQuery      = 1024, 1025, 1026, 1027
	fDupfdCloexec, fSetpipeSz, fGetpipeSz           = 1030, 1031, 1032
	fAddSeals, fGetSeals                            = 1033, 1034
	fGetRwHint, fSetRwHint, fGetFileHint, fSetFile  = 1035, 1036, 1037, 1038
	fGetdeleg, fSetdeleg, fCreatedQuery             = 1039, 1040, 1028
)

var fcntlIn = fetches{
	syscalls.Fixed(2, 32).If(1, fGetlk, fSetlk, fSetlkw, fGetlk64, fSetlk64, fSetlkw64, fOfdGetlk, fOfdSetlk, fOfdSetlkw),
	syscalls.Fixed(2, 8).If(1, fSetownEx, fSetRwHint, fSetFile, fSetdeleg, fGetdeleg),
}

var fcntlOut = fetches{
	syscalls.Fixed(2, 32).If(1, fGetlk, fGetlk64, fOfdGetlk),
	syscalls.Fixed(2, 8).If(1, fGetownEx, fGetownerUIDs, fGetRwHint, fGetFileHint, fGetdeleg),
}

// flock adds struct flock; in wide form the offsets have 64 bits on every ABI.
func (c *Cx) flock(m Moment, addr uint64, wide, pid bool) {
	w, off, size := 8, 8, 32
	if c.Ptr32() && c.ABI.Name != "x32" {
		switch {
		case !wide:
			w, off, size = 4, 4, 16
		case c.ABI.Name == "i386":
			off, size = 4, 24
		}
	}
	b, errno := c.Bytes(m, addr, size)
	if b == nil {
		c.Unreadable(addr, errno)
		return
	}
	c.Struct()
	c.Field("l_type")
	c.Name(uint64(U16(b, 0)), constant.LockType)
	c.Field("l_whence")
	c.Name(uint64(U16(b, 2)), constant.SeekWhence)
	start, length := peek(b, off, w), peek(b, off+w, w)
	if w == 4 {
		start, length = uint64(int64(int32(start))), uint64(int64(int32(length)))
	}
	c.Field("l_start").Int(int64(start))
	c.Field("l_len").Int(int64(length))
	if pid {
		c.Field("l_pid")
		c.PID(peek(b, off+2*w, 4))
	}
	c.End()
}

func fcntl(c *Cx) {
	c.FD(c.Arg[0])
	cmd := uint32(c.Arg[1])
	wide := c.Def != nil && c.Def.Name == "fcntl64"
	c.Name(uint64(cmd), constant.FcntlCmd)
	arg := c.Arg[2]
	switch cmd {
	case fGetfd, fGetfl, fGetown, fGetsig, fGetlease, fGetpipeSz, fGetSeals:
	case fDupfd, fDupfdCloexec, fSetpipeSz:
		c.Int(int64(int32(arg)))
	case fDupfdQuery:
		c.FD(arg)
	case fSetdeleg, fGetdeleg:
		m := In
		if cmd == fGetdeleg {
			if c.Entering() {
				return
			}
			if c.Failed() {
				c.Ptr(arg)
				return
			}
			m = Out
		}
		c.obj(m, arg, 8, func(c *Cx, b []byte) { // struct delegation, linux/fcntl.h
			f := c.begin(b)
			f.x4("d_flags")
			f.enum("d_type", 2, constant.LockType)
			f.x2("__pad")
			f.end()
		})
	case fSetfd:
		c.Flags(uint64(uint32(arg)), constant.FdFlags)
	case fSetfl:
		c.OpenFlags(uint64(uint32(arg)))
	case fSetown:
		c.PID(arg)
	case fSetsig:
		if uint32(arg) == 0 {
			c.Int(0)
		} else {
			c.Signal(uint64(uint32(arg)))
		}
	case fSetlease:
		c.Name(uint64(uint32(arg)), constant.LockType)
	case fNotify:
		c.Flags(uint64(uint32(arg)), constant.NotifyFlags)
	case fAddSeals:
		c.Flags(uint64(uint32(arg)), constant.SealFlags)
	case fSetlk, fSetlkw:
		c.flock(In, arg, wide && false, false)
	case fSetlk64, fSetlkw64, fOfdSetlk, fOfdSetlkw:
		c.flock(In, arg, true, false)
	case fGetlk, fGetlk64, fOfdGetlk:
		if c.Entering() {
			return
		}
		if c.Failed() {
			c.Ptr(arg)
			return
		}
		c.flock(Out, arg, cmd != fGetlk, true)
	case fSetownEx, fGetownEx:
		m := In
		if cmd == fGetownEx {
			if c.Entering() {
				return
			}
			if c.Failed() {
				c.Ptr(arg)
				return
			}
			m = Out
		}
		c.obj(m, arg, 8, func(c *Cx, b []byte) {
			c.Struct()
			c.Field("type")
			c.Name(uint64(U32(b, 0)), constant.OwnerType)
			c.Field("pid")
			c.PID(uint64(U32(b, 4)))
			c.End()
		})
	case fGetownerUIDs:
		if c.Entering() {
			return
		}
		if b, ok := c.Load(Out, arg, 8); ok {
			c.Array()
			c.userID(uint64(U32(b, 0)))
			c.userID(uint64(U32(b, 4)))
			c.End()
		}
	case fGetRwHint, fGetFileHint, fSetRwHint, fSetFile:
		m := In
		if cmd == fGetRwHint || cmd == fGetFileHint {
			if c.Entering() {
				return
			}
			if c.Failed() {
				c.Ptr(arg)
				return
			}
			m = Out
		}
		c.obj(m, arg, 8, func(c *Cx, b []byte) {
			c.Array()
			c.Name(U64(b, 0), constant.RwHint)
			c.End()
		})
	default:
		c.Hex(arg)
	}
}

func fcntlRet(c *Cx) {
	v := uint64(c.Ret)
	switch uint32(c.Arg[1]) {
	case fDupfd, fDupfdCloexec:
		c.returnedFD(v)
	case fGetfd:
		if v != 0 {
			c.Hex(v)
			c.returnFlags(v, "flags ", func() { c.Flags(v, constant.FdFlags) })
		} else {
			c.Int(0)
		}
	case fGetfl:
		c.Hex(v)
		c.returnFlags(v, "flags ", func() { c.OpenFlags(v) })
	case fGetSeals:
		c.Hex(v)
		c.returnFlags(v, "seals ", func() { c.Flags(v, constant.SealFlags) })
	case fGetlease:
		c.Hex(v)
		c.returnFlags(v, "", func() { c.Name(v, constant.LockType) })
	case fGetsig:
		c.Int(c.Ret)
		if v != 0 {
			c.returnFlags(v, "", func() { c.Signal(v) })
		}
	case fGetown:
		c.PID(v)
	default:
		c.Int(c.Ret)
	}
}

// returnFlags makes the explanation of a return value of the names that show adds.
func (c *Cx) returnFlags(v uint64, what string, show func()) {
	at := len(c.Nodes)
	show()
	c.Note = what + plain(c.Nodes[at:])
	c.Nodes = c.Nodes[:at]
}

// plain is the text of a few nodes in the short form: names, numbers, runs of flags, small structures. It is for the
// explanations behind return values, which are text in every output.
func plain(t event.Tree) string {
	var b []byte
	sep := ""
	for i := range t {
		n := &t[i]
		switch n.Kind {
		case event.KindFlags:
			continue
		case event.KindSym:
			b = append(append(b, sep...), n.Sym...)
		case event.KindHex:
			b = append(b, sep...)
			if n.Num == 0 {
				b = append(b, '0')
			} else {
				b = strconv.AppendUint(append(b, "0x"...), n.Num, 16)
			}
			if n.Sym != "" {
				b = append(append(append(b, " /* "...), n.Sym...), " */"...)
			}
		default:
			b = strconv.AppendInt(append(b, sep...), int64(n.Num), 10)
		}
		sep = "|"
	}
	return string(b)
}

// fdCalls make, copy and close descriptors.
var fdCalls = []Spec{
	{Name: "close", Decode: args(aFD)},
	{Name: "close_range", Decode: args(aUint, aUint, aFlags(constant.CloseRangeFlags))},
	{Name: "dup", RetFD: true, Decode: args(aFD), Ret: retFD},
	{Name: "dup2", RetFD: true, Decode: args(aFD, aFD), Ret: retFD},
	{Name: "dup3", RetFD: true, Decode: args(aFD, aFD, aFileFlags), Ret: retFD},
	{Name: "fcntl", Enter: fcntlIn, Exit: fcntlOut, Decode: fcntl, Ret: fcntlRet},
	{Name: "fcntl64", Enter: fcntlIn, Exit: fcntlOut, Decode: fcntl, Ret: fcntlRet},
	{Name: "flock", Decode: args(aFD, aFlags(constant.FlockOp))},
	{Name: "pipe", Exit: fetches{syscalls.Fixed(0, 8)}, Decode: args(out(func(c *Cx, i int) { c.fdPair(c.Arg[i]) }))},
	{Name: "pipe2", Exit: fetches{syscalls.Fixed(0, 8)}, Decode: args(out(func(c *Cx, i int) { c.fdPair(c.Arg[i]) }), aFlags(constant.PipeFlags))},
	{Name: "eventfd", RetFD: true, Decode: args(aUint), Ret: retFD},
	{Name: "eventfd2", RetFD: true, Decode: args(aUint, aFlags(constant.EventfdFlags)), Ret: retFD},
	{Name: "memfd_create", RetFD: true, Enter: fetches{{Kind: syscalls.FetchString, Base: syscalls.Arg(0), Len: syscalls.Length{Max: memfdNameMax + 1}}},
		Decode: args(func(c *Cx, i int) { c.textN(In, c.Arg[i], memfdNameMax) }, aMemfdFlags), Ret: retFD},
	{Name: "getdents", Exit: fetches{syscalls.Vec(1, syscalls.Ret(), 1, 32768)}, Decode: args(aFD, out(func(c *Cx, i int) { c.dents(i, false) }), aUint)},
	{Name: "getdents64", Exit: fetches{syscalls.Vec(1, syscalls.Ret(), 1, 32768)}, Decode: args(aFD, out(func(c *Cx, i int) { c.dents(i, true) }), aUint)},
	{Name: "inotify_init", RetFD: true, Decode: args(), Ret: retFD},
	{Name: "inotify_init1", RetFD: true, Decode: args(aFlags(constant.InotifyFlags)), Ret: retFD},
	{Name: "inotify_add_watch", Enter: path1, Decode: args(aFD, aPath, aFlags(constant.InotifyMask))},
	{Name: "inotify_rm_watch", Decode: args(aFD, aInt)},
}

const memfdNameMax = 250 // MFD_NAME_MAX_LEN with its NUL, mm/memfd.c

// aMemfdFlags shows the size of huge pages as the macro builds it: 21<<MFD_HUGE_SHIFT.
func aMemfdFlags(c *Cx, i int) {
	v := uint64(uint32(c.Arg[i]))
	const shift, mask = 26, 0x3f
	huge := v >> shift & mask
	if huge == 0 {
		c.Flags(v, constant.MemfdFlags)
		return
	}
	rest := v &^ (mask << shift)
	c.beginFlags(v)
	if rest != 0 {
		c.moreFlags(rest, constant.MemfdFlags)
	}
	c.expr("<<")
	c.Uint(huge)
	c.Sym("MFD_HUGE_SHIFT", shift)
	c.End()
	c.End()
}

// dents shows the entries of a directory that a call returned: their number, or all of them with Verbose.
func (c *Cx) dents(i int, wide bool) {
	addr := c.Arg[i]
	if c.Failed() {
		c.Ptr(addr)
		return
	}
	if c.Ret == 0 {
		if c.Opt.Abbrev {
			c.Ptr(addr)
			c.countNote(0)
		} else {
			c.Array()
			c.End()
		}
		return
	}
	b, _, errno := c.Mem(Out, addr, int(c.Ret))
	if b == nil {
		c.Unreadable(addr, errno)
		return
	}
	w := 8
	if !wide {
		w = c.ABI.PtrSize
		if c.ABI.Name == "x32" {
			w = 8
		}
	}
	head := 2*w + 2
	if wide {
		head = 19
	}
	if c.Opt.Abbrev {
		n := 0
		for len(b) >= head {
			size := int(U16(b, 2*w))
			if size < head || size > len(b) {
				break
			}
			n++
			b = b[size:]
		}
		c.Ptr(addr)
		c.countNote(n)
		return
	}
	c.Array()
	for len(b) >= head {
		size := int(U16(b, 2*w))
		if size < head || size > len(b) {
			break
		}
		e := b[:size]
		c.Struct()
		c.Field("d_ino").Uint(peek(e, 0, w))
		c.Field("d_off").Int(int64(peek(e, w, w)))
		c.Field("d_reclen").Uint(uint64(size))
		name := e[head:]
		if wide {
			c.Field("d_type")
			c.Name(uint64(e[18]), constant.DirentType)
		}
		if k := bytes.IndexByte(name, 0); k >= 0 {
			name = name[:k]
		}
		c.Field("d_name").Add(event.Node{Kind: event.KindString, Data: name, Attr: event.AttrPath})
		if !wide {
			c.Field("d_type")
			c.Name(uint64(e[size-1]), constant.DirentType)
		}
		c.End()
		b = b[size:]
	}
	c.End()
}

// countNote explains how many entries there are.
func (c *Cx) countNote(n int) {
	text := strconv.AppendInt(nil, int64(n), 10)
	text = append(text, " entries"...)
	if n == 1 {
		text = text[:len(text)-3]
		text = append(text, 'y')
	}
	c.Add(event.Node{Kind: event.KindNote, Data: text})
}
