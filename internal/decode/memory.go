package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// maxVec is the most bytes of an array that is taken.
const maxVec = 4096

// memory is the calls that change or ask about the address space.
var memory = []Spec{
	{Name: "brk", Decode: args(aPtr), Ret: retHex},
	{
		Name:    "mmap",
		Enter32: takes(syscalls.Fixed(0, 24)),
		Decode: func(c *Cx) {
			if c.ABI.Name != "i386" {
				c.mmap(c.Arg, c.Arg[5])
				return
			}
			// The old call of i386 takes its arguments from memory.
			b, errno := c.Bytes(In, c.Arg[0], 24)
			if b == nil {
				c.Unreadable(c.Arg[0], errno)
				return
			}
			var a [6]uint64
			for i := range a {
				a[i] = uint64(U32(b, 4*i))
			}
			c.mmap(a, a[5])
		},
		Ret: retHex,
	},
	{Name: "mmap2", Decode: func(c *Cx) { c.mmap(c.Arg, c.Arg[5]<<12) }, Ret: retHex},
	{Name: "munmap", Decode: args(aPtr, aUlong)},
	{Name: "mprotect", Decode: args(aPtr, aUlong, aFlags64(constant.MmapProt))},
	{Name: "pkey_mprotect", Decode: args(aPtr, aUlong, aFlags64(constant.MmapProt), aInt)},
	{Name: "pkey_alloc", Decode: args(aHex, aFlags64(constant.PkeyAccess))},
	{Name: "pkey_free", Decode: args(aInt)},
	{Name: "mremap", Decode: func(c *Cx) {
		args(aPtr, aUlong, aUlong, aFlags64(constant.MremapFlags))(c)
		const mayMove, fixed, dontUnmap = 1, 2, 4
		if c.Arg[3]&mayMove != 0 && c.Arg[3]&(fixed|dontUnmap) != 0 {
			c.Ptr(c.Arg[4])
		}
	}, Ret: retHex},
	{Name: "madvise", Decode: args(aPtr, aUlong, aName(constant.Madvise))},
	{
		Name:    "process_madvise",
		Enter:   takes(syscalls.Vec(1, syscalls.Arg(2), 16, maxVec)),
		Enter32: takes(syscalls.Vec(1, syscalls.Arg(2), 8, maxVec)),
		Decode: args(aFD, func(c *Cx, i int) {
			c.list(In, c.Arg[1], c.Arg[2], 2*c.ABI.PtrSize, func(c *Cx, b []byte) {
				f := c.begin(b)
				f.ptr("iov_base")
				f.word("iov_len")
				f.end()
			})
		}, aUlong, aName(constant.Madvise), aHex32),
	},
	{Name: "mlock", Decode: args(aPtr, aUlong)},
	{Name: "mlock2", Decode: args(aPtr, aUlong, aFlags(constant.MlockFlags))},
	{Name: "munlock", Decode: args(aPtr, aUlong)},
	{Name: "mlockall", Decode: args(aFlags(constant.MlockallFlags))},
	{Name: "munlockall", Decode: args()},
	{Name: "msync", Decode: args(aPtr, aUlong, aFlags(constant.MsyncFlags))},
	{
		Name: "mincore",
		// One byte a page; how many is not a multiple of an argument, so that the array is taken as far as it is shown.
		Exit: takes(syscalls.Fixed(2, 512)),
		Decode: args(aPtr, aUlong, out(func(c *Cx, i int) {
			pages := c.Arg[1] / pageSize
			if c.Arg[1]%pageSize != 0 {
				pages++
			}
			if c.Failed() {
				c.Ptr(c.Arg[i])
				return
			}
			c.list(Out, c.Arg[i], pages, 1, func(c *Cx, b []byte) { c.Uint(uint64(b[0] & 1)) })
		})),
	},
	{Name: "remap_file_pages", Decode: args(aPtr, aUlong, aFlags64(constant.MmapProt), aUlong, aMmapFlags)},
	{Name: "map_shadow_stack", Decode: args(aPtr, aUlong, aFlags(constant.ShadowStackFlags)), Ret: retHex},
	{Name: "mseal", Decode: args(aPtr, aUlong, aHex)},

	{Name: "mbind", Enter: takes(nodemask(3, 4)), Decode: args(aPtr, aUlong, aMpol, aNodemask(In, 4), aUlong, aFlags(constant.MbindFlags))},
	{Name: "set_mempolicy", Enter: takes(nodemask(1, 2)), Decode: args(func(c *Cx, i int) { c.mpol(uint64(uint32(c.Arg[i]))) }, aNodemask(In, 2), aUlong)},
	{
		Name: "get_mempolicy",
		Exit: takes(syscalls.Fixed(0, 4), nodemask(1, 2)),
		Decode: args(refOut(4, func(c *Cx, b []byte) { c.Name(uint64(U32(b, 0)), constant.MpolMode) }),
			aNodemask(Out, 2), aUlong, aPtr, aFlags64(constant.GetMempolicyFlags)),
	},
	{Name: "set_mempolicy_home_node", Decode: args(aPtr, aUlong, aUlong, aHex)},
	{Name: "migrate_pages", Enter: takes(nodemask(2, 1), nodemask(3, 1)), Decode: args(aPID, aUlong, aNodemask(In, 1), aNodemask(In, 1))},
	{
		Name:    "move_pages",
		Enter:   takes(syscalls.Vec(2, syscalls.Arg(1), 8, maxVec), syscalls.Vec(3, syscalls.Arg(1), 4, maxVec)),
		Enter32: takes(syscalls.Vec(2, syscalls.Arg(1), 4, maxVec), syscalls.Vec(3, syscalls.Arg(1), 4, maxVec)),
		Exit:    takes(syscalls.Vec(4, syscalls.Arg(1), 4, maxVec)),
		Decode: args(aPID, aUlong, func(c *Cx, i int) {
			c.list(In, c.Arg[i], c.Arg[1], c.ABI.PtrSize, func(c *Cx, b []byte) { c.Ptr(peek(b, 0, len(b))) })
		}, func(c *Cx, i int) {
			c.list(In, c.Arg[i], c.Arg[1], 4, intNumber)
		}, out(func(c *Cx, i int) {
			if c.Failed() {
				c.Ptr(c.Arg[i])
				return
			}
			c.list(Out, c.Arg[i], c.Arg[1], 4, func(c *Cx, b []byte) { c.negativeErrno(U32(b, 0)) })
		}), aFlags(constant.MovePagesFlags)),
	},
}

