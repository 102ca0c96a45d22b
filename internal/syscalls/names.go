package syscalls

import (
	"iter"
	"math/bits"
	"sort"
	"strings"

	"github.com/sonde-trace/sonde/internal/near"
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
// with %.
func (a *ABI) Suggest(name string) []string {
	return near.Names(name, func(yield func(string) bool) {
		if strings.HasPrefix(name, "%") {
			for _, e := range classNames {
				if e.name[0] == '%' && !yield(e.name) {
					return
				}
			}
			return
		}
		for _, d := range a.All() {
			if !strings.Contains(d.Name, "#") && !yield(d.Name) {
				return
			}
		}
	})
}
