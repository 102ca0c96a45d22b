package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
)

// GPIO lines (linux/gpio.h), counters (linux/counter.h) and PTP clocks (linux/ptp_clock.h).

const (
	gpioGetChipinfo         = 0x8044b401
	gpioGetLineinfoUnwatch  = 0xc004b40c
	gpioV2GetLineinfo       = 0xc100b405
	gpioV2GetLineinfoWatch  = 0xc100b406
	gpioV2GetLine           = 0xc250b407
	gpioV2LineSetConfig     = 0xc110b40d
	gpioV2LineGetValues     = 0xc010b40e
	gpioV2LineSetValues     = 0xc010b40f
	gpioGetLineinfo         = 0xc048b402
	gpioGetLineinfoWatch    = 0xc048b40b
	gpioGetLinehandle       = 0xc16cb403
	gpioGetLineevent        = 0xc030b404
	gpiohandleGetLineValues = 0xc040b408
	gpiohandleSetLineValues = 0xc040b409
	gpiohandleSetConfig     = 0xc054b40a
)

func decodeGpioIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	size := int(cmd >> 16 & 0x3fff)
	fd := func(off int) func(c *Cx, b []byte) {
		return func(c *Cx, b []byte) {
			c.Struct()
			c.at(b, off).fd("fd")
			c.End()
		}
	}
	values := func(c *Cx, b []byte) {
		f := c.begin(b)
		f.array("values", 1, 64, uintNumber)
		f.end()
	}
	switch cmd {
	case gpioGetChipinfo:
		return c.ioctlOut(arg, size, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.text("name", 32)
			f.text("label", 32)
			f.u4("lines")
			f.end()
		})
	case gpioGetLineinfoUnwatch:
		return c.ioctlIn(arg, size, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.u4("offset")
			f.end()
		})
	case gpioGetLineinfo, gpioGetLineinfoWatch:
		return c.ioctlChange(arg, size, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.u4("line_offset")
			f.end()
		}, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.skip(4).flags("flags", 4, constant.GpioLineFlags)
			f.text("name", 32)
			f.text("consumer", 32)
			f.end()
		})
	case gpioGetLinehandle:
		return c.ioctlChange(arg, size, func(c *Cx, b []byte) {
			lines := peek(b, 256+4+64+32, 4)
			f := c.begin(b)
			c.Field("lines").Uint(lines)
			f.upto("lineoffsets", 4, 64, lines, uintNumber)
			f.flags("flags", 4, constant.GpioHandleFlags)
			f.upto("default_values", 1, 64, lines, uintNumber)
			f.text("consumer_label", 32)
			f.end()
		}, fd(256+4+64+32+4))
	case gpioGetLineevent:
		return c.ioctlChange(arg, size, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.u4("lineoffset")
			f.flags("handleflags", 4, constant.GpioHandleFlags)
			f.flags("eventflags", 4, constant.GpioEventFlags)
			f.text("consumer_label", 32)
			f.end()
		}, fd(44))
	case gpiohandleGetLineValues:
		return c.ioctlOut(arg, size, values)
	case gpiohandleSetLineValues:
		return c.ioctlIn(arg, size, values)
	case gpiohandleSetConfig:
		return c.ioctlIn(arg, size, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.flags("flags", 4, constant.GpioHandleFlags)
			f.array("default_values", 1, 64, uintNumber)
			f.end()
		})
	case gpioV2GetLineinfo, gpioV2GetLineinfoWatch:
		return c.ioctlChange(arg, size, func(c *Cx, b []byte) {
			c.Struct()
			c.at(b, 64).u4("offset")
			c.End()
		}, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.text("name", 32)
			f.text("consumer", 32)
			n := peek(b, 68, 4)
			f.off = 72
			f.flags("flags", 8, constant.GpioV2LineFlags)
			c.Field("num_attrs").Uint(n)
			if n != 0 {
				f.upto("attrs", 16, 10, n, func(c *Cx, b []byte) {
					c.Struct()
					c.gpioV2Attr(b, false)
					c.End()
				})
			} else {
				f.skip(160)
			}
			f.nonzeros("padding", 4, 4)
			f.end()
		})
	case gpioV2GetLine:
		return c.ioctlChange(arg, size, func(c *Cx, b []byte) {
			n := peek(b, 256+32+272, 4)
			f := c.begin(b)
			c.Field("num_lines").Uint(n)
			f.upto("offsets", 4, 64, n, uintNumber)
			f.text("consumer", 32)
			c.Field("config")
			gpioV2Config(c, f.take(272))
			f.skip(4)
			if size := f.num(4); size != 0 {
				c.Field("event_buffer_size").Uint(size)
			}
			f.nonzeros("padding", 4, 5)
			f.end()
		}, fd(592-4))
	case gpioV2LineSetConfig:
		return c.ioctlIn(arg, size, gpioV2Config)
	case gpioV2LineGetValues:
		return c.ioctlChange(arg, size, func(c *Cx, b []byte) {
			c.Struct()
			c.at(b, 8).x8("mask")
			c.End()
		}, func(c *Cx, b []byte) {
			c.Struct()
			c.at(b, 0).x8("bits")
			c.End()
		})
	case gpioV2LineSetValues:
		return c.ioctlIn(arg, size, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.x8("bits")
			f.x8("mask")
			f.end()
		})
	}
	return ioctlUnknown
}

