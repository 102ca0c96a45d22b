package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/constant"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/probe"
	"github.com/sonde-trace/sonde/tracer"
)

// traceFlags are the flags of trace and record; those of output alone are in outputFlags.
type traceFlags struct {
	exprs    []string
	pids     []string
	follow   int
	strLimit string
	verbose  bool
	tree     bool
	tids     []string
	uids     []string
	comms    []string
	cgroups  []string
	user     string
	env      []string
	argv0    string
	buffer   string
	onLoss   string
	ledger   string
	stack    int
	depth    int
	regs     []string
	debug    []string
	out      outputFlags
}

func traceCommand() *cobra.Command {
	f := &traceFlags{}
	cmd := &cobra.Command{
		Use:   "trace [flags] [--] COMMAND [ARGUMENT...]",
		Short: "print the system calls of a command, or of running tasks",
		Long: `trace prints the system calls of a command from its very first instruction, or of running
tasks (-p), in the shape of strace's lines and with the meaning of strace's flags. The target
is not stopped and does not notice. The output goes to stderr, or to FILE with -o.

The exit status is the command's (it dies by the same signal, too); 1 when sonde failed, 2 for
a wrong command line, 126 and 127 for a command that cannot be executed or found.`,
		Example: `  sonde trace -- ls /
  sonde trace -f -e %file -o calls.txt -- make
  sonde trace -p 4711 -e read,write -T
  sonde trace --json -e openat -- ls > calls.jsonl`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args, nil) },
	}
	f.register(cmd)
	f.out.register(cmd.Flags())
	return cmd
}

// registerChoice registers what chooses among calls; replay has these too.
func (f *traceFlags) registerChoice(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.VarP(&exprFlag{f: f}, "expr", "e", "`EXPR`: a set of calls, SET or trace=SET: a list of calls, %classes, /regexes, !SET; or a probe: OBJECT:FUNCTION(…), tp:GROUP:NAME, usdt:OBJECT:NAME, kernel:FUNCTION(…); also signal=, status=, quiet=, decode-fds=, …")
	fs.StringVarP(&f.strLimit, "string-limit", "s", "", "show at most `N` bytes of strings (256; at most 65536)")
	fs.BoolVarP(&f.verbose, "no-abbrev", "v", false, "show structures in full")
	// Long forms of strace that say the same as -e NAME=….
	for _, name := range []string{"trace", "signal", "status", "abbrev", "verbose", "raw", "decode-pids", "trace-fds", "inject", "fault"} {
		fs.Var(&exprFlag{f: f, name: name}, name, "same as -e "+name+"=")
	}
	fs.Var(&exprFlag{f: f, name: "quiet"}, "quiet", "same as -e quiet=")
	fs.Lookup("quiet").NoOptDefVal = "attach,personality"
	cmd.RegisterFlagCompletionFunc("expr", completeSyscalls)
}

