// Package attach loads and attaches the generated kernel programs and knows what the running kernel can do. Opening is
// all or nothing: an error leaves no map, program or link behind.
package attach

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// VerifierError says that the kernel refused a generated program.
type VerifierError struct {
	Program string // name of the program
	Doing   string // what the refused instructions are for, in words; may be empty
	Reason  string // the verifier's last words
	Log     string // its full log
	Err     error
}

// Error gives the reason in one line; the log is in the field.
func (e *VerifierError) Error() string {
	s := fmt.Sprintf("the kernel's verifier refused the program %s", e.Program)
	if e.Doing != "" {
		s += fmt.Sprintf(" at the part %q", e.Doing)
	}
	return s + ": " + e.Reason
}

func (e *VerifierError) Unwrap() error { return e.Err }

// logPosition finds the number of an instruction at the start of a line of a verifier log.
const logPosition = `(?m)^(\d+): \(`

// loadError turns the error of loading p into words.
func loadError(p *bpfgen.Program, err error) error {
	var ve *ebpf.VerifierError
	if !errors.As(err, &ve) || len(ve.Log) == 0 {
		if errors.Is(err, unix.EFAULT) {
			// The verifier gives up so when more than 8192 branches wait to be checked, without a log.
			return &VerifierError{Program: p.Name, Reason: "it has too many branches; a smaller selection or string limit may help", Err: err}
		}
		return explain("loading the program "+p.Name, err)
	}
	log := strings.Join(ve.Log, "\n")
	e := &VerifierError{Program: p.Name, Log: log, Err: err}
	for i := len(ve.Log) - 1; i >= 0; i-- {
		l := strings.TrimSpace(ve.Log[i])
		if l != "" && !strings.HasPrefix(l, "processed ") && !strings.HasPrefix(l, "verification time") && !strings.HasPrefix(l, "stack depth") {
			e.Reason = l
			break
		}
	}
	if all := regexp.MustCompile(logPosition).FindAllStringSubmatch(log, -1); len(all) > 0 {
		if at, err := strconv.Atoi(all[len(all)-1][1]); err == nil {
			e.Doing = p.Note(at)
		}
	}
	return e
}

// explain adds the remedy to errors of the bpf system call.
func explain(doing string, err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s: %w: %s", doing, err, whyNotPermitted())
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%s: %w: the kernel has no memory for it; a smaller buffer or string limit may help", doing, err)
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%s: %w: this kernel is built without bpf(2)", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// wantSockets reports whether a call wants to know what kind of socket a descriptor is.
func wantSockets(calls []SyscallPlan) bool {
	for i := range calls {
		for _, list := range [2][]syscalls.Fetch{calls[i].Enter, calls[i].Exit} {
			for j := range list {
				if list[j].Kind == syscalls.FetchSocket {
					return true
				}
			}
		}
	}
	return false
}

// describeKernel finds out what the generator must know: always, for the names of descriptors, for the kinds of sockets.
func describeKernel(files, sockets, stacks bool) (bpfgen.Kernel, error) {
	k := bpfgen.Kernel{Arch: runtime.GOARCH}
	raw, release, err := mapBTF(btfPath)
	if err != nil {
		return k, err
	}
	defer release()
	type member struct {
		dst            *int
		within, member string
	}
	var threadInfo int
	list := []member{
		{&k.Task.Pid, "task_struct", "pid"}, {&k.Task.Tgid, "task_struct", "tgid"},
		{&k.Task.ExitCode, "task_struct", "exit_code"}, {&k.Task.Signal, "task_struct", "signal"},
		{&k.Task.Live, "signal_struct", "live"}, {&k.Task.SignalFlags, "signal_struct", "flags"},
	}
	if f := &k.File; files {
		list = append(list, []member{
			{&f.Files, "task_struct", "files"}, {&f.Fs, "task_struct", "fs"}, {&f.Fdt, "files_struct", "fdt"},
			{&f.MaxFds, "fdtable", "max_fds"}, {&f.Fd, "fdtable", "fd"}, {&f.Path, "file", "f_path"}, {&f.Inode, "file", "f_inode"},
			{&f.PathMnt, "path", "mnt"}, {&f.PathDentry, "path", "dentry"}, {&f.Ino, "inode", "i_ino"}, {&f.Sb, "inode", "i_sb"},
			{&f.Magic, "super_block", "s_magic"}, {&f.Parent, "dentry", "d_parent"}, {&f.Name, "dentry", "d_name"}, {&f.Hash, "dentry", "d_hash"},
			{&f.NameLen, "qstr", "len"}, {&f.NameStr, "qstr", "name"}, {&f.Pprev, "hlist_bl_node", "pprev"}, {&f.Mnt, "mount", "mnt"},
			{&f.MntParent, "mount", "mnt_parent"}, {&f.MntMountpoint, "mount", "mnt_mountpoint"}, {&f.MntRoot, "vfsmount", "mnt_root"},
			{&f.Pwd, "fs_struct", "pwd"}, {&f.Mode, "inode", "i_mode"}, {&f.Rdev, "inode", "i_rdev"},
		}...)
	}
	if f := &k.File; sockets {
		list = append(list, []member{
			{&f.Files, "task_struct", "files"}, {&f.Fdt, "files_struct", "fdt"}, {&f.MaxFds, "fdtable", "max_fds"}, {&f.Fd, "fdtable", "fd"},
			{&f.Inode, "file", "f_inode"}, {&f.Private, "file", "private_data"}, {&f.Mode, "inode", "i_mode"},
			{&f.Sk, "socket", "sk"}, {&f.Family, "sock_common", "skc_family"}, {&f.SockType, "sock", "sk_type"}, {&f.SockProto, "sock", "sk_protocol"},
		}...)
	}
	if w := &k.Walk; stacks {
		list = append(list, []member{
			{&w.VMStart, "vm_area_struct", "vm_start"}, {&w.VMEnd, "vm_area_struct", "vm_end"}, {&w.VMPgoff, "vm_area_struct", "vm_pgoff"},
			{&w.VMFile, "vm_area_struct", "vm_file"}, {&w.VMMM, "vm_area_struct", "vm_mm"}, {&w.FInode, "file", "f_inode"},
			{&w.Ino, "inode", "i_ino"}, {&w.Sb, "inode", "i_sb"}, {&w.Dev, "super_block", "s_dev"}, {&w.VDSO, "mm_struct", "context.vdso"},
		}...)
		w.PageShift = bits.TrailingZeros(uint(os.Getpagesize()))
	}
	if k.Arch == "amd64" {
		list = append(list, member{&threadInfo, "task_struct", "thread_info"}, member{&k.Task.Status, "thread_info", "status"})
	}
	var names []string
	for _, m := range list {
		if !slices.Contains(names, m.within) {
			names = append(names, m.within)
		}
	}
	s, err := scanBTF(raw, names...)
	if err != nil {
		return k, fmt.Errorf("reading the kernel's types from %s: %w", btfPath, err)
	}
	for _, m := range list {
		if *m.dst, err = s.member(m.within, m.member); err != nil {
			return k, fmt.Errorf("reading the kernel's types from %s: %w", btfPath, err)
		}
	}
	k.Task.Status += threadInfo
	return k, nil
}
