package symbol

import (
	"fmt"
	"regexp"
	"strings"
)

// Pattern selects functions by name. A name has several forms, and one that matches is enough: the symbol as the table has
// it, with or without @VERSION, and for C++ and Rust the demangled name without parameters, with them, and with the result
// type too. Spaces that say nothing are ignored.
//
// A symbol that is mangled is compared as it is only with a pattern that has _Z or _R in it: letters of a pattern must not
// meet letters of the mangling.
type Pattern struct {
	kind    patternKind
	text    string // as written
	glob    string // without idle spaces
	re      *regexp.Regexp
	mangled bool
}

type patternKind uint8

const (
	exact patternKind = iota
	glob
	regex
)

// Exact is the pattern of one name: open, open@GLIBC_2.2.5, open@plt, fun(int), Foo::fun, main.(*Server).Handle. When a symbol is
// spelled like this exactly, only it is meant; otherwise a name without parameters means all functions of that name: fun is
// fun(int) and fun(char*), never function or Foo::fun.
func Exact(name string) Pattern {
	return Pattern{kind: exact, text: name, glob: squeeze(name), mangled: Mangled(name)}
}

// Glob is a pattern with the wildcards of a shell, * ? [a-z] [!a-z], over the whole of a name. A * also takes "::", and "/".
// When the text is itself the name of a function, only that is meant: operator*, main.(*Server).Handle.
func Glob(pattern string) Pattern {
	return Pattern{kind: glob, text: pattern, glob: squeeze(pattern), mangled: hasMangling(pattern)}
}

// Regexp is a regular expression (RE2) that is found anywhere in a name.
func Regexp(expr string) (Pattern, error) {
	re, err := regexp.Compile(expr)
	if err != nil {
		return Pattern{}, fmt.Errorf("regular expression /%s/: %w", expr, err)
	}
	return Pattern{kind: regex, text: expr, re: re, mangled: hasMangling(expr)}, nil
}

func hasMangling(s string) bool { return strings.Contains(s, "_Z") || strings.Contains(s, "_R") }

func (p Pattern) String() string {
	if p.kind == regex {
		return "/" + p.text + "/"
	}
	return p.text
}

// matches reports whether one form of a name matches.
func (p *Pattern) matches(form string) bool {
	switch p.kind {
	case exact:
		return form == p.text || squeeze(form) == p.glob
	case glob:
		return matchGlob(p.glob, squeeze(form))
	}
	return p.re.MatchString(form)
}

// matchGlob is linear in the length of the name for each star: the last star alone is tried again.
func matchGlob(pat, s string) bool {
	star, mark := -1, 0
	i, j := 0, 0
	for j < len(s) {
		if i < len(pat) {
			if pat[i] == '*' {
				star, mark = i, j
				i++
				continue
			}
			if n, ok := matchOne(pat[i:], s[j]); ok {
				i += n
				j++
				continue
			}
		}
		if star < 0 {
			return false
		}
		mark++
		i, j = star+1, mark
	}
	for i < len(pat) && pat[i] == '*' {
		i++
	}
	return i == len(pat)
}

// matchOne compares one byte with the head of a pattern, which has n bytes.
func matchOne(pat string, c byte) (n int, ok bool) {
	switch pat[0] {
	case '?':
		return 1, true
	case '\\':
		if len(pat) > 1 {
			return 2, pat[1] == c
		}
	case '[':
		set := pat[1:]
		not := len(set) > 0 && (set[0] == '!' || set[0] == '^')
		if not {
			set = set[1:]
		}
		end := strings.IndexByte(set, ']')
		if end < 0 || end == 0 { // not closed, or []: operator[]
			break
		}
		in := false
		for k := 0; k < end; k++ {
			if k+2 < end && set[k+1] == '-' {
				in = in || set[k] <= c && c <= set[k+2]
				k += 2
			} else {
				in = in || set[k] == c
			}
		}
		n = 1 + end + 1
		if not {
			n++
		}
		return n, in != not
	}
	return 1, pat[0] == c
}
