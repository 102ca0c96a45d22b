package load

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/addrspace"
	"github.com/sonde-trace/sonde/internal/ldso"
	"github.com/sonde-trace/sonde/internal/objfile"
)

// build makes the analysis of the events.
func (a *Analysis) build(events []seen, marks []mark, c *ldso.Closure, program string) Stage {
	// The successful execve of the program: for a script or a wrapper the last one before the marks.
	first, pid := -1, uint32(0)
	for i := range events {
		e := &events[i]
		if e.typ == event.TypeSyscall && e.name == "execve" && e.errno == 0 && first < 0 {
			first, pid = i, e.pid
		}
	}
	if first < 0 {
		a.Notes = append(a.Notes, "its execve was not seen")
		return StageUnknown
	}
	start := events[first].time
	stage := StageLinker
	if c == nil {
		stage = StageUnknown
	}
	b := builder{a: a, start: start, c: c, bases: make(map[string]uint64), objects: make(map[string]*objfile.File)}
	defer b.close()
	a.Marks = append(a.Marks, Mark{"execve", 0})
	end := len(events)
	lastInit := -1
	for i := first; i < len(events); i++ {
		e := &events[i]
		if e.typ != event.TypeProbe || e.pid != pid || e.probe >= len(marks) {
			continue
		}
		m := &marks[e.probe]
		at := int64(e.time - start)
		if lastInit >= 0 && m.kind != 'l' {
			a.Inits[lastInit].Took = at - a.Inits[lastInit].Start
			lastInit = -1
		}
		if _, ok := b.bases[m.path]; !ok && e.ip != 0 {
			b.bases[m.path] = e.ip - m.addr
		}
		switch m.kind {
		case 'l':
			a.Marks = append(a.Marks, Mark{"dynamic linker", at})
		case 'e':
			a.Marks = append(a.Marks, Mark{"entry", at})
			stage = max(stage, StageEntry)
		case 'i':
			a.Inits = append(a.Inits, Init{Object: m.path, Name: m.name, Addr: m.addr, Start: at})
			lastInit = len(a.Inits) - 1
		}
		if m.kind == 'm' {
			a.Main = at
			a.Marks = append(a.Marks, Mark{m.name, at})
			stage, end = StageMain, i
			break
		}
	}
	if lastInit >= 0 {
		a.Inits[lastInit].Took = int64(events[len(events)-1].time-start) - a.Inits[lastInit].Start
	}
	b.list()
	b.image(program)
	if c != nil {
		b.image(c.Linker.Path)
	}
	for i := first; i < end; i++ {
		if e := &events[i]; e.typ == event.TypeSyscall && e.pid == pid {
			a.Calls++
			b.call(e)
		}
	}
	for i := range a.Inits {
		for j := range a.Objects {
			if a.Objects[j].Path == a.Inits[i].Object {
				a.Objects[j].InitTime += a.Inits[i].Took
			}
		}
	}
	for _, area := range b.space.Areas() {
		off := area.Offset
		if area.File == "" {
			off = 0
		}
		a.Areas = append(a.Areas, AreaView{area.Start, area.End, area.Flags(), off, b.space.Show(&area), area.Step - 1})
	}
	b.phases()
	if a.Main == 0 {
		if stage != StageMain && !slices.ContainsFunc(marks, func(m mark) bool { return m.kind == 'm' }) {
			a.Notes = append(a.Notes, "main is not known: the program has no symbol for it")
		}
	}
	return stage
}

type builder struct {
	a       *Analysis
	start   uint64
	c       *ldso.Closure
	space   addrspace.Space
	bases   map[string]uint64 // by path, where a probe has told it
	fds     [1024]string
	handles [1024]uint64
	opened  uint64
	failed  int
	objects map[string]*objfile.File
	mapped  int64 // when the last library was mapped
	first   int64 // when the first library or cache was looked for
}

func (b *builder) close() {
	for _, f := range b.objects {
		f.Close()
	}
}

func (b *builder) file(path string) *objfile.File {
	if f, ok := b.objects[path]; ok {
		return f
	}
	f, err := objfile.Open(path)
	if err != nil {
		return nil
	}
	b.objects[path] = f
	return f
}

// list makes the list of objects as the model of the linker has it; what is seen is added to it.
func (b *builder) list() {
	if b.c == nil {
		b.a.Objects = append(b.a.Objects, Object{Path: b.a.Path})
		return
	}
	for _, o := range b.c.Objects {
		v := Object{Path: o.Path}
		for _, n := range b.c.Needs {
			if n.Object == o && (!n.Loaded || len(n.Tries) > 0 || v.NeededBy == "") {
				if n.By != nil {
					v.NeededBy = n.By.Path
				} else {
					v.NeededBy = n.Preload
				}
				if len(n.Tries) > 0 {
					v.Tries = n.Tries
					last := n.Tries[len(n.Tries)-1]
					v.Rule = string(last.Rule)
				}
				break
			}
		}
		b.a.Objects = append(b.a.Objects, v)
	}
}

