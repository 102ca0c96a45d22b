// Package elfinfo says what is in an ELF file, in the words of its own architecture: headers, segments and the sections in them,
// the dynamic section, relocations with their addends, versions, symbols, thread-local storage, notes, and what is done against
// attacks. It is readelf(1) as values.
//
// It interprets no code and no debug data. Files may be hostile: what is outside of a file, or too much, is said in Notes of Info and
// left out.
package elfinfo

import (
	"debug/elf"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/objfile"
)

// Info is one file.
type Info struct {
	Schema   string          `json:"schema"` // "sonde-elf/1"
	Path     string          `json:"path"`
	Class    string          `json:"class"` // "ELF64"
	Data     string          `json:"data"`  // "little", "big"
	OSABI    string          `json:"osabi"`
	Type     string          `json:"type"`    // "DYN", "EXEC", …
	Machine  string          `json:"machine"` // "X86_64", "AARCH64", …
	Entry    uint64          `json:"entry"`
	Interp   string          `json:"interpreter,omitempty"`
	BuildID  string          `json:"build_id,omitempty"`
	Segments []Segment       `json:"segments"`
	Sections []Section       `json:"sections"`
	Dynamic  []Dyn           `json:"dynamic,omitempty"`
	Tables   []Table         `json:"relocations,omitempty"`
	Defines  []VersionDef    `json:"versions_defined,omitempty"`
	Needs    []VersionNeed   `json:"versions_needed,omitempty"`
	Symbols  []Symbol        `json:"symbols,omitempty"`
	TLS      *TLS            `json:"tls,omitempty"`
	Remarks  []Note          `json:"notes,omitempty"`
	Guards   []Guard         `json:"hardening"`
	Notes    []string        `json:"remarks,omitempty"` // what could not be read
	defined  map[string]bool // names of dynamic symbols that are referred to
}

// Segment is a program header.
type Segment struct {
	Type     string   `json:"type"`  // "LOAD", "GNU_RELRO", …
	Flags    string   `json:"flags"` // "R E"
	Offset   uint64   `json:"offset"`
	Vaddr    uint64   `json:"vaddr"`
	Paddr    uint64   `json:"paddr"`
	FileSize uint64   `json:"file_size"`
	MemSize  uint64   `json:"mem_size"`
	Align    uint64   `json:"align"`
	Sections []string `json:"sections,omitempty"`
}

// Section is a section header.
type Section struct {
	Index   int    `json:"index"`
	Name    string `json:"name"`
	Type    string `json:"type"`
	Addr    uint64 `json:"addr"`
	Offset  uint64 `json:"offset"`
	Size    uint64 `json:"size"`
	EntSize uint64 `json:"entry_size"`
	Flags   string `json:"flags"` // letters as readelf has them: W, A, X, M, S, I, L, G, T, C
	Link    uint32 `json:"link"`
	Info    uint32 `json:"info"`
	Align   uint64 `json:"align"`
}

// Dyn is an entry of the dynamic section.
type Dyn struct {
	Tag   string `json:"tag"` // "NEEDED", "FLAGS_1", …
	Value uint64 `json:"value"`
	Text  string `json:"text,omitempty"` // the string or the flags that it stands for
}

// Table is a section of relocations.
type Table struct {
	Section string         `json:"section"`
	Kind    string         `json:"kind"` // "RELA", "REL", "RELR"
	Entries []Reloc        `json:"entries"`
	Counts  map[string]int `json:"counts"` // by type
}

// Reloc is one relocation.
type Reloc struct {
	Offset uint64 `json:"offset"`
	Type   string `json:"type"` // as the file's architecture calls it: R_X86_64_RELATIVE
	Symbol string `json:"symbol,omitempty"`
	Addend int64  `json:"addend"`
}

// VersionDef is a version that the file defines.
type VersionDef struct {
	Name string   `json:"name"`
	Base bool     `json:"base,omitempty"`
	Deps []string `json:"parents,omitempty"`
}

// VersionNeed is the versions that the file needs of a library.
type VersionNeed struct {
	Library  string   `json:"library"`
	Versions []string `json:"versions"`
}

