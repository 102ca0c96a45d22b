package load

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/ldso"
	"github.com/sonde-trace/sonde/internal/objfile"
	"github.com/sonde-trace/sonde/internal/proc"
	"github.com/sonde-trace/sonde/probe"
	"github.com/sonde-trace/sonde/tracer"
)

// Analysis is how a program came to life. Times are in ns from the entry of execve, unless they say otherwise.
type Analysis struct {
	Schema  string    `json:"schema"` // "sonde-load/1"
	Command []string  `json:"command"`
	Path    string    `json:"path"`
	Chain   []Step    `json:"chain,omitempty"`
	Type    string    `json:"type"` // "dynamic, glibc 2.36", "static", …
	BuildID string    `json:"build_id,omitempty"`
	Kernel  string    `json:"kernel"`
	Arch    string    `json:"arch"`
	When    time.Time `json:"when"`

	Main    int64      `json:"main_ns"` // when main began; 0 when it was not seen
	Marks   []Mark     `json:"marks"`
	Phases  []Phase    `json:"phases"`
	Objects []Object   `json:"objects"`
	Inits   []Init     `json:"constructors"` // in the order of their calls
	Steps   []MapStep  `json:"map_steps"`
	Areas   []AreaView `json:"map_at_main"`
	Calls   int        `json:"calls"` // system calls from execve to main
	Failed  int        `json:"failed_opens"`

	Runs   int      `json:"runs,omitempty"`   // of how many this is the one in the middle
	Spread []Spread `json:"spread,omitempty"` // over the runs

	Bindings  []BindingView `json:"bindings,omitempty"`
	Diagnosis *Diagnosis    `json:"diagnosis,omitempty"`
	Notes     []string      `json:"notes,omitempty"`
	Ended     bool          `json:"ended"`
	Status    int           `json:"status"` // of the command, as a shell gives it
}

// Mark is a moment.
type Mark struct {
	Name string `json:"name"`
	At   int64  `json:"at_ns"`
}

// Phase is a part of the way.
type Phase struct {
	Name  string `json:"name"`
	Start int64  `json:"start_ns"`
	End   int64  `json:"end_ns"`
	What  string `json:"what"` // one sentence on what happens there
}

// Object is a file that was mapped.
type Object struct {
	Path     string     `json:"path"`
	NeededBy string     `json:"needed_by,omitempty"`
	Rule     string     `json:"found_by,omitempty"`
	Tries    []ldso.Try `json:"tries,omitempty"`
	Opened   int64      `json:"opened_ns,omitempty"`
	Mapped   int64      `json:"mapped_ns,omitempty"` // when its file was closed again
	Relro    int64      `json:"relro_ns,omitempty"`  // when its relocation was done
	Base     uint64     `json:"base,omitempty"`      // added to the addresses in the file
	Bytes    uint64     `json:"bytes"`
	Failed   int        `json:"failed_opens,omitempty"` // that were seen before it was found
	InitTime int64      `json:"constructors_ns,omitempty"`
}

// Init is one call of a constructor.
type Init struct {
	Object string `json:"object"`
	Name   string `json:"name"`
	Addr   uint64 `json:"addr"` // in the file
	Start  int64  `json:"start_ns"`
	// Took is until the next constructor, the program's entry or main begins.
	Took int64 `json:"took_ns"`
}

// MapStep is one change of the memory map.
type MapStep struct {
	At      int64    `json:"at_ns"`
	Cause   string   `json:"cause"`
	Call    string   `json:"call,omitempty"`
	Changes []string `json:"changes"`
}

// AreaView is one line of the memory map.
type AreaView struct {
	Start, End uint64
	Flags      string
	Offset     uint64
	Name       string
	Step       int `json:"step"` // index in Steps of the change that made it so
}

// BindingView is a binding as it is shown.
type BindingView struct {
	Symbol   string   `json:"symbol"`
	By       string   `json:"by"`
	To       string   `json:"to,omitempty"`
	Lazy     bool     `json:"lazy,omitempty"`
	Shadowed []string `json:"shadowed,omitempty"` // interposition: others that define it
}

// Options of an analysis.
type Options struct {
	Bindings bool
	// Ready is called when everything is attached.
	Ready func()
}

const (
	schema    = "sonde-load/1"
	maxProbes = 400
	maxEvents = 200_000
)

// calls are the system calls that matter on the way to main.
var calls = map[string]bool{
	"execve": true, "execveat": true, "open": true, "openat": true, "access": true, "faccessat": true, "readlink": true, "read": true, "pread64": true, "close": true, "fstat": true,
	"newfstatat": true, "stat": true, "mmap": true, "munmap": true, "mprotect": true, "mremap": true, "brk": true, "arch_prctl": true, "set_tid_address": true, "set_robust_list": true, "rseq": true, "prlimit64": true,
}

