package bpfgen

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"

	"github.com/sonde-trace/sonde/internal/wire"
)

// FileLayout holds the offsets of the members of kernel structures that lead from a descriptor to a name.
type FileLayout struct {
	Files, Fs                     int // task_struct
	Fdt                           int // files_struct
	MaxFds, Fd                    int // fdtable
	Path, Inode                   int // file.f_path, file.f_inode
	PathMnt, PathDentry           int // path
	Ino, Sb                       int // inode
	Magic                         int // super_block.s_magic
	Parent, Name, Hash            int // dentry.d_parent, d_name, d_hash
	NameLen, NameStr              int // qstr.len, qstr.name
	Pprev                         int // hlist_bl_node.pprev
	Mnt, MntParent, MntMountpoint int // mount
	MntRoot                       int // vfsmount
	Pwd                           int // fs_struct.pwd
	Rdev                          int // inode.i_rdev

	Mode int // inode.i_mode

	// From a file to its socket.
	Private             int // file.private_data
	Sk                  int // socket.sk
	Family              int // sock.__sk_common.skc_family
	SockType, SockProto int // sock.sk_type, sk_protocol
}

const (
	atFDCWD = -100

	// Names are put together backwards, each component in front of the last, in an area of its own behind the record.
	pathArea  = 4096 // bytes for the name
	pathExtra = 512  // room for what follows it and for the verifier's view of the ends
	pathSpace = pathArea + pathExtra + 256
	nameMax   = 255
	// pathTurns bounds the walk: components plus mounts crossed.
	pathTurns = 64

	pipeMagic = 0x50495045 // include/uapi/linux/magic.h
	sockMagic = 0x534f434b
	anonMagic = 0x09041934
	nsMagic   = 0x6e736673
	pidMagic  = 0x50494446
)

// Where the walk keeps its place, in front of the record.
const (
	tmpFile   = -80  // u64
	tmpDentry = -88  // u64
	tmpVfsmnt = -96  // u64
	tmpPos    = -104 // u64, offset in the area of the first byte of the name
	tmpTail   = -112 // u64, bytes behind the area's end
	tmpRead   = -136 // 24 bytes, what was just read
	tmpRoot   = -144 // u64, root of the mount
	tmpKey    = -152 // u64, the descriptor
	tmpDevice = -184 // u32 the number of a device, u32 'c' or 'b', 0 when it is none
)

// area is the offset of the area from the record.
func (p *shape) area() int { return p.capacity + slack }

// kernel reads size bytes of kernel memory at base+off to the record's offset to. It leaves at fail when that fails.
func (p *shape) kernel(base asm.Register, off, size, to int, fail string) {
	p.emit(asm.Mov.Reg(r3, base), asm.Add.Imm(r3, int32(off)), asm.Mov.Reg(r1, r7), asm.Add.Imm(r1, int32(to)),
		asm.Mov.Imm(r2, int32(size)), asm.FnProbeReadKernel.Call(), asm.JNE.Imm(r0, 0, fail))
}

// pointerTo reads the pointer at the address kept at from, plus off, to the record's offset to.
func (p *shape) pointerTo(from, off, to int, fail string) {
	p.emit(load(r3, r7, from, u64))
	p.kernel(r3, off, 8, to, fail)
}

// openFile loads into r6 the open file of the descriptor kept in tmpKey; r6 is the task. It leaves at fail when there is none.
func (p *shape) openFile(fail string) {
	l := &p.Kernel.File
	p.kernel(r6, l.Files, 8, tmpRead, fail)
	p.pointerTo(tmpRead, l.Fdt, tmpRead, fail)
	p.emit(load(r6, r7, tmpRead, u64))
	p.kernel(r6, l.MaxFds, 4, tmpRead, fail)
	p.emit(load(r1, r7, tmpRead, u32), load(r2, r7, tmpKey, u64), asm.JGE.Reg(r2, r1, fail))
	p.kernel(r6, l.Fd, 8, tmpRead, fail)
	p.emit(load(r3, r7, tmpRead, u64), load(r2, r7, tmpKey, u64), asm.LSh.Imm(r2, 3), asm.Add.Reg(r3, r2))
	p.kernel(r3, 0, 8, tmpFile, fail)
	p.emit(load(r6, r7, tmpFile, u64), asm.JEq.Imm(r6, 0, fail))
}

