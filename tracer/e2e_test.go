package tracer

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"testing"

	"github.com/sonde-trace/sonde/internal/kerneltest"
	"github.com/sonde-trace/sonde/sink"
)

// kept is a Recorder in memory.
type kept struct {
	facts   json.RawMessage
	batches [][]byte
}

func (k *kept) Facts(f json.RawMessage) error { k.facts = bytes.Clone(f); return nil }
func (k *kept) Batch(b []byte) error          { k.batches = append(k.batches, bytes.Clone(b)); return nil }

func (k *kept) next() ([]byte, error) {
	if len(k.batches) == 0 {
		return nil, io.EOF
	}
	b := k.batches[0]
	k.batches = k.batches[1:]
	return b, nil
}

// A recorded session gives the same text again, without the kernel.
func TestReplay(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.RawTracepoint, kerneltest.BTF)
	k := &kept{}
	o := Options{Command: &Command{Path: kerneltest.Program(t, "tree"), Argv: []string{"tree", "10", "vfork"}, Env: os.Environ()},
		Follow: true, Signals: true, Record: k}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	var live, again bytes.Buffer
	text := sink.NewText(&live, sink.TextOptions{PIDs: sink.PIDsAlways, Stamp: sink.StampUnix, Digits: 9, Wall: s.Clock().Time})
	r, err := s.Run(context.Background(), text)
	if err != nil {
		t.Fatal(err)
	}
	text.Close(&r.Ledger)
	if !r.Ledger.Balanced() || r.Ledger.LostTotal() != 0 {
		t.Errorf("ledger: %+v", r.Ledger)
	}
	if !r.Ended || r.Status.ExitStatus() != 7 {
		t.Errorf("status %v, ended %v", r.Status, r.Ended)
	}
	replay, err := NewReplay(k.facts, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if replay.Tasks() != s.Tasks() || !replay.Several() {
		t.Errorf("%d tasks, want %d; several %v", replay.Tasks(), s.Tasks(), replay.Several())
	}
	text = sink.NewText(&again, sink.TextOptions{PIDs: sink.PIDsAlways, Stamp: sink.StampUnix, Digits: 9, Wall: replay.Clock().Time})
	r2, err := replay.Run(context.Background(), k.next, text)
	if err != nil {
		t.Fatal(err)
	}
	text.Close(&r2.Ledger)
	if live.String() != again.String() {
		t.Errorf("live:\n%s\nagain:\n%s", live.String(), again.String())
	}
	if r2.Ledger.Made != r.Ledger.Made || !r2.Ledger.Balanced() {
		t.Errorf("ledger %+v, was %+v", r2.Ledger, r.Ledger)
	}
}

// Facts come from files.
func TestReplayForeignFacts(t *testing.T) {
	for _, facts := range []string{``, `[]`, `{}`, `{"arch":"vax","strlimit":256}`, `{"arch":"amd64","strlimit":-1}`, `{"arch":"amd64","strlimit":1000000000}`} {
		if _, err := NewReplay(json.RawMessage(facts), Options{}); err == nil {
			t.Errorf("%q is taken", facts)
		}
	}
}
