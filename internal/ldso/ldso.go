// Package ldso is a model of the dynamic linker: which files it opens for a program, in which order, where it looks for each
// and why a place is not taken, and what of versions and symbols is missing then. It knows the rules of glibc (elf/dl-load.c,
// elf/dl-hwcaps.c, elf/dl-version.c) and of musl (ldso/dynlink.c).
//
// It reads files and runs nothing. The paths it says are tried are those that LD_DEBUG=libs shows, in that order.
package ldso

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/ldcache"
	"github.com/sonde-trace/sonde/internal/objfile"
)

// Rule says why a path was tried.
type Rule string

// The rules, in the order in which glibc follows them. musl takes LibraryPath first, then RunPath and RPath alike.
const (
	RulePath        Rule = "path in the name"
	RuleRPath       Rule = "RPATH"
	RuleLibraryPath Rule = "LD_LIBRARY_PATH"
	RuleRunPath     Rule = "RUNPATH"
	RuleCache       Rule = "ld.so.cache"
	RuleSystem      Rule = "system directory"
)

// Try is one path that the linker tries.
type Try struct {
	Path    string `json:"path"`
	Rule    Rule   `json:"rule"`
	From    string `json:"from,omitempty"` // the file whose RPATH or RUNPATH it is
	Found   bool   `json:"found,omitempty"`
	Skipped bool   `json:"skipped,omitempty"` // not tried: the linker knows from an earlier search that the directory does not exist
	Reason  string `json:"reason,omitempty"`  // why it was not taken: "no such file", "for another architecture: i386", …
}

// Need is one library that somebody needs.
type Need struct {
	Name    string  `json:"name"`
	By      *Object `json:"-"`
	Preload string  `json:"preload,omitempty"` // the name of the variable or file that asks for it, when no object does
	Tries   []Try   `json:"tries,omitempty"`
	Object  *Object `json:"-"`                // nil when it is missing
	Loaded  bool    `json:"loaded,omitempty"` // it was in memory already
	Fatal   string  `json:"fatal,omitempty"`  // the search stopped here: the file is damaged
}

// Object is one file in memory.
type Object struct {
	Path   string
	Soname string
	Loader *Object // who needed it first; nil for the program
	Needs  []*Need
	File   *objfile.File

	dyn            *dynamic
	names          []string
	id             objfile.ID
	rpath, runpath *dirList
	noDefault      bool
	symbols        *symbolTable
}

// dirList is a search path with the memory that the linker has of it: subdirectories that do not exist are tried once.
type dirList struct {
	rule Rule
	from string
	dirs []string // "" is the working directory
}

// Closure is what the linker makes of a program.
type Closure struct {
	Program *Object
	Objects []*Object // in the order in which they are mapped: the program, preloaded ones, then breadth first
	Needs   []*Need   // each search, in order
	Linker  *Linker   // nil for a static program
	Secure  bool      // set-user-ID or the like: the environment is not trusted
	Notes   []string

	missing map[string]bool // subdirectories that are known not to exist
	cache   []ldcache.Entry
	read    bool // the cache was read
	env     func(string) string
	linker  *Object
	libPath *dirList
	system  *dirList
}

// ErrStatic says that a program asks for no dynamic linker.
var ErrStatic = errors.New("it is linked statically")

const (
	maxObjects = 4096
	cachePath  = "/etc/ld.so.cache"
)

// Interp is the dynamic linker that an ELF file asks for, "" when for none.
func Interp(f *objfile.File) (string, error) {
	for _, p := range f.ELF.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		// PATH_MAX and at least "/" and NUL: fs/binfmt_elf.c, load_elf_binary.
		if p.Filesz < 2 || p.Filesz > 4096 {
			return "", fmt.Errorf("%s: the name of its dynamic linker is %d bytes long", f.Path, p.Filesz)
		}
		b := make([]byte, p.Filesz)
		if _, err := f.ReadAt(b, int64(p.Off)); err != nil {
			return "", fmt.Errorf("%s: the name of its dynamic linker is outside the file", f.Path)
		}
		if b[len(b)-1] != 0 {
			return "", fmt.Errorf("%s: the name of its dynamic linker does not end", f.Path)
		}
		s, _, _ := strings.Cut(string(b), "\x00")
		return s, nil
	}
	return "", nil
}

