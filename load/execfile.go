package load

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/ldso"
	"github.com/sonde-trace/sonde/internal/objfile"
)

// Step is one file of the chain that execve follows: a script, its interpreter, …, the program, and its dynamic linker.
type Step struct {
	Path string `json:"path"`
	Kind string `json:"kind"` // "script", "binfmt_misc", "program", "dynamic linker"
	Text string `json:"text,omitempty"`
}

const (
	headSize  = 256       // BINPRM_BUF_SIZE: what the kernel looks at to tell the format
	maxNested = 5         // interpreters of interpreters: fs/exec.c, exec_binprm
	argMax    = 32 * 4096 // MAX_ARG_STRLEN, one argument with its NUL
)

// reachable says why execve cannot take the file at path, as the kernel checks it; what is how to call the file.
func reachable(path, what string) *Diagnosis {
	shown := quote(path)
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		d := &Diagnosis{Cause: "no-such-file", Errno: syscall.ENOENT, Text: fmt.Sprintf("%s %s does not exist", what, shown), Remedy: "check the name; the working directory is " + quote(cwd())}
		if l, err := os.Readlink(path); err == nil {
			d.Text, d.Remedy = fmt.Sprintf("%s %s is a link to %s, which does not exist", what, shown, quote(l)), "make the link point to an existing file"
		} else if dir := missingDir(path); dir != "" {
			d.Text = fmt.Sprintf("%s %s does not exist: there is no directory %s", what, shown, quote(dir))
		}
		return d
	case errors.Is(err, os.ErrPermission):
		return &Diagnosis{Cause: "no-search-permission", Errno: syscall.EACCES, Text: fmt.Sprintf("%s %s is below a directory that you may not search", what, shown), Remedy: "get execute permission (chmod +x) on the directories above it: namei -l " + shown + " shows them"}
	case errors.Is(err, syscall.ENOTDIR):
		return &Diagnosis{Cause: "not-a-directory", Errno: syscall.ENOTDIR, Text: fmt.Sprintf("%s %s is below something that is not a directory", what, shown), Remedy: "check the name"}
	case errors.Is(err, syscall.ELOOP):
		return &Diagnosis{Cause: "link-loop", Errno: syscall.ELOOP, Text: fmt.Sprintf("%s %s leads through too many symbolic links", what, shown), Remedy: "remove the circle of links"}
	case err != nil:
		return &Diagnosis{Cause: "unreachable", Errno: errnoOf(err), Text: fmt.Sprintf("%s %s cannot be reached: %v", what, shown, errors.Unwrap(err)), Remedy: "check the name"}
	case st.IsDir():
		return &Diagnosis{Cause: "directory", Errno: syscall.EACCES, Text: fmt.Sprintf("%s %s is a directory", what, shown), Remedy: "name a program in it"}
	case !st.Mode().IsRegular():
		return &Diagnosis{Cause: "not-regular", Errno: syscall.EACCES, Text: fmt.Sprintf("%s %s is no regular file but %s", what, shown, fileKind(st.Mode())), Remedy: "name a program"}
	case st.Mode()&0o111 == 0:
		return &Diagnosis{Cause: "not-executable", Errno: syscall.EACCES, Text: fmt.Sprintf("%s %s has no execute permission: its mode is %v", what, shown, st.Mode()), Remedy: "chmod +x " + shown}
	}
	var fs unix.Statfs_t
	if unix.Statfs(path, &fs) == nil && fs.Flags&unix.ST_NOEXEC != 0 {
		return &Diagnosis{Cause: "noexec-mount", Errno: syscall.EACCES, Text: fmt.Sprintf("%s %s is on a file system that is mounted with noexec", what, shown), Remedy: "copy it to another file system, or mount -o remount,exec " + mountPoint(path)}
	}
	if unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS) != nil {
		return &Diagnosis{Cause: "not-executable", Errno: syscall.EACCES, Text: fmt.Sprintf("%s %s may not be executed by you: its mode is %v, its owner %s", what, shown, st.Mode(), owner(st)), Remedy: "get execute permission for your user or group"}
	}
	return nil
}