// descriptor adds a segment with what the descriptor in r3 refers to. A descriptor that is not open adds none.
func (p *shape) descriptor(index int) {
	l := &p.Kernel.File
	next, done, walk, cwd, have := p.label("next"), p.label("done"), p.label("walk"), p.label("cwd"), p.label("have")
	p.room(wire.SegmentHeader+pathArea+64, next)
	p.emit(asm.Mov.Reg32(r3, r3), store(r7, tmpKey, r3, u64), storeImm(r7, tmpPos, pathArea, u64), storeImm(r7, tmpTail, 0, u64), storeImm(r7, tmpDevice, 0, u64))
	p.emit(asm.FnGetCurrentTask.Call(), asm.Mov.Reg(r6, r0), load(r1, r7, tmpKey, u32))
	p.emit(asm.JEq.Imm32(r1, atFDCWD, cwd))
	p.openFile(next)
	p.kernel(r6, l.Path+l.PathDentry, 8, tmpDentry, next)
	p.kernel(r6, l.Path+l.PathMnt, 8, tmpVfsmnt, next)
	p.pseudo(r6, have, next)
	p.device(next)
	p.emit(asm.Ja.Label(walk))
	p.bind(cwd)
	p.kernel(r6, l.Fs, 8, tmpRead, next)
	p.emit(load(r6, r7, tmpRead, u64))
	p.kernel(r6, l.Pwd+l.PathDentry, 8, tmpDentry, next)
	p.kernel(r6, l.Pwd+l.PathMnt, 8, tmpVfsmnt, next)
	p.bind(walk)
	p.walkPath(have, next)
	p.bind(have)
	p.deviceTail()
	p.emit(load(r6, r7, tmpPos, u64), asm.JGT.Imm(r6, pathArea, next), load(r9, r7, tmpTail, u64), asm.JGT.Imm(r9, 16, next),
		asm.Add.Imm(r9, pathArea), asm.Sub.Reg(r9, r6), asm.JSLE.Imm(r9, 0, next), asm.JGT.Imm(r9, pathArea+16, next),
		load(r3, r7, tmpKey, u64))
	p.begin(index, wire.SegFD)
	p.emit(asm.Add.Imm(r1, wire.SegmentHeader), asm.Mov.Reg(r2, r9), asm.Mov.Reg(r3, r7), asm.Add.Imm(r3, int32(p.area())), asm.Add.Reg(r3, r6),
		asm.FnProbeReadKernel.Call(), asm.JNE.Imm(r0, 0, next))
	p.end()
	p.bind(done)
	p.bind(next)
}

// prepend puts constant text in front of the name. It leaves at fail when there is no room.
func (p *shape) prepend(text string, fail string) {
	p.emit(load(r1, r7, tmpPos, u64), asm.JGT.Imm(r1, pathArea, fail), asm.JLT.Imm(r1, nameMax+1, fail),
		asm.Sub.Imm(r1, int32(len(text))), store(r7, tmpPos, r1, u64), asm.Add.Reg(r1, r7))
	p.text8(r1, p.area(), text)
}

// text8 stores constant text at base+off.
func (p *shape) text8(base asm.Register, off int, text string) {
	p.emit(asm.Add.Imm(base, int32(off)))
	for i := 0; i < len(text); {
		switch {
		case len(text)-i >= 8:
			p.emit(asm.LoadImm(r2, int64(binary.LittleEndian.Uint64([]byte(text[i:]))), asm.DWord), store(base, i, r2, u64))
			i += 8
		default:
			p.emit(storeImm(base, i, int32(text[i]), u8))
			i++
		}
	}
}

