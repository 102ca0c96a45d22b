package symbol

import (
	"archive/zip"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/objfile"
)

// Spaces are the spaces of all processes that were seen, by pid and time: a pid that is used again is another process. It is safe
// for concurrent use.
type Spaces struct {
	mu   sync.Mutex
	pids map[uint32][]life // by time
}

// life is one process of a pid, from its birth to that of the next.
type life struct {
	space *Space
	from  uint64
	ended uint64 // ^0: it lives
}

// NewSpaces makes an empty set.
func NewSpaces() *Spaces { return &Spaces{pids: map[uint32][]life{}} }

// of gives the process that had pid at t. With make one is made when none is known, or the last one has ended.
func (s *Spaces) of(t uint64, pid uint32, make bool) *Space {
	lives := s.pids[pid]
	from := uint64(0)
	for i := len(lives) - 1; i >= 0; i-- {
		l := lives[i]
		if l.from > t && i > 0 {
			continue
		}
		if make && l.ended <= t { // its birth was lost
			from = l.ended
			break
		}
		return l.space
	}
	if !make {
		return nil
	}
	sp := &Space{Pid: pid}
	s.pids[pid] = append(lives, life{sp, from, ^uint64(0)})
	return sp
}

// Snapshot reads what a process has mapped now, which is time t.
func (s *Spaces) Snapshot(t uint64, pid uint32) error {
	maps, err := ReadMaps(int(pid))
	if err != nil {
		return fmt.Errorf("mappings of process %d: %w", pid, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(t, pid, true).Snapshot(t, maps)
	return nil
}

// Map, Unmap, Exec, Fork and Exit are as the methods of [Space]; the process of pid at t is meant.
func (s *Spaces) Map(t uint64, pid uint32, m Mapping) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(t, pid, true).Map(t, m)
}

// Unmap is [Space.Unmap].
func (s *Spaces) Unmap(t uint64, pid uint32, start, end uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(t, pid, true).Unmap(t, start, end)
}

// Exec is [Space.Exec].
func (s *Spaces) Exec(t uint64, pid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(t, pid, true).Exec(t)
}

// Fork is [Space.Fork]; a new thread is no fork. A parent that is not known gives a child of which nothing is known.
func (s *Spaces) Fork(t uint64, parent, child uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Space{Pid: child}
	if p := s.of(t, parent, false); p != nil {
		c = p.Fork(t, child)
	}
	lives := s.pids[child]
	for i := range lives {
		lives[i].ended = min(lives[i].ended, t)
	}
	s.pids[child] = append(lives, life{c, t, ^uint64(0)})
}

// Exit is [Space.Exit].
func (s *Spaces) Exit(t uint64, pid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lives := s.pids[pid]
	for i := len(lives) - 1; i >= 0; i-- {
		if lives[i].from <= t {
			lives[i].space.Exit(t)
			lives[i].ended = t
			return
		}
	}
}

// At gives what was mapped at an address of a process at time t.
func (s *Spaces) At(t uint64, pid uint32, addr uint64) (Mapping, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sp := s.of(t, pid, false); sp != nil {
		return sp.At(t, addr)
	}
	return Mapping{}, false
}

// Forget drops what ended before t, processes too: no question about an earlier time will come.
func (s *Spaces) Forget(t uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid, lives := range s.pids {
		for len(lives) > 0 && lives[0].ended < t {
			lives = lives[1:]
		}
		if len(lives) == 0 {
			delete(s.pids, pid)
			continue
		}
		s.pids[pid] = lives
		for _, l := range lives {
			l.space.Forget(t)
		}
	}
}

// ErrNoFile says that a mapping is not of a file.
var ErrNoFile = errors.New("no file is mapped there")

// ReplacedError says that the file that was mapped cannot be read any more.
type ReplacedError struct{ Path string }

func (e *ReplacedError) Error() string {
	return fmt.Sprintf("%s: the file that was mapped is gone or another one has its name now", e.Path)
}

// mappingKey names a mapping for the time that a process has it.
type mappingKey struct {
	pid      uint32
	start    uint64
	dev, ino uint64
	off      uint64
	path     string
}

// maxMappings bounds how many mappings are remembered with their modules.
const maxMappings = 16 << 10

// Mapped gives the module of a mapping of a process: the file that is mapped, also when it was deleted or replaced, in the view
// of the process. The error is a *ReplacedError, ErrNoFile, or says why the file cannot be read.
func (r *Resolver) Mapped(pid uint32, m Mapping) (*Module, error) {
	if m.Path == "[vdso]" {
		return r.VDSO()
	}
	if !strings.HasPrefix(m.Path, "/") || m.Ino == 0 && (strings.HasPrefix(m.Path, "//anon") || strings.HasPrefix(m.Path, "/dev/zero")) {
		return nil, ErrNoFile
	}
	key := mappingKey{pid, m.Start, m.Dev, m.Ino, m.Off, m.Path}
	r.mu.Lock()
	got, ok := r.mapped[key]
	r.mu.Unlock()
	if ok {
		return got.m, got.err
	}
	got.m, got.err = r.openMapped(pid, m)
	r.mu.Lock()
	if len(r.mapped) >= maxMappings {
		clear(r.mapped)
	}
	r.mapped[key] = got
	r.mu.Unlock()
	return got.m, got.err
}

type mappedModule struct {
	m   *Module
	err error
}

func (r *Resolver) openMapped(pid uint32, m Mapping) (*Module, error) {
	root := fmt.Sprintf("/proc/%d/root", pid)
	name := m.Path
	if m.Deleted {
		name += " (deleted)"
	}
	var last error
	for _, path := range []string{fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, m.Start, m.End), root + m.Path, m.Path} {
		if !strings.HasPrefix(path, "/proc/") {
			root = ""
		}
		opt := objfile.Options{DebugDirs: r.opt.DebugDirs, Fetch: r.opt.Fetch, Root: root, RealPath: root + m.Path}
		byRange := strings.Contains(path, "/map_files/")
		if !byRange && !isFile(path, m) {
			if last == nil || errors.Is(last, os.ErrNotExist) || errors.Is(last, os.ErrPermission) {
				last = &ReplacedError{m.Path}
			}
			continue
		}
		f, base, member, err := openAt(path, m.Off, opt)
		if err == nil {
			return r.keep(f, name+member, base), nil
		}
		if !byRange || errors.Is(err, objfile.ErrNotELF) {
			return nil, err
		}
		last = err
	}
	return nil, last
}

