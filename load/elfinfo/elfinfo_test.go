package elfinfo

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/internal/objfile"
)

// files are ELF files of this machine, an even selection of at most most, and all of another architecture that is here.
func files(t *testing.T, most int) []string {
	var list []string
	for _, pattern := range []string{"/usr/bin/*", "/usr/lib/*-linux-gnu/*.so*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for i := 0; i < len(found) && n < most; i += max(1, len(found)/most) {
			st, err := os.Lstat(found[i])
			if err == nil && st.Mode().IsRegular() && st.Size() < 8<<20 {
				list, n = append(list, found[i]), n+1
			}
		}
	}
	for _, pattern := range []string{"/usr/aarch64-linux-gnu/lib/lib[cmp]*.so.*", "/usr/aarch64-linux-gnu/lib/crt1.o", "/usr/arm-linux-gnueabi*/lib/libc.so.6", "/usr/riscv64-linux-gnu/lib/libc.so.6", "/usr/s390x-linux-gnu/lib/libc.so.6", "/usr/lib32/libc.so.6", "/usr/lib/x86_64-linux-gnu/crt*.o", "/usr/lib/x86_64-linux-gnu/libcc1.so.0.*", "/usr/bin/busctl"} {
		found, _ := filepath.Glob(pattern) // the patterns are valid
		list = append(list, found...)
	}
	return list
}

func readelf(t *testing.T, flag, path string) []string {
	t.Helper()
	cmd := exec.Command("readelf", flag, path)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("readelf %s %s: %v", flag, path, err)
	}
	return strings.Split(string(b), "\n")
}

var (
	sectionRE = regexp.MustCompile(`^  \[ *(\d+)\] (.*?) +([A-Z0-9_]+) +([0-9a-f]{8,16}) ([0-9a-f]{6,}) ([0-9a-f]{6,}) ([0-9a-f]{2,}) *([A-Za-z]*) +(\d+) +(\d+) +(\d+)$`)
	segmentRE = regexp.MustCompile(`^  ([A-Z_]+) +0x([0-9a-f]+) 0x([0-9a-f]+) 0x([0-9a-f]+) 0x([0-9a-f]+) 0x([0-9a-f]+) ([RWE ]{3}) (?:0x)?([0-9a-f]+)$`)
	mappedRE  = regexp.MustCompile(`^   (\d\d) +(.*)$`)
	dynRE     = regexp.MustCompile(`^ 0x[0-9a-f]+ \(([A-Z0-9_]+)\) +(.*)$`)
	tableRE   = regexp.MustCompile(`^Relocation section '(.*)' at offset`)
	relocRE   = regexp.MustCompile(`^([0-9a-f]{8,16}) +[0-9a-f]{8,16} (R_[A-Za-z0-9_]+) *(.*)$`)
	symbolRE  = regexp.MustCompile(`^ *\d+: ([0-9a-f]{8,16}) +(0x[0-9a-f]+|\d+) ([A-Z]+|<OS specific>: \d+) +([A-Z]+|<OS specific>: \d+) +[A-Z]+ +(?:\[.*\] +)?([A-Z]+|\d+)(?: (.*))?$`)
)

// TestAgainstReadelf wants the same sections, segments, dynamic entries, relocations and symbols.
func TestAgainstReadelf(t *testing.T) {
	if _, err := exec.LookPath("readelf"); err != nil {
		t.Skip("readelf is not installed")
	}
	most := 25 // or as many as SONDE_ELF_FILES says
	if s := os.Getenv("SONDE_ELF_FILES"); s != "" {
		most, _ = strconv.Atoi(s)
	}
	compared, archs := 0, map[string]bool{}
	for _, path := range files(t, most) {
		f, err := objfile.Open(path)
		if err != nil {
			continue // a script
		}
		i := Read(f)
		f.Close()
		compared++
		archs[i.Machine] = true
		diff(t, path, "sections", sectionsOf(readelf(t, "-SW", path)), ownSections(i))
		diff(t, path, "segments", segmentsOf(readelf(t, "-lW", path)), ownSegments(i))
		diff(t, path, "dynamic", dynamicOf(readelf(t, "-dW", path)), ownDynamic(i))
		diff(t, path, "relocations", relocsOf(readelf(t, "-rW", path)), ownRelocs(i))
		diff(t, path, "symbols", symbolsOf(readelf(t, "-sW", path)), ownSymbols(i))
	}
	if compared < 10 {
		t.Errorf("only %d files were compared", compared)
	}
	t.Logf("%d files of %v", compared, archs)
}

