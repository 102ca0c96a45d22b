package constant

import "testing"

func TestErrno(t *testing.T) {
	for _, c := range []struct {
		n          int
		name, text string
	}{
		{1, "EPERM", "Operation not permitted"},
		{2, "ENOENT", "No such file or directory"},
		{11, "EAGAIN", "Resource temporarily unavailable"},
		{35, "EDEADLK", "Resource deadlock avoided"},
		{41, "", "Unknown error 41"},
		{95, "EOPNOTSUPP", "Operation not supported"},
		{133, "EHWPOISON", "Memory page has hardware error"},
		{134, "EFTYPE", "Unknown error 134"},
		{135, "", "Unknown error 135"},
		{512, "ERESTARTSYS", "To be restarted if SA_RESTART is set"},
		{516, "ERESTART_RESTARTBLOCK", "Interrupted by signal"},
		{520, "", "Unknown error 520"},
		{524, "ENOTSUPP", "Unknown error 524"},
		{530, "ERECALLCONFLICT", "Unknown error 530"},
		{4095, "", "Unknown error 4095"},
		{0, "", "Unknown error 0"},
		{-1, "", "Unknown error -1"},
	} {
		if e := ErrnoOf(c.n); e.Name != c.name || e.Text != c.text {
			t.Errorf("%d: %+v, want %s (%s)", c.n, e, c.name, c.text)
		}
		if c.name != "" {
			if n, ok := ErrnoNum(c.name); !ok || n != c.n {
				t.Errorf("ErrnoNum(%s) = %d, %v", c.name, n, ok)
			}
		}
	}
	if n, ok := ErrnoNum("EWOULDBLOCK"); !ok || n != 11 {
		t.Errorf("EWOULDBLOCK = %d, %v", n, ok)
	}
}

func TestSignal(t *testing.T) {
	for n, name := range map[int]string{1: "SIGHUP", 9: "SIGKILL", 31: "SIGSYS", 32: "SIGRTMIN", 33: "SIGRT_1", 64: "SIGRT_32", 0: "", 65: "", -1: ""} {
		if got := SignalName(n); got != name {
			t.Errorf("SignalName(%d) = %q, want %q", n, got, name)
		}
	}
	for name, n := range map[string]int{"SIGHUP": 1, "hup": 1, "9": 9, "SIGRT_1": 33, "rtmin": 32, "SIGCLD": 17} {
		if got, ok := SignalNum(name); !ok || got != n {
			t.Errorf("SignalNum(%q) = %d, %v", name, got, ok)
		}
	}
	for _, bad := range []string{"", "SIG", "0", "65", "-1", "SIGFOO"} {
		if n, ok := SignalNum(bad); ok {
			t.Errorf("SignalNum(%q) = %d", bad, n)
		}
	}
}

func TestFor(t *testing.T) {
	arm := &Set{}
	s := &Set{variants: []variant{{[]string{"arm64", "arm"}, arm}}}
	if s.For("amd64") != s || s.For("arm") != arm || s.For("arm64") != arm {
		t.Error("wrong variant")
	}
}
