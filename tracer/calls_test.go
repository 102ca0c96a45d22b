package tracer

import (
	"testing"

	"github.com/sonde-trace/sonde/internal/decode"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// The calls that get programs of their own exist, and take memory: of others there is nothing to speed up.
func TestOften(t *testing.T) {
	for name := range often {
		_, amd64 := syscalls.AMD64.ByName(name)
		_, arm64 := syscalls.ARM64.ByName(name)
		if !amd64 && !arm64 {
			t.Errorf("%s: no such call", name)
		}
		if s := decode.Specs()[name]; s == nil || len(s.Enter)+len(s.Exit) == 0 {
			t.Errorf("%s takes no memory", name)
		}
	}
}

// A call filled in late is the same each time, by every way into the kernel.
func TestCallTables(t *testing.T) {
	asked := 0
	tables, err := newCallTables("amd64", func(abi *syscalls.ABI, nr uint32) bool { asked++; return nr == 0 }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if asked != 0 {
		t.Errorf("%d calls filled in before any was made", asked)
	}
	for _, ac := range []*abiCalls{tables.native, tables.compat, tables.x32} {
		for nr, def := range ac.abi.All() {
			c := tables.call(ac, nr)
			if c == nil || c.name != def.Name || c.decode == nil || c.show != (nr == 0) {
				t.Fatalf("%s %d: %+v, want %s", ac.abi.Name, nr, c, def.Name)
			}
			if again := tables.call(ac, nr); again != c {
				t.Errorf("%s %d: another call the second time", ac.abi.Name, nr)
			}
		}
		if c := tables.call(ac, 0x7ffffff); c != nil {
			t.Errorf("%s: a call %+v behind the table", ac.abi.Name, c)
		}
	}
}
