package plan

import (
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/near"
	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
	"github.com/sonde-trace/sonde/perfevent"
	"github.com/sonde-trace/sonde/probe"
)

// Break is the debug registers of a break: or watch: expression. Each point of the plan is one register.
type Break struct {
	Mode perfevent.Mode `json:"mode"`
	Size uint64         `json:"size,omitempty"` // of the watched object
	Form Form           `json:"form"`           // of its value
	// Absolute says that addresses are of a process, not of a file.
	Absolute bool `json:"absolute,omitempty"`
	// Segments are the file's loadable segments, to find where it is mapped.
	Segments []Segment `json:"-"`
}

// Segment is a PT_LOAD header's place in the file and in the file's own numbering of addresses.
type Segment struct{ Offset, Addr uint64 }

// Slots of the records of breakpoints, behind the stack pointer.
const (
	BreakAddr = wire.FirstSlot     // address of the piece that was hit
	BreakCode = wire.FirstSlot + 1 // where the code begins that was taken
	BreakRegs = wire.FirstSlot + 2 // the first of the general registers, in the order of BreakRegNames
)

// BreakCodeSize is how many bytes of code are taken: on amd64 those in front of the instruction pointer, as a data breakpoint
// is told after the access; on arm64 the instruction itself.
func BreakCodeSize(arch string) int {
	if arch == "arm64" {
		return 4
	}
	return 64
}

// BreakRegNames are the registers that are taken. The record of arm64 has room for these of its 31.
func BreakRegNames(arch string) (list []string) {
	if arch != "arm64" {
		return []string{"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"} // as instructions number them
	}
	for i := range 29 {
		list = append(list, fmt.Sprintf("x%d", i))
	}
	return list
}

// breakpoint resolves break: and watch:.
func (p *Plan) breakpoint(env *Env) error {
	b := &Break{Mode: perfevent.ModeExecute}
	p.Break = b
	if p.Kind == probe.KindWatch {
		b.Mode = perfevent.ModeWrite
		if p.Spec.Mode != "" {
			var err error
			if b.Mode, err = perfevent.ParseMode(p.Spec.Mode); err != nil {
				return err
			}
		}
	}
	b.Size = uint64(p.Spec.Width)
	pt := &p.Spec.Point
	name, addr := pt.Text, uint64(pt.Offset)
	switch {
	case p.Spec.Object == "" && pt.Match == probe.MatchNumber:
		b.Absolute = true
		if name = fmt.Sprintf("%#x", addr); env.Command != "" {
			return fmt.Errorf("an address alone is one of a running process; name the program: %s:NAME", env.Command)
		}
	default:
		object := p.Spec.Object
		if object == "" {
			if object = env.Command; object == "" && len(env.Pids) > 0 {
				exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", env.Pids[0]))
				if err != nil {
					return err
				}
				object = exe
			}
		}
		o, err := findObject(object, env)
		if err != nil {
			return err
		}
		defer o.file.Close()
		p.Object, p.Path, p.BuildID = o.name, o.path, hex.EncodeToString(o.file.BuildID())
		if want := machines[env.Arch]; o.file.ELF.Machine != want {
			return fmt.Errorf("%s is for %s, and programs here are for %s", o.path, o.file.ELF.Machine, want)
		}
		for _, ph := range o.file.ELF.Progs {
			if ph.Type == elf.PT_LOAD {
				b.Segments = append(b.Segments, Segment{ph.Off, ph.Vaddr})
			}
		}
		switch {
		case b.Mode == perfevent.ModeExecute:
			if err := p.points(o); err != nil {
				return err
			}
			for i := range p.Points {
				p.Points[i].Offset, _ = o.file.Addr(p.Points[i].Offset)
			}
		case pt.Match == probe.MatchNumber:
			a, ok := o.file.Addr(addr)
			if !ok {
				return fmt.Errorf("offset %#x is not in a part of %s that is loaded", addr, o.name)
			}
			name, addr = fmt.Sprintf("%#x", addr), a
		default:
			if addr, err = p.variable(o, b); err != nil {
				return err
			}
			addr += uint64(pt.Offset)
			if pt.Offset != 0 {
				name = fmt.Sprintf("%s%+d", name, pt.Offset)
			}
		}
	}
	t := &taker{limit: env.StrLimit}
	if b.Mode == perfevent.ModeExecute {
		if b.Absolute {
			p.Points = []Point{{Name: name, Offset: addr}}
		}
		return p.values(nil, env, probe.WhenEntry)
	}
	if b.Size == 0 {
		b.Size = 8
	}
	if b.Form.Kind == "" {
		if b.Form = (Form{Kind: FormHex, Size: int(b.Size)}); b.Size > 8 || b.Size&(b.Size-1) != 0 {
			b.Form = Form{Kind: FormBytes}
		}
	}
	if p.Spec.Width != 0 && b.Form.Size != p.Spec.Width {
		b.Form = Form{Kind: FormHex, Size: p.Spec.Width}
	}
	pieces := perfevent.Split(env.Arch, addr, b.Size, b.Mode)
	if len(pieces) > perfevent.MaxSplit {
		return fmt.Errorf("%s has %d bytes: more than the debug registers of any processor cover", name, b.Size)
	}
	for _, x := range pieces {
		if err := x.Check(env.Arch); err != nil {
			return err
		}
		n := name
		if len(pieces) > 1 {
			n = fmt.Sprintf("%s+%d", name, x.Addr-addr)
		}
		p.Points = append(p.Points, Point{Name: n, Offset: x.Addr, Len: x.Len})
	}
	if len(pieces) > 1 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d bytes are watched by %d debug registers", b.Size, len(pieces)))
	}
	// The address comes with the event, the program's context: struct bpf_perf_event_data is the registers, the period, the address.
	t.slot(bpfgen.Word{Reg: map[string]int{"amd64": 176, "arm64": 280}[env.Arch]})
	pc, _ := bpfgen.RegOffset(env.Arch, "pc")
	code := bpfgen.Word{Reg: pc}
	if env.Arch == "amd64" {
		code.Steps = []bpfgen.Step{{Add: -int32(BreakCodeSize(env.Arch))}}
	}
	t.slot(code)
	for _, r := range BreakRegNames(env.Arch) {
		off, _ := bpfgen.RegOffset(env.Arch, r)
		t.slot(bpfgen.Word{Reg: off})
	}
	n := syscalls.Const(BreakCodeSize(env.Arch))
	t.fetches = []syscalls.Fetch{
		syscalls.Buf(BreakAddr, syscalls.Const(8)), // the length is set for each point
		{Kind: syscalls.FetchBytes, Base: syscalls.Arg(BreakCode), Len: syscalls.Length{Number: n, Max: n.N}},
	}
	p.Entry = &bpfgen.Probe{Slots: t.words, Fetches: t.fetches}
	return nil
}