func fileKind(m os.FileMode) string {
	switch {
	case m&os.ModeNamedPipe != 0:
		return "a pipe"
	case m&os.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

func owner(st os.FileInfo) string {
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("user %d, group %d", s.Uid, s.Gid)
	}
	return "unknown"
}

func errnoOf(err error) syscall.Errno {
	var e syscall.Errno
	errors.As(err, &e)
	return e
}

func cwd() string {
	d, err := os.Getwd()
	if err != nil {
		return "(removed)"
	}
	return d
}

// missingDir is the first directory on the way to path that does not exist; "" when only the file is missing.
func missingDir(path string) string {
	missing := ""
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return missing
		}
		missing = dir
	}
}

// mountPoint is the directory on which the file system of path is mounted.
func mountPoint(path string) string {
	dev := func(p string) uint64 {
		var st unix.Stat_t
		if unix.Stat(p, &st) != nil {
			return 0
		}
		return st.Dev
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	}
	dir := filepath.Dir(abs)
	for dir != "/" && dev(filepath.Dir(dir)) == dev(dir) {
		dir = filepath.Dir(dir)
	}
	return dir
}

// follow walks the chain of files from path to the program that the kernel maps, and finds what stops execve on the way.
func follow(path string, env []string) (chain []Step, program string, d *Diagnosis) {
	what := "the file"
	for range maxNested + 1 {
		if d = reachable(path, what); d != nil {
			if len(chain) > 0 {
				last := chain[len(chain)-1]
				d.Cause = "script-interpreter-" + d.Cause
				d.Text = fmt.Sprintf("%s, which %s names in its first line", d.Text, quote(last.Path))
				if d.Errno == syscall.ENOENT {
					d.Text = fmt.Sprintf("the interpreter %s, which %s names in its first line, does not exist", quote(path), quote(last.Path))
					d.Remedy = fmt.Sprintf("install %s, or correct the first line of %s", quote(path), quote(last.Path))
				}
				if last.Kind == "binfmt_misc" {
					d.Cause = "binfmt-interpreter-missing"
					d.Text = fmt.Sprintf("the interpreter %s, which binfmt_misc has for %s, cannot be executed: %v", quote(path), quote(last.Path), d.Errno)
					d.Remedy = "install it, or remove its registration from /proc/sys/fs/binfmt_misc"
				}
				if clean := strings.TrimRight(path, "\r"); clean != path {
					d.Cause = "carriage-return"
					d.Text = fmt.Sprintf("the first line of %s ends in a carriage return, so its interpreter is %s, which does not exist", quote(last.Path), quote(path))
					d.Remedy = fmt.Sprintf("remove the carriage returns: sed -i 's/\\r$//' %s", quote(last.Path))
				}
			}
			return chain, "", d
		}
		head, err := readHead(path)
		if err != nil {
			return chain, "", &Diagnosis{Cause: "unreadable", Errno: syscall.EACCES, Text: fmt.Sprintf("%s %s cannot be read, so what it is cannot be told: %v", what, quote(path), err)}
		}
		if interp, name := miscFormat(path, head); interp != "" {
			chain = append(chain, Step{path, "binfmt_misc", name + ": " + interp})
			path, what = interp, "the interpreter"
			continue
		}
		switch {
		case len(head) == 0:
			return chain, "", &Diagnosis{Cause: "empty", Errno: syscall.ENOEXEC, Text: quote(path) + " is empty", Remedy: "build or download it again"}
		case bytes.HasPrefix(head, []byte("#!")):
			interp, arg, d := scriptLine(path, head)
			if d != nil {
				return chain, "", d
			}
			chain = append(chain, Step{path, "script", strings.TrimSpace(interp + " " + arg)})
			if d := envLine(path, interp, arg, env); d != nil {
				return chain, "", d
			}
			if strings.HasSuffix(arg, "\r") && reachable(interp, "") == nil {
				return chain, "", &Diagnosis{Cause: "carriage-return", Started: true, Text: fmt.Sprintf("the first line of %s ends in a carriage return, which becomes a part of the argument %s of %s", quote(path), quote(arg), quote(interp)),
					Remedy: fmt.Sprintf("remove the carriage returns: sed -i 's/\\r$//' %s", quote(path))}
			}
			path, what = interp, "the interpreter"
		case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
			d := checkELF(path)
			return append(chain, Step{path, "program", ""}), path, d
		default:
			return chain, "", notExecutable(path, head)
		}
	}
	return chain, "", &Diagnosis{Cause: "too-many-interpreters", Errno: syscall.ELOOP, Text: fmt.Sprintf("the interpreters of %s are scripts themselves, more than %d deep", quote(chain[0].Path), maxNested), Remedy: "name a program in the first line of the script"}
}

