package decode

import (
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Sizes: struct mq_attr (include/uapi/linux/mqueue.h) is four longs and four reserved, struct sigevent 64 bytes.
const (
	mqAttrSize, mqAttrSize32 = 64, 32
	sigeventSize             = 64

	mqCreat, mqAccess = 0o100, 3

	sigevSignal, sigevThread, sigevThreadID = 0, 2, 4
)

// mqueues is POSIX message queues. Their descriptors are file descriptors.
var mqueues = []Spec{
	{
		Name: "mq_open", RetFD: true,
		Enter:   takes(syscalls.Path(0), syscalls.Fixed(3, mqAttrSize)),
		Enter32: takes(syscalls.Path(0), syscalls.Fixed(3, mqAttrSize32)),
		Decode: func(c *Cx) {
			aPath(c, 0)
			c.mqOpenFlags(uint64(uint32(c.Arg[1])))
			if c.Arg[1]&mqCreat != 0 {
				c.Oct(uint64(uint16(c.Arg[2])))
				c.mqAttr(In, c.Arg[3], false)
			}
		},
	},
	{Name: "mq_unlink", Enter: takes(syscalls.Path(0)), Decode: args(aPath)},
	mqSend("mq_timedsend", false), mqSend("mq_timedsend_time64", true),
	mqReceive("mq_timedreceive", false), mqReceive("mq_timedreceive_time64", true),
	{Name: "mq_notify", Enter: takes(syscalls.Fixed(1, sigeventSize)), Decode: args(aFD, func(c *Cx, i int) { c.SigeventAt(In, c.Arg[i]) })},
	{
		Name:    "mq_getsetattr",
		Enter:   takes(syscalls.Fixed(1, mqAttrSize)),
		Exit:    takes(syscalls.Fixed(2, mqAttrSize)),
		Enter32: takes(syscalls.Fixed(1, mqAttrSize32)),
		Exit32:  takes(syscalls.Fixed(2, mqAttrSize32)),
		Decode:  args(aFD, func(c *Cx, i int) { c.mqAttr(In, c.Arg[i], true) }, out(func(c *Cx, i int) { c.mqAttr(Out, c.Arg[i], true) })),
	},
}

func mqSend(name string, time64 bool) Spec {
	return Spec{
		Name:  name,
		Enter: takes(syscalls.Buf(1, syscalls.Arg(2)), syscalls.Fixed(4, 16)),
		Decode: args(aFD, func(c *Cx, i int) { c.Buffer(In, c.Arg[1], int64(min(c.Arg[2], 1<<31))) }, aUlong, aUint,
			func(c *Cx, i int) { c.kernelTimespec(In, c.Arg[i], time64) }),
	}
}

func mqReceive(name string, time64 bool) Spec {
	return Spec{
		Name:  name,
		Enter: takes(syscalls.Fixed(4, 16)),
		Exit:  takes(syscalls.Buf(1, syscalls.Ret()), syscalls.Fixed(3, 4)),
		Decode: args(aFD, out(func(c *Cx, i int) { c.Buffer(Out, c.Arg[1], c.Ret) }), aUlong, refOut(4, uintNumber),
			func(c *Cx, i int) { c.kernelTimespec(In, c.Arg[i], time64) }),
	}
}

// mqOpenFlags adds the way of access and the flags beside it.
func (c *Cx) mqOpenFlags(v uint64) {
	name := [4]string{"O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"}[v&mqAccess]
	if v&^mqAccess == 0 {
		c.Sym(name, v)
		return
	}
	c.open(v)
	c.Sym(name, v&mqAccess)
	c.flagNames(v&^mqAccess, constant.MqOpenFlags)
	c.End()
}

func (c *Cx) mqAttr(m Moment, addr uint64, named bool) {
	b, ok := c.Load(m, addr, c.size32(mqAttrSize, mqAttrSize32))
	if !ok {
		return
	}
	f := c.begin(b)
	if named {
		f.flags("mq_flags", c.ABI.PtrSize, constant.MqAttrFlags)
	} else {
		f.xword("mq_flags")
	}
	f.iword("mq_maxmsg")
	f.iword("mq_msgsize")
	f.iword("mq_curmsgs")
	f.end()
}

// SigeventAt adds the struct sigevent at addr, include/uapi/asm-generic/siginfo.h: a value, a signal, a way of telling,
// and what that needs.
func (c *Cx) SigeventAt(m Moment, addr uint64) {
	w := c.ABI.PtrSize
	b, ok := c.Load(m, addr, 8+3*w) // what is shown of it
	if !ok {
		return
	}
	value, signo, notify := peek(b, 0, w), U32(b, w), U32(b, w+4)
	rest := b[w+8:]
	c.Struct()
	if value != 0 {
		c.Field("sigev_value").Struct()
		c.Field("sival_int").Int(int64(int32(value)))
		c.Field("sival_ptr").Ptr(value)
		c.End()
	}
	c.Field("sigev_signo")
	switch notify {
	case sigevSignal, sigevThread, sigevThreadID:
		c.Signal(uint64(signo))
	default:
		c.Uint(uint64(signo))
	}
	c.Field("sigev_notify")
	c.Name(uint64(notify), constant.SigevNotify)
	switch notify {
	case sigevThreadID:
		c.Field("sigev_notify_thread_id").Int(I32(rest, 0))
	case sigevThread:
		c.Field("sigev_notify_function").Ptr(peek(rest, 0, w))
		c.Field("sigev_notify_attributes").Ptr(peek(rest, w, w))
	}
	c.End()
}
