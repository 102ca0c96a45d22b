package main

import (
	"fmt"
	"regexp"
	"sort"
	"strings"
)

// set is one set of a list.
type set struct {
	pos     string // file:line
	name    string
	flags   bool
	prefix  string
	headers []string
	items   []item
	match   []*regexp.Regexp
	skip    []*regexp.Regexp

	byABI map[string][]entry // the result
}

// item is one name that the list gives itself.
type item struct {
	pos      string
	name     string
	optional bool
	expr     string // empty: the name itself
}

type entry struct {
	name string
	num  uint64
}

var (
	comment = regexp.MustCompile(`(^|\s)#.*$`)
	goName  = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	cName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	header  = regexp.MustCompile(`^<([A-Za-z0-9_./-]+)>$`)
)

func parse(path, text string) ([]*set, error) {
	var list []*set
	for i, line := range strings.Split(text, "\n") {
		pos := fmt.Sprintf("%s:%d", path, i+1)
		line = strings.TrimSpace(comment.ReplaceAllString(line, ""))
		if line == "" {
			continue
		}
		word := strings.Fields(line)
		if word[0] == "set" {
			s, err := parseSet(pos, word)
			if err != nil {
				return nil, err
			}
			list = append(list, s)
			continue
		}
		if len(list) == 0 {
			return nil, fmt.Errorf("%s: %q stands before the first set", pos, line)
		}
		s := list[len(list)-1]
		if word[0] == "match" || word[0] == "skip" {
			re, err := regexp.Compile(strings.TrimSpace(line[len(word[0]):]))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", pos, err)
			}
			if word[0] == "match" {
				s.match = append(s.match, re)
			} else {
				s.skip = append(s.skip, re)
			}
			continue
		}
		if name, expr, ok := strings.Cut(line, "="); ok {
			name, expr = strings.TrimSpace(name), strings.TrimSpace(expr)
			name, optional := strings.CutPrefix(name, "?")
			if name == "" || expr == "" {
				return nil, fmt.Errorf("%s: want NAME = NUMBER", pos)
			}
			s.items = append(s.items, item{pos: pos, name: name, optional: optional, expr: expr})
			continue
		}
		for _, name := range word {
			name, optional := strings.CutPrefix(name, "?")
			if !cName.MatchString(name) {
				return nil, fmt.Errorf("%s: %q is not a name", pos, name)
			}
			s.items = append(s.items, item{pos: pos, name: name, optional: optional})
		}
	}
	return list, nil
}

func parseSet(pos string, word []string) (*set, error) {
	if len(word) < 4 || !goName.MatchString(word[1]) || word[2] != "flags" && word[2] != "enum" {
		return nil, fmt.Errorf("%s: want: set GoName flags|enum PREFIX_ <header>...", pos)
	}
	s := &set{pos: pos, name: word[1], flags: word[2] == "flags", prefix: word[3]}
	if s.prefix == "-" {
		s.prefix = ""
	} else if !strings.Contains(s.prefix, "?") {
		s.prefix += "???"
	}
	for _, w := range word[4:] {
		m := header.FindStringSubmatch(w)
		if m == nil {
			return nil, fmt.Errorf("%s: %q is not <a/header.h>", pos, w)
		}
		s.headers = append(s.headers, m[1])
	}
	return s, nil
}

// wanted reports whether a name of the headers belongs to the set by its match and skip lines.
func (s *set) wanted(name string) bool {
	for _, re := range s.skip {
		if re.MatchString(name) {
			return false
		}
	}
	for _, re := range s.match {
		if re.MatchString(name) {
			return true
		}
	}
	return false
}

// arrange brings entries into the order of a Set and drops those that could never be shown.
func (s *set) arrange(listed, matched []entry) []entry {
	if s.flags {
		sort.SliceStable(matched, func(i, j int) bool { return matched[i].num < matched[j].num })
		matched = widestFirst(matched)
	}
	all := append(append([]entry(nil), listed...), matched...)
	seen := make(map[uint64]bool)
	kept := all[:0]
	for _, e := range all {
		if !seen[e.num] {
			seen[e.num] = true
			kept = append(kept, e)
		}
	}
	if !s.flags {
		sort.SliceStable(kept, func(i, j int) bool { return kept[i].num < kept[j].num })
	}
	return kept
}

// widestFirst moves an entry in front of the first one whose bits are all its own.
func widestFirst(in []entry) []entry {
	var out []entry
	for _, e := range in {
		at := len(out)
		for i, o := range out {
			if o.num != 0 && e.num != o.num && e.num&o.num == o.num {
				at = i
				break
			}
		}
		out = append(out, entry{})
		copy(out[at+1:], out[at:])
		out[at] = e
	}
	return out
}
