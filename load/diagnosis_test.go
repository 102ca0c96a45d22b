package load

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/ldso"
)

func compile(t *testing.T, out, source string, args ...string) string {
	t.Helper()
	return compileWith(t, "gcc", out, source, args...)
}

func compileWith(t *testing.T, cc, out, source string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(cc); err != nil {
		t.Skipf("the compiler %s is not installed", cc)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, out+".c", source, 0o644)
	cmd := exec.Command(cc, append([]string{"-o", out, out + ".c"}, args...)...)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, b)
	}
	return out
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // the umask does not count
		t.Fatal(err)
	}
}

// outcome runs a command as the user of Diagnose would, and gives what execve returned and the status.
func outcome(t *testing.T, path string, argv, env []string) (syscall.Errno, int) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: env, Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}})
	if err != nil {
		return errnoOf(err), -1
	}
	var ws unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &ws, 0, nil); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, shellOf(ws)
}

func shellOf(ws unix.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

const nothing = "int main(void){return 0;}"

// TestDiagnose has a program for each cause. What is said of execve's error and of the status is held against the kernel.
func TestDiagnose(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	env := []string{"PATH=/usr/bin:/bin"}
	compile(t, "fine", nothing)
	compile(t, "static", nothing, "-static")
	compile(t, "nointerp", nothing, "-Wl,--dynamic-linker=/no/such/ld.so.1")
	compile(t, "muslinterp", nothing, "-Wl,--dynamic-linker=/lib/ld-musl-none.so.1")
	compile(t, "libgone.so", "int gone(void){return 0;}", "-shared", "-fPIC", "-Wl,-soname,libgone.so.7")
	compile(t, "needslib", "int gone(void);int main(void){return gone();}", "./libgone.so")
	compile(t, "libcut.so", "int cut(void){return 0;}", "-shared", "-fPIC", "-Wl,-soname,libcut.so")
	compile(t, "needscut", "int cut(void);int main(void){return cut();}", "./libcut.so", "-Wl,-rpath,$ORIGIN")
	compile(t, "libsym.so", "int sym(void){return 0;}", "-shared", "-fPIC", "-Wl,-soname,libsym.so")
	compile(t, "needssym", "int sym(void);int main(void){return sym();}", "./libsym.so", "-Wl,-rpath,$ORIGIN", "-Wl,-z,now")
	compile(t, "libsym.so", "int other(void){return 0;}", "-shared", "-fPIC", "-Wl,-soname,libsym.so")
	compile(t, "object", nothing, "-c")
	if err := os.Chmod("object", 0o755); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("fine")
	if err != nil {
		t.Fatal(err)
	}
	arm := append([]byte(nil), b...)
	arm[18] = 183 // e_machine: EM_AARCH64
	if ldso.MachineName(nativeHeader()) != "amd64 (x86-64)" {
		arm[18] = 62
	}
	write(t, "foreign", string(arm), 0o755)
	write(t, "cutprogram", string(b[:40]), 0o755)
	write(t, "libcut.so", "not a library, but long enough to have a header of an ELF file in it, which it has not", 0o755)
	write(t, "crlf", "#!/bin/sh\r\nexit 0\r\n", 0o755)
	write(t, "crlfarg", "#!/bin/sh -e\r\nexit 0\r\n", 0o755)
	write(t, "crlfenv", "#!/usr/bin/env sh\r\nexit 0\r\n", 0o755)
	write(t, "absent", "#!/no/such/interp -x\n", 0o755)
	write(t, "viascript", "#!./absent\n", 0o755)
	write(t, "deep0", "#!./deep1\n", 0o755)
	write(t, "deep1", "#!./deep0\n", 0o755)
	write(t, "env", "#!/usr/bin/env no-such-program\n", 0o755)
	write(t, "envtwo", "#!/usr/bin/env sh -e\n", 0o755)
	write(t, "bang", "#!  \n", 0o755)
	write(t, "long", "#!/"+strings.Repeat("x", 300)+"\n", 0o755)
	write(t, "text", "echo hi\n", 0o755)
	write(t, "bom", "\xef\xbb\xbf#!/bin/sh\n", 0o755)
	write(t, "windows", "MZ\x90\x00\x03", 0o755)
	write(t, "empty", "", 0o755)
	write(t, "mode", "#!/bin/sh\n", 0o644)
	write(t, "script", "#!/bin/sh\nexit 0\n", 0o755)
	for _, l := range [][2]string{{"nowhere", "dangling"}, {"loop", "loop"}} {
		if err := os.Symlink(l[0], l[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo("fifo", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, cause string
		says        []string
	}{
		{"fine", "", nil}, {"static", "", nil}, {"script", "", nil},
		{"nointerp", "linker-missing", []string{"/no/such/ld.so.1", "does not exist"}},
		{"muslinterp", "linker-missing", []string{"musl C library"}},
		{"crlf", "carriage-return", []string{`"/bin/sh\r"`, "sed -i"}},
		{"crlfarg", "carriage-return", []string{`"-e\r"`}},
		{"crlfenv", "carriage-return", []string{`"sh\r"`}},
		{"absent", "script-interpreter-no-such-file", []string{"/no/such/interp", "./absent"}},
		{"viascript", "script-interpreter-no-such-file", []string{"/no/such/interp", "./absent"}},
		{"deep0", "too-many-interpreters", nil},
		{"env", "env-not-found", []string{"no-such-program"}},
		{"envtwo", "env-one-argument", []string{"sh -e", "-S"}},
		{"bang", "script-no-interpreter", nil}, {"long", "script-line-too-long", nil},
		{"text", "no-script-line", nil}, {"bom", "foreign-format", []string{"byte order mark"}}, {"windows", "foreign-format", []string{"Windows"}},
		{"empty", "empty", nil}, {"mode", "not-executable", []string{"chmod +x"}}, {"object", "object-file", nil},
		{"foreign", "wrong-architecture", []string{"is for"}}, {"cutprogram", "damaged", nil},
		{"none", "no-such-file", nil}, {"no/such/file", "no-such-file", []string{"no directory"}}, {"fine/x", "not-a-directory", nil},
		{"dangling", "no-such-file", []string{"nowhere"}}, {"loop", "link-loop", nil}, {".", "directory", nil}, {"fifo", "not-regular", []string{"pipe"}},
		{"needslib", "library-missing", []string{"libgone.so.7", "./needslib"}}, {"needscut", "library-damaged", []string{"libcut.so", "invalid ELF header"}},
		{"needssym", "symbol-missing", []string{"sym", "./needssym"}},
	} {
		path := "./" + tc.name
		argv := []string{path}
		d := Diagnose(path, argv, env)
		errno, status := outcome(t, path, argv, env)
		if d == nil {
			if tc.cause != "" || errno != 0 || status != 0 {
				t.Errorf("%s: nothing found; execve says %v, the status is %d", tc.name, errno, status)
			}
			continue
		}
		text := d.Text + " " + d.Remedy
		if d.Cause != tc.cause {
			t.Errorf("%s: cause %s, want %s (%s)", tc.name, d.Cause, tc.cause, text)
		}
		if d.Errno != errno {
			t.Errorf("%s: says %v, execve says %v", tc.name, d.Errno, errno)
		}
		if errno == 0 && d.Status != status && tc.name != "crlfarg" {
			t.Errorf("%s: says status %d, it ends with %d", tc.name, d.Status, status)
		}
		for _, s := range tc.says {
			if !strings.Contains(text, s) {
				t.Errorf("%s: %q is missing in: %s", tc.name, s, text)
			}
		}
		if d.Remedy == "" || strings.ContainsAny(text, "\r\n\x1b") {
			t.Errorf("%s: remedy %q, text %q", tc.name, d.Remedy, d.Text)
		}
		if errno != 0 {
			if r := Refused(path, argv, env, errno); r.Cause != d.Cause {
				t.Errorf("%s: once refused it is %s", tc.name, r.Cause)
			}
		} else if e := Ended(path, argv, env, unix.WaitStatus(status<<8), StageUnknown); e == nil || e.Cause != d.Cause {
			t.Errorf("%s: once ended it is %+v", tc.name, e)
		}
	}
}

// TestSearchReport is H22: each place and its rule, and why the right one does not count.
func TestSearchReport(t *testing.T) {
	dir := t.TempDir()
	compile(t, dir+"/b/libval.so.1", "int val(void){return 10;}", "-shared", "-fPIC", "-Wl,-soname,libval.so.1")
	compile(t, dir+"/a/libmid.so", "int val(void);int mid(void){return val();}", "-shared", "-fPIC", dir+"/b/libval.so.1", "-Wl,-soname,libmid.so")
	exe := compile(t, dir+"/exe", "int mid(void);int main(void){return mid();}", "-L"+dir+"/a", "-lmid", "-Wl,--allow-shlib-undefined", "-Wl,-rpath,"+dir+"/a:"+dir+"/b", "-Wl,--enable-new-dtags")
	d := Diagnose(exe, []string{exe}, []string{"LD_LIBRARY_PATH=" + dir + "/c"})
	if d == nil || d.Cause != "library-missing" || d.Library != "libval.so.1" || d.NeededBy != dir+"/a/libmid.so" || d.Status != 127 {
		t.Fatalf("%+v", d)
	}
	if !strings.Contains(d.Text, "RUNPATH") || !strings.Contains(d.Remedy, dir+"/b") {
		t.Errorf("%s; %s", d.Text, d.Remedy)
	}
	rules := map[ldso.Rule]bool{}
	for _, try := range d.Tries {
		rules[try.Rule] = true
		if try.Reason == "" || try.Found {
			t.Errorf("%+v", try)
		}
	}
	if !rules[ldso.RuleLibraryPath] || !rules[ldso.RuleCache] || !rules[ldso.RuleSystem] || rules[ldso.RuleRunPath] {
		t.Errorf("rules %v", rules)
	}
}

// TestRefused: causes that only the kernel can know.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	exe := compile(t, dir+"/busy", nothing)
	f, err := os.OpenFile(exe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if errno, _ := outcome(t, exe, []string{exe}, nil); errno != syscall.ETXTBSY {
		t.Skipf("this kernel executes files that are open for writing: %v", errno)
	}
	if d := Refused(exe, []string{exe}, nil, syscall.ETXTBSY); d.Cause != "text-busy" || d.Status != 126 {
		t.Errorf("%+v", d)
	}
	for _, argv := range [][]string{{exe, strings.Repeat("x", 200<<10)}, append([]string{exe}, strings.Split(strings.Repeat("y ", 2<<20), " ")...)} {
		errno, _ := outcome(t, "/bin/true", argv, nil)
		if d := Diagnose("/bin/true", argv, nil); d == nil || d.Errno != errno || errno != syscall.E2BIG {
			t.Errorf("%d arguments: execve says %v, the model %+v", len(argv), errno, d)
		}
	}
}

func TestKilled(t *testing.T) {
	for sig, want := range map[unix.Signal]string{unix.SIGSYS: "seccomp", unix.SIGILL: "killed", unix.SIGSEGV: "killed"} {
		d := Ended("/bin/true", nil, nil, unix.WaitStatus(sig), StageLinker)
		if d == nil || d.Cause != want || d.Status != 128+int(sig) || !strings.Contains(d.Text, "dynamic linker") {
			t.Errorf("%v: %+v", sig, d)
		}
	}
	if d := Ended("/bin/true", []string{"true"}, nil, 1<<8, StageUnknown); d != nil {
		t.Errorf("status 1 is the program's own matter: %+v", d)
	}
}

func TestMisc(t *testing.T) {
	const magic = "enabled\ninterpreter /usr/bin/qemu\nflags: OCF\noffset 1\nmagic 454c46\nmask ffffdf\n"
	const ext = "enabled\ninterpreter /usr/bin/wine\nflags: \nextension .exe\n"
	for _, tc := range []struct{ entry, path, head, want string }{
		{magic, "x", "\x7fELF", "/usr/bin/qemu"}, {magic, "x", "\x7fELf", "/usr/bin/qemu"}, {magic, "x", "\x7fE", ""}, {magic, "x", "#!/bin/sh", ""},
		{ext, "a.exe", "MZ", "/usr/bin/wine"}, {ext, "a", "MZ", ""}, {strings.Replace(ext, "enabled", "disabled", 1), "a.exe", "MZ", ""},
		{"enabled\noffset -5\nmagic 00\n", "x", "abc", ""}, {"", "x", "abc", ""},
	} {
		if got := matchMisc(tc.entry, tc.path, []byte(tc.head)); got != tc.want {
			t.Errorf("%q for %q %q: %q", tc.entry, tc.path, tc.head, got)
		}
	}
}

func FuzzScriptLine(f *testing.F) {
	f.Add([]byte("#!/bin/sh -e\n"))
	f.Add([]byte("#!\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = append([]byte("#!"), b...)
		interp, arg, d := scriptLine("x", b[:min(len(b), headSize)])
		if (interp == "") != (d != nil) || strings.ContainsAny(interp, " \t\n\x00") || strings.Contains(arg, "\n") {
			t.Errorf("%q: %q %q %+v", b, interp, arg, d)
		}
	})
}
