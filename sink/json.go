package sink

import (
	"encoding/base64"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
)

// JSONSchema is the version of the records; docs/reference/trace.schema.json describes them.
const JSONSchema = 1

// JSONOptions says what stands in the first record.
type JSONOptions struct {
	Sonde   string // version of the program
	Command []string
	// Monotonic and Wall are one moment on the clock of the records and on the wall clock, in ns.
	Monotonic uint64
	Wall      int64
	// ParamName names an argument that the decoder has not named.
	ParamName func(abi string, nr uint32, i int) string
	Signals   map[int]bool // those to show; nil is all
}

// JSON writes one object a line. Numbers are exact: one whose magnitude is above 2^53 is a string of its decimal digits.
// Text of the traced program is a string when it is valid UTF-8, else {"base64": …}. It is used by one goroutine and
// buffers until Flush.
type JSON struct {
	w     io.Writer
	o     JSONOptions
	b     []byte
	err   error
	tasks map[uint32]*event.Ledger
}

// NewJSON returns a sink that writes to w, beginning with the header record.
func NewJSON(w io.Writer, o JSONOptions) *JSON {
	j := &JSON{w: w, o: o}
	j.str(`{"type":"header","schema":`)
	j.int(JSONSchema)
	j.str(`,"sonde":`)
	j.text([]byte(o.Sonde))
	j.str(`,"clock":{"monotonic":`)
	j.uint(o.Monotonic)
	j.str(`,"wall":`)
	j.int(o.Wall)
	j.str(`,"date":`)
	j.text([]byte(time.Unix(0, o.Wall).UTC().Format(time.RFC3339Nano)))
	j.str(`}`)
	if len(o.Command) > 0 {
		j.str(`,"command":[`)
		for i, a := range o.Command {
			if i > 0 {
				j.b = append(j.b, ',')
			}
			j.data([]byte(a), false, 0)
		}
		j.b = append(j.b, ']')
	}
	j.str("}\n")
	return j
}

// Tasks gives the accounts by thread, for the summary record.
func (j *JSON) Tasks(tasks map[uint32]*event.Ledger) { j.tasks = tasks }

// Event writes the record of e. Calls in progress have none: they are written when they end.
func (j *JSON) Event(e *event.Event) error {
	if j.err != nil {
		return j.err
	}
	switch e.Type {
	case event.TypeSyscall:
		if e.Phase != event.PhaseUnfinished {
			j.syscall(e)
		}
	case event.TypeSignal:
		if j.o.Signals == nil || j.o.Signals[int(e.Signal)] {
			j.head("signal", e)
			j.str(`,"signal":`)
			j.signalName(int(e.Signal))
			j.str(`,"info":`)
			j.first(e.Args)
			j.str("}\n")
		}
	case event.TypeFork:
		j.head("fork", e)
		j.str(`,"child":{"pid":`)
		j.uint(uint64(e.Child.Pid))
		j.str(`,"tid":`)
		j.uint(uint64(e.Child.Tid))
		j.str(`},"flags":`)
		j.uint(e.Flags)
		j.str(`,"followed":`)
		j.b = strconv.AppendBool(j.b, e.Followed)
		j.str("}\n")
	case event.TypeProbe:
		if e.Phase != event.PhaseUnfinished {
			j.probe(e)
		}
	case event.TypeExec:
		j.head("exec", e)
		j.str(`,"old_tid":`)
		j.uint(uint64(e.OldTid))
		j.str("}\n")
	case event.TypeRename:
		j.head("rename", e)
		j.str("}\n")
	case event.TypeExit:
		j.head("exit", e)
		if sig := e.Status & 0x7f; sig != 0 {
			j.str(`,"signal":`)
			j.signalName(int(sig))
			j.str(`,"core":`)
			j.b = strconv.AppendBool(j.b, e.Status&0x80 != 0)
		} else {
			j.str(`,"code":`)
			j.uint(uint64(e.Status >> 8 & 0xff))
		}
		j.str(`,"process":`)
		j.b = strconv.AppendBool(j.b, e.GroupDead)
		j.str("}\n")
	case event.TypeLost:
		j.head("lost", e)
		j.str(`,"cause":`)
		j.text([]byte(e.Lost.Cause))
		j.str(`,"count":`)
		j.uint(e.Lost.Count)
		j.str("}\n")
	}
	if len(j.b) >= chunk {
		return j.Flush()
	}
	return j.err
}

// Error writes an error as a record of the stream.
func (j *JSON) Error(err error) {
	j.str(`{"type":"error","message":`)
	j.text([]byte(err.Error()))
	j.str("}\n")
}

// Flush writes what has gathered.
func (j *JSON) Flush() error {
	if j.err == nil && len(j.b) > 0 {
		_, j.err = j.w.Write(j.b)
		j.b = j.b[:0]
	}
	return j.err
}