// mark is what a probe of ours stands for.
type mark struct {
	kind byte // 'l' the linker's entry, 'e' the program's entry, 'm' main, 'i' a constructor
	obj  *ldso.Object
	path string
	addr uint64
	name string
}

// Run starts the command, follows it to its end or until ctx is done, and says how it came to main. A program that does not start is no
// error: its Diagnosis says why.
func Run(ctx context.Context, cmd *proc.Command, opt Options) (*Analysis, error) {
	a := &Analysis{Schema: schema, Command: cmd.Argv, Path: cmd.Path, Arch: runtime.GOARCH, When: time.Now()}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		a.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	chain, program, _ := follow(cmd.Path, cmd.Env) // what is wrong is found when it happens
	a.Chain = chain
	var closure *ldso.Closure
	var marks []mark
	if program != "" {
		a.Path = program
		var err error
		closure, err = ldso.Resolve(program, cmd.Env)
		if err != nil && !errors.Is(err, ldso.ErrStatic) {
			a.Notes = append(a.Notes, err.Error())
		}
		if closure != nil {
			defer closure.Close()
		}
		f, err := objfile.Open(program)
		if err == nil {
			defer f.Close()
			a.describe(f, closure)
			marks = places(f, program, closure)
		}
	}
	o := tracer.Options{Command: cmd, Whole: true, StrLimit: 4096, Select: func(abi string, nr uint32, name string) bool { return calls[name] }, Ready: opt.Ready}
	if len(marks) > maxProbes {
		a.Notes = append(a.Notes, fmt.Sprintf("%d constructors are too many: only the first %d places are watched", len(marks), maxProbes))
		marks = marks[:maxProbes]
	}
	kept := marks[:0]
	for _, m := range marks {
		if spec := m.spec(); spec != nil {
			o.Probes = append(o.Probes, spec)
			kept = append(kept, m)
		}
	}
	marks = kept
	s, err := tracer.Open(o)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	log := &eventLog{}
	r, err := s.Run(ctx, log)
	var refused *proc.StartError
	if errors.As(err, &refused) {
		a.Diagnosis = Refused(cmd.Path, cmd.Argv, cmd.Env, refused.Errno)
		a.Status = a.Diagnosis.Status
		return a, nil
	} else if err != nil {
		return nil, err
	}
	if n := r.Ledger.LostTotal(); n > 0 {
		a.Notes = append(a.Notes, fmt.Sprintf("%d calls are lost, and may be missing here", n))
	}
	if log.cut {
		a.Notes = append(a.Notes, fmt.Sprintf("only the first %d events are kept", maxEvents))
	}
	stage := a.build(log.events, marks, closure, program)
	if a.Ended = r.Ended; r.Ended {
		a.Status = r.Status.ExitStatus()
		if r.Status.Signaled() {
			a.Status = 128 + int(r.Status.Signal())
		}
		a.Diagnosis = Ended(cmd.Path, cmd.Argv, cmd.Env, r.Status, stage)
		if stage == StageMain && a.Diagnosis != nil && a.Diagnosis.Cause == "killed" {
			a.Diagnosis = nil // how it goes on is not a matter of starting
		}
	}
	if opt.Bindings && closure != nil {
		for _, b := range closure.Bindings() {
			v := BindingView{Symbol: b.Symbol, By: b.By.Path, Lazy: b.Lazy}
			if b.Version != "" {
				v.Symbol += "@" + b.Version
			}
			if b.To != nil {
				v.To = b.To.Path
			}
			for _, o := range b.Shadowed {
				v.Shadowed = append(v.Shadowed, o.Path)
			}
			a.Bindings = append(a.Bindings, v)
		}
	}
	return a, nil
}

func (a *Analysis) describe(f *objfile.File, c *ldso.Closure) {
	a.BuildID = fmt.Sprintf("%x", f.BuildID())
	switch {
	case c == nil && f.ELF.Type == elf.ET_DYN:
		a.Type = "static, position-independent"
	case c == nil:
		a.Type = "static"
	default:
		a.Type = "dynamic, " + or(c.Linker.Libc, "unknown dynamic linker")
		if c.Linker.Major > 0 {
			a.Type += fmt.Sprintf(" %d.%d", c.Linker.Major, c.Linker.Minor)
		}
		if f.ELF.Type == elf.ET_DYN {
			a.Type += ", position-independent"
		}
		a.Notes = append(a.Notes, c.Notes...)
	}
}

