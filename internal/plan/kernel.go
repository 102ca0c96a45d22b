package plan

import (
	"fmt"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/probe"
)

// kernel resolves a kernel function. The kernel itself knows whether it has one of that name.
func (p *Plan) kernel(env *Env) error {
	pt := &p.Spec.Point
	if pt.Match != probe.MatchExact {
		return fmt.Errorf("a kernel function is named whole: kernel:NAME")
	}
	if pt.Offset < 0 {
		return fmt.Errorf("an offset of %d bytes is before the function", pt.Offset)
	}
	p.Object = "kernel"
	name := pt.Text
	if pt.Offset != 0 {
		name = fmt.Sprintf("%s+%#x", name, pt.Offset)
	}
	p.Points = []Point{{Name: name, Symbol: pt.Text, Offset: uint64(pt.Offset)}}
	when := p.Spec.When
	if pt.Offset != 0 && (when == probe.WhenReturn || when == probe.WhenBoth) {
		return fmt.Errorf("only the return of a whole function can be watched")
	}
	if when == probe.WhenDefault {
		if when = probe.WhenBoth; pt.Offset != 0 {
			when = probe.WhenEntry
		}
	}
	p.Both, p.Return = when == probe.WhenBoth, when == probe.WhenReturn
	if err := p.values(nil, env, when); err != nil {
		return err
	}
	for _, pr := range []*bpfgen.Probe{p.Entry, p.Exit} {
		if pr != nil {
			pr.Kernel = true
		}
	}
	return nil
}