func (b *builder) object(path string) *Object {
	for i := range b.a.Objects {
		if b.a.Objects[i].Path == path {
			return &b.a.Objects[i]
		}
	}
	return nil
}

// change applies an operation to the space and keeps what it changed.
func (b *builder) change(at int64, cause, call string, op func(s *addrspace.Space) error) {
	before := b.space.Areas()
	err := op(&b.space)
	st := MapStep{At: at, Cause: cause, Call: call}
	for _, c := range addrspace.Diff(before, b.space.Areas()) {
		text := fmt.Sprintf("%c %x-%x %s %s", c.Kind, c.Area.Start, c.Area.End, c.Area.Flags(), b.space.Show(&c.Area))
		if c.Kind == '~' {
			was := addrspace.Area{Prot: c.Was, Attr: c.Area.Attr}
			text = fmt.Sprintf("~ %x-%x %s to %s %s", c.Area.Start, c.Area.End, was.Flags(), c.Area.Flags(), b.space.Show(&c.Area))
		}
		st.Changes = append(st.Changes, text)
	}
	if err != nil {
		st.Changes = append(st.Changes, "the model does not follow: "+err.Error())
	}
	b.a.Steps = append(b.a.Steps, st)
}

func prot(flags elf.ProgFlag) (p addrspace.Prot) {
	if flags&elf.PF_R != 0 {
		p |= addrspace.Read
	}
	if flags&elf.PF_W != 0 {
		p |= addrspace.Write
	}
	if flags&elf.PF_X != 0 {
		p |= addrspace.Exec
	}
	return p
}

// image maps the segments of a file that the kernel maps itself in execve: fs/binfmt_elf.c, elf_load.
func (b *builder) image(path string) {
	f := b.file(path)
	base, ok := b.bases[path]
	if f == nil || !ok {
		return
	}
	real := path
	if r, err := filepath.EvalSymlinks(path); err == nil {
		if r, err = filepath.Abs(r); err == nil {
			real = r
		}
	}
	const mask = uint64(addrspace.PageSize - 1)
	if o := b.object(path); o != nil {
		o.Base = base
	}
	for _, p := range f.ELF.Progs {
		if p.Type != elf.PT_LOAD || p.Memsz == 0 {
			continue
		}
		start := base + p.Vaddr
		fileEnd := (start + p.Filesz + mask) &^ mask
		memEnd := (start + p.Memsz + mask) &^ mask
		if o := b.object(path); o != nil {
			o.Bytes += memEnd - start&^mask
		}
		if p.Filesz > 0 {
			b.change(0, "kernel, execve: segment of "+filepath.Base(path), "", func(s *addrspace.Space) error {
				return s.Map(addrspace.Area{Start: start &^ mask, End: fileEnd, Prot: prot(p.Flags), File: real, Offset: p.Off &^ mask})
			})
		} else {
			fileEnd = start &^ mask
		}
		if memEnd > fileEnd {
			b.change(0, "kernel, execve: zeroed memory of "+filepath.Base(path), "", func(s *addrspace.Space) error {
				return s.Map(addrspace.Area{Start: fileEnd, End: memEnd, Prot: prot(p.Flags)})
			})
		}
	}
}

const (
	mapShared    = 0x01
	mapFixed     = 0x10
	mapAnonymous = 0x20
)

