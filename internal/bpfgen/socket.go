package bpfgen

import (
	"github.com/cilium/ebpf/asm"

	"github.com/sonde-trace/sonde/internal/syscalls"
	"github.com/sonde-trace/sonde/internal/wire"
)

// socketSize is the data of a FetchSocket: family, type, protocol and zero, 16 bits each.
const socketSize = 8

// socket adds a segment that says what kind of socket a descriptor is.
func (p *shape) socket(index int, f *syscalls.Fetch, next string) error {
	if err := p.number(r3, f.Base); err != nil {
		return err
	}
	p.socketOf(index, next)
	return nil
}

// socketOf does that for the descriptor in r3.
func (p *shape) socketOf(index int, next string) {
	const (
		typeMask = 0xf000 // S_IFMT
		isSocket = 0xc000 // S_IFSOCK
	)
	l := &p.Kernel.File
	p.room(wire.SegmentHeader+socketSize+16, next)
	p.emit(asm.Mov.Reg32(r3, r3), store(r7, tmpKey, r3, u64), asm.FnGetCurrentTask.Call(), asm.Mov.Reg(r6, r0))
	p.openFile(next)
	p.kernel(r6, l.Inode, 8, tmpRead, next)
	p.pointerTo(tmpRead, l.Mode, tmpRead, next)
	p.emit(load(r1, r7, tmpRead, u16), asm.And.Imm(r1, typeMask), asm.JNE.Imm(r1, isSocket, next))
	// A file opened with O_PATH has no socket.
	for _, off := range []int{l.Private, l.Sk} {
		p.kernel(r6, off, 8, tmpRead, next)
		p.emit(load(r6, r7, tmpRead, u64), asm.JEq.Imm(r6, 0, next))
	}
	p.emit(storeImm(r7, tmpRead, 0, u64))
	p.kernel(r6, l.Family, 2, tmpRead, next)
	p.kernel(r6, l.SockType, 2, tmpRead+2, next)
	p.kernel(r6, l.SockProto, 2, tmpRead+4, next)
	p.emit(load(r3, r7, tmpKey, u64), load(r2, r7, tmpRead, u64))
	p.begin(index, wire.SegSocket)
	p.emit(store(r1, wire.SegmentHeader, r2, u64), asm.Mov.Imm(r9, socketSize))
	p.keepRefs(index)
	p.end()
}
