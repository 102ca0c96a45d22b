// Package addrspace is a model of one address space: which areas it has, and what mmap, munmap, mprotect, mremap, brk and the growth
// of the stack make of them. It follows the kernel's rules of splitting and merging (mm/mmap.c, mm/vma.c, mm/mprotect.c,
// mm/mremap.c), so that after the same operations it has the same areas as /proc/PID/maps shows.
//
// It is pure: it reads nothing and guesses nothing. Where an operation lands is an input, as the kernel has chosen it. The areas are
// sorted, not empty, and do not overlap.
package addrspace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// PageSize is the granularity of everything here.
const PageSize = 4096

// Prot is what an area may be used for, as in PROT_READ, PROT_WRITE and PROT_EXEC of mmap(2).
type Prot uint8

// The bits of Prot.
const (
	Read Prot = 1 << iota
	Write
	Exec
)

// Attr is what mmap's flags make of an area, beside its protection.
type Attr uint8

// The bits of Attr. Areas that differ in one are never merged.
const (
	Shared    Attr = 1 << iota
	GrowsDown      // a stack
	NoReserve
	NoWrite // shared, of a file that was opened for reading: it cannot become writable
	Special // of the kernel: vdso, vvar; never merged
	account // counted as committed memory: VM_ACCOUNT
)

// Area is a run of pages with the same properties: a VMA.
type Area struct {
	Start, End uint64
	Prot       Prot
	Attr       Attr
	Offset     uint64 // in the file; for anonymous memory the address at which it was made
	File       string // path; "" for anonymous memory
	Handle     uint64 // which open file description maps it: two of one file are not merged
	Name       string // "[stack]", "[vdso]": of areas that the kernel names
	Step       int    // the operation that made or last changed it

	anon uint64 // identity of the anonymous pages, 0 before the first write
}

// Len is the size in bytes.
func (a *Area) Len() uint64 { return a.End - a.Start }

// Rules are where kernels differ.
type Rules struct {
	// KeepsCommit: an area that loses PROT_WRITE before anything was written stays committed memory, and is not merged with
	// areas that never were writable.
	KeepsCommit bool
}

// Space is an address space. The zero value is empty and ready. It is not safe for concurrent use.
type Space struct {
	Rules              Rules
	StartBrk, BrkValue uint64

	areas    []Area
	lastAnon uint64
	step     int
}

// ErrHole says that an operation met addresses without an area. What it changed before stays changed, as in the kernel.
var ErrHole = errors.New("no area there")

// ErrDenied says that an area cannot have the protection.
var ErrDenied = errors.New("the file was not opened for writing")

// ErrRange says that an operation has an impossible range.
var ErrRange = errors.New("not a range of pages")

// Areas are the areas in order; a copy.
func (s *Space) Areas() []Area { return slices.Clone(s.areas) }

// Step is the number of operations so far.
func (s *Space) Step() int { return s.step }

// Lookup finds the area of an address.
func (s *Space) Lookup(addr uint64) (Area, bool) {
	if i := s.find(addr); i < len(s.areas) && s.areas[i].Start <= addr {
		return s.areas[i], true
	}
	return Area{}, false
}

// find is the index of the first area that ends after addr.
func (s *Space) find(addr uint64) int {
	i, _ := slices.BinarySearchFunc(s.areas, addr, func(a Area, addr uint64) int {
		if a.End <= addr {
			return -1
		}
		return 1
	})
	return i
}

// pages rounds a length up, and checks a range.
func pages(addr, length uint64) (end uint64, err error) {
	length = (length + PageSize - 1) &^ uint64(PageSize-1)
	if addr%PageSize != 0 || length == 0 || addr+length < addr {
		return 0, fmt.Errorf("%w: %d bytes at %#x", ErrRange, length, addr)
	}
	return addr + length, nil
}

// split makes addr a border between areas.
func (s *Space) split(addr uint64) {
	i := s.find(addr)
	if i == len(s.areas) || s.areas[i].Start >= addr {
		return
	}
	tail := s.areas[i]
	s.areas[i].End = addr
	tail.Offset += addr - tail.Start
	tail.Start = addr
	s.areas = slices.Insert(s.areas, i+1, tail)
}

// cut removes what is in the range.
func (s *Space) cut(start, end uint64) {
	s.split(start)
	s.split(end)
	i := s.find(start)
	j := i
	for j < len(s.areas) && s.areas[j].Start < end {
		j++
	}
	s.areas = slices.Delete(s.areas, i, j)
}

