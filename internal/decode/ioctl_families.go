package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// An ioctlFamily decodes the arguments of the ioctl(2) commands that share a type letter (_IOC_TYPE). The row of ioctl
// finds it by the letter, after it has added the descriptor and the command.
type ioctlFamily struct {
	typ byte
	// decode adds the argument, one value, and reports true; or it adds nothing and reports false: the argument is
	// shown as a number then. It may be called at entry and again after the return; with wait it says at entry that
	// the argument is not there yet.
	decode func(c *Cx, cmd uint32, arg uint64) ioctlArg
	// unsized is the number of bytes to take when the commands do not carry the size of their structure; 0: they do.
	unsized int
	// enter and exit are what to take besides the structure itself. Mem(0, …) in them is the structure, Mem(n, …) the
	// n-th fetch of the list, from 1. Each needs a condition on the command (If(1, …)).
	enter, exit []syscalls.Fetch
}

// ioctlArg is what a family's decode found.
type ioctlArg uint8

const (
	ioctlUnknown ioctlArg = iota // nothing was added: show the argument as a number
	ioctlShown                   // the argument was added
	ioctlWait                    // nothing was added: the kernel has to fill the argument first
)

// ioctlFamilies are the families outside of tty, block devices, file systems and sockets.
var ioctlFamilies = []ioctlFamily{
	{typ: 0xb4, decode: decodeGpioIoctl},
	{typ: '>', decode: decodeCounterIoctl},
	{typ: '=', decode: decodePtpIoctl},
	{typ: 'E', decode: decodeEvdevIoctl},
	{typ: 'p', decode: decodeRtcIoctl},
	{typ: 'W', decode: decodeWatchdogIoctl},
	{typ: 'R', decode: decodeRandomIoctl, enter: []syscalls.Fetch{
		{Kind: syscalls.FetchBytes, Base: syscalls.Arg(2), Off: 8, Len: syscalls.Length{Number: syscalls.Mem(0, 4, 4)}, When: whenArg(1, rndAddEntropy)}}},
	{typ: 0xab, decode: decodeNbdIoctl},
	{typ: 'i', decode: decodeLircIoctl},
	{typ: 'u', decode: decodeUdmabufIoctl, enter: []syscalls.Fetch{
		{Kind: syscalls.FetchBytes, Base: syscalls.Arg(2), Off: 8, Len: syscalls.Length{Number: syscalls.Mem(0, 4, 4), Elem: 24, Max: 24 * 64},
			When: whenArg(1, udmabufCreateList)}}},
	{typ: 'I', decode: decodeInotifyIoctl},
	{typ: '$', decode: decodePerfIoctl, enter: perfIoctlEnter, exit: perfIoctlExit},
	{typ: 'M', decode: decodeMtdIoctl},
	{typ: 'o', decode: decodeUbiIoctl},
	{typ: 'O', decode: decodeUbiIoctl, enter: []syscalls.Fetch{syscalls.Fixed(2, 12).If(1, ubiLebChange)}},
	{typ: 0xaa, decode: decodeUffdIoctl},
	{typ: '!', decode: decodeSeccompIoctl, enter: []syscalls.Fetch{descriptorIf(syscalls.Mem(0, 12, 4), 1, seccompNotifAddfd)}},
	{typ: 0xb7, decode: decodeNsfsIoctl, unsized: 4},
	{typ: 0xff, decode: decodePidfdIoctl},
	{typ: 'f', decode: decodeInodeIoctl, exit: fiemapExtents},
	{typ: 'v', decode: decodeInodeIoctl},
	{typ: 'X', decode: decodeXfsIoctl},
	{typ: 0x15, decode: decodeFsIoctl},
	{typ: 0x8a, decode: decodeEpollIoctl},
}

// findIoctlFamily returns the family of a command, or nil.
func findIoctlFamily(cmd uint32) *ioctlFamily {
	for i := range ioctlFamilies {
		if ioctlFamilies[i].typ == byte(cmd>>8) {
			return &ioctlFamilies[i]
		}
	}
	return nil
}

// Directions of a command (asm-generic/ioctl.h).
const (
	iocWrite = 1 << 30 // the caller fills the structure
	iocRead  = 2 << 30 // the kernel does
)

// maxIoctlStruct bounds the structure that a command's number gives the size of; the number has 14 bits.
const maxIoctlStruct = 1 << 14

