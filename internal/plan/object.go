package plan

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sonde-trace/sonde/internal/ldcache"
	"github.com/sonde-trace/sonde/internal/near"
	"github.com/sonde-trace/sonde/internal/objfile"
	"github.com/sonde-trace/sonde/internal/symbol"
)

// object is a file with code, as a user's name for it was understood.
type object struct {
	path string // as this process opens it
	name string // as events call it
	file *objfile.File

	debug    *symbol.Units
	debugErr error
}

// units is the debug data of the file, opened once.
func (o *object) units() (*symbol.Units, error) {
	if o.debug == nil && o.debugErr == nil {
		o.debug, o.debugErr = symbol.OpenUnits(o.file)
	}
	return o.debug, o.debugErr
}

// findObject finds the file that a user calls name: a path, or the name of a library with or without lib, .so and version. Bare
// names are looked up where the target would find them: among what running targets have mapped, then among the libraries the
// command asks for, then in the linker's cache. A command without libraries is its own libc.
func findObject(name string, env *Env) (*object, error) {
	var names []string
	for _, pid := range env.Pids {
		maps, err := symbol.ReadMaps(int(pid))
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", pid, err)
		}
		// The file the target has, also in another root, and when its name is gone or that of another file now.
		abs := name
		if strings.Contains(name, "/") {
			if abs, err = filepath.Abs(name); err != nil {
				return nil, err
			}
			if real, err := filepath.EvalSymlinks(abs); err == nil {
				abs = real
			}
		}
		for i := range maps {
			m := &maps[i]
			if !m.Exec || !strings.HasPrefix(m.Path, "/") {
				continue
			}
			base := filepath.Base(m.Path)
			if m.Path == name || m.Path == abs || named(base, name) {
				return openMapped(pid, m, env)
			}
			names = append(names, base)
		}
	}
	if strings.Contains(name, "/") {
		return openObject(name, filepath.Base(name), env)
	}
	cache, _ := ldcache.Read("/etc/ld.so.cache") // a system without one has libraries in fixed places
	if env.Command != "" {
		f, err := objfile.Open(env.Command)
		if err == nil {
			defer f.Close()
			if named(filepath.Base(env.Command), name) {
				return openObject(env.Command, filepath.Base(env.Command), env)
			}
			needed := closure(f, env.Arch, cache)
			for _, p := range needed {
				if named(filepath.Base(p), name) {
					return openObject(p, filepath.Base(p), env)
				}
				names = append(names, filepath.Base(p))
			}
			if len(needed) == 0 && named("libc.so.6", name) {
				return openObject(env.Command, filepath.Base(env.Command), env)
			}
		}
	}
	for i := range cache {
		e := &cache[i]
		if e.Native(env.Arch) && named(e.Name, name) {
			return openObject(e.Path, e.Name, env)
		}
	}
	for i := range cache {
		names = append(names, cache[i].Name)
	}
	return nil, &Error{Expr: name, Msg: "no such library: the target has none of that name, and neither does the linker's cache; a path with a / names a file", Near: near.Names(name, slices.Values(names))}
}

// OpenFile opens the file that a user calls name in a probe, as findObject finds it.
func OpenFile(name string, env *Env) (*objfile.File, error) {
	o, err := findObject(name, env)
	if err != nil {
		return nil, err
	}
	return o.file, nil
}

func openMapped(pid uint32, m *symbol.Mapping, env *Env) (*object, error) {
	root := fmt.Sprintf("/proc/%d/root", pid)
	path := symbol.MappedPath(pid, m)
	f, err := objfile.OpenWithOptions(path, objfile.Options{DebugDirs: env.DebugDirs, Fetch: env.FetchDebug, Root: root, RealPath: root + m.Path})
	if err != nil {
		return nil, fmt.Errorf("%s of process %d: %w", m.Path, pid, err)
	}
	f.Path = m.Path // what errors call it
	return &object{path: path, name: filepath.Base(m.Path), file: f}, nil
}

