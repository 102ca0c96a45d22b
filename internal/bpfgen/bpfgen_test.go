package bpfgen

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/sonde-trace/sonde/internal/decode"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// TestNumbers compares the calls that the programs treat specially with the tables.
func TestNumbers(t *testing.T) {
	for _, goarch := range []string{"amd64", "arm64"} {
		for _, abi := range syscalls.Family(goarch) {
			if _, ptr, ok := ABIIndex(goarch, abi.Name); !ok || ptr != abi.PtrSize {
				t.Errorf("%s on %s: pointers of %d bytes, %v; the table has %d", abi.Name, goarch, ptr, ok, abi.PtrSize)
			}
			slots := make(map[int]string)
			for nr, d := range abi.All() {
				for _, c := range []struct {
					what  string
					got   bool
					names []string
				}{
					{"exec", IsExec(abi.Name, nr), []string{"execve", "execveat"}},
					{"sigreturn", IsSigreturn(abi.Name, nr), []string{"sigreturn", "rt_sigreturn"}},
					{"fork", IsFork(abi.Name, nr), []string{"fork", "vfork", "clone", "clone3"}},
				} {
					want := false
					for _, n := range c.names {
						want = want || d.Name == n
					}
					if c.got != want {
						t.Errorf("%s %s, number %d: %s is %v", abi.Name, d.Name, nr, c.what, c.got)
					}
				}
				slot := Slot(abi.Name, nr)
				if slot == OtherSlot && nr == 0xffff0 {
					continue // arm's cmpxchg, which no kernel of today has
				}
				if old, ok := slots[slot]; ok || slot >= OtherSlot {
					t.Errorf("%s: %s and %s share slot %d", abi.Name, d.Name, old, slot)
				}
				slots[slot] = d.Name
			}
			if Slot(abi.Name, 5000) != OtherSlot || Slot(abi.Name, ^uint32(0)) != OtherSlot {
				t.Errorf("%s: numbers beyond the table have slots of their own", abi.Name)
			}
		}
	}
}

// TestCompile generates the programs of every row of the decoder for both architectures, with and without what newer
// kernels have.
func TestCompile(t *testing.T) {
	specs := decode.Specs()
	for _, kernel := range []Kernel{{Arch: "amd64", Atomics: true}, {Arch: "arm64"}} {
		for _, limit := range map[string][]int{"amd64": {1}, "arm64": {65536}}[kernel.Arch] {
			g := &Syscalls{Kernel: kernel, RingSize: 1 << 20, Block: limit == 1, Target: Target{Procs: true, Threads: true, SelfPid: 1,
				DenyPids: []uint32{5, 1 << 31}, AllowUIDs: []uint32{0}, DenyComms: []string{"a name that is too long"}, AllowCgroups: make([]uint64, 20)}}
			check := func(what string, p *Program, err error) {
				t.Helper()
				if err != nil {
					t.Errorf("%s, %s: %v", kernel.Arch, what, err)
					return
				}
				var raw bytes.Buffer
				for i := range p.Insns {
					// Jumps are resolved when a program is loaded; what is left must encode.
					if p.Insns[i].Reference() == "" {
						if _, err := p.Insns[i].Marshal(&raw, binary.LittleEndian); err != nil {
							t.Errorf("%s, %s: instruction %d: %v", kernel.Arch, what, i, err)
						}
					}
				}
				if len(p.Insns) > 15000 {
					t.Errorf("%s, %s: %d instructions; jumps reach 32767", kernel.Arch, what, len(p.Insns))
				}
				if p.Note(0) == "" || p.Note(1<<30) != "" {
					t.Errorf("%s, %s: instruction 0 has the note %q", kernel.Arch, what, p.Note(0))
				}
			}
			p, err := g.Enter()
			check("enter", p, err)
			p, err = g.Exit()
			check("exit", p, err)
			life, err := g.Life(true, true)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range life {
				check(l.Tracepoint, l.Program, nil)
			}
			for name, s := range specs {
				for _, sh := range []*Shape{{Ptr: 8, Fetches: s.Enter, FDs: 0x3f}, {Exit: true, Ptr: 8, Fetches: s.Exit, RetFD: true},
					{Ptr: 4, Fetches: s.Enter32}, {Exit: true, Ptr: 4, Fetches: s.Exit32}} {
					p, err := g.Compile(sh, limit, ScratchSize([]*Shape{sh}, limit))
					check(name, p, err)
				}
			}
		}
	}
}

