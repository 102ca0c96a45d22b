package decode

import (
	"bytes"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Sizes and bits of include/uapi/linux/mount.h.
const (
	mountAttrSize                = 32 // MOUNT_ATTR_SIZE_VER0
	mountAttrIdmap               = 0x100000
	mntIDReqSize0, mntIDReqSize1 = 24, 32
	statmountSize                = 512 // struct statmount without its strings
	statmountMax                 = statmountSize + 4096
)

const (
	statmountSbBasic = 1 << iota
	statmountMntBasic
	statmountPropagateFrom
	statmountMntRoot
	statmountMntPoint
	statmountFsType
	statmountMntNsID
	statmountMntOpts
	statmountFsSubtype
	statmountSbSource
	statmountOptArray
	statmountOptSecArray
	statmountSupportedMask
	statmountUidmap
	statmountGidmap
)

// Commands of fsconfig(2), enum fsconfig_command.
const (
	fsconfigSetFlag = iota
	fsconfigSetString
	fsconfigSetBinary
	fsconfigSetPath
	fsconfigSetPathEmpty
	fsconfigSetFD
)

const fsconfigText = 256 // what the kernel takes of a key or a text, fs/fsopen.c

// mountAttr adds struct mount_attr of argument i, whose size is the next argument.
func mountAttr(c *Cx, i int) {
	addr, size := c.Arg[i], c.Arg[i+1]
	if size < mountAttrSize {
		c.Ptr(addr)
	} else {
		c.obj(In, addr, mountAttrSize, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.flags("attr_set", 8, constant.MountAttr)
			f.flags("attr_clr", 8, constant.MountAttr)
			f.enum("propagation", 8, constant.MountPropagation)
			fd := f.num(8)
			c.Field("userns_fd")
			if (U64(b, 0)|U64(b, 8))&mountAttrIdmap == 0 || fd > 1<<31-1 {
				c.Uint(fd)
			} else {
				c.FD(fd)
			}
			c.tail(In, addr, mountAttrSize, min(size, pageSize))
			f.end()
		})
	}
	c.Uint(size)
}

func fsconfig(c *Cx) {
	cmd, key, value, aux := uint32(c.Arg[1]), c.Arg[2], c.Arg[3], c.Arg[4]
	c.FD(c.Arg[0])
	c.Name(uint64(cmd), constant.FsconfigCmd)
	if cmd <= fsconfigSetFD {
		c.text(In, key, fsconfigText, event.AttrPath)
	} else {
		c.Ptr(key)
	}
	switch n := int32(aux); {
	case cmd == fsconfigSetString:
		c.text(In, value, fsconfigText, event.AttrPath)
	case cmd == fsconfigSetPath, cmd == fsconfigSetPathEmpty:
		c.PathAt(In, value)
	case cmd == fsconfigSetBinary && n >= 0 && n <= 1<<20:
		c.blob(In, value, uint64(n)) // cut at the string limit
	default:
		c.Ptr(value)
	}
	switch cmd {
	case fsconfigSetPath, fsconfigSetPathEmpty:
		c.DirFD(aux)
	case fsconfigSetFD:
		c.FD(aux)
	default:
		c.Int(int64(int32(aux)))
	}
}

// mntIDReq adds struct mnt_id_req of argument 0; list says that it is that of listmount(2).
func mntIDReq(c *Cx, list bool) {
	addr := c.Arg[0]
	c.obj(In, addr, 4, func(c *Cx, b []byte) {
		size := uint64(U32(b, 0))
		c.Struct()
		defer c.End()
		c.Field("size").Uint(size)
		if size < mntIDReqSize0 {
			return
		}
		n := min(size, mntIDReqSize1)
		b, _ = c.Bytes(In, addr, int(n))
		if b == nil {
			c.Add(event.Node{Kind: event.KindUnreadable})
			return
		}
		f := c.at(b, 4)
		f.fd("mnt_ns_fd")
		if list {
			id := f.num(8)
			c.Field("mnt_id")
			if id == 1<<64-1 {
				c.Sym("LSMT_ROOT", id)
			} else {
				c.Hex(id)
			}
			f.x8("param")
		} else {
			f.x8("mnt_id")
			f.flags("param", 8, constant.StatmountMask)
		}
		if size >= mntIDReqSize1 {
			f.x8("mnt_ns_id")
		}
		c.tail(In, addr, mntIDReqSize1, min(size, pageSize))
	})
}

