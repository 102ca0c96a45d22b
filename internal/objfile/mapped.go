package objfile

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/klauspost/compress/zlib"
	"golang.org/x/sys/unix"
)

// Mapped is the contents of a section, mapped from the file where it is not compressed. The bytes are valid while the Mapped is
// reachable, also after the file is closed. Reading them can fault when somebody cuts the file: do it below [Guard].
type Mapped struct {
	b    []byte
	heap int    // of it in our memory
	all  []byte // the mapping, from a page's begin on; nil when b is in our memory
}

// Bytes is the contents; use it while m is reachable (runtime.KeepAlive).
func (m *Mapped) Bytes() []byte {
	if m == nil {
		return nil
	}
	return m.b
}

// Heap is how many bytes are in our memory, not mapped.
func (m *Mapped) Heap() int {
	if m == nil {
		return 0
	}
	return m.heap
}

// Release gives the pages that were read back to the system; reading them again costs a fault.
func (m *Mapped) Release() {
	if m != nil && m.all != nil {
		unix.Madvise(m.all, unix.MADV_DONTNEED) // at worst the pages stay
	}
}

// Map gives the contents of the named section, nil when there is none.
func (f *File) Map(name string) (*Mapped, error) {
	s := f.ELF.Section(name)
	if s == nil || s.Type == elf.SHT_NOBITS {
		return nil, nil
	}
	if s.Flags&elf.SHF_COMPRESSED != 0 && s.Size > spillFrom && s.Size <= maxSection && s.FileSize <= uint64(f.Size) {
		if m, err := f.inflate(s); err == nil {
			return m, nil
		}
	}
	file, ok := f.r.(*os.File)
	if !ok || s.Flags&elf.SHF_COMPRESSED != 0 || len(name) > 8 && name[:8] == ".zdebug_" || s.FileSize < 64<<10 {
		b, err := f.sectionData(s)
		return &Mapped{b: b, heap: len(b)}, err
	}
	if s.Offset > uint64(f.Size) || s.FileSize > uint64(f.Size)-s.Offset {
		return nil, fmt.Errorf("%s: section %s lies outside the file", f.Path, name)
	}
	page := uint64(os.Getpagesize())
	start := s.Offset &^ (page - 1)
	b, err := unix.Mmap(int(file.Fd()), int64(start), int(s.Offset-start+s.FileSize), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s: mapping section %s: %w", f.Path, name, err)
	}
	m := &Mapped{b: b[s.Offset-start:], all: b}
	runtime.AddCleanup(m, func(b []byte) { unix.Munmap(b) }, b)
	return m, nil
}

// spillFrom is the size from which contents that are compressed go to a file without a name instead of our memory.
const spillFrom = 16 << 20

// inflate decompresses a section into a file without a name.
func (f *File) inflate(s *elf.Section) (*Mapped, error) {
	var spill *os.File
	for _, dir := range []string{"/var/tmp", os.TempDir()} { // the second may be in memory
		fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err == nil {
			spill = os.NewFile(uintptr(fd), dir)
			break
		}
	}
	if spill == nil {
		return nil, errors.New("no directory for temporary files")
	}
	defer spill.Close()
	in, err := f.inflater(s)
	if err != nil {
		return nil, err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{spill}, io.LimitReader(in, int64(s.Size)), make([]byte, 256<<10))
	if err != nil || n == 0 {
		return nil, fmt.Errorf("%s: section %s: decompressing: %w", f.Path, s.Name, err)
	}
	b, err := unix.Mmap(int(spill.Fd()), 0, int(n), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	m := &Mapped{b: b, all: b}
	runtime.AddCleanup(m, func(b []byte) { unix.Munmap(b) }, b)
	return m, nil
}

// inflater reads the contents of a section that is compressed, Elf64_Chdr of elf(5).
func (f *File) inflater(s *elf.Section) (io.Reader, error) {
	r := io.NewSectionReader(f.r, int64(s.Offset), int64(s.FileSize))
	head := make([]byte, 24)
	if f.ELF.Class == elf.ELFCLASS32 {
		head = head[:12]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	if elf.CompressionType(f.ELF.ByteOrder.Uint32(head)) == elf.COMPRESS_ZLIB {
		return zlib.NewReader(bufio.NewReaderSize(r, 256<<10))
	}
	return s.Open(), nil
}

// ErrCut says that a file became shorter while it was read.
var ErrCut = errors.New("the file was cut short while it was read")

// Guard runs fn, and makes a fault in the bytes of a Mapped an error.
func Guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if fault, ok := r.(interface {
			error
			Addr() uintptr
		}); ok {
			err = fmt.Errorf("%w: %w", ErrCut, fault)
			return
		}
		panic(r)
	}()
	return fn()
}
