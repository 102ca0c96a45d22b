// Package tracer is sonde's engine: from what to trace to events in order. A [Session] attaches to a command that it
// starts, or to running tasks, and delivers to a [Sink]; [Replay] delivers the same from a recording, without privileges.
//
// A session never stops its target. Whatever ends it (the target's end, the context, an error), everything is detached
// and what was recorded until then is delivered first.
package tracer

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/attach"
	"github.com/sonde-trace/sonde/internal/decode"
	"github.com/sonde-trace/sonde/internal/inject"
	"github.com/sonde-trace/sonde/internal/plan"
	"github.com/sonde-trace/sonde/internal/proc"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
	"github.com/sonde-trace/sonde/probe"
)

// Select says which calls are shown; package probe makes one from strace's expressions. ABI names are "amd64", "i386", "x32", "arm64", "arm"; the name is that of the ABI's
// table. It must give the same answer each time.
type Select func(abi string, nr uint32, name string) bool

// Detail says how much of one call's arguments is shown.
type Detail uint8

const (
	DetailDefault Detail = iota // as Options.Verbose says
	DetailFull                  // structures in full
	DetailPlain                 // structures as addresses
	DetailRaw                   // every argument as a number
)

// LossPolicy says what a session does about records that do not fit into the ring.
type LossPolicy uint8

const (
	LossWarn  LossPolicy = iota // count them and say so
	LossStop                    // end the session at the first
	LossBlock                   // let the target wait, up to 1 ms a record, and count the waiting
)

// Target says which tasks to trace, beside a command. Kinds are combined by AND, the entries of one kind by OR.
type Target struct {
	Pids, DenyPids       []uint32
	Tids, DenyTids       []uint32
	UIDs, DenyUIDs       []uint32
	Comms, DenyComms     []string
	Cgroups, DenyCgroups []uint64 // ids of cgroup v2 directories (their inode numbers)
}

// Options is what a session does. The zero value of each field is its default.
type Options struct {
	// Command is started under trace; nil to trace running tasks only.
	Command *Command
	Target  Target
	Follow  bool   // trace the children of traced processes too
	Select  Select // nil: all calls
	// Probes are on other things than system calls; the events of all come in one order.
	Probes []*probe.Spec
	// Signals records the signals that traced tasks are sent.
	Signals bool
	// StrLimit is the bytes of strings and buffers to take: 1 to 65536, 0 means 256.
	StrLimit int
	Verbose  bool // structures in full, as strace -v
	// Detail says how much of a call is shown, where that is not what Verbose says of all; nil is DetailDefault for each.
	Detail func(abi string, nr uint32) Detail
	// Comms puts the names of tasks beside their ids.
	Comms bool
	// FDPaths records what descriptors refer to, at the time of the call.
	FDPaths bool
	// RingSize is the size in bytes of the ring for calls: a power of two, at least a page; 0 means 8 MiB.
	RingSize int
	OnLoss   LossPolicy
	// Filter drops events that it returns false for; they count as filtered. nil passes all.
	Filter func(*event.Event) bool
	// FilterFull gives Filter the values in full, also those that are left out for the sake of short lines.
	FilterFull bool
	// Whole shows calls only when they have returned, never in two parts, so that Filter can look at results.
	Whole bool
	// Ready is called once, when everything is attached, before a command starts. It may be nil.
	Ready func()
	// Limit ends the session when that many calls have been shown; 0 is no limit. Those that come later count as filtered.
	Limit uint64
	// Inject makes up results of the command's calls, and those of the processes that it makes with Follow.
	Inject []*probe.Injection
	// PerTask keeps an account for each thread.
	PerTask bool
	// StackDepth is the most frames of the user stack to show at each entry and hit: 1 to 512; 0 shows none. StackLines adds inlined
	// functions and lines.
	StackDepth int
	StackLines bool
	// Regs are the registers to show at each entry and hit, by name; "all" is all of them.
	Regs []string
	// DebugDirs are searched for debug files first.
	DebugDirs []string
	// FetchDebug gives the path of the debug file of a build-id that is nowhere here; nil: nobody is asked. It may be called from Open
	// and while a stack is named.
	FetchDebug func(buildID string) (path string, err error)
	// Record receives the session's facts before the first record, then each batch of raw records, in order, valid
	// until it returns.
	Record Recorder
}

// Command is a program to start.
type Command = proc.Command

// Recorder keeps a session for a later replay.
type Recorder interface {
	Facts(json.RawMessage) error
	Batch(records []byte) error
}

