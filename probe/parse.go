package probe

import (
	"fmt"
	"strconv"
	"strings"
)

// IsProbe reports whether an expression is for Parse, and not a set of system calls or a qualifier: it has a colon that
// neither a regular expression nor what stands behind an equals sign holds.
func IsProbe(src string) bool {
	colon := strings.IndexByte(src, ':')
	equals := strings.IndexByte(src, '=')
	if colon < 0 || equals >= 0 && equals < colon {
		return false
	}
	// /regex/ has its second slash at its end, or before a comma.
	if strings.HasPrefix(src, "/") {
		end := strings.IndexByte(src[1:], '/')
		if end >= 0 && end+1 > colon {
			return false
		}
	}
	return true
}

// Parse reads one probe expression. The error is a *SyntaxError.
//
//	probe  = place [ "(" args ")" ] [ "->" type ] { "entry" | "return" | "both" | "if" expr | "do" action | "limit" n | "sample" "1/" n }
//	place  = object ":" point | "kernel:" point | "tp:" group ":" name | "usdt:" object ":" [ provider ":" ] name
//	       | "break:" [ object ":" ] point | "watch:" [ object ":" ] point ":" mode [ width ]
//	point  = name [ ("+"|"-") n ] | "'" name "'" | "/" regex "/" | n
//	args   = arg { "," arg } ; arg = [ name path ] [ ":" type ] [ "@" sum ]
//	type   = words { "*" } [ "[" [ n | name ] "]" ]
//	sum    = term { ("+"|"-") term } ; term = n | register | "[" sum "]" [ "." width ]
//	expr   = and { "||" and } ; and = not { "&&" not } ; not = [ "!" ] ( "(" expr ")" | operand [ op operand ] )
//	op     = == != < <= > >= & ~ !~ in has starts ends
func Parse(src string) (*Spec, error) {
	if len(src) > maxExpr {
		return nil, &SyntaxError{Expr: src[:64], Len: 1, Msg: fmt.Sprintf("the expression is %d bytes long; at most %d are possible", len(src), maxExpr)}
	}
	p := &parser{src: src}
	s, err := p.spec()
	if err != nil {
		return nil, err
	}
	s.Source = src
	return s, nil
}

type parser struct {
	src   string
	pos   int
	depth int
}

// maxDepth bounds how deep places and expressions nest.
const maxDepth = 100

func (p *parser) fail(pos, n int, format string, a ...any) error {
	return &SyntaxError{Expr: p.src, Pos: min(pos, len(p.src)), Len: max(n, 1), Msg: fmt.Sprintf(format, a...)}
}

func (p *parser) space() {
	for p.pos < len(p.src) && strings.IndexByte(" \t\n\r", p.src[p.pos]) >= 0 {
		p.pos++
	}
}

// peek is the next byte behind white space, 0 at the end.
func (p *parser) peek() byte {
	p.space()
	if p.pos < len(p.src) {
		return p.src[p.pos]
	}
	return 0
}

func (p *parser) take(token string) bool {
	p.space()
	if strings.HasPrefix(p.src[p.pos:], token) {
		p.pos += len(token)
		return true
	}
	return false
}

func isIdent(c byte, first bool) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80 || !first && (c >= '0' && c <= '9' || c == '$')
}

func (p *parser) ident() string {
	p.space()
	start := p.pos
	for p.pos < len(p.src) && isIdent(p.src[p.pos], p.pos == start) {
		p.pos++
	}
	return p.src[start:p.pos]
}

// keyword takes a word that stands alone.
func (p *parser) keyword(word string) bool {
	at := p.pos
	if p.ident() == word {
		return true
	}
	p.pos = at
	return false
}

// number takes a decimal, hexadecimal or octal number without sign.
func (p *parser) number() (uint64, bool, error) {
	p.space()
	start := p.pos
	for p.pos < len(p.src) && (isIdent(p.src[p.pos], false) && p.src[p.pos] < 0x80) {
		p.pos++
	}
	word := p.src[start:p.pos]
	if word == "" || word[0] < '0' || word[0] > '9' {
		p.pos = start
		return 0, false, nil
	}
	v, err := strconv.ParseUint(word, 0, 64)
	if err != nil {
		return 0, false, p.fail(start, len(word), "%s is not a number of 64 bits", word)
	}
	return v, true, nil
}

