// Package probe reads what to trace: expressions, as a user types them, to values. It knows no kernel and no program: a
// name is looked up in tables that the caller gives.
//
// For system calls it reads the language of strace's -e trace=:
//
//	set   = ["!"] item {"," item}
//	item  = ["?"] ( name | number | class | "/" regex ) ["@" abi] | "all" | "none"
//	class = "%file" | "%desc" | "%process" | … as in strace(1)
//	abi   = "64" | "32" | "x32"
//
// A set with "!" is everything but its items. "?" allows a name that does not exist. A regular expression matches any
// part of a name. Several sets are added up; those with "!" are taken from the sum, or from all calls when nothing else
// is given.
package probe

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/sonde-trace/sonde/internal/syscalls"
)

// SyntaxError says what is wrong with an expression, and where.
type SyntaxError struct {
	Expr string
	Pos  int // byte offset in Expr
	Len  int // of the wrong part; at least 1
	Msg  string
}

// Error is the message alone; Caret shows the place.
func (e *SyntaxError) Error() string { return e.Msg }

// Caret returns the expression and, below it, marks under the wrong part. Only for expressions of printable ASCII, "" for others.
func (e *SyntaxError) Caret() string {
	for i := 0; i < len(e.Expr); i++ {
		if e.Expr[i] < 0x20 || e.Expr[i] > 0x7e {
			return ""
		}
	}
	return e.Expr + "\n" + strings.Repeat(" ", e.Pos) + strings.Repeat("^", max(1, e.Len))
}

// Selection is a set of system calls.
type Selection struct {
	abis    []*syscalls.ABI
	all     []bool            // by ABI: every call, also those without a name
	numbers []map[uint32]bool // by ABI
}

// maxExpr bounds one expression; the command line cannot be much longer in practice.
const maxExpr = 64 << 10

// ParseSyscalls reads sets of calls. family lists the ABIs of the machine, its own first; 64-bit, 32-bit, x32. No
// expression selects all calls. The error is a *SyntaxError.
func ParseSyscalls(exprs []string, family []*syscalls.ABI) (*Selection, error) {
	sum, minus := newSelection(family), newSelection(family)
	positive := false
	for _, expr := range exprs {
		if len(expr) > maxExpr {
			return nil, &SyntaxError{Expr: expr[:64], Len: 64, Msg: fmt.Sprintf("an expression of %d bytes is too long", len(expr))}
		}
		to, pos := sum, 0
		if strings.HasPrefix(expr, "!") {
			to, pos = minus, 1
		} else {
			positive = true
		}
		if err := to.addList(expr, pos); err != nil {
			return nil, err
		}
	}
	if !positive {
		for i := range sum.abis {
			sum.addAll(i)
		}
	}
	for i := range sum.abis {
		if minus.all[i] {
			sum.all[i], sum.numbers[i] = false, map[uint32]bool{}
			continue
		}
		if len(minus.numbers[i]) > 0 {
			sum.all[i] = false
		}
		for nr := range minus.numbers[i] {
			delete(sum.numbers[i], nr)
		}
	}
	return sum, nil
}

func newSelection(family []*syscalls.ABI) *Selection {
	s := &Selection{abis: family, all: make([]bool, len(family))}
	for range family {
		s.numbers = append(s.numbers, make(map[uint32]bool))
	}
	return s
}

// All reports that every call of the machine is selected, also those that have no name.
func (s *Selection) All() bool {
	for i := range s.abis {
		if !s.all[i] {
			return false
		}
	}
	return true
}

// Has reports whether the call nr of the ABI with that name is selected.
func (s *Selection) Has(abi string, nr uint32) bool {
	for i, a := range s.abis {
		if a.Name == abi {
			return s.all[i] || s.numbers[i][nr]
		}
	}
	return false
}

// Empty reports that no call is selected.
func (s *Selection) Empty() bool {
	for i := range s.abis {
		if s.all[i] || len(s.numbers[i]) > 0 {
			return false
		}
	}
	return true
}

func (s *Selection) addAll(i int) {
	s.all[i] = true
	for nr := range s.abis[i].All() {
		s.numbers[i][nr] = true
	}
}

func (s *Selection) addList(expr string, pos int) error {
	if pos == len(expr) {
		return &SyntaxError{Expr: expr, Pos: pos, Msg: "a name of a system call, a class or a regular expression is missing"}
	}
	items := 0
	for pos <= len(expr) {
		end := len(expr)
		if i := strings.IndexByte(expr[pos:], ','); i >= 0 {
			end = pos + i
		}
		if end > pos { // scripts put lists together from parts that may be empty
			items++
			if err := s.addItem(expr, pos, end); err != nil {
				return err
			}
		}
		pos = end + 1
	}
	if items == 0 {
		return &SyntaxError{Expr: expr, Len: len(expr), Msg: "the list names no system call"}
	}
	return nil
}

