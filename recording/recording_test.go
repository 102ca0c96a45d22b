package recording

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math/rand"
	"testing"
	"time"

	"github.com/sonde-trace/sonde/event"
)

// records returns n records of random sizes and content, 8-aligned, each starting with its size.
func records(rnd *rand.Rand, n int) []byte {
	var b []byte
	for range n {
		size := 48 + rnd.Intn(400)
		r := make([]byte, (size+7)&^7)
		rnd.Read(r[:size])
		binary.LittleEndian.PutUint32(r, uint32(size))
		b = append(b, r...)
	}
	return b
}

func header() *Header {
	return &Header{Created: time.Unix(1, 2).UTC(), Sonde: "test", Kernel: "6.18", Arch: "amd64", Command: []string{"a", "b"}, Session: json.RawMessage(`{"x":1}`)}
}

func write(t testing.TB, batches [][]byte, l *event.Ledger) []byte {
	t.Helper()
	var f bytes.Buffer
	w, err := NewWriter(&f, header())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range batches {
		if err := w.Batch(b); err != nil {
			t.Fatal(err)
		}
	}
	if l != nil {
		if err := w.Close(l); err != nil {
			t.Fatal(err)
		}
	} else if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return f.Bytes()
}

// read returns everything that Next delivers and the error that ended it.
func read(file []byte) (h Header, all []byte, l *event.Ledger, err error) {
	r, err := NewReader(bytes.NewReader(file))
	if err != nil {
		return h, nil, nil, err
	}
	defer r.Close()
	for {
		b, err := r.Next()
		if err != nil {
			return r.Header, all, r.Ledger, err
		}
		all = append(all, b...)
	}
}

func TestRoundTrip(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	var batches [][]byte
	var want []byte
	for i := range 50 {
		b := records(rnd, i*40)
		batches = append(batches, b)
		want = append(want, b...)
	}
	file := write(t, batches, &event.Ledger{Made: 7, Shown: 4, Filtered: 1, Lost: []event.Lost{{Cause: "ring full", Count: 2}}})
	h, got, l, err := read(file)
	if err != io.EOF {
		t.Fatalf("end: %v, want io.EOF", err)
	}
	if h.Kernel != "6.18" || string(h.Session) != `{"x":1}` || !h.Created.Equal(header().Created) {
		t.Errorf("header: %+v", h)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("read %d bytes of records, wrote %d, or they differ", len(got), len(want))
	}
	if l == nil || l.Made != 7 || !l.Balanced() {
		t.Errorf("ledger: %+v", l)
	}
}

// A file cut at any byte gives a prefix of the records, ends on a record boundary, and says that it is cut.
func TestCutAnywhere(t *testing.T) {
	rnd := rand.New(rand.NewSource(2))
	var batches [][]byte
	var all []byte
	for range 6 {
		b := records(rnd, 3000)
		batches = append(batches, b)
		all = append(all, b...)
	}
	file := write(t, batches, &event.Ledger{})
	for cut := 0; cut < len(file); cut += 1 + rnd.Intn(len(file)/300) {
		_, got, _, err := read(file[:cut])
		switch {
		case cut == 0:
			if !errors.Is(err, ErrForeign) {
				t.Fatalf("empty file: %v", err)
			}
			continue
		case err == io.EOF:
			// The ledger is there, only the index is missing: nothing of the session is lost.
			if !bytes.Equal(got, all) {
				t.Fatalf("cut at %d of %d: end without error, %d of %d bytes", cut, len(file), len(got), len(all))
			}
			continue
		case !errors.Is(err, ErrCut):
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if !bytes.HasPrefix(all, got) {
			t.Fatalf("cut at %d: what was read is not a prefix", cut)
		}
		if wholeRecords(got, len(got)) != len(got) {
			t.Fatalf("cut at %d: ends inside a record", cut)
		}
	}
}

func TestDamageIsFound(t *testing.T) {
	rnd := rand.New(rand.NewSource(3))
	b := records(rnd, 3000)
	file := write(t, [][]byte{b}, &event.Ledger{})
	for range 200 {
		f := bytes.Clone(file)
		i := len(magic) + 4 + rnd.Intn(len(f)-len(magic)-4)
		f[i] ^= byte(1 + rnd.Intn(255))
		_, got, _, err := read(f)
		if err == io.EOF && !bytes.Equal(got, b) && len(got) != 0 {
			t.Fatalf("byte %d flipped: wrong records and no error", i)
		}
		if !bytes.HasPrefix(b, got) {
			t.Fatalf("byte %d flipped: wrong records", i)
		}
	}
}

func TestForeignAndNewer(t *testing.T) {
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"text":  {[]byte("hello, world, this is not one"), ErrForeign},
		"elf":   {[]byte("\x7fELF\x02\x01\x01"), ErrForeign},
		"newer": {append([]byte(magic), 9, 0, 0, 0), ErrNewer},
		"short": {[]byte(magic), ErrCut},
	} {
		if _, _, _, err := read(c.file); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A chunk that claims more than the bounds is refused without the memory being taken.
func TestAbsurdSizes(t *testing.T) {
	file := write(t, nil, nil)
	file = binary.LittleEndian.AppendUint32(file, uint32(kindRecords))
	file = binary.LittleEndian.AppendUint32(file, 0xfffffff0)
	file = binary.LittleEndian.AppendUint32(file, 0xfffffff0)
	file = binary.LittleEndian.AppendUint32(file, 0)
	if _, _, _, err := read(file); !errors.Is(err, ErrCut) {
		t.Errorf("%v, want %v", err, ErrCut)
	}
}

type failing struct{ left int }

func (f *failing) Write(b []byte) (int, error) {
	if len(b) > f.left {
		n := f.left
		f.left = 0
		return n, errors.New("disk full")
	}
	f.left -= len(b)
	return len(b), nil
}

// Wherever the disk fills up, the writer says so, and keeps saying so.
func TestDiskFull(t *testing.T) {
	rnd := rand.New(rand.NewSource(4))
	b := records(rnd, 8000)
	whole := len(write(t, [][]byte{b}, &event.Ledger{}))
	for left := 0; left < whole; left += whole/50 + 1 {
		w, err := NewWriter(&failing{left}, header())
		if err != nil {
			continue
		}
		err = w.Batch(b)
		if err2 := w.Close(&event.Ledger{}); err2 == nil {
			t.Errorf("room for %d of %d bytes: Close succeeded (Batch: %v)", left, whole, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	rnd := rand.New(rand.NewSource(5))
	f.Add(write(f, [][]byte{records(rnd, 20)}, &event.Ledger{Made: 1, Shown: 1}))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, file []byte) {
		_, all, _, err := read(file)
		if err == nil {
			t.Fatal("no end")
		}
		if len(all) > 1<<30 {
			t.Fatal("unbounded")
		}
	})
}

func BenchmarkBatch(b *testing.B) {
	rnd := rand.New(rand.NewSource(6))
	recs := records(rnd, 4000)
	w, err := NewWriter(io.Discard, header())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(recs)))
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Batch(recs); err != nil {
			b.Fatal(err)
		}
	}
}
