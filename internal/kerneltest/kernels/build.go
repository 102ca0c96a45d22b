package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/sonde-trace/sonde/internal/kerneltest"
)

const ours = "github.com/sonde-trace/sonde/internal/kerneltest"

// suite is the tests of one package that need a kernel.
type suite struct {
	pkg   string // relative to the module
	dir   string
	tests []string
}

// discover finds the packages whose tests import kerneltest, and in them the tests that use it, themselves or through
// functions of the same package; some tests are for one architecture.
func (c *config) discover(ctx context.Context, arch string) ([]suite, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles,TestImports,XTestImports", "./...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	cmd.Dir = c.root
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, errs.String())
	}
	match, err := regexp.Compile(c.run)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	var list []suite
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Dir           string
			TestGoFiles, XTestGoFiles []string
			TestImports, XTestImports []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		uses := false
		for _, imp := range append(p.TestImports, p.XTestImports...) {
			uses = uses || imp == ours
		}
		if !uses && p.ImportPath != ours {
			continue
		}
		var files []string
		for _, f := range append(p.TestGoFiles, p.XTestGoFiles...) {
			files = append(files, filepath.Join(p.Dir, f))
		}
		tests, err := privileged(files, p.ImportPath == ours)
		if err != nil {
			return nil, err
		}
		var chosen []string
		for _, t := range tests {
			if match.MatchString(t) {
				chosen = append(chosen, t)
			}
		}
		if len(chosen) > 0 {
			list = append(list, suite{strings.TrimPrefix(p.ImportPath, "github.com/sonde-trace/sonde/"), p.Dir, chosen})
		}
	}
	return list, nil
}

// privileged returns the names of the tests in the files that reach a function of kerneltest; of all tests if all is set.
func privileged(files []string, all bool) ([]string, error) {
	calls := map[string]map[string]bool{} // function → names it uses
	needs := map[string]bool{}
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			name := fn.Name.Name
			if calls[name] == nil {
				calls[name] = map[string]bool{}
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "kerneltest" && asks[n.Sel.Name] {
						needs[name] = true
					}
					calls[name][n.Sel.Name] = true
				case *ast.Ident:
					calls[name][n.Name] = true
				}
				return true
			})
		}
	}
	for changed := true; changed; {
		changed = false
		for fn, used := range calls {
			for u := range used {
				if needs[u] && !needs[fn] {
					needs[fn], changed = true, true
				}
			}
		}
	}
	var tests []string
	for fn := range calls {
		if strings.HasPrefix(fn, "Test") && fn != "TestMain" && (all || needs[fn]) {
			tests = append(tests, fn)
		}
	}
	sort.Strings(tests)
	return tests, nil
}

// asks are the functions of kerneltest by which a test says that it is about the kernel.
var asks = map[string]bool{"Require": true, "Have": true, "TracefsDir": true, "Cgroup2Root": true}

// payload is what runs on the machines of one architecture.
type payload struct {
	dir    string
	initrd string
	plan   plan
}

// plan is what kernels/init reads.
type plan struct {
	Suites []planned
}

// planned is one test binary; paths are those inside the machine.
type planned struct {
	Package string
	Binary  string
	Dir     string
	Run     string
	Tests   []string
}

func (c *config) build(ctx context.Context, arch string, suites []suite) (*payload, error) {
	dir, err := os.MkdirTemp("", "sonde-kernels-")
	if err != nil {
		return nil, err
	}
	p := &payload{dir: dir, initrd: filepath.Join(dir, "initrd.gz")}
	if err := c.buildInto(ctx, p, arch, suites); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return p, nil
}

// hostOnly are packages whose tests are left to the host: whole sessions of the command load hundreds of programs each,
// which takes minutes in emulation (TestStreamsAndStatus: seven on arm64), and analyses of loading compile
// their programs. What they need of a kernel is in the tests of
// internal/attach and internal/ring, which run on every machine.
var hostOnly = map[string]bool{"cmd/sonde": true, "tracer": true, "load": true}

// inMachines are tests of those packages that need what only the machines have: debug registers. Their sessions load few programs.
var inMachines = regexp.MustCompile("^Test(Watch|Break)")

// forMachines leaves out what is for the host only.
func forMachines(suites []suite) []suite {
	var list []suite
	for _, s := range suites {
		if hostOnly[s.pkg] {
			if s.tests = slices.DeleteFunc(slices.Clone(s.tests), func(name string) bool { return !inMachines.MatchString(name) }); len(s.tests) == 0 {
				continue
			}
		}
		list = append(list, s)
	}
	return list
}

func (c *config) buildInto(ctx context.Context, p *payload, arch string, suites []suite) error {
	fmt.Printf("%s: building %d test binaries\n", arch, len(suites))
	goTool := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = c.root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	for i, s := range suites {
		bin := filepath.Join(p.dir, fmt.Sprintf("test%d", i))
		if err := goTool("test", "-c", "-ldflags=-s -w", "-o", bin, "./"+s.pkg); err != nil {
			return err
		}
		p.plan.Suites = append(p.plan.Suites, planned{Package: s.pkg, Binary: bin, Dir: s.dir,
			Run: "^(" + strings.Join(s.tests, "|") + ")$", Tests: s.tests})
	}
	var programs []string
	sources, err := filepath.Glob(filepath.Join(c.root, "test/programs/*.c"))
	if err != nil {
		return err
	}
	for _, src := range sources {
		path, err := kerneltest.BuildProgram(src, arch, filepath.Join(c.cache, "programs"))
		if err != nil {
			return err
		}
		programs = append(programs, path)
	}
	initBin := filepath.Join(p.dir, "init")
	if err := goTool("build", "-ldflags=-s -w", "-o", initBin, "./internal/kerneltest/kernels/init"); err != nil {
		return err
	}
	busybox, err := c.busybox(ctx, arch)
	if err != nil {
		return err
	}
	f, err := os.Create(p.initrd)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return err
	}
	a := newArchive(z)
	for _, d := range []string{"proc", "sys", "dev", "tmp", "run", "root", "etc", "bin", "usr/bin", "var/tmp"} {
		a.dir(d)
	}
	a.file("init", initBin, 0o755)
	a.file("bin/busybox", busybox, 0o755)
	a.bytes("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"))
	a.bytes("etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n"))
	a.bytes("etc/hosts", 0o644, []byte("127.0.0.1 localhost\n"))
	inside := plan{}
	for i, s := range p.plan.Suites {
		in := s
		in.Dir = "/test/" + s.Package
		in.Binary = fmt.Sprintf("/test/bin/%d.test", i)
		a.dir(in.Dir)
		a.file(in.Binary, s.Binary, 0o755)
		if td := filepath.Join(s.Dir, "testdata"); isDir(td) {
			a.tree(in.Dir+"/testdata", td)
		}
		inside.Suites = append(inside.Suites, in)
	}
	for _, t := range []string{"test/recordings", "test/script"} {
		if d := filepath.Join(c.root, t); isDir(d) {
			a.tree("/test/"+t, d)
		}
	}
	a.bytes("/test/go.mod", 0o644, []byte("module github.com/sonde-trace/sonde\n"))
	for _, path := range programs {
		a.file("/test/test/programs/"+filepath.Base(path), path, 0o755)
	}
	text, err := json.Marshal(inside)
	if err != nil {
		return err
	}
	a.bytes("/test/plan.json", 0o644, text)
	if err := a.close(); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}
