package attach

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/internal/kerneltest"
	. "github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// TestGates: the ABI is a fact of each call. A 64-bit program enters through x32's gate and through the 32-bit one, where
// numbers mean other calls and pointers have 4 bytes.
func TestGates(t *testing.T) {
	kerneltest.Require(t, kerneltest.Root, kerneltest.BTF)
	native := []string{`0x101 "/nonexistent/native"`, `0x40000101 "/nonexistent/x32"`}
	t.Run("x32", func(t *testing.T) { gates(t, native) })
	t.Run("i386", func(t *testing.T) {
		kerneltest.Require(t, kerneltest.Compat32)
		gates(t, append(native, `0x127 compat "/nonexistent/compat"`, `0x92 compat "hello, " "world"`), "compat")
	})
}

func gates(t *testing.T, want []string, args ...string) {
	program := kerneltest.Program(t, "gates")
	vector := []Fetch{{Kind: FetchIovec, Base: Arg(1), Len: Length{Number: Arg(2)}}}
	s := open(t, SyscallOptions{Follow: true, Calls: []SyscallPlan{
		{ABI: "amd64", Nr: 257, Enter: []Fetch{Path(1)}},
		{ABI: "i386", Nr: 295, Enter: []Fetch{Path(1)}},
		{ABI: "i386", Nr: 146, Enter: vector},
		{ABI: "x32", Nr: 257, Enter: []Fetch{Path(1)}},
	}})
	calls, _ := run(t, s, exec.Command(program, args...))
	var got []string
	for _, r := range calls {
		if r.Kind() != wire.SysEnter {
			if r.Ret() >= 0 {
				t.Errorf("call %#x returned %d", r.Probe(), r.Ret())
			}
			continue
		}
		line := fmt.Sprintf("%#x", r.Probe())
		if r.Flags()&wire.FlagCompat != 0 {
			line += " compat"
			if r.Args()[0]>>32 != 0 {
				line += " not zero-extended"
			}
		}
		for _, seg := range segments(r) {
			if seg.Flags&wire.SegString != 0 || len(seg.Data) < 10 {
				line += fmt.Sprintf(" %q", seg.Data)
			}
		}
		got = append(got, line)
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	balance(t, s, calls)
}