// Session is one run of the engine. It is used by one goroutine.
type Session struct {
	opt     Options
	sys     *attach.Syscalls
	asm     *assembler
	probes  *probeTable
	notes   []string
	merge   *merger
	facts   facts
	tee     []byte
	learned []byte // records of modules that the recording has not got yet

	// inject answers calls; nil when none are to be.
	inject  *inject.Listener
	child   *proc.Child
	horizon uint64 // nothing older than that is to come
	ended   bool   // the command has been waited for
	pids    []uint32
	asked   time.Time // when the kernel's set of followed processes was read last
	entries uint64
	result  Result
}

// Result is what a session has come to.
type Result struct {
	Ledger  event.Ledger
	PerTask map[uint32]*event.Ledger // by tid; nil unless asked for
	// Status is the command's wait(2) status; meaningful when there was a command and Ended is set.
	Status unix.WaitStatus
	Ended  bool
	// BlockWaits and BlockTime are the price of LossBlock.
	BlockWaits uint64
	BlockTime  time.Duration
	// RingFull says that a bigger ring would have kept more.
	RingFull bool
	RingSize int
	// Skipped counts hits, of any task of the machine, for which the kernel did not run a program because one was
	// running on that CPU already: at most as many events may be missing.
	Skipped uint64
	// SideLost counts records of forks, execs, exits, signals and names that did not fit.
	SideLost uint64
	// FollowFull counts processes that were not followed because too many were followed already.
	FollowFull uint64
	// Left says what is wrong with injection from now on; nil when nothing is.
	Left error
}

// facts are what a replay needs to know of a session.
type facts struct {
	Arch     string              `json:"arch"`
	StrLimit int                 `json:"strlimit"`
	Verbose  bool                `json:"verbose"`
	FDPaths  bool                `json:"fdpaths"`
	Follow   bool                `json:"follow"` // or all tasks
	Regs     []string            `json:"regs,omitempty"`
	Stacks   bool                `json:"stacks,omitempty"`
	Command  bool                `json:"command"` // it was started, and is not among Tasks
	Self     uint32              `json:"self"`
	Selected map[string][]uint32 `json:"selected,omitempty"` // by ABI; absent when all calls are selected
	Tasks    []taskFact          `json:"tasks,omitempty"`
	// Injected are the calls, by ABI, of which a result may be made up.
	Injected map[string][]uint32 `json:"injected,omitempty"`
	Probes   []*plan.Plan        `json:"probes,omitempty"`
	// Monotonic and Wall are one moment on two clocks, in ns.
	Monotonic uint64 `json:"monotonic"`
	Wall      int64  `json:"wall"`
}

type taskFact struct {
	Pid  uint32 `json:"pid"`
	Tid  uint32 `json:"tid"`
	Comm []byte `json:"comm"` // bytes: comms are not always UTF-8
}

// Clock relates CLOCK_MONOTONIC to the wall clock: one moment on both, in ns.
type Clock struct {
	Monotonic uint64
	Wall      int64
}

// Time returns the wall-clock time of an event.
func (c Clock) Time(monotonic uint64) time.Time {
	return time.Unix(0, c.Wall+int64(monotonic-c.Monotonic))
}

