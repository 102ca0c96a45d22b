package kerneltest

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strings"
	"testing"
	"time"
)

// CheckLeaks fails the test when it ends with descriptors (of BPF programs, maps and links among them: the kernel keeps
// these alive only through descriptors of ours), goroutines or mounts that were not there at this call. Call it first, so
// that its check runs after all other clean-ups. Tests that use it do not run in parallel.
func CheckLeaks(t testing.TB) {
	t.Helper()
	before := takeStock()
	t.Cleanup(func() {
		if t.Failed() || t.Skipped() {
			return // what failed may well have left something behind
		}
		deadline := time.Now().Add(Patience(2 * time.Second))
		for {
			after := takeStock()
			leaks := before.compare(after)
			if len(leaks) == 0 {
				return
			}
			// Goroutines end a little after what they served.
			if time.Now().After(deadline) {
				t.Errorf("left behind:\n%s", strings.Join(leaks, "\n"))
				return
			}
			runtime.Gosched()
			time.Sleep(5 * time.Millisecond)
		}
	})
}

type stock struct {
	fds        map[string]string // number and target
	goroutines map[string]string // header line without its state → stack
	mounts     map[string]bool
}

func takeStock() stock {
	s := stock{fds: map[string]string{}, goroutines: map[string]string{}, mounts: map[string]bool{}}
	entries, err := os.ReadDir("/proc/self/fd")
	if err == nil {
		for _, e := range entries {
			target, err := os.Readlink("/proc/self/fd/" + e.Name())
			if err != nil {
				continue // the directory itself
			}
			// The runtime's own poller comes with the first file that is polled and stays.
			if target == "anon_inode:[eventpoll]" || target == "anon_inode:[eventfd]" {
				continue
			}
			s.fds[e.Name()+" → "+target] = target
		}
	}
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for _, g := range strings.Split(string(buf), "\n\n") {
		head, _, _ := strings.Cut(g, " [")
		switch {
		case strings.Contains(g, "testing.(*T).Run"), strings.Contains(g, "testing.(*M)"), strings.Contains(g, "testing.runTests"),
			strings.Contains(g, "testing.tRunner"), strings.Contains(g, "os/signal.signal_recv"), strings.Contains(g, "os/signal.loop"):
			continue
		}
		s.goroutines[head] = g
	}
	if text, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		for _, line := range strings.Split(string(text), "\n") {
			if f := strings.Fields(line); len(f) > 4 {
				s.mounts[f[4]] = true
			}
		}
	}
	return s
}

func (s stock) compare(after stock) []string {
	var out []string
	for fd := range after.fds {
		if _, ok := s.fds[fd]; !ok {
			out = append(out, "descriptor "+fd)
		}
	}
	for head, g := range after.goroutines {
		if _, ok := s.goroutines[head]; !ok {
			out = append(out, fmt.Sprintf("goroutine: %s", g))
		}
	}
	for m := range after.mounts {
		if !s.mounts[m] {
			out = append(out, "mount "+m)
		}
	}
	sort.Strings(out)
	return out
}
