package sink

import (
	"bytes"
	"io"
	"strconv"
	"time"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
)

// Symbols says how named numbers are shown (-X).
type Symbols uint8

const (
	SymbolsAbbrev  Symbols = iota // by name
	SymbolsRaw                    // as numbers
	SymbolsVerbose                // as numbers with the name in a comment
)

// Stamp says how the time of an event is shown.
type Stamp uint8

const (
	StampNone  Stamp = iota
	StampClock       // 12:34:56 local time
	StampUnix        // seconds since 1970
)

// PIDs says which lines name the task.
type PIDs uint8

const (
	PIDsWhenSeveral PIDs = iota // [pid 123], while more than one task is traced
	PIDsAlways                  // a column of its own, as in files
	PIDsNever
)

// TextOptions are the choices of strace's flags. The zero value is strace's default.
type TextOptions struct {
	Column     int // where "= " stands; 0 means 40 (-a)
	PIDs       PIDs
	Tasks      int // how many tasks are traced at the start
	Comms      bool
	Stamp      Stamp
	Digits     int // of fractions of seconds in stamps: 0, 3, 6 or 9
	Relative   bool
	RelDigits  int // of -r; 0 means 6, -1 none
	Times      bool
	TimeDigits int  // of -T; 0 means 6, -1 none
	FDs        bool // what descriptors refer to, where it was recorded (-y)
	Devices    bool // and which device, of those that are one (-yy)
	Sockets    bool // what sockets are, although FDs is not set
	IP         bool // [00007f…] before the call (-i)
	Numbers    bool // [  0] before the call (-n)
	Names      bool // names of arguments (-N)
	ParamName  func(abi string, nr uint32, i int) string
	Hex        HexMode
	Symbols    Symbols
	// Signals are those to show; nil is all.
	Signals map[int]bool
	// NoSuperseded leaves out the lines of leaders that another thread's execve ends (--quiet=thread-execve).
	NoSuperseded bool
	NoExits      bool // leave out +++ exited lines (-qq)
	Colour       bool
	// Wall turns the time of an event into a time of day.
	Wall func(monotonic uint64) time.Time
}

// Text prints one line a call in the shapes of strace. It is used by one goroutine and buffers until Flush.
type Text struct {
	inNote bool // inside /* */, which do not nest
	w      io.Writer
	o      TextOptions
	b      []byte
	err    error

	stacks     map[*event.Stack][]byte // text of those shown lately; a Stack does not change
	stackBytes int

	lineStart int // where the line being built starts in b
	open      uint32
	opened    bool // the last line of the output belongs to the unfinished call of task open
	openCol   int  // its length
	more      bool // arguments of it are still to come
	lastTime  uint64
	tasks     int
	abi       string
	nr        uint32
}

// NewText returns a sink that prints to w.
func NewText(w io.Writer, o TextOptions) *Text {
	if o.Column == 0 {
		o.Column = 40
	}
	if o.RelDigits == 0 {
		o.RelDigits = 6
	}
	if o.TimeDigits == 0 {
		o.TimeDigits = 6
	}
	if o.Wall == nil {
		o.Wall = func(m uint64) time.Time { return time.Unix(0, int64(m)) }
	}
	return &Text{w: w, o: o, tasks: o.Tasks}
}

// chunk is how much text is gathered before it is written.
const chunk = 64 << 10

// Event prints e. Nothing is written before chunk bytes have gathered or Flush is called.
func (t *Text) Event(e *event.Event) error {
	if t.err != nil {
		return t.err
	}
	switch e.Type {
	case event.TypeSyscall, event.TypeProbe:
		t.syscall(e)
		if !t.opened {
			t.context(e)
		}
	case event.TypeSignal:
		if t.o.Signals == nil || t.o.Signals[int(e.Signal)] {
			t.signal(e)
		}
	case event.TypeFork:
		if e.Followed {
			t.tasks++
		}
	case event.TypeExec:
		if e.OldTid == e.Task.Tid {
			break
		}
		if t.opened && t.open == e.OldTid {
			t.str(" <pid changed to ")
			t.b = strconv.AppendUint(t.b, uint64(e.Task.Tid), 10)
			t.str(" ...>\n")
			t.opened = false
		}
		if !t.o.NoSuperseded {
			t.begin(e)
			t.str("+++ superseded by execve in pid ")
			t.b = strconv.AppendUint(t.b, uint64(e.OldTid), 10)
			t.str(" +++\n")
		}
		t.tasks--
	case event.TypeExit:
		if !t.o.NoExits {
			t.exit(e)
		}
		t.tasks--
	case event.TypeLost:
		t.closeLine()
		t.str("*** lost ")
		t.b = strconv.AppendUint(t.b, e.Lost.Count, 10)
		t.str(" events: ")
		t.b = appendEscaped(t.b, []byte(e.Lost.Cause), HexNever, 0, 0)
		t.str(" ***\n")
	}
	if len(t.b) >= chunk {
		return t.Flush()
	}
	return t.err
}