func (s *Selection) addItem(expr string, pos, end int) error {
	item := expr[pos:end]
	fail := func(format string, a ...any) error {
		return &SyntaxError{Expr: expr, Pos: pos, Len: end - pos, Msg: fmt.Sprintf(format, a...)}
	}
	optional := strings.HasPrefix(item, "?")
	if optional {
		item = item[1:]
	}
	switch item {
	case "":
		return fail("an item of the list is empty")
	case "all", "%all":
		for i := range s.abis {
			s.addAll(i)
		}
		return nil
	case "none":
		return nil
	}
	// A regular expression may hold an "@" of its own: only a known ABI behind it is one.
	abis := make([]int, 0, len(s.abis))
	for i := range s.abis {
		abis = append(abis, i)
	}
	if at := strings.LastIndexByte(item, '@'); at > 0 {
		abi, ok := s.designator(item[at+1:])
		switch {
		case ok:
			item, abis = item[:at], abi
		case item[0] != '/':
			return fail("%s: there is no ABI %q here; @64, @32 and @x32 can be named", item, item[at+1:])
		}
	}
	found := false
	add := func(i int, nr uint32) { s.numbers[i][nr], found = true, true }
	switch {
	case item[0] == '/':
		re, err := regexp.Compile(strings.TrimSuffix(item[1:], "/"))
		if err != nil {
			return fail("%s: %v", item, err)
		}
		for _, i := range abis {
			for nr, d := range s.abis[i].All() {
				if re.MatchString(d.Name) {
					add(i, nr)
				}
			}
		}
		if !found && !optional {
			return fail("%s: no system call matches", item)
		}
		return nil
	case item[0] >= '0' && item[0] <= '9':
		nr, err := strconv.ParseUint(item, 0, 32)
		if err != nil {
			return fail("%s: not a number of a system call", item)
		}
		for _, i := range abis {
			if s.abis[i].Lookup(uint32(nr)) != nil {
				add(i, uint32(nr))
			}
		}
		if !found && !optional {
			return fail("%s: %s has no system call of that number", item, s.abis[0].Name)
		}
		return nil
	}
	if class, ok := syscalls.ClassByName(item); ok {
		for _, i := range abis {
			for nr, d := range s.abis[i].All() {
				if d.In(class) {
					add(i, nr)
				}
			}
		}
		return nil
	}
	for _, i := range abis {
		if nr, ok := s.abis[i].ByName(item); ok {
			add(i, nr)
		}
	}
	if found || optional {
		return nil
	}
	kind := "no such syscall"
	if item[0] == '%' {
		kind = "no such class"
	}
	msg := fmt.Sprintf("%s: %s on %s", item, kind, s.abis[0].Name)
	if instead, ok := replaced[item]; ok {
		msg += "; " + instead + " does it there"
	} else if near := s.abis[0].Suggest(item); len(near) > 0 {
		msg += "; " + strings.Join(near, ", ") + "?"
	}
	return &SyntaxError{Expr: expr, Pos: pos, Len: end - pos, Msg: msg}
}

// replaced are calls that newer architectures do without, and what programs use instead.
var replaced = map[string]string{
	"open": "openat", "creat": "openat", "fork": "clone", "vfork": "clone", "stat": "newfstatat", "lstat": "newfstatat",
	"access": "faccessat", "pipe": "pipe2", "dup2": "dup3", "poll": "ppoll", "select": "pselect6", "unlink": "unlinkat",
	"mkdir": "mkdirat", "rmdir": "unlinkat", "rename": "renameat2", "link": "linkat", "symlink": "symlinkat",
	"readlink": "readlinkat", "chmod": "fchmodat", "chown": "fchownat", "mknod": "mknodat", "epoll_create": "epoll_create1",
	"epoll_wait": "epoll_pwait", "inotify_init": "inotify_init1", "eventfd": "eventfd2", "signalfd": "signalfd4",
	"getdents": "getdents64", "alarm": "setitimer", "pause": "ppoll", "utime": "utimensat", "utimes": "utimensat",
	"time": "clock_gettime", "getpgrp": "getpgid",
}

// designator returns the ABIs that "64", "32" and "x32" name.
func (s *Selection) designator(name string) ([]int, bool) {
	switch name {
	case "64", "32", "x32":
	default:
		return nil, false
	}
	for i, a := range s.abis {
		switch {
		case name == "64" && a.PtrSize == 8, name == "x32" && a.Name == "x32", name == "32" && a.PtrSize == 4 && a.Name != "x32":
			return []int{i}, true
		}
	}
	return nil, false
}
