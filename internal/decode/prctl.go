package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Options of prctl(2) by number, include/uapi/linux/prctl.h.
const (
	prSetPdeathsig = 1 + iota
	prGetPdeathsig
	prGetDumpable
	prSetDumpable
	prGetUnalign
	prSetUnalign
	prGetKeepcaps
	prSetKeepcaps
	prGetFpemu
	prSetFpemu
	prGetFpexc
	prSetFpexc
	prGetTiming
	prSetTiming
	prSetName
	prGetName

	prGetEndian           = 19
	prSetEndian           = 20
	prGetSeccomp          = 21
	prSetSeccomp          = 22
	prCapbsetRead         = 23
	prCapbsetDrop         = 24
	prGetTsc              = 25
	prSetTsc              = 26
	prGetSecurebits       = 27
	prSetSecurebits       = 28
	prSetTimerslack       = 29
	prGetTimerslack       = 30
	prPerfEventsDisable   = 31
	prPerfEventsEnable    = 32
	prMceKill             = 33
	prMceKillGet          = 34
	prSetMM               = 35
	prSetChildSubreaper   = 36
	prGetChildSubreaper   = 37
	prSetNoNewPrivs       = 38
	prGetTidAddress       = 40
	prSetThpDisable       = 41
	prSetFpMode           = 45
	prGetFpMode           = 46
	prCapAmbient          = 47
	prSveSetVL            = 50
	prSveGetVL            = 51
	prGetSpeculationCtrl  = 52
	prSetSpeculationCtrl  = 53
	prPacResetKeys        = 54
	prSetTaggedAddrCtrl   = 55
	prGetTaggedAddrCtrl   = 56
	prSetIoFlusher        = 57
	prSetUserDispatch     = 59
	prPacSetEnabledKeys   = 60
	prPacGetEnabledKeys   = 61
	prSchedCore           = 62
	prSmeSetVL            = 63
	prSmeGetVL            = 64
	prSetMdwe             = 65
	prGetMdwe             = 66
	prRiscvVSetControl    = 69
	prRiscvVGetControl    = 70
	prRiscvSetIcacheFlush = 71
	prPpcGetDexcr         = 72
	prPpcSetDexcr         = 73
	prSetVma              = 0x53564d41
	prSetPtracer          = 0x59616d61
	prMiscMemory          = 16 // bytes of a name
	seccompStrict         = 1
	seccompFilter         = 2
	prSchedCoreGet        = 0
	prVmaAnonName         = 0
	prVmaNameMax          = 80
	prMteShift, prMteMask = 3, 0xffff << 3
	prMteTcfMask          = 3 << 1
	prSveLenMask          = 0xffff
)

var prctlCalls = []Spec{
	{
		Name: "prctl",
		Enter: append(takes(
			syscalls.Fixed(1, prMiscMemory).If(0, prSetName),
			syscalls.Fetch{Kind: syscalls.FetchString, Base: syscalls.Arg(4), Len: syscalls.Length{Max: prVmaNameMax}}.If(0, prSetVma)),
			onlyIf(0, prSetSeccomp, SockFprogFetches(2, 2))...),
		Enter32: append(takes(
			syscalls.Fixed(1, prMiscMemory).If(0, prSetName),
			syscalls.Fetch{Kind: syscalls.FetchString, Base: syscalls.Arg(4), Len: syscalls.Length{Max: prVmaNameMax}}.If(0, prSetVma)),
			onlyIf(0, prSetSeccomp, SockFprogFetches32(2, 2))...),
		Exit: takes(
			syscalls.Fixed(1, prMiscMemory).If(0, prGetName),
			syscalls.Fixed(1, 8).If(0, prGetTidAddress),
			syscalls.Fixed(1, 4).If(0, prGetPdeathsig, prGetUnalign, prGetFpemu, prGetFpexc, prGetEndian, prGetTsc, prGetChildSubreaper),
			syscalls.Fixed(4, 8).If(0, prSchedCore)),
		Decode: prctl, Ret: prctlRet,
	},
	{
		Name:   "arch_prctl",
		Exit:   takes(syscalls.Fixed(1, 8).If(0, archGetFS, archGetGS, archGetXcompSupp, archGetXcompPerm, archGetXcompGuestPerm)),
		Decode: archPrctl,
		Ret: func(c *Cx) {
			if op := uint32(c.Arg[0]); (op == archReqXcompPerm || op == archReqXcompGuestPerm) && c.Ret > 0 {
				if text := flagsText(c.ABI.Name, uint64(c.Ret), constant.XfeatureMask); text != hexText(uint64(c.Ret)) {
					c.Note = text
				}
				c.Hex(uint64(c.Ret))
				return
			}
			c.Int(c.Ret)
		},
	},
}

