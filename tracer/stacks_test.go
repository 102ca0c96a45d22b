package tracer

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/kerneltest"
	"github.com/sonde-trace/sonde/probe"
)

// gather keeps the names on the stacks of events.
type gather struct {
	names [][]string
	ends  []string
	calls []string
}

func (g *gather) Event(e *event.Event) error {
	if e.Stack == nil {
		return nil
	}
	var names []string
	for _, f := range e.Stack.Frames {
		names = append(names, f.Func)
	}
	g.names, g.ends, g.calls = append(g.names, names), append(g.ends, e.Stack.End), append(g.calls, e.Name)
	return nil
}
func (g *gather) Flush() error { return nil }

// stacksOf runs a program and returns the stacks of its events, live and from a replay, which must be equal.
func stacksOf(t *testing.T, o Options, argv ...string) *gather {
	t.Helper()
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.BTF)
	kerneltest.CheckLeaks(t)
	k := &kept{}
	o.Command = &Command{Path: argv[0], Argv: argv, Env: os.Environ()}
	o.Record = k
	if o.Select == nil {
		o.Select = noCalls
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	live, again := &gather{}, &gather{}
	if _, err := s.Run(context.Background(), live); err != nil {
		t.Fatal(err)
	}
	replay, err := NewReplay(k.facts, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replay.Run(context.Background(), k.next, again); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(live.names, live.ends) != fmt.Sprint(again.names, again.ends) {
		t.Errorf("live %v %q\nagain %v %q", live.names, live.ends, again.names, again.ends)
	}
	return live
}

func stackOptions(path string, functions ...string) Options {
	o := Options{StackDepth: 512}
	for _, f := range functions {
		o.Probes = append(o.Probes, &probe.Spec{Source: f, Kind: probe.KindFunction, Object: path, Point: probe.Point{Text: f}, When: probe.WhenEntry, Typed: true})
	}
	return o
}

// TestStack: every frame of a program however it was built (H07, H08), from the function itself to the program's start.
func TestStack(t *testing.T) {
	for _, flags := range [][]string{
		{"-O2", "-fomit-frame-pointer"}, {"-O2", "-fno-omit-frame-pointer"}, {"-O0"}, {"-O2", "-static"}, {"-O2", "-static-pie"}, {"-O2", "-fcf-protection=none", "-fomit-frame-pointer"},
	} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			path := kerneltest.Compile(t, "chain", flags...)
			g := stacksOf(t, stackOptions(path, "leaf"), path)
			if len(g.names) != 1 || g.ends[0] != "" {
				t.Fatalf("stacks %v, which end with %q", g.names, g.ends)
			}
			got := g.names[0]
			want := []string{"leaf", "l3", "l2", "l1", "main"}
			if len(got) < len(want)+1 || !slices.Equal(got[:len(want)], want) || got[len(got)-1] != "_start" {
				t.Errorf("%v", got)
			}
		})
	}
}

// TestStackDeep: a recursion to its end, and to the limit, which is said (H10).
func TestStackDeep(t *testing.T) {
	path := kerneltest.Compile(t, "chain", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls")
	for _, c := range []struct{ depth, limit, frames int }{{30, 512, 30}, {300, 512, 300}, {300, 127, 126}} {
		o := stackOptions(path, "bottom")
		o.StackDepth = c.limit
		g := stacksOf(t, o, path, fmt.Sprint(c.depth))
		if len(g.names) != 1 {
			t.Fatalf("%d stacks", len(g.names))
		}
		n := 0
		for _, f := range g.names[0] {
			if f == "rec" {
				n++
			}
		}
		cut := strings.Contains(g.ends[0], fmt.Sprintf("cut at %d frames", c.limit))
		if n != c.frames || g.names[0][0] != "bottom" || cut != (c.limit < c.depth) || !cut && g.ends[0] != "" {
			t.Errorf("depth %d, limit %d: %d frames of rec, the end is %q", c.depth, c.limit, n, g.ends[0])
		}
	}
}

// TestStackSyscall: at system calls too, from the program's first to the one at the bottom.
func TestStackSyscall(t *testing.T) {
	path := kerneltest.Compile(t, "chain", "-O2", "-fomit-frame-pointer")
	o := Options{StackDepth: 512, Select: func(_ string, _ uint32, name string) bool { return name == "getppid" || name == "mmap" }}
	g := stacksOf(t, o, path, "20")
	i := slices.Index(g.calls, "getppid")
	if i < 0 || g.ends[i] != "" || len(g.names[i]) < 24 || g.names[i][1] != "bottom" || g.names[i][2] != "rec" || !slices.Contains(g.names[i], "main") {
		t.Errorf("calls %q, stacks %v %q", g.calls, g.names, g.ends)
	}
	// All calls, most of which are served by other programs than a few are.
	all := stacksOf(t, Options{StackDepth: 512, Select: func(string, uint32, string) bool { return true }}, path, "20")
	for i, name := range all.calls {
		if all.ends[i] != "" || len(all.names[i]) < 2 {
			t.Errorf("%s: %v %q", name, all.names[i], all.ends[i])
		}
	}
	if len(all.calls) < 10 {
		t.Errorf("stacks of %d calls: %q", len(all.calls), all.calls)
	}
	if g.calls[0] != "mmap" || g.ends[0] != "" {
		t.Errorf("the dynamic linker's first mmap: %v %q", g.names[0], g.ends[0])
	}
}

// TestRegs: registers at calls and at probes, where the number of a call and an argument are known to be in them.
func TestRegs(t *testing.T) {
	path := kerneltest.Compile(t, "calls", "-O1")
	var got []string
	o := Options{Regs: []string{"arg1", "arg2", "pc"}, Probes: []*probe.Spec{function(path, "add", "int", named("a", "int"), named("b", "int"))},
		Select:  func(_ string, _ uint32, name string) bool { return name == "write" },
		Command: &Command{Path: path, Argv: []string{path}, Env: os.Environ()}}
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.BTF, kerneltest.FindVMA)
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	sink := sinkFunc(func(e *event.Event) error {
		if len(e.Regs) == 3 && e.Regs[2].Value != 0 {
			got = append(got, fmt.Sprint(e.Name, uint32(e.Regs[0].Value), uint32(e.Regs[1].Value)))
		}
		return nil
	})
	if _, err := s.Run(context.Background(), sink); err != nil {
		t.Fatal(err)
	}
	if len(got) != 4 || got[0] != "add0 10" || got[2] != "add2 10" || !strings.HasPrefix(got[3], "write1 ") {
		t.Errorf("%q", got)
	}
	o.Regs = []string{"rip4"}
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "rip4") {
		t.Errorf("a register that does not exist: %v", err)
	}
}
