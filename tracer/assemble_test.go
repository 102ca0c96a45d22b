package tracer

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/decode"
	"github.com/sonde-trace/sonde/internal/wire"
)

// lines is a sink that notes each event in a few words.
type lines struct {
	list []string
	last uint64
	err  error
}

var phases = map[event.Phase]string{
	event.PhaseComplete: "", event.PhaseUnfinished: " unfinished", event.PhaseResumed: " resumed", event.PhaseEntryOnly: " entry-only",
	event.PhaseExitOnly: " exit-only", event.PhaseEntryLost: " entry-lost", event.PhaseExitLost: " exit-lost",
}

func (l *lines) Event(e *event.Event) error {
	if e.Time < l.last && !e.Late && l.err == nil {
		l.err = fmt.Errorf("%s at %d after an event at %d, and not marked late", l.describe(e), e.Time, l.last)
	}
	l.last = max(l.last, e.Time)
	l.list = append(l.list, l.describe(e))
	return nil
}

func (l *lines) describe(e *event.Event) string {
	late := ""
	if e.Late {
		late = " late"
	}
	switch e.Type {
	case event.TypeSyscall:
		s := fmt.Sprintf("%d %s%s", e.Task.Tid, e.Name, phases[e.Phase])
		if e.Phase == event.PhaseComplete || e.Phase == event.PhaseResumed || e.Phase == event.PhaseExitOnly {
			s += fmt.Sprintf(" = %d", e.Ret)
		}
		return s + late
	case event.TypeFork:
		return fmt.Sprintf("%d fork %d", e.Task.Tid, e.Child.Tid) + late
	case event.TypeExec:
		return fmt.Sprintf("%d exec by %d %s", e.Task.Tid, e.OldTid, e.Task.Comm) + late
	case event.TypeExit:
		return fmt.Sprintf("%d exit %#x", e.Task.Tid, e.Status) + late
	case event.TypeSignal:
		return fmt.Sprintf("%d signal %d", e.Task.Tid, e.Signal) + late
	case event.TypeRename:
		return fmt.Sprintf("%d rename %s", e.Task.Tid, e.Task.Comm) + late
	}
	return fmt.Sprintf("type %d", e.Type) + late
}

func (l *lines) Flush() error { return nil }

// Numbers of amd64, which the assembler under test is made for on any machine.
const (
	nrRead      = 0
	nrNanosleep = 35
	nrGetpid    = 39
	nrClone     = 56
	nrExecve    = 59
	nrExitGroup = 231
	nrPause     = 34
	nrSigreturn = 15
)

// rec makes records; times are in ms.
func header(kind wire.Kind, ms float64, tgid, tid, nr uint32, body int) wire.Record {
	r := make(wire.Record, wire.HeaderSize+body)
	binary.LittleEndian.PutUint32(r[wire.OffSize:], uint32(len(r)))
	r[wire.OffKind] = byte(kind)
	binary.LittleEndian.PutUint64(r[wire.OffTime:], uint64(ms*1e6))
	binary.LittleEndian.PutUint32(r[wire.OffProbe:], nr)
	binary.LittleEndian.PutUint32(r[wire.OffTid:], tid)
	binary.LittleEndian.PutUint32(r[wire.OffTgid:], tgid)
	return r
}

func enterRec(ms float64, tgid, tid, nr uint32) wire.Record {
	return header(wire.SysEnter, ms, tgid, tid, nr, wire.EnterSize-wire.HeaderSize)
}

func exitRec(ms float64, tgid, tid, nr uint32, ret int64) wire.Record {
	r := header(wire.SysExit, ms, tgid, tid, nr, wire.ExitSize-wire.HeaderSize)
	binary.LittleEndian.PutUint64(r[wire.OffRet:], uint64(ret))
	return r
}

