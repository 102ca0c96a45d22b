package plan

import (
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/symbol"
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
	p.Object, p.Path, p.BuildID = o.name, o.path, hex.EncodeToString(o.file.BuildID())
	if want := machines[env.Arch]; o.file.ELF.Machine != want {
		return fmt.Errorf("%s is for %s, and programs here are for %s", o.path, o.file.ELF.Machine, want)
	}
	if err := p.points(o); err != nil {
		return err
	}
	when := p.Spec.When
	inside := p.Spec.Point.Match == probe.MatchNumber || p.Spec.Point.Offset != 0
	switch {
	case when == probe.WhenDefault && inside:
		when = probe.WhenEntry
	case when == probe.WhenDefault:
		when = probe.WhenBoth
	case when != probe.WhenEntry && inside:
		return fmt.Errorf("only the return of a whole function can be watched: in its middle the return address is not where the kernel would look for it, and the program would crash; name the function")
	}
	if when != probe.WhenEntry {
		var err error
		if when, err = p.returns(o, env, when); err != nil {
			return err
		}
	}
	p.Both, p.Return = when == probe.WhenBoth, when == probe.WhenReturn
	if n := len(p.Points); n > 1 && n <= maxApart && !p.Spec.Typed {
		return p.apart(o, env, when)
	}
	return p.values(o, env, when)
}

// maxApart is how many functions of one expression have their arguments found out each for itself. Beyond it they are watched by one
// program that takes integers.
const maxApart = 256

// apart makes a plan of its own for each function that an expression names, since each has other arguments.
func (p *Plan) apart(o *object, env *Env, when probe.When) error {
	unknown := 0
	for i := range p.Points {
		q := *p
		spec := *p.Spec
		spec.Point = probe.Point{Text: p.Points[i].Name}
		q.Points, q.Notes, q.Spec = []Point{p.Points[i]}, nil, &spec
		if err := q.values(o, env, when); err != nil {
			return err
		}
		for _, n := range q.Notes {
			if n == unknownArgs {
				unknown++
			} else {
				p.Notes = append(p.Notes, n)
			}
		}
		q.Notes, q.Spec = nil, p.Spec
		p.Apart = append(p.Apart, &q)
	}
	if unknown > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("the types of the arguments of %d of %d functions are not known: six integers are shown", unknown, len(p.Points)))
	}
	return nil
}

// unknownArgs is said when neither the user nor debug data nor a table tells the arguments.
const unknownArgs = "the types of its arguments are not known: six integers are shown"

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// points finds the places in the file.
func (p *Plan) points(o *object) error {
	pt := &p.Spec.Point
	add := func(name string, addr uint64) error {
		off, ok := o.file.Offset(addr)
		if !ok || !o.file.InCode(addr) {
			return fmt.Errorf("%s is at %#x, where %s has no code", name, addr, o.name)
		}
		p.Points = append(p.Points, Point{Name: name, Path: o.path, Offset: off, Start: off})
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
	pattern := symbol.Exact(pt.Text)
	switch pt.Match {
	case probe.MatchGlob:
		pattern = symbol.Glob(pt.Text)
	case probe.MatchRegexp:
		var err error
		if pattern, err = symbol.Regexp(pt.Text); err != nil {
			return err
		}
	}
	found, err := symbol.Find(o.file, pattern)
	var none *symbol.NotFoundError
	if errors.As(err, &none) && len(none.Inlined) > 0 && pt.Offset == 0 {
		return p.inlined(o, pattern)
	}
	if err != nil {
		return err
	}
	p.Notes = append(p.Notes, found.Notes...)
	skipped := 0
	for i := range found.Funcs {
		fn := &found.Funcs[i]
		name := fn.Demangled
		if fn.IFunc != "" {
			name = fn.IFunc
		}
		if pt.Match != probe.MatchExact && !fn.Sized {
			skipped++ // an end of a table, or what the C library puts around programs
			continue
		}
		if pt.Offset != 0 {
			name = fmt.Sprintf("%s+%#x", name, pt.Offset)
			if fn.Size > 0 && uint64(pt.Offset) >= fn.Size {
				return fmt.Errorf("%s is %d bytes long: %+#x is behind its end", fn.Demangled, fn.Size, pt.Offset)
			}
		}
		if err := add(name, uint64(int64(fn.Addr)+pt.Offset)); err != nil {
			return err
		}
		if p.sizes == nil {
			p.sizes = make(map[uint64]uint64)
		}
		p.sizes[p.Points[len(p.Points)-1].Start] = fn.Size
	}
	if skipped > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d names without a size are left out: they mark places and may be no functions", skipped))
	}
	if len(p.Points) == 0 {
		return fmt.Errorf("%s has only names without a size that match; one can be named whole", o.name)
	}
	return nil
}

