package decode

import (
	"math/bits"
	"strconv"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// pollfds adds an array of n struct pollfd as they went in.
func (c *Cx) pollfds(addr, n uint64) {
	c.list(In, addr, n, 8, func(c *Cx, b []byte) {
		c.Struct()
		c.Field("fd")
		c.FD(uint64(U32(b, 0)))
		if int32(U32(b, 0)) >= 0 {
			c.Field("events")
			c.Flags(uint64(U16(b, 4)), constant.PollEvents)
		}
		c.End()
	})
}

// pollResult explains a return: [{fd=3, revents=POLLIN}], or that time ran out.
func (c *Cx) pollResult(left string) {
	switch {
	case c.Failed():
	case c.Ret == 0:
		c.Note = "Timeout"
	default:
		b, _, _ := c.Mem(Out, c.Arg[0], int(min(uint64(uint32(c.Arg[1])), 1<<16))*8)
		text, shown := []byte("["), 0
		for ; len(b) >= 8; b = b[8:] {
			re := uint64(U16(b, 6))
			if re == 0 {
				continue
			}
			if shown > 0 {
				text = append(text, ", "...)
			}
			if c.Opt.Abbrev && shown >= c.limit() {
				text = append(text, "..."...)
				break
			}
			shown++
			text = append(text, "{fd="...)
			text = strconv.AppendInt(text, I32(b, 0), 10)
			text = append(text, ", revents="...)
			at := len(c.Nodes)
			c.Flags(re, constant.PollEvents)
			text = append(text, plain(c.Nodes[at:])...)
			c.Nodes = c.Nodes[:at]
			text = append(text, '}')
		}
		text = append(text, ']')
		c.Note = string(text)
	}
	if left != "" && c.Note != "" && c.Ret != 0 {
		c.Note += ", " + left
	}
}

func poll(c *Cx) {
	c.pollfds(c.Arg[0], uint64(uint32(c.Arg[1])))
	c.Uint(uint64(uint32(c.Arg[1])))
	c.Int(int64(int32(c.Arg[2])))
	if c.Exited {
		c.pollResult("")
	}
}

// leftText is the time left of a timeout at addr, as select and ppoll write it back.
func (c *Cx) leftText(addr uint64, fraction string) string {
	w := c.clockWord()
	b, _ := c.Bytes(Out, addr, 2*w)
	if addr == 0 || b == nil {
		return ""
	}
	sec := int64(peek(b, 0, w))
	if w == 4 {
		sec = int64(int32(sec))
	}
	return "left {tv_sec=" + strconv.FormatInt(sec, 10) + ", " + fraction + "=" + strconv.FormatUint(peek(b, w, w), 10) + "}"
}

func ppoll(c *Cx) {
	c.pollfds(c.Arg[0], uint64(uint32(c.Arg[1])))
	c.Uint(uint64(uint32(c.Arg[1])))
	c.Timespec(In, c.Arg[2])
	c.Sigset(In, c.Arg[3], c.Arg[4])
	c.Uint(c.Arg[4])
	if c.Exited {
		c.pollResult(c.leftText(c.Arg[2], "tv_nsec"))
	}
}

// fdSet adds the descriptors below n in the set at addr.
func (c *Cx) fdSet(m Moment, addr uint64, n int) {
	size := fdSetSize(n)
	if n < 0 {
		c.Ptr(addr)
		return
	}
	if addr == 0 {
		c.Ptr(0)
		return
	}
	b, errno := c.Bytes(m, addr, size)
	if b == nil {
		c.Unreadable(addr, errno)
		return
	}
	c.Begin(event.Node{Kind: event.KindSet})
	eachFD(b, n, func(fd int) { c.FD(uint64(fd)) })
	c.End()
}

const maxFDSet = 1024 // what is captured: FD_SETSIZE bits

func fdSetSize(n int) int { return (min(max(n, 0), maxFDSet) + 63) / 64 * 8 }

func eachFD(b []byte, n int, f func(int)) {
	for i := 0; i < len(b); i++ {
		for x := b[i]; x != 0; x &= x - 1 {
			if fd := i*8 + bits.TrailingZeros8(x); fd < n {
				f(fd)
			}
		}
	}
}

func selectCall(c *Cx, timeout func(*Cx)) {
	n := int(int32(c.Arg[0]))
	c.Int(int64(n))
	for i := 1; i <= 3; i++ {
		c.fdSet(In, c.Arg[i], n)
	}
	timeout(c)
}

// selectResult explains a return: in [3], left {…}.
func (c *Cx) selectResult(left string) {
	switch {
	case c.Failed():
		return
	case c.Ret == 0:
		c.Note = "Timeout"
		return
	}
	n := int(int32(c.Arg[0]))
	var text []byte
	for i, name := range [...]string{"in", "out", "except"} {
		b, _ := c.Bytes(Out, c.Arg[i+1], fdSetSize(n))
		if c.Arg[i+1] == 0 || b == nil {
			continue
		}
		first := true
		eachFD(b, n, func(fd int) {
			if first {
				if len(text) > 0 {
					text = append(text, ", "...)
				}
				text = append(append(text, name...), " ["...)
			} else {
				text = append(text, ' ')
			}
			first = false
			text = strconv.AppendInt(text, int64(fd), 10)
		})
		if !first {
			text = append(text, ']')
		}
	}
	if left != "" {
		if len(text) > 0 {
			text = append(text, ", "...)
		}
		text = append(text, left...)
	}
	c.Note, c.Noted = string(text), true
}

// fdSets takes the three sets of select(2); the number of descriptors is rounded up to words.
func fdSets() fetches {
	var f fetches
	for i := 1; i <= 3; i++ {
		f = append(f, syscalls.Fetch{Kind: syscalls.FetchBytes, Base: syscalls.Arg(i), Len: syscalls.Length{Number: syscalls.Const(128), Max: 128}})
	}
	return f
}

// epollData is shown as the two forms that programs use.
func (c *Cx) epollEvent(b []byte) {
	off := 4
	if c.ABI.Name == "arm64" || c.ABI.Name == "arm" {
		off = 8
	}
	c.Struct()
	c.Field("events")
	c.Flags(uint64(U32(b, 0)), constant.EpollEvents)
	data := U64(b, off)
	c.Field("data").Hex(data)
	c.End()
}

// epollSize is sizeof(struct epoll_event): packed on x86 alone.
func (c *Cx) epollSize() int {
	if c.ABI.Name == "arm64" || c.ABI.Name == "arm" {
		return 16
	}
	return 12
}

func epollCtl(c *Cx) {
	c.FD(c.Arg[0])
	c.Name(uint64(uint32(c.Arg[1])), constant.EpollOp)
	c.FD(c.Arg[2])
	if uint32(c.Arg[1]) == 2 { // EPOLL_CTL_DEL
		c.Ptr(c.Arg[3])
		return
	}
	c.obj(In, c.Arg[3], c.epollSize(), (*Cx).epollEvent)
}

func epollWait(c *Cx, timeout func(*Cx)) bool {
	c.FD(c.Arg[0])
	if c.Entering() {
		return false
	}
	if c.Failed() {
		c.Ptr(c.Arg[1])
	} else {
		c.list(Out, c.Arg[1], uint64(c.Ret), c.epollSize(), (*Cx).epollEvent)
	}
	c.Int(int64(int32(c.Arg[2])))
	timeout(c)
	return true
}

// epollMask adds the signal mask and its size.
func epollMask(c *Cx) {
	if c.Failed() {
		c.Ptr(c.Arg[4])
	} else {
		c.Sigset(In, c.Arg[4], c.Arg[5])
	}
	c.Uint(c.Arg[5])
}

func intTimeout(i int) func(*Cx) { return func(c *Cx) { c.Int(int64(int32(c.Arg[i]))) } }

var epollOut = fetches{syscalls.Vec(1, syscalls.Ret(), 16, 16*256)}

var pollCalls = []Spec{
	{Name: "poll", Enter: fetches{syscalls.Vec(0, syscalls.Arg(1), 8, 8*256)}, Exit: fetches{syscalls.Vec(0, syscalls.Arg(1), 8, 8*256)}, Decode: poll, Ret: plainRet},
	{Name: "ppoll", Enter: fetches{syscalls.Vec(0, syscalls.Arg(1), 8, 8*256), pairAt(2, 1), syscalls.Fixed(3, 8)},
		Exit: fetches{syscalls.Vec(0, syscalls.Arg(1), 8, 8*256), pairAt(2, 1)}, Decode: ppoll, Ret: plainRet},
	{Name: "ppoll_time64", Enter: fetches{syscalls.Vec(0, syscalls.Arg(1), 8, 8*256), pairAt(2, 1), syscalls.Fixed(3, 8)},
		Exit: fetches{syscalls.Vec(0, syscalls.Arg(1), 8, 8*256), pairAt(2, 1)}, Decode: ppoll, Ret: plainRet},
	{Name: "select", Enter: append(fdSets(), pairAt(4, 1)), Exit: append(fdSets(), pairAt(4, 1)), Decode: func(c *Cx) {
		selectCall(c, func(c *Cx) { c.Timeval(In, c.Arg[4]) })
		if c.Exited {
			c.selectResult(c.leftText(c.Arg[4], "tv_usec"))
		}
	}, Ret: plainRet},
	{Name: "_newselect", Enter: append(fdSets(), pairAt(4, 1)), Exit: append(fdSets(), pairAt(4, 1)), Decode: func(c *Cx) {
		selectCall(c, func(c *Cx) { c.Timeval(In, c.Arg[4]) })
		if c.Exited {
			c.selectResult(c.leftText(c.Arg[4], "tv_usec"))
		}
	}, Ret: plainRet},
	{Name: "pselect6", Enter: pselectIn, Exit: append(fdSets(), pairAt(4, 1)), Decode: pselect, Ret: plainRet},
	{Name: "pselect6_time64", Enter: pselectIn, Exit: append(fdSets(), pairAt(4, 1)), Decode: pselect, Ret: plainRet},
	{Name: "epoll_create", RetFD: true, Decode: args(aInt), Ret: retFD},
	{Name: "epoll_create1", RetFD: true, Decode: args(aFlags(constant.EpollFlags)), Ret: retFD},
	{Name: "epoll_ctl", Enter: fetches{syscalls.Fixed(3, 16)}, Decode: epollCtl},
	{Name: "epoll_wait", Exit: epollOut, Decode: func(c *Cx) { epollWait(c, intTimeout(3)) }},
	{Name: "epoll_pwait", Enter: fetches{syscalls.Fixed(4, 8)}, Exit: epollOut, Decode: func(c *Cx) {
		if epollWait(c, intTimeout(3)) {
			epollMask(c)
		}
	}},
	{Name: "epoll_pwait2", Enter: fetches{pairAt(3, 1), syscalls.Fixed(4, 8)}, Exit: epollOut, Decode: func(c *Cx) {
		if epollWait(c, func(c *Cx) {
			if c.Failed() {
				c.Ptr(c.Arg[3])
				return
			}
			c.obj(In, c.Arg[3], 16, func(c *Cx, b []byte) { c.timespecOf(b, "tv_nsec") })
		}) {
			epollMask(c)
		}
	}},
}

// plainRet keeps the explanation that the arguments gave.
func plainRet(c *Cx) { c.Int(c.Ret) }

var pselectIn = append(fdSets(), pairAt(4, 1), syscalls.Fixed(5, 16),
	syscalls.Fetch{Kind: syscalls.FetchBytes, Base: syscalls.Mem(4, 0, 8), Len: syscalls.Length{Number: syscalls.Const(8), Max: 8}})

func pselect(c *Cx) {
	selectCall(c, func(c *Cx) { c.Timespec(In, c.Arg[4]) })
	w := c.ABI.PtrSize
	c.obj(In, c.Arg[5], 2*w, func(c *Cx, b []byte) {
		c.Struct()
		addr, size := c.Word(b, 0), c.Word(b, w)
		c.Field("sigmask")
		c.Sigset(In, addr, size)
		c.Field("sigsetsize").Uint(size)
		c.End()
	})
	if c.Exited {
		c.selectResult(c.leftText(c.Arg[4], "tv_nsec"))
	}
}
