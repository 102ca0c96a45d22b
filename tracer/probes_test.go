package tracer

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/internal/kerneltest"
	"github.com/sonde-trace/sonde/probe"
	"github.com/sonde-trace/sonde/sink"
)

// named is an argument of a type.
func named(name, typ string) probe.Arg {
	t := &probe.Type{Name: typ}
	if n, ok := strings.CutSuffix(typ, "]"); ok {
		base, count, _ := strings.Cut(n, "[")
		t = &probe.Type{Name: base, Array: true, Count: &probe.Place{Arg: count}}
	}
	return probe.Arg{Name: name, Type: t}
}

// function is a probe on a function with typed arguments.
func function(object, name string, ret string, args ...probe.Arg) *probe.Spec {
	s := &probe.Spec{Source: object + ":" + name, Kind: probe.KindFunction, Object: object, Point: probe.Point{Text: name}, Args: args, Typed: true}
	if ret != "" {
		s.Ret = &probe.Type{Name: ret}
	}
	return s
}

// noCalls selects no system call.
func noCalls(string, uint32, string) bool { return false }

// traceProbes runs a program and returns the lines of its probes, without its own output, and the same from a replay.
func traceProbes(t *testing.T, o Options, argv ...string) string {
	t.Helper()
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.BTF)
	kerneltest.CheckLeaks(t)
	k := &kept{}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	o.Command = &Command{Path: argv[0], Argv: argv, Env: os.Environ()}
	o.Record = k
	o.Whole = true // however slowly the machine runs
	if o.Select == nil {
		o.Select = noCalls
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	var live, again bytes.Buffer
	text := sink.NewText(&live, sink.TextOptions{PIDs: sink.PIDsNever, NoExits: true})
	r, err := s.Run(context.Background(), text)
	if err != nil {
		t.Fatal(err)
	}
	text.Close(&r.Ledger)
	if !r.Ledger.Balanced() || r.Ledger.LostTotal() > r.Ledger.Made/2 {
		t.Errorf("ledger: %+v", r.Ledger)
	}
	if !r.Ended || r.Status.ExitStatus() != 0 {
		t.Errorf("status %v, ended %v", r.Status, r.Ended)
	}
	replay, err := NewReplay(k.facts, Options{Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	text = sink.NewText(&again, sink.TextOptions{PIDs: sink.PIDsNever, NoExits: true})
	r2, err := replay.Run(context.Background(), k.next, text)
	if err != nil {
		t.Fatal(err)
	}
	text.Close(&r2.Ledger)
	if live.String() != again.String() {
		t.Errorf("live:\n%s\nagain:\n%s", live.String(), again.String())
	}
	return regexp.MustCompile(` +=`).ReplaceAllString(live.String(), " =")
}

func wantLines(t *testing.T, got string, want ...string) {
	t.Helper()
	if g := strings.TrimSuffix(got, "\n"); g != strings.Join(want, "\n") {
		t.Errorf("got:\n%s\nwant:\n%s", g, strings.Join(want, "\n"))
	}
}

// TestProbeFunctions: registers, the stack, text, results, recursion, and returns that never come.
func TestProbeFunctions(t *testing.T) {
	path := kerneltest.Program(t, "calls")
	var args []probe.Arg
	for _, n := range strings.Fields("a b c d e f g h i j") {
		args = append(args, named(n, "long"))
	}
	o := Options{Probes: []*probe.Spec{
		function(path, "add", "int", named("a", "int"), named("b", "int")),
		function(path, "many", "long", args...),
		function(path, "measure", "ulong", named("text", "str"), named("n", "ulong")),
		function(path, "fact", "int", named("n", "int")),
		function(path, "leave", "", named("n", "int")),
		function(path, "escape", "int", named("n", "int")),
	}}
	got := traceProbes(t, o, path)
	wantLines(t, got,
		"calls:add(a=0, b=10) = 10", "calls:add(a=1, b=10) = 11", "calls:add(a=2, b=10) = 12",
		"calls:many(a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9, j=-10) = 35",
		`calls:measure(text="h\303\251llo", n=5) = 11`,
		"calls:fact(n=4) = 24", "calls:fact(n=3) = 6", "calls:fact(n=2) = 2", "calls:fact(n=1) = 1",
		"calls:escape(n=2) = 2", "calls:leave(n=2 <return lost>) = ?", "calls:leave(n=1 <return lost>) = ?", "calls:leave(n=0 <return lost>) = ?")
}

// TestProbeLibrary: a library by its bare name, in one order with system calls, however the program is bound to it (H03).
func TestProbeLibrary(t *testing.T) {
	for _, flags := range [][]string{{"-O1"}, {"-O1", "-Wl,-z,now"}, {"-O1", "-fno-plt"}, {"-O1", "-static"}, {"-O1", "-static-pie"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			path := kerneltest.Compile(t, "calls", flags...)
			o := Options{Probes: []*probe.Spec{function("libc", "malloc", "ptr", named("size", "size_t")),
				function("libc", "strtol", "long", named("text", "str"), named("end", "ptr"), named("base", "int")),
				function("libc", "free", "void", named("p", "ptr"))},
				Select: func(abi string, nr uint32, name string) bool { return name == "write" }}
			got := traceProbes(t, o, path)
			object := "libc.so.6"
			if strings.HasPrefix(flags[len(flags)-1], "-static") {
				object = "calls"
			}
			at := 0
			for _, line := range []string{object + ":malloc(size=123) = 0x", object + `:strtol(text="77", end=NULL, base=10) = 77`,
				object + ":free(p=0x", `write(1, "33 35 11 24 2 copied 77\n"`} {
				i := strings.Index(got[at:], line)
				if i < 0 {
					t.Fatalf("%s is missing, or not in its place:\n%s", line, got)
				}
				at += i
			}
		})
	}
}

// TestProbeKnown: arguments that nobody wrote: functions that are system calls are read as these, others by their prototypes.
func TestProbeKnown(t *testing.T) {
	for _, flags := range [][]string{{"-O1"}, {"-O1", "-static"}} {
		path := kerneltest.Compile(t, "calls", flags...)
		o := Options{}
		for _, name := range []string{"malloc", "strtol", "write"} {
			o.Probes = append(o.Probes, &probe.Spec{Source: "libc:" + name, Kind: probe.KindFunction, Object: "libc", Point: probe.Point{Text: name}})
		}
		got := traceProbes(t, o, path)
		for _, line := range []string{`:malloc(size=123) = 0x`, `:strtol(nptr="77", endptr=NULL, base=10) = 77`} {
			if !strings.Contains(got, line) {
				t.Errorf("%v: %s is missing:\n%s", flags, line, got)
			}
		}
	}
	o := Options{}
	for _, name := range []string{"open64", "close"} {
		o.Probes = append(o.Probes, &probe.Spec{Source: "libc:" + name, Kind: probe.KindFunction, Object: "libc", Point: probe.Point{Text: name}})
	}
	got := traceProbes(t, o, "/bin/sh", "-c", ": < /etc/passwd")
	if !strings.Contains(got, `libc.so.6:open64("/etc/passwd", O_RDONLY) = 3`) || !strings.Contains(got, "libc.so.6:close(3) = 0") {
		t.Errorf("%s", got)
	}
}

// TestProbeThrows: exceptions go through functions whose returns are watched, and what they leave without returning is said.
func TestProbeThrows(t *testing.T) {
	for _, opt := range []string{"-O0", "-O2"} {
		path := kerneltest.Compile(t, "throws.cc", opt)
		o := Options{}
		for _, f := range []string{"thrower(int)", "middle(int)", "catcher(int)"} {
			o.Probes = append(o.Probes, function(path, f, "int", named("n", "int")))
		}
		got := traceProbes(t, o, path)
		for _, want := range []string{"throws:catcher(int)(n=1) = 22", "throws:middle(int)(n=1) = 22", "throws:thrower(int)(n=1) = 11",
			"throws:catcher(int)(n=2) = -2", "throws:middle(int)(n=2 <return lost>) = ?", "throws:thrower(int)(n=2 <return lost>) = ?", "throws:catcher(int)(n=3) = -3"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: missing %s in\n%s", opt, want, got)
			}
		}
	}
}