// mergeable follows is_mergeable_vma and is_mergeable_anon_vma; b follows a.
func mergeable(a, b *Area) bool {
	return a.End == b.Start && a.Prot == b.Prot && a.Attr == b.Attr && a.Attr&Special == 0 && a.File == b.File && a.Handle == b.Handle && a.Name == b.Name &&
		a.Offset+a.Len() == b.Offset && (a.anon == b.anon || a.anon == 0 || b.anon == 0)
}

// join merges the area at i with its neighbours where that can be.
func (s *Space) join(i int) {
	if i > 0 && mergeable(&s.areas[i-1], &s.areas[i]) {
		i--
		s.absorb(i)
	}
	if i+1 < len(s.areas) && mergeable(&s.areas[i], &s.areas[i+1]) {
		s.absorb(i)
	}
}

// absorb makes areas i and i+1 one.
func (s *Space) absorb(i int) {
	s.areas[i].End = s.areas[i+1].End
	s.areas[i].anon = max(s.areas[i].anon, s.areas[i+1].anon)
	s.areas[i].Step = s.step
	s.areas = slices.Delete(s.areas, i+1, i+2)
}

func (s *Space) insert(a Area) {
	a.Step = s.step
	i := s.find(a.Start)
	s.areas = slices.Insert(s.areas, i, a)
	s.join(i)
}

// Map puts an area at a.Start, over whatever is there, as mmap with MAP_FIXED does, and as mmap without it does in a free place.
// a.End is rounded up to a page.
func (s *Space) Map(a Area) error {
	end, err := pages(a.Start, a.End-a.Start)
	if err != nil || a.End < a.Start {
		return fmt.Errorf("map: %w", cmpErr(err))
	}
	s.step++
	a.End, a.anon = end, 0
	if a.File == "" && a.Attr&Shared == 0 {
		a.Offset = a.Start
	}
	a.Attr &^= account
	if a.Prot&Write != 0 && a.Attr&(Shared|NoReserve|Special) == 0 {
		a.Attr |= account
	}
	s.cut(a.Start, a.End)
	s.insert(a)
	return nil
}

func cmpErr(err error) error {
	if err == nil {
		return ErrRange
	}
	return err
}

// Unmap removes a range; holes in it are no error.
func (s *Space) Unmap(addr, length uint64) error {
	end, err := pages(addr, length)
	if err != nil {
		return fmt.Errorf("unmap: %w", err)
	}
	s.step++
	s.cut(addr, end)
	return nil
}

// Protect changes the protection of a range. At a hole it stops with ErrHole.
func (s *Space) Protect(addr, length uint64, p Prot) error {
	end, err := pages(addr, length)
	if err != nil {
		return fmt.Errorf("protect: %w", err)
	}
	s.step++
	for at := addr; at < end; {
		a, ok := s.Lookup(at)
		if !ok {
			return fmt.Errorf("protect %#x: %w", at, ErrHole)
		}
		next := min(end, a.End)
		if a.Prot == p {
			at = next
			continue
		}
		if p&Write != 0 && a.Attr&NoWrite != 0 {
			return fmt.Errorf("protect %#x: %w", at, ErrDenied)
		}
		s.split(at)
		s.split(next)
		i := s.find(at)
		b := &s.areas[i]
		switch {
		case p&Write != 0:
			if b.Attr&(account|Shared|NoReserve|Special) == 0 && b.Prot&Write == 0 {
				b.Attr |= account
			}
		case !s.Rules.KeepsCommit && b.Attr&account != 0 && b.File == "" && b.anon == 0:
			b.Attr &^= account
		}
		b.Prot, b.Step = p, s.step
		s.join(i)
		at = next
	}
	return nil
}

// Touch says that a page was written to: from then on the area has anonymous pages, which limits merging.
func (s *Space) Touch(addr uint64) error {
	i := s.find(addr)
	if i == len(s.areas) || s.areas[i].Start > addr {
		return fmt.Errorf("touch %#x: %w", addr, ErrHole)
	}
	a := &s.areas[i]
	if a.Attr&Shared != 0 || a.anon != 0 {
		return nil
	}
	// A neighbour that could become one with this area shares its identity: find_mergeable_anon_vma; protections do not matter.
	like := func(a, b *Area) bool {
		return a.End == b.Start && a.Attr&^account == b.Attr&^account && a.Attr&account == b.Attr&account && a.File == b.File && a.Handle == b.Handle && a.Offset+a.Len() == b.Offset
	}
	switch {
	case i+1 < len(s.areas) && s.areas[i+1].anon != 0 && like(a, &s.areas[i+1]):
		a.anon = s.areas[i+1].anon
	case i > 0 && s.areas[i-1].anon != 0 && like(&s.areas[i-1], a):
		a.anon = s.areas[i-1].anon
	default:
		s.lastAnon++
		a.anon = s.lastAnon
	}
	return nil
}

