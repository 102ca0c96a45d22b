package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/near"
	"github.com/sonde-trace/sonde/probe"
)

// Field is a field of a tracepoint's record, as its format file says (Documentation/trace/events.rst).
type Field struct {
	Type    string
	Name    string
	Off     int
	Size    int
	Signed  bool
	Array   bool
	Dynamic bool // __data_loc: place and length of data behind the record's fixed part
}

// fieldLine is one field of a format file.
var fieldLine = pattern(`^\s*field:(.+?);\s*offset:(\d+);\s*size:(\d+);(?:\s*signed:(\d+);)?`)

// ParseFormat reads a format file. The common fields of all tracepoints are left out.
func ParseFormat(text string) ([]Field, error) {
	var list []Field
	for line := range strings.Lines(text) {
		m := fieldLine().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		decl := strings.TrimSpace(m[1])
		f := Field{Signed: m[4] == "1"}
		var err1, err2 error
		f.Off, err1 = strconv.Atoi(m[2])
		f.Size, err2 = strconv.Atoi(m[3])
		if err1 != nil || err2 != nil || f.Off > 1<<15 || f.Size > 1<<15 {
			return nil, fmt.Errorf("field %q: offset %s and size %s are impossible", decl, m[2], m[3])
		}
		if rest, ok := strings.CutPrefix(decl, "__data_loc "); ok {
			decl, f.Dynamic = rest, true
		} else if strings.HasPrefix(decl, "__rel_loc ") {
			continue // relative places: no tracepoint of the kernel's own has them
		}
		if i := strings.IndexByte(decl, '['); i >= 0 {
			f.Array = true
			if j := strings.IndexByte(decl[i:], ']'); j >= 0 {
				decl = decl[:i] + decl[i+j+1:]
			}
		}
		i := strings.LastIndexAny(strings.TrimSpace(decl), " *")
		if i < 0 {
			return nil, fmt.Errorf("field %q has no type", decl)
		}
		decl = strings.TrimSpace(decl)
		f.Type, f.Name = strings.TrimSpace(decl[:i+1]), decl[i+1:]
		if strings.HasPrefix(f.Name, "common_") {
			continue
		}
		list = append(list, f)
	}
	return list, nil
}

// maxDynamic bounds what is taken of dynamic data.
const maxDynamic = 4096

// tracepoint resolves a kernel tracepoint: its fields are the arguments.
func (p *Plan) tracepoint(env *Env) error {
	group, name := p.Spec.Object, p.Spec.Point.Text
	if p.Spec.Point.Match != probe.MatchExact {
		return fmt.Errorf("a tracepoint is named whole: tp:GROUP:NAME")
	}
	if p.Spec.When == probe.WhenReturn || p.Spec.When == probe.WhenBoth {
		return fmt.Errorf("a tracepoint has no return")
	}
	text, err := env.TracepointFormat(group, name)
	if err != nil {
		return err
	}
	fields, err := ParseFormat(text)
	if err != nil {
		return fmt.Errorf("the format of tracepoint %s:%s: %w", group, name, err)
	}
	p.Object = group
	p.Points = []Point{{Name: name, Group: group, Symbol: name}}
	if p.Spec.Typed {
		var chosen []Field
		for _, a := range p.Spec.Args {
			i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == a.Name })
			if i < 0 {
				names := make([]string, len(fields))
				for i := range fields {
					names[i] = fields[i].Name
				}
				return &Error{Expr: p.Spec.Source, Msg: fmt.Sprintf("tracepoint %s:%s has no field %s, but %s", group, name, a.Name, strings.Join(names, ", ")), Near: near.Names(a.Name, slices.Values(names))}
			}
			chosen = append(chosen, fields[i])
		}
		fields = chosen
	}
	pr := &bpfgen.Probe{Tracepoint: true}
	t := &taker{limit: env.StrLimit}
	for _, f := range fields {
		char := strings.HasSuffix(f.Type, "char") && (f.Array || f.Dynamic)
		switch {
		case f.Dynamic:
			pr.Fields = append(pr.Fields, bpfgen.Field{Off: f.Off, Len: maxDynamic, Dynamic: true})
			p.Args = append(p.Args, Arg{Name: f.Name, Form: Form{Kind: FormField, Addr: uint64(f.Off), Text: char}})
		case f.Array || f.Size != 1 && f.Size != 2 && f.Size != 4 && f.Size != 8:
			pr.Fields = append(pr.Fields, bpfgen.Field{Off: f.Off, Len: f.Size})
			p.Args = append(p.Args, Arg{Name: f.Name, Form: Form{Kind: FormField, Addr: uint64(f.Off), Text: char}})
		default:
			if t.full() {
				p.Notes = append(p.Notes, fmt.Sprintf("field %s is left out: one record holds no more", f.Name))
				continue
			}
			form := Form{Kind: FormInt, Size: f.Size, Signed: f.Signed}
			switch {
			case strings.HasSuffix(f.Type, "*"):
				form = Form{Kind: FormPtr, Size: f.Size}
			case f.Type == "bool":
				form = Form{Kind: FormBool, Size: f.Size}
			case strings.Contains(f.Name, "flags") || f.Type == "gfp_t":
				form = Form{Kind: FormHex, Size: f.Size}
			}
			slot := t.slot(bpfgen.Word{Record: true, Reg: f.Off, Width: uint8(f.Size), Signed: f.Signed})
			p.Args = append(p.Args, Arg{Name: f.Name, Slot: slot, Form: form})
		}
	}
	pr.Slots, pr.Fetches = t.words, t.fetches
	p.Entry = pr
	return nil
}
