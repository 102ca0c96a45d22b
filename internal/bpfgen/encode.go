package bpfgen

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// Functions reports whether the program has functions beside its main one.
func (p *Program) Functions() bool {
	for i := range p.Insns {
		if in := &p.Insns[i]; in.IsFunctionReference() {
			return true
		}
	}
	return false
}

// Encode returns the program as the kernel takes it: 8 bytes an instruction, little-endian (include/uapi/linux/bpf.h, struct bpf_insn).
// fd gives the
// descriptor of a map by name. It is for programs without further functions.
func (p *Program) Encode(fd func(name string) (int, bool)) ([]byte, error) {
	at := make(map[string]int)
	n := 0
	for i := range p.Insns {
		if s := p.Insns[i].Symbol(); s != "" {
			at[s] = n
		}
		n += int(p.Insns[i].Width())
	}
	code := make([]byte, 0, 8*n)
	for i := range p.Insns {
		in := &p.Insns[i]
		constant, offset := uint64(in.Constant), in.Offset
		switch {
		case in.IsLoadFromMap():
			name := in.Reference()
			n, ok := fd(name)
			if !ok {
				return nil, fmt.Errorf("program %s: no map %q", p.Name, name)
			}
			constant = constant&^0xffffffff | uint64(uint32(n))
		case in.OpCode.Class().IsJump() && in.OpCode.JumpOp() != asm.Call && in.OpCode.JumpOp() != asm.Exit:
			target, ok := at[in.Reference()]
			if !ok {
				return nil, fmt.Errorf("program %s: jump to %q, which is not there", p.Name, in.Reference())
			}
			distance := target - len(code)/8 - 1
			if distance != int(int16(distance)) {
				return nil, fmt.Errorf("program %s: a jump over %d instructions", p.Name, distance)
			}
			offset = int16(distance)
		}
		code = append(code, byte(in.OpCode), byte(in.Dst)|byte(in.Src)<<4, byte(offset), byte(offset>>8))
		code = binary.LittleEndian.AppendUint32(code, uint32(constant))
		if in.Width() == 2 {
			code = append(code, 0, 0, 0, 0)
			code = binary.LittleEndian.AppendUint32(code, uint32(constant>>32))
		}
	}
	return code, nil
}
