package attach

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/perfevent"
)

// ProbeKind says how a probe's points are attached.
type ProbeKind uint8

const (
	ProbeUser       ProbeKind = iota // uprobes: Path, Offset
	ProbeKernel                      // kprobes: Symbol, Offset
	ProbeTracepoint                  // a tracepoint: Group, Symbol
	ProbeBreak                       // a debug register: Break; armed by Arm
)

// ProbePlan is one probe: its programs and the points where they run.
type ProbePlan struct {
	Name   string // as the user wrote it, for errors
	Kind   ProbeKind
	Entry  *bpfgen.Probe // nil: only returns
	Return *bpfgen.Probe // nil: only entries
	Points []ProbePoint
}

// ProbePoint is one place.
type ProbePoint struct {
	ID     uint32 // in the records
	Path   string // of the file, as this process can open it
	Group  string // of a tracepoint
	Symbol string
	Offset uint64 // in the file, or from the symbol
	// Start is where the function begins that the point is in; its return is arranged there.
	Start uint64
	// Returns are return instructions, to be watched instead of replacing the return address; NoReturn: nothing is done for returns.
	Returns  []uint64
	NoReturn bool
	// Semaphore is the offset in the file of a counter that says that the probe is in use (USDT); 0 is none.
	Semaphore uint64
	// Break is what to watch; its address is not known before the program is mapped.
	Break perfevent.Break
}

// at lists the offsets to attach at. A return is never arranged in the middle of a function: the kernel would replace what is on the
// top of the stack there.
func (p *ProbePoint) at(ret bool) []uint64 {
	switch {
	case !ret:
		return []uint64{p.Offset}
	case p.NoReturn:
		return nil
	case len(p.Returns) > 0:
		return p.Returns
	}
	return []uint64{p.Start}
}

// probe is a plan with its loaded programs.
type probe struct {
	plan   *ProbePlan
	cookie bool
	// One program serves all points; without cookies there is one for each.
	entry, ret []*ebpf.Program
}

// maxSingle bounds the points that are attached one by one, where the kernel has neither cookies nor uprobe_multi.
const maxSingle = 10000

// haveCookies reports whether a program can ask what it was attached with (Linux 5.15).
func haveCookies() bool {
	return features.HaveProgramHelper(ebpf.Kprobe, asm.FnGetAttachCookie) == nil
}

// scratchFor is the size of the scratch buffers for the probes, at least that of the calls.
func scratchFor(scratch int, list []ProbePlan, strLimit int) int {
	for i := range list {
		for _, pr := range []*bpfgen.Probe{list[i].Entry, list[i].Return} {
			if pr != nil {
				scratch = max(scratch, bpfgen.ScratchFor(pr.Need(strLimit)))
			}
		}
	}
	return scratch
}

// keeps reports whether a probe keeps values from entry to return.
func keeps(list []ProbePlan) bool {
	for i := range list {
		if e := list[i].Entry; e != nil && e.Keep {
			return true
		}
	}
	return false
}

// probeLoadings lists the programs of the probes.
func (s *Syscalls) probeLoadings(gen *bpfgen.Syscalls, scratch int) ([]loading, error) {
	var list []loading
	cookies := len(s.opt.Probes) > 0 && haveCookies()
	for i := range s.opt.Probes {
		plan := &s.opt.Probes[i]
		p := &probe{plan: plan, cookie: cookies && plan.Kind != ProbeTracepoint && plan.Kind != ProbeBreak}
		s.probes = append(s.probes, p)
		n := len(plan.Points)
		if p.cookie && n > 1 {
			n = 1
		} else if n > maxSingle {
			return nil, fmt.Errorf("%s: %d functions; without attach cookies (Linux 5.15) this kernel can watch %d", plan.Name, n, maxSingle)
		}
		add := func(pr *bpfgen.Probe, progs *[]*ebpf.Program) {
			if pr == nil {
				return
			}
			*progs = make([]*ebpf.Program, n)
			for k := range n {
				one := *pr
				one.Cookie, one.ID = p.cookie, plan.Points[k].ID
				typ := ebpf.Kprobe
				switch plan.Kind {
				case ProbeTracepoint:
					typ = ebpf.TracePoint
				case ProbeBreak:
					typ = ebpf.PerfEvent
					one.Fetches = watched(one.Fetches, &plan.Points[k].Break)
				}
				list = append(list, loading{
					generate: func() (*bpfgen.Program, error) { return gen.CompileProbe(&one, s.opt.StrLimit, scratch) },
					user:     plan.Name,
					done:     func(prog *ebpf.Program) { (*progs)[k] = prog },
					typ:      typ,
					multi:    plan.Kind == ProbeUser && s.multi,
				})
			}
		}
		add(plan.Entry, &p.entry)
		add(plan.Return, &p.ret)
	}
	return list, nil
}

