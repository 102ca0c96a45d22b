package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

const (
	fanClassMask   = 0xc // FAN_ALL_CLASS_BITS, include/uapi/linux/fanotify.h
	maxHandleSize  = 128 // MAX_HANDLE_SZ, include/linux/exportfs.h
	handleHeadSize = 8   // struct file_handle without f_handle, include/linux/fs.h
	eOVERFLOW      = 75
)

func aFanInit(c *Cx, i int) {
	v := uint64(uint32(c.Arg[i]))
	if v&^fanClassMask == 0 {
		c.Name(v, constant.FanClass)
		return
	}
	c.beginFlags(v)
	c.Name(v&fanClassMask, constant.FanClass)
	c.moreFlags(v&^fanClassMask, constant.FanInitFlags)
	c.End()
}

// fanotifyMark has a 64-bit mask: one register, or two on ABIs with 4-byte registers.
func fanotifyMark(c *Cx) {
	c.FD(c.Arg[0])
	c.Flags(uint64(uint32(c.Arg[1])), constant.FanMarkFlags)
	mask, next := c.Arg[2], 3
	if c.Ptr32() && c.ABI.Name != "x32" {
		mask, next = c.Arg[2]&(1<<32-1)|c.Arg[3]<<32, 4
	}
	c.Flags(mask, constant.FanEvents)
	if dir := c.Arg[next]; int32(dir) == -1 {
		c.Add(event.Node{Kind: event.KindSym, Sym: "FAN_NOFD", Num: 1<<64 - 1, Attr: event.AttrDecimal})
	} else {
		c.DirFD(dir)
	}
	c.PathAt(In, c.Arg[next+1])
}

// handleBytes adds the opaque part of a file handle of n bytes at addr.
func (c *Cx) handleBytes(m Moment, addr, n uint64) {
	take := min(n, maxHandleSize)
	b, _ := c.Bytes(m, addr+handleHeadSize, int(take))
	c.Field("f_handle")
	if b == nil && take > 0 {
		c.Add(event.Node{Kind: event.KindUnreadable})
		return
	}
	node := event.Node{Kind: event.KindBytes, Data: b, Num: n, Attr: event.AttrHex | event.AttrPath}
	if n > take {
		node.Attr |= event.AttrTruncated
	}
	c.Add(node)
}

func nameToHandle(c *Cx) {
	c.DirFD(c.Arg[0])
	c.PathAt(In, c.Arg[1])
	addr := c.Arg[2]
	in, errno := c.Bytes(In, addr, handleHeadSize)
	switch {
	case in == nil:
		c.Unreadable(addr, errno)
		c.Ptr(c.Arg[3])
	case c.Entering():
		return
	default:
		c.Struct()
		size := uint64(U32(in, 0))
		c.Field("handle_bytes")
		var got []byte
		if !c.Failed() || c.Errno() == eOVERFLOW {
			got, _ = c.Bytes(Out, addr, handleHeadSize)
		}
		if got == nil {
			c.Uint(size)
		} else {
			c.change(size, uint64(U32(got, 0)), c.Uint)
			if !c.Failed() {
				c.Field("handle_type").Int(I32(got, 4))
				c.handleBytes(Out, addr, uint64(U32(got, 0)))
			}
		}
		c.End()
		c.ref(Out, c.Arg[3], 4, intNumber)
	}
	c.Flags(uint64(uint32(c.Arg[4])), constant.HandleFlags)
}

func openByHandle(c *Cx) {
	c.FD(c.Arg[0])
	addr := c.Arg[1]
	c.obj(In, addr, handleHeadSize, func(c *Cx, b []byte) {
		f := c.begin(b)
		f.u4("handle_bytes")
		f.i4("handle_type")
		c.handleBytes(In, addr, uint64(U32(b, 0)))
		f.end()
	})
	aOpenFlags(c, 2)
}

// handleAt takes a file handle: its head is fetch n, the rest as long as that says.
func handleAt(arg, n int) fetches {
	return fetches{syscalls.Fixed(arg, handleHeadSize), {Kind: syscalls.FetchBytes, Base: syscalls.Arg(arg), Off: handleHeadSize,
		Len: syscalls.Length{Number: syscalls.Mem(n, 0, 4), Max: maxHandleSize}}}
}

// aSecretFlags are flags of memfd_secret(2): those without a name have no prefix either.
func aSecretFlags(c *Cx, i int) {
	at := c.Len()
	c.Flags(uint64(uint32(c.Arg[i])), constant.DupFlags)
	if n := &c.Nodes[at]; n.Kind == event.KindHex {
		n.Sym = ""
	}
}

// notifyCalls watch file systems, and name files without a path.
var notifyCalls = []Spec{
	{Name: "fanotify_init", RetFD: true, Decode: args(aFanInit, aOpenFlags), Ret: retFD},
	{Name: "fanotify_mark", Enter: fetches{path(4)}, Enter32: fetches{path(5), path(4)}, Decode: fanotifyMark},
	{Name: "name_to_handle_at", Enter: fetches{path(1), syscalls.Fixed(2, handleHeadSize)},
		Exit: append(handleAt(2, 0), syscalls.Fixed(3, 8)), Decode: nameToHandle},
	{Name: "open_by_handle_at", RetFD: true, Enter: handleAt(1, 0), Decode: openByHandle, Ret: retFD},
	{Name: "memfd_secret", RetFD: true, Decode: args(aSecretFlags), Ret: retFD},
}
