package near

import (
	"slices"
	"testing"
)

func TestNames(t *testing.T) {
	all := []string{"open", "openat", "openat2", "close", "read", "pread64", "preadv", "libc_malloc", "malloc", "SSL_write"}
	for _, c := range []struct {
		name string
		want []string
	}{
		{"opneat", []string{"openat", "openat2"}},
		{"pread", []string{"preadv", "pread64", "read"}},
		{"maloc", []string{"malloc"}},
		{"ssl_write", []string{"SSL_write"}},
		{"xyzzyx", nil},
		{"", nil},
	} {
		if got := Names(c.name, slices.Values(all)); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.name, got, c.want)
		}
	}
	if got := Names("openat", slices.Values([]string{"openat2", "openat2"})); len(got) != 1 {
		t.Errorf("a name comes twice: %q", got)
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		d    int
	}{{"", "", 0}, {"a", "", 1}, {"open", "open", 0}, {"opneat", "openat", 1}, {"openat", "openat2", 1}, {"stat", "fstat", 1}, {"kitten", "sitting", 3}} {
		if d := distance(c.a, c.b); d != c.d {
			t.Errorf("%q %q: %d, want %d", c.a, c.b, d, c.d)
		}
		if d := distance(c.b, c.a); d != c.d {
			t.Errorf("%q %q: %d, want %d", c.b, c.a, d, c.d)
		}
	}
}
