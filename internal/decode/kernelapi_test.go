package decode

import (
	"testing"

	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

func TestKernelCalls(t *testing.T) {
	filter := le(uint16(0x20), uint8(0), uint8(0), uint32(4), uint16(0x15), uint8(1), uint8(2), uint32(0xc000003e),
		uint16(6), uint8(0), uint8(0), uint32(0x50001))
	perf := append(le(uint32(3), uint32(64), uint64(0x10200), uint64(1000), uint64(3), uint64(4), uint64(1<<10|3<<15|1<<40),
		uint32(7), uint32(0)), make([]byte, 8)...)
	tests := []struct {
		call string
		c    Cx
		want string
	}{
		{"seccomp", Cx{Arg: [6]uint64{1, 1, 0x1000}, EnterSeg: captured(0x1000, le(uint64(3), uint64(0x2000)), 0x2000, filter)},
			"seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, {len=3, filter=[BPF_STMT?]})"},
		{"seccomp", Cx{Opt: Options{Abbrev: true}, Arg: [6]uint64{1, 0, 0x1000}, EnterSeg: captured(0x1000, le(uint64(3), uint64(0x2000)))},
			"seccomp(SECCOMP_SET_MODE_FILTER, 0, {len=3, filter=0x2000})"},
		{"seccomp", Cx{Arg: [6]uint64{2, 0, 0x1000}, EnterSeg: captured(0x1000, le(uint32(0x7ffc0000)))},
			"seccomp(SECCOMP_GET_ACTION_AVAIL, 0, [SECCOMP_RET_LOG])"},
		{"bpf", Cx{Arg: [6]uint64{0, 0x1000, 16}, EnterSeg: captured(0x1000, le(uint32(1), uint32(4), uint32(8), uint32(10)))},
			"bpf(BPF_MAP_CREATE, {map_type=BPF_MAP_TYPE_HASH, key_size=4, value_size=8, max_entries=10}, 16)"},
		{"bpf", Cx{Arg: [6]uint64{22, 0x1000, 8}, EnterSeg: captured(0x1000, le(uint32(5), uint32(9)))},
			"bpf(BPF_MAP_FREEZE, {map_fd=5, extra_data=\"\\t\\x00\\x00\\x00\" /* bytes 4..7 */}, 8)"},
		{"bpf", Cx{Arg: [6]uint64{22, 0x1000, 8}, Opt: Options{Abbrev: true}, EnterSeg: captured(0x1000, le(uint32(5), uint32(9)))},
			"bpf(BPF_MAP_FREEZE, {map_fd=5, ...}, 8)"},
		{"bpf", Cx{Arg: [6]uint64{11, 0x1000, 4}, Exited: true, EnterSeg: captured(0x1000, le(uint32(0))), ExitSeg: captured(0x1000, le(uint32(0)))},
			"bpf(BPF_PROG_GET_NEXT_ID, {start_id=0, next_id=0}, 4) = 0"},
		{"bpf", Cx{Arg: [6]uint64{11, 0x1000, 4}, EnterSeg: captured(0x1000, le(uint32(0)))}, "bpf(BPF_PROG_GET_NEXT_ID)"},
		{"bpf", Cx{Arg: [6]uint64{1, 0x1000, 32}, EnterSeg: captured(0x1000, 14)},
			"bpf(BPF_MAP_LOOKUP_ELEM, unreadable(0x1000, 14), 32)"},
		{"bpf", Cx{Arg: [6]uint64{999, 0x1000, 32}}, "bpf(0x3e7 /* BPF_??? */, 0x1000, 32)"},
		{"perf_event_open", Cx{Arg: [6]uint64{0x1000, 0, 1<<64 - 1, 1<<64 - 1, 8}, Opt: Options{Abbrev: true}, Exited: true, Ret: 3,
			EnterSeg: captured(0x1000, perf)},
			"perf_event_open({type=PERF_TYPE_HW_CACHE, size=PERF_ATTR_SIZE_VER0, config=PERF_COUNT_HW_CACHE_RESULT_MISS<<16|PERF_COUNT_HW_CACHE_OP_PREFETCH<<8|PERF_COUNT_HW_CACHE_L1D, sample_freq=1000, sample_type=PERF_SAMPLE_IP|PERF_SAMPLE_TID, read_format=PERF_FORMAT_ID, freq=1, precise_ip=3 /* must have 0 skid */, __reserved_1=0x4 /* Bits 63..38 */, ...}, 0, -1, -1, PERF_FLAG_FD_CLOEXEC) = 3"},
		{"keyctl", Cx{Arg: [6]uint64{11, 1<<64 - 3, 0x1000, 100}, Exited: true, Ret: 4, ExitSeg: captured(0x1000, "abcd")},
			"keyctl(KEYCTL_READ, KEY_SPEC_SESSION_KEYRING, \"abcd\", 100) = 4"},
		{"keyctl", Cx{Arg: [6]uint64{6, 7, 0x1000, 1<<64 - 4}, Exited: true, Ret: 3, ExitSeg: captured(0x1000, "ab\x00")},
			"keyctl(KEYCTL_DESCRIBE, 7, \"ab\", 18446744073709551612) = 3"},
		{"keyctl", Cx{Arg: [6]uint64{19, 7, 1, 126, 8}}, "keyctl(KEYCTL_REJECT, 7, 1, ENOKEY, 8)"},
		{"landlock_create_ruleset", Cx{Arg: [6]uint64{0x1000, 16, 0}, Exited: true, Ret: 3, EnterSeg: captured(0x1000, le(uint64(5), uint64(1)))},
			"landlock_create_ruleset({handled_access_fs=LANDLOCK_ACCESS_FS_EXECUTE|LANDLOCK_ACCESS_FS_READ_FILE, handled_access_net=LANDLOCK_ACCESS_NET_BIND_TCP}, 16, 0) = 3"},
		{"lsm_list_modules", Cx{Arg: [6]uint64{0x1000, 0x2000, 0}, Exited: true, Ret: 2, EnterSeg: captured(0x2000, le(uint32(64))),
			ExitSeg: captured(0x2000, le(uint32(16)), 0x1000, le(uint64(100), uint64(110)))},
			"lsm_list_modules([LSM_ID_CAPABILITY, LSM_ID_LANDLOCK], [64 => 16], 0) = 2"},
		{"io_submit", Cx{Arg: [6]uint64{0x7f00, 1, 0x1000}, EnterSeg: captured(0x1000, le(uint64(0x2000)),
			0x2000, append(le(uint64(9), uint32(0), uint32(0), uint16(1), int16(0), uint32(4), uint64(0x3000), uint64(3), int64(-1)), make([]byte, 16)...),
			0x3000, "xyz")},
			"io_submit(0x7f00, 1, [{aio_data=0x9, aio_lio_opcode=IOCB_CMD_PWRITE, aio_fildes=4, aio_buf=\"xyz\", aio_nbytes=3, aio_offset=-1}])"},
		{"io_uring_register", Cx{Arg: [6]uint64{3, 6, 0x1000, 2}, EnterSeg: captured(0x1000, le(uint32(1), uint32(0), uint64(0x2000)), 0x2000, le(int32(-1), int32(-2)))},
			"io_uring_register(3, IORING_REGISTER_FILES_UPDATE, {offset=1, fds=[-1, IORING_REGISTER_FILES_SKIP]}, 2)"},
		{"kexec_load", Cx{Arg: [6]uint64{0x10, 17, 0x1000, 1 | 62<<16}}, "kexec_load(0x10, 17, 0x1000, KEXEC_ARCH_X86_64|KEXEC_ON_CRASH)"},
		{"sysfs", Cx{Arg: [6]uint64{3, 0, 0}}, "sysfs(0x3, 0, 0)"},
		{"listns", Cx{Arg: [6]uint64{0x1000, 0, 0, 0}, EnterSeg: captured(0x1000, le(uint32(31)))}, "listns({size=31})"},
		{"ioctl", Cx{Arg: [6]uint64{3, 0xc018aa3f, 0x1000}, Exited: true, EnterSeg: captured(0x1000, le(uint64(0xaa), uint64(0), uint64(0))),
			ExitSeg: captured(0x1000, le(uint64(0xaa), uint64(2), uint64(1)))},
			"ioctl(3, UFFDIO_API, {api=0xaa, features=0 => features=UFFD_FEATURE_EVENT_FORK, ioctls=1<<_UFFDIO_REGISTER}) = 0"},
		{"ioctl", Cx{Arg: [6]uint64{3, 0x80044d07, 0x1000}, Exited: true, Ret: -9}, "ioctl(3, MIXER_READ(7) or MEMGETREGIONCOUNT, 0x1000) = -9"},
		{"ioctl", Cx{Arg: [6]uint64{3, 0xc048b402, 0x1000}, EnterSeg: captured(0x1000, make([]byte, 72))}, "ioctl(3, GPIO_GET_LINEINFO_IOCTL)"},
	}
	tests[0].want = `seccomp(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, {len=3, filter=[BPF_STMT(BPF_LD|BPF_W|BPF_ABS, 0x4), BPF_JUMP(BPF_JMP|BPF_K|BPF_JEQ, 0xc000003e, 0x1, 0x2), BPF_STMT(BPF_RET|BPF_K, SECCOMP_RET_ERRNO|0x1)]})`
	for i := range tests {
		test := &tests[i]
		if got := show(t, &test.c, test.call); got != test.want {
			t.Errorf("%s\ngot  %s\nwant %s", test.call, got, test.want)
		}
	}
}

// TestList: where memory ends before an array does, the address of the first missing element follows.
func TestList(t *testing.T) {
	faulted := captured(0x1000, le(uint32(1), uint32(2)))
	faulted[12] = wire.SegCut | wire.SegFault
	for _, test := range []struct {
		mem  wire.Segments
		n    uint64
		opt  Options
		want string
	}{
		{faulted, 3, Options{}, "[1, 2, ... /* 0x1008 */]"},
		{faulted, 2, Options{}, "[1, 2]"},
		{faulted, 3, Options{StrLimit: 2, Abbrev: true}, "[1, 2, ... /* 0x1008 */]"},
		{faulted, 3, Options{StrLimit: 1, Abbrev: true}, "[1, ...]"},
		{nil, 3, Options{}, "unreadable(0x1000, 0)"},
		{nil, 0, Options{}, "[]"},
		{nil, 1 << 62, Options{}, "0x1000"},
	} {
		c := Cx{ABI: syscalls.AMD64, Opt: test.opt, EnterSeg: test.mem}
		c.list(In, 0x1000, test.n, 4, uintNumber)
		if got := outline(c.Nodes); got != test.want {
			t.Errorf("%d elements: %s, want %s", test.n, got, test.want)
		}
	}
}

// TestFetches: fetches refer to bytes taken before them, and the list stays within what a kernel program takes.
func TestFetches(t *testing.T) {
	specs := Specs()
	for name, s := range specs {
		for _, list := range [][]syscalls.Fetch{s.Enter, s.Exit, s.Enter32, s.Exit32} {
			for i := range list {
				for _, n := range []syscalls.Number{list[i].Base, list[i].Len.Number, list[i].Total, list[i].When.Value} {
					if n.From == syscalls.FromMem && int(n.N) >= i {
						t.Errorf("%s: fetch %d takes a number from fetch %d", name, i, n.N)
					}
				}
			}
		}
		if n := len(s.Enter) + len(s.Exit); n > 4*syscalls.MaxFetches {
			t.Errorf("%s has %d fetches", name, n)
		}
	}
}

// Every command of the calls with many must stand any memory.
func FuzzCommands(f *testing.F) {
	f.Add(uint32(0x80044501), uint64(3), int64(4), le(uint64(1), uint64(0x1000), uint64(3)))
	f.Add(uint32(0xc0304d18), uint64(1), int64(0), make([]byte, 4400))
	specs := Specs()
	f.Fuzz(func(t *testing.T, cmd uint32, n uint64, ret int64, mem []byte) {
		if len(mem) > 1<<14 {
			return
		}
		segments := captured(0x1000, mem, 0x3000, mem)
		try := func(name string, arg [6]uint64) {
			for _, abi := range []*syscalls.ABI{syscalls.AMD64, syscalls.I386} {
				for _, exited := range []bool{false, true} {
					c := Cx{ABI: abi, Arg: arg, Exited: exited, Ret: ret, EnterSeg: segments, ExitSeg: segments,
						Opt: Options{Abbrev: cmd&1 != 0}}
					specs[name].Decode(&c)
					for i := range c.Nodes {
						if int(c.Nodes[i].End) <= i || int(c.Nodes[i].End) > len(c.Nodes) {
							t.Fatalf("%s: node %d of %d ends at %d", name, i, len(c.Nodes), c.Nodes[i].End)
						}
					}
				}
			}
		}
		op := uint64(cmd % 64)
		try("bpf", [6]uint64{op, 0x1000, n % 4200})
		try("io_uring_register", [6]uint64{3, op, 0x1000, n})
		try("keyctl", [6]uint64{op, n, 0x1000, n, 0x1000})
		try("io_submit", [6]uint64{1, n, 0x1000})
		for i := range ioctlFamilies {
			try("ioctl", [6]uint64{3, uint64(cmd&^0xff00 | uint32(ioctlFamilies[i].typ)<<8), 0x1000})
		}
	})
}
