package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Files and file systems (linux/fs.h, linux/fiemap.h), and epoll (linux/eventpoll.h).

const (
	fsIocFiemap   = 0xc020660b
	fsIocShutdown = 0x8004587d
	fsIocTrim     = 0xc0185879

	fsFiemapHead, fsFiemapExtent = 32, 56 // struct fiemap without its extents, struct fiemap_extent
)

// fiemapExtents takes the extents behind the head; fm_mapped_extents says how many there are.
var fiemapExtents = []syscalls.Fetch{{
	Kind: syscalls.FetchBytes, Base: syscalls.Arg(2), Off: fsFiemapHead, When: whenArg(1, fsIocFiemap),
	Len: syscalls.Length{Number: syscalls.Mem(0, 20, 4), Elem: fsFiemapExtent, Max: fsFiemapExtent * 64},
}}

func decodeInodeIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	inode := func(c *Cx, b []byte) { c.Flags(peek(b, 0, 4), constant.InodeFlags) }
	switch cmd {
	case 0x80086601, 0x80046601: // FS_IOC_GETFLAGS: the kernel fills an int, whatever the size in the command says
		return c.ioctlGot(arg, 4, inode)
	case 0x40086602, 0x40046602: // FS_IOC_SETFLAGS
		return c.ioctlInt(arg, 4, inode)
	case 0x80087601, 0x80047601: // FS_IOC_GETVERSION
		return c.ioctlGot(arg, 4, intNumber)
	case 0x40087602, 0x40047602: // FS_IOC_SETVERSION
		return c.ioctlInt(arg, 4, intNumber)
	case fsIocFiemap:
		return c.fiemap(arg)
	}
	return ioctlUnknown
}

// fiemap shows what was asked for and, when the call succeeded, => and the extents.
func (c *Cx) fiemap(arg uint64) ioctlArg {
	b, errno := c.Bytes(In, arg, fsFiemapHead)
	if b == nil {
		c.Unreadable(arg, errno)
		return ioctlShown
	}
	if c.Entering() {
		return ioctlWait
	}
	ask := func() {
		f := c.begin(b)
		f.u8("fm_start")
		f.u8("fm_length")
		f.flags("fm_flags", 4, constant.FiemapFlags)
		f.skip(4).u4("fm_extent_count")
		f.end()
	}
	o, _ := c.Bytes(Out, arg, fsFiemapHead)
	if c.Failed() || o == nil {
		ask()
		return ioctlShown
	}
	c.Begin(event.Node{Kind: event.KindChange})
	ask()
	f := c.begin(o)
	f.skip(16).flags("fm_flags", 4, constant.FiemapFlags)
	mapped := peek(o, 20, 4)
	f.u4("fm_mapped_extents")
	if c.Opt.Abbrev {
		c.More()
	} else {
		c.Field("fm_extents")
		c.list(Out, arg+fsFiemapHead, mapped, fsFiemapExtent, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.u8("fe_logical")
			f.u8("fe_physical")
			f.u8("fe_length")
			f.skip(16).flags("fe_flags", 4, constant.FiemapExtentFlags)
			f.end()
		})
	}
	f.end()
	c.End()
	return ioctlShown
}

func decodeXfsIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	switch cmd {
	case 0x801c581f: // FS_IOC_FSGETXATTR
		return c.ioctlOut(arg, 28, func(c *Cx, b []byte) { c.fsxattr(b, true) })
	case 0x401c5820: // FS_IOC_FSSETXATTR
		return c.ioctlIn(arg, 28, func(c *Cx, b []byte) { c.fsxattr(b, false) })
	case fsIocShutdown: // the caller fills it, whatever the direction in the command says
		return c.ioctlInt(arg, 4, func(c *Cx, b []byte) { c.Name(peek(b, 0, 4), constant.FsShutdownFlags) })
	case fsIocTrim:
		trim := func(c *Cx, b []byte) {
			f := c.begin(b)
			f.x8("start")
			f.u8("len")
			f.u8("minlen")
			f.end()
		}
		return c.ioctlIn(arg, 24, trim)
	}
	return ioctlUnknown
}

// fsxattr adds a struct fsxattr; the number of extents is something only the kernel says.
func (c *Cx) fsxattr(b []byte, got bool) {
	f := c.begin(b)
	f.flags("fsx_xflags", 4, constant.FsXflags)
	f.u4("fsx_extsize")
	if got {
		f.u4("fsx_nextents")
	} else {
		f.skip(4)
	}
	f.x4("fsx_projid")
	f.u4("fsx_cowextsize")
	f.end()
}

func decodeFsIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	switch cmd {
	case 0x80111500: // FS_IOC_GETFSUUID, struct fsuuid2
		return c.ioctlOut(arg, 17, func(c *Cx, b []byte) {
			f := c.begin(b)
			n := int(b[0])
			f.u1("len")
			f.hex("uuid", min(n, 16))
			f.end()
		})
	case 0x80811501: // FS_IOC_GETFSSYSFSPATH, struct fs_sysfs_path
		return c.ioctlOut(arg, 129, func(c *Cx, b []byte) {
			f := c.begin(b)
			n := int(b[0])
			f.u1("len")
			f.text("name", min(n+1, 128))
			f.end()
		})
	case 0xc0101502: // FS_IOC_GETLBMD_CAP, struct logical_block_metadata_cap
		return c.ioctlOut(arg, 16, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.flags("lbmd_flags", 4, constant.LbmdFlags)
			f.u2("lbmd_interval")
			f.u1("lbmd_size")
			f.u1("lbmd_opaque_size")
			f.u1("lbmd_opaque_offset")
			f.u1("lbmd_pi_size")
			f.u1("lbmd_pi_offset")
			f.enum("lbmd_guard_tag_type", 1, constant.LbmdGuardType)
			f.u1("lbmd_app_tag_size")
			f.u1("lbmd_ref_tag_size")
			f.u1("lbmd_storage_tag_size")
			f.end()
		})
	}
	return ioctlUnknown
}

func decodeEpollIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	params := func(c *Cx, b []byte) { // struct epoll_params
		f := c.begin(b)
		usecs := f.num(4)
		c.Field("busy_poll_usecs").Add(event.Node{Kind: event.KindUint, Num: usecs, Sym: secondsText(usecs, 1_000_000, 6)})
		f.u2("busy_poll_budget")
		f.x1("prefer_busy_poll")
		f.nonzero("__pad", 1)
		f.end()
	}
	switch cmd {
	case 0x40088a01: // EPIOCSPARAMS
		return c.ioctlIn(arg, 8, params)
	case 0x80088a02: // EPIOCGPARAMS
		return c.ioctlOut(arg, 8, params)
	}
	return ioctlUnknown
}
