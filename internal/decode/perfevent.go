package decode

import (
	"fmt"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// perfAttrSize is sizeof(struct perf_event_attr) as far as it is known here; perfAttrMin that of the first version.
const (
	perfAttrSize = 144
	perfAttrMin  = 64
	perfAttrHead = 48 // offset of wakeup_events: what an abbreviated trace shows
)

var perfCalls = []Spec{{
	Name:   "perf_event_open",
	RetFD:  true,
	Ret:    retFD,
	Enter:  []syscalls.Fetch{syscalls.Fixed(0, perfAttrSize)},
	Exit:   []syscalls.Fetch{syscalls.Fixed(0, 8)},
	Decode: args((*Cx).perfAttrArg, aInt, aInt, aFD, aPerfFlags),
}}

func aPerfFlags(c *Cx, i int) { c.Flags(c.Arg[i], constant.PerfOpenFlags) }

func (c *Cx) perfAttrArg(i int) {
	if c.perfAttrReadable(c.Arg[i]) && c.Entering() {
		c.stop = true
		return
	}
	c.perfEventAttr(c.Arg[i])
}

// perfAttrShown is how many bytes of the structure at addr to show; 0 when its size makes no sense.
func (c *Cx) perfAttrShown(addr uint64) int {
	b, _ := c.Bytes(In, addr, 8)
	if b == nil {
		return 0
	}
	size := int(min(uint64(U32(b, 4)), perfAttrSize))
	if size == 0 {
		size = perfAttrMin
	}
	switch {
	case size < perfAttrMin:
		return 0
	case c.Opt.Abbrev:
		return perfAttrHead
	}
	return size
}

func (c *Cx) perfAttrReadable(addr uint64) bool {
	n := c.perfAttrShown(addr)
	b, _ := c.Bytes(In, addr, n)
	return n > 0 && b != nil
}

var preciseIP = [4]string{"arbitrary skid", "constant skid", "requested to have 0 skid", "must have 0 skid"}

// perfBits are the flag bits of struct perf_event_attr by number; precise_ip takes 15 and 16.
var perfBits = [...]string{
	"disabled", "inherit", "pinned", "exclusive", "exclude_user", "exclude_kernel", "exclude_hv", "exclude_idle", "mmap",
	"comm", "freq", "inherit_stat", "enable_on_exec", "task", "watermark", "precise_ip", "", "mmap_data", "sample_id_all",
	"exclude_host", "exclude_guest", "exclude_callchain_kernel", "exclude_callchain_user", "mmap2", "comm_exec",
	"use_clockid", "context_switch", "write_backward", "namespaces", "ksymbol", "bpf_event", "aux_output", "cgroup",
	"text_poke", "build_id", "inherit_thread", "remove_on_exec", "sigtrap",
}

const (
	perfFreq       = 1 << 10
	perfWatermark  = 1 << 14
	perfUseClockID = 1 << 25

	perfTypeHardware   = 0
	perfTypeSoftware   = 1
	perfTypeTracepoint = 2
	perfTypeHwCache    = 3
	perfTypeBreakpoint = 5

	perfSampleBranchStack = 1 << 11
	perfSampleStackUser   = 1 << 13
)

// perfEventAttr adds the struct perf_event_attr at addr (linux/perf_event.h) as it was at entry.
func (c *Cx) perfEventAttr(addr uint64) {
	n := c.perfAttrShown(addr)
	if n == 0 {
		c.Ptr(addr)
		return
	}
	b, errno := c.Bytes(In, addr, n)
	if b == nil {
		c.Unreadable(addr, errno)
		return
	}
	f := c.begin(b)
	typ, size := peek(b, 0, 4), peek(b, 4, 4)
	f.enum("type", 4, constant.PerfTypeID)
	f.skip(4)
	c.Field("size")
	if c.Errno() == 7 { // E2BIG: the kernel wrote the size it knows
		c.Begin(event.Node{Kind: event.KindChange})
		c.Name(size, constant.PerfAttrSize)
		if now, errno := c.Bytes(Out, addr, 8); now != nil {
			c.Name(uint64(U32(now, 4)), constant.PerfAttrSize)
		} else {
			c.Unreadable(addr+4, errno)
		}
		c.End()
	} else {
		c.Name(size, constant.PerfAttrSize)
	}
	config := f.num(8)
	c.Field("config")
	c.perfConfig(typ, config)
	bits := peek(b, 40, 8)
	if bits&perfFreq != 0 {
		f.u8("sample_freq")
	} else {
		f.u8("sample_period")
	}
	sample := peek(b, f.off, 8)
	f.flags("sample_type", 8, constant.PerfSampleType)
	f.flags("read_format", 8, constant.PerfReadFormat)
	for i, name := range perfBits {
		switch {
		case name == "":
		case name == "precise_ip":
			v := bits >> i & 3
			c.Field(name).Uint(v)
			c.Builder.Note(preciseIP[v])
		case !c.Opt.Abbrev || bits>>i&1 != 0:
			c.Field(name).Uint(bits >> i & 1)
		}
	}
	if rest := bits >> len(perfBits); rest != 0 {
		c.Field("__reserved_1").Hex(rest)
		c.Builder.Note("Bits 63..38")
	}
	f.skip(8)
	if !c.Opt.Abbrev {
		f.perfTail(typ, sample, bits)
	}
	if size != 0 && size > uint64(n) || size == 0 && n < perfAttrMin {
		c.More()
	}
	f.end()
}

// perfConfig adds the config member, whose meaning depends on the type.
func (c *Cx) perfConfig(typ, config uint64) {
	shifted := func(v, by uint64) {
		c.expr("<<")
		c.Hex(v)
		c.Uint(by)
		c.End()
	}
	switch typ {
	case perfTypeHardware:
		if config>>32 == 0 {
			c.Name(config, constant.PerfHwID)
			return
		}
		c.expr("|")
		shifted(config>>32, 32)
		c.Name(config&0xffffffff, constant.PerfHwID)
		c.End()
	case perfTypeSoftware:
		c.Name(config, constant.PerfSwID)
	case perfTypeTracepoint:
		c.Uint(config)
	case perfTypeHwCache:
		c.expr("|")
		if config>>32 != 0 {
			shifted(config>>32, 32)
		}
		if v := config & 0xffffffff >> 24; v != 0 {
			shifted(v, 24)
		}
		c.expr("<<")
		c.Name(config>>16&0xff, constant.PerfHwCacheResult)
		c.Uint(16)
		c.End()
		c.expr("<<")
		c.Name(config>>8&0xff, constant.PerfHwCacheOp)
		c.Uint(8)
		c.End()
		c.Name(config&0xff, constant.PerfHwCacheID)
		c.End()
	default:
		c.Hex(config)
	}
}

// perfTail adds the members from wakeup_events on, as far as the structure goes. The kernel takes part of a member for
// the whole.
func (f *fields) perfTail(typ, sample, bits uint64) {
	c := f.c
	if bits&perfWatermark != 0 {
		f.u4("wakeup_watermark")
	} else {
		f.u4("wakeup_events")
	}
	kind := f.num(4)
	if typ == perfTypeBreakpoint {
		c.Field("bp_type")
		if name, ok := constant.HwBreakpointType.Name(kind); ok {
			c.Sym(name, kind)
		} else if kind <= 7 {
			c.Add(event.Node{Kind: event.KindHex, Num: kind, Sym: "HW_BREAKPOINT_INVALID"})
		} else {
			c.Add(event.Node{Kind: event.KindHex, Num: kind, Sym: "HW_BREAKPOINT_???"})
		}
		f.x8("bp_addr")
	} else {
		f.x8("config1")
	}
	if !f.reached() {
		return
	}
	if typ == perfTypeBreakpoint {
		f.u8("bp_len")
	} else {
		f.x8("config2")
	}
	if !f.reached() {
		return
	}
	if sample&perfSampleBranchStack != 0 {
		f.flags("branch_sample_type", 8, constant.PerfBranchSampleType)
	} else {
		f.skip(8)
	}
	if !f.reached() {
		return
	}
	f.x8("sample_regs_user")
	if !f.reached() {
		return
	}
	if sample&perfSampleStackUser != 0 {
		f.x4("sample_stack_user")
	} else {
		f.skip(4)
	}
	if bits&perfUseClockID != 0 {
		if !f.reached() {
			return
		}
		f.enum("clockid", 4, constant.PerfClock)
	} else {
		f.skip(4)
	}
	if !f.reached() {
		return
	}
	f.x8("sample_regs_intr")
	if !f.reached() {
		return
	}
	f.u4("aux_watermark")
	if !f.reached() {
		return
	}
	f.u2("sample_max_stack")
	if !f.reached() {
		return
	}
	if v := f.num(2); v != 0 {
		c.Builder.Note(fmt.Sprintf("bytes 110..111: %#x", v))
	}
	if !f.reached() {
		return
	}
	f.u4("aux_sample_size")
	if !f.reached() {
		return
	}
	action := f.num(4)
	for i, name := range [...]string{"aux_start_paused", "aux_pause", "aux_resume"} {
		c.Field(name).Uint(action >> i & 1)
	}
	if action>>3 != 0 {
		c.Field("__reserved_3").Hex(action >> 3)
		c.Builder.Note("Bits 931..959")
	}
	for _, name := range [...]string{"sig_data", "config3", "config4"} {
		if !f.reached() {
			return
		}
		f.x8(name)
	}
}