func readHead(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	defer f.Close()
	b := make([]byte, headSize)
	n, err := io.ReadFull(f, b)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	return b[:n], nil
}

// scriptLine takes a first line apart as fs/binfmt_script.c does.
func scriptLine(path string, head []byte) (interp, arg string, d *Diagnosis) {
	line := head[2:min(len(head), headSize-1)]
	whole := true
	if i := bytes.IndexByte(line, '\n'); i >= 0 {
		line = line[:i]
	} else {
		whole = len(head) < headSize
	}
	text := strings.Trim(string(line), " \t")
	if i := strings.IndexByte(text, 0); i >= 0 {
		text = text[:i]
	}
	i := strings.IndexAny(text, " \t")
	if !whole && i < 0 {
		return "", "", &Diagnosis{Cause: "script-line-too-long", Errno: syscall.ENOEXEC, Text: fmt.Sprintf("the first line of %s is longer than the %d bytes that the kernel reads, and the name of its interpreter does not end there", quote(path), headSize), Remedy: "shorten it, by a link with a short name, or use #!/usr/bin/env"}
	}
	if text == "" {
		return "", "", &Diagnosis{Cause: "script-no-interpreter", Errno: syscall.ENOEXEC, Text: fmt.Sprintf("the first line of %s is #! with no interpreter", quote(path)), Remedy: "name one: #!/bin/sh"}
	}
	if i < 0 {
		return text, "", nil
	}
	return text[:i], strings.TrimLeft(text[i:], " \t"), nil
}

// envLine looks through #!/usr/bin/env NAME, which is found along PATH when it runs. Such a script starts, and then ends with 127.
func envLine(path, interp, arg string, env []string) *Diagnosis {
	if filepath.Base(interp) != "env" || arg == "" || reachable(interp, "") != nil {
		return nil
	}
	name := arg
	if rest, ok := strings.CutPrefix(arg, "-S"); ok {
		name, _, _ = strings.Cut(strings.TrimLeft(rest, " \t"), " ")
	} else if strings.HasPrefix(arg, "-") {
		return nil
	} else if strings.ContainsAny(arg, " \t") {
		first, _, _ := strings.Cut(arg, " ")
		if !strings.Contains(first, "=") {
			return &Diagnosis{Cause: "env-one-argument", Started: true, Status: 127, Text: fmt.Sprintf("%s looks for one program with the name %s, as the kernel gives all that follows env in the first line of %s as one argument", quote(interp), quote(arg), quote(path)), Remedy: "write #!" + interp + " -S " + arg}
		}
		return nil
	}
	clean := strings.TrimRight(name, "\r")
	if clean == "" || strings.Contains(clean, "=") {
		return nil
	}
	if _, d := Find(name, env); d != nil {
		if clean != name {
			return &Diagnosis{Cause: "carriage-return", Started: true, Status: 127, Text: fmt.Sprintf("the first line of %s ends in a carriage return, so %s looks for a program with the name %s", quote(path), quote(interp), quote(name)), Remedy: fmt.Sprintf("remove the carriage returns: sed -i 's/\\r$//' %s", quote(path))}
		}
		return &Diagnosis{Cause: "env-not-found", Started: true, Status: 127, Text: fmt.Sprintf("%s, which the first line of %s asks %s for, is not found along PATH", quote(name), quote(path), quote(interp)), Remedy: fmt.Sprintf("install %s, or add its directory to PATH", quote(name))}
	}
	return nil
}

