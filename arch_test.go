package sonde

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sonde-trace/sonde/"

// rooms is the plan of the house: each package and the packages of ours it may import, directly, outside its tests.
// A new package or a new arrow is a decision: it is entered here, with its sentence in ARCHITECTURE.md.
var rooms = map[string][]string{
	"event":              {},
	"internal/wire":      {},
	"internal/constant":  {},
	"internal/near":      {},
	"internal/syscalls":  {"internal/near"},
	"probe":              {"internal/syscalls"},
	"internal/decode":    {"event", "internal/constant", "internal/syscalls", "internal/wire"},
	"internal/bpfgen":    {"internal/syscalls", "internal/wire"},
	"internal/ring":      {"internal/wire"},
	"internal/attach":    {"perfevent", "internal/bpfgen", "internal/objfile", "internal/ring", "internal/syscalls", "internal/unwind", "internal/wire"},
	"internal/proc":      {},
	"internal/inject":    {"internal/proc", "internal/syscalls", "probe"},
	"perfevent":          {},
	"internal/insn":      {},
	"internal/ldcache":   {},
	"internal/objfile":   {},
	"internal/symbol":    {"event", "internal/near", "internal/objfile"},
	"internal/ctype":     {"event", "internal/syscalls", "internal/wire"},
	"internal/plan":      {"internal/unwind", "perfevent", "internal/decode", "internal/bpfgen", "internal/ldcache", "internal/near", "internal/objfile", "internal/syscalls", "internal/wire", "event", "internal/symbol", "internal/ctype", "internal/constant", "probe"},
	"internal/ldso":      {"internal/ldcache", "internal/objfile"},
	"internal/addrspace": {},
	"load/elfinfo":       {"internal/objfile"},
	"load":               {"event", "internal/addrspace", "internal/constant", "internal/ldcache", "internal/ldso", "internal/objfile", "internal/proc", "load/elfinfo", "probe", "tracer"},
	"internal/unwind":    {"internal/bpfgen", "internal/objfile"},
	"internal/control":   {"event", "internal/plan", "probe", "sink", "tracer"},
	"recording":          {"event"},
	"sink":               {"event", "internal/constant"},
	"tracer": {"event", "perfevent", "internal/insn", "internal/attach", "internal/constant", "internal/decode", "internal/inject", "internal/near", "internal/plan", "internal/proc", "internal/ring", "internal/bpfgen", "internal/symbol",
		"internal/syscalls", "internal/wire", "probe", "recording"},
}

// free packages are programs and tools: they may import any room, and no room may import them.
var free = []string{"cmd/", "bench", "internal/constant/gen", "internal/constant/ioctlgen", "internal/syscalls/gen", "internal/kerneltest", "docs/", "test/", "examples/"}

func isFree(pkg string) bool {
	return slices.ContainsFunc(free, func(p string) bool { return pkg == p || strings.HasPrefix(pkg, strings.TrimSuffix(p, "/")+"/") })
}

func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	seen := map[string]bool{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkg := strings.TrimPrefix(p.ImportPath+"/", module)
		pkg = strings.TrimSuffix(pkg, "/")
		if pkg == "" || p.ImportPath+"/" == module {
			continue // this test
		}
		seen[pkg] = true
		allowed, ok := rooms[pkg]
		if !ok && !isFree(pkg) {
			t.Errorf("%s is not in the plan of rooms", pkg)
			continue
		}
		for _, imp := range p.Imports {
			dep, ours := strings.CutPrefix(imp, module)
			if !ours || !ok {
				continue
			}
			if isFree(dep) || !slices.Contains(allowed, dep) {
				t.Errorf("%s imports %s, which the plan of rooms does not allow", pkg, dep)
			}
		}
	}
	for pkg := range rooms {
		if !seen[pkg] {
			t.Logf("%s is planned and has no code yet", pkg)
		}
	}
}