// places are the moments to watch.
func places(f *objfile.File, program string, c *ldso.Closure) (list []mark) {
	if c != nil {
		if l, err := objfile.Open(c.Linker.Path); err == nil {
			list = append(list, mark{kind: 'l', path: c.Linker.Path, addr: l.ELF.Entry, name: "dynamic linker"})
			l.Close()
		}
	}
	list = append(list, mark{kind: 'e', path: program, addr: f.ELF.Entry, name: "entry"})
	if addr, name := mainOf(f); addr != 0 {
		list = append(list, mark{kind: 'm', path: program, addr: addr, name: name})
	}
	if c == nil {
		return list
	}
	for _, o := range c.Objects {
		for _, addr := range o.Inits() {
			name := fmt.Sprintf("%#x", addr)
			if s, ok := o.File.Funcs().Lookup(addr); ok && s.Addr == addr {
				name = s.Name
			} else if d, err := o.File.Debug(); err == nil {
				if s, ok := d.Funcs().Lookup(addr); ok && s.Addr == addr {
					name = s.Name
				}
			}
			list = append(list, mark{kind: 'i', obj: o, path: o.Path, addr: addr, name: strings.Clone(name)})
		}
	}
	return list
}

// mainOf finds main: by its symbol, Go's by its own, else as the first argument of __libc_start_main, which the code at the entry of
// amd64 programs loads into rdi (sysdeps/x86_64/start.S).
func mainOf(f *objfile.File) (addr uint64, name string) {
	for _, s := range f.Symbols() {
		if s.Name == "main.main" {
			return s.Addr, s.Name
		}
		if s.Name == "main" && s.Type == elf.STT_FUNC {
			addr, name = s.Addr, s.Name
		}
	}
	if addr != 0 || f.ELF.Machine != elf.EM_X86_64 {
		return addr, name
	}
	off, ok := f.Offset(f.ELF.Entry)
	b := make([]byte, 64)
	if n, err := f.ReadAt(b, int64(off)); !ok || err != nil && n < 32 {
		return 0, ""
	}
	for i := 0; i+7 <= len(b); i++ {
		v := int64(int32(binary.LittleEndian.Uint32(b[i+3:])))
		switch {
		case b[i] == 0x48 && b[i+1] == 0x8d && b[i+2] == 0x3d: // lea v(%rip),%rdi
			addr = f.ELF.Entry + uint64(i) + 7 + uint64(v)
		case b[i] == 0x48 && b[i+1] == 0xc7 && b[i+2] == 0xc7: // mov $v,%rdi
			addr = uint64(v)
		default:
			continue
		}
		if f.InCode(addr) {
			return addr, "main"
		}
	}
	return 0, ""
}

// spec is the probe of a mark; nil when its file has nothing there.
func (m *mark) spec() *probe.Spec {
	f, err := objfile.Open(m.path)
	if err != nil {
		return nil
	}
	defer f.Close()
	off, ok := f.Offset(m.addr)
	if !ok || !f.InCode(m.addr) {
		return nil
	}
	path := m.path
	if !strings.Contains(path, "/") {
		path = "./" + path
	}
	return &probe.Spec{Source: fmt.Sprintf("%s:%#x", path, off), Kind: probe.KindFunction, Object: path, Point: probe.Point{Match: probe.MatchNumber, Offset: int64(off)}, When: probe.WhenEntry, Typed: true}
}

// seen is what is kept of an event.
type seen struct {
	typ      event.Type
	name     string
	time     uint64
	duration uint64
	pid, tid uint32
	ret      int64
	errno    uint16
	probe    int
	ip       uint64
	args     [6]uint64
	text     string // the path argument
}

type eventLog struct {
	events []seen
	cut    bool
}

// Event implements tracer.Sink.
func (l *eventLog) Event(e *event.Event) error {
	if len(l.events) >= maxEvents {
		l.cut = true
		return nil
	}
	s := seen{typ: e.Type, name: e.Name, time: e.Time, duration: e.Duration, pid: e.Task.Pid, tid: e.Task.Tid, ret: e.Ret, errno: e.Errno, probe: e.Probe, ip: e.IP}
	for i, n := 0, 0; i < len(e.Args) && n < len(s.args); i, n = e.Args.Next(i), n+1 {
		node := &e.Args[i]
		s.args[n] = node.Num
		if node.Kind == event.KindString && s.text == "" {
			s.text = string(node.Data)
		}
	}
	l.events = append(l.events, s)
	return nil
}

// Flush implements tracer.Sink.
func (l *eventLog) Flush() error { return nil }
