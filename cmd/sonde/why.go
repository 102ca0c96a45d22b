package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/ldso"
	"github.com/sonde-trace/sonde/internal/proc"
	"github.com/sonde-trace/sonde/load"
)

func whyCommand() *cobra.Command {
	var dry, verbose, asJSON bool
	cmd := &cobra.Command{
		Use:   "why [flags] -- COMMAND [ARG...]",
		Short: "why a program does not start: one sentence, one remedy",
		Long: `why runs a command, and when it does not start says why and what to do: a missing interpreter or
dynamic linker, a carriage return in the first line of a script, a library, version or symbol that
is not found, a file for another machine, missing permissions, a file system mounted noexec, a file
that is being written, arguments that are too long, a death by signal.

It needs no privileges. Its exit status is the command's as a shell gives it: 127 when something is
not found, 126 when it cannot be executed, 128 and the signal's number for a death by signal.`,
		Example: "  sonde why -- ./app\n  sonde why -n -v -- ./app      do not run it; say each place in which a library was looked for",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, status, err := why(args, os.Environ(), dry)
			if err != nil {
				return err
			}
			if asJSON {
				b, err := json.MarshalIndent(d, "", "  ")
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), string(b))
			} else if d != nil {
				printDiagnosis(cmd.ErrOrStderr(), d, verbose)
			} else if dry {
				fmt.Fprintln(cmd.ErrOrStderr(), "sonde: nothing is found that would stop it")
			}
			if status != 0 {
				return &exitError{code: status}
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&dry, "dry-run", "n", false, "do not run the command; look at its files only")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "with the files of the chain, and each place in which a library was looked for")
	cmd.Flags().BoolVar(&asJSON, "json", false, "the diagnosis as JSON on stdout; null when it starts")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// why runs the command unless dry, and returns what is wrong with its start, nil if nothing, and its status as a shell gives it.
func why(args, env []string, dry bool) (*load.Diagnosis, int, error) {
	path, d := load.Find(args[0], env)
	if d != nil {
		return d, d.Status, nil
	}
	if dry {
		if d = load.Diagnose(path, args, env); d != nil {
			return d, d.Status, nil
		}
		return nil, 0, nil
	}
	child, err := proc.Start(&proc.Command{Path: path, Argv: args, Env: env})
	var refused *proc.StartError
	if errors.As(err, &refused) {
		d = load.Refused(path, args, env, refused.Errno)
		return d, d.Status, nil
	} else if err != nil {
		return nil, 0, err
	}
	// The terminal gives its signals to the command too, which decides what they do.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGQUIT)
	defer signal.Stop(signals)
	exit := <-child.Exited()
	if exit.Err != nil {
		return nil, 0, fmt.Errorf("wait for %s: %w", path, exit.Err)
	}
	return load.Ended(path, args, env, exit.Status, load.StageUnknown), shellCode(exit.Status), nil
}

func shellCode(ws unix.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

func printDiagnosis(w io.Writer, d *load.Diagnosis, verbose bool) {
	fmt.Fprintf(w, "sonde: %s.\n", clean(d.Text))
	if d.Remedy != "" {
		fmt.Fprintf(w, "  remedy: %s\n", clean(d.Remedy))
	}
	if !verbose {
		return
	}
	for _, s := range d.Chain {
		text := s.Kind
		if s.Text != "" {
			text += ", " + s.Text
		}
		fmt.Fprintf(w, "  %s: %s\n", clean(text), clean(s.Path))
	}
	printTries(w, d.Tries)
}

// printTries lists the places under their rules; subdirectories for certain processors are counted, not listed.
func printTries(w io.Writer, tries []ldso.Try) {
	var rule string
	hidden := 0
	flush := func() {
		if hidden > 0 {
			fmt.Fprintf(w, "      and %d subdirectories for this processor that do not exist\n", hidden)
		}
		hidden = 0
	}
	for _, t := range tries {
		head := string(t.Rule)
		if t.From != "" {
			head += " of " + t.From
		}
		if head != rule {
			flush()
			fmt.Fprintf(w, "  looked in, by %s:\n", clean(head))
			rule = head
		}
		if t.Reason == "no such directory" && (strings.Contains(t.Path, "/glibc-hwcaps/") || strings.Contains(t.Path, "/tls/") || strings.Contains(t.Path, "/x86_64/") || strings.Contains(t.Path, "/aarch64/")) {
			hidden++
			continue
		}
		reason := t.Reason
		if t.Found {
			reason = "taken"
		}
		fmt.Fprintf(w, "    %s: %s\n", clean(t.Path), clean(reason))
	}
	flush()
}