// quoted takes text in quotes of either kind. A backslash takes the meaning from the byte behind it; \n, \t, \0 and \xNN are
// control bytes.
func (p *parser) quoted() (string, error) {
	quote, start := p.src[p.pos], p.pos
	p.pos++
	var b strings.Builder
	for p.pos < len(p.src) {
		c := p.src[p.pos]
		p.pos++
		switch {
		case c == quote:
			return b.String(), nil
		case c != '\\' || p.pos >= len(p.src):
			b.WriteByte(c)
		default:
			c = p.src[p.pos]
			p.pos++
			switch c {
			case 'n':
				c = '\n'
			case 't':
				c = '\t'
			case '0':
				c = 0
			case 'x':
				if p.pos+2 > len(p.src) {
					return "", p.fail(p.pos-2, 2, `\x wants two hexadecimal digits`)
				}
				v, err := strconv.ParseUint(p.src[p.pos:p.pos+2], 16, 8)
				if err != nil {
					return "", p.fail(p.pos-2, 4, `\x wants two hexadecimal digits`)
				}
				p.pos += 2
				c = byte(v)
			}
			b.WriteByte(c)
		}
	}
	return "", p.fail(start, len(p.src)-start, "the quote is not closed")
}

func (p *parser) spec() (*Spec, error) {
	s := &Spec{Kind: KindFunction}
	start := p.pos
	first, err := p.object()
	if err != nil {
		return nil, err
	}
	switch first {
	case "kernel":
		s.Kind = KindKernel
	case "tp":
		s.Kind = KindTracepoint
		if s.Object, err = p.object(); err != nil {
			return nil, err
		}
	case "usdt":
		s.Kind = KindUSDT
		if s.Object, err = p.object(); err != nil {
			return nil, err
		}
		// PROVIDER:NAME has one colon more.
		if i := strings.IndexAny(p.src[p.pos:], ":( "); i > 0 && p.src[p.pos+i] == ':' {
			s.Provider = p.src[p.pos : p.pos+i]
			p.pos += i + 1
		}
	case "break", "watch":
		s.Kind = KindBreak
		if first == "watch" {
			s.Kind = KindWatch
		}
		if p.hasObject(s.Kind) {
			if s.Object, err = p.object(); err != nil {
				return nil, err
			}
		}
	case "":
		return nil, p.fail(start, 1, "a library or program is missing before the colon")
	default:
		s.Object = first
	}
	if err := p.point(s); err != nil {
		return nil, err
	}
	if s.Kind == KindWatch {
		if err := p.mode(s); err != nil {
			return nil, err
		}
	}
	if p.peek() == '(' {
		if err := p.args(s); err != nil {
			return nil, err
		}
	}
	if p.take("->") {
		if s.Ret, err = p.typ(); err != nil {
			return nil, err
		}
	}
	return s, p.clauses(s)
}

// object takes a name that ends at a colon.
func (p *parser) object() (string, error) {
	p.space()
	start := p.pos
	if p.pos < len(p.src) && (p.src[p.pos] == '\'' || p.src[p.pos] == '"') {
		name, err := p.quoted()
		if err != nil {
			return "", err
		}
		if !p.take(":") {
			return "", p.fail(p.pos, 1, "a colon and a function are missing behind %s", name)
		}
		return name, nil
	}
	i := strings.IndexByte(p.src[p.pos:], ':')
	if i < 0 {
		return "", p.fail(start, len(p.src)-start, "a colon is missing: OBJECT:FUNCTION names a function, tp:GROUP:NAME a tracepoint")
	}
	p.pos += i + 1
	return strings.TrimSpace(p.src[start : start+i]), nil
}

// hasObject reports whether a break or watch names an object before its point: it has a colon more, before the arguments.
func (p *parser) hasObject(k Kind) bool {
	rest := p.src[p.pos:]
	if i := strings.IndexAny(rest, "( \t"); i >= 0 {
		rest = rest[:i]
	}
	colons := strings.Count(rest, ":") - 2*strings.Count(rest, "::")
	if k == KindWatch {
		colons--
	}
	return colons > 0
}

