package attach

import (
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// open opens a session and attaches it; the test skips without the privilege.
func open(t testing.TB, o SyscallOptions) *Syscalls {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for bpf(2)")
	}
	if o.SelfPid == 0 {
		o.SelfPid = uint32(os.Getpid())
	}
	s, err := OpenSyscalls(o)
	if err != nil {
		var ve *VerifierError
		if errors.As(err, &ve) {
			if len(ve.Log) > 6000 {
				ve.Log = ve.Log[len(ve.Log)-6000:]
			}
			t.Fatalf("%v\n%s", err, ve.Log)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Attach(); err != nil {
		t.Fatal(err)
	}
	return s
}

// split cuts a batch into records and checks each.
func split(t testing.TB, batch []byte) (list []wire.Record) {
	t.Helper()
	for len(batch) > 0 {
		n := int(uint32(batch[0]) | uint32(batch[1])<<8 | uint32(batch[2])<<16 | uint32(batch[3])<<24)
		if n > len(batch) || n < wire.HeaderSize {
			t.Fatalf("record of %d bytes in a batch of %d", n, len(batch))
		}
		r := wire.Record(batch[:n:n])
		if !r.Valid() {
			t.Fatalf("record is not valid: %x", []byte(r))
		}
		list = append(list, r)
		batch = batch[(n+7)&^7:]
	}
	return list
}

// run starts a command under the session and returns the records of both rings, when it has ended.
func run(t testing.TB, s *Syscalls, cmd *exec.Cmd) (calls, life []wire.Record) {
	t.Helper()
	if err := s.Launching(true); err != nil {
		t.Fatal(err)
	}
	err := cmd.Start()
	if e := s.Launching(false); e != nil {
		t.Fatal(e)
	}
	if err != nil {
		t.Fatal(err)
	}
	var main, side []byte
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		var e error
		if main, e = s.Main().Read(main, 0, time.Now().Add(10*time.Millisecond)); e != nil && !errors.Is(e, os.ErrDeadlineExceeded) {
			t.Fatal(e)
		}
		select {
		case <-done:
			main, _ = s.Main().Read(main, 0, time.Time{}.Add(1))
			side, _ = s.Side().Read(side, 0, time.Time{}.Add(1))
			return split(t, main), split(t, side)
		default:
		}
	}
}

func segments(r wire.Record) (list []wire.Segment) {
	s := r.Segments()
	for {
		seg, rest, ok := s.Next()
		if !ok {
			return list
		}
		list = append(list, seg)
		s = rest
	}
}

func TestTrue(t *testing.T) {
	s := open(t, SyscallOptions{Others: true, Signals: true, Follow: true, Calls: []SyscallPlan{
		{ABI: "amd64", Nr: unix.SYS_OPENAT, Enter: []syscalls.Fetch{syscalls.Path(1)}},
		{ABI: "amd64", Nr: unix.SYS_EXECVE, Enter: []syscalls.Fetch{syscalls.Path(0), {Kind: syscalls.FetchStrings, Base: syscalls.Arg(1)}}},
		{ABI: "amd64", Nr: unix.SYS_WRITE, Enter: []syscalls.Fetch{syscalls.Buf(1, syscalls.Arg(2))}},
		{ABI: "amd64", Nr: unix.SYS_READ, Exit: []syscalls.Fetch{syscalls.Buf(1, syscalls.Ret())}},
	}})
	calls, life := run(t, s, exec.Command("/bin/sh", "-c", "echo hello; /bin/true; ls /nonexistent"))
	for _, r := range calls {
		t.Logf("%d cpu%d %d/%d kind %d nr %d flags %x seq %d args %x", r.Time(), r.CPU(), r.Tgid(), r.Tid(), r.Kind(), int32(r.Probe()), r.Flags(), r.Seq(), r.Args())
		if r.Kind() == wire.SysExit {
			t.Logf("   = %d", r.Ret())
		}
		for _, seg := range segments(r) {
			t.Logf("   %x %d %x %q", seg.Addr, seg.Errno, seg.Flags, seg.Data)
		}
	}
	for _, r := range life {
		t.Logf("%d cpu%d %d/%d kind %d %x", r.Time(), r.CPU(), r.Tgid(), r.Tid(), r.Kind(), r.Body())
	}
	c, err := s.Counters()
	t.Logf("%+v %v", c, err)
}
