package plan

import (
	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/ctype"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
	"github.com/sonde-trace/sonde/probe"
)

// inKernel gives the programs the part of the condition that they can test: what is joined by && and compares an integer argument with
// numbers, or a text argument with one. Each implies nothing that the whole does not; the whole is asked again for what passes.
// whole is set when nothing is left to ask.
func (p *Plan) inKernel() (whole bool) {
	if p.Spec == nil || p.Spec.If == nil {
		return true
	}
	if p.Entry == nil {
		return false
	}
	var walk func(probe.Expr) bool
	walk = func(x probe.Expr) bool {
		b, ok := x.(*probe.Binary)
		if !ok {
			return false
		}
		if b.Op == probe.OpAnd {
			left, right := walk(b.X), walk(b.Y)
			return left && right
		}
		t, ok := p.test(b)
		if !ok || len(p.Entry.Tests) >= maxTests {
			return false
		}
		p.Entry.Tests = append(p.Entry.Tests, t)
		// A text that is not there, or is longer than what is taken, passes.
		return t.Op != bpfgen.TestText
	}
	whole = walk(p.Spec.If)
	if len(p.Entry.Tests) == 0 || p.Exit == nil {
		return whole
	}
	// The return is recorded for calls whose entry was.
	if wire.KeptSlot+len(p.Entry.Slots) > wire.MaxSlots {
		p.Entry.Tests = nil
		return false
	}
	p.keep()
	return whole
}

// keep makes the entry keep its values for the return.
func (p *Plan) keep() {
	if !p.Exit.Keep {
		p.Entry.Keep, p.Exit.Keep, p.Exit.Slots = true, true, p.Entry.Slots
	}
}

// again makes the return read what could not be read at the entry, because its page was not there yet: the function has touched it
// since, as far as it is of interest.
func (p *Plan) again() {
	if p.Entry == nil || p.Exit == nil || len(p.Entry.Fetches) == 0 || p.Entry.Kernel || wire.KeptSlot+len(p.Entry.Slots) > wire.MaxSlots {
		return
	}
	p.keep()
	list := inSlots(p.Entry.Fetches, wire.KeptSlot-wire.FirstSlot)
	for i := range list {
		for _, n := range []*syscalls.Number{&list[i].Base, &list[i].Len.Number, &list[i].Total, &list[i].When.Value} {
			if n.From == syscalls.FromMem {
				n.N += uint32(len(p.Exit.Fetches))
			}
		}
	}
	p.Exit.Again = len(p.Exit.Fetches)
	p.Exit.Fetches = append(p.Exit.Fetches[:len(p.Exit.Fetches):len(p.Exit.Fetches)], list...)
	p.Exit.Repeats = true
}

const maxTests = 8

// testOps are the comparisons that a program makes.
var testOps = map[probe.Op]bpfgen.TestOp{probe.OpEq: bpfgen.TestEq, probe.OpNe: bpfgen.TestNe, probe.OpLt: bpfgen.TestLt, probe.OpLe: bpfgen.TestLe, probe.OpGt: bpfgen.TestGt,
	probe.OpGe: bpfgen.TestGe, probe.OpBits: bpfgen.TestBits, probe.OpIn: bpfgen.TestEq}

// test makes the test of one comparison, if a program can make it.
func (p *Plan) test(b *probe.Binary) (t bpfgen.Test, ok bool) {
	r, isRef := b.X.(*probe.Ref)
	if !isRef || len(r.Path) > 0 {
		return t, false
	}
	var arg *Arg
	for i := range p.Args {
		if p.Args[i].Name == r.Name {
			arg = &p.Args[i]
		}
	}
	if arg == nil {
		return t, false
	}
	if l, isText := b.Y.(*probe.Literal); isText && l.IsText {
		if len(l.Text) == 0 || len(l.Text) > 64 || b.Op != probe.OpEq && b.Op != probe.OpStarts || !p.isText(arg) {
			return t, false
		}
		for i, f := range p.Entry.Fetches {
			if f.Kind == syscalls.FetchString && f.Base.From == syscalls.FromArg && int(f.Base.N) == arg.Slot {
				return bpfgen.Test{Slot: i, Op: bpfgen.TestText, Text: []byte(l.Text), Prefix: b.Op == probe.OpStarts}, true
			}
		}
		return t, false
	}
	size, signed, isNumber := p.number(arg)
	op, known := testOps[b.Op]
	if !isNumber || !known {
		return t, false
	}
	t = bpfgen.Test{Slot: arg.Slot, Op: op, Width: uint8(size), Signed: signed}
	var items []*probe.Literal
	switch y := b.Y.(type) {
	case *probe.Literal:
		items = []*probe.Literal{y}
	case *probe.List:
		items = y.Items
	}
	if len(items) == 0 || len(items) > 32 || b.Op == probe.OpIn != (len(items) > 1 || isList(b.Y)) {
		return t, false
	}
	for _, x := range items {
		v := x.Num
		if x.Neg {
			if v = -v; !signed {
				return t, false // a number that is never negative: decided where all numbers are known
			}
		} else if signed && v > 1<<63-1 {
			return t, false
		}
		if x.IsText {
			return t, false
		}
		t.Values = append(t.Values, v)
	}
	return t, true
}

func isList(x probe.Expr) bool { _, ok := x.(*probe.List); return ok }

// isText reports whether an argument is a pointer to text.
func (p *Plan) isText(a *Arg) bool {
	if a.Form.Kind == FormString {
		return true
	}
	if a.Form.Kind != FormTyped || p.Types == nil || len(a.Form.Pieces) != 1 || a.Form.Memory {
		return false
	}
	t := p.Types.Get(a.Form.Type)
	return t.Kind == ctype.KindPointer && p.Types.Get(t.Elem).Kind == ctype.KindChar
}

// number reports whether an argument is an integer in one slot.
func (p *Plan) number(a *Arg) (size int, signed, ok bool) {
	switch a.Form.Kind {
	case FormInt, FormHex, FormPtr, FormBool:
		return a.Form.Size, a.Form.Signed, true
	case FormTyped:
		if p.Types == nil || len(a.Form.Pieces) != 1 || a.Form.Memory || a.Form.Missing != "" {
			return 0, false, false
		}
		t := p.Types.Get(a.Form.Type)
		if (t.Kind == ctype.KindInt || t.Kind == ctype.KindEnum) && (t.Size == 1 || t.Size == 2 || t.Size == 4 || t.Size == 8) {
			return int(t.Size), t.Signed, true
		}
	}
	return 0, false, false
}
