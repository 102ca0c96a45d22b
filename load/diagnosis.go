// Package load says what happens between execve and main, and why a program does not get there.
//
// Its static half, Diagnose and Explain, reads files and needs no privileges; package ldso is its model of the dynamic linker. It
// repairs nothing and changes nothing.
package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/ldcache"
	"github.com/sonde-trace/sonde/internal/ldso"
)

// Diagnosis is why a program does not start.
type Diagnosis struct {
	Cause   string        `json:"cause"`  // a name that stays the same: "linker-missing", "library-missing", …
	Text    string        `json:"text"`   // one sentence without a full stop
	Remedy  string        `json:"remedy"` // what to do
	Errno   syscall.Errno `json:"-"`      // what execve returns; 0 when execve succeeds
	Error   string        `json:"errno,omitempty"`
	Status  int           `json:"status"`            // as a shell gives it: 127, 126, 128 + a signal
	Started bool          `json:"started,omitempty"` // execve succeeds, and the program ends before its own code or soon after
	Chain   []Step        `json:"chain,omitempty"`
	// Tries are the places in which a library was looked for, in order, when one is missing; Library is its name and NeededBy the file
	// that asks for it.
	Library  string     `json:"library,omitempty"`
	NeededBy string     `json:"needed_by,omitempty"`
	Tries    []ldso.Try `json:"tries,omitempty"`
}

func (d *Diagnosis) finish(chain []Step) *Diagnosis {
	if d.Chain = chain; d.Status == 0 {
		d.Status = shellStatus(d.Errno)
	}
	if d.Errno != 0 {
		d.Error = unix.ErrnoName(d.Errno)
	}
	return d
}

// shellStatus is what a shell gives for an execve that failed, and for what the dynamic linker gives up.
func shellStatus(e syscall.Errno) int {
	if e == 0 || e == syscall.ENOENT {
		return 127
	}
	return 126
}

// quote makes a name safe and visible: with quotes and escapes when it has anything but plain characters.
func quote(s string) string {
	plain := s != "" && strings.IndexFunc(s, func(r rune) bool {
		return r <= ' ' || r == '\'' || r == '"' || r == '\\' || r == '$' || r == '`' || r >= 0x7f && !strconv.IsPrint(r) || r == 0xfffd
	}) < 0
	if plain {
		return s
	}
	return strconv.Quote(s)
}

// Find finds a command as execvp(3) does: by its path, or along PATH.
func Find(name string, env []string) (string, *Diagnosis) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	if name == "" {
		return "", (&Diagnosis{Cause: "not-found", Errno: syscall.ENOENT, Text: "the name of the command is empty", Remedy: "give the name of a program"}).finish(nil)
	}
	path := "/bin:/usr/bin"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
			break
		}
	}
	var refused *Diagnosis
	dirs := filepath.SplitList(path)
	for _, dir := range dirs {
		file := filepath.Join(dir, name)
		if dir == "" || dir == "." {
			file = "./" + name
		}
		st, err := os.Stat(file)
		if err != nil || st.IsDir() {
			continue
		}
		d := reachable(file, "the file")
		if d == nil {
			return file, nil
		}
		if refused == nil {
			refused = d
		}
	}
	if refused != nil {
		return "", refused.finish(nil)
	}
	d := &Diagnosis{Cause: "not-found", Errno: syscall.ENOENT, Text: fmt.Sprintf("%s is not found in any of the %d directories of PATH", quote(name), len(dirs)), Remedy: "install it, add its directory to PATH, or give its path"}
	if st, err := os.Stat("./" + name); err == nil && !st.IsDir() {
		d.Remedy = "there is one in the working directory: " + quote("./"+name)
	}
	return "", d.finish(nil)
}

// Diagnose looks for what will stop the command, without running it; nil when nothing is found. path is as Find gives it.
func Diagnose(path string, argv, env []string) *Diagnosis {
	chain, program, d := follow(path, env)
	if d != nil {
		return d.finish(chain)
	}
	if d := tooBig(path, argv, env); d != nil {
		return d.finish(chain)
	}
	c, err := ldso.Resolve(program, env)
	if errors.Is(err, ldso.ErrStatic) {
		return nil
	} else if err != nil {
		return (&Diagnosis{Cause: "damaged", Text: err.Error(), Remedy: "build or download it again"}).finish(chain)
	}
	defer c.Close()
	chain = append(chain, Step{c.Linker.Path, "dynamic linker", c.Linker.Libc})
	if d := libraries(c); d != nil {
		return d.finish(chain)
	}
	return nil
}

