package objfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/ulikunitz/xz/lzma"
)

// Bounds of .gnu_debugdata. Fedora's largest hold some 20 MiB of symbols, and xz -9 has a dictionary of 64 MiB.
const (
	maxMiniDebug     = 128 << 20
	maxMiniDebugDict = 64 << 20
)

// MiniDebug is the ELF file in .gnu_debugdata, which has the symbols that the dynamic table lacks (gdb's manual,
// "MiniDebugInfo"); nil when there is none or it cannot be read.
func (f *File) MiniDebug() *File { return f.mini() }

func (f *File) openMini() *File {
	b, err := f.Section(".gnu_debugdata")
	if err != nil || len(b) == 0 {
		return nil
	}
	if b, err = unxz(b, maxMiniDebug); err != nil {
		return nil
	}
	m, err := New(bytes.NewReader(b), int64(len(b)), f.Path+" (.gnu_debugdata)")
	if err != nil {
		return nil
	}
	return m
}

var errXZ = errors.New("not an xz stream that can be read")

// unxz decompresses a stream of the .xz format (version 1.2.1, sections 2 and 3) with blocks of LZMA2. It takes the
// stream apart itself because the size of the dictionary, which the reader allocates, must be bounded for every block. More than most bytes of result
// are an error.
func unxz(in []byte, most int) ([]byte, error) {
	if len(in) < 24 || string(in[:6]) != "\xfd7zXZ\x00" {
		return nil, errXZ
	}
	checkSize := [16]int{1: 4, 2: 4, 3: 4, 4: 8, 5: 8, 6: 8, 7: 16, 8: 16, 9: 16, 10: 32, 11: 32, 12: 32, 13: 64, 14: 64, 15: 64}[in[7]&15]
	r := bytes.NewReader(in)
	pos := func() int { return len(in) - r.Len() }
	var out bytes.Buffer
	for at := 12; ; {
		if at >= len(in) {
			return nil, errXZ
		}
		if in[at] == 0 { // the index: no more blocks
			return out.Bytes(), nil
		}
		size := (int(in[at]) + 1) * 4
		if at+size > len(in) {
			return nil, errXZ
		}
		h := in[at : at+size]
		if crc32.ChecksumIEEE(h[:size-4]) != binary.LittleEndian.Uint32(h[size-4:]) || h[1]&0x3f != 0 {
			return nil, errXZ // damaged, or with more filters than one
		}
		flags, h := h[1], h[2:size-4]
		for _, bit := range []byte{0x40, 0x80} { // the sizes, which are optional
			if flags&bit != 0 {
				_, n := binary.Uvarint(h)
				if n <= 0 {
					return nil, errXZ
				}
				h = h[n:]
			}
		}
		const lzma2 = 0x21
		if len(h) < 3 || h[0] != lzma2 || h[1] != 1 {
			return nil, errXZ
		}
		dict, err := lzma.DecodeDictCap(h[2])
		if err != nil || dict > maxMiniDebugDict {
			return nil, errXZ
		}
		if _, err := r.Seek(int64(at+size), io.SeekStart); err != nil {
			return nil, err
		}
		block, err := lzma.Reader2Config{DictCap: max(int(dict), lzma.MinDictCap)}.NewReader2(r)
		if err != nil {
			return nil, err
		}
		n, err := io.Copy(&out, io.LimitReader(block, int64(most-out.Len()+1)))
		if err != nil {
			return nil, err
		}
		if n == 0 && r.Len() == 0 || out.Len() > most {
			return nil, fmt.Errorf("%w: more than %d bytes", errXZ, most)
		}
		at = (pos()+3)&^3 + checkSize
	}
}