// Flush writes what has gathered.
func (t *Text) Flush() error {
	if t.err == nil && len(t.b) > 0 {
		_, t.err = t.w.Write(t.b)
		t.b = t.b[:0]
	}
	return t.err
}

// Close ends a line that is open and writes the rest. The ledger is not part of the text.
func (t *Text) Close(*event.Ledger) error {
	if t.opened {
		t.str(" <detached ...>\n")
		t.opened = false
	}
	return t.Flush()
}

// Colours of a terminal; they only repeat what the text says.
const red, yellow, plain = "\x1b[31m", "\x1b[33m", "\x1b[0m"

func (t *Text) colour(c string) {
	if t.o.Colour {
		t.str(c)
	}
}

func (t *Text) str(s string) { t.b = append(t.b, s...) }

// closeLine ends the line of a call that is still in progress.
func (t *Text) closeLine() {
	if t.opened {
		if t.more {
			t.str(", ")
		}
		t.str(" <unfinished ...>\n")
		t.opened = false
	}
}

// begin starts a line with the task, the time and what else stands before an event.
func (t *Text) begin(e *event.Event) {
	t.closeLine()
	t.lineStart = len(t.b)
	switch {
	case t.o.PIDs == PIDsAlways:
		start := len(t.b)
		t.pid(e)
		for len(t.b)-start < 5 {
			t.b = append(t.b, ' ')
		}
		t.b = append(t.b, ' ')
	case t.o.PIDs == PIDsWhenSeveral && t.tasks > 1:
		t.str("[pid ")
		for n := uint64(10000); n > 1 && uint64(e.Task.Tid) < n; n /= 10 {
			t.b = append(t.b, ' ')
		}
		t.pid(e)
		t.str("] ")
	}
	if t.o.Stamp != StampNone {
		t.stamp(e)
	}
	if t.o.Relative {
		t.relative(e)
	}
	if e.Late {
		t.str("(late) ")
	}
}

func (t *Text) pid(e *event.Event) {
	t.b = strconv.AppendUint(t.b, uint64(e.Task.Tid), 10)
	if t.o.Comms && e.Task.Comm != "" {
		t.b = append(t.b, '<')
		t.b = appendEscaped(t.b, []byte(e.Task.Comm), HexNever, '<', '>')
		t.b = append(t.b, '>')
	}
}

func (t *Text) stamp(e *event.Event) {
	w := t.o.Wall(e.Time)
	if t.o.Stamp == StampUnix {
		t.b = strconv.AppendInt(t.b, w.Unix(), 10)
	} else {
		t.b = w.AppendFormat(t.b, "15:04:05")
	}
	t.fraction(uint64(w.Nanosecond()), t.o.Digits)
	t.b = append(t.b, ' ')
}

// fraction appends ns as a fraction of a second.
func (t *Text) fraction(ns uint64, digits int) {
	if digits <= 0 {
		return
	}
	t.b = append(t.b, '.')
	for div := uint64(100_000_000); digits > 0; digits-- {
		t.b = append(t.b, '0'+byte(ns/div%10))
		div /= 10
	}
}

func (t *Text) relative(e *event.Event) {
	var d uint64
	if t.lastTime != 0 {
		d = e.Time - min(e.Time, t.lastTime)
	}
	t.lastTime = e.Time
	if t.o.Stamp != StampNone {
		t.str("(+")
	}
	s := d / 1e9
	for n := uint64(100000); n > 1 && s < n; n /= 10 {
		t.b = append(t.b, ' ')
	}
	t.b = strconv.AppendUint(t.b, s, 10)
	t.fraction(d%1e9, t.o.RelDigits)
	if t.o.Stamp != StampNone {
		t.str(")")
	}
	t.b = append(t.b, ' ')
}

