package attach

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The programs on raw tracepoints are loaded and attached by bpf(2) itself. A session has a dozen to two hundred of them, and the
// library's way, with its own tests of the kernel and several copies of each program, is most of the time that a short trace takes.
// Errors go through the library: it gets the verifier's log.

// A tracing is a loaded program on a raw tracepoint.
type tracing struct{ fd int }

// Commands and types of bpf(2), include/uapi/linux/bpf.h.
const (
	bpfProgLoad          = 5
	bpfObjGetInfoByFD    = 15
	bpfRawTracepointOpen = 17
	progRawTracepoint    = 17

	// progInfoSize is the size of struct bpf_prog_info since Linux 5.18.
	progInfoSize = 232
	// maxInterrupted bounds how often a load is tried again that a signal has interrupted.
	maxInterrupted = 30
)

var license = [...]byte{'D', 'u', 'a', 'l', ' ', 'B', 'S', 'D', '/', 'G', 'P', 'L', 0}

func bpf(cmd int, attr unsafe.Pointer, size uintptr) (int, error) {
	r, _, e := unix.Syscall(unix.SYS_BPF, uintptr(cmd), uintptr(attr), size)
	if e != 0 {
		return -1, e
	}
	return int(r), nil
}

// loadTracing loads the code of a program on raw tracepoints.
func loadTracing(name string, code []byte) (*tracing, error) {
	var attr struct {
		progType, count     uint32
		insns, license      unsafe.Pointer // as 64-bit words: this runs on 64-bit machines only
		logLevel, logSize   uint32
		logBuf              uint64
		kernVersion, flags  uint32
		name                [16]byte
		ifindex, attachType uint32
	}
	attr.progType, attr.count = progRawTracepoint, uint32(len(code)/8)
	attr.insns, attr.license = unsafe.Pointer(&code[0]), unsafe.Pointer(&license[0])
	copy(attr.name[:15], name)
	for i := 0; ; i++ {
		fd, err := bpf(bpfProgLoad, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
		if err == nil {
			return &tracing{fd}, nil
		}
		if !errors.Is(err, unix.EAGAIN) || i >= maxInterrupted {
			return nil, err
		}
	}
}

// attach attaches the program; the descriptor is the link.
func (t *tracing) attach(tracepoint string) (int, error) {
	var attr struct {
		name   unsafe.Pointer
		fd     uint32
		_      uint32
		cookie uint64
	}
	name := append([]byte(tracepoint), 0)
	attr.name, attr.fd = unsafe.Pointer(&name[0]), uint32(t.fd)
	return bpf(bpfRawTracepointOpen, unsafe.Pointer(&attr), unsafe.Offsetof(attr.cookie))
}

// A progInfo is what the kernel tells of a program; older kernels leave the later fields zero.
type progInfo struct {
	size          uint32 // bytes, translated
	runtime, runs uint64 // ns and count, while the kernel keeps statistics
	missed        uint64 // hits for which the kernel did not run the program, since Linux 5.12
	verified      uint32 // instructions that the verifier walked, since Linux 5.16
}

func (t *tracing) info() (i progInfo, err error) {
	var info [progInfoSize]byte
	attr := struct {
		fd, size uint32
		info     unsafe.Pointer
	}{uint32(t.fd), progInfoSize, unsafe.Pointer(&info)}
	_, err = bpf(bpfObjGetInfoByFD, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	i.size, i.verified = binary.LittleEndian.Uint32(info[20:]), binary.LittleEndian.Uint32(info[216:])
	i.runtime, i.runs, i.missed = binary.LittleEndian.Uint64(info[192:]), binary.LittleEndian.Uint64(info[200:]), binary.LittleEndian.Uint64(info[208:])
	return i, err
}

// missed is progInfo.missed, zero where the kernel does not tell.
func (t *tracing) missed() uint64 {
	i, _ := t.info()
	return i.missed
}

func (t *tracing) close() error { return unix.Close(t.fd) }
