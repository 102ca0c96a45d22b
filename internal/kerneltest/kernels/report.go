package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/sonde-trace/sonde/internal/kerneltest"
)

// result is the outcome of one top-level test, a line of the .jsonl files.
type result struct {
	Machine string  `json:"machine"`
	Kernel  string  `json:"kernel"`
	Package string  `json:"package"`
	Test    string  `json:"test"`
	Outcome string  `json:"outcome"` // pass, fail, skip, none: it never ended
	Seconds float64 `json:"seconds"`
	Output  string  `json:"output,omitempty"` // of those that did not pass
}

// report is what one machine's tests came to.
type report struct {
	name     string
	release  string
	began    time.Time
	took     time.Duration
	results  map[string]*result // by package and test
	order    []string
	uses     []kerneltest.Use
	exits    map[string]int
	current  map[string]string // package → the test whose output comes
	problems []string
	notes    []string // said, and no failure
}

func newReport(name string, p *payload) *report {
	r := &report{name: name, began: time.Now(), results: map[string]*result{}, exits: map[string]int{}, current: map[string]string{}}
	for _, s := range p.plan.Suites {
		for _, t := range s.Tests {
			key := s.Package + "." + t
			r.results[key] = &result{Machine: name, Package: s.Package, Test: t, Outcome: "none"}
			r.order = append(r.order, key)
		}
	}
	return r
}

func (r *report) fail(problem string) *report {
	if len(r.problems) < 50 {
		r.problems = append(r.problems, problem)
	}
	return r
}

