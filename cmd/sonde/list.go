package main

import (
	"bufio"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/probe"
)

func listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "what can be traced",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	cmd.AddCommand(listSyscallsCommand(), listFunctionsCommand())
	return cmd
}

func listSyscallsCommand() *cobra.Command {
	var abi string
	var long bool
	cmd := &cobra.Command{
		Use:   "syscalls [SET...]",
		Short: "system calls by name; each line is valid for -e",
		Example: `  sonde list syscalls
  sonde list syscalls %network
  sonde list syscalls -l openat '/^sched_'`,
		ValidArgsFunction: completeSyscalls,
		RunE: func(cmd *cobra.Command, args []string) error {
			family := syscalls.Family(runtime.GOARCH)
			if abi != "" {
				a := syscalls.ABIByName(abi)
				if a == nil {
					return usagef("%s: no such ABI; amd64, i386, x32, arm64 and arm are known", abi)
				}
				family = []*syscalls.ABI{a}
			} else {
				family = family[:1]
			}
			sel, err := probe.ParseSyscalls(args, family)
			if err != nil {
				return err
			}
			w := bufio.NewWriter(cmd.OutOrStdout())
			a := family[0]
			for nr, d := range a.All() {
				if !sel.Has(a.Name, nr) {
					continue
				}
				if !long {
					fmt.Fprintln(w, d.Name)
					continue
				}
				params := make([]string, len(d.Args))
				for i, p := range d.Args {
					params[i] = strings.TrimSpace(strings.ReplaceAll(p.Type, " __user ", " ")+" ") + space(p.Type) + p.Name
				}
				fmt.Fprintf(w, "%4d %s(%s)  %s\n", nr, d.Name, strings.Join(params, ", "), strings.Join(d.Class.Classes(), " "))
			}
			return w.Flush()
		},
	}
	cmd.Flags().StringVar(&abi, "abi", "", "table of another `ABI`: amd64, i386, x32, arm64, arm")
	cmd.Flags().BoolVarP(&long, "long", "l", false, "with numbers, arguments and classes")
	return cmd
}

// space is what stands between a C type and a name.
func space(typ string) string {
	if strings.HasSuffix(typ, "*") {
		return ""
	}
	return " "
}

// completeSyscalls completes the last item of a list of system calls and classes.
func completeSyscalls(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	prefix := ""
	if i := strings.LastIndexByte(toComplete, ','); i >= 0 {
		prefix, toComplete = toComplete[:i+1], toComplete[i+1:]
	}
	if strings.HasPrefix(toComplete, "!") || strings.HasPrefix(toComplete, "?") {
		prefix, toComplete = prefix+toComplete[:1], toComplete[1:]
	}
	var out []string
	for _, d := range syscalls.Family(runtime.GOARCH)[0].All() {
		if strings.HasPrefix(d.Name, toComplete) {
			out = append(out, prefix+d.Name)
		}
	}
	for _, name := range syscalls.Class(^uint32(0)).Classes() {
		if strings.HasPrefix(name, toComplete) {
			out = append(out, prefix+name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
