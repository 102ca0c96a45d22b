package probe

import (
	"errors"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/internal/syscalls"
)

func TestParseSyscalls(t *testing.T) {
	for _, c := range []struct {
		exprs   []string
		in, out string // names on amd64
	}{
		{nil, "read openat getppid", ""},
		{[]string{"openat"}, "openat", "read open"},
		{[]string{"openat,read"}, "openat read", "write"},
		{[]string{"openat", "read"}, "openat read", "write"},
		{[]string{"!openat"}, "read write", "openat"},
		{[]string{"%file", "!openat,open"}, "stat execve", "openat open read"},
		{[]string{"%file,!x"}, "", "!error"},
		{[]string{"/^sched_"}, "sched_yield sched_getattr", "read"},
		{[]string{"/sched_.*param"}, "sched_setparam", "sched_yield"},
		{[]string{"?nosuchcall,read"}, "read", "write"},
		{[]string{"none"}, "", "read openat"},
		{[]string{"all"}, "read openat", ""},
		{[]string{"!all"}, "", "read"},
		{[]string{"257"}, "openat", "read"},
		{[]string{"openat@64"}, "openat", "read"},
		{[]string{"openat@32"}, "", "openat"},
		{[]string{"%net"}, "socket sendmsg", "read"},
		{[]string{"file"}, "open", "read"},
		{[]string{"opneat"}, "", "!openat"},
		{[]string{"%flie"}, "", "!%file"},
		{[]string{""}, "", "!missing"},
		{[]string{",openat,,read,"}, "openat read", "write"},
		{[]string{"!,openat"}, "read", "openat"},
		{[]string{","}, "", "!names no"},
		{[]string{"a,,b"}, "", "!error"},
		{[]string{"/["}, "", "!error"},
		{[]string{"read@99"}, "", "!@64"},
		{[]string{"99999"}, "", "!number"},
	} {
		s, err := ParseSyscalls(c.exprs, syscalls.Family("amd64"))
		if want, ok := strings.CutPrefix(c.out, "!"); ok {
			var se *SyntaxError
			if !errors.As(err, &se) {
				t.Errorf("%q: error %v, want a SyntaxError", c.exprs, err)
			} else if want != "error" && !strings.Contains(se.Msg, want) {
				t.Errorf("%q: %q does not say %q", c.exprs, se.Msg, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.exprs, err)
			continue
		}
		for _, n := range strings.Fields(c.in) {
			if nr, _ := syscalls.AMD64.ByName(n); !s.Has("amd64", nr) {
				t.Errorf("%q does not select %s", c.exprs, n)
			}
		}
		for _, n := range strings.Fields(c.out) {
			if nr, _ := syscalls.AMD64.ByName(n); s.Has("amd64", nr) {
				t.Errorf("%q selects %s", c.exprs, n)
			}
		}
	}
}

func TestForkOnArm64(t *testing.T) {
	_, err := ParseSyscalls([]string{"fork"}, syscalls.Family("arm64")[:1])
	if err == nil || !strings.Contains(err.Error(), "clone") {
		t.Errorf("%v: does not name clone", err)
	}
}

func FuzzParseSyscalls(f *testing.F) {
	for _, s := range []string{"openat", "!%file", "/^a|b/", "?x@32,1", "read@64", "\x00", ",", "!"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, err := ParseSyscalls([]string{s}, syscalls.Family("amd64"))
		var se *SyntaxError
		if errors.As(err, &se) {
			if se.Pos < 0 || se.Pos > len(se.Expr) || se.Pos+se.Len > len(se.Expr)+1 {
				t.Errorf("%q: error at %d+%d", s, se.Pos, se.Len)
			}
			se.Caret()
		}
	})
}
