package tracer

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/kerneltest"
)

// gdbScript writes the frames at each call of mark to $OUT: the name of the file and the offset in it, from the program's own frames.
const gdbScript = `
import gdb, os
for c in ("set pagination off", "set confirm off", "set backtrace past-main on", "set backtrace past-entry on", "set debuginfod enabled off",
          "handle SIGUSR1 SIGUSR2 SIGILL nostop noprint pass", "break *mark", "run >/dev/null"):
    gdb.execute(c)
out = open(os.environ["OUT"], "w")
def maps(pid):
    rows = []
    for line in open("/proc/%d/maps" % pid):
        w = line.split()
        lo, hi = (int(x, 16) for x in w[0].split("-"))
        rows.append((lo, hi, int(w[2], 16), w[5] if len(w) > 5 else ""))
    return rows
while gdb.selected_thread() is not None and gdb.selected_thread().is_valid():
    rows = maps(gdb.selected_inferior().pid)
    f, list = gdb.newest_frame(), []
    while f is not None:
        if f.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
            pc = f.pc()
            for lo, hi, off, name in rows:
                if lo <= pc < hi:
                    list.append("%s+%#x" % (os.path.basename(os.path.realpath(name)), pc - lo + off))
        f = f.older()
    out.write(" ".join(list) + "\n")
    out.flush()
    try: gdb.execute("continue")
    except gdb.error: break
out.close()
gdb.execute("quit")
`

// offsets keeps the frames of stacks by file and offset.
type offsets struct{ stacks, ends []string }

func (o *offsets) Event(e *event.Event) error {
	if e.Stack == nil {
		return nil
	}
	var list []string
	for _, f := range e.Stack.Frames {
		// Of a call that was inlined there is a frame for each function.
		if s := fmt.Sprintf("%s+%#x", filepath.Base(f.Module), f.Offset); !f.Inlined {
			list = append(list, s)
		}
	}
	o.stacks, o.ends = append(o.stacks, strings.Join(list, " ")), append(o.ends, e.Stack.End)
	return nil
}
func (o *offsets) Flush() error { return nil }

// TestStackEqualGDB: every frame of every stack is the one that gdb finds (H07 to H09): in constructors, callbacks, signal handlers,
// destructors while an exception is thrown, threads and frames of variable size, however it was built.
func TestStackEqualGDB(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.BTF, kerneltest.FindVMA)
	kerneltest.Tool(t, "gdb")
	script := filepath.Join(t.TempDir(), "frames.py")
	if err := os.WriteFile(script, []byte(gdbScript), 0o644); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(kerneltest.ModuleRoot(t), "test", "programs")
	for _, c := range []struct {
		cc, src, flags string
		hits           int
	}{
		{"gcc", "odd.c", "-O2 -fomit-frame-pointer -pthread", 13},
		{"clang", "odd.c", "-O2 -fomit-frame-pointer -pthread", 13},
		{"gcc", "odd.c", "-O0 -fno-omit-frame-pointer -pthread", 13},
		{"gcc", "odd.c", "-O2 -static-pie -pthread", 13},
		{"g++", "stl.cc", "-O2 -fomit-frame-pointer", 15},
		{"clang++", "stl.cc", "-O1", 15},
	} {
		t.Run(c.cc+" "+c.flags, func(t *testing.T) {
			kerneltest.Tool(t, c.cc)
			path := filepath.Join(t.TempDir(), strings.TrimSuffix(strings.TrimSuffix(c.src, ".c"), ".cc"))
			if out, err := exec.Command(c.cc, append(strings.Fields(c.flags), "-o", path, filepath.Join(root, c.src))...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			kerneltest.CheckLeaks(t)
			o := stackOptions(path, "mark")
			o.Select, o.Command = noCalls, &Command{Path: path, Argv: []string{path}, Env: os.Environ()}
			s, err := Open(o)
			if err != nil {
				t.Fatal(err)
			}
			got := &offsets{}
			if _, err := s.Run(t.Context(), got); err != nil {
				t.Fatal(err)
			}
			list := filepath.Join(t.TempDir(), "frames")
			gdb := exec.Command("gdb", "-q", "-nx", "-batch", "-x", script, path)
			gdb.Env = append(os.Environ(), "OUT="+list)
			if out, err := gdb.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			text, err := os.ReadFile(list)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Split(strings.TrimSpace(string(text)), "\n")
			if len(want) < c.hits || len(got.stacks) != len(want) {
				t.Errorf("%d stacks, gdb has %d; %d at least", len(got.stacks), len(want), c.hits)
			}
			for i := range min(len(want), len(got.stacks)) {
				if got.stacks[i] != want[i] {
					t.Errorf("stack %d:\n %s\n gdb %s", i, got.stacks[i], want[i])
				}
			}
			if i := slices.IndexFunc(got.ends, func(s string) bool { return s != "" }); i >= 0 {
				t.Errorf("stack %d ends: %s", i, got.ends[i])
			}
		})
	}
}
