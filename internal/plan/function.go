package plan

import (
	"debug/elf"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/near"
	"github.com/sonde-trace/sonde/internal/objfile"
	"github.com/sonde-trace/sonde/internal/wire"
	"github.com/sonde-trace/sonde/probe"
)

// function resolves a probe on functions or addresses of a file.
func (p *Plan) function(env *Env) error {
	o, err := findObject(p.Spec.Object, env)
	if err != nil {
		return err
	}
	defer o.file.Close()
	p.Object, p.Path = o.name, o.path
	if want := machines[env.Arch]; o.file.ELF.Machine != want {
		return fmt.Errorf("%s is for %s, and programs here are for %s", o.path, o.file.ELF.Machine, want)
	}
	if err := p.points(o); err != nil {
		return err
	}
	when := p.Spec.When
	if when == probe.WhenDefault {
		if when = probe.WhenBoth; p.Spec.Point.Match == probe.MatchNumber || p.Spec.Point.Offset != 0 {
			when = probe.WhenEntry
		}
	}
	if when != probe.WhenEntry {
		if why := unsafeReturn(o.file); why != "" {
			if p.Spec.When != probe.WhenDefault {
				return fmt.Errorf("the return of a function of %s cannot be watched: %s", o.name, why)
			}
			when = probe.WhenEntry
			p.Notes = append(p.Notes, fmt.Sprintf("returns are not watched: %s", why))
		}
	}
	p.Both, p.Return = when == probe.WhenBoth, when == probe.WhenReturn
	return p.values(o, env, when)
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// unsafeReturn says why functions of a file must not have their return address replaced; empty when they may.
func unsafeReturn(f *objfile.File) string {
	if f.ELF.Section(".gopclntab") != nil || f.ELF.Section(".go.buildinfo") != nil {
		return "it is a Go program, whose stacks move, and which a replaced return address would kill"
	}
	return ""
}

// points finds the places in the file.
func (p *Plan) points(o *object) error {
	pt := &p.Spec.Point
	add := func(name string, addr uint64) error {
		off, ok := o.file.Offset(addr)
		if !ok || !o.file.InCode(addr) {
			return fmt.Errorf("%s is at %#x, where %s has no code", name, addr, o.name)
		}
		p.Points = append(p.Points, Point{Name: name, Path: o.path, Offset: off})
		return nil
	}
	if pt.Match == probe.MatchNumber {
		addr, ok := o.file.Addr(uint64(pt.Offset))
		if !ok || !o.file.InCode(addr) {
			return fmt.Errorf("offset %#x is not in the code of %s", pt.Offset, o.name)
		}
		p.Points = append(p.Points, Point{Name: fmt.Sprintf("%#x", pt.Offset), Path: o.path, Offset: uint64(pt.Offset)})
		return nil
	}
	match, err := matcher(pt)
	if err != nil {
		return err
	}
	seen := make(map[uint64]int) // address → index in Points
	skipped := map[string]int{}
	for _, s := range o.file.Symbols() {
		if s.Type != elf.STT_FUNC && s.Type != elf.STT_GNU_IFUNC && s.Type != elf.STT_NOTYPE || !match(s.Name) {
			continue
		}
		exact := pt.Match == probe.MatchExact
		switch {
		case s.Type == elf.STT_NOTYPE && (!exact || !o.file.InCode(s.Addr)):
			continue
		case s.Type == elf.STT_GNU_IFUNC:
			impls := implementations(o.file, &s)
			if len(impls) == 0 {
				skipped["an IFUNC whose implementations have no symbols"]++
				continue
			}
			p.Notes = append(p.Notes, fmt.Sprintf("%s is chosen at run time: its %d implementations are watched", s.Name, len(impls)))
			for _, im := range impls {
				if _, dup := seen[im.Addr]; !dup {
					seen[im.Addr] = len(p.Points)
					if err := add(s.Name, im.Addr); err != nil {
						return err
					}
				}
			}
			continue
		case !exact && !o.file.InCode(s.Addr):
			skipped["not in code"]++
			continue
		case !exact && s.Size == 0:
			skipped["of size zero"]++
			continue
		}
		addr := uint64(int64(s.Addr) + pt.Offset)
		if _, dup := seen[addr]; dup {
			continue // an alias
		}
		name := s.Name
		if pt.Offset != 0 {
			name = fmt.Sprintf("%s+%#x", s.Name, pt.Offset)
			if s.Size > 0 && uint64(pt.Offset) >= s.Size {
				return fmt.Errorf("%s is %d bytes long: %+#x is behind its end", s.Name, s.Size, pt.Offset)
			}
		}
		seen[addr] = len(p.Points)
		if err := add(name, addr); err != nil {
			return err
		}
	}
	for why, n := range skipped {
		p.Notes = append(p.Notes, fmt.Sprintf("%d functions skipped: %s", n, why))
	}
	if len(p.Points) == 0 {
		var names []string
		for _, s := range o.file.Symbols() {
			if s.Type == elf.STT_FUNC {
				names = append(names, s.Name)
			}
		}
		if len(names) == 0 {
			return fmt.Errorf("%s has no names of functions: it is stripped; %s:0xOFFSET names a place in it", o.name, p.Spec.Object)
		}
		if pt.Match != probe.MatchExact {
			return fmt.Errorf("no function of %s matches", o.name)
		}
		return &Error{Expr: p.Spec.Source, Msg: fmt.Sprintf("%s has no function %s", o.name, pt.Text), Near: near.Names(pt.Text, slices.Values(names))}
	}
	return nil
}

// matcher tells which names a point means.
func matcher(pt *probe.Point) (func(string) bool, error) {
	switch pt.Match {
	case probe.MatchGlob:
		if _, err := path.Match(pt.Text, ""); err != nil {
			return nil, fmt.Errorf("%q is not a pattern: %v", pt.Text, err)
		}
		return func(name string) bool { ok, _ := path.Match(pt.Text, name); return ok }, nil
	case probe.MatchRegexp:
		re, err := regexp.Compile(pt.Text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a regular expression: %v", pt.Text, err)
		}
		return re.MatchString, nil
	}
	return func(name string) bool { return name == pt.Text }, nil
}

// implementations lists the functions that an IFUNC may choose, by their names: glibc calls those of strlen __strlen_avx2,
// __strlen_evex and so on. The symbol's own value is the function that chooses.
func implementations(f *objfile.File, s *objfile.Symbol) (list []objfile.Symbol) {
	prefix := "__" + strings.TrimLeft(s.Name, "_") + "_"
	if d, err := f.Debug(); err == nil && d != f {
		for _, x := range d.Symbols() {
			if x.Type == elf.STT_FUNC && strings.HasPrefix(x.Name, prefix) && !strings.HasSuffix(x.Name, "_chk") {
				list = append(list, x)
			}
		}
	}
	for _, x := range f.Symbols() {
		if x.Type == elf.STT_FUNC && strings.HasPrefix(x.Name, prefix) && !strings.HasSuffix(x.Name, "_chk") {
			list = append(list, x)
		}
	}
	return list
}

// integerArgs are the registers of integer arguments: System V psABI for AMD64, section 3.2.3; AAPCS64, section 6.8.
var integerArgs = map[string][]string{
	"amd64": {"rdi", "rsi", "rdx", "rcx", "r8", "r9"},
	"arm64": {"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"},
}

// values decides what to take at a hit and at a return.
func (p *Plan) values(o *object, env *Env, when probe.When) error {
	t := &taker{limit: env.StrLimit}
	regs := integerArgs[env.Arch]
	args := p.Spec.Args
	if !p.Spec.Typed {
		// Not known: the registers of the first six arguments.
		for i := range 6 {
			args = append(args, probe.Arg{Name: fmt.Sprintf("arg%d", i+1), Type: &probe.Type{Name: "x64"}})
		}
	}
	next := 0
	for i := range args {
		a := &args[i]
		w, err := word(a.Place, env.Arch)
		if err != nil {
			return err
		}
		if a.Place == nil {
			if w, err = argument(next, regs, env.Arch); err != nil {
				return err
			}
			next++
		}
		if t.full() {
			return fmt.Errorf("too many values: %s is more than one record holds", a.Name)
		}
		form, err := formOf(a.Type)
		if err != nil {
			return err
		}
		slot := t.slot(w)
		if form.Count != "" {
			at := slices.IndexFunc(p.Args, func(b Arg) bool { return b.Name == form.Count })
			if at < 0 {
				at = slices.IndexFunc(args, func(b probe.Arg) bool { return b.Name == form.Count })
				if at < 0 {
					return fmt.Errorf("the length of %s is %s, and no argument is called so", a.Name, form.Count)
				}
				// A later argument: its slot follows in order.
				form.CountSlot = slot + (at - i)
			} else {
				form.CountSlot = p.Args[at].Slot
			}
		}
		form.take(t, slot)
		p.Args = append(p.Args, Arg{Name: a.Name, Slot: slot, Form: form})
	}
	if p.Spec.Ret != nil {
		form, err := formOf(p.Spec.Ret)
		if err != nil {
			return err
		}
		p.Ret = &form
	} else {
		p.Ret = &Form{Kind: FormInt, Size: 8, Signed: true}
	}
	if when != probe.WhenReturn {
		p.Entry = &bpfgen.Probe{Slots: t.words, Fetches: t.fetches}
	}
	if when != probe.WhenEntry {
		p.Exit = &bpfgen.Probe{Return: true, Alone: when == probe.WhenReturn}
		rt := &taker{limit: env.StrLimit}
		p.Ret.take(rt, wire.SlotRet)
		p.Exit.Fetches = rt.fetches
	}
	if when == probe.WhenReturn {
		p.Args = nil
	}
	return nil
}

// argument is where the calling convention puts integer argument n: in a register, or on the stack above the return address.
func argument(n int, regs []string, arch string) (bpfgen.Word, error) {
	if n < len(regs) {
		off, _ := bpfgen.RegOffset(arch, regs[n])
		return bpfgen.Word{Reg: off}, nil
	}
	sp, ok := bpfgen.RegOffset(arch, "sp")
	if !ok {
		return bpfgen.Word{}, fmt.Errorf("no stack pointer on %s", arch)
	}
	at := int32(8 * (n - len(regs)))
	if arch == "amd64" {
		at += 8 // the return address
	}
	return bpfgen.Word{Reg: sp, Steps: []bpfgen.Step{{Add: at, Width: 8}}}, nil
}

// word turns a place that the user wrote into a value to take. Registers plus constants, and memory at such, to any depth.
func word(pl *probe.Place, arch string) (bpfgen.Word, error) {
	var w bpfgen.Word
	if pl == nil {
		return w, nil
	}
	add := pl.Const
	for _, side := range []struct {
		x    *probe.Place
		sign int64
	}{{pl.Plus, 1}, {pl.Minus, -1}} {
		if side.x == nil {
			continue
		}
		if side.x.Reg != "" || side.x.Arg != "" || side.x.Deref != nil || side.x.Plus != nil || side.x.Minus != nil {
			return w, fmt.Errorf("only constants can be added to a register or an address here")
		}
		add += side.sign * side.x.Const
	}
	if add != int64(int32(add)) && (pl.Reg != "" || pl.Deref != nil) {
		return w, fmt.Errorf("an offset of %d is out of range", add)
	}
	switch {
	case pl.Reg != "":
		off, ok := bpfgen.RegOffset(arch, pl.Reg)
		if !ok {
			return w, fmt.Errorf("%s: no such register on %s", pl.Reg, arch)
		}
		w.Reg = off
	case pl.Deref != nil:
		inner, err := word(pl.Deref, arch)
		if err != nil {
			return w, err
		}
		w = inner
		width := pl.Width
		if width == 0 {
			width = 8
		}
		if n := len(w.Steps); n > 0 && w.Steps[n-1].Width == 0 {
			w.Steps[n-1].Width = uint8(width)
		} else {
			w.Steps = append(w.Steps, bpfgen.Step{Width: uint8(width)})
		}
	default:
		return bpfgen.Word{IsConst: true, Const: add}, nil
	}
	if add != 0 {
		w.Steps = append(w.Steps, bpfgen.Step{Add: int32(add)})
	}
	return w, nil
}
