package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sonde-trace/sonde/internal/kerneltest"
)

// fake is a probe that gives events when it is told to.
type fake struct {
	ctx     context.Context
	deliver func([]byte)
	n       uint64
}

func (f *fake) Notes() []string { return []string{"a note"} }
func (f *fake) Wait() (Account, error) {
	<-f.ctx.Done()
	return Account{Made: f.n, Shown: f.n}, nil
}

type fakes map[string]*fake

func (m fakes) open(ctx context.Context, p Probe, deliver func([]byte)) (Running, error) {
	if p.Expr == "bad" {
		return nil, errors.New("that cannot be")
	}
	f := &fake{ctx: ctx, deliver: deliver}
	m[p.Expr] = f
	return f, nil
}

// start serves on a socket of its own until the test ends.
func start(t *testing.T, open Open) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- NewServer(open).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Error("the socket stays behind")
		}
	})
	return path
}

type conn struct {
	net.Conn
	in *bufio.Scanner
	t  *testing.T
}

func dial(t *testing.T, path string) *conn {
	t.Helper()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	in := bufio.NewScanner(c)
	in.Buffer(nil, 1<<20)
	return &conn{c, in, t}
}

func (c *conn) line() string {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(kerneltest.Patience(5 * time.Second)))
	if !c.in.Scan() {
		c.t.Fatal("no answer:", c.in.Err())
	}
	return c.in.Text()
}

// ask sends a line and wants the answer to hold a text.
func (c *conn) ask(line, want string) {
	c.t.Helper()
	fmt.Fprintln(c, line)
	if got := c.line(); !strings.Contains(got, want) || !json.Valid([]byte(got)) {
		c.t.Errorf("%s\n  gives %s\n  want %s", line, got, want)
	}
}

func call(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params)
}

func TestMethods(t *testing.T) {
	m := fakes{}
	path := start(t, m.open)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "another sonde") {
		t.Error("a second server:", err)
	}
	c := dial(t, path)
	c.ask(call("list", "{}"), `"id":7,"result":[]`)
	c.ask(call("add", `{"expr":"a:b","pids":[1]}`), `"result":{"id":1,"notes":["a note"]}`)
	c.ask(call("add", `{"expr":"c:d","pids":[1,2],"stack":5}`), `"result":{"id":2`)
	c.ask(call("add", `{"expr":"bad","pids":[1]}`), `"error":{"code":-32000,"message":"that cannot be"}`)
	c.ask(call("list", "{}"), `[{"id":1,"expr":"a:b","pids":[1],"state":"enabled","events":0,"notes":["a note"]},{"id":2,`)
	c.ask(call("stream", `{"id":2}`), `"result":true`)
	m["a:b"].deliver([]byte(`{"x":1}`))
	m["c:d"].deliver([]byte(`{"x":2}`))
	if got := c.line(); got != `{"jsonrpc":"2.0","method":"event","params":{"id":2,"event":{"x":2}}}` {
		t.Error(got)
	}
	m["c:d"].n = 9
	c.ask(call("disable", `{"id":2}`), `"result":true`)
	c.ask(call("ledger", `{"id":2}`), `"result":{"made":9,"shown":9,"filtered":0,"delivered":1,"state":"disabled"}`)
	c.ask(call("enable", `{"id":2}`), `"result":true`)
	c.ask(call("remove", `{"id":2}`), `"result":true`)
	c.ask(call("ledger", `{"id":2}`), `"code":-32001`)
	c.ask(call("list", "{}"), `[{"id":1,`)
	c.ask(call("resume", `{"pid":77}`), `"code":-32602`)
}

// Requests that are wrong are answered, and harm nothing.
func TestBadRequests(t *testing.T) {
	path := start(t, fakes{}.open)
	c := dial(t, path)
	for line, want := range map[string]string{
		"{":  `"id":null,"error":{"code":-32700`,
		"17": `"code":-32600`,
		"[]": `"code":-32600,"message":"batches`,
		`{"jsonrpc":"1.0","id":1,"method":"list"}`:                                  `"id":1,"error":{"code":-32600`,
		`{"jsonrpc":"2.0","id":{},"method":"list"}`:                                 `"code":-32600`,
		`{"jsonrpc":"2.0","id":1,"method":"list","more":1}`:                         `"code":-32600`,
		`{"jsonrpc":"2.0","id":1,"method":"list"} x`:                                `"code":-32700`,
		call("nothing", "{}"):                                                       `"code":-32601`,
		call("list", `{"x":1}`):                                                     `"code":-32602`,
		call("list", `[1]`):                                                         `"code":-32602`,
		call("add", `{}`):                                                           `"code":-32602`,
		call("add", `{"expr":"a:b"}`):                                               `"code":-32602`,
		call("add", `{"expr":"a:b","pids":[0]}`):                                    `"code":-32602`,
		call("add", `{"expr":"a:b","pids":[-1]}`):                                   `"code":-32602`,
		call("add", `{"expr":"a:b","pids":[1],"stack":513}`):                        `"code":-32602`,
		call("enable", `{"id":5}`):                                                  `"code":-32001`,
		call("stream", `{"id":5}`):                                                  `"code":-32001`,
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 100) + `","method":"list"}`: `xx","result":[]`,
	} {
		c.ask(line, want)
	}
	// A notification has no answer: the next answer is that of the next request.
	fmt.Fprintln(c, `{"jsonrpc":"2.0","method":"add","params":{"expr":"a:b","pids":[1]}}`)
	c.ask(call("list", "{}"), `[{"id":1,"expr":"a:b"`)
	// A line without an end ends the connection, not the server.
	d := dial(t, path)
	go d.Write([]byte(strings.Repeat("x", MaxRequest+1)))
	if got := d.line(); !strings.Contains(got, `"code":-32600`) {
		t.Error(got)
	}
	c.ask(call("list", "{}"), `"result":[`)
}