// Place is where the points of a plan are in a process that has the file mapped at start, from offset in the file on. ok is
// false when that mapping is not the beginning of a segment.
func (b *Break) Place(start, offset uint64) (bias uint64, ok bool) {
	page := uint64(os.Getpagesize())
	for _, s := range b.Segments {
		if s.Offset&^(page-1) == offset {
			return start - s.Addr&^(page-1), true
		}
	}
	return 0, false
}

// variable finds a variable by name, and a part of it by the path behind the name: cfg.mode, list[3].next. Members need debug
// data; a pointer on the way has no fixed place.
func (p *Plan) variable(o *object, b *Break) (uint64, error) {
	full := p.Spec.Point.Text
	if strings.Contains(full, "->") {
		return 0, fmt.Errorf("%s: what a pointer points to moves; watch the pointer, or the address that it holds", full)
	}
	base, path := full, ""
	var sym struct {
		addr, size uint64
		ok, tls    bool
	}
	names := make(map[string]bool)
	find := func(name string) {
		for _, s := range o.file.Symbols() {
			if s.Type != elf.STT_OBJECT && s.Type != elf.STT_TLS && s.Type != elf.STT_NOTYPE && s.Type != elf.STT_COMMON {
				continue
			}
			if s.Name == name {
				sym.addr, sym.size, sym.ok, sym.tls = s.Addr, s.Size, true, s.Type == elf.STT_TLS
				return
			}
			if s.Type == elf.STT_OBJECT && len(names) < 1<<16 {
				names[s.Name] = true
			}
		}
	}
	// Names can have dots: counter.0 is a static variable of a function.
	if find(full); !sym.ok {
		if i := strings.IndexAny(full, ".["); i > 0 {
			base, path = full[:i], full[i:]
			find(base)
		}
	}
	if !sym.ok {
		return 0, &Error{Expr: full, Msg: fmt.Sprintf("no variable of that name in %s", o.name), Near: near.Names(base, maps.Keys(names))}
	}
	if sym.tls {
		return 0, fmt.Errorf("%s is a variable of each thread: it has no one address", base)
	}
	addr, size := sym.addr, sym.size
	if t := variableType(o, sym.addr); t != nil {
		off, part, err := member(t, path)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", full, err)
		}
		addr += off
		b.Form = formOfType(part)
		if part.Size() > 0 {
			size = uint64(part.Size())
		}
	} else if path != "" {
		return 0, fmt.Errorf("%s: the parts of %s are not known: %s has no debug data", full, base, o.name)
	}
	if b.Size == 0 {
		b.Size = size
	}
	return addr, nil
}