// point takes the place within an object.
func (p *parser) point(s *Spec) error {
	start := p.pos
	pt := &s.Point
	switch c := p.peek(); {
	case c == 0:
		return p.fail(p.pos, 1, "what to probe in %s is missing", s.Object)
	case c == '\'' || c == '"':
		text, err := p.quoted()
		if err != nil {
			return err
		}
		pt.Text = text
	case c == '/':
		end := strings.LastIndexByte(p.src, '/')
		if end <= p.pos {
			return p.fail(p.pos, 1, "the regular expression has no / at its end")
		}
		// The first / that is not escaped ends it.
		for i := p.pos + 1; i < len(p.src); i++ {
			if p.src[i] == '\\' {
				i++
			} else if p.src[i] == '/' {
				end = i
				break
			}
		}
		pt.Text, pt.Match = strings.ReplaceAll(p.src[p.pos+1:end], `\/`, "/"), MatchRegexp
		p.pos = end + 1
		return nil
	case c >= '0' && c <= '9':
		v, _, err := p.number()
		if err != nil {
			return err
		}
		if v > 1<<63-1 {
			return p.fail(start, p.pos-start, "the offset is out of range")
		}
		pt.Offset, pt.Match = int64(v), MatchNumber
		return nil
	default:
		pt.Text = p.name(s.Kind)
	}
	if pt.Text == "" {
		return p.fail(p.pos, 1, "a name is expected here")
	}
	if pt.Match == MatchExact && isGlob(pt.Text) {
		pt.Match = MatchGlob
	}
	if pt.Match == MatchExact && (p.take("+") || p.pos < len(p.src) && p.src[p.pos] == '-' && !strings.HasPrefix(p.src[p.pos:], "->") && p.take("-")) {
		sign := int64(1)
		if p.src[p.pos-1] == '-' {
			sign = -1
		}
		at := p.pos
		v, ok, err := p.number()
		if err != nil {
			return err
		}
		if !ok || v > 1<<40 {
			return p.fail(at, 1, "an offset in bytes is expected here")
		}
		pt.Offset = sign * int64(v)
	}
	return nil
}

// isGlob reports whether a name has wildcards. The star of Go's (*T) and of operator* is none.
func isGlob(name string) bool {
	name = strings.ReplaceAll(name, "(*", "(")
	if strings.HasPrefix(name, "operator") || strings.Contains(name, "::operator") {
		return false
	}
	return strings.ContainsAny(name, "*?")
}

// name takes the bytes of a function's name: also those of C++ without parameters, and of Go's methods.
func (p *parser) name(k Kind) string {
	p.space()
	start := p.pos
	angle := 0
	for p.pos < len(p.src) {
		c := p.src[p.pos]
		rest := p.src[p.pos:]
		switch {
		case c == '<':
			angle++
		case c == '>':
			if angle == 0 {
				return p.src[start:p.pos]
			}
			angle--
		case c == '(' && strings.HasPrefix(rest, "(*") && strings.Contains(rest, ")."):
			p.pos += strings.Index(rest, ").") + 1
		case c == ':' && strings.HasPrefix(rest, "::"):
			p.pos++
		case c == ':' && k == KindWatch:
			return p.src[start:p.pos]
		case c == '-' && strings.HasPrefix(rest, "->") && k == KindWatch:
			p.pos++ // a member of what a pointer points to
		case angle > 0:
		case isIdent(c, false) || strings.IndexByte(".*?@~", c) >= 0:
		case c == '[' && strings.IndexByte(rest, ']') > 0, c == ']':
		default:
			return p.src[start:p.pos]
		}
		p.pos++
	}
	return p.src[start:p.pos]
}

