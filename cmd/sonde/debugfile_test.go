package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/internal/objfile"
)

const chain = `
#define N __attribute__((noinline, noipa))
N int leaf(int x) { return x + 1; }
N static int l3(int x) { return leaf(x) + 1; }
N static int l2(int x) { return l3(x) + 1; }
N static int l1(int x) { return l2(x) + 1; }
int main(int c, char **v) { return l1(c) == 0; }
`

func compileC(t *testing.T, name, text string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	src := filepath.Join(dir, name+".c")
	if err := os.WriteFile(src, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, name)
	tool(t, "gcc", append([]string{"-o", out, src}, flags...)...)
	return out
}

func tool(t *testing.T, name string, arg ...string) {
	t.Helper()
	if out, err := exec.Command(name, arg...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, arg, err, out)
	}
}

// TestStackNamesFromDebugFile: a stripped program whose names are in a debug file, found by debug link and by build-id; that of
// another build is refused with the word, and the offset still works (CASES.md, H09).
func TestStackNamesFromDebugFile(t *testing.T) {
	path := compileC(t, "p", chain, "-O2", "-fomit-frame-pointer", "-g", "-Wl,--build-id=sha1")
	debug := path + ".debug"
	tool(t, "objcopy", "--only-keep-debug", path, debug)
	tool(t, "strip", path)
	f, err := objfile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	id := hex.EncodeToString(f.BuildID())
	store := t.TempDir()
	byID := filepath.Join(store, ".build-id", id[:2], id[2:]+".debug")
	if err := os.MkdirAll(filepath.Dir(byID), 0o700); err != nil {
		t.Fatal(err)
	}
	tool(t, "cp", debug, byID)
	d, err := objfile.Open(debug)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var leaf uint64
	for s := range d.EachFunc() {
		if s.Name == "leaf" {
			leaf, _ = f.Offset(s.Addr)
		}
	}
	names := func(o outcome) (list []string) {
		for _, l := range o.trace {
			if name, ok := strings.CutPrefix(l, " > "+path+"("); ok {
				if name, _, named := strings.Cut(name, "+"); named {
					list = append(list, name)
				}
			}
		}
		return list
	}
	want := []string{"leaf", "l3", "l2", "l1", "main"}
	starts := func(o outcome) bool {
		got := names(o)
		return len(got) >= len(want) && slices.Equal(got[:len(want)], want)
	}
	if o := trace(t, "", "-k", "--debuginfo", store, "-e", path+":leaf", "--", path); !starts(o) {
		t.Errorf("by build-id: %q\n%s", o.trace, o.stderr)
	}
	tool(t, "objcopy", "--add-gnu-debuglink="+debug, path)
	if o := trace(t, "", "-k", "-e", path+":leaf", "--", path); !starts(o) {
		t.Errorf("by debug link: %q\n%s", o.trace, o.stderr)
	}
	other := compileC(t, "p", chain+"int more(void) { return 1; }\n", "-O1", "-g", "-Wl,--build-id=sha1")
	tool(t, "objcopy", "--only-keep-debug", other, debug)
	if o := trace(t, "", "-k", "-e", path+":leaf", "--", path); o.code == 0 || !strings.Contains(o.stderr, "build-id differs") {
		t.Errorf("of another build: status %d, %q", o.code, o.stderr)
	}
	o := trace(t, "", "-k", "-e", fmt.Sprintf("%s:%#x", path, leaf), "--", path)
	if got := names(o); len(o.trace) < 6 || len(got) > 0 || !strings.Contains(o.stderr, "build-id differs") {
		t.Errorf("by offset, with a debug file of another build: %q\n%s", o.trace, o.stderr)
	}
}