// foreign are formats of other systems, and files that people take for programs.
var foreign = []struct{ magic, text, remedy string }{
	{"MZ", "is a program for Windows or DOS", "get the version for Linux, or run it with wine"},
	{"\xcf\xfa\xed\xfe", "is a program for macOS", "get the version for Linux"},
	{"\xce\xfa\xed\xfe", "is a program for macOS", "get the version for Linux"},
	{"\xca\xfe\xba\xbe", "is a Java class or a program for macOS", "run a class with java; for a program, get the version for Linux"},
	{"!<arch>", "is an archive of object files", "link it into a program"},
	{"PK\x03\x04", "is a zip or jar archive", "unpack it, or run a jar with java -jar"},
	{"\x1f\x8b", "is compressed (gzip)", "unpack it first"},
	{"\xfd7zXZ", "is compressed (xz)", "unpack it first"},
	{"BZh", "is compressed (bzip2)", "unpack it first"},
	{"\x28\xb5\x2f\xfd", "is compressed (zstd)", "unpack it first"},
	{"\x00asm", "is a WebAssembly module", "run it with a WebAssembly runtime"},
	{"\xef\xbb\xbf#!", "begins with a byte order mark, which hides its #! from the kernel", "remove the first three bytes: sed -i '1s/^\\xef\\xbb\\xbf//'"},
	{"version https://git-lfs", "is a pointer of Git LFS, not the file", "git lfs pull"},
	{"<!DOCTYPE", "is an HTML page: perhaps an error page that was downloaded instead", "download it again"},
	{"<html", "is an HTML page: perhaps an error page that was downloaded instead", "download it again"},
}

func notExecutable(path string, head []byte) *Diagnosis {
	d := &Diagnosis{Cause: "unknown-format", Errno: syscall.ENOEXEC, Text: quote(path) + " is in no format that this kernel can execute", Remedy: "build or download it again"}
	for _, f := range foreign {
		if bytes.HasPrefix(head, []byte(f.magic)) {
			d.Cause, d.Text, d.Remedy = "foreign-format", quote(path)+" "+f.text, f.remedy
			return d
		}
	}
	if bytes.IndexByte(head, 0) < 0 {
		d.Cause = "no-script-line"
		d.Text = quote(path) + " is a text without a #! line, which the kernel cannot execute; only a shell would take it for a script of its own"
		d.Remedy = "begin it with a line as #!/bin/sh"
	}
	return d
}