func forkRec(ms float64, tgid, tid, childTgid, child uint32) wire.Record {
	r := header(wire.Fork, ms, tgid, tid, 0, wire.LifeSize(wire.Fork))
	binary.LittleEndian.PutUint32(r[wire.HeaderSize:], child)
	binary.LittleEndian.PutUint32(r[wire.HeaderSize+4:], childTgid)
	if childTgid == tgid {
		binary.LittleEndian.PutUint64(r[wire.HeaderSize+8:], 0x10000 /* CLONE_THREAD */)
	}
	return r
}

func execRec(ms float64, tgid, old uint32, comm string) wire.Record {
	r := header(wire.Exec, ms, tgid, tgid, 0, wire.LifeSize(wire.Exec))
	binary.LittleEndian.PutUint32(r[wire.HeaderSize:], old)
	copy(r[wire.HeaderSize+8:], comm)
	return r
}

func endRec(ms float64, tgid, tid, status uint32, dead bool) wire.Record {
	r := header(wire.Exit, ms, tgid, tid, 0, wire.LifeSize(wire.Exit))
	binary.LittleEndian.PutUint32(r[wire.HeaderSize:], status)
	if dead {
		r[wire.HeaderSize+4] = 1
	}
	return r
}

func renameRec(ms float64, tgid, tid uint32, comm string) wire.Record {
	r := header(wire.Rename, ms, tgid, tid, 0, wire.LifeSize(wire.Rename))
	copy(r[wire.HeaderSize:], comm)
	return r
}

func signalRec(ms float64, tgid, tid, sig uint32) wire.Record {
	r := header(wire.Signal, ms, tgid, tid, 0, wire.LifeSize(wire.Signal))
	binary.LittleEndian.PutUint32(r[wire.HeaderSize:], sig)
	return r
}

var testTables = sync.OnceValues(func() (*callTables, error) { return newCallTables("amd64", nil, nil) })

func testAssembler(t testing.TB, sink Sink) *assembler {
	t.Helper()
	tables, err := testTables()
	if err != nil {
		t.Fatal(err)
	}
	a := newAssembler(tables, decode.Options{StrLimit: 256, Abbrev: true}, sink)
	a.follow = true
	return a
}

// quietAt is an entry of a stream: nothing came until then.
func quietAt(ms float64) wire.Record { return header(0, ms, 0, 0, 0, 0) }

