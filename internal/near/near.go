// Package near finds names that someone may have meant who wrote one that does not exist.
package near

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// most is how many names are worth showing.
const most = 3

// Names returns up to three of the candidates that are near to name, nearest first. A third of its letters may be wrong, at
// most three; names that only add something in front or behind are near too: pread and pread64.
func Names(name string, candidates iter.Seq[string]) []string {
	if len(name) == 0 || len(name) > 64 {
		return nil
	}
	type found struct {
		name string
		dist int // twice the distance
	}
	limit := min(max(len(name)/3, 1), 3)
	lower := strings.ToLower(name)
	var list []found
	for c := range candidates {
		var d int
		switch {
		case len(name) >= 4 && strings.HasPrefix(c, name):
			d = 1
		case len(c) > len(name)+limit || len(name) > len(c)+limit:
			d = 2*limit + 1
		default:
			d = 2 * distance(lower, strings.ToLower(c))
		}
		if len(name) >= 4 && strings.HasSuffix(c, name) {
			d = min(d, 3)
		}
		if d > 2*limit {
			continue
		}
		f := found{c, d}
		at, _ := slices.BinarySearchFunc(list, f, func(a, b found) int {
			return cmp.Or(cmp.Compare(a.dist, b.dist), cmp.Compare(len(a.name), len(b.name)), cmp.Compare(a.name, b.name))
		})
		if at == most || at < len(list) && list[at].name == c {
			continue
		}
		list = slices.Insert(list, at, f)
		list = list[:min(len(list), most)]
	}
	var out []string
	for _, f := range list {
		out = append(out, f.name)
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
