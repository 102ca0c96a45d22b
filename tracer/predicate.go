package tracer

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/near"
	"github.com/sonde-trace/sonde/internal/plan"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/probe"
)

// truth is what a condition comes to. What depends on a value that was not read, or only in part, is undecided: such an event is shown,
// and marked.
type truth uint8

const (
	no truth = iota
	yes
	undecided
)

// condition is the predicate of a probe, ready to be asked for each event.
type condition struct {
	test func(*event.Event) truth
	// result is set when it looks at what is known at the return only.
	result bool
	stack  bool // it looks at the stack
	// limit is the most events to show, sample shows one of that many; 0: no bound.
	limit, sample uint64
	shown, seen   uint64
}

// compile checks a probe's condition against what its events have, and makes it ready. It returns nil when there is nothing to ask.
func compile(spec *probe.Spec, p *plan.Plan, def *syscalls.Def) (*condition, error) {
	c := &compiler{plan: p, def: def, out: &condition{}}
	for _, a := range spec.Do {
		switch a.Kind {
		case probe.ActionLimit:
			c.out.limit = a.Num
		case probe.ActionSample:
			c.out.sample = a.Num
		}
	}
	if spec.If == nil {
		if c.out.limit == 0 && c.out.sample == 0 {
			return nil, nil
		}
		c.out.test = func(*event.Event) truth { return yes }
		return c.out, nil
	}
	var err error
	if c.out.test, err = c.expr(spec.If); err != nil {
		return nil, &plan.Error{Expr: spec.Source, Msg: err.Error()}
	}
	if c.out.result && !p.Both && !p.Return {
		return nil, &plan.Error{Expr: spec.Source, Msg: "the condition asks for the result, and the return is not watched"}
	}
	return c.out, nil
}

// pass decides whether an event is shown.
func (c *condition) pass(e *event.Event) bool {
	t := c.test(e)
	if t == no {
		return false
	}
	c.seen++
	if c.sample > 0 && (c.seen-1)%c.sample != 0 || c.limit > 0 && c.shown >= c.limit {
		return false
	}
	c.shown++
	e.Undecided = t == undecided
	return true
}

type compiler struct {
	plan *plan.Plan
	def  *syscalls.Def
	out  *condition
}

func (c *compiler) expr(x probe.Expr) (func(*event.Event) truth, error) {
	switch x := x.(type) {
	case *probe.Unary:
		f, err := c.expr(x.X)
		if err != nil {
			return nil, err
		}
		return func(e *event.Event) truth {
			switch f(e) {
			case yes:
				return no
			case no:
				return yes
			}
			return undecided
		}, nil
	case *probe.Binary:
		if x.Op == probe.OpAnd || x.Op == probe.OpOr {
			return c.both(x)
		}
		return c.comparison(x)
	case *probe.Ref:
		v, err := c.value(x)
		if err != nil {
			return nil, err
		}
		return func(e *event.Event) truth {
			a := v(e)
			switch {
			case a.kind == noValue:
				return undecided
			case a.kind == number && a.num != 0, a.kind == text && len(a.text) > 0, a.kind == float && a.f != 0:
				return yes
			}
			return no
		}, nil
	}
	return nil, fmt.Errorf("a condition is expected: %T is none", x)
}

func (c *compiler) both(x *probe.Binary) (func(*event.Event) truth, error) {
	f, err := c.expr(x.X)
	if err != nil {
		return nil, err
	}
	g, err := c.expr(x.Y)
	if err != nil {
		return nil, err
	}
	// The one that settles the matter wins over one that is undecided.
	settles := no
	if x.Op == probe.OpOr {
		settles = yes
	}
	return func(e *event.Event) truth {
		a := f(e)
		if a == settles {
			return a
		}
		if b := g(e); b == settles || a != undecided {
			return b
		}
		return undecided
	}, nil
}

type valueKind uint8

