package symbol

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/event"
)

// Bounds of what a process can make us read.
const (
	maxJITFile = 512 << 20
	maxJITRows = 4 << 20
	maxJITText = 256 << 20 // names
	maxJITs    = 256       // processes
)

// jit is the code that a process made at run time, as it tells in a file. It is read again when the file grew and an address is
// not known.
type jit struct {
	mu    sync.Mutex
	path  string
	size  int64
	mtime int64
	rows  []jitRow // by address, then as in the file
	names []byte
	lines []jitLine // by address
}

type jitRow struct {
	addr uint64
	size uint32
	name uint32 // place in names, which end with a zero
	time uint64 // of a dump, CLOCK_MONOTONIC; 0 in a map
}

type jitLine struct {
	addr uint64
	file uint32
	line uint32
}

// jitKey tells processes apart that had one pid.
type jitKey struct {
	pid   uint32
	start uint64
}

// Generated names code that a process made at run time, in memory without a file, by the map (/tmp/perf-PID.map) or the dump
// (jit-PID.dump) that its compiler leaves. t is the time of the event on CLOCK_MONOTONIC, by which a dump tells apart what stood at
// an address; call says that addr is a return address. The module of the frame is "[jit]".
func (r *Resolver) Generated(pid uint32, t, addr uint64, call bool) (event.Frame, bool) {
	key := jitKey{pid, startTime(pid)}
	r.mu.Lock()
	j := r.jits[key]
	if j == nil {
		if len(r.jits) >= maxJITs {
			clear(r.jits)
		}
		j = &jit{}
		r.jits[key] = j
	}
	r.mu.Unlock()
	pc := addr
	if call {
		pc--
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	f, ok := j.frame(t, pc)
	if !ok && j.load(pid) {
		f, ok = j.frame(t, pc)
	}
	f.Addr, f.Offset = addr, addr // there is no file to count from
	if ok && call {
		f.FuncOff++
	}
	return f, ok
}

// startTime is field 22 of proc_pid_stat(5); 0 when the process is gone.
func startTime(pid uint32) (t uint64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	if f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])); len(f) > 19 {
		t, _ = strconv.ParseUint(f[19], 10, 64)
	}
	return t
}

// load reads the file of a process if it changed; the result says whether it did.
func (j *jit) load(pid uint32) bool {
	root := fmt.Sprintf("/proc/%d/root", pid)
	maps, err := ReadMaps(int(pid))
	if err != nil { // it has ended; its map may be where we see it too
		return j.read(fmt.Sprintf("/tmp/perf-%d.map", pid), false)
	}
	path, dump := fmt.Sprintf("%s/tmp/perf-%d.map", root, nsPid(pid)), false
	for i := range maps { // the compiler maps its dump, as a mark
		if base := filepath.Base(maps[i].Path); strings.HasPrefix(base, "jit-") && strings.HasSuffix(base, ".dump") {
			path, dump = root+maps[i].Path, true
		}
	}
	return j.read(path, dump)
}

// nsPid is the pid of a process in its own namespace, by which it names its files.
func nsPid(pid uint32) uint32 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return pid
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			if ids := strings.Fields(rest); len(ids) > 0 {
				fmt.Sscan(ids[len(ids)-1], &pid)
			}
		}
	}
	return pid
}

func (j *jit) read(path string, dump bool) bool {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || j.path == path && j.size == st.Size() && j.mtime == st.ModTime().UnixNano() {
		return false
	}
	b, err := io.ReadAll(io.LimitReader(f, maxJITFile))
	if err != nil {
		return false
	}
	j.path, j.size, j.mtime = path, st.Size(), st.ModTime().UnixNano()
	j.rows, j.names, j.lines = nil, nil, nil
	if dump {
		j.readDump(b)
	} else {
		j.readMap(b)
	}
	return true
}

func (j *jit) add(addr, size, time uint64, name []byte) {
	if size == 0 || size > 1<<32-1 || len(j.rows) >= maxJITRows || len(j.names)+len(name) > maxJITText || len(name) > 64<<10 {
		return
	}
	j.rows = append(j.rows, jitRow{addr, uint32(size), uint32(len(j.names)), time})
	j.names = append(append(j.names, name...), 0)
}

