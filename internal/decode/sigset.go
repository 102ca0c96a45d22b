package decode

import (
	"math/bits"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
)

// sigsetSize is the kernel's sigset_t: 64 signals on all ABIs here.
const sigsetSize = 8

// Sigset adds the signal set of size bytes at addr: [HUP INT], or ~[KILL] when most are in it. A size that no kernel
// takes leaves the address.
func (c *Cx) Sigset(m Moment, addr, size uint64) { c.sigset(m, addr, size, uint64(c.ABI.PtrSize)) }

func (c *Cx) sigset(m Moment, addr, size, least uint64) {
	if size < least || size > sigsetSize {
		c.Ptr(addr)
		return
	}
	if b, ok := c.Load(m, addr, int(size)); ok {
		c.SigsetBits(peek(b, 0, int(size)), int(size))
	}
}

// SigsetBits adds a signal set given as bits, bit 0 being signal 1, of size bytes.
func (c *Cx) SigsetBits(set uint64, size int) {
	width := (size + 3) / 4 * 32
	n := event.Node{Kind: event.KindSet, Num: set}
	if bits.OnesCount64(set) >= width*2/3 {
		n.Attr = event.AttrInverted
		set = ^set
		if width < 64 {
			set &= 1<<width - 1
		}
	}
	c.Begin(n)
	for ; set != 0; set &= set - 1 {
		i := bits.TrailingZeros64(set) + 1
		c.Sym(constant.SignalName(i)[len("SIG"):], uint64(i))
	}
	c.End()
}

// sigsetNote is the set as text, for the explanation of a return value.
func sigsetNote(prefix string, set uint64, size int) string {
	var c Cx
	c.SigsetBits(set, size)
	b := []byte(prefix)
	if c.Nodes[0].Attr&event.AttrInverted != 0 {
		b = append(b, '~')
	}
	b = append(b, '[')
	for i, n := range c.Nodes[1:] {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, n.Sym...)
	}
	return string(append(b, ']'))
}
