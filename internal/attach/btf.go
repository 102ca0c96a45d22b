package attach

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// btfPath is where the kernel offers its own types (CONFIG_DEBUG_INFO_BTF).
const btfPath = "/sys/kernel/btf/vmlinux"

// Layout of BTF: Documentation/bpf/btf.rst, include/uapi/linux/btf.h.
const (
	btfMagic      = 0xeb9f
	btfHeaderSize = 24
	btfTypeSize   = 12

	btfInt       = 1
	btfPtr       = 2
	btfArray     = 3
	btfStruct    = 4
	btfUnion     = 5
	btfEnum      = 6
	btfFwd       = 7
	btfTypedef   = 8
	btfVolatile  = 9
	btfConst     = 10
	btfRestrict  = 11
	btfFunc      = 12
	btfFuncProto = 13
	btfVar       = 14
	btfDatasec   = 15
	btfFloat     = 16
	btfDeclTag   = 17
	btfTypeTag   = 18
	btfEnum64    = 19
)

// btfTail is the size of what follows a type's fixed part: per kind, once and per element.
var btfTail = [...]struct{ once, each int }{
	btfInt: {once: 4}, btfArray: {once: 12}, btfStruct: {each: 12}, btfUnion: {each: 12}, btfEnum: {each: 8},
	btfFuncProto: {each: 8}, btfVar: {once: 4}, btfDatasec: {each: 12}, btfDeclTag: {once: 4}, btfEnum64: {each: 12},
}

// A btfScan finds members of structures in raw BTF. It reads the types once, in order and only as far as it must, and keeps no tree:
// loading the whole kernel's types costs as much as a whole short trace, and what is asked for stands near the front.
type btfScan struct {
	types, strings []byte
	sparse         []uint32          // offset in types of every btfStride-th type, of those read so far
	count          int               // number of types read so far
	end            int               // where the first type stands that was not read
	wanted         map[uint32]string // structures to find, by offset of the name
	found          map[string]uint32 // offset of structures that were asked for
}

// btfStride keeps the index small: touching memory for it costs more than walking over a few types.
const btfStride = 64

var errBTF = errors.New("malformed BTF")

// scanBTF finds the named structures in raw BTF, little-endian.
func scanBTF(raw []byte, structures ...string) (*btfScan, error) {
	if len(raw) < btfHeaderSize || binary.LittleEndian.Uint16(raw) != btfMagic {
		return nil, fmt.Errorf("%w: no header", errBTF)
	}
	u32 := func(off int) uint64 { return uint64(binary.LittleEndian.Uint32(raw[off:])) }
	hdr, n := u32(4), uint64(len(raw))
	types, typesEnd := hdr+u32(8), hdr+u32(8)+u32(12)
	strs, strsEnd := hdr+u32(16), hdr+u32(16)+u32(20)
	if typesEnd > n || strsEnd > n {
		return nil, fmt.Errorf("%w: a section ends behind the data", errBTF)
	}
	s := &btfScan{types: raw[types:typesEnd], strings: raw[strs:strsEnd], found: make(map[string]uint32)}
	s.wanted = make(map[uint32]string, len(structures))
	for _, name := range structures {
		if at, ok := s.name(name); ok {
			s.wanted[at] = name
		}
	}
	for len(s.found) < len(s.wanted) {
		if more, err := s.read(); err != nil {
			return nil, err
		} else if !more {
			break
		}
	}
	return s, nil
}

// read reads one type more; more is false behind the last.
func (s *btfScan) read() (more bool, err error) {
	off := s.end
	if off >= len(s.types) {
		return false, nil
	}
	if len(s.types)-off < btfTypeSize {
		return false, fmt.Errorf("%w: type %d is cut", errBTF, s.count+1)
	}
	kind := binary.LittleEndian.Uint32(s.types[off+4:]) >> 24 & 0x1f
	if kind == 0 || kind > btfEnum64 {
		return false, fmt.Errorf("%w: type %d is of kind %d", errBTF, s.count+1, kind)
	}
	if s.end = s.next(off); s.end > len(s.types) {
		s.end = len(s.types)
		return false, fmt.Errorf("%w: type %d is cut", errBTF, s.count+1)
	}
	if s.count%btfStride == 0 {
		s.sparse = append(s.sparse, uint32(off))
	}
	s.count++
	if kind == btfStruct {
		if name, ok := s.wanted[binary.LittleEndian.Uint32(s.types[off:])]; ok {
			if _, again := s.found[name]; !again {
				s.found[name] = uint32(off)
			}
		}
	}
	return true, nil
}

