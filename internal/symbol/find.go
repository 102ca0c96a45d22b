package symbol

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sonde-trace/sonde/internal/near"
	"github.com/sonde-trace/sonde/internal/objfile"
)

// Func is a function of a file.
type Func struct {
	Name      string   // as the symbol table has it; of several names of the address the best that matched
	Version   string   // of the symbol: GLIBC_2.2.5
	Demangled string   // Name for a reader; the same as Name when it is not mangled
	Aliases   []string // the other names of the address
	Addr      uint64   // as the file numbers addresses
	Off       uint64   // in the file
	Size      uint64   // bytes; 0 when not known
	Sized     bool     // the table gives the size; else it lasts to the next function
	IFunc     string   // the indirect function that may choose this at run time; Name is then the implementation's, empty when it has none
	Stub      bool     // of the procedure linkage table: Name is the function that it jumps to

	signature string
}

// Found is what a pattern selects in a file, by address, each address once.
type Found struct {
	Funcs []Func
	Notes []string // what a user should know about the selection, a sentence each
}

// Spelling is the name by which Find selects this function: its signature, or its symbol when that is not mangled. Functions that
// are spelled alike are selected together.
func (fn *Func) Spelling() string {
	switch {
	case fn.Stub:
		return fn.Name + "@plt"
	case fn.Name == "":
		return fn.IFunc
	}
	return fn.signature
}

// NotFoundError says that a file has no function of a name.
type NotFoundError struct {
	File     string
	Pattern  string
	Near     []string // names of the file that look like it, best first
	Imported bool     // the file calls it and another defines it
	Inlined  []string // places, FILE:LINE, where the compiler put copies of it instead of calls
}

func (e *NotFoundError) Error() string {
	s := fmt.Sprintf("%s: no function %s", e.File, e.Pattern)
	if e.Imported {
		s += fmt.Sprintf("; it is called from here and is in a library (%s@plt is the call)", e.Pattern)
	}
	if n := len(e.Inlined); n > 0 {
		s += "; it was inlined at " + strings.Join(e.Inlined[:min(n, 3)], ", ")
		if n > 3 {
			s += fmt.Sprintf(" and %d more places", n-3)
		}
	} else if len(e.Near) > 0 {
		s += "; did you mean " + strings.Join(e.Near, ", ") + "?"
	}
	return s
}

// ErrNoSymbols says that a file names no functions at all.
var ErrNoSymbols = errors.New("it has no symbols: no table of symbols, no debug file; give an offset in the file instead")

// Find gives the functions of f that p selects. An indirect function comes as its implementations. The error is a
// *NotFoundError, or ErrNoSymbols.
func Find(f *objfile.File, p Pattern) (Found, error) {
	s := &search{f: f, p: p, byAddr: map[uint64]int{}}
	s.run()
	if len(s.out.Funcs) == 0 {
		if !s.any {
			err := fmt.Errorf("%s: %w", f.Path, ErrNoSymbols)
			var wrong *objfile.MismatchError
			if _, e := f.Debug(); errors.As(e, &wrong) {
				err = fmt.Errorf("%w (%w)", err, wrong)
			}
			return Found{}, err
		}
		return Found{}, s.notFound()
	}
	s.finish()
	return s.out, nil
}

type search struct {
	f      *objfile.File
	p      Pattern
	out    Found
	byAddr map[uint64]int   // places in out.Funcs
	best   []objfile.Symbol // of out.Funcs, to choose names
	ifuncs []objfile.Symbol
	any    bool // the file has names
	own    bool // only tables of the file itself are asked
	cold   int  // parts that were left out
}

