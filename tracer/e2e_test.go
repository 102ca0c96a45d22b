package tracer

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/sonde-trace/sonde/internal/kerneltest"
	"github.com/sonde-trace/sonde/sink"
)

func TestTraceTrue(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.RawTracepoint, kerneltest.BTF)
	s, err := Open(Options{Command: &Command{Path: "/bin/true", Argv: []string{"true"}, Env: os.Environ()}, Follow: true, Signals: true})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	text := sink.NewText(&out, sink.TextOptions{})
	r, err := s.Run(context.Background(), text)
	if err != nil {
		t.Fatal(err)
	}
	text.Close(&r.Ledger)
	t.Logf("%+v\n%s", r, out.Bytes())
	if !r.Ledger.Balanced() {
		t.Errorf("ledger: %+v", r.Ledger)
	}
}
