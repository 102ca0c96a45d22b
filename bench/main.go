// Command bench measures sonde side by side with its peers, in one run: every load is run under every tracer in turn
// (A B C A B C …), so that what else the machine does falls on all of them, and medians are printed as ratios to the
// untraced run of the same round. The loads measure themselves (bench/work), so that a tracer's start and end do not
// count as the target's time; they are shown beside it.
//
//	go run ./bench [-runs N] [-loads loop,find,…] [-sonde FILE]
//
// It needs root and a C compiler; peers that are not installed are left out and named.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// load is one piece of work to trace.
type load struct {
	name, what string
	args       []string // of bench/work; OUT stands for the result file
	bar        string   // what the project promises, as text
}

// tracer is one way of running a load. In argv, FILE is the tracer's output, and the load's command line follows.
type tracer struct {
	name  string
	argv  []string
	loads []string // empty: all
	lost  func(stderr []byte, file string) string
}

// sample is one measured run.
type sample struct {
	target, whole time.Duration
	cpu           time.Duration // of the tracer alone: user and system
	rss           int64         // KiB
	note          string
}

var loads = []load{
	{"find", "find /usr -name nosuch, all syscalls decoded to a file", []string{"run", "OUT", "find", "/usr", "-name", "nosuch"}, "target at most 2.0 ×, tracer CPU at most a quarter of perf trace's, 0 lost"},
	{"loop", "500,000 getppid, decoded to a file", []string{"loop", "OUT", "500000"}, "at most 2.5 ×, 0 lost"},
	{"other", "500,000 getppid, only openat selected", []string{"loop", "OUT", "500000"}, "at most 1.15 ×"},
	{"true", "openat of true, whole run", []string{"run", "OUT", "true"}, "whole run no slower than strace"},
	{"forks", "500 fork + exec with -f", []string{"forks", "OUT", "500"}, "at most 1.3 ×"},
}

const bpftraceRaw = `tracepoint:raw_syscalls:sys_enter /pid == cpid/ { printf("%d %d\n", tid, args->id) } tracepoint:raw_syscalls:sys_exit /pid == cpid/ { printf("%d %d\n", tid, args->ret) }`

func tracers(sonde string) []tracer {
	all := []string{"find", "loop", "forks"}
	only := []string{"other", "true"}
	return []tracer{
		{name: "untraced"},
		{name: "sonde", argv: []string{sonde, "trace", "-f", "-o", "FILE", "--"}, loads: all, lost: sondeLost},
		{name: "sonde", argv: []string{sonde, "trace", "-f", "-e", "openat", "-o", "FILE", "--"}, loads: only, lost: sondeLost},
		{name: "sonde record", argv: []string{sonde, "record", "-f", "-o", "FILE", "--"}, loads: all, lost: sondeLost},
		{name: "strace", argv: []string{"strace", "-f", "-o", "FILE", "--"}, loads: all},
		{name: "strace", argv: []string{"strace", "-f", "-e", "trace=openat", "-o", "FILE", "--"}, loads: []string{"true"}},
		{name: "strace --seccomp-bpf", argv: []string{"strace", "-f", "--seccomp-bpf", "-e", "trace=openat", "-o", "FILE", "--"}, loads: only},
		{name: "perf trace", argv: []string{"perf", "trace", "-o", "FILE", "--"}, loads: all},
		{name: "perf trace", argv: []string{"perf", "trace", "-e", "openat", "-o", "FILE", "--"}, loads: only},
		{name: "bpftrace raw", argv: []string{"bpftrace", "-o", "FILE", "-e", bpftraceRaw, "-c"}, loads: []string{"loop"}},
	}
}

// sondeLost returns what the ledger on stderr says of losses.
func sondeLost(stderr []byte, _ string) string {
	sc := bufio.NewScanner(bytes.NewReader(stderr))
	for sc.Scan() {
		if strings.Contains(sc.Text(), "lost") {
			return strings.TrimSpace(sc.Text())
		}
	}
	return "0 lost"
}

