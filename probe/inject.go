package probe

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Injection is what to do to some calls of a command instead of, or beside, running them:
//
//	injection = set { ":" action }
//	action    = "error=" errno | "retval=" number | "signal=" signal | "delay_enter=" time | "delay_exit=" time | "when=" when
//	when      = first [ ".." last ] [ "+" [ step ] ]
//
// as in strace(1), -e inject=. Calls are counted for each thread and each system call on its own.
type Injection struct {
	Calls *Selection
	// Answer says that the call is not run: it returns Ret, or fails with Errno when that is set.
	Answer bool
	Ret    int64
	Errno  unix.Errno
	// Signal is sent to the thread when the call is answered or let go; 0 is none.
	Signal unix.Signal
	// DelayEnter is waited before the call is run or answered, DelayExit before an answer reaches the program.
	DelayEnter, DelayExit time.Duration
	When                  Occurrences
}

// Occurrences chooses among the calls that an injection is for, the first being number 1. The zero value chooses all.
type Occurrences struct{ First, Last, Step uint64 }

// Hit reports whether call number n is chosen.
func (w Occurrences) Hit(n uint64) bool {
	switch {
	case w.First == 0:
		return true
	case n < w.First || n > w.Last:
		return false
	}
	return (n-w.First)%w.Step == 0
}

// ParseInjection reads an injection. With fault, calls fail with ENOSYS when the expression says nothing else, as for
// strace's -e fault=. The error is a *SyntaxError.
func ParseInjection(expr string, fault bool, family []*syscalls.ABI) (*Injection, error) {
	set, rest, _ := strings.Cut(expr, ":")
	sel, err := ParseSyscalls([]string{set}, family)
	if err != nil {
		return nil, err
	}
	in := &Injection{Calls: sel}
	pos := len(set) + 1
	for rest != "" {
		var action string
		action, rest, _ = strings.Cut(rest, ":")
		fail := func(format string, a ...any) error {
			return &SyntaxError{Expr: expr, Pos: pos, Len: max(1, len(action)), Msg: fmt.Sprintf(format, a...)}
		}
		name, value, _ := strings.Cut(action, "=")
		if fault && name != "error" && name != "when" {
			return nil, fail("%s: a fault has error= and when= only", action)
		}
		switch name {
		case "error", "retval":
			if in.Answer {
				return nil, fail("%s: the result of the call is given twice", action)
			}
			in.Answer = true
			if name == "error" {
				if in.Errno = errnoByName(value); in.Errno == 0 {
					return nil, fail("%s: no such error; a name like ENOENT or a number from 1 to 4095 is needed", value)
				}
				break
			}
			n, err := strconv.ParseUint(value, 0, 63)
			if err != nil {
				return nil, fail("%s: a number from 0 on is needed; error= makes calls fail", value)
			}
			in.Ret = int64(n)
		case "signal":
			if in.Signal = signalByName(value); in.Signal == 0 {
				return nil, fail("%s: no such signal", value)
			}
		case "delay_enter", "delay_exit":
			d, err := delay(value)
			if err != nil {
				return nil, fail("%s: %v", value, err)
			}
			if name == "delay_enter" {
				in.DelayEnter = d
			} else {
				in.DelayExit = d
			}
		case "when":
			w, err := parseWhen(value)
			if err != nil {
				return nil, fail("%s: %v", value, err)
			}
			in.When = w
		case "syscall", "poke_enter", "poke_exit":
			return nil, fail("%s: not possible without ptrace; error=, retval=, signal=, delay_enter=, delay_exit= and when= are", action)
		default:
			return nil, fail("%q: not an action; error=, retval=, signal=, delay_enter=, delay_exit= and when= are known", action)
		}
		pos += len(action) + 1
	}
	if fault && !in.Answer {
		in.Answer, in.Errno = true, unix.ENOSYS
	}
	if !in.Answer && in.Signal == 0 && in.DelayEnter == 0 && in.DelayExit == 0 {
		return nil, &SyntaxError{Expr: expr, Len: len(expr), Msg: "nothing is to be done to these calls; error=, retval=, signal= or delay_enter= is needed"}
	}
	if in.DelayExit > 0 && !in.Answer {
		return nil, &SyntaxError{Expr: expr, Len: len(expr), Msg: "delay_exit= needs error= or retval=: a call that is run is not seen again when it returns"}
	}
	return in, nil
}

func errnoByName(s string) unix.Errno {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		if n > 4095 {
			return 0
		}
		return unix.Errno(n)
	}
	for n := unix.Errno(1); n < 4096; n++ {
		if unix.ErrnoName(n) == s {
			return n
		}
	}
	return 0
}

const lastSignal = 64

func signalByName(s string) unix.Signal {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil {
		if n > lastSignal {
			return 0
		}
		return unix.Signal(n)
	}
	s = strings.ToUpper(s)
	if !strings.HasPrefix(s, "SIG") {
		s = "SIG" + s
	}
	return unix.SignalNum(s)
}

// delay reads a time: a number of microseconds, or a number with s, ms, us or ns.
func delay(s string) (time.Duration, error) {
	unit := time.Microsecond
	for _, u := range []struct {
		suffix string
		unit   time.Duration
	}{{"ns", time.Nanosecond}, {"us", time.Microsecond}, {"ms", time.Millisecond}, {"s", time.Second}} {
		if v, ok := strings.CutSuffix(s, u.suffix); ok {
			s, unit = v, u.unit
			break
		}
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("a time is needed: microseconds, or a number with s, ms, us or ns")
	}
	return time.Duration(n) * unit, nil
}

func parseWhen(s string) (Occurrences, error) {
	bad := fmt.Errorf("numbers from 1 on are needed: FIRST, FIRST+, FIRST+STEP, FIRST..LAST or FIRST..LAST+STEP")
	span, step, stepped := strings.Cut(s, "+")
	first, last, ranged := strings.Cut(span, "..")
	var w Occurrences
	var err error
	if w.First, err = strconv.ParseUint(first, 10, 32); err != nil || w.First == 0 {
		return w, bad
	}
	w.Step, w.Last = 1, w.First
	if ranged {
		if w.Last, err = strconv.ParseUint(last, 10, 32); err != nil || w.Last < w.First {
			return w, bad
		}
	} else if stepped {
		w.Last = 1<<64 - 1
	}
	if step != "" {
		if w.Step, err = strconv.ParseUint(step, 10, 32); err != nil || w.Step == 0 {
			return w, bad
		}
	}
	return w, nil
}