// checkELF finds what the kernel refuses in a program: fs/binfmt_elf.c, load_elf_binary.
func checkELF(path string) *Diagnosis {
	f, err := objfile.Open(path)
	if err != nil {
		return &Diagnosis{Cause: "damaged", Errno: syscall.ENOEXEC, Text: fmt.Sprintf("%s begins as an ELF file and is damaged: %v", quote(path), err), Remedy: "build or download it again"}
	}
	defer f.Close()
	h := f.ELF.FileHeader
	if !runsHere(h) {
		return &Diagnosis{Cause: "wrong-architecture", Errno: syscall.ENOEXEC, Text: fmt.Sprintf("%s is for %s, and this machine is %s", quote(path), ldso.MachineName(h), ldso.MachineName(nativeHeader())),
			Remedy: "get the version for " + ldso.MachineName(nativeHeader()) + ", or install qemu-user with its binfmt support"}
	}
	switch {
	case h.Type == elf.ET_REL:
		return &Diagnosis{Cause: "object-file", Errno: syscall.ENOEXEC, Text: quote(path) + " is an object file, which is not linked yet", Remedy: "link it: cc -o PROGRAM " + quote(path)}
	case h.Type == elf.ET_CORE:
		return &Diagnosis{Cause: "core-file", Errno: syscall.ENOEXEC, Text: quote(path) + " is a core file, the memory of a program that crashed", Remedy: "open it with a debugger: gdb PROGRAM " + quote(path)}
	case len(f.ELF.Progs) == 0:
		return &Diagnosis{Cause: "damaged", Errno: syscall.ENOEXEC, Text: quote(path) + " is an ELF file without segments", Remedy: "build or download it again"}
	}
	for _, p := range f.ELF.Progs {
		if p.Type == elf.PT_LOAD && p.Off+p.Filesz > uint64(f.Size) {
			return &Diagnosis{Cause: "truncated", Started: true, Text: fmt.Sprintf("%s is cut: a segment ends at byte %d, and the file has %d", quote(path), p.Off+p.Filesz, f.Size), Remedy: "build or download it again"}
		}
	}
	interp, err := ldso.Interp(f)
	if err != nil {
		return &Diagnosis{Cause: "damaged", Errno: syscall.ENOEXEC, Text: err.Error(), Remedy: "build or download it again"}
	}
	if interp == "" {
		return nil
	}
	if d := reachable(interp, "the dynamic linker"); d != nil {
		d.Cause = "linker-" + d.Cause
		d.Text = fmt.Sprintf("%s, which %s names as its interpreter", d.Text, quote(path))
		if d.Errno == syscall.ENOENT {
			d.Cause = "linker-missing"
			d.Text = fmt.Sprintf("the dynamic linker %s, which %s names as its interpreter, does not exist", quote(interp), quote(path))
			d.Remedy = linkerRemedy(path, interp, h)
		}
		return d
	}
	l, err := objfile.Open(interp)
	if err != nil {
		return &Diagnosis{Cause: "linker-damaged", Errno: syscall.ELIBBAD, Text: fmt.Sprintf("the dynamic linker %s of %s is no ELF file that can be read: %v", quote(interp), quote(path), err), Remedy: "install it again"}
	}
	defer l.Close()
	if l.ELF.Machine != h.Machine || l.ELF.Class != h.Class || l.ELF.Data != h.Data {
		return &Diagnosis{Cause: "linker-wrong-architecture", Errno: syscall.ELIBBAD, Text: fmt.Sprintf("the dynamic linker %s is for %s, and %s is for %s", quote(interp), ldso.MachineName(l.ELF.FileHeader), quote(path), ldso.MachineName(h)), Remedy: "install the C library for " + ldso.MachineName(h)}
	}
	return nil
}

// linkerRemedy knows the families of dynamic linkers.
func linkerRemedy(path, interp string, h elf.FileHeader) string {
	own := ""
	for _, p := range []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-linux.so.2", "/lib/ld-linux-armhf.so.3", "/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1"} {
		if f, err := objfile.Open(p); err == nil {
			if own == "" && f.ELF.Machine == h.Machine && f.ELF.Class == h.Class {
				own = p
			}
			f.Close()
		}
	}
	musl := strings.Contains(filepath.Base(interp), "musl")
	switch {
	case musl:
		return "it is built for the musl C library: install musl, or get a build for glibc"
	case strings.HasPrefix(interp, "/nix/") || strings.HasPrefix(interp, "/gnu/"):
		return fmt.Sprintf("it is built for another system's layout (Nix or Guix): patchelf --set-interpreter %s %s", or(own, "LINKER"), quote(path))
	case own == "" && h.Class == elf.ELFCLASS32:
		return "install the 32-bit C library (on Debian: dpkg --add-architecture i386, then libc6:i386)"
	case strings.Contains(own, "musl"):
		return "it is built for glibc, and this system has musl: install a glibc compatibility package (gcompat), or get a build for musl or a static one"
	case own != "":
		return fmt.Sprintf("link it again, or make it use this system's: patchelf --set-interpreter %s %s", own, quote(path))
	}
	return "install the C library that it is built for"
}

func or(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}

// runsHere reports whether the kernel can execute programs with this header.
func runsHere(h elf.FileHeader) bool {
	if h.Data != elf.ELFDATA2LSB {
		return false
	}
	switch native := ldso.Machine(); {
	case h.Machine == native:
		return h.Class == elf.ELFCLASS64 || native == elf.EM_X86_64
	case native == elf.EM_X86_64:
		return h.Machine == elf.EM_386
	case native == elf.EM_AARCH64:
		return h.Machine == elf.EM_ARM
	}
	return false
}

