// Package plan resolves probe expressions: which file and which addresses, what to take there and how to read it. It looks
// at files, /proc and the kernel's types, and changes nothing; what it returns is printed by sonde explain, loaded by package
// attach, and kept in recordings to decode them elsewhere.
package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/ctype"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
	"github.com/sonde-trace/sonde/probe"
)

// Env is what expressions are resolved against.
type Env struct {
	Arch     string   // GOARCH of the machine
	Pids     []uint32 // running targets
	Command  string   // path of the program that will be started; empty for none
	StrLimit int      // bytes of strings to take
	// DebugDirs are searched for debug files first, as objfile.Options says.
	DebugDirs []string
	// FetchDebug gives debug files that are nowhere here; nil: nobody is asked.
	FetchDebug func(buildID string) (path string, err error)
	// TracepointFormat returns the text of a tracepoint's format file.
	TracepointFormat func(group, name string) (string, error)
}

// Plan is a resolved expression. The exported fields without a tag are for attaching; those with one are kept in recordings.
type Plan struct {
	Source string        `json:"source"`
	Kind   probe.Kind    `json:"kind"`
	Object string        `json:"object"` // as events name it: libc.so.6, kernel, sched
	Points []Point       `json:"points"`
	Args   []Arg         `json:"args,omitempty"`
	Out    []Arg         `json:"out,omitempty"`  // shown instead of Args once the function has returned
	Ret    *Form         `json:"ret,omitempty"`  // nil: the return value is not known
	Call   string        `json:"call,omitempty"` // the system call that the function is read as; Args is empty then
	Both   bool          `json:"both,omitempty"`
	Return bool          `json:"return,omitempty"` // only returns are recorded
	Notes  []string      `json:"notes,omitempty"`  // what the user should know: skipped functions, arguments not found
	Entry  *bpfgen.Probe `json:"-"`
	Exit   *bpfgen.Probe `json:"-"`
	Spec   *probe.Spec   `json:"-"`
	Path   string        `json:"path,omitempty"`  // of the file with the functions
	Break  *Break        `json:"break,omitempty"` // of break: and watch:
	// AtRet: returns are watched at the instructions that return, not by a replaced return address.
	AtRet   bool         `json:"atret,omitempty"`
	Cond    bool         `json:"cond,omitempty"`  // the expression has a condition, a limit or a sample
	Apart   []*Plan      `json:"-"`               // plans of the functions one by one, which then stand for this one
	Types   *ctype.Table `json:"types,omitempty"` // of arguments whose form is FormTyped
	arch    string
	sizes   map[uint64]uint64 // of functions, by their beginning
	BuildID string            `json:"buildid,omitempty"`
}

// Point is one place of a plan.
type Point struct {
	Name   string `json:"name"`
	Path   string `json:"-"` // as this process opens the file
	Group  string `json:"-"`
	Symbol string `json:"-"`
	Offset uint64 `json:"offset,omitempty"`
	// Start is the offset of the function's beginning, where alone its return can be arranged: elsewhere the return address is not where
	// the kernel would replace it.
	Start uint64 `json:"-"`
	// Returns are the offsets of the instructions that return, where these are watched instead.
	Returns []uint64 `json:"-"`
	// NoReturn is set for functions whose return must not be watched.
	NoReturn  bool   `json:"noreturn,omitempty"`
	Semaphore uint64 `json:"-"`
	// Len is the bytes a debug register watches at Offset, which is an address then.
	Len uint64 `json:"len,omitempty"`
}

// Arg is one value of an event: which slots of the record hold it and how to read them.
type Arg struct {
	Name string `json:"name,omitempty"`
	Slot int    `json:"slot"` // of the record
	Form Form   `json:"form"`
}

// Error is what is wrong with an expression that was well written.
type Error struct {
	Expr string
	Msg  string
	Near []string // names that exist and are like the wrong one
}

func (e *Error) Error() string {
	s := e.Expr + ": " + e.Msg
	for i, n := range e.Near {
		if i == 0 {
			s += "; "
		} else {
			s += ", "
		}
		s += n
	}
	if len(e.Near) > 0 {
		s += "?"
	}
	return s
}

// maxPoints bounds the places of one expression.
const maxPoints = 200_000

// Resolve finds out what an expression means.
func Resolve(spec *probe.Spec, env *Env) (*Plan, error) {
	p := &Plan{Source: spec.Source, Kind: spec.Kind, Spec: spec, arch: env.Arch, Cond: spec.If != nil || len(spec.Do) > 0}
	var err error
	switch spec.Kind {
	case probe.KindFunction:
		err = p.function(env)
	case probe.KindTracepoint:
		err = p.tracepoint(env)
	case probe.KindUSDT:
		err = p.usdt(env)
	case probe.KindKernel:
		err = p.kernel(env)
	case probe.KindBreak, probe.KindWatch:
		err = p.breakpoint(env)
	default:
		err = errors.New("this kind of probe is not for a plan")
	}
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			return nil, err
		}
		return nil, &Error{Expr: spec.Source, Msg: err.Error()}
	}
	for _, q := range append(p.Apart, p) {
		whole := q.inKernel()
		q.again()
		if signals(spec) && (!whole || len(spec.Do) > 1) {
			return nil, &Error{Expr: spec.Source, Msg: "a signal is sent at the hit, in the kernel, where not all of the condition, and no limit or sample, is decided; only comparisons of integer arguments are"}
		}
		for _, a := range spec.Do {
			switch {
			case a.Kind != probe.ActionSignal:
			case q.Entry != nil:
				q.Entry.Signal = int(a.Num)
			case q.Exit != nil:
				q.Exit.Signal = int(a.Num)
			}
		}
	}
	if len(p.Points) > maxPoints {
		return nil, &Error{Expr: spec.Source, Msg: fmt.Sprintf("%d places; at most %d are possible", len(p.Points), maxPoints)}
	}
	return p, nil
}

// signals reports whether a hit sends a signal.
func signals(s *probe.Spec) bool {
	return slices.ContainsFunc(s.Do, func(a probe.Action) bool { return a.Kind == probe.ActionSignal })
}

// taker collects the slots and fetches of one program.
type taker struct {
	words   []bpfgen.Word
	fetches []syscalls.Fetch
	limit   int
}

// slot adds a word and returns its place in the record of a hit.
func (t *taker) slot(w bpfgen.Word) int {
	t.words = append(t.words, w)
	return wire.FirstSlot + len(t.words) - 1
}

func (t *taker) full() bool {
	return wire.KeptSlot+len(t.words) >= wire.MaxSlots || len(t.fetches) >= syscalls.MaxFetches
}