// onlyIf restricts fetches to the calls whose argument arg has a value.
func onlyIf(arg int, value uint64, list []syscalls.Fetch) []syscalls.Fetch {
	for i := range list {
		list[i] = list[i].If(arg, value)
	}
	return list
}

// prctlRest adds the arguments from number first on.
func (c *Cx) prctlRest(first int) {
	for _, v := range c.Arg[first:5] {
		c.Hex(v)
	}
}

func (c *Cx) prctlGet(elem func(c *Cx, b []byte)) {
	if !c.Entering() {
		c.ref(Out, c.Arg[1], 4, elem)
	}
}

func prctl(c *Cx) {
	op, a2, a3 := uint32(c.Arg[0]), c.Arg[1], c.Arg[2]
	c.Name(uint64(op), constant.PrctlOption)
	switch op {
	case prGetKeepcaps, prGetTiming, prGetSeccomp, prGetTimerslack, prPerfEventsDisable, prPerfEventsEnable,
		prGetDumpable, prGetSecurebits, prGetFpMode, prSveGetVL, prSmeGetVL, prRiscvVGetControl:
	case prGetFpemu, prGetFpexc, prGetEndian, prGetChildSubreaper:
		c.prctlGet(uintNumber)
	case prSetKeepcaps, prSetFpemu, prSetFpexc, prSetTiming, prSetEndian, prSetChildSubreaper:
		c.Uint(a2)
	case prSetNoNewPrivs, prSetThpDisable, prSetIoFlusher:
		c.Uint(a2)
		c.prctlRest(2)
	case prSetPdeathsig:
		if a2 > 128 {
			c.Uint(a2)
		} else {
			c.Signal(a2)
		}
	case prGetPdeathsig:
		c.prctlGet(func(c *Cx, b []byte) { c.Signal(uint64(U32(b, 0))) })
	case prSetDumpable:
		c.Name(a2, constant.PrctlDumpable)
	case prGetUnalign:
		c.prctlGet(func(c *Cx, b []byte) { c.Flags(uint64(U32(b, 0)), constant.PrctlUnalign) })
	case prSetUnalign:
		c.Flags(uint64(uint32(a2)), constant.PrctlUnalign)
	case prSetName:
		c.shortText(In, a2, prMiscMemory-1)
	case prGetName:
		if !c.Entering() {
			if c.Failed() {
				c.Ptr(a2)
			} else {
				c.shortText(Out, a2, prMiscMemory)
			}
		}
	case prSetSeccomp:
		c.Name(a2, constant.SeccompMode)
		switch a2 {
		case seccompStrict:
		case seccompFilter:
			c.SeccompFprog(In, a3)
		default:
			c.prctlRest(2)
		}
	case prCapbsetRead, prCapbsetDrop:
		c.Name(a2, constant.Capability)
	case prGetTsc:
		c.prctlGet(func(c *Cx, b []byte) { c.Name(uint64(U32(b, 0)), constant.PrctlTsc) })
	case prSetTsc:
		c.Name(uint64(uint32(a2)), constant.PrctlTsc)
	case prSetSecurebits:
		c.Flags(a2, constant.SecureBits)
	case prSetTimerslack:
		c.Long(a2)
	case prMceKill:
		c.Name(a2, constant.PrctlMceKill)
		if a2 == 1 {
			c.Name(a3, constant.PrctlMcePolicy)
			c.prctlRest(3)
		} else {
			c.prctlRest(2)
		}
	case prSetMM:
		c.Name(uint64(uint32(a2)), constant.PrctlSetMM)
		c.prctlRest(2)
	case prGetTidAddress:
		if !c.Entering() {
			// The kernel writes a pointer of its own size.
			c.ref(Out, a2, 8, func(c *Cx, b []byte) { c.Ptr(U64(b, 0)) })
		}
	case prSetFpMode:
		c.Flags(uint64(uint32(a2)), constant.PrctlFpMode)
	case prCapAmbient:
		c.Name(a2, constant.PrctlCapAmbient)
		if a2 >= 1 && a2 <= 3 { // PR_CAP_AMBIENT_IS_SET, _RAISE, _LOWER
			c.Name(a3, constant.Capability)
			c.prctlRest(3)
		} else {
			c.prctlRest(2)
		}
	case prSveSetVL:
		c.vectorLength(a2, constant.PrctlSve)
	case prSmeSetVL:
		c.vectorLength(a2, constant.PrctlSme)
	case prGetSpeculationCtrl:
		c.Name(a2, constant.PrctlSpec)
	case prSetSpeculationCtrl:
		c.Name(a2, constant.PrctlSpec)
		if a2 <= 2 {
			c.Name(a3, constant.PrctlSpecSet)
		} else {
			c.Hex(a3)
		}
	case prPacResetKeys:
		c.Flags(a2, constant.PrctlPac)
		c.prctlRest(2)
	case prSetTaggedAddrCtrl:
		c.Add(event.Node{Kind: event.KindSym, Num: a2, Data: c.Keep([]byte(taggedAddrText(a2)))})
		c.prctlRest(2)
	case prSetUserDispatch:
		c.Name(a2, constant.PrctlUserDispatch)
		c.Hex(a3)
		c.Hex(c.Arg[3])
		c.Ptr(c.Arg[4])
	case prPacSetEnabledKeys:
		c.Flags(a2, constant.PrctlPacEnabled)
		c.Flags(a3, constant.PrctlPacEnabled)
		c.prctlRest(3)
	case prSchedCore:
		c.Name(uint64(uint32(a2)), constant.PrctlSchedCore)
		c.PID(a3)
		c.verboseName(uint64(uint32(c.Arg[3])), constant.PidType)
		if uint32(a2) != prSchedCoreGet {
			c.prctlRest(4)
		} else if !c.Entering() {
			c.ref(Out, c.Arg[4], 8, hexNumber)
		}
	case prSetMdwe:
		c.Flags(uint64(uint32(a2)), constant.PrctlMdwe)
		c.prctlRest(2)
	case prRiscvVSetControl:
		c.Add(event.Node{Kind: event.KindSym, Num: a2, Data: c.Keep([]byte(riscvVText(a2)))})
	case prRiscvSetIcacheFlush:
		c.Name(a2, constant.PrctlRiscvCtx)
		c.Name(a3, constant.PrctlRiscvScope)
	case prPpcGetDexcr:
		c.Name(a2, constant.PrctlDexcr)
		c.prctlRest(2)
	case prPpcSetDexcr:
		c.Name(a2, constant.PrctlDexcr)
		c.Flags(a3, constant.PrctlDexcrCtrl)
		c.prctlRest(3)
	case prSetVma:
		c.Name(a2, constant.PrctlVma)
		if a2 == prVmaAnonName {
			c.Ptr(a3)
			c.Uint(c.Arg[3])
			c.Text(In, c.Arg[4])
		} else {
			c.prctlRest(2)
		}
	case prSetPtracer:
		if int32(a2) == -1 {
			c.Add(event.Node{Kind: event.KindSym, Sym: "PR_SET_PTRACER_ANY", Num: 1<<64 - 1, Attr: event.AttrDecimal})
		} else {
			c.PID(a2)
		}
	default:
		c.prctlRest(1)
	}
}