// readMap reads the format of perf's tools/perf/Documentation/jit-interface.txt: START SIZE NAME, numbers in hexadecimal.
func (j *jit) readMap(b []byte) {
	for len(b) > 0 {
		line := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		start, rest, ok := bytes.Cut(line, []byte(" "))
		size, name, ok2 := bytes.Cut(rest, []byte(" "))
		addr, ok3 := parseHex(bytes.TrimPrefix(start, []byte("0x")))
		n, ok4 := parseHex(bytes.TrimPrefix(size, []byte("0x")))
		if ok && ok2 && ok3 && ok4 && len(name) > 0 {
			j.add(addr, n, 0, bytes.ReplaceAll(name, []byte{0}, []byte("?")))
		}
	}
	j.sort()
}

func (j *jit) sort() {
	slices.SortStableFunc(j.rows, func(a, b jitRow) int { return cmp.Compare(a.addr, b.addr) })
	slices.SortStableFunc(j.lines, func(a, b jitLine) int { return cmp.Compare(a.addr, b.addr) })
}

// Records of a dump, tools/perf/Documentation/jitdump-specification.txt.
const (
	jitMagic     = 0x4a695444
	jitLoad      = 0
	jitMove      = 1
	jitDebugInfo = 2
)

func (j *jit) readDump(b []byte) {
	var o binary.ByteOrder = binary.LittleEndian
	if len(b) < 40 {
		return
	}
	if o.Uint32(b) != jitMagic {
		if o = binary.BigEndian; o.Uint32(b) != jitMagic {
			return
		}
	}
	head := o.Uint32(b[8:])
	if head < 40 || uint64(head) > uint64(len(b)) {
		return
	}
	for b = b[head:]; len(b) >= 16; {
		id, size, time := o.Uint32(b), o.Uint32(b[4:]), o.Uint64(b[8:])
		if size < 16 || uint64(size) > uint64(len(b)) {
			break // the writer is not ready with it
		}
		body := b[16:size]
		b = b[size:]
		switch {
		case id == jitLoad && len(body) > 40:
			if name, _, ok := bytes.Cut(body[40:], []byte{0}); ok {
				j.add(o.Uint64(body[16:]), o.Uint64(body[24:]), time, name)
			}
		case id == jitMove && len(body) >= 48:
			from, to, n := o.Uint64(body[16:]), o.Uint64(body[24:]), o.Uint64(body[32:])
			for i := len(j.rows) - 1; i >= 0 && i > len(j.rows)-100_000; i-- {
				if j.rows[i].addr == from {
					j.add(to, n, time, j.nameAt(j.rows[i].name))
					break
				}
			}
		case id == jitDebugInfo && len(body) >= 16:
			n := o.Uint64(body[8:])
			for e := body[16:]; n > 0 && len(e) > 16 && len(j.lines) < maxJITRows; n-- {
				file, rest, ok := bytes.Cut(e[16:], []byte{0})
				if !ok || len(j.names)+len(file) > maxJITText || len(file) > 64<<10 {
					break
				}
				l := jitLine{o.Uint64(e), uint32(len(j.names)), o.Uint32(e[8:])}
				if k := len(j.lines) - 1; k >= 0 && (string(file) == "\xff" || bytes.Equal(j.nameAt(j.lines[k].file), file)) {
					l.file = j.lines[k].file
				} else {
					j.names = append(append(j.names, file...), 0)
				}
				j.lines = append(j.lines, l)
				e = rest
			}
		}
	}
	j.sort()
}

func (j *jit) nameAt(at uint32) []byte {
	b := j.names[at:]
	return b[:bytes.IndexByte(b, 0)]
}

// frame finds the last that was written of those at pc, and made before t where the file says when.
func (j *jit) frame(t, pc uint64) (f event.Frame, ok bool) {
	i, _ := slices.BinarySearchFunc(j.rows, pc, func(r jitRow, pc uint64) int {
		if r.addr <= pc {
			return -1
		}
		return 1
	})
	best := -1
	for n := 0; i > 0 && n < 256; n++ {
		i--
		if r := &j.rows[i]; pc-r.addr < uint64(r.size) && (best < 0 || r.time > j.rows[best].time && r.time <= t || j.rows[best].time > t) {
			best = i
		}
	}
	if best < 0 {
		return f, false
	}
	r := j.rows[best]
	f = event.Frame{Module: "[jit]", Func: string(j.nameAt(r.name)), FuncOff: pc - r.addr}
	k, _ := slices.BinarySearchFunc(j.lines, pc, func(l jitLine, pc uint64) int {
		if l.addr <= pc {
			return -1
		}
		return 1
	})
	if k > 0 && j.lines[k-1].addr >= r.addr {
		f.File, f.Line = filepath.Clean(string(j.nameAt(j.lines[k-1].file))), int(j.lines[k-1].line)
	}
	return f, true
}
