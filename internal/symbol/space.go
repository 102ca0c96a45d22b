package symbol

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mapping is a range of addresses of a process.
type Mapping struct {
	Start, End uint64
	Off        uint64 // in the file
	Exec       bool
	Dev, Ino   uint64 // of the file, as the mapping has it: 0 for anonymous memory
	Path       string // as the process sees it, "[vdso]", or empty
	Deleted    bool   // the name is gone, or is that of another file
}

// ReadMaps reads /proc/PID/maps.
func ReadMaps(pid int) ([]Mapping, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseMaps(f)
}

// parseMaps reads the format of /proc/PID/maps, proc_pid_maps(5). Newlines in names come as \012.
func parseMaps(r io.Reader) (out []Mapping, err error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 16<<10), 64<<10)
	for sc.Scan() {
		if m, ok := parseMapping(sc.Bytes()); ok {
			out = append(out, m)
		}
	}
	return out, sc.Err()
}

func parseMapping(line []byte) (m Mapping, ok bool) {
	field := func() []byte {
		line = bytes.TrimLeft(line, " ")
		i := bytes.IndexByte(line, ' ')
		if i < 0 {
			i = len(line)
		}
		f := line[:i]
		line = line[i:]
		return f
	}
	lo, hi, dash := bytes.Cut(field(), []byte("-"))
	perm, off, dev, ino := field(), field(), field(), field()
	var ok1, ok2, ok3 bool
	m.Start, ok1 = parseHex(lo)
	m.End, ok2 = parseHex(hi)
	m.Off, ok3 = parseHex(off)
	if !dash || !ok1 || !ok2 || !ok3 || len(perm) < 4 || m.End <= m.Start {
		return m, false
	}
	m.Exec = perm[2] == 'x'
	major, minor, _ := bytes.Cut(dev, []byte(":"))
	a, _ := parseHex(major)
	b, _ := parseHex(minor)
	m.Dev = unix.Mkdev(uint32(a), uint32(b))
	m.Ino, _ = strconv.ParseUint(string(ino), 10, 64)
	m.Path = strings.ReplaceAll(string(bytes.TrimLeft(line, " ")), `\012`, "\n")
	if p, gone := strings.CutSuffix(m.Path, " (deleted)"); gone {
		m.Path, m.Deleted = p, true
	}
	return m, true
}

// part is the part of m between lo and hi.
func (m Mapping) part(lo, hi uint64) Mapping {
	if m.Ino != 0 || m.Path != "" {
		m.Off += lo - m.Start
	}
	m.Start, m.End = lo, hi
	return m
}

// span of time in which a mapping existed.
type mapped struct {
	Mapping
	from, to uint64
}

// maxPast bounds how many mappings that ended a space remembers.
const maxPast = 64 << 10

// Space is what one process had mapped, by time. It takes changes with their times, also late ones, and answers for any time that was
// not forgotten. Times are of one clock, any unit. It is not safe for concurrent use.
type Space struct {
	Pid  uint32
	live []mapped // by address, none over another
	past []mapped // in the order in which they ended here
}

// Map records that m was mapped at time t, over what was there.
func (s *Space) Map(t uint64, m Mapping) {
	if m.End <= m.Start {
		return
	}
	s.cut(t, m.Start, m.End, &m)
}

// Unmap records that nothing is mapped in a range from t on.
func (s *Space) Unmap(t, start, end uint64) {
	if end > start {
		s.cut(t, start, end, nil)
	}
}

// Exec records that the process got a new address space at t; so does Exit, after which nothing is mapped.
func (s *Space) Exec(t uint64) { s.cut(t, 0, ^uint64(0), nil) }

// Exit records the end of the process.
func (s *Space) Exit(t uint64) { s.Exec(t) }

