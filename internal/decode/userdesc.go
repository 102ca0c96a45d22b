package decode

import (
	"github.com/sonde-trace/sonde/event"
)

// userDescSize is the size of struct user_desc, arch/x86/include/uapi/asm/ldt.h: entry_number, base_addr, limit and a
// word of bits.
const userDescSize = 16

// userDesc adds a segment descriptor as set_thread_area(2) and modify_ldt(2) take it.
func (c *Cx) userDesc(b []byte) {
	c.Struct()
	c.Field("entry_number")
	c.userID(uint64(U32(b, 0)))
	c.userDescRest(b)
	c.End()
}

// userDescRest adds what follows the number.
func (c *Cx) userDescRest(b []byte) {
	c.Field("base_addr").Add(event.Node{Kind: event.KindHex, Num: uint64(U32(b, 4)), Errno: 8})
	c.Field("limit").Add(event.Node{Kind: event.KindHex, Num: uint64(U32(b, 8)), Errno: 8})
	v := U32(b, 12)
	bits := func(name string, shift, n int) { c.Field(name).Uint(uint64(v >> shift & (1<<n - 1))) }
	bits("seg_32bit", 0, 1)
	bits("contents", 1, 2)
	bits("read_exec_only", 3, 1)
	bits("limit_in_pages", 4, 1)
	bits("seg_not_present", 5, 1)
	bits("useable", 6, 1)
	if !c.Ptr32() {
		bits("lm", 7, 1)
	}
}