// isFile reports whether the file at path is that of a mapping. File systems in layers give other device numbers to mappings than
// to stat(2), so the inode decides there.
func isFile(path string, m Mapping) bool {
	var st unix.Stat_t
	return unix.Stat(path, &st) == nil && (m.Ino == 0 || st.Ino == m.Ino)
}

// MappedPath is a path by which we can open the file of a mapping: its name in the root of the process while that is the file
// that is mapped, else the way through /proc/PID/map_files, which needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN.
func MappedPath(pid uint32, m *Mapping) string {
	path := fmt.Sprintf("/proc/%d/root%s", pid, m.Path)
	if !m.Deleted && isFile(path, *m) {
		return path
	}
	return fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, m.Start, m.End)
}

// openAt opens an ELF file, or the one that an archive holds around an offset, stored and not compressed, as Android maps
// libraries.
func openAt(path string, off uint64, opt objfile.Options) (f *objfile.File, base uint64, member string, err error) {
	f, err = objfile.OpenWithOptions(path, opt)
	if !errors.Is(err, objfile.ErrNotELF) {
		return f, 0, "", err
	}
	z, zerr := zip.OpenReader(path)
	if zerr != nil {
		return nil, 0, "", err
	}
	defer z.Close()
	for _, e := range z.File {
		at, derr := e.DataOffset()
		if derr != nil || e.Method != zip.Store || off < uint64(at) || off-uint64(at) >= e.UncompressedSize64 || e.UncompressedSize64 > 1<<40 {
			continue
		}
		f, err = objfile.OpenMember(path, at, int64(e.UncompressedSize64), opt)
		return f, uint64(at), "!/" + e.Name, err
	}
	return nil, 0, "", err
}

// Address appends the frames of an address of a process at time t to dst, as [Resolver.Frames] does for a module. Code that a
// compiler made at run time is named by the map or dump that it leaves. What nothing is known of is one frame with the address.
func (r *Resolver) Address(dst []event.Frame, s *Spaces, t uint64, pid uint32, addr uint64, call bool) []event.Frame {
	at := addr
	if call {
		at--
	}
	m, ok := s.At(t, pid, at)
	f := event.Frame{Addr: addr}
	if !ok {
		return append(dst, f)
	}
	f.Module, f.Offset = m.Path, addr-m.Start+m.Off
	mod, err := r.Mapped(pid, m)
	if err == nil {
		return r.Frames(dst, mod, f, call)
	}
	if errors.Is(err, ErrNoFile) {
		f.Offset = addr - m.Start
		if j, ok := r.Generated(pid, t, addr, call); ok {
			return append(dst, j)
		}
	}
	if m.Deleted {
		f.Module += " (deleted)"
	}
	return append(dst, f)
}
