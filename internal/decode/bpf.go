package decode

import (
	"bytes"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Commands of bpf(2) (enum bpf_cmd, linux/bpf.h).
const (
	bpfMapCreate = iota
	bpfMapLookupElem
	bpfMapUpdateElem
	bpfMapDeleteElem
	bpfMapGetNextKey
	bpfProgLoad
	bpfObjPin
	bpfObjGet
	bpfProgAttach
	bpfProgDetach
	bpfProgTestRun
	bpfProgGetNextID
	bpfMapGetNextID
	bpfProgGetFDByID
	bpfMapGetFDByID
	bpfObjGetInfoByFD
	bpfProgQuery
	bpfRawTracepointOpen
	bpfBtfLoad
	bpfBtfGetFDByID
	bpfTaskFDQuery
	bpfMapLookupAndDeleteElem
	bpfMapFreeze
	bpfBtfGetNextID
	bpfMapLookupBatch
	bpfMapLookupAndDeleteBatch
	bpfMapUpdateBatch
	bpfMapDeleteBatch
	bpfLinkCreate
	bpfLinkUpdate
	bpfLinkGetFDByID
	bpfLinkGetNextID
	bpfEnableStats
	bpfIterCreate
	bpfLinkDetach
	bpfProgBindMap
	bpfTokenCreate
	bpfProgStreamReadByFD
	bpfProgAssocStructOps
)

// Attach types (enum bpf_attach_type) that choose a member of a union.
const (
	bpfTraceFentry       = 24
	bpfTraceFexit        = 25
	bpfModifyReturn      = 26
	bpfLsmMac            = 27
	bpfTraceIter         = 28
	bpfXDP               = 37
	bpfPerfEvent         = 41
	bpfTraceKprobeMulti  = 42
	bpfNetfilter         = 45
	bpfTcxIngress        = 46
	bpfTcxEgress         = 47
	bpfTraceUprobeMulti  = 48
	bpfNetkitPrimary     = 54
	bpfNetkitPeer        = 55
	bpfTraceFsession     = 58
	bpfTraceFentryMulti  = 59
	bpfTraceFexitMulti   = 60
	bpfTraceFsessionMult = 61
)

const maxBpfAttr = 4096 // a page: the kernel takes no longer one

// memOf is a fetch of the memory whose address stands at off in the attributes.
func memOf(kind syscalls.FetchKind, base syscalls.Number, n syscalls.Number, elem, max int, when syscalls.Cond) syscalls.Fetch {
	return syscalls.Fetch{Kind: kind, Base: base,
		Len: syscalls.Length{Number: n, Elem: uint16(elem), Max: uint32(max)}, When: when}
}

// whenArg holds for calls whose argument arg is one of the values.
func whenArg(arg int, any ...uint64) syscalls.Cond {
	return syscalls.Cond{Value: syscalls.Arg(arg), Any: any}
}

// whenMem holds when the number at off in fetch 0 is one of the values.
func whenMem(off, width int, any ...uint64) syscalls.Cond {
	return syscalls.Cond{Value: syscalls.Mem(0, off, width), Any: any}
}

var bpfCalls = []Spec{{
	Name: "bpf",
	Enter: []syscalls.Fetch{
		syscalls.Vec(1, syscalls.Arg(2), 1, maxBpfAttr),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 8, 8), syscalls.Mem(0, 4, 4), 8, 8192, whenArg(0, bpfProgLoad)),
		memOf(syscalls.FetchString, syscalls.Mem(0, 16, 8), syscalls.Number{}, 0, 0, whenArg(0, bpfProgLoad)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 32, 8), syscalls.Mem(0, 28, 4), 0, 0, whenArg(0, bpfProgLoad)),
		memOf(syscalls.FetchString, syscalls.Mem(0, 0, 8), syscalls.Number{}, 0, syscalls.PathMax, whenArg(0, bpfObjPin, bpfObjGet)),
		memOf(syscalls.FetchString, syscalls.Mem(0, 0, 8), syscalls.Number{}, 0, 128, whenArg(0, bpfRawTracepointOpen)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 0, 8), syscalls.Mem(0, 16, 4), 0, 0, whenArg(0, bpfBtfLoad)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 16, 8), syscalls.Mem(0, 24, 4), 4, 1024, whenMem(8, 4, bpfTraceIter)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 24, 8), syscalls.Mem(0, 20, 4), 8, 4096, whenMem(8, 4, bpfTraceKprobeMulti)),
		memOf(syscalls.FetchString, syscalls.Mem(8, 0, 8), syscalls.Number{}, 0, 0, whenMem(8, 4, bpfTraceKprobeMulti)),
		memOf(syscalls.FetchString, syscalls.Mem(8, 8, 8), syscalls.Number{}, 0, 0, whenMem(8, 4, bpfTraceKprobeMulti)),
		memOf(syscalls.FetchString, syscalls.Mem(8, 16, 8), syscalls.Number{}, 0, 0, whenMem(8, 4, bpfTraceKprobeMulti)),
		memOf(syscalls.FetchString, syscalls.Mem(8, 24, 8), syscalls.Number{}, 0, 0, whenMem(8, 4, bpfTraceKprobeMulti)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 32, 8), syscalls.Mem(0, 20, 4), 8, 4096, whenMem(8, 4, bpfTraceKprobeMulti)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 40, 8), syscalls.Mem(0, 20, 4), 8, 4096, whenMem(8, 4, bpfTraceKprobeMulti)),
		memOf(syscalls.FetchString, syscalls.Mem(0, 16, 8), syscalls.Number{}, 0, syscalls.PathMax, whenMem(8, 4, bpfTraceUprobeMulti)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 24, 8), syscalls.Mem(0, 48, 4), 8, 4096, whenMem(8, 4, bpfTraceUprobeMulti)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 32, 8), syscalls.Mem(0, 48, 4), 8, 4096, whenMem(8, 4, bpfTraceUprobeMulti)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 40, 8), syscalls.Mem(0, 48, 4), 8, 4096, whenMem(8, 4, bpfTraceUprobeMulti)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 16, 8), syscalls.Mem(0, 32, 4), 4, 4096,
			whenMem(8, 4, bpfTraceFentryMulti, bpfTraceFexitMulti, bpfTraceFsessionMult)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 24, 8), syscalls.Mem(0, 32, 4), 8, 4096,
			whenMem(8, 4, bpfTraceFentryMulti, bpfTraceFexitMulti, bpfTraceFsessionMult)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 8, 8), syscalls.Mem(0, 4, 4), 0, maxBpfAttr, whenArg(0, bpfObjGetInfoByFD)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 152, 8), syscalls.Mem(0, 160, 4), 0, 0, whenArg(0, bpfProgLoad)),
		descriptorIf(syscalls.Mem(0, 0, 4), 0, bpfMapLookupElem, bpfMapUpdateElem, bpfMapDeleteElem, bpfMapGetNextKey, bpfMapFreeze,
			bpfMapLookupAndDeleteElem, bpfObjGetInfoByFD, bpfProgAttach, bpfProgTestRun, bpfLinkCreate, bpfLinkUpdate, bpfIterCreate,
			bpfLinkDetach, bpfProgBindMap),
		descriptorIf(syscalls.Mem(0, 20, 4), 0, bpfMapCreate), // inner_map_fd
		descriptorIf(syscalls.Mem(0, 48, 4), 0, bpfMapCreate), // btf_fd
		descriptorIf(syscalls.Mem(0, 72, 4), 0, bpfProgLoad),  // prog_btf_fd
		descriptorIf(syscalls.Mem(0, 112, 4), 0, bpfProgLoad), // attach_prog_fd
	},
	Exit: []syscalls.Fetch{
		syscalls.Vec(1, syscalls.Arg(2), 1, maxBpfAttr).If(0, bpfProgLoad, bpfProgGetNextID, bpfMapGetNextID,
			bpfBtfGetNextID, bpfLinkGetNextID, bpfObjGetInfoByFD, bpfProgQuery, bpfBtfLoad, bpfTaskFDQuery,
			bpfMapLookupBatch, bpfMapLookupAndDeleteBatch, bpfMapUpdateBatch, bpfMapDeleteBatch, bpfProgStreamReadByFD),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 8, 8), syscalls.Mem(0, 4, 4), 0, maxBpfAttr, whenArg(0, bpfObjGetInfoByFD)),
		memOf(syscalls.FetchBytes, syscalls.Mem(1, 24, 8), syscalls.Mem(1, 16, 4), 0, 0, whenArg(0, bpfObjGetInfoByFD)),
		memOf(syscalls.FetchBytes, syscalls.Mem(1, 32, 8), syscalls.Mem(1, 20, 4), 0, 8192, whenArg(0, bpfObjGetInfoByFD)),
		memOf(syscalls.FetchBytes, syscalls.Mem(1, 56, 8), syscalls.Mem(1, 52, 4), 4, 1024, whenArg(0, bpfObjGetInfoByFD)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 16, 8), syscalls.Mem(0, 24, 4), 4, 4096, whenArg(0, bpfProgQuery)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 32, 8), syscalls.Mem(0, 24, 4), 4, 4096, whenArg(0, bpfProgQuery)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 40, 8), syscalls.Mem(0, 24, 4), 4, 4096, whenArg(0, bpfProgQuery)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 48, 8), syscalls.Mem(0, 24, 4), 4, 4096, whenArg(0, bpfProgQuery)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 16, 8), syscalls.Mem(0, 12, 4), 0, 0, whenArg(0, bpfTaskFDQuery)),
		memOf(syscalls.FetchBytes, syscalls.Mem(0, 0, 8), syscalls.Mem(0, 8, 4), 0, 0, whenArg(0, bpfProgStreamReadByFD)),
	},
	Decode: decodeBpf,
	RetFD:  true,
	Ret: func(c *Cx) {
		switch uint32(c.Arg[0]) {
		case bpfMapCreate, bpfProgLoad, bpfObjPin, bpfObjGet, bpfProgGetFDByID, bpfMapGetFDByID, bpfBtfLoad, bpfBtfGetFDByID,
			bpfLinkCreate, bpfLinkGetFDByID, bpfEnableStats, bpfIterCreate, bpfProgBindMap, bpfTokenCreate:
			c.returnedFD(uint64(c.Ret))
		default:
			c.Int(c.Ret)
		}
	},
}}

