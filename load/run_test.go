package load

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/internal/addrspace"
	"github.com/sonde-trace/sonde/internal/kerneltest"
	"github.com/sonde-trace/sonde/internal/proc"
)

func analyse(t *testing.T, opt Options, argv ...string) *Analysis {
	t.Helper()
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.BTF)
	a, err := Run(context.Background(), &proc.Command{Path: argv[0], Argv: argv, Env: os.Environ()}, opt)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestSlowConstructor is H23: the constructor that sleeps is first, with its time, and main comes after it.
func TestSlowConstructor(t *testing.T) {
	dir := t.TempDir()
	compile(t, dir+"/libslow.so", "#include <time.h>\n__attribute__((constructor)) static void sleepy(void){struct timespec t={0,300000000};nanosleep(&t,0);}\nint slow(void){return 0;}", "-shared", "-fPIC", "-Wl,-soname,libslow.so")
	for _, flags := range [][]string{nil, {"-no-pie"}, {"-s"}} {
		exe := compile(t, dir+"/run_slow", "int slow(void);int main(void){return slow();}", append(flags, dir+"/libslow.so", "-Wl,-rpath,"+dir)...)
		a := analyse(t, Options{}, exe)
		if a.Diagnosis != nil || a.Status != 0 || len(a.Inits) == 0 {
			t.Fatalf("%v: %+v", flags, a)
		}
		first := a.Slowest()[0]
		if first.Name != "sleepy" || filepath.Base(first.Object) != "libslow.so" || first.Took < 280e6 || first.Took > 320e6 {
			t.Errorf("%v: the slowest constructor is %+v", flags, first)
		}
		if a.Main < first.Start+first.Took {
			t.Errorf("%v: main at %d, the constructor ends at %d", flags, a.Main, first.Start+first.Took)
		}
		if i := slices.IndexFunc(a.Phases, func(p Phase) bool { return p.Name == "constructors of libraries" }); i < 0 || a.Phases[i].End-a.Phases[i].Start < first.Took {
			t.Errorf("%v: phases %+v", flags, a.Phases)
		}
	}
}

