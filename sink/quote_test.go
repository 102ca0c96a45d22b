package sink

import (
	"bytes"
	"strconv"
	"testing"
)

func TestQuote(t *testing.T) {
	for _, c := range []struct {
		in   string
		hex  HexMode
		want string
	}{
		{"abc", HexNever, `"abc"`},
		{"a\"b\\c", HexNever, `"a\"b\\c"`},
		{"\n\t\r\v\f", HexNever, `"\n\t\r\v\f"`},
		{"\x00", HexNever, `"\0"`},
		{"\x001", HexNever, `"\0001"`},
		{"\x07x", HexNever, `"\7x"`},
		{"\x079", HexNever, `"\79"`},
		{"\x1b[31m", HexNever, `"\33[31m"`},
		{"\x1b7", HexNever, `"\0337"`},
		{"h\xc3\xa9", HexNever, `"h\303\251"`},
		{"\x7f", HexNever, `"\177"`},
		{"abc", HexOdd, `"abc"`},
		{"a\nb", HexOdd, `"a\nb"`},
		{"a\x01", HexOdd, `"\x61\x01"`},
		{"ab", HexAlways, `"\x61\x62"`},
		{"", HexAlways, `""`},
	} {
		if got := string(appendQuoted(nil, []byte(c.in), c.hex)); got != c.want {
			t.Errorf("%q: %s, want %s", c.in, got, c.want)
		}
	}
}

// unquote reads a C string with octal and hexadecimal escapes.
func unquote(t *testing.T, s []byte) []byte {
	t.Helper()
	var out []byte
	s = s[1 : len(s)-1]
	for len(s) > 0 {
		if s[0] != '\\' {
			out, s = append(out, s[0]), s[1:]
			continue
		}
		s = s[1:]
		switch c := s[0]; {
		case c >= '0' && c <= '7':
			n := 1
			for n < 3 && n < len(s) && s[n] >= '0' && s[n] <= '7' {
				n++
			}
			v, err := strconv.ParseUint(string(s[:n]), 8, 8)
			if err != nil {
				t.Fatal(err)
			}
			out, s = append(out, byte(v)), s[n:]
		case c == 'x':
			v, err := strconv.ParseUint(string(s[1:3]), 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			out, s = append(out, byte(v)), s[3:]
		default:
			out, s = append(out, map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', 'v': '\v', 'f': '\f', '"': '"', '\\': '\\'}[c]), s[1:]
		}
	}
	return out
}

// Whatever the bytes, the quoted form is printable ASCII and gives them back.
func FuzzQuote(f *testing.F) {
	f.Add([]byte("a\x00\x331\x1b]0;x\x07"), 0)
	f.Add([]byte("\x9b31m\xe2\x80\xae"), 1)
	f.Fuzz(func(t *testing.T, b []byte, hex int) {
		q := appendQuoted(nil, b, HexMode(uint(hex)%3))
		for _, c := range q {
			if c < 0x20 || c > 0x7e {
				t.Fatalf("%q: %q holds the byte %#x", b, q, c)
			}
		}
		if got := unquote(t, q); !bytes.Equal(got, b) {
			t.Fatalf("%q comes back from %s as %q", b, q, got)
		}
	})
}
