package tracer

import (
	"runtime"
	"strings"
	"testing"

	"github.com/sonde-trace/sonde/internal/kerneltest"
	"github.com/sonde-trace/sonde/probe"
)

// TestTypes: values of every kind by debug data (H12), for code that is optimised and for code that is not, by both formats.
func TestTypes(t *testing.T) {
	for _, flags := range [][]string{{"-O0", "-g"}, {"-O2", "-g"}, {"-O0", "-gdwarf-4"}, {"-O1", "-gdwarf-5", "-static"}, {"-O0", "-g", "-fomit-frame-pointer"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			path := kerneltest.Compile(t, "types", flags...)
			o := Options{}
			for _, f := range []string{"use", "whole", "both", "name", "truth", "nothing"} {
				o.Probes = append(o.Probes, &probe.Spec{Source: f, Kind: probe.KindFunction, Object: path, Point: probe.Point{Text: f}})
			}
			got := traceProbes(t, o, path)
			floats := "d=1.5, f=0.25"
			if flags[0] != "-O0" {
				floats = "d=??? /* in a vector register, which the kernel does not give to a probe */, f=??? /* in a vector register, which the kernel does not give to a probe */"
			}
			for _, want := range []string{
				`types:use(p={name="demo", in={a=3, b=4}, ratio=2.5, colour=GREEN, three=5, five=9, less=-2, tag="tagged", list=[1, -2, 3, 4], next=0x`,
				`u={i=7, f=1e-44}}, v={x=7, y=-8}, ` + floats + `, text="h\303\251llo", c='Z', flag=true, most=18446744073709551615, seventh=77, eighth=-88) = `,
				`types:whole(v={x=7, y=-8}, b={v=[1, 2, 3, 4, 5]}, u='\310', s=-300, one=[11], col=BLUE, names=["first"]) = -3`,
				`types:both(x=5) = {x=5, y=-5}`, `types:name(c=GREEN) = "green"`, `types:truth(x=1) = true`, `types:nothing() = void`,
			} {
				if !strings.Contains(got, want) {
					t.Errorf("missing: %s\nin\n%s", want, got)
				}
			}
		})
		if runtime.GOARCH != "amd64" {
			break
		}
	}
}
