package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
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

// Case H01: memory that was not paged in at the entry of the call.
func TestColdMemory(t *testing.T) {
	o := trace(t, "", "-e", "openat", "--", kerneltest.Program(t, "cold"), t.TempDir())
	if o.code != 0 {
		t.Fatalf("exit status %d: %s", o.code, o.stderr)
	}
	if got := o.matching(`openat\(AT_FDCWD, "/nonexistent/in/a/cold/page", O_RDONLY\)\s+= -1 ENOENT`); len(got) != 2 {
		t.Errorf("%d lines with the path, want 2:\n%s", len(got), tail(o.trace))
	}
}

// Case H02: the command's streams are its own, and its status is ours.
func TestStreamsAndStatus(t *testing.T) {
	prog := kerneltest.Program(t, "streams")
	o := trace(t, "abc\n", "-q", "--", prog)
	if o.code != 42 || o.stdout != "abc\n" || o.stderr != "to stderr\n" {
		t.Errorf("status %d, stdout %q, stderr %q", o.code, o.stdout, o.stderr)
	}
	if got := o.matching(`^\+\+\+ exited with 42 \+\+\+$`); len(got) != 1 {
		t.Errorf("no end in the trace:\n%s", tail(o.trace))
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGUSR1} {
		o := trace(t, "abc\n", "-q", "--", prog, strconv.Itoa(int(sig)))
		if o.signal != sig || o.stdout != "abc\n" {
			t.Errorf("signal %d: ended by %d with status %d, stdout %q, stderr %q", sig, o.signal, o.code, o.stdout, o.stderr)
		}
		if got := o.matching(`^\+\+\+ killed by SIG`); len(got) != 1 {
			t.Errorf("signal %d: no end in the trace:\n%s", sig, tail(o.trace))
		}
		if sig != syscall.SIGKILL && len(o.matching(`^--- SIG(TERM|SEGV|USR1) \{.*SI_TKILL`)) != 1 {
			t.Errorf("signal %d: not in the trace:\n%s", sig, tail(o.trace))
		}
	}
}

// Nothing of ours leaks into the command: it prints what it finds, with and without us.
func TestCommandUntouched(t *testing.T) {
	prog := kerneltest.Program(t, "streams")
	var out bytes.Buffer
	cmd := exec.Command(prog, "limits")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(""), &out, io.Discard
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	o := trace(t, "", "-q", "-e", "getpid", "--", prog, "limits")
	if o.stdout != out.String() {
		t.Errorf("under sonde:\n%s\nwithout:\n%s", o.stdout, out.String())
	}
}

func TestCannotStart(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tests := []struct {
		command string
		code    int
		says    string
	}{
		{"no-such-command-here", 127, "not found"},
		{filepath.Join(dir, "absent"), 127, "no such file"},
		{file("plain", "#!/bin/sh\n", 0o644), 126, "not executable"},
		{dir, 126, "is a directory"},
		{file("noint", "#!/nonexistent/sh\n", 0o755), 127, "interpreter"},
		{file("text", "neither ELF nor script\n", 0o755), 126, "format"},
	}
	for _, tt := range tests {
		o := trace(t, "", "--", tt.command)
		if o.code != tt.code || !strings.Contains(o.stderr, tt.says) {
			t.Errorf("%s: status %d, want %d; stderr %q", tt.command, o.code, tt.code, o.stderr)
		}
	}
}

