package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"sort"
	"strings"
)

// runUnit runs go test on all packages without privileges (tests that need them are skipped: the other modes run those),
// prints what go test prints, and then how many tests ran and why others did not.
func (c *config) runUnit(ctx context.Context, race bool) error {
	args := []string{"test", "-json", "-timeout=10m"}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./...")...)
	cmd.Dir = c.root
	cmd.Env = append(os.Environ(), "SONDE_UNPRIVILEGED=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	u := newUnit(os.Stdout)
	readErr := u.read(out)
	err = cmd.Wait()
	u.print()
	if err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return readErr
}

// unit follows the events of go test -json (go doc test2json).
type unit struct {
	w                       io.Writer
	passed, skipped, failed int
	reasons                 map[string]int
	output                  map[string]*strings.Builder // of tests that run
}

func newUnit(w io.Writer) *unit {
	return &unit{w: w, reasons: map[string]int{}, output: map[string]*strings.Builder{}}
}

var reason = regexp.MustCompile(`^\s+\S+_test\.go:\d+: |^\s+\S+\.go:\d+: `)

func (u *unit) read(r io.Reader) error {
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			var e struct{ Action, Package, Test, Output string }
			if jerr := json.Unmarshal(line, &e); jerr != nil {
				fmt.Fprintf(u.w, "%s", line) // a build failure is plain text
			} else {
				u.event(e.Action, e.Package, e.Test, e.Output)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (u *unit) event(action, pkg, test, output string) {
	key := pkg + "." + test
	switch action {
	case "output":
		if test == "" {
			// The closing line of a package, or what is printed outside of tests.
			if output != "PASS\n" && !strings.HasPrefix(output, "coverage:") {
				io.WriteString(u.w, output)
			}
			return
		}
		if u.output[key] == nil {
			u.output[key] = &strings.Builder{}
		}
		if b := u.output[key]; b.Len() < 256<<10 {
			b.WriteString(output)
		}
	case "build-output":
		io.WriteString(u.w, output)
	case "pass", "skip", "fail":
		if test == "" {
			return
		}
		b := u.output[key]
		delete(u.output, key)
		top := !strings.Contains(test, "/")
		switch {
		case action == "fail":
			if b != nil {
				io.WriteString(u.w, b.String())
			}
			if top {
				u.failed++
			}
		case !top:
		case action == "pass":
			u.passed++
		default:
			u.skipped++
			why := "no reason given"
			if b != nil {
				for _, l := range strings.Split(b.String(), "\n") {
					if loc := reason.FindString(l); loc != "" {
						why = strings.TrimSpace(l[len(loc):])
					}
				}
			}
			u.reasons[why]++
		}
	}
}

func (u *unit) print() {
	fmt.Fprintf(u.w, "\nunit: %d tests passed, %d skipped, %d failed\n", u.passed, u.skipped, u.failed)
	var list []string
	for r := range u.reasons {
		list = append(list, r)
	}
	sort.Strings(list)
	for _, r := range list {
		fmt.Fprintf(u.w, "  skipped %3d: %s\n", u.reasons[r], r)
	}
}
