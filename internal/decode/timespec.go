package decode

import (
	"strconv"

	"github.com/sonde-trace/sonde/event"
)

// timespecOf adds the struct timespec at addr: that of the ABI, or the one of 64-bit times that 32-bit ABIs have besides.
func (c *Cx) timespecOf(time64 bool, m Moment, addr uint64) {
	c.timePair(m, addr, c.Ptr32() && c.ABI.Name != "x32" && !time64, "tv_nsec")
}

// timevalOf is timespecOf for struct timeval of the ABI.
func (c *Cx) timevalOf(m Moment, addr uint64) {
	c.timePair(m, addr, c.Ptr32() && c.ABI.Name != "x32", "tv_usec")
}

func (c *Cx) timePair(m Moment, addr uint64, narrow bool, fraction string) {
	n := 16
	if narrow {
		n = 8
	}
	if b, ok := c.Load(m, addr, n); ok {
		c.timeFields(b, fraction)
	}
}

// timeFields adds a pair of seconds and a fraction that fill b.
func (c *Cx) timeFields(b []byte, fraction string) {
	c.Struct()
	if len(b) == 8 {
		c.Field("tv_sec").Int(I32(b, 0))
		if fraction == "tv_nsec" {
			c.Field(fraction).Uint(uint64(I32(b, 4)))
		} else {
			c.Field(fraction).Int(I32(b, 4))
		}
	} else {
		c.Field("tv_sec").Int(int64(U64(b, 0)))
		c.Field(fraction).Uint(U64(b, 8))
	}
	c.End()
}

// noteSeconds explains a number of ticks, hz a second, with so many digits of a fraction.
func (c *Cx) noteSeconds(v, hz uint64, digits int) {
	var buf [48]byte
	b := strconv.AppendUint(buf[:0], v/hz, 10)
	b = append(b, '.')
	frac := strconv.FormatUint(v%hz, 10)
	for i := len(frac); i < digits; i++ {
		b = append(b, '0')
	}
	b = append(append(b, frac...), " s"...)
	c.Add(event.Node{Kind: event.KindNote, Data: c.Keep(b)})
}
