package sink

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/event"
)

// openat is a call with a directory, a name, flags and a descriptor as result.
func openat(name []byte, comm string) *event.Event {
	var b event.Builder
	b.Add(event.Node{Kind: event.KindFD, Num: ^uint64(99), Sym: "AT_FDCWD"})
	b.Add(event.Node{Kind: event.KindString, Data: name, Attr: event.AttrPath})
	b.Begin(event.Node{Kind: event.KindFlags, Num: 0o2000000})
	b.Sym("O_RDONLY", 0)
	b.Sym("O_CLOEXEC", 0o2000000)
	b.End()
	return &event.Event{Type: event.TypeSyscall, Name: "openat", ABI: "amd64", Nr: 257, Time: 1e9, Args: b.Nodes, NArgs: 3, Ret: 3,
		Duration: 1500, Decoded: true, Task: event.Task{Pid: 10, Tid: 11, Comm: comm}}
}

func text(o TextOptions, events ...*event.Event) string {
	var out bytes.Buffer
	s := NewText(&out, o)
	for _, e := range events {
		s.Event(e)
	}
	s.Close(nil)
	return out.String()
}

func TestTextShapes(t *testing.T) {
	failed := openat([]byte("/x"), "")
	failed.Ret, failed.Errno = -2, 2
	restart := openat([]byte("/x"), "")
	restart.Ret, restart.Errno = -512, 512
	unfinished := openat([]byte("/x"), "")
	unfinished.Phase, unfinished.Resume, unfinished.NArgs = event.PhaseUnfinished, 1, 1
	unfinished.More = true
	unfinished.Args = unfinished.Args[:1]
	resumed := openat([]byte("/x"), "")
	resumed.Phase, resumed.Resume = event.PhaseResumed, 1
	other := openat([]byte("/y"), "")
	other.Task.Tid = 12
	exit := &event.Event{Type: event.TypeExit, Status: 7 << 8, Task: event.Task{Tid: 11}}
	killed := &event.Event{Type: event.TypeExit, Status: 11 | 0x80, Task: event.Task{Tid: 11}}
	call := `openat(AT_FDCWD, "/x", O_RDONLY|O_CLOEXEC)`
	for name, c := range map[string]struct {
		o    TextOptions
		ev   []*event.Event
		want string
	}{
		"plain":    {TextOptions{}, []*event.Event{openat([]byte("/x"), "")}, call + " = 3\n"},
		"column":   {TextOptions{Column: 50}, []*event.Event{openat([]byte("/x"), "")}, call + strings.Repeat(" ", 50-len(call)) + "= 3\n"},
		"failed":   {TextOptions{}, []*event.Event{failed}, call + " = -1 ENOENT (No such file or directory)\n"},
		"restart":  {TextOptions{}, []*event.Event{restart}, call + " = ? ERESTARTSYS (To be restarted if SA_RESTART is set)\n"},
		"times":    {TextOptions{Times: true}, []*event.Event{openat([]byte("/x"), "")}, call + " = 3 <0.000001>\n"},
		"pids":     {TextOptions{PIDs: PIDsAlways}, []*event.Event{openat([]byte("/x"), "")}, "11    " + call + " = 3\n"},
		"several":  {TextOptions{Tasks: 2}, []*event.Event{openat([]byte("/x"), "")}, "[pid    11] " + call + " = 3\n"},
		"raw":      {TextOptions{Symbols: SymbolsRaw}, []*event.Event{openat([]byte("/x"), "")}, "openat(-100, \"/x\", 0x80000)             = 3\n"},
		"verbose":  {TextOptions{Symbols: SymbolsVerbose}, []*event.Event{openat([]byte("/x"), "")}, "openat(-100 /* AT_FDCWD */, \"/x\", 0x80000 /* O_RDONLY|O_CLOEXEC */) = 3\n"},
		"resumed":  {TextOptions{}, []*event.Event{unfinished, resumed}, call + " = 3\n"},
		"crossing": {TextOptions{}, []*event.Event{unfinished, other, resumed}, "openat(AT_FDCWD,  <unfinished ...>\n" + strings.Replace(call, "/x", "/y", 1) + " = 3\n<... openat resumed>\"/x\", O_RDONLY|O_CLOEXEC) = 3\n"},
		"exit":     {TextOptions{}, []*event.Event{exit}, "+++ exited with 7 +++\n"},
		"killed":   {TextOptions{}, []*event.Event{killed}, "+++ killed by SIGSEGV (core dumped) +++\n"},
	} {
		if got := text(c.o, c.ev...); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
}

// hostile is what a traced program may put into names: terminal commands, newlines, bytes that are not UTF-8, marks that
// reorder text, HTML.
var hostile = []string{"\x1b]0;owned\x07", "a\nb\rc", "\xff\xfe", "\"quote\\", "</script><img src=x onerror=alert(1)>", "\u202eevil", "\u009b31m", "\x00end"}

func TestHostileText(t *testing.T) {
	for _, h := range hostile {
		out := text(TextOptions{PIDs: PIDsAlways, Comms: true, FDs: true}, openat([]byte(h), h))
		if n := strings.Count(out, "\n"); n != 1 {
			t.Errorf("%q: %d lines", h, n)
		}
		for i := 0; i < len(out)-1; i++ {
			if out[i] < 0x20 || out[i] > 0x7e {
				t.Errorf("%q: byte %#x in %q", h, out[i], out)
				break
			}
		}
	}
}

func jsonLines(t *testing.T, events ...*event.Event) []map[string]any {
	t.Helper()
	var out bytes.Buffer
	s := NewJSON(&out, JSONOptions{Sonde: "test", Command: []string{"x"}, Monotonic: 5, Wall: 1 << 60})
	for _, e := range events {
		s.Event(e)
	}
	s.Close(&event.Ledger{Made: 3, Shown: 1, Filtered: 1, Lost: []event.Lost{{Cause: "ring full", Count: 1}}})
	if !utf8.Valid(out.Bytes()) {
		t.Fatalf("not UTF-8: %q", out.Bytes())
	}
	for _, c := range out.Bytes() {
		if c < 0x20 && c != '\n' || c == 0x7f || c == '<' {
			t.Fatalf("byte %#x in %q", c, out.Bytes())
		}
	}
	for _, r := range out.String() {
		if r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e {
			t.Fatalf("%U in %q", r, out.Bytes())
		}
	}
	var list []map[string]any
	for _, line := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
		m := make(map[string]any)
		dec := json.NewDecoder(strings.NewReader(line))
		dec.UseNumber()
		if err := dec.Decode(&m); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		list = append(list, m)
	}
	return list
}