// Close writes the summary record, the last of the stream.
func (j *JSON) Close(l *event.Ledger) error {
	if l == nil {
		return j.Flush()
	}
	j.str(`{"type":"summary"`)
	j.ledger(l)
	if len(j.tasks) > 0 {
		j.str(`,"tasks":[`)
		first := true
		for tid, t := range j.tasks {
			if !first {
				j.b = append(j.b, ',')
			}
			first = false
			j.str(`{"tid":`)
			j.uint(uint64(tid))
			j.ledger(t)
			j.b = append(j.b, '}')
		}
		j.b = append(j.b, ']')
	}
	j.str("}\n")
	return j.Flush()
}

func (j *JSON) ledger(l *event.Ledger) {
	j.str(`,"made":`)
	j.uint(l.Made)
	j.str(`,"shown":`)
	j.uint(l.Shown)
	j.str(`,"filtered":`)
	j.uint(l.Filtered)
	j.str(`,"lost":`)
	j.uint(l.LostTotal())
	j.str(`,"causes":{`)
	for i, c := range l.Lost {
		if i > 0 {
			j.b = append(j.b, ',')
		}
		j.text([]byte(c.Cause))
		j.b = append(j.b, ':')
		j.uint(c.Count)
	}
	j.b = append(j.b, '}')
}

func (j *JSON) str(s string) { j.b = append(j.b, s...) }

// exact is the largest magnitude that every reader of JSON keeps.
const exact = 1 << 53

func (j *JSON) uint(v uint64) {
	if v > exact {
		j.b = append(j.b, '"')
		j.b = strconv.AppendUint(j.b, v, 10)
		j.b = append(j.b, '"')
		return
	}
	j.b = strconv.AppendUint(j.b, v, 10)
}

func (j *JSON) int(v int64) {
	if v > exact || v < -exact {
		j.b = append(j.b, '"')
		j.b = strconv.AppendInt(j.b, v, 10)
		j.b = append(j.b, '"')
		return
	}
	j.b = strconv.AppendInt(j.b, v, 10)
}

func (j *JSON) head(typ string, e *event.Event) {
	j.str(`{"type":"`)
	j.str(typ)
	j.str(`","time":`)
	j.uint(e.Time)
	j.str(`,"cpu":`)
	j.uint(uint64(e.CPU))
	j.str(`,"pid":`)
	j.uint(uint64(e.Task.Pid))
	j.str(`,"tid":`)
	j.uint(uint64(e.Task.Tid))
	if e.Task.Comm != "" {
		j.str(`,"comm":`)
		j.data([]byte(e.Task.Comm), false, 0)
	}
	if e.Late {
		j.str(`,"late":true`)
	}
}

func (j *JSON) signalName(n int) {
	if name := constant.SignalName(n); name != "" {
		j.str(`{"name":"`)
		j.str(name)
		j.str(`","value":`)
		j.int(int64(n))
		j.b = append(j.b, '}')
		return
	}
	j.int(int64(n))
}

// phases are the words for calls that are not complete.
var phases = map[event.Phase]string{
	event.PhaseEntryOnly: "no return", event.PhaseExitOnly: "no entry",
	event.PhaseEntryLost: "entry lost", event.PhaseExitLost: "return lost", event.PhaseHit: "hit", event.PhaseReturn: "return",
}

func (j *JSON) syscall(e *event.Event) {
	j.head("syscall", e)
	j.str(`,"name":"`)
	j.str(e.Name)
	j.str(`","nr":`)
	j.uint(uint64(e.Nr))
	j.str(`,"abi":"`)
	j.str(e.ABI)
	j.b = append(j.b, '"')
	if e.IP != 0 {
		j.str(`,"ip":`)
		j.hex(e.IP)
	}
	j.args(e)
	j.outcome(e)
}

// args writes the arguments by name.
func (j *JSON) args(e *event.Event) {
	j.str(`,"args":[`)
	n := 0
	for i := 0; i < len(e.Args); i = e.Args.Next(i) {
		if e.Args[i].Kind == event.KindNote {
			continue
		}
		if n > 0 {
			j.b = append(j.b, ',')
		}
		j.str(`{"name":`)
		name := e.Args[i].Name
		if name == "" && j.o.ParamName != nil {
			name = j.o.ParamName(e.ABI, e.Nr, n)
		}
		j.text([]byte(name))
		j.str(`,"value":`)
		j.value(e.Args, i)
		j.b = append(j.b, '}')
		n++
	}
	j.b = append(j.b, ']')
}

