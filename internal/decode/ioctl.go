package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Commands whose arguments are decoded here; asm-generic/ioctls.h, linux/fs.h, linux/sockios.h.
const (
	tcGets, tcSets, tcSetsw, tcSetsf       = 0x5401, 0x5402, 0x5403, 0x5404
	tcSbrk, tcXonc, tcFlsh                 = 0x5409, 0x540a, 0x540b
	tiocExcl, tiocNxcl, tiocSctty          = 0x540c, 0x540d, 0x540e
	tiocGpgrp, tiocSpgrp, tiocOutq         = 0x540f, 0x5410, 0x5411
	tiocSti, tiocGwinsz, tiocSwinsz        = 0x5412, 0x5413, 0x5414
	tiocMget, tiocMbis, tiocMbic           = 0x5415, 0x5416, 0x5417
	tiocMset, tiocGsoftcar, tiocSsoftcar   = 0x5418, 0x5419, 0x541a
	fioNread, tiocCons, tiocPkt            = 0x541b, 0x541d, 0x5420
	fioNbio, tiocNotty, tiocSetd           = 0x5421, 0x5422, 0x5423
	tiocGetd, tcSbrkp, tiocGsid            = 0x5424, 0x5425, 0x5429
	tcGets2, tcSets2, tcSetsw2, tcSetsf2   = 0x802c542a, 0x402c542b, 0x402c542c, 0x402c542d
	tiocGptn, tiocSptlck, tiocGdev         = 0x80045430, 0x40045431, 0x80045432
	fioClex, fioNclex, fioAsync            = 0x5451, 0x5450, 0x5452
	tiocGpkt, tiocGptlck, tiocGexcl        = 0x80045438, 0x80045439, 0x80045440
	fiBmap, fiGetbsz, fiFreeze, fiThaw     = 1, 2, 0xc0045877, 0xc0045878
	blkRoset, blkRoget, blkGetsize         = 0x125d, 0x125e, 0x1260
	blkRaset, blkRaget, blkFraset          = 0x1262, 0x1263, 0x1264
	blkFraget, blkSectget, blkSszget       = 0x1265, 0x1267, 0x1268
	blkBszget, blkBszset, blkGetsize64     = 0x80081270, 0x40081271, 0x80081272
	blkIomin, blkIoopt, blkAlignoff        = 0x1278, 0x1279, 0x127a
	blkPbszget, blkDiscardZ, blkRotation   = 0x127b, 0x127c, 0x127e
	siocGifconf, siocGifname, siocGifindex = 0x8912, 0x8910, 0x8933
	fiClone                                = 0x40049409
	fiCloneRange                           = 0x4020940d
	rndGetCount, rndAddCount               = 0x80045200, 0x40045201
	rndZap, rndClear                       = 0x5204, 0x5206
)

// ioctl adds the command by its name, or as the macro that builds it, and the argument as what it is.
func ioctl(c *Cx) {
	c.FD(c.Arg[0])
	cmd, arg := uint32(c.Arg[1]), c.Arg[2]
	c.ioctlCommand(cmd)
	switch got := c.ioctlArgument(cmd, arg); got {
	case ioctlShown, ioctlWait:
		return
	}
	if f := findIoctlFamily(cmd); f != nil {
		if f.decode(c, cmd, arg) != ioctlUnknown {
			return
		}
	}
	c.Hex(arg)
}

// ioctlCommand adds the name of a command, or _IOC(_IOC_READ, 0x54, 0x1, 0x8).
func (c *Cx) ioctlCommand(cmd uint32) {
	if name := overlappingCommand(cmd); name != "" {
		c.Sym(name, uint64(cmd))
		return
	}
	if name, ok := constant.IoctlName(cmd); ok {
		c.Sym(name, uint64(cmd))
		return
	}
	if c.ioctlMacro(cmd) {
		return
	}
	c.commandMacro("_IOC", cmd)
	if dir := cmd >> 30; dir == 0 {
		c.Sym("_IOC_NONE", 0)
	} else {
		c.Flags(uint64(dir), iocDirections)
	}
	c.Hex(uint64(cmd >> 8 & 0xff))
	c.Hex(uint64(cmd & 0xff))
	c.Hex(uint64(cmd >> 16 & 0x3fff))
	c.End()
}