// Resolve finds what the linker will load for the program at path with this environment. The caller closes the closure. Missing
// libraries are no error: they are in Needs. An error is ErrStatic, or says that the program or its linker cannot be read.
func Resolve(path string, environ []string) (*Closure, error) {
	f, err := objfile.Open(path)
	if err != nil {
		return nil, err
	}
	c := &Closure{missing: make(map[string]bool)}
	c.env = func(name string) string {
		for _, e := range environ {
			if v, ok := strings.CutPrefix(e, name+"="); ok {
				return v
			}
		}
		return ""
	}
	main := &Object{Path: path, File: f, id: f.ID}
	c.Program, c.Objects = main, []*Object{main}
	fail := func(err error) (*Closure, error) { c.Close(); return nil, err }
	interp, err := Interp(f)
	if err != nil {
		return fail(err)
	}
	if interp == "" {
		return fail(ErrStatic)
	}
	if c.Linker, err = NewLinker(interp, f.ELF.Machine, f.ELF.Class, Features()); err != nil {
		return fail(err)
	}
	if main.dyn, err = readDynamic(f); err != nil {
		return fail(err)
	}
	c.linker = &Object{Path: interp}
	if c.linker.File, err = objfile.Open(interp); err != nil {
		return fail(err)
	}
	c.linker.id = c.linker.File.ID
	if c.linker.dyn, err = readDynamic(c.linker.File); err != nil {
		return fail(err)
	}
	c.linker.Soname = c.Linker.Soname
	c.Secure = secure(path)
	c.setup(main)
	if v := c.env("LD_LIBRARY_PATH"); v != "" && !c.Secure {
		sep := ":;"
		if c.Linker.Libc == "musl" {
			sep = ":\n"
		}
		c.libPath = &dirList{rule: RuleLibraryPath, dirs: c.split(v, sep, main)}
	}
	c.system = &dirList{rule: RuleSystem, dirs: c.Linker.SystemDirs}
	c.preload()
	for i := 0; i < len(c.Objects) && len(c.Objects) < maxObjects; i++ {
		o := c.Objects[i]
		for _, name := range o.dyn.all(elf.DT_NEEDED) {
			n := c.find(name, o)
			o.Needs = append(o.Needs, n)
			c.Needs = append(c.Needs, n)
			if n.Fatal != "" || n.Object == nil && c.Linker.Libc == "glibc" {
				return c, nil // glibc gives up at the first one; so nothing that comes after it is tried
			}
		}
	}
	if !slices.Contains(c.Objects, c.linker) {
		c.Objects = append(c.Objects, c.linker)
	}
	return c, nil
}

// Close closes the files.
func (c *Closure) Close() {
	for _, o := range c.Objects {
		o.File.Close()
	}
	if c.linker != nil && c.linker.File != nil {
		c.linker.File.Close() // closing twice does no harm
	}
}

// Missing is the first need that was not met and that ends the program; nil when all are met.
func (c *Closure) Missing() *Need {
	for _, n := range c.Needs {
		if n.By != nil && (n.Object == nil || n.Fatal != "") {
			return n
		}
	}
	return nil
}

// setup reads what an object says of its own searches.
func (c *Closure) setup(o *Object) {
	o.Soname = o.dyn.one(elf.DT_SONAME)
	flags, _ := o.dyn.value(elf.DT_FLAGS_1)
	o.noDefault = flags&uint64(elf.DF_1_NODEFLIB) != 0
	if v := o.dyn.one(elf.DT_RUNPATH); v != "" {
		o.runpath = &dirList{rule: RuleRunPath, from: o.Path, dirs: c.split(v, ":", o)}
	} else if v := o.dyn.one(elf.DT_RPATH); v != "" {
		// RUNPATH makes RPATH void.
		o.rpath = &dirList{rule: RuleRPath, from: o.Path, dirs: c.split(v, ":", o)}
	}
}

func (c *Closure) preload() {
	add := func(names []string, from string) {
		for _, name := range names {
			n := c.find(name, c.Program)
			n.By, n.Preload = nil, from
			c.Needs = append(c.Needs, n)
			if n.Object == nil {
				c.Notes = append(c.Notes, fmt.Sprintf("%s asks for %s, which cannot be preloaded: the linker says so and goes on", from, name))
			}
		}
	}
	cut := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ':' || r == '\t' || r == '\n' })
	}
	if v := c.env("LD_PRELOAD"); v != "" {
		names := cut(v)
		if c.Secure {
			// Only names without a slash, of set-user-ID files in system directories: ld.so(8).
			names = slices.DeleteFunc(names, func(s string) bool { return strings.Contains(s, "/") })
		}
		add(names, "LD_PRELOAD")
	}
	if c.Linker.Libc != "glibc" {
		return
	}
	if b, err := os.ReadFile("/etc/ld.so.preload"); err == nil && len(b) < 1<<20 {
		var names []string
		for line := range strings.Lines(string(b)) {
			line, _, _ = strings.Cut(line, "#")
			names = append(names, cut(line)...)
		}
		add(names, "/etc/ld.so.preload")
	}
}

