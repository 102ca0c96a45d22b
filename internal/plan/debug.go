package plan

import (
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"slices"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/ctype"
	"github.com/sonde-trace/sonde/internal/objfile"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/unwind"
	"github.com/sonde-trace/sonde/internal/wire"
	"github.com/sonde-trace/sonde/probe"
)

// inVector is why a value is not read.
const inVector = "in a vector register, which the kernel does not give to a probe"

// described finds out the parameters of the plan's function from debug data. It reports whether there were any; what is missing is in
// the notes.
func (p *Plan) described(o *object, env *Env, when probe.When) (bool, error) {
	if o == nil || len(p.Points) != 1 || p.Spec.Point.Match == probe.MatchNumber || p.Spec.Point.Offset != 0 {
		return false, nil
	}
	addr, ok := o.file.Addr(p.Points[0].Offset)
	if !ok {
		return false, nil
	}
	units, err := o.units()
	if err != nil {
		return false, nil
	}
	var types *ctype.Table
	var fn *ctype.Func
	err = units.At(addr, func(d *dwarf.Data) (err error) {
		types = &ctype.Table{}
		fn, err = ctype.FindFunc(d, addr, types)
		return err
	})
	if err != nil {
		return false, nil
	}
	places := ctype.Places(types, fn, env.Arch)
	if fn.Movable && !slices.ContainsFunc(o.file.Symbols(), func(s objfile.Symbol) bool { return s.Addr == addr && s.Bind != elf.STB_LOCAL }) {
		for i := range places {
			places[i].Unknown = true
		}
	}
	t := &typer{p: p, o: o, env: env, fn: fn, types: types, taker: &taker{limit: env.StrLimit}}
	if t.needsBody(places) {
		t.moveToBody()
	}
	chosen, err := t.choose()
	if err != nil {
		return false, err
	}
	for _, i := range chosen {
		if t.full() {
			p.Notes = append(p.Notes, fmt.Sprintf("the parameters from %s on are left out: one record holds no more", fn.Params[i].Name))
			break
		}
		p.Args = append(p.Args, t.param(i, &places[i]))
	}
	p.Types = types
	p.finish(t.taker, when)
	if p.Exit != nil {
		p.Ret = t.result(&p.Exit.Fetches)
	}
	for _, pr := range []*bpfgen.Probe{p.Entry, p.Exit} {
		if pr != nil && !pr.Return {
			pr.SP = t.sp
		}
	}
	return true, nil
}

// typer arranges what to take of a described function.
type typer struct {
	*taker
	p     *Plan
	o     *object
	env   *Env
	fn    *ctype.Func
	types *ctype.Table
	// frame is set when the probe stands behind the prologue: the register and offset that give the canonical frame address there.
	frame *unwind.Rule
	sp    *bpfgen.Word
}

// needsBody reports whether a parameter can only be read behind the prologue, where all of them are in memory.
func (t *typer) needsBody(places []ctype.Place) bool {
	vector := false
	for i := range places {
		if t.fn.Go() || !t.fn.Params[i].InFrame {
			return false
		}
		vector = vector || places[i].Unreadable()
	}
	return vector && t.fn.Body != 0
}

// moveToBody puts the probe behind the prologue, where the compiler has stored parameters that came in registers.
func (t *typer) moveToBody() {
	table, err := unwind.Build(t.o.file)
	if err != nil {
		return
	}
	rule, ok := table.Lookup(t.fn.Body)
	off, inFile := t.o.file.Offset(t.fn.Body)
	if !ok || rule.CFAKind != unwind.CFAReg || !inFile {
		return
	}
	if _, ok := t.register(&rule); !ok {
		return
	}
	t.frame = &rule
	t.p.Points[0].Offset = off
	t.p.Notes = append(t.p.Notes, fmt.Sprintf("%s is watched %d bytes behind its beginning, where its floating-point arguments are in memory", t.p.Points[0].Name, t.fn.Body-t.fn.Entry))
	// Returns are matched with entries by the place of the frame: as if the stack pointer were that of the beginning.
	back := int64(0)
	if t.env.Arch == "amd64" {
		back = 8
	}
	w := t.inFrame(-back)
	t.sp = &w
}

func (t *typer) register(r *unwind.Rule) (int, bool) {
	names := map[uint8]string{6: "rbp", 7: "rsp"} // DWARF numbers: psABI, figure 3.36
	if t.env.Arch == "arm64" {
		names = map[uint8]string{29: "x29", 31: "sp"}
	}
	return bpfgen.RegOffset(t.env.Arch, names[r.CFAReg])
}

// inFrame is the address at an offset from the canonical frame address.
func (t *typer) inFrame(off int64) bpfgen.Word {
	reg, _ := t.register(t.frame)
	return bpfgen.Word{Reg: reg, Steps: []bpfgen.Step{{Add: int32(int64(t.frame.CFAOff) + off)}}}
}

// choose lists the parameters to show: those that the user named, or all.
func (t *typer) choose() (list []int, err error) {
	if !t.p.Spec.Typed {
		for i := range t.fn.Params {
			list = append(list, i)
		}
		return list, nil
	}
	for _, a := range t.p.Spec.Args {
		i := slices.IndexFunc(t.fn.Params, func(x ctype.Param) bool { return x.Name == a.Name })
		if i < 0 {
			return nil, fmt.Errorf("%s has no parameter %s", t.p.Points[0].Name, a.Name)
		}
		list = append(list, i)
	}
	return list, nil
}

