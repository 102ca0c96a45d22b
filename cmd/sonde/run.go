package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-trace/sonde/internal/plan"
	"github.com/sonde-trace/sonde/internal/proc"
	"github.com/sonde-trace/sonde/tracer"
)

// run is trace: options, output, session, account.
func (f *traceFlags) run(cmd *cobra.Command, args []string, rec tracer.Recorder) error {
	if f.follow > 1 && f.out.file != "" {
		f.out.separate = true
	}
	o, q, err := f.options(args)
	if err != nil {
		return err
	}
	if _, err := f.out.resolve(); err != nil {
		return err
	}
	o.FDPaths = o.FDPaths || f.out.fds > 0
	o.Record = rec
	f.announce(&o, q)
	s, err := tracer.Open(o)
	if err != nil {
		return planError(err)
	}
	defer s.Close()
	for _, n := range s.Notes() {
		if f.out.quiet == 0 {
			fmt.Fprintln(os.Stderr, "sonde:", clean(n))
		}
	}
	several := f.follow > 0 || f.tree || s.Tasks() > 1 || o.Command == nil && len(o.Target.Pids) == 0
	out, err := f.out.build(q, several, s.Tasks(), s.Clock())
	if err != nil {
		return err
	}
	return runSession(s, out, o.Command != nil, f.out.quiet)
}

// planError makes what is wrong with an expression an error of the command line.
func planError(err error) error {
	var e *plan.Error
	if errors.As(err, &e) {
		return usageError{err}
	}
	return err
}

// announce says on stderr when running processes are being traced.
func (f *traceFlags) announce(o *tracer.Options, q *qualifiers) {
	if f.out.quiet > 0 || q.quiet["attach"] {
		return
	}
	t, command := o.Target, o.Command != nil
	o.Ready = func() {
		for _, pid := range t.Pids {
			fmt.Fprintf(os.Stderr, "sonde: Process %d attached\n", pid)
		}
		for _, tid := range t.Tids {
			fmt.Fprintf(os.Stderr, "sonde: Thread %d attached\n", tid)
		}
		if !command && len(t.Pids)+len(t.Tids) == 0 {
			fmt.Fprintln(os.Stderr, "sonde: attached to all tasks that match; Ctrl-C ends")
		}
	}
}

// runSession runs s into out until it ends or the user interrupts it, and says what came of it.
func runSession(s *tracer.Session, out *output, command bool, quiet int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	interrupts := make(chan os.Signal, 2)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		// One that was ignored when we were started (nohup) stays so, for the command too: asking for it would undo that.
		if !signal.Ignored(sig) {
			signal.Notify(interrupts, sig)
		}
	}
	defer signal.Stop(interrupts)
	var caught os.Signal
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case caught = <-interrupts:
		case <-ctx.Done():
			return
		}
		if command && caught == syscall.SIGINT {
			// The terminal gave the signal to the command too: its end is part of the trace.
			select {
			case <-time.After(700 * time.Millisecond):
			case <-interrupts:
				os.Exit(130)
			case <-ctx.Done():
			}
		}
		cancel()
		select {
		case <-interrupts: // a second one does not wait for the account
			os.Exit(130)
		case <-time.After(3 * time.Second):
		}
	}()
	result, err := s.Run(ctx, out)
	cancel()
	if e := out.finish(&result.Ledger); err == nil {
		err = e
	}
	if caughtNow := interrupted(stopped, &caught); caughtNow != nil && result.Ended {
		caught = nil // the command's own status tells it
	}
	for _, n := range s.RefusedNames() {
		fmt.Fprintln(os.Stderr, "sonde:", clean(n))
	}
	account(result, quiet, command)
	var start *proc.StartError
	switch {
	case errors.As(err, &start):
		return startError(start)
	case err != nil && result.Ended && !errors.Is(err, syscall.EPIPE):
		fmt.Fprintln(os.Stderr, "sonde:", clean(err.Error()))
		return &exitError{code: exitOwn}
	case err != nil:
		return err
	}
	if result.Ended {
		return statusError(result)
	}
	if command && caught != nil {
		return &exitError{code: 128 + int(caught.(syscall.Signal))}
	}
	return nil
}

