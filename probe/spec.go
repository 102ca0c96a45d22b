package probe

// Kind is what a [Spec] probes.
type Kind uint8

const (
	KindInvalid    Kind = iota
	KindSyscall         // a set of system calls, in strace's notation: Spec.Source is what ParseSyscalls takes
	KindFunction        // a function or an address in a program or library: Object, Point
	KindKernel          // a kernel function: Point
	KindTracepoint      // a kernel tracepoint: Object is its group
	KindUSDT            // a static probe of a program or library: Object, Provider (optional), Point
	KindBreak           // a hardware breakpoint on an instruction
	KindWatch           // a hardware breakpoint on data: Mode, Width
)

// Match is how Point.Text names functions.
type Match uint8

const (
	MatchExact  Match = iota // one name
	MatchGlob                // shell wildcards over the whole name: * ? [a-z]
	MatchRegexp              // a regular expression, RE2, found anywhere in the name
	MatchNumber              // no name: Point.Offset alone, an offset in the file; an address in a running process when there is no object
)

// Point is the place within an object.
type Point struct {
	Match  Match
	Text   string // the name, as written by the user, without quotes
	Offset int64  // added to the address of the name; with MatchNumber the offset itself
}

// When says at which moments of a function a probe fires.
type When uint8

const (
	WhenDefault When = iota // both for functions, where a return can be probed; entry for anything with an offset
	WhenEntry
	WhenReturn
	WhenBoth // one event with arguments, return value and duration
)

// Spec is one probe expression. String gives text that parses to an equal Spec.
type Spec struct {
	Source   string // as the user wrote it
	Kind     Kind
	Object   string // file or library as written: libc, libssl.so.3, ./app, /usr/bin/x; a tracepoint's group
	Provider string // of a USDT probe
	Point    Point
	When     When
	Args     []Arg  // what to show; meaningful when Typed
	Typed    bool   // the user wrote an argument list, perhaps an empty one; otherwise arguments are found out
	Ret      *Type  // type of the return value; nil: found out
	Mode     string // KindWatch: "w", "r", "rw", "x"
	Width    int    // KindWatch: bytes, 0: the size of the type
	If       Expr   // nil: always
	Do       []Action
}

// Arg is one value to show. Without Type and Place it is the parameter of that name, or the next parameter of the function.
type Arg struct {
	Name  string
	Path  []Step // members below the parameter, to show instead of all of it: f_path.dentry, v[3]
	Type  *Type  // nil: found out
	Place *Place // nil: where the calling convention puts the next argument
}

// Step goes from a value to a part of it.
type Step struct {
	Member string // a.b, a->b (the same: pointers are followed)
	Index  *int64 // a[3]
}

// Type is a type as written in an expression.
type Type struct {
	// Name is u8 u16 u32 u64 i8 i16 i32 i64 x8 x16 x32 x64 int uint long ulong char bool f32 f64 ptr str bytes, the name of a flag set or
	// enumeration (open_flags), or a C type ("struct point", "size_t", "std::string").
	Name     string
	Pointers int    // stars behind the name
	Array    bool   // [] or [n] behind the name
	Count    *Place // elements of the array or bytes of the buffer; nil with Array: ends at a zero element
}

// Place says where a value is: a constant, a register, another argument (in counts), or memory at an address.
type Place struct {
	Reg   string // register, by ABI or machine name: x0, rdi, arg1, sp, pc, ret
	Arg   string // name of another argument
	Const int64  // a number; added to Reg, Arg or Deref where one is there
	Minus *Place // subtracted
	Plus  *Place // added
	Deref *Place // the word in memory at this address: [ ... ]
	Width int    // of Deref, in bytes: 1, 2, 4, 8; 0 is 8
}

// Op is an operator of an expression.
type Op uint8

const (
	OpInvalid Op = iota
	OpOr         // ||
	OpAnd        // &&
	OpNot        // !
	OpEq         // ==
	OpNe         // !=
	OpLt         // <
	OpLe         // <=
	OpGt         // >
	OpGe         // >=
	OpBits       // & : any of these bits is set
	OpGlob       // ~ "pattern"
	OpNotGlob    // !~ "pattern"
	OpIn         // in {a, b}, in "libfoo.so"
	OpHas        // has "text"
	OpStarts     // starts "text"
	OpEnds       // ends "text"
)

// Expr is a predicate or an operand of one: *Unary, *Binary, *Ref, *Literal, *List.
type Expr interface{ expr() }

// Unary is !X.
type Unary struct {
	Op  Op
	X   Expr
	Pos int // byte offset in the source, for messages
}

// Binary is X op Y.
type Binary struct {
	Op   Op
	X, Y Expr
	Pos  int
}

// Ref names a value of the event: an argument (with a path), or ret, errno, duration, pid, tid, uid, comm, caller, stack.
type Ref struct {
	Name string
	Path []Step
	Pos  int
}

// Literal is a constant: a number (durations are in ns), or text.
type Literal struct {
	Text   string
	IsText bool
	Num    uint64
	Neg    bool // Num is the absolute value of a negative number
	Pos    int
}

// List is {a, b, c}.
type List struct {
	Items []*Literal
	Pos   int
}

func (*Unary) expr()   {}
func (*Binary) expr()  {}
func (*Ref) expr()     {}
func (*Literal) expr() {}
func (*List) expr()    {}

// ActionKind is what a probe does at a hit, beside being shown.
type ActionKind uint8

const (
	ActionInvalid ActionKind = iota
	ActionSignal             // send the task's process a signal: Num; stop is SIGSTOP
	ActionLimit              // show the first Num hits, then detach
	ActionSample             // show one of Num hits
)

// Action is one action with its number.
type Action struct {
	Kind ActionKind
	Num  uint64
}
