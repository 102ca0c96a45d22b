package syscalls

import (
	"iter"
	"math/bits"
	"sort"
	"strings"
)

// Family returns the ABIs that programs may use on a machine of the Go architecture, its own first; nil for one that
// has no tables.
func Family(goarch string) []*ABI {
	switch goarch {
	case "amd64":
		return []*ABI{AMD64, I386, X32}
	case "arm64":
		return []*ABI{ARM64, ARM}
	}
	return nil
}

// ABIByName returns the ABI with that name, or nil.
func ABIByName(name string) *ABI {
	for _, a := range []*ABI{AMD64, I386, X32, ARM64, ARM} {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// All yields every call by number, those of Private last.
func (a *ABI) All() iter.Seq2[uint32, *Def] {
	return func(yield func(uint32, *Def) bool) {
		for nr := range a.Defs {
			if a.Defs[nr].Name != "" && !yield(uint32(nr), &a.Defs[nr]) {
				return
			}
		}
		nrs := make([]uint32, 0, len(a.Private))
		for nr := range a.Private {
			nrs = append(nrs, nr)
		}
		sort.Slice(nrs, func(i, j int) bool { return nrs[i] < nrs[j] })
		for _, nr := range nrs {
			if !yield(nr, a.Private[nr]) {
				return
			}
		}
	}
}

// ByName returns the number of the call with that name. It searches the table: for the command line, not for events.
func (a *ABI) ByName(name string) (nr uint32, ok bool) {
	for nr, d := range a.All() {
		if d.Name == name {
			return nr, true
		}
	}
	return 0, false
}

// classNames are strace's spellings; the first of a class is the one that String shows.
var classNames = []struct {
	name  string
	class Class
}{
	{"%file", File}, {"%desc", Desc}, {"%process", Process}, {"%signal", Signal}, {"%ipc", IPC},
	{"%network", Network}, {"%net", Network}, {"%memory", Memory},
	{"%stat", Stat}, {"%lstat", Lstat}, {"%fstat", Fstat}, {"%%stat", StatLike},
	{"%statfs", Statfs}, {"%fstatfs", Fstatfs}, {"%%statfs", StatfsLike},
	{"%creds", Creds}, {"%clock", Clock}, {"%pure", Pure},
	// Older names, without the sign.
	{"file", File}, {"desc", Desc}, {"process", Process}, {"signal", Signal}, {"ipc", IPC}, {"network", Network},
	{"memory", Memory},
}

// ClassByName returns a class by strace's name: "%file", "%%stat", "network". Names of all calls, "all" and "%all", give
// zero: [Def.In] of which holds for every call.
func ClassByName(name string) (c Class, ok bool) {
	name = strings.ToLower(name)
	if name == "all" || name == "%all" {
		return 0, true
	}
	for _, e := range classNames {
		if e.name == name {
			return e.class, true
		}
	}
	return 0, false
}

// In reports that the call belongs to all classes of c.
func (d *Def) In(c Class) bool { return d.Class&c == c }

// Classes returns the names of the classes, "%file,%desc" without the comma.
func (c Class) Classes() []string {
	names := make([]string, 0, bits.OnesCount32(uint32(c)))
	for _, e := range classNames {
		if c&e.class != 0 {
			names = append(names, e.name)
			c &^= e.class
		}
	}
	return names
}

// Suggest returns up to three names near to one that does not exist, nearest first: calls, or classes when name begins
// with %. A name has to be rather near: a third of its letters may be wrong.
func (a *ABI) Suggest(name string) []string {
	type near struct {
		name string
		dist int // twice the distance
	}
	if len(name) == 0 || len(name) > 64 {
		return nil
	}
	var list []near
	limit := len(name) / 3
	if limit < 1 {
		limit = 1
	} else if limit > 3 {
		limit = 3
	}
	add := func(candidate string) {
		d := 2 * distance(strings.ToLower(name), candidate)
		// Names that only add something are near too: pread and pread64, fstatat and newfstatat.
		if len(name) >= 4 && strings.HasPrefix(candidate, name) {
			d = 1
		} else if len(name) >= 4 && strings.HasSuffix(candidate, name) {
			d = min(d, 3)
		}
		if d <= 2*limit {
			list = append(list, near{candidate, d})
		}
	}
	if name[0] == '%' {
		for _, e := range classNames {
			if e.name[0] == '%' {
				add(e.name)
			}
		}
	} else {
		for _, d := range a.All() {
			if !strings.Contains(d.Name, "#") {
				add(d.Name)
			}
		}
	}
	sort.SliceStable(list, func(i, j int) bool {
		if list[i].dist != list[j].dist {
			return list[i].dist < list[j].dist
		}
		if len(list[i].name) != len(list[j].name) {
			return len(list[i].name) < len(list[j].name)
		}
		return list[i].name < list[j].name
	})
	var out []string
	for _, n := range list {
		if len(out) == 3 {
			break
		}
		out = append(out, n.name)
	}
	return out
}

// distance is the number of letters to insert, delete, replace or swap with their neighbour between a and b.
func distance(a, b string) int {
	var before, last, row [80]int // of a's letters i-2, i-1 and i
	if len(a) >= len(row) || len(b) >= len(row) {
		return len(a) + len(b)
	}
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
