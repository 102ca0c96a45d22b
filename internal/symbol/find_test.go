package symbol

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/internal/objfile"
)

func run(t testing.TB, name string, arg ...string) string {
	t.Helper()
	out, err := exec.Command(name, arg...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(arg, " "), err, out)
	}
	return string(out)
}

// compile makes a program of one source file; the machine that runs the tests has compilers.
func compile(t testing.TB, name, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	src := filepath.Join(dir, name)
	if err := os.WriteFile(src, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	out := strings.TrimSuffix(src, filepath.Ext(src))
	cc := "gcc"
	if strings.HasSuffix(name, ".cc") {
		cc = "g++"
	}
	run(t, cc, append([]string{"-o", out, src}, flags...)...)
	return out
}

func open(t testing.TB, path string) *objfile.File {
	t.Helper()
	f, err := objfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func find(t testing.TB, f *objfile.File, p Pattern) []string {
	t.Helper()
	found, err := Find(f, p)
	var not *NotFoundError
	if err != nil && !errors.As(err, &not) {
		t.Fatal(err)
	}
	var out []string
	for _, fn := range found.Funcs {
		out = append(out, fn.Demangled)
	}
	slices.Sort(out)
	return out
}

const overloads = `
#include <vector>
extern "C" __attribute__((noinline)) void fun() { asm(""); }
__attribute__((noinline)) void fun(int) { asm(""); }
__attribute__((noinline)) void fun2(int, const char *) { asm(""); }
__attribute__((noinline)) void function() { asm(""); }
struct Foo { void fun(); int get(int) const; int operator[](int); operator bool(); Foo(); ~Foo(); static void run(); };
void Foo::fun() { asm(""); }
void Foo::run() { asm(""); }
int Foo::get(int i) const { return i; }
int Foo::operator[](int i) { return i; }
Foo::operator bool() { return true; }
Foo::Foo() { asm(""); }
Foo::~Foo() { asm(""); }
namespace deep { namespace er { struct Bar { void fun(); }; void Bar::fun() { asm(""); } void parse(int) { asm(""); } void parse(char *) { asm(""); } } }
template <class T> __attribute__((noinline)) T tmax(T a, T b) { return a > b ? a : b; }
template int tmax<int>(int, int);
template double tmax<double>(double, double);
int main() { std::vector<int> v; v.push_back(1); return 0; }
`

// TestFindOverloads holds the rules by which a name selects functions of C++ (CASES.md, H11).
func TestFindOverloads(t *testing.T) {
	f := open(t, compile(t, "over.cc", overloads, "-O1"))
	regex := func(s string) Pattern {
		p, err := Regexp(s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, test := range []struct {
		p    Pattern
		want string
	}{
		{Exact("fun"), "fun"},
		{Exact("fun(int)"), "fun(int)"},
		{Exact(" fun( int )"), "fun(int)"},
		{Exact("_Z3funi"), "fun(int)"},
		{Exact("fun2"), "fun2(int, char const*)"},
		{Exact("fun2(int,char const *)"), "fun2(int, char const*)"},
		{Exact("fun()"), ""},
		{Exact("Foo::fun"), "Foo::fun()"},
		{Exact("Foo::get"), "Foo::get(int) const"},
		{Exact("Foo::get(int) const"), "Foo::get(int) const"},
		{Exact("Foo::operator[]"), "Foo::operator[](int)"},
		{Exact("Foo::operator bool()"), "Foo::operator bool()"},
		{Exact("Foo::Foo"), "Foo::Foo()"},
		{Exact("Foo::~Foo"), "Foo::~Foo()"},
		{Exact("deep::er::parse"), "deep::er::parse(char*) deep::er::parse(int)"},
		{Exact("parse"), ""},
		{Exact("tmax<int>"), "int tmax<int>(int, int)"},
		{Exact("tmax<int>(int, int)"), "int tmax<int>(int, int)"},
		{Exact("int tmax<int>(int, int)"), "int tmax<int>(int, int)"},
		{Exact("tmax"), ""},
		{Glob("fun"), "fun"},
		{Glob("fun*"), "fun fun(int) fun2(int, char const*) function()"},
		{Glob("*::fun"), "Foo::fun() deep::er::Bar::fun()"},
		{Glob("Foo::*"), "Foo::Foo() Foo::fun() Foo::get(int) const Foo::operator bool() Foo::operator[](int) Foo::run() Foo::~Foo()"},
		{Glob("tmax<*>"), "double tmax<double>(double, double) int tmax<int>(int, int)"},
		{Glob("tmax*"), "double tmax<double>(double, double) int tmax<int>(int, int)"},
		{Glob("deep::er::parse(char*)"), "deep::er::parse(char*)"},
		{Glob("Foo::operator[]"), "Foo::operator[](int)"},
		{Glob("Foo::operator[]*"), "Foo::operator[](int)"},
		{Glob("Foo::[gr]*"), "Foo::get(int) const Foo::run()"},
		{Glob("Foo::?un"), "Foo::fun() Foo::run()"},
		{Glob("_ZN3Foo3*"), "Foo::fun() Foo::run()"},
		{Glob("*Ev"), ""}, // letters of the mangling are no letters of the name
		{regex(`^Foo::(fun|run)\(`), "Foo::fun() Foo::run()"},
		{regex(`^_ZN3Foo3r`), "Foo::run()"},
	} {
		if got := strings.Join(find(t, f, test.p), " "); got != test.want {
			t.Errorf("%v: got %q, want %q", test.p, got, test.want)
		}
	}
	all, err := Find(f, Glob("*"))
	if err != nil || len(all.Funcs) < 20 {
		t.Fatal(all, err)
	}
	for _, fn := range all.Funcs {
		found, err := Find(f, Exact(fn.Spelling()))
		if err != nil || !slices.ContainsFunc(found.Funcs, func(x Func) bool { return x.Addr == fn.Addr }) {
			t.Errorf("%s is listed, and selects %v, %v", fn.Spelling(), found.Funcs, err)
		}
	}
	for pattern, near := range map[string]string{"functoin": "function()", "fnu2": "fun2(int, char const*)", "foo::fun": "Foo::fun()", "run": "Foo::run()", "tmax": "tmax<int>(int, int)"} {
		var not *NotFoundError
		if _, err := Find(f, Exact(pattern)); !errors.As(err, &not) || !slices.Contains(not.Near, near) {
			t.Errorf("%s: %v, and %s is near", pattern, err, near)
		}
	}
}

// TestFindEqualsNM: for libraries of the system, what a name selects is what nm lists under it.
func TestFindEqualsNM(t *testing.T) {
	line := regexp.MustCompile(`^([0-9a-f]+) ([TtWwiV]) (\S+)$`)
	for _, lib := range []string{"libc.so.6", "libstdc++.so.6", "libm.so.6"} {
		path := strings.TrimSpace(run(t, "gcc", "-print-file-name="+lib))
		f := open(t, path)
		n := 0
		for i, l := range strings.Split(run(t, "nm", "-D", "--defined-only", path), "\n") {
			m := line.FindStringSubmatch(l)
			if m == nil || m[2] == "i" || m[2] == "V" || i%97 != 0 {
				continue
			}
			n++
			name := strings.Replace(m[3], "@@", "@", 1)
			found, err := Find(f, Exact(name))
			if err != nil || len(found.Funcs) != 1 || strings.TrimLeft(m[1], "0") != strings.TrimPrefix(hexa(found.Funcs[0].Addr), "0x") {
				t.Errorf("%s %s: %+v, %v; nm says %s", path, name, found.Funcs, err, m[1])
			}
		}
		if n < 10 {
			t.Errorf("%s: %d names compared", path, n)
		}
	}
}

func TestFindVersions(t *testing.T) {
	f := open(t, strings.TrimSpace(run(t, "gcc", "-print-file-name=libc.so.6")))
	all, err := Find(f, Exact("pthread_cond_wait"))
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]uint64{}
	for _, fn := range all.Funcs {
		versions[fn.Version] = fn.Addr
	}
	for v, addr := range versions {
		one, err := Find(f, Exact("pthread_cond_wait@"+v))
		if err != nil || len(one.Funcs) != 1 || one.Funcs[0].Addr != addr {
			t.Errorf("version %s: %+v, %v", v, one, err)
		}
	}
	open64, err := Find(f, Exact("open64"))
	if err != nil || len(open64.Funcs) != 1 || open64.Funcs[0].Name != "open64" || !slices.Contains(open64.Funcs[0].Aliases, "open") {
		t.Errorf("open64: %+v, %v", open64, err)
	}
	if both, err := Find(f, Glob("open*64")); err != nil || !slices.ContainsFunc(both.Funcs, func(fn Func) bool { return fn.Addr == open64.Funcs[0].Addr }) {
		t.Errorf("open*64: %+v, %v", both, err)
	}
	if _, err := Find(f, Exact("SSL_write")); err == nil || strings.Contains(err.Error(), "called from here") {
		t.Errorf("SSL_write in libc: %v", err)
	}
}

// TestFindIndirect: an indirect function is all that its resolver can return, also where no table names them.
func TestFindIndirect(t *testing.T) {
	src := `
__attribute__((noinline)) static int one(int x) { return x + 1; }
__attribute__((noinline)) static int two(int x) { return x + 2; }
int twice(int x) { return 2 * x; }
extern int chosen;
static int (*resolve(void))(int) { return __builtin_cpu_supports("avx2") ? one : two; }
int pick(int) __attribute__((ifunc("resolve")));
int main(void) { return pick(1); }
`
	if out, err := exec.Command("uname", "-m").Output(); err != nil || strings.TrimSpace(string(out)) != "x86_64" {
		src = strings.Replace(src, `__builtin_cpu_supports("avx2")`, `((unsigned long)&resolve & 64)`, 1)
	}
	for _, flags := range [][]string{{"-O1"}, {"-O1", "-no-pie"}, {"-O0"}} {
		path := compile(t, "ifunc.c", src, flags...)
		found, err := Find(open(t, path), Exact("pick"))
		if err != nil {
			t.Fatal(flags, err)
		}
		var names []string
		for _, fn := range found.Funcs {
			names = append(names, fn.Name)
			if fn.IFunc != "pick" {
				t.Errorf("%v: %+v is not said to be of pick", flags, fn)
			}
		}
		slices.Sort(names)
		if strings.Join(names, " ") != "one two" || len(found.Notes) != 1 || !strings.Contains(found.Notes[0], "pick is an indirect function") {
			t.Errorf("%v: %v %q", flags, names, found.Notes)
		}
	}
	libc := open(t, strings.TrimSpace(run(t, "gcc", "-print-file-name=libc.so.6")))
	found, err := Find(libc, Exact("strlen"))
	if err != nil || len(found.Funcs) < 2 {
		t.Fatalf("strlen: %+v, %v", found, err)
	}
	t.Log(found.Notes)
}

// TestFindStubs: the calls into libraries, against objdump's names.
func TestFindStubs(t *testing.T) {
	src := "#include <stdio.h>\n#include <stdlib.h>\n#include <fcntl.h>\nint main(int c, char **v) { printf(\"%d\", open(v[0], 0)); return puts(getenv(\"x\")); }\n"
	for _, flags := range [][]string{{"-O1"}, {"-O1", "-fcf-protection=full", "-Wl,-z,ibtplt", "-Wl,-z,lazy"}, {"-O1", "-no-pie", "-Wl,-z,lazy"}, {"-O1", "-Wl,-z,now"}} {
		path := compile(t, "plt.c", src, flags...)
		f := open(t, path)
		n := 0
		for _, m := range regexp.MustCompile(`(?m)^0*([0-9a-f]+) <(\w+)@plt>:`).FindAllStringSubmatch(run(t, "objdump", "-d", path), -1) {
			n++
			found, err := Find(f, Exact(m[2]+"@plt"))
			if err != nil || !slices.ContainsFunc(found.Funcs, func(fn Func) bool { return fn.Stub && hexa(fn.Addr) == "0x"+m[1] }) {
				t.Errorf("%v: %s@plt at %s: %+v, %v", flags, m[2], m[1], found.Funcs, err)
			}
		}
		if n < 4 {
			t.Errorf("%v: objdump names %d stubs", flags, n)
		}
		var not *NotFoundError
		if _, err := Find(f, Exact("puts")); !errors.As(err, &not) || !not.Imported {
			t.Errorf("puts, which is called only: %v", err)
		}
	}
}

// TestFindGo: the names of a Go program, also of a stripped one.
func TestFindGo(t *testing.T) {
	dir := t.TempDir()
	src := "package main\n\ntype Server struct{ n int }\n\n//go:noinline\nfunc (s *Server) Handle(x int) int { s.n += x; return s.n }\n\n//go:noinline\nfunc Map[T any](v []T) int { return len(v) }\n\nfunc main() { s := &Server{}; println(s.Handle(3), Map([]int{1}), Map([]string{}), func() int { return s.Handle(1) }()) }\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"-ldflags=-s -w"}, {"-buildmode=pie", "-ldflags=-s -w"}} {
		path := filepath.Join(dir, "prog")
		run(t, "go", append(append([]string{"build", "-o", path}, flags...), filepath.Join(dir, "main.go"))...)
		f := open(t, path)
		for p, n := range map[string]int{"main.(*Server).Handle": 1, "main.main": 1, "main.(*Server).Handel": 0} {
			if got := find(t, f, Exact(p)); len(got) != n {
				t.Errorf("%v: %s: %v", flags, p, got)
			}
		}
		if got := find(t, f, Glob("main.Map*")); len(got) != 2 {
			t.Errorf("%v: main.Map*: %v", flags, got)
		}
		var not *NotFoundError
		if _, err := Find(f, Exact("main.(*Server).Handel")); !errors.As(err, &not) || !slices.Contains(not.Near, "main.(*Server).Handle") {
			t.Errorf("%v: %v", flags, err)
		}
	}
}

func TestMatchGlob(t *testing.T) {
	for _, test := range []struct {
		pat, s string
		want   bool
	}{
		{"", "", true}, {"*", "", true}, {"*", "abc", true}, {"a*c", "abbc", true}, {"a*c", "abb", false}, {"**a", "ba", true},
		{"a?c", "abc", true}, {"a?c", "ac", false}, {"[a-c]x", "bx", true}, {"[!a-c]x", "bx", false}, {"[^a-c]x", "zx", true},
		{"a[", "a[", true}, {"op[]", "op[]", true}, {`\*`, "*", true}, {`\*`, "a", false}, {"*a*b*c*", "xxaxxbxxc", true}, {"*a*b*c*", "xxaxxcxxb", false},
	} {
		if got := matchGlob(test.pat, test.s); got != test.want {
			t.Errorf("%q, %q: %v", test.pat, test.s, got)
		}
	}
	long := strings.Repeat("a", 5000)
	if matchGlob("*"+strings.Repeat("a*", 50)+"b", long) {
		t.Error("there is no b")
	}
}

func hexa(v uint64) string { return "0x" + strconv.FormatUint(v, 16) }

// TestFindARM64: marks of instructions are no functions, and stubs and indirect functions of the other architecture are read.
func TestFindARM64(t *testing.T) {
	if _, err := exec.LookPath("aarch64-linux-gnu-gcc"); err != nil {
		t.Skip(err) // a cross compiler is not everywhere
	}
	dir := t.TempDir()
	src := filepath.Join(dir, "a.c")
	code := `
#include <stdio.h>
#include <stdlib.h>
#include <fcntl.h>
__attribute__((noinline)) static int one(int x) { return x + 1; }
__attribute__((noinline)) static int two(int x) { return x + 2; }
volatile int which;
static int (*resolve(void))(int) { if (which) return one; return two; }
int pick(int) __attribute__((ifunc("resolve")));
int main(int c, char **v) { printf("%d", open(v[0], 0)); return puts(getenv("x")) + pick(1); }
`
	if err := os.WriteFile(src, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"-O2"}, {"-O2", "-mbranch-protection=standard"}, {"-O0", "-no-pie"}} {
		path := filepath.Join(dir, "a")
		run(t, "aarch64-linux-gnu-gcc", append([]string{"-o", path, src}, flags...)...)
		f := open(t, path)
		for s := range f.EachFunc() {
			if strings.HasPrefix(s.Name, "$") {
				t.Errorf("%v: %s is taken for a function", flags, s.Name)
			}
		}
		n := 0
		for _, m := range regexp.MustCompile(`(?m)^0*([0-9a-f]+) <(\w+)@plt>:`).FindAllStringSubmatch(run(t, "aarch64-linux-gnu-objdump", "-d", path), -1) {
			n++
			found, err := Find(f, Exact(m[2]+"@plt"))
			if err != nil || !slices.ContainsFunc(found.Funcs, func(fn Func) bool { return fn.Stub && hexa(fn.Addr) == "0x"+m[1] }) {
				t.Errorf("%v: %s@plt at %s: %+v, %v", flags, m[2], m[1], found.Funcs, err)
			}
		}
		if n < 4 {
			t.Errorf("%v: objdump names %d stubs", flags, n)
		}
		if got := strings.Join(find(t, f, Exact("pick")), " "); got != "one two" {
			t.Errorf("%v: pick: %q", flags, got)
		}
	}
}

// TestFindRust: functions, methods and methods of traits; of a generic function each instance.
func TestFindRust(t *testing.T) {
	if _, err := exec.LookPath("rustc"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	src := filepath.Join(dir, "prog.rs")
	code := `
mod shapes {
    pub trait Area { fn area(&self) -> u32; }
    pub struct Square(pub u32);
    impl Area for Square { #[inline(never)] fn area(&self) -> u32 { self.0 * self.0 } }
    impl Square { #[inline(never)] pub fn side(&self) -> u32 { println!("{}", self.0); self.0 } }
    #[inline(never)] pub fn twice<T: Copy + std::ops::Add<Output = T>>(x: T) -> T { x + x }
}
use shapes::Area;
fn main() { let s = shapes::Square(std::env::args().count() as u32); println!("{} {} {} {}", s.area(), s.side(), shapes::twice(s.side()), shapes::twice(s.side() as u64)); }
`
	if err := os.WriteFile(src, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "prog")
	run(t, "rustc", "-O", "-o", path, src)
	f := open(t, path)
	for p, n := range map[string]int{"prog::main": 1, "*::side": 1, "prog::shapes::twice*": 2, "*Square*Area*::area": 1} {
		if got := find(t, f, Glob(p)); len(got) != n {
			t.Errorf("%s: %q", p, got)
		}
	}
	all, err := Find(f, Glob("*prog*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, fn := range all.Funcs {
		found, err := Find(f, Exact(fn.Spelling()))
		if err != nil || !slices.ContainsFunc(found.Funcs, func(x Func) bool { return x.Addr == fn.Addr }) {
			t.Errorf("%s is listed, and selects %v, %v", fn.Spelling(), found.Funcs, err)
		}
	}
}
