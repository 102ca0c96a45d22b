package plan

import (
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/internal/decode"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/probe"
)

// TestPrototypes: each line of the table parses, each type is known, each length names an argument, and no name comes twice, also not
// among those that are read as system calls.
func TestPrototypes(t *testing.T) {
	seen := map[string]bool{}
	for line := range strings.Lines(prototypes) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		s, err := probe.Parse("libc:" + line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if seen[s.Point.Text] || callOf(s.Point.Text) != "" {
			t.Errorf("%s comes twice", s.Point.Text)
		}
		seen[s.Point.Text] = true
		if s.Ret == nil || len(s.Args) > 8 {
			t.Errorf("%s: the result is missing, or there are too many arguments", line)
			continue
		}
		names := map[string]bool{}
		for _, a := range s.Args {
			names[a.Name] = true
		}
		for _, typ := range append([]*probe.Type{s.Ret}, func() (l []*probe.Type) {
			for _, a := range s.Args {
				l = append(l, a.Type)
			}
			return
		}()...) {
			f, err := formOf(typ)
			if err != nil || f.Count != "" && !names[f.Count] {
				t.Errorf("%s: type %+v: %v", line, typ, err)
			}
		}
	}
	calls := 0
	for _, f := range asCalls {
		name, _, _ := strings.Cut(f, ":")
		if call := callOf(name); call == "" {
			t.Errorf("%s: no decoder for that call", f)
		} else if _, ok := syscalls.AMD64.ByName(call); !ok || decode.Specs()[call] == nil {
			t.Errorf("%s: no such call", call)
		}
		calls++
	}
	if n := len(seen) + calls; n < 500 {
		t.Errorf("%d functions are known; at least 500 are to be", n)
	}
	if prototype("malloc") == nil || prototype("mallo") != nil || prototype("") != nil {
		t.Error("lookup")
	}
}
