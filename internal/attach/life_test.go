package attach

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/kerneltest"
	. "github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// A story is what the records of a run say.
type story struct {
	enters, exits map[uint32]int // by number
	tasks         map[uint32]int // entry records by process
	forks, execs  int
	ended         []uint32 // wait statuses of processes, in order
	signals       []string
}

func tell(calls, life []wire.Record) *story {
	s := &story{enters: map[uint32]int{}, exits: map[uint32]int{}, tasks: map[uint32]int{}}
	for _, r := range calls {
		switch r.Kind() {
		case wire.SysEnter:
			s.enters[r.Probe()]++
			s.tasks[r.Tgid()]++
		case wire.SysExit:
			s.exits[r.Probe()]++
		}
	}
	for _, r := range life {
		b := r.Body()
		u32 := func(off int) uint32 {
			return uint32(b[off]) | uint32(b[off+1])<<8 | uint32(b[off+2])<<16 | uint32(b[off+3])<<24
		}
		switch r.Kind() {
		case wire.Fork:
			s.forks++
		case wire.Exec:
			s.execs++
		case wire.Exit:
			if u32(4) == 1 {
				s.ended = append(s.ended, u32(0))
			}
		case wire.Signal:
			s.signals = append(s.signals, fmt.Sprintf("%d/%d code %d", u32(0), u32(4), int32(u32(16))))
		}
	}
	return s
}

// all selects every call, openat with its path.
func all() SyscallOptions {
	return SyscallOptions{Others: true, Follow: true, Signals: true, Calls: []SyscallPlan{
		{ABI: runtime.GOARCH, Nr: unix.SYS_OPENAT, Enter: []Fetch{Path(1)}},
		{ABI: runtime.GOARCH, Nr: unix.SYS_EXECVE, Enter: []Fetch{Path(0), {Kind: FetchStrings, Base: Arg(1)}}},
	}}
}

// TestCommand follows a command from its execve to its end.
func TestCommand(t *testing.T) {
	kerneltest.CheckLeaks(t)
	s := open(t, all())
	calls, life := run(t, s, self("exit 42"))
	if len(calls) == 0 || calls[0].Kind() != wire.SysEnter || calls[0].Probe() != unix.SYS_EXECVE {
		t.Fatalf("the first record is not the entry of execve: %v", calls[:min(1, len(calls))])
	}
	if seg := segments(calls[0]); len(seg) == 0 || string(seg[0].Data) != "/proc/self/exe" {
		t.Errorf("execve of %v", seg)
	}
	got := tell(calls, life)
	if got.execs != 1 || !slices.Contains(got.ended, 42<<8) {
		t.Errorf("%d execs, ended %x", got.execs, got.ended)
	}
	if got.enters[unix.SYS_EXECVE] != 1 || got.exits[unix.SYS_EXECVE] != 1 || got.enters[unix.SYS_EXIT_GROUP] != 1 || got.exits[unix.SYS_EXIT_GROUP] != 0 {
		t.Errorf("entries %v, returns %v", got.enters, got.exits)
	}
	if list, err := s.Followed(); err != nil || len(list) != 0 {
		t.Errorf("still followed: %v, %v", list, err)
	}
	balance(t, s, calls)
}

// balance checks the identity of the counters against the records that came.
func balance(t *testing.T, s *Syscalls, calls []wire.Record) {
	t.Helper()
	c, err := s.Counters()
	if err != nil {
		t.Fatal(err)
	}
	var in, out uint64
	for _, r := range calls {
		if r.Kind() == wire.SysEnter {
			in++
		} else {
			out++
		}
	}
	if c.Made != in+c.EntryLostRing+c.EntryLostScratch || c.Returned != out+c.ExitLostRing+c.ExitLostScratch {
		t.Errorf("%d entries and %d returns came, but %+v", in, out, c)
	}
	if c.SideLost+c.FollowFull+c.StateFull+c.EnterMissed+c.ExitMissed != 0 {
		t.Errorf("%+v", c)
	}
	if n := stateCount(t, s); n != 0 {
		t.Errorf("%d calls are still noted", n)
	}
}

// TestFollow: children are followed when asked for, and only then.
func TestFollow(t *testing.T) {
	for _, follow := range []bool{true, false} {
		t.Run(fmt.Sprint(follow), func(t *testing.T) {
			o := all()
			o.Follow = follow
			s := open(t, o)
			calls, life := run(t, s, self("tree 3"))
			got := tell(calls, life)
			want := 1
			if follow {
				want = 4
			}
			// Go's os package forks once more to try pidfds.
			if len(got.tasks) < want || got.execs != want || len(got.ended) < want || !follow && len(got.tasks) != 1 {
				t.Errorf("calls of %d processes, %d execs, ended %x; want %d", len(got.tasks), got.execs, got.ended, want)
			}
			if got.enters[unix.SYS_GETPPID] != want {
				t.Errorf("%d marks, want %d", got.enters[unix.SYS_GETPPID], want)
			}
			balance(t, s, calls)
		})
	}
}

