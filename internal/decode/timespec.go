package decode

import (
	"time"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// clockWord is the bytes of each half of a struct timespec or timeval: those of the ABI's long, or 8 for calls whose name
// ends in time64 and for x32.
func (c *Cx) clockWord() int {
	if c.Ptr32() && c.ABI.Name != "x32" && !c.time64() {
		return 4
	}
	return 8
}

func (c *Cx) time64() bool {
	const suffix = "time64"
	return c.Def != nil && len(c.Def.Name) > len(suffix) && c.Def.Name[len(c.Def.Name)-len(suffix):] == suffix ||
		c.Def != nil && len(c.Def.Name) > 2 && c.Def.Name[len(c.Def.Name)-2:] == "64" && c.Def.Name[:5] != "prlim"
}

// Timespec adds the struct timespec at addr, whether the call failed or not.
func (c *Cx) Timespec(m Moment, addr uint64) {
	w := c.clockWord()
	c.obj(m, addr, 2*w, func(c *Cx, b []byte) { c.timespecOf(b, "tv_nsec") })
}

// Timeval is Timespec for struct timeval.
func (c *Cx) Timeval(m Moment, addr uint64) {
	w := c.clockWord()
	c.obj(m, addr, 2*w, func(c *Cx, b []byte) { c.timespecOf(b, "tv_usec") })
}

func (c *Cx) timespecOf(b []byte, fraction string) {
	w := len(b) / 2
	c.Struct()
	if w == 4 {
		c.Field("tv_sec").Int(I32(b, 0))
		c.Field(fraction).Int(I32(b, 4))
	} else {
		c.Field("tv_sec").Int(int64(U64(b, 0)))
		if fraction == "tv_nsec" {
			c.Field(fraction).Uint(U64(b, 8))
		} else {
			c.Field(fraction).Uint(U64(b, 8))
		}
	}
	c.End()
}

const dateLayout = "2006-01-02T15:04:05-0700"

// date notes a time of day: /* 2026-12-01T10:11:12.000000001+0000 */.
func (c *Cx) date(sec int64, nsec uint64) {
	if sec == 0 && nsec == 0 || nsec > 999_999_999 || sec > 1<<37 || sec < -(1<<37) {
		return
	}
	layout := dateLayout
	if nsec != 0 {
		layout = "2006-01-02T15:04:05.000000000-0700"
	}
	var buf [48]byte
	c.Add(event.Node{Kind: event.KindNote, Data: time.Unix(sec, int64(nsec)).AppendFormat(buf[:0:0], layout)})
}

// dateMicro is date with a fraction of microseconds.
func (c *Cx) dateMicro(sec int64, usec uint64) {
	if usec == 0 || usec > 999_999 {
		if usec == 0 {
			c.date(sec, 0)
		}
		return
	}
	c.Add(event.Node{Kind: event.KindNote, Data: time.Unix(sec, int64(usec)*1000).AppendFormat(nil, "2006-01-02T15:04:05.000000-0700")})
}

// pairAt fetches n timespecs or timevals at argument i.
func pairAt(i, n int) syscalls.Fetch { return syscalls.Fixed(i, 16*n) }

// clock adds a clock id; negative ones name the CPU clock of a task or a device.
func aClock(c *Cx, i int) {
	v := uint64(uint32(c.Arg[i]))
	if int32(v) < 0 {
		pid := uint64(int64(^int32(v) >> 3))
		clocks := [...]string{"CPUCLOCK_PROF", "CPUCLOCK_VIRT", "CPUCLOCK_SCHED", "CLOCKFD"}
		if v&3 == 3 && v&4 == 0 {
			c.Call("FD_TO_CLOCKID")
			c.FD(pid)
			c.End()
			return
		}
		macro := "MAKE_PROCESS_CPUCLOCK"
		if v&4 != 0 {
			macro = "MAKE_THREAD_CPUCLOCK"
		}
		c.Call(macro)
		c.Int(int64(pid))
		c.Sym(clocks[v&3], v&3)
		c.End()
		return
	}
	c.Name(v, constant.ClockID)
}

func aTimespecIn(c *Cx, i int)  { c.Timespec(In, c.Arg[i]) }
func aTimespecOut(c *Cx, i int) { c.resultOr(i, (*Cx).Timespec) }
func aTimevalOut(c *Cx, i int)  { c.resultOr(i, (*Cx).Timeval) }

// resultOr shows an out-parameter of a call that worked, or its address.
func (c *Cx) resultOr(i int, show func(*Cx, Moment, uint64)) {
	if c.Failed() {
		c.Ptr(c.Arg[i])
		return
	}
	show(c, Out, c.Arg[i])
}

// itimer adds the struct itimerspec or itimerval at addr.
func (c *Cx) itimer(m Moment, addr uint64, fraction string) {
	w := c.clockWord()
	c.obj(m, addr, 4*w, func(c *Cx, b []byte) {
		c.Struct()
		c.Field("it_interval")
		c.timespecOf(b[:2*w], fraction)
		c.Field("it_value")
		c.timespecOf(b[2*w:], fraction)
		c.End()
	})
}

func aItimerspecIn(c *Cx, i int) { c.itimer(In, c.Arg[i], "tv_nsec") }
func aItimervalIn(c *Cx, i int)  { c.itimer(In, c.Arg[i], "tv_usec") }
func aItimerspecOut(c *Cx, i int) {
	c.resultOr(i, func(c *Cx, m Moment, a uint64) { c.itimer(m, a, "tv_nsec") })
}
func aItimervalOut(c *Cx, i int) {
	c.resultOr(i, func(c *Cx, m Moment, a uint64) { c.itimer(m, a, "tv_usec") })
}

// remaining shows what is left of a sleep that was interrupted; a sleep that ended leaves the memory alone.
func (c *Cx) remaining(i int) {
	if c.Failed() && (c.Errno() == eRestartBlock || c.Errno() == eINTR) {
		c.Timespec(Out, c.Arg[i])
		return
	}
	c.Ptr(c.Arg[i])
}

const eINTR, eRestartBlock = 4, 516

var sleepArg = arg(func(c *Cx, i int) { c.remaining(i) })

func aTimezone(m Moment) arg {
	return func(c *Cx, i int) {
		if m == Out && c.Failed() {
			c.Ptr(c.Arg[i])
			return
		}
		c.obj(m, c.Arg[i], 8, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.i4("tz_minuteswest")
			f.i4("tz_dsttime")
			f.end()
		})
	}
}

