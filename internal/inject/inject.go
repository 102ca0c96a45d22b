// Package inject makes chosen calls of a command return what the user says, without running them, and without ptrace: a
// seccomp filter hands them to us and waits for the answer (seccomp_unotify(2)). It changes what a program is told, and
// nothing else: all that is not chosen goes on by itself in the kernel.
//
// The filter is installed in the thread that starts the command, and so in the command from before its first instruction;
// that thread ends as soon as the command was started. Calls that our own code makes at its own addresses pass, so that
// nobody needs to answer while the command is being started; a traced program that is loaded at the same addresses and
// makes a call at the very same one is not injected there (another sonde is such a program). A filter cannot be taken away: who lives longer than
// the Listener gets ENOSYS for the calls that it watched.
package inject

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/proc"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/probe"
)

// Layouts of include/uapi/linux/seccomp.h.
const (
	notifSize = 80 // struct seccomp_notif: id u64, pid u32, flags u32, seccomp_data{nr u32, arch u32, ip u64, args 6×u64}
	respSize  = 24 // struct seccomp_notif_resp: id u64, val s64, error s32, flags u32

	filterFlagNewListener = 1 << 3
	setModeFilter         = 1
	respContinue          = 1

	retAllow  = 0x7fff0000 // SECCOMP_RET_ALLOW
	retNotify = 0x7fc00000 // SECCOMP_RET_USER_NOTIF

	offNr, offArch, offIP = 0, 4, 8 // in struct seccomp_data
)

const x32Bit = 0x40000000 // __X32_SYSCALL_BIT

// auditArch are the AUDIT_ARCH_ numbers of include/uapi/linux/audit.h by ABI.
var auditArch = map[string]uint32{
	"amd64": 0xc000003e, "x32": 0xc000003e, "i386": 0x40000003, "arm64": 0xc00000b7, "arm": 0x40000028,
}

// key is a system call as seccomp names it.
type key struct{ arch, nr uint32 }

// counter counts the calls of one thread.
type counter struct {
	tid uint32
	key
}

// Listener answers the calls. Its methods may be called from several goroutines.
type Listener struct {
	rules  map[key]*probe.Injection
	arches []uint32
	follow bool

	fd      int32  // -1 when the filter is not installed
	stop    [2]int // a pipe: closing its end wakes the listener
	command uint32 // the first process whose call comes: it cannot have made another yet
	counts  map[counter]uint64
	wg      sync.WaitGroup
	err     atomic.Pointer[error]
}

// New prepares to answer the calls that the injections choose; where several choose one call, the last decides. With
// follow, the processes that the command makes are answered as well.
func New(list []*probe.Injection, family []*syscalls.ABI, follow bool) (*Listener, error) {
	l := &Listener{rules: make(map[key]*probe.Injection), follow: follow, counts: make(map[counter]uint64)}
	l.fd = -1
	for _, abi := range family {
		arch := auditArch[abi.Name]
		for nr := range abi.All() {
			k := key{arch, nr}
			if abi.Name == "x32" {
				k.nr |= x32Bit
			}
			for _, in := range list {
				if in.Calls.Has(abi.Name, nr) {
					l.rules[k] = in
				}
			}
		}
	}
	if len(l.rules) == 0 {
		return nil, errors.New("injection: no system call is chosen")
	}
	return l, nil
}

// Watches reports whether the result of calls with that number may be made up.
func (l *Listener) Watches(abi string, nr uint32) bool {
	k := key{auditArch[abi], nr}
	if abi == "x32" {
		k.nr |= x32Bit
	}
	in := l.rules[k]
	return in != nil && in.Answer
}