// Remap is mremap(2) that returned to: it resizes in place, or moves. dontUnmap leaves an empty area behind.
func (s *Space) Remap(from, oldLen, to, newLen uint64, dontUnmap bool) error {
	oldEnd, err := pages(from, oldLen)
	if err != nil {
		return fmt.Errorf("remap: %w", err)
	}
	newEnd, err := pages(to, newLen)
	if err != nil {
		return fmt.Errorf("remap: %w", err)
	}
	s.step++
	a, ok := s.Lookup(from)
	if !ok || newEnd-to > oldEnd-from && a.End < oldEnd {
		return fmt.Errorf("remap %#x: %w", from, ErrHole)
	}
	if newEnd-to < oldEnd-from { // a tail that is given up may be anything
		s.cut(from+(newEnd-to), oldEnd)
		oldEnd = from + (newEnd - to)
	}
	if to == from {
		if newEnd > oldEnd {
			i := s.find(from)
			s.areas[i].End, s.areas[i].Step = newEnd, s.step
			s.join(i)
		}
		return nil
	}
	// From 6.17 on several areas are moved at once when none is resized; what is where a hole would come stays.
	for at := from; at < oldEnd; {
		i := s.find(at)
		if i == len(s.areas) || s.areas[i].Start >= oldEnd {
			break
		}
		a := s.areas[i]
		start, end := max(at, a.Start), min(oldEnd, a.End)
		last := newEnd
		if end < oldEnd {
			last = to + (end - from)
		}
		s.move(a, start, end, to+(start-from), last, dontUnmap)
		at = end
	}
	return nil
}

// move moves the part of area a from start to end.
func (s *Space) move(a Area, start, end, to, toEnd uint64, dontUnmap bool) {
	moved := a
	moved.Offset += start - a.Start
	moved.Start, moved.End = to, toEnd
	if a.File == "" && a.anon == 0 && a.Attr&Shared == 0 {
		moved.Offset = to // nothing is there yet: it is as if it were made at the new place
	}
	s.cut(to, toEnd)
	s.insert(moved)
	if !dontUnmap {
		s.cut(start, end)
		return
	}
	if i := s.find(start); i < len(s.areas) && s.areas[i].Start == start && s.areas[i].End == end {
		s.areas[i].anon = 0
		if s.areas[i].File == "" {
			s.areas[i].Offset = start
		}
	}
}

// Brk is brk(2) that returned to; the first one says where the heap begins.
func (s *Space) Brk(to uint64) error {
	s.step++
	if s.BrkValue == 0 {
		s.StartBrk, s.BrkValue = to, to
		return nil
	}
	up := func(v uint64) uint64 { return (v + PageSize - 1) &^ uint64(PageSize-1) }
	if to < s.StartBrk || up(to) < to {
		return fmt.Errorf("brk %#x: %w", to, ErrRange)
	}
	was, now := up(s.BrkValue), up(to)
	s.BrkValue = to
	switch {
	case now < was:
		s.cut(now, was)
	case now > was:
		s.insert(Area{Start: was, End: now, Prot: Read | Write, Attr: account, Offset: was})
	}
	return nil
}

// Grow is a fault below a stack, which the kernel answered by making it reach down to addr's page.
func (s *Space) Grow(addr uint64) error {
	addr &^= PageSize - 1
	i := s.find(addr)
	if i == len(s.areas) || s.areas[i].Attr&GrowsDown == 0 {
		return fmt.Errorf("grow to %#x: %w", addr, ErrHole)
	}
	s.step++
	a := &s.areas[i]
	if addr < a.Start {
		a.Offset -= a.Start - addr
		a.Start, a.Step = addr, s.step
	}
	return nil
}

// Show is the name of an area as /proc/PID/maps has it.
func (s *Space) Show(a *Area) string {
	switch {
	case a.File != "":
		return a.File
	case a.Name != "":
		return a.Name
	case s.BrkValue > s.StartBrk && a.Start <= s.BrkValue && a.End >= s.StartBrk:
		return "[heap]"
	}
	return ""
}

// Flags are the four letters of /proc/PID/maps.
func (a *Area) Flags() string {
	b := []byte("---p")
	for i, c := range "rwx" {
		if a.Prot&(1<<i) != 0 {
			b[i] = byte(c)
		}
	}
	if a.Attr&Shared != 0 {
		b[3] = 's'
	}
	return string(b)
}

// String is the space in the form of /proc/PID/maps: range, flags, offset and name.
func (s *Space) String() string {
	var b strings.Builder
	for i := range s.areas {
		a := &s.areas[i]
		off := a.Offset
		if a.File == "" {
			off = 0
		}
		fmt.Fprintf(&b, "%08x-%08x %s %08x %s\n", a.Start, a.End, a.Flags(), off, s.Show(a))
	}
	return b.String()
}

