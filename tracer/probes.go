package tracer

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/attach"
	"github.com/sonde-trace/sonde/internal/decode"
	"github.com/sonde-trace/sonde/internal/plan"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
	"github.com/sonde-trace/sonde/perfevent"
	"github.com/sonde-trace/sonde/probe"
)

// probeTable knows the plan and the point of each id in the records: the points of all plans are numbered through.
type probeTable struct {
	arch  string
	plans []*plan.Plan
	specs []*decode.Spec // of those that are read as system calls
	defs  []*syscalls.Def
	conds []*condition
	first []uint32 // id of the first point of each plan
	next  uint32
}

// conditions compiles what the probes ask for. With stack set, events have stacks.
func (t *probeTable) conditions(stack bool) error {
	for i, p := range t.plans {
		spec := p.Spec
		if spec == nil && !p.Cond {
			t.conds = append(t.conds, nil)
			continue
		}
		if spec == nil { // of a recording
			var err error
			if spec, err = probe.Parse(p.Source); err != nil {
				return err
			}
		}
		c, err := compile(spec, p, t.defs[i])
		if err != nil {
			return err
		}
		if c != nil && c.stack && !stack {
			return &plan.Error{Expr: p.Source, Msg: "the condition asks for the stack, which is not recorded; -k records it"}
		}
		t.conds = append(t.conds, c)
	}
	return nil
}

func newProbeTable(arch string, plans []*plan.Plan) *probeTable {
	t := &probeTable{arch: arch, plans: plans}
	for _, p := range plans {
		t.first = append(t.first, t.next)
		t.specs = append(t.specs, decode.Specs()[p.Call])
		var def *syscalls.Def
		if nr, ok := syscalls.AMD64.ByName(p.Call); ok && p.Call != "" {
			def = syscalls.AMD64.Lookup(nr) // its table has the old calls too, which arm64 never had
		}
		t.defs = append(t.defs, def)
		t.next += uint32(len(p.Points))
	}
	return t
}

// lookup returns the plan of an id, its index and that of the point; ok is false for ids that no plan has, which only
// recordings can hold.
func (t *probeTable) lookup(id uint32) (p *plan.Plan, index, point int, ok bool) {
	if t == nil || id >= t.next {
		return nil, 0, 0, false
	}
	i, found := slices.BinarySearchFunc(t.first, id, func(f, id uint32) int { return cmp.Compare(f, id) })
	if !found {
		i--
	}
	// Plans without points share their first id with the one behind them.
	for i+1 < len(t.first) && t.first[i+1] == t.first[i] {
		i++
	}
	return t.plans[i], i, int(id - t.first[i]), true
}

// made reports whether a record counts as something that happened, in the ledger's sense: the entry of a call, a hit, or a
// return whose entry was not asked for.
func (t *probeTable) made(r wire.Record) bool {
	switch r.Kind() {
	case wire.SysEnter, wire.Hit:
		return true
	case wire.Return:
		p, _, _, ok := t.lookup(r.Probe())
		return ok && p.Return
	}
	return false
}

// resolve turns the session's expressions into plans.
func (o *Options) resolve() (list []*plan.Plan, notes []string, err error) {
	env := &plan.Env{Arch: runtime.GOARCH, Pids: o.Target.Pids, StrLimit: o.StrLimit, TracepointFormat: attach.TracepointFormat, DebugDirs: o.DebugDirs, FetchDebug: o.FetchDebug}
	if o.Command != nil {
		env.Command = o.Command.Path
	}
	for _, spec := range o.Probes {
		p, err := plan.Resolve(spec, env)
		if err != nil {
			return nil, nil, err
		}
		for _, n := range p.Notes {
			notes = append(notes, p.Source+": "+n)
		}
		if p.Apart != nil {
			list = append(list, p.Apart...)
		} else {
			list = append(list, p)
		}
	}
	return list, notes, nil
}

// Notes says what the user should know of the probes: functions left out, returns that are not watched, arguments that are not
// found.
func (s *Session) Notes() []string { return s.notes }