const (
	noValue valueKind = iota // not read
	number
	text
	float
)

// value is an operand: a number of 65 bits, text, or a float.
type value struct {
	kind valueKind
	num  uint64 // absolute value
	neg  bool
	text []byte
	cut  bool // the text is longer in the program
	f    float64
}

func integer(v int64) value {
	if v < 0 {
		return value{kind: number, num: -uint64(v), neg: true}
	}
	return value{kind: number, num: uint64(v)}
}

func compare(a, b value) int {
	switch {
	case a.kind == float || b.kind == float:
		x, y := a.float(), b.float()
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	case a.neg != b.neg:
		if a.neg {
			return -1
		}
		return 1
	case a.num == b.num:
		return 0
	case (a.num < b.num) != a.neg:
		return -1
	}
	return 1
}

func (v value) float() float64 {
	switch {
	case v.kind == float:
		return v.f
	case v.neg:
		return -float64(v.num)
	}
	return float64(v.num)
}

// bits is a number as two's complement.
func (v value) bits() uint64 {
	if v.neg {
		return -v.num
	}
	return v.num
}

// value makes the getter of an operand.
func (c *compiler) value(x probe.Expr) (func(*event.Event) value, error) {
	switch x := x.(type) {
	case *probe.Literal:
		v := value{kind: number, num: x.Num, neg: x.Neg}
		if x.IsText {
			v = value{kind: text, text: []byte(x.Text)}
		}
		return func(*event.Event) value { return v }, nil
	case *probe.Ref:
		return c.ref(x)
	}
	return nil, fmt.Errorf("a value is expected")
}

func (c *compiler) ref(x *probe.Ref) (func(*event.Event) value, error) {
	names, at := c.arguments(), -1
	for i, n := range names {
		if n == x.Name {
			at = i
		}
	}
	if at >= 0 {
		return func(e *event.Event) value {
			i := 0
			for n := at; i < len(e.Args); i = e.Args.Next(i) {
				if e.Args[i].Kind == event.KindNote {
					continue
				}
				if n == 0 {
					return member(e.Args, i, x.Path)
				}
				n--
			}
			return value{}
		}, nil
	}
	if len(x.Path) > 0 && x.Name != "ret" {
		return nil, fmt.Errorf("%s has no members", x.Name)
	}
	switch x.Name {
	case "ret":
		c.out.result = true
		return func(e *event.Event) value {
			switch {
			case e.Phase == event.PhaseEntryOnly || e.Phase == event.PhaseExitLost || e.Phase == event.PhaseUnfinished:
				return value{}
			case len(e.RetTree) > 0:
				return member(e.RetTree, 0, x.Path)
			}
			return integer(e.Ret)
		}, nil
	case "errno":
		c.out.result = true
		return func(e *event.Event) value { return value{kind: number, num: uint64(e.Errno)} }, nil
	case "duration":
		c.out.result = true
		return func(e *event.Event) value {
			if e.Phase != event.PhaseComplete && e.Phase != event.PhaseResumed {
				return value{}
			}
			return value{kind: number, num: e.Duration}
		}, nil
	case "pid":
		return func(e *event.Event) value { return value{kind: number, num: uint64(e.Task.Pid)} }, nil
	case "tid":
		return func(e *event.Event) value { return value{kind: number, num: uint64(e.Task.Tid)} }, nil
	case "comm":
		return func(e *event.Event) value {
			if e.Task.Comm == "" {
				return value{}
			}
			return value{kind: text, text: []byte(e.Task.Comm)}
		}, nil
	case "function":
		return func(e *event.Event) value { return value{kind: text, text: []byte(e.Name)} }, nil
	}
	known := append(names, "ret", "errno", "duration", "pid", "tid", "comm", "function", "caller", "stack")
	msg := fmt.Sprintf("the condition asks for %s, and there is no such value", x.Name)
	if n := near.Names(x.Name, slices.Values(known)); len(n) > 0 {
		msg += "; " + strings.Join(n, ", ") + "?"
	}
	return nil, fmt.Errorf("%s", msg)
}

