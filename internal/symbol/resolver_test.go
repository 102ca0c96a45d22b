package symbol

import (
	"bufio"
	"debug/elf"
	"fmt"
	"io"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/objfile"
)

// symbolizer is the tool that says what is right: LLVM's where there is one, as binutils' addr2line names some inlined functions
// after those that hold them.
func symbolizer() []string {
	paths, _ := filepath.Glob("/usr/lib/llvm-*/bin/llvm-symbolizer")
	for _, p := range append([]string{"llvm-symbolizer"}, paths...) {
		if p, err := exec.LookPath(p); err == nil {
			return []string{p, "--output-style=GNU", "--functions=linkage", "--no-demangle", "--relativenames", "-a", "-i"}
		}
	}
	return []string{"addr2line", "-a", "-f", "-i"}
}

// symbolize asks a tool for the functions and lines of addresses.
func symbolize(t testing.TB, tool []string, path string, addrs []uint64) (out [][]event.Frame) {
	t.Helper()
	cmd := exec.Command(tool[0], append(tool[1:len(tool):len(tool)], "-e", path)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	r, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for _, a := range addrs {
			fmt.Fprintf(in, "%#x\n", a)
		}
		in.Close()
	}()
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		l := sc.Text()
		if l == "" {
			continue
		}
		if strings.HasPrefix(l, "0x") {
			out = append(out, nil)
			continue
		}
		if !sc.Scan() {
			break
		}
		file, line, _ := strings.Cut(sc.Text(), ":")
		f := event.Frame{Func: l, File: file}
		fmt.Sscanf(line, "%d", &f.Line)
		out[len(out)-1] = append(out[len(out)-1], f)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(out) != len(addrs) {
		t.Fatalf("%s answers %d of %d times", tool[0], len(out), len(addrs))
	}
	return out
}

// codeAddrs are addresses of code, spread over a file; always the same ones.
func codeAddrs(f *objfile.File, n int) (out []uint64) {
	rnd := rand.New(rand.NewSource(1))
	s := f.ELF.Section(".text")
	for len(out) < n {
		out = append(out, s.Addr+uint64(rnd.Int63n(int64(s.Size))))
	}
	return out
}

// text is frames in one line, comparable: the outermost function by its place, as an address has several names.
func text(frames []event.Frame, outermost bool) string {
	var b strings.Builder
	for i, f := range frames {
		file := filepath.Base(f.File)
		if f.File == "" || f.File == "??" || f.Line == 0 {
			file = "?"
		}
		name := Demangle(f.Func)
		if name == "??" || i == len(frames)-1 && !outermost {
			name = ""
		}
		fmt.Fprintf(&b, "%.200s@%s:%d ", name, file, f.Line)
	}
	return b.String()
}

// sameFrames compares with addr2line and counts the differing addresses.
func sameFrames(t *testing.T, path string, addrs []uint64) (same int) {
	t.Helper()
	f := open(t, path)
	asked := path
	if d, err := f.Debug(); err == nil {
		asked = d.Path // addr2line has its own way to find it
	}
	want := symbolize(t, symbolizer(), asked, addrs)
	r := New(Options{Lines: true})
	m, err := r.Open(path, path, "")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for i, a := range addrs {
		off, ok := f.Offset(a)
		if !ok {
			t.Fatalf("%#x is not in the file", a)
		}
		got := r.Frames(nil, m, event.Frame{Offset: off}, false)
		if text(got, false) == text(want[i], false) {
			same++
		} else if shown++; shown <= 3 {
			t.Logf("%s %#x:\n got  %s\n want %s", path, a, text(got, true), text(want[i], true))
		}
	}
	return same
}

const inlines = `
#include <cstdio>
#include <vector>
#include <algorithm>
#include <string>
namespace ns { static inline int twice(int x) { volatile int y = x; return y * 2; }
static inline __attribute__((always_inline)) int thrice(int x) { return twice(x) + x; } }
struct Shape { virtual int area(int) = 0; };
struct Square : Shape { int area(int x) override { return ns::thrice(x) * ns::twice(x); } };
__attribute__((noinline)) int work(Shape *s, int n) { int sum = 0; for (int i = 0; i < n; i++) { sum += s->area(i); if (sum > 1000) sum -= ns::thrice(sum); } return sum; }
int main(int argc, char **argv) { std::vector<std::string> v(argv, argv + argc); std::sort(v.begin(), v.end());
  Square s; printf("%d %s\n", work(&s, argc), v[0].c_str()); return 0; }
`

