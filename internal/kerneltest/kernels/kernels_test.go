package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestArchive(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a/x": "one", "a/b/y": "", "z": "four"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "z"), 0o755); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	a := newArchive(&b)
	a.dir("/proc")
	a.bytes("/etc/passwd", 0o644, []byte("root\n"))
	a.symlink("bin/sh", "busybox")
	a.tree("/test/pkg", dir)
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	got := unpack(t, b.Bytes())
	want := []string{
		"bin 40755 ", "bin/sh 120777 busybox", "etc 40755 ", "etc/passwd 100644 root\n", "proc 40755 ", "test 40755 ",
		"test/pkg 40755 ", "test/pkg/a 40755 ", "test/pkg/a/b 40755 ", "test/pkg/a/b/y 100644 ", "test/pkg/a/x 100644 one", "test/pkg/z 100755 four",
	}
	sort.Strings(got)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	// Another reader agrees.
	if _, err := exec.LookPath("cpio"); err == nil {
		cmd := exec.Command("cpio", "-t", "--quiet")
		cmd.Stdin = bytes.NewReader(b.Bytes())
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "test/pkg/a/b/y\n") {
			t.Errorf("cpio -t: %v\n%s", err, out)
		}
	}
}

func TestArchiveErrors(t *testing.T) {
	a := newArchive(&bytes.Buffer{})
	a.file("x", "/nonexistent/file", 0o644)
	if err := a.close(); err == nil || !strings.Contains(err.Error(), "/nonexistent/file") {
		t.Errorf("missing file: %v", err)
	}
	a = newArchive(&bytes.Buffer{})
	a.header("big", 0o100644, 1<<32)
	if err := a.close(); err == nil {
		t.Error("a file of 4 GiB was accepted")
	}
}