// find looks for one library.
func (c *Closure) find(name string, by *Object) *Need {
	n := &Need{Name: name, By: by}
	if c.Linker.Libc == "musl" {
		c.findMusl(n)
		return n
	}
	if c.loaded(n) {
		return n
	}
	if strings.Contains(name, "/") {
		c.try(n, Try{Path: c.expand(name, by), Rule: RulePath})
		return n
	}
	// RPATH of the one who needs it, of its loaders, and of the program, unless the first has a RUNPATH.
	if by.runpath == nil {
		sawMain := false
		for l := by; l != nil; l = l.Loader {
			sawMain = sawMain || l == c.Program
			if l.rpath != nil && c.search(n, l.rpath) {
				return n
			}
		}
		if !sawMain && c.Program.rpath != nil && c.search(n, c.Program.rpath) {
			return n
		}
	}
	if c.libPath != nil && c.search(n, c.libPath) {
		return n
	}
	if by.runpath != nil && c.search(n, by.runpath) {
		return n
	}
	if c.searchCache(n, by) {
		return n
	}
	if !by.noDefault {
		c.search(n, c.system)
	}
	return n
}

// loaded reports whether a library of that name is in memory, by the names it was asked for and by its own.
func (c *Closure) loaded(n *Need) bool {
	for _, o := range c.Objects {
		if slices.Contains(o.names, n.Name) || o.Path == n.Name || o.Soname == n.Name && n.Name != "" {
			n.Object, n.Loaded = o, true
			return true
		}
	}
	// The linker itself is there from the start, and gets its place in the order where it is needed first.
	if n.Name == c.Linker.Path || n.Name == c.Linker.Soname {
		c.linkerIn(n)
		return true
	}
	return false
}

func (c *Closure) linkerIn(n *Need) {
	n.Object, n.Loaded = c.linker, true
	if !slices.Contains(c.Objects, c.linker) {
		c.linker.Loader = n.By
		c.Objects = append(c.Objects, c.linker)
	}
}

// search tries the directories of a path; true when the search is over.
func (c *Closure) search(n *Need, list *dirList) bool {
	subdirs := c.Linker.Subdirs
	for _, dir := range list.dirs {
		for i := 0; i <= len(subdirs); i++ {
			d := dir
			if i < len(subdirs) {
				d = join(dir, subdirs[i])
			}
			// Subdirectories with one name twice are tried twice: what is known of a place is kept by its position.
			key := fmt.Sprint(i, d)
			if c.missing[key] {
				if i == len(subdirs) {
					n.Tries = append(n.Tries, Try{Path: join(d, n.Name), Rule: list.rule, From: list.from, Skipped: true, Reason: "no such directory"})
				}
				continue
			}
			if c.try(n, Try{Path: join(d, n.Name), Rule: list.rule, From: list.from}) {
				return true
			}
			if d != "" {
				if st, err := os.Stat(d); err != nil || !st.IsDir() {
					n.Tries[len(n.Tries)-1].Reason = "no such directory"
					// What is below the working directory is not remembered; musl remembers nothing.
					c.missing[key] = c.Linker.Libc == "glibc" && d[0] == '/'
				}
			}
		}
	}
	return false
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return strings.TrimRight(dir, "/") + "/" + name
}

func (c *Closure) searchCache(n *Need, by *Object) bool {
	if !c.read {
		c.read = true
		var err error
		if c.cache, err = ldcache.Read(cachePath); err != nil && !errors.Is(err, os.ErrNotExist) {
			c.Notes = append(c.Notes, fmt.Sprintf("the cache of libraries is not used: %v", err))
		}
	}
	const extension = 1 << 62 // dl-cache.h, DL_CACHE_HWCAP_EXTENSION: for some processors only
	for i := range c.cache {
		e := &c.cache[i]
		if e.Name != n.Name || e.HWCap&extension != 0 || !nativeEntry(e, c.Program.File.ELF) {
			continue
		}
		if by.noDefault && slices.ContainsFunc(c.Linker.SystemDirs, func(d string) bool { return filepath.Dir(e.Path) == d }) {
			continue
		}
		return c.try(n, Try{Path: e.Path, Rule: RuleCache})
	}
	n.Tries = append(n.Tries, Try{Path: cachePath, Rule: RuleCache, Reason: "has no entry for it"})
	return false
}

