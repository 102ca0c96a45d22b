package attach

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/syscalls"
)

// BenchmarkOpen is what a trace of openat costs before its command starts, and after.
func BenchmarkOpen(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root for bpf(2)")
	}
	var opening, attaching, closing time.Duration
	for b.Loop() {
		t0 := time.Now()
		s, err := OpenSyscalls(SyscallOptions{SelfPid: uint32(os.Getpid()), Signals: true, Follow: true, Calls: []SyscallPlan{
			{ABI: "amd64", Nr: unix.SYS_OPENAT, Enter: []syscalls.Fetch{syscalls.Path(1)}}}})
		if err != nil {
			b.Fatal(err)
		}
		t1 := time.Now()
		if err := s.Attach(); err != nil {
			b.Fatal(err)
		}
		t2 := time.Now()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		opening += t1.Sub(t0)
		attaching += t2.Sub(t1)
		closing += time.Since(t2)
	}
	n := float64(b.N) * 1e6
	b.ReportMetric(float64(opening)/n, "ms-open")
	b.ReportMetric(float64(attaching)/n, "ms-attach")
	b.ReportMetric(float64(closing)/n, "ms-close")
}

// drain reads and drops both rings until stop is closed.
func drain(b *testing.B, s *Syscalls, stop chan struct{}) {
	buf := make([]byte, 0, 1<<20)
	for {
		select {
		case <-stop:
			return
		default:
		}
		if _, err := s.Main().Read(buf[:0], 1<<19, time.Now().Add(10*time.Millisecond)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

// The test binary is its own target: with this variable set it makes calls instead of testing, and prints the nanoseconds
// that one took.
const targetEnv = "SONDE_ATTACH_TARGET"

func TestMain(m *testing.M) {
	if spec := os.Getenv(targetEnv); spec != "" {
		if err := target(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func self(spec string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), targetEnv+"="+spec)
	cmd.Stderr = os.Stderr
	return cmd
}

// benchCalls measures a loop of calls in another process, bare and under the options, in turns.
func benchCalls(b *testing.B, loop string, o SyscallOptions) {
	if os.Geteuid() != 0 {
		b.Skip("needs root for bpf(2)")
	}
	once := func() float64 {
		out, err := self(loop).Output()
		if err != nil {
			b.Fatal(err)
		}
		ns, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		if err != nil {
			b.Fatal(err)
		}
		return ns
	}
	if os.Getenv("SONDE_BPF_STATS") != "" {
		stats, err := ebpf.EnableStats(0 /* BPF_STATS_RUN_TIME */)
		if err != nil {
			b.Fatal(err)
		}
		defer stats.Close()
	}
	var bare, traced []float64
	for range 5 {
		bare = append(bare, once())
		o.SelfPid = uint32(os.Getpid())
		o.Follow = true
		s, err := OpenSyscalls(o)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Attach(); err != nil {
			b.Fatal(err)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Add(1)
		go func() { defer wg.Done(); drain(b, s, stop) }()
		s.Launching(true)
		traced = append(traced, once())
		s.Launching(false)
		close(stop)
		wg.Wait()
		c, _ := s.Counters()
		per := func(p *tracing) float64 {
			i, err := p.info()
			if err != nil || i.runs == 0 {
				return 0
			}
			return float64(i.runtime) / float64(i.runs)
		}
		b.Logf("bare %.0f traced %.0f, programs %.0f and %.0f ns with their measuring, lost %d + %d", bare[len(bare)-1], traced[len(traced)-1], per(s.entry), per(s.exit), c.EntryLostRing, c.ExitLostRing)
		s.Close()
	}
	sort.Float64s(bare)
	sort.Float64s(traced)
	b.ReportMetric(bare[2], "ns-bare")
	b.ReportMetric(traced[2], "ns-traced")
	b.ReportMetric(traced[2]/bare[2], "ratio")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkGetppidUnselected(b *testing.B) {
	benchCalls(b, "getppid", SyscallOptions{Calls: []SyscallPlan{{ABI: runtime.GOARCH, Nr: unix.SYS_OPENAT, Enter: []syscalls.Fetch{syscalls.Path(1)}}}})
}

func BenchmarkGetppid(b *testing.B) {
	benchCalls(b, "getppid", SyscallOptions{Others: true, Calls: []SyscallPlan{{ABI: runtime.GOARCH, Nr: unix.SYS_OPENAT, Enter: []syscalls.Fetch{syscalls.Path(1)}}}})
}

func BenchmarkOpenat(b *testing.B) {
	benchCalls(b, "openat", SyscallOptions{Others: true, Calls: []SyscallPlan{{ABI: runtime.GOARCH, Nr: unix.SYS_OPENAT, Enter: []syscalls.Fetch{syscalls.Path(1)}}}})
}

// pointer is the address of constant text.
func pointer(text string) unsafe.Pointer { return unsafe.Pointer(unsafe.StringData(text)) }

// target is what the test binary does as a target.
func target(spec string) error {
	verb, arg, _ := strings.Cut(spec, " ")
	n, err := strconv.Atoi(arg)
	if err != nil {
		n = 500_000
	}
	switch verb {
	case "getppid":
		t := time.Now()
		for range n {
			unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
		}
		fmt.Println(float64(time.Since(t)) / float64(n))
	case "openat":
		path := pointer("/nonexistent/of/some/length\x00")
		t := time.Now()
		for range n {
			unix.RawSyscall6(unix.SYS_OPENAT, ^uintptr(99), uintptr(path), 0, 0, 0, 0)
		}
		fmt.Println(float64(time.Since(t)) / float64(n))
	case "exit":
		os.Exit(n)
	case "probed":
		return targetProbed()
	case "rename":
		return unix.Prctl(unix.PR_SET_NAME, uintptr(pointer("renamed\x00")), 0, 0, 0)
	case "tree": // n generations, each marked by one getppid
		unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
		if n > 0 {
			return self(fmt.Sprint("tree ", n-1)).Run()
		}
	case "threadexec":
		ready := make(chan error)
		go func() {
			runtime.LockOSThread()
			if unix.Gettid() == os.Getpid() {
				go func() { // the leader is busy being locked here
					runtime.LockOSThread()
					ready <- unix.Exec("/proc/self/exe", []string{"again"}, []string{targetEnv + "=exit 0"})
				}()
				select {}
			}
			ready <- unix.Exec("/proc/self/exe", []string{"again"}, []string{targetEnv + "=exit 0"})
		}()
		return <-ready
	case "signals":
		c := make(chan os.Signal, 1)
		signal.Notify(c, unix.SIGUSR1)
		signal.Ignore(unix.SIGUSR2)
		unix.Kill(os.Getpid(), unix.SIGUSR1)
		<-c
		// To this thread: whether a signal to the process counts as ignored depends on what its main thread blocks.
		runtime.LockOSThread()
		unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGUSR2)
		unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	default:
		return fmt.Errorf("no load %q", spec)
	}
	return nil
}
