package probe

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/syscalls"
)

func TestParseInjection(t *testing.T) {
	family := syscalls.Family("amd64")
	for _, c := range []struct {
		expr  string
		fault bool
		want  Injection
	}{
		{"prctl:retval=42:when=256+", false, Injection{Answer: true, Ret: 42, When: Occurrences{256, 1<<64 - 1, 1}}},
		{"open,openat:error=ENOENT", false, Injection{Answer: true, Errno: unix.ENOENT}},
		{"open:error=4095", false, Injection{Answer: true, Errno: 4095}},
		{"open", true, Injection{Answer: true, Errno: unix.ENOSYS}},
		{"open:error=EIO:when=3", true, Injection{Answer: true, Errno: unix.EIO, When: Occurrences{3, 3, 1}}},
		{"read:signal=usr1:when=2..8+3", false, Injection{Signal: unix.SIGUSR1, When: Occurrences{2, 8, 3}}},
		{"read:delay_enter=100", false, Injection{DelayEnter: 100 * time.Microsecond}},
		{"read:delay_exit=2ms:retval=0", false, Injection{DelayExit: 2 * time.Millisecond, Answer: true}},
	} {
		got, err := ParseInjection(c.expr, c.fault, family)
		if err != nil {
			t.Errorf("%s: %v", c.expr, err)
			continue
		}
		got.Calls = nil
		if *got != c.want {
			t.Errorf("%s: %+v, want %+v", c.expr, *got, c.want)
		}
	}
	for _, expr := range []string{"opneat:retval=1", "open", "open:", "open:retval=-1", "open:retval=1:error=EIO", "open:error=ENOSUCH", "open:error=0",
		"open:when=1", "open:retval=1:when=0", "open:retval=1:when=3..2", "open:retval=1:when=1+0", "open:signal=99", "open:poke_exit=@arg1=00",
		"open:delay_exit=5", "open:delay_enter=x", "open:nonsense"} {
		_, err := ParseInjection(expr, false, family)
		var se *SyntaxError
		if !errors.As(err, &se) || se.Pos > len(se.Expr) {
			t.Errorf("%q: %v", expr, err)
		}
	}
	if _, err := ParseInjection("open:signal=USR1", true, family); err == nil || !strings.Contains(err.Error(), "fault") {
		t.Errorf("a fault with a signal: %v", err)
	}
}

func TestWhen(t *testing.T) {
	for _, c := range []struct {
		w    Occurrences
		want string // of the first ten calls
	}{
		{Occurrences{}, "1111111111"},
		{Occurrences{3, 3, 1}, "0010000000"},
		{Occurrences{3, 1<<64 - 1, 1}, "0011111111"},
		{Occurrences{2, 1<<64 - 1, 3}, "0100100100"},
		{Occurrences{2, 6, 2}, "0101010000"},
	} {
		var got strings.Builder
		for n := uint64(1); n <= 10; n++ {
			if c.w.Hit(n) {
				got.WriteByte('1')
			} else {
				got.WriteByte('0')
			}
		}
		if got.String() != c.want {
			t.Errorf("%+v: %s, want %s", c.w, got.String(), c.want)
		}
	}
}

func FuzzParseInjection(f *testing.F) {
	for _, s := range []string{"open:retval=1:when=1..2+3", "%file:error=EIO", ":", "open::", "open:when="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		in, err := ParseInjection(s, false, syscalls.Family("amd64"))
		var se *SyntaxError
		if errors.As(err, &se) {
			se.Caret()
			return
		}
		in.When.Hit(1)
	})
}
