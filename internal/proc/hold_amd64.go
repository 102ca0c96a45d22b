package proc

import "golang.org/x/sys/unix"

// trap is int3. The instruction pointer stands behind it then.
var trap = []byte{0xcc}

func rewind(pid int, entry uint64) error {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(pid, &r); err != nil {
		return err
	}
	r.Rip = entry
	return unix.PtraceSetRegs(pid, &r)
}
