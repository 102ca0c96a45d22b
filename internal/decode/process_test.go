package decode

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// captured is memory by address, in pairs of an address and what is there: bytes, or the errno of the read.
func captured(pairs ...any) wire.Segments {
	var s []byte
	for i := 0; i < len(pairs); i += 2 {
		head := make([]byte, wire.SegmentHeader)
		binary.LittleEndian.PutUint64(head, uint64(pairs[i].(int)))
		var data []byte
		switch v := pairs[i+1].(type) {
		case []byte:
			data = v
			binary.LittleEndian.PutUint32(head[8:], uint32(len(v)))
		case string:
			data = []byte(v)
			binary.LittleEndian.PutUint32(head[8:], uint32(len(v)))
		case int:
			binary.LittleEndian.PutUint32(head[8:], uint32(-v))
		}
		s = append(append(s, head...), data...)
		for len(s)%8 != 0 {
			s = append(s, 0)
		}
	}
	return s
}

// le is little-endian numbers of the width of their type.
func le(v ...any) []byte {
	var b []byte
	for _, x := range v {
		b, _ = binary.Append(b, binary.LittleEndian, x)
	}
	return b
}

// outline renders a tree for comparison; it knows the kinds that the calls of this test make.
func outline(t event.Tree) string {
	var b strings.Builder
	outlineList(&b, t, 0, len(t), ", ")
	return b.String()
}

func outlineList(b *strings.Builder, t event.Tree, i, end int, sep string) {
	for first := true; i < end; i, first = t.Next(i), false {
		n := &t[i]
		if !first && n.Kind != event.KindNote {
			b.WriteString(sep)
		}
		if n.Name != "" {
			b.WriteString(n.Name + "=")
		}
		inside := func(open, sep, close string) {
			b.WriteString(open)
			outlineList(b, t, i+1, int(n.End), sep)
			b.WriteString(close)
		}
		switch n.Kind {
		case event.KindInt, event.KindFD, event.KindPID:
			fmt.Fprint(b, int64(n.Num))
		case event.KindUint:
			fmt.Fprint(b, n.Num)
		case event.KindHex, event.KindPtr:
			if n.Num == 0 {
				b.WriteString("0")
			} else {
				fmt.Fprintf(b, "%#x", n.Num)
			}
			if n.Sym != "" {
				b.WriteString(" /* " + n.Sym + " */")
			}
		case event.KindUnreadable:
			fmt.Fprintf(b, "unreadable(%#x, %d)", n.Num, n.Errno)
		case event.KindNull:
			b.WriteString("NULL")
		case event.KindOct:
			fmt.Fprintf(b, "%#o", n.Num)
		case event.KindSym:
			b.WriteString(n.Sym + string(n.Data))
		case event.KindString, event.KindBytes:
			fmt.Fprintf(b, "%q", n.Data)
			if n.Attr&event.AttrTruncated != 0 {
				b.WriteString("...")
			}
		case event.KindFlags:
			inside("", "|", "")
		case event.KindExpr:
			inside("", n.Sym, "")
		case event.KindCall:
			inside(n.Sym+"(", ", ", ")")
		case event.KindStruct:
			inside("{", ", ", "}")
		case event.KindArray:
			inside("[", ", ", "]")
		case event.KindSet:
			if n.Attr&event.AttrInverted != 0 {
				b.WriteString("~")
			}
			inside("[", " ", "]")
		case event.KindChange:
			inside("", " => ", "")
		case event.KindMore:
			b.WriteString("...")
		case event.KindNote:
			if n.Sym == "" && len(n.Data) == 0 {
				fmt.Fprintf(b, " /* %#x */", n.Num)
			} else {
				b.WriteString(" /* " + n.Sym + string(n.Data) + " */")
			}
		default:
			fmt.Fprintf(b, "?%d", n.Kind)
		}
	}
}

func show(t *testing.T, c *Cx, name string) string {
	t.Helper()
	s := Specs()[name]
	if s == nil {
		t.Fatalf("no row for %s", name)
	}
	if c.ABI == nil {
		c.ABI = syscalls.AMD64
	}
	if nr, ok := c.ABI.ByName(name); ok {
		c.Def = c.ABI.Lookup(nr)
	}
	s.Decode(c)
	text := name + "(" + outline(c.Nodes) + ")"
	if c.Exited {
		c.Reset()
		if s.Ret != nil && !c.Failed() {
			s.Ret(c)
		} else {
			c.Int(c.Ret)
		}
		text += " = " + outline(c.Nodes)
		if c.Note != "" {
			text += " (" + c.Note + ")"
		}
	}
	return text
}

