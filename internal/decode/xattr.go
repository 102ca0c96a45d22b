package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

const (
	xattrSizeMax  = 65536 // XATTR_SIZE_MAX, include/uapi/linux/limits.h
	xattrArgsSize = 16    // struct xattr_args, include/uapi/linux/xattr.h
	fileAttrSize  = 24    // FILE_ATTR_SIZE_VER0, include/uapi/linux/fs.h
)

// attrValue adds the value of an extended attribute: most are text, with or without a NUL at the end.
func (c *Cx) attrValue(m Moment, addr uint64, size int64) {
	if size < 0 || size > xattrSizeMax {
		c.Ptr(addr)
		return
	}
	at := len(c.Nodes)
	c.Buffer(m, addr, size)
	if n := &c.Nodes[at]; n.Kind == event.KindBytes && n.Attr&event.AttrTruncated == 0 {
		if last := len(n.Data) - 1; last >= 0 && n.Data[last] == 0 {
			n.Data, n.Num = n.Data[:last], uint64(last)
		}
	}
}

// setxattr adds name, value, size and flags from argument 1 on.
func setxattr(c *Cx) {
	c.Text(In, c.Arg[1])
	c.attrValue(In, c.Arg[2], clampLen(c.Arg[3]))
	c.Uint(c.Arg[3])
	c.Flags(uint64(uint32(c.Arg[4])), constant.XattrFlags)
}

// getxattr is setxattr for a value that comes back; a size of zero asks only how long it is.
func getxattr(c *Cx) {
	c.Text(In, c.Arg[1])
	if c.Arg[3] == 0 {
		c.Ptr(c.Arg[2])
	} else if c.Entering() {
		return
	} else {
		c.attrValue(Out, c.Arg[2], c.Ret)
	}
	c.Uint(c.Arg[3])
}

// attrNames adds a list of names, each with its NUL, and the size of its buffer, from argument i on.
func attrNames(i int) arg {
	return out(func(c *Cx, _ int) {
		if c.Arg[i+1] == 0 || c.Failed() {
			c.Ptr(c.Arg[i])
		} else {
			c.Buffer(Out, c.Arg[i], c.Ret)
		}
		c.Uint(c.Arg[i+1])
	})
}

// xattrArgs adds struct xattr_args of argument 4, whose size is argument 5. The value is shown when it is known.
func xattrArgs(c *Cx, known bool, valueAt Moment) {
	addr, size := c.Arg[4], c.Arg[5]
	if size < xattrArgsSize {
		c.Ptr(addr)
		return
	}
	c.obj(In, addr, xattrArgsSize, func(c *Cx, b []byte) {
		f := c.begin(b)
		value, length := f.num(8), f.num(4)
		c.Field("value")
		switch {
		case !known:
			c.Ptr(value)
		case valueAt == In:
			c.attrValue(In, value, int64(length))
		default:
			c.attrValue(Out, value, c.Ret)
		}
		c.Field("size").Uint(length)
		f.flags("flags", 4, constant.XattrFlags)
		c.tail(In, addr, xattrArgsSize, min(size, pageSize))
		f.end()
	})
}

var xattrAt = args(aDirFD, aPath, aFlags(constant.XattrAtFlags), aText)

func setxattrat(c *Cx) {
	xattrAt(c)
	xattrArgs(c, true, In)
	c.Uint(c.Arg[5])
}

func getxattrat(c *Cx) {
	xattrAt(c)
	b, _ := c.Bytes(In, c.Arg[4], xattrArgsSize)
	wanted := b != nil && c.Arg[5] >= xattrArgsSize && U32(b, 8) != 0
	if wanted && c.Entering() {
		return
	}
	xattrArgs(c, wanted, Out)
	c.Uint(c.Arg[5])
}

// fileAttr adds struct file_attr of argument 2, whose size is argument 3.
func fileAttr(c *Cx, m Moment) {
	addr, size := c.Arg[2], c.Arg[3]
	if size < fileAttrSize || size > pageSize {
		c.Ptr(addr)
	} else if b, ok := c.Load(m, addr, fileAttrSize); ok {
		f := c.begin(b)
		f.flags("fa_xflags", 8, constant.FsXflags)
		f.u4("fa_extsize")
		if extents := f.num(4); m == Out {
			c.Field("fa_nextents").Uint(extents)
		}
		f.x4("fa_projid")
		f.u4("fa_cowextsize")
		c.tail(m, addr, fileAttrSize, min(size, pageSize))
		f.end()
	}
	c.Uint(size)
	c.Flags(uint64(uint32(c.Arg[4])), constant.XattrAtFlags)
}

