package unwind

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/internal/kerneltest"
	"github.com/sonde-trace/sonde/internal/objfile"
)

var (
	fdeLine = regexp.MustCompile(`^[0-9a-f]+ [0-9a-f]+ [0-9a-f]+ FDE cie=([0-9a-f]+) pc=([0-9a-f]+)\.\.([0-9a-f]+)`)
	cieLine = regexp.MustCompile(`^([0-9a-f]+) [0-9a-f]+ [0-9a-f]+ CIE "([^"]*)"`)
	regOff  = regexp.MustCompile(`^(r[a-z0-9]+)([+-]\d+)$`)
)

// readelfRows calls do for each row that readelf(1) finds in a file's .eh_frame: its address, and its columns by name.
func readelfRows(t *testing.T, path string, do func(pc uint64, col map[string]string)) {
	t.Helper()
	if _, err := exec.LookPath("readelf"); err != nil {
		t.Skip("missing feature readelf: ", err)
	}
	out, err := exec.Command("readelf", "--debug-dump=frames-interp", path).Output()
	if len(out) == 0 { // it fails for debug files that are missing, too
		t.Fatal(err)
	}
	signal := map[string]bool{}
	var head []string
	var end uint64
	in := false
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "ZERO terminator") {
			in = false
		} else if m := cieLine.FindStringSubmatch(line); m != nil {
			signal[m[1]], in = strings.Contains(m[2], "S"), false
		} else if m := fdeLine.FindStringSubmatch(line); m != nil {
			end, _ = strconv.ParseUint(m[3], 16, 64)
			in = !signal[m[1]]
		} else if w := strings.Fields(line); len(w) > 0 && w[0] == "LOC" {
			head = w
		} else if in && len(w) == len(head) {
			pc, err := strconv.ParseUint(w[0], 16, 64)
			if err != nil || pc >= end {
				continue
			}
			col := map[string]string{}
			for i := 1; i < len(w); i++ {
				col[head[i]] = w[i]
			}
			do(pc, col)
		}
	}
}

var dwarfNames = []string{"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"}

// column shows a rule as readelf does.
func column(r RegRule) string {
	switch r.Kind {
	case RSame, RUndef:
		return "u"
	case ROffset:
		return fmt.Sprintf("c%+d", r.Off)
	case RReg:
		return dwarfNames[r.Reg]
	}
	return "exp"
}

// TestEqualReadelf: every row of real files is as readelf reads it: C, C++ with exceptions, the C library and the dynamic linker,
// whose assembly has what compilers do not make.
func TestEqualReadelf(t *testing.T) {
	files := []string{kerneltest.Compile(t, "chain", "-O2", "-fomit-frame-pointer"), kerneltest.Compile(t, "throws.cc", "-O2"), kerneltest.Compile(t, "chain", "-O0", "-static")}
	out, err := exec.Command("ldd", files[1]).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range strings.Fields(string(out)) {
		if strings.Contains(w, "/libc.so") || strings.Contains(w, "/libstdc++.so") || strings.Contains(w, "/ld-linux") {
			files = append(files, w)
		}
	}
	for _, path := range files {
		f, err := objfile.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		table, err := Build(f)
		if err != nil {
			t.Fatal(err)
		}
		if table.Arch != AMD64 {
			t.Skip("missing feature amd64: the columns of readelf are named for it")
		}
		check(t, table)
		rows, bad := 0, 0
		readelfRows(t, path, func(pc uint64, col map[string]string) {
			rows++
			r, ok := table.Lookup(pc)
			cfa, ra, fp := "exp", column(r.RA), "u"
			if c := col["rbp"]; c != "" {
				fp = c
			}
			switch r.CFAKind {
			case CFAReg:
				cfa = fmt.Sprintf("%s%+d", dwarfNames[r.CFAReg], r.CFAOff)
			case CFADeref, CFAPLT, CFAExpr:
			default:
				ok = false
			}
			if col["ra"] == "u" { // the outermost frame, where the rest does not matter
				if ok = ok && r.RA.Kind == RUndef; ok {
					return
				}
			}
			if !ok || cfa != col["CFA"] || ra != col["ra"] || column(r.FP) != strings.TrimPrefix(fp, "v") {
				if bad++; bad < 10 {
					t.Errorf("%s: %#x: %+v, readelf has %v", path, pc, r, col)
				}
			}
		})
		if rows < 10 || bad > 0 || table.Unsupported > 0 {
			t.Errorf("%s: %d of %d rows differ, %d descriptions are not understood", path, bad, rows, table.Unsupported)
		}
		t.Logf("%s: %d rows equal", path, rows)
	}
}