func TestProcessCalls(t *testing.T) {
	const e = -14 // EFAULT
	tests := []struct {
		call string
		c    Cx
		want string
	}{
		{"rt_sigaction", Cx{Arg: [6]uint64{2, 0x1000, 0x2000, 8}, Exited: true,
			EnterSeg: captured(0x1000, le(uint64(1), uint64(0x14000000), uint64(0x7f01), uint64(1<<14))),
			ExitSeg:  captured(0x2000, le(uint64(0), uint64(0), uint64(0), uint64(0)))},
			"rt_sigaction(SIGINT, {sa_handler=SIG_IGN, sa_mask=[TERM], sa_flags=SA_RESTORER|SA_RESTART, sa_restorer=0x7f01}, {sa_handler=SIG_DFL, sa_mask=[], sa_flags=0}, 8) = 0"},
		{"rt_sigaction", Cx{Arg: [6]uint64{2, 0x1000, 0x2000, 8}, EnterSeg: captured(0x1000, 14)},
			"rt_sigaction(SIGINT, unreadable(0x1000, 14))"},
		{"rt_sigprocmask", Cx{Arg: [6]uint64{0, 0x1000, 0, 8}, Exited: true, EnterSeg: captured(0x1000, le(^uint64(1<<8|1<<18)))},
			"rt_sigprocmask(SIG_BLOCK, ~[KILL STOP], NULL, 8) = 0"},
		{"rt_sigprocmask", Cx{Arg: [6]uint64{7, 0x1000, 0x2000, 9}, Exited: true, Ret: -22},
			"rt_sigprocmask(0x7 /* SIG_??? */, 0x1000, 0x2000, 9) = -22"},
		{"wait4", Cx{Arg: [6]uint64{1<<64 - 1, 0x1000, 2, 0}, Ret: 7, Exited: true, ExitSeg: captured(0x1000, le(uint32(0x057f)))},
			"wait4(-1, [{WIFSTOPPED(s) && WSTOPSIG(s) == SIGTRAP}], WSTOPPED, NULL) = 7"},
		{"wait4", Cx{Arg: [6]uint64{1<<64 - 1, 0x1000, 0, 0}, Ret: 7, Exited: true, ExitSeg: captured(0x1000, le(uint32(0x8b)))},
			"wait4(-1, [{WIFSIGNALED(s) && WTERMSIG(s) == SIGSEGV && WCOREDUMP(s)}], 0, NULL) = 7"},
		{"wait4", Cx{Arg: [6]uint64{1<<64 - 1, 0x1000, 0, 0}, Ret: 7, Exited: true, ExitSeg: captured(0x1000, le(uint32(3<<16|0x057f)))},
			"wait4(-1, [{WIFSTOPPED(s) && WSTOPSIG(s) == SIGTRAP}|PTRACE_EVENT_CLONE<<16], 0, NULL) = 7"},
		{"wait4", Cx{Arg: [6]uint64{1<<64 - 1, 0x1000, 1, 0}, Exited: true, Ret: -10}, "wait4(-1, 0x1000, WNOHANG, NULL) = -10"},
		{"clone", Cx{Arg: [6]uint64{0x1200011, 0, 0, 0x7f10}, Ret: 9, Exited: true},
			"clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7f10) = 9"},
		{"clone", Cx{Arg: [6]uint64{0x100011, 0x10, 0x2000}, Ret: 9, Exited: true, ExitSeg: captured(0x2000, le(uint32(9)))},
			"clone(child_stack=0x10, flags=CLONE_PARENT_SETTID|SIGCHLD, parent_tid=[9]) = 9"},
		{"clone3", Cx{Arg: [6]uint64{0x1000, 64}, Ret: 9, Exited: true,
			EnterSeg: captured(0x1000, le(uint64(0x1000), uint64(0x2000), uint64(0), uint64(0), uint64(17), uint64(0), uint64(0), uint64(0))),
			ExitSeg:  captured(0x2000, le(uint32(5)))},
			"clone3({flags=CLONE_PIDFD, pidfd=0x2000, exit_signal=SIGCHLD, stack=NULL, stack_size=0} => {pidfd=[5]}, 64) = 9"},
		{"execve", Cx{Arg: [6]uint64{0x1000, 0x2000, 0x3000}, Opt: Options{Abbrev: true},
			EnterSeg: captured(0x1000, "/bin/true", 0x2000, le(uint64(0x4000), uint64(0x4100), uint64(0)), 0x4000, "true", 0x4100, 14,
				0x3000, le(uint64(1), uint64(0)))},
			`execve("/bin/true", ["true", unreadable(0x4100, 14)], 0x3000 /* 1 var */)`},
		{"unshare", Cx{Arg: [6]uint64{0x10020000}, Exited: true}, "unshare(CLONE_NEWNS|CLONE_NEWUSER) = 0"},
		{"unshare", Cx{Arg: [6]uint64{0xbadc0ded0000000f}, Exited: true, Ret: -22}, "unshare(0xbadc0ded0000000f /* CLONE_??? */) = -22"},
		{"setns", Cx{Arg: [6]uint64{3, 0x40000000}, Exited: true}, "setns(3, CLONE_NEWNET) = 0"},
		{"setns", Cx{Arg: [6]uint64{3, 0}, Exited: true}, "setns(3, 0) = 0"},
		{"arch_prctl", Cx{Arg: [6]uint64{0x1023, 0}, Exited: true, Ret: 1 << 40}, "arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_FP) = 0x10000000000"},
		{"mmap", Cx{Arg: [6]uint64{0, 4096, 3, 0x22, 1<<64 - 1, 0}, Ret: 0x7f0000, Exited: true},
			"mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000"},
		{"mmap", Cx{Arg: [6]uint64{0, 4096, 0, 1 | 21<<26 | 0x40000, 3, 0x1000}, Ret: -12, Exited: true},
			"mmap(NULL, 4096, PROT_NONE, MAP_SHARED|MAP_HUGETLB|21<<MAP_HUGE_SHIFT, 3, 0x1000) = -12"},
		{"prlimit64", Cx{Arg: [6]uint64{0, 3, 0, 0x1000}, Exited: true, ExitSeg: captured(0x1000, le(uint64(8<<20), ^uint64(0)))},
			"prlimit64(0, RLIMIT_STACK, NULL, {rlim_cur=8192*1024, rlim_max=RLIM64_INFINITY}) = 0"},
		{"sched_getaffinity", Cx{Arg: [6]uint64{0, 128, 0x1000}, Ret: 8, Exited: true, ExitSeg: captured(0x1000, le(uint64(0x13)))},
			"sched_getaffinity(0, 128, [0 1 4]) = 8"},
		{"futex", Cx{Arg: [6]uint64{0x1000, 128, 2, 0}}, "futex(0x1000, FUTEX_WAIT_PRIVATE, 2, NULL)"},
		{"futex", Cx{Arg: [6]uint64{0x1000, 5, 1, 1, 0x2000, 0x4000001}},
			"futex(0x1000, FUTEX_WAKE_OP, 1, 1, 0x2000, FUTEX_OP_SET<<28|0<<12|FUTEX_OP_CMP_GT<<24|0x1)"},
		{"prctl", Cx{Arg: [6]uint64{15, 0x1000}, EnterSeg: captured(0x1000, "worker\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")}, `prctl(PR_SET_NAME, "worker")`},
		{"prctl", Cx{Arg: [6]uint64{3}, Ret: 1, Exited: true}, "prctl(PR_GET_DUMPABLE) = 1 (SUID_DUMP_USER)"},
		{"semop", Cx{Arg: [6]uint64{1, 0x1000, 1}, EnterSeg: captured(0x1000, le(uint16(2), int16(-1), uint16(0x1000)))},
			"semop(1, [{sem_num=2, sem_op=-1, sem_flg=SEM_UNDO}], 1)"},
		{"setresuid", Cx{Arg: [6]uint64{1<<64 - 1, 5, 0xffff}, ABI: syscalls.I386}, "setresuid(-1, 5, -1)"},
		{"capset", Cx{Arg: [6]uint64{0x1000, 0x2000}, EnterSeg: captured(0x1000, le(uint32(0x20080522), uint32(0)),
			0x2000, le(uint32(1<<5|1), uint32(0), uint32(0), uint32(1<<8), uint32(0), uint32(0)))},
			"capset({version=_LINUX_CAPABILITY_VERSION_3, pid=0}, {effective=1<<CAP_CHOWN|1<<CAP_KILL|1<<CAP_CHECKPOINT_RESTORE, permitted=0, inheritable=0})"},
		{"ptrace", Cx{Arg: [6]uint64{0x4206, 7, 0, 3}}, "ptrace(PTRACE_SEIZE, 7, NULL, PTRACE_O_TRACESYSGOOD|PTRACE_O_TRACEFORK)"},
		{"getgroups", Cx{Arg: [6]uint64{8, 0x1000}, Ret: 2, Exited: true, ExitSeg: captured(0x1000, le(uint32(0), uint32(27)))}, "getgroups(8, [0, 27]) = 2"},
		{"getresuid", Cx{Arg: [6]uint64{0x1000, 0x1004, 0}, Ret: e, Exited: true}, "getresuid(0x1000, 0x1004, NULL) = -14"},
	}
	for _, tt := range tests {
		c := tt.c
		if got := show(t, &c, tt.call); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

func TestSiginfo(t *testing.T) {
	tests := []struct {
		b    []byte
		want string
	}{
		{le(int32(17), int32(0), int32(1), int32(0), int32(7), uint32(1000), int32(3), int32(0), int64(0), int64(2), int64(0)),
			"{si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=7, si_uid=1000, si_status=3, si_utime=0, si_stime=2 /* 0.02 s */}"},
		{le(int32(11), int32(0), int32(1), int32(0), uint64(0xdead), [24]byte{}), "{si_signo=SIGSEGV, si_code=SEGV_MAPERR, si_addr=0xdead}"},
		{le(int32(11), int32(0), int32(0x80), int32(0), [32]byte{}), "{si_signo=SIGSEGV, si_code=SI_KERNEL, si_addr=NULL}"},
		{le(int32(10), int32(0), int32(0), int32(0), int32(7), uint32(0), [24]byte{}), "{si_signo=SIGUSR1, si_code=SI_USER, si_pid=7, si_uid=0}"},
		{le(int32(34), int32(0), int32(-1), int32(0), int32(7), uint32(0), uint64(5), [16]byte{}),
			"{si_signo=SIGRT_2, si_code=SI_QUEUE, si_pid=7, si_uid=0, si_int=5, si_ptr=0x5}"},
		{le(int32(31), int32(2), int32(1), int32(0), uint64(0x10), int32(0), uint32(0xc000003e), [16]byte{}),
			"{si_signo=SIGSYS, si_code=SYS_SECCOMP, si_errno=ENOENT, si_call_addr=0x10, si_syscall=__NR_read, si_arch=AUDIT_ARCH_X86_64}"},
		{make([]byte, 48), "{}"},
		{make([]byte, 20), "..."},
	}
	for _, tt := range tests {
		c := Cx{ABI: syscalls.AMD64}
		Siginfo(&c, tt.b)
		if got := outline(c.Nodes); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

func FuzzSiginfo(f *testing.F) {
	f.Add(le(int32(17), int32(0), int32(1), [36]byte{}), false)
	f.Add(le(int32(5), int32(0), int32(6), [116]byte{}), true)
	f.Fuzz(func(t *testing.T, b []byte, narrow bool) {
		c := Cx{ABI: syscalls.AMD64}
		if narrow {
			c.ABI = syscalls.I386
		}
		Siginfo(&c, b)
		if n := len(c.Nodes); n == 0 || int(c.Nodes[0].End) != n {
			t.Fatalf("%d nodes; the first ends at %d", n, c.Nodes[0].End)
		}
	})
}

// Every row must stand any arguments with no memory at all, before and after the return, in every ABI.
func FuzzRows(f *testing.F) {
	f.Add(uint64(0), uint64(1), uint64(0x1000), uint64(1<<63), ^uint64(0), uint64(16), int64(-14), []byte(captured(0x1000, "abc")))
	specs := Specs()
	f.Fuzz(func(t *testing.T, a, b, d, e, g, h uint64, ret int64, mem []byte) {
		for name, s := range specs {
			for _, abi := range []*syscalls.ABI{syscalls.AMD64, syscalls.I386, syscalls.ARM64} {
				for _, exited := range []bool{false, true} {
					c := Cx{ABI: abi, Arg: [6]uint64{a, b, d, e, g, h}, Exited: exited, Ret: ret, EnterSeg: mem, ExitSeg: mem}
					if abi.PtrSize == 4 {
						for i := range c.Arg {
							c.Arg[i] &= 0xffffffff
						}
					}
					s.Decode(&c)
					for i := range c.Nodes {
						if int(c.Nodes[i].End) <= i || int(c.Nodes[i].End) > len(c.Nodes) {
							t.Fatalf("%s: node %d of %d ends at %d", name, i, len(c.Nodes), c.Nodes[i].End)
						}
					}
				}
			}
		}
	})
}