func (t *Text) signal(e *event.Event) {
	t.begin(e)
	t.colour(yellow)
	t.str("--- ")
	if name := constant.SignalName(int(e.Signal)); name != "" {
		t.str(name)
	} else {
		t.b = strconv.AppendUint(t.b, uint64(e.Signal), 10)
	}
	t.b = append(t.b, ' ')
	t.nodes(e.Args, 0, len(e.Args))
	t.str(" ---")
	t.colour(plain)
	t.b = append(t.b, '\n')
}

func (t *Text) exit(e *event.Event) {
	t.begin(e)
	t.colour(yellow)
	if sig := e.Status & 0x7f; sig != 0 {
		t.str("+++ killed by ")
		if name := constant.SignalName(int(sig)); name != "" {
			t.str(name)
		} else {
			t.b = strconv.AppendUint(t.b, uint64(sig), 10)
		}
		if e.Status&0x80 != 0 {
			t.str(" (core dumped)")
		}
	} else {
		t.str("+++ exited with ")
		t.b = strconv.AppendUint(t.b, uint64(e.Status>>8&0xff), 10)
	}
	t.str(" +++")
	t.colour(plain)
	t.b = append(t.b, '\n')
}

func (t *Text) syscall(e *event.Event) {
	t.abi, t.nr = e.ABI, e.Nr
	args := e.Args
	col := 0
	if e.Phase == event.PhaseResumed || e.Resume > 0 && e.Phase == event.PhaseEntryOnly || e.Phase == event.PhaseEntryOnly && t.opened && t.open == e.Task.Tid {
		if t.opened && t.open == e.Task.Tid {
			// The line is still ours: go on where it stopped.
			t.opened = false
			col = t.openCol
			t.lineStart = len(t.b)
			if e.Resume > 0 && e.NArgs > e.Resume {
				t.str(", ")
			}
			t.rest(e, e.Resume)
		} else {
			t.begin(e)
			t.ip(e)
			t.str("<... ")
			t.callee(e)
			t.str(" resumed>")
			t.rest(e, e.Resume)
		}
	} else {
		t.begin(e)
		t.ip(e)
		t.callee(e)
		t.b = append(t.b, '(')
		if e.Phase == event.PhaseReturn && len(args) == 0 {
			t.str("...")
		}
		t.list(args, 0, 0)
	}
	switch e.Phase {
	case event.PhaseUnfinished:
		if e.MovedTo != 0 {
			t.str(" <pid changed to ")
			t.b = strconv.AppendUint(t.b, uint64(e.MovedTo), 10)
			t.str(" ...>\n")
			return
		}
		t.more = e.More && e.NArgs > 0
		t.opened, t.open, t.openCol = true, e.Task.Tid, len(t.b)-t.lineStart
		return
	case event.PhaseHit:
		t.str(")\n")
		return
	case event.PhaseEntryOnly:
		if e.Type == event.TypeProbe || !noReturn(e.Name) {
			t.str(" <unfinished ...>")
		}
	case event.PhaseExitLost:
		t.str(" <return lost>")
	}
	t.str(") ")
	for n := len(t.b) - t.lineStart + col; n < t.o.Column; n++ {
		t.b = append(t.b, ' ')
	}
	t.str("= ")
	if e.Errno != 0 {
		t.colour(red)
	}
	t.result(e)
	if e.Errno != 0 {
		t.colour(plain)
	}
	if t.o.Times && e.Phase != event.PhaseEntryOnly {
		t.str(" <")
		t.b = strconv.AppendUint(t.b, e.Duration/1e9, 10)
		t.fraction(e.Duration%1e9, t.o.TimeDigits)
		t.b = append(t.b, '>')
	}
	t.b = append(t.b, '\n')
}

func noReturn(name string) bool { return name == "exit" || name == "exit_group" }

func (t *Text) ip(e *event.Event) {
	if t.o.Numbers {
		t.b = append(t.b, '[')
		for n := uint32(1000); n > 1 && e.Nr < n; n /= 10 {
			t.b = append(t.b, ' ')
		}
		t.b = strconv.AppendUint(t.b, uint64(e.Nr), 10)
		t.str("] ")
	}
	if t.o.IP {
		t.b = append(t.b, '[')
		width := 16
		if e.ABI == "i386" || e.ABI == "arm" {
			width = 8
		}
		for i := width - 1; i >= 0; i-- {
			if e.IP == 0 {
				t.b = append(t.b, '?')
			} else {
				t.b = append(t.b, hexDigits[e.IP>>(4*i)&15])
			}
		}
		t.str("] ")
	}
}