// mode takes what a watch reacts to, and how wide it is.
func (p *parser) mode(s *Spec) error {
	if !p.take(":") {
		return p.fail(p.pos, 1, "how to watch is missing: :w for writes, :rw for reads and writes, with the bytes behind it: :w8")
	}
	start := p.pos
	word := p.ident()
	mode := strings.TrimRight(word, "0123456789")
	switch mode {
	case "w", "r", "rw", "x":
	default:
		return p.fail(start, len(word), "%q is no way to watch; w, r, rw and x are", mode)
	}
	s.Mode = mode
	if digits := word[len(mode):]; digits != "" {
		n, err := strconv.Atoi(digits)
		if err != nil || n < 1 || n > 4096 {
			return p.fail(start+len(mode), len(digits), "1 to 4096 bytes can be watched")
		}
		s.Width = n
	}
	return nil
}

func (p *parser) args(s *Spec) error {
	p.take("(")
	s.Typed = true
	for first := true; ; first = false {
		if p.take(")") {
			return nil
		}
		if !first && !p.take(",") {
			return p.fail(p.pos, 1, "a comma or ) is expected here")
		}
		a, err := p.arg()
		if err != nil {
			return err
		}
		if len(s.Args) == maxArgs {
			return p.fail(p.pos, 1, "at most %d values can be shown", maxArgs)
		}
		s.Args = append(s.Args, a)
	}
}

const maxArgs = 64

func (p *parser) arg() (a Arg, err error) {
	start := p.pos
	if a.Name = p.ident(); a.Name != "" {
		if a.Path, err = p.path(); err != nil {
			return a, err
		}
	}
	if p.take(":") {
		if a.Type, err = p.typ(); err != nil {
			return a, err
		}
	}
	if p.take("@") {
		if a.Place, err = p.sum(); err != nil {
			return a, err
		}
	}
	if a.Name == "" && a.Type == nil && a.Place == nil {
		return a, p.fail(start, 1, "an argument is expected here: NAME, NAME: TYPE or NAME: TYPE @PLACE")
	}
	return a, nil
}

// path takes .member, ->member and [index], as often as they come.
func (p *parser) path() (list []Step, err error) {
	for len(list) < maxDepth {
		switch {
		case strings.HasPrefix(p.src[p.pos:], "->"):
			at := p.pos
			p.pos += 2
			name := p.ident()
			if name == "" {
				p.pos = at
				return list, nil
			}
			list = append(list, Step{Member: name})
		case strings.HasPrefix(p.src[p.pos:], "."):
			p.pos++
			at := p.pos
			name := p.ident()
			if name == "" {
				return nil, p.fail(at, 1, "a member is expected behind the point")
			}
			list = append(list, Step{Member: name})
		case strings.HasPrefix(p.src[p.pos:], "["):
			p.pos++
			at := p.pos
			v, ok, err := p.number()
			if err != nil {
				return nil, err
			}
			if !ok || v > 1<<31 || !p.take("]") {
				return nil, p.fail(at, 1, "an index and ] are expected here")
			}
			i := int64(v)
			list = append(list, Step{Index: &i})
		default:
			return list, nil
		}
	}
	return nil, p.fail(p.pos, 1, "too many members of members")
}

// clause words end a type.
var clauseWords = []string{"if", "do", "entry", "return", "both", "limit", "sample"}

func (p *parser) typ() (*Type, error) {
	t := &Type{}
	p.space()
	start := p.pos
	var words []string
	for {
		at := p.pos
		w := p.ident()
		if w == "" {
			break
		}
		for p.pos < len(p.src) && strings.HasPrefix(p.src[p.pos:], "::") {
			p.pos += 2
			w += "::" + p.ident()
		}
		if p.pos < len(p.src) && p.src[p.pos] == '<' {
			end := matching(p.src[p.pos:])
			if end < 0 {
				return nil, p.fail(p.pos, 1, "the < is not closed")
			}
			w += p.src[p.pos : p.pos+end+1]
			p.pos += end + 1
		}
		if len(words) > 0 && contains(clauseWords, w) {
			p.pos = at
			break
		}
		words = append(words, w)
	}
	if len(words) == 0 {
		return nil, p.fail(start, 1, "a type is expected here: int, u32, str, bytes[n], struct point*, …")
	}
	// const says nothing about how a value is read.
	for len(words) > 1 && (words[0] == "const" || words[0] == "volatile") {
		words = words[1:]
	}
	t.Name = strings.Join(words, " ")
	for p.take("*") {
		t.Pointers++
		p.keyword("const")
		if t.Pointers > 16 {
			return nil, p.fail(p.pos, 1, "too many stars")
		}
	}
	if p.peek() == '[' {
		p.take("[")
		t.Array = true
		if p.take("]") {
			return t, nil
		}
		var err error
		if t.Count, err = p.count(); err != nil {
			return nil, err
		}
		if !p.take("]") {
			return nil, p.fail(p.pos, 1, "] is expected here")
		}
	}
	return t, nil
}