// attachPlans says how the plans are attached.
func attachPlans(t *probeTable) (list []attach.ProbePlan) {
	for i, p := range t.plans {
		a := attach.ProbePlan{Name: p.Source, Entry: p.Entry, Return: p.Exit}
		switch {
		case p.Break != nil:
			a.Kind = attach.ProbeBreak
		case p.Points[0].Group != "":
			a.Kind = attach.ProbeTracepoint
		case p.Points[0].Path == "":
			a.Kind = attach.ProbeKernel
		}
		for k := range p.Points {
			pt := &p.Points[k]
			one := attach.ProbePoint{ID: t.first[i] + uint32(k), Path: pt.Path, Group: pt.Group, Symbol: pt.Symbol, Offset: pt.Offset, Start: pt.Start, Returns: pt.Returns, NoReturn: pt.NoReturn, Semaphore: pt.Semaphore}
			if p.Break != nil {
				one.Break = perfevent.Break{Addr: pt.Offset, Len: pt.Len, Mode: p.Break.Mode}
			}
			a.Points = append(a.Points, one)
		}
		list = append(list, a)
	}
	return list
}

// hit takes the record of a probe.
func (a *assembler) hit(r wire.Record) {
	p, index, point, ok := a.probes.lookup(r.Probe())
	if !ok {
		a.bad++
		return
	}
	t := a.task(r.Tgid(), r.Tid())
	it := a.push(r, t)
	it.plan, it.planIndex, it.point = p, index, point
	if !p.Both || p.Points[point].NoReturn {
		it.done, it.phase = true, event.PhaseHit
		return
	}
	t.frames = append(t.frames, it)
}

// returned takes the record of a function's return. The frame it ends is found by the place of the frame in memory: returns can be
// missing, of functions that an exception or longjmp(3) has left.
func (a *assembler) returned(r wire.Record) {
	p, index, point, ok := a.probes.lookup(r.Probe())
	if !ok {
		a.bad++
		return
	}
	t := a.task(r.Tgid(), r.Tid())
	sp, _ := r.Slot(wire.SlotSP)
	if a.probes.arch == "amd64" && !p.AtRet {
		sp -= 8 // the return has taken its address off the stack
	}
	for i := len(t.frames) - 1; i >= 0 && !p.Return; i-- {
		f := t.frames[i]
		at, _ := f.enter.Slot(wire.SlotSP)
		if f.planIndex != index || f.point != point || at != sp {
			continue
		}
		for _, left := range t.frames[i+1:] {
			left.phase = event.PhaseExitLost
			a.endFrame(left, r)
		}
		t.frames = t.frames[:i]
		f.exit, f.phase = r, event.PhaseComplete
		f.cost += len(r)
		if !f.split {
			a.queued += len(r)
		}
		a.endFrame(f, r)
		return
	}
	it := a.push(r, t)
	it.plan, it.planIndex, it.point = p, index, point
	it.enter, it.exit = nil, r
	it.done, it.phase = true, event.PhaseReturn
	if !p.Return {
		it.phase = event.PhaseExitOnly
		a.exitOnly++
	}
}

// endFrame ends a call of a function. The place of one that was split is that of its end.
func (a *assembler) endFrame(f *item, r wire.Record) {
	f.done = true
	if f.split {
		a.append(f, r)
	}
}

// endFrames ends the calls that a task is in when it ends or executes another program.
func (a *assembler) endFrames(t *task, r wire.Record) {
	for _, f := range t.frames {
		f.phase = event.PhaseEntryOnly
		a.endFrame(f, r)
	}
	t.frames = t.frames[:0]
}

// probeEvent fills an event with what the records of a probe say.
func (a *assembler) probeEvent(it *item, r wire.Record) *event.Event {
	e := a.begin(event.TypeProbe, it, r, it.time)
	p := it.plan
	e.Object, e.Name, e.Probe, e.IP = p.Object, p.Points[it.point].Name, it.planIndex, r.IP()
	e.Decoded = true
	v := &a.values
	v.Builder.Reset()
	v.Again = nil
	if len(it.enter) > 0 && len(it.exit) > 0 {
		v.Again = it.exit.Segments()
	}
	v.Limit, v.Types = a.opt.StrLimit, p.Types
	if p.Call != "" {
		return a.callEvent(e, it)
	}
	if p.Break != nil {
		return a.breakEvent(e, it)
	}
	if len(it.enter) > 0 {
		v.Rec = it.enter
		v.Args(p.Args)
	} else if len(it.exit) > 0 && len(p.Out) > 0 {
		v.Rec = it.exit
		v.Args(p.Out)
	}
	e.Args = v.Nodes
	e.NArgs = countTop(e.Args)
	return e
}

