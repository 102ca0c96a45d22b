// Package kerneltest is for tests that need a kernel: it asks for features and skips with a proof when one is missing,
// finds leaks, builds the programs under test/programs, and says how patient to be. It is imported by tests only.
//
// Its command kernels runs those tests on other kernels in virtual machines, see there.
package kerneltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Feature is what a test needs of the kernel or of its rights.
type Feature string

const (
	Root          Feature = "root"           // effective user id 0
	BPF           Feature = "bpf"            // the bpf system call may be used: a ring buffer can be made (5.8)
	RawTracepoint Feature = "raw_tracepoint" // programs of this type can be loaded (4.17)
	BTF           Feature = "btf"            // the kernel's own types: /sys/kernel/btf/vmlinux
	Tracefs       Feature = "tracefs"        // mounted, or can be mounted
	SyscallEvents Feature = "syscall_events" // events/syscalls in tracefs (CONFIG_FTRACE_SYSCALLS)
	FindVMA       Feature = "find_vma"       // helper bpf_find_vma (5.17), for walks up user stacks in the kernel
	Compat32      Feature = "compat32"       // programs of the 32-bit ABI run
	X32           Feature = "x32"            // the x32 ABI (CONFIG_X86_X32_ABI and not disabled at boot)
	UserNS        Feature = "user_namespace" // user namespaces can be made
	Cgroup2       Feature = "cgroup2"        // a writable version 2 hierarchy at /sys/fs/cgroup or below
	Ptrace        Feature = "ptrace"         // a child can be traced
	// DebugRegisters are there and work: a write to our own memory is counted. Some virtual machines only accept them.
	DebugRegisters Feature = "debug_registers"
)

// errMissing marks a proof that the kernel lacks the feature. Any other error of a probe is a failure of the probe, and
// fails the test.
var errMissing = errors.New("not there")

var probes = map[Feature]func() error{
	Root: func() error {
		if uid := os.Geteuid(); uid != 0 {
			return fmt.Errorf("%w: user id %d", errMissing, uid)
		}
		return nil
	},
	BPF: func() error {
		if err := rlimit.RemoveMemlock(); err != nil {
			return fmt.Errorf("%w: locked memory: %v", errMissing, err)
		}
		return unsupported(features.HaveMapType(ebpf.RingBuf))
	},
	RawTracepoint: func() error { return unsupported(features.HaveProgramType(ebpf.RawTracepoint)) },
	FindVMA:       func() error { return unsupported(features.HaveProgramHelper(ebpf.RawTracepoint, asm.FnFindVma)) },
	BTF:           func() error { return exists("/sys/kernel/btf/vmlinux") },
	Tracefs: func() error {
		if mountedTracefs() != "" {
			return nil
		}
		dir, err := os.MkdirTemp("", "sonde-tracefs-")
		if err != nil {
			return err
		}
		defer os.Remove(dir)
		if err := unix.Mount("tracefs", dir, "tracefs", 0, ""); err != nil {
			return fmt.Errorf("%w: mount: %v", errMissing, err)
		}
		return unix.Unmount(dir, unix.MNT_DETACH)
	},
	SyscallEvents: func() error {
		dir := mountedTracefs()
		if dir == "" {
			tmp, err := os.MkdirTemp("", "sonde-tracefs-")
			if err != nil {
				return err
			}
			defer os.Remove(tmp)
			if err := unix.Mount("tracefs", tmp, "tracefs", 0, ""); err != nil {
				return fmt.Errorf("%w: mount: %v", errMissing, err)
			}
			defer unix.Unmount(tmp, unix.MNT_DETACH)
			dir = tmp
		}
		return exists(dir + "/events/syscalls")
	},
	Compat32:       runsCompat,
	DebugRegisters: debugRegisters,
	X32: func() error {
		if runtime.GOARCH != "amd64" {
			return fmt.Errorf("%w: %s has no such ABI", errMissing, runtime.GOARCH)
		}
		if _, _, errno := unix.RawSyscall(0x40000000+39, 0, 0, 0); errno != 0 {
			return fmt.Errorf("%w: getpid: %v", errMissing, errno)
		}
		return nil
	},
	UserNS: func() error {
		cmd := exec.Command("/proc/self/exe", "-test.run=^$")
		cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("%w: %v", errMissing, err)
		}
		return cmd.Wait()
	},
	Cgroup2: func() error {
		dir, err := Cgroup2Root()
		if err != nil {
			return fmt.Errorf("%w: %v", errMissing, err)
		}
		probe := filepath.Join(dir, fmt.Sprintf("sonde-probe-%d", os.Getpid()))
		if err := os.Mkdir(probe, 0o755); err != nil {
			return fmt.Errorf("%w: %v", errMissing, err)
		}
		return os.Remove(probe)
	},
	Ptrace: func() error {
		cmd := exec.Command("/proc/self/exe", "-test.run=^$")
		cmd.SysProcAttr = &unix.SysProcAttr{Ptrace: true}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("%w: %v", errMissing, err)
		}
		cmd.Process.Kill()
		cmd.Wait()
		return nil
	},
}