// matching is the index of the > that closes the < at the start of s, -1 without one.
func matching(s string) int {
	n := 0
	for i := range len(s) {
		switch s[i] {
		case '<':
			n++
		case '>':
			if n--; n == 0 {
				return i
			}
		}
	}
	return -1
}

func contains(list []string, w string) bool {
	for _, x := range list {
		if x == w {
			return true
		}
	}
	return false
}

// count takes a length: a number, an argument, or @ and a place.
func (p *parser) count() (*Place, error) {
	if p.take("@") {
		return p.sum()
	}
	v, ok, err := p.number()
	if err != nil {
		return nil, err
	}
	if ok {
		if v > 1<<31 {
			return nil, p.fail(p.pos, 1, "a length of %d is out of range", v)
		}
		return &Place{Const: int64(v)}, nil
	}
	at := p.pos
	name := p.ident()
	if name == "" {
		return nil, p.fail(at, 1, "a number or the name of an argument is expected here")
	}
	return &Place{Arg: name}, nil
}

// sum takes a place: terms that are added and subtracted.
func (p *parser) sum() (*Place, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.fail(p.pos, 1, "too many brackets within brackets")
	}
	defer func() { p.depth-- }()
	pl, err := p.term()
	if err != nil {
		return nil, err
	}
	for {
		minus := false
		switch {
		case p.take("+"):
		case p.peek() == '-' && !strings.HasPrefix(p.src[p.pos:], "->") && p.take("-"):
			minus = true
		default:
			return pl, nil
		}
		x, err := p.term()
		if err != nil {
			return nil, err
		}
		switch {
		case x.Reg == "" && x.Arg == "" && x.Deref == nil && minus:
			pl.Const -= x.Const
		case x.Reg == "" && x.Arg == "" && x.Deref == nil:
			pl.Const += x.Const
		case minus:
			if pl.Minus != nil {
				return nil, p.fail(p.pos, 1, "one register or memory word can be subtracted")
			}
			pl.Minus = x
		default:
			if pl.Plus != nil {
				return nil, p.fail(p.pos, 1, "two registers or memory words can be added")
			}
			pl.Plus = x
		}
	}
}

func (p *parser) term() (*Place, error) {
	if p.take("[") {
		inner, err := p.sum()
		if err != nil {
			return nil, err
		}
		if !p.take("]") {
			return nil, p.fail(p.pos, 1, "] is expected here")
		}
		pl := &Place{Deref: inner}
		if strings.HasPrefix(p.src[p.pos:], ".") {
			p.pos++
			at := p.pos
			v, ok, err := p.number()
			if err != nil {
				return nil, err
			}
			if !ok || v != 1 && v != 2 && v != 4 && v != 8 {
				return nil, p.fail(at, 1, "a width of 1, 2, 4 or 8 bytes is expected here")
			}
			pl.Width = int(v)
		}
		return pl, nil
	}
	at := p.pos
	v, ok, err := p.number()
	if err != nil {
		return nil, err
	}
	if ok {
		return &Place{Const: int64(v)}, nil
	}
	name := p.ident()
	if name == "" {
		return nil, p.fail(at, 1, "a register, a number or [ADDRESS] is expected here")
	}
	return &Place{Reg: name}, nil
}

