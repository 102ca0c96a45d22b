package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sonde-trace/sonde/internal/proc"
	"github.com/sonde-trace/sonde/load"
)

type loadFlags struct {
	bindings, maps, tries, asJSON bool
	html, file                    string
	runs                          int
	compare                       bool
}

func loadCommand() *cobra.Command {
	var f loadFlags
	cmd := &cobra.Command{
		Use:   "load [flags] -- COMMAND [ARG...]",
		Short: "how a program comes to life, from execve to main, and why it does not",
		Long: `load runs a command and shows the way from execve to main: the phases and their times, each library
with who needs it, where it was looked for and by which rule it was found, each constructor with its
time, and the memory map step by step. A program that does not start gets its reason first.

The summary goes to stderr, so that the command's own output stays as it is. The times are those of
one run with probes on it: compare several.`,
		Example: "  sonde load -- ls\n  sonde load --bindings -- ./app\n  sonde load --html app.html -- ./app",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.compare {
				return compareLoads(cmd.OutOrStdout(), args)
			}
			return f.run(cmd, args)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.bindings, "bindings", false, "which object each symbol is bound to; interposition is marked")
	fl.BoolVar(&f.maps, "maps", false, "each change of the memory map, and the map at main")
	fl.BoolVar(&f.tries, "tries", false, "each place in which each library was looked for")
	fl.BoolVar(&f.asJSON, "json", false, "all of it as JSON, on stderr or in the file of -o")
	fl.StringVarP(&f.file, "output", "o", "", "write to `FILE`")
	fl.StringVar(&f.html, "html", "", "also write a page to `FILE`, complete in itself")
	fl.IntVar(&f.runs, "runs", 1, "run the command `N` times; the one in the middle is shown, with the spread of the times")
	fl.BoolVar(&f.compare, "compare", false, "say in what two analyses that were written with --json -o differ: sonde load --compare A B")
	fl.SetInterspersed(false)
	return cmd
}

// compareLoads says in what two analyses differ, the first point at which they part first.
func compareLoads(w io.Writer, files []string) error {
	if len(files) != 2 {
		return usagef("--compare needs two files, as sonde load --json -o FILE writes them")
	}
	var list [2]load.Analysis
	for i, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(b, &list[i]); err != nil || list[i].Schema != "sonde-load/1" {
			return fmt.Errorf("%s: not an analysis of sonde load --json", name)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, d := range load.Compare(&list[0], &list[1]) {
		fmt.Fprintf(t, "%s\t%s\t%s\n", clean(d.What), clean(d.A), clean(d.B))
	}
	return t.Flush()
}

func (f *loadFlags) run(cmd *cobra.Command, args []string) error {
	var w io.Writer = cmd.ErrOrStderr()
	if f.file != "" {
		out, err := os.Create(f.file)
		if err != nil {
			return err
		}
		defer out.Close()
		w = out
	}
	a := &load.Analysis{Command: args}
	env := os.Environ()
	path, d := load.Find(args[0], env)
	if d != nil {
		a.Diagnosis, a.Status = d, d.Status
	} else {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		user, err := invoker()
		if err != nil {
			return err
		}
		var runs []*load.Analysis
		for range max(f.runs, 1) {
			if a, err = load.Run(ctx, &proc.Command{Path: path, Argv: args, Env: env, User: user}, load.Options{Bindings: f.bindings}); err != nil {
				return err
			}
			runs = append(runs, a)
			if a.Diagnosis != nil || ctx.Err() != nil {
				break
			}
		}
		if len(runs) > 1 && a.Diagnosis == nil {
			a = load.Middle(runs)
		}
	}
	if f.html != "" {
		if err := writePage(f.html, a); err != nil {
			return err
		}
	}
	if f.asJSON {
		b, err := json.MarshalIndent(a, "", "  ")
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w, string(b)); err != nil {
			return err
		}
	} else {
		buf := bufio.NewWriter(w)
		f.print(buf, a)
		if err := buf.Flush(); err != nil {
			return err
		}
	}
	if a.Status != 0 {
		return &exitError{code: a.Status}
	}
	return nil
}

func writePage(path string, a *load.Analysis) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := load.Page(out, a); err != nil {
		out.Close()
		return fmt.Errorf("write %s: %w", path, err)
	}
	return out.Close()
}

func ms(ns int64) string { return fmt.Sprintf("%.3f ms", float64(ns)/float64(time.Millisecond)) }