// outcome writes how a call ended, what was captured beside it, and the end of the record.
func (j *JSON) outcome(e *event.Event) {
	if p := phases[e.Phase]; p != "" {
		j.str(`,"phase":"`)
		j.str(p)
		j.b = append(j.b, '"')
	}
	if e.Phase != event.PhaseEntryOnly && e.Phase != event.PhaseExitLost && e.Phase != event.PhaseHit {
		j.str(`,"ret":`)
		if e.Type == event.TypeProbe && len(e.RetTree) == 0 && e.RetNote != "" {
			j.str("null")
		} else if e.Errno == 0 && len(e.RetTree) > 0 {
			j.value(e.RetTree, 0)
		} else {
			j.int(e.Ret)
		}
		if e.Injected {
			j.str(`,"injected":true`)
		}
		if e.Errno != 0 {
			x := constant.ErrnoOf(int(e.Errno))
			j.str(`,"errno":{"name":`)
			j.text([]byte(x.Name))
			j.str(`,"value":`)
			j.uint(uint64(e.Errno))
			j.str(`,"text":`)
			j.text([]byte(x.Text))
			j.b = append(j.b, '}')
		}
		if e.RetNote != "" {
			j.str(`,"note":`)
			j.data([]byte(e.RetNote), false, 0)
		}
		if e.Phase != event.PhaseExitOnly && e.Phase != event.PhaseReturn {
			j.str(`,"duration":`)
			j.uint(e.Duration)
		}
	}
	j.context(e)
	j.str("}\n")
}

func (j *JSON) hex(v uint64) {
	j.str(`"0x`)
	j.b = strconv.AppendUint(j.b, v, 16)
	j.b = append(j.b, '"')
}

func (j *JSON) first(t event.Tree) {
	if len(t) == 0 {
		j.str("null")
		return
	}
	j.value(t, 0)
}

// value writes node i of t.
func (j *JSON) value(t event.Tree, i int) {
	n := &t[i]
	switch n.Kind {
	case event.KindInt:
		if n.Sym != "" {
			j.unnamed(n, true)
			return
		}
		j.int(int64(n.Num))
	case event.KindUint, event.KindHex, event.KindOct:
		if n.Sym != "" {
			j.unnamed(n, false)
			return
		}
		j.uint(n.Num)
	case event.KindFloat:
		j.float(n)
	case event.KindBool:
		j.b = strconv.AppendBool(j.b, n.Num != 0)
	case event.KindChar:
		j.str(`{"char":`)
		j.uint(n.Num)
		j.b = append(j.b, '}')
	case event.KindPtr:
		j.hex(n.Num)
	case event.KindNull:
		j.str("null")
	case event.KindSym:
		j.str(`{"name":`)
		j.name(n)
		j.str(`,"value":`)
		j.uint(n.Num)
		j.b = append(j.b, '}')
	case event.KindFlags:
		j.flags(t, i)
	case event.KindString, event.KindBytes:
		j.data(n.Data, n.Attr&event.AttrTruncated != 0, n.Num)
	case event.KindStruct:
		j.object(t, i)
	case event.KindArray:
		j.array(t, i)
	case event.KindSet:
		if n.Attr&event.AttrInverted != 0 {
			j.str(`{"not":`)
			j.array(t, i)
			j.b = append(j.b, '}')
		} else {
			j.array(t, i)
		}
	case event.KindCall:
		j.b = append(j.b, '{')
		j.text([]byte(n.Sym))
		j.b = append(j.b, ':')
		j.array(t, i)
		j.b = append(j.b, '}')
	case event.KindChange:
		j.str(`{"before":`)
		k := i + 1
		j.value(t, k)
		j.str(`,"after":`)
		if k = t.Next(k); k < int(n.End) {
			j.value(t, k)
		} else {
			j.str("null")
		}
		j.b = append(j.b, '}')
	case event.KindExpr:
		j.str(`{"op":`)
		j.text([]byte(n.Sym))
		j.str(`,"parts":`)
		j.array(t, i)
		j.b = append(j.b, '}')
	case event.KindFD:
		if n.Sym == "" && len(n.Data) == 0 {
			j.int(int64(n.Num))
			return
		}
		j.str(`{"fd":`)
		j.int(int64(n.Num))
		if n.Sym != "" {
			j.str(`,"name":`)
			j.text([]byte(n.Sym))
		}
		if name, device := event.SplitFD(n.Data); len(name) > 0 {
			j.str(`,"path":`)
			j.data(name, false, 0)
			if len(device) > 0 {
				j.str(`,"device":`)
				j.text(device)
			}
		}
		j.b = append(j.b, '}')
	case event.KindPID:
		if len(n.Data) == 0 {
			j.int(int64(n.Num))
			return
		}
		j.str(`{"pid":`)
		j.int(int64(n.Num))
		j.str(`,"comm":`)
		j.data(n.Data, false, 0)
		j.b = append(j.b, '}')
	case event.KindMore:
		j.str(`{"more":true}`)
	case event.KindUnreadable:
		j.str(`{"unreadable":`)
		if n.Errno == 0 && n.Sym != "" {
			j.text([]byte(n.Sym))
		} else if n.Errno == 0 {
			j.str(`"not captured"`)
		} else {
			j.text([]byte(constant.ErrnoOf(int(n.Errno)).Name))
		}
		j.str(`,"address":`)
		j.hex(n.Num)
		j.b = append(j.b, '}')
	default:
		j.str("null")
	}
}