func (p *parser) clauses(s *Spec) error {
	for {
		p.space()
		start := p.pos
		if p.pos == len(p.src) {
			return nil
		}
		word := p.ident()
		when := map[string]When{"entry": WhenEntry, "return": WhenReturn, "both": WhenBoth}[word]
		switch {
		case when != 0:
			if s.When != WhenDefault {
				return p.fail(start, len(word), "entry, return and both exclude each other")
			}
			s.When = when
		case word == "if":
			if s.If != nil {
				return p.fail(start, 2, "there is an if already: && joins conditions")
			}
			x, err := p.or()
			if err != nil {
				return err
			}
			s.If = x
		case word == "do":
			for {
				a, err := p.action()
				if err != nil {
					return err
				}
				s.Do = append(s.Do, a)
				if !p.take(",") {
					break
				}
			}
		case word == "limit" || word == "sample":
			kind := ActionLimit
			if word == "sample" {
				if kind = ActionSample; !p.take("1/") {
					return p.fail(p.pos, 1, "sample 1/N is expected here")
				}
			}
			at := p.pos
			n, ok, err := p.number()
			if err != nil {
				return err
			}
			if !ok || n == 0 {
				return p.fail(at, 1, "a number above zero is expected here")
			}
			s.Do = append(s.Do, Action{Kind: kind, Num: n})
		case word != "":
			return p.fail(start, len(word), "%s is not understood here; if, do, entry, return, both, limit and sample are", word)
		default:
			return p.fail(start, 1, "this is not understood")
		}
	}
}

// signals that an action may send, by name; numbers are allowed too.
var signalNames = map[string]uint64{"HUP": 1, "INT": 2, "QUIT": 3, "TRAP": 5, "ABRT": 6, "KILL": 9, "USR1": 10, "SEGV": 11, "USR2": 12, "ALRM": 14, "TERM": 15, "CONT": 18, "STOP": 19, "TSTP": 20}

func (p *parser) action() (a Action, err error) {
	at := p.pos
	switch word := p.ident(); word {
	case "stop":
		return Action{Kind: ActionSignal, Num: 19}, nil
	case "signal":
		if !p.take("(") {
			return a, p.fail(p.pos, 1, "signal(NAME) is expected here")
		}
		at = p.pos
		n, ok, err := p.number()
		if err != nil {
			return a, err
		}
		if !ok {
			n, ok = signalNames[strings.TrimPrefix(p.ident(), "SIG")]
		}
		if !ok || n < 1 || n > 64 {
			return a, p.fail(at, p.pos-at, "no such signal")
		}
		if !p.take(")") {
			return a, p.fail(p.pos, 1, ") is expected here")
		}
		return Action{Kind: ActionSignal, Num: n}, nil
	default:
		return a, p.fail(at, max(1, len(word)), "no such action; stop and signal(NAME) are")
	}
}

func (p *parser) or() (Expr, error)  { return p.chain("||", OpOr, p.and) }
func (p *parser) and() (Expr, error) { return p.chain("&&", OpAnd, p.not) }

func (p *parser) chain(token string, op Op, next func() (Expr, error)) (Expr, error) {
	x, err := next()
	for err == nil {
		p.space()
		at := p.pos
		if !p.take(token) {
			break
		}
		var y Expr
		if y, err = next(); err == nil {
			x = &Binary{Op: op, X: x, Y: y, Pos: at}
		}
	}
	return x, err
}

func (p *parser) not() (Expr, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.fail(p.pos, 1, "too deep")
	}
	defer func() { p.depth-- }()
	p.space()
	at := p.pos
	if p.take("!") {
		x, err := p.not()
		if err != nil {
			return nil, err
		}
		return &Unary{Op: OpNot, X: x, Pos: at}, nil
	}
	if p.take("(") {
		x, err := p.or()
		if err != nil {
			return nil, err
		}
		if !p.take(")") {
			return nil, p.fail(p.pos, 1, ") is expected here")
		}
		return x, nil
	}
	return p.comparison()
}

// operators in the order in which they are tried: longer ones first.
var operators = []struct {
	token string
	op    Op
}{{"==", OpEq}, {"!=", OpNe}, {"<=", OpLe}, {">=", OpGe}, {"!~", OpNotGlob}, {"<", OpLt}, {">", OpGt}, {"~", OpGlob}}

var wordOperators = map[string]Op{"in": OpIn, "has": OpHas, "starts": OpStarts, "ends": OpEnds}

