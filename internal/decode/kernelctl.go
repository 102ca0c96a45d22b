package decode

import (
	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// Calls that load, replace or configure the kernel, and calls that no kernel has any more.

const (
	maxKexecSegments = 16 // KEXEC_SEGMENT_MAX, linux/kexec.h
	nsIDReqSize      = 32 // struct ns_id_req, linux/nsfs.h
)

var kernelControl = []Spec{
	{
		Name:    "kexec_load",
		Enter:   []syscalls.Fetch{syscalls.Vec(2, syscalls.Arg(1), 32, 32*maxKexecSegments)},
		Enter32: []syscalls.Fetch{syscalls.Vec(2, syscalls.Arg(1), 16, 16*maxKexecSegments)},
		Decode:  args(aPtr, aUlong, kexecSegments, kexecFlags),
	},
	{
		Name:  "kexec_file_load",
		Enter: []syscalls.Fetch{syscalls.Buf(3, syscalls.Arg(2))},
		Decode: args(aFD, aFD, aUlong, func(c *Cx, i int) { c.Buffer(In, c.Arg[3], int64(c.Arg[2])) },
			func(c *Cx, i int) { c.Flags(c.Arg[4], constant.KexecFileFlags) }),
	},
	{Name: "init_module", Enter: []syscalls.Fetch{syscalls.Str(2)}, Decode: args(aPtr, aUlong, aText)},
	{
		Name: "finit_module", Enter: []syscalls.Fetch{syscalls.Str(1)},
		Decode: args(aFD, aText, aFlags(constant.ModuleInit)),
	},
	{
		Name: "delete_module", Enter: []syscalls.Fetch{syscalls.Str(0)},
		Decode: args(aText, aFlags(constant.DeleteModule)),
	},
	{Name: "uselib", Enter: []syscalls.Fetch{syscalls.Path(0)}, Decode: args(aPath)},
	{Name: "iopl", Decode: args(aInt)},
	{Name: "ioperm", Decode: args(aHex, aHex, aInt)},
	{Name: "userfaultfd", RetFD: true, Decode: args(aFlags(constant.Userfaultfd)), Ret: retFD},
	{
		Name: "lookup_dcookie", Exit: []syscalls.Fetch{syscalls.Buf(1, syscalls.Ret())},
		Exit32: []syscalls.Fetch{syscalls.Buf(2, syscalls.Ret())},
		Decode: decodeLookupDcookie,
	},
	{
		Name: "_sysctl", Enter: []syscalls.Fetch{syscalls.Fixed(0, 80)}, Enter32: []syscalls.Fetch{syscalls.Fixed(0, 40)},
		Decode: args(sysctlArgs),
	},
	{
		Name: "listns", Enter: []syscalls.Fetch{syscalls.Fixed(0, 4), syscalls.Vec(0, syscalls.Mem(0, 0, 4), 1, 4096)},
		Exit:   []syscalls.Fetch{syscalls.Vec(1, syscalls.Ret(), 8, 8192)},
		Decode: decodeListns,
	},
	{Name: "afs_syscall", Decode: hexArgs}, {Name: "bdflush", Decode: hexArgs}, {Name: "break", Decode: hexArgs},
	{Name: "create_module", Decode: hexArgs}, {Name: "epoll_ctl_old", Decode: hexArgs},
	{Name: "epoll_wait_old", Decode: hexArgs}, {Name: "ftime", Decode: hexArgs}, {Name: "get_kernel_syms", Decode: hexArgs},
	{Name: "getpmsg", Decode: hexArgs}, {Name: "gtty", Decode: hexArgs}, {Name: "idle", Decode: hexArgs},
	{Name: "lock", Decode: hexArgs}, {Name: "mpx", Decode: hexArgs}, {Name: "nfsservctl", Decode: hexArgs},
	{Name: "prof", Decode: hexArgs},
	{Name: "profil", Decode: hexArgs}, {Name: "putpmsg", Decode: hexArgs}, {Name: "query_module", Decode: hexArgs},
	{Name: "rseq_slice_yield", Decode: hexArgs}, {Name: "security", Decode: hexArgs}, {Name: "stty", Decode: hexArgs},
	{Name: "sysfs", Decode: hexArgs}, {Name: "tuxcall", Decode: hexArgs}, {Name: "ulimit", Decode: hexArgs},
	{Name: "uprobe", Decode: hexArgs}, {Name: "uretprobe", Decode: hexArgs},
	{Name: "vm86", Decode: hexArgs}, {Name: "vm86old", Decode: hexArgs}, {Name: "vserver", Decode: hexArgs},
}

// hexArgs shows the arguments as numbers: of calls that were never, or are no more, in a kernel.
func hexArgs(c *Cx) {
	n := 0
	if c.Def != nil {
		n = min(len(c.Def.Args), len(c.Arg))
	}
	for i := range n {
		c.Hex(c.Arg[i])
	}
}

func kexecSegments(c *Cx, i int) {
	n, addr, word := c.Arg[1], c.Arg[2], c.ABI.PtrSize
	if n > maxKexecSegments {
		c.Ptr(addr)
		return
	}
	c.list(In, addr, n, 4*word, func(c *Cx, b []byte) {
		f := c.begin(b)
		f.ptr("buf")
		f.word("bufsz")
		f.ptr("mem")
		f.word("memsz")
		f.end()
	})
}

func kexecFlags(c *Cx, i int) {
	const arch = 0xffff0000 // KEXEC_ARCH_MASK
	v := c.Arg[3]
	if v&^arch == 0 {
		c.Name(v&arch, constant.KexecArch)
		return
	}
	c.expr("|")
	c.Name(v&arch, constant.KexecArch)
	c.Flags(v&^arch, constant.KexecFlags)
	c.End()
}

func decodeLookupDcookie(c *Cx) {
	if c.Entering() {
		return
	}
	at, cookie := 1, c.Arg[0]
	if c.Ptr32() { // the cookie takes two registers
		at, cookie = 2, c.Arg[0]|c.Arg[1]<<32
	}
	c.Uint(cookie)
	c.Buffer(Out, c.Arg[at], c.Ret)
	c.Uint(c.Arg[at+1])
}

func sysctlArgs(c *Cx, i int) {
	word := c.ABI.PtrSize
	c.obj(In, c.Arg[0], 10*word, func(c *Cx, b []byte) {
		f := c.begin(b)
		f.ptr("name")
		f.i4("nlen")
		f.off = 2 * word
		f.ptr("oldval")
		f.ptr("oldlenp")
		f.ptr("newval")
		f.word("newlen")
		f.end()
	})
}

func decodeListns(c *Cx) {
	c.nsIDReq(c.Arg[0])
	if c.Entering() {
		return
	}
	addr, n := c.Arg[1], c.Arg[2]
	if c.Failed() && addr != 0 && n != 0 {
		c.Ptr(addr)
	} else {
		c.list(Out, addr, min(n, uint64(c.Ret)), 8, hexNumber)
	}
	c.Uint(n)
	c.Hex(uint64(uint32(c.Arg[3])))
}

// nsIDReq adds the struct ns_id_req at addr (linux/nsfs.h).
func (c *Cx) nsIDReq(addr uint64) {
	head, errno := c.Bytes(In, addr, 4)
	if head == nil {
		c.Unreadable(addr, errno)
		return
	}
	size := peek(head, 0, 4)
	f := c.begin(head)
	defer f.end()
	f.u4("size")
	if size < nsIDReqSize {
		return
	}
	b, _ := c.Bytes(In, addr, nsIDReqSize)
	if b == nil {
		c.unavailable()
		return
	}
	f.b = b
	f.nonzero("spare", 4)
	f.x8("ns_id")
	f.flags("ns_type", 4, constant.NsType)
	f.nonzero("spare2", 4)
	c.Field("user_ns_id")
	c.nameOrHex(f.num(8), constant.ListnsUserNsID)
	c.tail(In, addr, nsIDReqSize, min(size, 4096))
}

// unavailable adds ???, a value that nothing says anything about.
func (c *Cx) unavailable() { c.Add(event.Node{Kind: event.KindUnreadable}) }

// tail adds the bytes from..to of the structure at addr when they are not all zero.
func (c *Cx) tail(m Moment, addr, from, to uint64) {
	if from >= to {
		return
	}
	b, _, _ := c.Mem(m, addr+from, int(to-from))
	if uint64(len(b)) < to-from {
		c.unavailable()
		return
	}
	if allZero(b) {
		return
	}
	n := event.Node{Kind: event.KindBytes, Data: b, Num: uint64(len(b)), Attr: event.AttrHex,
		Sym: "/* " + sprintBytes(int(from), int(to)-1) + " */ "}
	if len(b) > c.limit() {
		n.Data = b[:c.limit()]
		n.Attr |= event.AttrTruncated
	}
	c.Add(n)
}
