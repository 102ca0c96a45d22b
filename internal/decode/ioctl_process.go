package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
)

// Memory and processes watched from outside: userfaultfd, seccomp's listener, namespaces, pidfd (linux/userfaultfd.h,
// linux/seccomp.h, linux/nsfs.h, linux/pidfd.h).

const (
	uffdAPI          = 0xc018aa3f
	uffdCopy         = 0xc028aa03
	uffdRegister     = 0xc020aa00
	uffdUnregister   = 0x8010aa01
	uffdWake         = 0x8010aa02
	uffdZeropage     = 0xc020aa04
	uffdWriteprotect = 0xc018aa06
	uffdContinue     = 0xc020aa07
	uffdPoison       = 0xc020aa08
)

func (f *fields) uffdRange() {
	f.c.Field("range").Struct()
	f.x8("start")
	f.x8("len")
	f.c.End()
}

func decodeUffdIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	size := int(cmd >> 16 & 0x3fff)
	ranged := func(set *constant.Set, result func(f *fields)) ioctlArg {
		return c.ioctlBoth(arg, size, func(f *fields) {
			f.uffdRange()
			f.flags("mode", 8, set)
		}, func(f *fields) { result(f.skip(24)) })
	}
	switch cmd {
	case uffdAPI:
		b, errno := c.Bytes(In, arg, size)
		if b == nil {
			c.Unreadable(arg, errno)
			return ioctlShown
		}
		if c.Entering() {
			return ioctlWait
		}
		f := c.begin(b)
		f.x8("api")
		asked := f.num(8)
		c.Field("features")
		o, _ := c.Bytes(Out, arg, size)
		if o == nil || c.Failed() {
			c.Flags(asked, constant.UffdFeature)
		} else {
			got := peek(o, 8, 8)
			if got == asked {
				c.Flags(asked, constant.UffdFeature)
			} else {
				c.Begin(event.Node{Kind: event.KindChange})
				c.Flags(asked, constant.UffdFeature)
				c.Field("features")
				c.Flags(got, constant.UffdFeature)
				c.End()
			}
			c.at(o, 16).flags("ioctls", 8, constant.UffdAPIIoctls)
		}
		f.end()
		return ioctlShown
	case uffdCopy:
		return c.ioctlBoth(arg, size, func(f *fields) {
			f.x8("dst")
			f.x8("src")
			f.x8("len")
			f.flags("mode", 8, constant.UffdCopyMode)
		}, func(f *fields) { f.skip(32).x8("copy") })
	case uffdRegister:
		return ranged(constant.UffdRegisterMode, func(f *fields) { f.flags("ioctls", 8, constant.UffdRangeIoctls) })
	case uffdUnregister, uffdWake:
		return c.ioctlIn(arg, size, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.x8("start")
			f.x8("len")
			f.end()
		})
	case uffdZeropage:
		return ranged(constant.UffdZeropageMode, func(f *fields) { f.x8("zeropage") })
	case uffdWriteprotect:
		return c.ioctlIn(arg, size, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.uffdRange()
			f.flags("mode", 8, constant.UffdWriteprotectMode)
			f.end()
		})
	case uffdContinue:
		return ranged(constant.UffdContinueMode, func(f *fields) { f.u8("mapped") })
	case uffdPoison:
		return ranged(constant.UffdPoisonMode, func(f *fields) { f.u8("updated") })
	}
	return ioctlUnknown
}

const (
	seccompNotifRecv     = 0xc0502100
	seccompNotifSend     = 0xc0182101
	seccompNotifIDValid  = 0x40082102
	seccompNotifIDWrong  = 0x80082102 // before Linux 5.7
	seccompNotifAddfd    = 0x40182103
	seccompNotifSetFlags = 0x40082104
)

func decodeSeccompIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	switch cmd {
	case seccompNotifRecv:
		b, errno := c.Bytes(In, arg, 80)
		if b == nil {
			c.Unreadable(arg, errno)
			return ioctlShown
		}
		if c.Entering() {
			return ioctlWait
		}
		if allZero(b) {
			if o, ok := c.Load(Out, arg, 80); ok {
				seccompNotif(c, o)
			}
			return ioctlShown
		}
		c.Begin(event.Node{Kind: event.KindChange})
		seccompNotif(c, b)
		if o, ok := c.Load(Out, arg, 80); ok {
			seccompNotif(c, o)
		}
		c.End()
		return ioctlShown
	case seccompNotifSend:
		return c.ioctlIn(arg, 24, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.x8("id")
			f.i8("val")
			c.Field("error")
			c.negativeErrno(uint32(f.num(4)))
			f.flags("flags", 4, constant.SeccompRespFlags)
			f.end()
		})
	case seccompNotifIDValid, seccompNotifIDWrong:
		return c.ioctlInt(arg, 8, hexNumber)
	case seccompNotifAddfd:
		return c.ioctlIn(arg, 24, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.x8("id")
			f.flags("flags", 4, constant.SeccompAddfdFlags)
			f.fd("srcfd")
			f.i4("newfd")
			f.flags("newfd_flags", 4, constant.OpenFlags)
			f.end()
		})
	case seccompNotifSetFlags:
		c.Flags(arg, constant.SeccompNotifFlags)
		return ioctlShown
	}
	return ioctlUnknown
}

func seccompNotif(c *Cx, b []byte) {
	f := c.begin(b)
	f.x8("id")
	f.pid("pid")
	f.x4("flags")
	c.Field("data").Struct()
	c.Field("nr")
	c.syscallNumber(uint32(f.num(4)), uint32(peek(b, f.off, 4)))
	f.enum("arch", 4, constant.AuditArch)
	f.p8("instruction_pointer")
	f.array("args", 8, 6, hexNumber)
	c.End()
	f.end()
}

