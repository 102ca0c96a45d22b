package tracer

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/attach"
	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/plan"
	"github.com/sonde-trace/sonde/internal/symbol"
	"github.com/sonde-trace/sonde/internal/wire"
)

// DefaultStackDepth is how many frames a stack has at most, unless the user says otherwise.
const DefaultStackDepth = 127

// maxStacks bounds how many different stacks are kept.
const maxStacks = 1 << 17

// stacks knows the stacks of a session by id. The kernel sends each once; it is named when an event shows it first.
type stacks struct {
	names   *symbol.Resolver
	modules map[uint32]*module
	raw     map[uint64]rawStack
	shown   map[uint64]*event.Stack
	full    bool
	live    bool // the processes are those of the events
}

// rawStack is a stack that has no names yet.
type rawStack struct {
	pid  uint32 // of the process that was on it first
	time uint64
	body []byte // of the record
}

// module is a file with code.
type module struct {
	path string
	id   []byte
	mod  *symbol.Module // nil: no names
	why  string
}

func newStacks(o *Options) *stacks {
	return &stacks{names: symbol.New(symbol.Options{Lines: o.StackLines, DebugDirs: o.DebugDirs, Fetch: o.FetchDebug}), modules: make(map[uint32]*module), raw: make(map[uint64]rawStack),
		shown: make(map[uint64]*event.Stack)}
}

// record takes a Stack or Module record.
func (s *stacks) record(r wire.Record) {
	switch r.Kind() {
	case wire.Stack:
		id := binary.LittleEndian.Uint64(r[wire.OffStackID:])
		if len(s.raw) >= maxStacks {
			s.full = true
			return
		}
		s.raw[id] = rawStack{r.Tgid(), r.Time(), bytes.Clone(r[wire.HeaderSize:])}
		delete(s.shown, id)
	case wire.Module:
		number, id, path := moduleOf(r)
		if s.modules[number] != nil {
			return // the live session has opened it
		}
		m := &module{path: path, id: id}
		s.modules[number] = m
		// In a replay: the file of the recording, if it is here.
		mod, err := s.names.Open(path, path, "")
		if path == "[vdso]" {
			mod, err = s.names.VDSO()
		}
		switch {
		case err != nil:
			m.why = err.Error()
		case !bytes.Equal(mod.File.BuildID(), id):
			m.why = fmt.Sprintf("the build-id differs: %s was recorded", hex.EncodeToString(id))
		default:
			m.mod = mod
		}
	}
}

func moduleOf(r wire.Record) (number uint32, id []byte, path string) {
	number = binary.LittleEndian.Uint32(r[wire.HeaderSize:])
	n := binary.LittleEndian.Uint32(r[wire.HeaderSize+4:])
	body := r[wire.HeaderSize+8:]
	path = string(bytes.TrimRight(body[n:], "\x00"))
	return number, bytes.Clone(body[:n]), path
}

// RefusedNames says for which files names are missing in stacks because their debug files are of another build. It is complete after
// Run.
func (s *Session) RefusedNames() (list []string) {
	if s.asm.stacks == nil {
		return nil
	}
	for _, err := range s.asm.stacks.names.Refused() {
		list = append(list, "names are missing in stacks: "+err.Error())
	}
	return list
}

// moduleRecord makes the record of a module, for recordings.
func moduleRecord(m attach.Module) wire.Record {
	body := slices.Concat(m.BuildID, []byte(m.Path), []byte{0})
	r := make(wire.Record, (wire.HeaderSize+8+len(body)+7)&^7)
	binary.LittleEndian.PutUint32(r[wire.OffSize:], uint32(len(r)))
	r[wire.OffKind] = byte(wire.Module)
	binary.LittleEndian.PutUint32(r[wire.HeaderSize:], m.Number)
	binary.LittleEndian.PutUint32(r[wire.HeaderSize+4:], uint32(len(m.BuildID)))
	copy(r[wire.HeaderSize+8:], body)
	return r
}

// of returns the stack with an id.
func (s *stacks) of(id uint64) *event.Stack {
	if st := s.shown[id]; st != nil {
		return st
	}
	raw, ok := s.raw[id]
	if !ok {
		why := "the stack's record was lost"
		if s.full {
			why = fmt.Sprintf("more than %d different stacks", maxStacks)
		}
		return &event.Stack{ID: id, End: why}
	}
	st := s.name(id, raw)
	s.shown[id] = st
	return st
}

func (s *stacks) generated(from rawStack, pc uint64, call bool) (event.Frame, bool) {
	if !s.live {
		return event.Frame{}, false
	}
	return s.names.Generated(from.pid, from.time, pc, call)
}

