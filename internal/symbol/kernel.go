package symbol

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/sonde-trace/sonde/event"
	"github.com/sonde-trace/sonde/internal/near"
)

// Kernel is the running kernel's table of symbols, with those of its modules, as /proc/kallsyms gives it. It does not change: make
// another one when a module was loaded. It is safe for concurrent use.
type Kernel struct {
	rows    []kernelRow
	names   []byte
	modules []string
}

type kernelRow struct {
	addr   uint64
	name   uint32 // place in names
	module uint16 // place in modules; 0 is the kernel itself
}

// ErrKallsyms says that addresses are hidden from us.
var ErrKallsyms = errors.New("/proc/kallsyms shows no addresses: reading them needs CAP_SYSLOG, and kernel.kptr_restrict below 2")

// OpenKernel reads /proc/kallsyms.
func OpenKernel() (*Kernel, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, fmt.Errorf("symbols of the kernel: %w", err)
	}
	defer f.Close()
	return ReadKernel(f)
}

// ReadKernel reads a table in the format of /proc/kallsyms: address, type, name, and [module] for that of a module.
func ReadKernel(r io.Reader) (*Kernel, error) {
	k := &Kernel{modules: []string{"[kernel]"}}
	known := map[string]uint16{}
	hidden := true
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		line := sc.Bytes()
		i := bytes.IndexByte(line, ' ')
		if i <= 0 || len(line) < i+4 || line[i+2] != ' ' {
			continue
		}
		addr, ok := parseHex(line[:i])
		if typ := line[i+1] | 0x20; !ok || typ != 't' && typ != 'w' {
			continue
		}
		hidden = hidden && addr == 0
		name, module := line[i+3:], uint16(0)
		if i := bytes.IndexByte(name, '\t'); i > 0 {
			m := name[i+1:]
			name = name[:i]
			n, ok := known[string(m)]
			if !ok && len(k.modules) < 1<<16-1 {
				n = uint16(len(k.modules))
				known[string(m)] = n
				k.modules = append(k.modules, string(m))
			}
			module = n
		}
		if len(name) > 1024 || len(k.names)+len(name) >= 1<<31 {
			continue
		}
		k.rows = append(k.rows, kernelRow{addr, uint32(len(k.names)), module})
		k.names = append(append(k.names, name...), 0)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("symbols of the kernel: %w", err)
	}
	if hidden {
		return nil, ErrKallsyms
	}
	slices.SortStableFunc(k.rows, func(a, b kernelRow) int { return cmp.Compare(a.addr, b.addr) })
	return k, nil
}

// KernelFunc is a function of the kernel.
type KernelFunc struct {
	Name   string
	Module string // "[ext4]"; "[kernel]" for the kernel itself
	Addr   uint64
}

// Find gives the functions that p selects, by address. Names that the linker and the compiler made up, __pfx_ and __cfi_, are left
// out. The error is a *NotFoundError.
func (k *Kernel) Find(p Pattern) (out []KernelFunc, err error) {
	for _, r := range k.rows {
		if name := k.name(r); !isKernelMark(name) && p.matches(name) {
			out = append(out, KernelFunc{name, k.modules[r.module], r.addr})
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	e := &NotFoundError{File: "kernel", Pattern: p.String()}
	if p.kind == exact {
		e.Near = near.Names(p.text, func(yield func(string) bool) {
			for _, r := range k.rows {
				if name := k.name(r); !isKernelMark(name) && !yield(name) {
					return
				}
			}
		})
	}
	return nil, e
}

func (k *Kernel) name(r kernelRow) string {
	b := k.names[r.name:]
	return string(b[:bytes.IndexByte(b, 0)])
}

// Frame names an address of the kernel; call says that it is a return address. Offset of the frame is from the start of the
// function, as the kernel has no file.
func (k *Kernel) Frame(addr uint64, call bool) event.Frame {
	f := event.Frame{Addr: addr, Module: "[kernel]", Offset: addr}
	pc := addr
	if call {
		pc--
	}
	i, found := slices.BinarySearchFunc(k.rows, pc, func(r kernelRow, pc uint64) int { return cmp.Compare(r.addr, pc) })
	for found && i+1 < len(k.rows) && k.rows[i+1].addr == pc {
		i++
	}
	if !found {
		i--
	}
	if i < 0 || pc-k.rows[i].addr > 1<<20 {
		return f
	}
	// Of several names of one address the first that is not a mark of the linker.
	at := k.rows[i].addr
	best := i
	for ; i >= 0 && k.rows[i].addr == at; i-- {
		n := k.name(k.rows[i])
		if b := k.name(k.rows[best]); !isKernelMark(n) && (isKernelMark(b) || n[0] != '_' && b[0] == '_' || len(n) <= len(b)) {
			best = i
		}
	}
	f.Module, f.Func, f.Offset, f.FuncOff = k.modules[k.rows[best].module], k.name(k.rows[best]), addr-at, addr-at
	return f
}

// isKernelMark: names that padding and the linker script give.
func isKernelMark(name string) bool {
	return len(name) == 0 || len(name) > 6 && (name[:6] == "__pfx_" || name[:6] == "__cfi_") || name == "_text" || name == "_stext" || name == "_etext"
}

func parseHex(b []byte) (v uint64, ok bool) {
	if len(b) == 0 || len(b) > 16 {
		return 0, false
	}
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			v = v<<4 | uint64(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			v = v<<4 | uint64(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}
