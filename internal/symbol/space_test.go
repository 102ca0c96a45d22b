package symbol

import (
	"archive/zip"
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/sonde-trace/sonde/event"
)

// TestSpace: changes in any order give, for each time, what was mapped then.
func TestSpace(t *testing.T) {
	m := func(start, end uint64, path string) Mapping {
		return Mapping{Start: start, End: end, Path: path, Exec: true}
	}
	type change func(s *Space)
	mapAt := func(at uint64, x Mapping) change { return func(s *Space) { s.Map(at, x) } }
	for _, test := range []struct {
		name    string
		changes []change
		want    map[[2]uint64]string // time and address: path+offset
	}{
		{"one over another", []change{mapAt(10, m(0x1000, 0x5000, "a")), mapAt(20, m(0x2000, 0x3000, "b"))},
			map[[2]uint64]string{{5, 0x1000}: "", {10, 0x2800}: "a+1800", {19, 0x2800}: "a+1800", {20, 0x2800}: "b+800", {20, 0x1800}: "a+800", {20, 0x4000}: "a+3000", {20, 0x5000}: ""}},
		{"the same, late", []change{mapAt(20, m(0x2000, 0x3000, "b")), mapAt(10, m(0x1000, 0x5000, "a"))},
			map[[2]uint64]string{{5, 0x1000}: "", {10, 0x2800}: "a+1800", {19, 0x2800}: "a+1800", {20, 0x2800}: "b+800", {20, 0x1800}: "a+800", {20, 0x4000}: "a+3000"}},
		{"unmap", []change{mapAt(10, m(0x1000, 0x3000, "a")), func(s *Space) { s.Unmap(20, 0x1000, 0x2000) }},
			map[[2]uint64]string{{15, 0x1000}: "a+0", {20, 0x1000}: "", {20, 0x2000}: "a+1000"}},
		{"exec", []change{mapAt(10, m(0x1000, 0x3000, "a")), func(s *Space) { s.Exec(20) }, mapAt(21, m(0x1000, 0x2000, "b"))},
			map[[2]uint64]string{{15, 0x1000}: "a+0", {20, 0x1000}: "", {25, 0x1000}: "b+0", {25, 0x2000}: ""}},
		{"a reading of maps after changes", []change{mapAt(10, m(0x1000, 0x2000, "a")), func(s *Space) {
			s.Snapshot(20, []Mapping{m(0x1000, 0x2000, "a"), m(0x2000, 0x3000, "b")})
		}}, map[[2]uint64]string{{5, 0x1000}: "", {15, 0x1000}: "a+0", {5, 0x2000}: "b+0", {25, 0x2000}: "b+0"}},
		{"a reading that knows better", []change{mapAt(10, m(0x1000, 0x3000, "a")), func(s *Space) { s.Snapshot(20, []Mapping{m(0x2000, 0x4000, "b")}) }},
			map[[2]uint64]string{{15, 0x2000}: "a+1000", {20, 0x2000}: "b+0", {20, 0x3800}: "b+1800"}},
		{"a reading before a change", []change{mapAt(30, m(0x1000, 0x2000, "a")), func(s *Space) { s.Snapshot(20, []Mapping{m(0x1000, 0x2000, "old")}) }},
			map[[2]uint64]string{{30, 0x1000}: "a+0"}},
	} {
		s := &Space{}
		for _, c := range test.changes {
			c(s)
		}
		for at, want := range test.want {
			got := ""
			if x, ok := s.At(at[0], at[1]); ok {
				got = fmt.Sprintf("%s+%x", x.Path, at[1]-x.Start+x.Off)
			}
			if got != want {
				t.Errorf("%s: at time %d address %#x: %q, want %q", test.name, at[0], at[1], got, want)
			}
		}
		for i := 1; i < len(s.live); i++ {
			if s.live[i].Start < s.live[i-1].End {
				t.Errorf("%s: %v over %v", test.name, s.live[i], s.live[i-1])
			}
		}
	}
}

// TestSpaces: fork, exec, exit, and a pid that is used again.
func TestSpaces(t *testing.T) {
	s := NewSpaces()
	s.Map(10, 1, Mapping{Start: 0x1000, End: 0x2000, Path: "a"})
	s.Fork(20, 1, 2)
	s.Exec(30, 2)
	s.Map(31, 2, Mapping{Start: 0x1000, End: 0x2000, Path: "b"})
	s.Exit(40, 2)
	s.Fork(50, 1, 2)
	s.Map(60, 1, Mapping{Start: 0x1000, End: 0x2000, Path: "c"})
	check := func(at uint64, pid uint32, want string) {
		t.Helper()
		if m, _ := s.At(at, pid, 0x1800); m.Path != want {
			t.Errorf("time %d pid %d: %q, want %q", at, pid, m.Path, want)
		}
	}
	check(15, 1, "a")
	check(25, 2, "a")
	check(30, 2, "")
	check(35, 2, "b")
	check(45, 2, "")
	check(55, 2, "a")
	check(65, 2, "a")
	check(65, 1, "c")
	check(15, 3, "")
	s.Forget(45)
	check(55, 2, "a")
	check(15, 1, "a")
	s.Exit(70, 2)
	s.Exit(70, 1)
	s.Forget(80)
	if len(s.pids) != 0 {
		t.Errorf("dead processes are kept: %v", s.pids)
	}
}

