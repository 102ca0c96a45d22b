package objfile

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"math"
	"slices"
	"strings"
)

// Stub is an entry of the procedure linkage table: code that jumps to a function of another file.
type Stub struct {
	Addr, Size uint64
	Name       string // of the function; of an indirect function of the file itself, the name of its resolver
	Version    string
}

// Stubs are the entries of .plt, .plt.sec and .plt.got, by address.
func (f *File) Stubs() []Stub { return f.stubs() }

func (f *File) readStubs() []Stub {
	slots, lazy := f.gotSlots()
	if len(slots) == 0 {
		return nil
	}
	var out []Stub
	for _, s := range f.ELF.Sections {
		if !strings.HasPrefix(s.Name, ".plt") || s.Flags&elf.SHF_EXECINSTR == 0 || s.Type != elf.SHT_PROGBITS || s.FileSize > 16<<20 {
			continue
		}
		b, err := f.sectionData(s)
		if err != nil {
			continue
		}
		switch f.ELF.Machine {
		case elf.EM_X86_64:
			size := 16
			if s.Entsize == 8 {
				size = 8
			}
			for at := 0; at+size <= len(b); at += size {
				name, ok := stubAMD64(b[at:at+size], s.Addr+uint64(at), slots, lazy)
				if ok {
					out = append(out, Stub{s.Addr + uint64(at), uint64(size), name.Name, name.Version})
				}
			}
		case elf.EM_AARCH64:
			out = append(out, stubsARM64(b, s.Addr, slots)...)
		}
	}
	slices.SortFunc(out, func(a, b Stub) int { return cmp.Compare(a.Addr, b.Addr) })
	return out
}

type slotName struct{ Name, Version string }

// gotSlots maps the slots of the global offset table to the names that relocations put there; lazy are the names in the
// order of .rela.plt, by which entries of a lazy table push them.
func (f *File) gotSlots() (slots map[uint64]slotName, lazy []slotName) {
	syms, err := f.ELF.DynamicSymbols()
	if f.ELF.Class != elf.ELFCLASS64 {
		return nil, nil
	}
	if err != nil {
		syms = nil
	}
	slots = make(map[uint64]slotName)
	var irelative []uint64
	var iSlots []uint64
	for _, s := range f.ELF.Sections {
		if s.Type != elf.SHT_RELA || s.Flags&elf.SHF_ALLOC == 0 || s.FileSize > uint64(f.Size) {
			continue
		}
		b, err := f.sectionData(s)
		if err != nil {
			continue
		}
		plt := strings.HasSuffix(s.Name, ".plt")
		for ; len(b) >= 24; b = b[24:] {
			o := f.ELF.ByteOrder
			slot, info, addend := o.Uint64(b), o.Uint64(b[8:]), o.Uint64(b[16:])
			var n slotName
			jump, dat, irel := uint32(elf.R_X86_64_JMP_SLOT), uint32(elf.R_X86_64_GLOB_DAT), uint32(elf.R_X86_64_IRELATIVE)
			if f.ELF.Machine == elf.EM_AARCH64 {
				jump, dat, irel = uint32(elf.R_AARCH64_JUMP_SLOT), uint32(elf.R_AARCH64_GLOB_DAT), uint32(elf.R_AARCH64_IRELATIVE)
			}
			switch typ, i := uint32(info), info>>32; {
			case (typ == jump || typ == dat) && i > 0 && i <= uint64(len(syms)):
				n = slotName{syms[i-1].Name, syms[i-1].Version}
			case typ == irel:
				irelative, iSlots = append(irelative, addend), append(iSlots, slot)
			}
			if n.Name != "" {
				slots[slot] = n
			}
			if plt {
				lazy = append(lazy, n)
			}
		}
	}
	if len(irelative) > 0 {
		t := f.Funcs()
		for i, addr := range irelative {
			if s, ok := t.Lookup(addr); ok && s.Addr == addr {
				slots[iSlots[i]] = slotName{s.Name, s.Version}
			}
		}
	}
	return slots, lazy
}

// stubAMD64 reads an entry of 8 or 16 bytes: [endbr64] [bnd] jmp *slot(%rip), or, where .plt.sec has that, [endbr64] push
// $n; [bnd] jmp.
func stubAMD64(b []byte, addr uint64, slots map[uint64]slotName, lazy []slotName) (slotName, bool) {
	at := 0
	if len(b) >= 4 && string(b[:4]) == "\xf3\x0f\x1e\xfa" {
		at = 4
	}
	if at == 4 && at+5 <= len(b) && b[at] == 0x68 {
		if n := binary.LittleEndian.Uint32(b[at+1:]); uint64(n) < uint64(len(lazy)) && lazy[n].Name != "" {
			return lazy[n], true
		}
		return slotName{}, false
	}
	if at < len(b) && b[at] == 0xf2 {
		at++
	}
	if at+6 > len(b) || b[at] != 0xff || b[at+1] != 0x25 {
		return slotName{}, false
	}
	n, ok := slots[addr+uint64(at)+6+uint64(int64(int32(binary.LittleEndian.Uint32(b[at+2:]))))]
	return n, ok
}

// stubsARM64 finds [bti c]; adrp x16, page; ldr x17, [x16, #n]; add; br x17.
func stubsARM64(b []byte, addr uint64, slots map[uint64]slotName) (out []Stub) {
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	for i := 0; i+3 < len(b)/4; i++ {
		adrp, ldr := word(i), word(i+1)
		if adrp&0x9f00001f != 0x90000010 || ldr&0xffc003ff != 0xf9400211 {
			continue
		}
		page := int64(int32(adrp<<8)>>11&^3) | int64(adrp>>29&3) // immhi:immlo, signed 21 bits
		pc := addr + 4*uint64(i)
		slot := uint64(int64(pc&^0xfff)+page<<12) + uint64(ldr>>10&0xfff)*8
		n, ok := slots[slot]
		if !ok {
			continue
		}
		start := pc
		if i > 0 && word(i-1) == 0xd503245f { // bti c
			start -= 4
		}
		end := i + 4
		for end < len(b)/4 && word(end) == 0xd503201f { // nop
			end++
		}
		out = append(out, Stub{start, min(addr+4*uint64(end)-start, math.MaxUint32), n.Name, n.Version})
		i += 3
	}
	return out
}
