package attach

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
)

// whyNotPermitted finds the reason for an EPERM of bpf(2) or perf_event_open(2), with the remedy.
func whyNotPermitted() string {
	caps, err := effectiveCaps()
	has := func(c uint) bool { return err == nil && caps>>c&1 != 0 }
	if !has(unix.CAP_SYS_ADMIN) && !(has(unix.CAP_BPF) && has(unix.CAP_PERFMON)) {
		var missing []string
		if !has(unix.CAP_BPF) {
			missing = append(missing, "CAP_BPF")
		}
		if !has(unix.CAP_PERFMON) {
			missing = append(missing, "CAP_PERFMON")
		}
		return fmt.Sprintf("this process has not %s; run it as root (sudo)", strings.Join(missing, " and "))
	}
	if f := (&prober{}).lockdown(); f.Err != nil {
		return "the kernel's lockdown mode \"confidentiality\" forbids programs that read memory; boot with lockdown=integrity or none"
	}
	return "a security module, a container or a seccomp filter forbids it"
}

// raiseMemlock lifts RLIMIT_MEMLOCK, for kernels that count BPF memory against it (before 5.11). The function that it returns
// restores the limit.
func raiseMemlock() (restore func(), err error) {
	nothing := func() {}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
		return nothing, fmt.Errorf("reading RLIMIT_MEMLOCK: %w", err)
	}
	if old.Cur == unix.RLIM_INFINITY {
		return nothing, nil
	}
	want := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &want); err != nil {
		return nothing, fmt.Errorf("raising RLIMIT_MEMLOCK from %d: %w: this kernel counts BPF memory against the limit; run as root, or set `ulimit -l unlimited` before", old.Cur, err)
	}
	return func() { unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old) }, nil
}

// chargesMemlock reports whether BPF memory counts against RLIMIT_MEMLOCK. Commit 97306be45fbe (5.11) ended that, in the
// same release as the ktime_get_coarse_ns helper, which can be probed for.
func chargesMemlock() bool {
	err := features.HaveProgramHelper(ebpf.SocketFilter, asm.FnKtimeGetCoarseNs)
	return err != nil
}