// libraries finds what the dynamic linker will miss.
func libraries(c *ldso.Closure) *Diagnosis {
	if n := c.Missing(); n != nil {
		d := &Diagnosis{Cause: "library-missing", Started: true, Status: 127, Library: n.Name, NeededBy: n.By.Path, Tries: n.Tries}
		d.Text = fmt.Sprintf("the library %s, which %s needs, is not found", quote(n.Name), quote(n.By.Path))
		if n.Fatal != "" {
			d.Cause = "library-damaged"
			d.Text = fmt.Sprintf("the library %s, which %s needs, cannot be loaded: %s", quote(n.Name), quote(n.By.Path), n.Fatal)
			d.Remedy = "install it again, or remove the file so that the search goes on"
			return d
		}
		d.Remedy = missingRemedy(c, n, d)
		return d
	}
	faults := c.Faults(50)
	if len(faults) == 0 || faults[0].Lazy {
		return nil
	}
	f := faults[0]
	d := &Diagnosis{Status: 127, Started: true, NeededBy: f.By.Path}
	if f.Symbol == "" {
		d.Cause, d.Library = "version-missing", f.In.Path
		d.Text = fmt.Sprintf("%s needs version %s of %s, and %s does not have it", quote(f.By.Path), quote(f.Version), quote(or(f.In.Soname, f.In.Path)), quote(f.In.Path))
		d.Remedy = "install a newer " + quote(or(f.In.Soname, f.In.Path)) + ", or build the program on this system"
		if strings.HasPrefix(f.Version, "GLIBC_") {
			d.Remedy = "the program is built for a newer C library: run it on a newer system or in a container, or build it here"
		}
		return d
	}
	name := f.Symbol
	if f.Version != "" {
		name += "@" + f.Version
	}
	d.Cause = "symbol-missing"
	d.Text = fmt.Sprintf("%s needs the symbol %s, and none of the %d files that are loaded defines it", quote(f.By.Path), quote(name), len(c.Objects))
	if n := len(faults) - 1; n > 0 {
		d.Text += fmt.Sprintf("; %d more are missing", n)
	}
	d.Remedy = "a library is another version than the one that it was linked with: install the matching one, or link it again"
	return d
}

// missingRemedy looks for the library elsewhere.
func missingRemedy(c *ldso.Closure, n *ldso.Need, d *Diagnosis) string {
	if strings.HasPrefix(n.Name, "libc.musl-") {
		return "it is built for the musl C library: get a build for glibc, or run it in a musl system"
	}
	for _, t := range n.Tries {
		if strings.HasPrefix(t.Reason, "for another") || strings.HasPrefix(t.Reason, "wrong ELF class") {
			d.Text += fmt.Sprintf("; %s is there, but %s", quote(t.Path), t.Reason)
			return "install the library for " + ldso.MachineName(c.Program.File.ELF.FileHeader)
		}
		if strings.HasPrefix(t.Reason, "no permission") {
			d.Text += fmt.Sprintf("; of %s there is %s", quote(t.Path), t.Reason)
			return "make it readable: chmod a+rX " + quote(t.Path)
		}
	}
	exists := func(p string) bool { st, err := os.Stat(p); return err == nil && !st.IsDir() }
	for _, other := range c.Objects {
		for _, dir := range other.RunPath() {
			if p := filepath.Join(dir, n.Name); other != n.By && exists(p) {
				d.Text += fmt.Sprintf("; %s has it in its RUNPATH (%s), which counts for its own needs only", quote(other.Path), quote(dir))
				return fmt.Sprintf("link %s with -Wl,--disable-new-dtags, or give %s a RUNPATH of its own, or set LD_LIBRARY_PATH=%s", quote(other.Path), quote(n.By.Path), quote(dir))
			}
		}
	}
	origin := filepath.Dir(c.Program.Path)
	if c.Secure && os.Getenv("LD_LIBRARY_PATH") != "" {
		d.Text += "; the program runs with raised privileges, so LD_LIBRARY_PATH does not count"
	}
	for _, dir := range []string{filepath.Dir(n.By.Path), origin, filepath.Join(origin, "lib"), filepath.Join(origin, "../lib"), filepath.Join(origin, "lib64"), ".", "/usr/local/lib", "/usr/local/lib64", "/opt/lib"} {
		if p := filepath.Join(dir, n.Name); exists(p) {
			if strings.HasPrefix(dir, "/usr/local/") {
				return fmt.Sprintf("%s is there, and not in the cache: run ldconfig, with %s in /etc/ld.so.conf", quote(p), dir)
			}
			abs, err := filepath.Abs(dir)
			if err != nil {
				abs = dir
			}
			return fmt.Sprintf("there is one in %s: set LD_LIBRARY_PATH=%s, or link with -Wl,-rpath,%s", quote(dir), quote(abs), quote(abs))
		}
	}
	if others := otherVersions(n.Name); len(others) > 0 {
		d.Text += "; this system has " + strings.Join(others, ", ")
		return "another version does not fit: install the package that has " + quote(n.Name) + ", or build the program for this system"
	}
	return "install the package that has " + quote(n.Name) + ", or add its directory to LD_LIBRARY_PATH"
}

// otherVersions are libraries in the cache that differ from name in the number after .so only.
func otherVersions(name string) (list []string) {
	base, _, ok := strings.Cut(name, ".so.")
	if !ok {
		return nil
	}
	cache, err := ldcache.Read("/etc/ld.so.cache")
	if err != nil {
		return nil
	}
	for i := range cache {
		if strings.HasPrefix(cache[i].Name, base+".so.") && !slices.Contains(list, cache[i].Name) && len(list) < 4 {
			list = append(list, cache[i].Name)
		}
	}
	return list
}