func feed(t testing.TB, a *assembler, stream []wire.Record) {
	t.Helper()
	for _, r := range stream {
		var err error
		if r.Kind() == 0 {
			err = a.quiet(r.Time())
		} else {
			err = a.batch([]wire.Record{slices.Clone(r)})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := a.finish(); err != nil {
		t.Fatal(err)
	}
}

func TestAssemble(t *testing.T) {
	restart := int64(-516) // ERESTART_RESTARTBLOCK, include/linux/errno.h
	tests := []struct {
		name   string
		stream []wire.Record
		want   []string
	}{
		{"one call", []wire.Record{enterRec(1, 1, 1, nrGetpid), exitRec(1.1, 1, 1, nrGetpid, 1)},
			[]string{"1 getpid = 1"}},
		{"two tasks, each whole at its entry", []wire.Record{
			enterRec(1, 1, 1, nrGetpid), enterRec(1.1, 2, 2, nrGetpid), exitRec(1.2, 2, 2, nrGetpid, 2), exitRec(1.3, 1, 1, nrGetpid, 1)},
			[]string{"1 getpid = 1", "2 getpid = 2"}},
		{"a long call is split when others come between", []wire.Record{
			enterRec(1, 1, 1, nrNanosleep), enterRec(2, 2, 2, nrGetpid), exitRec(2.1, 2, 2, nrGetpid, 2),
			enterRec(20, 2, 2, nrGetpid), exitRec(20.1, 2, 2, nrGetpid, 2), exitRec(30, 1, 1, nrNanosleep, 0)},
			[]string{"1 nanosleep unfinished", "2 getpid = 2", "2 getpid = 2", "1 nanosleep resumed = 0"}},
		{"a long call alone stays whole", []wire.Record{enterRec(1, 1, 1, nrNanosleep), quietAt(90), exitRec(91, 1, 1, nrNanosleep, 0)},
			[]string{"1 nanosleep = 0"}},
		{"a very long call is shown while it lasts", []wire.Record{enterRec(1, 1, 1, nrNanosleep), quietAt(150), exitRec(5000, 1, 1, nrNanosleep, 0)},
			[]string{"1 nanosleep unfinished", "1 nanosleep resumed = 0"}},
		{"all that block are shown at the same quiet moment", []wire.Record{
			enterRec(1, 1, 1, nrPause), enterRec(1, 1, 2, nrPause), enterRec(1, 1, 3, nrPause), quietAt(150), endRec(200, 1, 3, 9, false)},
			[]string{"1 pause unfinished", "2 pause unfinished", "3 pause unfinished", "3 pause entry-only", "3 exit 0x9", "1 pause entry-only", "2 pause entry-only"}},
		{"the return alone: tracing began in the call", []wire.Record{exitRec(1, 1, 1, nrRead, 5), enterRec(2, 1, 1, nrGetpid), exitRec(3, 1, 1, nrGetpid, 1)},
			[]string{"1 read exit-only = 5", "1 getpid = 1"}},
		{"the return alone, and later: refused before it began", []wire.Record{
			enterRec(1, 1, 1, nrGetpid), exitRec(1.1, 1, 1, nrGetpid, 1), exitRec(2, 1, 1, nrRead, -1)},
			[]string{"1 getpid = 1", "1 read exit-only = -1"}},
		{"the entry alone: tracing ended in the call", []wire.Record{enterRec(1, 1, 1, nrRead)},
			[]string{"1 read entry-only"}},
		{"a return is lost", []wire.Record{enterRec(1, 1, 1, nrRead), enterRec(2, 1, 1, nrGetpid), exitRec(3, 1, 1, nrGetpid, 1)},
			[]string{"1 read exit-lost", "1 getpid = 1"}},
		{"the return of a split call is lost", []wire.Record{
			enterRec(1, 1, 1, nrRead), quietAt(150), enterRec(200, 1, 1, nrGetpid), exitRec(201, 1, 1, nrGetpid, 1)},
			[]string{"1 read unfinished", "1 read exit-lost", "1 getpid = 1"}},
		{"exit_group never returns", []wire.Record{enterRec(1, 1, 1, nrExitGroup), endRec(1.1, 1, 1, 7<<8, true)},
			[]string{"1 exit_group entry-only", "1 exit 0x700"}},
		{"killed in a call", []wire.Record{enterRec(1, 1, 1, nrPause), quietAt(150), signalRec(160, 1, 1, 15), endRec(170, 1, 1, 15, true)},
			[]string{"1 pause unfinished", "1 signal 15", "1 pause entry-only", "1 exit 0xf"}},
		{"fork: the child's return is no call", []wire.Record{
			enterRec(1, 1, 1, nrClone), forkRec(1.1, 1, 1, 2, 2), exitRec(1.2, 1, 1, nrClone, 2), exitRec(1.3, 2, 2, nrClone, 0),
			enterRec(1.4, 2, 2, nrGetpid), exitRec(1.5, 2, 2, nrGetpid, 2)},
			[]string{"1 clone = 2", "1 fork 2", "2 getpid = 2"}},
		{"a zero from clone later is one", []wire.Record{
			enterRec(1, 1, 1, nrGetpid), exitRec(1.1, 1, 1, nrGetpid, 1), enterRec(2, 1, 1, nrClone), exitRec(2.1, 1, 1, nrClone, 0)},
			[]string{"1 getpid = 1", "1 clone = 0"}},
		{"rt_sigreturn forgets its number", []wire.Record{
			enterRec(1, 1, 1, nrSigreturn), exitRec(1.1, 1, 1, 0xffffffff, 0)},
			[]string{"1 rt_sigreturn = 0"}},
		{"the forgotten number alone is no call", []wire.Record{exitRec(1.1, 1, 1, 0xffffffff, 0)}, nil},
		{"restarted calls", []wire.Record{
			enterRec(1, 1, 1, nrNanosleep), exitRec(2, 1, 1, nrNanosleep, restart), signalRec(2.1, 1, 1, 18),
			enterRec(2.2, 1, 1, 219), exitRec(3, 1, 1, 219, 0)},
			[]string{"1 nanosleep = -516", "1 signal 18", "1 restart_syscall = 0"}},
		{"exec changes the name and may change the ABI", []wire.Record{
			enterRec(1, 1, 1, nrExecve), execRec(1.1, 1, 1, "true"), exitRec(1.2, 1, 1, 11, 0)},
			[]string{"1 execve = 0", "1 exec by 1 true"}},
		{"exec by a side thread while the leader is in a call", []wire.Record{
			enterRec(1, 1, 1, nrPause), forkRec(1.1, 1, 1, 1, 2), enterRec(1.2, 1, 2, nrExecve), endRec(1.5, 1, 1, 0, false),
			execRec(1.6, 1, 2, "true"), exitRec(1.7, 1, 1, nrExecve, 0), enterRec(2, 1, 1, nrGetpid), exitRec(2.1, 1, 1, nrGetpid, 1)},
			[]string{"1 pause entry-only", "1 fork 2", "2 execve unfinished", "1 exec by 2 true", "1 execve resumed = 0", "1 getpid = 1"}},
		{"the same, slowly", []wire.Record{
			enterRec(1, 1, 1, nrPause), forkRec(1.1, 1, 1, 1, 2), quietAt(150), enterRec(151, 1, 2, nrExecve), quietAt(300), endRec(301, 1, 1, 0, false),
			execRec(302, 1, 2, "true"), exitRec(303, 1, 1, nrExecve, 0)},
			[]string{"1 pause unfinished", "1 fork 2", "2 execve unfinished", "1 pause entry-only", "1 exec by 2 true", "1 execve resumed = 0"}},
		{"a leader that ends before its threads", []wire.Record{
			forkRec(1, 1, 1, 1, 2), endRec(2, 1, 1, 0, false), enterRec(3, 1, 2, nrGetpid), exitRec(3.1, 1, 2, nrGetpid, 1), endRec(4, 1, 2, 0, true)},
			[]string{"1 fork 2", "1 exit 0x0", "2 getpid = 1", "2 exit 0x0"}},
		{"an id is used again", []wire.Record{
			enterRec(1, 2, 2, nrRead), forkRec(2, 1, 1, 2, 2), enterRec(2.1, 2, 2, nrGetpid), exitRec(2.2, 2, 2, nrGetpid, 2)},
			[]string{"2 read entry-only", "1 fork 2", "2 getpid = 2"}},
		{"names", []wire.Record{renameRec(1, 1, 1, "worker/3")}, []string{"1 rename worker/3"}},
		{"one that comes too late", []wire.Record{
			enterRec(5, 1, 1, nrGetpid), exitRec(5.1, 1, 1, nrGetpid, 1), enterRec(4, 2, 2, nrGetpid), exitRec(4.1, 2, 2, nrGetpid, 2)},
			[]string{"1 getpid = 1", "2 getpid = 2 late"}},
		{"a number without a name", []wire.Record{enterRec(1, 1, 1, 1000), exitRec(1.1, 1, 1, 1000, -38)},
			[]string{"1 syscall_0x3e8 = -38"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got lines
			a := testAssembler(t, &got)
			feed(t, a, tt.stream)
			if !slices.Equal(got.list, tt.want) {
				t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got.list, "\n\t"), strings.Join(tt.want, "\n\t"))
			}
			if got.err != nil {
				t.Error(got.err)
			}
			balanced(t, a, tt.stream)
		})
	}
}

