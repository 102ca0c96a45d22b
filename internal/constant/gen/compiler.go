package main

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// abi is how to ask a compiler about the constants of one ABI of package syscalls. x32 has amd64's.
type abi struct {
	name   string
	cc     []string
	triple string // directory of asm/ in a linux-libc-dev that holds all architectures
	ptr32  bool
}

// There is no 32-bit arm compiler among Debian's few, and none is needed: sizes and alignment are those of
// -malign-double on i386, and the rest is in arm's own headers.
var abis = []abi{
	{"amd64", []string{"gcc"}, "x86_64-linux-gnu", false},
	{"arm64", []string{"aarch64-linux-gnu-gcc"}, "aarch64-linux-gnu", false},
	{"i386", []string{"gcc", "-m32"}, "i386-linux-gnu", true},
	{"arm", []string{"gcc", "-m32", "-malign-double", "-U__i386__", "-Ui386", "-D__arm__", "-D__ARMEL__", "-D__ARM_EABI__"}, "arm-linux-gnueabihf", true},
}

type compiler struct {
	tmp    string
	dirs   map[string][]string // include directories by ABI
	origin string

	cache  map[string]*names            // by ABI and header list
	values map[string]map[string]answer // the same, then by expression
}

type answer struct {
	num uint64
	ok  bool
}

// names are the macros and enumerators of some headers, in their order.
type names struct {
	order []string
	has   map[string]bool
	needy bool // does not compile without before
	err   error
}

func newCompiler(uapi, tmp string) (*compiler, error) {
	c := &compiler{tmp: tmp, dirs: make(map[string][]string), cache: make(map[string]*names), values: make(map[string]map[string]answer)}
	for _, a := range abis {
		if _, err := exec.LookPath(a.cc[0]); err != nil {
			return nil, fmt.Errorf("%s: needed for the constants of %s: %w", a.cc[0], a.name, err)
		}
		if uapi != "" {
			asm := filepath.Join(uapi, "usr/include", a.triple)
			if a.name == "i386" {
				asm = filepath.Join(uapi, "usr/include/x86_64-linux-gnu")
			}
			if _, err := os.Stat(filepath.Join(asm, "asm/unistd.h")); err != nil {
				return nil, fmt.Errorf("the headers of %s: %w (a linux-libc-dev of Debian 13 or later holds all architectures)", a.name, err)
			}
			c.dirs[a.name] = append(c.dirs[a.name], asm, filepath.Join(uapi, "usr/include"))
		}
		if a.cc[0] == "gcc" && len(a.cc) > 1 {
			// glibc's headers of the 32-bit ABI are not installed by default; all that is missing is a list of stubs.
			libc := "/usr/include/x86_64-linux-gnu"
			if a.name == "arm" {
				libc = "/usr/aarch64-linux-gnu/include" // the same numbers
			}
			c.dirs[a.name] = append(c.dirs[a.name], filepath.Join(tmp, "stubs"), libc)
		}
	}
	if err := os.MkdirAll(filepath.Join(tmp, "stubs/gnu"), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(tmp, "stubs/gnu/stubs-32.h"), nil, 0o644); err != nil {
		return nil, err
	}
	kernel, err := packageVersion(uapi)
	if err != nil {
		return nil, err
	}
	out, err := exec.Command("ldd", "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("version of the C library: %w", err)
	}
	f := strings.Fields(strings.SplitN(string(out), "\n", 2)[0])
	c.origin = "UAPI headers of " + kernel + ", C library headers of glibc " + f[len(f)-1]
	return c, nil
}

// packageVersion names the version of an unpacked linux-libc-dev.
func packageVersion(uapi string) (string, error) {
	f, err := os.Open(filepath.Join(uapi, "/usr/share/doc/linux-libc-dev/changelog.Debian.gz"))
	if err != nil {
		return "", err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return "", err
	}
	head, err := io.ReadAll(io.LimitReader(z, 200))
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(`^\S+ \(([^)]+)\)`).FindSubmatch(head)
	if m == nil {
		return "", fmt.Errorf("%s: no version in the first line", f.Name())
	}
	return "linux-libc-dev " + string(m[1]), nil
}

