package event

// Task names a thread at the moment of an event. Pid and Tid are as the initial pid namespace numbers them.
type Task struct {
	Pid  uint32 // the process (thread group) id, getpid(2)
	Tid  uint32 // the thread id, gettid(2)
	Comm string // the thread's name at the time, at most 15 bytes, unescaped; empty when not known
}

// Type says what happened.
type Type uint8

const (
	TypeInvalid Type = iota
	TypeSyscall      // a system call; see Phase
	TypeSignal       // a signal was delivered to the task; Args holds the siginfo
	TypeFork         // the task made a new task: Child
	TypeExec         // the task began to run a new program; OldTid differs from Tid when a side thread did it
	TypeExit         // the task ended: Status
	TypeLost         // events are missing here: Lost
	TypeRename       // the task's comm changed; Task.Comm is the new one
	TypeProbe        // a probe other than a system call was hit, or the function it is on returned; see Phase, Object, Name
)

// Phase says which part of a call an event shows.
type Phase uint8

const (
	PhaseComplete   Phase = iota // entry and return
	PhaseUnfinished              // entry only: other events come before the return
	PhaseResumed                 // the return of a call that was shown unfinished; Resume is the first argument to show
	PhaseEntryOnly               // the call never returned: the task exited, or tracing ended while it was in progress
	PhaseExitOnly                // the entry was not seen: tracing began in the middle, or the kernel refused the call before it started
	PhaseEntryLost               // the entry record is lost (counted in the ledger)
	PhaseExitLost                // the return record is lost (counted in the ledger)
	PhaseHit                     // TypeProbe: a moment, with no return to wait for
	PhaseReturn                  // TypeProbe: the return of a function whose entry was not asked for
)

// Event is one thing that happened. Args and every Data in it are valid only until the sink's call returns.
type Event struct {
	Type  Type
	Phase Phase
	Late  bool   // an event with a later time was delivered before this one
	CPU   uint32 // the CPU on which the record was made
	Time  uint64 // CLOCK_MONOTONIC in ns, of the call's entry for TypeSyscall
	Task  Task

	// TypeSyscall.
	Name     string // the kernel's name of the call, or syscall_0x1ff for a number without one
	ABI      string // "amd64", "i386", "x32", "arm64", "arm"
	Nr       uint32
	IP       uint64 // user instruction pointer; 0 when not captured
	Args     Tree   // the arguments in order; TypeSignal: the siginfo
	NArgs    int    // number of top-level values in Args
	More     bool   // PhaseUnfinished: arguments are missing that come with the return
	Resume   int    // PhaseResumed, PhaseUnfinished: how many arguments the unfinished line showed
	MovedTo  uint32 // PhaseUnfinished: the thread goes on under this id, the leader's, because it executed a program
	Ret      int64  // as the kernel returned it
	RetTree  Tree   // how to print Ret when it is not a plain number; empty otherwise
	RetNote  string // explanation shown after the value in parentheses: flags, Timeout; empty for most
	RetNoted bool   // there is an explanation although it is empty: select found its sets empty
	Injected bool   // the session made up the result, and the call was not run
	Errno    uint16 // the positive error number, 0 for success
	Duration uint64 // ns between entry and return
	Decoded  bool   // false when the call has no entry in the tables: Args are six raw words

	// TypeProbe uses Name (the function, tracepoint or static probe), Args, NArgs, Ret, RetTree, RetNote, Errno, Duration and IP too.
	Object string // the library, program or group of the probe: "libc.so.6", "kernel", "sched"
	Probe  int    // index of the expression that made it

	// Undecided: the probe's condition depends on a value that was not read, or only in part.
	Undecided bool

	// Stack is the user stack at the event, when it was asked for; nil otherwise. Regs are the registers.
	Stack *Stack
	Regs  []Reg

	// TypeSignal.
	Signal uint8

	// TypeFork.
	Child    Task
	Followed bool   // the child is traced too
	Flags    uint64 // clone flags

	// TypeExec.
	OldTid uint32

	// TypeExit.
	Status    uint32 // wait(2) status word: exit code << 8, or signal | 0x80 when a core was dumped
	GroupDead bool   // the last thread of its process

	// TypeLost.
	Lost Lost
}

// Stack is a call stack, the innermost frame first.
type Stack struct {
	ID     uint64 // equal stacks have equal ids within a session
	Frames []Frame
	// End says why the stack ends: empty when it is complete, else "cut at 127 frames", "no unwind row at libfoo.so+0x12", …
	End string
}

// Frame is one function on a stack. Frames that were inlined come as frames of their own, before the one that holds them.
type Frame struct {
	Addr    uint64 // in the task's memory; the return address for all but the innermost
	Module  string // path of the mapped file, "[vdso]", "[jit]", "[kernel]"; empty when nothing is mapped there
	Offset  uint64 // in that file
	Func    string // demangled; empty when no name is known
	FuncOff uint64 // Addr - start of Func
	File    string // source; empty when not known
	Line    int
	Inlined bool
	Guessed bool // found without unwind data
}

// Reg is one register.
type Reg struct {
	Name  string
	Value uint64
}

// Lost counts events that could not be delivered, by cause.
type Lost struct {
	Cause string // "ring full", "scratch busy", "follow set full", …
	Count uint64
}

// Ledger is the account of a session: Made = Shown + Filtered + the sum of Lost. Calls count once, whatever number
// of lines shows them.
type Ledger struct {
	Made     uint64
	Shown    uint64
	Filtered uint64
	Lost     []Lost
}

// LostTotal is the sum over all causes.
func (l *Ledger) LostTotal() uint64 {
	var n uint64
	for _, c := range l.Lost {
		n += c.Count
	}
	return n
}

// Balanced reports whether the account adds up.
func (l *Ledger) Balanced() bool { return l.Made == l.Shown+l.Filtered+l.LostTotal() }
