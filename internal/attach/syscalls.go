package attach

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/ring"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// SyscallPlan is one selected call of one ABI: what the kernel programs take of it.
type SyscallPlan struct {
	ABI         string // "amd64", "i386", "x32", "arm64", "arm"
	Nr          uint32 // as in the ABI's table: x32 without its 0x40000000 bit
	Enter, Exit []syscalls.Fetch
	// FDs has bit i set when argument i is a descriptor, RetFD when the return value is one. They cost nothing unless
	// SyscallOptions.FDPaths is set.
	FDs   uint8
	RetFD bool
	// Often says that the call is made often in most programs: it is worth programs of its own.
	Often bool
}

// TargetFilter says which tasks are traced. Lists of one kind are alternatives; kinds are combined by AND; an empty
// list is no constraint.
type TargetFilter struct {
	// AllowPids and AllowTids seed the sets of followed processes and threads, which FollowProcess and FollowThread
	// extend. With AllowTids only listed threads of a process are traced.
	AllowPids, DenyPids       []uint32
	AllowTids, DenyTids       []uint32
	AllowUIDs, DenyUIDs       []uint32 // real user ids, at the time of the call
	AllowComms, DenyComms     []string // first 15 bytes
	AllowCgroups, DenyCgroups []uint64 // ids of version 2 cgroups
	// AllTasks traces every task of the machine that the other kinds allow, and keeps no follow set. Without it only
	// followed processes are traced.
	AllTasks bool
}

// SyscallOptions is what OpenSyscalls builds.
type SyscallOptions struct {
	Calls []SyscallPlan
	// Probes are on other things than calls. Without Calls and Others nothing is attached to calls.
	Probes []ProbePlan
	Regs   bool // record the registers at each entry and hit
	// StackDepth is the most frames to take of the user stack at each entry and hit, up to wire.MaxFrames; 0: no stacks.
	StackDepth int
	// Others also records calls (without memory) whose number is in no plan.
	Others bool
	// StrLimit is the number of bytes to take of strings and buffers that state no maximum of their own: 1 to 65536,
	// 0 means 256.
	StrLimit int
	// RingSize is the size in bytes of the ring for calls: a power of two times the page size, 0 means 8 MiB.
	RingSize int
	Follow   bool // follow children too
	Target   TargetFilter
	SelfPid  uint32 // this process: never traced
	Signals  bool   // record signals
	FDPaths  bool   // record what descriptors refer to at the time of the call
	// Block lets the target wait while the ring is more than half full, up to 1 ms per record. A ring that is small beside the
	// largest record is made larger.
	Block bool
	// Answered also records the entries of calls that a seccomp filter answers, at their return. It costs each call a little.
	Answered bool
}

// Counters are sums over all CPUs since OpenSyscalls.
//
// For the calls of targets: Made = entry records sent + EntryLostRing + EntryLostScratch. The exit of a call whose entry
// was lost is not recorded and not counted again.
type Counters struct {
	Made             uint64 // selected calls entered by targets
	EntryLostRing    uint64 // no room in the ring
	EntryLostScratch uint64 // no free scratch buffer on the CPU (nested programs)
	Returned         uint64 // selected calls of targets that returned, those of lost entries left out
	ExitLostRing     uint64
	ExitLostScratch  uint64
	EnterMissed      uint64 // hits that the kernel skipped, because a program was already running on the CPU
	ExitMissed       uint64
	FollowFull       uint64 // processes not followed for want of room in the follow set
	StateFull        uint64 // calls whose loss or retry could not be remembered until their return
	SideLost         uint64 // life-cycle and signal records without room in the side ring
	BlockWaits       uint64 // records that waited for room
	BlockNs          uint64 // and for how long in total
}

// Syscalls is a set of loaded programs and their maps. Its methods may be called from several goroutines.
type Syscalls struct {
	opt    SyscallOptions
	has    ability
	maps   map[string]*ebpf.Map
	entry  *tracing
	exit   *tracing
	late   *tracing // nil unless SyscallOptions.Answered
	life   []lifeProgram
	shapes []*tracing  // by index in the program array; nil for what the generic programs do
	any    [2]*tracing // the generic programs, for entries and for returns
	main   *ring.Reader
	side   *ring.Reader
	mu     sync.Mutex // guards links and closed
	links  []int      // descriptors of the attachments
	closed bool
	cpus   int

	Stacks     *Stacks // the tables of stacks; nil without
	probes     []*probe
	multi      bool // user functions are attached many at a time
	probeLinks []link.Link
	events     []io.Closer // tracepoints
}

