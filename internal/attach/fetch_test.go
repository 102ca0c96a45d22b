package attach

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/kerneltest"
	. "github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// getppid takes no arguments, so that anything may stand in its registers: these tests trace their own calls of it, with
// fetches that say what to take.

// arena is memory at fixed places: two pages that can be read, then one that cannot.
type arena struct {
	page []byte
	base uintptr
}

func newArena(t *testing.T) *arena {
	t.Helper()
	b, err := unix.Mmap(-1, 0, 3*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	for i := range b[:2*os.Getpagesize()] {
		b[i] = 0xee
	}
	if err := unix.Mprotect(b[2*os.Getpagesize():], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return &arena{page: b[: 2*os.Getpagesize() : 2*os.Getpagesize()], base: uintptr(unsafe.Pointer(&b[0]))}
}

// put stores bytes and returns their address.
func (a *arena) put(off int, b []byte) uintptr {
	copy(a.page[off:], b)
	return a.base + uintptr(off)
}

// tail stores bytes so that they end where nothing can be read.
func (a *arena) tail(b []byte) uintptr { return a.put(len(a.page)-len(b), b) }

func (a *arena) words(off int, list ...uintptr) uintptr {
	for i, v := range list {
		binary.LittleEndian.PutUint64(a.page[off+8*i:], uint64(v))
	}
	return a.base + uintptr(off)
}

// call makes one getppid under the plan and returns its records.
func call(t *testing.T, o SyscallOptions, args ...uintptr) (enter, exit wire.Record) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	o.Target = TargetFilter{AllowPids: []uint32{uint32(os.Getpid())}, AllowTids: []uint32{uint32(unix.Gettid())}}
	o.SelfPid = 1
	for i := range o.Calls {
		if o.Calls[i].ABI == "" {
			o.Calls[i].ABI, o.Calls[i].Nr = runtime.GOARCH, unix.SYS_GETPPID
		}
	}
	s := open(t, o)
	defer s.Close()
	var a [6]uintptr
	copy(a[:], args)
	unix.RawSyscall6(unix.SYS_GETPPID, a[0], a[1], a[2], a[3], a[4], a[5])
	batch, err := s.Main().Read(nil, 0, time.Unix(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range split(t, batch) {
		switch r.Kind() {
		case wire.SysEnter:
			enter = append(wire.Record(nil), r...)
		case wire.SysExit:
			exit = append(wire.Record(nil), r...)
		}
	}
	if enter == nil || exit == nil {
		// Does the kernel run the programs at all?
		if stats, err := ebpf.EnableStats(0 /* BPF_STATS_RUN_TIME */); err == nil {
			for range 5 {
				unix.RawSyscall6(unix.SYS_GETPPID, a[0], a[1], a[2], a[3], a[4], a[5])
			}
			in, _ := s.entry.info()
			out, _ := s.exit.info()
			t.Logf("of 5 more calls: entry program ran %d times, exit program %d", in.runs, out.runs)
			stats.Close()
		}
		c, err := s.Counters()
		t.Fatalf("entry of %d bytes, exit of %d, in a batch of %d; %+v, %v", len(enter), len(exit), len(batch), c, err)
	}
	if enter.Args() != [6]uint64{uint64(a[0]), uint64(a[1]), uint64(a[2]), uint64(a[3]), uint64(a[4]), uint64(a[5])} {
		t.Errorf("arguments %x, want %x", enter.Args(), a)
	}
	if exit.Args() != enter.Args() {
		t.Errorf("arguments at the return %x, at entry %x", exit.Args(), enter.Args())
	}
	if got := exit.Ret(); got != int64(os.Getppid()) {
		t.Errorf("returned %d", got)
	}
	if enter.IP() != exit.IP() || enter.IP() == 0 || enter.Tid() != uint32(unix.Gettid()) || enter.Tgid() != uint32(os.Getpid()) || enter.Time() > exit.Time() {
		t.Errorf("headers do not agree: %x %x", enter[:wire.HeaderSize], exit[:wire.HeaderSize])
	}
	return enter, exit
}

// show writes segments as text: +offset from the arena "data" flags.
func show(a *arena, r wire.Record) string {
	var b strings.Builder
	for _, s := range segments(r) {
		if s.Flags&wire.SegFD != 0 {
			fmt.Fprintf(&b, "fd %d %q", int32(s.Addr), s.Data)
		} else {
			fmt.Fprintf(&b, "+%d ", int64(s.Addr)-int64(a.base))
			if s.Errno != 0 {
				fmt.Fprintf(&b, "errno %d", s.Errno)
			} else if len(s.Data) > 80 {
				fmt.Fprintf(&b, "%d bytes %q", len(s.Data), s.Data[:8])
			} else {
				fmt.Fprintf(&b, "%q", s.Data)
			}
		}
		for i, n := range []string{"string", "cut", "", "fault"} {
			if s.Flags&(1<<i) != 0 && n != "" {
				b.WriteString(" " + n)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// others are calls that nobody makes, so many that most get no programs of their own.
func others() (list []SyscallPlan) {
	for i := range fewShapes + 1 {
		list = append(list, SyscallPlan{ABI: runtime.GOARCH, Nr: unix.SYS_REBOOT, Enter: []Fetch{Fixed(0, 1000+i)}})
	}
	return list
}

func TestFetch(t *testing.T) {
	a := newArena(t)
	hello := a.put(0, []byte("hello\x00"))
	long := a.put(64, append(bytes.Repeat([]byte("x"), 600), 0))
	exact := a.put(700, append(bytes.Repeat([]byte("y"), 256), 0))
	empty := a.put(1000, []byte{0})
	header := a.words(1024, hello, 5, long, 3)
	iov := a.words(1088, hello, 2, 0, 7, long, 300, hello, 0, exact, 4)
	argv := a.words(1200, hello, empty, long, 0)
	many := a.words(2048)
	for i := range 40 {
		a.words(2048+8*i, hello)
	}
	size := len(a.page)
	edge := a.tail([]byte("edge"))
	nowhere := a.base + uintptr(size)
	sized := make([]byte, 8) // the size of what follows at 3000
	binary.LittleEndian.PutUint32(sized, 6)
	a.put(3000, sized)
	a.put(3008, []byte("abcdefgh"))

	for _, c := range []struct {
		name        string
		enter, exit []Fetch
		args        []uintptr
		want        string // segments at entry, "--" and those at the return
	}{
		{"string", []Fetch{Str(0)}, nil, []uintptr{hello}, "+0 \"hello\" string\n--"},
		{"empty string", []Fetch{Str(0)}, nil, []uintptr{empty}, "+1000 \"\" string\n--"},
		{"NULL", []Fetch{Str(0)}, nil, []uintptr{0}, "--"},
		{"long string", []Fetch{Str(0)}, nil, []uintptr{long}, "+64 256 bytes \"xxxxxxxx\" string cut\n--"},
		{"path", []Fetch{Path(0)}, nil, []uintptr{long}, "+64 600 bytes \"xxxxxxxx\" string\n--"},
		{"string of the limit", []Fetch{Str(0)}, nil, []uintptr{exact}, "+700 256 bytes \"yyyyyyyy\" string\n--"},
		{"two strings", []Fetch{Str(0), Str(3)}, nil, []uintptr{hello, 0, 0, empty}, "+0 \"hello\" string\n+1000 \"\" string\n--"},
		{"string into the void", []Fetch{Str(0)}, nil, []uintptr{edge},
			fmt.Sprintf("+%d \"edge\" string cut fault\n--+%d \"edge\" string cut fault\n", size-4, size-4)},
		{"string in the void", []Fetch{Str(0)}, nil, []uintptr{nowhere}, fmt.Sprintf("+%d errno 14 string\n--+%d errno 14 string\n", size, size)},
		{"string at a bad address", []Fetch{Str(0)}, nil, []uintptr{^uintptr(7)}, fmt.Sprintf("+%d errno 14 string\n--+%d errno 14 string\n", int64(-8)-int64(a.base), int64(-8)-int64(a.base))},
		{"structure", []Fetch{Fixed(0, 16)}, nil, []uintptr{header}, fmt.Sprintf("+1024 %q\n--", a.page[1024:1040])},
		{"structure across the end", []Fetch{Fixed(0, 16)}, nil, []uintptr{edge}, fmt.Sprintf("+%d \"edge\" cut fault\n--+%d \"edge\" cut fault\n", size-4, size-4)},
		{"big structure across the end", []Fetch{Fixed(0, 3*4096)}, nil, []uintptr{a.base + 6}, fmt.Sprintf("+6 %d bytes \"\\xee\\xee\\xee\\xee\\xee\\xee\\xee\\xee\" cut fault\n--+6 %d bytes \"\\xee\\xee\\xee\\xee\\xee\\xee\\xee\\xee\" cut fault\n", size-6, size-6)},
		{"buffer", []Fetch{Buf(0, Arg(1))}, nil, []uintptr{hello, 3}, "+0 \"hel\"\n--"},
		{"buffer of nothing", []Fetch{Buf(0, Arg(1))}, nil, []uintptr{hello, 0}, "--"},
		{"buffer longer than the limit", []Fetch{Buf(0, Arg(1))}, nil, []uintptr{long, 300}, "+64 256 bytes \"xxxxxxxx\" cut\n--"},
		{"buffer of absurd length", []Fetch{Buf(0, Arg(1))}, nil, []uintptr{long, ^uintptr(0)}, "+64 256 bytes \"xxxxxxxx\" cut\n--"},
		{"vector", []Fetch{Vec(0, Arg(1), 4, 64)}, nil, []uintptr{long, 3}, "+64 \"xxxxxxxxxxxx\"\n--"},
		{"vector of absurd length", []Fetch{Vec(0, Arg(1), 4, 8)}, nil, []uintptr{long, 1 << 62}, "+64 \"xxxxxxxx\" cut\n--"},
		{"length added", []Fetch{{Kind: FetchBytes, Base: Arg(0), Len: Length{Number: Arg(1), Add: 2, Max: 64}}}, nil, []uintptr{long, 3}, "+64 \"xxxxx\"\n--"},
		{"offset", []Fetch{{Kind: FetchString, Base: Arg(0), Off: 2}}, nil, []uintptr{hello}, "+2 \"llo\" string\n--"},
		{"return", nil, []Fetch{Buf(0, Ret())}, []uintptr{long}, fmt.Sprintf("--+64 %s\n", retBytes())},
		{"chain", []Fetch{Fixed(0, 32), {Kind: FetchString, Base: Mem(0, 0, 8)}, {Kind: FetchBytes, Base: Mem(0, 16, 8), Len: Length{Number: Mem(0, 24, 8)}}}, nil, []uintptr{header},
			fmt.Sprintf("+1024 %q\n+0 \"hello\" string\n+64 \"xxx\"\n--", a.page[1024:1056])},
		{"chain of a failed read", []Fetch{Fixed(0, 32), {Kind: FetchString, Base: Mem(0, 0, 8)}}, nil, []uintptr{nowhere}, fmt.Sprintf("+%d errno 14\n--+%d errno 14\n", size, size)},
		{"length in memory", []Fetch{{Kind: FetchBytes, Base: Arg(0), Len: Length{Number: Const(4), Max: 4}}, {Kind: FetchBytes, Base: Arg(0), Off: 8, Len: Length{Number: Mem(0, 0, 4), Max: 100}}}, nil,
			[]uintptr{a.base + 3000}, "+3000 \"\\x06\\x00\\x00\\x00\"\n+3008 \"abcdef\"\n--"},
		{"condition holds", []Fetch{Str(0).If(1, 5, 7)}, nil, []uintptr{hello, 7}, "+0 \"hello\" string\n--"},
		{"condition with junk above", []Fetch{Str(0).If(1, 5, 7)}, nil, []uintptr{hello, 7 | 1<<40}, "+0 \"hello\" string\n--"},
		{"condition fails", []Fetch{Str(0).If(1, 5, 7)}, nil, []uintptr{hello, 6}, "--"},
		{"condition with a mask", []Fetch{{Kind: FetchString, Base: Arg(0), When: Cond{Value: Arg(1), Mask: 0xff, Any: []uint64{3}}}}, nil, []uintptr{hello, 0x703}, "+0 \"hello\" string\n--"},
		{"condition inverted", []Fetch{{Kind: FetchString, Base: Arg(0), When: Cond{Value: Arg(1), Any: []uint64{0, 3}, Not: true}}}, nil, []uintptr{hello, 3}, "--"},
		{"condition inverted holds", []Fetch{{Kind: FetchString, Base: Arg(0), When: Cond{Value: Arg(1), Any: []uint64{0, 3}, Not: true}}}, nil, []uintptr{hello, 4}, "+0 \"hello\" string\n--"},
		{"large condition", []Fetch{Str(0).If(1, 0xdeadbeefcafe)}, nil, []uintptr{hello, 0xdeadbeefcafe}, "+0 \"hello\" string\n--"},
		{"condition on memory", []Fetch{Fixed(0, 4), {Kind: FetchString, Base: Arg(1), When: Cond{Value: Mem(0, 0, 4), Any: []uint64{6}}}}, nil, []uintptr{a.base + 3000, hello}, "+3000 \"\\x06\\x00\\x00\\x00\"\n+0 \"hello\" string\n--"},
		{"argv", []Fetch{{Kind: FetchStrings, Base: Arg(0)}}, nil, []uintptr{argv},
			fmt.Sprintf("+1200 %q\n+0 \"hello\" string\n+1000 \"\" string\n+64 256 bytes \"xxxxxxxx\" string cut\n--", a.page[1200:1232])},
		{"long argv", []Fetch{{Kind: FetchStrings, Base: Arg(0)}}, nil, []uintptr{many},
			fmt.Sprintf("+2048 264 bytes %q cut\n%s--", a.page[2048:2056], strings.Repeat("+0 \"hello\" string\n", 32))},
		{"argv nowhere", []Fetch{{Kind: FetchStrings, Base: Arg(0)}}, nil, []uintptr{nowhere}, fmt.Sprintf("+%d errno 14\n--+%d errno 14\n", size, size)},
		{"iovec", []Fetch{{Kind: FetchIovec, Base: Arg(0), Len: Length{Number: Arg(1)}}}, nil, []uintptr{iov, 5},
			fmt.Sprintf("+1088 %q\n+0 \"he\"\n+64 256 bytes \"xxxxxxxx\" cut\n+700 \"yyyy\"\n--", a.page[1088:1168])},
		{"iovec with total", []Fetch{{Kind: FetchIovec, Base: Arg(0), Len: Length{Number: Arg(1)}, Total: Arg(2)}}, nil, []uintptr{iov, 5, 1},
			fmt.Sprintf("+1088 %q\n+0 \"h\"\n--", a.page[1088:1168])},
		{"iovec of none", []Fetch{{Kind: FetchIovec, Base: Arg(0), Len: Length{Number: Arg(1)}}}, nil, []uintptr{iov, 0}, "--"},
	} {
		plan := []SyscallPlan{{Enter: c.enter, Exit: c.exit}}
		t.Run(c.name, func(t *testing.T) {
			enter, exit := call(t, SyscallOptions{Calls: plan}, c.args...)
			if got := show(a, enter) + "--" + show(a, exit); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
		t.Run(c.name+", by the generic programs", func(t *testing.T) {
			enter, exit := call(t, SyscallOptions{Calls: append(plan, others()...)}, c.args...)
			if got := show(a, enter) + "--" + show(a, exit); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// retBytes is what Buf(0, Ret()) takes of the x's when getppid returns the parent's number.
func retBytes() string {
	n := os.Getppid()
	if n > 256 {
		return `256 bytes "xxxxxxxx" cut`
	}
	if n > 80 {
		return fmt.Sprintf("%d bytes \"xxxxxxxx\"", n)
	}
	return fmt.Sprintf("%q", strings.Repeat("x", n))
}

// TestStringLimit takes the most that -s allows, and more than a record can hold.
func TestStringLimit(t *testing.T) {
	b, err := unix.Mmap(-1, 0, 128<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	for i := range b {
		b[i] = byte('a' + i%26)
	}
	at := uintptr(unsafe.Pointer(&b[0]))
	f := []Fetch{Buf(0, Arg(1)), Buf(0, Arg(1)), Buf(0, Arg(1)), Buf(0, Arg(1)), Buf(0, Arg(1))}
	enter, _ := call(t, SyscallOptions{StrLimit: 65536, Calls: []SyscallPlan{{Enter: f}}}, at, 1<<20)
	segs := segments(enter)
	if len(segs) < 3 || enter.Flags()&wire.FlagTruncated == 0 {
		t.Errorf("%d segments, flags %#x: some, and the record marked", len(segs), enter.Flags())
	}
	for _, s := range segs {
		if !bytes.Equal(s.Data, b[:65536]) || s.Flags&wire.SegCut == 0 {
			t.Errorf("%d bytes, flags %#x", len(s.Data), s.Flags)
		}
	}
}

// TestRetry: a string on a page that is not there at entry is there at the return, once the kernel has read it.
func TestRetry(t *testing.T) {
	name := t.TempDir() + "/pages"
	want := bytes.Repeat([]byte("cold"), 1024)
	want[4095] = 0
	if err := os.WriteFile(name, append(make([]byte, 4096), want...), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, 8192, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(b)
	unix.Madvise(b, unix.MADV_RANDOM)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := open(t, SyscallOptions{SelfPid: 1, Target: TargetFilter{AllowPids: []uint32{uint32(os.Getpid())}, AllowTids: []uint32{uint32(unix.Gettid())}},
		Calls: []SyscallPlan{{ABI: runtime.GOARCH, Nr: unix.SYS_OPENAT, Enter: []Fetch{Path(1)}}}})
	_, _, errno := unix.RawSyscall6(unix.SYS_OPENAT, ^uintptr(99), uintptr(unsafe.Pointer(&b[4096])), 0, 0, 0, 0)
	if errno != unix.ENAMETOOLONG {
		t.Errorf("openat: %v", errno)
	}
	batch, err := s.Main().Read(nil, 0, time.Unix(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	var atEntry, atReturn []wire.Segment
	for _, r := range split(t, batch) {
		if r.Kind() == wire.SysEnter {
			atEntry = append(atEntry, segments(r)...)
		} else {
			atReturn = append(atReturn, segments(r)...)
		}
	}
	if len(atEntry) != 1 || atEntry[0].Errno != uint16(unix.EFAULT) {
		t.Fatalf("at entry: %v; want EFAULT, or the test shows nothing", atEntry)
	}
	if len(atReturn) != 1 || atReturn[0].Errno != 0 || !bytes.Equal(atReturn[0].Data, want[:4095]) {
		t.Errorf("at the return: %v", atReturn)
	}
	if n := stateCount(t, s); n != 0 {
		t.Errorf("%d calls are still noted", n)
	}
}

// stateCount is the number of notes in the kernel, as the programs count them.
func stateCount(t *testing.T, s *Syscalls) uint64 {
	t.Helper()
	v := make([]byte, 64)
	if err := s.maps["control"].Lookup(uint32(0), &v); err != nil {
		t.Fatal(err)
	}
	n := uint64(0)
	var k, bits uint32
	for it := s.maps["state"].Iterate(); it.Next(&k, &bits); {
		n++
	}
	if counted := binary.LittleEndian.Uint64(v); counted != n {
		t.Errorf("%d notes counted, %d there", counted, n)
	}
	return n
}

// TestLoadLarge loads the largest programs that fetches can ask for, with small and large string limits.
func TestLoadLarge(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.BTF)
	message := func(at int, base Number, off int) []Fetch {
		return []Fetch{
			{Kind: FetchBytes, Base: base, Off: uint16(off), Len: Length{Number: Const(64), Max: 64}},
			{Kind: FetchBytes, Base: Mem(at, 0, 8), Len: Length{Number: Mem(at, 8, 4), Max: 128}},
			{Kind: FetchIovec, Base: Mem(at, 16, 8), Len: Length{Number: Mem(at, 24, 8)}},
			{Kind: FetchBytes, Base: Mem(at, 32, 8), Len: Length{Number: Mem(at, 40, 8), Max: 4096}},
		}
	}
	var messages []Fetch
	for i := range 4 {
		messages = append(messages, message(4*i, Arg(1), 64*i)...)
	}
	for name, f := range map[string][]Fetch{
		"sendmsg":  message(0, Arg(1), 0),
		"sendmmsg": messages,
		"execve":   {Path(0), {Kind: FetchStrings, Base: Arg(1)}, {Kind: FetchStrings, Base: Arg(2)}},
		"strings":  {Path(0), Path(1), Path(2), Path(3), Path(4), Path(5), Str(0), Str(1)},
		"getdents": {Vec(1, Arg(2), 1, 32768)},
	} {
		for _, limit := range []int{32, 256, 65536} {
			start := time.Now()
			s, err := OpenSyscalls(SyscallOptions{StrLimit: limit, Calls: []SyscallPlan{{ABI: runtime.GOARCH, Nr: unix.SYS_GETPPID, Enter: f}}})
			if err != nil {
				t.Errorf("%s, limit %d: %v after %v", name, limit, err, time.Since(start))
				continue
			}
			for _, p := range append(s.shapes, s.any[:]...) {
				if p == nil {
					continue
				}
				if i, err := p.info(); err == nil {
					t.Logf("%s, limit %d: %d bytes, %d instructions verified", name, limit, i.size, i.verified)
				}
			}
			t.Logf("%s, limit %d: opened in %v", name, limit, time.Since(start))
			s.Close()
		}
	}
}
