package decode

import (
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// creds is the calls that read and change identities: process, user and group ids, capabilities. Those of 32-bit ABIs
// without 32 at the end of their name take ids of 16 bits.
var creds = []Spec{
	{Name: "getpid", Decode: args(), Ret: retPID},
	{Name: "getppid", Decode: args(), Ret: retPID},
	{Name: "gettid", Decode: args(), Ret: retPID},
	{Name: "getpgrp", Decode: args(), Ret: retPID},
	{Name: "getpgid", Decode: args(aPID), Ret: retPID},
	{Name: "getsid", Decode: args(aPID), Ret: retPID},
	{Name: "setsid", Decode: args(), Ret: retPID},
	{Name: "setpgid", Decode: args(aPID, aPID)},
	{Name: "set_tid_address", Decode: args(aPtr), Ret: retPID},

	{Name: "getuid", Decode: args()}, {Name: "getuid32", Decode: args()},
	{Name: "getgid", Decode: args()}, {Name: "getgid32", Decode: args()},
	{Name: "geteuid", Decode: args()}, {Name: "geteuid32", Decode: args()},
	{Name: "getegid", Decode: args()}, {Name: "getegid32", Decode: args()},
	{Name: "setuid", Decode: args(aID)}, {Name: "setuid32", Decode: args(aUID)},
	{Name: "setgid", Decode: args(aID)}, {Name: "setgid32", Decode: args(aUID)},
	{Name: "setfsuid", Decode: args(aID)}, {Name: "setfsuid32", Decode: args(aUID)},
	{Name: "setfsgid", Decode: args(aID)}, {Name: "setfsgid32", Decode: args(aUID)},
	{Name: "setreuid", Decode: args(aID, aID)}, {Name: "setreuid32", Decode: args(aUID, aUID)},
	{Name: "setregid", Decode: args(aID, aID)}, {Name: "setregid32", Decode: args(aUID, aUID)},
	{Name: "setresuid", Decode: args(aID, aID, aID)}, {Name: "setresuid32", Decode: args(aUID, aUID, aUID)},
	{Name: "setresgid", Decode: args(aID, aID, aID)}, {Name: "setresgid32", Decode: args(aUID, aUID, aUID)},
	getres("getresuid", false), getres("getresuid32", true),
	getres("getresgid", false), getres("getresgid32", true),
	getgroups("getgroups", false), getgroups("getgroups32", true),
	setgroups("setgroups", false), setgroups("setgroups32", true),

	{
		Name:   "capget",
		Enter:  takes(syscalls.Fixed(0, capHeaderSize)),
		Exit:   takes(syscalls.Fixed(0, capHeaderSize), syscalls.Fixed(1, 2*capDataSize), syscalls.Fixed(1, capDataSize)),
		Decode: args(aCapHeader, out(aCapData(Out))),
	},
	{
		Name:   "capset",
		Enter:  takes(syscalls.Fixed(0, capHeaderSize), syscalls.Fixed(1, 2*capDataSize), syscalls.Fixed(1, capDataSize)),
		Decode: args(aCapHeader, aCapData(In)),
	},
}

// idWidth is the size of a user or group id: 2 in the calls of 32-bit ABIs that have a wider one besides.
func (c *Cx) idWidth(wide bool) int {
	if wide || !c.Ptr32() || c.ABI.Name == "x32" {
		return 4
	}
	return 2
}

func (c *Cx) idOf(v uint64, width int) {
	if width == 2 {
		if uint16(v) == 0xffff {
			c.Int(-1)
			return
		}
		c.Uint(uint64(uint16(v)))
		return
	}
	c.userID(v)
}

// aID is the id of a call whose name does not tell its width.
func aID(c *Cx, i int) { c.idOf(c.Arg[i], c.idWidth(false)) }

func idNumber(c *Cx, b []byte) { c.idOf(peek(b, 0, len(b)), len(b)) }

func getres(name string, wide bool) Spec {
	three := func(n int) []syscalls.Fetch {
		return takes(syscalls.Fixed(0, n), syscalls.Fixed(1, n), syscalls.Fixed(2, n))
	}
	s := Spec{Name: name, Exit: three(4)}
	if !wide {
		s.Exit32 = three(2)
	}
	a := out(func(c *Cx, i int) { c.ref(Out, c.Arg[i], c.idWidth(wide), idNumber) })
	s.Decode = args(a, a, a)
	return s
}

// ngroupsMax is the most groups that the kernel takes, include/uapi/linux/limits.h.
const ngroupsMax = 65536

func groupsAt(c *Cx, m Moment, addr uint64, n int64, wide bool) {
	if uint64(uint32(n)) > ngroupsMax || n < 0 {
		c.Ptr(addr)
		return
	}
	if n == 0 && addr != 0 {
		c.Array()
		c.End()
		return
	}
	if m == Out && c.Failed() {
		c.Ptr(addr)
		return
	}
	c.list(m, addr, uint64(n), c.idWidth(wide), idNumber)
}

func getgroups(name string, wide bool) Spec {
	s := Spec{Name: name, Exit: takes(syscalls.Vec(1, syscalls.Ret(), 4, 4096))}
	if !wide {
		s.Exit32 = takes(syscalls.Vec(1, syscalls.Ret(), 2, 4096))
	}
	s.Decode = args(aInt, out(func(c *Cx, i int) { groupsAt(c, Out, c.Arg[1], c.Ret, wide) }))
	return s
}

func setgroups(name string, wide bool) Spec {
	s := Spec{Name: name, Enter: takes(syscalls.Vec(1, syscalls.Arg(0), 4, 4096))}
	if !wide {
		s.Enter32 = takes(syscalls.Vec(1, syscalls.Arg(0), 2, 4096))
	}
	s.Decode = args(aInt, func(c *Cx, i int) { groupsAt(c, In, c.Arg[1], int64(int32(c.Arg[0])), wide) })
	return s
}

// struct __user_cap_header_struct {u32 version; int pid;} and __user_cap_data_struct {u32 effective, permitted,
// inheritable;}, include/uapi/linux/capability.h. Versions 2 and 3 have two of the latter.
const (
	capHeaderSize, capDataSize = 8, 12
	capVersion2, capVersion3   = 0x20071026, 0x20080522
)

func aCapHeader(c *Cx, i int) {
	b, ok := c.Load(In, c.Arg[i], capHeaderSize)
	if !ok {
		return
	}
	f := c.begin(b)
	f.enum("version", 4, constant.CapVersion)
	f.pid("pid")
	f.end()
}

func aCapData(m Moment) arg {
	return func(c *Cx, i int) {
		if m == Out && c.Failed() {
			c.Ptr(c.Arg[i])
			return
		}
		// The kernel writes the version that it prefers when it does not know the one given.
		h, _ := c.Bytes(m, c.Arg[0], capHeaderSize)
		if h == nil {
			c.Ptr(c.Arg[i])
			return
		}
		n := capDataSize
		if v := U32(h, 0); v == capVersion2 || v == capVersion3 {
			n = 2 * capDataSize
		}
		b, ok := c.Load(m, c.Arg[i], n)
		if !ok {
			return
		}
		c.Struct()
		for j, name := range [3]string{"effective", "permitted", "inheritable"} {
			set := uint64(U32(b, 4*j))
			if n > capDataSize {
				set |= uint64(U32(b, capDataSize+4*j)) << 32
			}
			c.Field(name)
			c.capBits(set)
		}
		c.End()
	}
}

// capBits adds a set of capabilities.
func (c *Cx) capBits(set uint64) {
	if set == 0 {
		c.Hex(0)
		return
	}
	c.open(set)
	var unknown [2]uint64
	for half := range 2 {
		shown := 0
		for i := 32 * half; i < 32*half+32; i++ {
			if set>>i&1 == 0 {
				continue
			}
			if capMasks[i] != "" {
				c.Sym(capMasks[i], 1<<i)
				shown++
			} else {
				unknown[half] |= 1 << (i - 32*half)
			}
		}
		if u := unknown[half]; u != 0 {
			if shown == 0 {
				c.Add(hexUnknown(u, "CAP_???"))
			} else {
				c.Hex(u)
			}
		}
	}
	c.End()
}