func TestBounds(t *testing.T) {
	path := start(t, fakes{}.open)
	c := dial(t, path)
	refused := 0
	for range Burst + 50 {
		fmt.Fprintln(c, call("list", "{}"))
	}
	for range Burst + 50 {
		if strings.Contains(c.line(), `"code":-32002`) {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no request was refused")
	}
	n := 0
	for range MaxProbes/50 + 1 {
		d := dial(t, path)
		for range 50 {
			fmt.Fprintln(d, call("add", `{"expr":"a:b","pids":[1]}`))
			if strings.Contains(d.line(), `"result"`) {
				n++
			}
		}
	}
	if n != MaxProbes {
		t.Errorf("%d probes, at most %d are allowed", n, MaxProbes)
	}
}

// A client that does not read holds up nobody and is told how many events it missed.
func TestSlowClient(t *testing.T) {
	m := fakes{}
	path := start(t, m.open)
	slow := dial(t, path)
	slow.ask(call("add", `{"expr":"a:b","pids":[1]}`), `"result"`)
	slow.ask(call("stream", `{}`), `"result":true`)
	const sent = 4 * maxBehind
	big := []byte(`"` + strings.Repeat("x", 1000) + `"`)
	for range sent {
		m["a:b"].deliver(big)
	}
	events, dropped := 0, 0
	for events+dropped < sent {
		line := slow.line()
		if _, rest, ok := strings.Cut(line, `"method":"dropped","params":{"count":`); ok {
			n := 0
			fmt.Sscanf(rest, "%d", &n)
			dropped += n
			continue
		}
		if events++; events+dropped < sent && events%1000 == 0 {
			continue
		}
		if events >= maxBehind/2 && dropped == 0 {
			m["a:b"].deliver(big) // brings the note, when there is room
			events--
		}
	}
	if dropped == 0 {
		t.Error("nothing was dropped, or nobody was told")
	}
}

// A socket that a killed server left is taken over; another file is left alone.
func TestStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	l, err = Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil {
		t.Error("a file was taken for a socket")
	}
}

// A real probe in a running program, from its addition to its removal.
func TestTrace(t *testing.T) {
	kerneltest.CheckLeaks(t)
	kerneltest.Require(t, kerneltest.Root, kerneltest.BPF, kerneltest.BTF)
	program := kerneltest.Program(t, "thr")
	cmd := exec.Command(program, "wait")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatal(line, err)
	}
	c := dial(t, start(t, Trace))
	add := func(expr string) string {
		return call("add", fmt.Sprintf(`{"expr":%q,"pids":[%d]}`, expr, cmd.Process.Pid))
	}
	c.ask(add("%file"), `"code":-32602`)
	c.ask(add(program+":nothing"), `"code":-32000`)
	fmt.Fprintln(c, add(program+":writer(v:long)"))
	var added struct{ Result struct{ ID int } }
	if err := json.Unmarshal([]byte(c.line()), &added); err != nil || added.Result.ID == 0 {
		t.Fatal("added:", added, err)
	}
	c.ask(call("stream", "{}"), `"result":true`)
	in.Write([]byte("go\n"))
	for i := 1; i <= 35; i++ {
		if line := c.line(); !strings.Contains(line, `"method":"event"`) || !strings.Contains(line, `"name":"writer"`) || !json.Valid([]byte(line)) {
			t.Fatalf("event %d: %s", i, line)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	one := fmt.Sprintf(`{"id":%d}`, added.Result.ID)
	// Disabling waits for the session's end, so that the account is whole.
	c.ask(call("disable", one), `"result":true`)
	c.ask(call("ledger", one), `"result":{"made":35,"shown":35,"filtered":0,"delivered":35,`)
	c.ask(call("remove", one), `"result":true`)
	c.ask(call("list", "{}"), `"result":[]`)
	c.Close()
}
