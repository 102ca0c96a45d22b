package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-trace/sonde/internal/kerneltest"
)

// crewOf starts the crew by another program, as another user, or under another name.
func crewOf(t *testing.T, cmd *exec.Cmd) *crew {
	t.Helper()
	c := &crew{Cmd: cmd}
	var err error
	if c.in, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	c.out = bufio.NewReader(out)
	f := strings.Fields(c.line(t))
	c.pid, c.tids = f[0], f[1:]
	return c
}

// copyProgram puts a test program where other users may execute it, under a name of the test's own.
func copyProgram(t *testing.T, name, as string) string {
	t.Helper()
	b, err := os.ReadFile(kerneltest.Program(t, name))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "sonde-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, as)
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// counts lets the crew work under a session and returns the number of its calls in the trace, by thread; the fourth is the one
// that came later.
func (c *crew) counts(t *testing.T, args ...string) (n []int) {
	t.Helper()
	cmd, errs, file := attached(t, append([]string{"-e", "close"}, args...)...)
	c.say(t)
	tids := append(c.tids, strings.TrimSpace(c.line(t)))
	cmd.Process.Signal(syscall.SIGINT)
	rest, _ := io.ReadAll(errs)
	cmd.Wait()
	if !accountLine.Match(rest) {
		t.Errorf("%v: no account: %q", args, rest)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o := outcome{trace: strings.Split(string(text), "\n")}
	for _, tid := range tids {
		n = append(n, len(o.matching(`^(\[pid +)?`+tid+`\]? +close\(7000\) += -1 EBADF`)))
	}
	return n
}

func want(t *testing.T, what string, got []int, want ...int) {
	t.Helper()
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Errorf("%s: %v calls by thread, want %v", what, got, want)
			return
		}
	}
}

// Each kind of target, allowed and denied, alone and with another.
func TestTargets(t *testing.T) {
	const every = 100
	c := startCrew(t)
	want(t, "--tid", c.counts(t, "--tid", c.tids[1]), 0, every, 0, 0)
	c = startCrew(t)
	want(t, "-p and --tid !", c.counts(t, "-p", c.pid, "--tid", "!"+c.tids[1]), every, 0, every, every)
	c = startCrew(t)
	want(t, "--tid of two", c.counts(t, "--tid", c.tids[0]+","+c.tids[2]), every, 0, every, 0)
	name := "crew" + strconv.Itoa(os.Getpid())
	path := copyProgram(t, "crew", name)
	c = crewOf(t, exec.Command(path))
	want(t, "--comm", c.counts(t, "--comm", name), every, every, every, every)
	c = crewOf(t, exec.Command(path))
	want(t, "-p and --comm !", c.counts(t, "-p", c.pid, "--comm", "!"+name), 0, 0, 0, 0)
	if os.Geteuid() != 0 {
		return
	}
	nobody := func() *exec.Cmd {
		cmd := exec.Command(path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		return cmd
	}
	c = crewOf(t, nobody())
	want(t, "--uid", c.counts(t, "--uid", "65534"), every, every, every, every)
	c = crewOf(t, nobody())
	want(t, "--uid of another", c.counts(t, "--uid", "65533", "--comm", name), 0, 0, 0, 0)
	c = crewOf(t, nobody())
	want(t, "--comm and --uid !", c.counts(t, "--comm", name, "--uid", "!65534"), 0, 0, 0, 0)
}

// --tree takes the descendants that are there, wherever in the tree they are.
func TestTree(t *testing.T) {
	path := kerneltest.Program(t, "crew")
	cmd := exec.Command("/bin/sh", "-c", "(("+path+"; true); true); true")
	c := crewOf(t, cmd)
	want(t, "--tree", c.counts(t, "--tree", "-p", strconv.Itoa(cmd.Process.Pid)), 100, 100, 100, 100)
	c.in.Close()
	cmd = exec.Command("/bin/sh", "-c", "(("+path+"; true); true); true")
	c = crewOf(t, cmd)
	want(t, "without --tree", c.counts(t, "-p", strconv.Itoa(cmd.Process.Pid)), 0, 0, 0, 0)
}

// A cgroup of version 2, where the machine has that.
func TestCgroup(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.Cgroup2)
	root, err := kerneltest.Cgroup2Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "sonde-test"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	join := func(c *crew) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(c.pid), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := startCrew(t)
	join(c)
	want(t, "--cgroup", c.counts(t, "--cgroup", dir), 100, 100, 100, 100)
	c.in.Close()
	c.Wait()
	c = startCrew(t)
	join(c)
	want(t, "--cgroup !", c.counts(t, "-p", c.pid, "--cgroup", "!"+dir), 0, 0, 0, 0)
	c.in.Close()
	c.Wait()
}

// -ff writes one file a thread, -A adds to a file that is there.
func TestFiles(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.RawTracepoint, kerneltest.BTF)
	prog := kerneltest.Program(t, "tree")
	base := filepath.Join(t.TempDir(), "out")
	o := finish(t, sondeCommand(t, "trace", "-ff", "-o", base, "-e", "close", "--", prog, "3"), "")
	truth := strings.Fields(o.stdout)
	if o.code != 7 || len(truth) < 6 {
		t.Fatalf("status %d, %q", o.code, o.stderr)
	}
	for i := 0; i < len(truth); i += 2 {
		b, err := os.ReadFile(base + "." + truth[i+1])
		if err != nil || strings.Count(string(b), "close(100"+truth[i]+")") != 1 || strings.Count(string(b), "close(") != 1 {
			t.Errorf("the file of process %s: %v\n%s", truth[i+1], err, b)
		}
		st, err := os.Stat(base + "." + truth[i+1])
		if err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("the file of process %s: %v %v", truth[i+1], st.Mode(), err)
		}
	}
	for range 2 {
		if o := finish(t, sondeCommand(t, "trace", "-A", "-o", base, "-e", "exit_group", "--", prog, "0"), ""); o.code != 7 {
			t.Fatalf("status %d: %s", o.code, o.stderr)
		}
	}
	if b, _ := os.ReadFile(base); strings.Count(string(b), "exit_group(7)") != 2 {
		t.Errorf("after two runs with -A:\n%s", b)
	}
}

// Behind sudo the command runs as the user who called it, and the file is that user's.
func TestSudo(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.RawTracepoint, kerneltest.BTF)
	path := copyProgram(t, "streams", "streams")
	dir := filepath.Dir(path)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "trace")
	cmd := sondeCommand(t, "trace", "-o", file, "-e", "trace=none", "--", "/bin/sh", "-c", "id -u; id -g; echo $HOME")
	cmd.Env = append(cmd.Env, "SUDO_UID=65534", "SUDO_GID=65534", "SUDO_USER=nobody")
	o := finish(t, cmd, "")
	if f := strings.Fields(o.stdout); o.code != 0 || len(f) < 2 || f[0] != "65534" || f[1] != "65534" {
		t.Errorf("status %d, ran as %q: %s", o.code, o.stdout, o.stderr)
	}
	st, err := os.Stat(file)
	if err != nil || st.Sys().(*syscall.Stat_t).Uid != 65534 {
		t.Errorf("the file: %v %+v", err, st)
	}
}
