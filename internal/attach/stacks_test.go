package attach

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/kerneltest"
	"github.com/sonde-trace/sonde/internal/objfile"
	"github.com/sonde-trace/sonde/internal/symbol"
	"github.com/sonde-trace/sonde/internal/unwind"
	"github.com/sonde-trace/sonde/internal/wire"
)

// TestByOffset: rows of code that lies elsewhere in the file than in memory, in one segment or in several.
func TestByOffset(t *testing.T) {
	type segment struct{ addr, off, size uint64 }
	rows := []unwind.Row{{PC: 0x1010, Rule: 1}, {PC: 0x1020, Rule: 2}, {PC: 0x1030}, {PC: 0x5000, Rule: 3}, {PC: 0x6000}}
	for _, c := range []struct {
		name string
		segs []segment
		want string
		base uint64
	}{
		{"one", []segment{{0x1000, 0, 0x5000}}, "[{16 1} {32 2} {48 0} {16384 3} {20480 0}]", 0},
		{"moved by different distances", []segment{{0x1000, 0x400, 0x30}, {0x5000, 0x800, 0x1000}}, "[{1040 1} {1056 2} {1072 0} {2048 3} {6144 0}]", 0x400},
		{"in another order", []segment{{0x1000, 0x2000, 0x30}, {0x5000, 0x100, 0x1000}}, "[{8208 1} {8224 2} {8240 0}]", 0x2000},
		{"not in the file", []segment{{0x1000, 0x400, 0x30}}, "[{1040 1} {1056 2} {1072 0}]", 0x400},
		{"adjacent in the file", []segment{{0x1000, 0x400, 0x30}, {0x5000, 0x430, 0x1000}}, "[{1040 1} {1056 2} {1072 3} {5168 0}]", 0x400},
	} {
		got, base := byOffset(&unwind.Table{Rows: rows}, func(addr uint64) (uint64, bool) {
			for _, s := range c.segs {
				if addr-s.addr < s.size {
					return addr - s.addr + s.off, true
				}
			}
			return 0, false
		})
		if g := fmt.Sprint(got); g != c.want || base != c.base {
			t.Errorf("%s: %s from %#x, want %s from %#x", c.name, g, base, c.want, c.base)
		}
	}
}

// TestWalk: the stack at a hit, of a Go program (its line table gives the rows), from the function to the goroutine's start, at a probe and
// at a system call. It is the same in every kernel of the matrix and on both architectures.
func TestWalk(t *testing.T) {
	kerneltest.Require(t, kerneltest.FindVMA)
	kerneltest.CheckLeaks(t)
	o := probePlan(t, false)
	o.StackDepth = 127
	s := open(t, o)
	m, ok, err := s.Stacks.Add("/proc/self/exe", "self")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, again, err := s.Stacks.Add("/proc/self/exe", "self"); again || err != nil {
		t.Errorf("loaded twice: %v %v", again, err)
	}
	records, _ := run(t, s, self("probed"))
	f, err := objfile.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names := symbol.New(symbol.Options{})
	mod, err := names.Open("/proc/self/exe", "self", "")
	if err != nil {
		t.Fatal(err)
	}
	stacks := map[uint64][]string{}
	hits := 0
	for _, r := range records {
		switch r.Kind() {
		case wire.Stack:
			id, why, guessed := binary.LittleEndian.Uint64(r[wire.OffStackID:]), binary.LittleEndian.Uint32(r[wire.OffStackWhy:]), binary.LittleEndian.Uint32(r[wire.OffStackGuessed:])
			if why != bpfgen.WalkEnd || guessed != 0 {
				t.Errorf("the walk ended for reason %d with %d guesses", why, guessed)
			}
			var list []string
			for b := r[wire.StackFrames:]; len(b) >= wire.FrameSize; b = b[wire.FrameSize:] {
				w := binary.LittleEndian.Uint64(b[8:])
				if n := uint32(w >> wire.FrameModuleShift & (1<<wire.FrameModuleBits - 1)); n != m.Number {
					t.Errorf("a frame of module %d", n)
				}
				off := w & (1<<wire.FrameOffsetBits - 1)
				for _, x := range names.Frames(nil, mod, event.Frame{Offset: off}, w>>wire.FrameExactShift == 0) {
					list = append(list, x.Func[strings.LastIndexByte(x.Func, '/')+1:])
				}
			}
			stacks[id] = list
		case wire.Hit:
			hits++
			got := strings.Join(stacks[r.StackID()], " ")
			if want := "attach.probedCall attach.targetProbed attach.target attach.TestMain main.main runtime.main runtime.goexit"; got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		}
	}
	if hits != 4 || len(stacks) != 1 {
		t.Errorf("%d hits, %d different stacks", hits, len(stacks))
	}
}