// rest appends the arguments from number skip on, without the comma before them.
func (t *Text) rest(e *event.Event, skip int) {
	i := 0
	for n := 0; i < len(e.Args) && n < skip; i = e.Args.Next(i) {
		if e.Args[i].Kind != event.KindNote {
			n++
		}
	}
	for i < len(e.Args) && e.Args[i].Kind == event.KindNote {
		i = e.Args.Next(i)
	}
	t.list(e.Args, i, skip)
}

// list appends the top-level values from index i on; the first is argument number n.
func (t *Text) list(args event.Tree, i, n int) {
	for first := true; i < len(args); i, first = args.Next(i), false {
		if args[i].Kind == event.KindNote {
			t.node(args, i)
			continue
		}
		if !first {
			t.str(", ")
		}
		if t.o.Names && args[i].Name == "" && t.o.ParamName != nil {
			if name := t.o.ParamName(t.abi, t.nr, n); name != "" {
				t.str(name)
				t.b = append(t.b, '=')
			}
		}
		t.named(args, i)
		n++
	}
}

// nodes appends the siblings from i up to end, with commas.
func (t *Text) nodes(tree event.Tree, i, end int) {
	for first := true; i < end; i = tree.Next(i) {
		if tree[i].Kind != event.KindNote {
			if !first {
				t.str(", ")
			}
			first = false
		}
		t.named(tree, i)
	}
}

func (t *Text) named(tree event.Tree, i int) {
	if n := &tree[i]; n.Name != "" {
		switch {
		case n.Attr&event.AttrIndexed != 0:
			t.b = append(t.b, '[')
			t.str(n.Name)
			t.str("]=")
		case n.Kind == event.KindCall && n.Sym == toField && t.o.Symbols == SymbolsAbbrev:
			// The name is the last argument of the macro.
		default:
			t.str(n.Name)
			t.b = append(t.b, '=')
		}
	}
	t.node(tree, i)
}

// toField is the macro that stores its result in the field that is shown.
const toField = "inet_pton"

// call appends a macro with its arguments; bytes that it stands for are its raw form.
func (t *Text) call(tree event.Tree, i int) {
	n := &tree[i]
	bytes := (len(n.Data) > 0 || n.Attr&event.AttrHex != 0) && t.o.Symbols != SymbolsAbbrev
	if bytes {
		switch {
		case n.Attr&(event.AttrHex|event.AttrDecimal) == event.AttrHex|event.AttrDecimal:
			t.b = strconv.AppendUint(t.b, n.Num, 10)
		case n.Attr&event.AttrHex != 0:
			t.hex(n.Num)
		default:
			t.b = appendQuoted(t.b, n.Data, HexAlways)
		}
		if t.o.Symbols == SymbolsRaw {
			return
		}
		t.str(" /* ")
		old := t.o.Symbols
		t.o.Symbols, t.inNote = SymbolsAbbrev, true
		defer func() { t.o.Symbols, t.inNote = old, false }()
	}
	t.str(n.Sym)
	t.b = append(t.b, '(')
	t.nodes(tree, i+1, int(n.End))
	if n.Sym == toField && n.Name != "" && !bytes {
		t.str(", &")
		t.str(n.Name)
	}
	t.b = append(t.b, ')')
	if bytes {
		t.str(" */")
	}
}

// hwAddr appends a link-layer address.
func (t *Text) hwAddr(b []byte) {
	if t.o.Symbols != SymbolsAbbrev {
		t.b = appendQuoted(t.b, b, HexAlways)
		if t.o.Symbols == SymbolsRaw {
			return
		}
		t.str(" /* ")
		defer t.str(" */")
	}
	for i, v := range b {
		if i > 0 {
			t.b = append(t.b, ':')
		}
		t.b = append(t.b, hexDigits[v>>4], hexDigits[v&15])
	}
}

func (t *Text) hex(v uint64) {
	if v == 0 {
		t.b = append(t.b, '0')
		return
	}
	t.str("0x")
	t.b = strconv.AppendUint(t.b, v, 16)
}

// wideHex appends what %#0*x makes of v.
func (t *Text) wideHex(v uint64, width int) {
	digits := 1
	for w := v; w > 15; w >>= 4 {
		digits++
	}
	if v != 0 {
		t.str("0x")
		width -= 2
	}
	for ; width > digits; width-- {
		t.b = append(t.b, '0')
	}
	t.b = strconv.AppendUint(t.b, v, 16)
}