func (p *parser) comparison() (Expr, error) {
	x, err := p.operand()
	if err != nil {
		return nil, err
	}
	p.space()
	at := p.pos
	op := OpInvalid
	for _, o := range operators {
		if p.take(o.token) {
			op = o.op
			break
		}
	}
	if op == OpInvalid && p.peek() == '&' && !strings.HasPrefix(p.src[p.pos:], "&&") {
		p.pos++
		op = OpBits
	}
	if op == OpInvalid {
		word := p.ident()
		if op = wordOperators[word]; op == OpInvalid {
			p.pos = at
			if _, ok := x.(*Ref); ok {
				return x, nil // not zero
			}
			return nil, p.fail(at, 1, "a comparison is expected here")
		}
	}
	y, err := p.operand()
	if err != nil {
		return nil, err
	}
	if l, ok := y.(*Literal); (!ok || !l.IsText) && (op == OpGlob || op == OpNotGlob || op == OpHas || op == OpStarts || op == OpEnds) {
		return nil, p.fail(at, p.pos-at, "text in quotes is expected on the right")
	}
	return &Binary{Op: op, X: x, Y: y, Pos: at}, nil
}

// units of durations, in ns.
var units = map[string]uint64{"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9}

func (p *parser) operand() (Expr, error) {
	c := p.peek()
	at := p.pos
	switch {
	case c == '"' || c == '\'':
		text, err := p.quoted()
		if err != nil {
			return nil, err
		}
		return &Literal{Text: text, IsText: true, Pos: at}, nil
	case c == '{':
		return p.list()
	case c == '-' || c >= '0' && c <= '9':
		return p.literal()
	}
	name := p.ident()
	if name == "" {
		return nil, p.fail(at, 1, "a value is expected here")
	}
	path, err := p.path()
	if err != nil {
		return nil, err
	}
	return &Ref{Name: name, Path: path, Pos: at}, nil
}

func (p *parser) literal() (*Literal, error) {
	p.space()
	at := p.pos
	l := &Literal{Pos: at}
	l.Neg = p.take("-")
	p.space()
	start := p.pos
	for p.pos < len(p.src) && (isIdent(p.src[p.pos], false)) {
		p.pos++
	}
	word := p.src[start:p.pos]
	digits := strings.TrimRight(word, "nuµms")
	unit := word[len(digits):]
	if strings.HasPrefix(word, "0x") || strings.HasPrefix(word, "0X") {
		digits, unit = word, ""
	}
	v, err := strconv.ParseUint(digits, 0, 64)
	if err != nil {
		return nil, p.fail(start, max(1, len(word)), "%q is not a number", word)
	}
	if unit != "" {
		f, ok := units[unit]
		if !ok {
			return nil, p.fail(start+len(digits), len(unit), "%q is no unit; ns, us, ms and s are", unit)
		}
		if v > ^uint64(0)/f {
			return nil, p.fail(start, len(word), "%s is out of range", word)
		}
		v *= f
	}
	if l.Num = v; v == 0 {
		l.Neg = false
	}
	if l.Neg && v > 1<<63 {
		return nil, p.fail(at, p.pos-at, "the number is out of range")
	}
	return l, nil
}

// maxItems bounds a list.
const maxItems = 1 << 16

func (p *parser) list() (*List, error) {
	l := &List{Pos: p.pos}
	p.take("{")
	for {
		if p.take("}") {
			return l, nil
		}
		if len(l.Items) > 0 && !p.take(",") {
			return nil, p.fail(p.pos, 1, "a comma or } is expected here")
		}
		c := p.peek()
		at := p.pos
		if c == '"' || c == '\'' {
			text, err := p.quoted()
			if err != nil {
				return nil, err
			}
			l.Items = append(l.Items, &Literal{Text: text, IsText: true, Pos: at})
		} else {
			x, err := p.literal()
			if err != nil {
				return nil, err
			}
			l.Items = append(l.Items, x)
		}
		if len(l.Items) > maxItems {
			return nil, p.fail(at, 1, "more than %d values", maxItems)
		}
	}
}
