// Package proc knows the tasks of the machine by /proc, and starts commands under trace. It reads and starts; it never
// stops or changes a task.
package proc

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Thread is one thread of a process.
type Thread struct {
	Tid  uint32
	Comm string // unescaped; empty when it could not be read
}

// Threads lists the threads of a process that have not ended. It is an error when there are none.
func Threads(pid uint32) ([]Thread, error) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("process %d: no such process", pid)
	}
	if err != nil {
		return nil, fmt.Errorf("list the threads of process %d: %w", pid, err)
	}
	var list []Thread
	for _, e := range entries {
		tid, err := strconv.ParseUint(e.Name(), 10, 32)
		if err != nil {
			continue
		}
		state, _, err := stat(uint32(tid))
		if err != nil || state == 'Z' || state == 'X' {
			continue
		}
		list = append(list, Thread{uint32(tid), Comm(uint32(tid))})
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("process %d: has ended", pid)
	}
	return list, nil
}

// Processes lists the processes of the machine.
func Processes() ([]uint32, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	var list []uint32
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 32); err == nil {
			list = append(list, uint32(n))
		}
	}
	return list, nil
}

// Comm returns the name of a thread, or "" when it is gone.
func Comm(tid uint32) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", tid))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(b), "\n")
}

// ProcessOf returns the process that a thread belongs to.
func ProcessOf(tid uint32) (uint32, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("thread %d: no such thread", tid)
	}
	if err != nil {
		return 0, fmt.Errorf("find the process of thread %d: %w", tid, err)
	}
	for _, line := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, "Tgid:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(v), 10, 32)
			return uint32(n), err
		}
	}
	return 0, fmt.Errorf("find the process of thread %d: its status has no Tgid line", tid)
}

// Command is a program to start, with nothing of ours in it: it inherits our standard streams, our other descriptors that
// are not close-on-exec, our working directory and signal dispositions as they were when we were started.
type Command struct {
	Path string   // of the file, after the search along PATH
	Argv []string // with the name as argv[0]
	Env  []string
	// User is who runs it; nil is the user who runs us.
	User *User
	// Before, if not nil, is called in the thread that starts the command. What it changes of that thread is the command's too, and ends with the thread when the command was started.
	Before func() error
	// AtEntry, if not nil, is called while the command stands at its program's entry point, with all that it was linked with in
	// memory and nothing of its own run but constructors of libraries. The command is held there by ptrace(2) and let go after.
	AtEntry func(pid uint32) error
}

// User is a set of credentials.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// Child is a command that was started.
type Child struct {
	Pid  uint32
	exit chan Exit
}

// Exit is how a command ended.
type Exit struct {
	Status unix.WaitStatus
	Err    error // waiting for it failed
}

// StartError says why a command could not be executed. Errno is that of execve(2).
type StartError struct {
	Path  string
	Errno syscall.Errno
}

func (e *StartError) Error() string { return fmt.Sprintf("%s: %v", e.Path, e.Errno) }
func (e *StartError) Unwrap() error { return e.Errno }

// Start runs c. It returns after the execve succeeded or failed. The error is a *StartError when execve refused; those of
// c.Before and c.AtEntry are wrapped. When AtEntry failed there is a child as well, and it runs.
func Start(c *Command) (*Child, error) {
	attr := &syscall.ProcAttr{Env: c.Env, Files: []uintptr{0, 1, 2}}
	if c.User != nil {
		attr.Sys = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.User.UID, Gid: c.User.GID, Groups: c.User.Groups}}
	}
	var pid int
	var err, refused error
	var held error
	if c.Before == nil && c.AtEntry == nil {
		pid, err = syscall.ForkExec(c.Path, c.Argv, attr)
	} else {
		onThreadOfItsOwn(func() {
			if c.Before != nil {
				refused = c.Before()
			}
			if refused != nil {
				return
			}
			if c.AtEntry != nil {
				if attr.Sys == nil {
					attr.Sys = new(syscall.SysProcAttr)
				}
				attr.Sys.Ptrace = true
			}
			if pid, err = syscall.ForkExec(c.Path, c.Argv, attr); err == nil && c.AtEntry != nil {
				held = hold(pid, c.AtEntry)
			}
		})
		if refused != nil {
			return nil, fmt.Errorf("start %s: %w", c.Path, refused)
		}
	}
	if err != nil {
		var errno syscall.Errno
		if errors.As(err, &errno) {
			return nil, &StartError{c.Path, errno}
		}
		return nil, fmt.Errorf("start %s: %w", c.Path, err)
	}
	child := &Child{Pid: uint32(pid), exit: make(chan Exit, 1)}
	go func() {
		var ws unix.WaitStatus
		for {
			_, err := unix.Wait4(pid, &ws, 0, nil)
			if err == unix.EINTR {
				continue
			}
			child.exit <- Exit{ws, err}
			return
		}
	}()
	if held != nil {
		return child, fmt.Errorf("start %s: %w", c.Path, held)
	}
	return child, nil
}

// onThreadOfItsOwn calls f on a thread that ends soon after, and waits for f.
func onThreadOfItsOwn(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread of a process cannot end alone: while it is ours, another one is taken.
			onThreadOfItsOwn(f)
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}

// Reap waits for a process in the background, if it is a child of ours, and forgets it. The command's children become ours when
// it makes them with CLONE_PARENT; without a wait they would stay as zombies.
func Reap(pid uint32) {
	go func() {
		for {
			if _, err := unix.Wait4(int(pid), nil, 0, nil); err != unix.EINTR {
				return
			}
		}
	}()
}

// Exited delivers once, when the command has ended and was waited for.
func (c *Child) Exited() <-chan Exit { return c.exit }

// Descendants lists the processes below pid as they are now, parents before children.
func Descendants(pid uint32) ([]uint32, error) {
	all, err := Processes()
	if err != nil {
		return nil, err
	}
	children := make(map[uint32][]uint32)
	for _, p := range all {
		if state, parent, err := stat(p); err == nil && state != 'Z' {
			children[parent] = append(children[parent], p)
		}
	}
	var list []uint32
	for queue := []uint32{pid}; len(queue) > 0; queue = queue[1:] {
		list = append(list, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return list, nil
}

// stat reads the state and the parent of a task from proc_pid_stat(5). The second field, the comm, may hold anything,
// and ends at the last ")".
func stat(pid uint32) (state byte, parent uint32, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 2 {
		return 0, 0, fmt.Errorf("/proc/%d/stat: too few fields", pid)
	}
	n, err := strconv.ParseUint(f[1], 10, 32)
	return f[0][0], uint32(n), err
}
