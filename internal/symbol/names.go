package symbol

import (
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// maxDemangled bounds a demangled name, as a power of two: mangled names can describe texts of exponential length.
const maxDemangled = 14

// Mangled reports whether name is that of C++ or Rust.
func Mangled(name string) bool { return strings.HasPrefix(name, "_Z") || strings.HasPrefix(name, "_R") }

// Demangle gives a name as it is in the source, with parameters for C++; a name that is not mangled, or not of C++ or Rust,
// comes back as it is.
func Demangle(name string) string {
	if !Mangled(name) {
		return name
	}
	return demangle.Filter(name, demangle.MaxLength(maxDemangled))
}

// forms are the ways to write the name of one function.
type forms struct {
	full      string // as Demangle gives it: int tmax<int>(int, int)
	name      string // without result and parameters: tmax<int>
	signature string // without the result: tmax<int>(int, int)
}

func formsOf(raw string) forms {
	if !Mangled(raw) {
		return forms{raw, raw, raw}
	}
	full, err := demangle.ToString(raw, demangle.MaxLength(maxDemangled))
	if err != nil {
		return forms{raw, raw, raw}
	}
	name := demangle.Filter(raw, demangle.NoParams, demangle.MaxLength(maxDemangled))
	f := forms{full, name, full}
	if !strings.HasPrefix(full, name) {
		if i := strings.Index(full, " "+name+"("); i >= 0 {
			f.signature = full[i+1:]
		}
	}
	// A part or a copy that the compiler made of a function is not the function.
	if i := strings.Index(full, " [clone "); i >= 0 {
		f.name += full[i:]
	}
	return f
}

// squeeze takes out the spaces that say nothing: those beside anything but two letters.
func squeeze(s string) string {
	if strings.IndexByte(s, ' ') < 0 {
		return s
	}
	word := func(c byte) bool {
		return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
	}
	b := make([]byte, 0, len(s))
	for i := range len(s) {
		if s[i] == ' ' && (len(b) == 0 || i+1 == len(s) || !word(b[len(b)-1]) || !word(s[i+1])) {
			continue
		}
		b = append(b, s[i])
	}
	return string(b)
}