// nativeEntry compares a cache entry with the program: sysdeps/*/dl-cache.h.
func nativeEntry(e *ldcache.Entry, f *elf.File) bool {
	switch f.Machine {
	case elf.EM_X86_64:
		if f.Class == elf.ELFCLASS32 {
			return e.Flags&ldcache.FlagsABI == ldcache.FlagX8664X32
		}
		return e.Flags&ldcache.FlagsABI == ldcache.FlagX8664
	case elf.EM_AARCH64:
		return e.Flags&ldcache.FlagsABI == ldcache.FlagAArch64
	case elf.EM_386:
		return e.Flags&ldcache.FlagsABI == 0
	case elf.EM_ARM:
		return e.Flags&ldcache.FlagsABI == ldcache.FlagARMHF
	}
	return false
}

// try opens one path; true when the search ends: it was taken, or is damaged in a way that ends the program.
func (c *Closure) try(n *Need, t Try) bool {
	obj, reason, fatal := c.open(t.Path)
	t.Found, t.Reason = obj != nil, reason
	n.Tries = append(n.Tries, t)
	if fatal {
		n.Fatal = t.Path + ": " + reason
		return true
	}
	if obj == nil {
		return false
	}
	n.Object = obj
	obj.names = append(obj.names, n.Name)
	if !slices.Contains(c.Objects, obj) {
		obj.Loader = n.By
		c.setup(obj)
		c.Objects = append(c.Objects, obj)
	} else {
		n.Loaded = true
	}
	return true
}

func (c *Closure) open(path string) (o *Object, reason string, fatal bool) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, "no such file", false
	case errors.Is(err, os.ErrPermission):
		return nil, "no permission to reach it", false
	case err != nil:
		return nil, errors.Unwrap(err).Error(), false
	case st.IsDir():
		return nil, "it is a directory", true
	}
	if unix.Access(path, unix.R_OK) != nil {
		return nil, "no permission to read it", false
	}
	f, err := objfile.Open(path)
	if errors.Is(err, objfile.ErrNotELF) {
		if st.Size() < 64 {
			return nil, "file too short", true
		}
		if b, err := readHead(path); err == nil && strings.HasPrefix(string(b), "/* GNU ld script") {
			return nil, "it is a script of the link editor, not a library: a development package's file in place of the library", true
		}
		return nil, "invalid ELF header", true
	} else if err != nil {
		return nil, "damaged: " + err.Error(), true
	}
	for _, o := range append(c.Objects[:len(c.Objects):len(c.Objects)], c.linker) {
		if o.id == f.ID {
			f.Close()
			return o, "", false
		}
	}
	main := c.Program.File.ELF
	switch {
	case f.ELF.Class != main.Class:
		reason = "wrong ELF class: " + classBits(f.ELF.Class)
	case f.ELF.Machine != main.Machine || f.ELF.Data != main.Data:
		reason = "for another architecture: " + MachineName(f.ELF.FileHeader)
	case f.ELF.Type != elf.ET_DYN:
		reason, fatal = "only shared objects can be loaded", true
	}
	if reason != "" {
		f.Close()
		return nil, reason, fatal
	}
	o = &Object{Path: path, File: f, id: f.ID}
	if o.dyn, err = readDynamic(f); err != nil {
		f.Close()
		return nil, err.Error(), true
	}
	return o, "", false
}

func readHead(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, 64)
	n, err := f.Read(b)
	return b[:n], err
}

func classBits(c elf.Class) string {
	if c == elf.ELFCLASS32 {
		return "32-bit"
	}
	return "64-bit"
}

// MachineName is how people call the architecture of a file.
func MachineName(h elf.FileHeader) string {
	big := h.Data == elf.ELFDATA2MSB
	switch h.Machine {
	case elf.EM_X86_64:
		if h.Class == elf.ELFCLASS32 {
			return "x32"
		}
		return "amd64 (x86-64)"
	case elf.EM_386:
		return "i386"
	case elf.EM_AARCH64:
		return "arm64 (AArch64)"
	case elf.EM_ARM:
		return "arm"
	case elf.EM_RISCV:
		return "riscv, " + classBits(h.Class)
	case elf.EM_PPC64:
		if big {
			return "ppc64"
		}
		return "ppc64le"
	case elf.EM_S390:
		return "s390x"
	case elf.EM_MIPS:
		return "mips, " + classBits(h.Class)
	case elf.EM_LOONGARCH:
		return "loongarch64"
	}
	return strings.TrimPrefix(h.Machine.String(), "EM_")
}