type lifeProgram struct {
	*tracing
	tracepoint string
}

// Sizes that the user does not choose.
const (
	defaultRing = 8 << 20
	sideRing    = 1 << 20
	maxRing     = 1 << 30
	maxStrLimit = 65536
	maxProcs    = 16384 // processes followed at one time, where the map is filled when it is made
	manyProcs   = 1 << 16
	maxStates   = 16384 // calls under way, where the filter needs to remember each
	maxLosers   = 4096  // threads whose losses are counted by thread
	fewStates   = 4096  // elsewhere only execs and the calls that something went wrong with
)

// ability is what the programs may rely on, beyond Linux 5.10.
type ability struct {
	atomics bool // fetching atomics: Linux 5.12
	grow    bool // maps that take memory as they grow: see growsInTracing
	free    bool // BPF memory does not count against RLIMIT_MEMLOCK: see chargesMemlock
}

// OpenSyscalls creates the maps and loads the programs of o. Nothing is attached yet. On error nothing is left behind.
//
// It first tries as if the kernel could do all: each thing that is asked for costs the loading of a program, and with that a
// good part of what a short trace takes.
func OpenSyscalls(o SyscallOptions) (*Syscalls, error) {
	recent := ability{true, true, true}
	s, err := openSyscalls(o, recent)
	if err == nil {
		return s, nil
	}
	if o.StackDepth > 0 || o.Regs {
		if missing := haveFindVMA(); missing != nil {
			return nil, fmt.Errorf("call stacks and registers need a kernel that programs can ask for mappings (bpf_find_vma, Linux 5.17): %w", missing)
		}
	}
	has := ability{atomics: probeAtomics() == nil, grow: growsInTracing(), free: !chargesMemlock()}
	if has == recent {
		return nil, err
	}
	if !has.free {
		restore, err := raiseMemlock()
		if err != nil {
			return nil, err
		}
		defer restore()
	}
	return openSyscalls(o, has)
}

