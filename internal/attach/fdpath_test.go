package attach

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/kerneltest"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// TestDescriptors compares what the kernel programs say of descriptors with what /proc/PID/fd says.
func TestDescriptors(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.BTF)
	dir := t.TempDir()
	var fds []int
	add := func(fd int, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
		t.Cleanup(func() { unix.Close(fd) })
	}
	open := func(path string, flags int) {
		t.Helper()
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
		add(fd, err)
	}
	open(filepath.Join(dir, "file"), unix.O_CREAT|unix.O_RDWR)
	open(filepath.Join(dir, "gone"), unix.O_CREAT|unix.O_RDWR)
	os.Remove(filepath.Join(dir, "gone"))
	open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	open("/", unix.O_RDONLY|unix.O_DIRECTORY)
	open("/proc/self/status", unix.O_RDONLY)
	open("/dev/null", unix.O_RDWR)
	deep := dir
	for i := range 20 {
		deep = filepath.Join(deep, fmt.Sprintf("level%d-%s", i, strings.Repeat("x", i)))
	}
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	open(deep, unix.O_PATH)
	long := filepath.Join(dir, strings.Repeat("n", 255))
	open(long, unix.O_CREAT|unix.O_RDWR)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	add(pipe[0], nil)
	add(pipe[1], nil)
	add(unix.Eventfd(0, unix.EFD_CLOEXEC))
	add(unix.EpollCreate1(unix.EPOLL_CLOEXEC))
	add(unix.MemfdCreate("some memory", unix.MFD_CLOEXEC))
	add(unix.PidfdOpen(os.Getpid(), 0))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fds = append(fds, int(f.Fd()))
	for i := 0; i < len(fds); i += 3 {
		var args []uintptr
		var want []string
		for _, fd := range fds[i:min(i+3, len(fds))] {
			args = append(args, uintptr(fd))
			link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			if err != nil {
				t.Fatal(err)
			}
			if link == "/dev/null" {
				link += "\x00c\x03\x00\x10\x00" // character device 1:3
			}
			want = append(want, link)
		}
		enter, _ := call(t, SyscallOptions{FDPaths: true, Calls: []SyscallPlan{{FDs: 1<<len(args) - 1}}}, args...)
		segs := segments(enter)
		if len(segs) != len(args) {
			t.Errorf("%d segments for %q", len(segs), want)
			continue
		}
		for j, s := range segs {
			if s.Flags != wire.SegFD || s.Addr != uint64(args[j]) || string(s.Data) != want[j] {
				t.Errorf("descriptor %d is %q, flags %#x; want %q", s.Addr, s.Data, s.Flags, want[j])
			}
		}
	}
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	enter, exit := call(t, SyscallOptions{FDPaths: true, Calls: []SyscallPlan{{FDs: 7, RetFD: true}}}, ^uintptr(99), 12345678, ^uintptr(0))
	if s := segments(enter); len(s) != 1 || string(s[0].Data) != cwd || int32(s[0].Addr) != unix.AT_FDCWD {
		t.Errorf("AT_FDCWD, a closed and a negative descriptor: %v; want %q alone", s, cwd)
	}
	if s := segments(exit); len(s) != 0 {
		t.Errorf("getppid returned the descriptor %v", s)
	}
}

// TestDescriptorsInMemory: descriptors in structures are named like those in registers, and only when that is asked for.
func TestDescriptorsInMemory(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.BTF)
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	// The stacks of goroutines move, this does not.
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page)
	mem := unsafe.Slice((*int32)(unsafe.Pointer(&page[0])), 3)
	mem[0], mem[1], mem[2] = 7, int32(null), -1
	plan := SyscallPlan{Enter: []syscalls.Fetch{syscalls.Fixed(0, 12), syscalls.Descriptor(syscalls.Mem(0, 4, 4)), syscalls.Descriptor(syscalls.Mem(0, 8, 4))}}
	for _, paths := range []bool{true, false} {
		enter, _ := call(t, SyscallOptions{FDPaths: paths, Calls: []SyscallPlan{plan}}, uintptr(unsafe.Pointer(&mem[0])))
		var names []string
		for _, s := range segments(enter) {
			if s.Flags&wire.SegFD != 0 {
				names = append(names, fmt.Sprintf("%d %q", int32(s.Addr), s.Data))
			}
		}
		want := []string{fmt.Sprintf("%d %q", null, "/dev/null\x00c\x03\x00\x10\x00")}
		if !paths {
			want = nil
		}
		if !slices.Equal(names, want) {
			t.Errorf("paths %t: %q, want %q", paths, names, want)
		}
	}
}