var (
	clockGet = args(aClock, out(aTimespecOut))
	clockSet = args(aClock, aTimespecIn)
	timerGet = args(aTimerID, out(aItimerspecOut))
	timerSet = args(aTimerID, aFlags(constant.TimerFlags), aItimerspecIn, out(aItimerspecOut))
	tfdSet   = args(aFD, aFlags(constant.TimerfdSetFlags), aItimerspecIn, out(aItimerspecOut))
	tfdGet   = args(aFD, out(aItimerspecOut))
	clkSleep = args(aClock, aFlags(constant.TimerFlags), aTimespecIn, out(func(c *Cx, i int) {
		if c.Arg[1]&1 != 0 { // TIMER_ABSTIME: nothing remains
			c.Ptr(c.Arg[i])
			return
		}
		c.remaining(i)
	}))
)

func aTimerID(c *Cx, i int) { c.Int(int64(int32(c.Arg[i]))) }

var timeCalls = []Spec{
	{Name: "nanosleep", Enter: []syscalls.Fetch{pairAt(0, 1)}, Exit: []syscalls.Fetch{pairAt(1, 1)}, Decode: args(aTimespecIn, out(sleepArg))},
	{Name: "clock_nanosleep", Enter: []syscalls.Fetch{pairAt(2, 1)}, Exit: []syscalls.Fetch{pairAt(3, 1)}, Decode: clkSleep},
	{Name: "clock_nanosleep_time64", Enter: []syscalls.Fetch{pairAt(2, 1)}, Exit: []syscalls.Fetch{pairAt(3, 1)}, Decode: clkSleep},
	{Name: "clock_gettime", Exit: []syscalls.Fetch{pairAt(1, 1)}, Decode: clockGet},
	{Name: "clock_gettime64", Exit: []syscalls.Fetch{pairAt(1, 1)}, Decode: clockGet},
	{Name: "clock_getres", Exit: []syscalls.Fetch{pairAt(1, 1)}, Decode: clockGet},
	{Name: "clock_getres_time64", Exit: []syscalls.Fetch{pairAt(1, 1)}, Decode: clockGet},
	{Name: "clock_settime", Enter: []syscalls.Fetch{pairAt(1, 1)}, Decode: clockSet},
	{Name: "clock_settime64", Enter: []syscalls.Fetch{pairAt(1, 1)}, Decode: clockSet},
	{Name: "gettimeofday", Exit: []syscalls.Fetch{pairAt(0, 1), syscalls.Fixed(1, 8)}, Decode: args(out(aTimevalOut), aTimezone(Out))},
	{Name: "settimeofday", Enter: []syscalls.Fetch{pairAt(0, 1), syscalls.Fixed(1, 8)},
		Decode: args(func(c *Cx, i int) { c.Timeval(In, c.Arg[i]) }, aTimezone(In))},
	{Name: "time", Exit: []syscalls.Fetch{syscalls.Fixed(0, 8)}, Decode: args(out(func(c *Cx, i int) {
		c.ref(Out, c.Arg[i], c.ABI.PtrSize, func(c *Cx, b []byte) {
			sec := int64(peek(b, 0, len(b)))
			c.Int(sec)
			c.date(sec, 0)
		})
	})), Ret: func(c *Cx) {
		c.Int(c.Ret)
		c.Note = time.Unix(c.Ret, 0).Format(dateLayout)
	}},
	{Name: "alarm", Decode: args(aUint)},
	{Name: "getitimer", Exit: []syscalls.Fetch{pairAt(1, 2)}, Decode: args(aName(constant.ITimer), out(aItimervalOut))},
	{Name: "setitimer", Enter: []syscalls.Fetch{pairAt(1, 2)}, Exit: []syscalls.Fetch{pairAt(2, 2)},
		Decode: args(aName(constant.ITimer), aItimervalIn, out(aItimervalOut))},
	{Name: "timer_gettime", Exit: []syscalls.Fetch{pairAt(1, 2)}, Decode: timerGet},
	{Name: "timer_gettime64", Exit: []syscalls.Fetch{pairAt(1, 2)}, Decode: timerGet},
	{Name: "timer_settime", Enter: []syscalls.Fetch{pairAt(2, 2)}, Exit: []syscalls.Fetch{pairAt(3, 2)}, Decode: timerSet},
	{Name: "timer_settime64", Enter: []syscalls.Fetch{pairAt(2, 2)}, Exit: []syscalls.Fetch{pairAt(3, 2)}, Decode: timerSet},
	{Name: "timer_delete", Decode: args(aTimerID)},
	{Name: "timer_getoverrun", Decode: args(aTimerID)},
	{Name: "timerfd_create", RetFD: true, Decode: args(aClock, aFlags(constant.TimerfdFlags)), Ret: retFD},
	{Name: "timerfd_settime", Enter: []syscalls.Fetch{pairAt(2, 2)}, Exit: []syscalls.Fetch{pairAt(3, 2)}, Decode: tfdSet},
	{Name: "timerfd_settime64", Enter: []syscalls.Fetch{pairAt(2, 2)}, Exit: []syscalls.Fetch{pairAt(3, 2)}, Decode: tfdSet},
	{Name: "timerfd_gettime", Exit: []syscalls.Fetch{pairAt(1, 2)}, Decode: tfdGet},
	{Name: "timerfd_gettime64", Exit: []syscalls.Fetch{pairAt(1, 2)}, Decode: tfdGet},
}