// param arranges one parameter.
func (t *typer) param(i int, pl *ctype.Place) Arg {
	p := &t.fn.Params[i]
	typ := t.types.Get(p.Type)
	a := Arg{Name: p.Name, Form: Form{Kind: FormTyped, Type: p.Type}}
	if a.Name == "" {
		a.Name = fmt.Sprintf("arg%d", i+1)
	}
	take := func(w bpfgen.Word, off int64) int {
		slot := t.slot(w)
		a.Form.Pieces = append(a.Form.Pieces, FormPiece{Slot: slot, Off: off})
		return slot
	}
	object := func(w bpfgen.Word) {
		a.Form.Memory = true
		t.fetches = append(t.fetches, t.types.Object(p.Type, take(w, 0), len(t.fetches))...)
	}
	aggregate := typ.Kind == ctype.KindStruct || typ.Kind == ctype.KindUnion || typ.Kind == ctype.KindArray
	switch {
	case t.frame != nil && (aggregate || typ.Size > 8):
		object(t.inFrame(p.FrameOffset))
	case t.frame != nil:
		w := t.inFrame(p.FrameOffset)
		w.Steps[0].Width = uint8(width(typ.Size))
		slot := take(w, 0)
		t.fetches = append(t.fetches, t.types.Fetches(p.Type, slot, len(t.fetches))...)
	case pl.Unknown:
		a.Form.Missing = "in a place that the compiler chose"
	case pl.Unreadable():
		a.Form.Missing = inVector
	case pl.Pointer:
		w, _ := t.piece(&pl.Pieces[0])
		object(w)
	case aggregate && len(pl.Pieces) > 0 && pl.Pieces[0].InStack:
		sp, _ := bpfgen.RegOffset(t.env.Arch, "sp")
		object(bpfgen.Word{Reg: sp, Steps: []bpfgen.Step{{Add: int32(pl.Pieces[0].Stack)}}})
	default:
		for k := range pl.Pieces {
			w, ok := t.piece(&pl.Pieces[k])
			if !ok || t.full() {
				a.Form.Missing = "in a place that is not read"
				break
			}
			slot := take(w, pl.Pieces[k].Off)
			if k == 0 {
				t.fetches = append(t.fetches, t.types.Fetches(p.Type, slot, len(t.fetches))...)
			}
		}
		t.fetches = append(t.fetches, t.types.InSlots(p.Type, func(off int64) (int, bool) {
			k := slices.IndexFunc(a.Form.Pieces, func(x FormPiece) bool { return x.Off == off })
			if k < 0 {
				return 0, false
			}
			return a.Form.Pieces[k].Slot, true
		})...)
	}
	a.Slot = wire.FirstSlot
	if len(a.Form.Pieces) > 0 {
		a.Slot = a.Form.Pieces[0].Slot
	}
	return a
}

func width(size int64) int64 {
	switch size {
	case 1, 2, 4, 8:
		return size
	}
	return 8
}

// goArgs are the registers of integer arguments in Go's internal ABI (src/cmd/compile/abi-internal.md).
var goArgs = map[string][]string{
	"amd64": {"rax", "rbx", "rcx", "rdi", "rsi", "r8", "r9", "r10", "r11"},
	"arm64": {"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15"},
}

// piece is the word where a piece of an argument is at the function's beginning.
func (t *typer) piece(x *ctype.Piece) (bpfgen.Word, bool) {
	if x.InStack {
		sp, ok := bpfgen.RegOffset(t.env.Arch, "sp")
		return bpfgen.Word{Reg: sp, Steps: []bpfgen.Step{{Add: int32(x.Stack), Width: 8}}}, ok
	}
	regs := integerArgs[t.env.Arch]
	if t.fn.Go() {
		regs = goArgs[t.env.Arch]
	}
	if x.Reg < 0 || x.Reg >= len(regs) {
		return bpfgen.Word{}, false
	}
	off, ok := bpfgen.RegOffset(t.env.Arch, regs[x.Reg])
	return bpfgen.Word{Reg: off}, ok
}

// result arranges the return value.
func (t *typer) result(fetches *[]syscalls.Fetch) *Form {
	typ := t.types.Get(t.fn.Ret)
	f := &Form{Kind: FormTyped, Type: t.fn.Ret, Pieces: []FormPiece{{Slot: wire.SlotRet}}}
	switch {
	case t.fn.Ret == 0:
		return &Form{Kind: FormVoid}
	case typ.Scalar():
		*fetches = append(*fetches, t.types.Fetches(t.fn.Ret, wire.SlotRet, len(*fetches))...)
	case typ.Kind == ctype.KindFloat:
		f.Missing = inVector
	case typ.Kind == ctype.KindStruct || typ.Kind == ctype.KindUnion:
		one := &ctype.Func{Params: []ctype.Param{{Type: t.fn.Ret}}}
		pl := ctype.Places(t.types, one, t.env.Arch)[0]
		switch {
		case (typ.Size > 16 || typ.ByRef) && t.env.Arch == "amd64":
			// The result's address comes back in rax.
			f.Memory = true
			*fetches = append(*fetches, t.types.Object(t.fn.Ret, wire.SlotRet, len(*fetches))...)
		case typ.Size > 16 || pl.Unreadable():
			f.Missing = "returned in memory or registers that are not read"
		case typ.Size > 8:
			f.Pieces = append(f.Pieces, FormPiece{Slot: wire.SlotRet2, Off: 8})
		}
	default:
		f.Missing = "returned in a way that is not read"
	}
	return f
}