// Open loads everything that the session needs, and attaches nothing yet. The caller calls Run or Close.
func Open(o Options) (*Session, error) {
	if o.Command == nil && len(o.Target.Pids) == 0 && len(o.Target.Tids) == 0 && len(o.Target.UIDs) == 0 && len(o.Target.Comms) == 0 && len(o.Target.Cgroups) == 0 {
		return nil, errors.New("nothing to trace: name a command or running tasks")
	}
	if o.StrLimit == 0 {
		o.StrLimit = 256
	}
	var show func(*syscalls.ABI, uint32) bool
	if o.Select != nil {
		show = func(abi *syscalls.ABI, nr uint32) bool { return o.Select(abi.Name, nr, abi.Lookup(nr).Name) }
	}
	tables, err := newCallTables(runtime.GOARCH, show, o.Detail)
	if err != nil {
		return nil, err
	}
	plans, notes, err := o.resolve()
	if err != nil {
		return nil, err
	}
	s := &Session{opt: o, notes: notes, probes: newProbeTable(runtime.GOARCH, plans)}
	if err := s.probes.conditions(o.StackDepth > 0); err != nil {
		return nil, err
	}
	s.facts = facts{Probes: plans, Stacks: o.StackDepth > 0, Regs: o.Regs, Arch: runtime.GOARCH, StrLimit: o.StrLimit, Verbose: o.Verbose, FDPaths: o.FDPaths, Follow: o.Follow || s.allTasks(), Command: o.Command != nil, Self: uint32(os.Getpid())}
	ao := attach.SyscallOptions{
		Others: o.Select == nil, StrLimit: o.StrLimit, RingSize: o.RingSize, Follow: o.Follow, SelfPid: uint32(os.Getpid()),
		StackDepth: o.StackDepth, Regs: len(o.Regs) > 0, Signals: o.Signals, FDPaths: o.FDPaths, Block: o.OnLoss == LossBlock, Answered: len(o.Inject) > 0,
		Target: attach.TargetFilter{
			AllowPids: o.Target.Pids, DenyPids: o.Target.DenyPids, AllowTids: o.Target.Tids, DenyTids: o.Target.DenyTids,
			AllowUIDs: o.Target.UIDs, DenyUIDs: o.Target.DenyUIDs, AllowComms: o.Target.Comms, DenyComms: o.Target.DenyComms,
			AllowCgroups: o.Target.Cgroups, DenyCgroups: o.Target.DenyCgroups,
			AllTasks: o.Command == nil && len(o.Target.Pids) == 0 && len(o.Target.Tids) == 0,
		},
	}
	ao.Calls, ao.Probes = callPlans(show), attachPlans(s.probes)
	if show != nil {
		s.facts.Selected = make(map[string][]uint32)
		for _, p := range ao.Calls {
			s.facts.Selected[p.ABI] = append(s.facts.Selected[p.ABI], p.Nr)
		}
	}
	// A thread is traced when its process is followed and it is on the list itself.
	for _, tid := range o.Target.Tids {
		pid, err := proc.ProcessOf(tid)
		if err != nil {
			return nil, err
		}
		ao.Target.AllowPids = append(ao.Target.AllowPids, pid)
	}
	if len(o.Inject) > 0 {
		if o.Command == nil {
			return nil, errors.New("results can be injected into a command that is started here, not into running processes")
		}
		if s.inject, err = inject.New(o.Inject, syscalls.Family(runtime.GOARCH), o.Follow); err != nil {
			return nil, err
		}
		s.facts.Injected = make(map[string][]uint32)
		for _, abi := range syscalls.Family(runtime.GOARCH) {
			for nr := range abi.All() {
				if s.inject.Watches(abi.Name, nr) {
					s.facts.Injected[abi.Name] = append(s.facts.Injected[abi.Name], nr)
				}
			}
		}
	}
	if s.sys, err = attach.OpenSyscalls(ao); err != nil {
		return nil, err
	}
	s.merge = newMerger(s.sys.Main(), s.sys.Side())
	s.asm = newAssembler(tables, decode.Options{StrLimit: o.StrLimit, Abbrev: !o.Verbose}, nil)
	s.asm.filter, s.asm.whole, s.asm.self, s.asm.follow = o.Filter, o.Whole, s.facts.Self, o.Follow || ao.Target.AllTasks
	if err := s.asm.chooseRegs(runtime.GOARCH, o.Regs); err != nil {
		s.sys.Close()
		return nil, err
	}
	s.asm.probes, s.asm.launching = s.probes, o.Command != nil
	if o.StackDepth > 0 {
		s.asm.stacks = newStacks(&o)
		s.asm.stacks.live = true
	}
	tables.injected(s.facts.Injected)
	s.asm.limit, s.asm.filterFull = o.Limit, o.FilterFull
	if o.Comms {
		s.asm.comms = proc.Comm
	}
	if o.PerTask {
		s.asm.perTask = make(map[uint32]*event.Ledger)
	}
	s.pids = ao.Target.AllowPids
	if err := s.learnTasks(false); err != nil {
		s.sys.Close()
		return nil, err
	}
	if o.StackDepth > 0 {
		if err := s.prefetch(); err != nil {
			s.sys.Close()
			return nil, err
		}
	}
	s.facts.Monotonic, s.facts.Wall = monotonic(), time.Now().UnixNano()
	s.result.RingSize = s.sys.Main().Size()
	return s, nil
}