// bpfAttrSize is the size of the attributes of each command as far as they are known here; more is shown as extra data.
var bpfAttrSize = [...]int{
	bpfMapCreate: 92, bpfMapLookupElem: 32, bpfMapUpdateElem: 32, bpfMapDeleteElem: 16, bpfMapGetNextKey: 24,
	bpfProgLoad: 168, bpfObjPin: 20, bpfObjGet: 20, bpfProgAttach: 32, bpfProgDetach: 32, bpfProgTestRun: 76,
	bpfProgGetNextID: 8, bpfMapGetNextID: 8, bpfProgGetFDByID: 4, bpfMapGetFDByID: 12, bpfObjGetInfoByFD: 16,
	bpfProgQuery: 64, bpfRawTracepointOpen: 24, bpfBtfLoad: 40, bpfBtfGetFDByID: 16, bpfTaskFDQuery: 48,
	bpfMapLookupAndDeleteElem: 32, bpfMapFreeze: 4, bpfBtfGetNextID: 8, bpfMapLookupBatch: 56,
	bpfMapLookupAndDeleteBatch: 56, bpfMapUpdateBatch: 56, bpfMapDeleteBatch: 56, bpfLinkCreate: 64, bpfLinkUpdate: 16,
	bpfLinkGetFDByID: 4, bpfLinkGetNextID: 8, bpfEnableStats: 4, bpfIterCreate: 8, bpfLinkDetach: 4, bpfProgBindMap: 12,
	bpfTokenCreate: 8, bpfProgStreamReadByFD: 20, bpfProgAssocStructOps: 12,
}

