package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/sink"
	"github.com/sonde-trace/sonde/tracer"
)

// outputFlags say how events are shown; trace and replay have them.
type outputFlags struct {
	file       string
	appendFile bool
	json       bool
	column     int
	stamps     int
	stampSpec  string
	relative   bool
	relSpec    string
	times      bool
	timesSpec  string
	ip         bool
	numbers    bool
	names      bool
	hex        int
	hexSpec    string
	symbols    string
	fds        int
	fdKinds    map[string]bool // of --decode-fds; nil: -y and -yy decide
	fdsSpec    string
	comms      bool
	limit      uint64
	quiet      int
	successful bool
	failed     bool
	paths      []string
	colour     string
	separate   bool
	alwaysPids bool
	noStrings  bool
	summary    summaryFlags
}

// stampFlag counts -t, and takes a format as --absolute-timestamps does.
type stampFlag struct{ o *outputFlags }

func (s *stampFlag) String() string { return "" }
func (s *stampFlag) Type() string   { return "" }
func (s *stampFlag) Set(v string) error {
	if v == "+1" {
		s.o.stamps++
		return nil
	}
	s.o.stampSpec = strings.TrimPrefix(v, "=")
	return nil
}

// stampWords gathers the words of --absolute-timestamps: a later one adds to those before.
type stampWords struct{ o *outputFlags }

func (s *stampWords) String() string { return "" }
func (s *stampWords) Type() string   { return "string" }
func (s *stampWords) Set(v string) error {
	if s.o.stampSpec != "" {
		v = s.o.stampSpec + "," + v
	}
	s.o.stampSpec = v
	return nil
}

type summaryFlags struct {
	only, also bool
	sort       string
	columns    string
	wall       bool
	overhead   string
}

func (o *outputFlags) register(fs *pflag.FlagSet) {
	fs.StringVarP(&o.file, "output", "o", "", "write to `FILE` (mode 0600) instead of stderr; \"|COMMAND\" pipes to a command")
	fs.BoolVarP(&o.appendFile, "output-append-mode", "A", false, "with -o: add to the file")
	fs.BoolVar(&o.separate, "output-separately", false, "with -o: one file a thread, FILE.TID")
	fs.BoolVar(&o.alwaysPids, "always-show-pid", false, "show the task's id in every line")
	fs.BoolVar(&o.json, "json", false, "one JSON object a line; to stdout without -o")
	fs.IntVarP(&o.column, "columns", "a", 40, "put results at column `N`")
	fs.VarP(&stampFlag{o}, "timestamps", "t", "time of day; -tt with microseconds, -ttt as seconds since 1970; or =`FORMAT,PRECISION`")
	fs.Lookup("timestamps").NoOptDefVal = "+1"
	fs.Var(&stampWords{o}, "absolute-timestamps", "`FORMAT[,PRECISION]`: none, time, unix; s, ms, us, ns")
	fs.Lookup("absolute-timestamps").NoOptDefVal = "time"
	fs.BoolVarP(&o.relative, "relative", "r", false, "time since the line before")
	fs.StringVar(&o.relSpec, "relative-timestamps", "", "as -r with a `PRECISION`: s, ms, us, ns")
	fs.Lookup("relative-timestamps").NoOptDefVal = "us"
	fs.BoolVarP(&o.times, "times", "T", false, "time spent in each call")
	fs.StringVar(&o.timesSpec, "syscall-times", "", "as -T with a `PRECISION`: s, ms, us, ns")
	fs.Lookup("syscall-times").NoOptDefVal = "us"
	fs.BoolVarP(&o.ip, "instruction-pointer", "i", false, "instruction pointer at the call")
	fs.BoolVarP(&o.numbers, "syscall-number", "n", false, "number of the call")
	fs.BoolVarP(&o.names, "arg-names", "N", false, "names of the arguments")
	fs.CountVarP(&o.hex, "hex", "x", "odd strings in hexadecimal; -xx all strings")
	fs.StringVar(&o.hexSpec, "strings-in-hex", "", "`WHICH` strings: none, non-ascii, non-ascii-chars (those bytes alone), all")
	fs.Lookup("strings-in-hex").NoOptDefVal = "all"
	fs.StringVarP(&o.symbols, "const-print-style", "X", "abbrev", "named numbers: raw, abbrev or verbose")
	fs.CountVarP(&o.fds, "fd-paths", "y", "what descriptors refer to; -yy in detail")
	fs.StringVar(&o.fdsSpec, "decode-fds", "", "`SET` of path, socket, dev, pidfd, eventfd, signalfd, all, none")
	fs.Lookup("decode-fds").NoOptDefVal = "path"
	fs.BoolVarP(&o.comms, "comms", "Y", false, "names beside the ids of tasks (--decode-pids=comm)")
	fs.CountVarP(&o.quiet, "quiet-messages", "q", "fewer messages; -qq no exits of tasks, -qqq nothing but lines")
	fs.BoolVarP(&o.successful, "successful-only", "z", false, "only calls that succeed")
	fs.BoolVarP(&o.failed, "failed-only", "Z", false, "only calls that fail")
	fs.VarP((*list)(&o.paths), "trace-path", "P", "only calls that name `FILE`, by path or descriptor")
	fs.Uint64Var(&o.limit, "syscall-limit", 0, "end after `N` calls were shown; the targets go on")
	fs.StringVar(&o.colour, "color", "auto", "auto, always or never")
	fs.BoolVarP(&o.summary.only, "summary-only", "c", false, "a table of counts and times, no lines")
	fs.BoolVarP(&o.summary.also, "summary", "C", false, "lines, and the table at the end")
	fs.StringVarP(&o.summary.sort, "summary-sort-by", "S", "time", "sort the table by `COLUMN`: time, calls, errors, name, nothing, …")
	fs.StringVarP(&o.summary.columns, "summary-columns", "U", "", "`COLUMNS` of the table")
	fs.BoolVarP(&o.summary.wall, "summary-wall-clock", "w", false, "accepted: times are always wall-clock time")
	fs.StringVarP(&o.summary.overhead, "summary-syscall-overhead", "O", "", "`TIME` to take off each call")
}