// Case H04: whole trees, however they are made, and nothing but the first process without -f.
func TestTrees(t *testing.T) {
	prog := kerneltest.Program(t, "tree")
	for _, how := range []string{"fork", "vfork", "clone", "clone3"} {
		t.Run(how, func(t *testing.T) {
			const depth = 50
			o := trace(t, "", "-f", "-e", "close", "--", prog, strconv.Itoa(depth), how)
			if o.code != 7 {
				t.Fatalf("status %d: %s", o.code, o.stderr)
			}
			truth := strings.Fields(o.stdout)
			if len(truth) != 2*(depth+1) {
				t.Fatalf("the program printed %q", o.stdout)
			}
			for i := 0; i < len(truth); i += 2 {
				level, _ := strconv.Atoi(truth[i])
				if got := o.matching(fmt.Sprintf(`^(\[pid +)?%s\]? +close\(%d(\) += -1 EBADF| <unfinished)`, truth[i+1], 1000+level)); len(got) != 1 {
					t.Errorf("level %d of process %s: %d lines", level, truth[i+1], len(got))
				}
				if got := o.matching(fmt.Sprintf(`^(\[pid +)?%s\]? +\+\+\+ exited with 7 \+\+\+`, truth[i+1])); len(got) != 1 {
					t.Errorf("end of process %s: %d lines", truth[i+1], len(got))
				}
			}
			if n := len(o.matching(`close\(1\d\d\d[) ]`)); n != depth+1 {
				t.Errorf("%d marks, want %d", n, depth+1)
			}
			o.ledger(t)
		})
	}
	o := trace(t, "", "-e", "close", "--", prog, "3")
	if got := o.matching(`close\(1\d\d\d\)`); len(got) != 1 || !strings.Contains(got[0], "close(1000)") {
		t.Errorf("without -f:\n%s", strings.Join(got, "\n"))
	}
}

// Case H05: long values are cut and marked, or whole.
func TestLongValues(t *testing.T) {
	prog := kerneltest.Program(t, "longs")
	// The program's path and its data, as they are made there.
	var path, data strings.Builder
	for i := range 3900 {
		if i%100 == 0 {
			path.WriteByte('/')
		} else {
			path.WriteByte(byte('a' + i%26))
		}
	}
	for i := range 5000 {
		if i%50 == 0 {
			data.WriteString(`\0`)
		} else {
			data.WriteByte(byte('A' + i%26))
		}
	}
	o := trace(t, "", "-e", "trace=open,openat,write", "--", prog)
	if got := o.matching(`write\(\d+, "\\0BCD[^"]*"\.\.\., 5000\) += 5000`); len(got) != 1 {
		t.Errorf("the data is not cut and marked:\n%.2000s", tail(o.trace))
	}
	for _, l := range o.matching(`open(at)?\(.*"/bcd`) {
		if !strings.Contains(l, `"`+path.String()+`"`) && !strings.Contains(l, `"...`) {
			t.Errorf("the path is neither whole nor marked as cut: %.500s", l)
		}
	}
	o = trace(t, "", "-s", "8192", "-e", "trace=open,openat,write", "--", prog)
	if got := o.matching(`write\(\d+, "` + regexp.QuoteMeta(data.String()) + `", 5000\) += 5000`); len(got) != 1 {
		t.Errorf("-s 8192: the data is not whole:\n%.8000s", tail(o.trace))
	}
	if got := o.matching(`open(at)?\(.*"` + regexp.QuoteMeta(path.String()) + `", O_RDONLY\) += -1 E`); len(got) != 1 {
		t.Errorf("-s 8192: the path is not whole:\n%.8000s", tail(o.trace))
	}
}

// Case H06: only calls that fail.
func TestFailedOnly(t *testing.T) {
	o := trace(t, "", "-Z", "-e", "openat", "--", kerneltest.Program(t, "opens"))
	want := []string{
		`^openat\(AT_FDCWD, "/nonexistent", O_RDONLY\) += -1 ENOENT \(No such file or directory\)$`,
		`^openat\(AT_FDCWD, "n+"(\.\.\.)?, O_RDONLY\) += -1 ENAMETOOLONG \(File name too long\)$`,
		`^openat\(AT_FDCWD, 0x10, O_RDONLY\) += -1 EFAULT \(Bad address\)$`,
		`^openat\(AT_FDCWD, "/dev/null/x", O_RDONLY\) += -1 ENOTDIR \(Not a directory\)$`,
	}
	got := o.matching(`openat`)
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d:\n%.3000s", len(got), len(want), tail(o.trace))
	}
	for i, w := range want {
		if !regexp.MustCompile(w).MatchString(got[i]) {
			t.Errorf("line %d: %.200s\nwant %s", i, got[i], w)
		}
	}
	if l := o.ledger(t); l != (ledger{6, 4, 2, 0}) {
		t.Errorf("ledger %+v", l)
	}
}

