package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Clocks, watchdogs, random numbers, network block devices, infrared receivers, perf events (linux/rtc.h,
// linux/watchdog.h, linux/random.h, linux/nbd.h, linux/lirc.h, linux/udmabuf.h, linux/inotify.h, linux/perf_event.h).

const (
	rtcAlmRead, rtcAlmSet, rtcRdTime, rtcSetTime = 0x80247008, 0x40247007, 0x80247009, 0x4024700a
	rtcWkalmRd, rtcWkalmSet                      = 0x80287010, 0x4028700f
	rtcPllGet, rtcPllSet                         = 0x80207011, 0x40207012
	rtcParamGet, rtcParamSet, rtcVlRead          = 0x40187013, 0x40187014, 0x80047013
	rtcIrqpRead, rtcIrqpSet                      = 0x8008700b, 0x4008700c
	rtcEpochRead, rtcEpochSet                    = 0x8008700d, 0x4008700e
	rtcParamFeatures, rtcParamCorrection         = 0, 1
	rtcParamBackupSwitchMode                     = 2
)

func decodeRtcIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	switch cmd {
	case rtcAlmRead, rtcRdTime:
		return c.ioctlOut(arg, 36, rtcTime)
	case rtcAlmSet, rtcSetTime:
		return c.ioctlIn(arg, 36, rtcTime)
	case rtcIrqpSet, rtcEpochSet:
		c.Uint(arg)
	case rtcIrqpRead, rtcEpochRead:
		return c.ioctlGot(arg, c.ABI.PtrSize, uintNumber)
	case rtcWkalmRd:
		return c.ioctlOut(arg, 40, rtcAlarm)
	case rtcWkalmSet:
		return c.ioctlIn(arg, 40, rtcAlarm)
	case rtcPllGet:
		return c.ioctlOut(arg, 32, rtcPll)
	case rtcPllSet:
		return c.ioctlIn(arg, 32, rtcPll)
	case rtcVlRead:
		return c.ioctlGot(arg, 4, func(c *Cx, b []byte) { c.Flags(peek(b, 0, 4), constant.RtcVlFlags) })
	case rtcParamGet:
		b, errno := c.Bytes(In, arg, 24)
		if b == nil {
			c.Unreadable(arg, errno)
			return ioctlShown
		}
		if c.Entering() {
			return ioctlWait
		}
		c.Begin(event.Node{Kind: event.KindChange})
		c.rtcParam(b, true, false)
		if o, ok := c.Load(Out, arg, 24); ok {
			c.rtcParam(o, false, true)
		}
		c.End()
	case rtcParamSet:
		return c.ioctlIn(arg, 24, func(c *Cx, b []byte) { c.rtcParam(b, true, true) })
	case 0x7001, 0x7002, 0x7003, 0x7004, 0x7005, 0x7006, 0x700f, 0x7010, 0x7014: // interrupts on and off, RTC_VL_CLR
	default:
		return ioctlUnknown
	}
	return ioctlShown
}

func rtcTime(c *Cx, b []byte) {
	f := c.begin(b)
	for i, name := range [...]string{"tm_sec", "tm_min", "tm_hour", "tm_mday", "tm_mon", "tm_year", "tm_wday", "tm_yday", "tm_isdst"} {
		if c.Opt.Abbrev && i == 6 {
			c.More()
			break
		}
		f.i4(name)
	}
	f.end()
}

func rtcAlarm(c *Cx, b []byte) {
	f := c.begin(b)
	f.u1("enabled")
	f.u1("pending")
	c.Field("time")
	rtcTime(c, b[4:])
	f.end()
}

func rtcPll(c *Cx, b []byte) {
	f := c.begin(b)
	for _, name := range [...]string{"pll_ctrl", "pll_value", "pll_max", "pll_min", "pll_posmult", "pll_negmult"} {
		f.i4(name)
	}
	f.iword("pll_clock")
	f.end()
}

// rtcParam adds a struct rtc_param: which one is asked for, its value, or both.
func (c *Cx) rtcParam(b []byte, which, value bool) {
	param := peek(b, 0, 8)
	f := c.begin(b)
	if which {
		f.enum("param", 8, constant.RtcParam)
	}
	f.off = 8
	if value {
		switch param {
		case rtcParamFeatures:
			f.flags("uvalue", 8, constant.RtcFeature)
		case rtcParamCorrection:
			f.i8("svalue")
		case rtcParamBackupSwitchMode:
			f.enum("uvalue", 8, constant.RtcBackupSwitch)
		default:
			f.x8("uvalue")
		}
	}
	f.off = 16
	if which {
		f.u4("index")
	} else {
		f.skip(4)
	}
	f.nonzero("__pad", 4)
	f.end()
}

func decodeWatchdogIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	switch cmd {
	case 0x80285700: // WDIOC_GETSUPPORT
		return c.ioctlOut(arg, 40, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.flags("options", 4, constant.WatchdogFlags)
			if c.Opt.Abbrev {
				c.More()
			} else {
				f.x4("firmware_version")
				f.text("identity", 32)
			}
			f.end()
		})
	case 0x80045701, 0x80045702, 0x80045703, 0x80045707, 0x80045709, 0x8004570a: // what WDIOC_GET… returns
		return c.ioctlGot(arg, 4, intNumber)
	case 0xc0045706, 0xc0045708: // WDIOC_SETTIMEOUT, WDIOC_SETPRETIMEOUT
		return c.ioctlInt(arg, 4, intNumber)
	case 0x80045704: // WDIOC_SETOPTIONS
		return c.ioctlInt(arg, 4, func(c *Cx, b []byte) { c.Flags(peek(b, 0, 4), constant.WatchdogOptions) })
	case 0x80045705: // WDIOC_KEEPALIVE
		return ioctlShown
	}
	return ioctlUnknown
}

