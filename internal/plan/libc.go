package plan

import (
	_ "embed"
	"slices"
	"strings"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/decode"
	"github.com/sonde-trace/sonde/internal/objfile"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
	"github.com/sonde-trace/sonde/probe"
)

//go:embed prototypes.txt
var prototypes string

// prototype finds the arguments of a function of the C library.
func prototype(name string) *probe.Spec {
	for line := range strings.Lines(prototypes) {
		if rest, ok := strings.CutPrefix(line, name); ok && strings.HasPrefix(rest, "(") {
			s, err := probe.Parse("libc:" + strings.TrimSpace(line))
			if err != nil {
				return nil // a test parses all
			}
			return s
		}
	}
	return nil
}

// asCalls are the functions of the C library that do what the system call of the same name, or of the name behind the colon, does,
// with the same arguments: they are read as those are.
var asCalls = strings.Fields(`
open open64:open openat openat64:openat creat creat64:creat close read write pread:pread64 pread64 pwrite:pwrite64 pwrite64
readv writev preadv pwritev lseek lseek64:lseek access faccessat unlink unlinkat rename renameat renameat2 mkdir mkdirat rmdir
chdir fchdir getcwd chroot chmod fchmod fchmodat chown fchown lchown fchownat link linkat symlink symlinkat readlink readlinkat
truncate truncate64:truncate ftruncate ftruncate64:ftruncate mknod mknodat umask stat stat64:stat fstat fstat64:fstat
lstat lstat64:lstat fstatat:newfstatat fstatat64:newfstatat statx statfs statfs64:statfs fstatfs fstatfs64:fstatfs
utimensat utimes dup dup2 dup3 pipe pipe2 fcntl fcntl64:fcntl ioctl flock fsync fdatasync sync syncfs fallocate fallocate64:fallocate
sendfile sendfile64:sendfile splice tee copy_file_range poll ppoll select epoll_create epoll_create1 epoll_ctl epoll_wait
eventfd:eventfd2 signalfd:signalfd4 timerfd_create timerfd_settime timerfd_gettime inotify_init inotify_init1 inotify_add_watch
inotify_rm_watch socket socketpair bind listen accept accept4 connect shutdown getsockname getpeername getsockopt setsockopt
sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg mmap mmap64:mmap munmap mprotect madvise msync mlock munlock mlockall
munlockall mremap mincore memfd_create brk kill getpid getppid gettid getuid geteuid getgid getegid setuid setgid seteuid:setuid
setresuid setresgid getresuid getresgid setreuid setregid getgroups setgroups getpgid setpgid getpgrp getsid setsid
getpriority setpriority getrlimit getrlimit64:getrlimit setrlimit setrlimit64:setrlimit prlimit:prlimit64 prlimit64 getrusage times
uname sethostname setdomainname sysinfo gettimeofday settimeofday clock_gettime clock_settime clock_getres nanosleep
clock_nanosleep alarm setitimer getitimer execve execveat wait4 waitid mount umount2 pivot_root swapon swapoff reboot
setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr lremovexattr
fremovexattr sched_setaffinity sched_getaffinity sched_yield sched_setscheduler sched_getscheduler capget capset prctl
getrandom personality acct vhangup sigaltstack shmget shmat shmdt shmctl`)

// wideReturns are those of them whose result is 64 bits wide; the others return an int.
var wideReturns = strings.Fields("read write pread64 pwrite64 readv writev preadv pwritev lseek readlink readlinkat sendfile splice tee copy_file_range sendto recvfrom sendmsg recvmsg mmap mremap brk getcwd getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr getrandom times shmat")

// callOf is the system call that a function of the C library is read as; empty for none.
func callOf(name string) string {
	for _, f := range asCalls {
		fn, call, ok := strings.Cut(f, ":")
		if !ok {
			call = fn
		}
		if fn == name && decode.Specs()[call] != nil {
			return call
		}
	}
	return ""
}

// isLibc reports whether a file is a C library, or a program that holds one: it has the function that every C library starts
// programs with.
func isLibc(o *object) bool {
	if strings.HasPrefix(o.name, "libc.") || strings.HasPrefix(o.name, "libc-") || strings.HasPrefix(o.name, "libpthread") || strings.HasPrefix(o.name, "ld-musl") {
		return true
	}
	return o.file.ELF.Section(".interp") == nil && slices.ContainsFunc(o.file.Symbols(), func(s objfile.Symbol) bool { return s.Name == "__libc_start_main" })
}

// known finds out the arguments of a function of the C library: as a system call, or by the table of prototypes. It returns the
// arguments to take, or nil with done set when all is arranged.
func (p *Plan) known(o *object, when probe.When) (proto *probe.Spec, done bool) {
	if o == nil || p.Spec.Point.Match != probe.MatchExact || p.Spec.Point.Offset != 0 || len(p.Points) == 0 || !isLibc(o) {
		return nil, false
	}
	name := p.Spec.Point.Text
	if call := callOf(name); call != "" {
		p.asCall(call, when)
		return nil, true
	}
	return prototype(name), false
}

// asCall makes the plan read a function as a system call.
func (p *Plan) asCall(call string, when probe.When) {
	spec := decode.Specs()[call]
	p.Call = call
	p.Ret = &Form{Kind: FormInt, Size: 4, Signed: true}
	if slices.Contains(wideReturns, call) {
		p.Ret.Size = 8
	}
	var words []bpfgen.Word
	for _, r := range []string{"arg1", "arg2", "arg3", "arg4", "arg5", "arg6"} {
		off, _ := bpfgen.RegOffset(p.arch, r)
		words = append(words, bpfgen.Word{Reg: off})
	}
	keep := when == probe.WhenBoth && len(spec.Exit) > 0
	if when != probe.WhenReturn {
		p.Entry = &bpfgen.Probe{Slots: words, Fetches: inSlots(spec.Enter, wire.FirstSlot), Keep: keep}
	}
	if when != probe.WhenEntry {
		p.Exit = &bpfgen.Probe{Return: true, Alone: when == probe.WhenReturn, Keep: keep, AtRet: p.AtRet}
		if keep {
			p.Exit.Slots, p.Exit.Fetches = words, inSlots(spec.Exit, wire.KeptSlot)
		}
	}
}

// inSlots renumbers arguments into slots, the first of which is given.
func inSlots(list []syscalls.Fetch, first uint32) []syscalls.Fetch {
	out := slices.Clone(list)
	for i := range out {
		for _, n := range []*syscalls.Number{&out[i].Base, &out[i].Len.Number, &out[i].Total, &out[i].When.Value} {
			if n.From == syscalls.FromArg || n.From == syscalls.FromIoctlSize {
				n.N += first
			}
		}
	}
	return out
}