// call follows one system call of the loading.
func (b *builder) call(e *seen) {
	at := int64(e.time - b.start)
	done := at + int64(e.duration)
	switch e.name {
	case "open", "openat":
		if b.first == 0 {
			b.first = at
		}
		if e.errno != 0 {
			b.failed++
			b.a.Failed++
			return
		}
		if fd := int(e.ret); fd >= 0 && fd < len(b.fds) {
			b.opened++
			b.fds[fd], b.handles[fd] = e.text, b.opened
			if o := b.object(e.text); o != nil && o.Opened == 0 {
				o.Opened, o.Failed = at, b.failed
				b.failed = 0
			}
		}
	case "access", "readlink", "faccessat":
		if b.first == 0 {
			b.first = at
		}
	case "close":
		if fd := int(int32(e.args[0])); fd >= 0 && fd < len(b.fds) {
			if o := b.object(b.fds[fd]); o != nil && o.Mapped == 0 {
				o.Mapped, b.mapped = done, done
			}
			b.fds[fd] = ""
		}
	case "mmap":
		if e.errno != 0 {
			return
		}
		area := addrspace.Area{Start: uint64(e.ret), End: uint64(e.ret) + e.args[1], Prot: addrspace.Prot(e.args[2] & 7)}
		if e.args[3]&mapShared != 0 {
			area.Attr |= addrspace.Shared
		}
		name := "anonymous memory"
		if e.args[3]&mapAnonymous == 0 {
			if fd := int(int32(e.args[4])); fd >= 0 && fd < len(b.fds) {
				area.File, area.Handle, area.Offset = b.fds[fd], b.handles[fd], e.args[5]
				name = filepath.Base(area.File)
				if o := b.object(area.File); o != nil && o.Base == 0 && o.Bytes == 0 {
					o.Base, o.Bytes = uint64(e.ret), e.args[1]
				}
			}
			if area.File == "" {
				area.File = "?"
			} else if real, err := filepath.EvalSymlinks(area.File); err == nil {
				area.File = real
			}
		}
		b.change(at, "map "+name, fmt.Sprintf("mmap(%#x, %d, %s) = %#x", e.args[0], e.args[1], area.Flags(), e.ret), func(s *addrspace.Space) error { return s.Map(area) })
	case "munmap":
		if e.errno == 0 {
			b.change(at, "unmap "+b.where(e.args[0]), fmt.Sprintf("munmap(%#x, %d)", e.args[0], e.args[1]), func(s *addrspace.Space) error { return s.Unmap(e.args[0], e.args[1]) })
		}
	case "mprotect":
		if e.errno != 0 {
			return
		}
		cause := "protect " + b.where(e.args[0])
		if o := b.relro(e.args[0], e.args[1], e.args[2]); o != nil {
			o.Relro = done
			cause = "RELRO of " + filepath.Base(o.Path) + ", its relocation is done"
		}
		b.change(at, cause, fmt.Sprintf("mprotect(%#x, %d, %#x)", e.args[0], e.args[1], e.args[2]), func(s *addrspace.Space) error {
			return s.Protect(e.args[0], e.args[1], addrspace.Prot(e.args[2]&7))
		})
	case "brk":
		if e.errno == 0 && uint64(e.ret) != b.space.BrkValue {
			b.change(at, "the heap", fmt.Sprintf("brk(%#x) = %#x", e.args[0], e.ret), func(s *addrspace.Space) error { return s.Brk(uint64(e.ret)) })
		}
	case "mremap":
		if e.errno == 0 {
			b.change(at, "move "+b.where(e.args[0]), fmt.Sprintf("mremap(%#x, %d, %d) = %#x", e.args[0], e.args[1], e.args[2], e.ret), func(s *addrspace.Space) error {
				return s.Remap(e.args[0], e.args[1], uint64(e.ret), e.args[2], e.args[3]&4 != 0)
			})
		}
	}
}

func (b *builder) where(addr uint64) string {
	if area, ok := b.space.Lookup(addr); ok {
		if n := b.space.Show(&area); n != "" {
			return filepath.Base(n)
		}
	}
	return "anonymous memory"
}

// relro is the object whose PT_GNU_RELRO segment was made read-only.
func (b *builder) relro(addr, length, prot uint64) *Object {
	if prot&uint64(addrspace.Write) != 0 {
		return nil
	}
	for i := range b.a.Objects {
		o := &b.a.Objects[i]
		f := b.file(o.Path)
		if f == nil || o.Bytes == 0 {
			continue
		}
		for _, p := range f.ELF.Progs {
			if p.Type == elf.PT_GNU_RELRO && (o.Base+p.Vaddr)&^uint64(addrspace.PageSize-1) == addr {
				return o
			}
		}
	}
	return nil
}

// phases cuts the way at the moments that were seen.
func (b *builder) phases() {
	a := b.a
	at := func(name string) int64 {
		for _, m := range a.Marks {
			if m.Name == name {
				return m.At
			}
		}
		return 0
	}
	linker, entry := at("dynamic linker"), at("entry")
	initTime := int64(0)
	for _, i := range a.Inits {
		if entry == 0 || i.Start < entry {
			initTime = i.Start
			break
		}
	}
	type cut struct {
		at         int64
		name, what string
	}
	cuts := []cut{{0, "execve", "the kernel reads the program and its dynamic linker, drops the old memory, and maps them, a stack and the vdso"}}
	if linker > 0 {
		cuts = append(cuts, cut{linker, "dynamic linker starts", "it relocates itself and reads its environment"})
		if b.first > linker && b.mapped > b.first {
			cuts = append(cuts, cut{b.first, "find and map libraries", "each library is looked for, opened, read and mapped"}, cut{b.mapped, "relocate", "addresses are put into the data of each object, symbols are bound, and RELRO makes the results read-only"})
		}
		if initTime > 0 {
			cuts = append(cuts, cut{initTime, "constructors of libraries", "each library initialises itself, those that others depend on first"})
		}
	}
	if entry > 0 {
		cuts = append(cuts, cut{entry, "start of the program", "from the program's entry the C library is set up, and the program's own constructors run"})
	}
	end := a.Main
	if end == 0 {
		for _, m := range a.Marks {
			end = max(end, m.At)
		}
	}
	for i, c := range cuts {
		until := end
		if i+1 < len(cuts) {
			until = cuts[i+1].at
		}
		if until > c.at {
			a.Phases = append(a.Phases, Phase{c.name, c.at, until, c.what})
		}
	}
}

// Slowest are the constructors by the time they took, the longest first.
func (a *Analysis) Slowest() []Init {
	list := slices.Clone(a.Inits)
	slices.SortStableFunc(list, func(x, y Init) int {
		switch {
		case x.Took > y.Took:
			return -1
		case x.Took < y.Took:
			return 1
		}
		return strings.Compare(x.Name, y.Name)
	})
	return list
}
