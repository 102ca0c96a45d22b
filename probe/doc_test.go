package probe

import (
	"os"
	"strings"
	"testing"
)

// TestDocumented parses every expression that docs/reference/probes.md shows.
func TestDocumented(t *testing.T) {
	b, err := os.ReadFile("../docs/reference/probes.md")
	if err != nil {
		t.Fatal(err)
	}
	n, inside := 0, false
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```probe"
		case inside:
			n++
			if !IsProbe(line) {
				t.Errorf("%s is taken for a set of system calls", line)
			}
			if _, err := Parse(line); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	if n < 30 {
		t.Errorf("%d examples", n)
	}
}