func openSyscalls(o SyscallOptions, has ability) (_ *Syscalls, err error) {
	if o.StrLimit == 0 {
		o.StrLimit = 256
	}
	if o.StrLimit < 0 || o.StrLimit > maxStrLimit {
		return nil, fmt.Errorf("string limit %d: 1 to %d bytes are possible", o.StrLimit, maxStrLimit)
	}
	if o.RingSize == 0 {
		o.RingSize = defaultRing
	}
	if page := os.Getpagesize(); o.RingSize < page || o.RingSize > maxRing || o.RingSize&(o.RingSize-1) != 0 {
		return nil, fmt.Errorf("ring of %d bytes: a power of two from %d to %d is needed", o.RingSize, page, maxRing)
	}
	if _, _, ok := bpfgen.ABIIndex(runtime.GOARCH, runtime.GOARCH); !ok {
		return nil, fmt.Errorf("tracing on %s: not supported; amd64 and arm64 are", runtime.GOARCH)
	}
	if err := checkBreakpoints(o.Probes); err != nil {
		return nil, err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("counting CPUs: %w", err)
	}
	s := &Syscalls{opt: o, has: has, maps: make(map[string]*ebpf.Map), cpus: cpus}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	gen := &bpfgen.Syscalls{Others: o.Others, RingSize: o.RingSize, Block: o.Block, StackDepth: o.StackDepth, Regs: o.Regs, Answered: o.Answered, Paths: o.FDPaths, Target: bpfgen.Target{
		SelfPid: o.SelfPid, Procs: !o.Target.AllTasks, Threads: len(o.Target.AllowTids) > 0,
		DenyPids: o.Target.DenyPids, DenyTids: o.Target.DenyTids, AllowUIDs: o.Target.AllowUIDs, DenyUIDs: o.Target.DenyUIDs,
		AllowComms: o.Target.AllowComms, DenyComms: o.Target.DenyComms, AllowCgroups: o.Target.AllowCgroups, DenyCgroups: o.Target.DenyCgroups,
	}}
	plan, err := planTable(runtime.GOARCH, &o)
	if err != nil {
		return nil, err
	}
	// The kernel's types are read while it makes the maps; together that is most of the time until a command can start.
	described := make(chan error, 1)
	go func() {
		var err error
		gen.Kernel, err = describeKernel(o.FDPaths, wantSockets(o.Calls), o.StackDepth > 0)
		gen.Kernel.Atomics = has.atomics
		described <- err
	}()
	scratch := scratchFor(bpfgen.ScratchSize(plan.shapes, o.StrLimit), o.Probes, o.StrLimit)
	for i := range o.Probes {
		if o.Probes[i].Kind == ProbeUser {
			s.multi = haveCookies() && probeUprobeMulti() == nil
			break
		}
	}
	if o.Block {
		// Waiting begins when the ring is half full: the largest records of two CPUs must fit into the other half.
		for o.RingSize < 4*scratch {
			o.RingSize *= 2
		}
		s.opt.RingSize, gen.RingSize = o.RingSize, o.RingSize
	}
	target := gen.Target
	err = s.makeMaps(&target, scratch, cpus)
	if e := <-described; e != nil && err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	if err := s.loadPrograms(gen, plan, scratch); err != nil {
		return nil, err
	}
	if err := s.maps[bpfgen.MapTable].Put(uint32(0), plan.table()); err != nil {
		return nil, fmt.Errorf("filling the table of calls: %w", err)
	}
	if s.main, err = ring.New(s.maps[bpfgen.MapRing].FD(), o.RingSize); err != nil {
		return nil, err
	}
	if s.side, err = ring.New(s.maps[bpfgen.MapSide].FD(), sideRing); err != nil {
		return nil, err
	}
	if o.StackDepth > 0 {
		s.Stacks = newStacks(s.maps)
	}
	return s, s.seed()
}

// makeMaps creates the maps that the programs name.
func (s *Syscalls) makeMaps(t *bpfgen.Target, scratch, cpus int) error {
	specs := []ebpf.MapSpec{
		{Name: bpfgen.MapRing, Type: ebpf.RingBuf, MaxEntries: uint32(s.opt.RingSize)},
		{Name: bpfgen.MapSide, Type: ebpf.RingBuf, MaxEntries: sideRing},
		{Name: bpfgen.MapScratch, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(scratch), MaxEntries: uint32(cpus * bpfgen.Slots)},
		{Name: bpfgen.MapStats, Type: ebpf.Array, KeySize: 4, ValueSize: bpfgen.StatsSize, MaxEntries: uint32(cpus)},
		{Name: bpfgen.MapTable, Type: ebpf.Array, KeySize: 4, ValueSize: bpfgen.TableSize, MaxEntries: 1},
		{Name: bpfgen.MapControl, Type: ebpf.Array, KeySize: 4, ValueSize: bpfgen.ControlSize, MaxEntries: 1},
		{Name: bpfgen.MapArming, Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1},
		{Name: bpfgen.MapProgs, Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 4096},
	}
	states := uint32(fewStates)
	if t.Unstable() || s.opt.Answered {
		states = maxStates
	}
	// Filling maps when they are made takes 0.13 µs an element. Where every call has its element that is well spent.
	seldom := uint32(0)
	if s.has.grow {
		seldom = unix.BPF_F_NO_PREALLOC
	}
	state := ebpf.MapSpec{Name: bpfgen.MapState, Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: states}
	if !t.Unstable() && !s.opt.Answered {
		state.Flags = seldom
	}
	specs = append(specs, state, ebpf.MapSpec{Name: bpfgen.MapLost, Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: maxLosers, Flags: seldom})
	if s.opt.StackDepth > 0 {
		specs = append(specs, stackMaps(cpus)...)
	}
	if keeps(s.opt.Probes) {
		specs = append(specs, ebpf.MapSpec{Name: bpfgen.MapCalls, Type: ebpf.LRUHash, KeySize: bpfgen.CallKeySize, ValueSize: bpfgen.KeptSize, MaxEntries: maxStates})
	}
	follow := ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: maxProcs}
	if s.has.grow {
		follow.MaxEntries, follow.Flags = manyProcs, unix.BPF_F_NO_PREALLOC
	}
	if !s.opt.Follow {
		// Only the processes that were named, and one command.
		named := uint32(len(s.opt.Target.AllowPids) + len(s.opt.Target.AllowTids))
		follow.MaxEntries = min(follow.MaxEntries, max(fewStates, 2*named))
	}
	if t.Procs {
		follow.Name = bpfgen.MapProcs
		specs = append(specs, follow)
	}
	if t.Threads {
		follow.Name = bpfgen.MapThreads
		specs = append(specs, follow)
	}
	sets := []struct {
		name string
		size uint32
		list []uint64
	}{
		{bpfgen.MapDenyPids, 4, widen(t.DenyPids)}, {bpfgen.MapDenyTids, 4, widen(t.DenyTids)},
		{bpfgen.MapAllowUIDs, 4, widen(t.AllowUIDs)}, {bpfgen.MapDenyUIDs, 4, widen(t.DenyUIDs)},
		{bpfgen.MapAllowCgroups, 8, t.AllowCgroups}, {bpfgen.MapDenyCgroups, 8, t.DenyCgroups},
	}
	for _, set := range sets {
		if !t.Inline(len(set.list)) {
			specs = append(specs, ebpf.MapSpec{Name: set.name, Type: ebpf.Hash, KeySize: set.size, ValueSize: 4, MaxEntries: uint32(len(set.list))})
		}
	}
	for i := range specs {
		m, err := ebpf.NewMap(&specs[i])
		if err != nil {
			return explain(fmt.Sprintf("creating the map %q of %d × %d bytes", specs[i].Name, specs[i].MaxEntries, max(1, specs[i].ValueSize)), err)
		}
		s.maps[specs[i].Name] = m
	}
	for _, set := range sets {
		m := s.maps[set.name]
		if m == nil {
			continue
		}
		for _, v := range set.list {
			key := make([]byte, 8)
			binary.LittleEndian.PutUint64(key, v)
			if err := m.Put(key[:set.size], uint32(1)); err != nil {
				return fmt.Errorf("filling the set %s: %w", set.name, err)
			}
		}
	}
	return nil
}

