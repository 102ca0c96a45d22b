package ring

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/sonde-trace/sonde/internal/kerneltest"
)

// fake is a reader over memory that the test fills as the kernel would.
type fake struct {
	*Reader
	prodPos, consPos uint64
}

func newFake(size int) *fake {
	f := &fake{}
	f.Reader = &Reader{cons: &f.consPos, prod: &f.prodPos, data: make([]byte, size), mask: uint64(size - 1), epoll: -1, wake: -1}
	return f
}

// put adds a record with the header bits, and reports whether there was room.
func (f *fake) put(data []byte, bits uint32) bool {
	total := uint64(len(data)+headerSize+7) &^ 7
	if f.prodPos-f.consPos+total > uint64(len(f.data)) {
		return false
	}
	var h [headerSize]byte
	binary.LittleEndian.PutUint32(h[:], uint32(len(data))|bits)
	for i, b := range append(h[:], data...) {
		f.data[(f.prodPos+uint64(i))&f.mask] = b
	}
	f.prodPos += total
	return true
}

func record(n int, fill byte) []byte { return bytes.Repeat([]byte{fill}, n) }

func TestDrain(t *testing.T) {
	f := newFake(256)
	f.put(record(16, 'a'), 0)
	f.put(record(24, 'b'), discardBit)
	f.put(record(13, 'c'), 0)
	got := f.drain(nil, 0)
	want := append(record(16, 'a'), append(record(13, 'c'), 0, 0, 0)...)
	if !bytes.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if f.consPos != f.prodPos {
		t.Errorf("consumed %d of %d", f.consPos, f.prodPos)
	}
	// One that is being written holds up those behind it.
	f.put(record(8, 'd'), 0)
	busy := f.prodPos
	f.put(record(8, 'e'), busyBit)
	f.put(record(8, 'f'), 0)
	if got := f.drain(nil, 0); !bytes.Equal(got, record(8, 'd')) || f.consPos != busy {
		t.Errorf("%q, consumed up to %d, want %d", got, f.consPos, busy)
	}
	f.data[busy&f.mask+3] = 0
	if got := f.drain([]byte("x"), 0); string(got) != "xeeeeeeeeffffffff" {
		t.Errorf("%q", got)
	}
}

// TestWrap moves records of all sizes many times around the ring.
func TestWrap(t *testing.T) {
	f := newFake(256)
	for i := range 2000 {
		want := record(8*(i%25), byte(i))
		if !f.put(want, 0) {
			t.Fatal("no room in an empty ring")
		}
		if got := f.drain(nil, 0); !bytes.Equal(got, want) {
			t.Fatalf("record %d at %d: %x, want %x", i, f.consPos&f.mask, got, want)
		}
	}
}

func TestMax(t *testing.T) {
	f := newFake(1024)
	for range 5 {
		f.put(record(64, 'r'), 0)
	}
	for _, want := range []int{128, 128, 64, 0} {
		if got := f.drain(nil, 130); len(got) != want {
			t.Errorf("%d bytes, want %d", len(got), want)
		}
	}
	// A record larger than the limit comes alone.
	f.put(record(500, 'r'), 0)
	if got := f.drain(nil, 8); len(got) != 504 {
		t.Errorf("%d bytes", len(got))
	}
}

func FuzzDrain(f *testing.F) {
	f.Add([]byte{8, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, uint16(16), uint16(0))
	f.Add([]byte{255, 255, 255, 0x3f}, uint16(64), uint16(8))
	f.Add([]byte{0, 0, 0, 0x80}, uint16(64), uint16(248))
	f.Fuzz(func(t *testing.T, mem []byte, length, start uint16) {
		r := newFake(256)
		copy(r.data, mem)
		r.consPos = uint64(start) &^ 7
		r.prodPos = r.consPos + min(uint64(length)&^7, 256)
		out := r.drain(nil, 0)
		if r.consPos > r.prodPos || len(out) > 256 {
			t.Errorf("consumed up to %d of %d, %d bytes", r.consPos, r.prodPos, len(out))
		}
	})
}

// TestKernel reads what a program sends, and is woken by it and by Close.
func TestKernel(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF)
	kerneltest.CheckLeaks(t)
	const size = 4096 * 16
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: size})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	send := func(flags int32) *ebpf.Program {
		p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SocketFilter, License: "Dual BSD/GPL", Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R1, 16), asm.StoreMem(asm.RFP, -16, asm.R1, asm.DWord), asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord),
			asm.LoadMapPtr(asm.R1, m.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -16), asm.Mov.Imm(asm.R3, 16), asm.Mov.Imm(asm.R4, flags),
			asm.FnRingbufOutput.Call(), asm.Mov.Imm(asm.R0, 0), asm.Return(),
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	quiet, loud := send(1), send(2)
	run := func(p *ebpf.Program) {
		if _, err := p.Run(&ebpf.RunOptions{Data: make([]byte, 14)}); err != nil {
			t.Error(err)
		}
	}
	r, err := New(m.FD(), size)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Read(nil, 0, time.Unix(0, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an empty ring: %v", err)
	}
	for range 3 {
		run(quiet)
	}
	if n := r.Pending(); n != 3*24 {
		t.Errorf("%d bytes pending", n)
	}
	if b, err := r.Read(nil, 0, time.Unix(0, 1)); err != nil || len(b) != 48 || b[0] != 16 {
		t.Errorf("%x, %v", b, err)
	}
	got := make(chan error)
	go func() {
		b, err := r.Read(nil, 0, time.Time{}) // only a wake-up ends this
		if err == nil && len(b) == 0 {
			err = errors.New("no record")
		}
		got <- err
	}()
	run(loud)
	if err := <-got; err != nil {
		t.Error(err)
	}
	go func() {
		_, err := r.Read(nil, 0, time.Time{})
		got <- err
	}()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := <-got; !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
}

// BenchmarkDrain is the reader's cost of a record of 96 bytes.
func BenchmarkDrain(b *testing.B) {
	f := newFake(1 << 20)
	for f.put(record(96, 'r'), 0) {
	}
	end, n := f.prodPos, int(f.prodPos/104)
	buf := make([]byte, 0, 1<<20)
	b.ReportAllocs()
	for i := 0; i < b.N; i += n {
		f.consPos, f.prodPos = 0, end
		buf = f.drain(buf[:0], 0)
	}
}