// pageSize is that of amd64, and the usual one of arm64.
const pageSize = 4096

// mmap adds the arguments of mmap(2).
func (c *Cx) mmap(a [6]uint64, offset uint64) {
	c.Ptr(a[0])
	c.Uint(a[1])
	c.Flags(a[2], constant.MmapProt)
	c.mmapFlags(a[3])
	c.FD(a[4])
	c.Hex(offset)
}

// Parts of mmap's flags: MAP_TYPE, and the size of huge pages that <linux/mman.h> keeps above MAP_HUGE_SHIFT.
const (
	mapType      = 0xf
	mapHugeShift = 26
	mapHugeMask  = 0x3f << mapHugeShift
)

func aMmapFlags(c *Cx, i int) { c.mmapFlags(c.Arg[i]) }

func (c *Cx) mmapFlags(v uint64) {
	rest := v &^ (mapType | mapHugeMask)
	huge := v & mapHugeMask
	if rest == 0 && huge == 0 {
		c.Name(v, constant.MmapType)
		return
	}
	c.open(v)
	c.Name(v&mapType, constant.MmapType)
	if rest != 0 {
		c.flagNames(rest, constant.MmapFlags)
	}
	if huge != 0 {
		c.expr("<<")
		c.Uint(huge >> mapHugeShift)
		c.Sym("MAP_HUGE_SHIFT", mapHugeShift)
		c.End()
	}
	c.End()
}

// nodemask is a set of numa nodes, a bit each, in words; the number of bits in argument bits is one more than there are.
func nodemask(arg, _ int) syscalls.Fetch {
	return syscalls.Fixed(arg, 128) // as far as it is shown
}

func aNodemask(m Moment, bits int) arg {
	return func(c *Cx, i int) {
		word := uint64(8 * c.ABI.PtrSize)
		max := c.Arg[bits]
		n := (max + word - 2) / word
		if n < max/word || max != 0 && n == 0 {
			c.Ptr(c.Arg[i])
			return
		}
		if m == Out && c.Failed() {
			c.Ptr(c.Arg[i])
			return
		}
		c.list(m, c.Arg[i], n, c.ABI.PtrSize, func(c *Cx, b []byte) {
			c.Add(event.Node{Kind: event.KindHex, Num: peek(b, 0, len(b)), Errno: uint16(2 * len(b))})
		})
	}
}

func aMpol(c *Cx, i int) { c.mpol(c.Arg[i]) }

// mpol adds a memory policy's mode with its flags.
func (c *Cx) mpol(v uint64) {
	const flagsMask = 1<<15 | 1<<14 | 1<<13 // MPOL_F_STATIC_NODES, MPOL_F_RELATIVE_NODES, MPOL_F_NUMA_BALANCING
	flags := v & flagsMask
	name, ok := constant.MpolMode.Name(v &^ flagsMask)
	switch {
	case flags == 0:
		c.Name(v, constant.MpolMode)
	case !ok:
		c.Flags(v, constant.MpolModeFlags)
	default:
		c.open(v)
		c.Sym(name, v&^flagsMask)
		c.flagNames(flags, constant.MpolModeFlags)
		c.End()
	}
}

// negativeErrno adds a status: a number, or an error as -ENOENT.
func (c *Cx) negativeErrno(v uint32) {
	if int32(v) < 0 {
		if n := constant.ErrnoOf(int(-int32(v))); n.Name != "" {
			c.Add(event.Node{Kind: event.KindSym, Attr: event.AttrDecimal, Num: uint64(int64(int32(v))), Data: c.Keep([]byte("-" + n.Name))})
			return
		}
	}
	c.Int(int64(int32(v)))
}
