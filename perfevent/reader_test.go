package perfevent

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/kerneltest"
)

var farFuture = time.Now().Add(1000 * time.Hour)

func open(t *testing.T, o Options) *Reader {
	t.Helper()
	kerneltest.CheckLeaks(t)
	kerneltest.Require(t, kerneltest.Root)
	r, err := NewReader(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func deadline() time.Time { return time.Now().Add(kerneltest.Patience(3 * time.Second)) }

// burn uses the CPU for d of its own time.
func burn(d time.Duration) (x uint64) {
	var a, b unix.Timespec
	unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &a)
	for {
		for range 10000 {
			x = x*31 + 7
		}
		unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &b)
		if b.Nano()-a.Nano() > int64(d) {
			return x
		}
	}
}

// Samples of two events with stacks of different sizes come through the same rings.
func TestClock(t *testing.T) {
	r := open(t, Options{RingBytes: 4 << 20})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := unix.Gettid()
	var events []*Event
	for _, stack := range []uint32{0, 256, 8192} {
		e, err := r.Open(Spec{Kind: KindTaskClock, Period: 1_000_000, UserRegs: AllRegs(runtime.GOARCH), UserStack: stack, Callchain: true}, 0)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	burn(100 * time.Millisecond)
	if err := r.Disable(); err != nil {
		t.Fatal(err)
	}
	r.Flush()
	n, last := map[*Event]int{}, uint64(0)
	sp, ip := AMD64SP, AMD64IP
	if runtime.GOARCH == "arm64" {
		sp, ip = ARM64SP, ARM64PC
	}
	_, err := r.Read(func(x *Record) error {
		if x.Type != RecordSample {
			return nil
		}
		n[x.Event]++
		s := &x.Sample
		if int(x.Pid) != os.Getpid() || int(x.Tid) != tid || x.Time < last || int(x.CPU) >= runtime.NumCPU() || x.Late {
			t.Errorf("pid %d tid %d time %d (before: %d) CPU %d", x.Pid, x.Tid, x.Time, last, x.CPU)
		}
		last = x.Time
		regIP, ok1 := s.Regs.Get(ip)
		regSP, ok2 := s.Regs.Get(sp)
		if !ok1 || !ok2 || regSP == 0 || regIP == 0 || s.Regs.ABI != ABI64 {
			t.Errorf("registers: ip %#x sp %#x abi %d", regIP, regSP, s.Regs.ABI)
		}
		if want := int(x.Event.Spec.UserStack); len(s.Stack) > want || want > 0 && len(s.Stack) == 0 {
			t.Errorf("%d bytes of the stack, %d were asked for", len(s.Stack), want)
		}
		if s.Callchain.Len() < 2 || int64(s.Callchain.At(0)) != unix.PERF_CONTEXT_USER {
			t.Errorf("call chain %x", s.Callchain)
		}
		if len(s.Stack) > 0 && regSP != 0 {
			var raw Record
			if err := x.Event.Decode(append([]byte(nil), x.Raw...), &raw); err != nil || string(raw.Sample.Stack) != string(s.Stack) {
				t.Errorf("decoded later: %v", err)
			}
		}
		return nil
	}, deadline())
	if !errors.Is(err, ErrFlushed) {
		t.Fatal(err)
	}
	for i, e := range events {
		if n[e] == 0 {
			t.Errorf("event %d: no sample", i)
		}
		if e.Lost() > 0 {
			t.Errorf("event %d: %d lost", i, e.Lost())
		}
	}
}

// A program that is started shows its fork, name, mappings and end, in order and with times.
func TestSideBand(t *testing.T) {
	r := open(t, Options{})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	e, err := r.Open(Spec{Kind: KindDummy, SideBand: SideMmap | SideComm | SideTask, Inherit: true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^$")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	pid := uint32(cmd.ProcessState.Pid())
	if err := r.Disable(); err != nil {
		t.Fatal(err)
	}
	r.Flush()
	var story []string
	var last uint64
	if _, err := r.Read(func(x *Record) error {
		if x.Event != e {
			t.Errorf("type %d of event %p", x.Type, x.Event)
		}
		if x.Time < last {
			t.Errorf("type %d at %d after %d", x.Type, x.Time, last)
		}
		last = x.Time
		if k, ok := x.Task(); ok && k.Pid == pid && k.Tid == pid {
			story = append(story, map[uint32]string{RecordFork: "fork", RecordExit: "exit"}[x.Type])
		}
		if x.Pid != pid {
			return nil
		}
		if name, isExec, ok := x.Comm(); ok && isExec {
			if !strings.HasPrefix(exe[strings.LastIndex(exe, "/")+1:], string(name)) {
				t.Errorf("comm %q of %s", name, exe)
			}
			story = append(story, "exec")
		}
		if m, ok := x.Mmap2(); ok && string(m.Path) == exe && m.Prot&unix.PROT_EXEC != 0 {
			var st unix.Stat_t
			if err := unix.Stat(exe, &st); err != nil || len(m.BuildID) == 0 && st.Ino != m.Inode {
				t.Errorf("inode %d of %s, stat says %d (%v)", m.Inode, m.Path, st.Ino, err)
			}
			story = append(story, "map")
		}
		return nil
	}, deadline()); !errors.Is(err, ErrFlushed) {
		t.Fatal(err)
	}
	if want := []string{"fork", "exec", "map", "exit"}; !slices.Equal(story, want) {
		t.Errorf("%v, want %v", story, want)
	}
}

// output attaches a program that sends a counted word at every getppid of this process.
func output(t *testing.T, e *Event) {
	t.Helper()
	kerneltest.Require(t, kerneltest.BPF, kerneltest.RawTracepoint)
	events, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.PerfEventArray, KeySize: 4, ValueSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { events.Close() })
	counter, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { counter.Close() })
	for cpu, fd := range e.FDs() {
		if err := events.Put(uint32(cpu), uint32(fd)); err != nil {
			t.Fatal(err)
		}
	}
	getppid := map[string]int32{"amd64": 110, "arm64": 173}[runtime.GOARCH]
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, License: "Dual BSD/GPL", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord), // the number of the call
		asm.JNE.Imm(asm.R1, getppid, "out"),
		asm.FnGetCurrentPidTgid.Call(),
		asm.RSh.Imm(asm.R0, 32),
		asm.JNE.Imm(asm.R0, int32(os.Getpid()), "out"),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, counter.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.LoadMem(asm.R1, asm.R7, 0, asm.DWord), asm.Add.Imm(asm.R1, 1), asm.StoreMem(asm.R7, 0, asm.R1, asm.DWord),
		asm.StoreMem(asm.RFP, -16, asm.R1, asm.DWord),
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.LoadMapPtr(asm.R2, events.FD()),
		asm.LoadImm(asm.R3, 0xffffffff, asm.DWord), // BPF_F_CURRENT_CPU
		asm.Mov.Reg(asm.R4, asm.RFP), asm.Add.Imm(asm.R4, -16),
		asm.Mov.Imm(asm.R5, 8),
		asm.FnPerfEventOutput.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prog.Close() })
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sys_enter", Program: prog})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// What programs send comes whole and in order, with registers and stack in the same record; what does not fit is counted, so
// that received and lost make up all.
func TestOutput(t *testing.T) {
	r := open(t, Options{RingBytes: 1, Watermark: 1})
	e, err := r.Open(Spec{Kind: KindBPFOutput, UserRegs: AllRegs(runtime.GOARCH), UserStack: 512}, -1)
	if err != nil {
		t.Fatal(err)
	}
	output(t, e)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var sent, got, last uint64
	deliver := func(x *Record) error {
		if x.Type == RecordSample {
			got++
			n := binary.LittleEndian.Uint64(x.Sample.Raw)
			if n <= last || n > sent || len(x.Sample.Stack) != 512 || x.Sample.Regs.ABI != ABI64 {
				t.Fatalf("word %d after %d of %d, %d bytes of stack, ABI %d", n, last, sent, len(x.Sample.Stack), x.Sample.Regs.ABI)
			}
			last = n
		}
		return nil
	}
	call := func(n int) {
		for range n {
			sent++
			unix.Getppid()
		}
	}
	// One at a time: each wakes the reader, and the page-sized ring wraps over and over.
	for range 200 {
		call(1)
		if n, err := r.Read(deliver, deadline()); n == 0 || err != nil {
			t.Fatal(n, err)
		}
	}
	if got != 200 || e.Lost() != 0 {
		t.Fatalf("%d of 200, %d lost", got, e.Lost())
	}
	// Far more than fit. The kernel tells of the loss with the next record that fits.
	call(1000)
	if _, err := r.Read(deliver, deadline()); err != nil {
		t.Fatal(err)
	}
	var set, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	defer unix.SchedSetaffinity(0, &set)
	for _, cpu := range r.CPUs() {
		one.Zero()
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Fatal(err)
		}
		call(1)
	}
	r.Flush()
	if _, err := r.Read(deliver, deadline()); !errors.Is(err, ErrFlushed) {
		t.Fatal(err)
	}
	if e.Lost() == 0 || got+e.Lost() != sent || r.Stats().Lost != e.Lost() {
		t.Errorf("%d sent, %d received, %d lost", sent, got, e.Lost())
	}
}

