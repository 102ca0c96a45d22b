package decode

import (
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// An arg adds the value of one argument register. Rows of simple calls are lists of them, see args.
type arg func(c *Cx, i int)

// args makes a decoder of one arg per argument. Those wrapped in out wait for the return; everything after the first of
// them waits too.
func args(list ...arg) func(*Cx) {
	return func(c *Cx) {
		for i, a := range list {
			a(c, i)
			if c.stop {
				c.stop = false
				return
			}
		}
	}
}

// out delays an arg until the call has returned.
func out(a arg) arg {
	return func(c *Cx, i int) {
		if c.Entering() {
			c.stop = true
			return
		}
		a(c, i)
	}
}

func aInt(c *Cx, i int)   { c.Int(int64(int32(c.Arg[i]))) }
func aUint(c *Cx, i int)  { c.Uint(uint64(uint32(c.Arg[i]))) }
func aLong(c *Cx, i int)  { c.Long(c.Arg[i]) }
func aUlong(c *Cx, i int) { c.Uint(c.Arg[i]) }
func aHex(c *Cx, i int)   { c.Hex(c.Arg[i]) }
func aPtr(c *Cx, i int)   { c.Ptr(c.Arg[i]) }
func aFD(c *Cx, i int)    { c.FD(c.Arg[i]) }
func aDirFD(c *Cx, i int) { c.DirFD(c.Arg[i]) }
func aPID(c *Cx, i int)   { c.PID(c.Arg[i]) }
func aPath(c *Cx, i int)  { c.PathAt(In, c.Arg[i]) }
func aText(c *Cx, i int)  { c.Text(In, c.Arg[i]) }
func aMode(c *Cx, i int)  { c.Oct(uint64(uint32(c.Arg[i]))) }

// aFlags and aName show the low 32 bits by a set.
func aFlags(s *constant.Set) arg { return func(c *Cx, i int) { c.Flags(uint64(uint32(c.Arg[i])), s) } }
func aName(s *constant.Set) arg  { return func(c *Cx, i int) { c.Name(uint64(uint32(c.Arg[i])), s) } }

// descriptorIf is what the descriptor with the number n refers to, taken when argument arg is one of the values.
func descriptorIf(n syscalls.Number, arg int, any ...uint64) syscalls.Fetch {
	return syscalls.Descriptor(n).If(arg, any...)
}

// Long adds a signed number of the ABI's word size.
func (c *Cx) Long(v uint64) {
	if c.Ptr32() {
		c.Int(int64(int32(v)))
		return
	}
	c.Int(int64(v))
}