func nativeHeader() elf.FileHeader {
	return elf.FileHeader{Class: elf.ELFCLASS64, Data: elf.ELFDATA2LSB, Machine: ldso.Machine()}
}

// miscFormat finds the interpreter that binfmt_misc has for a file: Documentation/admin-guide/binfmt-misc.rst. It comes before all
// other formats.
func miscFormat(path string, head []byte) (interp, name string) {
	const dir = "/proc/sys/fs/binfmt_misc"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", "" // not mounted: nothing is registered
	}
	for _, e := range entries {
		if e.Name() == "register" || e.Name() == "status" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err == nil && matchMisc(string(b), path, head) != "" {
			return matchMisc(string(b), path, head), e.Name()
		}
	}
	return "", ""
}

// matchMisc is the interpreter of one registration when it is for this file.
func matchMisc(entry, path string, head []byte) string {
	field := make(map[string]string)
	for line := range strings.Lines(entry) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		field[key] = value
	}
	if _, on := field["enabled"]; !on {
		return ""
	}
	if ext, ok := field["extension"]; ok {
		if strings.HasSuffix(path, ext) && strings.HasPrefix(ext, ".") {
			return field["interpreter"]
		}
		return ""
	}
	magic, err1 := hex.DecodeString(field["magic"])
	mask, err2 := hex.DecodeString(field["mask"])
	off, err3 := strconv.Atoi(field["offset"])
	if err1 != nil || err2 != nil || err3 != nil || len(magic) == 0 || off < 0 || off+len(magic) > len(head) {
		return ""
	}
	for i, m := range magic {
		b := head[off+i]
		if i < len(mask) {
			b, m = b&mask[i], m&mask[i]
		}
		if b != m {
			return ""
		}
	}
	return field["interpreter"]
}

// tooBig computes whether arguments and environment fit: fs/exec.c, bprm_stack_limits and copy_strings.
func tooBig(path string, argv, env []string) *Diagnosis {
	total := 0
	for _, list := range [][]string{argv, env} {
		for i, s := range list {
			if len(s)+1 > argMax {
				return &Diagnosis{Cause: "argument-too-long", Errno: syscall.E2BIG, Text: fmt.Sprintf("one string of the arguments or the environment (number %d, beginning %s) has %d bytes, and the kernel takes at most %d", i, quote(s[:20]), len(s), argMax-1), Remedy: "pass it in a file or by standard input"}
			}
			total += len(s) + 1 + 8
		}
	}
	total += len(path) + 1
	limit := 6 << 20 // three quarters of _STK_LIM
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_STACK, &r) == nil && r.Cur/4 < uint64(limit) {
		limit = int(r.Cur / 4)
	}
	limit = max(limit, 128<<10)
	if total > limit {
		return &Diagnosis{Cause: "arguments-too-long", Errno: syscall.E2BIG, Text: fmt.Sprintf("arguments and environment take %d bytes, and the limit is %d, a quarter of the stack limit", total, limit), Remedy: "pass fewer (xargs), or raise the limit of the stack: ulimit -s"}
	}
	return nil
}

// writers are the processes that have a file open for writing, which makes execve fail with ETXTBSY.
func writers(path string) (list []string) {
	want, err := os.Stat(path)
	if err != nil {
		return nil
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is valid
	for _, fd := range fds {
		st, err := os.Stat(fd)
		if err != nil || !os.SameFile(st, want) || strings.HasPrefix(fd, fmt.Sprintf("/proc/%d/", os.Getpid())) {
			continue
		}
		info, err := os.ReadFile(strings.Replace(fd, "/fd/", "/fdinfo/", 1))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(info)) {
			v, ok := strings.CutPrefix(line, "flags:")
			if flags, err := strconv.ParseUint(strings.TrimSpace(v), 8, 64); ok && err == nil && flags&unix.O_ACCMODE != unix.O_RDONLY {
				pid := strings.Split(fd, "/")[2]
				comm, _ := os.ReadFile("/proc/" + pid + "/comm") // a process that has gone has no name
				list = append(list, fmt.Sprintf("%s (%s)", pid, strings.TrimSpace(string(comm))))
			}
		}
	}
	return list
}
