package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sonde-trace/sonde/internal/attach"
)

func doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "what works on this machine, what does not, why, and what to do",
		Long: `doctor tries every feature of the kernel that sonde uses, on memory and functions of its own,
and says for each: works or not, why, and the remedy. Without privileges it says what
cannot be tried. Exit status 0 when system calls can be traced here, 1 when not.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			list := attach.Features()
			able := true
			for _, f := range list {
				if f.Err != nil && f.Needs == attach.Required {
					able = false
				}
			}
			out := cmd.OutOrStdout()
			if asJSON {
				type row struct {
					Name     string `json:"name"`
					For      string `json:"for"`
					Works    bool   `json:"works"`
					Required bool   `json:"required"`
					Why      string `json:"why,omitempty"`
					Note     string `json:"note,omitempty"`
					Fix      string `json:"fix,omitempty"`
				}
				rows := make([]row, 0, len(list))
				for _, f := range list {
					r := row{Name: f.Name, For: f.For, Works: f.Err == nil, Required: f.Needs == attach.Required, Note: f.Note, Fix: f.Fix}
					if f.Err != nil {
						r.Why = f.Err.Error()
					}
					rows = append(rows, r)
				}
				enc := json.NewEncoder(out)
				enc.SetIndent("", "  ")
				if err := enc.Encode(map[string]any{"schema": 1, "able": able, "features": rows}); err != nil {
					return err
				}
			} else {
				for _, f := range list {
					mark := "ok  "
					switch {
					case f.Err != nil && f.Needs == attach.Required:
						mark = "NO  "
					case f.Err != nil:
						mark = "no  "
					case f.Needs == attach.Info:
						mark = "    "
					}
					fmt.Fprintf(out, "%s%-22s %s\n", mark, f.Name, f.For)
					if f.Err != nil {
						fmt.Fprintf(out, "      %s\n", clean(f.Err.Error()))
					}
					if f.Note != "" {
						fmt.Fprintf(out, "      %s\n", clean(f.Note))
					}
					if f.Fix != "" {
						fmt.Fprintf(out, "      remedy: %s\n", f.Fix)
					}
				}
				if able {
					fmt.Fprintln(out, "\nsonde trace works here.")
				} else {
					fmt.Fprintln(out, "\nsonde trace does not work here: see the lines marked NO.")
				}
			}
			if !able {
				return &exitError{code: exitOwn}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}