// statmountStrings reads the text behind a struct statmount.
type statmountStrings struct {
	c *Cx
	b []byte
}

// one adds the text at an offset, or the offset when it is out of bounds.
func (s statmountStrings) one(name string, off uint64) {
	s.c.Field(name)
	if off >= uint64(len(s.b)) {
		s.c.Hex(off)
		return
	}
	s.c.cstring(s.b[off:])
}

// many adds n texts, one behind the other.
func (s statmountStrings) many(name string, off, n uint64) {
	c := s.c
	c.Field(name)
	if off >= uint64(len(s.b)) {
		c.Hex(off)
		return
	}
	b := s.b[off:]
	c.Array()
	for i := uint64(0); i < n; i++ {
		if c.Opt.Abbrev && i >= uint64(c.limit()) {
			c.More()
			break
		}
		if len(b) == 0 {
			c.Add(event.Node{Kind: event.KindUnreadable})
			break
		}
		c.cstring(b)
		end := bytes.IndexByte(b, 0)
		if end < 0 {
			end = len(b) - 1
		}
		b = b[end+1:]
	}
	c.End()
}

// statmountOut adds struct statmount of argument 1: the members that its mask says are there.
func statmountOut(c *Cx, i int) {
	addr, size := c.Arg[i], c.Arg[i+1]
	if size < 4 {
		c.Ptr(addr)
		return
	}
	b, ok := c.Load(Out, addr, int(min(size, statmountSize)))
	if !ok {
		return
	}
	used := uint64(U32(b, 0))
	text := statmountStrings{c: c}
	if used > statmountSize && used <= size {
		all, _, _ := c.Mem(Out, addr, int(min(used, statmountMax)))
		if len(all) > statmountSize {
			text.b = all[statmountSize:]
		}
	}
	f := c.begin(b)
	defer f.end()
	f.u4("size")
	opts, mask := f.num(4), peek(b, 8, 8)
	has := func(bit uint64) bool { return mask&bit != 0 }
	number := func(off, width int) uint64 { return peek(b, off, width) }
	hex := func(name string, off, width int) { c.Field(name).Hex(number(off, width)) }
	if has(statmountMntOpts) {
		text.one("mnt_opts", opts)
	}
	f.flags("mask", 8, constant.StatmountMask)
	if has(statmountSbBasic) {
		f.u4("sb_dev_major")
		f.u4("sb_dev_minor")
		magic := f.num(8)
		c.Field("sb_magic")
		if name, ok := constant.FsMagic.Name(magic); ok {
			c.Sym(name, magic)
		} else {
			c.Hex(magic)
		}
		f.flags("sb_flags", 4, constant.SuperblockFlags)
	}
	if has(statmountFsType) {
		text.one("fs_type", number(36, 4))
	}
	if has(statmountMntBasic) {
		hex("mnt_id", 40, 8)
		hex("mnt_parent_id", 48, 8)
		hex("mnt_id_old", 56, 4)
		hex("mnt_parent_id_old", 60, 4)
		f.off = 64
		f.flags("mnt_attr", 8, constant.MountAttr)
		f.flags("mnt_propagation", 8, constant.MountPropagationFlags)
		hex("mnt_peer_group", 80, 8)
		hex("mnt_master", 88, 8)
	}
	if has(statmountPropagateFrom) {
		hex("propagate_from", 96, 8)
	}
	if has(statmountMntRoot) {
		text.one("mnt_root", number(104, 4))
	}
	if has(statmountMntPoint) {
		text.one("mnt_point", number(108, 4))
	}
	if has(statmountMntNsID) {
		hex("mnt_ns_id", 112, 8)
	}
	if has(statmountFsSubtype) {
		text.one("fs_subtype", number(120, 4))
	}
	if has(statmountSbSource) {
		text.one("sb_source", number(124, 4))
	}
	lists := [...]struct {
		bit         uint64
		count, name string
		off         int
	}{
		{statmountOptArray, "opt_num", "opt_array", 128},
		{statmountOptSecArray, "opt_sec_num", "opt_sec_array", 136},
		{statmountSupportedMask, "", "supported_mask", 144},
		{statmountUidmap, "mnt_uidmap_num", "mnt_uidmap", 152},
		{statmountGidmap, "mnt_gidmap_num", "mnt_gidmap", 160},
	}
	for _, l := range lists {
		switch {
		case !has(l.bit):
		case l.count == "":
			c.Field(l.name)
			c.Flags(number(l.off, 8), constant.StatmountMask)
		default:
			n := number(l.off, 4)
			c.Field(l.count).Uint(n)
			text.many(l.name, number(l.off+4, 4), n)
		}
	}
}