// Case H13: the account adds up, with losses and without.
func TestAccount(t *testing.T) {
	prog := kerneltest.Program(t, "burst")
	each := 50000
	if kerneltest.Slow() {
		each = 3000
	}
	for _, flags := range [][]string{nil, {"--buffer", "64KiB"}, {"--on-loss=block"}, {"--buffer", "64KiB", "--on-loss=block"}} {
		o := trace(t, "", append(append([]string{"-f", "-e", "getppid", "--ledger=task"}, flags...), "--", prog, "4", strconv.Itoa(each))...)
		if o.code != 0 {
			t.Fatalf("%v: status %d: %s", flags, o.code, o.stderr)
		}
		l := o.ledger(t)
		if l.made != 4*each {
			t.Errorf("%v: %d calls, want %d: %s", flags, l.made, 4*each, o.stderr)
		}
		lines := make(map[string]int)
		// Shown is what has its result, in one line or as the second of two, and what the task's end cut off.
		for _, s := range o.matching(`getppid.* = \d+( \(late\))?$|getppid\( <unfinished \.\.\.>\) += \?$`) {
			pid, _, _ := strings.Cut(s, " ")
			lines[pid]++
		}
		total := 0
		truth := strings.Fields(o.stdout)
		for i := 0; i+1 < len(truth); i += 2 {
			total += lines[truth[i]]
			if l.lost == 0 && lines[truth[i]] != each {
				t.Errorf("%v: %d lines of process %s, want %d", flags, lines[truth[i]], truth[i], each)
			}
		}
		if total != l.shown {
			t.Errorf("%v: %d lines, and %d said to be shown", flags, total, l.shown)
		}
		for i := 0; i+1 < len(truth); i += 2 {
			m := regexp.MustCompile(`(?m)^sonde: task ` + truth[i] + `: (\d+) calls: (\d+) shown, 0 filtered, (\d+) lost$`).FindStringSubmatch(o.stderr)
			if m == nil || m[1] != strconv.Itoa(each) || m[2] != strconv.Itoa(lines[truth[i]]) {
				t.Errorf("%v: the account of process %s, which has %d lines: %q", flags, truth[i], lines[truth[i]], m)
			}
		}
		t.Logf("%v: %+v", flags, l)
		// A target waits a millisecond for a record, and no longer: on a busy machine the reader may not run in that time.
		if len(flags) > 0 && flags[len(flags)-1] == "--on-loss=block" && l.lost > l.made/100 && !kerneltest.Slow() {
			t.Errorf("%v: %d lost", flags, l.lost)
		}
		if l.lost > 0 && !strings.Contains(o.stderr, "--buffer") {
			t.Errorf("%v: losses without advice: %s", flags, o.stderr)
		}
	}
}

// Case H14: lines come in order of time across CPUs.
func TestOrder(t *testing.T) {
	turns := 20000
	if kerneltest.Slow() {
		turns = 1000
	}
	o := trace(t, "", "-e", "close", "--", kerneltest.Program(t, "token"), strconv.Itoa(turns))
	re := regexp.MustCompile(`close\((1\d{5})`)
	next, late := 100000, 0
	for _, l := range o.trace {
		m := re.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		if n, _ := strconv.Atoi(m[1]); n == next {
			next++
		} else if late++; !strings.Contains(l, "(late)") {
			t.Fatalf("turn %d where %d was to come: %s", n-100000, next-100000, l)
		}
	}
	if next+late != 100000+turns {
		t.Errorf("%d turns in order and %d late, want %d: %s", next-100000, late, turns, o.stderr)
	}
}

