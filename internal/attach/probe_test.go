package attach

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/kerneltest"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// node is what probedCall is given: a number at 0, a pointer to text at 8.
type node struct {
	n    int32
	_    int32
	text *byte
}

// probedCall is what the target calls. Go passes arguments in registers: internal ABI, which these tests write out by hand.
// It neither grows its stack nor is it inlined, so that its return can be watched.
//
//go:noinline
//go:nosplit
func probedCall(a, b uint64, s *byte, n *node) uint64 {
	n.n++
	return a*10 + b
}

// targetProbed calls it four times.
func targetProbed() error {
	text, inner := []byte("hello, probe\x00"), []byte("inner\x00")
	n := &node{n: -5, text: &inner[0]}
	for i := range uint64(4) {
		if got := probedCall(i, 7, &text[0], n); got != i*10+7 {
			return fmt.Errorf("the probed function returned %d", got)
		}
	}
	return nil
}

// probedRegs are the registers of the four arguments.
func probedRegs() []string {
	if runtime.GOARCH == "amd64" {
		return []string{"rax", "rbx", "rcx", "rdi"} // the Go ABI: cmd/compile/abi-internal
	}
	return []string{"x0", "x1", "x2", "x3"}
}

func word(t *testing.T, reg string, steps ...bpfgen.Step) bpfgen.Word {
	t.Helper()
	off, ok := bpfgen.RegOffset(runtime.GOARCH, reg)
	if !ok {
		t.Fatalf("no register %s", reg)
	}
	return bpfgen.Word{Reg: off, Steps: steps}
}

func callEntry(t *testing.T) uint64 {
	t.Helper()
	f := probedCall
	off, err := fileOffset(uint64(**(**uintptr)(unsafe.Pointer(&f))))
	if err != nil {
		t.Fatal(err)
	}
	return off
}

// probePlan is a probe on probedCall: its arguments, the number and the text in the node, and the text.
func probePlan(t *testing.T, ret bool, tests ...bpfgen.Test) SyscallOptions {
	regs := probedRegs()
	words := []bpfgen.Word{word(t, regs[0]), word(t, regs[1]), word(t, regs[2]), word(t, regs[3]),
		word(t, regs[3], bpfgen.Step{Width: 4, Signed: true}), word(t, regs[3], bpfgen.Step{Add: 8, Width: 8})}
	plan := ProbePlan{Name: "probedCall", Points: []ProbePoint{{ID: 77, Path: "/proc/self/exe", Offset: callEntry(t), Start: callEntry(t)}},
		Entry: &bpfgen.Probe{Slots: words, Tests: tests, Keep: ret, Fetches: []syscalls.Fetch{syscalls.Str(3), syscalls.Str(6)}}}
	if ret {
		plan.Return = &bpfgen.Probe{Return: true, Keep: true, Slots: words, Fetches: []syscalls.Fetch{syscalls.Fixed(wire.KeptSlot+3, 4)}}
	}
	return SyscallOptions{Follow: true, Probes: []ProbePlan{plan}}
}

func texts(r wire.Record) (list []string) {
	for s := r.Segments(); ; {
		seg, rest, ok := s.Next()
		if !ok {
			return list
		}
		list, s = append(list, string(seg.Data)), rest
	}
}

func slot(t *testing.T, r wire.Record, i int) int64 {
	t.Helper()
	v, ok := r.Slot(i)
	if !ok {
		t.Errorf("value %d could not be read", i)
	}
	return int64(v)
}

// TestProbe: registers, memory behind them, text, and the values at the return.
func TestProbe(t *testing.T) {
	kerneltest.CheckLeaks(t)
	s := open(t, probePlan(t, true))
	records, _ := run(t, s, self("probed"))
	var hits, rets []wire.Record
	for _, r := range records {
		if r.Probe() != 77 {
			t.Errorf("a record of probe %d", r.Probe())
		}
		if r.Kind() == wire.Hit {
			hits = append(hits, r)
		} else {
			rets = append(rets, r)
		}
	}
	if len(hits) != 4 || len(rets) != 4 {
		t.Fatalf("%d hits and %d returns of 4", len(hits), len(rets))
	}
	for i, r := range hits {
		if a, b, n := slot(t, r, 1), slot(t, r, 2), slot(t, r, 5); a != int64(i) || b != 7 || n != int64(i-5) {
			t.Errorf("hit %d: a %d, b %d, number %d", i, a, b, n)
		}
		if got := texts(r); !slices.Equal(got, []string{"hello, probe", "inner"}) {
			t.Errorf("hit %d: %q", i, got)
		}
	}
	for i, r := range rets {
		if ret, a, n := slot(t, r, wire.SlotRet), slot(t, r, wire.KeptSlot), slot(t, r, wire.KeptSlot+4); ret != int64(i*10+7) || a != int64(i) || n != int64(i-5) {
			t.Errorf("return %d: %d, kept a %d, number %d", i, ret, a, n)
		}
		if got := texts(r); len(got) != 1 || len(got[0]) != 4 || int8(got[0][0]) != int8(i-4) {
			t.Errorf("return %d: the number in memory is %q", i, got)
		}
	}
	c, err := s.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if c.Made != 4 || c.Returned != 4 || c.StateFull != 0 {
		t.Errorf("%+v", c)
	}
}

