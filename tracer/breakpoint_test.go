package tracer

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/internal/kerneltest"
	"github.com/sonde-trace/sonde/probe"
	"github.com/sonde-trace/sonde/sink"
)

func mustParse(t *testing.T, text string) *probe.Spec {
	t.Helper()
	s, err := probe.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWatch is H25: three threads write one global five times each. Every write is shown, with the thread, the function, the
// instruction, the old and the new value, and a replay shows the same.
func TestWatch(t *testing.T) {
	kerneltest.Require(t, kerneltest.DebugRegisters)
	path := kerneltest.Program(t, "thr")
	got := traceProbes(t, Options{Signals: true, Probes: []*probe.Spec{mustParse(t, "watch:"+path+":g:w"), mustParse(t, "watch:"+path+":cfg.mode:w")}}, path)
	var g, mode []string
	for _, line := range strings.Split(strings.TrimSpace(got), "\n") {
		if strings.HasPrefix(line, "thr:g(") {
			g = append(g, line)
		} else {
			mode = append(mode, line)
		}
	}
	form := `^thr:g\(value=%d => %d, insn="(mov +%%r[a-z]+,.*|str x.*)", at="writer\+0x[0-9a-f]+"\)$`
	for i, line := range g {
		if !regexp.MustCompile(fmt.Sprintf(form, i, i+1)).MatchString(line) {
			t.Errorf("write %d: %s", i, line)
		}
	}
	if len(g) != 15 {
		t.Errorf("%d of 15 writes", len(g))
	}
	if len(mode) != 2 || !strings.Contains(mode[0], "cfg.mode(value=0 => 3, ") || !strings.Contains(mode[1], "value=3 => -1, ") || !strings.Contains(mode[1], `at="configure`) {
		t.Errorf("the member:\n%s", strings.Join(mode, "\n"))
	}
}

// An object wider than a register is split, and a write to any byte of it is seen.
func TestWatchWide(t *testing.T) {
	kerneltest.Require(t, kerneltest.DebugRegisters)
	path := kerneltest.Program(t, "thr")
	got := traceProbes(t, Options{Probes: []*probe.Spec{mustParse(t, "watch:"+path+":cfg.wide:w")}}, path)
	n := 0
	for i := range 24 {
		n += strings.Count(got, fmt.Sprintf("thr:cfg.wide+%d(", i))
	}
	if n != 24 || strings.Count(got, `at="touch+`) != 24 {
		t.Errorf("%d of 24 writes:\n%s", n, got)
	}
}

// A breakpoint on a function, with the threads that come later.
func TestBreakFunction(t *testing.T) {
	kerneltest.Require(t, kerneltest.DebugRegisters)
	path := kerneltest.Program(t, "thr")
	got := traceProbes(t, Options{Probes: []*probe.Spec{mustParse(t, "break:"+path+":writer(v:long)")}}, path)
	for i := 1; i <= 15; i++ {
		if !strings.Contains(got, fmt.Sprintf(`thr:writer(v=%d, at="writer+0x0")`, i)) {
			t.Errorf("call %d is missing", i)
		}
	}
	if n := strings.Count(got, "thr:writer("); n != 15 {
		t.Errorf("%d of 15 calls:\n%s", n, got)
	}
}

// A running process: every thread that it has and every one that it makes, with the value from before as the first old one.
// Its stacks come with the hits.
func TestWatchAttached(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.BTF, kerneltest.DebugRegisters)
	kerneltest.CheckLeaks(t)
	path := kerneltest.Program(t, "thr")
	cmd := exec.Command(path, "wait")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	text := bufio.NewReader(out)
	if line, err := text.ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	pid := uint32(cmd.Process.Pid)
	s, err := Open(Options{Probes: []*probe.Spec{mustParse(t, "watch:"+path+":g:w"), mustParse(t, "watch:"+path+":cfg.mode:w4")},
		Target: Target{Pids: []uint32{pid}}, Select: noCalls, Ready: func() { in.Write([]byte("go\n")) }})
	if err != nil {
		t.Fatal(err)
	}
	var live bytes.Buffer
	sk := sink.NewText(&live, sink.TextOptions{PIDs: sink.PIDsAlways, NoExits: true})
	r, err := s.Run(context.Background(), sk)
	if err != nil {
		t.Fatal(err)
	}
	sk.Close(&r.Ledger)
	if !r.Ledger.Balanced() {
		t.Errorf("ledger: %+v", r.Ledger)
	}
	for i := range 35 {
		if !strings.Contains(live.String(), fmt.Sprintf("thr:g(value=%d => %d, ", i, i+1)) {
			t.Errorf("write %d is missing", i)
		}
	}
	if n := strings.Count(live.String(), "thr:g("); n != 35 {
		t.Errorf("%d of 35 writes:\n%s", n, live.String())
	}
	// Another width than the type's: as a number of that width.
	if !strings.Contains(live.String(), "cfg.mode(value=-1 => 7, ") {
		t.Errorf("the member:\n%s", live.String())
	}
	if tids := threadsOf(live.String()); len(tids) < 24 {
		t.Errorf("hits of %d threads, want 24", len(tids))
	}
}

// threadsOf counts the lines of each thread.
func threadsOf(text string) map[string]int {
	tids := make(map[string]int)
	for line := range strings.Lines(text) {
		tid, _, _ := strings.Cut(strings.TrimPrefix(line, "[pid "), " ")
		tids[strings.TrimSpace(strings.TrimSuffix(tid, "]"))]++
	}
	return tids
}

// What cannot be armed is refused before anything starts, with the reason.
func TestWatchRefused(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.BTF)
	kerneltest.CheckLeaks(t)
	path := kerneltest.Program(t, "thr")
	open := func(list ...string) error {
		var specs []*probe.Spec
		for _, text := range list {
			specs = append(specs, mustParse(t, text))
		}
		s, err := Open(Options{Probes: specs, Command: &Command{Path: path, Argv: []string{path}}, Select: noCalls})
		if err == nil {
			s.Close()
		}
		return err
	}
	for text, want := range map[string]string{
		"watch:" + path + ":nothing:w":      "no variable of that name",
		"watch:" + path + ":cfg.mod:w":      "no member mod; it has unused, mode, wide",
		"watch:" + path + ":cfg.wide[24]:w": "element 24 of 24",
		"watch:0x1234:w8":                   "an address alone is one of a running process",
	} {
		if err := open(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	err := open("watch:" + path + ":g:w")
	if kerneltest.Have(kerneltest.DebugRegisters) != nil {
		if err == nil || !strings.Contains(err.Error(), "do not work here") {
			t.Errorf("where hits do not arrive: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOARCH == "amd64" {
		err = open("watch:"+path+":cfg.wide:w", "watch:"+path+":g:w", "break:"+path+":writer")
		if err == nil || !strings.Contains(err.Error(), "5 debug registers are needed and 4 are free") || !strings.Contains(err.Error(), "cfg.wide:w takes 3") {
			t.Errorf("more than there are: %v", err)
		}
	}
}
