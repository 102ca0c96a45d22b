package control

import (
	"bytes"
	"context"
	"fmt"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/probe"
	"github.com/sonde-trace/sonde/sink"
	"github.com/sonde-trace/sonde/tracer"
)

// ringSize is the buffer of each probe: there can be many.
const ringSize = 1 << 20

// Trace is the Open of real probes.
func Trace(ctx context.Context, p Probe, deliver func([]byte)) (Running, error) {
	if !probe.IsProbe(p.Expr) {
		return nil, fail(CodeParams, "%s: a probe is needed: OBJECT:FUNCTION, watch:OBJECT:VARIABLE:w, tp:GROUP:NAME, …", p.Expr)
	}
	spec, err := probe.Parse(p.Expr)
	if err != nil {
		return nil, fail(CodeParams, "%v", err)
	}
	ready := make(chan struct{})
	s, err := tracer.Open(tracer.Options{Probes: []*probe.Spec{spec}, Target: tracer.Target{Pids: p.Pids}, RingSize: ringSize, StackDepth: p.Stack,
		Select: func(string, uint32, string) bool { return false }, Ready: func() { close(ready) }})
	if err != nil {
		return nil, fail(CodeProbe, "%v", err)
	}
	c := s.Clock()
	r := &running{notes: s.Notes(), done: make(chan struct{})}
	out := sink.NewJSON(lines(deliver), sink.JSONOptions{Monotonic: c.Monotonic, Wall: c.Wall})
	go func() {
		defer close(r.done)
		var res *tracer.Result
		res, r.err = s.Run(ctx, hits{out})
		if res != nil {
			l := &res.Ledger
			r.account = Account{Made: l.Made, Shown: l.Shown, Filtered: l.Filtered}
			for _, x := range l.Lost {
				if r.account.Lost == nil {
					r.account.Lost = make(map[string]uint64)
				}
				r.account.Lost[x.Cause] += x.Count
			}
		}
	}()
	select {
	case <-ready:
		return r, nil
	case <-r.done:
		if r.err == nil {
			r.err = fmt.Errorf("the processes have ended")
		}
		return nil, fail(CodeProbe, "%v", r.err)
	}
}

// running is a session.
type running struct {
	notes   []string
	done    chan struct{}
	account Account
	err     error
}

func (r *running) Notes() []string { return r.notes }

func (r *running) Wait() (Account, error) {
	<-r.done
	return r.account, r.err
}

// hits passes the events of probes only: forks, signals and ends are not what was asked for.
type hits struct{ *sink.JSON }

func (h hits) Event(e *event.Event) error {
	if e.Type != event.TypeProbe {
		return nil
	}
	if err := h.JSON.Event(e); err != nil {
		return err
	}
	return h.JSON.Flush()
}

// lines takes what the JSON sink writes: whole lines, of which the header goes nowhere.
type lines func([]byte)

func (f lines) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		if line = bytes.TrimSuffix(line, []byte("\n")); len(line) > 0 && !bytes.HasPrefix(line, []byte(`{"type":"header"`)) {
			f(line)
		}
	}
	return len(b), nil
}
