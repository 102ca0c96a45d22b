package tracer

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/decode"
	"github.com/sonde-trace/sonde/internal/plan"
	"github.com/sonde-trace/sonde/internal/wire"
)

// Sink takes events in order. An Event and all that it refers to are valid only until Event returns.
type Sink interface {
	Event(*event.Event) error
	// Flush is called when no further event is expected soon.
	Flush() error
}

// Times by which the assembler decides; in ns of the records' own clock, so that a replay decides as the live run did.
const (
	// A call that returns within splitAfter is shown as one event at the time of its entry. One that takes longer is
	// split when events of others come between.
	splitAfter = 10_000_000
	// A call that has shown nothing for quietAfter, while nothing else happens either, is shown as far as it is known.
	quietAfter = 100_000_000
	// maxQueued bounds the bytes of records that wait behind a call.
	maxQueued = 4 << 20
	// maxKin bounds the names of tasks that are not traced.
	maxKin = 4096
)

// assembler turns time-ordered records into events: it pairs entries with returns, decodes them, and keeps what is known
// of the tasks. It is driven by one goroutine.
type assembler struct {
	tables *callTables
	opt    decode.Options
	sink   Sink
	filter func(*event.Event) bool // nil: all pass
	// filterFull decodes calls in full for the filter, and again as they are shown.
	filterFull bool
	self       uint32                  // the process that records: not part of the trace
	whole      bool                    // calls are shown when they have returned, never in parts
	follow     bool                    // the processes that traced ones make are traced too
	adopt      func(pid uint32)        // a process made with CLONE_PARENT may be our child; nil: nobody waits
	limit      uint64                  // calls to show; 0: no limit
	comms      func(pid uint32) string // names of tasks that no record told of; nil: names are not wanted

	tasks map[uint32]*task
	// kin are the names of new tasks that are not traced, where names are wanted.
	kin map[uint32]string
	// procs counts the live threads that have been seen, by process.
	procs map[uint32]int
	// leaders holds the ends of leaders, by process, until it is known that no other thread executed a program.
	leaders map[uint32]*item

	// queue holds what has not been given to the sink, in time order; head is its first entry.
	queue  []*item
	head   int
	queued int // bytes of records in queue
	free   []*item

	probes  *probeTable
	values  plan.Values
	regs    []regPlace
	regList []event.Reg
	stacks  *stacks // nil: none were asked for
	breaks  breaks
	// launching is set until a command that the session starts executes its program: what it does until then is our own code.
	launching bool

	cx   decode.Cx
	ret  event.Builder
	ev   event.Event
	last uint64 // time of the newest event given to the sink
	now  uint64 // time of the newest record seen

	// The account in calls.
	exitOnly, shown, filtered, exitLost uint64
	perTask                             map[uint32]*event.Ledger // by tid; nil unless asked for
	bad                                 uint64                   // records that are not well-formed
	err                                 error
}

// task is what is known of one thread.
type task struct {
	pid, tid uint32
	comm     string
	pending  *item   // its call in progress
	seen     bool    // a syscall record of it was seen
	frames   []*item // calls of probed functions in progress, the innermost last
}

// item is one entry of the queue: a call, or another record.
type item struct {
	enter, exit wire.Record
	ac          *abiCalls
	call        *call
	task        *task
	time        uint64 // of the entry; once it was split, of the end
	tid         uint32 // at that time: a thread that executes a program becomes the leader
	comm        string // at that time
	cost        int    // what it adds to queued
	done        bool   // nothing more will come
	split       bool   // an unfinished event was given to the sink
	dropped     bool   // gave all it had to the sink or was filtered
	launching   bool
	whole       bool  // of a probe with a condition: it is not shown in two parts
	moved       *item // what follows of this call, under another thread id
	shown       int   // arguments that the unfinished event showed
	phase       event.Phase
	plan        *plan.Plan // of a probe; nil for the rest
	planIndex   int
	point       int
	enterBuf    []byte // own copies, kept from use to use
	exitBuf     []byte
}

