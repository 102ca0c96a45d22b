package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sonde-trace/sonde/internal/kerneltest"
)

// actAsSonde makes the test's own program be sonde, so that the tests run where there is no compiler.
const actAsSonde = "SONDE_TEST_ACT_AS_SONDE"

func TestMain(m *testing.M) {
	if os.Getenv(actAsSonde) != "" {
		os.Unsetenv(actAsSonde)
		main()
	}
	if os.Getenv(actAsParent) != "" {
		os.Exit(orphan())
	}
	os.Exit(m.Run())
}

// actAsParent makes it a program that makes a child of its own parent.
const actAsParent = "SONDE_TEST_ACT_AS_PARENT"

// orphan starts a process with CLONE_PARENT and tells by its status whether that one is gone after it has ended.
func orphan() int {
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_PARENT}
	if err := cmd.Start(); err != nil {
		return 3
	}
	for range 500 {
		if syscall.Kill(cmd.Process.Pid, 0) == syscall.ESRCH {
			return 0
		}
		time.Sleep(10 * time.Millisecond)
	}
	return 1
}

// sondeCommand prepares a run of sonde, which is killed when it takes far too long.
func sondeCommand(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), kerneltest.Patience(40*time.Second))
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), actAsSonde+"=1")
	return cmd
}

// outcome is what a run of sonde trace has come to.
type outcome struct {
	code           int
	signal         syscall.Signal
	stdout, stderr string
	trace          []string // lines of the file of -o
}

// trace runs sonde trace with -o a file.
func trace(t testing.TB, stdin string, args ...string) outcome {
	t.Helper()
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.RawTracepoint, kerneltest.BTF)
	file := filepath.Join(t.TempDir(), "trace")
	cmd := sondeCommand(t, append([]string{"trace", "-o", file}, args...)...)
	o := finish(t, cmd, stdin)
	if b, err := os.ReadFile(file); err == nil {
		o.trace = strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	}
	return o
}

// finish runs a prepared command to its end.
func finish(t testing.TB, cmd *exec.Cmd, stdin string) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	return outcomeOf(cmd, &out, &errs)
}

func outcomeOf(cmd *exec.Cmd, out, errs *bytes.Buffer) outcome {
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	o := outcome{code: ws.ExitStatus(), stdout: out.String(), stderr: errs.String()}
	if ws.Signaled() {
		o.signal = ws.Signal()
	}
	return o
}

// matching returns the lines of the trace that match.
func (o *outcome) matching(pattern string) (list []string) {
	re := regexp.MustCompile(pattern)
	for _, l := range o.trace {
		if re.MatchString(l) {
			list = append(list, l)
		}
	}
	return list
}

// ledger is the account that sonde printed.
type ledger struct{ made, shown, filtered, lost int }

var accountLine = regexp.MustCompile(`(?m)^sonde: (\d+) calls: (\d+) shown, (\d+) filtered, (\d+) lost`)

func (o *outcome) ledger(t testing.TB) (l ledger) {
	t.Helper()
	m := accountLine.FindStringSubmatch(o.stderr)
	if m == nil {
		t.Fatalf("no account on stderr: %q", o.stderr)
	}
	for i, p := range []*int{&l.made, &l.shown, &l.filtered, &l.lost} {
		*p, _ = strconv.Atoi(m[i+1])
	}
	if l.made != l.shown+l.filtered+l.lost {
		t.Errorf("the account does not add up: %s", m[0])
	}
	return l
}

func tail(lines []string) string { return strings.Join(lines[max(0, len(lines)-30):], "\n") }
