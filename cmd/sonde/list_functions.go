package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-trace/sonde/internal/objfile"
	"github.com/sonde-trace/sonde/internal/symbol"
)

func listFunctionsCommand() *cobra.Command {
	var long, stubs bool
	var debug []string
	cmd := &cobra.Command{
		Use:   "functions FILE [PATTERN...]",
		Short: "functions of a program or library; each line is valid for -e",
		Long: `functions lists the functions of an ELF file by address, as its symbol tables, its debug file or Go's line table name them.
A PATTERN selects by name: exact, with the wildcards * ? [a-z], or a regular expression between slashes. C++ and Rust names are
compared as they are in the source, with and without parameters.`,
		Example: `  sonde list functions /lib/x86_64-linux-gnu/libc.so.6 'open*'
  sonde list functions ./app '*::fun'
  sonde list functions -l ./app '/^main\./'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := objfile.OpenWithOptions(args[0], objfile.Options{DebugDirs: debug})
			if err != nil {
				return fmt.Errorf("functions: %w", err)
			}
			defer f.Close()
			patterns := args[1:]
			if len(patterns) == 0 {
				patterns = []string{"*"}
				if stubs {
					patterns = append(patterns, "*@plt")
				}
			}
			w := bufio.NewWriter(cmd.OutOrStdout())
			for _, text := range patterns {
				p, err := functionPattern(text)
				if err != nil {
					return usagef("%v", err)
				}
				found, err := symbol.Find(f, p)
				var none *symbol.NotFoundError
				if errors.As(err, &none) && len(args) == 1 {
					continue
				} else if err != nil {
					w.Flush()
					return err
				}
				if len(args) > 1 {
					for _, n := range found.Notes {
						fmt.Fprintln(cmd.ErrOrStderr(), "sonde:", n)
					}
				}
				listFunctions(w, args[0], found.Funcs, long)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVarP(&long, "long", "l", false, "with address, offset in the file, size, symbol and other names")
	cmd.Flags().BoolVar(&stubs, "plt", false, "with the calls into libraries, as NAME@plt")
	cmd.Flags().StringArrayVar(&debug, "debuginfo", nil, "look for debug files in `DIR` first; repeatable")
	return cmd
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
		return r == '_' || r == '.' || r == '@' || r == ':' || r == '$' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '~'
	}
	if strings.IndexFunc(name, func(r rune) bool { return !plain(r) }) >= 0 {
		name = "'" + name + "'"
	}
	return object + ":" + name
}