// prctlRet shows what options that return a value mean by it.
func prctlRet(c *Cx) {
	v := uint64(c.Ret)
	hex := true
	switch op := uint32(c.Arg[0]); op {
	case prGetDumpable:
		c.Note, _ = constant.PrctlDumpable.Name(v)
		hex = false
	case prMceKillGet:
		c.Note, _ = constant.PrctlMcePolicy.Name(v)
		hex = false
	case prGetSecurebits, prGetFpMode, prGetMdwe, prPacGetEnabledKeys, prPpcGetDexcr:
		set := map[uint32]*constant.Set{prGetSecurebits: constant.SecureBits, prGetFpMode: constant.PrctlFpMode,
			prGetMdwe: constant.PrctlMdwe, prPacGetEnabledKeys: constant.PrctlPacEnabled, prPpcGetDexcr: constant.PrctlDexcrCtrl}[op]
		if v == 0 {
			hex = false
		} else {
			c.Note = flagsNote(v, set)
		}
	case prSveGetVL, prSveSetVL:
		c.Note = vectorLengthNote(v, constant.PrctlSve)
		hex = v != 0
	case prSmeGetVL, prSmeSetVL:
		c.Note = vectorLengthNote(v, constant.PrctlSme)
		hex = v != 0
	case prGetSpeculationCtrl:
		if hex = c.Arg[1] <= 2; hex {
			c.Note = flagsNote(v, constant.PrctlSpecGet)
			if v == 0 {
				c.Note = "PR_SPEC_NOT_AFFECTED"
			}
		}
	case prGetTaggedAddrCtrl:
		c.Note = taggedAddrText(v)
	case prRiscvVGetControl:
		c.Note = riscvVText(v)
	default:
		hex = false
	}
	if hex {
		retHex(c)
	} else {
		c.Int(c.Ret)
	}
}

// flagsNote is a set of flags as the explanation of a number: nothing when none has a name.
func flagsNote(v uint64, s *constant.Set) string {
	for i := range s.Entries {
		if e := s.Entries[i].Num; e != 0 && v&e == e {
			return flagsText("amd64", v, s)
		}
	}
	return ""
}