// variableType finds the type of the variable at an address, nil without debug data.
func variableType(o *object, addr uint64) dwarf.Type {
	d, err := o.file.DWARF()
	if err != nil || d == nil {
		return nil
	}
	r := d.Reader()
	for {
		e, err := r.Next()
		if err != nil || e == nil {
			return nil
		}
		if e.Tag == dwarf.TagVariable {
			// DW_OP_addr and the address: DWARF 5, section 2.5.1.1.
			loc, _ := e.Val(dwarf.AttrLocation).([]byte)
			if len(loc) == 9 && loc[0] == 0x03 && binary.LittleEndian.Uint64(loc[1:]) == addr {
				off, ok := e.Val(dwarf.AttrType).(dwarf.Offset)
				if spec, isSpec := e.Val(dwarf.AttrSpecification).(dwarf.Offset); !ok && isSpec {
					sr := d.Reader()
					sr.Seek(spec)
					if se, err := sr.Next(); err == nil && se != nil {
						off, ok = se.Val(dwarf.AttrType).(dwarf.Offset)
					}
				}
				if !ok {
					return nil
				}
				t, err := d.Type(off)
				if err != nil {
					return nil
				}
				return t
			}
		}
		// Variables with one address are those of files, namespaces, classes and, static, of functions; types have none.
		switch e.Tag {
		case dwarf.TagCompileUnit, dwarf.TagNamespace, dwarf.TagSubprogram, dwarf.TagLexDwarfBlock, dwarf.TagVariable, dwarf.TagBaseType:
		default:
			if e.Children {
				r.SkipChildren()
			}
		}
	}
}

// plainType takes off names and qualifiers.
func plainType(t dwarf.Type) dwarf.Type {
	for range 64 {
		switch x := t.(type) {
		case *dwarf.TypedefType:
			t = x.Type
		case *dwarf.QualType:
			t = x.Type
		default:
			return t
		}
	}
	return t
}

// member follows .name and [n].
func member(t dwarf.Type, path string) (off uint64, part dwarf.Type, err error) {
	part = t
	for path != "" {
		switch x := plainType(part).(type) {
		case *dwarf.StructType:
			if path[0] != '.' {
				return 0, nil, fmt.Errorf("%s has members, not elements", x)
			}
			name := path[1:]
			if i := strings.IndexAny(name, ".["); i >= 0 {
				name = name[:i]
			}
			i := slices.IndexFunc(x.Field, func(f *dwarf.StructField) bool { return f.Name == name })
			if i < 0 {
				var have []string
				for _, f := range x.Field {
					have = append(have, f.Name)
				}
				return 0, nil, fmt.Errorf("%s has no member %s; it has %s", x, name, strings.Join(have, ", "))
			}
			if x.Field[i].BitSize != 0 {
				return 0, nil, fmt.Errorf("%s is a bit field: watch what it is in", name)
			}
			off, part, path = off+uint64(x.Field[i].ByteOffset), x.Field[i].Type, path[1+len(name):]
		case *dwarf.ArrayType:
			text, rest, ok := strings.Cut(path, "]")
			n, err := strconv.ParseUint(strings.TrimPrefix(text, "["), 0, 31)
			if !ok || path[0] != '[' || err != nil {
				return 0, nil, fmt.Errorf("%s has elements: [n] is expected", x)
			}
			if x.Count >= 0 && n >= uint64(x.Count) {
				return 0, nil, fmt.Errorf("element %d of %d", n, x.Count)
			}
			off, part, path = off+n*uint64(max(0, x.Type.Size())), x.Type, rest
		default:
			return 0, nil, fmt.Errorf("%s has no parts", x)
		}
	}
	return off, part, nil
}

// formOfType says how the value of a C type is shown.
func formOfType(t dwarf.Type) Form {
	size := int(t.Size())
	if size == 1 || size == 2 || size == 4 || size == 8 {
		switch plainType(t).(type) {
		case *dwarf.IntType, *dwarf.EnumType:
			return Form{Kind: FormInt, Size: size, Signed: true}
		case *dwarf.UintType:
			return Form{Kind: FormInt, Size: size}
		case *dwarf.CharType, *dwarf.UcharType:
			return Form{Kind: FormChar, Size: size}
		case *dwarf.BoolType:
			return Form{Kind: FormBool, Size: size}
		case *dwarf.PtrType:
			return Form{Kind: FormPtr, Size: size}
		case *dwarf.FloatType:
			if size >= 4 {
				return Form{Kind: FormFloat, Size: size}
			}
		}
	}
	return Form{Kind: FormBytes}
}

// Bytes adds the value of a watched object, or of the part of it that one debug register watches.
func (v *Values) Bytes(f *Form, data []byte) {
	if f.Kind == FormBytes || len(data) > 8 {
		v.Add(event.Node{Kind: event.KindBytes, Data: v.Keep(data)})
		return
	}
	one := *f
	if one.Size != len(data) {
		one = Form{Kind: FormHex, Size: len(data)} // a part
	}
	var word [8]byte
	copy(word[:], data)
	raw := binary.LittleEndian.Uint64(word[:])
	if one.Kind == FormFloat {
		n := event.Node{Kind: event.KindFloat, Num: raw}
		if one.Size == 4 {
			n.Num, n.Attr = math.Float64bits(float64(math.Float32frombits(uint32(raw)))), event.AttrSingle
		}
		v.Add(n)
		return
	}
	v.scalar(&one, raw)
}