// balanced checks that every call in the stream is accounted for once.
func balanced(t testing.TB, a *assembler, stream []wire.Record) {
	t.Helper()
	var entries uint64
	for _, r := range stream {
		if r.Valid() && r.Kind() == wire.SysEnter {
			entries++
		}
	}
	if made, got := entries+a.exitOnly, a.shown+a.filtered+a.exitLost; made != got {
		t.Errorf("%d calls made; %d shown + %d filtered + %d lost", made, a.shown, a.filtered, a.exitLost)
	}
}

func TestAssembleFiltered(t *testing.T) {
	var got lines
	a := testAssembler(t, &got)
	a.whole = true
	a.filter = func(e *event.Event) bool { return e.Type != event.TypeSyscall || e.Errno != 0 }
	stream := []wire.Record{
		enterRec(1, 1, 1, nrRead), exitRec(1.1, 1, 1, nrRead, -9), enterRec(2, 1, 1, nrGetpid), exitRec(2.1, 1, 1, nrGetpid, 1),
		enterRec(3, 1, 1, nrRead), quietAt(150), exitRec(400, 1, 1, nrRead, -4), enterRec(401, 1, 1, nrRead), quietAt(600),
	}
	feed(t, a, stream)
	if want := []string{"1 read = -9", "1 read = -4"}; !slices.Equal(got.list, want) {
		t.Errorf("got %q, want %q", got.list, want)
	}
	balanced(t, a, stream)
	if a.filtered != 2 {
		t.Errorf("%d filtered, want 2", a.filtered)
	}
}

