// Command kernels runs the tests that need a kernel (those that use internal/kerneltest), on this machine or on the
// kernels of test/kernels.txt, each in a virtual machine of
// QEMU (with KVM where there is one and the architecture is ours, else in software).
//
//	kernels [flags] [SUITE-ARCH...]      e.g. kernels bullseye-amd64
//	kernels -host     on this machine, as root
//	kernels -unit     all tests of all packages, without privileges, and a count of them
//
// The kernels are Debian's cloud kernels, downloaded once with apt and kept in the user's cache directory (SONDE_CACHE
// names another place). A machine boots an initramfs of the test binaries, the programs of test/programs, busybox and
// kernels/init. What a machine prints goes to LOGS/SUITE-ARCH.log, the outcome of each test as JSON lines to .jsonl.
//
// A line of the matrix says how many tests have to pass at least, and which features a kernel may lack: a test that is
// skipped for any other reason is a failure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

type config struct {
	root    string // of the module
	cache   string
	logs    string
	jobs    int
	timeout time.Duration
	run     string
	verbose bool
}

func main() {
	var c config
	host := flag.Bool("host", false, "run on this machine")
	unit := flag.Bool("unit", false, "run all tests that need no privileges on this machine")
	race := flag.Bool("race", false, "with -unit: with the race detector")
	prepare := flag.Bool("prepare", false, "download and build only")
	flag.StringVar(&c.logs, "logs", "", "`directory` of logs and results (default CACHE/logs)")
	flag.IntVar(&c.jobs, "jobs", 2, "virtual machines at once")
	flag.DurationVar(&c.timeout, "timeout", 20*time.Minute, "for one machine")
	flag.StringVar(&c.run, "run", "", "only tests that match this `regexp`")
	flag.BoolVar(&c.verbose, "v", false, "show the output of failed tests as it comes")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	err := func() error {
		if err := c.init(); err != nil {
			return err
		}
		if *unit {
			return c.runUnit(ctx, *race)
		}
		if *host {
			return c.runHost(ctx)
		}
		return c.runMatrix(ctx, flag.Args(), *prepare)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		cancel()
		os.Exit(1)
	}
}

func (c *config) init() error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	for c.root = dir; ; c.root = filepath.Dir(c.root) {
		if _, err := os.Stat(filepath.Join(c.root, "go.mod")); err == nil {
			break
		}
		if c.root == filepath.Dir(c.root) {
			return errors.New("no go.mod above the working directory")
		}
	}
	c.cache = os.Getenv("SONDE_CACHE")
	if c.cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("no place for kernels: %w; name one with SONDE_CACHE", err)
		}
		c.cache = filepath.Join(dir, "sonde")
	}
	if c.logs == "" {
		c.logs = filepath.Join(c.cache, "logs")
	}
	return os.MkdirAll(c.logs, 0o755)
}

func (c *config) runMatrix(ctx context.Context, only []string, prepare bool) error {
	text, err := os.ReadFile(filepath.Join(c.root, "test/kernels.txt"))
	if err != nil {
		return err
	}
	all, err := parseMatrix(string(text))
	if err != nil {
		return fmt.Errorf("test/kernels.txt: %w", err)
	}
	machines := all
	if len(only) > 0 {
		machines = nil
		for _, name := range only {
			found := false
			for _, m := range all {
				if m.String() == name {
					machines, found = append(machines, m), true
				}
			}
			if !found {
				return fmt.Errorf("%s: not in test/kernels.txt", name)
			}
		}
	}
	payload := map[string]*payload{} // by architecture
	kernel := map[machine]string{}
	for _, m := range machines {
		if kernel[m.machine], err = c.kernel(ctx, m.suite, m.arch); err != nil {
			return err
		}
		if payload[m.arch] == nil {
			suites, err := c.discover(ctx, m.arch)
			if err != nil {
				return err
			}
			if len(suites) == 0 {
				return errors.New("no package has tests that use internal/kerneltest")
			}
			if payload[m.arch], err = c.build(ctx, m.arch, forMachines(suites)); err != nil {
				return err
			}
			defer os.RemoveAll(payload[m.arch].dir)
		}
	}
	if prepare {
		return nil
	}
	reports := make([]*report, len(machines))
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(1, c.jobs))
	for i, m := range machines {
		wg.Add(1)
		go func() {
			defer wg.Done()
			slots <- struct{}{}
			defer func() { <-slots }()
			reports[i] = c.boot(ctx, m, kernel[m.machine], payload[m.arch])
			reports[i].judge(m)
			reports[i].print(os.Stdout)
		}()
	}
	wg.Wait()
	return summary(os.Stdout, reports)
}

func (c *config) runHost(ctx context.Context) error {
	suites, err := c.discover(ctx, runtime.GOARCH)
	if err != nil {
		return err
	}
	p, err := c.build(ctx, runtime.GOARCH, suites)
	if err != nil {
		return err
	}
	defer os.RemoveAll(p.dir)
	r := c.onHost(ctx, p)
	r.judge(entry{machine: machine{"host", runtime.GOARCH}, anyMissing: true})
	r.print(os.Stdout)
	return summary(os.Stdout, []*report{r})
}

// machine is a kernel of a Debian suite for an architecture.
type machine struct{ suite, arch string }

func (m machine) String() string { return m.suite + "-" + m.arch }

// entry is a line of the matrix.
type entry struct {
	machine
	passed     int             // at least
	missing    map[string]bool // features
	known      map[string]bool // tests that are known to fail there now and then; said, and no reason to fail the run
	anyMissing bool
}

// parseMatrix reads lines of "SUITE ARCH passed N [missing FEATURE,...] [known TEST,...]".
func parseMatrix(text string) ([]entry, error) {
	var out []entry
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		e := entry{missing: map[string]bool{}}
		if len(f) < 4 || len(f)%2 != 0 || f[2] != "passed" {
			return nil, fmt.Errorf("line %d: want SUITE ARCH passed N [missing FEATURE,...] [known TEST,...]", i+1)
		}
		e.suite, e.arch = f[0], f[1]
		if e.arch != "amd64" && e.arch != "arm64" {
			return nil, fmt.Errorf("line %d: architecture %q: amd64 or arm64", i+1, e.arch)
		}
		if _, err := fmt.Sscanf(f[3], "%d", &e.passed); err != nil || e.passed < 0 {
			return nil, fmt.Errorf("line %d: %q is not a number of tests", i+1, f[3])
		}
		for k := 4; k < len(f); k += 2 {
			switch f[k] {
			case "missing":
				for _, m := range strings.Split(f[k+1], ",") {
					e.missing[m] = true
				}
			case "known":
				e.known = make(map[string]bool)
				for _, test := range strings.Split(f[k+1], ",") {
					e.known[test] = true
				}
			default:
				return nil, fmt.Errorf("line %d: %q: missing or known can follow", i+1, f[k])
			}
		}
		out = append(out, e)
	}
	return out, nil
}
