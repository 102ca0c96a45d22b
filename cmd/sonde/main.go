// Command sonde shows what a Linux program does, from outside: see sonde --help. Each verb is one file of this directory.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/probe"
)

// version is set by the build.
var version = "0.1-dev"

// Exit codes, as documented in every man page.
const (
	exitOwn   = 1 // sonde failed
	exitUsage = 2 // the command line is wrong; nothing was started
)

// usageError is a fault in the command line.
type usageError struct{ error }

func usagef(format string, a ...any) error { return usageError{fmt.Errorf(format, a...)} }

// exitError carries the exit status of a traced command, or of a shell's rules.
type exitError struct {
	code int
	sig  syscall.Signal // not zero: die by it
	err  error          // said first, when there is something to say
}

func (e *exitError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

func main() { os.Exit(run(os.Args[1:])) }

func run(argv []string) int {
	root := rootCommand()
	root.SetArgs(argv)
	cmd, err := root.ExecuteC()
	return report(cmd, err)
}

// report says what went wrong and returns the exit code.
func report(cmd *cobra.Command, err error) int {
	var exit *exitError
	var usage usageError
	var syntax *probe.SyntaxError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if exit.err != nil {
			fmt.Fprintln(os.Stderr, "sonde:", clean(exit.err.Error()))
		}
		if exit.sig != 0 {
			dieBy(exit.sig)
		}
		return exit.code
	case errors.As(err, &syntax):
		fmt.Fprintln(os.Stderr, "sonde:", clean(err.Error()))
		if c := syntax.Caret(); c != "" {
			fmt.Fprintln(os.Stderr, "  "+strings.ReplaceAll(c, "\n", "\n  "))
		}
		return exitUsage
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "sonde:", clean(err.Error()))
		fmt.Fprintf(os.Stderr, "try: %s --help\n", cmd.CommandPath())
		return exitUsage
	case errors.Is(err, syscall.EPIPE):
		// The reader of our output has gone; so do we, quietly.
		return exitOwn
	}
	fmt.Fprintln(os.Stderr, "sonde:", clean(err.Error()))
	return exitOwn
}

// clean makes a message safe for a terminal: names in it come from anywhere.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '?'
		}
		return r
	}, s)
}

// dieBy ends this process by a signal, as the traced command ended, without a core of our own.
func dieBy(sig syscall.Signal) {
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // RLIMIT_CORE does not hold where core_pattern names a program
	// The Go runtime handles signals itself, and would print a traceback or do nothing. An all-zero struct sigaction is
	// SIG_DFL (include/uapi/asm-generic/signal.h); the one of x86 has the same size.
	var dfl [4]uint64
	runtime.LockOSThread()
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&dfl)), 0, 8, 0, 0) // refuses SIGKILL, which needs none
	var none unix.Sigset_t
	unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil)
	unix.Tgkill(os.Getpid(), unix.Gettid(), sig)
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "sonde",
		Short: "see what a program really does, from outside",
		Long: `sonde shows what Linux programs do, without ptrace, without stopping them and without
recompiling them, by eBPF programs that it generates itself.`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("%s: no such verb; to trace a program: sonde trace %s", args[0], args[0])
			}
			return cmd.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(elfCommand(), loadCommand(), traceCommand(), whyCommand(), recordCommand(), replayCommand(), listCommand(), doctorCommand(), explainCommand(), serveCommand(),
		ctlCommand(), manCommand())
	return root
}