func TestParseMapping(t *testing.T) {
	for line, want := range map[string]Mapping{
		"55d0c0a00000-55d0c0a2a000 r-xp 0002a000 fe:01 1234  /usr/bin/a b": {Start: 0x55d0c0a00000, End: 0x55d0c0a2a000, Off: 0x2a000, Exec: true, Dev: 0xfe01, Ino: 1234, Path: "/usr/bin/a b"},
		"7f00-8f00 r--p 0 00:00 0 ":                                        {Start: 0x7f00, End: 0x8f00},
		`7f00-8f00 rwxs 0 00:05 9 /tmp/x\012y (deleted)`:                   {Start: 0x7f00, End: 0x8f00, Exec: true, Dev: 5, Ino: 9, Path: "/tmp/x\ny", Deleted: true},
	} {
		if got, ok := parseMapping([]byte(line)); !ok || got != want {
			t.Errorf("%q: %+v, %v", line, got, ok)
		}
	}
	for _, line := range []string{"", "x", "1-2", "2-1 r-xp 0 0:0 0", "1-2 r 0 0:0 0", "zz-ff r-xp 0 0:0 0"} {
		if got, ok := parseMapping([]byte(line)); ok {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

// target starts a program that prints lines and then waits for the end of its input; it gives the first n lines.
func target(t *testing.T, n int, cmd *exec.Cmd) (pid uint32, lines []string) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) {
			t.Skipf("needs root: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	sc := bufio.NewScanner(out)
	for len(lines) < n && sc.Scan() {
		lines = append(lines, sc.Text())
	}
	if len(lines) < n {
		t.Fatalf("the program printed %q", lines)
	}
	return uint32(cmd.Process.Pid), lines
}

const waiter = `
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) void here(void) { asm volatile(""); }
int main(void) { printf("%p\n", (void *)here); fflush(stdout); char c; return read(0, &c, 1); }
`

// TestReplacedFile: the file that runs is named, not the one that has its name now; and that also when it is deleted.
func TestReplacedFile(t *testing.T) {
	path := compile(t, "w.c", waiter, "-O1")
	other := compile(t, "o.c", "int other(void) { return 1; }\nint main(void) { return other(); }\n")
	pid, lines := target(t, 1, exec.Command(path))
	var addr uint64
	fmt.Sscanf(lines[0], "0x%x", &addr)
	name := func() string {
		s := NewSpaces()
		if err := s.Snapshot(1, pid); err != nil {
			t.Fatal(err)
		}
		got := New(Options{}).Address(nil, s, 2, pid, addr, false)
		return fmt.Sprintf("%s %s", filepath.Base(got[0].Module), got[0].Func)
	}
	if got := name(); got != "w here" {
		t.Errorf("running: %q", got)
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/map_files", pid)); err != nil {
		t.Skip(err)
	}
	if got := name(); got != "w (deleted) here" {
		t.Errorf("replaced: %q", got)
	}
	os.Remove(path)
	if got := name(); got != "w (deleted) here" {
		t.Errorf("deleted: %q", got)
	}
}

// TestArchive: a library that is stored in an archive and mapped from there, as Android does.
func TestArchive(t *testing.T) {
	lib := compile(t, "lib.c", "int inside(int x) { return x + 1; }\n", "-shared", "-fPIC")
	b, err := os.ReadFile(lib)
	if err != nil {
		t.Fatal(err)
	}
	apk := filepath.Join(t.TempDir(), "base.apk")
	f, err := os.Create(apk)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	for _, e := range []struct {
		name   string
		method uint16
		data   []byte
	}{{"classes.dex", zip.Deflate, []byte(strings.Repeat("dex", 5000))}, {"lib/x86_64/libinside.so", zip.Store, b}, {"res", zip.Store, []byte("text")}} {
		x, err := w.CreateHeader(&zip.FileHeader{Name: e.name, Method: e.method})
		if err == nil {
			_, err = x.Write(e.data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	ino := st.Sys().(*syscall.Stat_t).Ino
	z, err := zip.OpenReader(apk)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	base, _ := z.File[1].DataOffset()
	found, err := Find(open(t, lib), Exact("inside"))
	if err != nil {
		t.Fatal(err)
	}
	off := uint64(base) + found.Funcs[0].Off
	s := NewSpaces()
	pid := uint32(os.Getpid())
	s.Map(1, pid, Mapping{Start: 0x10000, End: 0x10000 + uint64(st.Size()), Off: 0, Exec: true, Ino: ino, Path: apk})
	r := New(Options{})
	m, err := r.Mapped(pid, Mapping{Start: 0x10000, End: 0x20000, Off: uint64(base), Ino: ino, Path: apk})
	if err != nil || m.Base != uint64(base) || m.Name != apk+"!/lib/x86_64/libinside.so" {
		t.Fatalf("%+v, %v", m, err)
	}
	if got := r.Frames(nil, m, event.Frame{Offset: off}, false); len(got) != 1 || got[0].Func != "inside" {
		t.Errorf("%+v", got)
	}
	if _, err := r.Mapped(pid, Mapping{Start: 0x30000, End: 0x40000, Ino: ino + 1, Path: apk}); err == nil {
		t.Error("an archive with another inode was taken for the one that was mapped")
	}
}

const jitted = `
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>
#include <sys/mman.h>
int main(void) {
	char *p = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char name[64];
	sprintf(name, "/tmp/perf-%d.map", getpid());
	FILE *f = fopen(name, "w");
	fprintf(f, "%lx 10 old\n%lx 40 LazyCompile:~add /x.js:3\n%lx 0x20 second\nbroken\n", (long)p, (long)p, (long)p + 64);
	fclose(f);
	printf("%p\n", (void *)p);
	fflush(stdout);
	char c;
	return read(0, &c, 1);
}
`

// TestPerfMap: code of a compiler in a container, which calls its process 1 and has its own /tmp.
func TestPerfMap(t *testing.T) {
	path := compile(t, "jit.c", jitted, "-static")
	root := filepath.Dir(path)
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/jit")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	pid, lines := target(t, 1, cmd)
	var addr uint64
	fmt.Sscanf(lines[0], "0x%x", &addr)
	s := NewSpaces()
	if err := s.Snapshot(1, pid); err != nil {
		t.Fatal(err)
	}
	r := New(Options{})
	for off, want := range map[uint64]string{0: "LazyCompile:~add /x.js:3+0", 0x3f: "LazyCompile:~add /x.js:3+63", 0x40: "second+0", 0x60: "+0"} {
		got := r.Address(nil, s, 2, pid, addr+off, false)[0]
		if g := fmt.Sprintf("%s+%d", got.Func, got.FuncOff); g != want {
			t.Errorf("%#x: %s, want %s", off, g, want)
		}
	}
	if got := r.Address(nil, s, 2, pid, addr+0x40, true)[0]; got.Func != "LazyCompile:~add /x.js:3" || got.FuncOff != 0x40 {
		t.Errorf("a return address at the end: %+v", got)
	}
}

// TestJITDump: names, moves and lines by their times.
func TestJITDump(t *testing.T) {
	var b []byte
	u32 := func(v ...uint32) {
		for _, x := range v {
			b = append(b, byte(x), byte(x>>8), byte(x>>16), byte(x>>24))
		}
	}
	u64 := func(v ...uint64) {
		for _, x := range v {
			u32(uint32(x), uint32(x>>32))
		}
	}
	record := func(id uint32, time uint64, body func()) {
		start := len(b)
		u32(id, 0)
		u64(time)
		body()
		n := len(b) - start
		b[start+4], b[start+5] = byte(n), byte(n>>8)
	}
	u32(jitMagic, 1, 40, 62, 0, 1)
	u64(0, 0)
	record(jitDebugInfo, 9, func() {
		u64(0x1000, 2)
		u64(0x1000)
		u32(7, 0)
		b = append(b, "/src/a.js\x00"...)
		u64(0x1010)
		u32(8, 0)
		b = append(b, "\xff\x00"...)
	})
	load := func(time, addr uint64, name string) {
		record(jitLoad, time, func() { u32(1, 1); u64(addr, addr, 0x20, 1); b = append(b, name+"\x00code"...) })
	}
	load(10, 0x1000, "first")
	load(30, 0x1000, "second")
	record(jitMove, 40, func() { u32(1, 1); u64(0x1000, 0x1000, 0x3000, 0x20, 1) })
	j := &jit{}
	j.readDump(b)
	for _, test := range []struct {
		t, pc uint64
		want  string
	}{{20, 0x1004, "first+4 /src/a.js:7"}, {35, 0x1014, "second+20 /src/a.js:8"}, {50, 0x3000, "second+0 :0"}, {50, 0x4000, ""}} {
		got := ""
		if f, ok := j.frame(test.t, test.pc); ok {
			got = fmt.Sprintf("%s+%d %s:%d", f.Func, f.FuncOff, f.File, f.Line)
		}
		if got != test.want {
			t.Errorf("time %d, %#x: %q, want %q", test.t, test.pc, got, test.want)
		}
	}
}
