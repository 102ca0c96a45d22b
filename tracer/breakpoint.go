package tracer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/insn"
	"github.com/sonde-trace/sonde/internal/plan"
	"github.com/sonde-trace/sonde/internal/symbol"
	"github.com/sonde-trace/sonde/internal/wire"
	"github.com/sonde-trace/sonde/perfevent"
	"github.com/sonde-trace/sonde/probe"
)

// breakpoints reports whether any probe wants debug registers.
func (t *probeTable) breakpoints() bool {
	if t == nil {
		return false
	}
	for _, p := range t.plans {
		if p.Break != nil {
			return true
		}
	}
	return false
}

// arm finds the places of the breakpoints in a process and arms them in all its threads, and notes what they watch.
func (s *Session) arm(pid uint32) error {
	maps, err := symbol.ReadMaps(int(pid))
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	addrs := make(map[uint32]uint64)
	var order []uint32
	for i, p := range s.probes.plans {
		if p.Break == nil {
			continue
		}
		bias, err := breakBias(p, pid, maps)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Source, err)
		}
		for k := range p.Points {
			id := s.probes.first[i] + uint32(k)
			addrs[id] = p.Points[k].Offset + bias
			order = append(order, id)
		}
	}
	code := codeLines(maps)
	for _, id := range order {
		r := armedRecord(pid, id, addrs[id], s.watchedNow(pid, id, addrs[id]), code)
		s.learned = append(s.learned, r...)
		s.asm.armed(r)
	}
	return s.sys.Arm(pid, addrs)
}

// breakBias is what is to be added to the addresses of a plan.
func breakBias(p *plan.Plan, pid uint32, maps []symbol.Mapping) (uint64, error) {
	if p.Break.Absolute {
		return 0, nil
	}
	var st unix.Stat_t
	if err := unix.Stat(p.Path, &st); err != nil {
		return 0, fmt.Errorf("%s: %w", p.Path, err)
	}
	for i := range maps {
		m := &maps[i]
		if m.Ino != st.Ino {
			continue
		}
		// Some file systems give mappings another device than stat does: the file behind the mapping decides.
		var mst unix.Stat_t
		if err := unix.Stat(symbol.MappedPath(pid, m), &mst); err == nil && (mst.Dev != st.Dev || mst.Ino != st.Ino) {
			continue
		}
		if bias, ok := p.Break.Place(m.Start, m.Off); ok {
			return bias, nil
		}
	}
	return 0, fmt.Errorf("%s is not mapped in process %d: breakpoints in libraries that come later, by dlopen, are not armed", p.Object, pid)
}

// watchedNow reads what a point watches.
func (s *Session) watchedNow(pid, id uint32, addr uint64) []byte {
	p, _, point, _ := s.probes.lookup(id)
	b := make([]byte, p.Points[point].Len)
	if len(b) == 0 {
		return nil
	}
	local := unix.Iovec{Base: &b[0]}
	local.SetLen(len(b))
	n, err := unix.ProcessVMReadv(int(pid), []unix.Iovec{local}, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}, 0)
	if err != nil || n < len(b) {
		return nil // not readable: the first hit shows no old value
	}
	return b
}

// codeLines says which files the code of a process comes from.
func codeLines(maps []symbol.Mapping) []byte {
	var b bytes.Buffer
	for i := range maps {
		if m := &maps[i]; m.Exec && m.Path != "" {
			fmt.Fprintf(&b, "%x %x %x %s\n", m.Start, m.End, m.Off, strings.ReplaceAll(m.Path, "\n", `\012`))
		}
	}
	return b.Bytes()
}

// armedRecord makes the record of a breakpoint that was armed.
func armedRecord(pid, id uint32, addr uint64, value, code []byte) wire.Record {
	le := binary.LittleEndian
	r := make([]byte, wire.HeaderSize+8*(wire.FirstSlot+1))
	r[wire.OffKind], r[wire.OffSlots] = byte(wire.Break), wire.FirstSlot+1
	le.PutUint64(r[wire.OffTime:], monotonic())
	le.PutUint32(r[wire.OffProbe:], id)
	le.PutUint32(r[wire.OffTid:], pid)
	le.PutUint32(r[wire.OffTgid:], pid)
	le.PutUint64(r[wire.HeaderSize+8*wire.FirstSlot:], addr)
	for _, seg := range []struct {
		addr uint64
		data []byte
	}{{addr, value}, {0, code}} {
		if len(seg.data) == 0 {
			continue
		}
		r = le.AppendUint64(r, seg.addr)
		r = le.AppendUint32(r, uint32(len(seg.data)))
		r = le.AppendUint32(r, 0)
		r = append(r, seg.data...)
		for len(r)%8 != 0 {
			r = append(r, 0)
		}
	}
	le.PutUint32(r[wire.OffSize:], uint32(len(r)))
	return r
}

// breaks is what is known of watched memory and of the code around it.
type breaks struct {
	values map[watch][]byte
	code   map[uint32][]codeRange // by process
	names  *symbol.Resolver
	known  map[string]*symbol.Module
}

// watch is a watched piece of memory of a process.
type watch struct{ pid, id uint32 }

type codeRange struct {
	start, end, off uint64
	path            string
}

// maxWatches bounds what is remembered: children of a process have memory of their own.
const maxWatches = 1 << 16