func decodeBpf(c *Cx) {
	cmd, addr, size := uint32(c.Arg[0]), c.Arg[1], uint64(uint32(c.Arg[2]))
	c.Name(uint64(cmd), constant.BpfCmd)
	switch {
	case size == 0 || size > maxBpfAttr || int(cmd) >= len(bpfAttrSize):
		c.Ptr(addr)
	default:
		in, errno := c.Bytes(In, addr, int(size))
		if in == nil {
			c.Unreadable(addr, errno)
			break
		}
		out, _ := c.Bytes(Out, addr, int(size))
		if out == nil {
			out = in
		}
		switch cmd {
		case bpfProgLoad, bpfProgGetNextID, bpfMapGetNextID, bpfBtfGetNextID, bpfLinkGetNextID, bpfObjGetInfoByFD,
			bpfProgQuery, bpfBtfLoad, bpfTaskFDQuery, bpfMapLookupBatch, bpfMapLookupAndDeleteBatch,
			bpfMapUpdateBatch, bpfMapDeleteBatch, bpfProgStreamReadByFD:
			if c.Entering() {
				return
			}
		}
		c.bpfAttr(cmd, in, out)
	}
	c.Uint(size)
}

// bpfAttr adds the attributes as they were at entry and after the return.
func (c *Cx) bpfAttr(cmd uint32, in, out []byte) {
	known := bpfAttrSize[cmd]
	switch cmd {
	case bpfMapLookupBatch, bpfMapLookupAndDeleteBatch, bpfMapUpdateBatch, bpfMapDeleteBatch:
		c.bpfBatch(cmd, in, out)
		return
	}
	f := c.begin(in)
	switch cmd {
	case bpfMapCreate:
		f.bpfMapCreate()
	case bpfMapLookupElem, bpfMapLookupAndDeleteElem:
		f.fd("map_fd")
		f.skip(4).p8("key")
		f.p8("value")
		if f.reached() {
			f.flags("flags", 8, constant.BpfMapLookupElemFlags)
		}
	case bpfMapUpdateElem:
		f.fd("map_fd")
		f.skip(4).p8("key")
		f.p8("value")
		f.flags("flags", 8, constant.BpfMapUpdateElemFlags)
	case bpfMapDeleteElem:
		f.fd("map_fd")
		f.skip(4).p8("key")
	case bpfMapGetNextKey:
		f.fd("map_fd")
		f.skip(4).p8("key")
		f.p8("next_key")
	case bpfMapFreeze:
		f.fd("map_fd")
	case bpfProgLoad:
		f.bpfProgLoad(out)
	case bpfObjPin, bpfObjGet:
		f.c.Field("pathname")
		c.PathAt(In, f.num(8))
		f.fd("bpf_fd")
		if f.reached() {
			f.flags("file_flags", 4, constant.BpfFileFlags)
		}
		if f.reached() {
			f.dirfd("path_fd")
		}
	case bpfProgAttach, bpfProgDetach:
		f.bpfTarget(uint32(peek(in, 8, 4)))
		f.fd("attach_bpf_fd")
		f.enum("attach_type", 4, constant.BpfAttachType)
		f.flags("attach_flags", 4, constant.BpfAttachFlags)
		if f.reached() {
			f.fd("replace_bpf_fd")
		}
		if f.reached() {
			f.bpfRelative(peek(in, 12, 4))
			f.u8("expected_revision")
		}
	case bpfProgTestRun:
		f.bpfTestRun()
	case bpfProgGetNextID, bpfMapGetNextID, bpfBtfGetNextID, bpfLinkGetNextID:
		f.u4("start_id")
		f.b = out
		// The kernel writes next_id whatever size it was told.
		if len(out) < 8 {
			if b, _ := c.Bytes(Out, c.Arg[1], 8); b != nil {
				f.b = b
			}
		}
		f.u4("next_id")
	case bpfProgGetFDByID:
		f.u4("prog_id")
	case bpfMapGetFDByID:
		f.u4("map_id")
		f.skip(4)
		if f.reached() {
			f.flags("open_flags", 4, constant.BpfFileModeFlags)
		}
	case bpfBtfGetFDByID:
		f.u4("btf_id")
		f.skip(4)
		if f.reached() {
			f.flags("open_flags", 4, constant.BpfFileModeFlags)
			f.fd("fd_by_id_token_fd")
		}
	case bpfLinkGetFDByID:
		f.u4("link_id")
	case bpfObjGetInfoByFD:
		c.Field("info")
		g := c.begin(in)
		g.fd("bpf_fd")
		c.Field("info_len")
		c.change(peek(in, 4, 4), peek(out, 4, 4), c.Uint)
		c.Field("info")
		c.bpfInfo(peek(in, 0, 4), peek(out, 8, 8), peek(in, 4, 4), peek(out, 4, 4))
		g.end()
	case bpfProgQuery:
		f.bpfProgQuery(out)
	case bpfRawTracepointOpen:
		c.Field("raw_tracepoint")
		g := c.begin(in)
		c.Field("name")
		c.textN(In, g.num(8), 128)
		g.fd("prog_fd")
		if len(in) >= 24 {
			g.skip(4).x8("cookie")
		}
		g.end()
	case bpfBtfLoad:
		c.Field("btf")
		c.Buffer(In, f.num(8), int64(peek(in, 16, 4)))
		f.p8("btf_log_buf")
		f.u4("btf_size")
		f.u4("btf_log_size")
		f.u4("btf_log_level")
		if f.reached() {
			f.b = out
			f.u4("btf_log_true_size")
			if f.reached() {
				f.flags("btf_flags", 4, constant.BpfFileFlags)
				f.fd("btf_token_fd")
			}
		}
	case bpfTaskFDQuery:
		f.bpfTaskFDQuery(out)
	case bpfLinkCreate:
		known = f.bpfLinkCreate()
	case bpfLinkUpdate:
		c.Field("link_update")
		g := c.begin(in)
		g.fd("link_fd")
		g.fd("new_prog_fd")
		g.flags("flags", 4, constant.BpfAttachFlags)
		if peek(in, 8, 4)&4 != 0 { // BPF_F_REPLACE
			g.fd("old_prog_fd")
		}
		g.end()
	case bpfEnableStats:
		c.Field("enable_stats")
		g := c.begin(in)
		g.enum("type", 4, constant.BpfStatsType)
		g.end()
	case bpfIterCreate:
		c.Field("iter_create")
		g := c.begin(in)
		g.fd("link_fd")
		g.x4("flags")
		g.end()
	case bpfLinkDetach:
		c.Field("link_detach")
		g := c.begin(in)
		g.fd("link_fd")
		g.end()
	case bpfProgBindMap:
		c.Field("prog_bind_map")
		g := c.begin(in)
		g.fd("prog_fd")
		g.fd("map_fd")
		g.x4("flags")
		g.end()
	case bpfTokenCreate:
		c.Field("token_create")
		g := c.begin(in)
		g.x4("flags")
		g.fd("bpffs_fd")
		g.end()
	case bpfProgStreamReadByFD:
		c.Field("prog_stream_read")
		g := c.begin(out)
		c.Field("stream_buf")
		c.rawBuffer(Out, g.num(8), peek(out, 8, 4))
		g.u4("stream_buf_len")
		g.u4("stream_id")
		g.fd("prog_fd")
		g.end()
	case bpfProgAssocStructOps:
		c.Field("prog_assoc_struct_ops")
		g := c.begin(in)
		g.fd("map_fd")
		g.fd("prog_fd")
		g.x4("flags")
		g.end()
	}
	tail := in
	if !bytes.Equal(in, out) {
		tail = out
	}
	c.extra(tail, known)
	f.end()
}