// Case H16: a thread beside the leader executes a program.
func TestExecBySideThread(t *testing.T) {
	o := trace(t, "", "-f", "-e", "execve,pause", "--", kerneltest.Program(t, "sideexec"))
	ids := strings.Fields(o.stdout)
	if o.code != 0 || len(ids) != 2 {
		t.Fatalf("status %d, stdout %q: %s", o.code, o.stdout, o.stderr)
	}
	if got := o.matching(`^` + ids[1] + ` +execve\("/proc/self/exe".* <pid changed to ` + ids[0] + ` \.\.\.>$`); len(got) != 1 {
		t.Errorf("no execve by thread %s:\n%s", ids[1], tail(o.trace))
	}
	if got := o.matching(`^` + ids[0] + ` +\+\+\+ superseded by execve in pid ` + ids[1] + ` \+\+\+$`); len(got) != 1 {
		t.Errorf("not superseded:\n%s", tail(o.trace))
	}
	if got := o.matching(`^` + ids[0] + ` +<\.\.\. execve resumed>\) += 0$`); len(got) != 1 {
		t.Errorf("the execve does not return under the leader's id:\n%s", tail(o.trace))
	}
	if got := o.matching(`\+\+\+ exited with 0 \+\+\+$`); len(got) != 1 {
		t.Errorf("%d ends, want 1:\n%s", len(got), tail(o.trace))
	}
}

// Every child of a busy parent is complete from its first instruction.
func TestSpawn(t *testing.T) {
	n := 500
	if kerneltest.Slow() {
		n = 50
	}
	o := trace(t, "", "-f", "-e", "execve,close,exit_group,exit", "--", kerneltest.Program(t, "spawn"), strconv.Itoa(n))
	pids := strings.Fields(o.stdout)
	if o.code != 0 || len(pids) != n {
		t.Fatalf("status %d, %d children: %s", o.code, len(pids), o.stderr)
	}
	calls := make(map[string]string)
	for _, l := range o.trace {
		pid, rest, _ := strings.Cut(l, " ")
		rest = strings.TrimLeft(rest, " ")
		name := rest[:max(0, strings.IndexAny(rest+"(", "( "))]
		if name == "<..." || strings.HasPrefix(rest, "---") {
			continue
		}
		calls[pid] += name + " "
	}
	for _, pid := range pids {
		if got := calls[pid]; got != "execve close exit_group +++ " {
			t.Fatalf("child %s: %q", pid, got)
		}
	}
	if l := o.ledger(t); l.lost != 0 {
		t.Errorf("%d lost", l.lost)
	}
}

// crew is a running program with threads.
type crew struct {
	*exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	pid  string
	tids []string
}

func startCrew(t *testing.T) *crew {
	t.Helper()
	return crewOf(t, exec.Command(kerneltest.Program(t, "crew")))
}

func (c *crew) line(t *testing.T) string {
	t.Helper()
	s, err := c.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the program under trace: %v", err)
	}
	return s
}

func (c *crew) say(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(c.in, "\n"); err != nil {
		t.Fatal(err)
	}
}

// attached starts sonde and waits until it says that it has attached.
func attached(t *testing.T, args ...string) (*exec.Cmd, *bufio.Reader, string) {
	t.Helper()
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.RawTracepoint, kerneltest.BTF)
	file := filepath.Join(t.TempDir(), "trace")
	cmd := sondeCommand(t, append([]string{"trace", "-o", file}, args...)...)
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(errs)
	for {
		l, err := r.ReadString('\n')
		if strings.Contains(l, "attached") {
			return cmd, r, file
		}
		if err != nil {
			t.Fatalf("sonde did not attach: %q %v", l, err)
		}
	}
}

// -p takes all threads, those that come too, and leaves the target as it is.
func TestAttach(t *testing.T) {
	c := startCrew(t)
	cmd, errs, file := attached(t, "-e", "close", "-p", c.pid)
	c.say(t)
	tids := append(c.tids, strings.TrimSpace(c.line(t)))
	// The threads are in the trace when the file says so; that needs no rest between the looks.
	begin := time.Now()
	cmd.Process.Signal(syscall.SIGINT)
	rest, _ := io.ReadAll(errs)
	cmd.Wait()
	if d := time.Since(begin); d > kerneltest.Patience(time.Second) {
		t.Errorf("it took %v to end", d)
	}
	if !accountLine.Match(rest) {
		t.Errorf("no account after an interrupt: %q", rest)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o := outcome{trace: strings.Split(string(text), "\n")}
	for _, tid := range tids {
		if n := len(o.matching(`^` + tid + ` +close\(7000\) += -1 EBADF`)); n != 100 {
			t.Errorf("thread %s: %d calls, want 100", tid, n)
		}
	}
	c.say(t)
	if err := c.Wait(); err != nil {
		t.Errorf("the target did not carry on: %v", err)
	}
}

// A session ends when all that it traces has ended.
func TestAttachUntilEnd(t *testing.T) {
	c := startCrew(t)
	cmd, _, file := attached(t, "-e", "exit_group", "-p", c.pid)
	c.in.Close()
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	text, _ := os.ReadFile(file)
	if !regexp.MustCompile(`exit_group\(0\) += \?`).Match(text) {
		t.Errorf("trace:\n%s", text)
	}
}

// A target that dies while we attach to it is no reason to wait for it for ever.
func TestTargetDies(t *testing.T) {
	for range 3 {
		c := startCrew(t)
		cmd := sondeCommand(t, "trace", "-p", c.pid)
		kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.RawTracepoint, kerneltest.BTF)
		done := make(chan outcome)
		go func() { done <- finish(t, cmd, "") }()
		c.Process.Kill()
		c.Wait()
		o := <-done
		if o.signal != 0 {
			t.Fatalf("did not end: %q", o.stderr)
		}
	}
}