// decodeFDs reads the values of -e decode-fds=.
func (o *outputFlags) decodeFDs(value string) error {
	set, err := nameSet(value, []string{"path", "socket", "dev", "pidfd", "eventfd", "signalfd"}, "kind of descriptor")
	if err != nil {
		return err
	}
	o.fdKinds, o.fds = set, 0
	if len(set) > 0 {
		o.fds = 1 // they are recorded
	}
	return nil
}

// precisions are digits of fractions of seconds.
var precisions = map[string]int{"s": -1, "ms": 3, "us": 6, "ns": 9}

// resolve checks the flags that have an inner language.
func (o *outputFlags) resolve() (t sink.TextOptions, err error) {
	t.Column = o.column
	if o.column < 0 || o.column > 1000 {
		return t, usagef("-a %d: 0 to 1000 columns are possible", o.column)
	}
	if t.Column == 0 {
		t.Column = 1
	}
	switch o.stamps {
	case 0:
	case 1:
		t.Stamp = sink.StampClock
	case 2:
		t.Stamp, t.Digits = sink.StampClock, 6
	default:
		t.Stamp, t.Digits = sink.StampUnix, 6
	}
	if o.stampSpec != "" {
		for _, s := range strings.Split(o.stampSpec, ",") {
			format, ok := strings.CutPrefix(s, "format:")
			precision, isP := strings.CutPrefix(s, "precision:")
			if !ok {
				format = s
			}
			if !isP {
				precision = s
			}
			switch d, known := precisions[precision]; {
			case format == "none":
				t.Stamp = sink.StampNone
			case format == "time":
				t.Stamp = sink.StampClock
			case format == "unix":
				t.Stamp = sink.StampUnix
			case known:
				t.Digits = d
				if t.Stamp == sink.StampNone {
					t.Stamp = sink.StampClock
				}
			default:
				return t, usagef("--absolute-timestamps=%s: none, time or unix, and s, ms, us or ns are possible", o.stampSpec)
			}
		}
	}
	t.Relative, t.RelDigits = o.relative, 6
	if o.relSpec != "" {
		d, ok := precisions[o.relSpec]
		if !ok {
			return t, usagef("--relative-timestamps=%s: s, ms, us or ns are possible", o.relSpec)
		}
		t.Relative, t.RelDigits = true, d
	}
	t.Times, t.TimeDigits = o.times, 6
	if o.timesSpec != "" {
		d, ok := precisions[o.timesSpec]
		if !ok {
			return t, usagef("--syscall-times=%s: s, ms, us or ns are possible", o.timesSpec)
		}
		t.Times, t.TimeDigits = true, d
	}
	t.IP, t.Numbers, t.Names, t.Comms = o.ip, o.numbers, o.names, o.comms
	t.ParamName = paramName
	switch {
	case o.hex == 1:
		t.Hex = sink.HexOdd
	case o.hex > 1:
		t.Hex = sink.HexAlways
	}
	switch o.hexSpec {
	case "":
	case "none":
		t.Hex = sink.HexNever
	case "non-ascii":
		t.Hex = sink.HexOdd
	case "non-ascii-chars":
		t.Hex = sink.HexBytes
	case "all":
		t.Hex = sink.HexAlways
	default:
		return t, usagef("--strings-in-hex=%s: none, non-ascii, non-ascii-chars or all are possible", o.hexSpec)
	}
	switch o.symbols {
	case "abbrev":
	case "raw":
		t.Symbols = sink.SymbolsRaw
	case "verbose":
		t.Symbols = sink.SymbolsVerbose
	default:
		return t, usagef("-X %s: raw, abbrev or verbose are possible", o.symbols)
	}
	if o.fdsSpec != "" {
		if err := o.decodeFDs(o.fdsSpec); err != nil {
			return t, err
		}
	}
	t.FDs, t.Devices = o.fds > 0, o.fds > 1
	if o.fdKinds != nil {
		t.FDs, t.Devices, t.Sockets = o.fdKinds["path"], o.fdKinds["dev"], o.fdKinds["socket"]
	}
	t.NoExits = o.quiet >= 2
	t.NoSuperseded = o.quiet >= 3
	switch o.colour {
	case "auto", "always", "never":
	default:
		return t, usagef("--color %s: auto, always or never are possible", o.colour)
	}
	if o.separate && (o.file == "" || strings.HasPrefix(o.file, "|")) {
		return t, usagef("one file a thread needs -o FILE")
	}
	if o.summary.only && o.summary.also {
		return t, usagef("-c and -C exclude each other")
	}
	if o.summary.only && o.separate {
		return t, usagef("-c makes one table; it does not go with one file a thread")
	}
	if _, err := o.summary.resolve(); err != nil {
		return t, err
	}
	if o.json && (o.separate || o.summary.only || o.summary.also) {
		return t, usagef("--json writes one stream of records; it does not go with -c, -C or one file a thread")
	}
	return t, nil
}

