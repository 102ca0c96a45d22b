package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sonde-trace/sonde/internal/control"
)

// defaultSocket is where serve and ctl meet.
func defaultSocket() string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		dir = "/run"
	}
	return filepath.Join(dir, "sonde.sock")
}

func serveCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "let other programs add and remove probes, by JSON-RPC",
		Long: `serve takes requests of JSON-RPC 2.0, one object a line, on a Unix socket that only its owner
can open: add, list, enable, disable, remove, stream, ledger, resume. sonde ctl speaks it; so can
any script. When serve ends, however it ends, its probes are gone and the programs go on.`,
		Example: "  sonde serve &\n  sonde ctl add -p 4711 'watch:./app:cfg.mode:w'\n  sonde ctl stream",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := control.Listen(path)
			if err != nil {
				return err
			}
			ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
			defer cancel()
			fmt.Fprintln(os.Stderr, "sonde: serving on", clean(path))
			return control.NewServer(control.Trace).Serve(ctx, l)
		},
	}
	cmd.Flags().StringVar(&path, "socket", defaultSocket(), "listen on the Unix socket `PATH`")
	return cmd
}

func ctlCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "ctl",
		Short: "steer sonde serve",
		Long:  `ctl sends one request to sonde serve and prints the answer as JSON; stream prints events, one a line, until it is interrupted.`,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("%s: no such request; add, list, enable, disable, remove, stream, ledger and resume are known", args[0])
			}
			return cmd.Help()
		},
	}
	cmd.PersistentFlags().StringVar(&path, "socket", defaultSocket(), "the Unix socket `PATH` of sonde serve")
	var pids []string
	var stack int
	add := &cobra.Command{
		Use: "add EXPR", Short: "add a probe and print its id", Args: cobra.ExactArgs(1), Example: "  sonde ctl add -p 4711 'libc:malloc(size: u64) -> ptr'",
		RunE: func(_ *cobra.Command, args []string) error {
			p := control.Probe{Expr: args[0], Stack: stack}
			for _, s := range split(pids) {
				pid, err := taskID(s)
				if err != nil {
					return usagef("-p %s: %v", s, err)
				}
				p.Pids = append(p.Pids, pid)
			}
			return ask(path, "add", p, os.Stdout)
		},
	}
	add.Flags().StringArrayVarP(&pids, "attach", "p", nil, "in the running process `PID`; repeatable, lists")
	add.Flags().IntVar(&stack, "stack-depth", 0, "at most `N` frames of the stack with each event")
	cmd.AddCommand(add, &cobra.Command{Use: "list", Short: "print all probes", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return ask(path, "list", struct{}{}, os.Stdout) }})
	for _, m := range []struct{ name, arg, short string }{
		{"enable", "ID", "let a probe work again"}, {"disable", "ID", "take a probe away and remember it"}, {"remove", "ID", "take a probe away and forget it"},
		{"ledger", "ID", "print the account of a probe"}, {"stream", "[ID]", "print the events of a probe, or of all, as they come"},
		{"resume", "PID", "continue a probed process that was stopped"},
	} {
		cmd.AddCommand(&cobra.Command{Use: m.name + " " + m.arg, Short: m.short, Args: cobra.RangeArgs(map[bool]int{true: 1}[m.name != "stream"], 1),
			RunE: func(_ *cobra.Command, args []string) error {
				params := map[string]int64{}
				if len(args) > 0 {
					n, err := strconv.ParseInt(args[0], 10, 32)
					if err != nil || n < 1 {
						return usagef("%s %s: a number is needed", m.name, args[0])
					}
					params[map[bool]string{true: "pid", false: "id"}[m.name == "resume"]] = n
				}
				return ask(path, m.name, params, os.Stdout)
			}})
	}
	return cmd
}

// ask sends a request and prints the result; of a stream also all that follows.
func ask(path, method string, params any, w io.Writer) error {
	c, err := net.Dial("unix", path)
	if err != nil {
		return fmt.Errorf("ask sonde serve: %w; is it running? sonde serve --socket %s", err, path)
	}
	defer c.Close()
	if err := json.NewEncoder(c).Encode(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params}); err != nil {
		return fmt.Errorf("ask sonde serve: %w", err)
	}
	in := bufio.NewScanner(c)
	in.Buffer(nil, 16<<20)
	for answered := false; in.Scan(); {
		var m struct {
			Result json.RawMessage
			Error  *struct{ Message string }
			Method string
			Params json.RawMessage
		}
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			return fmt.Errorf("ask sonde serve: the answer is no JSON: %w", err)
		}
		out := m.Result
		switch {
		case m.Error != nil:
			return errors.New(m.Error.Message)
		case m.Method == "dropped":
			fmt.Fprintf(os.Stderr, "sonde: events were dropped, this reader is too slow: %s\n", clean(string(m.Params)))
			continue
		case m.Method != "":
			out = m.Params
		case method == "stream" && !answered:
			answered = true
			continue
		}
		if _, err := fmt.Fprintf(w, "%s\n", out); err != nil {
			return err
		}
		if m.Method == "" {
			return nil
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("ask sonde serve: %w", err)
	}
	return errors.New("sonde serve has ended")
}
