package attach

import (
	"os"
	"testing"
)

// Every feature says whether it works; one that does not says why and what to do.
func TestFeatures(t *testing.T) {
	for _, f := range Features() {
		t.Logf("%-22s %v %s", f.Name, f.Err, f.Note)
		if f.Name == "" || f.For == "" {
			t.Errorf("%+v: without a name or a use", f)
		}
		if f.Err != nil && f.Needs != Info && f.Fix == "" {
			t.Errorf("%s: no remedy for %v", f.Name, f.Err)
		}
		if f.Err != nil && f.Needs == Required && os.Geteuid() == 0 {
			t.Errorf("%s: %v", f.Name, f.Err)
		}
	}
}

// The self-test must see its own hits: the offset it probes is the function it calls.
func TestProbedOffset(t *testing.T) {
	off, err := probedOffset()
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if off == 0 || off >= uint64(fi.Size()) {
		t.Errorf("offset %#x is not in a file of %d bytes", off, fi.Size())
	}
}
