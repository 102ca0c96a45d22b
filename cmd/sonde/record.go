package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/recording"
	"github.com/sonde-trace/sonde/sink"
	"github.com/sonde-trace/sonde/tracer"
)

func recordCommand() *cobra.Command {
	f := &traceFlags{}
	cmd := &cobra.Command{
		Use:   "record -o FILE [flags] [--] COMMAND [ARGUMENT...]",
		Short: "keep the system calls of a command, or of running tasks, in a file",
		Long: `record keeps what trace would print, as the kernel recorded it, in a file that sonde replay
turns into any of the forms of trace, later, elsewhere and without privileges. Strings are
kept up to the limit of -s; what descriptors refer to is kept with -y.`,
		Example: `  sonde record -f -o build.sonde -- make
  sonde replay build.sonde -e %file -T`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.record(args) },
	}
	f.register(cmd)
	fs := cmd.Flags()
	fs.StringVarP(&f.out.file, "output", "o", "", "the recording, `FILE` (mode 0600)")
	fs.CountVarP(&f.out.fds, "fd-paths", "y", "keep what descriptors refer to")
	fs.CountVarP(&f.out.quiet, "quiet-messages", "q", "fewer messages")
	return cmd
}

func (f *traceFlags) record(args []string) error {
	if f.out.file == "" {
		return usagef("record needs -o FILE")
	}
	rec := &recorder{args: args}
	o, q, err := f.options(args)
	if err != nil {
		return err
	}
	o.Record = rec
	f.announce(&o, q)
	s, err := tracer.Open(o)
	if err != nil {
		return err
	}
	defer s.Close()
	file, err := f.out.openFile(f.out.file)
	if err != nil {
		return err
	}
	rec.file = file
	return runSession(s, &output{closer: rec, after: []func() error{file.Close}}, o.Command != nil, f.out.quiet)
}

// recorder keeps a session in a file. As a sink it takes no events: what they are made of has been kept.
type recorder struct {
	args    []string
	file    *os.File
	w       *recording.Writer
	flushed time.Time
}

func (r *recorder) Facts(facts json.RawMessage) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("find the version of the kernel: %w", err)
	}
	var err error
	r.flushed = time.Now()
	r.w, err = recording.NewWriter(sink.Writer(r.file), &recording.Header{
		Created: r.flushed, Sonde: version, Kernel: unix.ByteSliceToString(u.Release[:]), Arch: runtime.GOARCH, Command: r.args, Session: facts,
	})
	return err
}

func (r *recorder) Batch(records []byte) error { return r.w.Batch(records) }
func (r *recorder) Event(*event.Event) error   { return nil }
func (r *recorder) Close(l *event.Ledger) error {
	if r.w == nil {
		return nil
	}
	return r.w.Close(l)
}

// Flush bounds what a crash can take away to a second, without many small chunks.
func (r *recorder) Flush() error {
	if r.w == nil || time.Since(r.flushed) < time.Second {
		return nil
	}
	r.flushed = time.Now()
	return r.w.Flush()
}

func replayCommand() *cobra.Command {
	f := &traceFlags{}
	cmd := &cobra.Command{
		Use:   "replay FILE [flags]",
		Short: "print a recording as trace would have printed the session",
		Long: `replay prints the system calls of a recording. It takes the flags of trace that choose among
calls and say how they are shown; it needs no privileges, and the recording may come from
another machine. A file that is cut is printed up to the cut, and the exit status is 1.`,
		Example: `  sonde replay build.sonde -e openat -Z
  sonde replay build.sonde -c`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("one FILE is needed, a recording made by sonde record")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.replay(args[0]) },
	}
	f.registerChoice(cmd)
	f.out.register(cmd.Flags())
	return cmd
}

func (f *traceFlags) replay(path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	r, err := recording.NewReader(in)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer r.Close()
	o, q, err := f.choose(r.Header.Arch)
	if err != nil {
		return err
	}
	replay, err := tracer.NewReplay(r.Header.Session, o)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if _, err := f.out.resolve(); err != nil {
		return err
	}
	out, err := f.out.build(q, replay.Several(), replay.Tasks(), replay.Clock())
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	result, err := replay.Run(ctx, r.Next, out)
	result.Recorded(r.Ledger)
	err = errors.Join(err, out.finish(&result.Ledger))
	account(result, f.out.quiet, true)
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return err
}