// unnamed is a number that its set has no name for.
func (j *JSON) unnamed(n *event.Node, signed bool) {
	j.str(`{"value":`)
	if signed {
		j.int(int64(n.Num))
	} else {
		j.uint(n.Num)
	}
	j.str(`,"set":`)
	j.text([]byte(n.Sym))
	j.b = append(j.b, '}')
}

func (j *JSON) name(n *event.Node) {
	if n.Sym != "" {
		j.text([]byte(n.Sym))
	} else {
		j.data(n.Data, false, 0)
	}
}

// flags writes the names of the bits, what is left without a name, and the whole number.
func (j *JSON) flags(t event.Tree, i int) {
	n := &t[i]
	j.str(`{"names":[`)
	var rest uint64
	first := true
	for k := i + 1; k < int(n.End); k = t.Next(k) {
		switch t[k].Kind {
		case event.KindSym:
			if !first {
				j.b = append(j.b, ',')
			}
			first = false
			j.name(&t[k])
		case event.KindHex, event.KindOct, event.KindUint, event.KindInt:
			rest |= t[k].Num
		}
	}
	j.str(`],"value":`)
	j.uint(n.Num)
	if rest != 0 {
		j.str(`,"rest":`)
		j.uint(rest)
	}
	j.b = append(j.b, '}')
}

func (j *JSON) array(t event.Tree, i int) {
	j.b = append(j.b, '[')
	first := true
	for k := i + 1; k < int(t[i].End); k = t.Next(k) {
		if t[k].Kind == event.KindNote {
			continue
		}
		if !first {
			j.b = append(j.b, ',')
		}
		first = false
		j.value(t, k)
	}
	j.b = append(j.b, ']')
}

func (j *JSON) object(t event.Tree, i int) {
	j.b = append(j.b, '{')
	first, unnamed := true, 0
	for k := i + 1; k < int(t[i].End); k = t.Next(k) {
		n := &t[k]
		if n.Kind == event.KindNote {
			continue
		}
		if !first {
			j.b = append(j.b, ',')
		}
		first = false
		if n.Kind == event.KindMore {
			j.str(`"more":true`)
			continue
		}
		if n.Name != "" {
			j.text([]byte(n.Name))
		} else {
			j.str(`"_`)
			j.b = strconv.AppendInt(j.b, int64(unnamed), 10)
			j.b = append(j.b, '"')
			unnamed++
		}
		j.b = append(j.b, ':')
		j.value(t, k)
	}
	j.b = append(j.b, '}')
}

// data writes bytes of the traced program; length is that of the whole when it is known to be longer.
func (j *JSON) data(b []byte, truncated bool, length uint64) {
	valid := utf8.Valid(b)
	if valid && !truncated {
		j.text(b)
		return
	}
	if valid {
		j.str(`{"string":`)
		j.text(b)
	} else {
		j.str(`{"base64":"`)
		j.b = base64.StdEncoding.AppendEncode(j.b, b)
		j.b = append(j.b, '"')
	}
	if truncated {
		j.str(`,"truncated":true`)
		if length > uint64(len(b)) {
			j.str(`,"length":`)
			j.uint(length)
		}
	}
	j.b = append(j.b, '}')
}

// text writes valid UTF-8 as a JSON string. What a terminal or a browser could take for a command is escaped: controls of
// both sets, marks that reorder text, and the signs of HTML.
func (j *JSON) text(s []byte) {
	j.b = append(j.b, '"')
	start := 0
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c >= 0x20 && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&' && c != 0x7f {
				i++
				continue
			}
			j.b = append(j.b, s[start:i]...)
			switch c {
			case '"', '\\':
				j.b = append(j.b, '\\', c)
			case '\n':
				j.b = append(j.b, '\\', 'n')
			case '\t':
				j.b = append(j.b, '\\', 't')
			default:
				j.b = append(j.b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			}
			i++
			start = i
			continue
		}
		r, n := utf8.DecodeRune(s[i:])
		if r < 0xa0 || r == 0x61c || r == 0x200e || r == 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0xfeff || r == utf8.RuneError {
			j.b = append(j.b, s[start:i]...)
			j.b = append(j.b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
			i += n
			start = i
			continue
		}
		i += n
	}
	j.b = append(j.b, s[start:]...)
	j.b = append(j.b, '"')
}
