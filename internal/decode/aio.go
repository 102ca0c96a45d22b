package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Asynchronous I/O (linux/aio_abi.h).

const (
	iocbSize    = 64
	ioEventSize = 32

	iocbPread   = 0
	iocbPwrite  = 1
	iocbPoll    = 5
	iocbPreadv  = 7
	iocbPwritev = 8

	iocbFlagResfd  = 1
	iocbFlagIoprio = 2

	maxIocbs = 7 // requests of one io_submit that are taken with their buffers
)

// ioSubmitEnter takes the pointers, and for each of the first requests the request and its buffer or vector.
func ioSubmitEnter(word int) []syscalls.Fetch {
	list := []syscalls.Fetch{syscalls.Vec(2, syscalls.Arg(1), word, 128*word)}
	for i := range maxIocbs {
		at := len(list)
		list = append(list,
			memOf(syscalls.FetchBytes, syscalls.Mem(0, i*word, word), syscalls.Const(iocbSize), 0, iocbSize, syscalls.Cond{}),
			memOf(syscalls.FetchBytes, syscalls.Mem(at, 24, 8), syscalls.Mem(at, 32, 8), 0, 0,
				syscalls.Cond{Value: syscalls.Mem(at, 16, 2), Any: []uint64{iocbPwrite}}),
			syscalls.Fetch{Kind: syscalls.FetchIovec, Base: syscalls.Mem(at, 24, 8),
				Len:  syscalls.Length{Number: syscalls.Mem(at, 32, 8)},
				When: syscalls.Cond{Value: syscalls.Mem(at, 16, 2), Any: []uint64{iocbPreadv, iocbPwritev}}})
	}
	return list
}

var aioCalls = []Spec{
	{
		Name: "io_setup",
		Exit: []syscalls.Fetch{syscalls.Fixed(1, 8)}, Exit32: []syscalls.Fetch{syscalls.Fixed(1, 4)},
		Decode: args(aUint, out(func(c *Cx, i int) { c.ref(Out, c.Arg[1], c.ABI.PtrSize, hexNumber) })),
	},
	{Name: "io_destroy", Decode: args(aPtr)},
	{
		Name:  "io_submit",
		Enter: ioSubmitEnter(8), Enter32: ioSubmitEnter(4),
		Decode: args(aPtr, aLong, func(c *Cx, i int) {
			nr := int64(c.Arg[1])
			if c.Ptr32() {
				nr = int64(int32(nr))
			}
			if nr < 0 {
				c.Ptr(c.Arg[2])
				return
			}
			c.list(In, c.Arg[2], uint64(nr), c.ABI.PtrSize, func(c *Cx, b []byte) {
				c.obj(In, peek(b, 0, len(b)), iocbSize, func(c *Cx, b []byte) { c.iocb(b, true) })
			})
		}),
	},
	{
		Name:  "io_getevents",
		Enter: []syscalls.Fetch{syscalls.Fixed(4, 16)}, Enter32: []syscalls.Fetch{syscalls.Fixed(4, 8)},
		Exit:   []syscalls.Fetch{syscalls.Vec(3, syscalls.Ret(), ioEventSize, 128*ioEventSize)},
		Decode: args(aPtr, aLong, aLong, out(aioEvents), aioTimeout(false)),
	},
	{
		Name:  "io_pgetevents",
		Enter: ioPgetevents(8, 8), Enter32: ioPgetevents(4, 4),
		Exit:   []syscalls.Fetch{syscalls.Vec(3, syscalls.Ret(), ioEventSize, 128*ioEventSize)},
		Decode: args(aPtr, aLong, aLong, out(aioEvents), aioTimeout(false), aioSigset),
	},
	{
		Name:  "io_pgetevents_time64",
		Enter: ioPgetevents(8, 8), Enter32: ioPgetevents(4, 8),
		Exit:   []syscalls.Fetch{syscalls.Vec(3, syscalls.Ret(), ioEventSize, 128*ioEventSize)},
		Decode: args(aPtr, aLong, aLong, out(aioEvents), aioTimeout(true), aioSigset),
	},
	{
		Name:  "io_cancel",
		Enter: []syscalls.Fetch{syscalls.Fixed(1, iocbSize)},
		Exit:  []syscalls.Fetch{syscalls.Fixed(2, ioEventSize)},
		Decode: args(aPtr, func(c *Cx, i int) {
			c.obj(In, c.Arg[1], iocbSize, func(c *Cx, b []byte) { c.iocb(b, false) })
		}, out(func(c *Cx, i int) {
			if b, ok := c.Load(Out, c.Arg[2], ioEventSize); ok {
				ioEvent(c, b)
			}
		})),
	},
}

