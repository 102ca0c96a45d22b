package tracer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/decode"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Replay delivers the events of a recorded session again: the same as the live session would have, given the same options.
// It is used by one goroutine.
type Replay struct {
	facts facts
	asm   *assembler
	opt   Options
}

// NewReplay prepares a replay of the session with these facts, which a [Recorder] was given. Of the options Select, Filter,
// Whole, Verbose, Detail, Limit, Comms, StrLimit and PerTask matter; they choose among what was recorded. Facts come from a file and are not
// trusted.
func NewReplay(raw json.RawMessage, o Options) (*Replay, error) {
	r := &Replay{opt: o}
	if err := json.Unmarshal(raw, &r.facts); err != nil {
		return nil, fmt.Errorf("the facts of the recorded session: %w", err)
	}
	if r.facts.StrLimit < 1 || r.facts.StrLimit > 65536 {
		return nil, fmt.Errorf("the facts of the recorded session: a string limit of %d bytes is impossible", r.facts.StrLimit)
	}
	limit := r.facts.StrLimit
	if o.StrLimit > 0 {
		limit = min(limit, o.StrLimit)
	}
	tables, err := newCallTables(r.facts.Arch, r.show(), o.Detail)
	if err != nil {
		return nil, err
	}
	r.asm = newAssembler(tables, decode.Options{StrLimit: limit, Abbrev: !(o.Verbose || r.facts.Verbose)}, nil)
	if err := checkPlans(r.facts.Probes); err != nil {
		return nil, fmt.Errorf("the facts of the recorded session: %w", err)
	}
	r.asm.probes = newProbeTable(r.facts.Arch, r.facts.Probes)
	if err := r.asm.probes.conditions(r.facts.Stacks); err != nil {
		return nil, fmt.Errorf("the facts of the recorded session: %w", err)
	}
	if r.facts.Stacks {
		r.asm.stacks = newStacks(&o)
	}
	if err := r.asm.chooseRegs(r.facts.Arch, r.facts.Regs); err != nil {
		return nil, fmt.Errorf("the facts of the recorded session: %w", err)
	}
	r.asm.launching = r.facts.Command
	r.asm.filter, r.asm.whole, r.asm.self, r.asm.follow = o.Filter, o.Whole, r.facts.Self, r.facts.Follow
	tables.injected(r.facts.Injected)
	r.asm.limit, r.asm.filterFull = o.Limit, o.FilterFull
	if o.Comms {
		r.asm.comms = func(uint32) string { return "" }
	}
	if o.PerTask {
		r.asm.perTask = make(map[uint32]*event.Ledger)
	}
	for _, t := range r.facts.Tasks {
		r.asm.know(t.Pid, t.Tid, string(t.Comm))
	}
	return r, nil
}

// show is what was selected at the time and is selected now; nil for all.
func (r *Replay) show() func(*syscalls.ABI, uint32) bool {
	if r.opt.Select == nil && r.facts.Selected == nil {
		return nil
	}
	type key struct {
		abi string
		nr  uint32
	}
	recorded := make(map[key]bool)
	for abi, list := range r.facts.Selected {
		for _, nr := range list {
			recorded[key{abi, nr}] = true
		}
	}
	return func(abi *syscalls.ABI, nr uint32) bool {
		return (r.facts.Selected == nil || recorded[key{abi.Name, nr}]) &&
			(r.opt.Select == nil || r.opt.Select(abi.Name, nr, abi.Lookup(nr).Name))
	}
}

// Clock returns the session's relation between event times and the wall clock.
func (r *Replay) Clock() Clock { return Clock{r.facts.Monotonic, r.facts.Wall} }

// Tasks is how many threads the session traced at its start.
func (r *Replay) Tasks() int {
	if r.facts.Command {
		return len(r.facts.Tasks) + 1
	}
	return len(r.facts.Tasks)
}

// Several reports whether the session was to trace more than one process.
func (r *Replay) Several() bool { return r.facts.Follow || r.Tasks() > 1 }

// Run delivers the events of the batches that next returns, until it returns io.EOF. An error of next, of a file that is
// cut, is returned after what came before it is delivered. A batch stays valid until the following call of next.
func (r *Replay) Run(ctx context.Context, next func() ([]byte, error), sink Sink) (*Result, error) {
	r.asm.sink = sink
	m := newMerger()
	m.lists = append(m.lists, nil)
	var err error
	for ctx.Err() == nil {
		var b []byte
		if b, err = next(); err != nil {
			break
		}
		// In the order in which the session had them: it sorted them, and what came late then is late now.
		m.batch = m.split(m.batch[:0], b)
		if err = r.asm.batch(m.batch); err != nil {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	err = errors.Join(err, r.asm.finish(), sink.Flush())
	res := &Result{PerTask: r.asm.perTask}
	l := &res.Ledger
	l.Shown, l.Filtered = r.asm.shown, r.asm.filtered
	l.Made = l.Shown + l.Filtered + r.asm.exitLost
	if r.asm.exitLost > 0 {
		l.Lost = []event.Lost{{Cause: CauseReturn, Count: r.asm.exitLost}}
	}
	return res, err
}

// Recorded completes the result of a replay by the account of the session: what was lost then is not in the recording.
func (r *Result) Recorded(l *event.Ledger) {
	if l == nil {
		return
	}
	r.Ledger.Made -= r.Ledger.LostTotal()
	r.Ledger.Lost = l.Lost
	r.Ledger.Made += r.Ledger.LostTotal()
}