// rawBuffer is Buffer for calls whose memory is shown even when they failed.
func (c *Cx) rawBuffer(m Moment, addr, size uint64) {
	if addr == 0 || size == 0 {
		c.Buffer(In, addr, int64(size))
		return
	}
	b, _, errno := c.Mem(m, addr, int(min(size, uint64(c.limit()))))
	if b == nil {
		c.Unreadable(addr, errno)
		return
	}
	n := event.Node{Kind: event.KindBytes, Data: b, Num: size}
	if uint64(len(b)) < size {
		n.Attr |= event.AttrTruncated
	}
	c.Add(n)
}

func (f *fields) bpfMapCreate() {
	c := f.c
	f.enum("map_type", 4, constant.BpfMapType)
	f.u4("key_size")
	f.u4("value_size")
	f.u4("max_entries")
	if !f.reached() {
		return
	}
	mapFlags := peek(f.b, f.off, 4)
	f.flags("map_flags", 4, constant.BpfMapFlags)
	if !f.reached() {
		return
	}
	f.fd("inner_map_fd")
	if !f.reached() {
		return
	}
	node := f.num(4)
	if mapFlags&4 != 0 { // BPF_F_NUMA_NODE
		c.Field("numa_node").Uint(node)
		if node == 0xffffffff {
			c.Builder.Note("NUMA_NO_NODE")
		}
	}
	if !f.reached() {
		return
	}
	f.text("map_name", 16)
	if !f.reached() {
		return
	}
	f.ifindex("map_ifindex")
	if !f.reached() {
		return
	}
	f.fd("btf_fd")
	f.u4("btf_key_type_id")
	f.u4("btf_value_type_id")
	if !f.reached() {
		return
	}
	f.u4("btf_vmlinux_value_type_id")
	if !f.reached() {
		return
	}
	f.u8("map_extra")
	if !f.reached() {
		return
	}
	f.fd("value_type_btf_obj_fd")
	if !f.reached() {
		return
	}
	f.fd("map_token_fd")
	if !f.reached() {
		return
	}
	f.p8("excl_prog_hash")
	f.u4("excl_prog_hash_size")
}