func (f *traceFlags) register(cmd *cobra.Command) {
	f.registerChoice(cmd)
	fs := cmd.Flags()
	fs.SetInterspersed(false)
	fs.CountVarP(&f.follow, "follow-forks", "f", "trace children too; -ff also writes one file a thread (with -o)")
	fs.VarP((*list)(&f.pids), "attach", "p", "trace the running process `PID`; repeatable, lists")
	fs.BoolVar(&f.tree, "tree", false, "with -p: all present descendants too, and their children (-f)")
	fs.Var((*list)(&f.tids), "tid", "only the threads `TID`; !TID excludes")
	fs.Var((*list)(&f.uids), "uid", "only tasks of the user `UID` or name; !UID excludes")
	fs.Var((*list)(&f.comms), "comm", "only tasks named `NAME`; !NAME excludes")
	fs.Var((*list)(&f.cgroups), "cgroup", "only tasks in the cgroup `PATH`; !PATH excludes")
	fs.StringVarP(&f.user, "user", "u", "", "run the command as `USER`")
	fs.VarP((*list)(&f.env), "env", "E", "set `VAR=VALUE` in the command's environment, or remove VAR")
	fs.StringVar(&f.argv0, "argv0", "", "give the command `NAME` as its argv[0]")
	fs.StringVar(&f.buffer, "buffer", "", "`SIZE` of the buffer in the kernel, a power of two: 32MiB (8MiB)")
	fs.StringVar(&f.ledger, "ledger", "run", "account of calls made, shown, filtered and lost at the end: for the run, or for each task")
	fs.CountVarP(&f.stack, "stack-trace", "k", "print the call stack after each event; -kk with inlined functions and source lines")
	fs.StringSliceVar(&f.regs, "regs", nil, "print the registers `NAME`,… after each event; all of them without names")
	fs.Lookup("regs").NoOptDefVal = "all"
	fs.IntVar(&f.depth, "stack-depth", tracer.DefaultStackDepth, "at most `N` frames of a stack (1 to 512)")
	fs.Var((*list)(&f.debug), "debuginfo", "look for debug files in `DIR` first; repeatable")
	fs.StringVar(&f.onLoss, "on-loss", "warn", "what to do when records do not fit: warn, stop, or block (the target waits)")
	// Methods of ptrace that have no meaning here are accepted, so that scripts go on working.
	for _, name := range []string{"seccomp-bpf", "debug"} {
		fs.Bool(name, false, "accepted for strace's sake; has no effect")
		fs.MarkHidden(name)
	}
	cmd.RegisterFlagCompletionFunc("attach", completePids)
	cmd.RegisterFlagCompletionFunc("on-loss", cobra.FixedCompletions([]string{"warn", "stop", "block"}, cobra.ShellCompDirectiveNoFileComp))
}

// exprFlag is -e, or a long form of -e NAME=VALUE. Both add to one list, in the order of the command line.
type exprFlag struct {
	f    *traceFlags
	name string
}

func (x *exprFlag) String() string { return "" }
func (x *exprFlag) Type() string   { return "SET" }
func (x *exprFlag) Set(v string) error {
	if x.name != "" {
		v = x.name + "=" + v
	}
	x.f.exprs = append(x.f.exprs, v)
	return nil
}

// A list is a flag that may be repeated. The library's own makes a CSV writer for each such flag at each start.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Type() string       { return "stringArray" }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

