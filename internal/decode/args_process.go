package decode

import (
	"strconv"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// takes is a list of fetches.
func takes(f ...syscalls.Fetch) []syscalls.Fetch { return f }

func aSignal(c *Cx, i int) { c.Signal(c.Arg[i]) }
func aUID(c *Cx, i int)    { c.userID(c.Arg[i]) }
func aUint64(c *Cx, i int) { c.Uint(c.Arg[i]) }
func aHex32(c *Cx, i int)  { c.Hex(uint64(uint32(c.Arg[i]))) }

// aFlags64 and aName64 show a whole register by a set.
func aFlags64(s *constant.Set) arg { return func(c *Cx, i int) { c.Flags(c.Arg[i], s) } }
func aName64(s *constant.Set) arg  { return func(c *Cx, i int) { c.Name(c.Arg[i], s) } }

// atIn makes an arg of a function of memory: show gets the n bytes that the argument points to.
func atIn(n int, show func(c *Cx, b []byte)) arg {
	return func(c *Cx, i int) {
		if b, ok := c.Load(In, c.Arg[i], n); ok {
			show(c, b)
		}
	}
}

// atOut is atIn for what the kernel fills.
func atOut(n int, show func(c *Cx, b []byte)) arg {
	return out(func(c *Cx, i int) {
		if b, ok := c.Load(Out, c.Arg[i], n); ok {
			show(c, b)
		}
	})
}

// refIn and refOut show [value], a number of n bytes that the argument points to.
func refIn(n int, elem func(c *Cx, b []byte)) arg {
	return func(c *Cx, i int) { c.ref(In, c.Arg[i], n, elem) }
}
func refOut(n int, elem func(c *Cx, b []byte)) arg {
	return out(func(c *Cx, i int) { c.ref(Out, c.Arg[i], n, elem) })
}

// Return values.

func retHex(c *Cx) {
	v := uint64(c.Ret)
	if c.ABI.PtrSize == 4 && c.ABI.Name != "x32" {
		v = uint64(uint32(v))
	}
	c.Hex(v)
}
func retPID(c *Cx) { c.PID(uint64(c.Ret)) }

// retNote shows the return value in hexadecimal with its meaning behind it, or alone when it has none.
func retNote(note func(c *Cx, v uint64) string) func(c *Cx) {
	return func(c *Cx) {
		c.Note = note(c, uint64(c.Ret))
		retHex(c)
	}
}

// open begins a value that is made of flags.
func (c *Cx) open(v uint64) { c.Begin(event.Node{Kind: event.KindFlags, Num: v}) }

// flagNames adds the names of the bits of v as parts of a flags node that is open; what has no name follows as a number.
// It returns the number of parts.
func (c *Cx) flagNames(v uint64, s *constant.Set) (n int) {
	s = s.For(c.ABI.Name)
	for i := range s.Entries {
		e := &s.Entries[i]
		if e.Num != 0 && v&e.Num == e.Num {
			c.Sym(e.Name, e.Num)
			v &^= e.Num
			n++
		}
	}
	if v != 0 {
		if n == 0 {
			c.Add(event.Node{Kind: event.KindHex, Num: v, Sym: s.Prefix})
		} else {
			c.Hex(v)
		}
		n++
	}
	return n
}

// flagsText is a value as text, for the explanation of a return value.
func flagsText(abi string, v uint64, s *constant.Set) string {
	s = s.For(abi)
	var b []byte
	for i := range s.Entries {
		e := &s.Entries[i]
		if e.Num != 0 && v&e.Num == e.Num {
			if len(b) > 0 {
				b = append(b, '|')
			}
			b = append(b, e.Name...)
			v &^= e.Num
		}
	}
	if v != 0 || len(b) == 0 {
		if len(b) > 0 {
			b = append(b, '|')
		}
		b = appendHex(b, v)
	}
	return string(b)
}

func appendHex(b []byte, v uint64) []byte {
	if v == 0 {
		return append(b, '0')
	}
	const digits = "0123456789abcdef"
	b = append(b, "0x"...)
	shift := 60
	for v>>shift == 0 {
		shift -= 4
	}
	for ; shift >= 0; shift -= 4 {
		b = append(b, digits[v>>shift&15])
	}
	return b
}

func hexUnknown(v uint64, set string) event.Node {
	return event.Node{Kind: event.KindHex, Num: v, Sym: set}
}

// capMasks are the names of the capabilities' bits: 1<<CAP_CHOWN.
var capMasks = func() (t [64]string) {
	for _, e := range constant.Capability.Entries {
		if e.Num < 64 {
			t[e.Num] = "1<<" + e.Name
		}
	}
	return t
}()

func decimal(v uint64) string { return strconv.FormatUint(v, 10) }