// growsInTracing reports whether tracing programs may use maps that take memory as they grow: since Linux 6.1, whose own
// allocator serves them (commit fba1a1c6c912), and which brought the helper that is probed for.
func growsInTracing() bool {
	return features.HaveProgramHelper(ebpf.RawTracepoint, asm.FnKtimeGetTaiNs) == nil
}

func widen(list []uint32) []uint64 {
	w := make([]uint64, len(list))
	for i, v := range list {
		w[i] = uint64(v)
	}
	return w
}

// seed puts the processes and threads of the target filter in their sets.
func (s *Syscalls) seed() error {
	for _, pid := range s.opt.Target.AllowPids {
		if err := s.FollowProcess(pid); err != nil {
			return err
		}
	}
	for _, tid := range s.opt.Target.AllowTids {
		if err := s.FollowThread(tid); err != nil {
			return err
		}
	}
	return nil
}

// loadTracing loads one program on a raw tracepoint. Where that fails, and for programs with functions, which need type information,
// the library does.
func (s *Syscalls) loadTracing(p *bpfgen.Program) (*tracing, error) {
	if !p.Functions() {
		code, err := p.Encode(func(name string) (int, bool) {
			if m := s.maps[name]; m != nil {
				return m.FD(), true
			}
			return 0, false
		})
		if err != nil {
			return nil, err
		}
		if t, err := loadTracing(p.Name, code); err == nil {
			return t, nil
		}
	}
	prog, err := s.load(p, ebpf.RawTracepoint, false)
	if err != nil {
		return nil, err
	}
	defer prog.Close()
	fd, err := unix.FcntlInt(uintptr(prog.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, explain("loading the program "+p.Name, err)
	}
	return &tracing{fd}, nil
}

// load loads one program whose map references are names.
func (s *Syscalls) load(p *bpfgen.Program, typ ebpf.ProgramType, multi bool) (*ebpf.Program, error) {
	insns := make(asm.Instructions, len(p.Insns))
	copy(insns, p.Insns)
	for i := range insns {
		if insns[i].IsLoadFromMap() {
			if err := insns[i].AssociateMap(s.maps[insns[i].Reference()]); err != nil {
				return nil, fmt.Errorf("program %s: map %q: %w", p.Name, insns[i].Reference(), err)
			}
		}
	}
	spec := &ebpf.ProgramSpec{Name: p.Name, Type: typ, License: "Dual BSD/GPL", Instructions: insns}
	if multi {
		spec.AttachType = ebpf.AttachTraceUprobeMulti
	}
	prog, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, loadError(p, err)
	}
	return prog, nil
}

