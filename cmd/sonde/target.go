package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/sonde-trace/sonde/internal/proc"
	"github.com/sonde-trace/sonde/tracer"
)

// split cuts the values of a repeatable flag at commas and white space, as strace does for -p "$(pidof x)".
func split(values []string) (out []string) {
	for _, v := range values {
		out = append(out, strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' })...)
	}
	return out
}

// targets fills o.Target from the flags that name tasks.
func (f *traceFlags) targets(o *tracer.Options) error {
	t := &o.Target
	for _, s := range split(f.pids) {
		pid, err := taskID(s)
		if err != nil {
			return usagef("-p %s: %v", s, err)
		}
		if int(pid) == os.Getpid() {
			return usagef("-p %s: that is sonde itself", s)
		}
		// A thread's id stands for its process.
		tgid, err := proc.ProcessOf(pid)
		if err != nil {
			return usagef("-p %s: no such process", s)
		}
		t.Pids = append(t.Pids, tgid)
		if f.tree {
			tree, err := proc.Descendants(tgid)
			if err != nil {
				return err
			}
			t.Pids = append(t.Pids, tree...)
		}
	}
	if f.tree && len(f.pids) == 0 {
		return usagef("--tree is for the descendants of a process given by -p")
	}
	for _, s := range split(f.tids) {
		s, deny := strings.CutPrefix(s, "!")
		tid, err := taskID(s)
		if err != nil {
			return usagef("--tid %s: %v", s, err)
		}
		if deny {
			t.DenyTids = append(t.DenyTids, tid)
		} else {
			t.Tids = append(t.Tids, tid)
		}
	}
	for _, s := range split(f.uids) {
		s, deny := strings.CutPrefix(s, "!")
		uid, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			u, err := user.Lookup(s)
			if err != nil {
				return usagef("--uid %s: no such user", s)
			}
			if uid, err = strconv.ParseUint(u.Uid, 10, 32); err != nil {
				return usagef("--uid %s: its id is %s", s, u.Uid)
			}
		}
		if deny {
			t.DenyUIDs = append(t.DenyUIDs, uint32(uid))
		} else {
			t.UIDs = append(t.UIDs, uint32(uid))
		}
	}
	for _, s := range f.comms {
		s, deny := strings.CutPrefix(s, "!")
		if s == "" || len(s) > 15 {
			return usagef("--comm %s: the names of tasks have 1 to 15 bytes", s)
		}
		if deny {
			t.DenyComms = append(t.DenyComms, s)
		} else {
			t.Comms = append(t.Comms, s)
		}
	}
	for _, s := range f.cgroups {
		s, deny := strings.CutPrefix(s, "!")
		id, err := cgroupID(s)
		if err != nil {
			return usagef("--cgroup %s: %v", s, err)
		}
		if deny {
			t.DenyCgroups = append(t.DenyCgroups, id)
		} else {
			t.Cgroups = append(t.Cgroups, id)
		}
	}
	return nil
}

func taskID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == 0 || n > 1<<22 { // PID_MAX_LIMIT, include/linux/threads.h
		return 0, errors.New("not the id of a task")
	}
	return uint32(n), nil
}

// cgroupID is the inode number of the directory, which is what the kernel calls the id of a cgroup of version 2.
func cgroupID(path string) (uint64, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join("/sys/fs/cgroup", path)
	}
	fi, err := os.Stat(path)
	if err != nil {
		return 0, errors.New("no such cgroup")
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || !fi.IsDir() {
		return 0, errors.New("not a cgroup directory")
	}
	if _, err := os.Stat(filepath.Join(path, "cgroup.procs")); err != nil {
		return 0, errors.New("not a cgroup directory of version 2")
	}
	return st.Ino, nil
}

// command finds the program and the credentials to run it with. Errors follow the shell: 127 for a command that does not
// exist, 126 for one that cannot be executed.
func (f *traceFlags) command(args []string) (*tracer.Command, error) {
	c := &tracer.Command{Argv: args, Env: os.Environ()}
	path, err := findCommand(args[0])
	if err != nil {
		return nil, err
	}
	c.Path = path
	if f.argv0 != "" {
		c.Argv = append([]string{f.argv0}, args[1:]...)
	}
	for _, e := range f.env {
		name, _, set := strings.Cut(e, "=")
		if name == "" {
			return nil, usagef("-E %s: the name of the variable is missing", e)
		}
		kept := c.Env[:0:0]
		for _, v := range c.Env {
			if !strings.HasPrefix(v, name+"=") {
				kept = append(kept, v)
			}
		}
		c.Env = kept
		if set {
			c.Env = append(c.Env, e)
		}
	}
	c.User, err = f.runAs()
	return c, err
}

func findCommand(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrDot):
		// An empty or relative entry of PATH names the working directory, as execvp(3) takes it.
		return path, executable(path)
	case errors.Is(err, fs.ErrPermission):
		return "", &exitError{code: 126, err: fmt.Errorf("%s: found along PATH, and not executable", name)}
	}
	return "", &exitError{code: 127, err: fmt.Errorf("%s: command not found", name)}
}

func executable(path string) error {
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &exitError{code: 127, err: fmt.Errorf("%s: no such file", path)}
	case err != nil:
		return &exitError{code: 126, err: fmt.Errorf("%s: %w", path, errors.Unwrap(err))}
	case fi.IsDir():
		return &exitError{code: 126, err: fmt.Errorf("%s: is a directory", path)}
	case fi.Mode()&0o111 == 0:
		return &exitError{code: 126, err: fmt.Errorf("%s: not executable: its mode is %v; chmod +x makes it so", path, fi.Mode())}
	}
	return nil
}

// runAs returns the credentials for -u, or for the user behind sudo; nil for our own.
func (f *traceFlags) runAs() (*proc.User, error) {
	if f.user != "" {
		u, err := user.Lookup(f.user)
		if err != nil {
			return nil, usagef("-u %s: no such user", f.user)
		}
		if os.Geteuid() != 0 {
			return nil, fmt.Errorf("-u %s: only root can run a command as another user", f.user)
		}
		return credentials(u)
	}
	return invoker()
}

// invoker returns the user who ran sudo, or nil when there is none to be found.
func invoker() (*proc.User, error) {
	sudo := os.Getenv("SUDO_UID")
	if os.Geteuid() != 0 || sudo == "" || sudo == "0" {
		return nil, nil
	}
	u, err := user.LookupId(sudo)
	if err != nil {
		return nil, fmt.Errorf("run the command as the user behind sudo: SUDO_UID is %q: %w", sudo, err)
	}
	return credentials(u)
}

func credentials(u *user.User) (*proc.User, error) {
	var ids []uint32
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("find the groups of %s: %w", u.Username, err)
	}
	for _, s := range append([]string{u.Uid, u.Gid}, groups...) {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("find the ids of %s: %w", u.Username, err)
		}
		ids = append(ids, uint32(n))
	}
	return &proc.User{UID: ids[0], GID: ids[1], Groups: ids[2:]}, nil
}
