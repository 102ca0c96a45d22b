package objfile

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"
)

const manySource = `
static __attribute__((noinline)) int hidden(int x) { return x * 3; }
int visible(int x) { return hidden(x) + 1; }
int alias(int) __attribute__((alias("visible")));
int __under(int) __attribute__((alias("visible")));
asm(".text\n.globl label\nlabel: nop\nnop\n.type sized, @function\nsized: nop\ninner: nop\nnop\n.size sized, 3\nlast: nop\n");
int main(void) { return visible(0); }
`

func compileText(t *testing.T, text string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	src := filepath.Join(dir, "p.c")
	if err := os.WriteFile(src, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "p")
	run(t, "cc", append([]string{"-O1", "-o", out, src}, flags...)...)
	return out
}

// TestFuncs: the right name of several, labels within functions, names without a size.
func TestFuncs(t *testing.T) {
	f := open(t, compileText(t, manySource))
	addr := map[string]uint64{}
	for s := range f.EachFunc() {
		addr[s.Name] = s.Addr
	}
	for _, test := range []struct {
		at   string
		off  uint64
		want string
	}{
		{"visible", 0, "alias"}, // the shortest of the names without an underscore
		{"hidden", 1, "hidden"},
		{"label", 0, "label"},
		{"label", 1, "label"},
		{"sized", 0, "sized"},
		{"inner", 0, "sized"}, // a label in a function
		{"sized", 2, "sized"},
		{"last", 0, "last"},
	} {
		if addr[test.at] == 0 {
			t.Fatalf("%s is not there", test.at)
		}
		if s, ok := f.Funcs().Lookup(addr[test.at] + test.off); !ok || s.Name != test.want {
			t.Errorf("%s+%d is in %q (%v), want %q", test.at, test.off, s.Name, ok, test.want)
		}
	}
	for _, a := range []uint64{0, 1, ^uint64(0)} {
		if s, ok := f.Funcs().Lookup(a); ok {
			t.Errorf("address %#x is in %+v", a, s)
		}
	}
	if n := f.Funcs().Bytes(); n > 12*f.Funcs().Len()+256 {
		t.Errorf("%d functions take %d bytes", f.Funcs().Len(), n)
	}
}

