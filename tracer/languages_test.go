package tracer

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/internal/kerneltest"
	"github.com/sonde-trace/sonde/probe"
)

// described probes functions whose arguments debug data tell.
func described(path string, names ...string) (o Options) {
	for _, f := range names {
		o.Probes = append(o.Probes, &probe.Spec{Source: f, Kind: probe.KindFunction, Object: path, Point: probe.Point{Text: f}})
	}
	return o
}

func wantParts(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("missing: %s\nin\n%s", w, got)
		}
	}
}

// TestTypesCPlusPlus: what std::string, std::string_view and std::vector hold, base classes, and objects that are passed by address
// because they are not copied by their bytes.
func TestTypesCPlusPlus(t *testing.T) {
	for _, flags := range [][]string{{"-O0", "-g"}, {"-O2", "-g"}, {"-O1", "-gdwarf-4"}, {"-O1", "-g", "-D_GLIBCXX_USE_CXX11_ABI=0"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			path := kerneltest.Compile(t, "holds.cc", append(flags, "-std=c++17")...)
			got := traceProbes(t, described(path, "greet", "total", "admit", "empty", "bytes"), path)
			who, names := `a\0b`, `["x", "yz"], cell=[5]) = 10`
			if strings.Contains(flags[len(flags)-1], "ABI=0") {
				// Its length stands before the text: it is shown to its first NUL. The texts of elements are elsewhere, and not taken.
				who, names = `a`, ""
			}
			user := `{base={id=9}, name="a name that is too long to be stored inside", marks=[1.5, 2.5]}`
			wantParts(t, got, `holds:greet(who="`+who+`", copy="bob", view="view", n=1) = 11`,
				`holds:total(list=[1, 2, 3], names=`+names,
				`holds:admit(u=`+user+`, copy=`+user+`, p={a=1, b=-2}, n=77) = 96`,
				`holds:empty(s="", v=[], w="") = 0`, `holds:bytes(v="\1\377") = 2`)
		})
	}
}

// TestTypesGo: Go's own convention: a register for each scalar, then the stack; texts, lists and structures.
func TestTypesGo(t *testing.T) {
	dir := t.TempDir()
	src, path := filepath.Join(dir, "main.go"), filepath.Join(dir, "values")
	text := `package main

type point struct {
	X, Y int32
	Name string
}

//go:noinline
func Greet(who string, n int, list []int32, f float64, last int8) (string, int) { return who, n + len(list) + int(last) + int(f) }

//go:noinline
func Admit(p point, q *point, raw []byte) bool { return p.X == q.Y && len(raw) > 0 }

//go:noinline
func Spill(a, b, c, d, e, f, g, h int, s string, i int, pair [2]int16) int { return a + b + c + d + e + f + g + h + i + len(s) + int(pair[0]) }

func main() {
	Greet("ann", 4, []int32{7, -8, 9}, 1.5, -3)
	Admit(point{1, 2, "px"}, &point{3, 4, "qx"}, []byte("a\x00"))
	Spill(1, 2, 3, 4, 5, 6, 7, 8, "on the stack", -9, [2]int16{10, -11})
}
`
	if err := os.WriteFile(src, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", path, src).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := traceProbes(t, described(path, "main.Greet", "main.Admit", "main.Spill"), path)
	wantParts(t, got, `values:main.Greet(who="ann", n=4, list=[7, -8, 9], f=??? /* in a vector register, which the kernel does not give to a probe */, last=-3)`,
		`values:main.Admit(p={X=1, Y=2, Name="px"}, q={X=3, Y=4, Name="qx"}, raw="a\0")`,
		`values:main.Spill(a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8, s="on the stack", i=-9, pair=[10, -11])`)
}

// TestTypesRust: texts and lists; and no value where the compiler chose a place by itself.
func TestTypesRust(t *testing.T) {
	kerneltest.Tool(t, "rustc")
	dir := t.TempDir()
	src := filepath.Join(dir, "values.rs")
	text := `#![allow(dead_code)]
use std::hint::black_box;
pub struct Point { x: i32, y: i32, tag: String }
#[no_mangle] #[inline(never)]
pub fn greet(who: &str, name: String, list: &[i32], all: Vec<u16>, n: i32) -> i32 { black_box((who, &name, list, &all, n)); n }
#[no_mangle] #[inline(never)]
pub fn admit(p: &Point, q: (u32, u32), z: u8) -> i32 { black_box((p, q, z)); 0 }
#[no_mangle] #[inline(never)]
pub fn maybe(a: u8, x: Option<u32>, y: i32) -> i32 { black_box((a, x, y)); 1 }
#[inline(never)]
fn inside(s: &str, n: u64) -> usize { black_box(s.len() + n as usize) }
fn main() {
    greet(black_box("ann"), "bobby".to_string(), &[1, -2], vec![7, 8], 5);
    admit(&Point { x: 1, y: 2, tag: "t".to_string() }, (8, 9), 3);
    maybe(1, Some(2), 3);
    inside(black_box("xy"), black_box(3));
}
`
	if err := os.WriteFile(src, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, opt := range []string{"-Copt-level=0", "-Copt-level=2"} {
		path := filepath.Join(dir, "values")
		if out, err := exec.Command("rustc", "-g", opt, "-o", path, src).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		got := traceProbes(t, described(path, "greet", "admit", "maybe"), path)
		wantParts(t, got, `values:greet(who="ann", name="bobby", list=[1, -2], all=[7, 8], n=5) = 5`, `values:admit(p={x=1, y=2, tag="t"}, q={__0=8, __1=9}, z=3) = 0`,
			`values:maybe(a=1, x=??? /* in a place that the compiler chose */, y=??? /* in a place that the compiler chose */) = 1`)
	}
}