// ioctlFetches is what to take of ioctl's argument: the structure, by the size in the command, the structures of families
// whose commands have no size, and what hangs on them. It stands first in the row of ioctl.
func ioctlFetches(exit bool) []syscalls.Fetch {
	list := []syscalls.Fetch{{
		Kind: syscalls.FetchBytes, Base: syscalls.Arg(2),
		Len: syscalls.Length{Number: syscalls.Number{From: syscalls.FromIoctlSize, N: 1}, Max: maxIoctlStruct},
	}}
	unsized := make(map[int]int) // size → index in list
	for i := range ioctlFamilies {
		f := &ioctlFamilies[i]
		main := 0
		if f.unsized > 0 {
			at, ok := unsized[f.unsized]
			if !ok {
				at = len(list)
				unsized[f.unsized] = at
				list = append(list, syscalls.Fixed(2, f.unsized))
				list[at].When = syscalls.Cond{Value: syscalls.Arg(1), Mask: 0xffffff00}
			}
			list[at].When.Any = append(list[at].When.Any, uint64(f.typ)<<8)
			main = at
		}
		more := f.enter
		if exit {
			more = f.exit
		}
		base := len(list) - 1
		rebase := func(n *syscalls.Number) {
			if n.From != syscalls.FromMem {
				return
			}
			if n.N == 0 {
				n.N = uint32(main)
			} else {
				n.N += uint32(base)
			}
		}
		for _, g := range more {
			rebase(&g.Base)
			rebase(&g.Len.Number)
			rebase(&g.Total)
			rebase(&g.When.Value)
			list = append(list, g)
		}
	}
	return list
}

// ioctlIn shows the structure of n bytes that the caller filled.
func (c *Cx) ioctlIn(arg uint64, n int, show func(c *Cx, b []byte)) ioctlArg {
	c.obj(In, arg, n, show)
	return ioctlShown
}

// ioctlOut shows the structure of n bytes that the kernel filled.
func (c *Cx) ioctlOut(arg uint64, n int, show func(c *Cx, b []byte)) ioctlArg {
	if c.Entering() {
		return ioctlWait
	}
	if b, ok := c.Load(Out, arg, n); ok {
		show(c, b)
	}
	return ioctlShown
}

// ioctlBoth shows one structure of n bytes: members that the caller filled, then those that the kernel did.
func (c *Cx) ioctlBoth(arg uint64, n int, in, out func(f *fields)) ioctlArg {
	b, errno := c.Bytes(In, arg, n)
	if b == nil {
		c.Unreadable(arg, errno)
		return ioctlShown
	}
	if c.Entering() {
		return ioctlWait
	}
	f := c.begin(b)
	in(f)
	if o, _ := c.Bytes(Out, arg, n); o != nil && !c.Failed() {
		f.b, f.off = o, 0
		out(f)
	}
	f.end()
	return ioctlShown
}

// ioctlChange shows the structure as the caller filled it and, when the call succeeded, => and as the kernel did.
func (c *Cx) ioctlChange(arg uint64, n int, in, out func(c *Cx, b []byte)) ioctlArg {
	b, errno := c.Bytes(In, arg, n)
	if b == nil {
		c.Unreadable(arg, errno)
		return ioctlShown
	}
	if c.Entering() {
		return ioctlWait
	}
	if c.Failed() {
		in(c, b)
		return ioctlShown
	}
	c.Begin(event.Node{Kind: event.KindChange})
	in(c, b)
	c.obj(Out, arg, n, out)
	c.End()
	return ioctlShown
}

// ioctlInt shows [number], a number of width bytes that the caller filled; ioctlGot one that the kernel filled.
func (c *Cx) ioctlInt(arg uint64, width int, elem func(c *Cx, b []byte)) ioctlArg {
	c.ref(In, arg, width, elem)
	return ioctlShown
}

func (c *Cx) ioctlGot(arg uint64, width int, elem func(c *Cx, b []byte)) ioctlArg {
	if c.Entering() {
		return ioctlWait
	}
	c.ref(Out, arg, width, elem)
	return ioctlShown
}

// upto is an array member of size elements of width bytes, of which n count.
func (f *fields) upto(name string, width, size int, n uint64, elem func(c *Cx, b []byte)) {
	b := f.take(width * size)
	f.c.Field(name)
	f.c.numbers(b, width, int(min(n, uint64(size))), elem)
}
