package syscalls

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/internal/kerneltest"
)

var all = []*ABI{AMD64, I386, X32, ARM64, ARM}

func TestTablesAreGeneratedFromTheList(t *testing.T) {
	text, err := os.ReadFile("calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("// List: sha256 %x\n", sha256.Sum256(text))
	for _, f := range []string{"table_amd64_gen.go", "table_i386_gen.go", "table_x32_gen.go", "table_arm64_gen.go", "table_arm_gen.go", "params_gen.go"} {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(string(src), want) {
			t.Errorf("%s is not generated from calls.txt as it is: run go generate ./internal/syscalls", f)
		}
	}
}

func TestTables(t *testing.T) {
	for _, a := range all {
		seen := map[string]uint32{}
		n := 0
		for nr, d := range a.All() {
			n++
			if other, ok := seen[d.Name]; ok {
				t.Errorf("%s: %s is %d and %d", a.Name, d.Name, other, nr)
			}
			seen[d.Name] = nr
			if got := a.Lookup(nr); got != d {
				t.Errorf("%s: Lookup(%d) is not %s", a.Name, nr, d.Name)
			}
			if got, ok := a.ByName(d.Name); !ok || got != nr {
				t.Errorf("%s: ByName(%s) = %d, want %d", a.Name, d.Name, got, nr)
			}
			if len(d.Args) > 6 {
				t.Errorf("%s: %s takes %d arguments", a.Name, d.Name, len(d.Args))
			}
			for _, p := range d.Args {
				if p.Name == "" || p.Type == "" {
					t.Errorf("%s: %s has a parameter without name or type: %+v", a.Name, d.Name, d.Args)
				}
			}
		}
		if n < 320 {
			t.Errorf("%s: only %d calls", a.Name, n)
		}
		for _, nr := range []uint32{uint32(len(a.Defs)), 1 << 30, 1<<32 - 1, 0x40000000} {
			if d := a.Lookup(nr); d != nil {
				t.Errorf("%s: %#x is %s", a.Name, nr, d.Name)
			}
		}
	}
}

// A few numbers that everybody knows, and those that are easy to get wrong.
func TestKnownNumbers(t *testing.T) {
	for _, c := range []struct {
		a    *ABI
		nr   uint32
		name string
		args string
	}{
		{AMD64, 0, "read", "fd buf count"},
		{AMD64, 5, "fstat", "fd statbuf"},
		{AMD64, 17, "pread64", "fd buf count pos"},
		{AMD64, 40, "sendfile", "out_fd in_fd offset count"},
		{AMD64, 56, "clone", "clone_flags newsp parent_tidptr child_tidptr tls"},
		{AMD64, 63, "uname", "name"},
		{AMD64, 156, "_sysctl", "args"},
		{AMD64, 166, "umount2", "name flags"},
		{AMD64, 257, "openat", "dfd filename flags mode"},
		{AMD64, 262, "newfstatat", "dfd filename statbuf flag"},
		{AMD64, 335, "uretprobe", ""},
		{AMD64, 336, "uprobe", ""},
		{AMD64, 437, "openat2", "dfd filename how usize"},
		{AMD64, 470, "listns", "req ns_ids nr_ns_ids flags"},
		{I386, 4, "write", "fd buf count"},
		{I386, 18, "oldstat", "filename statbuf"},
		{I386, 90, "mmap", "arg"},
		{I386, 102, "socketcall", "call args"},
		{I386, 180, "pread64", "fd buf count pos_lo pos_hi"},
		{I386, 403, "clock_gettime64", "which_clock tp"},
		{X32, 13, "rt_sigaction#64", "sig act oact sigsetsize"},
		{X32, 512, "rt_sigaction", "sig act oact sigsetsize"},
		{ARM64, 56, "openat", "dfd filename flags mode"},
		{ARM64, 79, "newfstatat", "dfd filename statbuf flag"},
		{ARM64, 220, "clone", "clone_flags newsp parent_tidptr tls child_tidptr"},
		{ARM, 180, "pread64", "fd buf count pad pos_lo pos_hi"},
		{ARM, 270, "fadvise64_64", "fd advice offset_lo offset_hi len_lo len_hi"},
		{ARM, 0xf0005, "set_tls", "val"},
	} {
		d := c.a.Lookup(c.nr)
		if d == nil {
			t.Errorf("%s %d: no call, want %s", c.a.Name, c.nr, c.name)
			continue
		}
		var args []string
		for _, p := range d.Args {
			args = append(args, p.Name)
		}
		if d.Name != c.name || strings.Join(args, " ") != c.args {
			t.Errorf("%s %d: %s(%s), want %s(%s)", c.a.Name, c.nr, d.Name, strings.Join(args, " "), c.name, c.args)
		}
	}
}

// The numbers agree with the headers of this machine (they may lack the newest calls).
func TestNumbersAgainstThisMachinesHeaders(t *testing.T) {
	for _, c := range []struct {
		a      *ABI
		header string
		re     string
		rename map[string]string
	}{
		{AMD64, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", `^#define __NR_(\w+) (\d+)$`, nil},
		{I386, "/usr/include/x86_64-linux-gnu/asm/unistd_32.h", `^#define __NR_(\w+) (\d+)$`, nil},
		{X32, "/usr/include/x86_64-linux-gnu/asm/unistd_x32.h", `^#define __NR_(\w+) \(__X32_SYSCALL_BIT \+ (\d+)\)$`, nil},
		{ARM64, "/usr/include/asm-generic/unistd.h", `^#define __NR_(\w+) (\d+)$`,
			map[string]string{"sync_file_range2": "", "arch_specific_syscall": "", "syscalls": ""}}, // not arm64's
	} {
		f, err := os.Open(c.header)
		if err != nil {
			t.Logf("%s: %v", c.a.Name, err)
			continue
		}
		re := regexp.MustCompile(c.re)
		n := 0
		for s := bufio.NewScanner(f); s.Scan(); {
			m := re.FindStringSubmatch(s.Text())
			if m == nil {
				continue
			}
			name := m[1]
			if r, ok := c.rename[name]; ok {
				if name = r; name == "" {
					continue
				}
			}
			nr, _ := strconv.Atoi(m[2])
			if c.a == ARM64 && nr >= 403 && nr <= 423 && nr != 415 {
				continue // calls of 32-bit machines
			}
			n++
			d := c.a.Lookup(uint32(nr))
			if d == nil || d.Name != name {
				t.Errorf("%s: %d is %v here, %s in %s", c.a.Name, nr, d, name, c.header)
			}
		}
		f.Close()
		if n < 250 {
			t.Errorf("%s: only %d numbers in %s", c.a.Name, n, c.header)
		}
	}
}

// tracefs shows the prototypes that the running kernel was built with.
func TestPrototypesAgainstTracefs(t *testing.T) {
	kerneltest.Require(t, kerneltest.SyscallEvents)
	dir := kerneltest.TracefsDir(t) + "/events/syscalls"
	a := Family(runtime.GOARCH)[0]
	// The kernel's function is named otherwise than the call.
	function := map[string]string{"stat": "newstat", "lstat": "newlstat", "fstat": "newfstat", "uname": "newuname", "umount2": "umount",
		"sendfile": "sendfile64"}
	// The prototype is longer in newer kernels than in older ones, or depends on the machine.
	differs := map[string]bool{"clone": true, "bpf": true}
	checked := 0
	for _, d := range a.All() {
		fn := d.Name
		if f, ok := function[fn]; ok {
			fn = f
		}
		text, err := os.ReadFile(filepath.Join(dir, "sys_enter_"+fn, "format"))
		if err != nil || differs[d.Name] {
			continue
		}
		var names []string
		for _, m := range regexp.MustCompile(`field:[^;]*?(\w+);\toffset:(\d+);`).FindAllStringSubmatch(string(text), -1) {
			if off, _ := strconv.Atoi(m[2]); off >= 16 {
				names = append(names, m[1])
			}
		}
		checked++
		if len(names) != len(d.Args) {
			t.Errorf("%s: %d parameters, the kernel has %d: %v", d.Name, len(d.Args), len(names), names)
		}
	}
	if checked < 250 {
		t.Errorf("only %d prototypes could be checked", checked)
	}
}

func names(a *ABI, class string) []string {
	c, ok := ClassByName(class)
	if !ok {
		return nil
	}
	var out []string
	for _, d := range a.All() {
		if d.In(c) {
			out = append(out, d.Name)
		}
	}
	slices.Sort(out)
	return out
}

func TestClasses(t *testing.T) {
	for class, want := range map[string]string{
		"%stat":     "stat",
		"%lstat":    "lstat",
		"%fstat":    "fstat newfstatat statx",
		"%%stat":    "fstat lstat newfstatat stat statx",
		"%statfs":   "statfs",
		"%fstatfs":  "fstatfs",
		"%%statfs":  "fstatfs statfs ustat",
		"%clock":    "adjtimex clock_adjtime clock_getres clock_gettime clock_settime gettimeofday settimeofday time",
		"%creds":    "capget capset getegid geteuid getgid getgroups getresgid getresuid getuid prctl setfsgid setfsuid setgid setgroups setregid setresgid setresuid setreuid setuid",
		"%pure":     "getegid geteuid getgid getpgrp getpid getppid gettid getuid",
		"%ipc":      "msgctl msgget msgrcv msgsnd semctl semget semop semtimedop shmat shmctl shmdt shmget",
		"%net":      "accept accept4 bind connect getpeername getpmsg getsockname getsockopt listen putpmsg recvfrom recvmmsg recvmsg sendfile sendmmsg sendmsg sendto setsockopt shutdown socket socketpair",
		"%process":  "clone clone3 execve execveat exit exit_group fork kill pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo tgkill tkill vfork wait4 waitid",
		"network":   "",
		"%NoSuch":   "",
		"%signal":   "",
		"%file,all": "",
	} {
		got := names(AMD64, class)
		if want != "" && strings.Join(got, " ") != want {
			t.Errorf("%s:\n got %s\nwant %s", class, strings.Join(got, " "), want)
		}
	}
	if _, ok := ClassByName("%nosuch"); ok {
		t.Error("%nosuch is a class")
	}
	if n := len(names(AMD64, "all")); n != len(names(AMD64, "%all")) || n < 380 {
		t.Errorf("all: %d calls", n)
	}
	if got := (File | Desc | StatLike).Classes(); !reflect.DeepEqual(got, []string{"%file", "%desc", "%%stat"}) {
		t.Errorf("Classes: %v", got)
	}
}

// strace itself accepts every name and no call is in a class that it does not know. Which calls a class holds is asked
// call by call where strace is installed: a program that makes the call must be shown.
func TestStraceAcceptsEveryName(t *testing.T) {
	if testing.Short() {
		t.Skip("starts strace")
	}
	if _, err := exec.LookPath("strace"); err != nil || runtime.GOARCH != "amd64" {
		t.Skip("no strace for this machine")
	}
	var list []string
	for _, d := range AMD64.All() {
		list = append(list, "?"+d.Name)
	}
	if out, err := exec.Command("strace", "-o", "/dev/null", "-e", "trace="+strings.Join(list, ","), "true").CombinedOutput(); err != nil {
		t.Skipf("strace does not run here: %v: %s", err, out)
	}
	// Names that every strace of the last years knows.
	old := []string{"openat", "newfstatat", "pread64", "umount2", "_sysctl", "sendfile", "clone3", "faccessat2", "uname", "arch_prctl"}
	if out, err := exec.Command("strace", "-o", "/dev/null", "-e", "trace="+strings.Join(old, ","), "true").CombinedOutput(); err != nil {
		t.Errorf("strace refuses a name: %s", out)
	}
	for _, e := range classNames {
		if out, err := exec.Command("strace", "-o", "/dev/null", "-e", "trace="+e.name, "true").CombinedOutput(); err != nil {
			t.Errorf("strace refuses %s: %s", e.name, out)
		}
	}
}

func TestSuggest(t *testing.T) {
	for _, c := range []struct {
		a    *ABI
		name string
		want []string
	}{
		{AMD64, "opneat", []string{"openat"}},
		{AMD64, "pread", []string{"pread64"}},
		{AMD64, "raed", []string{"read"}},
		{AMD64, "fstatat", []string{"newfstatat"}},
		{AMD64, "%flie", []string{"%file"}},
		{AMD64, "xyzzyplugh", nil},
		{AMD64, "", nil},
		{AMD64, strings.Repeat("a", 10000), nil},
		{ARM64, "open", []string{"openat", "openat2"}},
	} {
		got := c.a.Suggest(c.name)
		if c.want == nil && len(got) > 0 {
			t.Errorf("%s: %v", c.name, got)
		}
		for _, w := range c.want {
			if !slices.Contains(got, w) {
				t.Errorf("%s: %v, want %s", c.name, got, w)
			}
		}
	}
}

func TestFamily(t *testing.T) {
	if f := Family("amd64"); len(f) != 3 || f[0] != AMD64 {
		t.Error("amd64")
	}
	if f := Family("arm64"); len(f) != 2 || f[0] != ARM64 {
		t.Error("arm64")
	}
	if Family("riscv64") != nil || ABIByName("x32") != X32 || ABIByName("vax") != nil {
		t.Error("unknown architectures")
	}
}
