package decode

import (
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Short forms for the rows of files: what to take, and when.
type fetches = []syscalls.Fetch

func path(i int) syscalls.Fetch { return syscalls.Path(i) }

func aReadBuf(c *Cx, i int)  { c.Buffer(Out, c.Arg[i], c.Ret) }
func aWriteBuf(c *Cx, i int) { c.Buffer(In, c.Arg[i], clampLen(c.Arg[i+1])) }

// off64 is a 64-bit offset in one register, or in two on ABIs with 4-byte registers.
func (c *Cx) off64(i int) {
	if c.ABI.PtrSize == 4 && c.ABI.Name != "x32" {
		c.Int(int64(c.Arg[i] | c.Arg[i+1]<<32))
		return
	}
	c.Int(int64(c.Arg[i]))
}

// pairIndex is where a 64-bit argument begins that follows n others: arm wants an even register.
func (c *Cx) pairIndex(n int) int {
	if c.ABI.Name == "arm" && n%2 == 1 {
		return n + 1
	}
	return n
}

// vectorOffset is the position of preadv(2): low and high half in two words on every ABI (fs/read_write.c).
func (c *Cx) vectorOffset(i int) {
	if c.ABI.PtrSize == 8 || c.ABI.Name == "x32" {
		c.Int(int64(c.Arg[i]))
		return
	}
	c.Int(int64(c.Arg[i] | c.Arg[i+1]<<32))
}

// Iovec adds an array of n struct iovec at addr; data bounds the bytes of all buffers, noLength is no bound.
func (c *Cx) Iovec(m Moment, addr, n uint64, data int64) { c.iovec(m, addr, n, data) }

func readVec(c *Cx) {
	c.FD(c.Arg[0])
	if c.Entering() {
		return
	}
	if c.Failed() {
		// The vector itself is an input: shown with its addresses.
		c.iovecAddresses(c.Arg[1], c.Arg[2])
	} else {
		c.iovec(Out, c.Arg[1], c.Arg[2], c.Ret)
	}
	c.Uint(c.Arg[2])
}

// iovecAddresses adds a vector whose buffers were not filled.
func (c *Cx) iovecAddresses(addr, n uint64) {
	c.list(In, addr, n, 2*c.ABI.PtrSize, func(c *Cx, b []byte) {
		c.Struct()
		c.Field("iov_base").Ptr(c.Word(b, 0))
		c.Field("iov_len").Uint(c.Word(b, c.ABI.PtrSize))
		c.End()
	})
}

func writeVec(c *Cx) {
	c.FD(c.Arg[0])
	c.iovec(In, c.Arg[1], c.Arg[2], noLength)
	c.Uint(c.Arg[2])
}

func iovIn(i int) syscalls.Fetch {
	return syscalls.Fetch{Kind: syscalls.FetchIovec, Base: syscalls.Arg(i), Len: syscalls.Length{Number: syscalls.Arg(i + 1)}}
}

func iovOut(i int) syscalls.Fetch {
	f := iovIn(i)
	f.Total = syscalls.Ret()
	return f
}

func aRwf(c *Cx, i int) { c.Flags(uint64(uint32(c.Arg[i])), constant.RwfFlags) }

var (
	preadDecode = func(c *Cx) {
		c.FD(c.Arg[0])
		if c.Entering() {
			return
		}
		aReadBuf(c, 1)
		c.Uint(c.Arg[2])
		c.off64(c.pairIndex(3))
	}
	pwriteDecode = func(c *Cx) {
		c.FD(c.Arg[0])
		aWriteBuf(c, 1)
		c.Uint(c.Arg[2])
		c.off64(c.pairIndex(3))
	}
	readEnter = fetches{iovAddresses(1)}
)

// iovAddresses takes the vector of argument i without its buffers.
func iovAddresses(i int) syscalls.Fetch { return syscalls.Vec(i, syscalls.Arg(i+1), 16, 16*64) }

// fileIO is read(2), write(2) and their kin on descriptors.
var fileIO = []Spec{
	{Name: "read", Exit: fetches{syscalls.Buf(1, syscalls.Ret())}, Decode: args(aFD, out(aReadBuf), aUlong)},
	{Name: "write", Enter: fetches{syscalls.Buf(1, syscalls.Arg(2))}, Decode: args(aFD, aWriteBuf, aUlong)},
	{Name: "pread64", Exit: fetches{syscalls.Buf(1, syscalls.Ret())}, Decode: preadDecode},
	{Name: "pwrite64", Enter: fetches{syscalls.Buf(1, syscalls.Arg(2))}, Decode: pwriteDecode},
	{Name: "readv", Enter: readEnter, Exit: fetches{iovOut(1)}, Decode: readVec},
	{Name: "writev", Enter: fetches{iovIn(1)}, Decode: writeVec},
	{Name: "preadv", Enter: readEnter, Exit: fetches{iovOut(1)}, Decode: func(c *Cx) {
		if readVec(c); c.Exited {
			c.vectorOffset(3)
		}
	}},
	{Name: "pwritev", Enter: fetches{iovIn(1)}, Decode: func(c *Cx) { writeVec(c); c.vectorOffset(3) }},
	{Name: "preadv2", Enter: readEnter, Exit: fetches{iovOut(1)}, Decode: func(c *Cx) {
		if readVec(c); c.Exited {
			c.vectorOffset(3)
			aRwf(c, 5)
		}
	}},
	{Name: "pwritev2", Enter: fetches{iovIn(1)}, Decode: func(c *Cx) { writeVec(c); c.vectorOffset(3); aRwf(c, 5) }},
	{Name: "process_vm_readv", Enter: fetches{iovAddresses(1), iovAddresses(3)}, Exit: fetches{iovOut(1)}, Decode: func(c *Cx) {
		c.PID(c.Arg[0])
		if c.Entering() {
			return
		}
		if c.Failed() {
			c.iovecAddresses(c.Arg[1], c.Arg[2])
		} else {
			c.iovec(Out, c.Arg[1], c.Arg[2], c.Ret)
		}
		c.Uint(c.Arg[2])
		c.iovecAddresses(c.Arg[3], c.Arg[4])
		c.Uint(c.Arg[4])
		c.Uint(c.Arg[5])
	}},
	{Name: "process_vm_writev", Enter: fetches{iovIn(1), iovAddresses(3)}, Decode: func(c *Cx) {
		c.PID(c.Arg[0])
		c.iovec(In, c.Arg[1], c.Arg[2], noLength)
		c.Uint(c.Arg[2])
		c.iovecAddresses(c.Arg[3], c.Arg[4])
		c.Uint(c.Arg[4])
		c.Uint(c.Arg[5])
	}},
	{Name: "sendfile", Enter: fetches{syscalls.Fixed(2, 8)}, Exit: fetches{syscalls.Fixed(2, 8)}, Decode: sendfile},
	{Name: "sendfile64", Enter: fetches{syscalls.Fixed(2, 8)}, Exit: fetches{syscalls.Fixed(2, 8)}, Decode: sendfile},
	{Name: "splice", Enter: fetches{syscalls.Fixed(1, 8), syscalls.Fixed(3, 8)}, Exit: fetches{syscalls.Fixed(1, 8), syscalls.Fixed(3, 8)},
		Decode: args(aFD, aOffsetPtr, aFD, aOffsetPtr, aUlong, aFlags(constant.SpliceFlags))},
	{Name: "tee", Decode: args(aFD, aFD, aUlong, aFlags(constant.SpliceFlags))},
	{Name: "vmsplice", Enter: fetches{iovIn(1)}, Decode: func(c *Cx) { writeVec(c); c.Flags(uint64(uint32(c.Arg[3])), constant.SpliceFlags) }},
	{Name: "copy_file_range", Enter: fetches{syscalls.Fixed(1, 8), syscalls.Fixed(3, 8)}, Exit: fetches{syscalls.Fixed(1, 8), syscalls.Fixed(3, 8)},
		Decode: args(aFD, aOffsetPtr, aFD, aOffsetPtr, aUlong, aUint)},
	{Name: "lseek", Decode: args(aFD, aLong, aName(constant.SeekWhence))},
	{Name: "_llseek", Exit: fetches{syscalls.Fixed(3, 8)}, Decode: func(c *Cx) {
		c.FD(c.Arg[0])
		c.Int(int64(c.Arg[1]<<32 | c.Arg[2]))
		if c.Entering() {
			return
		}
		c.ref(Out, c.Arg[3], 8, func(c *Cx, b []byte) { c.Int(int64(U64(b, 0))) })
		c.Name(uint64(uint32(c.Arg[4])), constant.SeekWhence)
	}},
	{Name: "truncate", Enter: fetches{path(0)}, Decode: args(aPath, aLong)},
	{Name: "truncate64", Enter: fetches{path(0)}, Decode: func(c *Cx) { aPath(c, 0); c.off64(c.pairIndex(1)) }},
	{Name: "ftruncate", Decode: args(aFD, aLong)},
	{Name: "ftruncate64", Decode: func(c *Cx) { aFD(c, 0); c.off64(c.pairIndex(1)) }},
	{Name: "fallocate", Decode: func(c *Cx) {
		aFD(c, 0)
		c.Flags(uint64(uint32(c.Arg[1])), constant.FallocateMode)
		c.off64(2)
		if c.ABI.PtrSize == 4 && c.ABI.Name != "x32" {
			c.off64(4)
		} else {
			c.off64(3)
		}
	}},
	{Name: "readahead", Decode: func(c *Cx) {
		aFD(c, 0)
		i := c.pairIndex(1)
		c.off64(i)
		if c.ABI.PtrSize == 4 && c.ABI.Name != "x32" {
			i++
		}
		c.Uint(c.Arg[i+1])
	}},
	{Name: "fadvise64", Decode: func(c *Cx) {
		aFD(c, 0)
		i := c.pairIndex(1)
		c.off64(i)
		if c.ABI.PtrSize == 4 && c.ABI.Name != "x32" {
			i++
		}
		c.Uint(c.Arg[i+1])
		c.Name(uint64(uint32(c.Arg[i+2])), constant.FadviseAdvice)
	}},
	{Name: "sync_file_range", Decode: func(c *Cx) {
		aFD(c, 0)
		c.off64(1)
		c.off64(2)
		c.Flags(uint64(uint32(c.Arg[3])), constant.SyncRangeFlags)
	}},
	{Name: "fsync", Decode: args(aFD)}, {Name: "fdatasync", Decode: args(aFD)}, {Name: "syncfs", Decode: args(aFD)},
	{Name: "sync", Decode: args()},
	{Name: "cachestat", Enter: fetches{syscalls.Fixed(1, 16)}, Exit: fetches{syscalls.Fixed(2, 40)}, Decode: args(aFD,
		func(c *Cx, i int) {
			c.obj(In, c.Arg[i], 16, func(c *Cx, b []byte) {
				f := c.begin(b)
				f.x8("off")
				f.u8("len")
				f.end()
			})
		},
		out(func(c *Cx, i int) {
			b, ok := c.Load(Out, c.Arg[i], 40)
			if !ok {
				return
			}
			f := c.begin(b)
			for _, n := range []string{"nr_cache", "nr_dirty", "nr_writeback", "nr_evicted", "nr_recently_evicted"} {
				f.u8(n)
			}
			f.end()
		}), aHex32)},
}

// sendfile shows where it began to read, and where it ended.
func sendfile(c *Cx) {
	c.FD(c.Arg[0])
	c.FD(c.Arg[1])
	width := 8
	if c.Ptr32() && c.Def != nil && c.Def.Name == "sendfile" && c.ABI.Name != "x32" {
		width = 4
	}
	if c.Arg[2] == 0 {
		c.Ptr(0)
	} else if in, errno := c.Bytes(In, c.Arg[2], width); in == nil {
		c.Unreadable(c.Arg[2], errno)
	} else {
		if c.Entering() {
			return
		}
		now, _ := c.Bytes(Out, c.Arg[2], width)
		show := func(v uint64) {
			if c.Failed() && width == 8 {
				c.Uint(v)
			} else {
				c.Int(int64(v))
			}
		}
		c.Array()
		if now == nil || c.Failed() || c.Ret == 0 {
			show(peek(in, 0, width))
		} else {
			c.change(peek(in, 0, width), peek(now, 0, width), show)
		}
		c.End()
	}
	c.Uint(c.Arg[3])
}

// aOffsetPtr is a pointer to an offset that the call moves.
func aOffsetPtr(c *Cx, i int) {
	c.obj(In, c.Arg[i], 8, func(c *Cx, b []byte) {
		c.Array()
		c.Int(int64(U64(b, 0)))
		c.End()
	})
}
