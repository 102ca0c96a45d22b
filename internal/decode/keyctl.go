package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Operations of keyctl(2) (linux/keyctl.h).
const (
	keyctlGetKeyringID = iota
	keyctlJoinSessionKeyring
	keyctlUpdate
	keyctlRevoke
	keyctlChown
	keyctlSetperm
	keyctlDescribe
	keyctlClear
	keyctlLink
	keyctlUnlink
	keyctlSearch
	keyctlRead
	keyctlInstantiate
	keyctlNegate
	keyctlSetReqkeyKeyring
	keyctlSetTimeout
	keyctlAssumeAuthority
	keyctlGetSecurity
	keyctlSessionToParent
	keyctlReject
	keyctlInstantiateIov
	keyctlInvalidate
	keyctlGetPersistent
	keyctlDHCompute
	keyctlPkeyQuery
	keyctlPkeyEncrypt
	keyctlPkeyDecrypt
	keyctlPkeySign
	keyctlPkeyVerify
	keyctlRestrictKeyring
	keyctlMove
	keyctlCapabilities
)

const (
	pkeyParamsSize = 40
	pkeyQuerySize  = 56
)

// keyctlEnter takes what the operations read. kdf is the size of struct keyctl_kdf_params, two pointers of word bytes and
// nine numbers.
func keyctlEnter(kdf, word int) []syscalls.Fetch {
	return []syscalls.Fetch{
		syscalls.Str(1).If(0, keyctlJoinSessionKeyring),
		syscalls.Buf(2, syscalls.Arg(3)).If(0, keyctlUpdate, keyctlInstantiate),
		syscalls.Str(2).If(0, keyctlSearch, keyctlRestrictKeyring, keyctlPkeyEncrypt, keyctlPkeyDecrypt, keyctlPkeySign,
			keyctlPkeyVerify),
		syscalls.Str(3).If(0, keyctlSearch, keyctlRestrictKeyring, keyctlPkeyQuery),
		{Kind: syscalls.FetchIovec, Base: syscalls.Arg(2), Len: syscalls.Length{Number: syscalls.Arg(3)},
			When: whenArg(0, keyctlInstantiateIov)},
		syscalls.Fixed(1, 12).If(0, keyctlDHCompute),
		syscalls.Fixed(4, kdf).If(0, keyctlDHCompute),
		memOf(syscalls.FetchString, syscalls.Mem(6, 0, word), syscalls.Number{}, 0, 0, whenArg(0, keyctlDHCompute)),
		memOf(syscalls.FetchBytes, syscalls.Mem(6, word, word), syscalls.Mem(6, 2*word, 4), 0, 0, whenArg(0, keyctlDHCompute)),
		syscalls.Fixed(1, pkeyParamsSize).If(0, keyctlPkeyEncrypt, keyctlPkeyDecrypt, keyctlPkeySign, keyctlPkeyVerify),
		syscalls.Buf(3, syscalls.Mem(9, 4, 4)).If(0, keyctlPkeyEncrypt, keyctlPkeyDecrypt, keyctlPkeySign, keyctlPkeyVerify),
		syscalls.Buf(4, syscalls.Mem(9, 8, 4)).If(0, keyctlPkeyVerify),
	}
}