// TestFramesEqualTool holds functions, inlined ones and lines against another tool, for DWARF 2 to 5 of two compilers.
func TestFramesEqualTool(t *testing.T) {
	type build struct {
		cc    string
		flags []string
	}
	builds := []build{{"g++", []string{"-gdwarf-5"}}, {"g++", []string{"-gdwarf-4"}}, {"g++", []string{"-gdwarf-3", "-gstrict-dwarf"}}, {"g++", []string{"-g", "-ffunction-sections"}},
		{"g++", []string{"-g", "-gz"}}, {"g++", []string{"-g", "-flto"}}, {"g++", []string{"-g", "-no-pie"}}}
	if _, err := exec.LookPath("clang++"); err == nil {
		builds = append(builds, build{"clang++", []string{"-gdwarf-5"}}, build{"clang++", []string{"-gdwarf-4"}})
	}
	dir := t.TempDir()
	src := filepath.Join(dir, "inl.cc")
	if err := os.WriteFile(src, []byte(inlines), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, b := range builds {
		path := filepath.Join(dir, "inl")
		run(t, b.cc, append([]string{"-O2", "-o", path, src}, b.flags...)...)
		f := open(t, path)
		var addrs []uint64
		for s := range f.EachFunc() {
			if s.Size > 0 && s.Type == elf.STT_FUNC && (strings.HasPrefix(s.Name, "_Z") || s.Name == "main") {
				for a := s.Addr; a < s.Addr+s.Size; a += 17 {
					addrs = append(addrs, a)
				}
			}
		}
		if same := sameFrames(t, path, addrs); same != len(addrs) || len(addrs) < 100 {
			t.Errorf("%s %v: %d of %d addresses are the same", b.cc, b.flags, same, len(addrs))
		}
	}
}

// TestFramesOfSystem: the C library by its debug file, where that is installed.
func TestFramesOfSystem(t *testing.T) {
	path := strings.TrimSpace(run(t, "gcc", "-print-file-name=libc.so.6"))
	f := open(t, path)
	if _, err := f.DWARF(); err != nil {
		t.Skipf("the C library has no debug file here: %v", err)
	}
	addrs := codeAddrs(f, 2000)
	if same := sameFrames(t, path, addrs); same < len(addrs)*99/100 {
		t.Errorf("%d of %d addresses are the same", same, len(addrs))
	}
}

// TestNamesEqualNM: for programs and libraries of the system, the function of an address is one that nm has there.
func TestNamesEqualNM(t *testing.T) {
	var paths []string
	for _, glob := range []string{"/usr/bin/g*", "/usr/lib/*-linux-gnu/lib[a-g]*.so.*"} {
		all, _ := filepath.Glob(glob)
		paths = append(paths, all...)
	}
	files := 0
	for i, path := range paths {
		if i%23 != 0 {
			continue
		}
		f, err := objfile.Open(path)
		if err != nil {
			continue
		}
		f.Close()
		type key struct{ addr, size string }
		names := map[key]map[string]bool{}
		for _, arg := range [][]string{{"-S", "-D", "--defined-only", path}, {"-S", "--defined-only", path}} {
			out, _ := exec.Command("nm", arg...).Output()
			for _, l := range strings.Split(string(out), "\n") {
				w := strings.Fields(l)
				if len(w) != 4 || !strings.Contains("TtWwi", w[2]) {
					continue
				}
				k := key{w[0], w[1]}
				if names[k] == nil {
					names[k] = map[string]bool{}
				}
				name, _, _ := strings.Cut(w[3], "@")
				names[k][name] = true
			}
		}
		if len(names) == 0 {
			continue
		}
		files++
		r := New(Options{})
		m, err := r.Open(path, path, "")
		if err != nil {
			t.Fatal(err)
		}
		n, bad := 0, 0
		for k, at := range names {
			var addr, size uint64
			fmt.Sscanf(k.addr, "%x", &addr)
			fmt.Sscanf(k.size, "%x", &size)
			off, ok := m.File.Offset(addr)
			if !ok || n > 300 {
				continue
			}
			n++
			got := r.Frames(nil, m, event.Frame{Offset: off}, false)
			back := r.Frames(nil, m, event.Frame{Offset: off + 1}, true) // a return address one byte behind
			ok = len(got) == 1 && len(back) == 1 && got[0].Func == back[0].Func && back[0].FuncOff == 1
			if found := false; ok {
				for name := range at {
					found = found || Demangle(name) == got[0].Func
				}
				ok = found
			}
			if !ok {
				bad++
				t.Logf("%s %s: %v, %v, and nm has %v", path, k.addr, got, back, at)
			}
		}
		if bad > n/200 { // two sizes at one address: nm lists both
			t.Errorf("%s: %d of %d differ", path, bad, n)
		}
	}
	if files < 5 {
		t.Skipf("only %d files with symbols here", files)
	}
	t.Logf("%d files", files)
}

// TestGoFrames: names, lines and inlined calls of a Go program by its line table, which stripping leaves.
func TestGoFrames(t *testing.T) {
	dir := t.TempDir()
	src := "package main\n\nfunc add(a, b int) int {\n\treturn a + b\n}\n\nfunc sum(v []int) (s int) {\n\tfor _, x := range v {\n\t\ts = add(s, x)\n\t}\n\treturn s\n}\n\n//go:noinline\nfunc Work(v []int) int {\n\treturn sum(v) + 1\n}\n\nfunc main() {\n\tprintln(Work([]int{1, 2}))\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"-ldflags=-s -w"}, {"-buildmode=pie", "-ldflags=-s -w"}, nil} {
		path := filepath.Join(dir, "prog")
		run(t, "go", append(append([]string{"build", "-o", path}, flags...), filepath.Join(dir, "main.go"))...)
		r := New(Options{Lines: true})
		m, err := r.Open(path, path, "")
		if err != nil {
			t.Fatal(err)
		}
		found, err := Find(m.File, Exact("main.Work"))
		if err != nil || len(found.Funcs) != 1 {
			t.Fatal(found, err)
		}
		fn := found.Funcs[0]
		deepest := ""
		for off := fn.Off; off < fn.Off+fn.Size; off++ {
			got := r.Frames(nil, m, event.Frame{Offset: off}, false)
			if last := got[len(got)-1]; last.Func != "main.Work" || last.Inlined || last.Line > 0 && filepath.Base(last.File) != "main.go" {
				t.Fatalf("%v: %#x: %+v", flags, off, got)
			}
			if len(got) == 3 {
				deepest = text(got, true)
			}
		}
		if deepest != "main.add@main.go:4 main.sum@main.go:9 main.Work@main.go:16 " {
			t.Errorf("%v: inlined: %q", flags, deepest)
		}
	}
}