func (s *search) run() {
	if strings.HasSuffix(s.p.text, "@plt") {
		s.stubs()
		return
	}
	// A pattern that is a name means that name: main.(*Server).Handle, operator*, parse(char*).
	if s.p.kind != regex {
		name := Exact(s.p.text)
		// A name in the file itself needs no debug file, which may be far away.
		if s.own = true; s.take(name.raw) {
			return
		}
		s.own = false
		if s.take(name.raw) || s.take(name.form()) || s.p.kind == exact {
			return
		}
	}
	demangled := s.p.form()
	s.take(func(sym objfile.Symbol) bool {
		if sym.Type == elf.STT_NOTYPE && sym.Bind == elf.STB_LOCAL {
			return false
		}
		return (s.p.raw(sym) || demangled(sym)) && !s.isCold(sym.Name)
	})
}

// take adds the functions that match, and reports whether there were any.
func (s *search) take(match func(objfile.Symbol) bool) bool {
	for sym := range s.symbols() {
		if match(sym) {
			s.add(sym)
		}
	}
	s.implementations()
	return len(s.out.Funcs)+len(s.ifuncs) > 0
}

// symbols are the functions by every table of the file.
func (s *search) symbols() func(func(objfile.Symbol) bool) {
	return func(yield func(objfile.Symbol) bool) {
		table := false
		for sym := range s.tables() {
			s.any = true
			table = table || !sym.Dynamic
			if !yield(sym) {
				return
			}
		}
		if table {
			return // a Go program that is not stripped names the same functions there
		}
		if t := GoTableOf(s.f); t != nil {
			for fn := range t.All() {
				s.any = true
				if !yield(objfile.Symbol{Name: fn.Name, Addr: fn.Entry, Size: fn.Size, Type: elf.STT_FUNC, Bind: elf.STB_LOCAL}) {
					return
				}
			}
		}
	}
}

// isCold: the part of a function that the compiler put aside is entered in its middle.
func (s *search) isCold(name string) bool {
	if i := strings.Index(name, ".cold"); i <= 0 || strings.Contains(s.p.text, "cold") {
		return false
	}
	s.cold++
	return true
}

// raw compares the symbol as it stands in the table.
func (p *Pattern) raw(s objfile.Symbol) bool {
	if Mangled(s.Name) && !p.mangled {
		return p.kind == glob && p.glob == "*"
	}
	if p.kind == exact {
		if !strings.HasPrefix(p.text, s.Name) {
			return false
		}
		rest := p.text[len(s.Name):]
		return rest == "" || s.Version != "" && (rest == "@"+s.Version || rest == "@@"+s.Version && !s.Hidden)
	}
	if p.matches(s.Name) {
		return true
	}
	return s.Version != "" && strings.Contains(p.text, "@") && p.matches(s.Name+"@"+s.Version)
}

// form compares the forms of a mangled name.
func (p *Pattern) form() func(objfile.Symbol) bool {
	must := p.literal()
	return func(sym objfile.Symbol) bool {
		if !Mangled(sym.Name) || !strings.Contains(sym.Name, must) {
			return false
		}
		f := formsOf(sym.Name)
		return f.full != sym.Name && (p.matches(f.name) || p.matches(f.signature) || f.full != f.signature && p.matches(f.full))
	}
}

// notLiteral are words of demangled names that mangled ones write in other ways.
const notLiteral = " std allocator basic_string string istream ostream iostream char_traits operator new delete closure shim impl lambda" +
	" unnamed anonymous namespace clone guard variable vtable typeinfo thunk virtual const volatile construction initialization reference" +
	" temporary int unsigned signed long short char bool double float void wchar_t char8_t char16_t char32_t auto decltype nullptr_t __int128" +
	" __float128 half u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize f32 f64 str dyn enable_if type struct typename "

// literal is a word that every mangled name has that can match, or "".
func (p *Pattern) literal() string {
	if p.kind == regex {
		return ""
	}
	text := p.glob
	if i := strings.IndexAny(text, "(<"); i >= 0 {
		text = text[:i]
	}
	best := ""
	for _, w := range strings.FieldsFunc(text, func(c rune) bool {
		return c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	}) {
		if len(w) > len(best) && (w[0] < '0' || w[0] > '9') && !strings.Contains(notLiteral, w) {
			best = w
		}
	}
	if p.kind == glob && strings.ContainsAny(text, "[\\") { // letters of a set are none of the name
		return ""
	}
	return best
}

