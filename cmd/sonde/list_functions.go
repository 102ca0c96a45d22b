package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-trace/sonde/internal/objfile"
	"github.com/sonde-trace/sonde/internal/plan"
	"github.com/sonde-trace/sonde/internal/symbol"
)

func listFunctionsCommand() *cobra.Command {
	var long, stubs bool
	var debug []string
	var pid uint32
	cmd := &cobra.Command{
		Use:   "functions {FILE | kernel | -p PID} [PATTERN...]",
		Short: "functions of a program or library; each line is valid for -e",
		Long: `functions lists the functions of an ELF file, or of a library by its bare name, by address, as
its symbol tables, its debug file or Go's line table name them. A PATTERN selects by name: exact,
with the wildcards * ? [a-z], or a regular expression between slashes. C++ and Rust names are
compared as they are in the source, with and without parameters. Those of the kernel are as
/proc/kallsyms has them; the kernel refuses probes on a few.`,
		Example: `  sonde list functions libc 'open*'
  sonde list functions ./app '*::fun'
  sonde list functions -p 1234 malloc
  sonde list functions kernel 'vfs_*'
  sonde list functions -l ./app '/^main\./'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			w := bufio.NewWriter(cmd.OutOrStdout())
			defer w.Flush()
			l := functionLister{w: w, errs: cmd.ErrOrStderr(), long: long, stubs: stubs}
			if pid != 0 {
				return l.process(pid, args, debug)
			}
			if len(args) == 0 {
				return usagef("list functions: a FILE, or -p PID, is needed")
			}
			if args[0] == "kernel" {
				return l.kernel(args[1:])
			}
			env := &plan.Env{Arch: runtime.GOARCH, DebugDirs: debug, FetchDebug: fetchDebug()}
			object := args[0]
			if _, err := os.Stat(object); err == nil && !strings.Contains(object, "/") {
				object = "./" + object // a file here goes before a library, and a probe needs the / to mean it
			}
			f, err := plan.OpenFile(object, env)
			if err != nil {
				return planError(err)
			}
			defer f.Close()
			return l.file(f, object, args[1:])
		},
	}
	cmd.Flags().Uint32VarP(&pid, "attach", "p", 0, "list those of the files that process `PID` has mapped")
	cmd.Flags().BoolVarP(&long, "long", "l", false, "with address, offset in the file, size, symbol and other names")
	cmd.Flags().BoolVar(&stubs, "plt", false, "with the calls into libraries, as NAME@plt")
	cmd.Flags().Var((*list)(&debug), "debuginfo", "look for debug files in `DIR` first; repeatable")
	return cmd
}

// fetchDebug asks the servers of debug files that the user's environment names; nil when it names none.
func fetchDebug() func(buildID string) (string, error) {
	if os.Getenv("DEBUGINFOD_URLS") == "" {
		return nil
	}
	fetch, err := objfile.Debuginfod()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sonde:", err)
	}
	return fetch
}

type functionLister struct {
	w, errs     io.Writer
	long, stubs bool
}

// file lists the functions of f that the patterns select, all without patterns. object is how the user calls it.
func (l *functionLister) file(f *objfile.File, object string, patterns []string) error {
	all := len(patterns) == 0
	if all {
		patterns = []string{"*"}
		if l.stubs {
			patterns = append(patterns, "*@plt")
		}
	}
	for _, text := range patterns {
		p, err := functionPattern(text)
		if err != nil {
			return usagef("%v", err)
		}
		found, err := symbol.Find(f, p)
		var none *symbol.NotFoundError
		if errors.As(err, &none) && all {
			continue
		} else if err != nil {
			return err
		}
		for _, n := range found.Notes {
			if !all {
				fmt.Fprintln(l.errs, "sonde:", n)
			}
		}
		listFunctions(l.w, object, found.Funcs, l.long)
	}
	return nil
}

// kernel lists the functions of the running kernel and its modules.
func (l *functionLister) kernel(patterns []string) error {
	k, err := symbol.OpenKernel()
	if err != nil {
		return err
	}
	if len(patterns) == 0 {
		patterns = []string{"*"}
	}
	for _, text := range patterns {
		p, err := functionPattern(text)
		if err != nil {
			return usagef("%v", err)
		}
		found, err := k.Find(p)
		if err != nil {
			return err
		}
		last := ""
		for _, fn := range found {
			line := functionExpression("kernel", fn.Name)
			switch {
			case l.long:
				fmt.Fprintf(l.w, "%#x  %s\n    %s\n", fn.Addr, fn.Module, line)
			case line != last:
				fmt.Fprintln(l.w, line)
			}
			last = line
		}
	}
	return nil
}

// process lists the functions of each file that a process has mapped as code. A pattern need not be in each of them.
func (l *functionLister) process(pid uint32, patterns, debug []string) error {
	maps, err := symbol.ReadMaps(int(pid))
	if err != nil {
		return fmt.Errorf("functions of process %d: %w", pid, err)
	}
	r := symbol.New(symbol.Options{DebugDirs: debug, Fetch: fetchDebug()})
	seen := map[*symbol.Module]bool{}
	found, failed := false, error(nil)
	for _, m := range maps {
		if !m.Exec {
			continue
		}
		mod, err := r.Mapped(pid, m)
		if errors.Is(err, symbol.ErrNoFile) {
			continue
		} else if err != nil {
			fmt.Fprintf(l.errs, "sonde: %s: %v\n", m.Path, err)
			continue
		}
		if seen[mod] {
			continue
		}
		seen[mod] = true
		err = l.file(mod.File, mod.Name, patterns)
		var none *symbol.NotFoundError
		switch {
		case err == nil:
			found = true
		case errors.Is(err, symbol.ErrNoSymbols):
			fmt.Fprintf(l.errs, "sonde: %v\n", err)
		case errors.As(err, &none):
			if failed == nil || len(none.Near) > 0 {
				failed = err
			}
		default:
			return err
		}
	}
	if !found && failed != nil {
		return failed
	}
	return nil
}

func functionPattern(text string) (symbol.Pattern, error) {
	if re, ok := strings.CutPrefix(text, "/"); ok && strings.HasSuffix(re, "/") {
		return symbol.Regexp(strings.TrimSuffix(re, "/"))
	}
	if strings.ContainsAny(text, "*?[") {
		return symbol.Glob(text), nil
	}
	return symbol.Exact(text), nil
}

// listFunctions prints expressions that select the functions. Those that are spelled alike are one line, as they are one
// expression, unless their versions tell them apart.
func listFunctions(w io.Writer, object string, funcs []symbol.Func, long bool) {
	places := make(map[string]int, len(funcs))
	for i := range funcs {
		places[funcs[i].Spelling()]++
	}
	seen := make(map[string]bool, len(funcs))
	for i := range funcs {
		fn := &funcs[i]
		name := fn.Spelling()
		if places[name] > 1 && fn.Version != "" && !fn.Stub && !symbol.Mangled(fn.Name) {
			name += "@" + fn.Version
		}
		line := functionExpression(object, name)
		if chooser := functionExpression(object, fn.IFunc); fn.IFunc != "" && !long && !seen[chooser] {
			fmt.Fprintln(w, chooser)
			seen[chooser] = true
		}
		if !long {
			if !seen[line] {
				fmt.Fprintln(w, line)
			}
			seen[line] = true
			continue
		}
		size := "?"
		if fn.Size > 0 {
			size = fmt.Sprint(fn.Size)
		}
		fmt.Fprintf(w, "%#x  offset %#x, %s bytes", fn.Addr, fn.Off, size)
		if fn.IFunc != "" {
			fmt.Fprintf(w, ", chosen by %s", fn.IFunc)
		}
		if fn.Name != name && fn.Name != "" && !fn.Stub {
			fmt.Fprintf(w, ", symbol %s", fn.Name)
		}
		if len(fn.Aliases) > 0 {
			fmt.Fprintf(w, ", also %s", strings.Join(fn.Aliases, " "))
		}
		fmt.Fprintf(w, "\n    %s\n", line)
	}
}

// functionExpression is the expression of -e that probes a function.
func functionExpression(object, name string) string {
	plain := func(r rune) bool {
		return r == '_' || r == '.' || r == '@' || r == '$' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '~'
	}
	if strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) >= 0 {
		name = "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(name) + "'"
	}
	return object + ":" + name
}