// TestMapping: ARM's marks of instructions and data are no functions.
func TestMapping(t *testing.T) {
	for name, want := range map[string]bool{"$x": true, "$d": true, "$x.12": true, "$a": true, "$t.foo": true, "$": false, "$xy": false, "x": false, "$z": false} {
		if isMapping(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// TestMiniDebug: names in .gnu_debugdata, as distributions make it, of one block or several.
func TestMiniDebug(t *testing.T) {
	path := compileText(t, manySource)
	dir := filepath.Dir(path)
	mini := filepath.Join(dir, "mini")
	run(t, "objcopy", "--only-keep-debug", path, mini)
	plain, err := os.ReadFile(mini)
	if err != nil {
		t.Fatal(err)
	}
	run(t, "strip", path)
	if open(t, path).MiniDebug() != nil {
		t.Error("MiniDebugInfo from nowhere")
	}
	for _, block := range []int64{0, 1000} {
		var packed bytes.Buffer
		w, err := xz.WriterConfig{BlockSize: block}.NewWriter(&packed)
		if err == nil {
			_, err = w.Write(plain)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		data := filepath.Join(dir, "data")
		if err := os.WriteFile(data, packed.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(dir, fmt.Sprint("with", block))
		run(t, "objcopy", "--add-section", ".gnu_debugdata="+data, path, out)
		names := map[string]bool{}
		for s := range open(t, out).EachFunc() {
			names[s.Name] = true
		}
		if !names["hidden"] || !names["visible"] {
			t.Errorf("blocks of %d: %v", block, names)
		}
		for cut := 0; cut < packed.Len(); cut += 1 + packed.Len()/50 {
			if b, err := unxz(packed.Bytes()[:cut], maxMiniDebug); err == nil && !bytes.Equal(b, plain) {
				t.Fatalf("cut at %d of %d: %d bytes of %d without an error", cut, packed.Len(), len(b), len(plain))
			}
		}
	}
}

// TestBomb: what claims a large dictionary, or expands to more than the bound, is refused.
func TestBomb(t *testing.T) {
	var packed bytes.Buffer
	w, err := xz.WriterConfig{DictCap: 1 << 20}.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	zero := make([]byte, 1<<20)
	for range 9 {
		if _, err := w.Write(zero); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := unxz(packed.Bytes(), 8<<20); !errors.Is(err, errXZ) {
		t.Errorf("a bomb: %v", err)
	}
}

// TestDebugDirs: the ways in which a directory of the user names a debug file.
func TestDebugDirs(t *testing.T) {
	path := build(t, t.TempDir(), "-g", "-Wl,--build-id=sha1")
	debug := filepath.Join(t.TempDir(), "d")
	run(t, "objcopy", "--only-keep-debug", path, debug)
	run(t, "strip", path)
	id := fmt.Sprintf("%x", open(t, path).BuildID())
	for _, place := range []string{".build-id/" + id[:2] + "/" + id[2:] + ".debug", id[:2] + "/" + id[2:] + ".debug", "p.debug", "p"} {
		dir := t.TempDir()
		to := filepath.Join(dir, place)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(debug, to); err != nil {
			b, _ := os.ReadFile(debug)
			if err := os.WriteFile(to, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f, err := OpenWithOptions(path, Options{DebugDirs: []string{t.TempDir(), dir}})
		if err != nil {
			t.Fatal(err)
		}
		if d, err := f.Debug(); err != nil || d.Path != to {
			t.Errorf("%s: %v, %v", place, d, err)
		}
		f.Close()
	}
}

// TestPipe: a pipe in the place of a file does not stop us.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	run(t, "mkfifo", path)
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "regular") {
		t.Errorf("a pipe: %v", err)
	}
}

// TestCut: a file that is cut while it is mapped gives an error, not a crash.
func TestCut(t *testing.T) {
	path := build(t, t.TempDir(), "-g", "-static")
	f := open(t, path)
	m, err := f.Map(".text")
	if err != nil || m.Heap() != 0 {
		t.Skipf("the section is not mapped: %v", err)
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	sum := byte(0)
	err = Guard(func() error {
		for _, b := range m.Bytes() {
			sum += b
		}
		return nil
	})
	if !errors.Is(err, ErrCut) {
		t.Errorf("reading it: %v", err)
	}
	f.Funcs()
	f.Stubs()
	for range f.EachFunc() {
	}
}

// exercise asks a file everything.
func exercise(t *testing.T, b []byte) {
	f, err := New(bytes.NewReader(b), int64(len(b)), "fuzz")
	if err != nil {
		return
	}
	f.BuildID()
	n := 0
	for s := range f.EachFunc() {
		if n++; n > 1000 {
			break
		}
		f.Funcs().Lookup(s.Addr)
		f.Funcs().Lookup(s.Addr + s.Size)
	}
	f.Funcs().Lookup(0)
	f.Stubs()
	f.MiniDebug()
	for _, name := range []string{".debug_info", ".debug_line", ".text"} {
		if m, err := f.Map(name); err == nil {
			Guard(func() error { _ = bytes.Count(m.Bytes(), []byte{7}); return nil })
		}
	}
}

// TestDamaged changes words of a program, which a random fuzzer does not find for long: whatever the headers and tables say, the
// answers are bounded.
func TestDamaged(t *testing.T) {
	path := compileText(t, manySource, "-g")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	e, err := elf.NewFile(bytes.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	var places []int
	for i := range 64 {
		places = append(places, i)
	}
	order := binary.LittleEndian
	headers := int(order.Uint64(good[40:]))
	for i := headers; i < len(good); i += 4 {
		places = append(places, i)
	}
	for _, s := range e.Sections {
		if s.Type == elf.SHT_SYMTAB || s.Type == elf.SHT_DYNSYM || s.Type == elf.SHT_RELA || s.Type == elf.SHT_DYNAMIC || strings.HasPrefix(s.Name, ".gnu") || s.Name == ".plt" {
			for i := int(s.Offset); i < int(s.Offset+s.FileSize) && s.Type != elf.SHT_NOBITS; i += 4 {
				places = append(places, i)
			}
		}
	}
	rnd := rand.New(rand.NewSource(2))
	for range 3000 {
		b := slices.Clone(good)
		for range 1 + rnd.Intn(3) {
			at := places[rnd.Intn(len(places))]
			if at+4 > len(b) {
				continue
			}
			order.PutUint32(b[at:], []uint32{0, 1, 0xffffffff, 0x7fffffff, 0x80000000, rnd.Uint32(), uint32(len(b)), order.Uint32(b[at:]) + 1}[rnd.Intn(8)])
		}
		exercise(t, b[:len(b)-rnd.Intn(2)*rnd.Intn(len(b))])
	}
}

// FuzzFuncs: what a file claims costs no more than its size allows.
func FuzzFuncs(f *testing.F) {
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(exe[:min(len(exe), 4096)])
	f.Fuzz(exercise)
}

// TestMapCompressed: large contents that are compressed come out whole, and not in our memory.
func TestMapCompressed(t *testing.T) {
	path := compileText(t, manySource, "-g")
	want := bytes.Repeat([]byte("debug data\x00\x01\x02"), 2<<20)
	big := filepath.Join(filepath.Dir(path), "big")
	if err := os.WriteFile(big, want, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"zlib", "zlib-gabi"} {
		out := path + "." + format
		run(t, "objcopy", "--add-section", ".debug_big="+big, path, out+".plain")
		run(t, "objcopy", "--compress-debug-sections="+format, out+".plain", out)
		f := open(t, out)
		m, err := f.Map(".debug_big")
		if err != nil || f.ELF.Section(".debug_big").Flags&elf.SHF_COMPRESSED == 0 || !bytes.Equal(m.Bytes(), want) {
			t.Fatalf("%s: %d bytes, want %d: %v", format, len(m.Bytes()), len(want), err)
		}
		if m.Heap() != 0 {
			t.Logf("%s: no directory takes files without a name here", format)
		}
		small, err := f.Map(".debug_info")
		if err != nil || len(small.Bytes()) == 0 {
			t.Errorf("%s: .debug_info: %v", format, err)
		}
	}
}