// unpack reads a newc archive: "name mode content".
func unpack(t *testing.T, b []byte) []string {
	t.Helper()
	var out []string
	pos := 0
	field := func(i int) int {
		n, err := strconv.ParseUint(string(b[pos+6+8*i:pos+14+8*i]), 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	for {
		if string(b[pos:pos+6]) != "070701" {
			t.Fatalf("no magic at %d", pos)
		}
		mode, size, namesize := field(1), field(6), field(11)
		name := string(b[pos+110 : pos+110+namesize-1])
		data := (pos + 110 + namesize + 3) &^ 3
		if name == "TRAILER!!!" {
			return out
		}
		out = append(out, fmt.Sprintf("%s %o %s", name, mode, b[data:data+size]))
		pos = (data + size + 3) &^ 3
	}
}

func TestParseMatrix(t *testing.T) {
	got, err := parseMatrix("# c\nbullseye amd64 passed 3 missing btf,x32 # 5.10\n\ntrixie arm64 passed 10\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []entry{
		{machine: machine{"bullseye", "amd64"}, passed: 3, missing: map[string]bool{"btf": true, "x32": true}},
		{machine: machine{"trixie", "arm64"}, passed: 10, missing: map[string]bool{}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{"bullseye", "a vax passed 3", "a amd64 passed x", "a amd64 passed 3 lacks x", "a amd64 passed -1"} {
		if _, err := parseMatrix(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
	text, err := os.ReadFile("../../../test/kernels.txt")
	if err != nil {
		t.Fatal(err)
	}
	if all, err := parseMatrix(string(text)); err != nil || len(all) != 6 {
		t.Errorf("test/kernels.txt: %d machines, %v", len(all), err)
	}
}

func TestVersionLess(t *testing.T) {
	in := []string{"linux-image-6.12.117+deb13-cloud-amd64", "linux-image-5.10.0-9-cloud-amd64", "linux-image-6.12.9+deb13-cloud-amd64", "linux-image-5.10.0-32-cloud-amd64"}
	sort.Slice(in, func(i, j int) bool { return versionLess(in[i], in[j]) })
	if in[0] != "linux-image-5.10.0-9-cloud-amd64" || in[1] != "linux-image-5.10.0-32-cloud-amd64" || in[3] != "linux-image-6.12.117+deb13-cloud-amd64" {
		t.Error(in)
	}
}

func TestPrivileged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x_test.go")
	src := `package x
import ("testing"; "github.com/sonde-trace/sonde/internal/kerneltest")
func need(t *testing.T) { kerneltest.Require(t, kerneltest.Root) }
func open(t *testing.T) { need(t) }
func TestDirect(t *testing.T) { kerneltest.Require(t) }
func TestThrough(t *testing.T) { t.Run("x", func(t *testing.T) { open(t) }) }
func TestPure(t *testing.T) { kerneltest.CheckLeaks(t) }
func TestMain(m *testing.M) { need(nil) }
func BenchmarkX(b *testing.B) { need(nil) }
`
	if err := os.WriteFile(path, []byte(src), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := privileged([]string{path}, false)
	if err != nil || !reflect.DeepEqual(got, []string{"TestDirect", "TestThrough"}) {
		t.Errorf("%v, %v", got, err)
	}
}

func console(lines ...string) *report {
	r := newReport("m", &payload{plan: plan{Suites: []planned{{Package: "p", Tests: []string{"TestA", "TestB", "TestC"}}}}})
	r.read(strings.NewReader(strings.Join(lines, "\r\n")), func() {})
	return r
}

func TestReport(t *testing.T) {
	good := []string{
		"[    0.0] some kernel line",
		`@sonde {"boot":"5.10.0"}`,
		`@sonde {"package":"p","output":"=== RUN   TestA\n"}`,
		`@sonde {"package":"p","output":"--- PASS: TestA (0.10s)\n"}`,
		`noise@sonde {"package":"p","output":"=== RUN   TestB\n"}`,
		`@sonde {"package":"p","output":"    b_test.go:1: missing feature btf: no file\n"}`,
		`@sonde {"package":"p","output":"--- SKIP: TestB (0.00s)\n"}`,
		`@sonde {"package":"p","output":"=== RUN   TestC\n"}`,
		`@sonde {"package":"p","output":"    --- PASS: TestC/sub (0.00s)\n"}`,
		`@sonde {"package":"p","output":"--- PASS: TestC (0.00s)\n"}`,
		`@sonde {"package":"p","exit":0}`,
		`@sonde {"feature":"{\"test\":\"TestA\",\"feature\":\"bpf\"}"}`,
		`@sonde {"feature":"{\"test\":\"TestB\",\"feature\":\"btf\",\"missing\":\"no file\"}"}`,
		`@sonde {"done":true}`, "",
	}
	e := entry{passed: 2, missing: map[string]bool{"btf": true}}
	r := console(good...)
	r.judge(e)
	if len(r.problems) > 0 || r.count("pass") != 2 || r.count("skip") != 1 || r.release != "5.10.0" {
		t.Errorf("%+v", r)
	}
	if err := summary(&bytes.Buffer{}, []*report{r}); err != nil {
		t.Error(err)
	}
	edit := func(from, to string) []string {
		var out []string
		for _, l := range good {
			if l == from {
				l = to
			}
			if l != "" {
				out = append(out, l)
			}
		}
		return append(out, "")
	}
	for _, c := range []struct {
		name  string
		lines []string
		entry entry
		want  string
	}{
		{"fewer than wanted", good, entry{passed: 3, missing: e.missing}, "2 tests passed, test/kernels.txt wants 3"},
		{"unexpected feature", good, entry{passed: 2}, "feature btf is missing"},
		{"skipped for nothing", edit(good[12], ""), e, "not for a missing feature"},
		{"failed", edit(good[3], `@sonde {"package":"p","output":"--- FAIL: TestA (0.10s)\n"}`), e, "failed: p.TestA"},
		{"never ended", edit(good[9], ""), e, "never ended: p.TestC"},
		{"exit status", edit(good[10], `@sonde {"package":"p","exit":2}`), e, "ended with 2"},
		{"damaged line", edit(good[10], `@sonde {"package":"p","ex[ 12.3] kernel`), e, "damaged"},
		{"kernel trouble", edit(good[0], "[ 1.0] BUG: unable to handle"), e, "the kernel says"},
		{"own error", edit(good[0], `@sonde {"error":"mount /proc: EPERM"}`), e, "mount /proc"},
	} {
		r := console(c.lines...)
		r.judge(c.entry)
		if !strings.Contains(strings.Join(r.problems, "\n"), c.want) {
			t.Errorf("%s: %q, want %q", c.name, r.problems, c.want)
		}
		if err := summary(&bytes.Buffer{}, []*report{r}); err == nil {
			t.Errorf("%s: the summary is content", c.name)
		}
		var out bytes.Buffer
		r.took = time.Second
		r.print(&out)
		if !strings.HasPrefix(out.String(), "FAIL") {
			t.Errorf("%s: printed %q", c.name, out.String())
		}
	}
}

func TestMirror(t *testing.T) {
	t.Setenv("SONDE_MIRROR", "http://example.org/debian")
	if m := mirror(); m != "http://example.org/debian" {
		t.Error(m)
	}
	t.Setenv("SONDE_MIRROR", "")
	if m := mirror(); !strings.HasPrefix(m, "http") {
		t.Error(m)
	}
}

func TestUnit(t *testing.T) {
	events := `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"pass","Package":"p","Test":"TestA/sub"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: missing feature root: not there\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:7: got 1, want 2\n"}
{"Action":"fail","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
not json
`
	var out bytes.Buffer
	u := newUnit(&out)
	if err := u.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	u.print()
	want := "    c_test.go:7: got 1, want 2\nFAIL\tp\t0.1s\nnot json\n\nunit: 1 tests passed, 1 skipped, 1 failed\n  skipped   1: missing feature root: not there\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
