package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Commands of quotactl(2), include/uapi/linux/quota.h and dqblk_xfs.h. The type of quota is in the low byte.
const (
	qSync, qQuotaOn, qQuotaOff           = 0x800001, 0x800002, 0x800003
	qGetFmt, qGetInfo, qSetInfo          = 0x800004, 0x800005, 0x800006
	qGetQuota, qSetQuota, qGetNext       = 0x800007, 0x800008, 0x800009
	qXQuotaOn, qXQuotaOff, qXGetQuota    = 0x5801, 0x5802, 0x5803
	qXSetQlim, qXGetQstat, qXQuotaRm     = 0x5804, 0x5805, 0x5806
	qXQuotaSync, qXGetQstatv, qXGetNext  = 0x5807, 0x5808, 0x5809
	quotaCmdShift, quotaTypeMask         = 8, 0xff
	quotaStatvSize, quotaDiskSize        = 160, 112
	quotaBlockSize, quotaNextSize        = 68, 72
	quotaInfoSize, quotaStat, quotaStat4 = 24, 80, 68
)

// quotaCmd adds QCMD(command, type).
func quotaCmd(c *Cx, v uint32) {
	c.Begin(event.Node{Kind: event.KindCall, Sym: "QCMD", Num: uint64(v), Attr: event.AttrHex | event.AttrDecimal})
	c.Name(uint64(v>>quotaCmdShift), constant.QuotaCmd)
	c.Name(uint64(v&quotaTypeMask), constant.QuotaType)
	c.End()
}

// quotaTail adds id and addr, as far as the command takes them.
func quotaTail(c *Cx, cmd uint32, id, addr uint64) {
	comes := false // the kernel fills addr
	switch cmd {
	case qSync, qQuotaOff, qXQuotaSync:
		return
	case qQuotaOn:
		c.Name(uint64(uint32(id)), constant.QuotaFormat)
		c.PathAt(In, addr)
		return
	case qGetQuota, qGetNext, qXGetQuota, qXGetNext:
		c.userID(id)
		comes = true
	case qSetQuota, qXSetQlim:
		c.userID(id)
	case qGetFmt, qGetInfo, qXGetQstat, qXGetQstatv:
		comes = true
	case qSetInfo, qXQuotaOn, qXQuotaOff, qXQuotaRm:
	default:
		c.userID(id)
		c.Ptr(addr)
		return
	}
	m := In
	if comes {
		if c.Entering() {
			return
		}
		if m = Out; c.Failed() {
			c.Ptr(addr)
			return
		}
	}
	switch cmd {
	case qGetQuota, qSetQuota:
		c.obj(m, addr, quotaBlockSize, func(c *Cx, b []byte) { quotaBlock(c, b, false) })
	case qGetNext:
		c.obj(m, addr, quotaNextSize, func(c *Cx, b []byte) { quotaBlock(c, b, true) })
	case qXGetQuota, qXGetNext, qXSetQlim:
		c.obj(m, addr, quotaDiskSize, quotaDisk)
	case qGetInfo, qSetInfo:
		c.obj(m, addr, quotaInfoSize, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.u8("dqi_bgrace")
			f.u8("dqi_igrace")
			f.flags("dqi_flags", 4, constant.QuotaInfoFlags)
			f.flags("dqi_valid", 4, constant.QuotaInfoValid)
			f.end()
		})
	case qXGetQstat:
		size := quotaStat
		if c.ABI.Name == "i386" || c.ABI.Name == "x32" {
			size = quotaStat4
		}
		c.obj(m, addr, size, func(c *Cx, b []byte) { quotaState(c, b, size == quotaStat4) })
	case qXGetQstatv:
		c.obj(m, addr, quotaStatvSize, quotaStatv)
	default: // one number
		c.obj(m, addr, 4, func(c *Cx, b []byte) {
			v := uint64(U32(b, 0))
			c.Array()
			switch cmd {
			case qGetFmt:
				c.Name(v, constant.QuotaFormat)
			case qXQuotaRm:
				c.Flags(v, constant.QuotaXfsTypes)
			default:
				c.Flags(v, constant.QuotaXfsFlags)
			}
			c.End()
		})
	}
}

func quotaBlock(c *Cx, b []byte, next bool) {
	f := c.begin(b)
	for _, n := range [...]string{"dqb_bhardlimit", "dqb_bsoftlimit", "dqb_curspace", "dqb_ihardlimit", "dqb_isoftlimit", "dqb_curinodes"} {
		f.u8(n)
	}
	if c.Opt.Abbrev {
		if f.skip(20); next {
			f.u4("dqb_id")
		}
		c.More()
	} else {
		f.u8("dqb_btime")
		f.u8("dqb_itime")
		f.flags("dqb_valid", 4, constant.QuotaBlockValid)
		if next {
			f.u4("dqb_id")
		}
	}
	f.end()
}

