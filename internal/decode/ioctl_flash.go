package decode

import (
	"github.com/sonde-trace/sonde/internal/constant"
)

// Flash memory (mtd/mtd-abi.h, mtd/ubi-user.h).

func decodeMtdIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	pair := func(width int) func(c *Cx, b []byte) {
		return func(c *Cx, b []byte) {
			c.Struct()
			c.Field("start").Hex(peek(b, 0, width))
			c.Field("length").Hex(peek(b, width, width))
			c.End()
		}
	}
	otp := func(c *Cx, b []byte) {
		f := c.begin(b)
		f.x4("start")
		f.x4("length")
		f.u4("locked")
		f.end()
	}
	switch cmd {
	case 0x40084d02, 0x40084d05, 0x40084d06, 0x80084d17: // MEMERASE, MEMLOCK, MEMUNLOCK, MEMISLOCKED
		return c.ioctlIn(arg, 8, pair(4))
	case 0x40104d14: // MEMERASE64
		return c.ioctlIn(arg, 16, pair(8))
	case 0xc0104d03, 0xc0104d04: // MEMWRITEOOB, MEMREADOOB
		return c.ioctlIn(arg, 8+c.ABI.PtrSize, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.x4("start")
			f.x4("length")
			f.ptr("ptr")
			f.end()
		})
	case 0xc0184d15, 0xc0184d16: // MEMWRITEOOB64, MEMREADOOB64
		return c.ioctlIn(arg, 24, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.x8("start")
			f.skip(4).x4("length")
			f.off = 16
			f.p8("usr_ptr")
			f.off = 12
			f.end()
		})
	case 0xc0304d18: // MEMWRITE
		return c.ioctlIn(arg, 48, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.x8("start")
			f.x8("len")
			f.x8("ooblen")
			f.p8("usr_data")
			f.p8("usr_oob")
			f.enum("mode", 1, constant.MtdOps)
			f.end()
		})
	case 0x400c4d0f: // OTPGETREGIONINFO
		return c.ioctlOut(arg, 12, otp)
	case 0x800c4d10: // OTPLOCK
		return c.ioctlIn(arg, 12, otp)
	case 0x80044d0d: // OTPSELECT
		return c.ioctlInt(arg, 4, func(c *Cx, b []byte) { c.Name(peek(b, 0, 4), constant.MtdOtp) })
	case 0x4d13: // MTDFILEMODE
		c.Name(arg, constant.MtdFileMode)
		return ioctlShown
	case 0x40084d0b, 0x40084d0c: // MEMGETBADBLOCK, MEMSETBADBLOCK
		return c.ioctlInt(arg, 8, uintNumber)
	case 0x80204d01: // MEMGETINFO
		return c.ioctlOut(arg, 32, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.enum("type", 1, constant.MtdType)
			f.skip(3).flags("flags", 4, constant.MtdFlags)
			f.x4("size")
			f.x4("erasesize")
			f.x4("writesize")
			f.x4("oobsize")
			f.x8("padding")
			f.end()
		})
	case 0x80c84d0a: // MEMGETOOBSEL
		return c.ioctlOut(arg, 200, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.enum("useecc", 4, constant.MtdNandEcc)
			f.x4("eccbytes")
			f.array("oobfree", 8, 8, func(c *Cx, b []byte) { c.numbers(b, 4, 2, hexNumber) })
			f.array("eccpos", 4, 32, hexNumber)
			f.end()
		})
	case 0x81484d11: // ECCGETLAYOUT
		return c.ioctlOut(arg, 328, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.x4("eccbytes")
			f.array("eccpos", 4, 64, hexNumber)
			f.x4("oobavail")
			f.array("oobfree", 8, 8, func(c *Cx, b []byte) {
				g := c.begin(b)
				g.x4("offset")
				g.x4("length")
				g.end()
			})
			f.end()
		})
	case 0x80104d12: // ECCGETSTATS
		return c.ioctlOut(arg, 16, func(c *Cx, b []byte) {
			f := c.begin(b)
			for _, name := range [...]string{"corrected", "failed", "badblocks", "bbtblocks"} {
				f.x4(name)
			}
			f.end()
		})
	case 0x40044d0e: // OTPGETREGIONCOUNT
		return c.ioctlGot(arg, 4, uintNumber)
	case 0x80044d07: // MEMGETREGIONCOUNT
		return c.ioctlGot(arg, 4, intNumber)
	case 0xc0104d08: // MEMGETREGIONINFO
		return c.ioctlBoth(arg, 16, func(f *fields) {
			f.skip(12).x4("regionindex")
		}, func(f *fields) {
			f.x4("offset")
			f.x4("erasesize")
			f.x4("numblocks")
		})
	}
	return ioctlUnknown
}