// armed takes the record of a breakpoint that was armed.
func (a *assembler) armed(r wire.Record) {
	b := &a.breaks
	if b.values == nil {
		b.values, b.code, b.known = make(map[watch][]byte), make(map[uint32][]codeRange), make(map[string]*symbol.Module)
		b.names = symbol.New(symbol.Options{})
	}
	if _, _, _, ok := a.probes.lookup(r.Probe()); !ok || r.NSlots() <= wire.FirstSlot || len(b.values) >= maxWatches {
		a.bad++
		return
	}
	addr, _ := r.Slot(wire.FirstSlot)
	segments := r.Segments()
	if data, _, errno, ok := segments.Find(addr); ok && errno == 0 {
		b.values[watch{r.Tgid(), r.Probe()}] = bytes.Clone(data)
	}
	if b.code[r.Tgid()] != nil {
		return
	}
	text, _, _, _ := segments.Find(0)
	for line := range strings.Lines(string(text)) {
		var c codeRange
		if n, _ := fmt.Sscanf(line, "%x %x %x", &c.start, &c.end, &c.off); n != 3 {
			continue
		}
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(f) == 4 {
			c.path = f[3]
			b.code[r.Tgid()] = append(b.code[r.Tgid()], c)
		}
	}
}

// where names a place in the code of a process: function+0x12, or module+0x1234.
func (b *breaks) where(pid uint32, addr uint64) string {
	for _, c := range b.code[pid] {
		if addr < c.start || addr >= c.end {
			continue
		}
		mod, ok := b.known[c.path]
		if !ok {
			root := ""
			if _, err := os.Stat(fmt.Sprintf("/proc/%d/root", pid)); err == nil {
				root = fmt.Sprintf("/proc/%d/root", pid)
			}
			var err error
			if mod, err = b.names.Open(c.path, c.path, root); err != nil {
				mod = nil
			}
			b.known[c.path] = mod
		}
		off := addr - c.start + c.off
		name := c.path[strings.LastIndexByte(c.path, '/')+1:]
		if mod == nil {
			return fmt.Sprintf("%s+%#x", name, off)
		}
		frames := b.names.Frames(nil, mod, event.Frame{Addr: addr, Module: c.path, Offset: off}, false)
		if len(frames) == 0 || frames[len(frames)-1].Func == "" {
			return fmt.Sprintf("%s+%#x", name, off)
		}
		f := &frames[len(frames)-1]
		return fmt.Sprintf("%s+%#x", f.Func, f.FuncOff)
	}
	return fmt.Sprintf("%#x", addr)
}

// breakEvent fills an event with a hit of a breakpoint.
func (a *assembler) breakEvent(e *event.Event, it *item) *event.Event {
	p, v := it.plan, &a.values
	v.Rec = it.enter
	ip := v.Rec.IP()
	if p.Kind == probe.KindWatch && p.Break.Mode != perfevent.ModeExecute {
		ip = a.watchEvent(it)
		e.IP = ip
	} else {
		v.Args(p.Args)
	}
	v.Field("at").Add(event.Node{Kind: event.KindString, Data: v.Keep([]byte(a.breaks.where(v.Rec.Tgid(), ip)))})
	e.Args = v.Nodes
	e.NArgs = countTop(e.Args)
	return e
}

// watchEvent adds the values and the instruction of a watchpoint and returns the address of the instruction.
func (a *assembler) watchEvent(it *item) uint64 {
	p, v := it.plan, &a.values
	r := v.Rec
	arch, size := a.probes.arch, p.Points[it.point].Len
	ip := r.IP()
	if r.NSlots() <= plan.BreakRegs {
		v.Field("value").Add(event.Node{Kind: event.KindUnreadable})
		return ip
	}
	addr, _ := r.Slot(plan.BreakAddr)
	codeAt, _ := r.Slot(plan.BreakCode)
	segments := r.Segments()
	now, _, errno, read := segments.Find(addr)
	read = read && errno == 0 && uint64(len(now)) >= size
	if read {
		now = now[:size]
	}
	code, _, _, _ := segments.Find(codeAt)
	known := len(plan.BreakRegNames(arch))
	access, found := insn.Find(arch, code, ip, addr, size, func(n int) (uint64, bool) {
		if n == 31 {
			return r.Slot(wire.SlotSP)
		}
		if n < 0 || n >= known || plan.BreakRegs+n >= r.NSlots() {
			return 0, false
		}
		return r.Slot(plan.BreakRegs + n)
	})
	key := watch{r.Tgid(), r.Probe()}
	before, after := a.breaks.values[key], now
	hadBefore, hasAfter := before != nil && uint64(len(before)) == size, read
	if arch == "arm64" {
		// The access has not happened yet.
		before, hadBefore, hasAfter = now, read, false
		if found && read && access.Store {
			after, hasAfter = access.After(addr, now)
		} else if found && !access.Store {
			after, hasAfter = now, read
		}
	}
	value := func(data []byte, ok bool) {
		if !ok {
			v.Add(event.Node{Kind: event.KindUnreadable, Num: 0, Errno: errno})
			return
		}
		v.Bytes(&p.Break.Form, data)
	}
	if found && !access.Store && p.Break.Mode != perfevent.ModeWrite {
		v.Field("read")
		value(after, hasAfter)
	} else {
		v.Field("value").Begin(event.Node{Kind: event.KindChange})
		value(before, hadBefore)
		value(after, hasAfter)
		v.End()
	}
	if a.breaks.values != nil {
		if hasAfter && (a.breaks.values[key] != nil || len(a.breaks.values) < maxWatches) {
			a.breaks.values[key] = append(a.breaks.values[key][:0], after...)
		} else {
			delete(a.breaks.values, key)
		}
	}
	if found {
		ip = access.Addr
		v.Field("insn").Add(event.Node{Kind: event.KindString, Data: v.Keep([]byte(access.Text))})
	}
	return ip
}
