package objfile

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// build compiles a small program; the machine that runs the tests has a C compiler.
func build(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	src := filepath.Join(dir, "p.c")
	if err := os.WriteFile(src, []byte("int fun(int x) { return x * 3; }\nint alias(int) __attribute__((alias(\"fun\")));\nint main(void) { return fun(0); }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "p")
	run(t, "cc", append([]string{"-O1", "-o", out, src}, flags...)...)
	return out
}

func run(t *testing.T, name string, arg ...string) string {
	t.Helper()
	out, err := exec.Command(name, arg...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(arg, " "), err, out)
	}
	return string(out)
}

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	path := build(t, dir, "-Wl,--build-id=sha1")
	f := open(t, path)
	var fun Symbol
	names := map[string]uint64{}
	for _, s := range f.Symbols() {
		if names[s.Name] = s.Addr; s.Name == "fun" {
			fun = s
		}
	}
	if fun.Addr == 0 || fun.Size == 0 || fun.Type != elf.STT_FUNC || names["alias"] != fun.Addr || names["main"] == 0 {
		t.Errorf("symbols %v; fun is %+v", names, fun)
	}
	off, ok := f.Offset(fun.Addr)
	if back, ok2 := f.Addr(off); !ok || !ok2 || back != fun.Addr {
		t.Errorf("address %#x is at %#x (%v), and that is at %#x (%v)", fun.Addr, off, ok, back, ok2)
	}
	if !f.InCode(fun.Addr) || !f.Executable() {
		t.Error("a function is in code and a program is executable")
	}
	if id := hex.EncodeToString(f.BuildID()); len(id) != 40 || !strings.Contains(run(t, "readelf", "-n", path), id) {
		t.Errorf("build-id %q", id)
	}
	if _, err := f.DWARF(); !errors.Is(err, ErrNoDebug) {
		t.Errorf("a program without debug data: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "p.c")); !errors.Is(err, ErrNotELF) {
		t.Errorf("C source: %v", err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "regular") {
		t.Errorf("a directory: %v", err)
	}
}

// TestDebugLink: found beside the program, and refused when it is that of another build.
func TestDebugLink(t *testing.T) {
	dir := t.TempDir()
	path := build(t, dir, "-g", "-Wl,--build-id=sha1")
	split := func(prog, debug string) {
		run(t, "objcopy", "--only-keep-debug", prog, debug)
		run(t, "strip", prog)
		run(t, "objcopy", "--add-gnu-debuglink="+debug, prog)
	}
	debug := path + ".debug"
	split(path, debug)
	f := open(t, path)
	d, err := f.Debug()
	if err != nil || d.Path != debug {
		t.Fatalf("debug file %v: %v", d, err)
	}
	if _, err := f.DWARF(); err != nil {
		t.Error(err)
	}
	other := build(t, t.TempDir(), "-g", "-O2", "-Wl,--build-id=sha1")
	run(t, "objcopy", "--only-keep-debug", other, debug)
	var m *MismatchError
	if _, err := open(t, path).Debug(); !errors.As(err, &m) || !strings.Contains(err.Error(), "build-id differs") {
		t.Errorf("a debug file of another build: %v", err)
	}
}

// FuzzOpen: whatever claims to be an ELF file gives an error or can be asked everything.
func FuzzOpen(f *testing.F) {
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(exe[:min(len(exe), 4096)])
	f.Add([]byte(elf.ELFMAG))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := New(bytes.NewReader(b), int64(len(b)), "fuzz")
		if err != nil {
			return
		}
		o.BuildID()
		o.Executable()
		for _, s := range o.Symbols() {
			if off, ok := o.Offset(s.Addr); ok {
				o.Addr(off)
			}
		}
		if _, err := o.DWARF(); err == nil && !o.hasDWARF() {
			t.Error("debug data from nowhere")
		}
	})
}
