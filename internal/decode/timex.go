package decode

import (
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

const timexSize = 208 // struct __kernel_timex, include/uapi/linux/timex.h

// timex adds struct timex of argument i and explains the return value, the state of the clock.
func timex(c *Cx, i int) {
	w := c.clockWord()
	size := timexSize
	if w == 4 {
		size = 128 // struct old_timex32, include/linux/time32.h
	}
	b, ok := c.Load(Out, c.Arg[i], size)
	if !ok {
		return
	}
	f := c.begin(b)
	// Numbers of 4 bytes stand in a word of their own where words have 8.
	signed := func(names ...string) {
		for _, n := range names {
			if c.Field(n); w == 4 {
				c.Int(int64(int32(f.num(4))))
			} else {
				c.Int(int64(f.num(8)))
			}
		}
	}
	short := func(n string) {
		c.Field(n).Int(int64(int32(f.num(4))))
		f.skip(w - 4)
	}
	f.flags("modes", 4, constant.TimexModes)
	f.skip(w - 4)
	signed("offset", "freq", "maxerror", "esterror")
	f.flags("status", 4, constant.TimexStatus)
	f.skip(w - 4)
	signed("constant", "precision", "tolerance")
	c.Field("time")
	c.timespecOf(f.take(2*w), "tv_usec")
	signed("tick", "ppsfreq", "jitter")
	short("shift")
	signed("stabil", "jitcnt", "calcnt", "errcnt", "stbcnt")
	short("tai")
	f.end()
	if name, ok := constant.TimexState.Name(uint64(c.Ret)); ok {
		c.Note = name
	}
}

// aTms adds struct tms: times in ticks of 1/100 s (USER_HZ).
func aTms(c *Cx, i int) {
	w := c.ABI.PtrSize
	b, ok := c.Load(Out, c.Arg[i], 4*w)
	if !ok {
		return
	}
	f := c.begin(b)
	for _, name := range [...]string{"tms_utime", "tms_stime", "tms_cutime", "tms_cstime"} {
		v := f.num(w)
		c.Field(name).Uint(v)
		c.noteSeconds(int64(v), 100, 2)
	}
	f.end()
}

var (
	timexAt0 = fetches{syscalls.Fixed(0, timexSize)}
	timexAt1 = fetches{syscalls.Fixed(1, timexSize)}
	clockAdj = args(aClock, out(timex))
)

// clockCalls discipline clocks and make timers.
var clockCalls = []Spec{
	{Name: "adjtimex", Exit: timexAt0, Decode: args(out(timex))},
	{Name: "clock_adjtime", Exit: timexAt1, Decode: clockAdj},
	{Name: "clock_adjtime64", Exit: timexAt1, Decode: clockAdj},
	{Name: "timer_create", Enter: fetches{syscalls.Fixed(1, sigeventSize)}, Exit: fetches{syscalls.Fixed(2, 4)},
		Decode: args(aClock, func(c *Cx, i int) { c.SigeventAt(In, c.Arg[i]) }, out(func(c *Cx, i int) { c.ref(Out, c.Arg[i], 4, intNumber) }))},
	{Name: "times", Exit: fetches{syscalls.Fixed(0, 32)}, Decode: args(out(aTms))},
	{Name: "stime", Enter: fetches{syscalls.Fixed(0, 8)}, Decode: args(func(c *Cx, i int) {
		w := c.ABI.PtrSize
		c.obj(In, c.Arg[i], w, func(c *Cx, b []byte) {
			c.Array()
			sec := int64(peek(b, 0, w))
			if w == 4 {
				sec = int64(int32(sec))
			}
			c.Int(sec)
			c.date(sec, 0)
			c.End()
		})
	})},
}