func (s *search) add(sym objfile.Symbol) {
	if sym.Type == elf.STT_GNU_IFUNC {
		if !slices.ContainsFunc(s.ifuncs, func(x objfile.Symbol) bool { return x.Addr == sym.Addr }) {
			sym.Name = strings.Clone(sym.Name)
			s.ifuncs = append(s.ifuncs, sym)
		}
		return
	}
	off, ok := s.f.Offset(sym.Addr)
	if !ok {
		return
	}
	sym.Name = strings.Clone(sym.Name)
	i, known := s.byAddr[sym.Addr]
	if !known {
		s.byAddr[sym.Addr] = len(s.out.Funcs)
		s.out.Funcs = append(s.out.Funcs, Func{Addr: sym.Addr, Off: off})
		s.best = append(s.best, sym)
		i = len(s.best) - 1
	} else if objfile.CompareNames(sym, s.best[i]) < 0 {
		s.best[i] = sym
	}
	fn, b := &s.out.Funcs[i], s.best[i]
	fn.Name, fn.Version, fn.Size, fn.Sized = b.Name, b.Version, b.Size, b.Size > 0
}

// tables are the symbol tables, without those of a debug file while a name is searched in the file itself.
func (s *search) tables() iter.Seq[objfile.Symbol] {
	if s.own {
		return s.f.OwnFuncs()
	}
	return s.f.EachFunc()
}

// finish adds the other names, the sizes that the tables lack, and the notes.
func (s *search) finish() {
	for sym := range s.tables() {
		if i, ok := s.byAddr[sym.Addr]; ok && sym.Type != elf.STT_GNU_IFUNC {
			if fn := &s.out.Funcs[i]; sym.Name != fn.Name && !slices.Contains(fn.Aliases, sym.Name) && len(fn.Aliases) < 64 {
				fn.Aliases = append(fn.Aliases, strings.Clone(sym.Name))
			}
		}
	}
	for i := range s.out.Funcs {
		fn := &s.out.Funcs[i]
		names := formsOf(fn.Name)
		fn.Demangled, fn.signature = names.full, names.signature
		slices.Sort(fn.Aliases)
		if fn.Size == 0 {
			if t, ok := s.f.Funcs().Lookup(fn.Addr); ok {
				fn.Size = t.Addr + t.Size - fn.Addr
			}
		}
	}
	slices.SortFunc(s.out.Funcs, func(a, b Func) int { return cmp.Compare(a.Addr, b.Addr) })
	if s.cold > 0 {
		s.out.Notes = append(s.out.Notes, fmt.Sprintf("%d cold parts of functions are left out: they are not entered by calls", s.cold))
	}
}

func (s *search) stubs() {
	p := s.p
	p.text, p.glob = strings.TrimSuffix(p.text, "@plt"), strings.TrimSuffix(p.glob, "@plt")
	demangled := p.form()
	for _, st := range s.f.Stubs() {
		s.any = true
		if sym := (objfile.Symbol{Name: st.Name, Version: st.Version}); p.raw(sym) || demangled(sym) {
			if off, ok := s.f.Offset(st.Addr); ok {
				s.byAddr[st.Addr] = len(s.out.Funcs)
				s.out.Funcs = append(s.out.Funcs, Func{Name: st.Name, Version: st.Version, Addr: st.Addr, Off: off, Size: st.Size, Sized: true, Stub: true})
			}
		}
	}
}

