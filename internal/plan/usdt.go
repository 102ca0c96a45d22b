package plan

import (
	"debug/elf"
	"encoding/hex"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/near"
	"github.com/sonde-trace/sonde/internal/objfile"
	"github.com/sonde-trace/sonde/probe"
)

// StaticProbe is one place of a static probe (USDT), as its note says: systemtap's wiki, "UserSpaceProbeImplementation".
type StaticProbe struct {
	Provider, Name string
	Addr           uint64
	Semaphore      uint64 // address; 0: none
	Args           string // "8@%rdi -4@-12(%rbp)"
}

// StaticProbes lists the static probes of a file.
func StaticProbes(f *objfile.File) ([]StaticProbe, error) {
	b, err := f.Section(".note.stapsdt")
	if err != nil || b == nil {
		return nil, err
	}
	const typ = 3 // NT_STAPSDT
	var base uint64
	if s := f.ELF.Section(".stapsdt.base"); s != nil {
		base = s.Addr
	}
	order, word := f.ELF.ByteOrder, 8
	if f.ELF.Class == elf.ELFCLASS32 {
		word = 4
	}
	number := func(b []byte) uint64 {
		if word == 4 {
			return uint64(order.Uint32(b))
		}
		return order.Uint64(b)
	}
	var list []StaticProbe
	for len(b) >= 12 {
		nameSize, descSize, kind := uint64(order.Uint32(b)), uint64(order.Uint32(b[4:])), order.Uint32(b[8:])
		at := 12 + (nameSize+3)&^3
		end := at + descSize
		if at > uint64(len(b)) || end > uint64(len(b)) || end < at {
			return list, fmt.Errorf("%s: a note of a static probe ends behind its section", f.Path)
		}
		desc := b[at:end]
		b = b[min((end+3)&^3, uint64(len(b))):]
		if kind != typ || len(desc) < 3*word {
			continue
		}
		p := StaticProbe{Addr: number(desc), Semaphore: number(desc[2*word:])}
		if noteBase := number(desc[word:]); base != 0 && noteBase != base { // prelinked since
			p.Addr += base - noteBase
			if p.Semaphore != 0 {
				p.Semaphore += base - noteBase
			}
		}
		text := strings.SplitN(string(desc[3*word:]), "\x00", 4)
		if len(text) < 3 {
			continue
		}
		p.Provider, p.Name, p.Args = text[0], text[1], text[2]
		list = append(list, p)
	}
	return list, nil
}

// usdt resolves a static probe; all its places are watched.
func (p *Plan) usdt(env *Env) error {
	o, err := findObject(p.Spec.Object, env)
	if err != nil {
		return err
	}
	defer o.file.Close()
	p.Object, p.Path, p.BuildID = o.name, o.path, hex.EncodeToString(o.file.BuildID())
	all, err := StaticProbes(o.file)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("%s has no static probes", o.name)
	}
	if p.Spec.When == probe.WhenReturn || p.Spec.When == probe.WhenBoth {
		return fmt.Errorf("a static probe has no return")
	}
	pt := &p.Spec.Point
	match := func(name string) bool { return name == pt.Text }
	if pt.Match == probe.MatchGlob {
		match = func(name string) bool { ok, _ := path.Match(pt.Text, name); return ok }
	}
	args := ""
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
		if !match(s.Name) || p.Spec.Provider != "" && p.Spec.Provider != s.Provider {
			continue
		}
		off, ok := o.file.Offset(s.Addr)
		if !ok {
			return fmt.Errorf("static probe %s is at %#x, which is not in %s", s.Name, s.Addr, o.name)
		}
		point := Point{Name: s.Name, Path: o.path, Offset: off}
		if s.Semaphore != 0 {
			if point.Semaphore, ok = o.file.Offset(s.Semaphore); !ok {
				return fmt.Errorf("the counter of static probe %s is at %#x, which is not in %s", s.Name, s.Semaphore, o.name)
			}
		}
		if len(p.Points) > 0 && s.Args != args {
			// The compiler keeps the arguments of each place elsewhere: those of the first would be wrong there.
			p.Notes = append(p.Notes, fmt.Sprintf("a place of %s at %#x is left out: its arguments are kept elsewhere (%s); watch it by %s:%#x", s.Name, off, s.Args, p.Spec.Object, off))
			continue
		}
		args = s.Args
		p.Points = append(p.Points, point)
	}
	if len(p.Points) == 0 {
		return &Error{Expr: p.Spec.Source, Msg: fmt.Sprintf("%s has no static probe %s", o.name, pt.Text), Near: near.Names(pt.Text, slices.Values(names))}
	}
	t := &taker{limit: env.StrLimit}
	for i, a := range strings.Fields(args) {
		w, form, err := staticArg(a, env.Arch)
		if err != nil {
			p.Notes = append(p.Notes, fmt.Sprintf("argument %d is not read: %v", i+1, err))
			continue
		}
		name := fmt.Sprintf("arg%d", i+1)
		if p.Spec.Typed {
			if i >= len(p.Spec.Args) {
				break
			}
			if a := &p.Spec.Args[i]; a.Type != nil {
				if form, err = formOf(a.Type); err != nil {
					return err
				}
			}
			name = p.Spec.Args[i].Name
		}
		if t.full() {
			break
		}
		slot := t.slot(w)
		form.take(t, slot)
		p.Args = append(p.Args, Arg{Name: name, Slot: slot, Form: form})
	}
	p.Entry = &bpfgen.Probe{Slots: t.words, Fetches: t.fetches}
	return nil
}