// TestProbeTests: each comparison in the kernel, against what the target does: a = 0, 1, 2, 3; number = -5, -4, -3, -2.
func TestProbeTests(t *testing.T) {
	for _, c := range []struct {
		name string
		test bpfgen.Test
		want []int64
	}{
		{"eq", bpfgen.Test{Slot: 1, Op: bpfgen.TestEq, Values: []uint64{2}}, []int64{2}},
		{"in", bpfgen.Test{Slot: 1, Op: bpfgen.TestEq, Values: []uint64{0, 3, 1 << 40}}, []int64{0, 3}},
		{"ne", bpfgen.Test{Slot: 1, Op: bpfgen.TestNe, Values: []uint64{2}}, []int64{0, 1, 3}},
		{"gt", bpfgen.Test{Slot: 1, Op: bpfgen.TestGt, Values: []uint64{1}}, []int64{2, 3}},
		{"bits", bpfgen.Test{Slot: 1, Op: bpfgen.TestBits, Values: []uint64{1}}, []int64{1, 3}},
		{"signed", bpfgen.Test{Slot: 5, Op: bpfgen.TestLt, Width: 4, Signed: true, Values: []uint64{^uint64(0) - 2}}, []int64{0, 1}},
		{"unsigned", bpfgen.Test{Slot: 5, Op: bpfgen.TestGt, Width: 4, Values: []uint64{0xfffffffd}}, []int64{3}},
		{"text", bpfgen.Test{Slot: 0, Op: bpfgen.TestText, Text: []byte("hello, probe")}, []int64{0, 1, 2, 3}},
		{"longer", bpfgen.Test{Slot: 0, Op: bpfgen.TestText, Text: []byte("hello, probes")}, nil},
		{"shorter", bpfgen.Test{Slot: 0, Op: bpfgen.TestText, Text: []byte("hello")}, nil},
		{"differs", bpfgen.Test{Slot: 0, Op: bpfgen.TestText, Text: []byte("hello, Probe")}, nil},
		{"not", bpfgen.Test{Slot: 0, Op: bpfgen.TestText, Text: []byte("hello, Probe"), Not: true}, []int64{0, 1, 2, 3}},
		{"not equal", bpfgen.Test{Slot: 0, Op: bpfgen.TestText, Text: []byte("hello, probe"), Not: true}, nil},
		{"prefix", bpfgen.Test{Slot: 1, Op: bpfgen.TestText, Text: []byte("inn"), Prefix: true}, []int64{0, 1, 2, 3}},
		{"no prefix", bpfgen.Test{Slot: 1, Op: bpfgen.TestText, Text: []byte("out"), Prefix: true}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t, probePlan(t, true, c.test))
			records, _ := run(t, s, self("probed"))
			var got, back []int64
			for _, r := range records {
				if r.Kind() == wire.Hit {
					got = append(got, slot(t, r, 1))
				} else {
					back = append(back, slot(t, r, wire.KeptSlot))
				}
			}
			if !slices.Equal(got, c.want) || !slices.Equal(back, c.want) {
				t.Errorf("hits %v, returns %v, want %v", got, back, c.want)
			}
		})
	}
}

// TestTracepoint: fields of a tracepoint's record, an array and dynamic data among them.
func TestTracepoint(t *testing.T) {
	kerneltest.CheckLeaks(t)
	kerneltest.Require(t, kerneltest.Tracefs)
	format, err := TracepointFormat("task", "task_rename")
	if err != nil || format == "" {
		t.Fatal(err)
	}
	// pid_t pid at 8 and char oldcomm[16] at 12, in every kernel of the matrix (include/trace/events/task.h).
	plan := ProbePlan{Name: "tp:task:task_rename", Kind: ProbeTracepoint, Points: []ProbePoint{{ID: 5, Group: "task", Symbol: "task_rename"}},
		Entry: &bpfgen.Probe{Tracepoint: true, Slots: []bpfgen.Word{{Record: true, Reg: 8, Width: 4, Signed: true}}, Fields: []bpfgen.Field{{Off: 12, Len: 16}}}}
	s := open(t, SyscallOptions{Follow: true, Probes: []ProbePlan{plan}})
	records, _ := run(t, s, self("rename 1"))
	if len(records) == 0 {
		t.Fatal("no record of the thread's new name")
	}
	for _, r := range records {
		if pid := slot(t, r, 1); pid != int64(r.Tid()) {
			t.Errorf("pid %d in a record of thread %d", pid, r.Tid())
		}
		if got := texts(r); len(got) != 1 || len(got[0]) != 16 || got[0][0] == 0 {
			t.Errorf("the old name is %q", got)
		}
	}
}

// The self-test of the way that breakpoints go on arm64 ends on every machine, and soon.
func TestBreakProgram(t *testing.T) {
	kerneltest.CheckLeaks(t)
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF)
	if err := testProgram(); err != nil {
		t.Error(err)
	}
}