// Fork gives the space of a child that was made at t.
func (s *Space) Fork(t uint64, child uint32) *Space {
	c := &Space{Pid: child}
	for _, list := range [][]mapped{s.live, s.past} {
		for _, m := range list {
			if m.from <= t && t < m.to {
				c.live = append(c.live, mapped{m.Mapping, t, ^uint64(0)})
			}
		}
	}
	slices.SortFunc(c.live, func(a, b mapped) int { return cmp.Compare(a.Start, b.Start) })
	return c
}

// cut ends at t what is in a range, and puts m there. What began after t stays: the change comes late, and lasted to there.
func (s *Space) cut(t, start, end uint64, m *Mapping) {
	i, _ := slices.BinarySearchFunc(s.live, start, func(x mapped, at uint64) int {
		if x.End <= at {
			return -1
		}
		return 1
	})
	j := i
	var put []mapped
	at := start // m is placed up to here
	for ; j < len(s.live) && s.live[j].Start < end; j++ {
		x := s.live[j]
		lo, hi := max(x.Start, start), min(x.End, end)
		if x.from > t {
			if m != nil {
				if lo > at {
					put = append(put, mapped{m.part(at, lo), t, ^uint64(0)})
				}
				s.end(mapped{m.part(lo, hi), t, x.from})
			}
			put, at = append(put, x), hi
			continue
		}
		if x.Start < start {
			put = append(put, mapped{x.part(x.Start, start), x.from, x.to})
		}
		s.end(mapped{x.part(lo, hi), x.from, t})
		if x.End > end {
			if m != nil && at < end {
				put = append(put, mapped{m.part(at, end), t, ^uint64(0)})
			}
			put, at = append(put, mapped{x.part(end, x.End), x.from, x.to}), end
		}
	}
	if m != nil && at < end {
		put = append(put, mapped{m.part(at, end), t, ^uint64(0)})
	}
	s.live = slices.Replace(s.live, i, j, put...)
}

func (s *Space) end(m mapped) {
	if m.to <= m.from {
		return
	}
	if len(s.past) >= maxPast {
		s.past = slices.Delete(s.past, 0, maxPast/4)
	}
	s.past = append(s.past, m)
}

// Snapshot takes a reading of /proc/PID/maps at time t. What events said already is kept; the rest is taken to have been there
// always.
func (s *Space) Snapshot(t uint64, maps []Mapping) {
	for _, m := range maps {
		at := m.Start
		for _, x := range slices.Clone(s.overlap(m.Start, m.End)) {
			if x.Start > at {
				s.Map(0, m.part(at, x.Start))
			}
			if p := m.part(max(m.Start, x.Start), min(m.End, x.End)); x.from <= t && !(p.Ino == x.Ino && p.Dev == x.Dev && p.Path == x.Path) {
				s.Map(t, p)
			}
			at = x.End
		}
		if at < m.End {
			s.Map(0, m.part(at, m.End))
		}
	}
}

func (s *Space) overlap(start, end uint64) []mapped {
	i, _ := slices.BinarySearchFunc(s.live, start, func(x mapped, at uint64) int {
		if x.End <= at {
			return -1
		}
		return 1
	})
	j := i
	for j < len(s.live) && s.live[j].Start < end {
		j++
	}
	return s.live[i:j]
}

// At gives what was mapped at an address at time t.
func (s *Space) At(t, addr uint64) (Mapping, bool) {
	if l := s.overlap(addr, addr+1); len(l) > 0 && l[0].from <= t && t < l[0].to {
		return l[0].Mapping, true
	}
	for i := len(s.past) - 1; i >= 0; i-- {
		if m := &s.past[i]; addr >= m.Start && addr < m.End && m.from <= t && t < m.to {
			return m.Mapping, true
		}
	}
	return Mapping{}, false
}

// Mappings gives what is mapped after all that was recorded.
func (s *Space) Mappings() iter.Seq[Mapping] {
	return func(yield func(Mapping) bool) {
		for _, m := range s.live {
			if !yield(m.Mapping) {
				return
			}
		}
	}
}

// Forget drops what ended before t.
func (s *Space) Forget(t uint64) {
	s.past = slices.DeleteFunc(s.past, func(m mapped) bool { return m.to <= t })
}