var keyCalls = []Spec{
	{
		Name:   "add_key",
		Enter:  []syscalls.Fetch{syscalls.Str(0), syscalls.Str(1), syscalls.Buf(2, syscalls.Arg(3))},
		Decode: args(aText, aText, func(c *Cx, i int) { c.Buffer(In, c.Arg[2], int64(c.Arg[3])) }, aUlong, aKey),
	},
	{
		Name:   "request_key",
		Enter:  []syscalls.Fetch{syscalls.Str(0), syscalls.Str(1), syscalls.Str(2)},
		Decode: args(aText, aText, aText, aKey),
	},
	{
		Name:    "keyctl",
		Enter:   keyctlEnter(56, 8),
		Enter32: keyctlEnter(44, 4),
		Exit: []syscalls.Fetch{
			syscalls.Buf(2, syscalls.Ret()).If(0, keyctlDescribe, keyctlRead, keyctlGetSecurity, keyctlDHCompute),
			syscalls.Fixed(4, pkeyQuerySize).If(0, keyctlPkeyQuery),
			syscalls.Fixed(1, pkeyParamsSize).If(0, keyctlPkeyEncrypt, keyctlPkeyDecrypt, keyctlPkeySign),
			syscalls.Buf(4, syscalls.Mem(2, 8, 4)).If(0, keyctlPkeyEncrypt, keyctlPkeyDecrypt, keyctlPkeySign),
			syscalls.Buf(1, syscalls.Ret()).If(0, keyctlCapabilities),
		},
		Decode: decodeKeyctl,
	},
}

func aKey(c *Cx, i int) { c.nameD(c.Arg[i], constant.KeySpec) }

func (c *Cx) key(v uint64) { c.nameD(v, constant.KeySpec) }

func decodeKeyctl(c *Cx) {
	op, a := uint32(c.Arg[0]), c.Arg[1:]
	c.Name(uint64(op), constant.KeyctlCommand)
	u4 := func(v uint64) { c.Uint(uint64(uint32(v))) }
	switch op {
	case keyctlGetKeyringID:
		c.key(a[0])
		c.Int(int64(int32(a[1])))
	case keyctlJoinSessionKeyring:
		c.Text(In, a[0])
	case keyctlUpdate:
		c.key(a[0])
		c.Buffer(In, a[1], int64(a[2]))
		c.Uint(a[2])
	case keyctlRevoke, keyctlClear, keyctlInvalidate, keyctlAssumeAuthority:
		c.key(a[0])
	case keyctlLink, keyctlUnlink:
		c.key(a[0])
		c.key(a[1])
	case keyctlDescribe, keyctlRead, keyctlGetSecurity:
		c.key(a[0])
		if c.Entering() {
			return
		}
		at := len(c.Nodes)
		c.Buffer(Out, a[1], keyLength(c.Ret, a[2]))
		if n := &c.Nodes[at]; op != keyctlRead && n.Kind == event.KindBytes && len(n.Data) > 0 &&
			n.Attr&event.AttrTruncated == 0 && n.Data[len(n.Data)-1] == 0 {
			n.Data = n.Data[:len(n.Data)-1]
			n.Num = uint64(len(n.Data))
		}
		c.Uint(a[2])
	case keyctlSearch:
		c.key(a[0])
		c.Text(In, a[1])
		c.Text(In, a[2])
		c.key(a[3])
	case keyctlChown:
		c.key(a[0])
		c.userID(a[1])
		c.userID(a[2])
	case keyctlSetperm:
		c.key(a[0])
		c.Flags(uint64(uint32(a[1])), constant.KeyPerm)
	case keyctlInstantiate:
		c.key(a[0])
		c.Buffer(In, a[1], int64(a[2]))
		c.Uint(a[2])
		c.key(a[3])
	case keyctlInstantiateIov:
		c.key(a[0])
		c.vectors(In, a[1], a[2], true)
		c.Uint(a[2])
		c.key(a[3])
	case keyctlNegate:
		c.key(a[0])
		u4(a[1])
		c.key(a[2])
	case keyctlReject:
		c.key(a[0])
		u4(a[1])
		c.errnoName(uint32(a[2]))
		c.key(a[3])
	case keyctlSetReqkeyKeyring:
		c.nameD(a[0], constant.KeyReqkeyDefl)
	case keyctlSetTimeout:
		c.key(a[0])
		u4(a[1])
	case keyctlSessionToParent:
	case keyctlGetPersistent:
		c.userID(a[0])
		c.key(a[1])
	case keyctlDHCompute:
		c.obj(In, a[0], 12, func(c *Cx, b []byte) {
			c.Struct()
			for i, name := range [...]string{"private", "prime", "base"} {
				c.Field(name)
				c.key(peek(b, 4*i, 4))
			}
			c.End()
		})
		if c.Entering() {
			return
		}
		c.Buffer(Out, a[1], keyLength(c.Ret, a[2]))
		c.Uint(a[2])
		c.keyctlKdf(a[3])
	case keyctlPkeyQuery:
		c.key(a[0])
		c.Hex(a[1])
		c.Text(In, a[2])
		if c.Entering() {
			return
		}
		if b, ok := c.Load(Out, a[3], pkeyQuerySize); ok {
			f := c.begin(b)
			f.flags("supported_ops", 4, constant.KeyctlPkeyOps)
			f.u4("key_size")
			f.u2("max_data_size")
			f.u2("max_sig_size")
			f.u2("max_enc_size")
			f.u2("max_dec_size")
			f.nonzeros("__spare", 4, 10)
			f.end()
		}
	case keyctlPkeyEncrypt, keyctlPkeyDecrypt, keyctlPkeySign, keyctlPkeyVerify:
		c.pkeyOp(op, a)
	case keyctlRestrictKeyring:
		c.key(a[0])
		c.Text(In, a[1])
		c.Text(In, a[2])
	case keyctlMove:
		c.key(a[0])
		c.key(a[1])
		c.key(a[2])
		c.Flags(uint64(uint32(a[3])), constant.KeyctlMoveFlags)
	case keyctlCapabilities:
		if c.Entering() {
			return
		}
		if c.Failed() {
			c.Ptr(a[0])
		} else {
			i := 0
			c.list(Out, a[0], min(a[1], uint64(c.Ret)), 1, func(c *Cx, b []byte) {
				switch i++; i {
				case 1:
					c.Flags(uint64(b[0]), constant.KeyctlCaps0)
				case 2:
					c.Flags(uint64(b[0]), constant.KeyctlCaps1)
				default:
					c.Hex(uint64(b[0]))
				}
			})
		}
		c.Uint(a[1])
	default:
		for _, v := range a[:4] {
			c.Hex(v)
		}
	}
}