func openObject(path, name string, env *Env) (*object, error) {
	f, err := objfile.OpenWithOptions(path, objfile.Options{DebugDirs: env.DebugDirs, Fetch: env.FetchDebug})
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			return nil, fmt.Errorf("%s: %w", path, pe.Err)
		}
		return nil, err
	}
	return &object{path: path, name: name, file: f}, nil
}

// named reports whether a user may call the file of that base name so: libssl.so.3 is libssl.so.3, libssl.so, libssl and ssl.
func named(base, user string) bool {
	if base == user {
		return true
	}
	for _, stem := range []string{user, "lib" + user} {
		rest, ok := strings.CutPrefix(base, stem)
		if ok && (rest == "" || strings.HasPrefix(rest, ".so") || strings.HasPrefix(rest, "-") && strings.Contains(rest, ".so") || strings.HasSuffix(stem, ".so") && strings.HasPrefix(rest, ".")) {
			return true
		}
	}
	return false
}

// closure lists the libraries that a program asks for, directly and through others, breadth first as the linker loads them.
// Those that the cache does not know are looked for beside the rules of RPATH and RUNPATH and in the default directories.
func closure(f *objfile.File, arch string, cache []ldcache.Entry) []string {
	const most = 4096
	var list []string
	seen := make(map[string]bool)
	type user struct {
		file *objfile.File
		dirs []string
	}
	queue := []user{{f, runPaths(f)}}
	for len(queue) > 0 && len(list) < most {
		u := queue[0]
		queue = queue[1:]
		needed, err := u.file.ELF.ImportedLibraries()
		if err != nil {
			continue
		}
		for _, n := range needed {
			if seen[n] {
				continue
			}
			seen[n] = true
			path := locate(n, u.dirs, arch, cache)
			if path == "" {
				continue
			}
			list = append(list, path)
			if lib, err := objfile.Open(path); err == nil {
				queue = append(queue, user{lib, append(runPaths(lib), u.dirs...)})
			}
		}
	}
	return list
}

// Libraries lists the files that a command will have mapped when it starts, as far as they can be told from outside: the program (for
// a script its interpreter), its dynamic linker, and the libraries it asks for.
func Libraries(command, arch string) []string {
	path := command
	for range 5 { // BINPRM_BUF_SIZE and the limit of nested scripts: fs/exec.c
		line := make([]byte, 256)
		f, err := os.Open(path)
		if err != nil {
			return nil
		}
		n, _ := f.Read(line)
		f.Close()
		text, ok := strings.CutPrefix(string(line[:n]), "#!")
		if !ok {
			break
		}
		text, _, _ = strings.Cut(text, "\n")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			return nil
		}
		path = fields[0]
	}
	f, err := objfile.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	list := []string{path}
	for _, p := range f.ELF.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz > 1 && p.Filesz < 4096 {
			b := make([]byte, p.Filesz)
			if _, err := p.ReadAt(b, 0); err == nil {
				list = append(list, strings.TrimRight(string(b), "\x00"))
			}
		}
	}
	cache, _ := ldcache.Read("/etc/ld.so.cache") // without one the fixed places remain
	return append(list, closure(f, arch, cache)...)
}

// runPaths are the directories a file asks the linker to look in, with $ORIGIN resolved.
func runPaths(f *objfile.File) (dirs []string) {
	origin := filepath.Dir(f.Path)
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		values, err := f.ELF.DynString(tag)
		if err != nil {
			continue
		}
		for _, v := range values {
			for _, d := range strings.Split(v, ":") {
				if d != "" {
					dirs = append(dirs, strings.NewReplacer("$ORIGIN", origin, "${ORIGIN}", origin).Replace(d))
				}
			}
		}
	}
	return dirs
}

func locate(name string, dirs []string, arch string, cache []ldcache.Entry) string {
	if strings.Contains(name, "/") {
		return name
	}
	for _, d := range dirs {
		p := filepath.Join(d, name)
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	for _, d := range filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")) {
		p := filepath.Join(d, name)
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	for i := range cache {
		if cache[i].Name == name && cache[i].Native(arch) {
			return cache[i].Path
		}
	}
	for _, d := range []string{"/lib", "/usr/lib", "/lib64", "/usr/lib64"} {
		p := filepath.Join(d, name)
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return ""
}
