package decode

import "testing"

// TestPlain: with structures as addresses, strings and buffers are still themselves.
func TestPlain(t *testing.T) {
	for _, c := range []struct {
		call string
		c    Cx
		want string
	}{
		{"nanosleep", Cx{Arg: [6]uint64{0x1000, 0}, Exited: true, EnterSeg: captured(0x1000, le(uint64(1), uint64(2)))},
			"nanosleep(unreadable(0x1000, 0), NULL) = 0"},
		{"chdir", Cx{Arg: [6]uint64{0x1000}, Exited: true, EnterSeg: captured(0x1000, "/tmp\x00")}, `chdir("/tmp") = 0`},
		{"write", Cx{Arg: [6]uint64{1, 0x1000, 2}, Exited: true, Ret: 2, EnterSeg: captured(0x1000, "hi")}, `write(1, "hi", 2) = 2`},
	} {
		c.c.Opt.Plain = true
		if got := show(t, &c.c, c.call); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	c := Cx{Arg: [6]uint64{1, 0x1000, 2}}
	RawArgs(3)(&c)
	if got := outline(c.Nodes); got != "0x1, 0x1000, 0x2" {
		t.Errorf("raw arguments: %s", got)
	}
}

// TestSelectNote: a select whose sets come back empty has an explanation, an empty one; one that failed has none.
func TestSelectNote(t *testing.T) {
	set := le(uint64(1 << 3))
	c := Cx{Arg: [6]uint64{4, 0x1000, 0x2000, 0, 0}, Exited: true, Ret: 1, EnterSeg: captured(0x1000, set, 0x2000, set),
		ExitSeg: captured(0x1000, le(uint64(0)), 0x2000, le(uint64(0)))}
	show(t, &c, "select")
	if !c.Noted || c.Note != "" {
		t.Errorf("note %q, there: %t", c.Note, c.Noted)
	}
	c = Cx{Arg: [6]uint64{4, 0x1000, 0, 0, 0}, Exited: true, Ret: -9, EnterSeg: captured(0x1000, set)}
	show(t, &c, "select")
	if c.Noted {
		t.Error("a failed select is explained")
	}
}
