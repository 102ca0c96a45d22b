package attach

import (
	"os"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// TestScanAgrees compares the scan with a complete reader of BTF.
func TestScanAgrees(t *testing.T) {
	raw, release, err := mapBTF(btfPath)
	if err != nil {
		t.Skip("needs kernel BTF:", err)
	}
	defer release()
	s, err := scanBTF(raw, "task_struct", "signal_struct", "thread_info", "file", "dentry", "sk_buff", "no_such_struct")
	if err != nil {
		t.Fatal(err)
	}
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"task_struct", "pid"}, {"task_struct", "tgid"}, {"task_struct", "exit_code"}, {"task_struct", "signal"},
		{"signal_struct", "live"}, {"thread_info", "flags"}, {"file", "f_inode"}, {"dentry", "d_parent"}, {"sk_buff", "protocol"}} {
		var st *btf.Struct
		if err := spec.TypeByName(c[0], &st); err != nil {
			t.Fatal(err)
		}
		want, ok := offsetOf(st, c[1])
		if !ok {
			t.Fatalf("no %s in %s", c[1], c[0])
		}
		if got, err := s.member(c[0], c[1]); err != nil || got != want {
			t.Errorf("%s.%s: %d, %v; want %d", c[0], c[1], got, err, want)
		}
	}
	if _, err := s.member("task_struct", "no_such_member"); err == nil {
		t.Error("found a member that does not exist")
	}
	if _, err := s.member("no_such_struct", "x"); err == nil {
		t.Error("found a structure that does not exist")
	}
}

func offsetOf(t btf.Type, name string) (int, bool) {
	var members []btf.Member
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	for _, m := range members {
		if m.Name == name {
			return int(m.Offset.Bytes()), true
		}
		if m.Name == "" {
			if o, ok := offsetOf(m.Type, name); ok {
				return int(m.Offset.Bytes()) + o, true
			}
		}
	}
	return 0, false
}

func BenchmarkScan(b *testing.B) {
	for b.Loop() {
		raw, release, err := mapBTF(btfPath)
		if err != nil {
			b.Skip(err)
		}
		s, err := scanBTF(raw, "task_struct")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.member("task_struct", "pid"); err != nil {
			b.Fatal(err)
		}
		release()
	}
}

func FuzzScan(f *testing.F) {
	if raw, err := os.ReadFile(btfPath); err == nil {
		// The header with no sections, and a cut one.
		f.Add(raw[:24])
		f.Add(raw[:4096])
	}
	f.Add([]byte("\x9f\xeb\x01\x00\x18\x00\x00\x00\x00\x00\x00\x00\x18\x00\x00\x00\x18\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x04\x04\x00\x00\x00\x03\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00a\x00b\x00\x00"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := scanBTF(raw, "task_struct", "a")
		if err != nil {
			return
		}
		s.member("task_struct", "pid")
		s.member("a", "b")
	})
}