func main() {
	runs := flag.Int("runs", 5, "rounds; medians are printed")
	only := flag.String("loads", "", "comma-separated names of loads; empty for all")
	sonde := flag.String("sonde", "bin/sonde", "the program to measure")
	flag.Parse()
	if err := bench(*runs, *only, *sonde); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(runs int, only, sonde string) error {
	sonde, err := filepath.Abs(sonde)
	if err != nil {
		return err
	}
	if _, err := os.Stat(sonde); err != nil {
		return fmt.Errorf("%w; build it first: make build", err)
	}
	dir, err := os.MkdirTemp("", "sonde-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	work := filepath.Join(dir, "work")
	if out, err := exec.Command("cc", "-O2", "-o", work, "bench/work/work.c").CombinedOutput(); err != nil {
		return fmt.Errorf("build bench/work: %w\n%s", err, out)
	}
	var present []tracer
	for _, t := range tracers(sonde) {
		if len(t.argv) > 0 {
			if _, err := exec.LookPath(t.argv[0]); err != nil {
				fmt.Printf("left out: %s is not installed\n", t.argv[0])
				continue
			}
		}
		present = append(present, t)
	}
	for _, l := range loads {
		if only != "" && !slices.Contains(strings.Split(only, ","), l.name) {
			continue
		}
		fmt.Printf("\n%s: %s\n  bar: %s\n", l.name, l.what, l.bar)
		if err := runLoad(l, present, runs, dir, work); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}

func runLoad(l load, tracers []tracer, runs int, dir, work string) error {
	var use []tracer
	for _, t := range tracers {
		if len(t.loads) == 0 || slices.Contains(t.loads, l.name) {
			use = append(use, t)
		}
	}
	samples := make([][]sample, len(use))
	for range runs {
		for i, t := range use {
			s, err := runOnce(l, t, dir, work)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			samples[i] = append(samples[i], s)
		}
	}
	fmt.Printf("  %-22s %10s %7s %10s %8s %10s  %s\n", "tracer", "target ms", "ratio", "whole ms", "ratio", "CPU ms", "memory, losses")
	for i, t := range use {
		var target, whole, cpu, ratio, wratio []float64
		var rss int64
		note := ""
		for r, s := range samples[i] {
			target = append(target, ms(s.target))
			whole = append(whole, ms(s.whole))
			cpu = append(cpu, ms(s.cpu))
			ratio = append(ratio, float64(s.target)/float64(samples[0][r].target))
			wratio = append(wratio, float64(s.whole)/float64(samples[0][r].whole))
			rss = max(rss, s.rss)
			if s.note != "" && (note == "" || note == "0 lost") {
				note = s.note
			}
		}
		fmt.Printf("  %-22s %10.1f %7.2f %10.1f %8.2f %10.1f  %.1f MiB %s\n", t.name, median(target), median(ratio), median(whole), median(wratio), median(cpu), float64(rss)/1024, note)
	}
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

func runOnce(l load, t tracer, dir, work string) (s sample, err error) {
	out, file := filepath.Join(dir, "out"), filepath.Join(dir, "file")
	os.Remove(out)
	os.Remove(file)
	var argv []string
	for _, a := range t.argv {
		argv = append(argv, strings.ReplaceAll(a, "FILE", file))
	}
	command := []string{work}
	for _, a := range l.args {
		if a == "OUT" {
			a = out
		}
		command = append(command, a)
	}
	if n := len(argv); n > 0 && argv[n-1] == "-c" {
		argv = append(argv, strings.Join(command, " "))
	} else {
		argv = append(argv, command...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "BPFTRACE_PERF_RB_PAGES=4096")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	start := time.Now()
	err = cmd.Run()
	s.whole = time.Since(start)
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() >= 0) {
		return s, err
	}
	b, rerr := os.ReadFile(out)
	if rerr != nil {
		return s, fmt.Errorf("%v: the load left no result (%v): %s", argv, err, stderr.Bytes())
	}
	f := strings.Fields(string(b))
	if len(f) != 2 {
		return s, fmt.Errorf("the load wrote %q", b)
	}
	wall, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil {
		return s, err
	}
	used, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return s, err
	}
	s.target = time.Duration(wall)
	u := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	s.cpu = max(0, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()-time.Duration(used))
	s.rss = u.Maxrss
	if t.lost != nil {
		s.note = t.lost(stderr.Bytes(), file)
	}
	return s, nil
}
