package proc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// hold lets a child that was started with PTRACE_TRACEME, and stands at its exec, run to its program's entry point, where all
// libraries that it names are mapped; calls at; and lets it go. The calling thread must be the one that started it.
func hold(pid int, at func(pid uint32) error) (err error) {
	defer func() {
		if e := unix.PtraceDetach(pid); e != nil && err == nil && !errors.Is(e, unix.ESRCH) {
			err = fmt.Errorf("letting the command go: %w", e)
		}
	}()
	if err := stopped(pid); err != nil {
		return err
	}
	entry, err := entryPoint(pid)
	if err != nil {
		return err
	}
	old := make([]byte, len(trap))
	if _, err := unix.PtracePeekText(pid, uintptr(entry), old); err != nil {
		return fmt.Errorf("reading the entry point: %w", err)
	}
	if _, err := unix.PtracePokeText(pid, uintptr(entry), trap); err != nil {
		return fmt.Errorf("stopping at the entry point: %w", err)
	}
	if err := unix.PtraceCont(pid, 0); err != nil {
		return fmt.Errorf("running to the entry point: %w", err)
	}
	if err := stopped(pid); err != nil {
		return err
	}
	if _, err := unix.PtracePokeText(pid, uintptr(entry), old); err != nil {
		return fmt.Errorf("restoring the entry point: %w", err)
	}
	if err := rewind(pid, entry); err != nil {
		return fmt.Errorf("going back to the entry point: %w", err)
	}
	return at(uint32(pid))
}

// stopped waits for the stop of a trap.
func stopped(pid int) error {
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(pid, &ws, 0, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return fmt.Errorf("waiting for the command: %w", err)
		case ws.Stopped() && ws.StopSignal() == syscall.SIGTRAP:
			return nil
		case ws.Stopped():
			// A signal of somebody else: it is delivered.
			if err := unix.PtraceCont(pid, int(ws.StopSignal())); err != nil {
				return err
			}
		default:
			return fmt.Errorf("the command ended before its first instruction: %w", os.ErrProcessDone)
		}
	}
}

// entryPoint is where the program itself begins: AT_ENTRY of getauxval(3).
func entryPoint(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return 0, err
	}
	const atEntry = 9
	for ; len(b) >= 16; b = b[16:] {
		if binary.LittleEndian.Uint64(b) == atEntry {
			return binary.LittleEndian.Uint64(b[8:]), nil
		}
	}
	return 0, errors.New("the auxiliary vector has no entry point")
}
