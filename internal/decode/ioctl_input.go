package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
)

// Input devices (linux/input.h).

const (
	eviocgversion   = 0x80044501
	eviocgeffects   = 0x80044584
	eviocgid        = 0x80084502
	eviocgrep       = 0x80084503
	eviocgkeycode   = 0x80084504
	eviocgkeycodeV2 = 0x80284504
	eviocsrep       = 0x40084503
	eviocskeycode   = 0x40084504
	eviocskeycodeV2 = 0x40284504
	eviocrmff       = 0x40044581
	eviocgrab       = 0x40044590
	eviocrevoke     = 0x40044591
	eviocsclockid   = 0x400445a0
	eviocsff        = 0x40304580

	// Numbers of commands whose size is the caller's choice.
	eviocgname    = 0x06
	eviocgphys    = 0x07
	eviocguniq    = 0x08
	eviocgprop    = 0x09
	eviocgmtslots = 0x0a
	eviocgkey     = 0x18
	eviocgled     = 0x19
	eviocgsnd     = 0x1a
	eviocgsw      = 0x1b
	eviocgbit     = 0x20 // and the event type, up to 0x3f
	eviocgabs     = 0x40 // and the axis, up to 0x7f
	eviocsabs     = 0xc0

	evPwr = 0x16
)

// evdevBits are the sets of EVIOCGBIT by event type, with the highest bit.
func evdevBits(typ byte) (s *constant.Set, most int) {
	switch typ {
	case 0:
		return constant.EvdevType, 0x1f
	case 1:
		return constant.EvdevKey, 0x2ff
	case 2:
		return constant.EvdevRel, 0xf
	case 3:
		return constant.EvdevAbs, 0x3f
	case 4:
		return constant.EvdevMsc, 7
	case 5:
		return constant.EvdevSw, 0x11
	case 0x11:
		return constant.EvdevLed, 0xf
	case 0x12:
		return constant.EvdevSnd, 7
	case 0x14:
		return constant.EvdevRep, 1
	case 0x15:
		return constant.EvdevFf, 0x7f
	case 0x17:
		return constant.EvdevFfStatus, 1
	}
	return nil, 0
}

// evdevCommand adds the macro of a command that asks for one axis or the bits of one event type.
func (c *Cx) evdevCommand(cmd uint32) bool {
	nr, size := byte(cmd), uint64(cmd>>16&0x3fff)
	switch dir := cmd & (iocRead | iocWrite); {
	case dir == iocWrite && nr&^0x3f == eviocsabs:
		c.commandMacro("EVIOCSABS", cmd)
		c.Name(uint64(nr&0x3f), constant.EvdevAbs)
	case dir == iocRead && nr&^0x3f == eviocgabs:
		c.commandMacro("EVIOCGABS", cmd)
		c.Name(uint64(nr&0x3f), constant.EvdevAbs)
	case dir == iocRead && nr&^0x1f == eviocgbit:
		c.commandMacro("EVIOCGBIT", cmd)
		if nr == eviocgbit {
			c.Uint(0)
		} else {
			c.Name(uint64(nr&0x1f), constant.EvdevType)
		}
		c.Uint(size)
	default:
		return false
	}
	c.End()
	return true
}

func decodeEvdevIoctl(c *Cx, cmd uint32, arg uint64) ioctlArg {
	switch cmd & (iocRead | iocWrite) {
	case iocRead:
		if c.Entering() {
			return ioctlWait
		}
		c.evdevRead(cmd, arg)
		return ioctlShown
	case iocWrite:
		c.evdevWrite(cmd, arg)
		return ioctlShown
	}
	return ioctlUnknown
}

func (c *Cx) evdevRead(cmd uint32, arg uint64) {
	nr := byte(cmd)
	switch cmd {
	case eviocgversion:
		c.ref(Out, arg, 4, hexNumber)
		return
	case eviocgeffects:
		c.ref(Out, arg, 4, uintNumber)
		return
	case eviocgid:
		c.ioctlOut(arg, 8, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.u2("bustype")
			f.u2("vendor")
			f.u2("product")
			f.u2("version")
			f.end()
		})
		return
	case eviocgrep:
		c.ioctlOut(arg, 8, evdevPair)
		return
	case eviocgkeycode:
		c.ioctlOut(arg, 8, evdevKeycode)
		return
	case eviocgkeycodeV2:
		c.ioctlOut(arg, 40, evdevKeymap)
		return
	}
	switch nr {
	case eviocgmtslots:
		c.evdevMtslots(cmd, arg)
		return
	case eviocgname, eviocgphys, eviocguniq:
		c.Buffer(Out, arg, c.Ret)
		return
	case eviocgprop:
		c.evdevBitset(arg, constant.EvdevProp, 0x1f)
		return
	case eviocgsnd:
		c.evdevBitset(arg, constant.EvdevSnd, 7)
		return
	case eviocgsw:
		c.evdevBitset(arg, constant.EvdevSw, 0x11)
		return
	case eviocgkey:
		c.evdevBitset(arg, constant.EvdevKey, 0x2ff)
		return
	case eviocgled:
		c.evdevBitset(arg, constant.EvdevLed, 0xf)
		return
	}
	switch {
	case nr&^0x3f == eviocgabs:
		c.evdevAbs(Out, cmd, arg)
	case nr&^0x1f == eviocgbit:
		if nr&0x1f == evPwr {
			c.ref(Out, arg, 4, intNumber)
			return
		}
		set, most := evdevBits(nr & 0x1f)
		if set == nil {
			c.Ptr(arg)
			return
		}
		c.evdevBitset(arg, set, most)
	default:
		c.Ptr(arg)
	}
}

