// Package perfevent opens perf events and reads their rings: output of BPF programs, hardware breakpoints, software clocks,
// and the side-band records of what tasks map, execute, fork and are called; each with the user's registers, a copy of the
// user's stack and call chains where they are asked for.
//
// It is no profiler and knows no symbols. Its invariants: every record says when, where, by which task and of which [Event]
// it is; every record of whatever type is passed over by its size and counted; what the kernel dropped is counted.
//
// One [Reader] has a ring for each CPU. All events write into these, so that hundreds of events cost no more memory than
// one. The layouts are those of include/uapi/linux/perf_event.h and perf_event_open(2).
package perfevent

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Kind is what an event counts.
type Kind uint8

const (
	KindInvalid   Kind = iota
	KindBPFOutput      // what BPF programs hand to bpf_perf_event_output; see Event.FDs
	KindBreak          // a hardware breakpoint or watchpoint: Spec.Break
	KindDummy          // nothing; for side-band records: Spec.SideBand
	KindCPUClock       // the time of a CPU, sampled every Spec.Period ns
	KindTaskClock      // the time of a task, sampled every Spec.Period ns
)

func (k Kind) String() string {
	switch k {
	case KindBPFOutput:
		return "BPF output"
	case KindBreak:
		return "breakpoint"
	case KindDummy:
		return "side-band"
	case KindCPUClock:
		return "CPU clock"
	case KindTaskClock:
		return "task clock"
	}
	return "invalid"
}

// SideBand chooses what is recorded beside samples.
type SideBand uint8

const (
	SideMmap     SideBand = 1 << iota // MMAP2 of executable mappings
	SideMmapData                      // MMAP2 of the other mappings too; with SideMmap
	SideComm                          // COMM, with MiscCommExec where an execve made it
	SideTask                          // FORK and EXIT
	SideSwitch                        // SWITCH, SWITCH_CPU_WIDE
)

// MaxUserStack is the largest copy of the user's stack: sample_stack_user is refused from USHRT_MAX on and has to be a
// multiple of 8 (perf_copy_attr in kernel/events/core.c). The kernel takes less where the record would be longer than 64 KiB.
const MaxUserStack = 65528

// Spec says what to open. The zero value of each field but Kind is its default.
type Spec struct {
	Kind  Kind
	Break Break // KindBreak
	// Period is the number of events for a sample: ns of clocks; 0 is 1 for breakpoints and BPF output.
	Period   uint64
	SideBand SideBand
	// UserRegs are the registers to take, as bits; see AllRegs. 0 takes none.
	UserRegs uint64
	// UserStack is how many bytes from the stack pointer on to copy: a multiple of 8 up to MaxUserStack.
	UserStack uint32
	// Callchain takes the call chain as the kernel finds it, by frame pointers; at most MaxChain frames (0: the system's limit).
	Callchain bool
	MaxChain  uint16
	// Kernel keeps what happens in the kernel; by default only user mode counts, and call chains hold only user frames.
	Kernel bool
	// Inherit has threads and children that a task makes later counted too; with ThreadsOnly only threads (Linux 5.13).
	Inherit     bool
	ThreadsOnly bool
	// RemoveOnExec ends the event when the task executes another program (Linux 5.13).
	RemoveOnExec bool
	// Disabled leaves it to Event.Enable to begin.
	Disabled bool
}

// Bits that x/sys does not name.
const (
	bitInheritThread = 1 << 35 // since Linux 5.13
	bitRemoveOnExec  = 1 << 36 // since Linux 5.13
)

// sampleBase is in every record: its event, task, time and CPU. The identifier comes first in samples and last in all others.
const sampleBase = unix.PERF_SAMPLE_IDENTIFIER | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_CPU

