package decode

import (
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// openTail adds flags from argument i on, and the mode behind them when it counts.
func openTail(c *Cx, i int) {
	aOpenFlags(c, i)
	if needsMode(c.Arg[i]) {
		aUmode(c, i+1)
	}
}

var (
	aAtFlags  = aFlags(constant.AtFlags)
	path0     = fetches{path(0)}
	path1     = fetches{path(1)}
	paths01   = fetches{path(0), path(1)}
	paths13   = fetches{path(1), path(3)}
	onePath   = args(aPath)
	pathMode  = args(aPath, aUmode)
	pathOwner = args(aPath, aOwner, aOwner)
	fdOwner   = args(aFD, aOwner, aOwner)
)

// aOwner is a user or group id; -1 leaves it as it is. Calls of old 32-bit ABIs have 16 bits.
func aOwner(c *Cx, i int) {
	v := c.Arg[i]
	if c.Def != nil && i < len(c.Def.Args) && (c.Def.Args[i].Type == "old_uid_t" || c.Def.Args[i].Type == "old_gid_t") {
		if uint16(v) == 0xffff {
			c.Int(-1)
			return
		}
		c.Uint(uint64(uint16(v)))
		return
	}
	c.userID(v)
}

// readlinkBuf is text without a NUL.
func readlinkBuf(i int) arg {
	return out(func(c *Cx, _ int) { c.Buffer(Out, c.Arg[i], c.Ret) })
}

func utimes(c *Cx, i int, fraction string) {
	addr := c.Arg[i]
	w := c.clockWord()
	c.obj(In, addr, 4*w, func(c *Cx, b []byte) {
		c.Array()
		for k := range 2 {
			p := b[k*2*w : (k+1)*2*w]
			if frac := peek(p, w, w); fraction == "tv_nsec" && (frac == utimeNow || frac == utimeOmit) {
				if frac == utimeNow {
					c.Sym("UTIME_NOW", frac)
				} else {
					c.Sym("UTIME_OMIT", frac)
				}
				continue
			}
			c.timespecOf(p, fraction)
			sec, frac := int64(peek(p, 0, w)), peek(p, w, w)
			if w == 4 {
				sec = int64(int32(sec))
			}
			if fraction == "tv_usec" {
				c.dateMicro(sec, frac)
			} else {
				c.date(sec, frac)
			}
		}
		c.End()
	})
}

const utimeNow, utimeOmit = 0x3fffffff, 0x3ffffffe // include/linux/stat.h

// fileCalls name files.
var fileCalls = []Spec{
	{Name: "open", RetFD: true, Enter: path0, Decode: func(c *Cx) { aPath(c, 0); openTail(c, 1) }, Ret: retFD},
	{Name: "openat", RetFD: true, Enter: path1, Decode: func(c *Cx) { aDirFD(c, 0); aPath(c, 1); openTail(c, 2) }, Ret: retFD},
	{Name: "creat", RetFD: true, Enter: path0, Decode: pathMode, Ret: retFD},
	{Name: "openat2", RetFD: true, Enter: fetches{path(1), syscalls.Vec(2, syscalls.Arg(3), 1, pageSize)}, Decode: openat2, Ret: retFD},
	{Name: "access", Enter: path0, Decode: args(aPath, aFlags(constant.AccessMode))},
	{Name: "faccessat", Enter: path1, Decode: args(aDirFD, aPath, aFlags(constant.AccessMode))},
	{Name: "faccessat2", Enter: path1, Decode: args(aDirFD, aPath, aFlags(constant.AccessMode), aFlags(constant.FaccessatFlags))},
	{Name: "chmod", Enter: path0, Decode: pathMode},
	{Name: "fchmod", Decode: args(aFD, aUmode)},
	{Name: "fchmodat", Enter: path1, Decode: args(aDirFD, aPath, aUmode)},
	{Name: "fchmodat2", Enter: path1, Decode: args(aDirFD, aPath, aUmode, aFlags(constant.XattrAtFlags))},
	{Name: "chown", Enter: path0, Decode: pathOwner}, {Name: "lchown", Enter: path0, Decode: pathOwner},
	{Name: "chown32", Enter: path0, Decode: pathOwner}, {Name: "lchown32", Enter: path0, Decode: pathOwner},
	{Name: "fchown", Decode: fdOwner}, {Name: "fchown32", Decode: fdOwner},
	{Name: "fchownat", Enter: path1, Decode: args(aDirFD, aPath, aOwner, aOwner, aAtFlags)},
	{Name: "link", Enter: paths01, Decode: args(aPath, aPath)},
	{Name: "linkat", Enter: paths13, Decode: args(aDirFD, aPath, aDirFD, aPath, aAtFlags)},
	{Name: "symlink", Enter: paths01, Decode: args(aPath, aPath)},
	{Name: "symlinkat", Enter: fetches{path(0), path(2)}, Decode: args(aPath, aDirFD, aPath)},
	{Name: "readlink", Enter: path0, Exit: fetches{syscalls.Buf(1, syscalls.Ret())}, Decode: args(aPath, readlinkBuf(1), aUlong)},
	{Name: "readlinkat", Enter: path1, Exit: fetches{syscalls.Buf(2, syscalls.Ret())}, Decode: args(aDirFD, aPath, readlinkBuf(2), aUlong)},
	{Name: "rename", Enter: paths01, Decode: args(aPath, aPath)},
	{Name: "renameat", Enter: paths13, Decode: args(aDirFD, aPath, aDirFD, aPath)},
	{Name: "renameat2", Enter: paths13, Decode: args(aDirFD, aPath, aDirFD, aPath, aFlags(constant.RenameFlags))},
	{Name: "unlink", Enter: path0, Decode: onePath}, {Name: "rmdir", Enter: path0, Decode: onePath},
	{Name: "unlinkat", Enter: path1, Decode: args(aDirFD, aPath, aAtFlags)},
	{Name: "mkdir", Enter: path0, Decode: pathMode},
	{Name: "mkdirat", Enter: path1, Decode: args(aDirFD, aPath, aUmode)},
	{Name: "mknod", Enter: path0, Decode: func(c *Cx) { aPath(c, 0); nodeTail(c, 1) }},
	{Name: "mknodat", Enter: path1, Decode: func(c *Cx) { aDirFD(c, 0); aPath(c, 1); nodeTail(c, 2) }},
	{Name: "umask", Decode: args(aUmode), Ret: func(c *Cx) { c.Oct(uint64(c.Ret)) }},
	{Name: "chdir", Enter: path0, Decode: onePath}, {Name: "chroot", Enter: path0, Decode: onePath},
	{Name: "fchdir", Decode: args(aFD)},
	{Name: "pivot_root", Enter: paths01, Decode: args(aPath, aPath)},
	{Name: "getcwd", Exit: fetches{{Kind: syscalls.FetchString, Base: syscalls.Arg(0), Len: syscalls.Length{Max: syscalls.PathMax}}},
		Decode: args(out(func(c *Cx, i int) { c.PathAt(Out, c.Arg[i]) }), aUlong)},
	{Name: "utime", Enter: fetches{path(0), syscalls.Fixed(1, 16)}, Decode: args(aPath, func(c *Cx, i int) {
		w := c.ABI.PtrSize
		c.obj(In, c.Arg[i], 2*w, func(c *Cx, b []byte) {
			c.Struct()
			for k, n := range [...]string{"actime", "modtime"} {
				sec := int64(peek(b, k*w, w))
				c.Field(n).Int(sec)
				c.date(sec, 0)
			}
			c.End()
		})
	})},
	{Name: "utimes", Enter: fetches{path(0), pairAt(1, 2)}, Decode: args(aPath, func(c *Cx, i int) { utimes(c, i, "tv_usec") })},
	{Name: "futimesat", Enter: fetches{path(1), pairAt(2, 2)}, Decode: args(aDirFD, aPath, func(c *Cx, i int) { utimes(c, i, "tv_usec") })},
	{Name: "utimensat", Enter: fetches{path(1), pairAt(2, 2)}, Decode: args(aDirFD, aPath, func(c *Cx, i int) { utimes(c, i, "tv_nsec") }, aAtFlags)},
	{Name: "utimensat_time64", Enter: fetches{path(1), pairAt(2, 2)}, Decode: args(aDirFD, aPath, func(c *Cx, i int) { utimes(c, i, "tv_nsec") }, aAtFlags)},
	{Name: "mount", Enter: fetches{path(0), path(1), syscalls.Str(2), syscalls.Str(4)}, Decode: mount},
	{Name: "umount2", Enter: path0, Decode: args(aPath, aFlags(constant.UmountFlags))},
	{Name: "umount", Enter: path0, Decode: onePath},
	{Name: "swapoff", Enter: path0, Decode: onePath},
}

func openat2(c *Cx) {
	aDirFD(c, 0)
	aPath(c, 1)
	size := c.Arg[3]
	if size < 24 { // OPEN_HOW_SIZE_VER0
		c.Ptr(c.Arg[2])
	} else {
		c.obj(In, c.Arg[2], 24, func(c *Cx, b []byte) {
			c.Struct()
			flags, mode := U64(b, 0), U64(b, 8)
			c.Field("flags")
			c.OpenFlags(flags)
			if mode != 0 || needsMode(flags) {
				c.Field("mode").Oct(mode)
			}
			c.Field("resolve")
			c.Flags(U64(b, 16), constant.ResolveFlags)
			c.tail(In, c.Arg[2], 24, min(size, pageSize))
			c.End()
		})
	}
	c.Uint(size)
}

func nodeTail(c *Cx, i int) {
	mode := uint64(uint16(c.Arg[i]))
	c.Mode(mode)
	if t := mode & sIFMT; t == sIFCHR || t == sIFBLK {
		c.Dev(uint64(uint32(c.Arg[i+1])))
	}
}

const mgcVal, mgcMask = 0xc0ed0000, 0xffff0000 // MS_MGC_VAL, MS_MGC_MSK

func mount(c *Cx) {
	aPath(c, 0)
	aPath(c, 1)
	flags := c.Arg[3]
	const remount, bind, move, propagation = 1 << 5, 1 << 12, 1 << 13, 1<<17 | 1<<18 | 1<<19 | 1<<20
	old := flags&mgcMask == mgcVal // the magic of old programs, not flags
	ignoreType := !old && flags&(remount|bind|move|propagation) != 0
	if ignoreType {
		c.Ptr(c.Arg[2])
	} else {
		c.Text(In, c.Arg[2])
	}
	if old {
		at := c.Len()
		c.expr("|")
		c.Sym("MS_MGC_VAL", mgcVal)
		if rest := flags &^ mgcMask; rest != 0 {
			c.Flags(rest, constant.MountFlags)
		}
		c.endExpr(at)
	} else {
		c.Flags(flags, constant.MountFlags)
	}
	if !old && flags&(bind|move|propagation) != 0 {
		c.Ptr(c.Arg[4])
	} else {
		c.Text(In, c.Arg[4])
	}
}
