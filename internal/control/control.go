// Package control steers probes from other programs, over a Unix socket, in JSON-RPC 2.0: one object on each line, both ways.
// It adds, lists, enables, disables and removes probes, streams their events, and gives their accounts. docs/reference/control.md
// has the methods.
//
// It starts nothing itself: an [Open] does. Its invariants: whatever a client sends, the probes of the others go on; a client
// that reads too slowly loses events, is told how many, and holds up nobody; what a request can cost is bounded.
package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of what clients can ask for.
const (
	MaxRequest = 64 << 10 // bytes of a line
	MaxProbes  = 64
	MaxClients = 32
	MaxPids    = 64
	// A client may send Burst requests at once and Rate a second after that.
	Rate, Burst = 50, 100
	// maxBehind is how many lines may wait for a client that streams.
	maxBehind = 4096
)

// Codes of errors: those of JSON-RPC 2.0, section 5.1, and our own.
const (
	CodeParse   = -32700
	CodeRequest = -32600
	CodeMethod  = -32601
	CodeParams  = -32602
	CodeProbe   = -32000 // the probe could not be opened; the message says why
	CodeNoProbe = -32001 // there is no probe of that id
	CodeBusy    = -32002 // too many requests, probes or clients
)

// Probe is what to open.
type Probe struct {
	Expr  string   `json:"expr"`
	Pids  []uint32 `json:"pids"`
	Stack int      `json:"stack,omitempty"` // frames
}

// Account is what became of the events of a probe.
type Account struct {
	Made     uint64            `json:"made"`
	Shown    uint64            `json:"shown"`
	Filtered uint64            `json:"filtered"`
	Lost     map[string]uint64 `json:"lost,omitempty"`
}

// Running is a probe at work.
type Running interface {
	// Wait returns when the context that it was opened with is done and it has been taken away, or when its targets have ended.
	Wait() (Account, error)
	Notes() []string
}

// Open makes a probe work and returns when it does. deliver gets each event as a JSON object without a newline, valid until it
// returns, from one goroutine.
type Open func(ctx context.Context, p Probe, deliver func([]byte)) (Running, error)

// Server serves clients. Its methods may be called from any goroutine.
type Server struct {
	open Open

	mu      sync.Mutex
	probes  map[int]*entry
	last    int
	clients map[*client]bool
	closed  bool
	wg      sync.WaitGroup
}

// entry is a probe that was added.
type entry struct {
	id    int
	probe Probe

	busy   sync.Mutex // one change at a time
	state  string     // enabled, disabled, ended
	err    string
	events uint64
	notes  []string
	total  Account
	cancel context.CancelFunc
	done   chan struct{}
}

// NewServer makes a server that opens probes with open.
func NewServer(open Open) *Server {
	return &Server{open: open, probes: make(map[int]*entry), clients: make(map[*client]bool)}
}

// Listen makes the socket at path, for its owner alone. What a server left there that was killed is replaced; one that is in use
// is an error.
func Listen(path string) (net.Listener, error) {
	if st, err := os.Lstat(path); err == nil {
		if st.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("listen on %s: there is a file that is no socket", path)
		}
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return nil, fmt.Errorf("listen on %s: another sonde serves there", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen on %s: %w", path, err)
		}
	}
	// The mode comes with the socket, not after it. The mask is the whole process's: nothing else makes files now.
	old := unix.Umask(0o177)
	l, err := net.Listen("unix", path)
	unix.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

// Serve takes clients until ctx is done; then it takes all probes away, ends all clients and returns.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	for {
		c, err := l.Accept()
		if err != nil {
			s.shut()
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("serve: %w", err)
		}
		s.mu.Lock()
		full := s.closed || len(s.clients) >= MaxClients
		cl := &client{s: s, conn: c, out: make(chan []byte, maxBehind), gone: make(chan struct{}), tokens: Burst, refilled: time.Now()}
		if !full {
			s.clients[cl] = true
			s.wg.Add(1)
		}
		s.mu.Unlock()
		if full {
			c.SetWriteDeadline(time.Now().Add(time.Second))
			c.Write(appendError(nil, nil, CodeBusy, fmt.Sprintf("%d clients are served already", MaxClients)))
			c.Close()
			continue
		}
		go func() {
			defer s.wg.Done()
			cl.serve()
		}()
	}
}