// learnTasks finds the threads that are traced now, and what they are called. With again set, processes may be gone.
func (s *Session) learnTasks(again bool) error {
	pids := s.pids
	if s.allTasks() {
		var err error
		if pids, err = proc.Processes(); err != nil {
			return err
		}
	}
	s.facts.Tasks = s.facts.Tasks[:0]
	for _, pid := range pids {
		threads, err := proc.Threads(pid)
		if err != nil {
			if again || s.allTasks() {
				continue
			}
			return err
		}
		for _, t := range threads {
			if list := s.opt.Target.Tids; len(list) > 0 && !slices.Contains(list, t.Tid) {
				continue
			}
			s.facts.Tasks = append(s.facts.Tasks, taskFact{Pid: pid, Tid: t.Tid, Comm: []byte(t.Comm)})
		}
	}
	return nil
}

// often are the calls with memory that most programs make most of.
var often = map[string]bool{
	"openat": true, "newfstatat": true, "statx": true, "read": true, "write": true, "pread64": true, "getdents64": true, "access": true,
	"stat": true, "lstat": true, "fstat": true, "readlink": true, "open": true, "poll": true, "ppoll": true, "epoll_wait": true,
	"epoll_pwait": true, "rt_sigaction": true, "rt_sigprocmask": true, "futex": true, "clock_nanosleep": true, "recvfrom": true, "sendto": true,
}

// callPlans lists what the kernel has to take, for the calls of all ABIs of this machine.
func callPlans(show func(*syscalls.ABI, uint32) bool) []attach.SyscallPlan {
	specs := decode.Specs()
	var list []attach.SyscallPlan
	for _, abi := range syscalls.Family(runtime.GOARCH) {
		for nr, def := range abi.All() {
			if show != nil && !show(abi, nr) {
				continue
			}
			p := attach.SyscallPlan{ABI: abi.Name, Nr: nr, Often: abi.Name == runtime.GOARCH && often[def.Name]}
			for i, a := range def.Args {
				if decode.IsFD(a) {
					p.FDs |= 1 << i
				}
			}
			if sp := specs[def.Name]; sp != nil {
				p.Enter, p.Exit = sp.Enter, sp.Exit
				p.RetFD = sp.RetFD
				if abi.PtrSize == 4 {
					if sp.Enter32 != nil {
						p.Enter = sp.Enter32
					}
					if sp.Exit32 != nil {
						p.Exit = sp.Exit32
					}
				}
			}
			list = append(list, p)
		}
	}
	return list
}

// Clock returns the session's relation between event times and the wall clock.
func (s *Session) Clock() Clock { return Clock{s.facts.Monotonic, s.facts.Wall} }

// Tasks is how many threads are traced before Run: those of the processes named.
func (s *Session) Tasks() int {
	if s.opt.Command != nil {
		return len(s.facts.Tasks) + 1
	}
	return len(s.facts.Tasks)
}

// Run attaches, starts the command if there is one, and delivers events to sink until the command and all that it started
// (with Follow) or the traced tasks have ended, or ctx is done; then it drains, detaches and closes. An error of the sink
// ends the session too. The result is valid also when there is an error.
func (s *Session) Run(ctx context.Context, sink Sink) (*Result, error) {
	defer s.Close()
	s.asm.sink = sink
	if err := s.sys.Attach(); err != nil {
		return &s.result, err
	}
	// Again, now that what ends and what begins is recorded: threads that came or went since are right from here. A
	// target that has ended meanwhile leaves nothing to wait for.
	if err := s.learnTasks(true); err != nil {
		return &s.result, err
	}
	for _, t := range s.facts.Tasks {
		s.asm.know(t.Pid, t.Tid, string(t.Comm))
	}
	if s.opt.Record != nil {
		raw, err := json.Marshal(&s.facts)
		if err != nil {
			return &s.result, fmt.Errorf("encode the facts of the session: %w", err)
		}
		if err := s.opt.Record.Facts(raw); err != nil {
			return &s.result, err
		}
	}
	if s.probes.breakpoints() {
		for _, pid := range s.pids {
			if err := s.arm(pid); err != nil {
				return &s.result, err
			}
		}
	}
	if s.opt.Ready != nil {
		s.opt.Ready()
	}
	var exited <-chan proc.Exit
	if s.opt.Command != nil {
		if err := s.sys.Launching(true); err != nil {
			return &s.result, err
		}
		command := *s.opt.Command
		if s.inject != nil {
			command.Before = s.inject.Install
			// After the reading has ended, what is left of the command is told.
			defer func() { s.result.Left = s.inject.Close() }()
		}
		if s.probes.breakpoints() {
			command.AtEntry = s.arm
		}
		child, err := proc.Start(&command)
		if e := s.sys.Launching(false); err == nil && e != nil {
			err = e
		}
		if child != nil {
			s.child = child
			s.asm.know(child.Pid, child.Pid, "")
			exited = child.Exited()
			s.asm.adopt = proc.Reap
		}
		if err != nil {
			return &s.result, err
		}
	} else {
		s.ended = true
	}
	// The reader must keep up with programs on all CPUs, or records are lost. Only its own thread gets priority, after the
	// command was started: it would inherit that.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if nice, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && unix.Setpriority(unix.PRIO_PROCESS, 0, readerNice) == nil {
		defer unix.Setpriority(unix.PRIO_PROCESS, 0, 20-nice) // the system call's result is 20 - nice, getpriority(2)
	}
	err := s.loop(ctx, exited)
	if e := s.end(); err == nil {
		err = e
	}
	return &s.result, err
}