// aioSigset adds a struct __aio_sigset: the address and size of a signal set.
func aioSigset(c *Cx, i int) {
	word := c.ABI.PtrSize
	c.obj(In, c.Arg[i], 2*word, func(c *Cx, b []byte) {
		c.Struct()
		c.Field("sigmask")
		c.Sigset(In, c.Word(b, 0), c.Word(b, word))
		c.Field("sigsetsize").Uint(c.Word(b, word))
		c.End()
	})
}

func aioEvents(c *Cx, i int) {
	if c.Failed() {
		c.Ptr(c.Arg[i])
		return
	}
	c.list(Out, c.Arg[i], uint64(c.Ret), ioEventSize, ioEvent)
}

func aioTimeout(time64 bool) arg {
	return func(c *Cx, i int) { c.kernelTimespec(In, c.Arg[i], time64) }
}

// ioPgetevents takes the time out and the signal set, whose address stands in memory.
func ioPgetevents(word, time int) []syscalls.Fetch {
	return []syscalls.Fetch{syscalls.Fixed(4, 2*time), syscalls.Fixed(5, 2*word),
		memOf(syscalls.FetchBytes, syscalls.Mem(1, 0, word), syscalls.Const(8), 0, 8, syscalls.Cond{})}
}

// iocb adds a struct iocb; without body only the members that say what was asked of which file.
func (c *Cx) iocb(b []byte, body bool) {
	f := c.begin(b)
	defer f.end()
	f.x8("aio_data")
	if key := f.num(4); key != 0 {
		c.Field("aio_key").Uint(key)
	}
	if v := f.num(4); v != 0 {
		c.Field("aio_rw_flags")
		c.Flags(v, constant.AioRwf)
	}
	op, flags := peek(b, 16, 2), peek(b, 56, 4)
	f.enumU("aio_lio_opcode", 2, constant.IocbCmd)
	prio := f.num(2)
	switch {
	case flags&iocbFlagIoprio != 0:
		c.Field("aio_reqprio")
		c.ioPriority(prio)
	case prio != 0:
		c.Field("aio_reqprio").Int(int64(int16(prio)))
	}
	f.fd("aio_fildes")
	if !body {
		return
	}
	buf, n := f.num(8), f.num(8)
	valid := int64(n) >= 0
	if c.Ptr32() {
		valid = buf>>32 == 0 && n>>31 == 0
	}
	switch op {
	case iocbPread, iocbPwrite:
		c.Field("aio_buf")
		if op == iocbPwrite && valid {
			c.Buffer(In, buf, int64(n))
		} else {
			c.Hex(buf)
		}
		c.Field("aio_nbytes").Uint(n)
		f.i8("aio_offset")
	case iocbPreadv, iocbPwritev:
		c.Field("aio_buf")
		if valid {
			c.vectors(In, buf, n, op == iocbPwritev)
		} else {
			c.Hex(buf)
			c.Field("aio_nbytes").Uint(n)
		}
		f.i8("aio_offset")
	case iocbPoll:
		c.Field("aio_buf")
		c.Flags(buf, constant.AioPoll)
	default:
		return
	}
	if flags != 0 {
		c.Field("aio_flags")
		c.Flags(flags, constant.IocbFlag)
	}
	f.off = 60
	switch {
	case flags&iocbFlagResfd != 0:
		f.fd("aio_resfd")
	default:
		f.nonzero("aio_resfd", 4)
	}
}

// ioPriority adds IOPRIO_PRIO_VALUE(class, data) (linux/ioprio.h).
func (c *Cx) ioPriority(v uint64) {
	c.Begin(event.Node{Kind: event.KindCall, Sym: "IOPRIO_PRIO_VALUE", Num: v, Attr: event.AttrHex})
	c.Name(v>>13, constant.AioIoprioClass)
	c.Uint(v & 0x1fff)
	c.End()
}

func ioEvent(c *Cx, b []byte) {
	f := c.begin(b)
	f.x8("data")
	f.x8("obj")
	f.i8("res")
	f.i8("res2")
	f.end()
}

// vectors adds n struct iovec at addr: their buffers with text, else their addresses.
func (c *Cx) vectors(m Moment, addr, n uint64, text bool) {
	word := c.ABI.PtrSize
	c.list(m, addr, n, 2*word, func(c *Cx, b []byte) {
		base, size := c.Word(b, 0), c.Word(b, word)
		c.Struct()
		c.Field("iov_base")
		if text {
			c.Buffer(m, base, int64(size))
		} else {
			c.Ptr(base)
		}
		c.Field("iov_len").Uint(size)
		c.End()
	})
}
