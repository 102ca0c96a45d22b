package perfevent

import (
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rec builds the bytes of a record.
type rec struct{ b []byte }

func newRec(typ uint32, misc uint16) *rec {
	r := &rec{make([]byte, headerSize)}
	binary.LittleEndian.PutUint32(r.b, typ)
	binary.LittleEndian.PutUint16(r.b[4:], misc)
	return r
}

func (r *rec) u32(v ...uint32) *rec {
	for _, x := range v {
		r.b = binary.LittleEndian.AppendUint32(r.b, x)
	}
	return r
}

func (r *rec) u64(v ...uint64) *rec {
	for _, x := range v {
		r.b = binary.LittleEndian.AppendUint64(r.b, x)
	}
	return r
}

func (r *rec) bytes(b []byte) *rec { r.b = append(r.b, b...); return r }

// ids is what sample_id_all puts at the end.
func (r *rec) ids(time, id uint64) *rec {
	for len(r.b)%8 != 0 {
		r.b = append(r.b, 0)
	}
	return r.u32(7, 8).u64(time).u32(3, 0).u64(id)
}

func (r *rec) done() []byte {
	binary.LittleEndian.PutUint16(r.b[6:], uint16(len(r.b)))
	return r.b
}

func sampleHead(id uint64) *rec {
	return newRec(RecordSample, 0).u64(id, 0x1234).u32(7, 8).u64(1000)
}

const allTypes = sampleBase | unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_ADDR | unix.PERF_SAMPLE_CALLCHAIN | unix.PERF_SAMPLE_RAW | unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER

func TestDecodeSample(t *testing.T) {
	raw := []byte("twelve bytes")
	b := sampleHead(5).u64(0xadd).u32(3, 0). // address, CPU
							u64(2, 0x11, 0x22).                               // call chain
							u32(uint32(len(raw))).bytes(raw).                 // raw
							u64(2, 0xa, 0xb).                                 // ABI, two registers
							u64(16).bytes([]byte("0123456789abcdef")).u64(9). // stack of 16, 9 of it filled
							done()
	var r Record
	if err := r.decode(b, allTypes, 1<<AMD64SP|1<<AMD64IP); err != nil {
		t.Fatal(err)
	}
	s := &r.Sample
	if s.IP != 0x1234 || r.Pid != 7 || r.Tid != 8 || r.Time != 1000 || s.Addr != 0xadd || r.CPU != 3 {
		t.Errorf("head: %+v", r)
	}
	if s.Callchain.Len() != 2 || s.Callchain.At(1) != 0x22 || string(s.Raw) != string(raw) || string(s.Stack) != "012345678" {
		t.Errorf("parts: %+v", s)
	}
	if sp, ok := s.Regs.Get(AMD64SP); !ok || sp != 0xa {
		t.Errorf("sp %#x %v", sp, ok)
	}
	if ip, ok := s.Regs.Get(AMD64IP); !ok || ip != 0xb {
		t.Errorf("ip %#x %v", ip, ok)
	}
	if _, ok := s.Regs.Get(AMD64BP); ok {
		t.Error("a register that was not taken")
	}
	if recordTime(b) != 1000 {
		t.Error("time without decoding:", recordTime(b))
	}
}

// A kernel thread has no registers and no stack: the record says ABI 0 and size 0, and has neither values nor the filled size.
func TestDecodeNothingTaken(t *testing.T) {
	b := sampleHead(5).u32(3, 0).u64(0).u64(0).done()
	var r Record
	if err := r.decode(b, sampleBase|unix.PERF_SAMPLE_IP|unix.PERF_SAMPLE_REGS_USER|unix.PERF_SAMPLE_STACK_USER, 7); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Sample.Regs.Get(0); ok || r.Sample.Regs.ABI != ABINone || len(r.Sample.Stack) != 0 {
		t.Errorf("%+v", r.Sample)
	}
}

func TestDecodeOthers(t *testing.T) {
	var r Record
	decode := func(x *rec) {
		t.Helper()
		if err := r.decode(x.ids(99, 5).done(), allTypes, 3); err != nil {
			t.Fatal(err)
		}
		if r.Time != 99 || r.Pid != 7 || r.Tid != 8 || r.CPU != 3 {
			t.Errorf("type %d: ids %+v", r.Type, r)
		}
	}
	decode(newRec(RecordMmap2, MiscMmapData).u32(1, 2).u64(0x1000, 0x2000, 0x3000).u32(8, 1).u64(77, 1).u32(5, 2).bytes([]byte("/lib/x.so\x00junk")))
	if m, ok := r.Mmap2(); !ok || m.Addr != 0x1000 || m.Len != 0x2000 || m.Offset != 0x3000 || m.Major != 8 || m.Minor != 1 || m.Inode != 77 || m.Prot != 5 || string(m.Path) != "/lib/x.so" {
		t.Errorf("MMAP2: %+v", m)
	}
	decode(newRec(RecordMmap2, MiscMmapBuildID).u32(1, 2).u64(0x1000, 0x2000, 0).bytes(append([]byte{20, 0, 0, 0}, "abcdefghijklmnopqrst"...)).u32(5, 2).bytes([]byte("/x\x00")))
	if m, ok := r.Mmap2(); !ok || string(m.BuildID) != "abcdefghijklmnopqrst" || string(m.Path) != "/x" {
		t.Errorf("MMAP2 with build-id: %+v", m)
	}
	decode(newRec(RecordComm, MiscCommExec).u32(1, 2).bytes([]byte("name\x00\x00\x00\x00")))
	if name, exec, ok := r.Comm(); !ok || !exec || string(name) != "name" {
		t.Errorf("COMM: %q %v", name, exec)
	}
	for _, typ := range []uint32{RecordFork, RecordExit} {
		decode(newRec(typ, 0).u32(10, 11, 12, 13).u64(14))
		if k, ok := r.Task(); !ok || k != (Task{10, 11, 12, 13, 14}) {
			t.Errorf("type %d: %+v", typ, k)
		}
	}
	decode(newRec(RecordLost, 0).u64(5, 42))
	if n, ok := r.Lost(); !ok || n != 42 {
		t.Error("LOST:", n)
	}
	decode(newRec(RecordLostSamples, 0).u64(43))
	if n, ok := r.Lost(); !ok || n != 43 {
		t.Error("LOST_SAMPLES:", n)
	}
	decode(newRec(RecordThrottle, 0).u64(1, 2, 3))
	decode(newRec(4242, 0).u64(1, 2, 3)) // a type that is yet to come
	if _, ok := r.Mmap2(); ok {
		t.Error("an unknown record taken for MMAP2")
	}
	if _, ok := r.Lost(); ok {
		t.Error("an unknown record taken for LOST")
	}
}

// Every cut of a record is an error or a shorter string, never a panic and never bytes of the neighbour.
func FuzzDecode(f *testing.F) {
	f.Add(sampleHead(1).u64(1).u32(0, 0).u64(1, 2).u32(4).bytes([]byte("abcd")).u64(2, 3, 4).u64(8, 0, 8).done(), uint64(allTypes), uint64(3))
	f.Add(newRec(RecordMmap2, 0).u32(1, 2).u64(1, 2, 3).u32(1, 2).u64(3, 4).u32(5, 6).bytes([]byte("/x\x00")).ids(1, 2).done(), uint64(0), uint64(0))
	f.Add(newRec(RecordComm, 0).u32(1, 2).bytes([]byte("sh\x00")).ids(1, 2).done(), uint64(0), uint64(0))
	f.Add(newRec(RecordFork, 0).u32(1, 2, 3, 4).u64(5).ids(1, 2).done(), uint64(0), uint64(0))
	f.Add(newRec(RecordLost, 0).u64(1, 2).ids(1, 2).done(), uint64(0), uint64(0))
	f.Add(newRec(RecordThrottle, 0).u64(1, 2, 3).ids(1, 2).done(), uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, sampleType, regs uint64) {
		if len(b) > 1<<16 || len(b) < headerSize {
			return
		}
		binary.LittleEndian.PutUint16(b[6:], uint16(len(b)))
		recordID(b)
		recordTime(b)
		var r Record
		if r.decode(b, sampleType, regs) != nil {
			return
		}
		s := &r.Sample
		if n := len(s.Raw) + len(s.Callchain) + len(s.Regs.Values) + len(s.Stack); n > len(b) {
			t.Fatalf("%d bytes in parts of a record of %d", n, len(b))
		}
		for bit := range 64 {
			s.Regs.Get(bit)
		}
		for i := range s.Callchain.Len() {
			s.Callchain.At(i)
		}
		if m, ok := r.Mmap2(); ok && len(m.Path)+len(m.BuildID) > len(b) {
			t.Fatal("the path is longer than the record")
		}
		r.Comm()
		r.Task()
		r.Lost()
	})
}