// Names come from exec, rename and fork records, and belong to the moment of the event.
func TestAssembleComm(t *testing.T) {
	var comms []string
	a := testAssembler(t, sinkFunc(func(e *event.Event) error {
		if e.Type == event.TypeSyscall {
			comms = append(comms, e.Task.Comm)
		}
		return nil
	}))
	a.know(1, 1, "sh")
	feed(t, a, []wire.Record{
		enterRec(1, 1, 1, nrGetpid), exitRec(1.1, 1, 1, nrGetpid, 1), forkRec(2, 1, 1, 2, 2), renameRec(3, 1, 1, "renamed"),
		enterRec(4, 2, 2, nrGetpid), exitRec(4.1, 2, 2, nrGetpid, 1), execRec(5, 2, 2, "true"), enterRec(6, 2, 2, nrGetpid), exitRec(6.1, 2, 2, nrGetpid, 1),
		enterRec(7, 1, 1, nrGetpid), exitRec(7.1, 1, 1, nrGetpid, 1),
	})
	if want := []string{"sh", "sh", "true", "renamed"}; !slices.Equal(comms, want) {
		t.Errorf("got %q, want %q", comms, want)
	}
}

type sinkFunc func(*event.Event) error

func (f sinkFunc) Event(e *event.Event) error { return f(e) }
func (f sinkFunc) Flush() error               { return nil }

// Without following, the processes that a traced one makes are none of ours.
func TestAssembleForgets(t *testing.T) {
	for _, follow := range []bool{false, true} {
		a := testAssembler(t, &lines{})
		a.follow = follow
		var stream []wire.Record
		for i := range uint32(1000) {
			stream = append(stream, forkRec(1+float64(i), 1, 1, 100+i, 100+i))
			if follow {
				stream = append(stream, endRec(1.5+float64(i), 100+i, 100+i, 0, true))
			}
		}
		feed(t, a, stream)
		if len(a.tasks) != 1 || a.live() != 1 {
			t.Errorf("follow %v: %d tasks of %d processes are known, want 1 of 1", follow, len(a.tasks), a.live())
		}
	}
}