// TestMapAtMain: a program prints its own map first thing in main; the model's is the same where files are mapped.
func TestMapAtMain(t *testing.T) {
	const src = `#include <fcntl.h>
#include <unistd.h>
static char b[1 << 16];
int zeroed[5000] = {0};
int data = 7;
int main(void) {
	int fd = open("/proc/self/maps", O_RDONLY), out = open(OUT, O_WRONLY | O_CREAT | O_TRUNC, 0644), n;
	while ((n = read(fd, b, sizeof b)) > 0) if (write(out, b, n) != n) return 1;
	return 0;
}`
	for _, flags := range [][]string{nil, {"-no-pie"}, {"-static"}, {"-lm", "-Wl,--no-as-needed", "-lpthread", "-lstdc++"}} {
		dir := t.TempDir()
		exe := compile(t, dir+"/maps", strings.Replace(src, "OUT", fmt.Sprintf("%q", dir+"/out"), 1), flags...)
		a := analyse(t, Options{}, exe)
		b, err := os.ReadFile(dir + "/out")
		if err != nil {
			t.Fatal(err)
		}
		areas, err := addrspace.ReadMaps(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for _, m := range areas {
			if m.File != "" {
				want = append(want, fmt.Sprintf("%x-%x %s %x %s", m.Start, m.End, m.Flags(), m.Offset, m.File))
			} else if m.Name == "" {
				want = append(want, fmt.Sprintf("%x-%x %s", m.Start, m.End, m.Flags()))
			}
		}
		for _, m := range a.Areas {
			if strings.HasPrefix(m.Name, "/") {
				got = append(got, fmt.Sprintf("%x-%x %s %x %s", m.Start, m.End, m.Flags, m.Offset, m.Name))
			} else if m.Name == "" {
				got = append(got, fmt.Sprintf("%x-%x %s", m.Start, m.End, m.Flags))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v:\nthe model\n%s\nthe kernel\n%s", flags, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestBindings is H24: foo is in two libraries, and the one that is linked first wins for both references. LD_DEBUG agrees.
func TestBindings(t *testing.T) {
	dir := t.TempDir()
	compile(t, dir+"/libi1.so", "int foo(void){return 1;} int bar(void){return foo();}", "-shared", "-fPIC", "-Wl,-soname,libi1.so")
	compile(t, dir+"/libi2.so", "int foo(void){return 2;}", "-shared", "-fPIC", "-Wl,-soname,libi2.so")
	exe := compile(t, dir+"/both", "#include <stdio.h>\nint foo(void);int bar(void);int main(void){printf(\"%d %d\\n\",foo(),bar());return 0;}",
		"-Wl,--no-as-needed", dir+"/libi2.so", dir+"/libi1.so", "-Wl,-rpath,"+dir, "-Wl,-z,now")
	a := analyse(t, Options{Bindings: true}, exe)
	var got []string
	for _, b := range a.Bindings {
		if strings.HasPrefix(b.Symbol, "foo") {
			got = append(got, filepath.Base(b.By)+" "+filepath.Base(b.To)+" "+strings.Join(b.Shadowed, ","))
		}
	}
	want := []string{"both libi2.so " + dir + "/libi1.so", "libi1.so libi2.so " + dir + "/libi1.so"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "LD_DEBUG=bindings", "LD_BIND_NOW=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	truth := map[string]string{}
	for _, m := range regexp.MustCompile("binding file (\\S+) \\[0\\] to (\\S+) \\[0\\]: \\S+ symbol `([^']+)'(?: \\[(\\S+)\\])?").FindAllStringSubmatch(string(out), -1) {
		name := m[3]
		if m[4] != "" {
			name += "@" + m[4]
		}
		truth[filepath.Base(m[1])+" "+name] = filepath.Base(m[2])
	}
	checked := 0
	for _, b := range a.Bindings {
		if to, ok := truth[filepath.Base(b.By)+" "+b.Symbol]; ok {
			checked++
			if to != filepath.Base(b.To) {
				t.Errorf("%s in %s: the linker says %s, the model %s", b.Symbol, b.By, to, b.To)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d bindings are in both lists; the linker has %d, the model %d", checked, len(truth), len(a.Bindings))
	}
}

// TestNotStarting: the failing half, live.
func TestNotStarting(t *testing.T) {
	dir := t.TempDir()
	nointerp := compile(t, dir+"/nointerp", nothing, "-Wl,--dynamic-linker=/no/such/ld.so")
	compile(t, dir+"/libgone.so", "int gone(void){return 0;}", "-shared", "-fPIC", "-Wl,-soname,libgone.so.1")
	gone := compile(t, dir+"/gone", "int gone(void);int main(void){return gone();}", dir+"/libgone.so")
	crash := compile(t, dir+"/crash", "__attribute__((constructor)) static void boom(void){*(volatile int*)0=1;}\n"+nothing)
	for _, tc := range []struct {
		path, cause, says string
		status            int
	}{{nointerp, "linker-missing", "/no/such/ld.so", 127}, {gone, "library-missing", "libgone.so.1", 127}, {crash, "killed", "before main", 139}} {
		a := analyse(t, Options{}, tc.path)
		if d := a.Diagnosis; d == nil || d.Cause != tc.cause || !strings.Contains(d.Text, tc.says) || a.Status != tc.status {
			t.Errorf("%s: status %d, %+v", tc.path, a.Status, d)
		}
	}
}

// TestPage: hostile names stay text, and the page loads nothing.
func TestPage(t *testing.T) {
	const evil = `</script><img src=x onerror=alert(1)>"'&`
	a := &Analysis{Path: evil, Command: []string{evil}, Objects: []Object{{Path: evil, NeededBy: evil}}, Inits: []Init{{Object: evil, Name: evil}},
		Phases: []Phase{{Name: evil, End: 5}}, Steps: []MapStep{{Cause: evil, Call: evil, Changes: []string{evil}}}, Areas: []AreaView{{Name: evil}},
		Bindings: []BindingView{{Symbol: evil, By: evil, To: evil, Shadowed: []string{evil}}}, Notes: []string{evil}, Diagnosis: &Diagnosis{Text: evil, Remedy: evil}}
	var b bytes.Buffer
	if err := Page(&b, a); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if strings.Contains(page, "<img") || strings.Count(page, "<script>") != 1 || strings.Contains(page, "ZgotmplZ") {
		t.Error("a name became markup")
	}
	for _, s := range []string{"http://", "https://", " style=", "onclick"} {
		if strings.Contains(strings.ReplaceAll(page, "&lt;/script&gt;&lt;img src=x onerror", ""), s) {
			t.Errorf("the page has %q", s)
		}
	}
	if !strings.Contains(page, "script-src &#39;sha256-") && !strings.Contains(page, "script-src 'sha256-") {
		t.Error("no policy")
	}
}