var (
	xattrSetIn = fetches{path(0), syscalls.Str(1), syscalls.Buf(2, syscalls.Arg(3))}
	xattrGetIn = fetches{path(0), syscalls.Str(1)}
	xattrOut   = fetches{syscalls.Buf(2, syscalls.Ret())}
	xattrNames = fetches{syscalls.Buf(1, syscalls.Ret())}
	xattrAtIn  = fetches{path(1), syscalls.Str(3), syscalls.Vec(4, syscalls.Arg(5), 1, pageSize)}
)

// xattrValue is the value that struct xattr_args in fetch n points to.
func xattrValue(n int, length syscalls.Number) syscalls.Fetch {
	return syscalls.Fetch{Kind: syscalls.FetchBytes, Base: syscalls.Mem(n, 0, 8), Len: syscalls.Length{Number: length}}
}

// xattrCalls are extended attributes and the attributes of inodes.
var xattrCalls = []Spec{
	{Name: "setxattr", Enter: xattrSetIn, Decode: func(c *Cx) { aPath(c, 0); setxattr(c) }},
	{Name: "lsetxattr", Enter: xattrSetIn, Decode: func(c *Cx) { aPath(c, 0); setxattr(c) }},
	{Name: "fsetxattr", Enter: xattrSetIn[1:], Decode: func(c *Cx) { aFD(c, 0); setxattr(c) }},
	{Name: "getxattr", Enter: xattrGetIn, Exit: xattrOut, Decode: func(c *Cx) { aPath(c, 0); getxattr(c) }},
	{Name: "lgetxattr", Enter: xattrGetIn, Exit: xattrOut, Decode: func(c *Cx) { aPath(c, 0); getxattr(c) }},
	{Name: "fgetxattr", Enter: xattrGetIn[1:], Exit: xattrOut, Decode: func(c *Cx) { aFD(c, 0); getxattr(c) }},
	{Name: "listxattr", Enter: path0, Exit: xattrNames, Decode: args(aPath, attrNames(1))},
	{Name: "llistxattr", Enter: path0, Exit: xattrNames, Decode: args(aPath, attrNames(1))},
	{Name: "flistxattr", Exit: xattrNames, Decode: args(aFD, attrNames(1))},
	{Name: "removexattr", Enter: xattrGetIn, Decode: args(aPath, aText)},
	{Name: "lremovexattr", Enter: xattrGetIn, Decode: args(aPath, aText)},
	{Name: "fremovexattr", Enter: xattrGetIn[1:], Decode: args(aFD, aText)},
	{Name: "setxattrat", Enter: append(xattrAtIn[:3:3], xattrValue(2, syscalls.Mem(2, 8, 4))), Decode: setxattrat},
	{Name: "getxattrat", Enter: xattrAtIn, Exit: fetches{syscalls.Fixed(4, xattrArgsSize), xattrValue(0, syscalls.Ret())}, Decode: getxattrat},
	{Name: "listxattrat", Enter: path1, Exit: fetches{syscalls.Buf(3, syscalls.Ret())},
		Decode: args(aDirFD, aPath, aFlags(constant.XattrAtFlags), attrNames(3))},
	{Name: "removexattrat", Enter: fetches{path(1), syscalls.Str(3)}, Decode: xattrAt},
	{Name: "file_getattr", Enter: path1, Exit: fetches{syscalls.Vec(2, syscalls.Arg(3), 1, pageSize)}, Decode: func(c *Cx) {
		aDirFD(c, 0)
		aPath(c, 1)
		if c.Exited {
			fileAttr(c, Out)
		}
	}},
	{Name: "file_setattr", Enter: fetches{path(1), syscalls.Vec(2, syscalls.Arg(3), 1, pageSize)}, Decode: func(c *Cx) {
		aDirFD(c, 0)
		aPath(c, 1)
		fileAttr(c, In)
	}},
}
