package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sonde-trace/sonde/internal/ldso"
	"github.com/sonde-trace/sonde/internal/objfile"
	"github.com/sonde-trace/sonde/load/elfinfo"
)

func elfCommand() *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "elf FILE...",
		Short: "what is in an ELF file: segments, libraries, relocations, symbols, hardening",
		Long: `elf describes programs and libraries of any architecture: headers, the sections of each segment,
the dynamic section, the libraries that will be loaded and by which rule they are found, relocations
counted by type, versions, thread-local storage, notes, and what is done against attacks.`,
		Example: "  sonde elf /bin/ls\n  sonde elf -a --json ./app",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := bufio.NewWriter(cmd.OutOrStdout())
			for _, path := range args {
				f, err := objfile.Open(path)
				if err != nil {
					return errors.Join(w.Flush(), fmt.Errorf("elf: %w", err))
				}
				i := elfinfo.Read(f)
				f.Close()
				if asJSON {
					b, err := json.MarshalIndent(i, "", "  ")
					if err != nil {
						return err
					}
					fmt.Fprintln(w, string(b))
					continue
				}
				printELF(w, i, all)
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "with each section, relocation and symbol")
	cmd.Flags().BoolVar(&asJSON, "json", false, "everything as JSON")
	return cmd
}

func printELF(w io.Writer, i *elfinfo.Info, all bool) {
	fmt.Fprintf(w, "%s: %s %s, %s, %s-endian, entry %#x\n", clean(i.Path), i.Class, i.Type, i.Machine, i.Data, i.Entry)
	if i.BuildID != "" {
		fmt.Fprintf(w, "build-id %s\n", i.BuildID)
	}
	if i.Interp != "" {
		fmt.Fprintf(w, "dynamic linker %s\n", clean(i.Interp))
	}
	heading := func(s string) *tabwriter.Writer {
		fmt.Fprintf(w, "\n%s\n", s)
		return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	}
	t := heading("hardening")
	for _, g := range i.Guards {
		mark := "-"
		if g.Good {
			mark = "+"
		}
		fmt.Fprintf(t, "  %s %s\t%s\n", mark, g.Name, clean(g.Text))
	}
	t.Flush()
	t = heading("segments")
	for _, s := range i.Segments {
		fmt.Fprintf(t, "  %s\t%s\toffset %#x\tat %#x\t%#x bytes of the file\t%#x of memory\talign %#x\t%s\n", s.Type, s.Flags, s.Offset, s.Vaddr, s.FileSize, s.MemSize, s.Align, clean(strings.Join(s.Sections, " ")))
	}
	t.Flush()
	if i.TLS != nil {
		fmt.Fprintf(w, "\nthread-local storage: %d bytes, %d of them initialised, aligned to %d\n", i.TLS.Size, i.TLS.Initialised, i.TLS.Align)
	}
	if all {
		t = heading("sections")
		for _, s := range i.Sections {
			fmt.Fprintf(t, "  %d\t%s\t%s\tat %#x\toffset %#x\t%#x bytes\tentries of %d\t%s\tlink %d\tinfo %d\talign %d\n", s.Index, clean(s.Name), s.Type, s.Addr, s.Offset, s.Size, s.EntSize, s.Flags, s.Link, s.Info, s.Align)
		}
		t.Flush()
	}
	if len(i.Dynamic) > 0 {
		t = heading("dynamic section")
		for _, d := range i.Dynamic {
			fmt.Fprintf(t, "  %s\t%#x\t%s\n", d.Tag, d.Value, clean(d.Text))
		}
		t.Flush()
	}
	printNeeded(w, i.Path)
	for _, n := range i.Needs {
		fmt.Fprintf(w, "needs of %s: %s\n", clean(n.Library), clean(strings.Join(n.Versions, " ")))
	}
	for _, d := range i.Defines {
		if !d.Base {
			fmt.Fprintf(w, "defines version %s %s\n", clean(d.Name), clean(strings.Join(d.Deps, " ")))
		}
	}
	for _, r := range i.Tables {
		fmt.Fprintf(w, "\nrelocations of %s: %d\n", clean(r.Section), len(r.Entries))
		for _, k := range slices.Sorted(maps.Keys(r.Counts)) {
			fmt.Fprintf(w, "  %d %s\n", r.Counts[k], k)
		}
		if all {
			for _, e := range r.Entries {
				fmt.Fprintf(w, "  %#x %s %s %+#x\n", e.Offset, e.Type, clean(e.Symbol), e.Addend)
			}
		}
	}
	if all {
		for _, s := range i.Symbols {
			version := ""
			if s.Version != "" {
				version = "@" + s.Version
			}
			fmt.Fprintf(w, "  %s %016x %d %s %s %s %s%s\n", s.Table, s.Value, s.Size, s.Type, s.Bind, s.Section, clean(s.Name), clean(version))
		}
	} else {
		fmt.Fprintf(w, "\n%d symbols\n", len(i.Symbols))
	}
	for _, n := range i.Remarks {
		fmt.Fprintf(w, "note of %s: %s\n", clean(n.Owner), clean(n.Text))
	}
	for _, n := range i.Notes {
		fmt.Fprintf(w, "not read: %s\n", clean(n))
	}
}

// printNeeded shows the libraries that this machine's linker would load, as a tree of who needed each first.
func printNeeded(w io.Writer, path string) {
	c, err := ldso.Resolve(path, os.Environ())
	if err != nil {
		return // static, a library alone, or for another machine
	}
	defer c.Close()
	fmt.Fprintln(w, "\nlibraries that will be loaded")
	seen := map[*ldso.Object]bool{}
	var show func(o *ldso.Object, depth int)
	show = func(o *ldso.Object, depth int) {
		seen[o] = true
		for _, n := range o.Needs {
			indent := strings.Repeat("  ", depth+1)
			switch {
			case n.Object == nil:
				fmt.Fprintf(w, "%s%s: not found\n", indent, clean(n.Name))
			case n.Loaded || n.Object.Loader != o:
				fmt.Fprintf(w, "%s%s\n", indent, clean(n.Name))
			default:
				rule := ""
				if len(n.Tries) > 0 {
					rule = " by " + string(n.Tries[len(n.Tries)-1].Rule)
				}
				fmt.Fprintf(w, "%s%s => %s%s\n", indent, clean(n.Name), clean(n.Object.Path), rule)
				if !seen[n.Object] && depth < 40 {
					show(n.Object, depth+1)
				}
			}
		}
	}
	show(c.Program, 0)
}