func (f *fields) ifindex(name string) {
	f.c.Field(name)
	f.c.ifIndex(uint32(f.num(4)))
}

func (f *fields) bpfProgLoad(out []byte) {
	c := f.c
	f.enum("prog_type", 4, constant.BpfProgType)
	n := peek(f.b, f.off, 4)
	f.u4("insn_cnt")
	c.Field("insns")
	c.ebpfInsns(In, f.num(8), n)
	c.Field("license")
	c.Text(In, f.num(8))
	if !f.reached() {
		return
	}
	f.u4("log_level")
	size := peek(f.b, f.off, 4)
	f.u4("log_size")
	c.Field("log_buf")
	c.textN(In, f.num(8), size)
	if !f.reached() {
		return
	}
	version := f.num(4)
	c.Field("kern_version")
	c.kernelVersion(version)
	if !f.reached() {
		return
	}
	f.flags("prog_flags", 4, constant.BpfProgFlags)
	if !f.reached() {
		return
	}
	f.text("prog_name", 16)
	if !f.reached() {
		return
	}
	f.ifindex("prog_ifindex")
	if !f.reached() {
		return
	}
	f.enum("expected_attach_type", 4, constant.BpfAttachType)
	if !f.reached() {
		return
	}
	f.fd("prog_btf_fd")
	f.u4("func_info_rec_size")
	f.p8("func_info")
	f.u4("func_info_cnt")
	f.u4("line_info_rec_size")
	f.p8("line_info")
	f.u4("line_info_cnt")
	if !f.reached() {
		return
	}
	f.u4("attach_btf_id")
	if !f.reached() {
		return
	}
	f.fd("attach_prog_fd")
	count := f.num(4)
	if !f.reached() {
		return
	}
	if len(f.b) <= f.off+8 { // before core_relos, core_relo_cnt was padding
		f.p8("fd_array")
		return
	}
	c.Field("core_relo_cnt").Uint(count)
	f.p8("fd_array")
	f.p8("core_relos")
	f.u4("core_relo_rec_size")
	f.b = out
	if !f.reached() {
		return
	}
	f.u4("log_true_size")
	if !f.reached() {
		return
	}
	f.fd("prog_token_fd")
	if !f.reached() {
		return
	}
	f.u4("fd_array_cnt")
	if !f.reached() {
		return
	}
	c.Field("signature")
	c.blob(In, f.num(8), peek(f.b, f.off, 4))
	f.u4("signature_size")
	f.i4("keyring_id")
}

// kernelVersion adds KERNEL_VERSION(a, b, c).
func (c *Cx) kernelVersion(v uint64) {
	c.Begin(event.Node{Kind: event.KindCall, Sym: "KERNEL_VERSION", Num: v, Attr: event.AttrHex})
	c.Uint(v >> 16)
	c.Uint(v >> 8 & 0xff)
	c.Uint(v & 0xff)
	c.End()
}