// check is what holds for every table, whatever the file.
func check(t *testing.T, table *Table) {
	t.Helper()
	for i, r := range table.Rows {
		if i > 0 && table.Rows[i-1].PC >= r.PC {
			t.Fatalf("row %d at %#x is not behind the one at %#x", i, r.PC, table.Rows[i-1].PC)
		}
		if int(r.Rule) >= len(table.Rules) {
			t.Fatalf("rule %d of %d", r.Rule, len(table.Rules))
		}
	}
	if len(table.Rules) > maxRules {
		t.Fatalf("%d rules", len(table.Rules))
	}
	for i := range table.Rules {
		table.Kernel(&table.Rules[i])
	}
}

// frame makes entries of a section: the length in front of what comes after it.
func frame(body ...byte) []byte {
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// cieOf makes a CIE for absolute addresses, and fdeOf an FDE at an offset in a section whose CIE is at 0.
func cieOf(align byte, code ...byte) []byte {
	return frame(append([]byte{0, 0, 0, 0, 1, 'z', 'R', 0, align, 0x78, 16, 1, 0}, code...)...)
}

func fdeOf(at int, start, n uint64, code ...byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(at+4))
	b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, start), n)
	return frame(append(append(b, 0), code...)...)
}

// TestRows: the rows of small sections, written by hand.
func TestRows(t *testing.T) {
	type fde struct {
		start, n uint64
		code     []byte
	}
	begin := []byte{0x0c, 7, 8, 0x90, 1} // def_cfa rsp+8, ra at cfa-8
	for _, c := range []struct {
		name        string
		align       byte
		fdes        []fde
		want        string // address:CFA offset
		unsupported int
	}{
		{"push and pop", 1, []fde{{0x1000, 16, []byte{0x41, 0x0e, 16, 0x44, 0x0e, 8}}}, "1000:8 1001:16 1005:8 1010:-", 0},
		{"remember and restore", 1, []fde{{0x1000, 16, []byte{0x41, 0x0e, 16, 0x0a, 0x41, 0x0e, 8, 0x41, 0x0b}}}, "1000:8 1001:16 1002:8 1003:16 1010:-", 0},
		{"restore without remember", 1, []fde{{0x1000, 16, []byte{0x41, 0x0b}}}, "1000:-", 1},
		{"a gap", 1, []fde{{0x1000, 16, nil}, {0x2000, 16, nil}}, "1000:8 1010:- 2000:8 2010:-", 0},
		{"padding is no gap", 1, []fde{{0x1000, 14, nil}, {0x1010, 16, nil}}, "1000:8 1020:-", 0},
		{"overlap", 1, []fde{{0x1000, 16, []byte{0x41, 0x0e, 16}}, {0x1008, 16, []byte{0x44, 0x0e, 32, 0x46, 0x0e, 48}}}, "1000:8 1001:16 1010:32 1012:48 1018:-", 0},
		{"inside another", 1, []fde{{0x1000, 32, nil}, {0x1008, 8, []byte{0x0e, 32}}}, "1000:8 1020:-", 0},
		{"unknown opcode after rows", 1, []fde{{0x1000, 16, []byte{0x41, 0x0e, 16, 0x41, 0x3f}}, {0x1010, 16, nil}}, "1000:- 1010:8 1020:-", 1},
		{"past the end of memory", 16, []fde{{1<<64 - 64, 32, []byte{0x41, 0x0e, 16, 0x04, 255, 255, 255, 255, 0x41}}}, "ffffffffffffffc0:-", 1},
		{"longer than memory", 1, []fde{{0x1000, 1<<64 - 16, nil}}, "", 1},
		{"cut", 1, []fde{{0x1000, 16, []byte{0x41, 0x0e, 16, 0x04, 1, 1, 1}}}, "1000:-", 1},
	} {
		s := Section{Data: cieOf(c.align, begin...)}
		for _, f := range c.fdes {
			s.Data = append(s.Data, fdeOf(len(s.Data), f.start, f.n, f.code...)...)
		}
		p := NewParser(AMD64)
		fdes, err := p.ParseFDEs(s, nil)
		rows := p.Compile(fdes, nil)
		var got []string
		for _, r := range rows {
			if r.Rule == 0 {
				got = append(got, fmt.Sprintf("%x:-", r.PC))
			} else {
				got = append(got, fmt.Sprintf("%x:%d", r.PC, p.Rules[r.Rule].CFAOff))
			}
		}
		if g := strings.Join(got, " "); err != nil || g != c.want || p.Unsupported != c.unsupported {
			t.Errorf("%s: %s, %d unsupported, %v\nwant %s, %d", c.name, g, p.Unsupported, err, c.want, c.unsupported)
		}
	}
}