// Symbol is an entry of a symbol table.
type Symbol struct {
	Table   string `json:"table"` // ".dynsym", ".symtab"
	Value   uint64 `json:"value"`
	Size    uint64 `json:"size"`
	Type    string `json:"type"`
	Bind    string `json:"bind"`
	Section string `json:"section"` // "UND", "ABS", a number
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

// TLS is the thread-local storage that each thread gets of the file.
type TLS struct {
	Initialised uint64 `json:"initialised"`
	Size        uint64 `json:"size"`
	Align       uint64 `json:"align"`
}

// Note is a note of a PT_NOTE segment.
type Note struct {
	Owner string `json:"owner"`
	Type  uint32 `json:"type"`
	Text  string `json:"text"`
}

// Guard is something that is done, or not, against attacks.
type Guard struct {
	Name string `json:"name"`
	Good bool   `json:"good"`
	Text string `json:"text"`
}

const (
	schema     = "sonde-elf/1"
	maxRelocs  = 4 << 20
	maxDynamic = 4096
	maxNotes   = 1 << 20 // bytes
)

// Read describes an open file.
func Read(f *objfile.File) *Info {
	h := f.ELF.FileHeader
	i := &Info{Schema: schema, Path: f.Path, Class: strings.ReplaceAll(h.Class.String(), "CLASS", ""), Data: "little", OSABI: strings.TrimPrefix(h.OSABI.String(), "ELFOSABI_"),
		Type: strings.TrimPrefix(h.Type.String(), "ET_"), Machine: strings.TrimPrefix(h.Machine.String(), "EM_"), Entry: h.Entry, BuildID: hex.EncodeToString(f.BuildID()), defined: make(map[string]bool)}
	if h.Data == elf.ELFDATA2MSB {
		i.Data = "big"
	}
	i.headers(f)
	i.dynamic(f)
	i.symbols(f)
	i.relocations(f)
	i.versions(f)
	i.readNotes(f)
	i.hardening(f)
	return i
}

func (i *Info) remark(format string, args ...any) {
	i.Notes = append(i.Notes, fmt.Sprintf(format, args...))
}

// readAt reads part of a file within bounds; nil and a remark when it is not there.
func (i *Info) readAt(f *objfile.File, what string, off, size, most uint64) []byte {
	if size > most || off > uint64(f.Size) || size > uint64(f.Size)-off {
		i.remark("%s is outside the file or too large: %d bytes at %#x", what, size, off)
		return nil
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, int64(off)); err != nil {
		i.remark("%s cannot be read: %v", what, err)
		return nil
	}
	return b
}

func (i *Info) headers(f *objfile.File) {
	for n, s := range f.ELF.Sections {
		i.Sections = append(i.Sections, Section{n, s.Name, sectionType(s.Type, f.ELF.Machine), s.Addr, s.Offset, s.FileSize, s.Entsize, sectionFlags(s.Flags, f.ELF.OSABI), s.Link, s.Info, s.Addralign})
	}
	for _, p := range f.ELF.Progs {
		g := Segment{Type: segmentType(p.Type, f.ELF.Machine), Flags: segmentFlags(p.Flags), Offset: p.Off, Vaddr: p.Vaddr, Paddr: p.Paddr, FileSize: p.Filesz, MemSize: p.Memsz, Align: p.Align}
		for _, s := range f.ELF.Sections {
			if inSegment(s, p) {
				g.Sections = append(g.Sections, s.Name)
			}
		}
		i.Segments = append(i.Segments, g)
		switch p.Type {
		case elf.PT_INTERP:
			if b := i.readAt(f, "the name of the interpreter", p.Off, p.Filesz, 4096); b != nil {
				i.Interp, _, _ = strings.Cut(string(b), "\x00")
			}
		case elf.PT_TLS:
			i.TLS = &TLS{p.Filesz, p.Memsz, p.Align}
		}
	}
}

// inSegment follows ELF_SECTION_IN_SEGMENT_STRICT of binutils (include/elf/internal.h).
func inSegment(s *elf.Section, p *elf.Prog) bool {
	tls, alloc, nobits := s.Flags&elf.SHF_TLS != 0, s.Flags&elf.SHF_ALLOC != 0, s.Type == elf.SHT_NOBITS
	if s.Type == elf.SHT_NULL {
		return false
	}
	if tls {
		if p.Type != elf.PT_TLS && p.Type != elf.PT_GNU_RELRO && p.Type != elf.PT_LOAD {
			return false
		}
	} else if p.Type == elf.PT_TLS || p.Type == elf.PT_PHDR {
		return false
	}
	if !alloc && (p.Type == elf.PT_LOAD || p.Type == elf.PT_DYNAMIC || p.Type == elf.PT_GNU_EH_FRAME || p.Type == elf.PT_GNU_STACK || p.Type == elf.PT_GNU_RELRO || p.Type == elf.PT_GNU_PROPERTY) {
		return false
	}
	if tls && nobits && p.Type != elf.PT_TLS {
		return false // .tbss takes no room in other segments
	}
	if !nobits {
		fs := s.FileSize
		if s.Offset < p.Off || s.Offset-p.Off+fs > p.Filesz || p.Filesz != 0 && s.Offset-p.Off > p.Filesz-1 {
			return false
		}
	}
	if alloc {
		if s.Addr < p.Vaddr || s.Addr-p.Vaddr+s.Size > p.Memsz || p.Memsz != 0 && s.Addr-p.Vaddr > p.Memsz-1 {
			return false
		}
	}
	if p.Type == elf.PT_DYNAMIC || p.Type == elf.PT_NOTE {
		// An empty section at an edge is not in it.
		if s.Size == 0 && p.Memsz != 0 && (!nobits && (s.Offset <= p.Off || s.Offset-p.Off >= p.Filesz) || alloc && (s.Addr <= p.Vaddr || s.Addr-p.Vaddr >= p.Memsz)) {
			return false
		}
	}
	return true
}

func (i *Info) dynamic(f *objfile.File) {
	for _, p := range f.ELF.Progs {
		if p.Type != elf.PT_DYNAMIC {
			continue
		}
		word := wordSize(f)
		b := i.readAt(f, "the dynamic section", p.Off, min(p.Filesz, maxDynamic*2*word), maxDynamic*16)
		var strtab []byte
		for ; uint64(len(b)) >= 2*word; b = b[2*word:] {
			tag, val := elf.DynTag(number(f, b[:word])), number(f, b[word:2*word])
			if word == 4 {
				tag = elf.DynTag(int32(tag))
			}
			i.Dynamic = append(i.Dynamic, Dyn{Tag: dynTag(tag, f.ELF.Machine), Value: val})
			if tag == elf.DT_NULL {
				break
			}
			if tag == elf.DT_STRTAB {
				if off, ok := f.Offset(val); ok {
					strtab = i.readAt(f, "the strings of the dynamic section", off, min(64<<20, uint64(f.Size)-off), 64<<20)
				}
			}
		}
		for n := range i.Dynamic {
			d := &i.Dynamic[n]
			switch d.Tag {
			case "NEEDED", "SONAME", "RPATH", "RUNPATH", "AUXILIARY", "FILTER":
				if d.Value < uint64(len(strtab)) {
					s := strtab[d.Value:]
					d.Text, _, _ = strings.Cut(string(s[:min(len(s), 4096)]), "\x00")
				}
			case "FLAGS":
				d.Text = strings.ReplaceAll(strings.ReplaceAll(elf.DynFlag(d.Value).String(), "DF_", ""), "+", " ")
			case "FLAGS_1":
				d.Text = strings.ReplaceAll(strings.ReplaceAll(elf.DynFlag1(d.Value).String(), "DF_1_", ""), "+", " ")
			}
		}
		return
	}
}

// Values are the texts of the dynamic entries with a tag.
func (i *Info) Values(tag string) (list []string) {
	for _, d := range i.Dynamic {
		if d.Tag == tag {
			list = append(list, d.Text)
		}
	}
	return list
}

func (i *Info) has(tag string) bool {
	for _, d := range i.Dynamic {
		if d.Tag == tag {
			return true
		}
	}
	return false
}

func (i *Info) symbols(f *objfile.File) {
	add := func(table string, list []elf.Symbol, err error) {
		if err != nil {
			return // there is no such table
		}
		for n := range list {
			s := &list[n]
			version := s.Version
			if s.HasVersion && version != "" && s.Section != elf.SHN_UNDEF && s.Library == "" && !s.VersionIndex.IsHidden() {
				version = "@" + version
			}
			section := fmt.Sprint(int(s.Section))
			switch s.Section {
			case elf.SHN_UNDEF:
				section = "UND"
			case elf.SHN_ABS:
				section = "ABS"
			case elf.SHN_COMMON:
				section = "COM"
			}
			i.Symbols = append(i.Symbols, Symbol{table, s.Value, s.Size, strings.TrimPrefix(elf.ST_TYPE(s.Info).String(), "STT_"), strings.TrimPrefix(elf.ST_BIND(s.Info).String(), "STB_"), section, s.Name, version})
			if table == ".dynsym" {
				i.defined[s.Name] = true
			}
		}
	}
	dyn, err := f.ELF.DynamicSymbols()
	add(".dynsym", dyn, err)
	sym, err := f.ELF.Symbols()
	add(".symtab", sym, err)
}

func (i *Info) versions(f *objfile.File) {
	if defs, err := f.ELF.DynamicVersions(); err == nil {
		for _, d := range defs {
			i.Defines = append(i.Defines, VersionDef{d.Name, d.Flags&elf.VER_FLG_BASE != 0, d.Deps})
		}
	}
	if needs, err := f.ELF.DynamicVersionNeeds(); err == nil {
		for _, n := range needs {
			v := VersionNeed{Library: n.Name}
			for _, d := range n.Needs {
				v.Versions = append(v.Versions, d.Dep)
			}
			i.Needs = append(i.Needs, v)
		}
	}
}

func (i *Info) relocations(f *objfile.File) {
	total := uint64(0)
	for n, s := range f.ELF.Sections {
		kind, word := "", wordSize(f)
		size := 2 * word
		switch {
		case s.Type == elf.SHT_RELA:
			kind, size = "RELA", 3*word
		case s.Type == elf.SHT_REL:
			kind = "REL"
		case s.Type == shtRelr:
			kind, size = "RELR", word
		default:
			continue
		}
		if total += s.FileSize / size; total > maxRelocs {
			i.remark("more than %d relocations: those from %s on are left out", maxRelocs, s.Name)
			return
		}
		b := i.readAt(f, "section "+i.Sections[n].Name, s.Offset, s.FileSize, maxRelocs*24)
		t := Table{Section: s.Name, Kind: kind, Counts: make(map[string]int)}
		if kind == "RELR" {
			t.Entries = relr(f, b)
			t.Counts[relocType(f.ELF.Machine, relativeOf(f.ELF.Machine))] = len(t.Entries)
			i.Tables = append(i.Tables, t)
			continue
		}
		names := i.names(f, int(s.Link))
		t.Entries = make([]Reloc, 0, uint64(len(b))/size)
		for ; uint64(len(b)) >= size; b = b[size:] {
			r := Reloc{Offset: number(f, b[:word])}
			info := number(f, b[word:2*word])
			sym, typ := info>>32, uint32(info)
			if word == 4 {
				sym, typ = info>>8, uint32(info&0xff)
			} else if f.ELF.Machine == elf.EM_MIPS && i.Data == "little" {
				// mips64: a 32-bit symbol, then four bytes; little-endian files have them in reverse: elf64-mips.c.
				sym, typ = info&0xffffffff, uint32(info>>56)
			}
			if kind == "RELA" {
				r.Addend = signed(number(f, b[2*word:3*word]), word)
			}
			r.Type = relocType(f.ELF.Machine, typ)
			if sym > 0 && sym < uint64(len(names)) {
				r.Symbol = names[sym]
			}
			t.Counts[r.Type]++
			t.Entries = append(t.Entries, r)
		}
		i.Tables = append(i.Tables, t)
	}
}

// names are the names of a symbol table, by index; sections are named by themselves.
func (i *Info) names(f *objfile.File, link int) []string {
	if link <= 0 || link >= len(f.ELF.Sections) {
		return nil
	}
	var list []elf.Symbol
	var err error
	switch f.ELF.Sections[link].Type {
	case elf.SHT_DYNSYM:
		list, err = f.ELF.DynamicSymbols()
	case elf.SHT_SYMTAB:
		list, err = f.ELF.Symbols()
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	names := make([]string, len(list)+1)
	for n := range list {
		s := &list[n]
		names[n+1] = s.Name
		if s.Version != "" {
			at := "@"
			if s.Section != elf.SHN_UNDEF && s.Library == "" && !s.VersionIndex.IsHidden() {
				at = "@@" // defined here; a copy of a variable has the version of its library
			}
			names[n+1] += at + s.Version
		}
		if s.Name == "" && elf.ST_TYPE(s.Info) == elf.STT_SECTION && int(s.Section) < len(f.ELF.Sections) {
			names[n+1] = f.ELF.Sections[s.Section].Name
		}
	}
	return names
}

const shtRelr = elf.SectionType(19) // SHT_RELR, gABI

// relr decodes addresses and bitmaps: gABI, "Relative Relocation Table".
func relr(f *objfile.File, b []byte) (list []Reloc) {
	word := wordSize(f)
	name := relocType(f.ELF.Machine, relativeOf(f.ELF.Machine))
	var where uint64
	for ; uint64(len(b)) >= word && len(list) < maxRelocs; b = b[word:] {
		v := number(f, b[:word])
		if v&1 == 0 {
			list = append(list, Reloc{Offset: v, Type: name})
			where = v + word
			continue
		}
		for bit := uint64(0); v>>(bit+1) != 0; bit++ {
			if v>>(bit+1)&1 != 0 {
				list = append(list, Reloc{Offset: where + bit*word, Type: name})
			}
		}
		where += (8*word - 1) * word
	}
	return list
}

func (i *Info) readNotes(f *objfile.File) {
	for _, p := range f.ELF.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		b := i.readAt(f, "a segment of notes", p.Off, p.Filesz, maxNotes)
		align := max(p.Align, 4)
		if align != 8 {
			align = 4
		}
		up := func(n uint64) uint64 { return (n + align - 1) &^ (align - 1) }
		for len(b) >= 12 {
			name, desc, typ := uint64(f.ELF.ByteOrder.Uint32(b)), uint64(f.ELF.ByteOrder.Uint32(b[4:])), f.ELF.ByteOrder.Uint32(b[8:])
			descAt := up(12 + name)
			if 12+name > uint64(len(b)) || descAt+desc > uint64(len(b)) {
				break
			}
			owner, _, _ := strings.Cut(string(b[12:12+name]), "\x00")
			i.Remarks = append(i.Remarks, Note{owner, typ, i.noteText(f, owner, typ, b[descAt:descAt+desc])})
			b = b[min(up(descAt+desc), uint64(len(b))):]
		}
	}
}

func (i *Info) noteText(f *objfile.File, owner string, typ uint32, b []byte) string {
	order := f.ELF.ByteOrder
	switch {
	case owner == "GNU" && typ == 1 && len(b) >= 16: // NT_GNU_ABI_TAG
		return fmt.Sprintf("needs %s %d.%d.%d or later", [...]string{"Linux", "Hurd", "Solaris", "FreeBSD"}[order.Uint32(b)&3], order.Uint32(b[4:]), order.Uint32(b[8:]), order.Uint32(b[12:]))
	case owner == "GNU" && typ == 3:
		return "build-id " + hex.EncodeToString(b)
	case owner == "GNU" && typ == 5:
		return strings.Join(i.properties(f, b), ", ")
	case owner == "Go" && typ == 4:
		return fmt.Sprintf("Go build-id %q", b)
	case owner == "stapsdt":
		return "static probe"
	}
	return fmt.Sprintf("%d bytes", len(b))
}

// properties decodes NT_GNU_PROPERTY_TYPE_0: the extensions of the gABI for Linux.
func (i *Info) properties(f *objfile.File, b []byte) (list []string) {
	for len(b) >= 8 {
		typ, size := f.ELF.ByteOrder.Uint32(b), uint64(f.ELF.ByteOrder.Uint32(b[4:]))
		if size > uint64(len(b)-8) {
			break
		}
		if size >= 4 {
			v := f.ELF.ByteOrder.Uint32(b[8:])
			switch {
			case typ == 0xc0000002 && f.ELF.Machine == elf.EM_X86_64, typ == 0xc0000002 && f.ELF.Machine == elf.EM_386:
				list = append(list, bits(v, "IBT", "SHSTK")...)
			case typ == 0xc0008002:
				list = append(list, bits(v, "x86-64-baseline", "x86-64-v2", "x86-64-v3", "x86-64-v4")...)
			case typ == 0xc0000000 && f.ELF.Machine == elf.EM_AARCH64:
				list = append(list, bits(v, "BTI", "PAC", "GCS")...)
			}
		}
		b = b[min((8+size+7)&^7, uint64(len(b))):]
	}
	return list
}

func bits(v uint32, names ...string) (list []string) {
	for i, n := range names {
		if v&(1<<i) != 0 {
			list = append(list, n)
		}
	}
	return list
}

func (i *Info) hardening(f *objfile.File) {
	add := func(name string, good bool, format string, args ...any) {
		i.Guards = append(i.Guards, Guard{name, good, fmt.Sprintf(format, args...)})
	}
	flags := func(tag, name string) bool {
		for _, d := range i.Dynamic {
			if d.Tag == tag && strings.Contains(" "+d.Text+" ", " "+name+" ") {
				return true
			}
		}
		return false
	}
	switch {
	case f.ELF.Type == elf.ET_EXEC:
		add("PIE", false, "the program is at fixed addresses")
	case f.ELF.Type == elf.ET_DYN:
		add("PIE", true, "position-independent")
	}
	relro, stack, wx := false, "", 0
	for _, p := range f.ELF.Progs {
		switch p.Type {
		case elf.PT_GNU_RELRO:
			relro = true
		case elf.PT_GNU_STACK:
			stack = segmentFlags(p.Flags)
		case elf.PT_LOAD:
			if p.Flags&(elf.PF_W|elf.PF_X) == elf.PF_W|elf.PF_X {
				wx++
			}
		}
	}
	now := flags("FLAGS", "BIND_NOW") || flags("FLAGS_1", "NOW") || i.has("BIND_NOW")
	switch {
	case relro && (now || !i.has("JMPREL")):
		add("RELRO", true, "full: addresses are read-only once they are relocated")
	case relro:
		add("RELRO", false, "partial: the table of called functions stays writable")
	default:
		add("RELRO", false, "none")
	}
	switch {
	case stack == "":
		add("NX stack", false, "no PT_GNU_STACK: the kernel's default decides")
	case strings.Contains(stack, "E"):
		add("NX stack", false, "the stack is executable")
	default:
		add("NX stack", true, "the stack is not executable")
	}
	add("W^X segments", wx == 0, "%d segments are writable and executable", wx)
	add("text relocations", !i.has("TEXTREL") && !flags("FLAGS", "TEXTREL"), "%v", map[bool]string{true: "there are some", false: "none"}[i.has("TEXTREL") || flags("FLAGS", "TEXTREL")])
	add("stack canaries", i.defined["__stack_chk_fail"], "%v", map[bool]string{true: "checked in some functions", false: "no use of __stack_chk_fail is seen"}[i.defined["__stack_chk_fail"]])
	for _, n := range i.Remarks {
		if n.Owner == "GNU" && n.Type == 5 && n.Text != "" {
			add("control flow", strings.Contains(n.Text, "IBT") || strings.Contains(n.Text, "BTI"), "%s", n.Text)
		}
	}
	for _, tag := range []string{"RPATH", "RUNPATH"} {
		for _, v := range i.Values(tag) {
			for _, dir := range strings.Split(v, ":") {
				st, err := os.Stat(dir)
				switch {
				case dir == "" || !strings.HasPrefix(dir, "/") && !strings.HasPrefix(dir, "$ORIGIN") && !strings.HasPrefix(dir, "${ORIGIN}"):
					add(tag, false, "%q is relative: whoever chooses the working directory chooses the libraries", dir)
				case err == nil && st.Mode()&0o002 != 0, err == nil && os.Getuid() != 0 && unix.Access(dir, unix.W_OK) == nil:
					add(tag, false, "%q is writable: others can put libraries there", dir)
				}
			}
		}
	}
}