// ebpfInsns adds the n instructions at addr (struct bpf_insn), its address alone when abbreviated.
func (c *Cx) ebpfInsns(m Moment, addr, n uint64) {
	if c.Opt.Abbrev {
		c.Ptr(addr)
		return
	}
	shown := 0
	c.list(m, addr, n, 8, func(c *Cx, b []byte) {
		if shown++; shown > maxFilterShown {
			if shown == maxFilterShown+1 {
				c.More()
			}
			return
		}
		c.Struct()
		c.Field("code")
		c.ebpfCode(b[0])
		c.Field("dst_reg")
		c.Name(uint64(b[1]&15), constant.BpfReg)
		c.Field("src_reg")
		c.Name(uint64(b[1]>>4), constant.BpfReg)
		c.Field("off").Int(int64(int16(U16(b, 2))))
		c.Field("imm").Hex(uint64(U32(b, 4)))
		c.End()
	})
}

// ebpfCode adds the operation of an extended instruction.
func (c *Cx) ebpfCode(code byte) {
	at := len(c.Nodes)
	c.expr("|")
	c.Name(uint64(code&7), constant.EbpfClass)
	switch code & 7 {
	case 0, 1, 2, 3: // BPF_LD, BPF_LDX, BPF_ST, BPF_STX
		c.Name(uint64(code&0x18), constant.BpfSize)
		c.Name(uint64(code&0xe0), constant.EbpfMode)
	case 4, 7: // BPF_ALU, BPF_ALU64
		c.Name(uint64(code&8), constant.BpfSrc)
		c.Name(uint64(code&0xf0), constant.BpfOpAlu)
	case 5: // BPF_JMP
		c.Name(uint64(code&8), constant.BpfSrc)
		c.Name(uint64(code&0xf0), constant.BpfOpJmp)
	case 6: // BPF_JMP32
		if code&^7 != 0 {
			c.Add(event.Node{Kind: event.KindHex, Num: uint64(code &^ 7), Sym: "BPF_???"})
		}
	}
	c.endExpr(at)
}

// bpfTarget is a descriptor or a network interface, by the attach type.
func (f *fields) bpfTarget(attach uint32) {
	switch attach {
	case bpfTcxIngress, bpfTcxEgress, bpfNetkitPrimary, bpfNetkitPeer, bpfXDP:
		f.ifindex("target_ifindex")
	default:
		f.fd("target_fd")
	}
}

// bpfRelative is a program by descriptor or by id, by BPF_F_ID.
func (f *fields) bpfRelative(flags uint64) {
	if flags&0x20 != 0 {
		f.u4("relative_id")
	} else {
		f.fd("relative_fd")
	}
}

func (f *fields) bpfTestRun() {
	f.c.Field("test")
	g := f.c.begin(f.b)
	g.fd("prog_fd")
	g.u4("retval")
	g.u4("data_size_in")
	g.u4("data_size_out")
	g.p8("data_in")
	g.p8("data_out")
	g.u4("repeat")
	g.u4("duration")
	if g.reached() {
		g.u4("ctx_size_in")
		g.u4("ctx_size_out")
		g.p8("ctx_in")
		g.p8("ctx_out")
	}
	if g.reached() {
		g.flags("flags", 4, constant.BpfTestRunFlags)
		g.u4("cpu")
	}
	if g.reached() {
		g.u4("batch_size")
	}
	g.end()
}

func (f *fields) bpfProgQuery(out []byte) {
	c := f.c
	c.Field("query")
	g := c.begin(f.b)
	g.bpfTarget(uint32(peek(f.b, 4, 4)))
	g.enum("attach_type", 4, constant.BpfAttachType)
	g.flags("query_flags", 4, constant.BpfQueryFlags)
	g.flags("attach_flags", 4, constant.BpfAttachFlags)
	was := peek(f.b, 24, 4)
	g.b = out
	n := peek(out, 24, 4)
	c.Field("prog_ids")
	c.list(Out, g.num(8), n, 4, uintNumber)
	c.Field("prog_cnt")
	c.change(was, n, c.Uint)
	g.skip(8)
	attachFlags := func(c *Cx, b []byte) { c.Flags(peek(b, 0, 4), constant.BpfAttachFlags) }
	if g.reached() {
		c.Field("prog_attach_flags")
		c.list(Out, g.num(8), n, 4, attachFlags)
	}
	if g.reached() {
		c.Field("link_ids")
		c.list(Out, g.num(8), n, 4, uintNumber)
		c.Field("link_attach_flags")
		c.list(Out, g.num(8), n, 4, attachFlags)
		g.x8("revision")
	}
	g.end()
}

func (f *fields) bpfTaskFDQuery(out []byte) {
	c := f.c
	c.Field("task_fd_query")
	g := c.begin(f.b)
	g.pid("pid")
	g.fd("fd")
	g.u4("flags")
	was, now := g.num(4), peek(out, 12, 4)
	c.Field("buf_len")
	c.change(was, now, c.Uint)
	g.b = out
	c.Field("buf")
	c.textN(Out, g.num(8), min(was, now))
	g.u4("prog_id")
	g.enum("fd_type", 4, constant.BpfTaskFdType)
	g.x8("probe_offset")
	g.x8("probe_addr")
	g.end()
}