func listmountOut(c *Cx, i int) {
	n := c.Arg[i+1]
	if c.Ret >= 0 {
		n = min(n, uint64(c.Ret))
	}
	c.list(Out, c.Arg[i], n, 8, hexNumber)
}

var (
	openTreeArgs = args(aDirFD, aPath, aFlags(constant.OpenTreeFlags))
	setattrArgs  = args(aDirFD, aPath, aFlags(constant.MountSetattrFlags))
	mountAttrIn  = fetches{path(1), syscalls.Vec(3, syscalls.Arg(4), 1, pageSize)}
	mntIDReqIn   = fetches{syscalls.Fixed(0, mntIDReqSize1),
		{Kind: syscalls.FetchBytes, Base: syscalls.Arg(0), Len: syscalls.Length{Number: syscalls.Mem(0, 0, 4), Max: pageSize}}}
)

// mountCalls are the calls that make, look at and change mounts through descriptors.
var mountCalls = []Spec{
	{Name: "open_tree", RetFD: true, Enter: path1, Decode: openTreeArgs, Ret: retFD},
	{Name: "open_tree_attr", RetFD: true, Enter: mountAttrIn, Decode: func(c *Cx) { openTreeArgs(c); mountAttr(c, 3) }, Ret: retFD},
	{Name: "mount_setattr", Enter: mountAttrIn, Decode: func(c *Cx) { setattrArgs(c); mountAttr(c, 3) }},
	{Name: "move_mount", Enter: paths13, Decode: args(aDirFD, aPath, aDirFD, aPath, aFlags(constant.MoveMountFlags))},
	{Name: "fsopen", RetFD: true, Enter: fetches{syscalls.Str(0)}, Decode: args(aText, aFlags(constant.FsopenFlags)), Ret: retFD},
	{Name: "fsmount", RetFD: true, Decode: args(aFD, aFlags(constant.FsmountFlags), aFlags(constant.FsmountAttr)), Ret: retFD},
	{Name: "fspick", RetFD: true, Enter: path1, Decode: args(aDirFD, aPath, aFlags(constant.FspickFlags)), Ret: retFD},
	{Name: "fsconfig", Enter: fetches{
		syscalls.Fetch{Kind: syscalls.FetchString, Base: syscalls.Arg(2), Len: syscalls.Length{Max: fsconfigText + 1}}.If(1, 0, 1, 2, 3, 4, 5),
		syscalls.Fetch{Kind: syscalls.FetchString, Base: syscalls.Arg(3), Len: syscalls.Length{Max: fsconfigText + 1}}.If(1, fsconfigSetString),
		path(3).If(1, fsconfigSetPath, fsconfigSetPathEmpty),
		syscalls.Buf(3, syscalls.Arg(4)).If(1, fsconfigSetBinary),
	}, Decode: fsconfig},
	{Name: "statmount", Enter: mntIDReqIn, Exit: fetches{syscalls.Vec(1, syscalls.Arg(2), 1, statmountMax)}, Decode: func(c *Cx) {
		mntIDReq(c, false)
		if c.Exited {
			statmountOut(c, 1)
			c.Uint(c.Arg[2])
			c.Flags(uint64(uint32(c.Arg[3])), constant.StatmountFlags)
		}
	}},
	{Name: "listmount", Enter: mntIDReqIn, Exit: fetches{syscalls.Vec(1, syscalls.Ret(), 8, 8*512)}, Decode: func(c *Cx) {
		mntIDReq(c, true)
		if c.Exited {
			listmountOut(c, 1)
			c.Uint(c.Arg[2])
			c.Flags(uint64(uint32(c.Arg[3])), constant.ListmountFlags)
		}
	}},
	{Name: "swapon", Enter: path0, Decode: func(c *Cx) {
		const priority = 0x7fff // SWAP_FLAG_PRIO_MASK, include/linux/swap.h
		aPath(c, 0)
		v := uint64(uint32(c.Arg[1]))
		if v&^priority == 0 {
			c.Uint(v)
			return
		}
		c.beginFlags(v)
		c.moreFlags(v&^priority, constant.SwapFlags)
		c.Uint(v & priority)
		c.End()
	}},
}
