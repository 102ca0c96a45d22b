package ldso

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// build compiles C source text with the given arguments into dir.
func build(t *testing.T, dir, out, source string, args ...string) string {
	t.Helper()
	return buildWith(t, "gcc", dir, out, source, args...)
}

func buildWith(t *testing.T, cc, dir, out, source string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("the compiler %s is not installed", cc)
	}
	path := filepath.Join(dir, out)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	src := path + ".c"
	if err := os.WriteFile(src, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cc, append([]string{"-o", path, src}, args...)...)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, b)
	}
	return path
}

// chain builds CASES.md H22: exe needs libmid, which needs libval.so.1; libval is in a directory that only exe names.
func chain(t *testing.T) (dir, runpath, rpath string) {
	dir = t.TempDir()
	build(t, dir, "b/libval.so.1", "int val(void){return 10;}", "-shared", "-fPIC", "-Wl,-soname,libval.so.1")
	build(t, dir, "c/libval.so.1", "int val(void){return 20;}", "-shared", "-fPIC", "-Wl,-soname,libval.so.1")
	build(t, dir, "a/libmid.so", "int val(void);int mid(void){return val();}", "-shared", "-fPIC", "-L"+dir+"/b", "-l:libval.so.1", "-Wl,-soname,libmid.so")
	const src = "#include <stdio.h>\nint mid(void);int main(void){printf(\"%d\\n\",mid());return 0;}"
	common := []string{"-L" + dir + "/a", "-lmid", "-Wl,--allow-shlib-undefined", "-Wl,-rpath," + dir + "/a:" + dir + "/b"}
	runpath = build(t, dir, "exe-runpath", src, append(common, "-Wl,--enable-new-dtags")...)
	rpath = build(t, dir, "exe-rpath", src, append(common, "-Wl,--disable-new-dtags")...)
	return dir, runpath, rpath
}

var tryingRE = regexp.MustCompile(`(?m)^\s*\d+:\s+trying file=(.*)$`)

// debugTries are the paths that the real linker tries, as LD_DEBUG=libs says.
func debugTries(t *testing.T, path string, env []string, dir string) []string {
	t.Helper()
	cmd := exec.Command(path, "--version")
	cmd.Env = append(env, "LD_DEBUG=libs", "LD_TRACE_LOADED_OBJECTS=1")
	cmd.Dir = dir
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	cmd.Run() // the status is that of the loading, which may fail
	var list []string
	for _, m := range tryingRE.FindAllStringSubmatch(b.String(), -1) {
		list = append(list, m[1])
	}
	return list
}

func modelTries(c *Closure) (list []string) {
	for _, n := range c.Needs {
		for _, try := range n.Tries {
			if try.Rule != RulePath && try.Path != cachePath && !try.Skipped {
				list = append(list, try.Path)
			}
		}
	}
	return list
}

// TestTriesAgree holds the model against the linker of this machine: the same paths in the same order.
func TestTriesAgree(t *testing.T) {
	dir, runpath, rpath := chain(t)
	t.Chdir(dir)
	origin := build(t, dir, "bin/origin", "int val(void);int main(void){return val();}", "-L"+dir+"/b", "-l:libval.so.1", "-Wl,-rpath,$ORIGIN/../b:/nowhere/$LIB/$PLATFORM")
	cases := []struct {
		path string
		env  []string
	}{
		{"/bin/ls", nil}, {"/usr/bin/git", nil}, {"/usr/bin/gdb", nil}, {"/usr/bin/python3", nil}, {"/usr/bin/perl", nil}, {"/usr/bin/curl", nil},
		{runpath, nil}, {rpath, nil}, {"./exe-rpath", nil}, {origin, nil},
		{runpath, []string{"LD_LIBRARY_PATH=" + dir + "/c"}}, {rpath, []string{"LD_LIBRARY_PATH=" + dir + "/c"}},
		{runpath, []string{"LD_LIBRARY_PATH=c:"}}, {runpath, []string{"LD_LIBRARY_PATH=c//:;b"}}, {runpath, []string{"LD_LIBRARY_PATH="}},
		{"/bin/ls", []string{"LD_PRELOAD=" + dir + "/c/libval.so.1"}}, {"/bin/ls", []string{"LD_LIBRARY_PATH=b", "LD_PRELOAD=libval.so.1 libnone.so"}},
		{runpath, []string{"LD_LIBRARY_PATH=$ORIGIN/b"}},
	}
	for _, tc := range cases {
		if _, err := os.Stat(tc.path); err != nil {
			continue // not installed
		}
		c, err := Resolve(tc.path, tc.env)
		if err != nil {
			t.Errorf("%s: %v", tc.path, err)
			continue
		}
		if c.Linker.Libc != "glibc" {
			t.Skip("the programs of this machine are not for glibc")
		}
		want, got := debugTries(t, tc.path, tc.env, dir), modelTries(c)
		if !slices.Equal(want, got) {
			t.Errorf("%s with %q:\nthe linker tried %q\nthe model says %q", tc.path, tc.env, want, got)
		}
		if len(got) == 0 {
			t.Errorf("%s: nothing was tried", tc.path)
		}
		c.Close()
	}
}

