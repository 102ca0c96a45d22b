package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/kerneltest"
)

// A command that is held at its entry has its libraries in memory, and then runs as if nothing had been.
func TestAtEntry(t *testing.T) {
	kerneltest.CheckLeaks(t)
	kerneltest.Require(t, kerneltest.Ptrace)
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("missing feature sh:", err)
	}
	for _, x := range []struct {
		script string
		status int
		signal unix.Signal
	}{{"exit 7", 7, 0}, {"kill -TERM $$", -1, unix.SIGTERM}, {"exec sh -c 'exit 3'", 3, 0}} {
		calls, maps := 0, ""
		c, err := Start(&Command{Path: sh, Argv: []string{"sh", "-c", x.script}, Env: os.Environ(), AtEntry: func(pid uint32) error {
			calls++
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
			maps = string(b)
			return err
		}})
		if err != nil {
			t.Fatal(err)
		}
		e := <-c.Exited()
		if calls != 1 || e.Err != nil || e.Status.ExitStatus() != x.status || x.signal != 0 && e.Status.Signal() != x.signal {
			t.Errorf("%s: held %d times, status %v, %v", x.script, calls, e.Status, e.Err)
		}
		if strings.Contains(maps, "/ld-linux") && !strings.Contains(maps, "libc.so") {
			t.Errorf("the C library is not mapped yet:\n%s", maps)
		}
	}
	// The command runs on when the caller fails, and one that cannot be executed is a StartError as ever.
	broken := errors.New("broken")
	c, err := Start(&Command{Path: sh, Argv: []string{"sh", "-c", "exit 5"}, Env: os.Environ(), AtEntry: func(uint32) error { return broken }})
	if !errors.Is(err, broken) || c == nil {
		t.Fatal(c, err)
	}
	if e := <-c.Exited(); e.Status.ExitStatus() != 5 {
		t.Error(e.Status)
	}
	var se *StartError
	if _, err := Start(&Command{Path: "/nonexistent", Argv: []string{"x"}, AtEntry: func(uint32) error { return nil }}); !errors.As(err, &se) {
		t.Error(err)
	}
}