// iocDirections are the two bits of a command: asm-generic/ioctl.h.
var iocDirections = &constant.Set{Prefix: "_IOC_???", Flags: true, Entries: []constant.Entry{{Name: "_IOC_READ", Num: 2}, {Name: "_IOC_WRITE", Num: 1}}}

// sizedCommands are macros that take the size of a buffer, and for some a number: linux/input.h, linux/hiddev.h,
// linux/hidraw.h, linux/uinput.h, linux/joystick.h.
var sizedCommands = []struct {
	dir     uint32
	typ, nr byte
	name    string
}{
	{2, 'E', 0x06, "EVIOCGNAME"}, {2, 'E', 0x07, "EVIOCGPHYS"}, {2, 'E', 0x08, "EVIOCGUNIQ"}, {2, 'E', 0x09, "EVIOCGPROP"},
	{2, 'E', 0x0a, "EVIOCGMTSLOTS"}, {2, 'E', 0x18, "EVIOCGKEY"}, {2, 'E', 0x19, "EVIOCGLED"}, {2, 'E', 0x1a, "EVIOCGSND"},
	{2, 'E', 0x1b, "EVIOCGSW"},
	{2, 'H', 0x04, "HIDIOCGRAWNAME"}, {2, 'H', 0x05, "HIDIOCGRAWPHYS"}, {3, 'H', 0x06, "HIDIOCSFEATURE"}, {3, 'H', 0x07, "HIDIOCGFEATURE"},
	{2, 'H', 0x06, "HIDIOCGNAME"}, {2, 'H', 0x12, "HIDIOCGPHYS"},
	{2, 'U', 0x2c, "UI_GET_SYSNAME"}, {2, 'j', 0x13, "JSIOCGNAME"},
}

// ioctlMacro adds a command that is a macro with an argument.
func (c *Cx) ioctlMacro(cmd uint32) bool {
	typ, nr, size := byte(cmd>>8), byte(cmd), uint64(cmd>>16&0x3fff)
	for i := range sizedCommands {
		if m := &sizedCommands[i]; m.dir == cmd>>30 && m.typ == typ && m.nr == nr {
			c.commandMacro(m.name, cmd)
			c.Uint(size)
			c.End()
			return true
		}
	}
	return typ == 'E' && c.evdevCommand(cmd)
}

// overlappingCommand names commands that a table by number cannot: the mixer's, which share a letter with flash memory,
// and one that the kernel knew with a wrong direction. It is empty for all others.
func overlappingCommand(cmd uint32) string {
	switch cmd {
	case seccompNotifIDWrong:
		return "SECCOMP_IOCTL_NOTIF_ID_VALID_WRONG_DIR"
	case fsIocFiemap: // its macro names a structure that linux/fs.h does not declare
		return "FS_IOC_FIEMAP"
	case fsIocShutdown: // every file system has a name of its own for it
		return "FS_IOC_SHUTDOWN"
	}
	if byte(cmd>>8) != 'M' {
		return ""
	}
	var name string
	switch cmd & (iocRead | iocWrite) {
	case iocWrite:
		name = "MIXER_WRITE("
	case iocRead:
		name = "MIXER_READ("
	default:
		return ""
	}
	name += uintText(uint64(byte(cmd))) + ")"
	if other, ok := constant.IoctlName(cmd); ok {
		name += " or " + other
	}
	return name
}

// commandMacro opens the macro that builds the command cmd.
func (c *Cx) commandMacro(name string, cmd uint32) {
	c.Begin(event.Node{Kind: event.KindCall, Sym: name, Num: uint64(cmd), Attr: event.AttrHex})
}

