package ldso

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"github.com/sonde-trace/sonde/internal/objfile"
)

// Linker is a dynamic linker, as far as its habits differ: what it is, where it looks, and which subdirectories for this
// machine's processor it prefers.
type Linker struct {
	Path         string
	Libc         string // "glibc", "musl", or "" when it is neither
	Major, Minor int    // version of glibc; 0 when it is not told
	SystemDirs   []string
	Lib          string   // what $LIB stands for
	Platform     string   // what $PLATFORM stands for
	Subdirs      []string // looked into in each directory, in order, before the directory itself
	Soname       string
}

var releaseRE = regexp.MustCompile(`release version (\d+)\.(\d+)`)

// systemDirs is how glibc keeps its fixed directories: in one run of strings, each ending in a slash and a NUL (elf/dl-load.c,
// system_dirs); the last one is always /usr/lib/ or /usr/lib64/.
var systemDirs = regexp.MustCompile(`(?:/[A-Za-z0-9_.+/-]*/\x00){2,8}`)

const maxLinker = 16 << 20

// NewLinker reads the dynamic linker at path. cpu names the features of the processor, as Features gives them.
func NewLinker(path string, machine elf.Machine, class elf.Class, cpu map[string]bool) (*Linker, error) {
	f, err := objfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l := &Linker{Path: path}
	d, err := readDynamic(f)
	if err != nil {
		return nil, err
	}
	l.Soname = d.one(elf.DT_SONAME)
	switch base := filepath.Base(path); {
	case strings.HasPrefix(base, "ld-musl"), strings.HasPrefix(l.Soname, "ld-musl"), l.Soname == "libc.so":
		l.Libc = "musl"
		l.musl()
		return l, nil
	case strings.HasPrefix(base, "ld-linux"), base == "ld.so.1", base == "ld64.so.1", base == "ld64.so.2", strings.HasPrefix(l.Soname, "ld-linux"):
		l.Libc = "glibc"
	default:
		return l, nil
	}
	b := make([]byte, min(f.Size, maxLinker))
	n, _ := f.ReadAt(b, 0) // a short read leaves less to find
	b = b[:n]
	if m := releaseRE.FindSubmatch(b); m != nil {
		l.Major, _ = strconv.Atoi(string(m[1]))
		l.Minor, _ = strconv.Atoi(string(m[2]))
	}
	for _, run := range systemDirs.FindAll(b, -1) {
		dirs := strings.Split(strings.TrimSuffix(string(run), "\x00"), "\x00")
		last := dirs[len(dirs)-1]
		if strings.HasSuffix(last, "/lib/") || strings.HasSuffix(last, "/lib64/") || strings.HasSuffix(last, "/libx32/") || strings.HasSuffix(last, "/lib32/") {
			for _, d := range dirs {
				l.SystemDirs = append(l.SystemDirs, strings.TrimSuffix(d, "/"))
			}
			break
		}
	}
	if len(l.SystemDirs) == 0 {
		l.SystemDirs = []string{"/lib64", "/usr/lib64"}
		if class == elf.ELFCLASS32 || machine == elf.EM_AARCH64 {
			l.SystemDirs = []string{"/lib", "/usr/lib"}
		}
	}
	l.Lib = strings.TrimPrefix(l.SystemDirs[0], "/")
	l.glibcSubdirs(machine, cpu)
	return l, nil
}

// musl's places: ldso/dynlink.c, load_library: a file of its own, else three directories.
func (l *Linker) musl() {
	l.SystemDirs = []string{"/lib", "/usr/local/lib", "/usr/lib"}
	arch := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(l.Path), "ld-musl-"), ".so.1")
	if b, err := os.ReadFile("/etc/ld-musl-" + arch + ".path"); err == nil && len(b) < 1<<20 {
		l.SystemDirs = strings.FieldsFunc(string(b), func(r rune) bool { return r == ':' || r == '\n' })
	}
}

// levels are the micro-architecture levels of the x86-64 psABI, the best first, with what each needs beyond the one below, as
// /proc/cpuinfo spells it. LZCNT, of v3, is left out: kernels of virtual machines do not list it, and no processor has the
// others without it.
var levels = []struct {
	name  string
	needs string
}{
	{"x86-64-v4", "avx512f avx512bw avx512cd avx512dq avx512vl"},
	{"x86-64-v3", "avx avx2 bmi1 bmi2 f16c fma movbe xsave"},
	{"x86-64-v2", "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"},
}

// glibcSubdirs: glibc-hwcaps from 2.33 on; the older combinations of tls, platform and hardware names until 2.36
// (elf/dl-hwcaps.c, _dl_important_hwcaps).
func (l *Linker) glibcSubdirs(machine elf.Machine, cpu map[string]bool) {
	new := l.Major > 2 || l.Minor >= 33 || l.Major == 0
	old := l.Major == 2 && l.Minor <= 36
	var parts []string
	switch machine {
	case elf.EM_X86_64:
		l.Platform = "x86_64"
		if cpu["GenuineIntel"] && has(cpu, "avx2 bmi1 bmi2 fma movbe popcnt") {
			l.Platform = "haswell"
		}
		parts = []string{l.Platform, "x86_64"}
		if cpu["GenuineIntel"] && has(cpu, "avx512f avx512cd avx512bw avx512dq avx512vl") {
			parts = []string{l.Platform, "avx512_1", "x86_64"}
		}
		if !new {
			break
		}
		from := len(levels)
		for i := len(levels) - 1; i >= 0 && has(cpu, levels[i].needs); i-- {
			from = i
		}
		for _, v := range levels[from:] {
			l.Subdirs = append(l.Subdirs, "glibc-hwcaps/"+v.name)
		}
	case elf.EM_AARCH64:
		l.Platform = "aarch64"
		parts = []string{"aarch64"}
		if cpu["atomics"] {
			parts = []string{"aarch64", "atomics"}
		}
	case elf.EM_386:
		l.Platform = "i686"
		parts = []string{"i686", "sse2"}
	default:
		return
	}
	if !old {
		return
	}
	parts = append([]string{"tls"}, parts...)
	for set := 1<<len(parts) - 1; set > 0; set-- {
		var names []string
		for i, p := range parts {
			if set&(1<<(len(parts)-1-i)) != 0 {
				names = append(names, p)
			}
		}
		l.Subdirs = append(l.Subdirs, strings.Join(names, "/"))
	}
}

func has(cpu map[string]bool, names string) bool {
	for _, n := range strings.Fields(names) {
		if !cpu[n] {
			return false
		}
	}
	return true
}

// Features are the names that /proc/cpuinfo has for the vendor and the features of this machine's first processor.
func Features() map[string]bool {
	set := make(map[string]bool)
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return set // the directories of the base level remain
	}
	first, _, _ := bytes.Cut(b, []byte("\n\n"))
	for line := range strings.Lines(string(first)) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "flags", "Features", "vendor_id":
			for _, f := range strings.Fields(value) {
				set[f] = true
			}
		}
	}
	return set
}

// Machine is the one that this kernel runs natively, as ELF numbers it.
func Machine() elf.Machine {
	switch runtime.GOARCH {
	case "arm64":
		return elf.EM_AARCH64
	default:
		return elf.EM_X86_64
	}
}