// split cuts a search path and expands what it names. A directory is kept once.
func (c *Closure) split(v, sep string, o *Object) (dirs []string) {
	cut := strings.FieldsFunc
	list := cut(v, func(r rune) bool { return strings.ContainsRune(sep, r) })
	if c.Linker.Libc == "glibc" {
		list = splitAny(v, sep) // an empty element is the working directory
	}
	for _, d := range list {
		had := strings.Contains(d, "$")
		d = c.expand(d, o)
		if d != "/" {
			d = strings.TrimRight(d, "/")
		}
		if had && d == "" || c.Secure && had && !slices.Contains(c.Linker.SystemDirs, d) {
			continue
		}
		if !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

func splitAny(s, sep string) (list []string) {
	for {
		i := strings.IndexAny(s, sep)
		if i < 0 {
			return append(list, s)
		}
		list, s = append(list, s[:i]), s[i+1:]
	}
}

// expand replaces $ORIGIN, $LIB and $PLATFORM: ld.so(8), "Dynamic string tokens".
func (c *Closure) expand(s string, o *Object) string {
	if !strings.Contains(s, "$") {
		return s
	}
	origin := filepath.Dir(o.Path)
	if abs, err := filepath.Abs(o.Path); err == nil {
		origin = filepath.Dir(abs)
	}
	if o == c.Program || c.Linker.Libc == "musl" {
		if real, err := filepath.EvalSymlinks(o.Path); err == nil { // the kernel says by what path it is mapped: /proc/self/exe
			if abs, err := filepath.Abs(real); err == nil && o == c.Program {
				origin = filepath.Dir(abs)
			}
		}
	}
	pairs := []string{"${ORIGIN}", origin, "$ORIGIN", origin}
	if c.Linker.Libc == "glibc" {
		pairs = append(pairs, "${LIB}", c.Linker.Lib, "$LIB", c.Linker.Lib, "${PLATFORM}", c.Linker.Platform, "$PLATFORM", c.Linker.Platform)
	}
	return strings.NewReplacer(pairs...).Replace(s)
}

// findMusl: names of its own parts, then LD_LIBRARY_PATH, RPATH of everybody in the chain, and the system's directories.
func (c *Closure) findMusl(n *Need) {
	if rest, ok := strings.CutPrefix(n.Name, "lib"); ok {
		for _, own := range []string{"c.", "pthread.", "rt.", "m.", "dl.", "util.", "xnet."} {
			if strings.HasPrefix(rest, own) {
				c.linkerIn(n)
				return
			}
		}
	}
	if n.Name == c.Linker.Soname || n.Name == c.Linker.Path {
		c.linkerIn(n)
		return
	}
	if strings.Contains(n.Name, "/") {
		c.try(n, Try{Path: n.Name, Rule: RulePath})
		return
	}
	for _, o := range c.Objects {
		if slices.Contains(o.names, n.Name) {
			n.Object, n.Loaded = o, true
			return
		}
	}
	if c.libPath != nil && c.search(n, c.libPath) {
		return
	}
	for l := n.By; l != nil; l = l.Loader {
		for _, list := range []*dirList{l.runpath, l.rpath} {
			if list != nil && c.search(n, list) {
				return
			}
		}
	}
	c.search(n, c.system)
}

// secure reports whether the kernel would tell the linker not to trust the environment (AT_SECURE).
func secure(path string) bool {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return false
	}
	if st.Mode&unix.S_ISUID != 0 && int(st.Uid) != os.Getuid() || st.Mode&unix.S_ISGID != 0 && int(st.Gid) != os.Getgid() {
		return true
	}
	var b [64]byte
	n, err := unix.Getxattr(path, "security.capability", b[:])
	return err == nil && n > 0 && os.Getuid() != 0
}

// RunPath are the directories of an object's RUNPATH, expanded; RPATH does not count.
func (o *Object) RunPath() []string {
	if o.runpath == nil {
		return nil
	}
	return o.runpath.dirs
}