// TestFollowByName: children are followed through parents that the filter does not show.
func TestFollowByName(t *testing.T) {
	o := all()
	o.Target.AllowComms = []string{"exe"} // the name that /proc/self/exe gives
	s := open(t, o)
	sh := exec.Command("/bin/sh", "-c", "/proc/"+fmt.Sprint(os.Getpid())+"/exe; true")
	sh.Env = append(os.Environ(), targetEnv+"=tree 0")
	calls, _ := run(t, s, sh)
	got := tell(calls, nil)
	if got.enters[unix.SYS_GETPPID] != 1 || len(got.tasks) != 1 {
		t.Errorf("%d marks by %d processes, want 1 by 1", got.enters[unix.SYS_GETPPID], len(got.tasks))
	}
	balance(t, s, calls)
}

// TestFailedExec: what the child does before an exec that fails is not shown, the exec is.
func TestFailedExec(t *testing.T) {
	s := open(t, all())
	name := t.TempDir() + "/not-executable"
	if err := os.WriteFile(name, []byte("#!/nonexistent/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.Launching(true); err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(name).Start(); err == nil {
		t.Fatal("a script without its interpreter ran")
	}
	s.Launching(false)
	batch, err := s.Main().Read(nil, 0, time.Unix(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	calls := split(t, batch)
	if len(calls) != 2 || calls[0].Probe() != unix.SYS_EXECVE || calls[1].Probe() != unix.SYS_EXECVE || calls[1].Ret() != -int64(unix.ENOENT) {
		for _, r := range calls {
			t.Errorf("kind %d, call %d, args %x", r.Kind(), r.Probe(), r.Args())
		}
	}
	if list, err := s.Followed(); err != nil || len(list) != 0 {
		t.Errorf("still followed: %v, %v", list, err)
	}
}

// TestThreadExec: a thread other than the leader executes a program, and goes on under the leader's id.
func TestThreadExec(t *testing.T) {
	s := open(t, all())
	calls, life := run(t, s, self("threadexec"))
	got := tell(calls, life)
	if got.execs != 2 || got.enters[unix.SYS_EXECVE] != 2 || got.exits[unix.SYS_EXECVE] != 2 {
		t.Errorf("%d execs; entries %d, returns %d", got.execs, got.enters[unix.SYS_EXECVE], got.exits[unix.SYS_EXECVE])
	}
	moved := false
	for _, r := range life {
		if r.Kind() == wire.Exec {
			b := r.Body()
			old := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
			moved = moved || old != r.Tid()
		}
	}
	if !moved {
		t.Error("no exec by another thread than the leader")
	}
	balance(t, s, calls)
}

// TestSignals: delivered ones with their siginfo, ignored ones marked.
func TestSignals(t *testing.T) {
	s := open(t, all())
	calls, life := run(t, s, self("signals"))
	got := tell(calls, life)
	for _, want := range []string{
		fmt.Sprintf("%d/0 code 0", unix.SIGUSR1),  // SI_USER, handled
		fmt.Sprintf("%d/1 code -6", unix.SIGUSR2), // SI_TKILL, ignored
	} {
		if !slices.Contains(got.signals, want) {
			t.Errorf("no signal %s among %q", want, got.signals)
		}
	}
	// Each thread of a process that ends is sent a SIGKILL, whatever ended it: that is no signal of the program's.
	for _, s := range got.signals {
		if strings.HasPrefix(s, fmt.Sprintf("%d/", unix.SIGKILL)) {
			t.Errorf("signal %s is told", s)
		}
	}
	if !slices.Contains(got.ended, uint32(unix.SIGKILL)) {
		t.Errorf("ended %x", got.ended)
	}
	// The handler returns by rt_sigreturn, whose number the kernel forgets.
	if got.enters[unix.SYS_RT_SIGRETURN] == 0 || got.exits[0xffffffff] != got.enters[unix.SYS_RT_SIGRETURN] {
		t.Errorf("%d entries of rt_sigreturn, %d returns without number", got.enters[unix.SYS_RT_SIGRETURN], got.exits[0xffffffff])
	}
}

// TestOverflow fills a small ring: what is lost is counted, and lost once.
func TestOverflow(t *testing.T) {
	o := all()
	o.RingSize = 64 << 10
	s := open(t, o)
	if err := s.Launching(true); err != nil {
		t.Fatal(err)
	}
	cmd := self("getppid 20000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.Launching(false)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	batch, err := s.Main().Read(nil, 0, time.Unix(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	calls := split(t, batch)
	c, err := s.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if c.EntryLostRing < 10000 {
		t.Errorf("%d entries lost; the ring should have overflowed", c.EntryLostRing)
	}
	// exit_group and calls that the end cut short have no return; nothing else may be missing.
	if missing := c.Made - c.EntryLostRing - c.Returned; missing > 8 {
		t.Errorf("%d calls neither lost nor returned: %+v", missing, c)
	}
	balance(t, s, calls)
}

// TestBlock: the same flood with blocking. A record waits for room for 1 ms at most, so one may be lost only after waiting that
// long, as it happens on an emulated machine whose reader does not get a CPU in time.
func TestBlock(t *testing.T) {
	o := all()
	o.RingSize = 64 << 10
	o.Block = true
	s := open(t, o)
	calls, _ := run(t, s, self("getppid 20000"))
	c, err := s.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if lost := c.EntryLostRing + c.ExitLostRing; lost*uint64(time.Millisecond) > c.BlockNs {
		t.Errorf("lost without having waited for a millisecond each: %+v", c)
	}
	if c.BlockWaits == 0 || c.BlockNs == 0 {
		t.Errorf("no waiting: %+v", c)
	}
	balance(t, s, calls)
}

// TestFilter: each kind of the target filter, alone and denied.
func TestFilter(t *testing.T) {
	me := uint32(os.Getpid())
	many := make([]uint32, 100)
	for i := range many {
		many[i] = uint32(1<<20 + i)
	}
	for _, c := range []struct {
		name string
		f    TargetFilter
		want bool
	}{
		{"all tasks", TargetFilter{AllTasks: true}, true},
		{"pid", TargetFilter{AllowPids: []uint32{me}}, true},
		{"another pid", TargetFilter{AllowPids: []uint32{2}}, false},
		{"denied pid", TargetFilter{AllTasks: true, DenyPids: []uint32{me}}, false},
		{"many denied pids", TargetFilter{AllTasks: true, DenyPids: append(many, me)}, false},
		{"many other denied pids", TargetFilter{AllTasks: true, DenyPids: many}, true},
		{"uid", TargetFilter{AllTasks: true, AllowUIDs: []uint32{0}}, true},
		{"another uid", TargetFilter{AllTasks: true, AllowUIDs: []uint32{12345}}, false},
		{"many uids", TargetFilter{AllTasks: true, AllowUIDs: append(many, 0)}, true},
		{"denied uid", TargetFilter{AllTasks: true, DenyUIDs: []uint32{0}}, false},
		{"name", TargetFilter{AllTasks: true, AllowComms: []string{"other", "sonde-filter"}}, true},
		{"another name", TargetFilter{AllTasks: true, AllowComms: []string{"sonde-filte", "sonde-filter2"}}, false},
		{"denied name", TargetFilter{AllTasks: true, DenyComms: []string{"sonde-filter"}}, false},
		{"pid and uid", TargetFilter{AllowPids: []uint32{me}, AllowUIDs: []uint32{0}}, true},
		{"pid and another uid", TargetFilter{AllowPids: []uint32{me}, AllowUIDs: []uint32{12345}}, false},
		{"another cgroup", TargetFilter{AllTasks: true, AllowCgroups: []uint64{1 << 60}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread()
			// The thread's name is changed for good: it ends with the goroutine.
			if err := unix.Prctl(unix.PR_SET_NAME, uintptr(pointer("sonde-filter\x00")), 0, 0, 0); err != nil {
				t.Fatal(err)
			}
			c.f.DenyTids = []uint32{1}
			s := open(t, SyscallOptions{SelfPid: 1, Target: c.f, Calls: []SyscallPlan{{ABI: runtime.GOARCH, Nr: unix.SYS_GETPPID}}})
			unix.RawSyscall6(unix.SYS_GETPPID, 0x5eed, 0, 0, 0, 0, 0)
			batch, _ := s.Main().Read(nil, 0, time.Unix(0, 1))
			n := 0
			for _, r := range split(t, batch) {
				if r.Args()[0] == 0x5eed {
					n++
				}
			}
			if want := map[bool]int{true: 2}[c.want]; n != want {
				t.Errorf("%d records, want %d", n, want)
			}
		})
	}
}

// TestLaunchingKeepsCounts: starting a command changes nothing of what the programs count meanwhile.
func TestLaunchingKeepsCounts(t *testing.T) {
	s := open(t, all())
	count := make([]byte, bpfgen.ControlSize)
	count[bpfgen.ControlStates] = 7
	if err := s.maps[bpfgen.MapControl].Put(uint32(0), count); err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{true, false} {
		if err := s.Launching(on); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, bpfgen.ControlSize)
		if err := s.maps[bpfgen.MapControl].Lookup(uint32(0), &got); err != nil || got[bpfgen.ControlStates] != 7 {
			t.Errorf("launching %v: %v %v", on, got[:8], err)
		}
		var arming uint32
		if err := s.maps[bpfgen.MapArming].Lookup(uint32(0), &arming); err != nil || (arming != 0) != on {
			t.Errorf("launching %v: armed %d, %v", on, arming, err)
		}
	}
}