func completePids(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			comm, _ := os.ReadFile("/proc/" + e.Name() + "/comm")
			out = append(out, e.Name()+"\t"+strings.TrimSpace(string(comm)))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// qualifiers are what -e says beside the set of calls.
type qualifiers struct {
	sets    []string // of calls
	probes  []*probe.Spec
	signals map[int]bool
	sigSet  bool
	status  map[string]bool
	quiet   map[string]bool
	// Calls that are not shown in full, of which structures are shown, and of which nothing but numbers is; nil: not said.
	abbrev, verbose, raw *probe.Selection
	inject               []*probe.Injection
	fds                  func(fd int) bool // -e fd=; nil: not said
}

// detail is how much of a call is shown; nil when all are shown alike.
func (q *qualifiers) detail() func(abi string, nr uint32) tracer.Detail {
	if q.abbrev == nil && q.verbose == nil && q.raw == nil {
		return nil
	}
	return func(abi string, nr uint32) tracer.Detail {
		switch {
		case q.raw != nil && q.raw.Has(abi, nr):
			return tracer.DetailRaw
		case q.verbose != nil && !q.verbose.Has(abi, nr):
			return tracer.DetailPlain
		case q.abbrev != nil && !q.abbrev.Has(abi, nr):
			return tracer.DetailFull
		}
		return tracer.DetailDefault
	}
}

var statuses = []string{"successful", "failed", "unfinished", "unavailable", "detached"}

func (f *traceFlags) qualify(family []*syscalls.ABI) (*qualifiers, error) {
	q := &qualifiers{}
	for _, e := range f.exprs {
		if probe.IsProbe(e) {
			spec, err := probe.Parse(e)
			if err != nil {
				return nil, err
			}
			q.probes = append(q.probes, spec)
			continue
		}
		name, value, ok := strings.Cut(e, "=")
		if !ok || strings.HasPrefix(e, "/") {
			q.sets = append(q.sets, e)
			continue
		}
		switch name {
		case "trace", "t":
			q.sets = append(q.sets, value)
		case "signal", "signals", "s":
			set, err := signalSet(value)
			if err != nil {
				return nil, err
			}
			q.signals, q.sigSet = set, true
		case "status":
			set, err := nameSet(value, statuses, "status")
			if err != nil {
				return nil, err
			}
			q.status = set
		case "quiet", "silent", "silence", "q":
			set, err := nameSet(value, []string{"attach", "exit", "path-resolution", "personality", "thread-execve"}, "message")
			if err != nil {
				return nil, err
			}
			q.quiet = set
		case "decode-fds", "decode-fd":
			if err := f.out.decodeFDs(value); err != nil {
				return nil, err
			}
		case "decode-pids", "decode-pid":
			set, err := nameSet(value, []string{"comm", "pidns"}, "kind of decoding")
			if err != nil {
				return nil, err
			}
			if set["pidns"] {
				return nil, usagef("-e %s: ids of other pid namespaces are not shown yet; decode-pids=comm is", e)
			}
			f.out.comms = set["comm"]
		case "abbrev", "a", "verbose", "v", "raw", "x":
			sel, err := probe.ParseSyscalls([]string{value}, family)
			if err != nil {
				return nil, err
			}
			switch name[0] {
			case 'a':
				q.abbrev = sel
			case 'v':
				q.verbose = sel
			default:
				q.raw = sel
			}
		case "trace-fd", "trace-fds", "fd", "fds":
			set, err := numberSet(value)
			if err != nil {
				return nil, err
			}
			q.fds = set
		case "inject", "fault":
			in, err := probe.ParseInjection(value, name == "fault", family)
			if err != nil {
				return nil, err
			}
			q.inject = append(q.inject, in)
		case "read", "reads", "r", "write", "writes", "w", "kvm":
			return nil, usagef("-e %s: not supported; -s N shows up to 65536 bytes of every buffer", e)
		default:
			return nil, usagef("-e %s: no such qualifier; trace=, signal=, status=, quiet=, abbrev=, raw=, decode-fds=, decode-pids= are known", e)
		}
	}
	return q, nil
}

// nameSet reads "a,b", "!a", "all", "none" over a closed list of names.
func nameSet(value string, names []string, what string) (map[string]bool, error) {
	set := make(map[string]bool)
	list, not := strings.CutPrefix(value, "!")
	for _, n := range strings.Split(list, ",") {
		switch {
		case n == "all":
			for _, x := range names {
				set[x] = true
			}
		case n == "none":
		case slices.Contains(names, n) || what == "message" && (n == "attaching" || n == "exits" || n == "personality"):
			set[strings.TrimSuffix(n, "s")] = true
			set[n] = true
		default:
			return nil, usagef("%s: no such %s; %s are known", n, what, strings.Join(names, ", "))
		}
	}
	if not {
		inverse := make(map[string]bool)
		for _, x := range names {
			if !set[x] {
				inverse[x] = true
			}
		}
		return inverse, nil
	}
	return set, nil
}

// numberSet reads a list of descriptors: "0,3", "!9", "all", "none".
func numberSet(value string) (func(int) bool, error) {
	list, not := strings.CutPrefix(value, "!")
	set, all := make(map[int]bool), false
	for _, item := range strings.Split(list, ",") {
		switch item {
		case "", "none":
			continue
		case "all":
			all = true
			continue
		}
		n, err := strconv.ParseUint(item, 10, 31)
		if err != nil {
			return nil, usagef("%s: not a descriptor; a number from 0 on is needed", item)
		}
		set[int(n)] = true
	}
	return func(fd int) bool { return (all || set[fd]) != not }, nil
}

func signalSet(value string) (map[int]bool, error) {
	set := make(map[int]bool)
	list, not := strings.CutPrefix(value, "!")
	for _, n := range strings.Split(list, ",") {
		switch n {
		case "all":
			for i := 1; i <= constant.SIGRTMAX; i++ {
				set[i] = true
			}
			continue
		case "none":
			continue
		}
		sig, ok := constant.SignalNum(n)
		if !ok {
			return nil, usagef("%s: no such signal", n)
		}
		set[sig] = true
	}
	if not {
		for i := 1; i <= constant.SIGRTMAX; i++ {
			set[i] = !set[i]
		}
	}
	return set, nil
}

// choose turns the flags that choose among calls and say how much of them is shown into options, for a machine of the
// architecture arch.
func (f *traceFlags) choose(arch string) (o tracer.Options, q *qualifiers, err error) {
	family := syscalls.Family(arch)
	if q, err = f.qualify(family); err != nil {
		return o, nil, err
	}
	sel, err := probe.ParseSyscalls(q.sets, family)
	if err != nil {
		return o, nil, err
	}
	if o.Probes = q.probes; len(q.probes) > 0 && len(q.sets) == 0 {
		o.Select = func(string, uint32, string) bool { return false }
	} else if !sel.All() {
		o.Select = func(abi string, nr uint32, _ string) bool { return sel.Has(abi, nr) }
	}
	if f.strLimit != "" {
		n, err := strconv.Atoi(f.strLimit)
		if err != nil || n < 0 {
			return o, nil, usagef("-s %s: a number of bytes is needed", f.strLimit)
		}
		if n > 65536 {
			return o, nil, usagef("-s %s: at most 65536 bytes of a string can be shown", f.strLimit)
		}
		o.StrLimit = n
		if n == 0 {
			o.StrLimit = 1
			f.out.noStrings = true
		}
	}
	o.Verbose = f.verbose
	if q.status != nil || f.out.successful || f.out.failed {
		status := q.status
		switch {
		case f.out.successful && f.out.failed:
			return o, nil, usagef("-z and -Z exclude each other")
		case f.out.successful:
			status = map[string]bool{"successful": true}
		case f.out.failed:
			status = map[string]bool{"failed": true}
		}
		o.Whole = true
		o.Filter = and(o.Filter, func(e *event.Event) bool { return status[statusOf(e)] })
	}
	o.Inject = q.inject
	o.Detail, o.Limit, o.Comms = q.detail(), f.out.limit, f.out.comms
	if len(f.out.paths) > 0 || q.fds != nil {
		o.FDPaths = len(f.out.paths) > 0
		o.Filter, o.FilterFull = and(o.Filter, fileFilter(f.out.paths, q.fds)), true
		o.Whole = true
	}
	return o, q, nil
}

// options turns flags into the session's options; nothing has been started or opened.
func (f *traceFlags) options(args []string) (o tracer.Options, q *qualifiers, err error) {
	if o, q, err = f.choose(runtime.GOARCH); err != nil {
		return o, nil, err
	}
	if f.buffer != "" {
		if o.RingSize, err = parseSize(f.buffer); err != nil {
			return o, nil, usagef("--buffer %s: %v", f.buffer, err)
		}
	}
	switch f.ledger {
	case "run":
	case "task":
		o.PerTask = true
	default:
		return o, nil, usagef("--ledger %s: run or task are possible", f.ledger)
	}
	o.Regs = f.regs
	if f.stack > 0 {
		if f.depth < 1 || f.depth > 512 {
			return o, nil, usagef("--stack-depth %d: 1 to 512 frames are possible", f.depth)
		}
		o.StackDepth, o.StackLines = f.depth, f.stack > 1
	}
	o.DebugDirs, o.FetchDebug = f.debug, fetchDebug()
	switch f.onLoss {
	case "warn":
	case "stop":
		o.OnLoss = tracer.LossStop
	case "block":
		o.OnLoss = tracer.LossBlock
	default:
		return o, nil, usagef("--on-loss %s: warn, stop or block are possible", f.onLoss)
	}
	o.Follow = f.follow > 0 || f.tree
	o.Signals = !q.sigSet || len(q.signals) > 0
	o.FDPaths = o.FDPaths || f.out.fds > 0
	if err := f.targets(&o); err != nil {
		return o, nil, err
	}
	if len(args) > 0 {
		if o.Command, err = f.command(args); err != nil {
			return o, nil, err
		}
	} else if f.user != "" || len(f.env) > 0 || f.argv0 != "" {
		return o, nil, usagef("-u, -E and --argv0 are for a command, and there is none")
	}
	t := &o.Target
	if o.Command == nil && len(t.Pids)+len(t.Tids)+len(t.UIDs)+len(t.Comms)+len(t.Cgroups) == 0 {
		return o, nil, usagef("nothing to trace: a COMMAND or -p PID is needed")
	}
	return o, q, nil
}

func and(a, b func(*event.Event) bool) func(*event.Event) bool {
	if a == nil {
		return b
	}
	return func(e *event.Event) bool { return a(e) && b(e) }
}

// statusOf is strace's word for how a call ended.
func statusOf(e *event.Event) string {
	switch {
	case e.Phase == event.PhaseEntryOnly || e.Phase == event.PhaseUnfinished:
		return "unfinished"
	case e.Phase == event.PhaseExitLost || e.Phase == event.PhaseEntryLost:
		return "unavailable"
	case e.Errno != 0:
		return "failed"
	}
	return "successful"
}

// fileFilter passes calls that name one of the files, by path or by descriptor, or one of the descriptors.
func fileFilter(paths []string, fds func(int) bool) func(*event.Event) bool {
	set := make(map[string]bool)
	for _, p := range paths {
		set[p] = true
		if abs, err := filepath.Abs(p); err == nil {
			set[abs] = true
		}
		if real, err := filepath.EvalSymlinks(p); err == nil {
			if real, err = filepath.Abs(real); err == nil {
				set[real] = true
			}
		}
	}
	return func(e *event.Event) bool {
		if e.Type != event.TypeSyscall {
			return true
		}
		first := 0
		if e.Name == "symlink" || e.Name == "symlinkat" {
			first = 1 // the text that the link holds names no file yet
		}
		for i := first; i < len(e.Args); i++ {
			n := &e.Args[i]
			switch {
			case n.Kind == event.KindString && n.Attr&event.AttrPath != 0:
				if set[string(n.Data)] {
					return true
				}
			case n.Kind == event.KindFD:
				if name, _ := event.SplitFD(n.Data); set[string(name)] {
					return true
				}
			}
			if n.Kind == event.KindFD && fds != nil && int32(n.Num) >= 0 && fds(int(int32(n.Num))) {
				return true
			}
		}
		return false
	}
}

// parseSize reads "33554432", "32M", "32MiB".
func parseSize(s string) (int, error) {
	digits := strings.TrimRight(s, "kKmMgGiIbB")
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("a size is needed, like 32MiB")
	}
	shift := map[string]uint{"": 0, "b": 0, "k": 10, "kib": 10, "kb": 10, "m": 20, "mib": 20, "mb": 20, "g": 30, "gib": 30, "gb": 30}
	sh, ok := shift[strings.ToLower(s[len(digits):])]
	if !ok {
		return 0, fmt.Errorf("a size is needed, like 32MiB")
	}
	if n<<sh > 1<<30 || n == 0 {
		return 0, fmt.Errorf("from one page to 1 GiB are possible")
	}
	size := int(n << sh)
	if size&(size-1) != 0 || size < os.Getpagesize() {
		up := os.Getpagesize()
		for up < size {
			up <<= 1
		}
		return 0, fmt.Errorf("a power of two of at least %d is needed; %d is the next", os.Getpagesize(), up)
	}
	return size, nil
}