// fakeRing is a ring in our own memory, filled as the kernel does.
func fakeRing(size int) *ring {
	return &ring{data: make([]byte, size), meta: new(unix.PerfEventMmapPage), owner: -1}
}

func (r *ring) put(b []byte) {
	for i, c := range b {
		r.data[(r.meta.Data_head+uint64(i))&uint64(len(r.data)-1)] = c
	}
	r.meta.Data_head += uint64(len(b))
}

func fakeReader(rings ...*ring) *Reader {
	r := &Reader{opt: Options{online: func() ([]int, error) { return nil, nil }}, rings: rings, byID: map[uint64]*Event{}, wake: -1, epoll: -1}
	r.checked = farFuture
	return r
}

func TestRingAnyType(t *testing.T) {
	g := fakeRing(4096)
	r := fakeReader(g)
	e := &Event{sampleType: sampleBase | unix.PERF_SAMPLE_IP}
	r.byID[5] = e
	sample := func(id uint64) []byte { return sampleHead(id).u32(3, 0).done() }
	g.put(sample(5))
	g.put(newRec(4242, 0).u64(1, 2, 3).ids(5, 5).done())
	g.put(newRec(RecordThrottle, 0).u64(1, 2, 3).ids(6, 5).done())
	g.put(newRec(RecordLost, 0).u64(1, 40).ids(7, 5).done())
	g.put(newRec(RecordLostSamples, 0).u64(2).ids(8, 5).done())
	g.put(newRec(RecordComm, 0).done()) // too short for its ids
	g.put(sample(6))                    // of nobody
	g.put(sample(5))
	var types []uint32
	n, _, err := r.collect(func(x *Record) error { types = append(types, x.Type); return nil })
	if err != nil || n != 8 {
		t.Fatal(n, err)
	}
	if want := []uint32{9, 4242, 5, 2, 13, 9, 9}; !slices.Equal(types, want) {
		t.Errorf("delivered types %v, want %v", types, want)
	}
	s := r.Stats()
	if s.Bad != 1 || s.Unowned != 1 || s.Lost != 42 || s.Records[31] != 1 || s.Records[RecordSample] != 3 || e.Lost() != 42 || e.Throttled() != 1 {
		t.Errorf("%+v, lost %d, throttled %d", s, e.Lost(), e.Throttled())
	}
	if g.meta.Data_tail != g.meta.Data_head {
		t.Error("room was not given back")
	}
}