// cloneParent is CLONE_PARENT, linux/sched.h.
const cloneParent = 0x8000

func newAssembler(t *callTables, opt decode.Options, sink Sink) *assembler {
	return &assembler{tables: t, opt: opt, sink: sink, tasks: make(map[uint32]*task), procs: make(map[uint32]int), leaders: make(map[uint32]*item)}
}

// know enters a task that exists before the first record.
func (a *assembler) know(pid, tid uint32, comm string) {
	t := a.task(pid, tid)
	t.comm = comm
}

func (a *assembler) task(pid, tid uint32) *task {
	t := a.tasks[tid]
	if t == nil {
		t = &task{pid: pid, tid: tid}
		a.tasks[tid] = t
		a.procs[pid]++
		// A thread of a process that is known already has its name until it is renamed.
		if p := a.tasks[pid]; p != nil {
			t.comm = p.comm
		}
	}
	return t
}

func (a *assembler) forget(t *task) {
	if a.tasks[t.tid] != t {
		return
	}
	delete(a.tasks, t.tid)
	if a.procs[t.pid]--; a.procs[t.pid] <= 0 {
		delete(a.procs, t.pid)
	}
}

// live returns the number of processes that have not ended, as far as the records tell.
func (a *assembler) live() int { return len(a.procs) }

// batch takes records in time order. They need to stay as they are only until it returns.
func (a *assembler) batch(records []wire.Record) error {
	for _, r := range records {
		a.record(r)
		if a.err != nil {
			return a.err
		}
	}
	a.keep()
	return a.err
}

func (a *assembler) record(r wire.Record) {
	if !r.Valid() {
		a.bad++
		return
	}
	if t := r.Time(); t > a.now {
		a.now = t
	}
	if a.head < len(a.queue) {
		a.age()
	}
	switch r.Kind() {
	case wire.SysEnter:
		a.enter(r)
	case wire.SysExit:
		a.exit(r)
	case wire.Stack, wire.Module:
		if a.stacks != nil {
			a.stacks.record(r)
		}
	case wire.Hit:
		a.hit(r)
	case wire.Break:
		a.armed(r)
	case wire.Return:
		a.returned(r)
	case wire.Fork, wire.Exec, wire.Exit, wire.Signal, wire.Rename:
		if r.Tgid() == a.self {
			return // we started the command
		}
		a.life(r)
	case wire.Tick:
	default:
		a.bad++
		return
	}
	a.drain()
}

// push puts a new item for r at the end of the queue.
func (a *assembler) push(r wire.Record, t *task) *item {
	it := a.item(r, t)
	it.cost = len(r)
	a.append(it, r)
	return it
}

// item makes an item for r, or takes a used one.
func (a *assembler) item(r wire.Record, t *task) *item {
	var it *item
	if n := len(a.free); n > 0 {
		it = a.free[n-1]
		a.free = a.free[:n-1]
		*it = item{enterBuf: it.enterBuf, exitBuf: it.exitBuf}
	} else {
		it = new(item)
	}
	it.task, it.enter = t, r
	return it
}

// append puts an item at the end of the queue: r is the record that brought it there. Records are ordered when they come; one that
// came too late is delivered at once, and marked.
func (a *assembler) append(it *item, r wire.Record) {
	it.time, it.tid, it.comm, it.launching = r.Time(), r.Tid(), it.task.comm, a.launching
	a.queue = append(a.queue, it)
	a.queued += it.cost
}

func (a *assembler) enter(r wire.Record) {
	t := a.task(r.Tgid(), r.Tid())
	t.seen = true
	if p := t.pending; p != nil {
		// A task is in one call at a time: the return of the former one is missing.
		p.phase = event.PhaseExitLost
		if p.call.noReturn {
			p.phase = event.PhaseEntryOnly
		}
		a.settle(t, r)
	}
	ac, c := a.tables.lookup(r)
	var it *item
	if c.show {
		it = a.push(r, t)
	} else {
		// Recorded for another reason: it is paired with its return and nothing waits for it.
		it = a.item(r, t)
	}
	it.ac, it.call = ac, c
	t.pending = it
}