// TestChain is the finding of H22: which libval is taken, or that none is.
func TestChain(t *testing.T) {
	dir, runpath, rpath := chain(t)
	for _, tc := range []struct {
		path string
		env  []string
		want string
	}{
		{runpath, nil, ""}, {rpath, nil, "b/libval.so.1"},
		{runpath, []string{"LD_LIBRARY_PATH=" + dir + "/c"}, "c/libval.so.1"},
		{rpath, []string{"LD_LIBRARY_PATH=" + dir + "/c"}, "b/libval.so.1"},
	} {
		c, err := Resolve(tc.path, tc.env)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, n := range c.Needs {
			if n.Name == "libval.so.1" && n.Object != nil {
				got, _ = filepath.Rel(dir, n.Object.Path)
			}
		}
		if got != tc.want {
			t.Errorf("%s %q: libval.so.1 is %q, want %q", filepath.Base(tc.path), tc.env, got, tc.want)
		}
		if missing := c.Missing(); (missing == nil) != (tc.want != "") || missing != nil && (missing.Name != "libval.so.1" || filepath.Base(missing.By.Path) != "libmid.so") {
			t.Errorf("%s %q: missing %+v", filepath.Base(tc.path), tc.env, missing)
		}
		c.Close()
	}
}

// TestMusl compares with the paths that musl's linker opens, as strace sees them.
func TestMusl(t *testing.T) {
	dir := t.TempDir()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not installed")
	}
	buildWith(t, "musl-gcc", dir, "b/libval.so", "int val(void){return 10;}", "-shared", "-fPIC", "-Wl,-soname,libval.so")
	buildWith(t, "musl-gcc", dir, "a/libmid.so", "int val(void);int mid(void){return val();}", "-shared", "-fPIC", "-L"+dir+"/b", "-lval", "-Wl,-soname,libmid.so")
	exe := buildWith(t, "musl-gcc", dir, "exe", "int mid(void);int main(void){return mid()!=10;}", "-L"+dir+"/a", "-lmid", "-Wl,--allow-shlib-undefined", "-Wl,-rpath,"+dir+"/a:"+dir+"/b")
	open := regexp.MustCompile(`open(?:at)?\((?:AT_FDCWD, )?"([^"]*)"`)
	for _, env := range [][]string{nil, {"LD_LIBRARY_PATH=" + dir + "/none:" + dir + "/b"}} {
		c, err := Resolve(exe, env)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("strace", "-e", "trace=open,openat", exe)
		cmd.Env = env
		b, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		var want []string
		for _, m := range open.FindAllStringSubmatch(string(b), -1) {
			if strings.HasSuffix(m[1], ".so") {
				want = append(want, m[1])
			}
		}
		if got := modelTries(c); !slices.Equal(got, want) || len(got) == 0 {
			t.Errorf("%q:\nmusl opens %q\nthe model says %q", env, want, got)
		}
		c.Close()
	}
}

func TestFaults(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "v.map")
	if err := os.WriteFile(script, []byte("V1 { global: f; };\nV2 { global: g; } V1;\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(dir, "old.map")
	if err := os.WriteFile(old, []byte("V1 { global: f; };\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	lib := build(t, dir, "libv.so", "int f(void){return 1;} int g(void){return 2;}", "-shared", "-fPIC", "-Wl,-soname,libv.so", "-Wl,--version-script="+script)
	version := build(t, dir, "version", "int g(void);int main(void){return g();}", lib, "-Wl,-rpath,"+dir)
	libh := build(t, dir, "libh.so", "int h(void){return 1;}", "-shared", "-fPIC", "-Wl,-soname,libh.so")
	symbol := build(t, dir, "symbol", "int h(void);int main(void){return h();}", libh, "-Wl,-rpath,"+dir, "-Wl,-z,now")
	lazy := build(t, dir, "lazy", "int h(void);int main(int c,char**v){return c>5?h():0;}", libh, "-Wl,-rpath,"+dir, "-Wl,-z,lazy")
	build(t, dir, "libh.so", "int other(void){return 1;}", "-shared", "-fPIC", "-Wl,-soname,libh.so")
	// The library loses its second version.
	build(t, dir, "libv.so", "int f(void){return 1;}", "-shared", "-fPIC", "-Wl,-soname,libv.so", "-Wl,--version-script="+old)
	for _, tc := range []struct {
		path, symbol, version string
		lazy                  bool
	}{{version, "", "V2", false}, {symbol, "h", "", false}, {lazy, "h", "", true}} {
		c, err := Resolve(tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		list := c.Faults(10)
		if len(list) != 1 || list[0].Symbol != tc.symbol || list[0].Version != tc.version || list[0].Lazy != tc.lazy {
			t.Errorf("%s: %+v", filepath.Base(tc.path), list)
		}
		c.Close()
		// The real linker agrees.
		b, err := exec.Command(tc.path).CombinedOutput()
		if (err == nil) != tc.lazy || !tc.lazy && !strings.Contains(string(b), tc.symbol+tc.version) {
			t.Errorf("%s: %v %s", filepath.Base(tc.path), err, b)
		}
	}
	for _, path := range []string{"/bin/ls", "/usr/bin/git", "/usr/bin/python3", "/usr/bin/gdb", "/usr/bin/perl"} {
		c, err := Resolve(path, nil)
		if err != nil {
			continue // not installed
		}
		if list := c.Faults(10); len(list) > 0 {
			t.Errorf("%s starts, and the model says %+v", path, list)
		}
		c.Close()
	}
}

// FuzzResolve feeds damaged programs: none may panic or allocate without bound.
func FuzzResolve(f *testing.F) {
	if b, err := os.ReadFile("/bin/true"); err == nil {
		f.Add(b)
	}
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := Resolve(path, nil)
		if err != nil {
			return
		}
		c.Faults(10)
		c.Close()
	})
}