// Refused says why execve failed with errno.
func Refused(path string, argv, env []string, errno syscall.Errno) *Diagnosis {
	chain, _, d := follow(path, env)
	if errno == syscall.E2BIG {
		d = tooBig(path, argv, env)
	}
	if d != nil && d.Errno == errno {
		return d.finish(chain)
	}
	d = &Diagnosis{Cause: "refused", Errno: errno, Text: fmt.Sprintf("execve of %s fails: %v", quote(path), errno)}
	switch errno {
	case syscall.ETXTBSY:
		last := path
		if len(chain) > 0 {
			last = chain[len(chain)-1].Path
		}
		d.Cause, d.Text, d.Remedy = "text-busy", quote(last)+" is open for writing", "wait until it is written, and close it"
		if w := writers(last); len(w) > 0 {
			d.Text += " in process " + strings.Join(w, ", ")
			d.Remedy = "close it there: a file that is being written cannot be executed"
		}
	case syscall.EPERM:
		d.Remedy = "a security module, a file system mounted nosuid, or a tracer forbids it: look into the kernel's log"
	case syscall.EACCES:
		d.Remedy = "a security module (SELinux, AppArmor) may forbid it: look into its log"
	case syscall.EAGAIN:
		d.Text, d.Remedy = "the user has as many processes as RLIMIT_NPROC allows", "end some, or raise the limit: ulimit -u"
	case syscall.ENOMEM:
		d.Remedy = "free memory, or raise the limit of the address space: ulimit -v"
	case syscall.EMFILE, syscall.ENFILE:
		d.Remedy = "close descriptors, or raise the limit: ulimit -n"
	case syscall.ENOEXEC:
		d.Remedy = "the kernel lacks support for its format: for 32-bit programs CONFIG_IA32_EMULATION or CONFIG_COMPAT"
	case syscall.E2BIG:
		d.Remedy = "pass fewer or shorter arguments"
	case syscall.EINVAL:
		d.Remedy = "the program is damaged: build or download it again"
	default:
		d.Remedy = "see execve(2) about " + unix.ErrnoName(errno)
	}
	return d.finish(chain)
}

// Stage is how far a program came.
type Stage int

// Stages, as far as they were watched.
const (
	StageUnknown Stage = iota
	StageLinker        // in the dynamic linker, or the C library's start: not at the program's entry
	StageEntry         // at the program's entry, and not in main
	StageMain
)

func (s Stage) String() string {
	return [...]string{"", " in the dynamic linker, before the program's own code", " after the program's entry and before main", " after main had begun"}[s]
}

// Ended says why a command that was executed ended with this status; nil when that is not a matter of starting.
func Ended(path string, argv, env []string, ws unix.WaitStatus, stage Stage) *Diagnosis {
	if ws.Signaled() {
		return killed(path, ws.Signal(), stage)
	}
	if stage == StageMain && ws.ExitStatus() != 127 {
		return nil
	}
	d := Diagnose(path, argv, env)
	switch {
	case ws.ExitStatus() == 0:
		return nil
	case d != nil && d.Errno == 0 && (d.Status == ws.ExitStatus() || d.Cause == "carriage-return"):
		d.Status = ws.ExitStatus()
		return d
	case ws.ExitStatus() == 127:
		return (&Diagnosis{Cause: "exit-127", Status: 127, Started: true, Text: quote(path) + " starts, and ends with status 127: a command or a library that it looks for itself is missing", Remedy: "see its own message; sonde trace -f -e execve,openat shows what it looks for"}).finish(nil)
	}
	return nil
}

func killed(path string, sig syscall.Signal, stage Stage) *Diagnosis {
	d := &Diagnosis{Cause: "killed", Started: true, Status: 128 + int(sig)}
	d.Text = fmt.Sprintf("%s is killed by %s%s", quote(path), unix.SignalName(sig), stage)
	switch sig {
	case unix.SIGSYS:
		d.Cause = "seccomp"
		d.Text += ": a seccomp filter forbids a system call that it makes"
		d.Remedy = "allow the call: sonde trace shows the last one"
	case unix.SIGKILL:
		d.Remedy = "the kernel ran out of memory, a limit of the control group was reached, or somebody killed it: look into the kernel's log"
	case unix.SIGILL:
		d.Remedy = "it has an instruction that this processor lacks: get a build for an older processor"
	case unix.SIGBUS:
		d.Remedy = "a mapped file is shorter than it should be: install the program and its libraries again"
	case unix.SIGXCPU, unix.SIGXFSZ:
		d.Remedy = "raise the limit: ulimit -a shows them"
	default:
		d.Remedy = "sonde trace -k shows the stack at its last calls"
	}
	if _, _, bad := follow(path, nil); bad != nil && bad.Cause == "truncated" {
		d.Cause, d.Text, d.Remedy = "truncated", d.Text+": "+bad.Text, bad.Remedy
	}
	return d.finish(nil)
}