// arguments are the names of the values in the order in which events have them.
func (c *compiler) arguments() (names []string) {
	if c.def != nil {
		for _, a := range c.def.Args {
			names = append(names, a.Name)
		}
		return names
	}
	for i := range c.plan.Args {
		names = append(names, c.plan.Args[i].Name)
	}
	return names
}

// member goes from node i along a path and returns the value there.
func member(t event.Tree, i int, path []probe.Step) value {
	for _, s := range path {
		found := -1
		n := int64(0)
		for k := i + 1; k < int(t[i].End); k = t.Next(k) {
			if s.Index != nil && n == *s.Index && t[k].Kind != event.KindMore || s.Index == nil && t[k].Name == s.Member {
				found = k
				break
			}
			n++
		}
		if found < 0 {
			return value{}
		}
		i = found
	}
	n := &t[i]
	switch n.Kind {
	case event.KindInt, event.KindFD, event.KindPID:
		return integer(int64(n.Num))
	case event.KindUint, event.KindHex, event.KindOct, event.KindPtr, event.KindChar, event.KindBool, event.KindFlags, event.KindSym:
		return value{kind: number, num: n.Num}
	case event.KindNull:
		return value{kind: number}
	case event.KindFloat:
		return value{kind: float, f: math.Float64frombits(n.Num)}
	case event.KindString, event.KindBytes:
		return value{kind: text, text: n.Data, cut: n.Attr&event.AttrTruncated != 0}
	case event.KindArray, event.KindStruct:
		if int(n.End) > i+1 && n.Kind == event.KindArray {
			return member(t, i+1, nil) // what a pointer to a number points to
		}
	}
	return value{}
}

func decided(b bool) truth {
	if b {
		return yes
	}
	return no
}

func (c *compiler) comparison(x *probe.Binary) (func(*event.Event) truth, error) {
	if r, ok := x.X.(*probe.Ref); ok && (r.Name == "caller" || r.Name == "stack") && !slices.Contains(c.arguments(), r.Name) {
		return c.onStack(x, r.Name == "caller")
	}
	a, err := c.value(x.X)
	if err != nil {
		return nil, err
	}
	if l, ok := x.Y.(*probe.List); ok {
		if x.Op != probe.OpIn {
			return nil, fmt.Errorf("a list stands behind in alone")
		}
		return c.among(a, l), nil
	}
	b, err := c.value(x.Y)
	if err != nil {
		return nil, err
	}
	op := x.Op
	return func(e *event.Event) truth {
		p, q := a(e), b(e)
		if p.kind == noValue || q.kind == noValue {
			return undecided
		}
		if p.kind == text && q.kind == text {
			return texts(op, p, q)
		}
		if p.kind == text || q.kind == text {
			return decided(op == probe.OpNe || op == probe.OpNotGlob) // NULL is no text
		}
		if op == probe.OpBits {
			return decided(p.bits()&q.bits() != 0)
		}
		return decided(ordered(op, compare(p, q)))
	}, nil
}

// ordered reports whether two operands are as op says, by the sign of their comparison.
func ordered(op probe.Op, n int) bool {
	switch op {
	case probe.OpEq:
		return n == 0
	case probe.OpNe:
		return n != 0
	case probe.OpLt:
		return n < 0
	case probe.OpLe:
		return n <= 0
	case probe.OpGt:
		return n > 0
	case probe.OpGe:
		return n >= 0
	}
	return false
}

