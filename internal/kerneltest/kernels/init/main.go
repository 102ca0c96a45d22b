// Command init is process 1 of the machines that internal/kerneltest/kernels boots: it mounts what tests expect, runs the
// test binaries of /test/plan.json and reports on the console, one line "@sonde {...}" for each thing to say.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Line is one report. Exactly one of the fields besides Package is set.
type line struct {
	Package string `json:"package,omitempty"`
	Boot    string `json:"boot,omitempty"`   // the kernel's release
	Output  string `json:"output,omitempty"` // of a test binary, one line
	Feature string `json:"feature,omitempty"`
	Exit    *int   `json:"exit,omitempty"` // of a test binary
	Error   string `json:"error,omitempty"`
	Done    bool   `json:"done,omitempty"`
}

var console sync.Mutex

func say(l line) {
	text, err := json.Marshal(l)
	if err != nil {
		text = []byte(`{"error":"a report could not be written"}`)
	}
	console.Lock()
	defer console.Unlock()
	// A leading newline ends whatever the kernel was printing.
	os.Stdout.Write(append(append([]byte("\n@sonde "), text...), '\n'))
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "work" {
		work()
		return
	}
	mounts()
	// Children of children end up here: process 1 only waits, so that none stays a zombie and none is taken from exec.
	pid, err := forkSelf()
	if err != nil {
		say(line{Error: "start: " + err.Error()})
	}
	for err == nil {
		var status unix.WaitStatus
		p, werr := unix.Wait4(-1, &status, 0, nil)
		if werr == unix.EINTR {
			continue
		}
		if werr != nil || p == pid {
			break
		}
	}
	say(line{Done: true})
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	for {
		time.Sleep(time.Hour) // process 1 must not end
	}
}

func forkSelf() (int, error) {
	p, err := os.StartProcess("/init", []string{"/init", "work"}, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Env: []string{"PATH=/bin:/usr/bin:/sbin:/usr/sbin", "HOME=/root", "TMPDIR=/tmp", "TERM=dumb", "SONDE_SLOW=1", "SONDE_VM=1",
			"SONDE_PROGRAMS=/test/test/programs", "SONDE_FEATURES=/run/features"},
		Sys: &unix.SysProcAttr{Setsid: true}})
	if err != nil {
		return 0, err
	}
	return p.Pid, nil
}

func mounts() {
	for _, m := range []struct {
		fs, dir, opts string
		optional      bool
	}{
		{"proc", "/proc", "", false},
		{"sysfs", "/sys", "", false},
		{"devtmpfs", "/dev", "", false},
		{"tmpfs", "/tmp", "mode=1777", false},
		{"tmpfs", "/run", "", false},
		{"devpts", "/dev/pts", "", true},
		{"tmpfs", "/dev/shm", "", true},
		{"tracefs", "/sys/kernel/tracing", "", true},
		{"bpf", "/sys/fs/bpf", "", true},
		{"cgroup2", "/sys/fs/cgroup", "", true},
		{"mqueue", "/dev/mqueue", "", true},
	} {
		os.MkdirAll(m.dir, 0o755)
		if err := unix.Mount(m.fs, m.dir, m.fs, 0, m.opts); err != nil && err != unix.EBUSY && !m.optional {
			say(line{Error: fmt.Sprintf("mount %s: %v", m.dir, err)})
		}
	}
	os.Symlink("/proc/self/fd", "/dev/fd")
	unix.Sethostname([]byte("sonde-test"))
	loopback()
}

// loopback brings lo up (netdevice(7)).
func loopback() {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		say(line{Error: fmt.Sprintf("lo up: %v", err)})
	}
}

func work() {
	var uts unix.Utsname
	unix.Uname(&uts)
	say(line{Boot: unix.ByteSliceToString(uts.Release[:])})
	if out, err := exec.Command("/bin/busybox", "--install", "-s", "/bin").CombinedOutput(); err != nil {
		say(line{Error: fmt.Sprintf("busybox --install: %v: %s", err, out)})
	}
	var plan struct {
		Suites []struct{ Package, Binary, Dir, Run string }
	}
	text, err := os.ReadFile("/test/plan.json")
	if err == nil {
		err = json.Unmarshal(text, &plan)
	}
	if err != nil {
		say(line{Error: "plan: " + err.Error()})
		return
	}
	for _, s := range plan.Suites {
		code := run(s.Package, s.Binary, s.Dir, s.Run)
		say(line{Package: s.Package, Exit: &code})
	}
	features, err := os.Open("/run/features")
	if err != nil {
		return
	}
	defer features.Close()
	for scan := bufio.NewScanner(features); scan.Scan(); {
		say(line{Feature: scan.Text()})
	}
}

func run(pkg, binary, dir, pattern string) int {
	cmd := exec.Command(binary, "-test.v", "-test.short", "-test.timeout=10m", "-test.run="+pattern)
	cmd.Dir = filepath.Clean(dir)
	r, w, err := os.Pipe()
	if err != nil {
		say(line{Package: pkg, Error: err.Error()})
		return -1
	}
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		w.Close()
		say(line{Package: pkg, Error: err.Error()})
		return -1
	}
	w.Close()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		in := bufio.NewReaderSize(r, 64<<10)
		for {
			text, err := in.ReadString('\n')
			if text != "" {
				say(line{Package: pkg, Output: text})
			}
			if err != nil {
				if err != io.EOF {
					say(line{Package: pkg, Error: err.Error()})
				}
				return
			}
		}
	}()
	cmd.Wait()
	// A process that a test left running holds the pipe open.
	select {
	case <-copied:
	case <-time.After(5 * time.Second):
		say(line{Package: pkg, Error: "a process of the tests still runs"})
	}
	return cmd.ProcessState.ExitCode()
}