func TestVDSO(t *testing.T) {
	r := New(Options{})
	m, err := r.VDSO()
	if err != nil {
		t.Skip(err) // this kernel may have none
	}
	names := ""
	for s := range m.File.EachFunc() {
		off, _ := m.File.Offset(s.Addr)
		got := r.Frames(nil, m, event.Frame{Offset: off}, false)
		names += got[0].Func + " "
	}
	if !strings.Contains(names, "clock_gettime") {
		t.Errorf("functions of the vdso: %s", names)
	}
}

func TestKernel(t *testing.T) {
	k, err := ReadKernel(strings.NewReader("ffffffff81000000 T _stext\nffffffff81000000 T startup_64\nffffffff81000100 T __pfx_do_it\nffffffff81000110 t do_it\nffffffff82000000 D data\n" +
		"ffffffffc0000000 t ext_open\t[ext4]\nbroken\nffffffffc0000050 t ext_close\t[ext4]\n"))
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[uint64]string{0xffffffff81000000: "[kernel] startup_64+0", 0xffffffff81000115: "[kernel] do_it+5", 0xffffffffc0000004: "[ext4] ext_open+4",
		0xffffffffc0000050: "[ext4] ext_close+0", 0x1000: "[kernel] +0"} {
		f := k.Frame(addr, false)
		if got := fmt.Sprintf("%s %s+%d", f.Module, f.Func, f.FuncOff); got != want {
			t.Errorf("%#x: %s, want %s", addr, got, want)
		}
	}
	if f := k.Frame(0xffffffffc0000050, true); f.Func != "ext_open" || f.FuncOff != 0x50 {
		t.Errorf("a return address at the end of a function: %+v", f)
	}
	if got, err := k.Find(Glob("*_*")); err != nil || len(got) != 4 || got[1].Name != "do_it" || got[2].Module != "[ext4]" {
		t.Errorf("functions %+v", got)
	}
	if _, err := ReadKernel(strings.NewReader("0000000000000000 T a\n0000000000000000 T b\n")); err != ErrKallsyms {
		t.Errorf("hidden addresses: %v", err)
	}
}

