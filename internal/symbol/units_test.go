package symbol

import (
	"debug/dwarf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// describe is the function that begins at addr, with the names and types of its parameters.
func describe(d *dwarf.Data, addr uint64) (string, error) {
	r := d.Reader()
	if _, err := r.SeekPC(addr); err != nil {
		return "", err
	}
	for {
		e, err := r.Next()
		if err != nil || e == nil || e.Tag == dwarf.TagCompileUnit {
			return "", ErrNoUnit
		}
		if low, ok := e.Val(dwarf.AttrLowpc).(uint64); e.Tag != dwarf.TagSubprogram || !ok || low != addr {
			continue
		}
		out := fmt.Sprint(e.Val(dwarf.AttrName), "(")
		for e.Children {
			p, err := r.Next()
			if err != nil || p == nil || p.Tag == 0 {
				break
			}
			if off, ok := p.Val(dwarf.AttrType).(dwarf.Offset); ok && p.Tag == dwarf.TagFormalParameter {
				typ, err := d.Type(off)
				if err != nil {
					return "", err
				}
				out += fmt.Sprint(p.Val(dwarf.AttrName), " ", typ, ", ")
			}
			if p.Children {
				r.SkipChildren()
			}
		}
		return out + ")", nil
	}
}

// TestUnits: types of one unit are those of the whole data, for each version, and where units refer to each other.
func TestUnits(t *testing.T) {
	dir := t.TempDir()
	var sources []string
	for name, text := range map[string]string{"a.c": "struct p { int x; struct q *next; };\nint other(long);\nint fa(struct p *p, char c) { return p->x + c + other(c); }\nint main(int c, char **v) { return fa((void *)v, c); }\n",
		"b.c": "typedef unsigned long word;\nstruct q { word w[3]; };\nint other(long n) { return n; }\nint fb(const struct q *q, word w) { return q->w[0] + w; }\n"} {
		sources = append(sources, filepath.Join(dir, name))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, flags := range []string{"-gdwarf-5 -O1", "-gdwarf-4 -O0", "-gdwarf-3 -O1", "-gdwarf-5 -O1 -flto", "-gdwarf-4 -O1 -fdebug-types-section", "-gdwarf-5 -O1 -gz"} {
		path := filepath.Join(dir, "p")
		run(t, "gcc", append(append(strings.Fields(flags), "-fno-inline", "-o", path), sources...)...)
		f := open(t, path)
		whole, err := f.DWARF()
		if err != nil {
			t.Fatal(err)
		}
		units, err := OpenUnits(f)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for s := range f.EachFunc() {
			want, err := describe(whole, s.Addr)
			if err != nil {
				continue
			}
			n++
			got := ""
			err = units.At(s.Addr, func(d *dwarf.Data) (err error) { got, err = describe(d, s.Addr); return err })
			if err != nil || got != want {
				t.Errorf("%s: %s: %q, %v, want %q", flags, s.Name, got, err, want)
			}
		}
		if n < 3 {
			t.Errorf("%s: %d functions are described", flags, n)
		}
		if err := units.At(0, func(*dwarf.Data) error { return nil }); err == nil {
			t.Errorf("%s: address 0 has a unit", flags)
		}
	}
}
