package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/objfile"
)

// Options of a [Resolver]. The zero value gives names without lines.
type Options struct {
	// DebugDirs are searched for debug files before the places of the distribution, as objfile.Options says.
	DebugDirs []string
	// Fetch gives debug files that are nowhere here, as objfile.Options says; nil: nobody is asked.
	Fetch func(buildID string) (path string, err error)
	// Lines asks for inlined functions, source files and lines too.
	Lines bool
	// MaxBytes bounds the memory of names and tables that are kept for later; 0 is 64 MiB. What is needed for an answer comes
	// on top, and so do pages of mapped files.
	MaxBytes int
}

const (
	defaultMaxBytes = 64 << 20
	maxModules      = 2048 // files that are kept open; at most a quarter of those we may have, as debug files come on top
)

// Resolver names code. It keeps modules by the identity of their file and the names that it found, within bounds. It is
// safe for concurrent use.
type Resolver struct {
	opt Options

	mu         sync.Mutex
	modules    map[moduleKey]*Module
	most       int // of modules
	tick       uint64
	moduleSize int
	young, old map[place][]event.Frame // two generations of names: when the young one is full it becomes the old one
	youngSize  int
	mapped     map[mappingKey]mappedModule
	jits       map[jitKey]*jit
	vdso       *Module
	vdsoErr    error
	refused    []error
}

// moduleKey tells the files within one archive apart.
type moduleKey struct {
	id   objfile.ID
	base uint64
}

// place holds no module: a name that is kept keeps no file open.
type place struct {
	id   uint64 // of the module
	pc   uint64
	call bool
}

// New makes a Resolver.
func New(o Options) *Resolver {
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMaxBytes
	}
	most := maxModules
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		most = int(min(maxModules, max(16, limit.Cur/4)))
	}
	return &Resolver{opt: o, most: most, modules: map[moduleKey]*Module{}, young: map[place][]event.Frame{},
		mapped: map[mappingKey]mappedModule{}, jits: map[jitKey]*jit{}}
}

// Module is a file that holds code.
type Module struct {
	Name string        // how frames call it: the path in the view of its process, "[vdso]"
	File *objfile.File // nil for none
	Base uint64        // where the ELF file begins in the file that is mapped: not 0 within an archive

	id   uint64 // one for each module of a Resolver
	used uint64
	size int

	once  sync.Once
	table *GoTable
	dwarf *debugInfo
	why   error // there are no lines
}

// BuildID is the build-id in hexadecimal, empty when the file has none.
func (m *Module) BuildID() string { return hex.EncodeToString(m.File.BuildID()) }

// Why says why there are no lines for the module, or no names of a stripped one; nil when there are, or when nobody asked yet. A debug
// file of another build is a *objfile.MismatchError.
func (m *Module) Why() error { return m.why }

// Refused says which debug files were not used because they are of another build, each a *objfile.MismatchError; names are missing for
// that reason.
func (r *Resolver) Refused() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.refused)
}

// Open gives the module of a file. The file at path is opened; name is how frames call it, root the root directory of the
// process that has it mapped, empty for ours.
func (r *Resolver) Open(path, name, root string) (*Module, error) {
	f, err := objfile.OpenWithOptions(path, objfile.Options{DebugDirs: r.opt.DebugDirs, Fetch: r.opt.Fetch, Root: root, RealPath: realPath(path, name, root)})
	if err != nil {
		return nil, err
	}
	return r.keep(f, name, 0), nil
}

// realPath is where a file is that was opened by another way, such as /proc/PID/map_files: debug files are searched from there.
func realPath(path, name, root string) string {
	if strings.HasPrefix(path, "/proc/") && strings.HasPrefix(name, "/") {
		return root + name
	}
	return path
}

// keep finds the module of the same file, or adds it.
func (r *Resolver) keep(f *objfile.File, name string, base uint64) *Module {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tick++
	key := moduleKey{f.ID, base}
	if m := r.modules[key]; m != nil {
		m.used = r.tick
		f.Close()
		return m
	}
	f.Path = name // what errors call it
	m := &Module{Name: name, File: f, Base: base, used: r.tick}
	if f.ID != (objfile.ID{}) {
		for len(r.modules) >= r.most || r.moduleSize > r.opt.MaxBytes/2 && len(r.modules) > 0 {
			r.drop()
		}
		r.modules[key] = m
	}
	return m
}

// drop forgets the module that was not used for the longest time. Its file is closed when nobody holds it.
func (r *Resolver) drop() {
	var oldest moduleKey
	var m *Module
	for k, x := range r.modules {
		if m == nil || x.used < m.used {
			oldest, m = k, x
		}
	}
	r.moduleSize -= m.size
	delete(r.modules, oldest)
	maps.DeleteFunc(r.mapped, func(_ mappingKey, x mappedModule) bool { return x.m == m })
}

// VDSO is the module of the vdso, which is the same for every process of our architecture.
func (r *Resolver) VDSO() (*Module, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.vdso == nil && r.vdsoErr == nil {
		r.vdso, r.vdsoErr = openVDSO()
	}
	return r.vdso, r.vdsoErr
}