// Attr is what Spec is for perf_event_open(2), on machines of the architecture arch ("amd64", "arm64").
func (s *Spec) Attr(arch string) (unix.PerfEventAttr, error) {
	a := unix.PerfEventAttr{
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Sample: s.Period, Sample_type: sampleBase | unix.PERF_SAMPLE_IP,
		// The ring's owner decides when readers wake; without the bit every event of these would wake them.
		Bits: unix.PerfBitSampleIDAll | unix.PerfBitUseClockID | unix.PerfBitWatermark | unix.PerfBitExcludeHv, Clockid: unix.CLOCK_MONOTONIC,
	}
	switch s.Kind {
	case KindBPFOutput:
		a.Type, a.Config = unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_BPF_OUTPUT
		a.Sample_type |= unix.PERF_SAMPLE_RAW
		a.Sample = max(a.Sample, 1)
	case KindBreak:
		if err := s.Break.Check(arch); err != nil {
			return a, err
		}
		a.Type, a.Bp_type, a.Ext1, a.Ext2 = unix.PERF_TYPE_BREAKPOINT, uint32(s.Break.Mode), s.Break.Addr, s.Break.length(arch)
		a.Sample_type |= unix.PERF_SAMPLE_ADDR
		a.Sample = max(a.Sample, 1)
	case KindDummy:
		a.Type, a.Config = unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_DUMMY
	case KindCPUClock, KindTaskClock:
		a.Type, a.Config = unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_CLOCK
		if s.Kind == KindTaskClock {
			a.Config = unix.PERF_COUNT_SW_TASK_CLOCK
		}
	default:
		return a, fmt.Errorf("perf event of kind %d: there is none", s.Kind)
	}
	if extra := s.UserRegs &^ AllRegs(arch); extra != 0 {
		return a, fmt.Errorf("%s event: registers %#x do not exist on %s", s.Kind, extra, arch)
	}
	if s.UserRegs != 0 {
		a.Sample_type |= unix.PERF_SAMPLE_REGS_USER
		a.Sample_regs_user = s.UserRegs
	}
	if s.UserStack != 0 {
		if s.UserStack > MaxUserStack || s.UserStack%8 != 0 {
			return a, fmt.Errorf("%s event: a copy of %d bytes of the stack is not possible: a multiple of 8 up to %d is", s.Kind, s.UserStack, MaxUserStack)
		}
		a.Sample_type |= unix.PERF_SAMPLE_STACK_USER
		a.Sample_stack_user = s.UserStack
	}
	if s.Callchain {
		a.Sample_type |= unix.PERF_SAMPLE_CALLCHAIN
		a.Sample_max_stack = s.MaxChain
	}
	for _, x := range []struct {
		on  bool
		bit uint64
	}{
		{!s.Kernel && s.Kind != KindBPFOutput, unix.PerfBitExcludeKernel}, // programs run in the kernel: their output would not count
		{!s.Kernel && s.Callchain, unix.PerfBitExcludeCallchainKernel},
		{s.Inherit, unix.PerfBitInherit},
		{s.Inherit && s.ThreadsOnly, bitInheritThread},
		{s.RemoveOnExec, bitRemoveOnExec},
		{s.Disabled, unix.PerfBitDisabled},
		{s.SideBand&SideMmap != 0, unix.PerfBitMmap | unix.PerfBitMmap2},
		{s.SideBand&SideMmapData != 0, unix.PerfBitMmapData},
		{s.SideBand&SideComm != 0, unix.PerfBitComm | unix.PerfBitCommExec},
		{s.SideBand&SideTask != 0, unix.PerfBitTask},
		{s.SideBand&SideSwitch != 0, unix.PerfBitContextSwitch},
	} {
		if x.on {
			a.Bits |= x.bit
		}
	}
	return a, nil
}

// ErrSlots says that the processor has no debug register left for a breakpoint.
var ErrSlots = errors.New("all debug registers of that kind are in use")

// openError says what perf_event_open's error numbers mean; the man page gives several causes for each.
func openError(s *Spec, pid, cpu int, err error) error {
	what := fmt.Sprintf("opening a %s event for all tasks", s.Kind)
	if pid >= 0 {
		what = fmt.Sprintf("opening a %s event for task %d", s.Kind, pid)
	}
	if cpu >= 0 {
		what += fmt.Sprintf(" on CPU %d", cpu)
	}
	switch {
	case errors.Is(err, unix.ENOSPC) && s.Kind == KindBreak:
		return fmt.Errorf("%s: %w", what, ErrSlots)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		level, _ := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
		return fmt.Errorf("%s: %w: needs CAP_PERFMON, or CAP_SYS_ADMIN before Linux 5.8; perf_event_paranoid is %s here", what, err, strings.TrimSpace(string(level)))
	case errors.Is(err, unix.ESRCH):
		return fmt.Errorf("%s: %w", what, os.ErrProcessDone)
	case errors.Is(err, unix.EMFILE):
		return fmt.Errorf("%s: %w: raise the limit of open files (ulimit -n)", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