// implementations replaces the indirect functions that matched by what they can choose.
func (s *search) implementations() {
	for _, r := range s.ifuncs {
		impl := ifuncTargets(s.f, r)
		if len(impl) == 0 {
			s.out.Notes = append(s.out.Notes, fmt.Sprintf("%s is an indirect function, and what it chooses from was not found", r.Name))
			continue
		}
		names := make([]string, len(impl))
		for i, sym := range impl {
			if names[i] = sym.Name; names[i] == "" {
				names[i] = fmt.Sprintf("%#x", sym.Addr)
			}
			off, ok := s.f.Offset(sym.Addr)
			if !ok {
				continue
			}
			if at, known := s.byAddr[sym.Addr]; known {
				s.out.Funcs[at].IFunc = r.Name
				continue
			}
			s.byAddr[sym.Addr] = len(s.out.Funcs)
			s.out.Funcs = append(s.out.Funcs, Func{Name: sym.Name, Addr: sym.Addr, Off: off, Size: sym.Size, Sized: sym.Size > 0, IFunc: r.Name})
			s.best = append(s.best, sym)
		}
		s.out.Notes = append(s.out.Notes, fmt.Sprintf("%s is an indirect function: the program's start chooses one of its %d implementations, all are taken: %s",
			r.Name, len(impl), strings.Join(names, ", ")))
	}
}

func (s *search) notFound() error {
	e := &NotFoundError{File: s.f.Path, Pattern: s.p.String()}
	if s.p.kind == exact {
		name, _, _ := strings.Cut(s.p.text, "@")
		for _, st := range s.f.Stubs() {
			e.Imported = e.Imported || st.Name == name
		}
		e.Near = s.near()
		e.Inlined = s.inlinedAt()
	}
	if len(s.ifuncs) > 0 {
		return fmt.Errorf("%s: %s", s.f.Path, strings.Join(s.out.Notes, "; "))
	}
	return e
}

// maxInlineSearch bounds how much debug data is read to say more about a name that was not found.
const maxInlineSearch = 128 << 20

func (s *search) inlinedAt() (out []string) {
	d, err := s.f.Debug()
	if err != nil {
		return nil
	}
	if sect := d.ELF.Section(".debug_info"); sect == nil || sect.Size > maxInlineSearch {
		return nil
	}
	sites, err := Inlined(s.f, s.p)
	if err != nil {
		return nil
	}
	for _, x := range sites {
		if at := fmt.Sprintf("%s:%d", filepath.Base(x.File), x.Line); !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	return out
}

// maxNear bounds how many names are demangled to find those that look like one: that is the dear part.
const maxNear = 40_000

// near are names that look like the one that was not found, with their scopes and parameters or without.
func (s *search) near() (out []string) {
	want, _, _ := strings.Cut(s.p.text, "(")
	want, _, _ = strings.Cut(want, "@")
	spelled := map[string][]string{} // by what is compared
	keys := func(yield func(string) bool) {
		budget := maxNear
		for sym := range s.symbols() {
			name := sym.Name
			if Mangled(name) {
				if budget--; budget < 0 {
					continue
				}
				name = formsOf(name).signature
			}
			base, _, _ := strings.Cut(name, "(")
			keys := []string{base}
			if i := strings.LastIndexAny(base, ":."); i >= 0 {
				keys = append(keys, base[i+1:])
			}
			if i := strings.IndexByte(base, '<'); i > 0 {
				keys = append(keys, base[:i])
			}
			if strings.Contains(name, ".(") { // a method of Go, whose receiver is in parentheses
				keys[0] = name
			}
			for _, k := range keys {
				if l := spelled[k]; len(l) < 3 && !slices.Contains(l, name) {
					spelled[strings.Clone(k)] = append(l, strings.Clone(name))
				}
				if !yield(k) {
					return
				}
			}
		}
	}
	if strings.Contains(s.p.text, ".(") {
		want = s.p.text
	}
	for _, k := range near.Names(want, keys) {
		for _, name := range spelled[k] {
			if len(out) < 5 && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}