func (c *Cx) bpfBatch(cmd uint32, in, out []byte) {
	was, now := peek(in, 32, 4), peek(out, 32, 4)
	if was != now {
		c.Begin(event.Node{Kind: event.KindChange})
	}
	f := c.begin(in)
	c.Field("batch")
	g := c.begin(in)
	elem := constant.BpfMapLookupElemFlags
	switch cmd {
	case bpfMapLookupBatch, bpfMapLookupAndDeleteBatch:
		g.p8("in_batch")
		g.p8("out_batch")
	case bpfMapUpdateBatch:
		elem = constant.BpfMapUpdateElemFlags
	}
	g.off = 16
	g.p8("keys")
	if cmd == bpfMapDeleteBatch {
		g.skip(8)
	} else {
		g.p8("values")
	}
	g.u4("count")
	g.fd("map_fd")
	g.flags("elem_flags", 8, elem)
	g.x8("flags")
	g.end()
	c.extra(in, bpfAttrSize[cmd])
	f.end()
	if was != now {
		c.Struct()
		c.Field("batch").Struct()
		c.Field("count").Uint(now)
		c.End()
		c.End()
		c.End()
	}
}

// bpfInfo adds what BPF_OBJ_GET_INFO_BY_FD returned, when the descriptor is known to be a map or a program.
func (c *Cx) bpfInfo(fd, addr, wasLen, size uint64) {
	path := c.fdPath(fd)
	isMap, isProg := string(path) == "anon_inode:bpf-map", string(path) == "anon_inode:bpf-prog"
	if c.Opt.Abbrev || !isMap && !isProg || size == 0 || size > maxBpfAttr {
		c.Ptr(addr)
		return
	}
	out, errno := c.Bytes(Out, addr, int(size))
	if out == nil {
		c.Unreadable(addr, errno)
		return
	}
	if isMap {
		c.bpfMapInfo(out)
		return
	}
	in, _, _ := c.Mem(In, addr, int(wasLen))
	c.bpfProgInfo(in, out)
}

func (c *Cx) bpfMapInfo(b []byte) {
	f := c.begin(b)
	defer f.end()
	f.enum("type", 4, constant.BpfMapType)
	f.u4("id")
	f.u4("key_size")
	f.u4("value_size")
	f.u4("max_entries")
	f.flags("map_flags", 4, constant.BpfMapFlags)
	if !f.reached() {
		return
	}
	f.text("name", 16)
	if !f.reached() {
		return
	}
	f.ifindex("ifindex")
	f.u4("btf_vmlinux_value_type_id")
	f.dev("netns_dev", 8)
	f.u8("netns_ino")
	if !f.reached() {
		return
	}
	f.u4("btf_id")
	f.u4("btf_key_type_id")
	f.u4("btf_value_type_id")
	if len(b) <= f.off+4 {
		return
	}
	f.u4("btf_vmlinux_id")
	f.x8("map_extra")
	if !f.reached() {
		return
	}
	f.x8("hash")
	f.u4("hash_size")
	c.extra(b, 100)
}

func (c *Cx) bpfProgInfo(in, b []byte) {
	f := c.begin(b)
	defer f.end()
	u4 := func(name string) {
		c.Field(name)
		c.change(peek(in, f.off, 4), f.num(4), c.Uint)
	}
	p8 := func(name string) {
		c.Field(name)
		c.change(peek(in, f.off, 8), f.num(8), c.Ptr)
	}
	f.enum("type", 4, constant.BpfProgType)
	f.u4("id")
	f.hex("tag", 8)
	jited, xlated := peek(b, 16, 4), min(peek(b, 20, 4), peek(in, 20, 4))
	u4("jited_prog_len")
	c.Field("jited_prog_insns")
	addr := peek(b, 24, 8)
	if c.Failed() {
		c.Ptr(addr)
	} else {
		c.blob(Out, addr, jited)
	}
	u4("xlated_prog_len")
	f.off = 32
	c.Field("xlated_prog_insns")
	c.ebpfInsns(Out, f.num(8), xlated/8)
	if !f.reached() {
		return
	}
	f.u8("load_time")
	f.id("created_by_uid")
	n := min(peek(b, 52, 4), peek(in, 52, 4))
	u4("nr_map_ids")
	c.Field("map_ids")
	c.list(Out, f.num(8), n, 4, uintNumber)
	f.text("name", 16)
	if !f.reached() {
		return
	}
	f.ifindex("ifindex")
	c.Field("gpl_compatible").Uint(f.num(4) & 1)
	f.dev("netns_dev", 8)
	f.u8("netns_ino")
	if !f.reached() {
		return
	}
	u4("nr_jited_ksyms")
	u4("nr_jited_func_lens")
	p8("jited_ksyms")
	p8("jited_func_lens")
	if !f.reached() {
		return
	}
	f.u4("btf_id")
	u4("func_info_rec_size")
	f.p8("func_info")
	u4("nr_func_info")
	u4("nr_line_info")
	f.p8("line_info")
	p8("jited_line_info")
	u4("nr_jited_line_info")
	u4("line_info_rec_size")
	u4("jited_line_info_rec_size")
	u4("nr_prog_tags")
	f.p8("prog_tags")
	if !f.reached() {
		return
	}
	f.u8("run_time_ns")
	f.u8("run_cnt")
	if !f.reached() {
		return
	}
	f.u8("recursion_misses")
	if !f.reached() {
		return
	}
	f.u4("verified_insns")
	if !f.reached() {
		return
	}
	f.u4("attach_btf_obj_id")
	f.u4("attach_btf_id")
	c.extra(b, 228)
}

