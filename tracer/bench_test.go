package tracer

import (
	"encoding/binary"
	"io"
	"testing"

	"github.com/sonde-trace/sonde/internal/wire"
	"github.com/sonde-trace/sonde/sink"
)

// segment appends a copy of memory to a record of a call.
func segment(r wire.Record, addr uint64, flags uint16, data string) wire.Record {
	seg := make([]byte, wire.SegmentHeader+(len(data)+7)&^7)
	binary.LittleEndian.PutUint64(seg, addr)
	binary.LittleEndian.PutUint32(seg[8:], uint32(len(data)))
	binary.LittleEndian.PutUint16(seg[12:], flags)
	copy(seg[wire.SegmentHeader:], data)
	r = append(r, seg...)
	binary.LittleEndian.PutUint32(r[wire.OffSize:], uint32(len(r)))
	return r
}

func withArgs(r wire.Record, args ...uint64) wire.Record {
	off := wire.OffEnterArgs
	if r.Kind() == wire.SysExit {
		off = wire.OffExitArgs
	}
	for i, a := range args {
		binary.LittleEndian.PutUint64(r[off+8*i:], a)
	}
	return r
}

// benchStream is what the rings hold of n rounds of a usual mix of calls by two tasks.
func benchStream(n int) []byte {
	var b []byte
	ms := 1.0
	add := func(r wire.Record) {
		ms += 0.0003
		binary.LittleEndian.PutUint64(r[wire.OffTime:], uint64(ms*1e6))
		b = append(b, r...)
	}
	for i := range n {
		tid := 100 + uint32(i&1)
		add(enterRec(0, tid, tid, nrGetpid))
		add(exitRec(0, tid, tid, nrGetpid, int64(tid)))
		open := []uint64{0xffffffffffffff9c, 0x7f0000001000, 0x80000}
		add(segment(withArgs(enterRec(0, tid, tid, 257), open...), open[1], wire.SegString, "/usr/share/locale/de/LC_MESSAGES/coreutils.mo"))
		add(withArgs(exitRec(0, tid, tid, 257, -2), open...))
		read := []uint64{3, 0x7f0000002000, 832}
		add(withArgs(enterRec(0, tid, tid, nrRead), read...))
		add(segment(withArgs(exitRec(0, tid, tid, nrRead, 48), read...), read[1], 0, "\x7fELF\x02\x01\x01\x03\x00\x00\x00\x00\x00\x00\x00\x00\x03\x00>\x00\x01\x00\x00\x00root:x:0:0:root:/root:/b"))
		closing := []uint64{3}
		add(withArgs(enterRec(0, tid, tid, 3), closing...))
		add(withArgs(exitRec(0, tid, tid, 3, 0), closing...))
	}
	return b
}

// BenchmarkDecodeText is all that user space does for a record behind the copy from the ring: order, pair, decode, text.
// The bar is three million records a second on one core, and no allocation.
func BenchmarkDecodeText(b *testing.B) {
	const rounds = 1000
	stream := benchStream(rounds)
	text := sink.NewText(io.Discard, sink.TextOptions{})
	a := testAssembler(b, text)
	m := newMerger()
	m.lists = append(m.lists, nil)
	run := func() {
		m.lists[0] = m.index(m.lists[0][:0], stream)
		m.batch = m.batch[:0]
		for _, s := range m.lists[0] {
			m.batch = append(m.batch, s.rec)
		}
		if err := a.batch(m.batch); err != nil {
			b.Fatal(err)
		}
	}
	run()
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		run()
	}
	b.ReportMetric(float64(b.N)*rounds*8/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(b.N)*rounds*4/b.Elapsed().Seconds(), "calls/s")
}

// No record may cost an allocation once buffers have grown.
func TestNoAllocations(t *testing.T) {
	stream := benchStream(200)
	text := sink.NewText(io.Discard, sink.TextOptions{})
	a := testAssembler(t, text)
	m := newMerger()
	m.lists = append(m.lists, nil)
	run := func() {
		m.lists[0] = m.index(m.lists[0][:0], stream)
		m.batch = m.batch[:0]
		for _, s := range m.lists[0] {
			m.batch = append(m.batch, s.rec)
		}
		if err := a.batch(m.batch); err != nil {
			t.Fatal(err)
		}
	}
	run()
	if n := testing.AllocsPerRun(10, run); n > 0 {
		t.Errorf("%.1f allocations for %d records", n, 200*8)
	}
}