// A loading is one program to make and where it goes. Programs are generated when they are loaded and forgotten then:
// hundreds of them together would be the tracer's largest use of memory.
type loading struct {
	generate func() (*bpfgen.Program, error)
	user     string              // the call it is for, in words
	tracing  func(*tracing)      // takes a program on a raw tracepoint
	done     func(*ebpf.Program) // takes one of another type
	typ      ebpf.ProgramType    // of the latter
	multi    bool                // it is attached to many user functions at a time
}

// made is a program that is generated already.
func made(p *bpfgen.Program) func() (*bpfgen.Program, error) {
	return func() (*bpfgen.Program, error) { return p, nil }
}

// loadAll makes programs on all CPUs at once: most of a program's time is the verifier's.
func (s *Syscalls) loadAll(list []loading) error {
	errs := make([]error, len(list))
	progs := make([]*ebpf.Program, len(list))
	traces := make([]*tracing, len(list))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(list)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := next.Add(1) - 1; i < int64(len(list)); i = next.Add(1) - 1 {
				p, err := list[i].generate()
				if err == nil && list[i].tracing != nil {
					traces[i], err = s.loadTracing(p)
				} else if err == nil {
					progs[i], err = s.load(p, list[i].typ, list[i].multi)
				}
				if errs[i] = err; err != nil {
					next.Store(int64(len(list))) // no need to go on
				}
			}
		}()
	}
	wg.Wait()
	var first error
	for i := range list {
		// Owned from here, also when another one failed.
		if traces[i] != nil {
			list[i].tracing(traces[i])
		}
		if progs[i] != nil {
			list[i].done(progs[i])
		}
		if first == nil && errs[i] != nil {
			first = errs[i]
			if list[i].user != "" {
				first = fmt.Errorf("capturing the memory of %s: %w", list[i].user, first)
			}
		}
	}
	return first
}

// loadPrograms generates and loads all programs, and enters those of the shapes in the program array.
func (s *Syscalls) loadPrograms(gen *bpfgen.Syscalls, plan *table, scratch int) error {
	life, err := gen.Life(s.opt.Follow, s.opt.Signals)
	if err != nil {
		return err
	}
	var list []loading
	if s.calls() {
		list = append(list, loading{generate: gen.Enter, tracing: func(p *tracing) { s.entry = p }},
			loading{generate: gen.Exit, tracing: func(p *tracing) { s.exit = p }})
	}
	if s.opt.Answered {
		list = append(list, loading{generate: gen.Late, tracing: func(p *tracing) { s.late = p }})
	}
	for _, l := range life {
		list = append(list, loading{generate: made(l.Program), tracing: func(p *tracing) { s.life = append(s.life, lifeProgram{p, l.Tracepoint}) }})
	}
	s.shapes = make([]*tracing, len(plan.shapes))
	var lists bpfgen.Lists
	var generic [2]bool
	for i, sh := range plan.shapes {
		plan.progs[i] = i
		if plan.generic(i) {
			if err := lists.Add(i, sh, s.opt.StrLimit); err != nil {
				return err
			}
			if sh.Exit {
				generic[1] = true
			} else {
				generic[0] = true
			}
			continue
		}
		list = append(list, loading{
			generate: func() (*bpfgen.Program, error) { return gen.Compile(sh, s.opt.StrLimit, scratch) },
			user:     plan.users[i],
			tracing:  func(p *tracing) { s.shapes[i] = p },
		})
	}
	if generic != [2]bool{} {
		if err := s.makeLists(&lists); err != nil {
			return err
		}
	}
	for i, needed := range generic {
		if needed {
			list = append(list, loading{
				generate: func() (*bpfgen.Program, error) { return gen.Generic(i == 1, &lists, s.opt.StrLimit, scratch) },
				user:     "the calls that have no program of their own",
				tracing:  func(p *tracing) { s.any[i] = p },
			})
		}
	}
	probes, err := s.probeLoadings(gen, scratch)
	if err != nil {
		return err
	}
	if err := s.loadAll(append(list, probes...)); err != nil {
		return err
	}
	for i, p := range s.shapes {
		if p == nil {
			p = s.any[0]
			if plan.shapes[i].Exit {
				p = s.any[1]
			}
		}
		if err := s.maps[bpfgen.MapProgs].Put(uint32(i), uint32(p.fd)); err != nil {
			return fmt.Errorf("filling the program array: %w", err)
		}
	}
	return nil
}