// bpfLinkCreate adds link_create and returns how many bytes of the attributes it knows.
func (f *fields) bpfLinkCreate() (known int) {
	c, b := f.c, f.b
	c.Field("link_create")
	g := c.begin(b)
	defer g.end()
	attach, flags := uint32(peek(b, 8, 4)), peek(b, 12, 4)
	g.fd("prog_fd")
	g.bpfTarget(attach)
	g.enum("attach_type", 4, constant.BpfAttachType)
	g.flags("flags", 4, constant.BpfAttachFlags)
	if !g.reached() {
		return bpfAttrSize[bpfLinkCreate]
	}
	relative := func(name string) int {
		c.Field(name)
		h := c.begin(b)
		h.off = 16
		h.bpfRelative(flags)
		h.skip(4).x8("expected_revision")
		h.end()
		return 32
	}
	switch attach {
	case 0, 1, 2, 3, 6, 8, 9, 10, 11, 12, 13, 14, 15, 18, 19, 20, 21, 22, 29, 30, 31, 32, 34, 49, 50, 51, 52, 53: // control groups
		if flags&0x18 != 0 { // BPF_F_BEFORE | BPF_F_AFTER
			return relative("cgroup")
		}
		if id := g.num(4); id != 0 {
			c.Field("target_btf_id").Uint(id)
		}
		return 20
	case bpfTraceIter:
		addr, n := g.num(8), peek(b, 24, 4)
		c.Field("iter_info")
		c.list(In, addr, n, 4, func(c *Cx, b []byte) {
			c.Struct()
			c.Field("map")
			h := c.begin(b)
			h.fd("map_fd")
			h.end()
			c.End()
		})
		g.u4("iter_info_len")
		return 28
	case bpfPerfEvent:
		c.Field("perf_event").Struct()
		g.x8("bpf_cookie")
		c.End()
		return 24
	case bpfTraceFentry, bpfTraceFexit, bpfTraceFsession, bpfModifyReturn, bpfLsmMac:
		c.Field("tracing").Struct()
		g.u4("target_btf_id")
		g.skip(4).x8("cookie")
		c.End()
		return 32
	case bpfTraceFentryMulti, bpfTraceFexitMulti, bpfTraceFsessionMult:
		n := peek(b, 32, 4)
		c.Field("tracing_multi").Struct()
		c.Field("ids")
		c.list(In, g.num(8), n, 4, uintNumber)
		c.Field("cookies")
		c.list(In, g.num(8), n, 8, hexNumber)
		g.u4("cnt")
		c.End()
		return 36
	case bpfNetfilter:
		c.Field("netfilter").Struct()
		g.u4("pf")
		g.u4("hooknum")
		g.i4("priority")
		g.flags("flags", 4, constant.BpfNetfilterFlags)
		c.End()
		return 32
	case bpfTcxIngress, bpfTcxEgress:
		return relative("tcx")
	case bpfNetkitPrimary, bpfNetkitPeer:
		return relative("netkit")
	case bpfTraceKprobeMulti:
		n := peek(b, 20, 4)
		c.Field("kprobe_multi").Struct()
		g.flags("flags", 4, constant.BpfKprobeMultiFlags)
		g.u4("cnt")
		c.Field("syms")
		c.list(In, g.num(8), n, c.ABI.PtrSize, func(c *Cx, b []byte) { c.Text(In, peek(b, 0, len(b))) })
		c.Field("addrs")
		c.list(In, g.num(8), n, 8, hexNumber)
		c.Field("cookies")
		c.list(In, g.num(8), n, 8, hexNumber)
		c.End()
		return 48
	case bpfTraceUprobeMulti:
		n := peek(b, 48, 4)
		c.Field("uprobe_multi").Struct()
		c.Field("path")
		c.PathAt(In, g.num(8))
		for _, name := range [...]string{"offsets", "ref_ctr_offsets", "cookies"} {
			c.Field(name)
			c.list(In, g.num(8), n, 8, hexNumber)
		}
		g.u4("cnt")
		g.flags("flags", 4, constant.BpfUprobeMultiFlags)
		g.pid("pid")
		if g.reached() {
			g.fd("path_fd")
		}
		c.End()
		return 64
	}
	return 16
}