// TestDebugFileOfAnotherBuild: names by debug link and by build-id; a file of another build is refused with that word, and
// the addresses stay (CASES.md, H09).
func TestDebugFileOfAnotherBuild(t *testing.T) {
	src := "__attribute__((noinline)) static int leaf(int x) { asm volatile(\"\"); return x; }\n__attribute__((noinline)) static int l1(int x) { return leaf(x) + 1; }\nint main(int c, char **v) { return l1(c); }\n"
	path := compile(t, "p.c", src, "-O2", "-g", "-Wl,--build-id=sha1")
	dir := filepath.Dir(path)
	addr := uint64(0)
	for s := range open(t, path).EachFunc() {
		if s.Name == "leaf" {
			addr = s.Addr
		}
	}
	debug := filepath.Join(dir, "p.debug")
	run(t, "objcopy", "--only-keep-debug", path, debug)
	run(t, "strip", path)
	frames := func(o Options) ([]event.Frame, error) {
		o.Lines = true
		r := New(o)
		m, err := r.Open(path, path, "")
		if err != nil {
			t.Fatal(err)
		}
		off, _ := m.File.Offset(addr)
		return r.Frames(nil, m, event.Frame{Offset: off}, false), m.Why()
	}
	if got, err := frames(Options{}); len(got) != 1 || got[0].Func != "" || err == nil {
		t.Errorf("stripped: %+v, %v", got, err)
	}
	check := func(what string, o Options) {
		t.Helper()
		if got, err := frames(o); err != nil || len(got) != 1 || got[0].Func != "leaf" || got[0].Line != 1 {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	id := fmt.Sprintf("%x", open(t, path).BuildID())
	store := t.TempDir()
	if err := os.MkdirAll(filepath.Join(store, ".build-id", id[:2]), 0o700); err != nil {
		t.Fatal(err)
	}
	byID := filepath.Join(store, ".build-id", id[:2], id[2:]+".debug")
	copyFile(t, debug, byID)
	check("by build-id", Options{DebugDirs: []string{store}})
	run(t, "objcopy", "--add-gnu-debuglink="+debug, path)
	check("by debug link", Options{})

	other := compile(t, "p.c", src+"int more(void) { return 1; }\n", "-O2", "-g", "-Wl,--build-id=sha1")
	run(t, "objcopy", "--only-keep-debug", other, debug)
	copyFile(t, debug, byID)
	got, err := frames(Options{DebugDirs: []string{store}})
	if len(got) != 1 || got[0].Func != "" || err == nil || !strings.Contains(err.Error(), "build-id differs") {
		t.Errorf("another build: %+v, %v", got, err)
	}
	if _, err := Find(open(t, path), Exact("leaf")); err == nil || !strings.Contains(err.Error(), "build-id differs") {
		t.Errorf("another build: %v", err)
	}
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestInlined: places of a function that has no code of its own.
func TestInlined(t *testing.T) {
	src := "static inline __attribute__((always_inline)) int twice(int x) {\n\tasm volatile(\"nop\");\n\treturn 2 * x;\n}\nint a(int x) {\n\treturn twice(x) + 1;\n}\nint b(int x) {\n\tif (x > 3)\n\t\treturn twice(x);\n\treturn 0;\n}\nint main(int c, char **v) { return a(c) + b(c); }\n"
	f := open(t, compile(t, "inl.c", src, "-O1", "-g"))
	sites, err := Inlined(f, Glob("twi*"))
	if err != nil {
		t.Fatal(err)
	}
	r := New(Options{Lines: true})
	m, err := r.Open(f.Path, f.Path, "")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, s := range sites {
		got[fmt.Sprintf("%s at %d in %s", s.Name, s.Line, s.In)] = true
		if fr := r.Frames(nil, m, event.Frame{Offset: s.Off}, false); len(fr) < 2 || fr[0].Func != "twice" || !fr[0].Inlined || fr[1].Line != s.Line {
			t.Errorf("%+v is %+v", s, fr)
		}
	}
	if !got["twice at 6 in a"] || !got["twice at 10 in b"] {
		t.Errorf("sites %v", got)
	}
	if _, err := Find(f, Exact("twice")); err == nil || !strings.Contains(err.Error(), "it was inlined at inl.c:6, inl.c:10") {
		t.Errorf("%v", err)
	}
}

// TestSharedDebugData: names that dwz moved into a file for several programs.
func TestSharedDebugData(t *testing.T) {
	if _, err := exec.LookPath("dwz"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	var progs []string
	for _, name := range []string{"a", "b"} {
		path := compile(t, name+".cc", inlines, "-O2", "-gdwarf-4", "-Wl,--build-id=sha1")
		to := filepath.Join(dir, name)
		copyFile(t, path, to)
		progs = append(progs, to)
	}
	f := open(t, progs[0])
	var addrs []uint64
	for s := range f.EachFunc() {
		if s.Size > 0 && s.Type == elf.STT_FUNC && strings.HasPrefix(s.Name, "_Z") {
			for a := s.Addr; a < s.Addr+s.Size; a += 9 {
				addrs = append(addrs, a)
			}
		}
	}
	names := func() (out []string) {
		r := New(Options{Lines: true})
		m, err := r.Open(progs[0], progs[0], "")
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addrs {
			off, _ := m.File.Offset(a)
			out = append(out, text(r.Frames(nil, m, event.Frame{Offset: off}, false), true))
		}
		return out
	}
	before := names()
	run(t, "dwz", "-m", filepath.Join(dir, "shared"), "-h", progs[0], progs[1])
	if open(t, progs[0]).ELF.Section(".gnu_debugaltlink") == nil {
		t.Skip("dwz found nothing to share")
	}
	after := names()
	for i := range before {
		if before[i] != after[i] {
			t.Fatalf("%#x: %s; before: %s", addrs[i], after[i], before[i])
		}
	}
}

// TestConcurrent: one resolver for several goroutines, whose caches are too small for what is asked.
func TestConcurrent(t *testing.T) {
	path := compile(t, "inl.cc", inlines, "-O2", "-g")
	r := New(Options{Lines: true, MaxBytes: 20_000})
	f := open(t, path)
	var offs []uint64
	for s := range f.EachFunc() {
		if off, ok := f.Offset(s.Addr); ok && s.Size > 4 {
			offs = append(offs, off, off+s.Size/2)
		}
	}
	want := map[uint64]string{}
	for _, off := range offs {
		m, err := r.Open(path, path, "")
		if err != nil {
			t.Fatal(err)
		}
		want[off] = text(r.Frames(nil, m, event.Frame{Offset: off}, false), true)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range offs {
				off := offs[(i*7+g)%len(offs)]
				m, err := r.Open(path, path, "")
				if err != nil {
					t.Error(err)
					return
				}
				if got := text(r.Frames(nil, m, event.Frame{Offset: off}, false), true); got != want[off] {
					t.Errorf("%#x: %s, want %s", off, got, want[off])
				}
			}
		})
	}
	wg.Wait()
	if r.youngSize > 20_000 || r.moduleSize > 60_000 {
		t.Errorf("names take %d bytes, modules %d", r.youngSize, r.moduleSize)
	}
}
