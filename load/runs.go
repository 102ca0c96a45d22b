package load

import (
	"fmt"
	"slices"
	"strings"
)

// Spread is how a time differs from run to run, in ns.
type Spread struct {
	Name   string `json:"name"` // of a phase, or "execve to main"
	Min    int64  `json:"min_ns"`
	Median int64  `json:"median_ns"`
	Max    int64  `json:"max_ns"`
}

// Middle is the run whose time to main is the median, with the spread over all runs in it. Of runs that differ in what happened only
// the times are compared. runs is not empty.
func Middle(runs []*Analysis) *Analysis {
	sorted := slices.Clone(runs)
	slices.SortStableFunc(sorted, func(a, b *Analysis) int {
		switch {
		case a.Main < b.Main:
			return -1
		case a.Main > b.Main:
			return 1
		}
		return 0
	})
	m := sorted[len(sorted)/2]
	m.Runs = len(runs)
	times := map[string][]int64{}
	names := []string{"execve to main"}
	for _, r := range runs {
		times[names[0]] = append(times[names[0]], r.Main)
		for _, p := range r.Phases {
			times[p.Name] = append(times[p.Name], p.End-p.Start)
		}
	}
	for _, p := range m.Phases {
		names = append(names, p.Name)
	}
	for _, n := range names {
		list := times[n]
		slices.Sort(list)
		m.Spread = append(m.Spread, Spread{n, list[0], list[len(list)/2], list[len(list)-1]})
	}
	return m
}

// Difference is one thing in which two analyses differ.
type Difference struct {
	What string `json:"what"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// Compare says in what two analyses differ, what came first on the way first: the program, the objects and where they were found,
// searches, bindings, the map, and last the times. Addresses are not compared: they are chosen anew in each run.
func Compare(a, b *Analysis) (list []Difference) {
	add := func(what, x, y string) {
		if x != y {
			list = append(list, Difference{what, x, y})
		}
	}
	add("program", a.Path, b.Path)
	add("type", a.Type, b.Type)
	add("build-id", a.BuildID, b.BuildID)
	add("kernel", a.Kernel, b.Kernel)
	add("architecture", a.Arch, b.Arch)
	why := func(x *Analysis) string {
		if x.Diagnosis == nil {
			return "it starts"
		}
		return x.Diagnosis.Text
	}
	add("start", why(a), why(b))
	for i := range max(len(a.Objects), len(b.Objects)) {
		show := func(x *Analysis) string {
			if i >= len(x.Objects) {
				return "none"
			}
			return strings.TrimSpace(x.Objects[i].Path + " " + x.Objects[i].Rule)
		}
		add(fmt.Sprintf("object %d", i), show(a), show(b))
		if i < len(a.Objects) && i < len(b.Objects) && a.Objects[i].Path == b.Objects[i].Path {
			add("places searched for "+a.Objects[i].Path, fmt.Sprint(len(a.Objects[i].Tries)), fmt.Sprint(len(b.Objects[i].Tries)))
		}
	}
	bound := func(x *Analysis) map[string]string {
		m := map[string]string{}
		for _, v := range x.Bindings {
			m[v.By+" "+v.Symbol] = v.To
		}
		return m
	}
	if len(a.Bindings) > 0 && len(b.Bindings) > 0 {
		other := bound(b)
		for _, v := range a.Bindings {
			if to, ok := other[v.By+" "+v.Symbol]; ok {
				add("binding of "+v.Symbol+" in "+v.By, v.To, to)
			}
		}
	}
	add("changes of the memory map", fmt.Sprint(len(a.Steps)), fmt.Sprint(len(b.Steps)))
	add("system calls", fmt.Sprint(a.Calls), fmt.Sprint(b.Calls))
	add("failed opens", fmt.Sprint(a.Failed), fmt.Sprint(b.Failed))
	time := func(ns int64) string { return fmt.Sprintf("%.3f ms", float64(ns)/1e6) }
	took := func(x *Analysis, name string) string {
		for _, p := range x.Phases {
			if p.Name == name {
				return time(p.End - p.Start)
			}
		}
		return "none"
	}
	add("time to main", time(a.Main), time(b.Main))
	for _, p := range a.Phases {
		add("time of "+p.Name, took(a, p.Name), took(b, p.Name))
	}
	return list
}
