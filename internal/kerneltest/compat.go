package kerneltest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
)

// exit42 is the machine code of exit(42) for the 32-bit ABI of each architecture.
var exit42 = map[string]struct {
	machine uint16
	flags   uint32
	code    []byte
}{
	// mov $1, %eax; mov $42, %ebx; int $0x80
	"amd64": {3, 0, []byte{0xb8, 1, 0, 0, 0, 0xbb, 42, 0, 0, 0, 0xcd, 0x80}},
	// mov r0, #42; mov r7, #1; svc #0
	"arm64": {40, 0x05000000, []byte{0x2a, 0x00, 0xa0, 0xe3, 0x01, 0x70, 0xa0, 0xe3, 0, 0, 0, 0xef}},
}

// runsCompat runs the smallest program of the 32-bit ABI.
func runsCompat() error {
	p, ok := exit42[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("%w: no 32-bit ABI known for %s", errMissing, runtime.GOARCH)
	}
	dir, err := os.MkdirTemp("", "sonde-compat-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "exit42")
	if err := os.WriteFile(path, elf32(p.machine, p.flags, p.code), 0o755); err != nil {
		return err
	}
	err = exec.Command(path).Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == 42:
		return nil
	case errors.Is(err, syscall.ENOEXEC), exit != nil:
		return fmt.Errorf("%w: a 32-bit program: %v", errMissing, err)
	}
	return fmt.Errorf("a 32-bit program ended with: %v", err)
}

// elf32 is a static executable: one header, one segment (System V ABI, chapters 4 and 5).
func elf32(machine uint16, flags uint32, code []byte) []byte {
	const base, head = 0x10000, 52 + 32
	var b bytes.Buffer
	put := func(v any) { binary.Write(&b, binary.LittleEndian, v) }
	b.WriteString("\x7fELF\x01\x01\x01")
	b.Write(make([]byte, 9))
	put([]uint16{2, machine})
	put([]uint32{1, base + head, 52, 0, flags})
	put([]uint16{52, 32, 1, 40, 0, 0})
	size := uint32(head + len(code))
	put([]uint32{1, 0, base, base, size, size, 5, 0x1000})
	b.Write(code)
	return b.Bytes()
}
