package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// landlock_*(2) and lsm_*(2) (linux/landlock.h, linux/lsm.h).

const (
	landlockAttrSize = 48
	lsmHeader        = 32 // struct lsm_ctx without its context
	maxLsmCtx        = 4096

	lsmFlagSingle = 1
)

var securityCalls = []Spec{
	{
		Name:   "landlock_create_ruleset",
		RetFD:  true,
		Enter:  []syscalls.Fetch{syscalls.Vec(0, syscalls.Arg(1), 1, landlockAttrSize)},
		Decode: args(landlockRuleset, aUlong, aFlags(constant.LandlockCreateRuleset)),
		Ret: func(c *Cx) {
			if c.Arg[2]&3 == 0 { // not a query of the version or the errata
				c.returnedFD(uint64(c.Ret))
			} else {
				c.Int(c.Ret)
			}
		},
	},
	{
		Name:   "landlock_add_rule",
		Enter:  []syscalls.Fetch{syscalls.Fixed(2, 16), descriptorIf(syscalls.Mem(0, 8, 4), 1, 1 /* LANDLOCK_RULE_PATH_BENEATH */)},
		Decode: args(aFD, aName(constant.LandlockRule), landlockRule, aFlags(constant.LandlockAddRule)),
	},
	{Name: "landlock_restrict_self", Decode: args(aFD, aHex32)},
	{
		Name:  "lsm_get_self_attr",
		Enter: []syscalls.Fetch{syscalls.Fixed(2, 4), syscalls.Fixed(1, lsmHeader)},
		Exit: []syscalls.Fetch{syscalls.Fixed(2, 4),
			syscalls.Vec(1, syscalls.Mem(0, 0, 4), 1, maxLsmCtx)},
		Decode: decodeLsmGet,
	},
	{
		Name:  "lsm_set_self_attr",
		Enter: []syscalls.Fetch{syscalls.Fixed(1, lsmHeader), syscalls.Vec(1, syscalls.Arg(2), 1, maxLsmCtx)},
		Decode: args(aName(constant.LsmAttr), func(c *Cx, i int) {
			c.lsmContext(In, c.Arg[1], uint64(uint32(c.Arg[2])))
		}, aUint, aHex32),
	},
	{
		Name:   "lsm_list_modules",
		Enter:  []syscalls.Fetch{syscalls.Fixed(1, 4)},
		Exit:   []syscalls.Fetch{syscalls.Fixed(1, 4), syscalls.Vec(0, syscalls.Ret(), 8, 4096)},
		Decode: decodeLsmList,
	},
}

func landlockRuleset(c *Cx, i int) {
	addr, size := c.Arg[0], c.Arg[1]
	if size < 8 {
		c.Ptr(addr)
		return
	}
	c.obj(In, addr, int(min(size, landlockAttrSize)), func(c *Cx, b []byte) {
		f := c.begin(b)
		f.flags("handled_access_fs", 8, constant.LandlockAccessFs)
		for _, m := range [...]struct {
			name string
			set  *constant.Set
		}{
			{"handled_access_net", constant.LandlockAccessNet}, {"scoped", constant.LandlockScope},
			{"quiet_access_fs", constant.LandlockAccessFs}, {"quiet_access_net", constant.LandlockAccessNet},
			{"quiet_scoped", constant.LandlockScope},
		} {
			if f.reached() {
				f.flags(m.name, 8, m.set)
			}
		}
		if size > landlockAttrSize {
			c.More()
		}
		f.end()
	})
}

func landlockRule(c *Cx, i int) {
	addr := c.Arg[2]
	switch uint32(c.Arg[1]) {
	case 1: // LANDLOCK_RULE_PATH_BENEATH; the structure is packed
		c.obj(In, addr, 12, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.flags("allowed_access", 8, constant.LandlockAccessFs)
			f.fd("parent_fd")
			f.end()
		})
	case 2: // LANDLOCK_RULE_NET_PORT
		c.obj(In, addr, 16, func(c *Cx, b []byte) {
			f := c.begin(b)
			f.flags("allowed_access", 8, constant.LandlockAccessNet)
			f.u8("port")
			f.end()
		})
	default:
		c.Ptr(addr)
	}
}

// nameOrHex adds v by its name, or as a plain number.
func (c *Cx) nameOrHex(v uint64, s *constant.Set) {
	if name, ok := s.For(c.ABI.Name).Name(v); ok {
		c.Sym(name, v)
		return
	}
	c.Hex(v)
}