// auditArches are the architectures of seccomp's records (linux/audit.h) by ABI.
var auditArches = map[string]uint32{"amd64": 0xc000003e, "x32": 0xc000003e, "i386": 0x40000003, "arm64": 0xc00000b7, "arm": 0x40000028}

// syscallNumber adds the number of a call, by name when it belongs to the ABI of the call being decoded.
func (c *Cx) syscallNumber(nr, arch uint32) {
	if arch == auditArches[c.ABI.Name] {
		if d := c.ABI.Lookup(nr); d != nil {
			c.Add(event.Node{Kind: event.KindSym, Data: c.Keep([]byte("__NR_" + d.Name)), Num: uint64(nr), Attr: event.AttrDecimal})
			return
		}
	}
	c.Uint(uint64(nr))
}

// namespaceNames are the kinds of namespaces as NS_GET_NSTYPE returns them (linux/sched.h).
var namespaceNames = map[int64]string{
	0x80: "CLONE_NEWTIME", 0x20000: "CLONE_NEWNS", 0x2000000: "CLONE_NEWCGROUP", 0x4000000: "CLONE_NEWUTS",
	0x8000000: "CLONE_NEWIPC", 0x10000000: "CLONE_NEWUSER", 0x20000000: "CLONE_NEWPID", 0x40000000: "CLONE_NEWNET",
}

func decodeNsfsIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	switch cmd {
	case 0xb701, 0xb702: // NS_GET_USERNS, NS_GET_PARENT
		return ioctlShown
	case 0xb703: // NS_GET_NSTYPE
		if c.Exited && !c.Failed() {
			c.Note = namespaceNames[c.Ret]
		}
		return ioctlShown
	case 0xb704: // NS_GET_OWNER_UID
		return c.ioctlGot(arg, 4, func(c *Cx, b []byte) { c.userID(peek(b, 0, 4)) })
	case 0x8008b705: // NS_GET_MNTNS_ID
		return c.ioctlGot(arg, 8, hexNumber)
	case 0x8004b706, 0x8004b707, 0x8004b708, 0x8004b709: // ids from and in a pid namespace
		c.PID(arg)
		return ioctlShown
	}
	switch size := int(cmd >> 16 & 0x3fff); byte(cmd) {
	case 10, 11, 12: // NS_MNT_GET_INFO, NS_MNT_GET_NEXT, NS_MNT_GET_PREV
		if size < 16 {
			return ioctlUnknown
		}
		return c.ioctlOut(arg, 16, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.u4("size")
			f.u4("nr_mounts")
			f.x8("mnt_ns_id")
			f.end()
		})
	}
	return ioctlUnknown
}

// Bits of struct pidfd_info's mask.
const (
	pidfdInfoPid           = 1 << 0
	pidfdInfoCreds         = 1 << 1
	pidfdInfoCgroupid      = 1 << 2
	pidfdInfoExit          = 1 << 3
	pidfdInfoCoredump      = 1 << 4
	pidfdInfoSupportedMask = 1 << 5
	pidfdInfoCoredumpSig   = 1 << 6
	pidfdInfoCoredumpCode  = 1 << 7
)

func decodePidfdIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	if cmd >= 0xff01 && cmd <= 0xff0a { // PIDFD_GET_…_NAMESPACE
		c.Hex(arg)
		return ioctlShown
	}
	size := int(cmd >> 16 & 0x3fff)
	if byte(cmd) != 11 { // PIDFD_GET_INFO
		return ioctlUnknown
	}
	if size < 64 {
		c.Ptr(arg)
		return ioctlShown
	}
	b, errno := c.Bytes(In, arg, 8)
	if b == nil {
		c.Unreadable(arg, errno)
		return ioctlShown
	}
	if c.Entering() {
		return ioctlWait
	}
	c.Struct()
	c.Field("mask")
	asked := peek(b, 0, 8)
	show := func(v uint64) { c.Flags(v, constant.PidfdInfo) }
	o, _ := c.Bytes(Out, arg, min(size, 88))
	if o == nil || c.Failed() {
		show(asked)
	} else {
		mask := peek(o, 0, 8)
		c.change(asked, mask, show)
		c.pidfdInfo(o, mask)
	}
	c.End()
	return ioctlShown
}

func (c *Cx) pidfdInfo(b []byte, mask uint64) {
	f := c.at(b, 8)
	if mask&pidfdInfoCgroupid != 0 {
		f.u8("cgroupid")
	}
	f.off = 16
	if mask&pidfdInfoPid != 0 {
		f.pid("pid")
		f.pid("tgid")
		f.pid("ppid")
	}
	f.off = 28
	if mask&pidfdInfoCreds != 0 {
		for _, name := range [...]string{"ruid", "rgid", "euid", "egid", "suid", "sgid", "fsuid", "fsgid"} {
			f.id(name)
		}
	}
	f.off = 60
	if mask&pidfdInfoExit != 0 && len(b) >= 64 {
		c.Field("exit_code")
		c.Array()
		c.WaitStatus(uint32(f.num(4)))
		c.End()
	}
	f.off = 64
	if mask&pidfdInfoCoredump != 0 && len(b) >= 68 {
		f.flags("coredump_mask", 4, constant.PidfdCoredump)
	}
	f.off = 68
	if mask&pidfdInfoCoredumpSig != 0 && len(b) >= 72 {
		c.Field("coredump_signal")
		c.Signal(f.num(4))
	}
	f.off = 72
	if mask&pidfdInfoCoredumpCode != 0 && len(b) >= 76 {
		f.u4("coredump_code")
	}
	f.off = 80
	if mask&pidfdInfoSupportedMask != 0 && len(b) >= 88 {
		f.flags("supported_mask", 8, constant.PidfdInfo)
	}
}