// pace is how long records may gather while they come in plenty; idle how long the session waits for the first.
const (
	pace = 2 * time.Millisecond
	idle = 10 * time.Millisecond
)

// readerNice is the nice value of the reading thread, where we may set it.
const readerNice = -15

func (s *Session) loop(ctx context.Context, exited <-chan proc.Exit) error {
	flushed := true
	for {
		begin := time.Now()
		wait := idle
		if s.merge.holds() {
			wait = window // what is held back is to be shown when its time has come
		}
		batch, horizon, read, err := s.merge.next(begin.Add(wait), false)
		if err != nil {
			return err
		}
		if err := s.take(batch, horizon); err != nil {
			return err
		}
		if read == 0 && !flushed {
			if err := s.asm.sink.Flush(); err != nil {
				return err
			}
		}
		flushed = read == 0
		select {
		case <-ctx.Done():
			return nil
		case x := <-exited:
			s.ended, s.result.Status, s.result.Ended = true, x.Status, true
			exited = nil
		default:
		}
		if s.asm.full() {
			return nil
		}
		if exited != nil && read == 0 && s.asm.live() == 0 {
			// All that was traced has ended; the command is about to be waited for.
			select {
			case x := <-exited:
				s.ended, s.result.Status, s.result.Ended = true, x.Status, true
				exited = nil
			case <-ctx.Done():
				return nil
			case <-time.After(idle):
			}
		}
		if s.ended {
			over, err := s.over()
			if over || err != nil {
				return err
			}
		}
		if s.opt.OnLoss == LossStop {
			c, err := s.sys.Counters()
			if err != nil {
				return err
			}
			if lostTotal(&c) > 0 {
				return ErrLoss
			}
		}
		if read > 0 && read < readMax/4 {
			// The end of a process cuts this short.
			if rest := pace - time.Since(begin); rest > 0 {
				if err := s.sys.Main().Wait(rest); err != nil {
					return err
				}
			}
		}
	}
}

// over reports whether nothing is left to trace.
func (s *Session) over() (bool, error) {
	if s.allTasks() {
		return false, nil
	}
	if s.asm.live() == 0 {
		return true, nil
	}
	// Records that end tasks can be lost; the kernel's own set tells too. It is not asked all the time.
	if time.Since(s.asked) < 100*time.Millisecond {
		return false, nil
	}
	s.asked = time.Now()
	left, err := s.sys.Followed()
	return len(left) == 0, err
}

// ErrLoss ends a session with LossStop.
var ErrLoss = errors.New("events were lost, and the session was to stop at the first loss")

func (s *Session) allTasks() bool {
	return s.opt.Command == nil && len(s.opt.Target.Pids) == 0 && len(s.opt.Target.Tids) == 0
}

func (s *Session) take(batch []wire.Record, horizon uint64) error {
	for _, r := range batch {
		if s.probes.made(r) {
			s.entries++
		} else if r.Kind() == wire.Stack {
			s.missing(r)
		}
	}
	if s.opt.Record != nil && len(batch) > 0 {
		s.tee = append(s.tee[:0], s.learned...)
		s.learned = s.learned[:0]
		for _, r := range batch {
			s.tee = append(s.tee, r...)
			for len(s.tee)&7 != 0 {
				s.tee = append(s.tee, 0)
			}
		}
		if err := s.opt.Record.Batch(s.tee); err != nil {
			return err
		}
	}
	if err := s.asm.batch(batch); err != nil {
		return err
	}
	s.horizon = max(s.horizon, horizon)
	return s.asm.quiet(horizon)
}

