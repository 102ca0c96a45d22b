package sink

import (
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/sonde-trace/sonde/event"
)

// SummaryOptions are the choices of -c.
type SummaryOptions struct {
	Sort     string        // "time", "min", "max", "avg", "calls", "errors", "name", "nothing"; empty is time
	Columns  []string      // in order; empty is strace's set
	Overhead time.Duration // taken off each call
}

// SummaryColumns are the columns that a table can have.
var SummaryColumns = []string{"time-percent", "total-time", "min-time", "max-time", "avg-time", "calls", "errors", "name"}

// columnAliases are strace's other words for columns and sort keys.
var columnAliases = map[string]string{
	"time": "time-percent", "time_percent": "time-percent", "percent": "time-percent",
	"total_time": "total-time", "total": "total-time", "shortest": "min-time", "min": "min-time", "min_time": "min-time",
	"longest": "max-time", "max": "max-time", "max_time": "max-time", "avg": "avg-time", "avg_time": "avg-time",
	"count": "calls", "call": "calls", "error": "errors", "syscall": "name", "syscall_name": "name", "syscall-name": "name",
}

// SummaryColumn returns the column that a word of strace's names.
func SummaryColumn(word string) (string, bool) {
	if c, ok := columnAliases[word]; ok {
		return c, true
	}
	return word, slices.Contains(SummaryColumns, word)
}

// Summary counts calls and prints a table when it is closed. The times are wall-clock times between the entry of a call
// and its return, not time on a CPU. It is used by one goroutine.
type Summary struct {
	w    io.Writer
	o    SummaryOptions
	rows map[string]*summaryRow
}

type summaryRow struct {
	name            string
	calls, errors   uint64
	total, min, max uint64 // ns
}

// NewSummary returns a sink that prints its table to w at Close.
func NewSummary(w io.Writer, o SummaryOptions) *Summary {
	if len(o.Columns) == 0 {
		o.Columns = []string{"time-percent", "total-time", "avg-time", "calls", "errors", "name"}
	}
	return &Summary{w: w, o: o, rows: make(map[string]*summaryRow)}
}

// Event counts e.
func (s *Summary) Event(e *event.Event) error {
	if e.Type != event.TypeSyscall || e.Phase == event.PhaseUnfinished || e.Phase == event.PhaseEntryOnly {
		return nil
	}
	r := s.rows[e.Name]
	if r == nil {
		r = &summaryRow{name: e.Name, min: ^uint64(0)}
		s.rows[e.Name] = r
	}
	r.calls++
	if e.Errno != 0 {
		r.errors++
	}
	d := e.Duration - min(e.Duration, uint64(s.o.Overhead))
	r.total += d
	r.min, r.max = min(r.min, d), max(r.max, d)
	return nil
}

// Flush does nothing: the table comes at the end.
func (s *Summary) Flush() error { return nil }

// widths and headings of the columns, as strace prints them.
var summaryHead = map[string]struct {
	width int
	title string
}{
	"time-percent": {6, "% time"}, "total-time": {11, "seconds"}, "min-time": {11, "shortest"}, "max-time": {11, "longest"},
	"avg-time": {11, "usecs/call"}, "calls": {9, "calls"}, "errors": {9, "errors"}, "name": {16, "syscall"},
}

// Close prints the table.
func (s *Summary) Close(*event.Ledger) error {
	var list []*summaryRow
	all := &summaryRow{name: "total", min: ^uint64(0)}
	for _, r := range s.rows {
		list = append(list, r)
		all.calls += r.calls
		all.errors += r.errors
		all.total += r.total
		all.min, all.max = min(all.min, r.min), max(all.max, r.max)
	}
	if len(list) == 0 {
		return nil
	}
	s.sort(list)
	var b strings.Builder
	rule := func() {
		for i, c := range s.o.Columns {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(strings.Repeat("-", summaryHead[c].width))
		}
		b.WriteByte('\n')
	}
	for i, c := range s.o.Columns {
		if i > 0 {
			b.WriteByte(' ')
		}
		h := summaryHead[c]
		if c == "name" && i == len(s.o.Columns)-1 {
			b.WriteString(h.title)
		} else if c == "name" {
			fmt.Fprintf(&b, "%-*s", h.width, h.title)
		} else {
			fmt.Fprintf(&b, "%*s", h.width, h.title)
		}
	}
	b.WriteByte('\n')
	rule()
	for _, r := range list {
		s.row(&b, r, all.total)
	}
	rule()
	s.row(&b, all, all.total)
	_, err := io.WriteString(s.w, b.String())
	return err
}

func (s *Summary) row(b *strings.Builder, r *summaryRow, total uint64) {
	for i, c := range s.o.Columns {
		if i > 0 {
			b.WriteByte(' ')
		}
		w := summaryHead[c].width
		switch c {
		case "time-percent":
			percent := 0.0
			if total > 0 {
				percent = 100 * float64(r.total) / float64(total)
			}
			fmt.Fprintf(b, "%*.2f", w, percent)
		case "total-time":
			fmt.Fprintf(b, "%*.6f", w, float64(r.total)/1e9)
		case "min-time":
			fmt.Fprintf(b, "%*.6f", w, float64(r.min)/1e9)
		case "max-time":
			fmt.Fprintf(b, "%*.6f", w, float64(r.max)/1e9)
		case "avg-time":
			fmt.Fprintf(b, "%*d", w, r.total/max(1, r.calls)/1000)
		case "calls":
			fmt.Fprintf(b, "%*d", w, r.calls)
		case "errors":
			if r.errors > 0 {
				fmt.Fprintf(b, "%*d", w, r.errors)
			} else {
				fmt.Fprintf(b, "%*s", w, "")
			}
		case "name":
			if i == len(s.o.Columns)-1 {
				b.WriteString(r.name)
			} else {
				fmt.Fprintf(b, "%-*s", w, r.name)
			}
		}
	}
	b.WriteByte('\n')
}

func (s *Summary) sort(list []*summaryRow) {
	key := s.o.Sort
	if key == "" || key == "time" {
		key = "total-time"
	}
	if c, ok := SummaryColumn(key); ok {
		key = c
	}
	sort.Slice(list, func(i, j int) bool {
		a, b := list[i], list[j]
		var x, y uint64
		switch key {
		case "total-time", "time-percent":
			x, y = a.total, b.total
		case "min-time":
			x, y = a.min, b.min
		case "max-time":
			x, y = a.max, b.max
		case "avg-time":
			x, y = a.total/max(1, a.calls), b.total/max(1, b.calls)
		case "calls":
			x, y = a.calls, b.calls
		case "errors":
			x, y = a.errors, b.errors
		}
		if x != y {
			return x > y
		}
		return a.name < b.name
	})
}

// Both gives every event to two sinks.
type Both struct{ A, B closer }

type closer interface {
	Event(*event.Event) error
	Flush() error
	Close(*event.Ledger) error
}

func (t Both) Event(e *event.Event) error {
	if err := t.A.Event(e); err != nil {
		return err
	}
	return t.B.Event(e)
}

func (t Both) Flush() error {
	if err := t.A.Flush(); err != nil {
		return err
	}
	return t.B.Flush()
}

func (t Both) Close(l *event.Ledger) error {
	if err := t.A.Close(l); err != nil {
		return err
	}
	return t.B.Close(l)
}