func (c *compiler) run(a abi, src string, args ...string) (stdout, stderr string, err error) {
	list := append(append([]string(nil), a.cc[1:]...), "-D_GNU_SOURCE", "-w", "-std=gnu11", "-fmax-errors=0", "-x", "c")
	for _, d := range c.dirs[a.name] {
		list = append(list, "-isystem", d)
	}
	list = append(list, args...)
	cmd := exec.Command(a.cc[0], append(list, "-")...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdin = strings.NewReader(src)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err = cmd.Run()
	return o.String(), e.String(), err
}

// before are headers that some of the kernel's forget to include.
const before = "#include <stdint.h>\n#include <stdbool.h>\n#include <sys/types.h>\n#include <sys/time.h>\n#include <sys/socket.h>\n"

// include gives the C text that includes the headers, after those that they need.
func (c *compiler) include(a abi, headers []string) string {
	text := include(headers)
	if n := c.cache[key(a, headers)]; n != nil && n.needy {
		text = before + text
	}
	return text
}

func key(a abi, headers []string) string { return a.name + " " + strings.Join(headers, " ") }

func include(headers []string) string {
	var b strings.Builder
	b.WriteString("#include <stddef.h>\n#include <linux/types.h>\n")
	for _, h := range headers {
		if p, ok := partOf[h]; ok {
			h = p
		}
		fmt.Fprintf(&b, "#include <%s>\n", h)
	}
	return b.String()
}

// partOf are headers of the C library that may only be included by another one.
var partOf = map[string]string{
	"bits/socket.h":         "sys/socket.h",
	"bits/socket_type.h":    "sys/socket.h",
	"bits/fcntl.h":          "fcntl.h",
	"bits/fcntl-linux.h":    "fcntl.h",
	"bits/mman.h":           "sys/mman.h",
	"bits/mman-linux.h":     "sys/mman.h",
	"bits/resource.h":       "sys/resource.h",
	"bits/sched.h":          "sched.h",
	"bits/ioctls.h":         "sys/ioctl.h",
	"bits/siginfo-consts.h": "signal.h",
	"bits/sigaction.h":      "signal.h",
	"bits/signum.h":         "signal.h",
	"bits/waitflags.h":      "sys/wait.h",
	"bits/in.h":             "netinet/in.h",
	"bits/poll.h":           "poll.h",
	"bits/time.h":           "time.h",
	"bits/epoll.h":          "sys/epoll.h",
}

// groups are the ways to include the headers of a set: one by one with the kernel's before the C library's (they often
// contradict each other, and the kernel's are newer), or all at once when one needs another.
func (c *compiler) groups(a abi, headers []string) ([][]string, error) {
	if len(headers) == 0 {
		return [][]string{nil}, nil
	}
	var kernel, libc [][]string
	var bad error
	for _, h := range headers {
		if n := c.names(a, []string{h}); n.err != nil {
			if len(headers) > 1 && a.ptr32 && c.names(abis[0], []string{h}).err == nil {
				continue // a header that 32-bit machines do not have: <linux/kvm.h> on arm
			}
			bad = n.err
			break
		}
		if c.isKernel(h) {
			kernel = append(kernel, []string{h})
		} else {
			libc = append(libc, []string{h})
		}
	}
	if bad == nil {
		return append(kernel, libc...), nil
	}
	if len(headers) > 1 && c.names(a, headers).err == nil {
		return [][]string{headers}, nil
	}
	return nil, bad
}

func (c *compiler) isKernel(header string) bool {
	dir, _, _ := strings.Cut(header, "/")
	switch dir {
	case "linux", "asm", "asm-generic", "sound", "mtd", "drm", "rdma", "scsi", "misc", "xen", "video", "cxl", "fwctl", "regulator":
		return true
	}
	return false
}

var (
	define   = regexp.MustCompile(`^#define ([A-Za-z_][A-Za-z0-9_]*)(\(?)`)
	enumBody = regexp.MustCompile(`\benum\b[^{};()]*\{([^}]*)\}`)
	enumName = regexp.MustCompile(`^\s*([A-Za-z_][A-Za-z0-9_]*)`)
	lineMark = regexp.MustCompile(`(?m)^#.*$`)
)

func (c *compiler) names(a abi, headers []string) *names {
	if n, ok := c.cache[key(a, headers)]; ok {
		return n
	}
	n := &names{}
	c.cache[key(a, headers)] = n
	src := include(headers)
	seen := make(map[string]bool)
	if _, stderr, err := c.run(a, src, "-fsyntax-only"); err != nil {
		src = before + src
		if _, _, err := c.run(a, src, "-fsyntax-only"); err != nil {
			n.err = fmt.Errorf("%s: <%s> does not compile: %s", a.name, strings.Join(headers, "> <"), firstError(stderr))
			return n
		}
		n.needy = true
		// What these bring in themselves is not what the list asks for.
		others := &compiler{tmp: c.tmp, dirs: c.dirs, cache: map[string]*names{}}
		for _, name := range others.names(a, []string{"stdint.h", "stdbool.h", "sys/types.h", "sys/time.h", "sys/socket.h"}).order {
			seen[name] = true
		}
	}
	out, stderr, err := c.run(a, src, "-E", "-dD")
	if err != nil {
		n.err = errors.New(stderr)
		return n
	}
	for _, line := range strings.Split(out, "\n") {
		if m := define.FindStringSubmatch(line); m != nil && m[2] == "" && !seen[m[1]] {
			seen[m[1]] = true
			n.order = append(n.order, m[1])
		}
	}
	n.has = seen
	for _, m := range enumBody.FindAllStringSubmatch(lineMark.ReplaceAllString(out, ""), -1) {
		depth, start := 0, 0
		body := m[1] + ","
		for i, ch := range body {
			switch ch {
			case '(':
				depth++
			case ')':
				depth--
			case ',':
				if depth > 0 {
					continue
				}
				if e := enumName.FindStringSubmatch(body[start:i]); e != nil && !seen[e[1]] {
					seen[e[1]] = true
					n.order = append(n.order, e[1])
				}
				start = i + 1
			}
		}
	}
	return n
}

func firstError(stderr string) string {
	for _, l := range strings.Split(stderr, "\n") {
		if strings.Contains(l, "error:") {
			return l
		}
	}
	return stderr
}

// question is one expression to evaluate; the answer is ok when the compiler takes it for an integer constant.
type question struct {
	expr string
	num  uint64
	ok   bool
}

var errorLine = regexp.MustCompile(`(?m)^sonde\.c:(\d+):.*error:`)

// evaluate answers the questions with the headers included, from earlier answers where they were asked before.
func (c *compiler) evaluate(a abi, headers []string, q []question) error {
	known := c.values[key(a, headers)]
	var ask []question
	for i := range q {
		if v, ok := known[q[i].expr]; ok {
			q[i].num, q[i].ok = v.num, v.ok
		} else {
			ask = append(ask, question{expr: q[i].expr})
		}
	}
	if len(ask) == 0 {
		return nil
	}
	if err := c.compile(a, headers, ask); err != nil {
		return err
	}
	if known == nil {
		known = make(map[string]answer)
		c.values[key(a, headers)] = known
	}
	for _, x := range ask {
		known[x.expr] = answer{x.num, x.ok}
	}
	for i := range q {
		q[i].num, q[i].ok = known[q[i].expr].num, known[q[i].expr].ok
	}
	return nil
}

// compile has the compiler answer the questions.
func (c *compiler) compile(a abi, headers []string, q []question) error {
	bad := make(map[int]bool)
	for try := 0; ; try++ {
		var b strings.Builder
		b.WriteString(c.include(a, headers))
		b.WriteString("#line 1 \"sonde.c\"\n")
		for i := range q {
			// Only integers have a ~; sizes up to int are zero-extended.
			if !bad[i] {
				fmt.Fprintf(&b, "__attribute__((section(\"sonde\"))) unsigned long long sonde_%d = (~(%s)) * 0ull + (sizeof(%s) <= 4 ? (unsigned long long)(unsigned int)(%s) : (unsigned long long)(%s));", i, q[i].expr, q[i].expr, q[i].expr, q[i].expr)
			}
			b.WriteByte('\n')
		}
		obj := filepath.Join(c.tmp, "value.o")
		_, stderr, err := c.run(a, b.String(), "-c", "-o", obj)
		if err == nil {
			return read(obj, q, bad)
		}
		found := false
		for _, m := range errorLine.FindAllStringSubmatch(stderr, -1) {
			if n, _ := strconv.Atoi(m[1]); n >= 1 && n <= len(q) && !bad[n-1] {
				bad[n-1], found = true, true
			}
		}
		if !found || try > len(q) {
			return fmt.Errorf("%s: <%s>: %s", a.name, strings.Join(headers, "> <"), firstError(stderr))
		}
	}
}

func read(obj string, q []question, bad map[int]bool) error {
	f, err := elf.Open(obj)
	if err != nil {
		return err
	}
	defer f.Close()
	s := f.Section("sonde")
	if s == nil {
		return nil // no question was good
	}
	data, err := s.Data()
	if err != nil {
		return err
	}
	syms, err := f.Symbols()
	if err != nil {
		return err
	}
	for _, sym := range syms {
		num, ok := strings.CutPrefix(sym.Name, "sonde_")
		if !ok {
			continue
		}
		i, err := strconv.Atoi(num)
		if err != nil || i >= len(q) || bad[i] || sym.Value+8 > uint64(len(data)) {
			return fmt.Errorf("%s: unexpected symbol %s", obj, sym.Name)
		}
		q[i].num, q[i].ok = f.ByteOrder.Uint64(data[sym.Value:]), true
	}
	return nil
}

// resolve fills in the entries of all sets for all ABIs.
func (c *compiler) resolve(list []*set) error {
	if err := c.askAll(list); err != nil {
		return err
	}
	var failed []string
	for _, s := range list {
		s.byABI = make(map[string][]entry)
		got := make([]bool, len(s.items))
		for _, a := range abis {
			entries, err := c.resolveSet(a, s, got)
			if err != nil {
				failed = append(failed, s.pos+": "+s.name+": "+err.Error())
				break
			}
			s.byABI[a.name] = entries
		}
		for i, it := range s.items {
			if !got[i] && !it.optional && len(failed) == 0 {
				failed = append(failed, fmt.Sprintf("%s: %s: no such constant in <%s>", it.pos, it.name, strings.Join(s.headers, "> <")))
			}
		}
	}
	if len(failed) > 0 {
		return errors.New(strings.Join(failed, "\n"))
	}
	return nil
}

// askAll asks for the values of all sets, with one run of the compiler for those of the same headers.
func (c *compiler) askAll(list []*set) error {
	for _, a := range abis {
		type batch struct {
			headers []string
			q       []question
		}
		batches := make(map[string]*batch)
		var order []string
		for _, s := range list {
			groups, err := c.groups(a, s.headers)
			if err != nil {
				continue // reported with the set
			}
			for _, g := range groups {
				k := key(a, g)
				b := batches[k]
				if b == nil {
					b = &batch{headers: g}
					batches[k] = b
					order = append(order, k)
				}
				n := c.names(a, g)
				for _, it := range s.items {
					if it.expr != "" {
						b.q = append(b.q, question{expr: it.expr})
					} else if len(g) > 0 && n.has[it.name] {
						b.q = append(b.q, question{expr: it.name})
					}
				}
				if len(s.match) > 0 {
					for _, name := range n.order {
						if s.wanted(name) {
							b.q = append(b.q, question{expr: name})
						}
					}
				}
			}
		}
		for _, k := range order {
			if b := batches[k]; len(b.q) > 0 {
				if err := c.evaluate(a, b.headers, b.q); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *compiler) resolveSet(a abi, s *set, got []bool) ([]entry, error) {
	groups, err := c.groups(a, s.headers)
	if err != nil {
		return nil, err
	}
	nums := make(map[string]uint64)
	var matched []entry
	for _, g := range groups {
		var q []question
		var name []string
		for _, it := range s.items {
			if _, ok := nums[it.name]; ok {
				continue
			}
			expr := it.expr
			if expr == "" {
				expr = it.name
				if len(g) > 0 && !c.names(a, g).has[expr] {
					continue
				}
			}
			q, name = append(q, question{expr: expr}), append(name, it.name)
		}
		listed := len(q)
		if len(s.match) > 0 {
			for _, n := range c.names(a, g).order {
				if _, ok := nums[n]; !ok && s.wanted(n) && !s.lists(n) {
					q, name = append(q, question{expr: n}), append(name, n)
				}
			}
		}
		if len(q) == 0 {
			continue
		}
		if err := c.evaluate(a, g, q); err != nil {
			return nil, err
		}
		for i := range q {
			if !q[i].ok {
				continue
			}
			nums[name[i]] = q[i].num
			if i >= listed {
				matched = append(matched, entry{name[i], q[i].num})
			}
		}
	}
	var listed []entry
	for i, it := range s.items {
		if n, ok := nums[it.name]; ok {
			listed = append(listed, entry{it.name, n})
			got[i] = true
		}
	}
	return s.arrange(listed, matched), nil
}

func (s *set) lists(name string) bool {
	for _, it := range s.items {
		if it.name == name {
			return true
		}
	}
	return false
}