// attachProbes attaches the probes; returns before entries.
func (s *Syscalls) attachProbes() error {
	for _, p := range s.probes {
		for _, half := range []struct {
			progs []*ebpf.Program
			ret   bool
		}{{p.ret, true}, {p.entry, false}} {
			if len(half.progs) == 0 {
				continue
			}
			if err := s.attachProbe(p, half.progs, half.ret); err != nil {
				return fmt.Errorf("%s: %w", p.plan.Name, err)
			}
		}
	}
	return nil
}

func (s *Syscalls) attachProbe(p *probe, progs []*ebpf.Program, ret bool) error {
	prog := func(i int) *ebpf.Program {
		if len(progs) == 1 {
			return progs[0]
		}
		return progs[i]
	}
	switch p.plan.Kind {
	case ProbeBreak:
		return nil
	case ProbeTracepoint:
		for i, pt := range p.plan.Points {
			f, err := attachTracepoint(pt.Group, pt.Symbol, prog(i))
			if err != nil {
				return explain(fmt.Sprintf("attaching to the tracepoint %s:%s", pt.Group, pt.Symbol), err)
			}
			s.events = append(s.events, f)
		}
		return nil
	case ProbeKernel:
		for i, pt := range p.plan.Points {
			o := &link.KprobeOptions{Offset: pt.Offset}
			if p.cookie {
				o.Cookie = uint64(pt.ID)
			}
			attach := link.Kprobe
			if ret {
				attach = link.Kretprobe
			}
			l, err := attach(pt.Symbol, prog(i), o)
			if err != nil {
				return explain(fmt.Sprintf("attaching to the kernel function %s", pt.Symbol), err)
			}
			s.probeLinks = append(s.probeLinks, l)
		}
		return nil
	}
	byPath := make(map[string][]int)
	var paths []string
	for i := range p.plan.Points {
		path := p.plan.Points[i].Path
		if byPath[path] == nil {
			paths = append(paths, path)
		}
		byPath[path] = append(byPath[path], i)
	}
	for _, path := range paths {
		ex, err := link.OpenExecutable(path)
		if err != nil {
			return err
		}
		if s.multi && p.cookie {
			if err := s.attachMulti(ex, p, byPath[path], prog(0), ret); err != nil {
				return explain(fmt.Sprintf("attaching to %d functions of %s", len(byPath[path]), path), err)
			}
			continue
		}
		for _, i := range byPath[path] {
			pt := &p.plan.Points[i]
			for _, off := range pt.at(ret) {
				o := &link.UprobeOptions{Address: off, RefCtrOffset: pt.Semaphore}
				if p.cookie {
					o.Cookie = uint64(pt.ID)
				}
				attach := ex.Uprobe
				if ret && len(pt.Returns) == 0 {
					attach = ex.Uretprobe
				}
				l, err := attach("", prog(i), o)
				if err != nil {
					return explain(fmt.Sprintf("attaching to %s at %#x", path, off), err)
				}
				s.probeLinks = append(s.probeLinks, l)
			}
		}
	}
	return nil
}

