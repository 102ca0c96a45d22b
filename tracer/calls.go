package tracer

import (
	"fmt"

	"github.com/sonde-trace/sonde/internal/decode"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// call is what the assembler knows of one syscall of one ABI before any event of it.
type call struct {
	name     string
	def      *syscalls.Def
	decode   func(*decode.Cx)
	ret      func(*decode.Cx)
	show     bool // selected by the user; others are recorded for what they tell of later ones
	noReturn bool
	// child marks calls that return a second time, in the task they made.
	child  bool
	exec   bool
	detail Detail
	// injected marks calls of which the session may make up the result.
	injected bool
	// later marks calls of which arguments are known at the return only.
	later bool
}

// abiCalls is a dense table by number. A call is filled in when it is first asked for: most are never made.
type abiCalls struct {
	abi     *syscalls.ABI
	calls   []call
	private map[uint32]*call
}

// callTables are the tables of one machine: its own ABI, its 32-bit one, and x32 (nil on arm64).
type callTables struct {
	native, compat, x32 *abiCalls
	unknown             map[unknownKey]*call
	show                func(abi *syscalls.ABI, nr uint32) bool
	detail              func(abi string, nr uint32) Detail
}

type unknownKey struct {
	abi *syscalls.ABI
	nr  uint32
}

const x32Bit = 0x40000000 // __X32_SYSCALL_BIT, arch/x86/include/uapi/asm/unistd.h

// newCallTables makes the tables for records of a machine of the Go architecture arch. show says which calls the user
// selected, nil is all; detail how much of each is shown, nil is the default.
func newCallTables(arch string, show func(abi *syscalls.ABI, nr uint32) bool, detail func(abi string, nr uint32) Detail) (*callTables, error) {
	family := syscalls.Family(arch)
	if family == nil {
		return nil, fmt.Errorf("there are no syscall tables for the architecture %q", arch)
	}
	t := &callTables{unknown: make(map[unknownKey]*call), show: show, detail: detail}
	for i, abi := range family {
		ac := &abiCalls{abi: abi, calls: make([]call, len(abi.Defs)), private: make(map[uint32]*call)}
		switch i {
		case 0:
			t.native = ac
		case 1:
			t.compat = ac
		case 2:
			t.x32 = ac
		}
	}
	return t, nil
}

// call returns a call by number, nil for one without a name.
func (t *callTables) call(ac *abiCalls, nr uint32) *call {
	if uint64(nr) < uint64(len(ac.calls)) && ac.calls[nr].def != nil {
		return &ac.calls[nr]
	}
	if c := ac.private[nr]; c != nil {
		return c
	}
	def := ac.abi.Lookup(nr)
	if def == nil {
		return nil
	}
	var c *call
	if uint64(nr) < uint64(len(ac.calls)) {
		c = &ac.calls[nr]
	} else {
		c = new(call)
		ac.private[nr] = c
	}
	*c = call{name: def.Name, def: def, show: t.show == nil || t.show(ac.abi, nr)}
	if s := decode.Specs()[def.Name]; s != nil {
		c.decode, c.ret, c.noReturn = s.Decode, s.Ret, s.NoReturn
		c.later = len(s.Exit) > 0
	} else {
		c.decode = decode.Prototype(def)
	}
	if t.detail != nil {
		c.detail = t.detail(ac.abi.Name, nr)
	}
	if c.detail == DetailRaw {
		c.decode, c.ret, c.later = decode.RawArgs(len(def.Args)), decode.RawRet, false
	}
	switch def.Name {
	case "fork", "vfork", "clone", "clone3":
		c.child = true
	case "execve", "execveat":
		c.exec = true
	}
	return c
}

// injected marks calls, by ABI and number.
func (t *callTables) injected(list map[string][]uint32) {
	for _, ac := range []*abiCalls{t.native, t.compat, t.x32} {
		if ac == nil {
			continue
		}
		for _, nr := range list[ac.abi.Name] {
			if c := t.call(ac, nr); c != nil {
				c.injected = true
			}
		}
	}
}

// lookup returns the call of a record by the ABI through which the task entered. A number without a name gets an entry of
// its own at its first appearance.
func (t *callTables) lookup(r wire.Record) (*abiCalls, *call) {
	ac, nr := t.native, r.Probe()
	switch {
	case r.Flags()&wire.FlagCompat != 0:
		ac = t.compat
	case t.x32 != nil && nr&x32Bit != 0:
		ac, nr = t.x32, nr&^x32Bit
	}
	if c := t.call(ac, nr); c != nil {
		return ac, c
	}
	key := unknownKey{ac.abi, r.Probe()}
	c := t.unknown[key]
	if c == nil {
		if len(t.unknown) >= maxUnknown {
			key.nr = 0xffffffff
			if c = t.unknown[key]; c != nil {
				return ac, c
			}
		}
		c = &call{name: fmt.Sprintf("syscall_%#x", key.nr), decode: decode.Raw, show: t.show == nil}
		t.unknown[key] = c
	}
	return ac, c
}

// maxUnknown bounds the memory that a program can take by trying numbers.
const maxUnknown = 4096