var (
	startLine = regexp.MustCompile(`^=== (?:RUN|CONT|NAME)\s+([^\s/]+)`)
	endLine   = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): ([^\s/]+) \(([0-9.]+)s\)`)
)

func (r *report) take(m message) {
	switch {
	case m.Boot != "":
		r.release = m.Boot
	case m.Error != "":
		r.fail(strings.TrimPrefix(m.Package+": ", ": ") + m.Error)
	case m.Feature != "":
		var u kerneltest.Use
		if err := json.Unmarshal([]byte(m.Feature), &u); err != nil {
			r.fail(fmt.Sprintf("a feature line is damaged: %.100q", m.Feature))
			return
		}
		r.uses = append(r.uses, u)
	case m.Exit != nil:
		r.exits[m.Package] = *m.Exit
	case m.Output != "":
		if s := startLine.FindStringSubmatch(m.Output); s != nil {
			r.current[m.Package] = s[1]
			return
		}
		if e := endLine.FindStringSubmatch(m.Output); e != nil {
			r.current[m.Package] = e[2]
			if res := r.results[m.Package+"."+e[2]]; res != nil {
				res.Outcome = strings.ToLower(e[1])
				res.Seconds, _ = strconv.ParseFloat(e[3], 64)
			}
			return
		}
		if res := r.results[m.Package+"."+r.current[m.Package]]; res != nil && len(res.Output) < 64<<10 {
			res.Output += m.Output
		}
	}
}

// count is how many tests ended so.
func (r *report) count(outcome string) int {
	n := 0
	for _, res := range r.results {
		if res.Outcome == outcome {
			n++
		}
	}
	return n
}

// judge adds what the matrix does not allow to the problems.
func (r *report) judge(e entry) {
	missing := map[string]string{} // test → features
	for _, u := range r.uses {
		if u.Missing == "" {
			continue
		}
		top, _, _ := strings.Cut(u.Test, "/")
		missing[top] += " " + u.Feature
		if !e.anyMissing && !e.missing[u.Feature] {
			r.fail(fmt.Sprintf("%s: feature %s is missing, which test/kernels.txt does not say: %s", u.Test, u.Feature, u.Missing))
		}
	}
	for _, key := range r.order {
		switch res := r.results[key]; res.Outcome {
		case "fail":
			if e.known[res.Test] {
				r.notes = append(r.notes, "failed, as is known of this kernel: "+key)
				continue
			}
			r.fail("failed: " + key)
		case "none":
			r.fail("never ended: " + key)
		case "skip":
			if missing[res.Test] == "" {
				r.fail(fmt.Sprintf("%s was skipped, not for a missing feature: %s", key, strings.TrimSpace(res.Output)))
			}
		}
	}
	for pkg, code := range r.exits {
		if code != 0 && r.count("fail") == 0 {
			r.fail(fmt.Sprintf("%s: the tests ended with %d", pkg, code))
		}
	}
	if n := r.count("pass"); n < e.passed {
		r.fail(fmt.Sprintf("%d tests passed, test/kernels.txt wants %d", n, e.passed))
	}
}

func (r *report) print(w io.Writer) {
	verdict := "ok  "
	if len(r.problems) > 0 {
		verdict = "FAIL"
	}
	fmt.Fprintf(w, "%s %-16s %-26s %3d passed %3d skipped %3d failed  %s\n", verdict, r.name, r.release, r.count("pass"), r.count("skip"),
		r.count("fail")+r.count("none"), r.took.Round(time.Second))
	for _, p := range append(r.notes, r.problems...) {
		fmt.Fprintf(w, "     %s\n", p)
	}
	for _, key := range r.order {
		if res := r.results[key]; res.Outcome == "fail" || res.Outcome == "none" {
			fmt.Fprintf(w, "     --- %s %s\n", strings.ToUpper(res.Outcome), key)
			for _, l := range strings.Split(strings.TrimRight(excerpt(res.Output), "\n"), "\n") {
				fmt.Fprintf(w, "         %s\n", strings.TrimRight(l, "\r"))
			}
		}
	}
}

// excerpt is what to print of a test's output: its end, or the head of a panic, whose stacks say little.
func excerpt(s string) string {
	const most = 4000
	if i := strings.Index(s, "panic: "); i >= 0 {
		s = s[max(0, i-most/2):]
		if len(s) > most {
			s = s[:most] + "…"
		}
		return s
	}
	if len(s) > most {
		return "…" + s[len(s)-most:]
	}
	return s
}

// save writes the results as JSON lines.
func (r *report) save(path string) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		r.fail(err.Error())
		return
	}
	defer f.Close()
	enc := json.NewEncoder(f)
	for _, key := range r.order {
		res := *r.results[key]
		res.Kernel = r.release
		if res.Outcome == "pass" {
			res.Output = ""
		}
		if err := enc.Encode(res); err != nil {
			r.fail(err.Error())
			return
		}
	}
	for _, u := range r.uses {
		if err := enc.Encode(u); err != nil {
			r.fail(err.Error())
			return
		}
	}
}

// summary prints how often each feature was there and missing, by machine, and fails when a machine has.
func summary(w io.Writer, reports []*report) error {
	type tally struct{ ran, skipped int }
	features := map[string]map[string]tally{}
	var failed []string
	passed, skipped := 0, 0
	for _, r := range reports {
		passed += r.count("pass")
		skipped += r.count("skip")
		if len(r.problems) > 0 {
			failed = append(failed, r.name)
		}
		for _, u := range r.uses {
			if features[u.Feature] == nil {
				features[u.Feature] = map[string]tally{}
			}
			t := features[u.Feature][r.name]
			if u.Missing == "" {
				t.ran++
			} else {
				t.skipped++
			}
			features[u.Feature][r.name] = t
		}
	}
	var names []string
	for f := range features {
		names = append(names, f)
	}
	sort.Strings(names)
	fmt.Fprintf(w, "\nfeature: uses with it / skips without it\n")
	for _, f := range names {
		var parts []string
		for _, r := range reports {
			if t, ok := features[f][r.name]; ok {
				parts = append(parts, fmt.Sprintf("%s %d/%d", r.name, t.ran, t.skipped))
			}
		}
		fmt.Fprintf(w, "  %-16s %s\n", f, strings.Join(parts, "  "))
	}
	fmt.Fprintf(w, "\n%d machines: %d tests passed, %d skipped, machines that failed: %d\n", len(reports), passed, skipped, len(failed))
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s", strings.Join(failed, ", "))
	}
	return nil
}