func (s *Server) shut() {
	s.mu.Lock()
	s.closed = true
	var list []*entry
	for _, e := range s.probes {
		list = append(list, e)
	}
	for c := range s.clients {
		c.conn.Close()
	}
	s.mu.Unlock()
	for _, e := range list {
		s.disable(e)
	}
	s.wg.Wait()
}

// client is a connection.
type client struct {
	s    *Server
	conn net.Conn
	out  chan []byte
	gone chan struct{}

	mu       sync.Mutex
	streams  bool
	only     int // of one probe; 0: of all
	dropped  uint64
	tokens   float64
	refilled time.Time
}

func (c *client) serve() {
	written := make(chan struct{})
	go c.write(written)
	defer func() {
		c.s.mu.Lock()
		delete(c.s.clients, c)
		c.s.mu.Unlock()
		close(c.gone)
		<-written
		c.conn.Close()
	}()
	in := bufio.NewReaderSize(c.conn, MaxRequest)
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			c.reply(appendError(nil, nil, CodeRequest, fmt.Sprintf("a request is one line of at most %d bytes", MaxRequest)))
			return // where the next one begins is not known
		}
		if len(bytes.TrimSpace(line)) > 0 {
			c.reply(c.request(line))
		}
		if err != nil {
			return
		}
	}
}

// reply queues an answer. A client that does not read its answers is let go.
func (c *client) reply(b []byte) {
	if b == nil {
		return
	}
	select {
	case c.out <- b:
	case <-time.After(5 * time.Second):
		c.conn.Close()
	}
}

// writes bounds how long a client may take for one line.
const writes = 10 * time.Second

func (c *client) write(written chan struct{}) {
	defer close(written)
	put := func(b []byte) bool {
		c.conn.SetWriteDeadline(time.Now().Add(writes))
		_, err := c.conn.Write(b)
		return err == nil
	}
	for {
		select {
		case b := <-c.out:
			if !put(b) {
				c.conn.Close()
				return
			}
		case <-c.gone:
			for {
				select {
				case b := <-c.out:
					if !put(b) {
						return
					}
				default:
					return
				}
			}
		}
	}
}

// event gives an event to a client that streams it. It never waits.
func (c *client) event(id int, line []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.streams || c.only != 0 && c.only != id {
		return
	}
	if c.dropped > 0 {
		note := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"dropped","params":{"count":%d}}`+"\n", c.dropped)
		select {
		case c.out <- note:
			c.dropped = 0
		default:
			c.dropped++
			return
		}
	}
	b := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"event","params":{"id":%d,"event":%s}}`+"\n", id, line)
	select {
	case c.out <- b:
	default:
		c.dropped++
	}
}

// allowed takes a token of the client's.
func (c *client) allowed() bool {
	now := time.Now()
	c.tokens = min(Burst, c.tokens+now.Sub(c.refilled).Seconds()*Rate)
	c.refilled = now
	if c.tokens < 1 {
		return false
	}
	c.tokens--
	return true
}

// failure is an error with its code.
type failure struct {
	code int
	msg  string
}

func (f *failure) Error() string { return f.msg }

func fail(code int, format string, a ...any) error { return &failure{code, fmt.Sprintf(format, a...)} }