const rndAddEntropy = 0x40085203

func decodeRandomIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	switch cmd {
	case rndAddEntropy:
		return c.ioctlIn(arg, 8, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.i4("entropy_count")
			n := peek(b, 4, 4)
			f.i4("buf_size")
			c.Field("buf")
			c.Buffer(In, arg+8, int64(int32(n)))
			f.end()
		})
	case 0x5207: // RNDRESEEDCRNG
		return ioctlShown
	}
	return ioctlUnknown
}

func decodeNbdIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	switch cmd {
	case 0xab03, 0xab04, 0xab05, 0xab06, 0xab08: // DO_IT, CLEAR_SOCK, CLEAR_QUE, PRINT_DEBUG, DISCONNECT
	case 0xab00: // NBD_SET_SOCK
		c.FD(arg)
	case 0xab01, 0xab02, 0xab07, 0xab09: // SET_BLKSIZE, SET_SIZE, SET_SIZE_BLOCKS, SET_TIMEOUT
		c.Uint(arg)
	case 0xab0a: // NBD_SET_FLAGS
		c.Flags(uint64(uint32(arg)), constant.NbdFlags)
	default:
		return ioctlUnknown
	}
	return ioctlShown
}

func decodeLircIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	if cmd>>16&0x3fff != 4 {
		return ioctlUnknown
	}
	show := uintNumber
	switch byte(cmd) {
	case 0:
		show = func(c *Cx, b []byte) { c.Flags(peek(b, 0, 4), constant.LircFeatures) }
	case 1, 2, 0x11, 0x12:
		show = func(c *Cx, b []byte) { c.Name(peek(b, 0, 4), constant.LircModes) }
	case 0x17:
		show = hexNumber
	case 7, 8, 9, 0xf, 0x13, 0x14, 0x15, 0x18, 0x19, 0x1d, 0x1f, 0x23, 0x24:
	default:
		return ioctlUnknown
	}
	switch cmd & (iocRead | iocWrite) {
	case iocRead:
		return c.ioctlGot(arg, 4, show)
	case iocWrite:
		return c.ioctlInt(arg, 4, show)
	}
	return ioctlUnknown
}

const (
	udmabufCreate     = 0x40187542
	udmabufCreateList = 0x40087543
)

func decodeUdmabufIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	switch cmd {
	case udmabufCreate:
		return c.ioctlIn(arg, 24, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.fd("memfd")
			f.flags("flags", 4, constant.UdmabufFlags)
			f.u8("offset")
			f.u8("size")
			f.end()
		})
	case udmabufCreateList:
		return c.ioctlIn(arg, 8, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.flags("flags", 4, constant.UdmabufFlags)
			n := peek(b, 4, 4)
			f.u4("count")
			c.Field("list")
			c.list(In, arg+8, n, 24, func(c *Cx, b []byte) {
				f := c.begin(b)
				f.fd("memfd")
				f.skip(4).u8("offset")
				f.u8("size")
				f.end()
			})
			f.end()
		})
	}
	return ioctlUnknown
}

func decodeInotifyIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	if cmd != 0x40044900 { // INOTIFY_IOC_SETNEXTWD
		return ioctlUnknown
	}
	c.Int(int64(int32(arg)))
	return ioctlShown
}

const (
	perfIocPeriod    = 0x40082404
	perfIocSetFilter = 0x40082406
	perfIocID        = 0x80082407
	perfIocSetBpf    = 0x40042408
	perfIocPause     = 0x40042409
	perfIocQueryBpf  = 0xc008240a
	perfIocModify    = 0x4008240b
)

func decodePerfIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	switch cmd {
	case 0x2400, 0x2401, 0x2403: // PERF_EVENT_IOC_ENABLE, DISABLE, RESET
		c.Flags(uint64(uint32(arg)), constant.PerfIocFlags)
	case 0x2402: // PERF_EVENT_IOC_REFRESH
		c.Int(int64(int32(arg)))
	case perfIocPeriod:
		return c.ioctlInt(arg, 8, uintNumber)
	case 0x2405, perfIocSetBpf: // PERF_EVENT_IOC_SET_OUTPUT
		c.FD(arg)
	case perfIocPause:
		c.Uint(arg)
	case perfIocSetFilter:
		c.textN(In, arg, 4096)
	case perfIocID:
		return c.ioctlGot(arg, 8, uintNumber)
	case perfIocQueryBpf:
		b, errno := c.Bytes(In, arg, 4)
		if b == nil {
			c.Unreadable(arg, errno)
			return ioctlShown
		}
		if c.Entering() {
			return ioctlWait
		}
		c.Struct()
		c.Field("ids_len").Uint(peek(b, 0, 4))
		if o, _ := c.Bytes(Out, arg, 8); o == nil || c.Failed() {
			c.More()
		} else {
			n := peek(o, 4, 4)
			c.Field("prog_cnt").Uint(n)
			c.Field("ids")
			c.list(Out, arg+8, n, 4, uintNumber)
		}
		c.End()
	case perfIocModify:
		c.perfEventAttr(arg)
	default:
		return ioctlUnknown
	}
	return ioctlShown
}

// perfIoctlEnter takes what the commands read beyond the pointer that their numbers count.
var perfIoctlEnter = []syscalls.Fetch{
	syscalls.Fixed(2, perfAttrSize).If(1, perfIocModify),
	{Kind: syscalls.FetchString, Base: syscalls.Arg(2), When: whenArg(1, perfIocSetFilter)},
}

var perfIoctlExit = []syscalls.Fetch{syscalls.Fixed(2, 8+4*64).If(1, perfIocQueryBpf)}