// The bytes of a name come back from JSON whatever they are.
func TestHostileJSON(t *testing.T) {
	for _, h := range hostile {
		list := jsonLines(t, openat([]byte(h), h))
		args := list[1]["args"].([]any)
		var got string
		switch v := args[1].(map[string]any)["value"].(type) {
		case string:
			got = v
		case map[string]any:
			b, err := base64.StdEncoding.DecodeString(v["base64"].(string))
			if err != nil {
				t.Fatal(err)
			}
			got = string(b)
		}
		if got != h {
			t.Errorf("%q came back as %q", h, got)
		}
	}
}

func TestJSONRecords(t *testing.T) {
	e := openat([]byte("/etc/passwd"), "cat")
	e.Args = append(e.Args, event.Node{Kind: event.KindUint, Num: 1<<64 - 1, End: int32(len(e.Args)) + 1},
		event.Node{Kind: event.KindUnreadable, Num: 0x1000, Errno: 14, End: int32(len(e.Args)) + 2},
		event.Node{Kind: event.KindBytes, Data: []byte("abc"), Num: 900, Attr: event.AttrTruncated, End: int32(len(e.Args)) + 3})
	list := jsonLines(t, e)
	if list[0]["type"] != "header" || list[0]["schema"].(json.Number) != "1" {
		t.Errorf("header: %v", list[0])
	}
	c := list[1]
	if c["name"] != "openat" || c["comm"] != "cat" || c["ret"].(json.Number) != "3" || c["duration"].(json.Number) != "1500" {
		t.Errorf("call: %v", c)
	}
	args := c["args"].([]any)
	value := func(i int) any { return args[i].(map[string]any)["value"] }
	if v := value(3); v != "18446744073709551615" {
		t.Errorf("the largest u64 is %v", v)
	}
	if v := value(4).(map[string]any); v["unreadable"] != "EFAULT" || v["address"] != "0x1000" {
		t.Errorf("unreadable: %v", v)
	}
	if v := value(5).(map[string]any); v["truncated"] != true || v["length"].(json.Number) != "900" || v["string"] != "abc" {
		t.Errorf("truncated: %v", v)
	}
	if v := value(2).(map[string]any); v["value"].(json.Number) != "524288" || len(v["names"].([]any)) != 2 {
		t.Errorf("flags: %v", v)
	}
	s := list[len(list)-1]
	if s["type"] != "summary" || s["made"].(json.Number) != "3" || s["lost"].(json.Number) != "1" {
		t.Errorf("summary: %v", s)
	}
}

