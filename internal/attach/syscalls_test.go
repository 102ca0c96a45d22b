package attach

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/decode"
	"github.com/sonde-trace/sonde/internal/kerneltest"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// open opens a session and attaches it; the test skips without the privilege.
func open(t testing.TB, o SyscallOptions) *Syscalls {
	t.Helper()
	kerneltest.Require(t, kerneltest.Root, kerneltest.BTF)
	if o.SelfPid == 0 {
		o.SelfPid = uint32(os.Getpid())
	}
	s, err := OpenSyscalls(o)
	if err != nil {
		var ve *VerifierError
		if errors.As(err, &ve) {
			if len(ve.Log) > 6000 {
				ve.Log = ve.Log[len(ve.Log)-6000:]
			}
			t.Fatalf("%v\n%s", err, ve.Log)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Attach(); err != nil {
		t.Fatal(err)
	}
	return s
}

// split cuts a batch into records and checks each.
func split(t testing.TB, batch []byte) (list []wire.Record) {
	t.Helper()
	for len(batch) > 0 {
		n := int(uint32(batch[0]) | uint32(batch[1])<<8 | uint32(batch[2])<<16 | uint32(batch[3])<<24)
		if n > len(batch) || n < wire.HeaderSize {
			t.Fatalf("record of %d bytes in a batch of %d", n, len(batch))
		}
		r := wire.Record(batch[:n:n])
		if !r.Valid() {
			t.Fatalf("record is not valid: %x", []byte(r))
		}
		list = append(list, r)
		batch = batch[(n+7)&^7:]
	}
	return list
}

// run starts a command under the session and returns the records of both rings, when it has ended.
func run(t testing.TB, s *Syscalls, cmd *exec.Cmd) (calls, life []wire.Record) {
	t.Helper()
	if err := s.Launching(true); err != nil {
		t.Fatal(err)
	}
	err := cmd.Start()
	if e := s.Launching(false); e != nil {
		t.Fatal(e)
	}
	if err != nil {
		t.Fatal(err)
	}
	var main, side []byte
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		var e error
		if main, e = s.Main().Read(main, 0, time.Now().Add(10*time.Millisecond)); e != nil && !errors.Is(e, os.ErrDeadlineExceeded) {
			t.Fatal(e)
		}
		select {
		case <-done:
			main, _ = s.Main().Read(main, 0, time.Time{}.Add(1))
			side, _ = s.Side().Read(side, 0, time.Time{}.Add(1))
			return split(t, main), split(t, side)
		default:
		}
	}
}

func segments(r wire.Record) (list []wire.Segment) {
	s := r.Segments()
	for {
		seg, rest, ok := s.Next()
		if !ok {
			return list
		}
		list = append(list, seg)
		s = rest
	}
}

// TestLoadEverything loads the programs of every row of the decoder, for all ABIs, with the default and the largest string limit.
func TestLoadEverything(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.BTF)
	specs := decode.Specs()
	limits := []int{0, 32, 65536}
	if testing.Short() {
		limits = limits[:1] // the verifier is slow in software emulation
	}
	for _, limit := range limits {
		var calls []SyscallPlan
		for _, abi := range syscalls.Family(runtime.GOARCH) {
			for nr, def := range abi.All() {
				c := SyscallPlan{ABI: abi.Name, Nr: nr, FDs: 1}
				if s := specs[def.Name]; s != nil {
					c.Enter, c.Exit = s.Enter, s.Exit
					if abi.PtrSize == 4 && s.Enter32 != nil {
						c.Enter = s.Enter32
					}
					if abi.PtrSize == 4 && s.Exit32 != nil {
						c.Exit = s.Exit32
					}
				}
				calls = append(calls, c)
			}
		}
		start := time.Now()
		s, err := OpenSyscalls(SyscallOptions{Calls: calls, Others: true, StrLimit: limit, SelfPid: uint32(os.Getpid()), Follow: true, Signals: true, FDPaths: limit == 32})
		if err != nil {
			var ve *VerifierError
			if errors.As(err, &ve) {
				t.Log(ve.Log[max(0, len(ve.Log)-3000):])
			}
			t.Errorf("string limit %d: %v", limit, err)
			continue
		}
		most := uint32(0)
		for _, p := range append(s.shapes, s.any[:]...) {
			if p == nil {
				continue
			}
			if i, err := p.info(); err == nil {
				most = max(most, i.verified)
			}
		}
		t.Logf("at most %d instructions verified", most)
		t.Logf("string limit %d: %d calls, %d programs in %v", limit, len(calls), len(s.shapes), time.Since(start))
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestVerifierError: what the verifier refuses is told in words, with the part of the plan that it is.
func TestVerifierError(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.BTF)
	kerneltest.CheckLeaks(t)
	kernel, err := describeKernel(false, false, false)
	if err != nil {
		t.Fatal(err)
	}
	if chargesMemlock() {
		restore, err := raiseMemlock()
		if err != nil {
			t.Fatal(err)
		}
		defer restore()
	}
	s := &Syscalls{opt: SyscallOptions{RingSize: 1 << 16}, maps: make(map[string]*ebpf.Map)}
	defer s.Close()
	gen := &bpfgen.Syscalls{Kernel: kernel, RingSize: 1 << 16, Target: bpfgen.Target{Procs: true}}
	// The buffers are smaller than the program believes.
	if err := s.makeMaps(&gen.Target, 4096, 2); err != nil {
		t.Fatal(err)
	}
	p, err := gen.Compile(&bpfgen.Shape{Ptr: 8, Fetches: []syscalls.Fetch{syscalls.Path(0)}}, 256, 1<<16)
	if err != nil {
		t.Fatal(err)
	}
	prog, err := s.loadTracing(p)
	if err == nil {
		prog.close()
		t.Fatal("a program that writes behind its buffer was loaded")
	}
	var ve *VerifierError
	if !errors.As(err, &ve) {
		t.Fatalf("%T: %v", err, err)
	}
	if !strings.Contains(ve.Doing, "string at argument 0") || ve.Reason == "" || ve.Log == "" || !strings.Contains(err.Error(), "sonde_in") || !errors.Is(err, unix.EACCES) {
		t.Errorf("%v\n%q, %q", err, ve.Doing, ve.Reason)
	}
}