// keyLength is how many bytes an operation that returned ret put into a buffer of size bytes.
func keyLength(ret int64, size uint64) int64 {
	if ret >= 0 && uint64(ret) > size {
		return int64(size)
	}
	return ret
}

// keyctlKdf adds the struct keyctl_kdf_params at addr.
func (c *Cx) keyctlKdf(addr uint64) {
	word := c.ABI.PtrSize
	c.obj(In, addr, 2*word+40&^(word-1), func(c *Cx, b []byte) {
		f := c.begin(b)
		c.Field("hashname")
		c.Text(In, f.num(word))
		n := peek(b, 2*word, 4)
		c.Field("otherinfo")
		if other := f.num(word); n != 0 {
			c.Buffer(In, other, int64(n))
		} else {
			c.Ptr(other)
		}
		f.u4("otherinfolen")
		f.nonzeros("__spare", 4, 8)
		f.end()
	})
}

// pkeyOp adds the arguments of the operations with a public key: params, info, in, and out or in2.
func (c *Cx) pkeyOp(op uint32, a []uint64) {
	b, errno := c.Bytes(In, a[0], pkeyParamsSize)
	last := "out_len"
	if op == keyctlPkeyVerify {
		last = "in2_len"
	}
	if b == nil {
		c.Unreadable(a[0], errno)
	} else {
		f := c.begin(b)
		c.Field("key_id")
		c.key(f.num(4))
		f.u4("in_len")
		f.u4(last)
		f.nonzeros("__spare", 4, 7)
		f.end()
	}
	c.Text(In, a[1])
	if b == nil {
		c.Ptr(a[2])
		c.Ptr(a[3])
		return
	}
	c.Buffer(In, a[2], int64(peek(b, 4, 4)))
	switch {
	case op == keyctlPkeyVerify:
		c.Buffer(In, a[3], int64(peek(b, 8, 4)))
	case c.Entering():
	default:
		c.Buffer(Out, a[3], int64(peek(b, 8, 4)))
	}
}