// gpioV2Config adds a struct gpio_v2_line_config.
func gpioV2Config(c *Cx, b []byte) {
	f := c.begin(b)
	f.flags("flags", 8, constant.GpioV2LineFlags)
	n := peek(b, 8, 4)
	f.u4("num_attrs")
	f.nonzeros("padding", 4, 5)
	if n != 0 {
		f.upto("attrs", 24, 10, n, func(c *Cx, b []byte) {
			c.Struct()
			c.gpioV2Attr(b, true)
			c.at(b, 16).x8("mask")
			c.End()
		})
	}
	f.end()
}

// gpioV2Attr adds the members of a struct gpio_v2_line_attribute; one that is not known is a structure of its own when it
// is a member.
func (c *Cx) gpioV2Attr(b []byte, member bool) {
	id, padding := peek(b, 0, 4), peek(b, 4, 4)
	f := c.at(b, 8)
	switch {
	case padding == 0 && id == 1: // GPIO_V2_LINE_ATTR_ID_FLAGS
		f.flags("flags", 8, constant.GpioV2LineFlags)
	case padding == 0 && id == 2: // GPIO_V2_LINE_ATTR_ID_OUTPUT_VALUES
		f.x8("values")
	case padding == 0 && id == 3: // GPIO_V2_LINE_ATTR_ID_DEBOUNCE
		f.u4("debounce_period_us")
	default:
		if member {
			c.Field("attr").Struct()
		}
		c.Field("id").Uint(id)
		if padding != 0 {
			c.Field("padding").Hex(padding)
		}
		f.x8("data")
		if member {
			c.End()
		}
	}
}

const (
	counterAddWatch      = 0x40063e00
	counterEnableEvents  = 0x3e01
	counterDisableEvents = 0x3e02
)

func decodeCounterIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	switch cmd {
	case counterAddWatch:
		return c.ioctlIn(arg, 6, func(c *Cx, b []byte) {
			f := c.begin(b)
			c.Field("component").Struct()
			f.enum("type", 1, constant.CounterComponent)
			f.enum("scope", 1, constant.CounterScope)
			f.u1("parent")
			f.u1("id")
			c.End()
			f.enum("event", 1, constant.CounterEvent)
			f.u1("channel")
			f.end()
		})
	case counterEnableEvents, counterDisableEvents:
		return ioctlShown
	}
	return ioctlUnknown
}

const (
	ptpClockGetcaps            = 0x80503d01
	ptpClockGetcaps2           = 0x80503d0a
	ptpExttsRequest            = 0x40103d02
	ptpExttsRequest2           = 0x40103d0b
	ptpPeroutRequest           = 0x40383d03
	ptpPeroutRequest2          = 0x40383d0c
	ptpEnablePps               = 0x40043d04
	ptpEnablePps2              = 0x40043d0d
	ptpSysOffset               = 0x43403d05
	ptpSysOffset2              = 0x43403d0e
	ptpPinGetfunc              = 0xc0603d06
	ptpPinGetfunc2             = 0xc0603d0f
	ptpPinSetfunc              = 0x40603d07
	ptpPinSetfunc2             = 0x40603d10
	ptpSysOffsetPrecise        = 0xc0403d08
	ptpSysOffsetPrecise2       = 0xc0403d11
	ptpSysOffsetPreciseCycles  = 0xc0403d15
	ptpSysOffsetExtended       = 0xc4c03d09
	ptpSysOffsetExtended2      = 0xc4c03d12
	ptpSysOffsetExtendedCycles = 0xc4c03d16

	maxPtpSamples  = 25
	ptpPeroutDuty  = 1 << 1
	ptpPeroutPhase = 1 << 2
)

// ptpTime adds a struct ptp_clock_time; a time of day gets its date.
func (c *Cx) ptpTime(b []byte, date bool) {
	f := c.begin(b)
	f.i8("sec")
	f.u4("nsec")
	f.nonzero("reserved", 4)
	f.end()
	if date {
		at := len(c.Nodes)
		c.date(int64(peek(b, 0, 8)), peek(b, 8, 4))
		if len(c.Nodes) > at {
			c.Nodes[at].Attr |= event.AttrVerbose // unlike the times of files
		}
	}
}

func decodePtpIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	size := int(cmd >> 16 & 0x3fff)
	switch cmd {
	case ptpClockGetcaps, ptpClockGetcaps2:
		return c.ioctlOut(arg, size, func(c *Cx, b []byte) {
			f := c.begin(b)
			for _, name := range [...]string{"max_adj", "n_alarm", "n_ext_ts", "n_per_out", "pps", "n_pins",
				"cross_timestamping", "adjust_phase", "max_phase_adj"} {
				f.i4(name)
			}
			if phase := int64(int32(peek(b, f.off-4, 4))); phase != 0 { // in ns
				c.noteSeconds(phase, 1_000_000_000, 9)
			}
			f.nonzeros("rsv", 4, 11)
			f.end()
		})
	case ptpExttsRequest, ptpExttsRequest2:
		return c.ioctlIn(arg, size, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.u4("index")
			f.flags("flags", 4, constant.PtpExttsFlags)
			if cmd == ptpExttsRequest2 {
				f.nonzeros("rsv", 4, 2)
			}
			f.end()
		})
	case ptpPeroutRequest, ptpPeroutRequest2:
		return c.ioctlIn(arg, size, func(c *Cx, b []byte) {
			flags := peek(b, 36, 4)
			f := c.begin(b)
			if flags&ptpPeroutPhase != 0 {
				c.Field("phase")
				c.ptpTime(f.take(16), false)
			} else {
				c.Field("start")
				c.ptpTime(f.take(16), true)
			}
			c.Field("period")
			c.ptpTime(f.take(16), false)
			f.u4("index")
			f.flags("flags", 4, constant.PtpPeroutFlags)
			switch {
			case flags&ptpPeroutDuty != 0:
				c.Field("on")
				c.ptpTime(f.take(16), false)
			case cmd == ptpPeroutRequest2:
				f.nonzeros("rsv", 4, 4)
			}
			f.end()
		})
	case ptpEnablePps, ptpEnablePps2:
		c.Hex(arg)
		return ioctlShown
	case ptpSysOffset, ptpSysOffset2:
		return c.ioctlBoth(arg, size, func(f *fields) {
			f.u4("n_samples")
			f.nonzeros("rsv", 4, 3)
		}, func(f *fields) {
			n := 2*min(f.num(4), maxPtpSamples) + 1
			f.skip(12).upto("ts", 16, 2*maxPtpSamples+1, n, func(c *Cx, b []byte) { c.ptpTime(b, true) })
		})
	case ptpPinGetfunc, ptpPinGetfunc2:
		return c.ioctlBoth(arg, size, func(f *fields) {
			f.skip(64).u4("index")
			if cmd == ptpPinGetfunc2 {
				f.skip(8).nonzeros("rsv", 4, 5)
			}
		}, func(f *fields) {
			f.text("name", 64)
			f.skip(4).enum("func", 4, constant.PtpPinFunc)
			f.u4("chan")
		})
	case ptpPinSetfunc, ptpPinSetfunc2:
		return c.ioctlIn(arg, size, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.skip(64).u4("index")
			f.enum("func", 4, constant.PtpPinFunc)
			f.u4("chan")
			if cmd == ptpPinSetfunc2 {
				f.nonzeros("rsv", 4, 5)
			}
			f.end()
		})
	case ptpSysOffsetPrecise, ptpSysOffsetPrecise2, ptpSysOffsetPreciseCycles:
		return c.ioctlOut(arg, size, func(c *Cx, b []byte) {
			f := c.begin(b)
			c.Field("device")
			c.ptpTime(f.take(16), true)
			c.Field("sys_realtime")
			c.ptpTime(f.take(16), true)
			c.Field("sys_monoraw")
			c.ptpTime(f.take(16), false)
			f.nonzeros("rsv", 4, 4)
			f.end()
		})
	case ptpSysOffsetExtended, ptpSysOffsetExtended2, ptpSysOffsetExtendedCycles:
		return c.ioctlBoth(arg, size, func(f *fields) {
			f.u4("n_samples")
			f.enum("clockid", 4, constant.PerfClock)
			f.nonzeros("rsv", 4, 2)
		}, func(f *fields) {
			n := f.num(4)
			f.skip(12).upto("ts", 48, maxPtpSamples, n, func(c *Cx, b []byte) {
				c.Array()
				for i := range 3 {
					c.ptpTime(b[16*i:16*i+16], true)
				}
				c.End()
			})
		})
	}
	return ioctlUnknown
}