func (a *assembler) exit(r wire.Record) {
	t := a.task(r.Tgid(), r.Tid())
	first := !t.seen
	t.seen = true
	ac, c := a.tables.lookup(r)
	if p := t.pending; p != nil {
		// rt_sigreturn comes back with the number -1: it restored the registers of another moment.
		if p.call == c || int32(r.Probe()) == -1 || p.call.exec {
			p.exit, p.phase = r, event.PhaseComplete
			p.cost += len(r)
			if !p.split && p.call.show {
				a.queued += len(r)
			}
			a.settle(t, r)
			return
		}
		p.phase = event.PhaseExitLost
		a.settle(t, r)
	}
	if int32(r.Probe()) == -1 || c.child && r.Ret() == 0 && first {
		return // the second return of fork, in the child; or of a call that was not selected
	}
	if !c.show {
		return
	}
	it := a.push(r, t)
	it.enter, it.exit, it.ac, it.call = nil, r, ac, c
	it.done, it.phase = true, event.PhaseExitOnly
	a.exitOnly++
}

// settle ends the call that t is in, by what r says. The place of a call that was split is that of its end.
func (a *assembler) settle(t *task, r wire.Record) {
	p := t.pending
	p.done = true
	t.pending = nil
	if !p.call.show {
		a.free = append(a.free, p)
		return
	}
	if p.split {
		a.append(p, r)
	}
}

// life keeps the table of tasks. What it ends comes in the queue before the record that ended it.
func (a *assembler) life(r wire.Record) {
	t := a.task(r.Tgid(), r.Tid())
	body := r.Body()
	switch r.Kind() {
	case wire.Fork:
		tid, tgid := binary.LittleEndian.Uint32(body), binary.LittleEndian.Uint32(body[4:])
		if a.adopt != nil && binary.LittleEndian.Uint64(body[8:])&cloneParent != 0 && tid == tgid {
			a.adopt(tid)
		}
		if old := a.tasks[tid]; old != nil && old != t {
			a.end(old, r)
		}
		if a.follow || tgid == t.pid {
			child := a.task(tgid, tid)
			child.comm = t.comm
		} else if a.comms != nil {
			if a.kin == nil || len(a.kin) >= maxKin {
				a.kin = make(map[uint32]string)
			}
			a.kin[tid] = t.comm
		}
	case wire.Exec:
		if old := binary.LittleEndian.Uint32(body); old != t.tid {
			a.supersede(t, old, r)
		}
		a.endFrames(t, r)
		a.launching = false
	case wire.Exit:
		a.end(t, r)
		if binary.LittleEndian.Uint32(body[4:]) != 0 {
			delete(a.procs, t.pid)
		}
	}
	it := a.push(r, t)
	it.done = true
	switch r.Kind() {
	case wire.Exec:
		t.comm = commOf(body[8:24])
		it.comm = t.comm
	case wire.Rename:
		t.comm = commOf(body[:16])
		it.comm = t.comm
	case wire.Exit:
		// Perhaps another thread executes a program: then the leader did not end, it was superseded.
		if t.tid == t.pid && binary.LittleEndian.Uint32(body[4:]) == 0 {
			it.done = false
			a.leaders[t.pid] = it
		}
	}
}

// supersede handles the execve of a thread other than the leader t: the thread old became the only one and took the
// leader's id.
func (a *assembler) supersede(t *task, old uint32, r wire.Record) {
	if left := a.leaders[t.pid]; left != nil {
		left.done, left.dropped = true, true
		delete(a.leaders, t.pid)
	}
	if t.pending != nil { // the record of the leader's end is lost
		t.pending.phase = event.PhaseEntryOnly
		a.settle(t, r)
	}
	if o := a.tasks[old]; o != nil {
		t.pending, t.seen, t.comm = o.pending, o.seen, o.comm
		if p := t.pending; p != nil {
			p.task = t
			if p.call.show && !p.split {
				// Its line ends here, as this thread does; the rest follows under the leader's id.
				rest := a.item(p.enter, t)
				rest.ac, rest.call, rest.split = p.ac, p.call, true
				rest.keep()
				p.done, p.moved, t.pending = true, rest, rest
			}
		}
		o.pending = nil
		a.endFrames(o, r)
		a.forget(o)
	}
}

