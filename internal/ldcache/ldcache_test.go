package ldcache

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// TestRead holds the cache of this machine against ldconfig -p.
func TestRead(t *testing.T) {
	out, err := exec.Command("ldconfig", "-p").Output()
	if err != nil {
		t.Skip("needs ldconfig of glibc")
	}
	list, err := Read("/etc/ld.so.cache")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	native := 0
	for i := range list {
		have[list[i].Name+" => "+list[i].Path] = true
		if list[i].Native(runtime.GOARCH) {
			native++
		}
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	seen := 0
	for _, l := range lines {
		name, rest, ok := strings.Cut(strings.TrimSpace(l), " (")
		_, path, ok2 := strings.Cut(rest, "=> ")
		if !ok || !ok2 {
			continue
		}
		seen++
		if !have[name+" => "+path] {
			t.Errorf("ldconfig has %s => %s", name, path)
		}
	}
	if seen == 0 || seen != len(list) || native == 0 {
		t.Errorf("%d libraries, %d of this architecture; ldconfig has %d", len(list), native, seen)
	}
}

func FuzzParse(f *testing.F) {
	if b, err := os.ReadFile("/etc/ld.so.cache"); err == nil {
		f.Add(b[:min(len(b), 8192)])
	}
	f.Add([]byte(magicNew + strings.Repeat("\x00", 64)))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := Parse(b)
		if err == nil && len(list) > len(b) {
			t.Errorf("%d entries of %d bytes", len(list), len(b))
		}
	})
}