// TestDebugFileFromServer: the client of the environment's servers is asked for what is nowhere here, and not when the
// environment names none.
func TestDebugFileFromServer(t *testing.T) {
	path := compileC(t, "p", chain, "-O2", "-g", "-Wl,--build-id=sha1")
	debug := filepath.Join(t.TempDir(), "served")
	tool(t, "objcopy", "--only-keep-debug", path, debug)
	tool(t, "strip", path)
	bin := t.TempDir()
	client := "#!/bin/sh\n[ \"$1 $DEBUGINFOD_URLS\" = 'debuginfo http://localhost:1/' ] && echo " + debug + "\n"
	if err := os.WriteFile(filepath.Join(bin, "debuginfod-find"), []byte(client), 0o755); err != nil {
		t.Fatal(err)
	}
	list := func(env ...string) outcome {
		cmd := sondeCommand(t, "list", "functions", path, "l3")
		cmd.Env = append(append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"), "DEBUGINFOD_URLS="), env...)
		return finish(t, cmd, "")
	}
	if o := list("DEBUGINFOD_URLS=http://localhost:1/"); o.code != 0 || o.stdout != path+":l3\n" {
		t.Errorf("status %d, %q, %q", o.code, o.stdout, o.stderr)
	}
	if o := list(); o.code == 0 || !strings.Contains(o.stderr, "no symbols") {
		t.Errorf("without servers: status %d, %q, %q", o.code, o.stdout, o.stderr)
	}
}

// TestReplacedProgram: a probe on a running program is put into the file that runs, not the one that has its name now.
func TestReplacedProgram(t *testing.T) {
	path := compileC(t, "w", "#include <stdio.h>\n#include <unistd.h>\n__attribute__((noinline, noipa)) int here(int x) { return x; }\n"+
		"int main(void) { puts(\"ready\"); fflush(stdout); char c; while (read(0, &c, 1) == 1) here(c); return 0; }\n", "-O1")
	other := compileC(t, "o", chain)
	cmd := exec.Command(path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, filepath.Base(path)} {
		o := finish(t, sondeCommand(t, "explain", "-p", strconv.Itoa(cmd.Process.Pid), name+":here"), "")
		if o.code != 0 || !strings.Contains(o.stdout, "/map_files/") {
			t.Errorf("%s: status %d, %q, %q", name, o.code, o.stdout, o.stderr)
		}
	}
}

const generated = `
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
__attribute__((noinline)) static long work(void) { return syscall(SYS_getppid) + 1; }
int main(void) {
#ifdef __x86_64__ /* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
	static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
#else /* stp x29, x30, [sp, -16]!; mov x29, sp; blr x0; ldp x29, x30, [sp], 16; ret */
	static const unsigned code[] = {0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};
#endif
	char *p = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(p, code, sizeof code);
	__builtin___clear_cache(p, p + sizeof code);
	char name[64];
	sprintf(name, "/tmp/perf-%d.map", getpid());
	FILE *f = fopen(name, "w");
	fprintf(f, "%lx %zx made::at_run_time\n", (long)p, sizeof code);
	fclose(f);
	long n = ((long (*)(long (*)(void)))p)(work);
	puts(name);
	return n == 0;
}
`

// TestGeneratedCode: a frame of code that a compiler made at run time has the name that it left in a map.
func TestGeneratedCode(t *testing.T) {
	path := compileC(t, "gen", generated, "-O1", "-fno-omit-frame-pointer")
	o := trace(t, "", "-k", "-e", "getppid", "--", path)
	text := strings.Join(o.trace, "\n")
	os.Remove(strings.TrimSpace(o.stdout))
	_, after, ok := strings.Cut(text, "(work+")
	if _, main, found := strings.Cut(after, "[jit](made::at_run_time+0x"); !ok || !found || !strings.Contains(main, "(main+") {
		t.Errorf("work, the code of the compiler and main in this order: %s\n%s", text, o.stderr)
	}
}

// TestInlinedFunction: a function without code of its own is watched at its copies.
func TestInlinedFunction(t *testing.T) {
	path := compileC(t, "inl", "static inline __attribute__((always_inline)) int twice(int x) {\n\tasm volatile(\"nop\");\n\treturn 2 * x;\n}\n"+
		"__attribute__((noinline, noipa)) int a(int x) {\n\treturn twice(x) + 1;\n}\n__attribute__((noinline, noipa)) int b(int x) {\n\tif (x == 1)\n\t\treturn twice(x);\n\treturn 0;\n}\n"+
		"int main(int c, char **v) { return a(c) + b(c) == 0; }\n", "-O1", "-g")
	o := trace(t, "", "-e", path+":twice", "--", path)
	if len(o.trace) != 3 || !strings.HasPrefix(o.trace[0], "inl:twice inlined at inl.c:6(") || !strings.HasPrefix(o.trace[1], "inl:twice inlined at inl.c:10(") || !strings.Contains(o.stderr, "its 2 copies") {
		t.Errorf("%q\n%s", o.trace, o.stderr)
	}
	for expr, want := range map[string]string{":twice -> int": "do not return", ":twice(x: int)": "write a place"} {
		if o := trace(t, "", "-e", path+expr, "--", path); o.code != 2 && o.code != 1 || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: status %d, %q", expr, o.code, o.stderr)
		}
	}
}
