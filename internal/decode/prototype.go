package decode

import (
	"strings"

	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Prototype makes the decoder of a call that has no row: every argument by its C type, pointers as addresses.
func Prototype(d *syscalls.Def) func(*Cx) {
	list := make([]arg, len(d.Args))
	for i, p := range d.Args {
		list[i] = argOfType(p)
	}
	return args(list...)
}

// Raw decodes a call without an entry in the tables: six words.
func Raw(c *Cx) {
	for i := range c.Arg {
		c.Hex(c.Arg[i])
	}
}

// RawArgs decodes a call of n arguments as words, whatever they mean (strace -e raw=).
func RawArgs(n int) func(*Cx) {
	return func(c *Cx) {
		for i := range min(n, len(c.Arg)) {
			c.Hex(c.Arg[i])
		}
	}
}

// RawRet shows a return value as a word.
func RawRet(c *Cx) { c.Hex(uint64(c.Ret)) }

func argOfType(p syscalls.Param) arg {
	if strings.Contains(p.Type, "*") {
		return aPtr
	}
	if IsFD(p) {
		if strings.HasSuffix(p.Name, "dfd") && p.Name != "pidfd" {
			return aDirFD
		}
		return aFD
	}
	switch p.Type {
	case "int", "__s32", "clockid_t", "timer_t", "key_t":
		return aInt
	case "pid_t":
		return aPID
	case "umode_t":
		return aMode
	case "long", "off_t":
		return aLong
	case "loff_t":
		return func(c *Cx, i int) { c.Int(int64(c.Arg[i])) }
	case "unsigned long", "aio_context_t":
		return aHex
	case "size_t":
		return aUlong
	}
	return aUint
}

// fdNames are the parameters that hold a descriptor although their names do not end in fd.
var fdNames = map[string]bool{"fildes": true, "fd_in": true, "fd_out": true, "mqdes": true}

// IsFD reports whether a parameter of a call is a descriptor.
func IsFD(p syscalls.Param) bool {
	switch p.Name {
	case "nfds", "max_fd":
		return false
	}
	switch p.Type {
	case "int", "unsigned int", "u32", "__s32", "__u32", "unsigned long", "mqd_t":
		return fdNames[p.Name] || strings.HasSuffix(p.Name, "fd")
	}
	return false
}
