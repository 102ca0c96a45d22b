package decode

import (
	"testing"

	"github.com/sonde-trace/sonde/internal/wire"
)

func TestFileIoctls(t *testing.T) {
	const addr = 0x1000
	fiemap := le(uint64(1), uint64(2), uint32(3), uint32(0), uint32(9), uint32(0))
	mapped := append(le(uint64(1), uint64(2), uint32(1), uint32(1), uint32(9), uint32(0)),
		le(uint64(4), uint64(5), uint64(6), uint64(0), uint64(0), uint32(1), uint32(0), uint64(0))...)
	for _, c := range []struct {
		name string
		cmd  uint64
		in   wire.Segments
		out  wire.Segments
		ret  int64
		want string
	}{
		{"an int whatever the command says", 0x40086602, captured(addr, le(uint32(0x11))), nil, 0, "FS_IOC_SETFLAGS, [FS_SECRM_FL|FS_IMMUTABLE_FL]"},
		{"filled by the kernel", 0x80086601, nil, captured(addr, le(uint32(0x10))), 0, "FS_IOC_GETFLAGS, [FS_IMMUTABLE_FL]"},
		{"not filled", 0x80086601, nil, nil, -25, "FS_IOC_GETFLAGS, 0x1000"},
		{"a name of its own", 0x8004587d, captured(addr, le(uint32(1))), nil, 0, "FS_IOC_SHUTDOWN, [FS_SHUTDOWN_FLAGS_LOGFLUSH]"},
		{"extents", 0xc020660b, captured(addr, fiemap), captured(addr, mapped), 0,
			"FS_IOC_FIEMAP, {fm_start=1, fm_length=2, fm_flags=FIEMAP_FLAG_SYNC|FIEMAP_FLAG_XATTR, fm_extent_count=9} => " +
				"{fm_flags=FIEMAP_FLAG_SYNC, fm_mapped_extents=1, fm_extents=[{fe_logical=4, fe_physical=5, fe_length=6, fe_flags=FIEMAP_EXTENT_LAST}]}"},
		{"extents of a failed call", 0xc020660b, captured(addr, fiemap), nil, -95,
			"FS_IOC_FIEMAP, {fm_start=1, fm_length=2, fm_flags=FIEMAP_FLAG_SYNC|FIEMAP_FLAG_XATTR, fm_extent_count=9}"},
		{"uuid", 0x80111500, nil, captured(addr, append([]byte{2, 0xab, 0xcd}, make([]byte, 14)...)), 0, `FS_IOC_GETFSUUID, {len=2, uuid="\xab\xcd"}`},
		{"epoll", 0x40088a01, captured(addr, le(uint32(1500000), uint16(2), uint8(1), uint8(0))), nil, 0,
			"EPIOCSPARAMS, {busy_poll_usecs=1500000, busy_poll_budget=2, prefer_busy_poll=0x1}"},
		{"trim", 0xc0185879, captured(addr, le(uint64(16), uint64(2), uint64(3))), nil, 0, "FITRIM, {start=0x10, len=2, minlen=3}"},
	} {
		x := Cx{Arg: [6]uint64{3, c.cmd, addr}, Exited: true, Ret: c.ret, EnterSeg: c.in, ExitSeg: c.out}
		want := "ioctl(3, " + c.want + ") = "
		if got := show(t, &x, "ioctl"); len(got) < len(want) || got[:len(want)] != want {
			t.Errorf("%s:\n got  %s\n want %s", c.name, got, want)
		}
	}
}

// TestReturnedDescriptors: a call that returns a descriptor says so, whatever its row leaves out.
func TestReturnedDescriptors(t *testing.T) {
	for name, s := range Specs() {
		if s.RetFD && s.Ret == nil {
			t.Errorf("%s returns a descriptor and shows a number", name)
		}
	}
}