// The published schema names every type of record that is written, and the fields of a summary.
func TestSchema(t *testing.T) {
	raw, err := os.ReadFile("../docs/reference/trace.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		OneOf []struct {
			Properties map[string]struct {
				Const any `json:"const"`
			} `json:"properties"`
			Required []string `json:"required"`
		} `json:"oneOf"`
	}
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	kinds := make(map[string]int)
	for i, s := range schema.OneOf {
		kinds[s.Properties["type"].Const.(string)] = i
	}
	fork := &event.Event{Type: event.TypeFork, Child: event.Task{Pid: 4, Tid: 4}, Task: event.Task{Pid: 1, Tid: 1}}
	lost := &event.Event{Type: event.TypeLost, Lost: event.Lost{Cause: "ring full", Count: 2}}
	signal := &event.Event{Type: event.TypeSignal, Signal: 15}
	exit := &event.Event{Type: event.TypeExit, Status: 9}
	exec := &event.Event{Type: event.TypeExec, OldTid: 1}
	rename := &event.Event{Type: event.TypeRename, Task: event.Task{Comm: "x"}}
	for _, m := range jsonLines(t, openat([]byte("/x"), "c"), fork, lost, signal, exit, exec, rename) {
		i, ok := kinds[m["type"].(string)]
		if !ok {
			t.Errorf("the schema does not know records of type %v", m["type"])
			continue
		}
		s := schema.OneOf[i]
		for _, r := range s.Required {
			if _, ok := m[r]; !ok {
				t.Errorf("%v: the required field %q is missing in %v", m["type"], r, m)
			}
		}
		for k := range m {
			if _, ok := s.Properties[k]; !ok {
				t.Errorf("%v: the field %q is not in the schema", m["type"], k)
			}
		}
	}
}

func TestNoAllocation(t *testing.T) {
	e := openat([]byte("/usr/lib/x86_64-linux-gnu/libc.so.6"), "ls")
	for name, s := range map[string]interface{ Event(*event.Event) error }{
		"text": NewText(io.Discard, TextOptions{PIDs: PIDsAlways, Times: true}), "json": NewJSON(io.Discard, JSONOptions{}),
	} {
		for range 1000 { // the buffer grows to its size
			s.Event(e)
		}
		if n := testing.AllocsPerRun(1000, func() { s.Event(e) }); n > 0.1 {
			t.Errorf("%s: %v allocations an event", name, n)
		}
	}
}

func TestOpenFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "out")
	f, err := OpenFile(file, FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("one"))
	f.Close()
	if fi, _ := os.Stat(file); fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", fi.Mode())
	}
	f, err = OpenFile(file, FileOptions{Append: true})
	if err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("two"))
	f.Close()
	if b, _ := os.ReadFile(file); string(b) != "onetwo" {
		t.Errorf("after appending: %q", b)
	}
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	os.Symlink(file, link)
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{link: "symbolic link", fifo: "FIFO", dir: "directory", filepath.Join(dir, "no/such"): "no such file"} {
		f, err := OpenFile(path, FileOptions{})
		if err == nil {
			f.Close()
			t.Errorf("%s was opened", path)
		} else if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if b, _ := os.ReadFile(file); string(b) != "onetwo" {
		t.Errorf("refused files were touched: %q", b)
	}
}

func TestDiskFull(t *testing.T) {
	f, err := OpenFile("/dev/full", FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := NewText(Writer(f), TextOptions{})
	s.Event(openat([]byte("/x"), ""))
	if err := s.Close(nil); err == nil || !strings.Contains(err.Error(), "/dev/full") {
		t.Errorf("writing to a full disk: %v", err)
	}
}

func BenchmarkText(b *testing.B) {
	e := openat([]byte("/usr/lib/x86_64-linux-gnu/libc.so.6"), "ls")
	s := NewText(io.Discard, TextOptions{PIDs: PIDsAlways})
	b.ReportAllocs()
	for b.Loop() {
		s.Event(e)
	}
}

func BenchmarkJSON(b *testing.B) {
	e := openat([]byte("/usr/lib/x86_64-linux-gnu/libc.so.6"), "ls")
	s := NewJSON(io.Discard, JSONOptions{})
	b.ReportAllocs()
	for b.Loop() {
		s.Event(e)
	}
}

// TestDescriptorKinds: what a descriptor refers to is shown by what was asked for.
func TestDescriptorKinds(t *testing.T) {
	for _, c := range []struct {
		o          TextOptions
		data, want string
	}{
		{TextOptions{}, "/dev/full\x00char 1:7", "3"},
		{TextOptions{FDs: true}, "/dev/full\x00char 1:7", "3</dev/full>"},
		{TextOptions{FDs: true, Devices: true}, "/dev/full\x00char 1:7", "3</dev/full<char 1:7>>"},
		{TextOptions{Devices: true}, "/dev/full\x00char 1:7", "3</dev/full<char 1:7>>"},
		{TextOptions{Devices: true}, "/etc/passwd", "3"},
		{TextOptions{Sockets: true}, "/etc/passwd", "3"},
		{TextOptions{Sockets: true}, "socket:[17]", "3<socket:[17]>"},
		{TextOptions{FDs: true}, "/a<b>\x1b", `3</a\74b\76\33>`},
	} {
		x := NewText(nil, c.o)
		x.fd(&event.Node{Kind: event.KindFD, Num: 3, Data: []byte(c.data)})
		if got := string(x.b); got != c.want {
			t.Errorf("%+v: %s, want %s", c.o, got, c.want)
		}
	}
}

// TestRawNotes: where numbers alone are wanted, notes that only say them in words are left out, and others stay.
func TestRawNotes(t *testing.T) {
	var b event.Builder
	b.Uint(45)
	b.Add(event.Node{Kind: event.KindNote, Attr: event.AttrVerbose, Data: []byte("0.45 s")})
	b.Ptr(0x1000)
	b.Note("20 vars")
	for symbols, want := range map[Symbols]string{SymbolsAbbrev: "45 /* 0.45 s */, 0x1000 /* 20 vars */", SymbolsRaw: "45, 0x1000 /* 20 vars */"} {
		x := NewText(nil, TextOptions{Symbols: symbols})
		x.nodes(b.Nodes, 0, len(b.Nodes))
		if got := string(x.b); got != want {
			t.Errorf("symbols %d: %s, want %s", symbols, got, want)
		}
	}
}
