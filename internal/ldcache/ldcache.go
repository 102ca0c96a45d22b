// Package ldcache reads /etc/ld.so.cache, where the dynamic linker of glibc looks up libraries by name. The layout is that of
// struct cache_file_new in glibc's sysdeps/generic/dl-cache.h. It reads files of other roots, which may hold anything.
package ldcache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// Entry is one library.
type Entry struct {
	Name  string // as DT_NEEDED names it: libc.so.6
	Path  string
	Flags int32  // of the ABI: dl-cache.h, FLAG_*
	HWCap uint64 // hardware that the library is built for; 0: any
}

// Flags of libraries for glibc's ABIs.
const (
	FlagELFLibc6  = 3
	FlagX8664     = 0x0300
	FlagX8664X32  = 0x0800
	FlagAArch64   = 0x0a00
	FlagARMHF     = 0x0900
	FlagsABI      = 0xff00
	magicNew      = "glibc-ld.so.cache1.1"
	magicOld      = "ld.so-1.7.0\x00"
	headerSize    = 48
	entrySize     = 24
	oldHeaderSize = 16
	oldEntrySize  = 12
	maxFile       = 64 << 20
)

// ErrFormat says that a file is no cache this package can read.
var ErrFormat = errors.New("not a library cache of glibc 2.2 or later")

// Read reads the cache at path.
func Read(path string) ([]Entry, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > maxFile {
		return nil, fmt.Errorf("%s: %d bytes are too much for a library cache", path, st.Size())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	list, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// Parse reads the bytes of a cache of this machine's byte order. Entries keep their order, in which the linker prefers them.
func Parse(b []byte) ([]Entry, error) {
	if bytes.HasPrefix(b, []byte(magicOld)) {
		// The old format comes first in the files of old systems, the new one behind it.
		if len(b) < oldHeaderSize {
			return nil, ErrFormat
		}
		n := uint64(binary.NativeEndian.Uint32(b[12:]))
		skip := (oldHeaderSize + n*oldEntrySize + 7) &^ 7
		if skip > uint64(len(b)) {
			return nil, ErrFormat
		}
		b = b[skip:]
	}
	if !bytes.HasPrefix(b, []byte(magicNew)) || len(b) < headerSize {
		return nil, ErrFormat
	}
	n := uint64(binary.NativeEndian.Uint32(b[20:]))
	if headerSize+n*entrySize > uint64(len(b)) {
		return nil, fmt.Errorf("%w: it says %d libraries and has %d bytes", ErrFormat, n, len(b))
	}
	text := func(off uint32) (string, bool) {
		if uint64(off) >= uint64(len(b)) {
			return "", false
		}
		s := b[off:]
		end := bytes.IndexByte(s[:min(len(s), 4096)], 0)
		if end < 0 {
			return "", false
		}
		return string(s[:end]), true
	}
	list := make([]Entry, 0, n)
	for i := range n {
		e := b[headerSize+i*entrySize:]
		name, ok1 := text(binary.NativeEndian.Uint32(e[4:]))
		path, ok2 := text(binary.NativeEndian.Uint32(e[8:]))
		if !ok1 || !ok2 {
			return nil, fmt.Errorf("%w: library %d has no name", ErrFormat, i)
		}
		list = append(list, Entry{Name: name, Path: path, Flags: int32(binary.NativeEndian.Uint32(e)), HWCap: binary.NativeEndian.Uint64(e[16:])})
	}
	return list, nil
}

// Native reports whether a library is for programs of the given Go architecture.
func (e *Entry) Native(arch string) bool {
	switch arch {
	case "amd64":
		return e.Flags&FlagsABI == FlagX8664
	case "arm64":
		return e.Flags&FlagsABI == FlagAArch64
	}
	return false
}
