package attach

import (
	"errors"
	"os"
	"testing"
	"time"

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
