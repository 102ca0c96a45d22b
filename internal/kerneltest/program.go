package kerneltest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Program returns the path of the program made from test/programs/NAME.c: static, so that it makes no calls but its own
// and those of the C library's start, and runs on any kernel. On this machine it is built with gcc and kept in the user's
// cache directory; in a virtual machine it lies in SONDE_PROGRAMS. Without a compiler the test is skipped, unless
// SONDE_REQUIRE names gcc.
func Program(t testing.TB, name string) string {
	t.Helper()
	if dir := os.Getenv("SONDE_PROGRAMS"); dir != "" {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("test program: %v", err)
		}
		return path
	}
	src := filepath.Join(ModuleRoot(t), "test", "programs", name+".c")
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	path, err := BuildProgram(src, runtime.GOARCH, filepath.Join(dir, "sonde", "programs"))
	if err != nil {
		if _, look := exec.LookPath(compilers[runtime.GOARCH]); look != nil && !required("gcc") {
			t.Skipf("missing feature gcc: %v", look)
		}
		t.Fatal(err)
	}
	return path
}

var compilers = map[string]string{"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"}

// BuildProgram compiles a C file for an architecture into dir, unless the same text was compiled there before.
func BuildProgram(src, goarch, dir string) (string, error) {
	text, err := os.ReadFile(src)
	if err != nil {
		return "", fmt.Errorf("test program: %w", err)
	}
	name := strings.TrimSuffix(filepath.Base(src), ".c")
	dir = filepath.Join(dir, fmt.Sprintf("%s-%.8x", goarch, sha256.Sum256(text)))
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	cc := compilers[goarch]
	if cc == "" {
		return "", fmt.Errorf("test program %s: no compiler known for %s", name, goarch)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(dir, name+".*")
	if err != nil {
		return "", err
	}
	tmp.Close()
	out, err := exec.Command(cc, "-O1", "-g", "-Wall", "-static", "-pthread", "-o", tmp.Name(), src).CombinedOutput()
	if err != nil {
		os.Remove(tmp.Name())
		return "", fmt.Errorf("test program %s: %s: %w\n%s", name, cc, err, out)
	}
	return path, os.Rename(tmp.Name(), path)
}

// ModuleRoot returns the directory of go.mod above the working directory.
func ModuleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the working directory")
		}
		dir = up
	}
}

// Compile builds test/programs/NAME.c (or .cc) for this machine with flags of the test's own, into the test's directory, and
// returns the path. The result may need the machine's libraries, so it is for tests that run on the host only.
func Compile(t testing.TB, name string, flags ...string) string {
	t.Helper()
	cc, src := "gcc", filepath.Join(ModuleRoot(t), "test", "programs", name)
	if strings.HasSuffix(name, ".cc") {
		cc = "g++"
	} else if !strings.HasSuffix(name, ".c") {
		src += ".c"
	}
	Tool(t, cc)
	path := filepath.Join(t.TempDir(), strings.TrimSuffix(strings.TrimSuffix(name, ".c"), ".cc"))
	if out, err := exec.Command(cc, append([]string{"-Wall", "-o", path, src}, flags...)...).CombinedOutput(); err != nil {
		t.Fatalf("test program %s: %v\n%s", name, err, out)
	}
	return path
}