// filter is the program that hands over the calls of the rules, but for those that are made at our own sites: this process
// has a part of the filter until the command is executed, and must not wait for itself.
func (l *Listener) filter(sites []uint64) []unix.SockFilter {
	const (
		load = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		jeq  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		jump = unix.BPF_JMP | unix.BPF_JA
		ret  = unix.BPF_RET | unix.BPF_K
	)
	byArch := make(map[uint32][]uint32)
	for k := range l.rules {
		byArch[k.arch] = append(byArch[k.arch], k.nr)
	}
	p := []unix.SockFilter{{Code: load, K: offArch}}
	var found []int // jumps to the end
	for arch, numbers := range byArch {
		// Conditional jumps reach 255 instructions, others any.
		p = append(p, unix.SockFilter{Code: jeq, Jt: 1, K: arch}, unix.SockFilter{Code: jump, K: uint32(2*len(numbers) + 2)},
			unix.SockFilter{Code: load, K: offNr})
		for _, nr := range numbers {
			found = append(found, len(p)+1)
			p = append(p, unix.SockFilter{Code: jeq, Jf: 1, K: nr}, unix.SockFilter{Code: jump})
		}
		p = append(p, unix.SockFilter{Code: ret, K: retAllow})
	}
	p = append(p, unix.SockFilter{Code: ret, K: retAllow})
	for _, at := range found {
		p[at].K = uint32(len(p) - at - 1)
	}
	for _, ip := range sites {
		p = append(p, unix.SockFilter{Code: load, K: offIP}, unix.SockFilter{Code: jeq, Jf: 3, K: uint32(ip)},
			unix.SockFilter{Code: load, K: offIP + 4}, unix.SockFilter{Code: jeq, Jf: 1, K: uint32(ip >> 32)}, unix.SockFilter{Code: ret, K: retAllow})
	}
	return append(p, unix.SockFilter{Code: ret, K: retNotify})
}

// ownSites are the addresses behind the instructions by which our own code makes system calls; also those of bytes that only
// look so.
func ownSites() ([]uint64, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, fmt.Errorf("injection: find our own code: %w", err)
	}
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("injection: find our own program: %w", err)
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil, fmt.Errorf("injection: read our own code: %w", err)
	}
	defer mem.Close()
	call, step := []byte{0x0f, 0x05}, 1 // syscall
	if runtime.GOARCH == "arm64" {
		call, step = []byte{0x01, 0x00, 0x00, 0xd4}, 4 // svc #0
	}
	var sites []uint64
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || !strings.Contains(mode, "x") || !strings.HasSuffix(strings.TrimSpace(line), " "+exe) {
			continue
		}
		code := make([]byte, to-from)
		if _, err := mem.ReadAt(code, int64(from)); err != nil {
			return nil, fmt.Errorf("injection: read our own code: %w", err)
		}
		for at := 0; at+len(call) <= len(code); {
			k := bytes.Index(code[at:], call)
			if k < 0 {
				break
			}
			at += k
			if at%step == 0 {
				sites = append(sites, from+uint64(at+len(call)))
			}
			at++
		}
	}
	if len(sites) == 0 || len(sites) > maxSites {
		return nil, fmt.Errorf("injection: %d places in our own code make system calls; from 1 to %d are expected", len(sites), maxSites)
	}
	return sites, nil
}

// maxSites bounds the filter, which has 4096 instructions at most (BPF_MAXINSNS).
const maxSites = 250

// Install puts the filter on the calling thread, which must start the command next and then end, and begins to answer.
func (l *Listener) Install() error {
	sites, err := ownSites()
	if err != nil {
		return err
	}
	p := l.filter(sites)
	if len(p) > unix.BPF_MAXINSNS {
		return fmt.Errorf("injection: too many system calls are chosen: their filter would have %d instructions, %d are possible", len(p), unix.BPF_MAXINSNS)
	}
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	if err := unix.Pipe2(l.stop[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("injection: make a pipe: %w", err)
	}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, setModeFilter, filterFlagNewListener, uintptr(unsafe.Pointer(&prog)))
	if errno == 0 {
		l.fd = int32(fd)
		l.wg.Add(1)
		go func() {
			defer l.wg.Done()
			if err := l.serve(); err != nil {
				l.err.Store(&err)
			}
		}()
		return nil
	}
	unix.Close(l.stop[0])
	unix.Close(l.stop[1])
	switch errno {
	case unix.EBUSY:
		return errors.New("injection: a seccomp filter that asks another process is on us already, and there can be only one")
	case unix.EACCES:
		return errors.New("injection: a seccomp filter for others needs root or CAP_SYS_ADMIN")
	}
	return fmt.Errorf("injection: install a seccomp filter (Linux 5.5 and up can): %w", errno)
}

