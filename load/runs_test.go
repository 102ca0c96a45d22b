package load

import (
	"fmt"
	"testing"
)

func run(main int64, objects ...string) *Analysis {
	a := &Analysis{Main: main, Phases: []Phase{{Name: "execve", End: main / 2}}}
	for _, o := range objects {
		a.Objects = append(a.Objects, Object{Path: o})
	}
	return a
}

func TestMiddle(t *testing.T) {
	m := Middle([]*Analysis{run(30), run(10), run(20)})
	if got := fmt.Sprint(m.Main, m.Runs, m.Spread); got != "20 3 [{execve to main 10 20 30} {execve 5 10 15}]" {
		t.Error(got)
	}
}

func TestCompare(t *testing.T) {
	if d := Compare(run(10, "a", "b"), run(10, "a", "b")); len(d) > 0 {
		t.Errorf("%+v", d)
	}
	d := Compare(run(10e6, "a", "b"), run(12e6, "a", "c", "d"))
	if got := fmt.Sprint(d); got != "[{object 1 b c} {object 2 none d} {time to main 10.000 ms 12.000 ms} {time of execve 5.000 ms 6.000 ms}]" {
		t.Error(got)
	}
}
