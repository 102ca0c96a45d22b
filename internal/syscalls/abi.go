// Package syscalls holds, per architecture and ABI, the table of every system call: number, name, classes, and the
// names and C types of its arguments; and the vocabulary ([Fetch]) in which the memory that a call reads and writes
// is described. It is data: it decodes nothing and touches no kernel.
package syscalls

//go:generate go run ./gen

// ABI is one way of entering the kernel: its numbers and its sizes. A task's ABI is a fact of each call, not of the
// process: 64-bit programs may enter through the 32-bit gate.
type ABI struct {
	Name    string // "amd64", "i386", "x32", "arm64", "arm"
	PtrSize int    // 4 or 8
	// Defs is indexed by number; holes have an empty Name. x32 numbers are without their 0x40000000 bit.
	Defs []Def
	// Private are the calls of a range of their own (arm: 0xf0000 and up).
	Private map[uint32]*Def
}

// Def is one system call of one ABI.
type Def struct {
	Name  string
	Class Class
	Args  []Param // in order; their number is the number of registers the call takes
}

// Param is one formal parameter, as the kernel's prototype has it.
type Param struct {
	Name string // "flags"
	Type string // "unsigned int", "const char __user *"
}

// Class is a set of strace's classes.
type Class uint32

// The classes of strace(1), -e trace=%class.
const (
	File Class = 1 << iota
	Desc
	Process
	Signal
	IPC
	Network
	Memory
	Stat  // stat, stat64
	Lstat // lstat, lstat64
	Fstat // fstat, fstatat, statx
	StatLike
	Statfs
	Fstatfs
	StatfsLike
	Creds
	Clock
	Pure
)

// Lookup returns the call with the number nr, or nil.
func (a *ABI) Lookup(nr uint32) *Def {
	if int64(nr) < int64(len(a.Defs)) {
		if a.Defs[nr].Name == "" {
			return nil
		}
		return &a.Defs[nr]
	}
	return a.Private[nr]
}