// tick records how far the session has seen, so that a replay, too, shows what was in progress at the end.
func (s *Session) tick() error {
	if s.opt.Record == nil {
		return nil
	}
	r := make([]byte, wire.HeaderSize)
	binary.LittleEndian.PutUint32(r[wire.OffSize:], wire.HeaderSize)
	r[wire.OffKind] = byte(wire.Tick)
	binary.LittleEndian.PutUint64(r[wire.OffTime:], s.horizon)
	return s.opt.Record.Batch(r)
}

// end detaches, delivers what is still in the rings, and makes up the account.
func (s *Session) end() error {
	err := s.sys.Detach()
	// A program that was running when its link was closed still sends its record; the counters say how many there are.
	for deadline := time.Now().Add(200 * time.Millisecond); ; {
		batch, horizon, read, e := s.merge.next(time.Now(), false)
		if e == nil {
			e = s.take(batch, horizon)
		}
		if e != nil {
			return errors.Join(err, e)
		}
		if read > 0 {
			continue
		}
		c, e := s.sys.Counters()
		if e != nil {
			return errors.Join(err, e)
		}
		all := s.entries+uint64(s.held()) >= c.Made-c.EntryLostRing-c.EntryLostScratch
		if all || time.Now().After(deadline) {
			break
		}
	}
	batch, _, _, e := s.merge.next(time.Now(), true)
	if e == nil {
		e = s.take(batch, 0)
	}
	if e == nil {
		e = s.tick()
	}
	if e == nil {
		e = s.asm.finish()
	}
	if e == nil {
		e = s.asm.sink.Flush()
	}
	return errors.Join(err, e, s.account())
}

// held counts the records of things made that the merger holds back.
func (s *Session) held() (n int) {
	for _, st := range s.merge.index(nil, s.merge.held[s.merge.turn]) {
		if s.probes.made(st.rec) {
			n++
		}
	}
	return n
}

func lostTotal(c *attach.Counters) uint64 {
	return c.EntryLostRing + c.EntryLostScratch + c.ExitLostRing + c.ExitLostScratch + c.EnterMissed + c.SideLost
}

// Causes of losses, as the ledger names them.
const (
	CauseRing    = "ring full"
	CauseScratch = "scratch busy"
	// CauseReturn is a call whose entry is shown and whose return is missing for none of the other causes.
	CauseReturn = "return not recorded"
	// CauseEntry stands for the first two in the account of a task.
	CauseEntry = "entry not recorded"
)

// account makes the ledger of the kernel's counters and the assembler's. A call is lost once: when its entry could not be
// recorded, its return was not tried. A return that is missing although the kernel dropped none counts under a cause of its
// own; one that the kernel dropped while the task ended in the call was no loss, as there was nothing to show of it.
func (s *Session) account() error {
	c, err := s.sys.Counters()
	if err != nil {
		return err
	}
	l := &s.result.Ledger
	l.Made = c.Made + s.asm.exitOnly
	l.Shown, l.Filtered = s.asm.shown, s.asm.filtered
	returns := s.asm.exitLost
	ring := min(returns, c.ExitLostRing)
	scratch := min(returns-ring, c.ExitLostScratch)
	for _, x := range []event.Lost{
		{Cause: CauseRing, Count: c.EntryLostRing + ring},
		{Cause: CauseScratch, Count: c.EntryLostScratch + scratch},
		{Cause: CauseReturn, Count: returns - ring - scratch},
	} {
		if x.Count > 0 {
			l.Lost = append(l.Lost, x)
		}
	}
	s.result.Skipped = c.EnterMissed + c.ExitMissed
	s.result.SideLost, s.result.FollowFull = c.SideLost, c.FollowFull
	s.result.RingFull = c.EntryLostRing+c.ExitLostRing > 0
	s.result.BlockWaits, s.result.BlockTime = c.BlockWaits, time.Duration(c.BlockNs)
	if s.result.PerTask = s.asm.perTask; s.result.PerTask == nil {
		return nil
	}
	losses, err := s.sys.Losses()
	if err != nil {
		return err
	}
	for _, x := range losses {
		t := s.result.PerTask[x.Tid]
		if t == nil {
			t = new(event.Ledger)
			s.result.PerTask[x.Tid] = t
		}
		t.Made += x.Count
		t.Lost = append(t.Lost, event.Lost{Cause: CauseEntry, Count: x.Count})
	}
	return nil
}

// Close detaches and releases everything; the command, if it was started, goes on. It may be called more than once.
func (s *Session) Close() error { return s.sys.Close() }
