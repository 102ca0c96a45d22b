package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/objfile"
)

// ask asks everything of a file that may lie.
func ask(t testing.TB, b []byte, offs []uint64) {
	f, err := objfile.New(bytes.NewReader(b), int64(len(b)), "hostile")
	if err != nil {
		return
	}
	r := New(Options{Lines: true})
	m := &Module{Name: "hostile", File: f}
	for _, off := range offs {
		for _, call := range []bool{false, true} {
			if got := r.Frames(nil, m, event.Frame{Offset: off}, call); len(got) == 0 || len(got) > maxInline+2 {
				t.Fatalf("%d frames", len(got))
			}
		}
	}
	for _, p := range []Pattern{Exact("main.main"), Glob("*x*")} {
		Find(f, p)
	}
}

// TestDamagedDebugData changes bytes of the tables that names are read from.
func TestDamagedDebugData(t *testing.T) {
	dir := t.TempDir()
	src := filepath.Join(dir, "main.go")
	if err := os.WriteFile(src, []byte("package main\n\nfunc add(a, b int) int { return a + b }\n\nfunc main() { println(add(1, 2)) }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	goProg := filepath.Join(dir, "goprog")
	run(t, "go", "build", "-ldflags=-s -w", "-o", goProg, src)
	for _, test := range []struct {
		path, section string
		runs          int
	}{
		{compile(t, "a.cc", inlines, "-O2", "-gdwarf-5"), ".debug_", 80},
		{compile(t, "b.cc", inlines, "-O2", "-gdwarf-4"), ".debug_", 60},
		{goProg, "gopclntab", 40},
	} {
		good, err := os.ReadFile(test.path)
		if err != nil {
			t.Fatal(err)
		}
		e, err := elf.NewFile(bytes.NewReader(good))
		if err != nil {
			t.Fatal(err)
		}
		var sections []*elf.Section
		for _, s := range e.Sections {
			if strings.Contains(s.Name, test.section) && s.FileSize > 8 {
				sections = append(sections, s)
			}
		}
		if len(sections) == 0 {
			t.Fatalf("%s has no %s", test.path, test.section)
		}
		text := e.Section(".text")
		var offs []uint64
		for i := range uint64(40) {
			offs = append(offs, text.Offset+i*(text.Size/40))
		}
		offs = append(offs, 0, 1, ^uint64(0))
		rnd := rand.New(rand.NewSource(3))
		start := time.Now()
		for range test.runs {
			b := slices.Clone(good)
			for range 1 + rnd.Intn(8) {
				s := sections[rnd.Intn(len(sections))]
				at := int(s.Offset) + rnd.Intn(int(s.FileSize)-4)
				if rnd.Intn(3) == 0 {
					at = int(s.Offset) + rnd.Intn(min(int(s.FileSize)-4, 128)) // heads matter most
				}
				binary.LittleEndian.PutUint32(b[at:], []uint32{0, 1, 0xffffffff, 0x7fffffff, rnd.Uint32(), rnd.Uint32() & 0xff, 0x80808080}[rnd.Intn(7)])
			}
			ask(t, b, offs)
		}
		t.Logf("%s: %v a file", test.section, time.Since(start)/time.Duration(test.runs))
	}
}

// FuzzNames: names and patterns of any kind end, and a name selects itself.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"_Z3funi", "_ZN4core3fmt5write17h0123456789abcdefE", "_RNvC6_123foo3bar", "main.(*T).M", "a*b?[c-d]", "_Z" + strings.Repeat("N1a", 50)} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, name, pattern string) {
		full := Demangle(name)
		if len(full) > 1<<(maxDemangled+1) && len(full) > len(name) {
			t.Errorf("%q became %d bytes", name, len(full))
		}
		forms := formsOf(name)
		for _, form := range []string{forms.name, forms.signature, forms.full} {
			if p := Exact(form); !p.matches(form) {
				t.Errorf("%q does not match itself", form)
			}
		}
		g := Glob(pattern)
		g.matches(name)
		g.literal()
		if p, err := Regexp(pattern); err == nil {
			p.matches(full)
		}
	})
}

// FuzzText: the formats that processes write.
func FuzzText(f *testing.F) {
	f.Add([]byte("1000-2000 r-xp 0 00:00 0 /a\n7f00 10 name\n"))
	f.Add([]byte("ffffffff81000000 T _stext\nffffffffc0000000 t x\t[ext4]\n"))
	f.Add(append([]byte("DTiJ\x01\x00\x00\x00\x28\x00\x00\x00"), make([]byte, 200)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if maps, err := parseMaps(bytes.NewReader(b)); err == nil {
			s := &Space{}
			for i, m := range maps {
				s.Map(uint64(len(maps)-i%3), m)
				if x, ok := s.At(^uint64(0)-1, m.Start); ok && (x.Start > m.Start || x.End <= m.Start) {
					t.Errorf("%#x is in %+v", m.Start, x)
				}
			}
			s.Snapshot(1, maps)
			for i := 1; i < len(s.live); i++ {
				if s.live[i].Start < s.live[i-1].End {
					t.Errorf("%+v lies over %+v", s.live[i], s.live[i-1])
				}
			}
		}
		if k, err := ReadKernel(bytes.NewReader(b)); err == nil {
			k.Frame(0xffffffffc0000001, true)
		}
		for _, read := range []func(*jit, []byte){(*jit).readMap, (*jit).readDump} {
			j := &jit{}
			read(j, b)
			for _, r := range j.rows {
				j.frame(5, r.addr)
			}
		}
	})
}