// A terminal gives its interrupt to the command too; we end as it does.
func TestInterruptCommand(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.RawTracepoint, kerneltest.BTF)
	cmd := sondeCommand(t, "trace", "-o", filepath.Join(t.TempDir(), "trace"), "--", kerneltest.Program(t, "crew"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	begin := time.Now()
	syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
	cmd.Wait()
	if d := time.Since(begin); d > kerneltest.Patience(time.Second) {
		t.Errorf("it took %v to end", d)
	}
	o := outcomeOf(cmd, new(bytes.Buffer), &errs)
	if o.signal != syscall.SIGINT {
		t.Errorf("ended with status %d, signal %d: %s", o.code, o.signal, o.stderr)
	}
	o.ledger(t)
}

func TestUsage(t *testing.T) {
	tests := []struct {
		args []string
		code int
		says string
	}{
		{[]string{"trace"}, 2, "nothing to trace"},
		{[]string{"trace", "--no-such-flag", "--", "true"}, 2, "no-such-flag"},
		{[]string{"trace", "-e", "opneat", "--", "true"}, 2, "openat"},
		{[]string{"trace", "-e", "%netwrk", "--", "true"}, 2, "%network"},
		{[]string{"trace", "-p", "0"}, 2, "-p 0"},
		{[]string{"trace", "-p", "4000000"}, 2, "no such process"},
		{[]string{"trace", "-s", "-1", "--", "true"}, 2, "-s"},
		{[]string{"trace", "-s", "100000", "--", "true"}, 2, "65536"},
		{[]string{"trace", "--buffer", "3MiB", "--", "true"}, 2, "power of two"},
		{[]string{"trace", "-e", "inject=read:poke_exit=@arg1=00", "--", "true"}, 2, "ptrace"},
		{[]string{"trace", "-e", "inject=read", "--", "true"}, 2, "nothing is to be done"},
		{[]string{"trace", "-e", "fault=read:retval=3", "--", "true"}, 2, "error= and when="},
		{[]string{"trace", "-z", "-Z", "--", "true"}, 2, "exclude"},
		{[]string{"trase", "--", "true"}, 2, "no such verb"},
	}
	for _, tt := range tests {
		o := finish(t, sondeCommand(t, tt.args...), "")
		if o.code != tt.code || !strings.Contains(o.stderr, tt.says) || o.stdout != "" {
			t.Errorf("%v: status %d, want %d and %q; stderr %q, stdout %q", tt.args, o.code, tt.code, tt.says, o.stderr, o.stdout)
		}
	}
}

// What was recorded is printed as trace would have printed it, chosen from and in another form, by anybody.
func TestRecordReplay(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.RawTracepoint, kerneltest.BTF)
	file := filepath.Join(t.TempDir(), "rec")
	o := finish(t, sondeCommand(t, "record", "-f", "-e", "close,wait4", "-o", file, "--", kerneltest.Program(t, "tree"), "5"), "")
	if o.code != 7 {
		t.Fatalf("status %d: %s", o.code, o.stderr)
	}
	made := o.ledger(t)
	truth := strings.Fields(o.stdout)
	text := finish(t, sondeCommand(t, "replay", file, "-e", "close", "-o", "/dev/stdout"), "")
	text.trace = strings.Split(text.stdout, "\n")
	for i := 0; i < len(truth); i += 2 {
		if n := len(text.matching(fmt.Sprintf(`^%s +close\(100%s\) += -1 EBADF`, truth[i+1], truth[i]))); n != 1 {
			t.Errorf("level %s: %d lines", truth[i], n)
		}
	}
	if len(text.matching("wait4")) != 0 || text.code != 0 {
		t.Errorf("status %d:\n%s", text.code, text.stdout)
	}
	all := finish(t, sondeCommand(t, "replay", file, "--json"), "")
	if l := all.ledger(t); l != made || !strings.Contains(all.stdout, `"wait4"`) {
		t.Errorf("ledger %+v, was %+v; %.300s", l, made, all.stdout)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b[:len(b)-10], 0o600); err != nil {
		t.Fatal(err)
	}
	if cut := finish(t, sondeCommand(t, "replay", file), ""); cut.code != 1 || !strings.Contains(cut.stderr, "cut") || !strings.Contains(cut.stderr, "close(1000)") {
		t.Errorf("of a cut file: status %d, %s", cut.code, cut.stderr)
	}
}