// appendError appends an answer. Without an id it is null, as JSON-RPC says.
func appendError(b []byte, id json.RawMessage, code int, msg string) []byte {
	if id == nil {
		id = json.RawMessage("null")
	}
	text, err := json.Marshal(msg)
	if err != nil {
		text = []byte(`""`)
	}
	return fmt.Appendf(b, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`+"\n", id, code, text)
}

// request answers one line; nil for a notification.
func (c *client) request(line []byte) []byte {
	var q struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  string          `json:"method"`
		Params  json.RawMessage `json:"params"`
	}
	if !c.allowed() {
		return appendError(nil, nil, CodeBusy, fmt.Sprintf("more than %d requests a second", Rate))
	}
	line = bytes.TrimSpace(line)
	if line[0] == '[' {
		return appendError(nil, nil, CodeRequest, "batches are not taken: one request a line")
	}
	if err := strict(line, &q); err != nil {
		code := CodeRequest
		if !json.Valid(line) {
			code = CodeParse
		}
		return appendError(nil, nil, code, err.Error())
	}
	if id := q.ID; id != nil && (id[0] == '{' || id[0] == '[' || id[0] == 't' || id[0] == 'f') {
		return appendError(nil, nil, CodeRequest, "an id is a number or text")
	}
	if q.Version != "2.0" || q.Method == "" {
		return appendError(nil, q.ID, CodeRequest, `"jsonrpc":"2.0" and a method are needed`)
	}
	result, err := c.s.call(c, q.Method, q.Params)
	if q.ID == nil {
		return nil
	}
	if err != nil {
		var f *failure
		if !errors.As(err, &f) {
			f = &failure{CodeProbe, err.Error()}
		}
		return appendError(nil, q.ID, f.code, f.msg)
	}
	text, err := json.Marshal(result)
	if err != nil {
		return appendError(nil, q.ID, CodeProbe, err.Error())
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", q.ID, text)
}

// strict decodes one object whose members are all known.
func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more on the line than one object")
	}
	return nil
}

// Info is one probe in a list.
type Info struct {
	ID     int      `json:"id"`
	Expr   string   `json:"expr"`
	Pids   []uint32 `json:"pids"`
	State  string   `json:"state"`           // enabled, disabled, ended (its targets have ended, or it failed)
	Events uint64   `json:"events"`          // delivered so far
	Error  string   `json:"error,omitempty"` // why it ended
	Notes  []string `json:"notes,omitempty"`
}

func (s *Server) call(c *client, method string, params json.RawMessage) (any, error) {
	decode := func(v any) error {
		if params == nil {
			params = json.RawMessage("{}")
		}
		if err := strict(params, v); err != nil {
			return fail(CodeParams, "parameters of %s: %v", method, err)
		}
		return nil
	}
	var one struct {
		ID int `json:"id"`
	}
	var empty struct{}
	switch method {
	case "add":
		var p Probe
		if err := decode(&p); err != nil {
			return nil, err
		}
		return s.add(p)
	case "list":
		if err := decode(&empty); err != nil {
			return nil, err
		}
		return s.list(), nil
	case "stream":
		if err := decode(&one); err != nil {
			return nil, err
		}
		if one.ID != 0 {
			if _, err := s.find(one.ID); err != nil {
				return nil, err
			}
		}
		c.mu.Lock()
		c.streams, c.only = true, one.ID
		c.mu.Unlock()
		return true, nil
	case "resume":
		var r struct {
			Pid uint32 `json:"pid"`
		}
		if err := decode(&r); err != nil {
			return nil, err
		}
		return s.resume(r.Pid)
	case "enable", "disable", "remove", "ledger":
		if err := decode(&one); err != nil {
			return nil, err
		}
		e, err := s.find(one.ID)
		if err != nil {
			return nil, err
		}
		switch method {
		case "enable":
			return true, s.enable(e)
		case "disable":
			s.disable(e)
			return true, nil
		case "remove":
			s.mu.Lock()
			delete(s.probes, e.id)
			s.mu.Unlock()
			s.disable(e)
			return true, nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return struct {
			Account
			Delivered uint64 `json:"delivered"`
			State     string `json:"state"`
		}{e.total, e.events, e.state}, nil
	}
	return nil, fail(CodeMethod, "%s: no such method; add, list, enable, disable, remove, stream, ledger and resume are known", method)
}

func (s *Server) find(id int) (*entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.probes[id]; e != nil {
		return e, nil
	}
	return nil, fail(CodeNoProbe, "no probe has the id %d", id)
}

func (s *Server) add(p Probe) (any, error) {
	switch {
	case p.Expr == "" || len(p.Expr) > 4096:
		return nil, fail(CodeParams, "expr: a probe expression of up to 4096 bytes is needed")
	case len(p.Pids) == 0 || len(p.Pids) > MaxPids || slices.Contains(p.Pids, 0):
		return nil, fail(CodeParams, "pids: 1 to %d running processes are needed", MaxPids)
	case p.Stack < 0 || p.Stack > 512:
		return nil, fail(CodeParams, "stack: 0 to 512 frames are possible")
	}
	e := &entry{probe: p, state: "disabled"}
	s.mu.Lock()
	if s.closed || len(s.probes) >= MaxProbes {
		s.mu.Unlock()
		return nil, fail(CodeBusy, "there are %d probes already: remove one", MaxProbes)
	}
	s.last++
	e.id = s.last
	s.probes[e.id] = e
	s.mu.Unlock()
	if err := s.enable(e); err != nil {
		s.mu.Lock()
		delete(s.probes, e.id)
		s.mu.Unlock()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return struct {
		ID    int      `json:"id"`
		Notes []string `json:"notes,omitempty"`
	}{e.id, e.notes}, nil
}

func (s *Server) enable(e *entry) error {
	e.busy.Lock()
	defer e.busy.Unlock()
	s.mu.Lock()
	running, closed, removed := e.state == "enabled", s.closed, s.probes[e.id] != e
	s.mu.Unlock()
	if running {
		return nil
	}
	if closed {
		return fail(CodeBusy, "the server is ending")
	}
	if removed {
		return fail(CodeNoProbe, "no probe has the id %d", e.id)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r, err := s.open(ctx, e.probe, func(line []byte) { s.deliver(e, line) })
	if err != nil {
		cancel()
		return err
	}
	done := make(chan struct{})
	s.mu.Lock()
	e.state, e.err, e.notes, e.cancel, e.done = "enabled", "", r.Notes(), cancel, done
	s.mu.Unlock()
	go func() {
		defer close(done)
		a, err := r.Wait()
		stopped := ctx.Err() != nil
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		e.total.Made += a.Made
		e.total.Shown += a.Shown
		e.total.Filtered += a.Filtered
		for cause, n := range a.Lost {
			if e.total.Lost == nil {
				e.total.Lost = make(map[string]uint64)
			}
			e.total.Lost[cause] += n
		}
		if e.state = "ended"; stopped {
			e.state = "disabled"
		}
		if err != nil {
			e.err = err.Error()
		}
	}()
	return nil
}

// disable takes a probe away and waits until it is.
func (s *Server) disable(e *entry) {
	e.busy.Lock()
	defer e.busy.Unlock()
	s.mu.Lock()
	cancel, done := e.cancel, e.done
	s.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
	}
}

func (s *Server) deliver(e *entry, line []byte) {
	s.mu.Lock()
	e.events++
	var list [MaxClients]*client
	n := 0
	for c := range s.clients {
		list[n] = c
		n++
	}
	s.mu.Unlock()
	for _, c := range list[:n] {
		c.event(e.id, line)
	}
}

func (s *Server) list() []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Info{}
	for _, e := range s.probes {
		out = append(out, Info{e.id, e.probe.Expr, e.probe.Pids, e.state, e.events, e.err, e.notes})
	}
	slices.SortFunc(out, func(a, b Info) int { return a.ID - b.ID })
	return out
}

// resume continues a process that a probe has stopped: only one of those that are probed.
func (s *Server) resume(pid uint32) (any, error) {
	s.mu.Lock()
	known := false
	for _, e := range s.probes {
		known = known || slices.Contains(e.probe.Pids, pid)
	}
	s.mu.Unlock()
	if !known || pid == 0 {
		return nil, fail(CodeParams, "process %d is probed by none of the probes", pid)
	}
	if err := unix.Kill(int(pid), unix.SIGCONT); err != nil {
		return nil, fail(CodeProbe, "resume process %d: %v", pid, err)
	}
	return true, nil
}