// name returns the offset of a name in the strings; names are stored once.
func (s *btfScan) name(name string) (uint32, bool) {
	i := bytes.Index(s.strings, []byte("\x00"+name+"\x00"))
	return uint32(i + 1), i >= 0
}

// next is the offset of the type behind the one at off, whose kind is known.
func (s *btfScan) next(off int) int {
	info := binary.LittleEndian.Uint32(s.types[off+4:])
	if kind := int(info >> 24 & 0x1f); kind < len(btfTail) {
		off += btfTail[kind].once + btfTail[kind].each*int(info&0xffff)
	}
	return off + btfTypeSize
}

// offset is where type id stands; ok is false for one that does not exist.
func (s *btfScan) offset(id uint32) (off int, ok bool) {
	if id == 0 {
		return 0, false
	}
	for int64(id) > int64(s.count) {
		if more, err := s.read(); !more || err != nil {
			return 0, false
		}
	}
	off = int(s.sparse[(id-1)/btfStride])
	for range (id - 1) % btfStride {
		off = s.next(off)
	}
	return off, true
}

// resolve goes from a type through its other names and qualifiers to the structure or union that it is.
func (s *btfScan) resolve(id uint32) (off int, ok bool) {
	for range 16 {
		off, ok := s.offset(id)
		if !ok {
			return 0, false
		}
		switch s.types[off+7] & 0x1f {
		case btfStruct, btfUnion:
			return off, true
		case btfTypedef, btfVolatile, btfConst, btfTypeTag:
			id = binary.LittleEndian.Uint32(s.types[off+8:])
		default:
			return 0, false
		}
	}
	return 0, false
}

// member returns the offset in bytes of a member of a structure, also of one inside anonymous members; a.b is a member of a
// member.
func (s *btfScan) member(structure, member string) (int, error) {
	at, ok := s.found[structure]
	if !ok {
		return 0, fmt.Errorf("the kernel's BTF has no struct %s", structure)
	}
	bits, off := uint32(0), int(at)
	names := strings.Split(member, ".")
	for i, name := range names {
		want, ok := s.name(name)
		if !ok {
			break
		}
		b, typ, found := s.find(off, want, 0)
		if !found {
			break
		}
		if bits += b; i == len(names)-1 {
			return int(bits / 8), nil
		}
		if off, ok = s.resolve(typ); !ok {
			break
		}
	}
	return 0, fmt.Errorf("struct %s of the kernel's BTF has no member %s", structure, member)
}

// find looks in the structure at off for a member by the offset of its name; depth bounds malformed cycles of anonymous members.
func (s *btfScan) find(off int, name uint32, depth int) (bits, typ uint32, ok bool) {
	if depth > 8 {
		return 0, 0, false
	}
	info := binary.LittleEndian.Uint32(s.types[off+4:])
	if kind := info >> 24 & 0x1f; kind != btfStruct && kind != btfUnion {
		return 0, 0, false
	}
	for i := range int(info & 0xffff) {
		m := s.types[off+btfTypeSize+12*i:]
		at := binary.LittleEndian.Uint32(m[8:])
		if info>>31 != 0 {
			at &= 0xffffff // the upper byte is the size of a bit field
		}
		switch binary.LittleEndian.Uint32(m) {
		case name:
			return at, binary.LittleEndian.Uint32(m[4:]), true
		case 0:
			if in, ok := s.offset(binary.LittleEndian.Uint32(m[4:])); ok {
				if inner, typ, ok := s.find(in, name, depth+1); ok {
					return at + inner, typ, true
				}
			}
		}
	}
	return 0, 0, false
}

// mapBTF returns the kernel's raw BTF outside of the Go heap, and what gives it back.
func mapBTF(path string) ([]byte, func(), error) {
	f, err := os.Open(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil, fmt.Errorf("reading the kernel's types: %s does not exist: this kernel is built without BTF (CONFIG_DEBUG_INFO_BTF), which tracing needs: %w", path, err)
		}
		return nil, nil, fmt.Errorf("reading the kernel's types: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the kernel's types: %w", err)
	}
	size := int(st.Size())
	if size <= 0 || size > 256<<20 {
		return nil, nil, fmt.Errorf("reading the kernel's types: %s has the size %d", path, size)
	}
	// Linux 6.16 and later map the file itself.
	if b, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_PRIVATE); err == nil {
		return b, func() { unix.Munmap(b) }, nil
	}
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the kernel's types: %w", err)
	}
	if _, err := io.ReadFull(f, b); err != nil {
		unix.Munmap(b)
		return nil, nil, fmt.Errorf("reading the kernel's types from %s: %w", path, err)
	}
	return b, func() { unix.Munmap(b) }, nil
}
