package sink

import (
	"bytes"
	"math"
	"strconv"

	"github.com/sonde-trace/sonde/event"
)

// callee appends what was called: the name of a system call, or object:function of a probe. Names of functions come from
// the traced program.
func (t *Text) callee(e *event.Event) {
	if e.Type != event.TypeProbe {
		t.str(e.Name)
		return
	}
	if e.Object != "" {
		t.b = appendEscaped(t.b, []byte(e.Object), HexNever, 0, 0)
		t.b = append(t.b, ':')
	}
	t.b = appendEscaped(t.b, []byte(e.Name), HexNever, 0, 0)
}

// context appends the lines below an event: registers and the stack.
func (t *Text) context(e *event.Event) {
	if e.Undecided {
		t.str("    (the condition depends on a value that was not read)\n")
	}
	for i, r := range e.Regs {
		if i%4 == 0 {
			t.str("   ")
		}
		t.b = append(t.b, ' ')
		t.str(r.Name)
		t.str("=0x")
		t.b = strconv.AppendUint(t.b, r.Value, 16)
		if i%4 == 3 || i == len(e.Regs)-1 {
			t.b = append(t.b, '\n')
		}
	}
	if e.Stack == nil {
		return
	}
	// The same stacks come again and again.
	if text, ok := t.stacks[e.Stack]; ok {
		t.b = append(t.b, text...)
		return
	}
	start := len(t.b)
	for i := range e.Stack.Frames {
		t.frame(&e.Stack.Frames[i])
	}
	if e.Stack.End != "" {
		t.str(" > (")
		t.b = appendEscaped(t.b, []byte(e.Stack.End), HexNever, 0, 0)
		t.str(")\n")
	}
	text := t.b[start:]
	if t.stackBytes += len(text) + 64; t.stacks == nil || t.stackBytes > maxStackText {
		t.stacks, t.stackBytes = make(map[*event.Stack][]byte), len(text)
	}
	t.stacks[e.Stack] = bytes.Clone(text)
}

// maxStackText bounds the text of stacks that is kept.
const maxStackText = 4 << 20

// frame appends one frame in the shape of strace -k: file(function+0x12) [0x4567], where the last is the offset in the file.
func (t *Text) frame(f *event.Frame) {
	t.str(" > ")
	if f.Module != "" {
		t.b = appendEscaped(t.b, []byte(f.Module), HexNever, '(', ')')
	} else {
		t.str("[unmapped]")
	}
	t.b = append(t.b, '(')
	if f.Func != "" {
		t.b = appendEscaped(t.b, []byte(f.Func), HexNever, 0, 0)
		if !f.Inlined {
			t.str("+0x")
			t.b = strconv.AppendUint(t.b, f.FuncOff, 16)
		}
	}
	t.str(") [0x")
	if f.Module != "" {
		t.b = strconv.AppendUint(t.b, f.Offset, 16)
	} else {
		t.b = strconv.AppendUint(t.b, f.Addr, 16)
	}
	t.b = append(t.b, ']')
	if f.File != "" {
		t.b = append(t.b, ' ')
		t.b = appendEscaped(t.b, []byte(f.File), HexNever, 0, 0)
		t.b = append(t.b, ':')
		t.b = strconv.AppendInt(t.b, int64(f.Line), 10)
	}
	if f.Inlined {
		t.str(" (inlined)")
	}
	if f.Guessed {
		t.str(" (guessed)")
	}
	t.b = append(t.b, '\n')
}

// appendFloat appends the shortest text that reads back as the same number of its width.
func appendFloat(b []byte, n *event.Node) []byte {
	v, bits := math.Float64frombits(n.Num), 64
	if n.Attr&event.AttrSingle != 0 {
		bits = 32
	}
	return strconv.AppendFloat(b, v, 'g', -1, bits)
}

// char appends a character constant: 'a', '\\n', '\\377'; what does not fit a byte as a number.
func (t *Text) char(v uint64) {
	if v > 0xff {
		t.b = strconv.AppendUint(t.b, v, 10)
		return
	}
	t.b = append(t.b, '\'')
	t.b = appendEscaped(t.b, []byte{byte(v)}, HexNever, '\'', '\'')
	t.b = append(t.b, '\'')
}

func (j *JSON) probe(e *event.Event) {
	j.head("probe", e)
	j.str(`,"object":`)
	j.data([]byte(e.Object), false, 0)
	j.str(`,"name":`)
	j.data([]byte(e.Name), false, 0)
	j.str(`,"probe":`)
	j.uint(uint64(e.Probe))
	if e.IP != 0 {
		j.str(`,"ip":`)
		j.hex(e.IP)
	}
	j.args(e)
	j.outcome(e)
}

// float writes a number; JSON has no words for infinities and NaN, which are strings.
func (j *JSON) float(n *event.Node) {
	v := math.Float64frombits(n.Num)
	if math.IsInf(v, 0) || math.IsNaN(v) {
		j.b = append(j.b, '"')
		j.b = appendFloat(j.b, n)
		j.b = append(j.b, '"')
		return
	}
	j.b = appendFloat(j.b, n)
}

// context writes registers and the stack.
func (j *JSON) context(e *event.Event) {
	if e.Undecided {
		j.str(`,"undecided":true`)
	}
	if len(e.Regs) > 0 {
		j.str(`,"regs":{`)
		for i, r := range e.Regs {
			if i > 0 {
				j.b = append(j.b, ',')
			}
			j.text([]byte(r.Name))
			j.b = append(j.b, ':')
			j.hex(r.Value)
		}
		j.b = append(j.b, '}')
	}
	if e.Stack == nil {
		return
	}
	j.str(`,"stack":{"id":`)
	j.hex(e.Stack.ID)
	j.str(`,"complete":`)
	j.b = strconv.AppendBool(j.b, e.Stack.End == "")
	if e.Stack.End != "" {
		j.str(`,"end":`)
		j.data([]byte(e.Stack.End), false, 0)
	}
	j.str(`,"frames":[`)
	for i := range e.Stack.Frames {
		if i > 0 {
			j.b = append(j.b, ',')
		}
		j.frame(&e.Stack.Frames[i])
	}
	j.str("]}")
}

func (j *JSON) frame(f *event.Frame) {
	j.str(`{"addr":`)
	j.hex(f.Addr)
	if f.Module != "" {
		j.str(`,"module":`)
		j.data([]byte(f.Module), false, 0)
		j.str(`,"offset":`)
		j.hex(f.Offset)
	}
	if f.Func != "" {
		j.str(`,"function":`)
		j.data([]byte(f.Func), false, 0)
		j.str(`,"function_offset":`)
		j.hex(f.FuncOff)
	}
	if f.File != "" {
		j.str(`,"file":`)
		j.data([]byte(f.File), false, 0)
		j.str(`,"line":`)
		j.int(int64(f.Line))
	}
	if f.Inlined {
		j.str(`,"inlined":true`)
	}
	if f.Guessed {
		j.str(`,"guessed":true`)
	}
	j.b = append(j.b, '}')
}