func TestStop(t *testing.T) {
	r := open(t, Options{Watermark: 1})
	e, err := r.Open(Spec{Kind: KindBPFOutput}, -1)
	if err != nil {
		t.Fatal(err)
	}
	output(t, e)
	// The end of a context: what is in the rings is delivered first.
	ctx, cancel := context.WithCancel(context.Background())
	got, done := make(chan uint64, 64), make(chan error)
	go func() {
		done <- r.Run(ctx, func(x *Record) error {
			if x.Type == RecordSample {
				got <- binary.LittleEndian.Uint64(x.Sample.Raw)
			}
			return nil
		})
	}()
	for range 50 {
		unix.Getppid()
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(got) != 50 {
		t.Errorf("%d of 50 records before the end", len(got))
	}
	// Flush ends a Read that waits; Close too.
	wait := func(stop func(), want error) {
		t.Helper()
		res := make(chan error)
		go func() {
			_, err := r.Read(func(*Record) error { return nil }, time.Time{})
			res <- err
		}()
		stop()
		select {
		case err := <-res:
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		case <-time.After(kerneltest.Patience(5 * time.Second)):
			t.Fatalf("Read did not end with %v", want)
		}
	}
	wait(r.Flush, ErrFlushed)
	if _, err := r.Read(func(*Record) error { return nil }, time.Now()); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("after a flush:", err)
	}
	wait(func() { r.Close() }, os.ErrClosed)
	r.Close()
	if _, err := r.Open(Spec{Kind: KindDummy}, 0); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

// CPUs that come get a ring and the events; those that go are let go.
func TestHotplug(t *testing.T) {
	all, err := onlineCPUs()
	if err != nil {
		t.Fatal(err)
	}
	online := all[:1]
	r := open(t, Options{online: func() ([]int, error) { return online, nil }})
	e, err := r.Open(Spec{Kind: KindDummy, SideBand: SideComm}, -1)
	if err != nil {
		t.Fatal(err)
	}
	look := func(want []int) {
		t.Helper()
		online = want
		r.mu.Lock()
		r.checked = time.Time{}
		r.mu.Unlock()
		if _, err := r.Read(func(*Record) error { return nil }, time.Now()); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		var fds []int
		for cpu := range e.FDs() {
			fds = append(fds, cpu)
		}
		slices.Sort(fds)
		if !slices.Equal(r.CPUs(), want) || !slices.Equal(fds, want) {
			t.Errorf("rings on %v, events on %v; want %v", r.CPUs(), fds, want)
		}
	}
	look(all)
	look(all[len(all)-1:])
	look(append(all[:len(all):len(all)], 60000)[:len(all)])
	// A CPU that is gone again before it could be opened.
	online = append(slices.Clone(all), 60000)
	r.mu.Lock()
	err = r.lookCPUs()
	r.mu.Unlock()
	if err != nil && !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
}

// What cannot be opened is an error of the call that asked for it.
func TestOpenErrors(t *testing.T) {
	r := open(t, Options{})
	if _, err := r.Open(Spec{Kind: KindDummy}, 1<<22+1); !errors.Is(err, os.ErrProcessDone) {
		t.Error("a task that is not there:", err)
	}
	if _, err := r.Open(Spec{Kind: KindDummy, UserStack: 1 << 20}, 0); err == nil || !strings.Contains(err.Error(), "65528") {
		t.Error("a stack that is too large:", err)
	}
	if n := len(r.events); n != 0 {
		t.Error(n, "events stay behind")
	}
	if _, err := NewReader(Options{RingBytes: -1}); err == nil {
		t.Error("a negative ring")
	}
	if _, err := NewReader(Options{Watermark: 1 << 29}); err == nil {
		t.Error("a watermark beyond the ring")
	}
}

//go:noinline
func store(p *uint64, v uint64) { *p = v }

// Breakpoints deliver samples with the address, where the machine has debug registers that work; elsewhere the count says so.
func TestBreak(t *testing.T) {
	kerneltest.Require(t, kerneltest.DebugRegisters)
	r := open(t, Options{})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	word := new([2]uint64)
	addr := uint64(uintptr(unsafe.Pointer(word)))
	e, err := r.Open(Spec{Kind: KindBreak, Break: Break{addr, 8, ModeWrite}, UserRegs: AllRegs(runtime.GOARCH), UserStack: 256, Inherit: true}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(10) {
		store(&word[0], i)
		store(&word[1], i) // the neighbour
	}
	count, err := e.Count()
	if err != nil {
		t.Fatal(err)
	}
	r.Disable()
	r.Flush()
	n := uint64(0)
	if _, err := r.Read(func(x *Record) error {
		if x.Type == RecordSample {
			n++
			if x.Sample.Addr != addr || len(x.Sample.Stack) == 0 {
				t.Errorf("address %#x, want %#x; %d bytes of stack", x.Sample.Addr, addr, len(x.Sample.Stack))
			}
		}
		return nil
	}, deadline()); !errors.Is(err, ErrFlushed) {
		t.Fatal(err)
	}
	runtime.KeepAlive(word)
	if n+e.Lost() != count {
		t.Errorf("%d samples, %d lost, the kernel counted %d", n, e.Lost(), count)
	}
	// arm64 counts the step over the access too on some kernels.
	if count < 10 || count > 20 {
		t.Errorf("%d hits of 10", count)
	}
}