func openVDSO() (*Module, error) {
	maps, err := ReadMaps(os.Getpid())
	if err != nil {
		return nil, err
	}
	for _, m := range maps {
		if m.Path != "[vdso]" || m.End-m.Start > 1<<20 {
			continue
		}
		mem, err := os.Open("/proc/self/mem")
		if err != nil {
			return nil, err
		}
		defer mem.Close()
		b := make([]byte, m.End-m.Start)
		if _, err := mem.ReadAt(b, int64(m.Start)); err != nil {
			return nil, fmt.Errorf("reading the vdso: %w", err)
		}
		f, err := objfile.New(bytes.NewReader(b), int64(len(b)), "[vdso]")
		if err != nil {
			return nil, err
		}
		return &Module{Name: "[vdso]", File: f}, nil
	}
	return nil, errors.New("this kernel gives no vdso")
}

// Frames appends the frames of one address in m to dst: inlined functions first, then the one that holds them. f has Addr and
// Offset, the offset in the mapped file; its other members are kept where nothing better is known, so that an address without a
// name is still one frame. call says that f is a return address, which stands behind the call that is to be named.
func (r *Resolver) Frames(dst []event.Frame, m *Module, f event.Frame, call bool) []event.Frame {
	f.Module = m.Name
	r.mu.Lock()
	r.tick++
	if m.id == 0 {
		m.id = r.tick
	}
	key := place{m.id, f.Offset, call}
	m.used = r.tick
	got, ok := r.young[key]
	if !ok {
		if got, ok = r.old[key]; ok {
			r.remember(key, got)
		}
	}
	r.mu.Unlock()
	if !ok {
		got = r.resolve(m, f.Offset, call)
		r.mu.Lock()
		r.remember(key, got)
		r.mu.Unlock()
	}
	if len(got) == 0 {
		return append(dst, f)
	}
	for _, g := range got {
		f.Func, f.FuncOff, f.File, f.Line, f.Inlined = g.Func, g.FuncOff, g.File, g.Line, g.Inlined
		dst = append(dst, f)
	}
	return dst
}

func (r *Resolver) remember(key place, frames []event.Frame) {
	size := 120
	for i := range frames {
		size += 120 + len(frames[i].Func) + len(frames[i].File)
	}
	if r.youngSize += size; r.youngSize > r.opt.MaxBytes/4 {
		r.old, r.young, r.youngSize = r.young, map[place][]event.Frame{}, size
	}
	r.young[key] = frames
}

// open reads what names the module's code, once.
func (m *Module) open(r *Resolver) {
	m.once.Do(func() {
		m.table = GoTableOf(m.File)
		if m.table == nil && r.opt.Lines {
			m.dwarf, m.why = openDebugInfo(m.File)
		}
		var wrong *objfile.MismatchError
		if _, err := m.File.Debug(); errors.As(err, &wrong) && m.File.ELF.SectionByType(elf.SHT_SYMTAB) == nil {
			m.why = err
			r.mu.Lock()
			r.refused = append(r.refused, err)
			r.mu.Unlock()
		}
		size := m.File.Funcs().Bytes() + m.dwarf.bytes()
		r.mu.Lock()
		m.size += size
		r.moduleSize += size
		r.mu.Unlock()
	})
}

// resolve names the offset in a module. The frames have Func, FuncOff, File, Line and Inlined.
func (r *Resolver) resolve(m *Module, off uint64, call bool) (out []event.Frame) {
	if m.File == nil || off < m.Base {
		return nil
	}
	back := uint64(0)
	if call {
		back = 1
	}
	pc, ok := m.File.Addr(off - m.Base - back)
	if !ok {
		return nil
	}
	m.open(r)
	addr := pc + back
	if m.table != nil {
		var frames []goFrame
		if objfile.Guard(func() error { frames = m.table.frames(pc, nil); return nil }) == nil && len(frames) > 0 {
			for _, g := range frames {
				f := event.Frame{Func: g.name, FuncOff: addr - g.entry, Inlined: g.inlined}
				if r.opt.Lines {
					f.File, f.Line = g.file, g.line
				} else if g.inlined {
					continue
				}
				out = append(out, f)
			}
			return out
		}
	}
	name, start := "", uint64(0)
	if s, ok := m.File.Funcs().Lookup(pc); ok {
		name, start = Demangle(s.Name), s.Addr
	} else if s, ok := stubAt(m.File, pc); ok {
		name, start = Demangle(s.Name)+"@plt", s.Addr
	}
	if m.dwarf != nil {
		frames, entry, err := m.dwarf.frames(pc)
		if err != nil {
			frames = nil
		}
		if n := len(frames); n > 0 {
			if name == "" {
				name, start = frames[n-1].Func, entry
			}
			frames[n-1].Func = name
			for i := range frames {
				frames[i].FuncOff = addr - start
			}
			if name != "" {
				return frames
			}
		}
	}
	if name == "" {
		return nil
	}
	return []event.Frame{{Func: name, FuncOff: addr - start}}
}

func stubAt(f *objfile.File, pc uint64) (objfile.Stub, bool) {
	stubs := f.Stubs()
	lo, hi := 0, len(stubs)
	for lo < hi {
		if mid := (lo + hi) / 2; stubs[mid].Addr <= pc {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo > 0 && pc-stubs[lo-1].Addr < stubs[lo-1].Size {
		return stubs[lo-1], true
	}
	return objfile.Stub{}, false
}