// TestForward: a description in front of its CIE, as .debug_frame may have it, and one that names what is none.
func TestForward(t *testing.T) {
	cie := cieOf(1, 0x0c, 7, 8, 0x90, 1)
	binary.LittleEndian.PutUint32(cie[4:], 0xffffffff)
	for _, c := range []struct{ at, fdes, unsupported int }{{28, 1, 0}, {32, 0, 1}} {
		first := fdeOf(c.at-4, 0x1000, 16)
		if len(first) != 28 {
			t.Fatal(len(first))
		}
		p := NewParser(AMD64)
		fdes, err := p.ParseFDEs(Section{Data: append(first, cie...), Debug: true}, nil)
		if err != nil || len(fdes) != c.fdes || p.Unsupported != c.unsupported {
			t.Errorf("%d descriptions, %d unsupported, %v", len(fdes), p.Unsupported, err)
		}
	}
}

// FuzzParser: any section, of both kinds and for both architectures, gives a table that holds together.
func FuzzParser(f *testing.F) {
	cie := cieOf(1, 0x0c, 7, 8, 0x90, 1)
	f.Add(append(slices.Clone(cie), fdeOf(len(cie), 0x1000, 16, 0x41, 0x0e, 16, 0x0a, 0x41, 0x0b)...), false, false)
	f.Add(append(slices.Clone(cie), fdeOf(len(cie), 0x1000, 16, 0x0f, 3, 0x77, 8, 6, 0x10, 6, 2, 0x76, 0)...), true, false)
	f.Add([]byte("\xff\xff\xff\xff\x08\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"), false, true)
	f.Fuzz(func(t *testing.T, b []byte, arm, debug bool) {
		arch := AMD64
		if arm {
			arch = ARM64
		}
		p := NewParser(arch)
		fdes, _ := p.ParseFDEs(Section{Data: b, Addr: 0x4000, Debug: debug}, nil)
		rows := p.Compile(fdes, nil)
		if len(rows) > 2*len(b)+2 {
			t.Errorf("%d rows from %d bytes", len(rows), len(b))
		}
		check(t, &Table{Arch: arch, Rows: rows, Rules: p.Rules})
	})
}

// FuzzBuild: any file that is opened gives a table that holds together, or an error.
func FuzzBuild(f *testing.F) {
	b, err := os.ReadFile(kerneltest.Compile(f, "chain", "-O2", "-s"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := objfile.New(bytes.NewReader(b), int64(len(b)), "fuzz")
		if err != nil {
			return
		}
		defer o.Close()
		if table, err := Build(o); err == nil {
			check(t, table)
		}
	})
}

// TestGoSignalReturn: the code to which a signal handler of a Go program returns, on whose stack are all registers. This test is a Go program.
func TestGoSignalReturn(t *testing.T) {
	f, err := objfile.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := Build(f)
	if err != nil {
		t.Fatal(err)
	}
	check(t, table)
	c := codeOf(f) // test programs have no symbols
	at := bytes.Index(c.text, signalReturn[table.Arch])
	if at < 0 {
		t.Fatal("this program has no code to return from a signal")
	}
	for _, pc := range []uint64{c.addr + uint64(at), c.addr + uint64(at) + 8} {
		if r, ok := table.Lookup(pc); !ok || r.CFAKind != CFASig {
			t.Errorf("%#x: %+v %v", pc, r, ok)
		}
	}
}