// TestInject: an injected result reaches the program at the calls that were chosen, the line shows what the call asked for,
// and all others go on.
func TestInject(t *testing.T) {
	script := "cd /; echo $?; cd /usr; echo $?; cd /; echo $?"
	o := trace(t, "", "-e", "fault=chdir:error=EIO:when=2", "-e", "trace=chdir", "--", "sh", "-c", script)
	if o.stdout != "0\n2\n0\n" || o.code != 0 {
		t.Errorf("the program saw %q and ended with %d: %s", o.stdout, o.code, o.stderr)
	}
	want := []string{`chdir("/")`, `chdir("/usr")`, `chdir("/")`}
	if len(o.trace) < len(want) {
		t.Fatalf("lines: %q", o.trace)
	}
	for i, w := range want {
		if injected := strings.HasSuffix(o.trace[i], "= -1 EIO (Input/output error) (INJECTED)"); !strings.HasPrefix(o.trace[i], w) || injected != (i == 1) {
			t.Errorf("call %d: %s", i+1, o.trace[i])
		}
	}
	if !strings.Contains(o.stderr, "3 calls: 3 shown, 0 filtered, 0 lost") {
		t.Errorf("account: %s", o.stderr)
	}
	// What sonde itself does until the command is executed is not injected, whatever the calls, and children only with -f.
	o = trace(t, "", "-e", "inject=execve,execveat,close,dup3,fcntl,clone,clone3,vfork,write,rt_sigprocmask,futex,mmap:retval=0:when=50000",
		"-e", "inject=chdir:retval=7", "-e", "trace=chdir", "--", "sh", "-c", "(cd /nowhere/at/all); echo $?; cd /nowhere/at/all; echo $?")
	if o.stdout != "2\n2\n" {
		t.Errorf("without -f: the program saw %q: %s", o.stdout, o.stderr)
	}
	o = trace(t, "", "-f", "-e", "inject=chdir:error=EPERM", "-e", "trace=chdir", "--", "sh", "-c", "(cd /); echo $?")
	if o.stdout != "2\n" {
		t.Errorf("with -f: the program saw %q: %s", o.stdout, o.stderr)
	}
	// The memory that a call names is shown also when nothing but the call would have brought it in.
	o = trace(t, "", "-e", "inject=mkdir:retval=0", "-e", "trace=mkdir", "--json", "--", "mkdir", "/nowhere/at/all")
	if o.code != 0 || len(o.trace) < 2 || !strings.Contains(strings.Join(o.trace, "\n"), `"injected":true`) {
		t.Errorf("mkdir: status %d, %q", o.code, o.trace)
	}
}

// TestAdopted: a process that the command makes as a child of ours does not stay as a zombie.
func TestAdopted(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if o := trace(t, "", "-E", actAsParent+"=1", "-e", "trace=none", "--", self); o.code != 0 {
		t.Errorf("the child of the command's parent is still there: status %d, %s", o.code, o.stderr)
	}
}