// lsmContext adds one struct lsm_ctx in n bytes at addr.
func (c *Cx) lsmContext(m Moment, addr, n uint64) {
	b, errno := c.Bytes(m, addr, lsmHeader)
	if b == nil || n < lsmHeader {
		c.Unreadable(addr, errno)
		return
	}
	c.lsmContextAt(m, b, addr, n)
}

func (c *Cx) lsmContextAt(m Moment, b []byte, addr, n uint64) {
	f := c.begin(b)
	c.Field("id")
	c.nameOrHex(f.num(8), constant.LsmID)
	f.x8("flags")
	size := f.num(8)
	c.Field("len").Uint(size)
	text := f.num(8)
	c.Field("ctx_len").Uint(text)
	room := min(size, n)
	if room > lsmHeader {
		if text = min(text, room-lsmHeader); text > 0 {
			c.Field("ctx")
			at := len(c.Nodes)
			c.rawBuffer(m, addr+lsmHeader, text)
			if c.Nodes[at].Kind == event.KindBytes {
				c.Nodes[at].Attr |= event.AttrHex
			}
		}
	}
	f.end()
}

// lsmContexts adds the sequence of struct lsm_ctx in n bytes at addr.
func (c *Cx) lsmContexts(addr, n uint64) {
	for i := 0; ; i++ {
		b, errno := c.Bytes(Out, addr, lsmHeader)
		if b == nil || n < lsmHeader || c.Failed() {
			if i == 0 {
				c.Unreadable(addr, errno)
				return
			}
			c.More()
			c.Add(event.Node{Kind: event.KindNote, Num: addr})
			break
		}
		if i == 0 {
			c.Array()
		}
		if c.Opt.Abbrev && i >= c.limit() || i >= maxLsmCtx/lsmHeader {
			c.More()
			break
		}
		c.lsmContextAt(Out, b, addr, n)
		size := peek(b, 16, 8)
		if size < lsmHeader || n <= size || addr+size <= addr {
			break
		}
		addr += size
		n -= size
	}
	c.End()
}

// lsmSize adds [size] or [old => new].
func (c *Cx) lsmSize(was, now uint64) {
	c.Array()
	c.change(was, now, c.Uint)
	c.End()
}

func decodeLsmGet(c *Cx) {
	addr, sizeAt, flags := c.Arg[1], c.Arg[2], uint64(uint32(c.Arg[3]))
	single := flags&lsmFlagSingle != 0
	c.Name(uint64(uint32(c.Arg[0])), constant.LsmAttr)
	sizeIn, _ := c.Bytes(In, sizeAt, 4)
	head, _ := c.Bytes(In, addr, lsmHeader)
	if sizeIn == nil || single && head == nil {
		c.Ptr(addr)
		if sizeIn == nil {
			c.Ptr(sizeAt)
		} else {
			c.lsmSize(peek(sizeIn, 0, 4), peek(sizeIn, 0, 4))
		}
		c.Flags(flags, constant.LsmFlag)
		return
	}
	if c.Entering() {
		return
	}
	sizeOut, _ := c.Bytes(Out, sizeAt, 4)
	id := func() {
		c.Struct()
		c.Field("id")
		c.nameOrHex(peek(head, 0, 8), constant.LsmID)
		c.End()
	}
	if sizeOut == nil {
		if single {
			id()
		} else {
			c.Ptr(addr)
		}
		c.Ptr(sizeAt)
		c.Flags(flags, constant.LsmFlag)
		return
	}
	if single {
		c.Begin(event.Node{Kind: event.KindChange})
		id()
	}
	c.lsmContexts(addr, peek(sizeOut, 0, 4))
	if single {
		c.End()
	}
	c.lsmSize(peek(sizeIn, 0, 4), peek(sizeOut, 0, 4))
	c.Flags(flags, constant.LsmFlag)
}

func decodeLsmList(c *Cx) {
	addr, sizeAt := c.Arg[0], c.Arg[1]
	sizeIn, _ := c.Bytes(In, sizeAt, 4)
	if sizeIn == nil {
		c.Ptr(addr)
		c.Ptr(sizeAt)
		c.Hex(uint64(uint32(c.Arg[2])))
		return
	}
	if c.Entering() {
		return
	}
	if sizeOut, _ := c.Bytes(Out, sizeAt, 4); sizeOut == nil {
		c.Ptr(addr)
		c.Ptr(sizeAt)
	} else {
		if c.Failed() {
			c.Ptr(addr)
		} else {
			c.list(Out, addr, uint64(c.Ret), 8, func(c *Cx, b []byte) { c.Name(peek(b, 0, 8), constant.LsmID) })
		}
		c.lsmSize(peek(sizeIn, 0, 4), peek(sizeOut, 0, 4))
	}
	c.Hex(uint64(uint32(c.Arg[2])))
}
