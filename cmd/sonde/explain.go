package main

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-trace/sonde/internal/attach"
	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/decode"
	"github.com/sonde-trace/sonde/internal/plan"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/probe"
)

func explainCommand() *cobra.Command {
	var abi, command string
	var pids, debug []string
	cmd := &cobra.Command{
		Use:   "explain EXPR...",
		Short: "what an expression selects, and what the kernel records of it",
		Long: `explain says, for each system call that the expressions select, its number, its arguments, where
it is watched, and which memory of the caller is copied at its entry and at its return; for a
probe the file, the places in it, and the values to take. It changes nothing and needs no
privileges.`,
		Example:           "  sonde explain openat\n  sonde explain '%net,!accept'\n  sonde explain 'libc:malloc(size: u64) -> ptr'",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeSyscalls,
		RunE: func(cmd *cobra.Command, args []string) error {
			family := syscalls.Family(runtime.GOARCH)[:1]
			if abi != "" {
				a := syscalls.ABIByName(abi)
				if a == nil {
					return usagef("%s: no such ABI; amd64, i386, x32, arm64 and arm are known", abi)
				}
				family = []*syscalls.ABI{a}
			}
			w := bufio.NewWriter(cmd.OutOrStdout())
			var sets []string
			for _, e := range args {
				if !probe.IsProbe(e) {
					sets = append(sets, e)
				} else if err := explainProbe(w, e, pids, command, debug); err != nil {
					return err
				}
			}
			if len(sets) == 0 {
				return w.Flush()
			}
			sel, err := probe.ParseSyscalls(sets, family)
			if err != nil {
				return err
			}
			specs := decode.Specs()
			a, n := family[0], 0
			for nr, d := range a.All() {
				if sel.Has(a.Name, nr) {
					explainCall(w, a, nr, d, specs[d.Name])
					n++
				}
			}
			fmt.Fprintf(w, "%d calls of %s; watched at the raw tracepoints sys_enter and sys_exit, selected there by number.\n", n, a.Name)
			fmt.Fprintln(w, "-z, -Z, -P and status= are decided after decoding, in user space, and count as filtered.")
			return w.Flush()
		},
	}
	cmd.Flags().VarP((*list)(&pids), "attach", "p", "look up libraries as the running process `PID` has them")
	cmd.Flags().Var((*list)(&debug), "debuginfo", "look for debug files in `DIR` first; repeatable")
	cmd.Flags().StringVar(&command, "command", "", "look up libraries as the program `FILE` would find them")
	cmd.Flags().StringVar(&abi, "abi", "", "table of another `ABI`: amd64, i386, x32, arm64, arm")
	return cmd
}

// explainProbe says what a probe resolves to.
func explainProbe(w io.Writer, expr string, pids []string, command string, debug []string) error {
	spec, err := probe.Parse(expr)
	if err != nil {
		return err
	}
	env := &plan.Env{Arch: runtime.GOARCH, StrLimit: 256, TracepointFormat: attach.TracepointFormat, DebugDirs: debug, FetchDebug: fetchDebug()}
	if command != "" {
		if env.Command, err = exec.LookPath(command); err != nil {
			return usagef("--command %s: %v", command, err)
		}
	}
	for _, s := range split(pids) {
		pid, err := taskID(s)
		if err != nil {
			return usagef("-p %s: %v", s, err)
		}
		env.Pids = append(env.Pids, pid)
	}
	p, err := plan.Resolve(spec, env)
	if err != nil {
		return planError(err)
	}
	fmt.Fprintf(w, "%s\n", clean(expr))
	if p.Path != "" {
		fmt.Fprintf(w, "  file       %s\n", clean(p.Path))
		if p.BuildID != "" {
			fmt.Fprintf(w, "  build-id   %s\n", p.BuildID)
		}
	}
	const most = 20
	for i := range p.Points {
		pt := &p.Points[i]
		if i == most {
			fmt.Fprintf(w, "  place      and %d more\n", len(p.Points)-most)
			break
		}
		switch {
		case p.Break != nil && pt.Len > 0:
			fmt.Fprintf(w, "  register   %s: %d bytes at %#x, mode %s\n", clean(pt.Name), pt.Len, pt.Offset, p.Break.Mode)
		case p.Break != nil:
			fmt.Fprintf(w, "  register   %s: at %#x, mode %s\n", clean(pt.Name), pt.Offset, p.Break.Mode)
		case pt.Group != "":
			fmt.Fprintf(w, "  place      tracepoint %s:%s\n", pt.Group, pt.Symbol)
		case pt.Path == "":
			fmt.Fprintf(w, "  place      kernel function %s\n", pt.Name)
		default:
			fmt.Fprintf(w, "  place      %s at %#x in the file\n", clean(pt.Name), pt.Offset)
		}
	}
	for i := range p.Args {
		a := &p.Args[i]
		fmt.Fprintf(w, "  value      %s: %s\n", a.Name, a.Form.Describe(p.Types))
	}
	if p.Ret != nil && (p.Both || p.Return) {
		fmt.Fprintf(w, "  returns    %s\n", p.Ret.Describe(p.Types))
	}
	if p.AtRet {
		fmt.Fprintln(w, "  returns are watched at the return instructions: a replaced return address would stop exceptions")
	}
	for _, pr := range []*bpfgen.Probe{p.Entry, p.Exit} {
		if pr == nil {
			continue
		}
		when := "at entry"
		if pr.Return {
			when = "at return"
		}
		fmt.Fprintf(w, "  %-10s %d words of registers and memory, %d copies of memory\n", when, len(pr.Slots), len(pr.Fetches)+len(pr.Fields))
	}
	for _, n := range p.Notes {
		fmt.Fprintf(w, "  note       %s\n", clean(n))
	}
	return nil
}

