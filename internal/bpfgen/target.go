package bpfgen

import (
	"encoding/binary"

	"github.com/cilium/ebpf/asm"
)

// Target is the part of the target filter that is compiled into the programs. Lists of one kind are alternatives, kinds
// are combined by AND. Lists that a program tests by a map say so by their length only.
type Target struct {
	SelfPid uint32
	// Procs and Threads: only tasks in these maps.
	Procs, Threads            bool
	DenyPids, DenyTids        []uint32
	AllowUIDs, DenyUIDs       []uint32
	AllowComms, DenyComms     []string
	AllowCgroups, DenyCgroups []uint64
}

// Unstable reports whether a task may pass the filter at the entry of a call and fail it at the return.
func (t *Target) Unstable() bool {
	return len(t.AllowUIDs)+len(t.DenyUIDs)+len(t.AllowComms)+len(t.DenyComms)+len(t.AllowCgroups)+len(t.DenyCgroups) > 0
}

// inlineLimit is the length up to which a list is compared in the program.
const inlineLimit = 8

// Inline reports whether a list of n is compared in the program rather than looked up in a map.
func (t *Target) Inline(n int) bool { return n <= inlineLimit }

// The stack of the dispatchers and of the life-cycle programs, as offsets from the frame pointer.
const (
	stKey   = -4  // u32, key of a lookup
	stFlags = -8  // u32, flags of the record
	stPT    = -16 // u64, pid_tgid: the thread in the low half
	stCPU   = -20 // u32
	stState = -24 // u32, value for MapState
	stTmp   = -32 // u64
	stTime  = -40 // u64
	stSlot  = -44 // u32, index of the scratch slot; the name at stComm is compared before one is taken
	stComm  = -56 // 16 bytes
	stRegs  = -56 // end of the copied registers, which lie below
)

// tasks emits the tests of the process and thread sets for the task whose pid_tgid is in r0, which it saves at stPT. A
// task that fails leaves at fail. After it, r7 holds the Proc bits (zero without a process set).
func (b *builder) tasks(t *Target, fail string) {
	b.say("target: process and thread")
	b.emit(store(fp, stPT, r0, u64))
	b.emit(asm.Mov.Reg(r1, r0), asm.RSh.Imm(r1, 32), store(fp, stKey, r1, u32))
	if t.SelfPid != 0 && !t.Procs {
		b.emit(asm.JEq.Imm(r1, int32(t.SelfPid), fail))
	}
	b.emit(asm.Mov.Imm(r7, 0))
	if t.Procs {
		b.lookup(MapProcs, stKey)
		b.emit(asm.JEq.Imm(r0, 0, fail), load(r7, r0, 0, u32))
	}
	if len(t.DenyPids) > 0 {
		deny32(b, t, MapDenyPids, t.DenyPids, fail)
	}
	if t.Threads || len(t.DenyTids) > 0 {
		b.emit(load(r1, fp, stPT, u32), store(fp, stKey, r1, u32))
		if t.Threads {
			b.lookup(MapThreads, stKey)
			b.emit(asm.JEq.Imm(r0, 0, fail))
		}
		if len(t.DenyTids) > 0 {
			deny32(b, t, MapDenyTids, t.DenyTids, fail)
		}
	}
}

// deny32 leaves at fail when the u32 at stKey is in the list.
func deny32(b *builder, t *Target, name string, list []uint32, fail string) {
	if t.Inline(len(list)) {
		b.emit(load(r1, fp, stKey, u32))
		for _, v := range list {
			b.jumpIf(asm.JEq, r1, uint64(v), fail)
		}
		return
	}
	b.lookup(name, stKey)
	b.emit(asm.JNE.Imm(r0, 0, fail))
}

// identity emits the tests that look at the current task's user, name and cgroup.
func (b *builder) identity(t *Target, fail string) {
	if len(t.AllowUIDs)+len(t.DenyUIDs) > 0 {
		b.say("target: user")
		b.emit(asm.FnGetCurrentUidGid.Call(), store(fp, stKey, r0, u32))
		allowDeny(b, t, MapAllowUIDs, MapDenyUIDs, stKey, u32, wide(t.AllowUIDs), wide(t.DenyUIDs), fail)
	}
	if len(t.AllowCgroups)+len(t.DenyCgroups) > 0 {
		b.say("target: cgroup")
		b.emit(asm.FnGetCurrentCgroupId.Call(), store(fp, stTmp, r0, u64))
		allowDeny(b, t, MapAllowCgroups, MapDenyCgroups, stTmp, u64, t.AllowCgroups, t.DenyCgroups, fail)
	}
	if len(t.AllowComms)+len(t.DenyComms) > 0 {
		b.say("target: name")
		// Linux 6.1 leaves what was on the stack behind the NUL: clear it first.
		b.emit(storeImm(fp, stComm, 0, u64), storeImm(fp, stComm+8, 0, u64),
			asm.Mov.Reg(r1, fp), asm.Add.Imm(r1, stComm), asm.Mov.Imm(r2, 16), asm.FnGetCurrentComm.Call(),
			load(r1, fp, stComm, u64), load(r2, fp, stComm+8, u64))
		if len(t.AllowComms) > 0 {
			ok := b.label("comm")
			for _, c := range t.AllowComms {
				b.comm(c, ok)
			}
			b.emit(asm.Ja.Label(fail))
			b.bind(ok)
		}
		for _, c := range t.DenyComms {
			b.comm(c, fail)
		}
	}
}

// comm jumps to label when the name in r1 and r2 is c.
func (b *builder) comm(c string, label string) {
	var w [16]byte
	copy(w[:15], c)
	differs := b.label("comm")
	b.emit(asm.LoadImm(r3, int64(binary.LittleEndian.Uint64(w[:8])), asm.DWord), asm.JNE.Reg(r1, r3, differs),
		asm.LoadImm(r3, int64(binary.LittleEndian.Uint64(w[8:])), asm.DWord), asm.JEq.Reg(r2, r3, label))
	b.bind(differs)
}

func wide(list []uint32) []uint64 {
	w := make([]uint64, len(list))
	for i, v := range list {
		w[i] = uint64(v)
	}
	return w
}

// allowDeny tests the value at fp+key against an allow and a deny list.
func allowDeny(b *builder, t *Target, allowMap, denyMap string, key int, size asm.Size, allow, deny []uint64, fail string) {
	if len(allow) > 0 {
		if t.Inline(len(allow)) {
			ok := b.label("allowed")
			b.emit(load(r1, fp, key, size))
			for _, v := range allow {
				b.jumpIf(asm.JEq, r1, v, ok)
			}
			b.emit(asm.Ja.Label(fail))
			b.bind(ok)
		} else {
			b.lookup(allowMap, key)
			b.emit(asm.JEq.Imm(r0, 0, fail))
		}
	}
	if len(deny) > 0 {
		if t.Inline(len(deny)) {
			b.emit(load(r1, fp, key, size))
			for _, v := range deny {
				b.jumpIf(asm.JEq, r1, v, fail)
			}
		} else {
			b.lookup(denyMap, key)
			b.emit(asm.JNE.Imm(r0, 0, fail))
		}
	}
}
