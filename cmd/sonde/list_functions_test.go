package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/internal/symbol"
	"github.com/sonde-trace/sonde/probe"
)

// TestListFunctions: each line that is listed selects its function when it is given back as a pattern.
func TestListFunctions(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "p.cc")
	code := "extern \"C\" void fun() {}\nvoid fun(int) {}\nvoid function() {}\nstruct Foo { void fun(); int operator*(int); int operator[](int); operator bool() const; };\nvoid Foo::fun() {}\n" +
		"int Foo::operator*(int x) { return x; }\nint Foo::operator[](int x) { return x; }\nFoo::operator bool() const { return true; }\ntemplate <class T> T tmax(T a, T b) { return a > b ? a : b; }\n" +
		"template int tmax<int>(int, int);\ntemplate double tmax<double>(double, double);\nint main() {}\n"
	if err := os.WriteFile(src, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "p")
	if out, err := exec.Command("g++", "-o", path, src).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	list := func(arg ...string) []string {
		o := finish(t, sondeCommand(t, append([]string{"list", "functions", path}, arg...)...), "")
		if o.code != 0 {
			t.Fatalf("%q: status %d: %s", arg, o.code, o.stderr)
		}
		return strings.Split(strings.TrimSuffix(o.stdout, "\n"), "\n")
	}
	all := list()
	for _, want := range []string{"fun", "'fun(int)'", "'function()'", "'Foo::fun()'", "'tmax<int>(int, int)'", "'tmax<double>(double, double)'", "main"} {
		if !slices.Contains(all, path+":"+want) {
			t.Errorf("%s is not listed in %q", want, all)
		}
	}
	for _, line := range all {
		name := strings.Trim(strings.TrimPrefix(line, path+":"), "'")
		if spec, err := probe.Parse(line); err != nil || spec.Kind != probe.KindFunction || spec.Object != path || spec.Point.Text != name {
			t.Errorf("%s as an expression: %+v, %v", line, spec, err)
		}
		if got := list(name); len(got) != 1 || got[0] != line {
			t.Errorf("%s selects %q", name, got)
		}
	}
	if got := list("tmax<*>"); len(got) != 2 {
		t.Errorf("tmax<*>: %q", got)
	}
	o := finish(t, sondeCommand(t, "list", "functions", path, "functoin"), "")
	if o.code == 0 || !strings.Contains(o.stderr, "did you mean function()?") {
		t.Errorf("a wrong name: status %d, %q", o.code, o.stderr)
	}
}

// TestListFunctionsOfProcess: of the files that it has mapped, by the paths that probes take.
func TestListFunctionsOfProcess(t *testing.T) {
	o := finish(t, sondeCommand(t, "list", "functions", "-p", strconv.Itoa(os.Getpid()), "main.TestListFunctionsOfProcess"), "")
	if self, err := os.Executable(); err != nil || o.code == 0 || !strings.Contains(o.stderr, self+": no function") {
		t.Errorf("a name that is not there: status %d, %q, %v", o.code, o.stderr, err)
	}
	o = finish(t, sondeCommand(t, "list", "functions", "-p", strconv.Itoa(os.Getpid()), "*.TestListFunctionsOfProcess"), "")
	if o.code != 0 || !strings.Contains(o.stdout, "cmd/sonde.TestListFunctionsOfProcess'") {
		t.Errorf("status %d, %q, %q", o.code, o.stdout, o.stderr)
	}
	if o = finish(t, sondeCommand(t, "list", "functions"), ""); o.code != 2 {
		t.Errorf("without a file: status %d, %q", o.code, o.stderr)
	}
}

func TestListFunctionsOfKernel(t *testing.T) {
	o := finish(t, sondeCommand(t, "list", "functions", "kernel", "vfs_rea[d]", "vfs_w*te"), "")
	if errors.Is(symbolsHidden(), symbol.ErrKallsyms) {
		t.Skip(symbol.ErrKallsyms)
	}
	if o.code != 0 || !strings.Contains(o.stdout, "kernel:vfs_read\n") || !strings.Contains(o.stdout, "kernel:vfs_write\n") || strings.Contains(o.stdout, "vfs_readv") {
		t.Errorf("status %d, %q, %q", o.code, o.stdout, o.stderr)
	}
	if o = finish(t, sondeCommand(t, "list", "functions", "kernel", "vfs_raed"), ""); o.code == 0 || !strings.Contains(o.stderr, "no function vfs_raed; did you mean vfs_read") {
		t.Errorf("status %d, %q, %q", o.code, o.stdout, o.stderr)
	}
}

func symbolsHidden() error { _, err := symbol.OpenKernel(); return err }