func (t *Text) oct(v uint64) {
	switch {
	case v < 8:
		t.str("00")
	case v < 64:
		t.b = append(t.b, '0')
	default:
		t.b = append(t.b, '0')
	}
	t.b = strconv.AppendUint(t.b, v, 8)
}

// raw appends a named number as a number.
func (t *Text) raw(n *event.Node) {
	switch {
	case n.Attr&event.AttrDecimal != 0:
		t.b = strconv.AppendInt(t.b, int64(n.Num), 10)
	case n.Attr&event.AttrOctal != 0:
		t.oct(n.Num)
	default:
		t.hex(n.Num)
	}
}

// symbol appends the name of n.
func (t *Text) symbol(n *event.Node) {
	if n.Sym != "" {
		t.str(n.Sym)
		return
	}
	t.b = appendEscaped(t.b, n.Data, HexNever, 0, 0)
}

// node appends one value with what is inside it.
func (t *Text) node(tree event.Tree, i int) {
	n := &tree[i]
	switch n.Kind {
	case event.KindInt:
		t.b = strconv.AppendInt(t.b, int64(n.Num), 10)
		t.unknown(n)
	case event.KindUint:
		t.b = strconv.AppendUint(t.b, n.Num, 10)
		t.unknown(n)
	case event.KindHex:
		if n.Errno != 0 {
			t.wideHex(n.Num, int(n.Errno))
		} else {
			t.hex(n.Num)
		}
		t.unknown(n)
	case event.KindFloat:
		t.b = appendFloat(t.b, n)
	case event.KindBool:
		t.b = strconv.AppendBool(t.b, n.Num != 0)
	case event.KindChar:
		t.char(n.Num)
	case event.KindOct:
		t.oct(n.Num)
	case event.KindPtr:
		t.hex(n.Num)
	case event.KindUnreadable:
		if n.Num == 0 {
			t.str("???")
			if n.Sym != "" {
				t.str(" /* ")
				t.str(n.Sym)
				t.str(" */")
			}
		} else {
			t.hex(n.Num)
		}
	case event.KindNull:
		t.str("NULL")
	case event.KindSym:
		switch {
		case n.Attr&event.AttrVerbose != 0 && t.o.Symbols != SymbolsRaw || t.o.Symbols == SymbolsVerbose:
			t.raw(n)
			t.str(" /* ")
			t.symbol(n)
			t.str(" */")
		case t.o.Symbols == SymbolsRaw:
			t.raw(n)
		default:
			t.symbol(n)
		}
	case event.KindFlags:
		switch {
		case n.Attr&event.AttrVerbose != 0 && t.o.Symbols != SymbolsRaw || t.o.Symbols == SymbolsVerbose:
			t.raw(n)
			t.str(" /* ")
			t.joined(tree, i, "|")
			t.str(" */")
		case t.o.Symbols == SymbolsRaw:
			t.raw(n)
		default:
			t.joined(tree, i, "|")
		}
	case event.KindHWAddr:
		t.hwAddr(n.Data)
	case event.KindString, event.KindBytes:
		t.str(n.Sym)
		hex := t.o.Hex
		if n.Attr&event.AttrHex != 0 {
			hex = HexAlways
		}
		t.b = appendQuoted(t.b, n.Data, hex)
		if n.Attr&event.AttrTruncated != 0 {
			t.str("...")
		}
	case event.KindStruct:
		t.b = append(t.b, '{')
		t.nodes(tree, i+1, int(n.End))
		t.b = append(t.b, '}')
	case event.KindArray:
		t.b = append(t.b, '[')
		t.nodes(tree, i+1, int(n.End))
		t.b = append(t.b, ']')
	case event.KindSet:
		if n.Attr&event.AttrInverted != 0 {
			t.b = append(t.b, '~')
		}
		t.b = append(t.b, '[')
		for j := i + 1; j < int(n.End); j = tree.Next(j) {
			if j > i+1 {
				t.b = append(t.b, ' ')
			}
			t.node(tree, j)
		}
		t.b = append(t.b, ']')
	case event.KindCall:
		t.call(tree, i)
	case event.KindChange:
		for j, k := i+1, 0; j < int(n.End); j, k = tree.Next(j), k+1 {
			if k > 0 {
				t.str(" => ")
			}
			t.named(tree, j)
		}
	case event.KindExpr:
		if i+1 < int(n.End) && tree.Next(i+1) >= int(n.End) {
			t.str(n.Sym)
			t.node(tree, i+1)
			return
		}
		// Its parts are values of their own: each shows its number where numbers are asked for.
		for j := i + 1; j < int(n.End); j = tree.Next(j) {
			if j > i+1 {
				t.str(n.Sym)
			}
			t.node(tree, j)
		}
	case event.KindFD:
		t.fd(n)
	case event.KindPID:
		t.b = strconv.AppendInt(t.b, int64(n.Num), 10)
		if len(n.Data) > 0 {
			t.b = append(t.b, '<')
			t.b = appendEscaped(t.b, n.Data, HexNever, '<', '>')
			t.b = append(t.b, '>')
		}
	case event.KindNote:
		if n.Attr&event.AttrVerbose != 0 && t.o.Symbols == SymbolsRaw {
			break
		}
		t.str(" /* ")
		if n.Sym != "" || len(n.Data) > 0 {
			t.symbol(n)
		} else {
			t.hex(n.Num)
		}
		t.str(" */")
	case event.KindMore:
		t.str("...")
	default:
		t.str("?")
	}
}