// interrupted returns the signal that ended the session, if one did.
func interrupted(stopped chan struct{}, caught *os.Signal) os.Signal {
	select {
	case <-stopped:
	case <-time.After(10 * time.Millisecond):
		// The goroutine waits for a second signal: the first was caught.
	}
	return *caught
}

// startError follows the shell: 127 when something that is needed does not exist, 126 otherwise.
func startError(e *proc.StartError) error {
	switch e.Errno {
	case syscall.ENOENT:
		return &exitError{code: 127, err: fmt.Errorf("%s: the file is there and the interpreter that it names is not", e.Path)}
	case syscall.ENOEXEC:
		return &exitError{code: 126, err: fmt.Errorf("%s: not a format that the kernel can execute; a script needs a #! line", e.Path)}
	}
	return &exitError{code: 126, err: e}
}

// statusError makes the command's status ours.
func statusError(r *tracer.Result) error {
	switch {
	case r.Status.Signaled():
		return &exitError{code: 128 + int(r.Status.Signal()), sig: r.Status.Signal()}
	case r.Status.ExitStatus() != 0:
		return &exitError{code: r.Status.ExitStatus()}
	}
	return nil
}

// account prints the ledger to stderr: always when something is lost or does not add up, else unless -q.
func account(r *tracer.Result, quiet int, command bool) {
	l := &r.Ledger
	lost := l.LostTotal()
	if command && l.Made == 0 && lost == 0 || quiet > 0 && lost == 0 && l.Balanced() && r.Skipped+r.SideLost+r.FollowFull == 0 && r.PerTask == nil && r.Left == nil {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "sonde: %d calls: %d shown, %d filtered, %d lost", l.Made, l.Shown, l.Filtered, lost)
	for i, c := range l.Lost {
		sep := "; "
		if i == 0 {
			sep = " ("
		}
		fmt.Fprintf(&b, "%s%s: %d", sep, c.Cause, c.Count)
	}
	if len(l.Lost) > 0 {
		b.WriteString(")")
	}
	if !l.Balanced() {
		fmt.Fprintf(&b, "; this does not add up: %d are unaccounted for", int64(l.Made)-int64(l.Shown+l.Filtered+lost))
	}
	fmt.Fprintln(os.Stderr, b.String())
	for _, tid := range slices.Sorted(maps.Keys(r.PerTask)) {
		t := r.PerTask[tid]
		fmt.Fprintf(os.Stderr, "sonde: task %d: %d calls: %d shown, %d filtered, %d lost\n", tid, t.Made, t.Shown, t.Filtered, t.LostTotal())
	}
	if r.Skipped > 0 {
		fmt.Fprintf(os.Stderr, "sonde: up to %d more events, of any task, were skipped by the kernel\n", r.Skipped)
	}
	if r.SideLost > 0 {
		fmt.Fprintf(os.Stderr, "sonde: %d forks, execs, ends, signals or names did not fit into their buffer\n", r.SideLost)
	}
	if r.FollowFull > 0 {
		fmt.Fprintf(os.Stderr, "sonde: %d processes were not followed: too many were\n", r.FollowFull)
	}
	if r.RingFull {
		fmt.Fprintf(os.Stderr, "sonde: a bigger buffer would have kept more: --buffer %dMiB; or --on-loss=block lets the target wait\n", max(1, r.RingSize>>20)*4)
	}
	if r.Left != nil {
		fmt.Fprintln(os.Stderr, "sonde:", clean(r.Left.Error()))
	}
	if r.BlockWaits > 0 {
		fmt.Fprintf(os.Stderr, "sonde: the target waited %d times for room, %v in all\n", r.BlockWaits, r.BlockTime.Round(time.Microsecond))
	}
}