// Any order of well-formed records is taken, each call is accounted for once, and nothing that is split stays open.
func TestAssembleRandom(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var stream []wire.Record
		ms := 1.0
		for range 400 {
			ms += rnd.Float64() * 20
			stream = append(stream, randomRecord(rnd, ms))
		}
		checkStream(t, stream)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func randomRecord(rnd *rand.Rand, ms float64) wire.Record {
	tgid := 1 + rnd.Uint32N(3)
	tid := tgid + 10*rnd.Uint32N(3)
	nrs := []uint32{nrRead, nrNanosleep, nrGetpid, nrClone, nrExecve, nrExitGroup, nrSigreturn, 1000, 0xffffffff, x32Bit | 39}
	nr := nrs[rnd.IntN(len(nrs))]
	var r wire.Record
	switch rnd.IntN(12) {
	case 0, 1, 2, 3:
		r = enterRec(ms, tgid, tid, nr)
	case 4, 5, 6, 7:
		r = exitRec(ms, tgid, tid, nr, int64(rnd.IntN(3)-1))
	case 8:
		r = forkRec(ms, tgid, tid, 1+rnd.Uint32N(3), 1+rnd.Uint32N(30))
	case 9:
		r = execRec(ms, tgid, 1+rnd.Uint32N(30), "x")
	case 10:
		r = endRec(ms, tgid, tid, 0, rnd.IntN(2) == 0)
	default:
		return quietAt(ms)
	}
	if rnd.IntN(8) == 0 {
		binary.LittleEndian.PutUint16(r[wire.OffFlags:], wire.FlagCompat)
	}
	return r
}

func checkStream(t *testing.T, stream []wire.Record) {
	var got lines
	a := testAssembler(t, &got)
	open := make(map[uint32]int)
	a.sink = sinkFunc(func(e *event.Event) error {
		if e.Type == event.TypeSyscall {
			switch {
			case e.Phase == event.PhaseUnfinished:
				open[e.Task.Tid]++
			case e.Phase == event.PhaseResumed, e.Resume > 0:
				open[e.Task.Tid]--
			}
		}
		return got.Event(e)
	})
	feed(t, a, stream)
	if got.err != nil {
		t.Error(got.err)
	}
	balanced(t, a, stream)
}

func FuzzAssemble(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 4 {
		var b []byte
		ms := 1.0
		for range 20 {
			ms += rnd.Float64() * 20
			b = append(b, randomRecord(rnd, ms)...)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := newMerger()
		stamps := m.index(nil, b)
		var stream []wire.Record
		for _, s := range stamps {
			stream = append(stream, s.rec)
		}
		checkStream(t, stream)
	})
}

// What is shown depends on the records alone, not on when they were read or how they were cut into batches.
func TestAssembleAgain(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		var live, again []wire.Record
		ms := 1.0
		for range 300 {
			ms += rnd.Float64() * 20
			r := randomRecord(rnd, ms)
			live = append(live, r)
			if r.Kind() != 0 {
				again = append(again, r)
			}
		}
		if last := live[len(live)-1]; last.Kind() == 0 {
			again = append(again, header(wire.Tick, ms, 0, 0, 0, 0))
		}
		var one, two lines
		feed(t, testAssembler(t, &one), live)
		a := testAssembler(t, &two)
		for len(again) > 0 {
			n := 1 + rnd.IntN(len(again))
			batch := make([]wire.Record, n)
			for i := range batch {
				batch[i] = slices.Clone(again[i])
			}
			if err := a.batch(batch); err != nil {
				t.Fatal(err)
			}
			for _, r := range batch {
				clear(r) // the next batch takes its place
			}
			again = again[n:]
		}
		if err := a.finish(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(one.list, two.list) {
			t.Fatalf("seed %d: live\n\t%s\nagain\n\t%s", seed, strings.Join(one.list, "\n\t"), strings.Join(two.list, "\n\t"))
		}
	}
}
