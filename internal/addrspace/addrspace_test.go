package addrspace

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAgainstKernel runs a program of random operations and wants the model to have the areas that the kernel has, after each.
func TestAgainstKernel(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	exe := filepath.Join(t.TempDir(), "random")
	if b, err := exec.Command("gcc", "-O1", "-o", exe, "testdata/random.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	// Larger than all that is mapped of it, so that each page can be written to.
	file := filepath.Join(filepath.Dir(exe), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 1<<20); err != nil {
		t.Fatal(err)
	}
	seeds, count := 60, 120
	if testing.Short() {
		seeds = 10
	}
	var outs [][]byte
	for seed := range seeds {
		cmd := exec.Command(exe, fmt.Sprint(seed+1), fmt.Sprint(count), file)
		b, err := cmd.Output()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		outs = append(outs, b)
	}
	// Kernels differ in one rule; one of the two must hold for everything.
	var failures []error
	for _, keeps := range []bool{false, true} {
		var failed error
		for seed, out := range outs {
			if err := follow(out, file, Rules{KeepsCommit: keeps}); err != nil {
				failed = fmt.Errorf("keeps commit %v, seed %d: %w", keeps, seed+1, err)
				break
			}
		}
		if failed == nil {
			return
		}
		failures = append(failures, failed)
	}
	t.Error(errors.Join(failures...))
}

func follow(out []byte, exe string, rules Rules) error {
	s := &Space{Rules: rules}
	var history []string
	var want []string
	first := true
	var initial []Area
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		line := sc.Text()
		if rest, ok := strings.CutPrefix(line, "= "); ok {
			a, err := parseLine(rest)
			if err != nil {
				return err
			}
			if first {
				initial = append(initial, a)
			}
			want = append(want, fmt.Sprintf("%08x-%08x %s %08x %s", a.Start, a.End, a.Flags(), a.Offset, or(a.File, a.Name)))
			continue
		}
		if line == "." {
			if first && len(initial) > 0 {
				return fmt.Errorf("there is something already: %v", initial)
			}
			first = false
			got := strings.Split(strings.TrimSuffix(s.String(), "\n"), "\n")
			if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
				return fmt.Errorf("after\n%s\nthe kernel has\n%s\nthe model\n%s", strings.Join(history[max(0, len(history)-12):], "\n"), w, g)
			}
			want = nil
			continue
		}
		history = append(history, line)
		if err := apply(s, line, exe); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	return nil
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func apply(s *Space, line, exe string) error {
	var op string
	var addr, length, to, newLen, off uint64
	var prot, a, b, failed int
	fmt.Sscan(line, &op)
	scan := func(format string, args ...any) error {
		_, err := fmt.Sscanf(line, op+" "+format, args...)
		return err
	}
	fails := func(err error) error {
		if (err != nil) != (failed != 0) {
			return fmt.Errorf("the kernel failed: %v, the model: %v", failed != 0, err)
		}
		return nil
	}
	switch op {
	case "brk":
		if err := scan("%x", &addr); err != nil {
			return err
		}
		return s.Brk(addr)
	case "anon":
		if err := scan("%x %x %d %d %d", &addr, &length, &prot, &a, &failed); err != nil {
			return err
		}
		area := Area{Start: addr, End: addr + length, Prot: Prot(prot)}
		if a != 0 {
			area.Attr = NoReserve
		}
		return fails(s.Map(area))
	case "file":
		if err := scan("%x %x %d %d %d %x %d", &addr, &length, &prot, &a, &b, &off, &failed); err != nil {
			return err
		}
		area := Area{Start: addr, End: addr + length, Prot: Prot(prot), File: exe, Handle: uint64(a), Offset: off}
		if b != 0 {
			area.Attr = Shared | NoWrite
		}
		return fails(s.Map(area))
	case "unmap":
		if err := scan("%x %x", &addr, &length); err != nil {
			return err
		}
		return s.Unmap(addr, length)
	case "protect":
		if err := scan("%x %x %d %d", &addr, &length, &prot, &failed); err != nil {
			return err
		}
		return fails(s.Protect(addr, length, Prot(prot)))
	case "touch":
		if err := scan("%x", &addr); err != nil {
			return err
		}
		return s.Touch(addr)
	case "remap":
		if err := scan("%x %x %x %x %d", &addr, &length, &to, &newLen, &failed); err != nil {
			return err
		}
		if failed != 0 {
			return nil
		}
		return s.Remap(addr, length, to, newLen, false)
	case "none":
		return nil
	}
	return errors.New("an unknown operation")
}

func TestDiff(t *testing.T) {
	s := &Space{}
	at := uint64(0x10000)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Map(Area{Start: at, End: at + 4*PageSize, Prot: Read, File: "f"}))
	before := s.Areas()
	must(s.Protect(at+PageSize, PageSize, Read|Write))
	must(s.Unmap(at+3*PageSize, PageSize))
	must(s.Map(Area{Start: at + 8*PageSize, End: at + 9*PageSize - 5, Prot: Read}))
	var b strings.Builder
	for _, c := range Diff(before, s.Areas()) {
		fmt.Fprintf(&b, "%c %x-%x %s\n", c.Kind, c.Area.Start, c.Area.End, c.Area.Flags())
	}
	if want := "~ 11000-12000 rw-p\n- 13000-14000 r--p\n+ 18000-19000 r--p\n"; b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	if a, ok := s.Lookup(at + PageSize); !ok || a.Offset != PageSize || a.Prot != Read|Write {
		t.Errorf("%+v %v", a, ok)
	}
	if err := s.Protect(at+2*PageSize, 2*PageSize, Exec); !errors.Is(err, ErrHole) {
		t.Errorf("protect over a hole: %v", err)
	}
	if a, _ := s.Lookup(at + 2*PageSize); a.Prot != Exec {
		t.Error("what comes before the hole keeps its change")
	}
}

func TestStack(t *testing.T) {
	s := &Space{}
	if err := s.Map(Area{Start: 0x7000000, End: 0x7021000, Prot: Read | Write, Attr: GrowsDown, Name: "[stack]"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Grow(0x6ffe123); err != nil {
		t.Fatal(err)
	}
	if got, want := s.String(), "06ffe000-07021000 rw-p 00000000 [stack]\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := s.Grow(0x8000000); !errors.Is(err, ErrHole) {
		t.Errorf("%v", err)
	}
}

func TestReadMaps(t *testing.T) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list, err := ReadMaps(f)
	if err != nil || len(list) < 5 {
		t.Fatalf("%d areas, %v", len(list), err)
	}
}

func FuzzReadMaps(f *testing.F) {
	f.Add("00400000-00401000 r-xp 00000000 08:01 123  /bin/x y\n7fff0000-7fff1000 rw-s 00000000 00:00 0 [stack]\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ReadMaps(strings.NewReader(text))
		if err != nil {
			return
		}
		s := &Space{}
		s.Set(list)
		Diff(nil, s.Areas())
		_ = s.String()
	})
}
