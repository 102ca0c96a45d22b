package attach

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/perfevent"
)

// Debug registers. A breakpoint is a perf event of one thread and its heirs, with the probe's program on it
// (bpf_overflow_handler in kernel/events/core.c). What is refused is refused before the first is armed: a machine that
// accepts breakpoints and does not deliver them, and expressions that together need more registers than there are.

// testBreakpoint arms a debug register on our own function or variable and counts: some virtual machines accept breakpoints
// that never fire. note says what was seen, fix what can be done.
func testBreakpoint(mode perfevent.Mode) (note, fix string, err error) {
	word := new(uint64)
	s := perfevent.Spec{Kind: perfevent.KindBreak, Break: perfevent.Break{Addr: uint64(uintptr(unsafe.Pointer(word))), Len: 8, Mode: mode}}
	if mode == perfevent.ModeExecute {
		s.Break.Addr = uint64(funcEntry(probed))
	}
	attr, err := s.Attr(runtime.GOARCH)
	if err != nil {
		return "", "", err
	}
	hits, err := countHits(&attr, word)
	runtime.KeepAlive(word)
	switch {
	case errors.Is(err, unix.ENOSPC):
		return "", "end the debuggers that hold them", errors.New("all debug registers are in use")
	case err != nil:
		return "", "CAP_PERFMON, and a machine with debug registers", plain(err)
	case hits == 0:
		return "", "none from inside: the virtual machine does not pass debug registers on", errors.New("the machine accepts them and they never fire: 0 of 10 seen")
	}
	// arm64 may count a write watchpoint once more: the kernel steps over the access.
	return fmt.Sprintf("%d hits for 10 accesses", hits), "", nil
}

// refires is how long one store may take whose breakpoint has a program on it.
const refires = time.Second

// testProgram proves that the kernel steps over an access whose breakpoint has a program on it. arm64 tells before the access;
// kernels without "arm64/hw_breakpoint: fix single-stepping when using bpf_overflow_handler" come back to it for ever.
func testProgram() error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "sonde_step", Type: ebpf.PerfEvent, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		return plain(err)
	}
	defer prog.Close()
	word := new(uint64)
	spec := perfevent.Spec{Kind: perfevent.KindBreak, Break: perfevent.Break{Addr: uint64(uintptr(unsafe.Pointer(word))), Len: 8, Mode: perfevent.ModeWrite}}
	armed, done := make(chan int, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		fd, err := perfevent.OpenFD(&spec, 0)
		if err == nil {
			if err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, prog.FD()); err != nil {
				unix.Close(fd)
				fd = -1
			}
		}
		if armed <- fd; err == nil {
			probed(word, 1)
		}
		done <- err
	}()
	fd := <-armed
	late := time.NewTimer(refires)
	defer late.Stop()
	select {
	case err = <-done:
	case <-late.C:
		err = errors.New("this kernel comes back to the same access for ever: hw_breakpoint does not step over it when a BPF program is attached")
	}
	if fd >= 0 {
		unix.Close(fd) // a thread that hangs goes on now
	}
	return err
}

// checkBreakpoints refuses what this machine cannot do.
func checkBreakpoints(list []ProbePlan) error {
	need := make(map[bool]int) // by whether it is execution
	var modes []perfevent.Mode
	var account []string
	for i := range list {
		if list[i].Kind != ProbeBreak {
			continue
		}
		for k := range list[i].Points {
			b := &list[i].Points[k].Break
			if err := b.Check(runtime.GOARCH); err != nil {
				return fmt.Errorf("%s: %w", list[i].Name, err)
			}
			need[b.Mode == perfevent.ModeExecute]++
			if !slices.Contains(modes, b.Mode) {
				modes = append(modes, b.Mode)
			}
		}
		account = append(account, fmt.Sprintf("%s takes %d", list[i].Name, len(list[i].Points)))
	}
	if len(modes) > 0 && runtime.GOARCH == "arm64" {
		if err := testProgram(); err != nil {
			return fmt.Errorf("hardware breakpoints do not work here: %w", err)
		}
	}
	for _, m := range modes {
		if _, fix, err := testBreakpoint(m); err != nil {
			return fmt.Errorf("hardware breakpoints of mode %s do not work here: %w (%s). Probe the functions that change the value instead", m, err, fix)
		}
		free, err := perfevent.FreeSlots(m)
		if err != nil {
			return err
		}
		n := need[m == perfevent.ModeExecute]
		if runtime.GOARCH == "amd64" {
			n = need[true] + need[false] // the same registers
		}
		if n > free {
			return fmt.Errorf("%d debug registers are needed and %d are free: %s", n, free, strings.Join(account, ", "))
		}
	}
	return nil
}

// watched gives the first fetch, of the watched memory, the length of the piece that a register covers.
func watched(list []syscalls.Fetch, b *perfevent.Break) []syscalls.Fetch {
	if b.Mode == perfevent.ModeExecute || len(list) == 0 {
		return list
	}
	list = slices.Clone(list)
	list[0].Len = syscalls.Length{Number: syscalls.Const(int(b.Len)), Max: 8}
	return list
}

// Arm arms the breakpoints of the session in all threads of a process, where addrs has their addresses by the points' ids.
// Threads that these make later have them too, and children with SyscallOptions.Follow. On error those that were armed stay
// until Detach.
func (s *Syscalls) Arm(pid uint32, addrs map[uint32]uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("arming breakpoints: %w", os.ErrClosed)
	}
	// The first threads come first: those that make others. What one makes when it is armed already inherits.
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return fmt.Errorf("arming breakpoints in process %d: %w", pid, err)
	}
	var tids []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	slices.Sort(tids)
	for _, tid := range tids {
		for _, p := range s.probes {
			if p.plan.Kind != ProbeBreak {
				continue
			}
			for i := range p.plan.Points {
				pt := &p.plan.Points[i]
				addr, ok := addrs[pt.ID]
				if !ok {
					continue
				}
				f, err := s.arm(tid, addr, &pt.Break, p.entry[i].FD())
				if errors.Is(err, os.ErrProcessDone) {
					break // the thread has ended meanwhile
				}
				if err != nil {
					return fmt.Errorf("%s: %w", p.plan.Name, err)
				}
				s.events = append(s.events, f)
			}
		}
	}
	return nil
}

func (s *Syscalls) arm(tid int, addr uint64, b *perfevent.Break, prog int) (io.Closer, error) {
	spec := perfevent.Spec{Kind: perfevent.KindBreak, Break: perfevent.Break{Addr: addr, Len: b.Len, Mode: b.Mode},
		Inherit: true, ThreadsOnly: !s.opt.Follow, RemoveOnExec: true, Disabled: true}
	fd, err := perfevent.OpenFD(&spec, tid)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "breakpoint")
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, prog); err != nil {
		f.Close()
		return nil, fmt.Errorf("attaching the program to a breakpoint: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("enabling a breakpoint: %w", err)
	}
	return f, nil
}