func (c *Cx) evdevWrite(cmd uint32, arg uint64) {
	switch cmd {
	case eviocsrep:
		c.obj(In, arg, 8, evdevPair)
	case eviocskeycode:
		c.obj(In, arg, 8, evdevKeycode)
	case eviocskeycodeV2:
		c.obj(In, arg, 40, evdevKeymap)
	case eviocrmff:
		c.Int(int64(int32(arg)))
	case eviocgrab, eviocrevoke:
		c.Uint(arg)
	case eviocsclockid:
		c.ref(In, arg, 4, uintNumber)
	case eviocsff:
		c.obj(In, arg, 48, evdevEffect)
	default:
		if byte(cmd)&^0x3f == eviocsabs {
			c.evdevAbs(In, cmd, arg)
			return
		}
		c.Ptr(arg)
	}
}

func evdevPair(c *Cx, b []byte) {
	c.Array()
	c.Uint(peek(b, 0, 4))
	c.Uint(peek(b, 4, 4))
	c.End()
}

func evdevKeycode(c *Cx, b []byte) {
	c.Array()
	c.Uint(peek(b, 0, 4))
	c.Name(peek(b, 4, 4), constant.EvdevKey)
	c.End()
}

func evdevKeymap(c *Cx, b []byte) {
	f := c.begin(b)
	f.u1("flags")
	f.u1("len")
	if c.Opt.Abbrev {
		c.More()
	} else {
		f.u2("index")
		f.enum("keycode", 4, constant.EvdevKey)
		f.array("scancode", 1, 32, hexNumber)
	}
	f.end()
}

// evdevAbs adds a struct input_absinfo, which kernels before 2.6.37 had without resolution.
func (c *Cx) evdevAbs(m Moment, cmd uint32, arg uint64) {
	size := int(cmd >> 16 & 0x3fff)
	if size < 20 || m == Out && c.Failed() {
		c.Ptr(arg)
		return
	}
	c.obj(m, arg, min(size, 24), func(c *Cx, b []byte) {
		f := c.begin(b)
		f.u4("value")
		f.u4("minimum")
		if c.Opt.Abbrev {
			c.More()
		} else {
			f.u4("maximum")
			f.u4("fuzz")
			f.u4("flat")
			if size >= 24 {
				f.u4("resolution")
			}
			if size > 20 && size != 24 {
				c.More()
			}
		}
		f.end()
	})
}

func (c *Cx) evdevMtslots(cmd uint32, arg uint64) {
	n := uint64(cmd>>16&0x3fff) / 4
	if n == 0 {
		c.Ptr(arg)
		return
	}
	b, ok := c.Load(Out, arg, 4)
	if !ok {
		return
	}
	f := c.begin(b)
	f.enum("code", 4, constant.EvdevMt)
	c.Field("values")
	c.list(Out, arg+4, n-1, 4, intNumber)
	f.end()
}

// evdevBitset adds the names of the bits that the kernel set, at most most of them.
func (c *Cx) evdevBitset(arg uint64, s *constant.Set, most int) {
	bits := most
	if c.Ret <= int64(most/8) {
		bits = int(c.Ret) * 8
	}
	word := c.ABI.PtrSize
	size := ((bits+7)/8 + word - 1) &^ (word - 1)
	if c.Failed() || size <= 0 {
		c.Ptr(arg)
		return
	}
	c.obj(Out, arg, size, func(c *Cx, b []byte) {
		c.Begin(event.Node{Kind: event.KindSet, Data: b})
		shown := 0
		for i := range min(bits, 8*len(b)) {
			if b[i/8]>>(i%8)&1 == 0 {
				continue
			}
			if c.Opt.Abbrev && shown > 3 {
				c.More()
				break
			}
			c.Name(uint64(i), s)
			shown++
		}
		c.End()
	})
}

// evdevEffect adds a struct ff_effect.
func evdevEffect(c *Cx, b []byte) {
	f := c.begin(b)
	typ := peek(b, 0, 2)
	f.enum("type", 2, constant.EvdevFf)
	f.i2("id")
	f.u2("direction")
	if c.Opt.Abbrev {
		c.More()
		f.end()
		return
	}
	c.Field("trigger").Struct()
	f.u2("button")
	f.u2("interval")
	c.End()
	c.Field("replay").Struct()
	f.u2("length")
	f.u2("delay")
	c.End()
	f.off = 16
	envelope := func() {
		c.Field("envelope").Struct()
		f.u2("attack_length")
		f.u2("attack_level")
		f.u2("fade_length")
		f.x2("fade_level")
		c.End()
	}
	switch typ {
	case 0x52: // FF_CONSTANT
		c.Field("constant").Struct()
		f.i2("level")
		envelope()
		c.End()
	case 0x57: // FF_RAMP
		c.Field("ramp").Struct()
		f.i2("start_level")
		f.i2("end_level")
		envelope()
		c.End()
	case 0x51: // FF_PERIODIC
		c.Field("periodic").Struct()
		f.u2("waveform")
		f.u2("period")
		f.i2("magnitude")
		f.i2("offset")
		f.u2("phase")
		envelope()
		f.skip(2).u4("custom_len")
		f.off = 16 + 24
		f.ptr("custom_data")
		c.End()
	case 0x50: // FF_RUMBLE
		c.Field("rumble").Struct()
		f.u2("strong_magnitude")
		f.u2("weak_magnitude")
		c.End()
	}
	f.end()
}