// Operands of the notes in the assembler's syntax: -4@$5, 8@%rdi, 8@-8(%rbp), 8@(%rax); on arm64 8@x0, -4@[sp, 12], 8@5.
var (
	x86Const = pattern(`^\$(-?\d+)$`)
	x86Reg   = pattern(`^%(\w+)$`)
	x86Mem   = pattern(`^(-?\d*)\(%(\w+)\)$`)
	armConst = pattern(`^(-?\d+)$`)
	armReg   = pattern(`^([xw]\d+|sp)$`)
	armMem   = pattern(`^\[([x]\d+|sp)(?:,\s*(-?\d+))?\]$`)
)

// pattern compiles an expression when it is first used, and not at each start of the program.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

func staticArg(text, arch string) (w bpfgen.Word, f Form, err error) {
	size, place, ok := strings.Cut(text, "@")
	n, err := strconv.Atoi(size)
	if !ok || err != nil {
		return w, f, fmt.Errorf("%q is not understood", text)
	}
	f = Form{Kind: FormInt, Size: n}
	if n < 0 {
		f = Form{Kind: FormInt, Size: -n, Signed: true}
	}
	if f.Size != 1 && f.Size != 2 && f.Size != 4 && f.Size != 8 {
		return w, f, fmt.Errorf("%q has %d bytes", text, f.Size)
	}
	reg := func(name string) (int, error) {
		off, ok := bpfgen.RegOffset(arch, fullRegister(name, arch))
		if !ok {
			return 0, fmt.Errorf("register %s is not given to probes", name)
		}
		return off, nil
	}
	constant, register, memory := x86Const, x86Reg, x86Mem
	if arch == "arm64" {
		constant, register, memory = armConst, armReg, armMem
	}
	if m := constant().FindStringSubmatch(place); m != nil {
		v, err := strconv.ParseInt(m[1], 10, 64)
		return bpfgen.Word{IsConst: true, Const: v}, f, err
	}
	if m := register().FindStringSubmatch(place); m != nil {
		off, err := reg(m[1])
		return bpfgen.Word{Reg: off}, f, err
	}
	if m := memory().FindStringSubmatch(place); m != nil {
		base, disp := m[2], m[1]
		if arch == "arm64" {
			base, disp = m[1], m[2]
		}
		off, err := reg(base)
		if err != nil {
			return w, f, err
		}
		add := int64(0)
		if disp != "" {
			if add, err = strconv.ParseInt(disp, 10, 32); err != nil {
				return w, f, err
			}
		}
		return bpfgen.Word{Reg: off, Steps: []bpfgen.Step{{Add: int32(add), Width: uint8(f.Size), Signed: f.Signed}}}, f, nil
	}
	return w, f, fmt.Errorf("%q is not understood", text)
}

// fullRegister is the 64-bit register that a part of one belongs to: eax, ax and al are in rax, w0 is in x0.
func fullRegister(name, arch string) string {
	if arch == "arm64" {
		if n, ok := strings.CutPrefix(name, "w"); ok {
			return "x" + n
		}
		return name
	}
	switch n := len(name); {
	case strings.HasPrefix(name, "r") && name[n-1] >= '0' && name[n-1] <= '9', strings.HasPrefix(name, "r"):
		return strings.TrimRight(name, "dwb")
	case strings.HasPrefix(name, "e"):
		return "r" + name[1:]
	case n == 2 && name[1] == 'l':
		return "r" + name[:1] + "x"
	case n == 3 && name[2] == 'l': // sil, dil, bpl, spl
		return "r" + name[:2]
	case n == 2:
		return "r" + name
	}
	return name
}