func paramName(abi string, nr uint32, i int) string {
	a := syscalls.ABIByName(abi)
	if a == nil {
		return ""
	}
	d := a.Lookup(nr)
	if d == nil || i >= len(d.Args) {
		return ""
	}
	return d.Args[i].Name
}

// closer is a sink that has an end.
type closer interface {
	tracer.Sink
	Close(*event.Ledger) error
}

// output is where events go, and what has to be closed behind it.
type output struct {
	closer
	after []func() error
}

// finish closes the sink and what is behind it.
func (o *output) finish(l *event.Ledger) error {
	errs := []error{o.closer.Close(l)}
	for _, f := range o.after {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// openOutput opens the file or pipe of -o. Nothing has been started yet.
func (o *outputFlags) openOutput(fallback *os.File) (io.Writer, []func() error, error) {
	switch {
	case o.file == "":
		return sink.Writer(fallback), nil, nil
	case strings.HasPrefix(o.file, "|"), strings.HasPrefix(o.file, "!"):
		cmd := exec.Command("/bin/sh", "-c", o.file[1:])
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if u, err := invoker(); err != nil {
			return nil, nil, err
		} else if u != nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}}
		}
		w, err := cmd.StdinPipe()
		if err != nil {
			return nil, nil, fmt.Errorf("output to %s: %w", o.file, err)
		}
		if err := cmd.Start(); err != nil {
			return nil, nil, fmt.Errorf("output to %s: %w", o.file, err)
		}
		return w, []func() error{w.Close, cmd.Wait}, nil
	}
	f, err := o.openFile(o.file)
	if err != nil {
		return nil, nil, err
	}
	return sink.Writer(f), []func() error{f.Close}, nil
}

func (o *outputFlags) openFile(path string) (*os.File, error) {
	fo := sink.FileOptions{Append: o.appendFile}
	u, err := invoker()
	if err != nil {
		return nil, err
	}
	if u != nil {
		fo.Own, fo.UID, fo.GID = true, u.UID, u.GID
	}
	return sink.OpenFile(path, fo)
}

// perTask writes the events of each thread to a file of its own.
type perTask struct {
	open  func(tid uint32) (closer, func() error, error)
	sinks map[uint32]*taskFile
}

type taskFile struct {
	closer
	done func() error
}