// debugRegisters counts writes to our own memory. It asks the kernel itself: the tests of our packages for that are what asks.
func debugRegisters() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	word := new(uint64)
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_BREAKPOINT, Bp_type: 2, Ext1: uint64(uintptr(unsafe.Pointer(word))), Ext2: 8,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("%w: %v", errMissing, err)
	}
	defer unix.Close(fd)
	for i := range uint64(10) {
		atomic.StoreUint64(word, i)
	}
	var n [8]byte
	if _, err := unix.Read(fd, n[:]); err != nil {
		return err
	}
	if n == [8]byte{} {
		return fmt.Errorf("%w: armed, and 0 of 10 writes were seen", errMissing)
	}
	return nil
}

func exists(path string) error {
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%w: %v", errMissing, err)
	}
	return nil
}

func unsupported(err error) error {
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("%w: %v", errMissing, err)
	}
	return err
}

var cache struct {
	sync.Mutex
	result map[Feature]error
	done   map[Feature]bool
}

// Have reports whether the feature is there, and the proof when it is not.
func Have(f Feature) error {
	cache.Lock()
	defer cache.Unlock()
	if cache.done[f] {
		return cache.result[f]
	}
	if cache.done == nil {
		cache.done, cache.result = map[Feature]bool{}, map[Feature]error{}
	}
	probe, ok := probes[f]
	if !ok {
		return fmt.Errorf("no probe for feature %q", f)
	}
	cache.done[f], cache.result[f] = true, probe()
	return cache.result[f]
}

// Use is one line of the file that SONDE_FEATURES names: a test asked for a feature.
type Use struct {
	Test    string `json:"test"`
	Feature string `json:"feature"`
	Missing string `json:"missing,omitempty"` // the proof; empty: the feature is there
}

// Require skips the test unless the kernel has all features, and writes down which it asked for. SONDE_REQUIRE, a list
// of features or "all", turns the skip into a failure. With SONDE_UNPRIVILEGED set every test that asks is skipped: a
// run without it does those.
func Require(t testing.TB, list ...Feature) {
	t.Helper()
	if os.Getenv("SONDE_UNPRIVILEGED") != "" {
		t.Skipf("a test that needs a kernel, left to make test-root")
	}
	for _, f := range list {
		err := Have(f)
		use := Use{Test: t.Name(), Feature: string(f)}
		if err != nil {
			use.Missing = err.Error()
		}
		note(t, use)
		switch {
		case err == nil:
		case !errors.Is(err, errMissing):
			t.Fatalf("feature %s: the probe failed: %v", f, err)
		case required(f):
			t.Fatalf("feature %s is required here (SONDE_REQUIRE): %v", f, err)
		default:
			t.Skipf("missing feature %s: %v", f, err)
		}
	}
}

// Tool skips the test, and says so in the account of features, where a program that it needs is not installed: a compiler of another
// language, a debugger to compare with.
func Tool(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		f := Feature("tool_" + name)
		_, err := exec.LookPath(name)
		use := Use{Test: t.Name(), Feature: string(f)}
		if err != nil {
			use.Missing = err.Error()
		}
		note(t, use)
		switch {
		case err == nil:
		case required(f):
			t.Fatalf("feature %s is required here (SONDE_REQUIRE): %v", f, err)
		default:
			t.Skipf("missing feature %s: %v", f, err)
		}
	}
}

func required(f Feature) bool {
	list := strings.Split(os.Getenv("SONDE_REQUIRE"), ",")
	return slices.Contains(list, "all") || slices.Contains(list, string(f))
}

func note(t testing.TB, u Use) {
	path := os.Getenv("SONDE_FEATURES")
	if path == "" {
		return
	}
	line, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatalf("SONDE_FEATURES: %v", err)
	}
	defer f.Close()
	if _, err := f.Write(append(line, '\n')); err != nil {
		t.Fatalf("SONDE_FEATURES: %v", err)
	}
}

func mountedTracefs() string {
	for _, d := range []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"} {
		if _, err := os.Stat(d + "/events/header_page"); err == nil {
			return d
		}
	}
	return ""
}

// TracefsDir requires tracefs and returns where it is mounted: by others, or by this call until the test ends.
func TracefsDir(t testing.TB) string {
	t.Helper()
	Require(t, Tracefs)
	if d := mountedTracefs(); d != "" {
		return d
	}
	dir := t.TempDir()
	if err := unix.Mount("tracefs", dir, "tracefs", 0, ""); err != nil {
		t.Fatalf("mount tracefs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount tracefs: %v", err)
		}
	})
	return dir
}

// Cgroup2Root returns where a version 2 hierarchy is mounted.
func Cgroup2Root() (string, error) {
	text, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1], nil
		}
	}
	return "", errors.New("no cgroup2 in /proc/self/mounts")
}

// Slow reports a machine in software emulation, where everything takes ten times as long.
func Slow() bool { return os.Getenv("SONDE_SLOW") != "" }

// Patience is how long to wait for something that takes at most d on a common machine.
func Patience(d time.Duration) time.Duration {
	if Slow() {
		return 12 * d
	}
	return 3 * d
}