// ioctlArgument adds the argument of a command of terminals, files, block devices and sockets.
func (c *Cx) ioctlArgument(cmd uint32, arg uint64) ioctlArg {
	number := func(m Moment, width int, show func(c *Cx, b []byte)) ioctlArg {
		if m == Out && c.Entering() {
			return ioctlWait
		}
		if m == Out && c.Failed() {
			c.Ptr(arg)
			return ioctlShown
		}
		c.obj(m, arg, width, func(c *Cx, b []byte) {
			c.Array()
			show(c, b)
			c.End()
		})
		return ioctlShown
	}
	switch cmd {
	case tcGets, tcGets2:
		if c.Entering() {
			return ioctlWait
		}
		if b, ok := c.Load(Out, arg, termiosSize(cmd)); ok {
			c.termios(b)
		}
		return ioctlShown
	case tcSets, tcSetsw, tcSetsf, tcSets2, tcSetsw2, tcSetsf2:
		c.obj(In, arg, termiosSize(cmd), (*Cx).termios)
		return ioctlShown
	case tiocGwinsz, tiocSwinsz:
		m := In
		if cmd == tiocGwinsz {
			if c.Entering() {
				return ioctlWait
			}
			if c.Failed() {
				c.Ptr(arg)
				return ioctlShown
			}
			m = Out
		}
		c.obj(m, arg, 8, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.u2("ws_row")
			f.u2("ws_col")
			f.u2("ws_xpixel")
			f.u2("ws_ypixel")
			f.end()
		})
		return ioctlShown
	case tcFlsh:
		c.Name(uint64(uint32(arg)), constant.TermFlush)
		return ioctlShown
	case tcXonc:
		c.Name(uint64(uint32(arg)), constant.TermFlow)
		return ioctlShown
	case tcSbrk, tcSbrkp, tiocSctty, fiClone:
		c.Int(int64(int32(arg)))
		return ioctlShown
	case tiocExcl, tiocNxcl, tiocNotty, fioClex, fioNclex, tiocCons, rndZap, rndClear, fiFreeze, fiThaw:
		return ioctlShown
	case tiocMget:
		return number(Out, 4, func(c *Cx, b []byte) { c.Flags(uint64(U32(b, 0)), constant.ModemLines) })
	case tiocMset, tiocMbis, tiocMbic:
		return number(In, 4, func(c *Cx, b []byte) { c.Flags(uint64(U32(b, 0)), constant.ModemLines) })
	case tiocGpgrp, tiocGsid:
		return number(Out, 4, func(c *Cx, b []byte) { c.PID(uint64(U32(b, 0))) })
	case tiocSpgrp:
		return number(In, 4, func(c *Cx, b []byte) { c.PID(uint64(U32(b, 0))) })
	case tiocOutq, tiocGsoftcar, fioNread, tiocGetd, fiGetbsz, blkRoget, blkSectget, blkSszget, tiocGptn, tiocGdev,
		tiocGpkt, tiocGptlck, tiocGexcl, rndGetCount, blkAlignoff:
		return number(Out, 4, intNumber)
	case tiocSsoftcar, tiocPkt, fioNbio, fioAsync, tiocSetd, tiocSptlck, blkRoset, rndAddCount:
		return number(In, 4, intNumber)
	case blkIomin, blkIoopt, blkPbszget, blkDiscardZ:
		return number(Out, 4, uintNumber)
	case blkRotation:
		return number(Out, 2, uintNumber)
	case blkGetsize, blkRaget, blkFraget:
		return number(Out, c.ABI.PtrSize, uintNumber)
	case blkRaset, blkFraset:
		c.Uint(arg)
		return ioctlShown
	case blkGetsize64:
		return number(Out, 8, uintNumber)
	case tiocSti:
		c.obj(In, arg, 1, func(c *Cx, b []byte) {
			c.Array()
			c.Add(event.Node{Kind: event.KindBytes, Data: b, Num: 1})
			c.End()
		})
		return ioctlShown
	}
	return ioctlUnknown
}

func termiosSize(cmd uint32) int {
	if cmd == tcGets || cmd == tcSets || cmd == tcSetsw || cmd == tcSetsf {
		return 36
	}
	return 44 // struct termios2
}

// termios adds struct termios or termios2, asm-generic/termbits.h.
func (c *Cx) termios(b []byte) {
	iflag, oflag, cflag, lflag := uint64(U32(b, 0)), uint64(U32(b, 4)), uint64(U32(b, 8)), uint64(U32(b, 12))
	c.Struct()
	c.Field("c_iflag")
	c.termFlags(iflag, constant.TermInput)
	c.Field("c_oflag")
	c.termOutput(oflag)
	c.Field("c_cflag")
	c.termControl(cflag)
	c.Field("c_lflag")
	c.termFlags(lflag, constant.TermLocal)
	if c.Opt.Abbrev {
		c.More()
		c.End()
		return
	}
	c.Field("c_line")
	if n := b[16]; int(n) < len(lineDisciplines) {
		c.Sym(lineDisciplines[n], uint64(n))
	} else {
		c.Hex(uint64(n))
	}
	c.Field("c_cc")
	if c.Opt.Abbrev || lflag&2 == 0 {
		c.Array()
		for i, ch := range b[17:36] {
			switch i {
			case 6:
				c.Index("VMIN")
			case 5:
				c.Index("VTIME")
			}
			c.Hex(uint64(ch))
		}
		c.End()
	} else {
		c.Add(event.Node{Kind: event.KindBytes, Data: b[17:36], Num: 19, Attr: event.AttrHex | event.AttrPath})
	}
	if len(b) >= 44 {
		c.Field("c_ispeed").Uint(uint64(U32(b, 36)))
		c.Field("c_ospeed").Uint(uint64(U32(b, 40)))
	}
	c.End()
}