// TestRefused: lists of fetches that cannot be taken are errors, not programs.
func TestRefused(t *testing.T) {
	g := &Syscalls{Kernel: Kernel{Arch: "amd64"}, RingSize: 1 << 20}
	for name, f := range map[string][]syscalls.Fetch{
		"no kind":                    {{Base: syscalls.Arg(0)}},
		"a constant pointer":         {{Kind: syscalls.FetchString, Base: syscalls.Const(1)}},
		"argument 6":                 {syscalls.Str(6)},
		"the return value at entry":  {syscalls.Buf(0, syscalls.Ret())},
		"a number from a later one":  {{Kind: syscalls.FetchString, Base: syscalls.Mem(1, 0, 8)}, syscalls.Fixed(0, 8)},
		"a number from itself":       {{Kind: syscalls.FetchString, Base: syscalls.Mem(0, 0, 8)}},
		"a number from a string":     {syscalls.Str(0), {Kind: syscalls.FetchString, Base: syscalls.Mem(0, 0, 8)}},
		"a number of three bytes":    {syscalls.Fixed(0, 8), {Kind: syscalls.FetchString, Base: syscalls.Mem(0, 0, 3)}},
		"more fetches than possible": make([]syscalls.Fetch, 1000),
	} {
		if _, err := g.Compile(&Shape{Ptr: 8, Fetches: f}, 256, 1<<16); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := (&Syscalls{Kernel: Kernel{Arch: "riscv64"}}).Enter(); err == nil {
		t.Error("a program for riscv64")
	}
}

// TestAtomics: the assembler of cilium/ebpf v0.22.0 leaves the operation of atomics out, see atomic.
func TestAtomics(t *testing.T) {
	for want, in := range map[uint32]asm.Instruction{
		0xf1: atomic(asm.CmpXchg, asm.R1, asm.R2, 8),
		0x01: atomic(asm.FetchAdd, asm.R1, asm.R2, 8),
		0x00: xadd(asm.R1, 8, asm.R2),
	} {
		var raw bytes.Buffer
		if _, err := in.Marshal(&raw, binary.LittleEndian); err != nil {
			t.Fatal(err)
		}
		b := raw.Bytes()
		if b[0] != 0xdb || binary.LittleEndian.Uint32(b[4:]) != want {
			t.Errorf("%x, want the opcode db and the operation %#x", b, want)
		}
	}
}

// TestProgram: labels that share a place, blocks out of line, and code that nothing reaches.
func TestProgram(t *testing.T) {
	b := newBuilder()
	b.say("main")
	b.later(func() { b.bind("a"); b.bind("b"); b.emit(asm.Mov.Imm(r0, 2), asm.Return()) })
	b.emit(asm.Mov.Imm(r0, 0), asm.JEq.Imm(r0, 1, "a"), asm.JEq.Imm(r0, 2, "b"), asm.LoadImm(r1, 1<<40, asm.DWord), asm.Return(), asm.Mov.Imm(r0, 9))
	b.say("never")
	b.emit(asm.Return())
	p := b.program("test")
	if len(p.Insns) != 7 {
		t.Fatalf("%d instructions:\n%v", len(p.Insns), p.Insns)
	}
	if p.Insns[1].Reference() != p.Insns[5].Symbol() || p.Insns[2].Reference() != p.Insns[5].Symbol() {
		t.Errorf("jumps to %q and %q, label %q", p.Insns[1].Reference(), p.Insns[2].Reference(), p.Insns[5].Symbol())
	}
	// The 64-bit load counts twice.
	for at, want := range map[int]string{0: "main", 3: "main", 4: "main", 7: "main", 8: ""} {
		if got := p.Note(at); got != want {
			t.Errorf("note %d is %q, want %q", at, got, want)
		}
	}
}