// pseudo names files without a place in the tree, as /proc/PID/fd does: the file is in r6. It goes to have for those, and falls through
// for others.
func (p *shape) pseudo(file asm.Register, have, fail string) {
	l := &p.Kernel.File
	numbered, anon, pid, tree := p.label("numbered"), p.label("anon"), p.label("pidfd"), p.label("tree")
	p.kernel(file, l.Inode, 8, tmpFile, fail)
	p.emit(load(r6, r7, tmpFile, u64))
	p.kernel(r6, l.Sb, 8, tmpRead, fail)
	p.pointerTo(tmpRead, l.Magic, tmpRead, fail)
	p.emit(load(r9, r7, tmpRead, u64),
		asm.JEq.Imm(r9, pipeMagic, numbered), asm.JEq.Imm(r9, sockMagic, numbered), asm.JEq.Imm(r9, anonMagic, anon),
		asm.JEq.Imm(r9, pidMagic, pid), asm.Ja.Label(tree))
	p.later(func() {
		p.bind(numbered)
		p.kernel(r6, l.Ino, 8, tmpRead, fail)
		p.prepend("]", fail)
		p.emit(load(r6, r7, tmpRead, u64))
		socket, written := p.label("socket"), p.label("written")
		for range 20 {
			p.emit(load(r1, r7, tmpPos, u64), asm.JGT.Imm(r1, pathArea, fail), asm.JLT.Imm(r1, nameMax+1, fail), asm.Sub.Imm(r1, 1), store(r7, tmpPos, r1, u64),
				asm.Add.Reg(r1, r7), asm.Add.Imm(r1, int32(p.area())),
				asm.Mov.Reg(r2, r6), asm.Mod.Imm(r2, 10), asm.Add.Imm(r2, '0'), store(r1, 0, r2, u8),
				asm.Div.Imm(r6, 10), asm.JEq.Imm(r6, 0, written))
		}
		p.bind(written)
		p.emit(asm.JEq.Imm(r9, sockMagic, socket))
		p.prepend("pipe:[", fail)
		p.emit(asm.Ja.Label(have))
		p.bind(socket)
		p.prepend("socket:[", fail)
		p.emit(asm.Ja.Label(have))
	})
	p.later(func() {
		p.bind(anon)
		p.component(fail)
		p.prepend("anon_inode:", fail)
		p.emit(asm.Ja.Label(have))
	})
	p.later(func() {
		p.bind(pid)
		p.prepend("anon_inode:[pidfd]", fail)
		p.emit(asm.Ja.Label(have))
	})
	p.bind(tree)
}

// device notes the number of the device that the inode at tmpFile stands for, if it is one.
func (p *shape) device(fail string) {
	const typeMask, char, block = 0xf000, 0x2000, 0x6000 // S_IFMT, S_IFCHR, S_IFBLK
	l := &p.Kernel.File
	chr, blk, plain, read := p.label("char"), p.label("block"), p.label("nodevice"), p.label("rdev")
	p.emit(load(r6, r7, tmpFile, u64))
	p.kernel(r6, l.Mode, 2, tmpRead, fail)
	p.emit(load(r1, r7, tmpRead, u16), asm.And.Imm(r1, typeMask), asm.JEq.Imm(r1, char, chr), asm.JEq.Imm(r1, block, blk), asm.Ja.Label(plain))
	p.bind(blk)
	p.emit(storeImm(r7, tmpDevice+4, 'b', u32), asm.Ja.Label(read))
	p.bind(chr)
	p.emit(storeImm(r7, tmpDevice+4, 'c', u32))
	p.bind(read)
	p.kernel(r6, l.Rdev, 4, tmpDevice, fail)
	p.bind(plain)
}

// deviceTail puts what device noted behind the name, as wire.SegFD says.
func (p *shape) deviceTail() {
	none := p.label("nodevice")
	p.emit(load(r1, r7, tmpDevice+4, u32), asm.JEq.Imm(r1, 0, none), load(r2, r7, tmpTail, u64), asm.JGT.Imm(r2, 10, none),
		asm.Mov.Reg(r4, r7), asm.Add.Reg(r4, r2), asm.Add.Imm(r4, int32(p.area()+pathArea)),
		storeImm(r4, 0, 0, u8), store(r4, 1, r1, u8), load(r3, r7, tmpDevice, u32))
	for i := range 4 {
		p.emit(store(r4, 2+i, r3, u8), asm.RSh.Imm(r3, 8))
	}
	p.emit(asm.Add.Imm(r2, wire.FDDeviceSize), store(r7, tmpTail, r2, u64))
	p.bind(none)
}

