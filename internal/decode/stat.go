package decode

import (
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// statLayout says where the members of a struct stat are. Sources: arch/x86/include/uapi/asm/stat.h,
// asm-generic/stat.h, arch/arm/include/uapi/asm/stat.h.
type statLayout struct {
	size                                    int
	dev, ino, mode, nlink, uid, gid, rdev   place
	length, blksize, blocks                 place
	atime, atimeN, mtime, mtimeN, ctime, cN place
}

type place struct{ off, width int }

var (
	stat64bit = statLayout{144, place{0, 8}, place{8, 8}, place{24, 4}, place{16, 8}, place{28, 4}, place{32, 4}, place{40, 8},
		place{48, 8}, place{56, 8}, place{64, 8}, place{72, 8}, place{80, 8}, place{88, 8}, place{96, 8}, place{104, 8}, place{112, 8}}
	statGeneric = statLayout{128, place{0, 8}, place{8, 8}, place{16, 4}, place{20, 4}, place{24, 4}, place{28, 4}, place{32, 8},
		place{48, 8}, place{56, 4}, place{64, 8}, place{72, 8}, place{80, 8}, place{88, 8}, place{96, 8}, place{104, 8}, place{112, 8}}
	statI386 = statLayout{64, place{0, 4}, place{4, 4}, place{8, 2}, place{10, 2}, place{12, 2}, place{14, 2}, place{16, 4},
		place{20, 4}, place{24, 4}, place{28, 4}, place{32, 4}, place{36, 4}, place{40, 4}, place{44, 4}, place{48, 4}, place{52, 4}}
	stat64I386 = statLayout{96, place{0, 8}, place{88, 8}, place{16, 4}, place{20, 4}, place{24, 4}, place{28, 4}, place{32, 8},
		place{44, 8}, place{52, 4}, place{56, 8}, place{64, 4}, place{68, 4}, place{72, 4}, place{76, 4}, place{80, 4}, place{84, 4}}
	stat64ARM = statLayout{104, place{0, 8}, place{96, 8}, place{16, 4}, place{20, 4}, place{24, 4}, place{28, 4}, place{32, 8},
		place{48, 8}, place{56, 4}, place{64, 8}, place{72, 4}, place{76, 4}, place{80, 4}, place{84, 4}, place{88, 4}, place{92, 4}}
)

func (c *Cx) statLayout() *statLayout {
	is64 := c.Def != nil && len(c.Def.Name) > 2 && c.Def.Name[len(c.Def.Name)-2:] == "64"
	switch {
	case c.ABI.Name == "arm64":
		return &statGeneric
	case c.ABI.Name == "i386" && is64:
		return &stat64I386
	case c.ABI.Name == "arm" && is64:
		return &stat64ARM
	case c.ABI.PtrSize == 4 && c.ABI.Name != "x32":
		return &statI386
	}
	return &stat64bit
}

// Stat adds the struct stat at addr.
func (c *Cx) Stat(addr uint64) {
	l := c.statLayout()
	b, ok := c.Load(Out, addr, l.size)
	if !ok {
		return
	}
	at := func(p place) uint64 { return peek(b, p.off, p.width) }
	c.Struct()
	if !c.Opt.Abbrev {
		c.Field("st_dev")
		c.Dev(at(l.dev))
		c.Field("st_ino").Uint(at(l.ino))
	}
	mode := at(l.mode)
	c.Field("st_mode")
	c.Mode(mode)
	if !c.Opt.Abbrev {
		c.Field("st_nlink").Uint(at(l.nlink))
		c.Field("st_uid").Uint(at(l.uid))
		c.Field("st_gid").Uint(at(l.gid))
		c.Field("st_blksize").Uint(at(l.blksize))
		c.Field("st_blocks").Uint(at(l.blocks))
	}
	if t := mode & sIFMT; t == sIFCHR || t == sIFBLK {
		c.Field("st_rdev")
		c.Dev(at(l.rdev))
	} else {
		c.Field("st_size").Uint(at(l.length))
	}
	if c.Opt.Abbrev {
		c.More()
	} else {
		for _, t := range [...]struct {
			name  string
			s, ns place
		}{{"st_atime", l.atime, l.atimeN}, {"st_mtime", l.mtime, l.mtimeN}, {"st_ctime", l.ctime, l.cN}} {
			sec, nsec := int64(at(t.s)), at(t.ns)
			if t.s.width == 4 {
				sec = int64(int32(sec))
			}
			c.Field(t.name).Int(sec)
			c.date(sec, nsec)
			c.Field(nsecNames[t.name]).Uint(nsec)
		}
	}
	c.End()
}

var nsecNames = map[string]string{"st_atime": "st_atime_nsec", "st_mtime": "st_mtime_nsec", "st_ctime": "st_ctime_nsec"}

func aStat(c *Cx, i int) { c.Stat(c.Arg[i]) }

func statAt(i int) fetches { return fetches{syscalls.Fixed(i, 144)} }

// aStatx adds struct statx, include/uapi/linux/stat.h: the members that its mask, or an attribute, says are there.
func aStatx(c *Cx, i int) {
	b, ok := c.Load(Out, c.Arg[i], 256)
	if !ok {
		return
	}
	const (
		typ, mode, nlink, uid, gid, atime, mtime, ctime = 1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80
		ino, size, blocks, btime, mntID, dioAlign       = 0x100, 0x200, 0x400, 0x800, 0x1000, 0x2000
		subvol, dioReadAlign                            = 0x8000, 0x20000
		writeAtomic                                     = 0x400000 // STATX_ATTR_WRITE_ATOMIC
	)
	mask, attr := U32(b, 0), U64(b, 8)
	full, atomic := !c.Opt.Abbrev, U64(b, 8)&writeAtomic != 0
	f := c.begin(b)
	defer f.end()
	number := func(name string, off, width int, present bool) {
		if full && present {
			c.Field(name).Uint(peek(b, off, width))
		}
	}
	hex := func(name string, off int, present bool) {
		if present {
			c.Field(name).Hex(U64(b, off))
		}
	}
	f.flags("stx_mask", 4, constant.StatxMask)
	number("stx_blksize", 4, 4, true)
	c.Field("stx_attributes")
	c.Flags(attr, constant.StatxAttr)
	number("stx_nlink", 16, 4, mask&nlink != 0)
	number("stx_uid", 20, 4, mask&uid != 0)
	number("stx_gid", 24, 4, mask&gid != 0)
	if mask&(typ|mode) != 0 {
		c.Field("stx_mode")
		c.Mode(uint64(U16(b, 28)))
	}
	number("stx_ino", 32, 8, mask&ino != 0)
	if mask&size != 0 {
		c.Field("stx_size").Uint(U64(b, 40))
	}
	if !full {
		c.More()
		return
	}
	number("stx_blocks", 48, 8, mask&blocks != 0)
	f.off = 56
	f.flags("stx_attributes_mask", 8, constant.StatxAttr)
	for k, t := range [...]struct {
		name string
		bit  uint32
	}{{"stx_atime", atime}, {"stx_btime", btime}, {"stx_ctime", ctime}, {"stx_mtime", mtime}} {
		if mask&t.bit == 0 {
			continue
		}
		sec, nsec := int64(U64(b, 64+16*k)), uint64(U32(b, 72+16*k))
		c.Field(t.name).Struct()
		c.Field("tv_sec").Int(sec)
		c.Field("tv_nsec").Uint(nsec)
		c.End()
		c.date(sec, nsec)
	}
	for k, n := range [...]string{"stx_rdev_major", "stx_rdev_minor", "stx_dev_major", "stx_dev_minor"} {
		number(n, 128+4*k, 4, true)
	}
	hex("stx_mnt_id", 144, mask&mntID != 0)
	number("stx_dio_mem_align", 152, 4, mask&dioAlign != 0)
	number("stx_dio_offset_align", 156, 4, mask&dioAlign != 0)
	hex("stx_subvol", 160, mask&subvol != 0)
	number("stx_atomic_write_unit_min", 168, 4, atomic)
	number("stx_atomic_write_unit_max", 172, 4, atomic)
	number("stx_atomic_write_segments_max", 176, 4, atomic)
	number("stx_dio_read_offset_align", 180, 4, mask&dioReadAlign != 0)
	number("stx_atomic_write_unit_max_opt", 184, 4, atomic)
}

func aStatxFlags(c *Cx, i int) {
	v := uint64(uint32(c.Arg[i]))
	sync := "AT_STATX_SYNC_AS_STAT"
	switch v & 0x6000 {
	case 0x2000:
		sync = "AT_STATX_FORCE_SYNC"
	case 0x4000:
		sync = "AT_STATX_DONT_SYNC"
	case 0x6000:
		sync = "AT_STATX_FORCE_SYNC|AT_STATX_DONT_SYNC"
	}
	if v&^0x6000 == 0 {
		c.Sym(sync, v)
		return
	}
	c.beginFlags(v)
	c.Sym(sync, v&0x6000)
	c.moreFlags(v&^0x6000, constant.AtFlags)
	c.End()
}

// statfsOf adds struct statfs; both sizes have the members in the same order.
func (c *Cx) statfs(addr uint64, wide bool) {
	w := c.ABI.PtrSize
	if c.ABI.Name == "x32" {
		w = 4
	}
	size := 120
	if w == 4 {
		size = 64
		if wide {
			size = 84
		}
	}
	b, ok := c.Load(Out, addr, size)
	if !ok {
		return
	}
	count := w
	if wide {
		count = 8
	}
	f := c.begin(b)
	f.enum("f_type", w, constant.FsMagic)
	c.Field("f_bsize").Uint(f.num(w))
	for _, n := range [...]string{"f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree"} {
		c.Field(n).Uint(f.num(count))
	}
	c.Field("f_fsid").Struct()
	c.Field("val").Array()
	c.Hex(f.num(4))
	c.Hex(f.num(4))
	c.End()
	c.End()
	c.Field("f_namelen").Uint(f.num(w))
	c.Field("f_frsize").Uint(f.num(w))
	v := f.num(w)
	c.Field("f_flags")
	c.Flags(v, constant.StatfsFlags)
	f.end()
}

func aStatfs(c *Cx, i int)   { c.statfs(c.Arg[i], false) }
func aStatfs64(c *Cx, i int) { c.statfs(c.Arg[i], true) }

var statCalls = []Spec{
	{Name: "stat", Enter: path0, Exit: statAt(1), Decode: args(aPath, out(aStat))},
	{Name: "lstat", Enter: path0, Exit: statAt(1), Decode: args(aPath, out(aStat))},
	{Name: "fstat", Exit: statAt(1), Decode: args(aFD, out(aStat))},
	{Name: "stat64", Enter: path0, Exit: statAt(1), Decode: args(aPath, out(aStat))},
	{Name: "lstat64", Enter: path0, Exit: statAt(1), Decode: args(aPath, out(aStat))},
	{Name: "fstat64", Exit: statAt(1), Decode: args(aFD, out(aStat))},
	{Name: "newfstatat", Enter: path1, Exit: statAt(2), Decode: args(aDirFD, aPath, out(aStat), aFlags(constant.StatFlags))},
	{Name: "fstatat64", Enter: path1, Exit: statAt(2), Decode: args(aDirFD, aPath, out(aStat), aFlags(constant.StatFlags))},
	{Name: "statx", Enter: path1, Exit: fetches{syscalls.Fixed(4, 256)},
		Decode: args(aDirFD, aPath, aStatxFlags, aFlags(constant.StatxMask), out(aStatx))},
	{Name: "statfs", Enter: path0, Exit: fetches{syscalls.Fixed(1, 120)}, Decode: args(aPath, out(aStatfs))},
	{Name: "fstatfs", Exit: fetches{syscalls.Fixed(1, 120)}, Decode: args(aFD, out(aStatfs))},
	{Name: "statfs64", Enter: path0, Exit: fetches{syscalls.Fixed(2, 84)}, Decode: args(aPath, aUlong, out(aStatfs64))},
	{Name: "fstatfs64", Exit: fetches{syscalls.Fixed(2, 84)}, Decode: args(aFD, aUlong, out(aStatfs64))},
	{Name: "ustat", Exit: fetches{syscalls.Fixed(1, 32)}, Decode: args(func(c *Cx, i int) { c.Dev(uint64(uint32(c.Arg[i]))) }, out(func(c *Cx, i int) {
		b, ok := c.Load(Out, c.Arg[i], 32)
		if !ok {
			return
		}
		c.Struct()
		c.Field("f_tfree").Uint(uint64(U32(b, 0)))
		if c.Ptr32() {
			c.Field("f_tinode").Uint(uint64(U32(b, 4)))
		} else {
			c.Field("f_tinode").Uint(U64(b, 8))
		}
		c.End()
	}))},
}