// unknown says to which set a number without a name belongs.
func (t *Text) unknown(n *event.Node) {
	if n.Sym != "" && t.o.Symbols != SymbolsRaw && !t.inNote {
		t.str(" /* ")
		t.str(n.Sym)
		t.str(" */")
	}
}

func (t *Text) joined(tree event.Tree, i int, sep string) {
	// Inside, names stand alone: the number is shown once, for the whole.
	old := t.o.Symbols
	t.o.Symbols = SymbolsAbbrev
	t.between(tree, i, sep)
	t.o.Symbols = old
}

// between appends the children of node i with sep between them.
func (t *Text) between(tree event.Tree, i int, sep string) {
	for j := i + 1; j < int(tree[i].End); j = tree.Next(j) {
		if j > i+1 {
			t.str(sep)
		}
		t.node(tree, j)
	}
}

func (t *Text) fd(n *event.Node) {
	switch {
	case n.Sym == "" || t.o.Symbols == SymbolsRaw:
		t.b = strconv.AppendInt(t.b, int64(n.Num), 10)
	case t.o.Symbols == SymbolsVerbose:
		t.b = strconv.AppendInt(t.b, int64(n.Num), 10)
		t.str(" /* ")
		t.str(n.Sym)
		t.str(" */")
	default:
		t.str(n.Sym)
	}
	data, device := event.SplitFD(n.Data)
	if !t.o.Devices {
		device = nil
	}
	if len(data) == 0 || !t.o.FDs && device == nil && !(t.o.Sockets && bytes.HasPrefix(data, []byte("socket:["))) {
		return
	}
	deleted := false
	const suffix = " (deleted)" // fs/d_path.c
	if len(data) > len(suffix) && data[0] == '/' && string(data[len(data)-len(suffix):]) == suffix {
		data, deleted = data[:len(data)-len(suffix)], true
	}
	t.b = append(t.b, '<')
	t.b = appendEscaped(t.b, data, t.o.Hex, '<', '>')
	if len(device) > 0 {
		t.b = append(append(append(t.b, '<'), device...), '>')
	}
	t.b = append(t.b, '>')
	if deleted {
		t.str("(deleted)")
	}
}

// result appends what stands behind "= ".
func (t *Text) result(e *event.Event) {
	switch {
	case e.Phase == event.PhaseEntryOnly || e.Phase == event.PhaseExitLost:
		t.b = append(t.b, '?')
		return
	case e.Errno != 0:
		x := constant.ErrnoOf(int(e.Errno))
		if constant.IsRestart(int(e.Errno)) {
			t.str("? ")
		} else {
			t.str("-1 ")
		}
		if x.Name != "" {
			t.str(x.Name)
		} else {
			t.str("(errno ")
			t.b = strconv.AppendUint(t.b, uint64(e.Errno), 10)
			t.b = append(t.b, ')')
		}
		if x.Name != "" {
			t.str(" (")
			t.str(x.Text)
			t.b = append(t.b, ')')
		}
	case len(e.RetTree) > 0:
		t.nodes(e.RetTree, 0, len(e.RetTree))
	case e.Type == event.TypeProbe && e.RetNote != "":
		t.str("?") // why is in the note
	default:
		t.b = strconv.AppendInt(t.b, e.Ret, 10)
	}
	if e.RetNote != "" || e.RetNoted {
		t.str(" (")
		t.str(e.RetNote)
		t.b = append(t.b, ')')
	}
	if e.Injected {
		t.str(" (INJECTED)")
	}
}