func (s *Syscalls) attachMulti(ex *link.Executable, p *probe, points []int, prog *ebpf.Program, ret bool) error {
	o := &link.UprobeMultiOptions{}
	semaphores, instructions := false, false
	for _, i := range points {
		pt := &p.plan.Points[i]
		for _, off := range pt.at(ret) {
			o.Addresses = append(o.Addresses, off)
			o.Cookies = append(o.Cookies, uint64(pt.ID))
			o.RefCtrOffsets = append(o.RefCtrOffsets, pt.Semaphore)
		}
		semaphores = semaphores || pt.Semaphore != 0
		instructions = instructions || len(pt.Returns) > 0
	}
	if len(o.Addresses) == 0 {
		return nil
	}
	if !semaphores {
		o.RefCtrOffsets = nil
	}
	attach := ex.UprobeMulti
	if ret && !instructions {
		attach = ex.UretprobeMulti
	}
	l, err := attach(nil, prog, o)
	if err != nil {
		return err
	}
	s.probeLinks = append(s.probeLinks, l)
	return nil
}

// attachTracepoint runs a program at a tracepoint of the kernel until the returned file is closed: on every CPU, although the
// event is opened for one (perf_event_set_bpf_prog in kernel/events/core.c attaches to the tracepoint).
func attachTracepoint(group, name string, prog *ebpf.Program) (io.Closer, error) {
	dir, done, err := Tracefs()
	if err != nil {
		return nil, err
	}
	defer done()
	b, err := os.ReadFile(filepath.Join(dir, "events", group, name, "id"))
	if err != nil {
		return nil, err
	}
	id, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32)
	if err != nil {
		return nil, err
	}
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Sample: 1, Sample_type: unix.PERF_SAMPLE_RAW, Wakeup: 1}
	fd, err := unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("perf_event_open: %w", err)
	}
	f := os.NewFile(uintptr(fd), "tracepoint")
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, prog.FD()); err != nil {
		f.Close()
		return nil, fmt.Errorf("attaching the program: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("enabling the event: %w", err)
	}
	return f, nil
}

// closeProbes unloads the programs of probes.
func (s *Syscalls) closeProbes() (errs []error) {
	for _, p := range s.probes {
		for _, prog := range append(p.entry, p.ret...) {
			if prog != nil {
				errs = append(errs, prog.Close())
			}
		}
	}
	return errs
}

// Missed sums, over the programs of probes, the hits that the kernel skipped.
func (s *Syscalls) probesMissed() (n uint64) {
	for _, p := range s.probes {
		for _, prog := range append(p.entry, p.ret...) {
			if prog != nil {
				if st, err := prog.Stats(); err == nil {
					n += st.RecursionMisses
				}
			}
		}
	}
	return n
}

// closeLinks closes links from the last to the first, several at a time: each waits until no CPU runs the program any more.
func closeLinks(links []link.Link) error {
	const parallel = 16
	errs := make([]error, len(links))
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i := len(links) - 1; i >= 0; i-- {
		slots <- struct{}{}
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = links[i].Close()
			<-slots
		}()
	}
	wg.Wait()
	return errors.Join(errs...)
}

// TracepointFormat returns the text of a tracepoint's format file, which says what its record holds
// (Documentation/trace/events.rst).
func TracepointFormat(group, name string) (string, error) {
	if strings.ContainsAny(group+name, "/\x00") {
		return "", fmt.Errorf("tracepoint %s:%s: no such tracepoint", group, name)
	}
	dir, done, err := Tracefs()
	if err != nil {
		return "", fmt.Errorf("tracepoint %s:%s: %w", group, name, err)
	}
	defer done()
	b, err := os.ReadFile(filepath.Join(dir, "events", group, name, "format"))
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("tracepoint %s:%s: no such tracepoint", group, name)
	}
	return string(b), err
}

// Tracefs finds the tracing file system, or mounts it where only this process sees it. done releases that mount.
func Tracefs() (dir string, done func(), err error) {
	for _, dir := range tracefsMounts() {
		if _, err := os.Stat(filepath.Join(dir, "events")); err == nil {
			return dir, func() {}, nil
		}
	}
	mnt, err := openTracefs()
	if err != nil {
		return "", nil, fmt.Errorf("tracefs is not mounted and cannot be opened: %w; mount -t tracefs tracefs /sys/kernel/tracing", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", mnt), func() { unix.Close(mnt) }, nil
}