func TestRingWrap(t *testing.T) {
	g := fakeRing(256)
	r := fakeReader(g)
	r.byID[5] = &Event{sampleType: sampleBase | unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_RAW}
	for i := range 1000 {
		payload := make([]byte, 4+8*(i%9))
		for k := range payload {
			payload[k] = byte(i + k)
		}
		g.put(sampleHead(5).u32(3, 0).u32(uint32(len(payload))).bytes(payload).done())
		n, _, err := r.collect(func(x *Record) error {
			if string(x.Sample.Raw) != string(payload) {
				t.Fatalf("record %d: %x, want %x", i, x.Sample.Raw, payload)
			}
			return nil
		})
		if n != 1 || err != nil {
			t.Fatal(i, n, err)
		}
	}
}

// Bytes that are no record end that ring's contents, not the reader.
func TestRingGarbage(t *testing.T) {
	for _, size := range []uint16{0, 4, 12, 0xfff8} {
		g := fakeRing(256)
		r := fakeReader(g)
		b := make([]byte, 64)
		binary.LittleEndian.PutUint16(b[6:], size)
		g.put(b)
		r.collect(func(*Record) error { return nil })
		g.put(newRec(4242, 0).ids(1, 5).done())
		n, _, err := r.collect(func(*Record) error { return nil })
		if n != 1 || err != nil {
			t.Errorf("size %d: %d records, %v", size, n, err)
		}
	}
}

