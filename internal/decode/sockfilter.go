package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Classic BPF programs (linux/filter.h): struct sock_fprog {unsigned short len; struct sock_filter *filter;} with
// instructions {u16 code; u8 jt, jf; u32 k}. seccomp(2), prctl(2) and socket filters share them.

const (
	sockFilterSize = 8
	maxFilterShown = 4096 // BPF_MAXINSNS
)

// SockFprogFetches takes a struct sock_fprog that argument arg points to, and its program. at is the index of the first of
// them in the list that they become part of.
func SockFprogFetches(arg, at int) []syscalls.Fetch {
	return []syscalls.Fetch{
		syscalls.Fixed(arg, 16),
		{Kind: syscalls.FetchBytes, Base: syscalls.Mem(at, 8, 8),
			Len: syscalls.Length{Number: syscalls.Mem(at, 0, 2), Elem: sockFilterSize, Max: maxFilterShown * sockFilterSize}},
	}
}

// SockFprogFetches32 is SockFprogFetches for ABIs with 4-byte pointers.
func SockFprogFetches32(arg, at int) []syscalls.Fetch {
	return []syscalls.Fetch{
		syscalls.Fixed(arg, 8),
		{Kind: syscalls.FetchBytes, Base: syscalls.Mem(at, 4, 4),
			Len: syscalls.Length{Number: syscalls.Mem(at, 0, 2), Elem: sockFilterSize, Max: maxFilterShown * sockFilterSize}},
	}
}

// SockFprog adds the struct sock_fprog at addr with its program, as socket filters use it.
func (c *Cx) SockFprog(m Moment, addr uint64) { c.fprog(m, addr, (*Cx).socketFilterK) }

// SeccompFprog adds the struct sock_fprog at addr with its program, as seccomp(2) uses it.
func (c *Cx) SeccompFprog(m Moment, addr uint64) { c.fprog(m, addr, (*Cx).seccompFilterK) }

// fprog adds a program; k shows the operand of an instruction when that has more meaning than a number.
func (c *Cx) fprog(m Moment, addr uint64, k func(c *Cx, code uint16, k uint32) bool) {
	b, errno := c.Bytes(m, addr, 2*c.ABI.PtrSize)
	if b == nil {
		c.Unreadable(addr, errno)
		return
	}
	n, insns := uint64(U16(b, 0)), c.Word(b, c.ABI.PtrSize)
	c.Struct()
	c.Field("len").Uint(n)
	c.Field("filter")
	c.filterInsns(m, insns, n, k)
	c.End()
}

// filterInsns adds the n instructions at addr, its address alone when abbreviated.
func (c *Cx) filterInsns(m Moment, addr, n uint64, k func(c *Cx, code uint16, k uint32) bool) {
	if c.Opt.Abbrev {
		c.Ptr(addr)
		return
	}
	shown := 0
	c.list(m, addr, n, sockFilterSize, func(c *Cx, b []byte) {
		shown++
		if shown > maxFilterShown {
			if shown == maxFilterShown+1 {
				c.More()
			}
			return
		}
		code, jt, jf, operand := U16(b, 0), b[2], b[3], U32(b, 4)
		if jt != 0 || jf != 0 {
			c.Call("BPF_JUMP")
			c.filterCode(code)
			c.Hex(uint64(operand))
			c.Hex(uint64(jt))
			c.Hex(uint64(jf))
			c.End()
			return
		}
		c.Call("BPF_STMT")
		c.filterCode(code)
		if k == nil || !k(c, code, operand) {
			c.Hex(uint64(operand))
		}
		c.End()
	})
}

// filterCode adds the operation of a classic instruction.
func (c *Cx) filterCode(code uint16) {
	at := len(c.Nodes)
	c.expr("|")
	rest := code &^ 7
	c.Name(uint64(code&7), constant.BpfClass)
	unknown := func(v uint16) {
		if v != 0 {
			c.Add(event.Node{Kind: event.KindHex, Num: uint64(v), Sym: "BPF_???"})
		}
	}
	switch code & 7 {
	case 2, 3: // BPF_ST, BPF_STX
		unknown(rest)
	case 0, 1: // BPF_LD, BPF_LDX
		c.Name(uint64(code&0x18), constant.BpfSize)
		c.Name(uint64(code&0xe0), constant.BpfMode)
	case 7: // BPF_MISC
		c.Name(uint64(code&0xf8), constant.BpfMiscop)
		unknown(rest &^ 0xf8)
	case 4: // BPF_ALU
		c.Name(uint64(code&8), constant.BpfSrc)
		c.Name(uint64(code&0xf0), constant.BpfOpAlu)
	case 5: // BPF_JMP
		c.Name(uint64(code&8), constant.BpfSrc)
		c.Name(uint64(code&0xf0), constant.BpfOpJmp)
	case 6: // BPF_RET
		c.Name(uint64(code&0x18), constant.BpfRval)
		unknown(rest &^ 0x18)
	}
	c.endExpr(at)
}

// seccompFilterK shows what a filter returns: an action and its data.
func (c *Cx) seccompFilterK(code uint16, k uint32) bool {
	if code&7 != 6 {
		return false
	}
	const action = 0xffff0000 // SECCOMP_RET_ACTION_FULL
	at := len(c.Nodes)
	c.expr("|")
	c.Name(uint64(k&action), constant.SeccompRetAction)
	if k&^action != 0 {
		c.Hex(uint64(k &^ action))
	}
	c.endExpr(at)
	return true
}

// socketFilterK shows the ancillary data that a load refers to.
func (c *Cx) socketFilterK(code uint16, k uint32) bool {
	if code&7 != 0 || code&0xe0 != 0x20 { // BPF_LD, BPF_ABS
		return false
	}
	const ad, network, link = 0xfffff000, 0xfff00000, 0xffe00000
	switch {
	case k >= ad:
		c.expr("+")
		c.Sym("SKF_AD_OFF", ad)
		c.Name(uint64(k-ad), constant.SkfAd)
	case k >= network:
		c.expr("+")
		c.Sym("SKF_NET_OFF", network)
		c.Uint(uint64(k - network))
	case k >= link:
		c.expr("+")
		c.Sym("SKF_LL_OFF", link)
		c.Uint(uint64(k - link))
	default:
		return false
	}
	c.End()
	return true
}
