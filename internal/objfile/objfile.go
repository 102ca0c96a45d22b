// Package objfile is an ELF file seen once: its identity, segments, symbols, sections and debug data. It reads files that a
// traced program controls; everything is bounded by the size of the file, and a lying header gives an error.
//
// It does not interpret debug data or instructions. A File is safe for concurrent use once it is open.
package objfile

import (
	"bytes"
	"cmp"
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// ID names the contents of a file on this machine: a file that was replaced has another one.
type ID struct {
	Dev, Ino uint64
	Size     int64
	Mtime    int64 // ns since the epoch
}

// File is one ELF file.
type File struct {
	ELF  *elf.File
	Path string // as it was opened
	ID   ID     // zero for a file that was not opened by path
	Size int64

	r     io.ReaderAt
	close func() error

	buildID func() []byte
	symbols func() []Symbol
	dwarf   func() (*dwarf.Data, error)
	debug   func() (*File, error)
	mini    func() *File
	funcs   func() *Funcs
	stubs   func() []Stub
	opt     Options
}

// Options say where debug files are. The zero value means the places of the distribution.
type Options struct {
	// DebugDirs are searched first, in order: for .build-id/xx/yyyy.debug, for the name of the debug link, and for the file's
	// own name with and without .debug.
	DebugDirs []string
	// Root is the root directory of the process that has the file mapped, as /proc/PID/root; its places are searched before
	// ours.
	Root string
	// RealPath is where the file stands, when it was opened by another way: debug files are searched from there.
	RealPath string
	// Fetch gives the path of the debug file of a build-id, in hexadecimal, when no directory has it. It may take long. nil: nobody
	// is asked.
	Fetch func(buildID string) (path string, err error)
}

// Symbol is a name of an address.
type Symbol struct {
	Name    string
	Version string // of the symbol, without @; empty when it has none
	Addr    uint64 // as the file numbers addresses; the load bias is to be added
	Size    uint64
	Type    elf.SymType
	Bind    elf.SymBind
	Dynamic bool // it is in .dynsym
	Hidden  bool // its version is not the one that new programs get: name@version, not name@@version
}

// ErrNotELF says that a file is no ELF file.
var ErrNotELF = errors.New("not an ELF file")

// maxSection bounds what one section may take in memory.
const maxSection = 1 << 30

// Open opens the ELF file at path.
func Open(path string) (*File, error) { return OpenWithOptions(path, Options{}) }

// OpenWithOptions is [Open] with other places of debug files.
func OpenWithOptions(path string, opt Options) (*File, error) {
	f, id, err := openFile(path)
	if err != nil {
		return nil, err
	}
	o, err := New(f, id.Size, path)
	if err != nil {
		f.Close()
		return nil, err
	}
	o.ID, o.close, o.opt = id, f.Close, opt
	return o, nil
}

// OpenMember opens the ELF file of size bytes that begins at an offset of the file at path, as libraries in archives do.
func OpenMember(path string, off, size int64, opt Options) (*File, error) {
	f, id, err := openFile(path)
	if err != nil {
		return nil, err
	}
	if off < 0 || size < 0 || off > id.Size || size > id.Size-off {
		f.Close()
		return nil, fmt.Errorf("%s: %d bytes at %d lie outside the file", path, size, off)
	}
	o, err := New(io.NewSectionReader(f, off, size), size, path)
	if err != nil {
		f.Close()
		return nil, err
	}
	o.ID, o.close, o.opt = id, f.Close, opt
	return o, nil
}

// openFile opens a regular file.
func openFile(path string) (*os.File, ID, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe in the place of a file must not stop us
	if err != nil {
		return nil, ID{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		f.Close()
		return nil, ID{}, fmt.Errorf("%s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		f.Close()
		return nil, ID{}, fmt.Errorf("%s: not a regular file", path)
	}
	return f, ID{Dev: uint64(st.Dev), Ino: st.Ino, Size: st.Size, Mtime: st.Mtim.Nano()}, nil
}

// New reads an ELF file of the given size from r; path is what errors call it. Closing the file does not close r.
func New(r io.ReaderAt, size int64, path string) (*File, error) {
	var magic [4]byte
	if _, err := r.ReadAt(magic[:], 0); err != nil || string(magic[:]) != elf.ELFMAG {
		return nil, fmt.Errorf("%s: %w", path, ErrNotELF)
	}
	e, err := elf.NewFile(io.NewSectionReader(r, 0, size))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := &File{ELF: e, Path: path, Size: size, r: r}
	f.buildID = sync.OnceValue(f.readBuildID)
	f.symbols = sync.OnceValue(f.readSymbols)
	f.dwarf = sync.OnceValues(f.readDWARF)
	f.debug = sync.OnceValues(f.openDebug)
	f.mini = sync.OnceValue(f.openMini)
	f.funcs = sync.OnceValue(f.readFuncs)
	f.stubs = sync.OnceValue(f.readStubs)
	return f, nil
}

// Close closes the file; what was read from it stays valid. A debug file that it led to stays open for its other users, and is
// closed when it is collected.
func (f *File) Close() error {
	if f.close == nil {
		return nil
	}
	return f.close()
}

// ReadAt reads the file's bytes.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.r.ReadAt(p, off) }

// Section returns the contents of the named section, decompressed; nil when the file has none of that name.
func (f *File) Section(name string) ([]byte, error) {
	s := f.ELF.Section(name)
	if s == nil || s.Type == elf.SHT_NOBITS {
		return nil, nil
	}
	return f.sectionData(s)
}

func (f *File) sectionData(s *elf.Section) ([]byte, error) {
	if s.FileSize > uint64(f.Size) || s.Size > maxSection {
		return nil, fmt.Errorf("%s: section %s: its size of %d bytes is impossible", f.Path, s.Name, s.Size)
	}
	b, err := s.Data()
	if err != nil {
		return nil, fmt.Errorf("%s: section %s: %w", f.Path, s.Name, err)
	}
	return b, nil
}

// Offset is where in the file the byte of address addr stands; ok is false when no segment takes it from the file.
func (f *File) Offset(addr uint64) (off uint64, ok bool) {
	for _, p := range f.ELF.Progs {
		if p.Type == elf.PT_LOAD && addr >= p.Vaddr && addr-p.Vaddr < p.Filesz {
			return addr - p.Vaddr + p.Off, true
		}
	}
	return 0, false
}

// Addr is the address of the byte at an offset of the file. Of several segments that hold it the executable one wins.
func (f *File) Addr(off uint64) (addr uint64, ok bool) {
	for _, p := range f.ELF.Progs {
		if p.Type == elf.PT_LOAD && off >= p.Off && off-p.Off < p.Filesz {
			if addr, ok = off-p.Off+p.Vaddr, true; p.Flags&elf.PF_X != 0 {
				return addr, true
			}
		}
	}
	return addr, ok
}

// InCode reports whether addr is in an executable segment.
func (f *File) InCode(addr uint64) bool {
	for _, p := range f.ELF.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && addr >= p.Vaddr && addr-p.Vaddr < p.Memsz {
			return true
		}
	}
	return false
}

// Executable reports whether the file is a program, not a library. A position-independent program asks for an interpreter
// or is marked as one (DF_1_PIE).
func (f *File) Executable() bool {
	if f.ELF.Type == elf.ET_EXEC {
		return true
	}
	if f.ELF.Type != elf.ET_DYN {
		return false
	}
	if flags, err := f.ELF.DynValue(elf.DT_FLAGS_1); err == nil && len(flags) > 0 && flags[0]&uint64(elf.DF_1_PIE) != 0 {
		return true
	}
	return slices.ContainsFunc(f.ELF.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// BuildID is the NT_GNU_BUILD_ID note; nil when there is none.
func (f *File) BuildID() []byte { return f.buildID() }

func (f *File) readBuildID() []byte {
	const ntGNUBuildID = 3 // elf.h
	for _, p := range f.ELF.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > 1<<20 {
			continue
		}
		b := make([]byte, p.Filesz)
		if _, err := p.ReadAt(b, 0); err != nil {
			continue
		}
		if id := note(b, f.ELF.ByteOrder, "GNU", ntGNUBuildID, int(p.Align)); id != nil {
			return id
		}
	}
	// Files without program headers, as those that hold debug data may be.
	if b, err := f.Section(".note.gnu.build-id"); err == nil {
		return note(b, f.ELF.ByteOrder, "GNU", ntGNUBuildID, 4)
	}
	return nil
}

// note finds the descriptor of a note, elf(5).
func note(b []byte, order binary.ByteOrder, name string, typ uint32, align int) []byte {
	if align != 8 {
		align = 4
	}
	up := func(n uint32) int { return (int(n) + align - 1) &^ (align - 1) }
	for len(b) >= 12 {
		nameSize, descSize, t := order.Uint32(b), order.Uint32(b[4:]), order.Uint32(b[8:])
		b = b[12:]
		if uint64(nameSize) > uint64(len(b)) || up(nameSize) > len(b) {
			return nil
		}
		n := bytes.TrimRight(b[:nameSize], "\x00")
		b = b[up(nameSize):]
		if uint64(descSize) > uint64(len(b)) {
			return nil
		}
		if t == typ && string(n) == name {
			return bytes.Clone(b[:descSize])
		}
		b = b[min(up(descSize), len(b)):]
	}
	return nil
}

// Symbols are the functions and objects of .symtab and .dynsym, sorted by address; one that is in both comes once, as the
// dynamic one. Undefined, file and section symbols are left out.
func (f *File) Symbols() []Symbol { return f.symbols() }

func (f *File) readSymbols() []Symbol {
	type key struct {
		name string
		addr uint64
	}
	var list []Symbol
	seen := make(map[key]bool)
	add := func(syms []elf.Symbol, dynamic bool) {
		for _, s := range syms {
			typ := elf.ST_TYPE(s.Info)
			if s.Section == elf.SHN_UNDEF || s.Name == "" || typ == elf.STT_FILE || typ == elf.STT_SECTION || seen[key{s.Name, s.Value}] {
				continue
			}
			seen[key{s.Name, s.Value}] = true
			list = append(list, Symbol{Name: s.Name, Version: s.Version, Addr: s.Value, Size: s.Size, Type: typ, Bind: elf.ST_BIND(s.Info), Dynamic: dynamic})
		}
	}
	// A file whose tables cannot be read has no names; its addresses still have offsets.
	if syms, err := f.ELF.DynamicSymbols(); err == nil {
		add(syms, true)
	}
	if syms, err := f.ELF.Symbols(); err == nil {
		add(syms, false)
	}
	slices.SortStableFunc(list, func(a, b Symbol) int { return cmp.Compare(a.Addr, b.Addr) })
	return list
}

// DWARF is the debug data of the file itself, or of its debug file.
func (f *File) DWARF() (*dwarf.Data, error) { return f.dwarf() }

// ErrNoDebug says that neither a file nor its debug file, if there is one, has DWARF data.
var ErrNoDebug = errors.New("no debug data")

func (f *File) readDWARF() (*dwarf.Data, error) {
	if f.hasDWARF() {
		d, err := f.ELF.DWARF()
		if err != nil {
			return nil, fmt.Errorf("%s: debug data: %w", f.Path, err)
		}
		return d, nil
	}
	d, err := f.Debug()
	if err != nil {
		return nil, err
	}
	if !d.hasDWARF() {
		return nil, fmt.Errorf("%s: %w", d.Path, ErrNoDebug)
	}
	return d.DWARF()
}

func (f *File) hasDWARF() bool {
	for _, name := range []string{".debug_info", ".zdebug_info"} {
		if s := f.ELF.Section(name); s != nil && s.Type != elf.SHT_NOBITS && s.Size > 0 {
			return true
		}
	}
	return false
}