func diff(t *testing.T, path, what string, want, got []string) {
	t.Helper()
	for n := range max(len(want), len(got)) {
		w, g := "nothing", "nothing"
		if n < len(want) {
			w = want[n]
		}
		if n < len(got) {
			g = got[n]
		}
		if w != g {
			t.Errorf("%s: %s %d of %d: readelf has\n  %s\nwe have\n  %s", path, what, n, len(want), w, g)
			return
		}
	}
}

func num(s string) uint64 { v, _ := strconv.ParseUint(s, 16, 64); return v }

func sectionsOf(lines []string) (list []string) {
	for _, l := range lines {
		if m := sectionRE.FindStringSubmatch(l); m != nil {
			list = append(list, fmt.Sprintf("%s %s %x %x %x %x %s %s %s %s", m[1], m[3], num(m[4]), num(m[5]), num(m[6]), num(m[7]), strings.Trim(m[8], "lpEDx"), m[9], m[10], m[11]))
		}
	}
	return list
}

func ownSections(i *Info) (list []string) {
	for _, s := range i.Sections {
		size := s.Size
		list = append(list, fmt.Sprintf("%d %s %x %x %x %x %s %d %d %d", s.Index, s.Type, s.Addr, s.Offset, size, s.EntSize, s.Flags, s.Link, s.Info, s.Align))
	}
	return list
}

func segmentsOf(lines []string) (list []string) {
	for _, l := range lines {
		if m := segmentRE.FindStringSubmatch(l); m != nil {
			list = append(list, fmt.Sprintf("%s %x %x %x %x %x %s %x", m[1], num(m[2]), num(m[3]), num(m[4]), num(m[5]), num(m[6]), m[7], num(m[8])))
		}
	}
	for _, l := range lines {
		if m := mappedRE.FindStringSubmatch(l); m != nil && len(list) > 0 {
			n, _ := strconv.Atoi(m[1])
			if n < len(list) {
				list[n] = strings.TrimSpace(list[n] + " " + strings.TrimSpace(m[2]))
			}
		}
	}
	return list
}

func ownSegments(i *Info) (list []string) {
	for _, s := range i.Segments {
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %x %x %x %x %x %s %x %s", s.Type, s.Offset, s.Vaddr, s.Paddr, s.FileSize, s.MemSize, s.Flags, s.Align, strings.Join(s.Sections, " "))))
	}
	return list
}

func dynamicOf(lines []string) (list []string) {
	for _, l := range lines {
		if m := dynRE.FindStringSubmatch(l); m != nil {
			text := ""
			if _, s, ok := strings.Cut(m[2], "["); ok {
				text = strings.TrimSuffix(s, "]")
			}
			list = append(list, m[1]+" "+text)
		}
	}
	return list
}

func ownDynamic(i *Info) (list []string) {
	for _, d := range i.Dynamic {
		text := ""
		switch d.Tag {
		case "NEEDED", "SONAME", "RPATH", "RUNPATH", "AUXILIARY", "FILTER":
			text = d.Text
		}
		list = append(list, d.Tag+" "+text)
	}
	return list
}

func relocsOf(lines []string) (list []string) {
	for _, l := range lines {
		if m := tableRE.FindStringSubmatch(l); m != nil {
			list = append(list, m[1])
		} else if m := relocRE.FindStringSubmatch(l); m != nil {
			rest := strings.Fields(m[3])
			addend, sym := "0", ""
			switch {
			case len(rest) == 1: // no symbol
				addend = rest[0]
				if len(m[1]) == 8 && len(rest[0]) == 8 {
					addend = "0"
				}
			case len(rest) == 2: // REL: value, name
				sym = rest[1]
			case len(rest) >= 4:
				sym, addend = rest[1], rest[3]
				if rest[2] == "-" {
					addend = "-" + addend
				}
			}
			if strings.HasSuffix(sym, "()") { // an ifunc's resolver, shown by name
				sym = ""
			}
			v := int64(num(strings.TrimPrefix(addend, "-")))
			if strings.HasPrefix(addend, "-") {
				v = -v
			}
			list = append(list, fmt.Sprintf("%x %s %s %x", num(m[1]), m[2], sym, v))
		}
	}
	return list
}

