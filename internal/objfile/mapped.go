package objfile

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

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
