package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/internal/kerneltest"
)

var update = flag.Bool("update", false, "write what replays of test/recordings print as what they must print")

// TestGolden replays recordings of sessions that were made once, on amd64 and Linux 6.18, of the programs in test/programs: what they
// print must stay, on every machine and without privileges, as text and as JSON.
func TestGolden(t *testing.T) {
	dir := filepath.Join(kerneltest.ModuleRoot(t), "test", "recordings")
	list, err := filepath.Glob(filepath.Join(dir, "*.sonde"))
	if err != nil || len(list) < 7 {
		t.Fatalf("%d recordings, %v", len(list), err)
	}
	for _, rec := range list {
		base := strings.TrimSuffix(rec, ".sonde")
		for _, form := range []struct {
			suffix string
			flags  []string
		}{{".txt", []string{"-ttt"}}, {".json", []string{"--json", "-s", "65536"}}} {
			t.Run(filepath.Base(base)+form.suffix, func(t *testing.T) {
				out := filepath.Join(t.TempDir(), "out")
				o := finish(t, sondeCommand(t, append([]string{"replay", "-q", rec, "-o", out}, form.flags...)...), "")
				if o.code != 0 {
					t.Fatalf("status %d: %s", o.code, o.stderr)
				}
				got, err := os.ReadFile(out)
				if err != nil {
					t.Fatal(err)
				}
				if *update {
					if err := os.WriteFile(base+form.suffix, got, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(base + form.suffix)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
					for i := range w {
						if i >= len(g) || g[i] != w[i] {
							t.Fatalf("line %d:\n%s\nwant:\n%s", i+1, at(g, i), w[i])
						}
					}
					t.Fatalf("%d lines more than wanted", len(g)-len(w))
				}
			})
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}