// among is membership in a list, which may be long: numbers and texts are looked up.
func (c *compiler) among(a func(*event.Event) value, l *probe.List) func(*event.Event) truth {
	numbers, words := make(map[value2]bool), make(map[string]bool)
	for _, x := range l.Items {
		if x.IsText {
			words[x.Text] = true
		} else {
			numbers[value2{x.Num, x.Neg}] = true
		}
	}
	return func(e *event.Event) truth {
		v := a(e)
		switch v.kind {
		case number:
			return decided(numbers[value2{v.num, v.neg}])
		case text:
			if !v.cut {
				return decided(words[string(v.text)])
			}
			for w := range words {
				if len(w) > len(v.text) && strings.HasPrefix(w, string(v.text)) {
					return undecided
				}
			}
			return no
		}
		return undecided
	}
}

type value2 struct {
	num uint64
	neg bool
}

// texts compares texts. Of one that is cut only the beginning is known.
func texts(op probe.Op, p, q value) truth {
	unless := func(b bool, open truth) truth {
		if b {
			return yes
		}
		return open
	}
	open := no // what it is when the part that is known does not say yes
	if p.cut {
		open = undecided
	}
	switch op {
	case probe.OpEq, probe.OpNe:
		t := decided(bytes.Equal(p.text, q.text))
		if p.cut {
			t = no
			if len(q.text) > len(p.text) && bytes.HasPrefix(q.text, p.text) {
				return undecided
			}
		}
		if op == probe.OpNe {
			return decided(t == no)
		}
		return t
	case probe.OpHas:
		return unless(bytes.Contains(p.text, q.text), open)
	case probe.OpStarts:
		if len(p.text) >= len(q.text) || !bytes.HasPrefix(q.text, p.text) {
			return decided(bytes.HasPrefix(p.text, q.text))
		}
		return open
	case probe.OpEnds:
		if p.cut {
			return undecided
		}
		return decided(bytes.HasSuffix(p.text, q.text))
	case probe.OpGlob, probe.OpNotGlob:
		if p.cut {
			return undecided
		}
		return decided(glob(string(q.text), string(p.text)) == (op == probe.OpGlob))
	}
	if p.cut {
		return undecided
	}
	return decided(ordered(op, bytes.Compare(p.text, q.text)))
}

// glob matches the wildcards * and ? over a whole text; * takes slashes too. A backslash takes their meaning from them.
func glob(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
			continue
		case p < len(pattern) && pattern[p] == '?':
			p++
			i++
			continue
		case p+1 < len(pattern) && pattern[p] == '\\' && pattern[p+1] == s[i]:
			p += 2
			i++
			continue
		case p < len(pattern) && pattern[p] != '\\' && pattern[p] == s[i]:
			p++
			i++
			continue
		}
		if star < 0 {
			return false
		}
		mark++
		p, i = star+1, mark
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// onStack asks for the immediate caller, or for any function on the stack: by the name of its file, or of the function.
func (c *compiler) onStack(x *probe.Binary, caller bool) (func(*event.Event) truth, error) {
	l, ok := x.Y.(*probe.Literal)
	if !ok || !l.IsText {
		return nil, fmt.Errorf("caller and stack are compared with text")
	}
	c.out.stack = true
	op := x.Op
	match := func(f *event.Frame) bool {
		switch op {
		case probe.OpIn:
			return filepath.Base(f.Module) == l.Text || f.Module == l.Text
		case probe.OpHas:
			return f.Func == l.Text || filepath.Base(f.Module) == l.Text
		case probe.OpGlob, probe.OpNotGlob:
			return glob(l.Text, f.Func)
		}
		return f.Func == l.Text
	}
	not := op == probe.OpNotGlob || op == probe.OpNe
	return func(e *event.Event) truth {
		if e.Stack == nil {
			return undecided
		}
		frames := e.Stack.Frames
		if len(frames) > 0 {
			frames = frames[1:]
		}
		if caller {
			if len(frames) == 0 {
				return undecided
			}
			frames = frames[:1]
		}
		for i := range frames {
			if match(&frames[i]) {
				return decided(!not)
			}
		}
		if !caller && e.Stack.End != "" {
			return undecided
		}
		return decided(not)
	}, nil
}