// ubiName is a name of n bytes in an array of size.
func (f *fields) ubiName(n int64, size int) {
	b := f.take(size)
	f.c.Field("name")
	f.c.cstring(b[:min(int(1+max(0, min(n, int64(size-1)))), len(b))])
}

// ubiLebChange is UBI_IOCEBCH, whose number counts less than its structure has.
const ubiLebChange = 0x40044f02

func decodeUbiIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	switch cmd {
	case 0x40986f00: // UBI_IOCMKVOL
		return c.ioctlChange(arg, 152, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.i4("vol_id")
			f.i4("alignment")
			f.i8("bytes")
			f.enum("vol_type", 1, constant.UbiVolumeType)
			f.flags("flags", 1, constant.UbiVolumeFlags)
			n := int64(int16(peek(b, 18, 2)))
			f.i2("name_len")
			f.skip(4).ubiName(n, 128)
			f.end()
		}, func(c *Cx, b []byte) { c.numbers(b, 4, 1, intNumber) })
	case 0x400c6f02: // UBI_IOCRSVOL
		return c.ioctlIn(arg, 12, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.i8("bytes")
			f.i4("vol_id")
			f.end()
		})
	case 0x51106f03: // UBI_IOCRNVOL
		return c.ioctlIn(arg, 4368, func(c *Cx, b []byte) {
			f := c.begin(b)
			n := int64(int32(peek(b, 0, 4)))
			f.i4("count")
			f.skip(12).upto("ents", 136, 32, uint64(max(0, n)), func(c *Cx, b []byte) {
				g := c.begin(b)
				g.i4("vol_id")
				m := int64(int16(peek(b, 4, 2)))
				g.i2("name_len")
				g.skip(2).ubiName(m, 128)
				g.end()
			})
			f.end()
		})
	case ubiLebChange:
		return c.ioctlIn(arg, 12, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.i4("lnum")
			f.i4("bytes")
			f.enum("dtype", 1, constant.UbiDataType)
			f.end()
		})
	case 0x40186f40: // UBI_IOCATT
		return c.ioctlChange(arg, 24, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.i4("ubi_num")
			f.i4("mtd_num")
			f.i4("vid_hdr_offset")
			f.i2("max_beb_per1024")
			f.i1("disable_fm")
			f.i1("need_resv_pool")
			f.end()
		}, func(c *Cx, b []byte) { c.numbers(b, 4, 1, intNumber) })
	case 0x40084f03: // UBI_IOCEBMAP
		return c.ioctlIn(arg, 8, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.i4("lnum")
			f.enum("dtype", 1, constant.UbiDataType)
			f.end()
		})
	case 0x40104f06: // UBI_IOCSETVOLPROP
		return c.ioctlIn(arg, 16, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.enum("property", 1, constant.UbiVolProp)
			f.skip(7).x8("value")
			f.end()
		})
	case 0x40084f00: // UBI_IOCVOLUP
		return c.ioctlInt(arg, 8, func(c *Cx, b []byte) { c.Int(int64(peek(b, 0, 8))) })
	case 0x40046f41, 0x40044f01, 0x80044f05, 0x40044f04, 0x40046f01, 0x40046f04, 0x40046f05: // one number
		return c.ioctlInt(arg, 4, intNumber)
	case 0x40804f07, 0x4f08: // UBI_IOCVOLCRBLK, UBI_IOCVOLRMBLK
		return ioctlShown
	}
	return ioctlUnknown
}