func ownRelocs(i *Info) (list []string) {
	for _, t := range i.Tables {
		list = append(list, t.Section)
		if t.Kind == "RELR" {
			continue // readelf has only the addresses; TestRelr
		}
		for _, r := range t.Entries {
			list = append(list, fmt.Sprintf("%x %s %s %x", r.Offset, r.Type, r.Symbol, r.Addend))
		}
	}
	return list
}

func symbolsOf(lines []string) (list []string) {
	for _, l := range lines {
		m := symbolRE.FindStringSubmatch(l)
		if m == nil {
			continue
		}
		size, err := strconv.ParseUint(m[2], 0, 64)
		if err != nil {
			continue
		}
		name, _, _ := strings.Cut(m[6], "@")
		name, _, _ = strings.Cut(name, " ")
		list = append(list, fmt.Sprintf("%x %d %s %s", num(m[1]), size, m[5], name))
	}
	// The first entry of each table is empty, and debug/elf leaves it out.
	return slices.DeleteFunc(list, func(s string) bool { return s == "0 0 UND " })
}

func ownSymbols(i *Info) (list []string) {
	for _, s := range i.Symbols {
		name := s.Name
		if name == "" && s.Type == "SECTION" {
			n, _ := strconv.Atoi(s.Section)
			if n < len(i.Sections) {
				name = i.Sections[n].Name
			}
		}
		name, _, _ = strings.Cut(name, "@")
		name, _, _ = strings.Cut(name, " ")
		list = append(list, fmt.Sprintf("%x %d %s %s", s.Value, s.Size, s.Section, name))
	}
	return slices.DeleteFunc(list, func(s string) bool { return s == "0 0 UND " })
}

// TestRelr decodes the example of the gABI's text: an address, then bitmaps of the words that follow.
func TestRelr(t *testing.T) {
	f := &objfile.File{ELF: &elf.File{FileHeader: elf.FileHeader{Class: elf.ELFCLASS64, Machine: elf.EM_X86_64, ByteOrder: binary.LittleEndian}}}
	var b []byte
	for _, v := range []uint64{0x1000, 1 | 1<<1 | 1<<3, 1 | 1<<63, 0x9000} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	var got []uint64
	for _, r := range relr(f, b) {
		got = append(got, r.Offset)
	}
	if want := []uint64{0x1000, 0x1008, 0x1018, 0x1008 + 63*8 + 62*8, 0x9000}; !slices.Equal(got, want) {
		t.Errorf("%#x, want %#x", got, want)
	}
}

func TestHardening(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	dir := t.TempDir()
	src := filepath.Join(dir, "x.c")
	if err := os.WriteFile(src, []byte("int puts(const char*);int main(void){char b[64];b[0]=65;b[1]=0;return puts(b);}"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ flags, good, bad string }{
		{"-pie -Wl,-z,relro,-z,now -fstack-protector-all", "PIE RELRO NX stack stack canaries", ""},
		{"-no-pie -Wl,-z,norelro -z execstack -fno-stack-protector -Wl,-rpath,lib", "", "PIE RELRO NX stack stack canaries RUNPATH"},
	} {
		out := filepath.Join(dir, "x")
		if b, err := exec.Command("gcc", append(strings.Fields(tc.flags), "-o", out, src)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, b)
		}
		f, err := objfile.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		i := Read(f)
		f.Close()
		for _, g := range i.Guards {
			if g.Good && strings.Contains(tc.bad, g.Name) || !g.Good && strings.Contains(tc.good, g.Name) {
				t.Errorf("%s: %+v", tc.flags, g)
			}
		}
	}
}

// FuzzRead: damaged files give remarks, not panics.
func FuzzRead(f *testing.F) {
	for _, p := range []string{"/bin/true", "/usr/lib/x86_64-linux-gnu/crt1.o"} {
		if b, err := os.ReadFile(p); err == nil {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := objfile.New(bytes.NewReader(b), int64(len(b)), "fuzz")
		if err != nil {
			return
		}
		Read(file)
	})
}