// Change is one difference between two states of a space.
type Change struct {
	Kind  byte // '+' is new, '-' is gone, '~' has another protection
	Area  Area
	Was   Prot // for '~'
	Bytes uint64
}

// Diff says what was added, removed and changed between two lists of areas, by address. Borders that only moved because areas were
// split or merged are no change.
func Diff(before, after []Area) (list []Change) {
	cuts := make([]uint64, 0, 2*(len(before)+len(after)))
	for _, l := range [][]Area{before, after} {
		for i := range l {
			cuts = append(cuts, l[i].Start, l[i].End)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	b, a := Space{areas: before}, Space{areas: after}
	for i := 0; i+1 < len(cuts); i++ {
		old, had := b.Lookup(cuts[i])
		now, has := a.Lookup(cuts[i])
		same := had && has && old.File == now.File && old.Name == now.Name && old.Attr&^account == now.Attr&^account && (old.File == "" || old.Offset-old.Start == now.Offset-now.Start)
		clip := func(x Area) Area {
			x.Offset += cuts[i] - x.Start
			x.Start, x.End = cuts[i], cuts[i+1]
			return x
		}
		if had && !same {
			list = add(list, Change{Kind: '-', Area: clip(old)})
		}
		if has && !same {
			list = add(list, Change{Kind: '+', Area: clip(now)})
		}
		if same && old.Prot != now.Prot {
			list = add(list, Change{Kind: '~', Area: clip(now), Was: old.Prot})
		}
	}
	return list
}

// add joins a change with the one before it, when it goes on where that ends.
func add(list []Change, c Change) []Change {
	for i := len(list) - 1; i >= 0 && i >= len(list)-2; i-- {
		l := &list[i]
		if l.Kind == c.Kind && l.Area.End == c.Area.Start && l.Was == c.Was && l.Area.Prot == c.Area.Prot && l.Area.File == c.Area.File && l.Area.Name == c.Area.Name && l.Area.Attr == c.Area.Attr {
			l.Area.End = c.Area.End
			l.Bytes = l.Area.Len()
			return list
		}
	}
	c.Bytes = c.Area.Len()
	return append(list, c)
}

const maxLine = 64 << 10

// ReadMaps reads areas in the form of /proc/PID/maps (proc_pid_maps(5)).
func ReadMaps(r io.Reader) ([]Area, error) {
	var list []Area
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxLine)
	for sc.Scan() {
		a, err := parseLine(sc.Text())
		if err != nil {
			return nil, err
		}
		if n := len(list); n > 0 && list[n-1].End > a.Start {
			return nil, fmt.Errorf("maps: %q overlaps the line before", sc.Text())
		}
		list = append(list, a)
	}
	return list, sc.Err()
}

func parseLine(line string) (a Area, err error) {
	bad := func() (Area, error) { return Area{}, fmt.Errorf("maps: %q is not a line of /proc/PID/maps", line) }
	f := strings.SplitN(line, " ", 6)
	if len(f) < 5 || len(f[1]) != 4 {
		return bad()
	}
	from, to, _ := strings.Cut(f[0], "-")
	if a.Start, err = strconv.ParseUint(from, 16, 64); err != nil {
		return bad()
	}
	if a.End, err = strconv.ParseUint(to, 16, 64); err != nil || a.End <= a.Start {
		return bad()
	}
	if a.Offset, err = strconv.ParseUint(f[2], 16, 64); err != nil {
		return bad()
	}
	for i, c := range "rwx" {
		if f[1][i] == byte(c) {
			a.Prot |= 1 << i
		}
	}
	if f[1][3] == 's' {
		a.Attr |= Shared
	}
	if len(f) == 6 {
		name := strings.TrimLeft(f[5], " ")
		if strings.HasPrefix(name, "[") {
			a.Name = name
		} else {
			a.File = name
		}
	}
	return a, nil
}

// Set replaces all areas, as read from /proc/PID/maps; the heap's borders are taken from its area.
func (s *Space) Set(list []Area) {
	s.step++
	s.areas = slices.Clone(list)
	for i := range s.areas {
		a := &s.areas[i]
		switch a.Name {
		case "[heap]":
			a.Name = ""
			s.StartBrk, s.BrkValue = a.Start, a.End
		case "[stack]":
			a.Attr |= GrowsDown
		case "[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]":
			a.Attr |= Special
		}
		if a.File == "" && a.Attr&Shared == 0 {
			a.Offset = a.Start
		}
		if a.Prot&Write != 0 && a.Attr&(Shared|Special) == 0 {
			a.Attr |= account
		}
	}
}
