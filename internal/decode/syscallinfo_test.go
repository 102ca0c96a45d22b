package decode

import (
	"strings"
	"testing"
)

// TestSyscallInfo: the number in PTRACE_SET_SYSCALL_INFO has 64 bits, and a cut structure shows the arguments that are in it.
func TestSyscallInfo(t *testing.T) {
	head := func(op uint8) []byte { return le(op, uint8(0), uint16(0), uint32(0xc000003e), uint64(1), uint64(2)) }
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"a number", append(head(1), le(uint64(39))...), "entry={nr=__NR_getpid}"},
		{"no number of a call", append(head(1), le(uint64(0xbad00000027))...), "entry={nr=12837657247783}"},
		{"two arguments", append(head(1), le(uint64(39), uint64(7), uint64(8))...), "entry={nr=__NR_getpid, args=[0x7, 0x8]}"},
		{"six of seccomp", append(head(3), le(uint64(39), uint64(1), uint64(2), uint64(3), uint64(4), uint64(5), uint64(6), uint32(9))...),
			"seccomp={nr=__NR_getpid, args=[0x1, 0x2, 0x3, 0x4, 0x5, 0x6], ret_data=9}"},
	} {
		x := Cx{Arg: [6]uint64{0x4212, 5, uint64(len(c.data)), 0x1000}, Exited: true, EnterSeg: captured(0x1000, c.data)}
		want := "{op=" + map[byte]string{1: "PTRACE_SYSCALL_INFO_ENTRY", 3: "PTRACE_SYSCALL_INFO_SECCOMP"}[c.data[0]] +
			", arch=AUDIT_ARCH_X86_64, instruction_pointer=0x1, stack_pointer=0x2, " + c.want + "}"
		got := show(t, &x, "ptrace")
		if !strings.Contains(got, want) {
			t.Errorf("%s:\n got  %s\n want %s", c.name, got, want)
		}
	}
}
