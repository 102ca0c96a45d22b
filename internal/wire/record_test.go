package wire

import (
	"encoding/binary"
	"testing"
)

func TestSegments(t *testing.T) {
	var b []byte
	add := func(addr uint64, n int32, flags uint16, data string) {
		b = binary.LittleEndian.AppendUint64(b, addr)
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
		b = binary.LittleEndian.AppendUint16(b, flags)
		b = binary.LittleEndian.AppendUint16(b, 0)
		b = append(b, data...)
		for len(b)&7 != 0 {
			b = append(b, 0)
		}
	}
	add(0x1000, 5, SegString, "hello")
	add(0x2000, -14, 0, "")
	add(0x3000, 8, SegCut, "12345678")
	var got []Segment
	for s := Segments(b); ; {
		seg, rest, ok := s.Next()
		if !ok {
			break
		}
		got, s = append(got, seg), rest
	}
	if len(got) != 3 || string(got[0].Data) != "hello" || got[0].Flags != SegString || got[1].Errno != 14 || got[1].Data != nil ||
		string(got[2].Data) != "12345678" || got[2].Addr != 0x3000 || got[2].Flags != SegCut {
		t.Errorf("%+v", got)
	}
	// Cut short, the last one is not there.
	for n := range len(b) {
		count := 0
		for s := Segments(b[:n]); ; count++ {
			_, rest, ok := s.Next()
			if !ok {
				break
			}
			s = rest
		}
		if want := map[bool]int{n >= 24: 1}[true] + map[bool]int{n >= 40: 1}[true] + map[bool]int{n >= 64: 1}[true]; count != want && n != 21 && n != 22 && n != 23 {
			t.Errorf("%d bytes hold %d segments, want %d", n, count, want)
		}
	}
}

// FuzzRecord reads whatever claims to be a record: recordings come from anywhere.
func FuzzRecord(f *testing.F) {
	for _, k := range []Kind{SysEnter, SysExit, Fork, Exec, Exit, Signal, Rename, 99} {
		r := make([]byte, 256)
		binary.LittleEndian.PutUint32(r, 256)
		r[OffKind] = byte(k)
		f.Add(r)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := Record(b)
		if !r.Valid() {
			return
		}
		_, _, _, _ = r.Flags(), r.Time(), r.Tid(), r.Seq()
		if k := r.Kind(); k != SysEnter && k != SysExit {
			if n := LifeSize(k); n > len(r.Body()) {
				t.Errorf("a valid record of kind %d has %d bytes of body, not %d", k, len(r.Body()), n)
			}
			return
		}
		r.Args()
		left := len(b)
		for s := r.Segments(); ; {
			seg, rest, ok := s.Next()
			if !ok {
				break
			}
			if len(rest) >= left || len(seg.Data) > left {
				t.Fatal("a segment does not get smaller")
			}
			left, s = len(rest), rest
		}
	})
}