func (p *perTask) Event(e *event.Event) error {
	s := p.sinks[e.Task.Tid]
	if s == nil {
		if e.Type == event.TypeFork || e.Type == event.TypeRename || e.Type == event.TypeExec {
			return nil // they print nothing by themselves
		}
		c, done, err := p.open(e.Task.Tid)
		if err != nil {
			return err
		}
		s = &taskFile{c, done}
		p.sinks[e.Task.Tid] = s
	}
	if err := s.Event(e); err != nil {
		return err
	}
	if e.Type == event.TypeExit {
		delete(p.sinks, e.Task.Tid)
		return errors.Join(s.closer.Close(nil), s.done())
	}
	return nil
}

func (p *perTask) Flush() error {
	for _, s := range p.sinks {
		if err := s.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (p *perTask) Close(l *event.Ledger) error {
	var errs []error
	for _, s := range p.sinks {
		errs = append(errs, s.closer.Close(l), s.done())
	}
	return errors.Join(errs...)
}

// build makes the sink that the flags ask for.
func (o *outputFlags) build(q *qualifiers, several bool, tasks int, clock tracer.Clock) (*output, error) {
	t, err := o.resolve()
	if err != nil {
		return nil, err
	}
	sum, err := o.summary.resolve()
	if err != nil {
		return nil, err
	}
	t.Wall, t.Tasks = clock.Time, tasks
	if q != nil {
		if q.quiet["thread-execve"] {
			t.NoSuperseded = true
		}
		if q.quiet["exit"] {
			t.NoExits = true
		}
		if q.sigSet {
			t.Signals = q.signals
		}
	}
	if o.separate {
		t.PIDs = sink.PIDsNever
		return &output{closer: &perTask{sinks: make(map[uint32]*taskFile), open: func(tid uint32) (closer, func() error, error) {
			f, err := o.openFile(o.file + "." + strconv.FormatUint(uint64(tid), 10))
			if err != nil {
				return nil, nil, err
			}
			return sink.NewText(sink.Writer(f), t), f.Close, nil
		}}}, nil
	}
	fallback := os.Stderr
	if o.json {
		fallback = os.Stdout
	}
	w, after, err := o.openOutput(fallback)
	if err != nil {
		return nil, err
	}
	if o.file != "" && several || o.alwaysPids {
		t.PIDs = sink.PIDsAlways
	}
	t.Colour = o.colour == "always" || o.colour == "auto" && o.file == "" && isTerminal(fallback) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	var lines closer
	switch {
	case o.json:
		j := sink.JSONOptions{Sonde: version, Monotonic: clock.Monotonic, Wall: clock.Wall, ParamName: paramName, Signals: t.Signals}
		lines = sink.NewJSON(w, j)
	case o.summary.only:
		return &output{closer: sink.NewSummary(w, sum), after: after}, nil
	default:
		lines = sink.NewText(w, t)
	}
	if o.summary.also {
		lines = sink.Both{A: lines, B: sink.NewSummary(w, sum)}
	}
	return &output{closer: lines, after: after}, nil
}

// resolve checks the flags of the table.
func (s *summaryFlags) resolve() (o sink.SummaryOptions, err error) {
	if _, ok := sink.SummaryColumn(s.sort); !ok && s.sort != "nothing" && s.sort != "none" {
		return o, usagef("-S %s: no such column; %s, or nothing, are known", s.sort, strings.Join(sink.SummaryColumns, ", "))
	}
	o.Sort = s.sort
	if s.columns != "" {
		for _, w := range strings.Split(s.columns, ",") {
			c, ok := sink.SummaryColumn(w)
			if !ok {
				return o, usagef("-U %s: no such column; %s are known", w, strings.Join(sink.SummaryColumns, ", "))
			}
			if slices.Contains(o.Columns, c) {
				return o, usagef("-U %s: the column %s is named twice", s.columns, c)
			}
			o.Columns = append(o.Columns, c)
		}
		if !slices.Contains(o.Columns, "name") {
			o.Columns = append(o.Columns, "name")
		}
	}
	if s.overhead != "" {
		if n, err := strconv.ParseUint(s.overhead, 10, 32); err == nil {
			o.Overhead = time.Duration(n) * time.Microsecond
		} else if o.Overhead, err = time.ParseDuration(s.overhead); err != nil || o.Overhead < 0 {
			return o, usagef("-O %s: a time is needed: 5us, or a number of microseconds", s.overhead)
		}
	}
	return o, nil
}

func isTerminal(f *os.File) bool {
	fi, err := f.Stat()
	return err == nil && fi.Mode()&os.ModeCharDevice != 0
}