// end forgets a task that is no more, and closes the call that it was in.
func (a *assembler) end(t *task, r wire.Record) {
	if p := t.pending; p != nil {
		p.phase = event.PhaseEntryOnly
		a.settle(t, r)
		p.tid = t.tid // not that of r, which may be the parent of the next task of this id
	}
	for _, f := range t.frames {
		f.phase = event.PhaseEntryOnly
		a.endFrame(f, r)
		f.tid = t.tid
	}
	t.frames = t.frames[:0]
	a.forget(t)
}

func commOf(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// drain gives the sink what can be given.
func (a *assembler) drain() {
	for a.head < len(a.queue) && a.err == nil {
		it := a.queue[a.head]
		if !it.done {
			waiting := a.head+1 < len(a.queue)
			if !waiting || a.now-min(a.now, it.time) < splitAfter && a.queued < maxQueued {
				return
			}
			a.split()
			continue
		}
		a.advance()
		if it.moved != nil {
			a.unfinished(it)
			it.moved.shown, it.moved.dropped = it.shown, it.dropped
		} else if it.call != nil {
			a.emitCall(it)
		} else if it.plan != nil {
			a.emitProbe(it)
		} else if !it.dropped {
			a.emitLife(it)
		}
		a.free = append(a.free, it)
	}
	if a.head == len(a.queue) {
		a.queue, a.head = a.queue[:0], 0
	} else if a.head > 4096 && a.head > len(a.queue)/2 {
		n := copy(a.queue, a.queue[a.head:])
		a.queue, a.head = a.queue[:n], 0
	}
}

func (a *assembler) advance() {
	it := a.queue[a.head]
	a.queue[a.head] = nil
	a.head++
	a.queued -= it.cost
	it.cost = 0
}

// split shows the first of the queue as far as it is known, and takes it out.
func (a *assembler) split() {
	it := a.queue[a.head]
	if it.call == nil && it.plan == nil {
		// The end of a leader; no other thread has executed a program.
		it.done = true
		if a.leaders[it.task.pid] == it {
			delete(a.leaders, it.task.pid)
		}
		return
	}
	a.advance()
	it.split = true
	it.keep()
	a.unfinished(it)
}

// keep copies the records of what stays in the queue, and of split calls: the batch that holds them is about to be reused.
func (a *assembler) keep() {
	for _, it := range a.queue[a.head:] {
		it.keep()
	}
}

func (it *item) keep() {
	if len(it.enter) > 0 && (len(it.enterBuf) == 0 || &it.enter[0] != &it.enterBuf[0]) {
		it.enterBuf = append(it.enterBuf[:0], it.enter...)
		it.enter = it.enterBuf
	}
	if len(it.exit) > 0 && (len(it.exitBuf) == 0 || &it.exit[0] != &it.exitBuf[0]) {
		it.exitBuf = append(it.exitBuf[:0], it.exit...)
		it.exit = it.exitBuf
	}
}

// quiet tells the assembler that the clock shows now and no record older than that is to come. A call in progress that
// has been silent for a while is shown as far as it is known.
func (a *assembler) quiet(now uint64) error {
	if now > a.now {
		a.now = now
	}
	a.age()
	a.keep()
	return a.err
}

// age gives the sink what can be given at the time a.now. It is asked before each record too, so that what is shown
// depends on the times of records alone, and not on when they were read: a replay shows the same.
func (a *assembler) age() {
	a.drain()
	for a.err == nil && a.head < len(a.queue) {
		if it := a.queue[a.head]; it.done || a.now-min(a.now, it.time) < quietAfter {
			break
		}
		a.split()
		a.drain()
	}
}

// finish ends the stream: calls in progress will not return in it.
func (a *assembler) finish() error {
	for _, it := range a.queue[a.head:] {
		if it.done {
			continue
		}
		it.done = true
		if it.call != nil {
			it.phase = event.PhaseEntryOnly
			it.task.pending = nil
		} else if it.plan != nil {
			it.phase = event.PhaseEntryOnly
			it.task.frames = slices.DeleteFunc(it.task.frames, func(f *item) bool { return f == it })
		}
	}
	a.drain()
	// Those that were split have left the queue; the table of tasks still knows them.
	var open []*item
	for _, t := range a.tasks {
		if p := t.pending; p != nil {
			if p.call.show {
				open = append(open, p)
			}
			t.pending = nil
		}
		open = append(open, t.frames...)
		t.frames = nil
	}
	slices.SortFunc(open, func(x, y *item) int { return cmp.Or(cmp.Compare(x.time, y.time), cmp.Compare(x.tid, y.tid)) })
	for _, p := range open {
		p.done, p.phase, p.time = true, event.PhaseEntryOnly, a.now
		switch {
		case a.err != nil:
		case p.plan != nil:
			a.emitProbe(p)
		default:
			a.emitCall(p)
		}
	}
	return a.err
}

// prepare fills the decoding context from a call's records.
func (a *assembler) prepare(it *item) {
	c := &a.cx
	c.Builder.Reset()
	c.Opt, c.ABI, c.Def = a.opt, it.ac.abi, it.call.def
	switch it.call.detail {
	case DetailFull:
		c.Opt.Abbrev = false
	case DetailPlain:
		c.Opt.Plain = true
	}
	c.Pid, c.Tid, c.Note, c.Noted = it.task.pid, it.task.tid, "", false
	c.EnterSeg, c.ExitSeg = nil, nil
	r := it.enter
	if len(r) > 0 {
		c.EnterSeg = r.Segments()
	} else {
		r = it.exit
	}
	c.Nr, c.Arg = r.Probe()&^x32Bit, r.Args()
	if c.ABI.PtrSize == 4 && c.ABI.Name != "x32" {
		for i := range c.Arg {
			c.Arg[i] &= 0xffffffff
		}
	}
	c.Exited = len(it.exit) > 0
	c.Ret = 0
	if c.Exited {
		c.ExitSeg = it.exit.Segments()
		c.Ret = it.exit.Ret()
		if c.ABI.PtrSize == 4 && c.ABI.Name != "x32" {
			c.Ret = int64(int32(c.Ret))
		}
	}
}

// begin fills the parts that all events share.
func (a *assembler) begin(typ event.Type, it *item, r wire.Record, time uint64) *event.Event {
	e := &a.ev
	*e = event.Event{
		Type: typ, Time: time, CPU: r.CPU(), Late: time < a.last,
		Task: event.Task{Pid: it.task.pid, Tid: it.tid, Comm: it.comm},
	}
	if time > a.last {
		a.last = time
	}
	return e
}

func (a *assembler) syscallEvent(it *item, r wire.Record, time uint64) *event.Event {
	e := a.begin(event.TypeSyscall, it, r, time)
	e.Name, e.ABI, e.Nr, e.IP = it.call.name, it.ac.abi.Name, r.Probe(), r.IP()
	e.Decoded = it.call.def != nil
	e.Injected = it.call.injected && len(it.enter) > 0 && it.enter.Flags()&wire.FlagAnswered != 0
	return e
}

func countTop(t event.Tree) int {
	n := 0
	for i := 0; i < len(t); i = t.Next(i) {
		if t[i].Kind != event.KindNote {
			n++
		}
	}
	return n
}

// unfinished shows a call as far as its entry tells.
func (a *assembler) unfinished(it *item) {
	if a.whole {
		return
	}
	if it.plan != nil {
		a.unfinishedProbe(it)
		return
	}
	a.prepare(it)
	it.call.decode(&a.cx)
	e := a.syscallEvent(it, it.enter, it.time)
	e.Phase = event.PhaseUnfinished
	e.Args = a.cx.Nodes
	e.NArgs = countTop(e.Args)
	e.Resume = e.NArgs
	if it.moved != nil {
		e.MovedTo = it.task.tid
	}
	e.More = it.call.later && it.call.def != nil && e.NArgs < len(it.call.def.Args)
	it.shown = e.NArgs
	if a.full() || a.filter != nil && !a.filter(e) {
		it.dropped = true
		return
	}
	a.name(e.Args)
	a.give(e)
}

// full reports that as many calls were shown as were wanted.
func (a *assembler) full() bool { return a.limit > 0 && a.shown >= a.limit }

// name puts the names of tasks beside their ids.
func (a *assembler) name(t event.Tree) {
	if a.comms == nil {
		return
	}
	for i := range t {
		n := &t[i]
		if n.Kind != event.KindPID || int32(n.Num) <= 0 {
			continue
		}
		if known := a.tasks[uint32(n.Num)]; known != nil && known.comm != "" {
			n.Data = a.cx.Keep([]byte(known.comm))
		} else if comm := a.comms(uint32(n.Num)); comm != "" {
			n.Data = a.cx.Keep([]byte(comm))
		} else if comm := a.kin[uint32(n.Num)]; comm != "" {
			n.Data = a.cx.Keep([]byte(comm)) // it has ended meanwhile
		}
	}
}

// regPlace is a register to show and where it stands in pt_regs.
type regPlace struct {
	name string
	off  int
}

// chooseRegs says which registers to show.
func (a *assembler) chooseRegs(arch string, names []string) error {
	for _, n := range names {
		if n == "all" {
			names = bpfgen.RegNames(arch)
			break
		}
	}
	for _, n := range names {
		off, ok := bpfgen.RegOffset(arch, n)
		if !ok {
			return fmt.Errorf("register %s: %s has none of that name; %s are there", n, arch, strings.Join(bpfgen.RegNames(arch), ", "))
		}
		a.regs = append(a.regs, regPlace{n, off})
	}
	return nil
}

// stack adds the stack and the registers at the entry of an item to its event.
func (a *assembler) stack(e *event.Event, it *item) {
	if it.launching {
		return
	}
	r := it.enter
	if len(r) == 0 {
		r = it.exit
	}
	if len(a.regs) > 0 {
		if raw := r.Regs(); raw != nil {
			a.regList = a.regList[:0]
			for _, x := range a.regs {
				if x.off+8 <= len(raw) {
					a.regList = append(a.regList, event.Reg{Name: x.name, Value: binary.LittleEndian.Uint64(raw[x.off:])})
				}
			}
			e.Regs = a.regList
		}
	}
	if a.stacks == nil {
		return
	}
	if id := r.StackID(); id != 0 {
		e.Stack = a.stacks.of(id)
	}
}

func (a *assembler) give(e *event.Event) {
	if a.full() && e.Type != event.TypeSyscall {
		return
	}
	if err := a.sink.Event(e); err != nil {
		a.err = err
	}
}

// emitLife gives the sink an item that is not a call.
func (a *assembler) emitLife(it *item) {
	r := it.enter
	body := r.Body()
	switch r.Kind() {
	case wire.Fork:
		e := a.begin(event.TypeFork, it, r, it.time)
		e.Child = event.Task{Tid: binary.LittleEndian.Uint32(body), Pid: binary.LittleEndian.Uint32(body[4:]), Comm: it.comm}
		e.Flags = binary.LittleEndian.Uint64(body[8:])
		e.Followed = a.follow || e.Child.Pid == e.Task.Pid
		a.give(e)
	case wire.Exec:
		e := a.begin(event.TypeExec, it, r, it.time)
		e.OldTid = binary.LittleEndian.Uint32(body)
		a.give(e)
	case wire.Rename:
		e := a.begin(event.TypeRename, it, r, it.time)
		a.give(e)
	case wire.Exit:
		e := a.begin(event.TypeExit, it, r, it.time)
		e.Status = binary.LittleEndian.Uint32(body)
		e.GroupDead = binary.LittleEndian.Uint32(body[4:]) != 0
		a.give(e)
	case wire.Signal:
		e := a.begin(event.TypeSignal, it, r, it.time)
		e.Signal = uint8(binary.LittleEndian.Uint32(body))
		a.cx.Builder.Reset()
		a.cx.Opt, a.cx.ABI = a.opt, a.tables.native.abi
		decode.Siginfo(&a.cx, body[8:])
		e.Args = a.cx.Nodes
		e.NArgs = countTop(e.Args)
		a.name(e.Args)
		a.give(e)
	}
}

func (a *assembler) emitCall(it *item) {
	r := it.enter
	if len(r) == 0 {
		r = it.exit
	}
	resumed := it.split && len(it.exit) > 0
	if a.filterFull && a.filter != nil && !it.dropped && !a.wanted(it, r) {
		a.count(it, &a.filtered)
		return
	}
	a.prepare(it)
	it.call.decode(&a.cx)
	e := a.syscallEvent(it, r, it.time)
	e.Phase = it.phase
	e.Args = a.cx.Nodes
	e.NArgs = countTop(e.Args)
	if resumed && !a.whole {
		e.Phase, e.Resume, e.CPU = event.PhaseResumed, it.shown, it.exit.CPU()
	} else if it.split {
		e.Resume = it.shown
	}
	if a.cx.Exited {
		e.Ret, e.Errno, e.RetNote, e.RetNoted = a.cx.Ret, uint16(a.cx.Errno()), a.cx.Note, a.cx.Noted
		if len(it.enter) > 0 {
			e.Duration = it.exit.Time() - min(it.exit.Time(), it.enter.Time())
		}
		if it.call.ret != nil && !a.cx.Failed() {
			a.ret.Reset()
			a.cx.Builder, a.ret = a.ret, a.cx.Builder
			it.call.ret(&a.cx)
			e.RetTree = a.cx.Nodes
			e.RetNote, e.RetNoted = a.cx.Note, a.cx.Noted
			a.cx.Builder, a.ret = a.ret, a.cx.Builder
		}
	}
	if it.dropped || a.full() || a.filter != nil && !a.filterFull && !a.filter(e) {
		a.count(it, &a.filtered)
		return
	}
	a.name(e.Args)
	a.name(e.RetTree)
	if it.phase == event.PhaseExitLost {
		a.count(it, &a.exitLost)
	} else {
		a.count(it, &a.shown)
	}
	a.stack(e, it)
	a.give(e)
}

// wanted asks the filter about a call with its values in full.
func (a *assembler) wanted(it *item, r wire.Record) bool {
	a.prepare(it)
	a.cx.Opt = decode.Options{StrLimit: 1 << 16}
	it.call.decode(&a.cx)
	last := a.last
	e := a.syscallEvent(it, r, it.time)
	a.last = last
	e.Phase, e.Args, e.NArgs = it.phase, a.cx.Nodes, countTop(a.cx.Nodes)
	if a.cx.Exited {
		e.Ret, e.Errno = a.cx.Ret, uint16(a.cx.Errno())
	}
	return a.filter(e)
}

// count adds one call to the account, and to its task's where that is kept.
func (a *assembler) count(it *item, n *uint64) {
	*n++
	if a.perTask == nil {
		return
	}
	l := a.perTask[it.tid]
	if l == nil {
		l = new(event.Ledger)
		a.perTask[it.tid] = l
	}
	l.Made++
	switch n {
	case &a.shown:
		l.Shown++
	case &a.filtered:
		l.Filtered++
	default:
		if l.Lost == nil {
			l.Lost = []event.Lost{{Cause: CauseReturn}}
		}
		l.Lost[0].Count++
	}
}