// TestProbeNames: C++ names (H11): each expression and the calls it sees.
func TestProbeNames(t *testing.T) {
	path := kerneltest.Compile(t, "throws.cc", "-O1")
	for expr, want := range map[string]int{"fun(int)": 1, "fun": 1, "*::fun*": 1, "tmax<*>*": 2, "function": 1, "Foo::fun": 1, "Foo::fun()": 1} {
		m := probe.MatchExact
		if strings.Contains(expr, "*") {
			m = probe.MatchGlob
		}
		o := Options{Probes: []*probe.Spec{{Source: expr, Kind: probe.KindFunction, Object: path, Point: probe.Point{Text: expr, Match: m}, When: probe.WhenEntry, Typed: true}}}
		if got := traceProbes(t, o, path); strings.Count(got, "\n") != want {
			t.Errorf("%s: %d calls, want %d:\n%s", expr, strings.Count(got, "\n"), want, got)
		}
	}
}

// TestProbeConditions: what is shown of calls whose values are known, decided in the kernel or behind it; the account adds up.
func TestProbeConditions(t *testing.T) {
	path := kerneltest.Compile(t, "calls", "-O1", "-g")
	for _, c := range []struct {
		expr string
		want []string
	}{
		{"add(a, b) if a == 1", []string{"add(a=1, b=10) = 11"}},
		{"add(a, b) if a in {0, 2}", []string{"add(a=0, b=10) = 10", "add(a=2, b=10) = 12"}},
		{"add if a > 0 && b == 10", []string{"add(a=1, b=10) = 11", "add(a=2, b=10) = 12"}},
		{"add if ret == 12", []string{"add(a=2, b=10) = 12"}},
		{"add if !(ret > 10) || a == 2", []string{"add(a=0, b=10) = 10", "add(a=2, b=10) = 12"}},
		{"add if a & 1", []string{"add(a=1, b=10) = 11"}},
		{"many if j < -9 && j >= -10", []string{"many(a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, i=9, j=-10) = 35"}},
		{"many if j > -10", nil},
		{`measure if text starts "h"`, []string{`measure(text="h\303\251llo", n=5) = 11`}},
		{`measure if text == "h\xc3\xa9llo"`, []string{`measure(text="h\303\251llo", n=5) = 11`}},
		{`measure if text == "hello"`, nil},
		{`measure if text ~ "h*o" && text has "ll" && text ends "o"`, []string{`measure(text="h\303\251llo", n=5) = 11`}},
		{`measure if text !~ "h*"`, nil},
		{"fact if n <= 2 && ret == 1", []string{"fact(n=1) = 1"}},
		{"fact limit 2", []string{"fact(n=4) = 24", "fact(n=3) = 6"}},
		{"fact sample 1/3", []string{"fact(n=4) = 24", "fact(n=1) = 1"}},
		{"fact if duration > 1s", nil},
		{`fact if comm == "calls" && pid > 0 && n == 3`, []string{"fact(n=3) = 6"}},
	} {
		spec, err := probe.Parse(path + ":" + c.expr)
		if err != nil {
			t.Errorf("%s: %v", c.expr, err)
			continue
		}
		got := traceProbes(t, Options{Probes: []*probe.Spec{spec}}, path)
		var want []string
		for _, w := range c.want {
			want = append(want, "calls:"+w)
		}
		if g := strings.TrimSuffix(got, "\n"); g != strings.Join(want, "\n") {
			t.Errorf("%s:\n%s\nwant:\n%s", c.expr, g, strings.Join(want, "\n"))
		}
	}
	for expr, says := range map[string]string{"add if x == 1": "x", "add if a": "", `add if stack has "main"`: "-k", "add entry if ret == 1": "return"} {
		spec, err := probe.Parse(path + ":" + expr)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(Options{Probes: []*probe.Spec{spec}, Select: noCalls, Command: &Command{Path: path, Argv: []string{path}}})
		if err == nil {
			s.Close()
		}
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", expr, err)
		}
	}
}