// lineDisciplines: include/uapi/linux/tty.h.
var lineDisciplines = [...]string{"N_TTY", "N_SLIP", "N_MOUSE", "N_PPP", "N_STRIP", "N_AX25", "N_X25", "N_6PACK", "N_MASC",
	"N_R3964", "N_PROFIBUS_FDL", "N_IRDA", "N_SMSBLOCK", "N_HDLC", "N_SYNC_PPP", "N_HCI", "N_GIGASET_M101", "N_SLCAN", "N_PPS",
	"N_V253", "N_CAIF", "N_GSM0710", "N_TI_WL", "N_TRACESINK", "N_TRACEROUTER", "N_NCI", "N_SPEAKUP", "N_NULL", "N_MCTP",
	"N_DEVELOPMENT", "N_CAN327"}

func (c *Cx) termFlags(v uint64, s *constant.Set) {
	if v == 0 {
		c.Hex(0)
		return
	}
	c.Flags(v, s)
}

// choice is a field of several bits with a name for each value.
type choice struct {
	mask  uint64
	shift uint
	names []string
}

var outputChoices = []choice{
	{0o400, 8, []string{"NL0", "NL1"}}, {0o3000, 9, []string{"CR0", "CR1", "CR2", "CR3"}},
	{0o14000, 11, []string{"TAB0", "TAB1", "TAB2", "TAB3"}}, {0o20000, 13, []string{"BS0", "BS1"}},
	{0o40000, 14, []string{"VT0", "VT1"}}, {0o100000, 15, []string{"FF0", "FF1"}},
}

// termOutput shows the delays, then the flags.
func (c *Cx) termOutput(v uint64) {
	c.beginFlags(v)
	rest := v
	for i := range outputChoices {
		ch := &outputChoices[i]
		c.Sym(ch.names[v&ch.mask>>ch.shift], v&ch.mask)
		rest &^= ch.mask
	}
	if rest != 0 {
		c.moreFlags(rest, constant.TermOutput)
	}
	c.End()
}

const cbaud, csize = 0o010017, 0o000060 // CBAUD with CBAUDEX, CSIZE

// termControl shows the speed and the size of characters, then the flags.
func (c *Cx) termControl(v uint64) {
	c.beginFlags(v)
	if name, ok := constant.TermSpeed.Name(v & cbaud); ok {
		c.Sym(name, v&cbaud)
	} else {
		c.Hex(v & cbaud)
	}
	if in := v >> 16 & cbaud; in != 0 {
		c.expr("<<")
		if name, ok := constant.TermSpeed.Name(in); ok {
			c.Sym(name, in)
		} else {
			c.Hex(in)
		}
		c.Sym("IBSHIFT", 16)
		c.End()
	}
	if name, ok := constant.TermSize.Name(v & csize); ok {
		c.Sym(name, v&csize)
	}
	if rest := v &^ (cbaud | cbaud<<16 | csize); rest != 0 {
		c.moreFlags(rest, constant.TermControl)
	}
	c.End()
}

// ioctlFixed takes the argument of commands that carry no size: terminals, old block device commands.
func ioctlFixed() []syscalls.Fetch {
	f := syscalls.Fixed(2, 44)
	f.When = syscalls.Cond{Value: syscalls.Arg(1), Mask: 0xffffff00, Any: []uint64{0x5400, 0x1200, 0x8900, 0x0000}}
	return []syscalls.Fetch{f}
}

var ioctlCalls = []Spec{
	{Name: "ioctl", Enter: append(ioctlFetches(false), ioctlFixed()...), Exit: append(ioctlFetches(true), ioctlFixed()...), Decode: ioctl},
}