// vectorLength adds the length of SVE or SME vectors with its flags.
func (c *Cx) vectorLength(v uint64, s *constant.Set) {
	flags := v &^ prSveLenMask
	if flags == 0 {
		c.Hex(v & prSveLenMask)
		return
	}
	c.open(v)
	c.flagNames(flags, s)
	c.Hex(v & prSveLenMask)
	c.End()
}

func vectorLengthNote(v uint64, s *constant.Set) string {
	if v&^prSveLenMask == 0 {
		return ""
	}
	return flagsText("amd64", v&^prSveLenMask, s) + "|" + string(appendHex(nil, v&prSveLenMask))
}

// taggedAddrText is the mode of tagged addresses and of the memory tagging extension.
func taggedAddrText(v uint64) string {
	b := []byte("!PR_TAGGED_ADDR_ENABLE|")
	if v&1 != 0 {
		b = b[1:]
	}
	if name, ok := constant.PrctlMteTcf.Name(v & prMteTcfMask); ok {
		b = append(b, name...)
	} else {
		b = appendHex(b, v&prMteTcfMask)
	}
	if tag := v & prMteMask; tag != 0 {
		b = append(appendHex(append(b, '|'), tag>>prMteShift), "<<PR_MTE_TAG_SHIFT"...)
	}
	if rest := v &^ (1 | prMteTcfMask | prMteMask); rest != 0 {
		b = appendHex(append(b, '|'), rest)
	}
	return string(b)
}

// riscvVText is the state of the vector unit, now and after execve, and whether it is inherited.
func riscvVText(v uint64) string {
	state := func(b []byte, v uint64) []byte {
		if name, ok := constant.PrctlRiscvV.Name(v); ok {
			return append(b, name...)
		}
		return appendHex(b, v)
	}
	b := append(state(nil, v&3), '|')
	b = append(state(b, v>>2&3), "<<2|"...)
	if v&0x10 == 0 {
		b = append(b, '!')
	}
	b = append(b, "PR_RISCV_V_VSTATE_CTRL_INHERIT"...)
	if rest := v &^ 0x1f; rest != 0 {
		b = appendHex(append(b, '|'), rest)
	}
	return string(b)
}

// verboseName adds a number with its name beside it.
func (c *Cx) verboseName(v uint64, s *constant.Set) {
	if name, ok := s.Name(v); ok {
		c.Add(event.Node{Kind: event.KindSym, Sym: name, Num: v, Attr: event.AttrVerbose})
		return
	}
	c.Name(v, s)
}

// shortText adds a string of which the kernel reads or writes at most n bytes.
func (c *Cx) shortText(m Moment, addr uint64, n int) {
	if addr == 0 {
		c.Ptr(0)
		return
	}
	b, _, errno := c.Mem(m, addr, n)
	for i, ch := range b {
		if ch == 0 {
			c.Add(event.Node{Kind: event.KindString, Data: b[:i]})
			return
		}
	}
	if len(b) < n {
		c.Unreadable(addr, errno)
		return
	}
	c.Add(event.Node{Kind: event.KindString, Data: b, Attr: event.AttrTruncated})
}

// Options of arch_prctl(2), arch/x86/include/uapi/asm/prctl.h.
const (
	archGetFS             = 0x1003
	archGetGS             = 0x1004
	archGetCPUID          = 0x1011
	archGetXcompSupp      = 0x1021
	archGetXcompPerm      = 0x1022
	archReqXcompPerm      = 0x1023
	archGetXcompGuestPerm = 0x1024
	archReqXcompGuestPerm = 0x1025
)

func archPrctl(c *Cx) {
	op, addr := uint32(c.Arg[0]), c.Arg[1]
	c.Name(uint64(op), constant.ArchPrctl)
	switch op {
	case archGetFS, archGetGS:
		if !c.Entering() {
			c.ref(Out, addr, 8, func(c *Cx, b []byte) { c.Ptr(U64(b, 0)) })
		}
	case archGetCPUID:
	case archGetXcompSupp, archGetXcompPerm, archGetXcompGuestPerm:
		if !c.Entering() {
			c.ref(Out, addr, 8, func(c *Cx, b []byte) { c.verboseFlags(U64(b, 0), constant.XfeatureMask) })
		}
	case archReqXcompPerm, archReqXcompGuestPerm:
		c.verboseName(addr, constant.Xfeature)
	default:
		c.Hex(addr)
	}
}

// verboseFlags adds flags with their number beside them.
func (c *Cx) verboseFlags(v uint64, s *constant.Set) {
	at := len(c.Nodes)
	c.Flags(v, s)
	if k := c.Nodes[at].Kind; k == event.KindFlags || k == event.KindSym {
		c.Nodes[at].Attr |= event.AttrVerbose
	}
}