// Records of several CPUs come in the order of their times; one that is late says so.
func TestOrder(t *testing.T) {
	a, b := fakeRing(4096), fakeRing(4096)
	r := fakeReader(a, b)
	at := func(g *ring, times ...uint64) {
		for _, x := range times {
			g.put(newRec(4242, 0).ids(x, 5).done())
		}
	}
	at(a, 10, 40, 50)
	at(b, 20, 30, 60)
	var times []uint64
	var late int
	read := func() {
		if _, _, err := r.collect(func(x *Record) error {
			times = append(times, x.Time)
			if x.Late {
				late++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	read()
	if !slices.IsSorted(times) || len(times) != 6 || late != 0 {
		t.Error(times, late)
	}
	at(a, 55)
	read()
	if late != 1 {
		t.Error("a late record was not marked")
	}
}

// The error of the caller keeps what is behind; nothing is read twice.
func TestDeliverError(t *testing.T) {
	g := fakeRing(4096)
	r := fakeReader(g)
	for i := range 4 {
		g.put(newRec(4242, 0).ids(uint64(i+1), 5).done())
	}
	stop := errors.New("stop")
	var got []uint64
	deliver := func(x *Record) error {
		got = append(got, x.Time)
		if x.Time == 2 {
			return stop
		}
		return nil
	}
	if _, _, err := r.collect(deliver); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	if _, _, err := r.collect(deliver); err != nil || !slices.Equal(got, []uint64{1, 2, 3, 4}) {
		t.Error(got, err)
	}
}

func TestReadAllocates(t *testing.T) {
	g := fakeRing(1 << 16)
	r := fakeReader(g)
	r.byID[5] = &Event{sampleType: allTypes, Spec: Spec{UserRegs: 3}}
	sample := sampleHead(5).u64(0xadd).u32(3, 0).u64(2, 1, 2).u32(4).bytes([]byte("abcd")).u64(2, 1, 2).u64(16, 0, 0, 16).done()
	comm := newRec(RecordComm, 0).u32(1, 2).bytes([]byte("name\x00\x00\x00\x00")).ids(5, 5).done()
	var sum int
	deliver := func(x *Record) error {
		sum += len(x.Sample.Stack) + x.Sample.Callchain.Len()
		name, _, _ := x.Comm()
		sum += len(name)
		return nil
	}
	// The first turn around the ring makes the buffer for records that wrap.
	one := func() {
		for range 100 {
			g.put(sample)
			g.put(comm)
		}
		r.collect(deliver)
	}
	for range 10 {
		one()
	}
	if n := testing.AllocsPerRun(100, one); n != 0 {
		t.Errorf("%v allocations in 200 records", n)
	}
}

func TestRingBytes(t *testing.T) {
	for _, page := range []int{4096, 16384, 65536} {
		for n, want := range map[int]int{0: 512 << 10, 1 << 20: 1 << 20, 600_000: 1 << 20} {
			if got, err := ringBytes(n, page); err != nil || got != want {
				t.Errorf("%d bytes with pages of %d: %d, %v; want %d", n, page, got, err, want)
			}
		}
		if got, _ := ringBytes(1, page); got != page {
			t.Errorf("pages of %d: the least ring is %d", page, got)
		}
	}
	for _, n := range []int{-1, 1<<30 + 1} {
		if _, err := ringBytes(n, 4096); err == nil {
			t.Errorf("%d bytes: no error", n)
		}
	}
}

func TestParseCPUs(t *testing.T) {
	for s, want := range map[string][]int{"0": {0}, "0-1": {0, 1}, "0,2-4,9": {0, 2, 3, 4, 9}, "": nil, "a": nil, "3-1": nil, "0-99999999": nil, "-1": nil} {
		got, err := parseCPUs(s)
		if !slices.Equal(got, want) || (err != nil) != (want == nil) {
			t.Errorf("%q: %v %v", s, got, err)
		}
	}
}

func TestAttr(t *testing.T) {
	for _, x := range []struct {
		arch string
		s    Spec
		bad  bool
	}{
		{"amd64", Spec{}, true},
		{"amd64", Spec{Kind: KindDummy}, false},
		{"amd64", Spec{Kind: KindDummy, UserStack: 8192}, false},
		{"amd64", Spec{Kind: KindDummy, UserStack: MaxUserStack}, false},
		{"amd64", Spec{Kind: KindDummy, UserStack: 65536}, true},
		{"amd64", Spec{Kind: KindDummy, UserStack: 12}, true},
		{"amd64", Spec{Kind: KindDummy, UserRegs: AllRegs("amd64")}, false},
		{"amd64", Spec{Kind: KindDummy, UserRegs: 1 << 12}, true},
		{"arm64", Spec{Kind: KindDummy, UserRegs: AllRegs("arm64")}, false},
		{"arm64", Spec{Kind: KindDummy, UserRegs: 1 << 33}, true},
		{"amd64", Spec{Kind: KindBreak, Break: Break{0x1000, 8, ModeRead}}, true},
		{"amd64", Spec{Kind: KindBreak, Break: Break{0x1000, 8, ModeWrite}}, false},
	} {
		a, err := x.s.Attr(x.arch)
		if (err != nil) != x.bad {
			t.Errorf("%s %+v: %v", x.arch, x.s, err)
		}
		if err == nil && (a.Bits&unix.PerfBitSampleIDAll == 0 || a.Sample_type&sampleBase != sampleBase || a.Clockid != unix.CLOCK_MONOTONIC) {
			t.Errorf("%+v: records would not say when, where and whose they are", x.s)
		}
	}
	if unsafe.Sizeof(unix.PerfEventAttr{}) < 120 {
		t.Error("attr is older than Linux 5.5")
	}
	if RegName("amd64", AMD64SP) != "rsp" || RegName("arm64", ARM64PC) != "pc" || RegName(runtime.GOARCH, 64) != "" {
		t.Error("names of registers")
	}
}

func TestBreakRules(t *testing.T) {
	for _, x := range []struct {
		arch string
		b    Break
		ok   bool
	}{
		{"amd64", Break{0x1000, 8, ModeWrite}, true}, {"amd64", Break{0x1004, 8, ModeWrite}, false}, {"amd64", Break{0x1004, 4, ModeAccess}, true},
		{"amd64", Break{0x1001, 1, ModeWrite}, true}, {"amd64", Break{0x1000, 3, ModeWrite}, false}, {"amd64", Break{0x1000, 16, ModeWrite}, false},
		{"amd64", Break{0x1000, 0, ModeWrite}, false}, {"amd64", Break{0x1000, 8, ModeRead}, false}, {"amd64", Break{0x1001, 0, ModeExecute}, true},
		{"arm64", Break{0x1001, 7, ModeWrite}, true}, {"arm64", Break{0x1001, 8, ModeWrite}, false}, {"arm64", Break{0x1000, 3, ModeRead}, true},
		{"arm64", Break{0x1002, 0, ModeExecute}, false}, {"arm64", Break{0x1004, 0, ModeExecute}, true}, {"arm64", Break{0x1000, 8, 0}, false},
	} {
		if err := x.b.Check(x.arch); (err == nil) != x.ok {
			t.Errorf("%s %+v: %v", x.arch, x.b, err)
		}
	}
}

// Whatever the object, its pieces are legal, do not overlap and cover it exactly.
func TestSplit(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		for addr := uint64(0x1000); addr < 0x1009; addr++ {
			for size := uint64(1); size <= 40; size++ {
				at := addr
				for _, b := range Split(arch, addr, size, ModeWrite) {
					if err := b.Check(arch); err != nil {
						t.Fatal(err)
					}
					if b.Addr != at {
						t.Fatalf("%s %#x+%d: a piece at %#x, want %#x", arch, addr, size, b.Addr, at)
					}
					at += b.Len
				}
				if at != addr+size {
					t.Fatalf("%s %#x+%d: covered up to %#x", arch, addr, size, at)
				}
			}
		}
	}
	if n := len(Split("amd64", 0x1000, 24, ModeWrite)); n != 3 {
		t.Error("24 bytes in", n, "pieces")
	}
	if n := len(Split("amd64", 1, 1<<40, ModeWrite)); n > MaxSplit+1 {
		t.Error(n, "pieces")
	}
}