// quotaDisk adds struct fs_disk_quota.
func quotaDisk(c *Cx, b []byte) {
	f := c.begin(b)
	f.i1("d_version")
	f.flags("d_flags", 1, constant.QuotaXfsTypes)
	f.x2("d_fieldmask")
	f.u4("d_id")
	for _, n := range [...]string{"d_blk_hardlimit", "d_blk_softlimit", "d_ino_hardlimit", "d_ino_softlimit", "d_bcount", "d_icount"} {
		f.u8(n)
	}
	if c.Opt.Abbrev {
		c.More()
	} else {
		f.i4("d_itimer")
		f.i4("d_btimer")
		f.u2("d_iwarns")
		f.u2("d_bwarns")
		f.skip(4)
		f.u8("d_rtb_hardlimit")
		f.u8("d_rtb_softlimit")
		f.u8("d_rtbcount")
		f.i4("d_rtbtimer")
		f.u2("d_rtbwarns")
	}
	f.end()
}

// quotaFile adds struct fs_qfilestat or fs_qfilestatv: the same members, and padding.
func (f *fields) quotaFile(name string, padding int) {
	f.c.Field(name).Struct()
	f.u8("qfs_ino")
	f.u8("qfs_nblks")
	f.u4("qfs_nextents")
	f.c.End()
	f.skip(padding)
}

func (f *fields) quotaLimits() {
	f.i4("qs_btimelimit")
	f.i4("qs_itimelimit")
	f.i4("qs_rtbtimelimit")
	f.u2("qs_bwarnlimit")
	f.u2("qs_iwarnlimit")
}

// quotaState adds struct fs_quota_stat; packed is its form where 8-byte numbers are aligned to 4.
func quotaState(c *Cx, b []byte, packed bool) {
	f := c.begin(b)
	f.i1("qs_version")
	if c.Opt.Abbrev {
		c.More()
		f.end()
		return
	}
	padding := 4
	f.skip(1)
	f.flags("qs_flags", 2, constant.QuotaXfsFlags)
	f.skip(4)
	if packed {
		padding = 0
	}
	f.quotaFile("qs_uquota", padding)
	f.quotaFile("qs_gquota", padding)
	f.u4("qs_incoredqs")
	f.quotaLimits()
	f.end()
}

// quotaStatv adds struct fs_quota_statv.
func quotaStatv(c *Cx, b []byte) {
	f := c.begin(b)
	f.i1("qs_version")
	if c.Opt.Abbrev {
		c.More()
		f.end()
		return
	}
	f.skip(1)
	f.flags("qs_flags", 2, constant.QuotaXfsFlags)
	f.u4("qs_incoredqs")
	f.quotaFile("qs_uquota", 4)
	f.quotaFile("qs_gquota", 4)
	f.quotaFile("qs_pquota", 4)
	f.quotaLimits()
	f.end()
}

// quotaAt takes the structure at argument 3 with commands cmds, whose register is argument i.
func quotaAt(i int, f syscalls.Fetch, cmds ...uint64) syscalls.Fetch {
	all := make([]uint64, len(cmds))
	for k, cmd := range cmds {
		all[k] = cmd << quotaCmdShift
	}
	f.When = syscalls.Cond{Value: syscalls.Arg(i), Mask: 0xffffff00, Any: all}
	return f
}

func quotaIn(i int) fetches {
	return fetches{
		quotaAt(i, path(3), qQuotaOn),
		quotaAt(i, syscalls.Fixed(3, quotaBlockSize), qSetQuota),
		quotaAt(i, syscalls.Fixed(3, quotaDiskSize), qXSetQlim),
		quotaAt(i, syscalls.Fixed(3, quotaInfoSize), qSetInfo),
		quotaAt(i, syscalls.Fixed(3, 4), qXQuotaOn, qXQuotaOff, qXQuotaRm),
	}
}

func quotaOut(i int) fetches {
	return fetches{
		quotaAt(i, syscalls.Fixed(3, quotaNextSize), qGetQuota, qGetNext),
		quotaAt(i, syscalls.Fixed(3, quotaDiskSize), qXGetQuota, qXGetNext),
		quotaAt(i, syscalls.Fixed(3, quotaInfoSize), qGetInfo),
		quotaAt(i, syscalls.Fixed(3, 4), qGetFmt),
		quotaAt(i, syscalls.Fixed(3, quotaStatvSize), qXGetQstat, qXGetQstatv),
	}
}

// quotaCalls are disk quotas.
var quotaCalls = []Spec{
	{Name: "quotactl", Enter: append(fetches{path(1)}, quotaIn(0)...), Exit: quotaOut(0), Decode: func(c *Cx) {
		cmd := uint32(c.Arg[0])
		quotaCmd(c, cmd)
		c.PathAt(In, c.Arg[1])
		quotaTail(c, cmd>>quotaCmdShift, c.Arg[2], c.Arg[3])
	}},
	{Name: "quotactl_fd", Enter: quotaIn(1), Exit: quotaOut(1), Decode: func(c *Cx) {
		cmd := uint32(c.Arg[1])
		c.FD(c.Arg[0])
		quotaCmd(c, cmd)
		quotaTail(c, cmd>>quotaCmdShift, c.Arg[2], c.Arg[3])
	}},
}
