package symbol

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sonde-trace/sonde/internal/objfile"
)

// Site is a place where the compiler put a copy of a function into another one, instead of a call.
type Site struct {
	Name string // of the function, demangled
	Addr uint64 // where the copy begins, as the file numbers addresses
	Off  uint64 // in the file
	File string // of the call
	Line int
	In   string // the function that holds it, demangled; the outermost
}

// maxSites bounds the answer.
const maxSites = 10_000

// Inlined gives the places where functions that p selects were inlined, by address. It reads all debug data of f, or of its debug
// file, which takes about a second for 200 MB. The error says why there is none, or a *NotFoundError.
func Inlined(f *objfile.File, p Pattern) ([]Site, error) {
	d, err := openDebugInfo(f)
	if err != nil {
		return nil, err
	}
	var out []Site
	err = objfile.Guard(func() error { out = d.inlined(f, &p); return nil })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	if len(out) == 0 {
		return nil, &NotFoundError{File: f.Path, Pattern: p.String()}
	}
	slices.SortFunc(out, func(a, b Site) int { return cmp.Compare(a.Addr, b.Addr) })
	return slices.CompactFunc(out, func(a, b Site) bool { return a.Addr == b.Addr && a.Name == b.Name }), nil
}

func (d *debugInfo) inlined(f *objfile.File, p *Pattern) (out []Site) {
	match := p.form()
	names := map[uint32]string{} // of what matched; empty of what did not
	for n := range d.units {
		u, err := d.unitAt(d.units[n])
		if err != nil || u.die >= u.end {
			continue
		}
		abbrevs, err := d.abbrevsOf(&u)
		var e entry
		if err != nil || d.root(&u, abbrevs, &e) != nil {
			continue
		}
		t := &unitTable{}
		d.packSpans(&u, abbrevs, t)
		lines := false
		for i := range t.spans {
			s := &t.spans[i]
			if !s.inlined || !s.entry || len(out) >= maxSites {
				continue
			}
			name, known := names[s.die]
			if !known {
				raw := d.symbolName(uint64(s.die))
				if sym := (objfile.Symbol{Name: raw}); p.raw(sym) || match(sym) {
					name = Demangle(raw)
				}
				names[s.die] = name
			}
			if name == "" {
				continue
			}
			if !lines {
				d.packLines(&u, t)
				lines = true
			}
			site := Site{Name: name, Addr: d.base + uint64(s.lo), Line: int(s.callLine)}
			var ok bool
			if site.Off, ok = f.Offset(site.Addr); !ok {
				continue
			}
			if int(s.callFile) < len(t.files) {
				site.File = t.files[s.callFile]
			}
			for k := s.outer; k >= 0; k = t.spans[k].outer {
				if !t.spans[k].inlined {
					site.In = d.name(uint64(t.spans[k].die))
					break
				}
			}
			out = append(out, site)
		}
		if d.touched += u.end - u.off; d.touched > maxTouched {
			d.release()
		}
	}
	return out
}