// makeLists creates the map of the lists that the generic programs walk.
func (s *Syscalls) makeLists(l *bpfgen.Lists) error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: bpfgen.MapFetches, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(l.Size()), MaxEntries: 1})
	if err != nil {
		return explain(fmt.Sprintf("creating the map %q of %d bytes", bpfgen.MapFetches, l.Size()), err)
	}
	s.maps[bpfgen.MapFetches] = m
	if err := m.Put(uint32(0), l.Value()); err != nil {
		return fmt.Errorf("filling the lists of fetches: %w", err)
	}
	return nil
}

// Attach attaches all programs, or none. Returns are watched before entries and tasks before both, so that no call shows
// an entry only because its exit program came late.
func (s *Syscalls) Attach() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("attaching: %w", os.ErrClosed)
	}
	if len(s.links) > 0 {
		return errors.New("attaching: already attached")
	}
	defer func() {
		if err != nil {
			s.detach()
		}
	}()
	attach := func(tracepoint string, p *tracing) error {
		l, err := p.attach(tracepoint)
		if err != nil {
			return explain(fmt.Sprintf("attaching to the raw tracepoint %s", tracepoint), err)
		}
		s.links = append(s.links, l)
		return nil
	}
	for _, l := range s.life {
		if err := attach(l.tracepoint, l.tracing); err != nil {
			return err
		}
	}
	if s.calls() {
		// Programs on one tracepoint run in the order in which they were attached.
		if s.late != nil {
			if err := attach("sys_exit", s.late); err != nil {
				return err
			}
		}
		if err := attach("sys_exit", s.exit); err != nil {
			return err
		}
		if err := attach("sys_enter", s.entry); err != nil {
			return err
		}
	}
	return s.attachProbes()
}

// calls reports whether system calls are recorded at all.
func (s *Syscalls) calls() bool {
	return len(s.opt.Calls) > 0 || s.opt.Others || len(s.opt.Probes) == 0
}

// Detach stops the making of records; what is in the rings can still be read. It may be called more than once.
func (s *Syscalls) Detach() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.detach()
}

func (s *Syscalls) detach() error {
	errs := []error{closeLinks(s.probeLinks)}
	for _, e := range s.events {
		errs = append(errs, e.Close())
	}
	s.probeLinks, s.events = nil, nil
	// Entries first: what is under way still gets its return.
	for i := len(s.links) - 1; i >= 0; i-- {
		errs = append(errs, unix.Close(s.links[i]))
	}
	s.links = nil
	return errors.Join(errs...)
}

// FollowProcess adds a process to the follow set.
func (s *Syscalls) FollowProcess(tgid uint32) error {
	m := s.maps[bpfgen.MapProcs]
	if m == nil {
		return errors.New("following a process: this session traces all tasks and keeps no follow set")
	}
	if tgid == s.opt.SelfPid {
		return fmt.Errorf("following process %d: that is this tracer itself", tgid)
	}
	if err := m.Put(tgid, uint32(bpfgen.ProcActive)); err != nil {
		return fmt.Errorf("following process %d: %w", tgid, err)
	}
	return nil
}

// FollowThread adds a thread to the set of followed threads; it has an effect only when the target filter names threads.
func (s *Syscalls) FollowThread(tid uint32) error {
	m := s.maps[bpfgen.MapThreads]
	if m == nil {
		return nil
	}
	if err := m.Put(tid, uint32(1)); err != nil {
		return fmt.Errorf("following thread %d: %w", tid, err)
	}
	return nil
}

