package attach

import (
	"encoding/binary"
	"fmt"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// A table is the plan of a session in the form of the kernel's table: which shape each call uses.
type table struct {
	arch   string
	opt    *SyscallOptions
	shapes []*bpfgen.Shape
	users  []string // a call that uses the shape, in words
	progs  []int    // index in the program array, by shape; set when loaded
	often  []bool   // the shape of a call that is made often, by shape
	rows   []tableRow
	plain  int // the shape of entries without memory, where there must be one; else -1
	byText map[string]int
}

// A tableRow is one call: indexes of its shapes, -1 for a record without memory.
type tableRow struct {
	call               *SyscallPlan
	abi                int
	enter, exit, retry int
}

// planTable lists the shapes that the calls of o need.
func planTable(arch string, o *SyscallOptions) (*table, error) {
	t := &table{arch: arch, opt: o, byText: make(map[string]int), plain: -1}
	if (o.StackDepth > 0 || o.Regs) && (len(o.Calls) > 0 || o.Others) {
		// Stacks are added by the programs of shapes.
		t.plain = t.shape(&bpfgen.Shape{Ptr: 8}, "the stack, at entry", true)
	}
	for i := range o.Calls {
		c := &o.Calls[i]
		abi, ptr, ok := bpfgen.ABIIndex(arch, c.ABI)
		if !ok {
			return nil, fmt.Errorf("tracing calls of the ABI %q: this kernel runs %s", c.ABI, arch)
		}
		user := fmt.Sprintf("%s call %d", c.ABI, c.Nr)
		row := tableRow{call: c, abi: abi, enter: t.plain, exit: -1, retry: -1}
		fds, retFD, enter := c.FDs, c.RetFD, c.Enter
		if !o.FDPaths {
			fds, retFD, enter = 0, false, withoutDescriptors(c.Enter)
		}
		if len(enter) > 0 || fds != 0 {
			row.enter = t.shape(&bpfgen.Shape{Ptr: ptr, Fetches: enter, FDs: fds}, user+", at entry", c.Often)
		}
		if len(c.Exit) > 0 && len(enter) == 0 || len(c.Exit) == 0 && retFD {
			row.exit = t.shape(&bpfgen.Shape{Exit: true, Ptr: ptr, Fetches: c.Exit, RetFD: retFD}, user+", at the return", c.Often)
		}
		if len(enter) > 0 {
			// The retry takes the memory of the return first: decoders that ask for it find it in the usual place.
			again := append(append([]syscalls.Fetch(nil), c.Exit...), shift(enter, len(c.Exit))...)
			row.retry = t.shape(&bpfgen.Shape{Exit: true, Ptr: ptr, Fetches: again, Again: len(c.Exit), RetFD: retFD}, user+", at the return", c.Often && len(c.Exit) > 0)
			if len(c.Exit) > 0 {
				row.exit = row.retry
			}
		}
		t.rows = append(t.rows, row)
	}
	t.progs = make([]int, len(t.shapes))
	return t, nil
}

// withoutDescriptors leaves out the fetches at the end of a list that would give nothing, so that the generic programs can serve it.
func withoutDescriptors(list []syscalls.Fetch) []syscalls.Fetch {
	for len(list) > 0 && list[len(list)-1].Kind == syscalls.FetchDescriptor {
		list = list[:len(list)-1]
	}
	return list
}

// fewShapes is up to how many shapes all get programs of their own.
const fewShapes = 10

// generic reports whether the generic programs serve a shape.
func (t *table) generic(i int) bool {
	return len(t.shapes) > fewShapes && t.opt.StackDepth == 0 && !t.often[i] && bpfgen.GenericMax(t.opt.StrLimit) == syscalls.PathMax && t.shapes[i].Generic()
}

// shift renumbers the references among fetches that now stand behind n others.
func shift(list []syscalls.Fetch, n int) []syscalls.Fetch {
	out := append([]syscalls.Fetch(nil), list...)
	for i := range out {
		for _, num := range []*syscalls.Number{&out[i].Base, &out[i].Len.Number, &out[i].Total, &out[i].When.Value} {
			if num.From == syscalls.FromMem {
				num.N += uint32(n)
			}
		}
	}
	return out
}

// shape returns the index of a shape, adding it when no equal one is there. Shapes without pointers in the caller's
// memory are the same for all sizes of pointers.
func (t *table) shape(sh *bpfgen.Shape, user string, often bool) int {
	walks := false
	for i := range sh.Fetches {
		if k := sh.Fetches[i].Kind; k == syscalls.FetchIovec || k == syscalls.FetchStrings {
			walks = true
		}
	}
	if !walks {
		sh.Ptr = 8
	}
	text := fmt.Sprintf("%v %d %v %d %x %v", sh.Exit, sh.Ptr, sh.Fetches, sh.Again, sh.FDs, sh.RetFD)
	if i, ok := t.byText[text]; ok {
		t.often[i] = t.often[i] || often
		return i
	}
	t.byText[text] = len(t.shapes)
	t.shapes = append(t.shapes, sh)
	t.users = append(t.users, user)
	t.often = append(t.often, often)
	return len(t.shapes) - 1
}

// table returns the value of bpfgen.MapTable.
func (t *table) table() []byte {
	value := make([]byte, bpfgen.TableSize)
	put := func(row, slot int, word uint32) {
		binary.LittleEndian.PutUint32(value[row+4*slot:], word)
	}
	any := func(slot int, word uint32) {
		old := binary.LittleEndian.Uint32(value[bpfgen.AnyRow()+4*slot:])
		put(bpfgen.AnyRow(), slot, old|word&(bpfgen.Selected|bpfgen.ExecCall))
	}
	prog := func(shape int) int {
		if shape < 0 {
			return -1
		}
		return t.progs[shape]
	}
	if t.opt.Others {
		for abi := 0; bpfgen.ABIName(t.arch, abi) != ""; abi++ {
			name := bpfgen.ABIName(t.arch, abi)
			for slot := range bpfgen.TableSlots {
				word := bpfgen.EnterWord(name, uint32(slot), prog(t.plain))
				put(bpfgen.EnterRow(abi), slot, word)
				put(bpfgen.ExitRow(abi), slot, bpfgen.ExitWord(name, uint32(slot), -1, -1))
				any(slot, word)
			}
		}
	}
	for i := range t.rows {
		r := &t.rows[i]
		slot := bpfgen.Slot(r.call.ABI, r.call.Nr)
		if slot == bpfgen.OtherSlot {
			continue // its place stands for all numbers beyond the table, see Others
		}
		word := bpfgen.EnterWord(r.call.ABI, r.call.Nr, prog(r.enter))
		put(bpfgen.EnterRow(r.abi), slot, word)
		put(bpfgen.ExitRow(r.abi), slot, bpfgen.ExitWord(r.call.ABI, r.call.Nr, prog(r.exit), prog(r.retry)))
		any(slot, word)
		if nr, ok := bpfgen.ExecReturn(r.call.ABI); ok && bpfgen.IsExec(r.call.ABI, r.call.Nr) {
			// Where execve is not selected itself, its returns are sent for the sake of execveat, and dropped by the reader.
			at := bpfgen.Slot(r.call.ABI, nr)
			if binary.LittleEndian.Uint32(value[bpfgen.ExitRow(r.abi)+4*at:]) == 0 {
				put(bpfgen.ExitRow(r.abi), at, bpfgen.ExitWord(r.call.ABI, nr, -1, -1))
				any(at, bpfgen.Selected|bpfgen.ExecCall)
			}
		}
		if bpfgen.IsSigreturn(r.call.ABI, r.call.Nr) {
			// It returns with its number forgotten.
			put(bpfgen.ExitRow(r.abi), bpfgen.OtherSlot, bpfgen.ExitWord(r.call.ABI, r.call.Nr, -1, -1))
			any(bpfgen.OtherSlot, bpfgen.Selected)
		}
	}
	return value
}