// name turns the body of a record into frames.
func (s *stacks) name(id uint64, from rawStack) *event.Stack {
	raw := from.body
	st := &event.Stack{ID: id}
	at := func(off int) uint64 { return binary.LittleEndian.Uint64(raw[off:]) }
	const body = wire.StackFrames - wire.HeaderSize
	n := (len(raw) - body) / wire.FrameSize
	last := ""
	for i := range n {
		pc, w := at(body+i*wire.FrameSize), at(body+i*wire.FrameSize+8)
		exact := w>>wire.FrameExactShift != 0
		number := uint32(w >> wire.FrameModuleShift & (1<<wire.FrameModuleBits - 1))
		f := event.Frame{Addr: pc}
		m := s.modules[number]
		if number == 0 || m == nil {
			// Code that the process made at run time; its names are in a file of the process, while that lives.
			if jit, ok := s.generated(from, pc, !exact); ok {
				f = jit
			}
			st.Frames = append(st.Frames, f)
			last = fmt.Sprintf("%#x", pc)
			continue
		}
		f.Module, f.Offset = m.path, w&(1<<wire.FrameOffsetBits-1)
		last = fmt.Sprintf("%s+%#x", filepath.Base(m.path), f.Offset)
		if m.mod == nil {
			st.Frames = append(st.Frames, f)
			continue
		}
		first := len(st.Frames)
		st.Frames = s.names.Frames(st.Frames, m.mod, f, !exact)
		for k := first; k < len(st.Frames); k++ {
			st.Frames[k].Module = m.path
		}
	}
	guessed := binary.LittleEndian.Uint32(raw[wire.OffStackGuessed-wire.HeaderSize:])
	switch why := binary.LittleEndian.Uint32(raw[wire.OffStackWhy-wire.HeaderSize:]); why {
	case bpfgen.WalkEnd:
		if guessed > 0 {
			st.End = fmt.Sprintf("%d of these frames were found by the frame pointer alone, and others may be missing", guessed)
		}
	case bpfgen.WalkDeep, bpfgen.WalkRunning:
		st.End = fmt.Sprintf("cut at %d frames, the limit; --stack-depth raises it", n)
	case bpfgen.WalkUnmapped:
		st.End = "nothing is mapped at " + last
	case bpfgen.WalkNoRow:
		st.End = "no unwind row at " + last
	case bpfgen.WalkUnsupported:
		st.End = "an unwind row of a form that is not walked in the kernel, at " + last
	case bpfgen.WalkUnreadable:
		st.End = "a page of the stack cannot be read above " + last
	case bpfgen.WalkBad:
		st.End = "the caller's frame would lie below that of " + last
	case bpfgen.WalkNoTable:
		st.End = "the unwind table of " + last + " was not loaded yet"
	case bpfgen.WalkBusy:
		st.End = "the mappings were being changed"
	default:
		st.End = fmt.Sprintf("for reason %d", why)
	}
	return st
}

// prefetch loads the tables of what the targets have mapped, or will have when the command starts.
func (s *Session) prefetch() error {
	k := s.sys.Stacks
	if mod, err := s.asm.stacks.names.VDSO(); err == nil {
		if m, ok, err := k.AddVDSO(mod.File); err == nil && ok {
			s.learnModule(m, mod)
		}
	}
	add := func(path, name string) {
		if m, ok, err := k.Add(path, name); err == nil && ok { // what cannot be loaded shows in the stacks
			s.openModule(m, path, name, "")
		}
	}
	if s.opt.Command != nil {
		for _, path := range plan.Libraries(s.opt.Command.Path, s.facts.Arch) {
			real, err := filepath.EvalSymlinks(path)
			if err != nil {
				real = path
			}
			add(path, real)
		}
	}
	for _, pid := range s.pids {
		maps, err := symbol.ReadMaps(int(pid))
		if err != nil {
			continue
		}
		for _, m := range maps {
			if m.Exec && m.Ino != 0 {
				s.loadMapped(pid, &m)
			}
		}
	}
	return nil
}

// loadMapped loads the table of a mapping of a process.
func (s *Session) loadMapped(pid uint32, m *symbol.Mapping) {
	path := fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, m.Start, m.End)
	dev := uint32(m.Dev>>8&0xfff)<<20 | uint32(m.Dev&0xff) | uint32(m.Dev>>12&0xfff00) // makedev(3) to the kernel's encoding
	if mod, ok, err := s.sys.Stacks.AddAs(dev, m.Ino, path, m.Path); err == nil && ok {
		s.openModule(mod, path, m.Path, fmt.Sprintf("/proc/%d/root", pid))
	}
}

func (s *Session) openModule(m attach.Module, path, name, root string) {
	mod, err := s.asm.stacks.names.Open(path, name, root)
	if err != nil {
		mod = nil
	}
	s.learnModule(m, mod)
}

// learnModule makes a module known to what names stacks, and to the recording.
func (s *Session) learnModule(m attach.Module, mod *symbol.Module) {
	s.asm.stacks.modules[m.Number] = &module{path: m.Path, id: m.BuildID, mod: mod}
	s.learned = append(s.learned, moduleRecord(m)...)
}

// missing loads the table that the walk of a stack did not find, for those that come.
func (s *Session) missing(r wire.Record) {
	if binary.LittleEndian.Uint32(r[wire.OffStackWhy:]) != bpfgen.WalkNoTable {
		return
	}
	dev, ino := binary.LittleEndian.Uint32(r[wire.OffStackDev:]), binary.LittleEndian.Uint64(r[wire.OffStackIno:])
	maps, err := symbol.ReadMaps(int(r.Tgid()))
	if err != nil {
		return
	}
	for i := range maps {
		m := &maps[i]
		if m.Ino == ino && uint32(m.Dev>>8&0xfff)<<20|uint32(m.Dev&0xff)|uint32(m.Dev>>12&0xfff00) == dev {
			s.loadMapped(r.Tgid(), m)
			return
		}
	}
}