// component puts the name of the entry at tmpDentry in front. It leaves at fail when there is no room.
func (p *shape) component(fail string) {
	l := &p.Kernel.File
	p.emit(load(r6, r7, tmpDentry, u64))
	p.kernel(r6, l.Name+l.NameLen, 4, tmpRead+8, fail)
	p.kernel(r6, l.Name+l.NameStr, 8, tmpRead, fail)
	p.emit(load(r2, r7, tmpRead+8, u32), asm.JGT.Imm(r2, nameMax, fail),
		load(r1, r7, tmpPos, u64), asm.JGT.Imm(r1, pathArea, fail), asm.JLT.Imm(r1, nameMax+1, fail),
		asm.Sub.Reg(r1, r2), store(r7, tmpPos, r1, u64), asm.Add.Reg(r1, r7), asm.Add.Imm(r1, int32(p.area())),
		load(r3, r7, tmpRead, u64), asm.FnProbeReadKernel.Call(), asm.JNE.Imm(r0, 0, fail))
}

// walkPath puts the name of the entry at tmpDentry on the mount at tmpVfsmnt together, from the last component to the
// root of the mount tree.
func (p *shape) walkPath(have, fail string) {
	l := &p.Kernel.File
	p.say("walk up to the root")
	hashed, memory, root, mountRoot, entry, long := p.label("hashed"), p.label("memory"), p.label("root"), p.label("mountroot"), p.label("entry"), p.label("long")
	// An entry that is not in the hash table and is not the root of its file system has been unlinked.
	p.emit(load(r6, r7, tmpDentry, u64))
	p.kernel(r6, l.Hash+l.Pprev, 8, tmpRead, fail)
	p.kernel(r6, l.Parent, 8, tmpRead+8, fail)
	p.pointerTo(tmpVfsmnt, l.MntRoot, tmpRoot, fail)
	p.emit(load(r1, r7, tmpRead, u64), asm.JNE.Imm(r1, 0, hashed), load(r1, r7, tmpRoot, u64), asm.JEq.Reg(r1, r6, hashed))
	p.emit(storeImm(r7, tmpTail, 10, u64), asm.Mov.Reg(r1, r7))
	p.text8(r1, p.area()+pathArea, " (deleted)")
	p.emit(load(r1, r7, tmpRead+8, u64), asm.JEq.Reg(r1, r6, memory))
	p.bind(hashed)
	p.loop(pathTurns, long, func() {
		p.emit(load(r3, r7, tmpVfsmnt, u64))
		p.kernel(r3, l.MntRoot, 8, tmpRoot, fail)
		p.emit(load(r6, r7, tmpDentry, u64), load(r1, r7, tmpRoot, u64), asm.JEq.Reg(r1, r6, mountRoot))
		p.kernel(r6, l.Parent, 8, tmpRead+16, fail)
		p.emit(load(r1, r7, tmpRead+16, u64), asm.JEq.Reg(r1, r6, root))
		p.component(long)
		p.prepend("/", long)
		p.emit(load(r1, r7, tmpRead+16, u64), store(r7, tmpDentry, r1, u64), asm.Ja.Label(entry))
		p.bind(mountRoot)
		// Up to where the mount is mounted; the topmost is mounted on itself.
		p.emit(load(r6, r7, tmpVfsmnt, u64), asm.Sub.Imm(r6, int32(l.Mnt)))
		p.kernel(r6, l.MntParent, 8, tmpRead, fail)
		p.emit(load(r1, r7, tmpRead, u64), asm.JEq.Reg(r1, r6, root))
		p.kernel(r6, l.MntMountpoint, 8, tmpDentry, fail)
		p.emit(load(r1, r7, tmpRead, u64), asm.Add.Imm(r1, int32(l.Mnt)), store(r7, tmpVfsmnt, r1, u64))
		p.bind(entry)
	})
	p.later(func() {
		p.say("the name is complete")
		p.bind(root)
		p.emit(load(r1, r7, tmpPos, u64), asm.JNE.Imm(r1, pathArea, have))
		p.prepend("/", fail)
		p.emit(asm.Ja.Label(have))
		// A file of memory alone (memfd_create) is its own root and shows as unlinked.
		p.bind(memory)
		p.component(fail)
		p.prepend("/", fail)
		p.emit(asm.Ja.Label(have))
		// Too deep: what there is, with the dots that mark the missing start.
		p.bind(long)
		p.emit(load(r1, r7, tmpPos, u64), asm.JLT.Imm(r1, nameMax+1, have))
		p.prepend("...", fail)
		p.emit(asm.Ja.Label(have))
	})
}
