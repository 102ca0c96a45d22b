package main

import (
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// Every list has a file that was generated from the list as it is.
func TestGeneratedMatchesLists(t *testing.T) {
	lists, err := filepath.Glob("../sets/*.txt")
	if err != nil || len(lists) == 0 {
		t.Fatalf("no lists: %v", err)
	}
	known := map[string]bool{"errno_gen.go": true}
	for _, path := range lists {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out := strings.TrimSuffix(filepath.Base(path), ".txt") + "_gen.go"
		known[out] = true
		src, err := os.ReadFile("../" + out)
		if err != nil {
			t.Error(err)
			continue
		}
		if want := fmt.Sprintf("// List: sha256 %x\n", sha256.Sum256(text)); !strings.Contains(string(src), want) {
			t.Errorf("%s is not generated from %s as it is: run go generate ./internal/constant", out, path)
		}
	}
	known["ioctlcmd_gen.go"] = true // its list is the headers themselves, see ioctlgen
	gen, _ := filepath.Glob("../*_gen.go")
	for _, g := range gen {
		if !known[filepath.Base(g)] {
			t.Errorf("%s has no list", g)
		}
	}
}

// The compiler agrees with the committed numbers, as far as the headers of this machine go: they may be older than
// those of the generated files, never different.
func TestNumbersAgainstThisMachinesHeaders(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil || runtime.GOARCH != "amd64" {
		t.Skip("missing feature gcc: no compiler for amd64")
	}
	host := abis[0]
	c := &compiler{tmp: t.TempDir(), dirs: map[string][]string{}, cache: map[string]*names{}, values: map[string]map[string]answer{}}
	lists, _ := filepath.Glob("../sets/*.txt")
	// One run of the compiler for each header, with the names of all sets that use it.
	type want struct {
		set string
		num uint64
	}
	byHeader := map[string]map[string][]want{}
	for _, path := range lists {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sets, err := parse(path, string(text))
		if err != nil {
			t.Fatal(err)
		}
		committed := readGenerated(t, "../"+strings.TrimSuffix(filepath.Base(path), ".txt")+"_gen.go")
		for _, s := range sets {
			have, ok := committed[s.name]
			if !ok {
				t.Errorf("%s: %s is not in the generated file", path, s.name)
			}
			own := map[string]bool{}
			for _, it := range s.items {
				own[it.name] = it.expr != ""
			}
			// The C library's older headers may contradict the kernel's in a set that names both.
			var headers []string
			for _, h := range s.headers {
				if c.isKernel(h) {
					headers = append(headers, h)
				}
			}
			if len(headers) != 1 {
				if len(s.headers) != 1 {
					continue
				}
				headers = s.headers
			}
			h := headers[0]
			if byHeader[h] == nil {
				byHeader[h] = map[string][]want{}
			}
			for _, e := range have {
				if !own[e.name] {
					byHeader[h][e.name] = append(byHeader[h][e.name], want{s.name, e.num})
				}
			}
		}
	}
	checked := 0
	for h, names := range byHeader {
		if h == "linux/snmp.h" {
			continue // counters are put in between from kernel to kernel: netlink names them by position
		}
		var q []question
		for name := range names {
			q = append(q, question{expr: name})
		}
		if err := c.evaluate(host, []string{h}, q); err != nil {
			continue // it needs others, or this machine has no such header
		}
		for _, a := range q {
			for _, w := range names[a.expr] {
				if a.ok {
					checked++
					if a.num != w.num {
						t.Errorf("<%s>: %s is %#x here, %#x in %s", h, a.expr, a.num, w.num, w.set)
					}
				}
			}
		}
	}
	if checked < 500 {
		t.Errorf("only %d numbers could be checked", checked)
	}
	t.Logf("%d numbers of %d headers checked", checked, len(byHeader))
}

// readGenerated gives the entries of amd64 by set.
func readGenerated(t *testing.T, path string) map[string][]entry {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string][]entry{}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range g.Specs {
			v, ok := spec.(*ast.ValueSpec)
			if !ok {
				continue
			}
			u, ok := v.Values[0].(*ast.UnaryExpr)
			if !ok {
				continue
			}
			m[v.Names[0].Name] = nil
			for _, el := range u.X.(*ast.CompositeLit).Elts {
				kv := el.(*ast.KeyValueExpr)
				if kv.Key.(*ast.Ident).Name != "Entries" {
					continue
				}
				for _, e := range kv.Value.(*ast.CompositeLit).Elts {
					pair := e.(*ast.CompositeLit).Elts
					name, _ := strconv.Unquote(pair[0].(*ast.BasicLit).Value)
					num, err := strconv.ParseUint(pair[1].(*ast.BasicLit).Value, 0, 64)
					if err != nil {
						t.Fatal(err)
					}
					m[v.Names[0].Name] = append(m[v.Names[0].Name], entry{name, num})
				}
			}
		}
	}
	return m
}

func TestArrange(t *testing.T) {
	flags := &set{flags: true}
	got := flags.arrange([]entry{{"B", 2}}, []entry{{"A", 1}, {"B2", 2}, {"AB", 3}, {"C", 4}, {"ABC", 7}, {"Z", 0}})
	want := "[{B 2} {Z 0} {ABC 7} {AB 3} {A 1} {C 4}]"
	if fmt.Sprint(got) != want {
		t.Errorf("flags: %v, want %s", got, want)
	}
	enum := &set{}
	got = enum.arrange([]entry{{"B", 2}, {"A", 1}}, []entry{{"A2", 1}, {"Z", 0}})
	if want := "[{Z 0} {A 1} {B 2}]"; fmt.Sprint(got) != want {
		t.Errorf("enum: %v, want %s", got, want)
	}
}

func TestParse(t *testing.T) {
	list, err := parse("x", "# c\nset A flags A_ <a/b.h> <c.h> # c\nA_1 ?A_2\nA_3 = (1 << 2) # origin\nmatch ^A_\nskip ^A_X$\n")
	if err != nil {
		t.Fatal(err)
	}
	s := list[0]
	if s.name != "A" || !s.flags || s.prefix != "A_???" || len(s.headers) != 2 || len(s.items) != 3 || !s.items[1].optional ||
		s.items[2].expr != "(1 << 2)" || !s.wanted("A_Y") || s.wanted("A_X") || s.wanted("B") {
		t.Errorf("%+v", s)
	}
	for _, bad := range []string{"A_1", "set a flags A_ <x.h>", "set A bits A_", "set A enum A_ x.h", "set A enum A_\nmatch (", "set A enum A_\n1A", "set A enum A_\nX ="} {
		if _, err := parse("x", bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