func explainCall(w io.Writer, a *syscalls.ABI, nr uint32, d *syscalls.Def, s *decode.Spec) {
	params := make([]string, len(d.Args))
	for i, p := range d.Args {
		params[i] = strings.TrimSpace(strings.ReplaceAll(p.Type, " __user ", " ")) + space(p.Type) + p.Name
	}
	fmt.Fprintf(w, "%s(%s)  number %d on %s  %s\n", d.Name, strings.Join(params, ", "), nr, a.Name, strings.Join(d.Class.Classes(), " "))
	if s == nil {
		fmt.Fprintln(w, "  arguments by their C types; no memory is copied")
		return
	}
	enter, exit := s.Enter, s.Exit
	if a.PtrSize == 4 && s.Enter32 != nil {
		enter = s.Enter32
	}
	if a.PtrSize == 4 && s.Exit32 != nil {
		exit = s.Exit32
	}
	for _, side := range []struct {
		when string
		list []syscalls.Fetch
	}{{"at entry", enter}, {"at return", exit}} {
		for _, f := range side.list {
			fmt.Fprintf(w, "  %-9s %s\n", side.when, explainFetch(d, f))
		}
	}
	if len(enter) > 0 {
		fmt.Fprintln(w, "            what cannot be read at entry, because its page is not there yet, is read again at the return")
	}
}

func explainFetch(d *syscalls.Def, f syscalls.Fetch) string {
	var b strings.Builder
	switch f.Kind {
	case syscalls.FetchString:
		b.WriteString("text at ")
	case syscalls.FetchStrings:
		b.WriteString("array of strings at ")
	case syscalls.FetchIovec:
		b.WriteString("iovec array, with its buffers, at ")
	default:
		b.WriteString("memory at ")
	}
	b.WriteString(explainNumber(d, f.Base))
	if f.Off != 0 {
		fmt.Fprintf(&b, "+%d", f.Off)
	}
	if f.Len.From != syscalls.FromNothing {
		fmt.Fprintf(&b, ", length %s", explainNumber(d, f.Len.Number))
		if f.Len.Elem > 1 {
			fmt.Fprintf(&b, " × %d", f.Len.Elem)
		}
	}
	if f.Len.Max > 0 {
		fmt.Fprintf(&b, ", at most %d bytes", f.Len.Max)
	} else {
		b.WriteString(", at most the string limit (-s)")
	}
	if len(f.When.Any) > 0 {
		not := ""
		if f.When.Not {
			not = "not "
		}
		fmt.Fprintf(&b, ", if %s is %sone of %d values", explainNumber(d, f.When.Value), not, len(f.When.Any))
	}
	return b.String()
}

func explainNumber(d *syscalls.Def, n syscalls.Number) string {
	switch n.From {
	case syscalls.FromConst:
		return fmt.Sprint(n.N)
	case syscalls.FromArg:
		if int(n.N) < len(d.Args) && d.Args[n.N].Name != "" {
			return d.Args[n.N].Name
		}
		return fmt.Sprintf("argument %d", n.N)
	case syscalls.FromRet:
		return "the return value"
	case syscalls.FromMem:
		return fmt.Sprintf("%d bytes at %d of copy %d", n.Width, n.Off, n.N)
	}
	return "the size in the command"
}
