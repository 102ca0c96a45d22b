package decode

import "testing"

// TestFDName: which device a descriptor refers to follows its name, and nothing that a record says can break that.
func TestFDName(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"/etc/passwd", "/etc/passwd"},
		{"/dev/full\x00c\x07\x00\x10\x00", "/dev/full\x00char 1:7"},
		{"/dev/sda1 (deleted)\x00b\x01\x00\x80\x00", "/dev/sda1 (deleted)\x00block 8:1"},
		{"/dev/x\x00z\x01\x00\x80\x00", "/dev/x"},
		{"\x00c\x01\x00\x80\x00", "\x00c\x01\x00\x80\x00"}, // no name: not what the kernel programs write
		{"", ""},
	} {
		var cx Cx
		if got := string(cx.fdName([]byte(c.in))); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}
