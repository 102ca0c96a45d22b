package main

import (
	"testing"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/tracer"
)

// TestDescriptorSets: -e fd= and -P are alternatives, and look at arguments wherever they stand in them.
func TestDescriptorSets(t *testing.T) {
	inside := func(fd int32, path string) *event.Event {
		var b event.Builder
		b.Array()
		b.Struct()
		b.Field("fd").Add(event.Node{Kind: event.KindFD, Num: uint64(int64(fd)), Data: []byte(path)})
		b.End()
		b.End()
		return &event.Event{Type: event.TypeSyscall, Args: b.Nodes}
	}
	for _, c := range []struct {
		set   string
		paths []string
		fd    int32
		path  string
		want  bool
	}{
		{"0", nil, 0, "", true},
		{"0", nil, 9, "", false},
		{"0,9", nil, 9, "", true},
		{"!9", nil, 9, "", false},
		{"!9", nil, 3, "", true},
		{"!9", nil, -1, "", false}, // no descriptor at all
		{"all", nil, 7, "", true},
		{"none", nil, 7, "", false},
		{"0", []string{"/dev/full"}, 9, "/dev/full", true},
		{"0", []string{"/dev/full"}, 9, "/dev/null", false},
	} {
		set, err := numberSet(c.set)
		if err != nil {
			t.Fatalf("%s: %v", c.set, err)
		}
		if got := fileFilter(c.paths, set)(inside(c.fd, c.path)); got != c.want {
			t.Errorf("fd=%s -P %q: descriptor %d<%s> passes: %t", c.set, c.paths, c.fd, c.path, got)
		}
	}
	for _, bad := range []string{"x", "-1", "1,,y", "99999999999"} {
		if _, err := numberSet(bad); err == nil {
			t.Errorf("fd=%s is accepted", bad)
		}
	}
}

// TestDetail: what -e raw=, verbose= and abbrev= say of single calls.
func TestDetail(t *testing.T) {
	f := &traceFlags{exprs: []string{"abbrev=!execve", "verbose=!poll", "raw=read,poll"}}
	q, err := f.qualify(syscalls.Family("amd64"))
	if err != nil {
		t.Fatal(err)
	}
	detail := q.detail()
	for name, want := range map[string]tracer.Detail{
		"execve": tracer.DetailFull, "read": tracer.DetailRaw, "poll": tracer.DetailRaw, "openat": tracer.DetailDefault,
	} {
		nr, _ := syscalls.AMD64.ByName(name)
		if got := detail("amd64", nr); got != want {
			t.Errorf("%s: detail %d, want %d", name, got, want)
		}
	}
	f.exprs = []string{"verbose=none"}
	if q, err = f.qualify(syscalls.Family("amd64")); err != nil {
		t.Fatal(err)
	}
	if got := q.detail()("amd64", 0); got != tracer.DetailPlain {
		t.Errorf("verbose=none: detail %d", got)
	}
	if (&qualifiers{}).detail() != nil {
		t.Error("nothing said, and every call is asked")
	}
}