// inlined takes the places where the compiler put copies of a function that has no code of its own.
func (p *Plan) inlined(o *object, pattern symbol.Pattern) error {
	if w := p.Spec.When; w == probe.WhenReturn || w == probe.WhenBoth || p.Spec.Ret != nil {
		return fmt.Errorf("the compiler put copies of it into other functions: they are entered and do not return")
	}
	for i := range p.Spec.Args {
		if p.Spec.Args[i].Place == nil {
			return fmt.Errorf("the compiler put copies of it into other functions: where they have %s is not found out; write a place, as @rdi", p.Spec.Args[i].Name)
		}
	}
	sites, err := symbol.Inlined(o.file, pattern)
	if err != nil {
		return err
	}
	for _, s := range sites {
		if o.file.InCode(s.Addr) {
			p.Points = append(p.Points, Point{Name: fmt.Sprintf("%s inlined at %s:%d", s.Name, filepath.Base(s.File), s.Line), Path: o.path, Offset: s.Off})
		}
	}
	if len(p.Points) == 0 {
		return fmt.Errorf("the compiler put copies of it into other functions, and none of them has code")
	}
	spec := *p.Spec
	spec.When, spec.Typed = probe.WhenEntry, true
	p.Spec = &spec
	p.Notes = append(p.Notes, fmt.Sprintf("it has no code of its own: its %d copies in other functions are watched where they begin, without arguments", len(p.Points)))
	return nil
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
	args, ret := p.Spec.Args, p.Spec.Ret
	known := p.Spec.Typed
	if !known {
		// What the manual says of a function of the C library tells more than the types of its parameters.
		proto, done := p.known(o, when)
		if done {
			return nil
		}
		if proto != nil {
			args, known = proto.Args, true
			if ret == nil {
				ret = proto.Ret
			}
		}
	}
	untyped := !slices.ContainsFunc(args, func(a probe.Arg) bool { return a.Type != nil || a.Place != nil || len(a.Path) > 0 })
	if untyped && (!known || p.Spec.Typed && len(args) > 0) && p.Spec.Ret == nil {
		if done, err := p.described(o, env, when); done || err != nil {
			return err
		}
	}
	if !known {
		p.Notes = append(p.Notes, unknownArgs)
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
	if ret != nil {
		form, err := formOf(ret)
		if err != nil {
			return err
		}
		p.Ret = &form
	} else {
		p.Ret = &Form{Kind: FormInt, Size: 8, Signed: true}
	}
	p.finish(t, when)
	if p.Exit != nil {
		rt := &taker{limit: env.StrLimit}
		p.Ret.take(rt, wire.SlotRet)
		p.Exit.Fetches = rt.fetches
	}
	return nil
}

// finish makes the programs for what was arranged.
func (p *Plan) finish(t *taker, when probe.When) {
	if when != probe.WhenReturn {
		p.Entry = &bpfgen.Probe{Slots: t.words, Fetches: t.fetches}
	} else {
		p.Args = nil
	}
	if when != probe.WhenEntry {
		p.Exit = &bpfgen.Probe{Return: true, Alone: when == probe.WhenReturn, AtRet: p.AtRet}
	}
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