func (f *loadFlags) print(w io.Writer, a *load.Analysis) {
	if a.Diagnosis != nil {
		printDiagnosis(w, a.Diagnosis, true)
	}
	if len(a.Marks) == 0 {
		return
	}
	head := fmt.Sprintf("%s: main was not seen", a.Path)
	if a.Main > 0 {
		head = fmt.Sprintf("%s: %s from execve to main", a.Path, ms(a.Main))
	}
	fmt.Fprintf(w, "%s; %s; %d objects, %d system calls, %d failed opens\n", clean(head), clean(a.Type), len(a.Objects), a.Calls, a.Failed)
	for _, s := range a.Chain {
		if s.Kind != "program" {
			fmt.Fprintf(w, "by way of %s: %s (%s)\n", clean(s.Path), clean(s.Text), s.Kind)
		}
	}
	total := int64(0)
	for _, p := range a.Phases {
		total = max(total, p.End)
	}
	fmt.Fprintln(w, "\nphases")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, p := range a.Phases {
		took := p.End - p.Start
		fmt.Fprintf(t, "  %s\t%d %%\t  %s\t\n", ms(took), took*100/max(total, 1), p.Name)
	}
	t.Flush()
	if len(a.Spread) > 0 {
		fmt.Fprintf(w, "\nover %d runs: least, median, most\n", a.Runs)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, s := range a.Spread {
			fmt.Fprintf(t, "  %s\t%s\t%s\t  %s\t\n", ms(s.Min), ms(s.Median), ms(s.Max), s.Name)
		}
		t.Flush()
	}
	if slow := a.Slowest(); len(slow) > 0 {
		fmt.Fprintln(w, "\nconstructors, the slowest first")
		const most = 10
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for i, c := range slow {
			if i == most {
				fmt.Fprintf(t, "  and %d more\n", len(slow)-most)
				break
			}
			fmt.Fprintf(t, "  %s\t%s\t%s\n", ms(c.Took), clean(c.Name), clean(c.Object))
		}
		t.Flush()
	}
	fmt.Fprintln(w, "\nobjects, as they were mapped")
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  opened\tmapped in\trelocated at\tKiB\tfile\tfound by\tneeded by")
	for _, o := range a.Objects {
		opened, mapped, relro := "", "", ""
		if o.Opened > 0 {
			opened = ms(o.Opened)
			if o.Mapped > 0 {
				mapped = ms(o.Mapped - o.Opened)
			}
		}
		if o.Relro > 0 {
			relro = ms(o.Relro)
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%d\t%s\t%s\t%s\n", opened, mapped, relro, o.Bytes>>10, clean(o.Path), o.Rule, clean(baseOf(o.NeededBy)))
	}
	t.Flush()
	if f.tries {
		for _, o := range a.Objects {
			if len(o.Tries) > 0 {
				fmt.Fprintf(w, "\nsearch for %s\n", clean(o.Path))
				printTries(w, o.Tries)
			}
		}
	}
	if f.bindings {
		printBindings(w, a)
	}
	if f.maps {
		fmt.Fprintln(w, "\nmemory map, step by step")
		for i, s := range a.Steps {
			fmt.Fprintf(w, "  %d  %s  %s  %s\n", i, ms(s.At), clean(s.Cause), clean(s.Call))
			for _, c := range s.Changes {
				fmt.Fprintf(w, "       %s\n", clean(c))
			}
		}
		fmt.Fprintln(w, "\nmemory map at main (stack, vdso and the first place of the heap are the kernel's, and not in it)")
		for _, m := range a.Areas {
			fmt.Fprintf(w, "  %012x-%012x %s %08x %s\n", m.Start, m.End, m.Flags, m.Offset, clean(m.Name))
		}
	}
	for _, n := range a.Notes {
		fmt.Fprintf(w, "note: %s\n", clean(n))
	}
}

func printBindings(w io.Writer, a *load.Analysis) {
	fmt.Fprintln(w, "\nbindings")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, b := range a.Bindings {
		to, note := filepath.Base(b.To), ""
		if b.To == "" {
			to = "nothing"
		}
		if b.Lazy {
			note = "at the first call"
		}
		if len(b.Shadowed) > 0 {
			names := make([]string, len(b.Shadowed))
			for i, s := range b.Shadowed {
				names[i] = filepath.Base(s)
			}
			note = strings.TrimPrefix(note+"; interposes "+strings.Join(names, ", "), "; ")
		}
		fmt.Fprintf(t, "  %s\t%s\t-> %s\t%s\n", clean(filepath.Base(b.By)), clean(b.Symbol), clean(to), clean(note))
	}
	t.Flush()
}

// baseOf is the last part of a path, and nothing of nothing.
func baseOf(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Base(path)
}