// Close ends the answering. It reports what made it end before, and whether somebody is left who will miss it.
func (l *Listener) Close() error {
	if l.fd < 0 {
		return nil
	}
	unix.Close(l.stop[1])
	l.wg.Wait()
	users := []unix.PollFd{{Fd: l.fd}}
	_, err := unix.Poll(users, 0)
	unix.Close(int(l.fd))
	unix.Close(l.stop[0])
	l.fd = -1
	if e := l.err.Load(); e != nil {
		return *e
	}
	if err == nil && users[0].Revents&unix.POLLHUP == 0 {
		return errors.New("injection: processes that the command left behind get ENOSYS from now on for the calls that were to be injected")
	}
	return nil
}

func (l *Listener) serve() error {
	fds := []unix.PollFd{{Fd: l.fd, Events: unix.POLLIN}, {Fd: int32(l.stop[0]), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
			return fmt.Errorf("injection: wait for calls: %w", err)
		}
		if fds[1].Revents != 0 || fds[0].Revents&unix.POLLIN == 0 && fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0 {
			return nil
		}
		if fds[0].Revents == 0 {
			continue
		}
		var n [notifSize]byte
		switch err := ioctl(l.fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); err {
		case 0:
			l.answer(&n)
		case unix.EINTR, unix.ENOENT: // the caller has died or was interrupted meanwhile
		default:
			return fmt.Errorf("injection: take a call: %w", err)
		}
	}
}

func ioctl(fd int32, cmd uintptr, arg unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), cmd, uintptr(arg))
	return errno
}

// answer decides about one call.
func (l *Listener) answer(n *[notifSize]byte) {
	id, tid := binary.LittleEndian.Uint64(n[:]), binary.LittleEndian.Uint32(n[8:])
	k := key{binary.LittleEndian.Uint32(n[20:]), binary.LittleEndian.Uint32(n[16:])}
	in := l.rules[k]
	if in == nil || !l.ours(tid) || !in.When.Hit(l.count(counter{tid, k})) {
		reply(l.fd, id, 0, 0, respContinue)
		return
	}
	if in.Answer {
		touch(tid, n)
	}
	done := func() {
		switch {
		case !in.Answer:
			reply(l.fd, id, 0, 0, respContinue)
		case in.Errno != 0:
			reply(l.fd, id, 0, -int32(in.Errno), 0)
		default:
			reply(l.fd, id, in.Ret, 0, 0)
		}
		if in.Signal != 0 {
			if pid, err := proc.ProcessOf(tid); err == nil {
				unix.Tgkill(int(pid), int(tid), in.Signal)
			}
		}
	}
	if wait := in.DelayEnter + in.DelayExit; wait > 0 {
		l.wg.Add(1)
		go func() { // others need not wait
			defer l.wg.Done()
			time.Sleep(wait)
			done()
		}()
		return
	}
	done()
}

// touch brings the memory that the arguments point to into the program, as running the call would have done: what is not
// there cannot be recorded.
func touch(tid uint32, n *[notifSize]byte) {
	var page [4096]byte
	for i := range 6 {
		addr := binary.LittleEndian.Uint64(n[32+8*i:])
		if addr < uint64(len(page)) {
			continue
		}
		local := unix.Iovec{Base: &page[0]}
		local.SetLen(len(page))
		remote := unix.RemoteIovec{Base: uintptr(addr), Len: len(page)}
		unix.ProcessVMReadv(int(tid), []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0) // most are no addresses
	}
}

// ours reports whether the thread belongs to what is traced. It is called by one goroutine.
func (l *Listener) ours(tid uint32) bool {
	if tid == l.command {
		return true
	}
	pid, err := proc.ProcessOf(tid)
	if err != nil || pid == uint32(os.Getpid()) {
		return false // a call of the C library in the end of our thread
	}
	if l.command == 0 {
		l.command = pid
	}
	return l.follow || pid == l.command
}

// maxCounts bounds the memory for counters; beyond, counting starts again.
const maxCounts = 1 << 18

// count is the number of this call among those of its thread. It is called by one goroutine.
func (l *Listener) count(c counter) uint64 {
	if len(l.counts) >= maxCounts {
		clear(l.counts)
	}
	l.counts[c]++
	return l.counts[c]
}

// reply lets the caller go on. Nobody may be there any more.
func reply(fd int32, id uint64, value int64, errno int32, flags uint32) {
	var r [respSize]byte
	binary.LittleEndian.PutUint64(r[0:], id)
	binary.LittleEndian.PutUint64(r[8:], uint64(value))
	binary.LittleEndian.PutUint32(r[16:], uint32(errno))
	binary.LittleEndian.PutUint32(r[20:], flags)
	ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r))
}
