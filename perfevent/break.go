package perfevent

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mode is the accesses that a breakpoint stops: include/uapi/linux/hw_breakpoint.h.
type Mode uint8

const (
	ModeRead    Mode = 1
	ModeWrite   Mode = 2
	ModeAccess  Mode = 3 // read or write
	ModeExecute Mode = 4
)

func (m Mode) String() string {
	switch m {
	case ModeRead:
		return "r"
	case ModeWrite:
		return "w"
	case ModeAccess:
		return "rw"
	case ModeExecute:
		return "x"
	}
	return "?"
}

// ParseMode reads "r", "w", "rw" or "x".
func ParseMode(s string) (Mode, error) {
	for _, m := range []Mode{ModeRead, ModeWrite, ModeAccess, ModeExecute} {
		if m.String() == s {
			return m, nil
		}
	}
	return 0, fmt.Errorf("breakpoint mode %q: r, w, rw or x is needed", s)
}

// Break is one debug register.
type Break struct {
	Addr uint64
	Len  uint64 // bytes; ignored with ModeExecute
	Mode Mode
}

// length is bp_len for the kernel: of execution it wants the size of a long on x86, of an instruction on arm64
// (arch/x86/kernel/hw_breakpoint.c, arch/arm64/kernel/hw_breakpoint.c).
func (b *Break) length(arch string) uint64 {
	if b.Mode != ModeExecute {
		return b.Len
	}
	if arch == "arm64" {
		return 4
	}
	return 8
}

// Check refuses what one debug register of the architecture cannot do.
//
// x86 (Intel SDM volume 3, 19.2): lengths 1, 2, 4, 8, at an address that is a multiple of them; execution, writes, or reads
// and writes. arm64 (Arm ARM D2.10, byte address select): any run of bytes within an aligned 8; execution at multiples of 4.
func (b *Break) Check(arch string) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("breakpoint at %#x, %d bytes, mode %s: %s", b.Addr, b.Len, b.Mode, fmt.Sprintf(format, args...))
	}
	switch b.Mode {
	case ModeWrite, ModeAccess:
	case ModeRead:
		if arch == "amd64" {
			return fail("x86 cannot watch reads alone; rw sees reads and writes")
		}
	case ModeExecute:
		if arch == "arm64" && b.Addr%4 != 0 {
			return fail("instructions are at multiples of 4")
		}
		return nil
	default:
		return fail("no such mode")
	}
	if arch == "arm64" {
		if b.Len < 1 || b.Addr%8+b.Len > 8 {
			return fail("arm64 watches 1 to 8 bytes within an aligned 8")
		}
		return nil
	}
	switch b.Len {
	case 1, 2, 4, 8:
	default:
		return fail("x86 watches 1, 2, 4 or 8 bytes")
	}
	if b.Addr%b.Len != 0 {
		return fail("x86 wants an address that is a multiple of the length")
	}
	return nil
}

// Split covers an object of any size and alignment with as few debug registers as possible.
func Split(arch string, addr, size uint64, mode Mode) []Break {
	if mode == ModeExecute {
		return []Break{{Addr: addr, Mode: mode}}
	}
	var list []Break
	for end := addr + size; addr < end && len(list) <= MaxSplit; {
		n := min(end-addr, 8-addr%8)
		if arch != "arm64" {
			for n&(n-1) != 0 || addr%n != 0 {
				n--
			}
		}
		list = append(list, Break{addr, n, mode})
		addr += n
	}
	return list
}

// MaxSplit bounds the pieces that Split makes: it stops one above, more than any processor has.
const MaxSplit = 16

// OpenFD opens an event without a ring, for a BPF program to run at each hit (PERF_EVENT_IOC_SET_BPF): for the thread tid
// wherever it runs, with its heirs if s says so. The caller owns the descriptor.
func OpenFD(s *Spec, tid int) (int, error) {
	attr, err := s.Attr(runtime.GOARCH)
	if err != nil {
		return -1, err
	}
	fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if errors.Is(err, unix.EINVAL) && attr.Bits&(bitInheritThread|bitRemoveOnExec) != 0 {
		// Before Linux 5.13 heirs are all children, and an event outlives the program it was meant for.
		attr.Bits &^= bitInheritThread | bitRemoveOnExec
		fd, err = unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	}
	if err != nil {
		return -1, openError(s, tid, -1, err)
	}
	return fd, nil
}

// FreeSlots counts the debug registers that are free for a mode: it opens breakpoints on memory of its own, which do not
// count anything, until there are no more. x86 uses the same four for all modes, arm64 has others for execution.
func FreeSlots(mode Mode) (int, error) {
	word := new(uint64)
	s := Spec{Kind: KindBreak, Break: Break{uint64(uintptr(unsafe.Pointer(word))), 8, mode}, Disabled: true}
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
		runtime.KeepAlive(word)
	}()
	for len(fds) < 2*MaxSplit {
		fd, err := OpenFD(&s, 0)
		if errors.Is(err, ErrSlots) {
			break
		}
		if err != nil {
			return 0, err
		}
		fds = append(fds, fd)
	}
	return len(fds), nil
}