// callEvent reads a function of the C library as the system call that it is for.
func (a *assembler) callEvent(e *event.Event, it *item) *event.Event {
	c := &a.cx
	c.Builder.Reset()
	c.Opt, c.ABI, c.Def = a.opt, a.tables.native.abi, a.probes.defs[it.planIndex]
	c.Pid, c.Tid, c.Note = it.task.pid, it.task.tid, ""
	c.EnterSeg, c.ExitSeg, c.Arg = nil, nil, [6]uint64{}
	c.Exited, c.Ret = len(it.exit) > 0, 0
	r, first := it.enter, wire.FirstSlot
	if len(r) > 0 {
		c.EnterSeg = r.Segments()
	} else {
		r, first = it.exit, wire.KeptSlot
	}
	for i := range c.Arg {
		if first+i < r.NSlots() {
			c.Arg[i], _ = r.Slot(first + i)
		}
	}
	if c.Exited {
		c.ExitSeg = it.exit.Segments()
		ret, _ := it.exit.Slot(wire.SlotRet)
		if c.Ret = int64(ret); it.plan.Ret.Size == 4 {
			c.Ret = int64(int32(ret))
		}
	}
	a.probes.specs[it.planIndex].Decode(c)
	e.Args = c.Nodes
	e.NArgs = countTop(e.Args)
	return e
}

func (a *assembler) unfinishedProbe(it *item) {
	e := a.probeEvent(it, it.enter)
	e.Phase, e.Resume = event.PhaseUnfinished, e.NArgs
	if c := a.condition(it); c != nil {
		// It is decided when all is known.
		it.whole = true
		return
	}
	it.shown = e.NArgs
	if a.filter != nil && !a.filter(e) {
		it.dropped = true
		return
	}
	a.give(e)
}

func (a *assembler) emitProbe(it *item) {
	r := it.enter
	if len(r) == 0 {
		r = it.exit
	}
	e := a.probeEvent(it, r)
	e.Phase = it.phase
	if len(it.exit) > 0 {
		ret, _ := it.exit.Slot(wire.SlotRet)
		e.Ret = int64(ret)
		if len(it.enter) > 0 {
			e.Duration = it.exit.Time() - min(it.exit.Time(), it.enter.Time())
		}
		if spec := a.probes.specs[it.planIndex]; spec != nil && spec.Ret != nil && !a.cx.Failed() {
			a.ret.Reset()
			a.cx.Builder, a.ret = a.ret, a.cx.Builder
			spec.Ret(&a.cx)
			e.RetTree, e.RetNote = a.cx.Nodes, a.cx.Note
			a.cx.Builder, a.ret = a.ret, a.cx.Builder
		} else if it.plan.Ret != nil {
			a.ret.Reset()
			v := &a.values
			v.Builder, a.ret = a.ret, v.Builder
			v.Rec, v.Again = it.exit, nil
			v.Value(it.plan.Ret, wire.SlotRet)
			e.RetTree = v.Nodes
			v.Builder, a.ret = a.ret, v.Builder
		}
	}
	if it.split && !a.whole && !it.whole {
		if e.Resume = it.shown; len(it.exit) > 0 {
			e.Phase, e.CPU = event.PhaseResumed, it.exit.CPU()
		}
	}
	a.stack(e, it)
	c := a.condition(it)
	switch {
	case it.dropped || a.filter != nil && !a.filter(e) || c != nil && !c.pass(e):
		a.count(it, &a.filtered)
		return
	case it.phase == event.PhaseExitLost:
		a.count(it, &a.exitLost)
	default:
		a.count(it, &a.shown)
	}
	a.give(e)
}

// condition is what the probe of an item asks for; nil for nothing.
func (a *assembler) condition(it *item) *condition {
	if it.planIndex < len(a.probes.conds) {
		return a.probes.conds[it.planIndex]
	}
	return nil
}

// checkPlans refuses plans of a recording that cannot be.
func checkPlans(plans []*plan.Plan) error {
	for _, p := range plans {
		if p == nil || len(p.Points) == 0 {
			return fmt.Errorf("a probe without a place")
		}
		if p.Call != "" && (decode.Specs()[p.Call] == nil || p.Ret == nil) {
			return fmt.Errorf("a function that is read as the unknown call %q", p.Call)
		}
	}
	return nil
}
