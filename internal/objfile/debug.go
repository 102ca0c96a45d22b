package objfile

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// debugRoot is where distributions keep separate debug files; gdb's default debug-file-directory.
const debugRoot = "/usr/lib/debug"

// MismatchError says that a debug file belongs to another build.
type MismatchError struct {
	Path     string // the debug file
	Of       string // the file it was found for
	Have     string // the build-id, or the checksum, of the debug file
	Expected string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s is not the debug file of %s: build-id differs (%s, and %s is expected)", e.Path, e.Of, e.Have, e.Expected)
}

// Debug is the file that has the debug data: f itself; else the one that its build-id or its .gnu_debuglink names (gdb's
// manual, "Separate Debug Files") below the directories of Options, those of the root of its process, and ours. It has DWARF
// data or at least a symbol table. The error is ErrNoDebug when there is none, and a *MismatchError when there is only one of
// another build.
func (f *File) Debug() (*File, error) { return f.debug() }

func (f *File) openDebug() (*File, error) {
	if f.hasDWARF() {
		return f, nil
	}
	var wrong error
	for _, c := range f.debugCandidates() {
		if same(c.path, f.Path) {
			continue
		}
		d, err := f.debugFile(c.path, c.crc)
		if err == nil {
			return d, nil
		}
		wrong = mismatch(wrong, err)
	}
	if id := f.BuildID(); id != nil && f.opt.Fetch != nil {
		if path, err := f.opt.Fetch(hex.EncodeToString(id)); err == nil {
			d, err := f.debugFile(path, nil)
			if err == nil {
				return d, nil
			}
			wrong = mismatch(wrong, err)
		}
	}
	if wrong != nil {
		return nil, wrong
	}
	return nil, fmt.Errorf("%s: %w", f.Path, ErrNoDebug)
}

type candidate struct {
	path string
	crc  *uint32 // of the debug link
}

func (f *File) debugCandidates() (list []candidate) {
	id := f.BuildID()
	byID := ""
	if len(id) >= 2 {
		byID = filepath.Join(hex.EncodeToString(id[:1]), hex.EncodeToString(id[1:])+".debug")
	}
	link, sum, linked := f.debugLink()
	dir, base := "", ""
	if path := cmp.Or(f.opt.RealPath, f.Path); path != "" {
		if abs, err := filepath.Abs(path); err == nil {
			dir, base = filepath.Split(abs)
		}
	}
	inRoot := dir // the directory as the process calls it
	if f.opt.Root != "" {
		if rel, ok := strings.CutPrefix(dir, strings.TrimSuffix(f.opt.Root, "/")+"/"); ok {
			inRoot = "/" + rel
		}
	}
	add := func(crc *uint32, path ...string) { list = append(list, candidate{filepath.Join(path...), crc}) }
	for _, d := range f.opt.DebugDirs {
		if byID != "" {
			add(nil, d, ".build-id", byID)
			add(nil, d, byID)
		}
		if linked {
			add(&sum, d, inRoot, link)
			add(&sum, d, link)
		}
		if base != "" && byID != "" { // without an identity a name alone proves nothing
			add(nil, d, base+".debug")
			add(nil, d, base)
		}
	}
	roots := []string{debugRoot}
	if f.opt.Root != "" {
		roots = []string{filepath.Join(f.opt.Root, debugRoot), debugRoot}
	}
	for _, d := range roots {
		if byID != "" {
			add(nil, d, ".build-id", byID)
		}
	}
	if linked && dir != "" {
		add(&sum, dir, link)
		add(&sum, dir, ".debug", link)
		for _, d := range roots {
			add(&sum, d, inRoot, link)
		}
	}
	return list
}

func mismatch(have, err error) error {
	var m *MismatchError
	if have == nil && errors.As(err, &m) {
		return m
	}
	return have
}

func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// debugFile opens the debug file at path, if it is f's: by build-id, or by checksum when crc is given and one of them has
// no build-id.
func (f *File) debugFile(path string, crc *uint32) (*File, error) {
	d, err := OpenWithOptions(path, Options{DebugDirs: f.opt.DebugDirs, Root: f.opt.Root})
	if err != nil {
		return nil, err
	}
	have, want := d.BuildID(), f.BuildID()
	switch {
	case have != nil && want != nil:
		if !bytes.Equal(have, want) {
			d.Close()
			return nil, &MismatchError{path, f.Path, hex.EncodeToString(have), hex.EncodeToString(want)}
		}
	case crc == nil:
		d.Close()
		return nil, fmt.Errorf("%s: no build-id that says what it belongs to: %w", path, ErrNoDebug)
	default:
		h := crc32.NewIEEE()
		if _, err := io.Copy(h, io.NewSectionReader(d, 0, d.Size)); err != nil {
			d.Close()
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if h.Sum32() != *crc {
			d.Close()
			return nil, &MismatchError{path, f.Path, fmt.Sprintf("checksum %08x", h.Sum32()), fmt.Sprintf("checksum %08x", *crc)}
		}
	}
	if _, ok := newSymtab(d, elf.SHT_SYMTAB); !ok && !d.hasDWARF() {
		d.Close()
		return nil, fmt.Errorf("%s: %w", path, ErrNoDebug)
	}
	return d, nil
}

// Shared is the file of debug data that f shares with others, which dwz(1) made and .gnu_debugaltlink names; nil when f has no such
// link or the file is not here.
func (f *File) Shared() *File {
	b, err := f.Section(".gnu_debugaltlink")
	name, id, ok := bytes.Cut(b, []byte{0})
	if err != nil || !ok || len(name) == 0 || len(name) > 4096 || len(id) < 2 || len(id) > 64 {
		return nil
	}
	path := string(name)
	if !filepath.IsAbs(path) {
		real, err := filepath.EvalSymlinks(f.Path) // build-id directories hold links
		if err != nil {
			real = f.Path
		}
		path = filepath.Join(filepath.Dir(real), path)
	}
	paths := []string{path}
	byID := filepath.Join(".build-id", hex.EncodeToString(id[:1]), hex.EncodeToString(id[1:])+".debug")
	for _, d := range append(f.opt.DebugDirs[:len(f.opt.DebugDirs):len(f.opt.DebugDirs)], filepath.Join(f.opt.Root, debugRoot), debugRoot) {
		paths = append(paths, filepath.Join(d, byID))
	}
	if f.opt.Root != "" {
		paths = append(paths, filepath.Join(f.opt.Root, path))
	}
	for _, p := range paths {
		if d, err := Open(p); err == nil {
			if bytes.Equal(d.BuildID(), id) {
				return d
			}
			d.Close()
		}
	}
	return nil
}

// debugLink reads .gnu_debuglink: a file name, padded to four bytes, and the CRC-32 of that file.
func (f *File) debugLink() (name string, crc uint32, ok bool) {
	b, err := f.Section(".gnu_debuglink")
	if err != nil || len(b) > 4096 {
		return "", 0, false
	}
	end := bytes.IndexByte(b, 0)
	at := (end + 4) &^ 3
	if end <= 0 || at+4 > len(b) || bytes.IndexByte(b[:end], '/') >= 0 {
		return "", 0, false
	}
	return string(b[:end]), f.ELF.ByteOrder.Uint32(b[at:]), true
}
