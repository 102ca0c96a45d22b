package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

const xattrSizeMax = 65536 // XATTR_SIZE_MAX, include/uapi/linux/limits.h

// xattrValue adds the value of an attribute; a NUL at its end is not shown.
func (c *Cx) xattrValue(m Moment, addr uint64, size int64) {
	if addr == 0 || size < 0 || size > xattrSizeMax {
		c.Ptr(addr)
		return
	}
	at := len(c.Nodes)
	c.Buffer(m, addr, size)
	if at < len(c.Nodes) && c.Nodes[at].Kind == event.KindBytes && c.Nodes[at].Attr&event.AttrTruncated == 0 {
		if d := c.Nodes[at].Data; len(d) > 0 && d[len(d)-1] == 0 {
			c.Nodes[at].Data = d[:len(d)-1]
		}
	}
}

// setxattr adds name, value, size and flags from argument i on.
func setxattr(i int) func(c *Cx) {
	return func(c *Cx) {
		c.Text(In, c.Arg[i])
		c.xattrValue(In, c.Arg[i+1], clampLen(c.Arg[i+2]))
		c.Uint(c.Arg[i+2])
		c.Flags(uint64(uint32(c.Arg[i+3])), constant.XattrFlags)
	}
}

// getxattr adds name, value and size.
func getxattr(i int) func(c *Cx) {
	return func(c *Cx) {
		c.Text(In, c.Arg[i])
		if c.Entering() {
			return
		}
		if c.Failed() || c.Arg[i+2] == 0 {
			c.Ptr(c.Arg[i+1])
		} else {
			c.xattrValue(Out, c.Arg[i+1], c.Ret)
		}
		c.Uint(c.Arg[i+2])
	}
}

// listxattr adds the list and its size.
func listxattr(i int) func(c *Cx) {
	return func(c *Cx) {
		if c.Entering() {
			return
		}
		if c.Failed() || c.Arg[i+1] == 0 {
			c.Ptr(c.Arg[i])
		} else {
			c.Buffer(Out, c.Arg[i], c.Ret)
		}
		c.Uint(c.Arg[i+1])
	}
}

// both runs first on argument 0 and then the rest.
func both(first arg, rest func(*Cx)) func(*Cx) {
	return func(c *Cx) { first(c, 0); rest(c) }
}

func xattrSet(i int) fetches { return fetches{syscalls.Str(i), syscalls.Buf(i+1, syscalls.Arg(i+2))} }

var (
	xattrOut    = fetches{syscalls.Buf(2, syscalls.Ret())}
	xattrListed = fetches{syscalls.Buf(1, syscalls.Ret())}
	nameOnly    = func(c *Cx) { c.Text(In, c.Arg[1]) }
	xattrPath   = append(fetches{path(0)}, xattrSet(1)...)
	xattrNamed  = fetches{path(0), syscalls.Str(1)}
	xattrFDName = fetches{syscalls.Str(1)}
)

var xattrCalls = []Spec{
	{Name: "setxattr", Enter: xattrPath, Decode: both(aPath, setxattr(1))},
	{Name: "lsetxattr", Enter: xattrPath, Decode: both(aPath, setxattr(1))},
	{Name: "fsetxattr", Enter: xattrSet(1), Decode: both(aFD, setxattr(1))},
	{Name: "getxattr", Enter: xattrNamed, Exit: xattrOut, Decode: both(aPath, getxattr(1))},
	{Name: "lgetxattr", Enter: xattrNamed, Exit: xattrOut, Decode: both(aPath, getxattr(1))},
	{Name: "fgetxattr", Enter: xattrFDName, Exit: xattrOut, Decode: both(aFD, getxattr(1))},
	{Name: "listxattr", Enter: path0, Exit: xattrListed, Decode: both(aPath, listxattr(1))},
	{Name: "llistxattr", Enter: path0, Exit: xattrListed, Decode: both(aPath, listxattr(1))},
	{Name: "flistxattr", Exit: xattrListed, Decode: both(aFD, listxattr(1))},
	{Name: "removexattr", Enter: xattrNamed, Decode: both(aPath, nameOnly)},
	{Name: "lremovexattr", Enter: xattrNamed, Decode: both(aPath, nameOnly)},
	{Name: "fremovexattr", Enter: xattrFDName, Decode: both(aFD, nameOnly)},
}
