package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand writes the man pages from the same texts as --help.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIRECTORY",
		Short: "write the man pages, one for each verb",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write the man pages: %w", err)
			}
			return manTree(cmd.Root(), args[0])
		},
	}
}

// manTree writes the page of a command and those of its verbs.
func manTree(cmd *cobra.Command, dir string) error {
	cmd.InitDefaultHelpFlag()
	for _, c := range cmd.Commands() {
		if !c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := manTree(c, dir); err != nil {
			return err
		}
	}
	file, err := os.Create(filepath.Join(dir, manName(cmd)+".1"))
	if err != nil {
		return fmt.Errorf("write the man pages: %w", err)
	}
	w := bufio.NewWriter(file)
	manPage(w, cmd)
	if err := w.Flush(); err != nil {
		file.Close()
		return fmt.Errorf("write the man pages: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("write the man pages: %w", err)
	}
	return nil
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// roff escapes text for man(7): backslashes, minus signs, and what would be a request at the start of a line.
func roff(text string) string {
	text = strings.ReplaceAll(text, `\`, `\e`)
	text = strings.ReplaceAll(text, "-", `\-`)
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

// manPage writes one page in the macros of man(7).
func manPage(w io.Writer, cmd *cobra.Command) {
	fmt.Fprintf(w, ".TH %s 1 \"\" %q %q\n.nh\n.ad l\n", roff(strings.ToUpper(manName(cmd))), "sonde "+version, "sonde")
	fmt.Fprintf(w, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\n.SH DESCRIPTION\n", roff(manName(cmd)), roff(cmd.Short), roff(cmd.UseLine()))
	long := cmd.Long
	if long == "" {
		long = cmd.Short
	}
	for i, paragraph := range strings.Split(strings.TrimSpace(long), "\n\n") {
		if i > 0 {
			fmt.Fprintln(w, ".PP")
		}
		if strings.HasPrefix(paragraph, " ") {
			fmt.Fprintf(w, ".nf\n%s\n.fi\n", roff(paragraph))
			continue
		}
		fmt.Fprintln(w, roff(paragraph))
	}
	manFlags(w, "OPTIONS", cmd.NonInheritedFlags())
	manFlags(w, "OPTIONS INHERITED FROM PARENT COMMANDS", cmd.InheritedFlags())
	if cmd.Example != "" {
		fmt.Fprintf(w, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	var also []string
	if cmd.HasParent() {
		also = append(also, manName(cmd.Parent()))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && !c.IsAdditionalHelpTopicCommand() {
			also = append(also, manName(c))
		}
	}
	if len(also) > 0 {
		fmt.Fprintln(w, ".SH SEE ALSO")
		for i, name := range also {
			end := ","
			if i == len(also)-1 {
				end = ""
			}
			fmt.Fprintf(w, ".BR %s (1)%s\n", roff(name), end)
		}
	}
}

func manFlags(w io.Writer, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(w, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		fmt.Fprintln(w, ".TP")
		if f.Shorthand != "" && f.ShorthandDeprecated == "" {
			fmt.Fprintf(w, "\\fB\\-%s\\fP, ", roff(f.Shorthand))
		}
		fmt.Fprintf(w, "\\fB\\-\\-%s\\fP", roff(f.Name))
		if value != "" {
			fmt.Fprintf(w, " \\fI%s\\fP", roff(value))
		}
		fmt.Fprintf(w, "\n%s\n", roff(usage))
	})
}