// Launching says whether this process (SelfPid) is about to start a command. While on, its new children are followed in a
// pending state: they show execve and execveat only, until one succeeds.
func (s *Syscalls) Launching(on bool) error {
	v := uint32(0)
	if on {
		v = 1
	}
	if err := s.maps[bpfgen.MapArming].Put(uint32(0), v); err != nil {
		return fmt.Errorf("preparing to start the command: %w", err)
	}
	return nil
}

// Followed returns the ids of the followed processes that have not ended.
func (s *Syscalls) Followed() ([]uint32, error) {
	m := s.maps[bpfgen.MapProcs]
	if m == nil {
		return nil, nil
	}
	var tgid, bits uint32
	var list []uint32
	it := m.Iterate()
	for it.Next(&tgid, &bits) {
		if bits&bpfgen.ProcDead == 0 {
			list = append(list, tgid)
		}
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return nil, fmt.Errorf("reading the follow set: %w", err)
	}
	return list, nil
}

// Main is the ring of calls.
func (s *Syscalls) Main() *ring.Reader { return s.main }

// Side is the ring of life-cycle and signal records.
func (s *Syscalls) Side() *ring.Reader { return s.side }

// TaskLoss is how many entry records of a thread are lost.
type TaskLoss struct {
	Pid, Tid uint32
	Count    uint64
}

// Losses returns the lost entry records by thread; of threads beyond the first few thousand that lost any, nothing is known.
func (s *Syscalls) Losses() ([]TaskLoss, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("reading the losses by thread: %w", os.ErrClosed)
	}
	var key, n uint64
	var list []TaskLoss
	it := s.maps[bpfgen.MapLost].Iterate()
	for it.Next(&key, &n) {
		list = append(list, TaskLoss{uint32(key >> 32), uint32(key), n})
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("reading the losses by thread: %w", err)
	}
	return list, nil
}

// Counters reads the counters.
func (s *Syscalls) Counters() (Counters, error) {
	var c Counters
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return c, fmt.Errorf("reading the counters: %w", os.ErrClosed)
	}
	value := make([]byte, bpfgen.StatsSize)
	for cpu := range s.cpus {
		if err := s.maps[bpfgen.MapStats].Lookup(uint32(cpu), &value); err != nil {
			return c, fmt.Errorf("reading the counters of CPU %d: %w", cpu, err)
		}
		for off, dst := range map[int]*uint64{
			bpfgen.StatMade: &c.Made, bpfgen.StatEntryRing: &c.EntryLostRing, bpfgen.StatEntryScratch: &c.EntryLostScratch,
			bpfgen.StatReturned: &c.Returned, bpfgen.StatExitRing: &c.ExitLostRing, bpfgen.StatExitScratch: &c.ExitLostScratch,
			bpfgen.StatFollowFull: &c.FollowFull, bpfgen.StatStateFull: &c.StateFull, bpfgen.StatSideLost: &c.SideLost,
			bpfgen.StatBlockWaits: &c.BlockWaits, bpfgen.StatBlockNs: &c.BlockNs,
		} {
			*dst += binary.LittleEndian.Uint64(value[off:])
		}
	}
	if s.calls() {
		c.EnterMissed = s.entry.missed()
		c.ExitMissed = s.exit.missed()
	}
	c.EnterMissed += s.probesMissed()
	return c, nil
}

// Close detaches everything, closes the rings and unloads the programs. It may be called more than once.
func (s *Syscalls) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	errs := []error{s.detach()}
	for _, r := range []*ring.Reader{s.main, s.side} {
		if r != nil {
			errs = append(errs, r.Close())
		}
	}
	progs := append([]*tracing{s.entry, s.exit, s.late, s.any[0], s.any[1]}, s.shapes...)
	for _, l := range s.life {
		progs = append(progs, l.tracing)
	}
	for _, p := range progs {
		if p != nil {
			errs = append(errs, p.close())
		}
	}
	errs = append(errs, s.closeProbes()...)
	if s.Stacks != nil {
		errs = append(errs, s.Stacks.close()...)
	}
	for _, m := range s.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}
