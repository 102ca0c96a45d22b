package bpfgen

import (
	"github.com/cilium/ebpf/asm"

	"github.com/sonde-trace/sonde/internal/wire"
)

// A LifeProgram is one program on a raw tracepoint of the scheduler or of signals.
type LifeProgram struct {
	*Program
	Tracepoint string
}

// Life returns the programs that follow tasks: they keep the follow set and send the life-cycle and signal records. With
// follow, children inherit their parent's place in the follow set.
func (s *Syscalls) Life(follow, signals bool) ([]LifeProgram, error) {
	type entry struct {
		tracepoint, name string
		body             func(*gen)
	}
	list := []entry{
		{"task_newtask", "sonde_fork", func(g *gen) { g.fork(follow) }},
		{"sched_process_exec", "sonde_exec", (*gen).exec},
		{"sched_process_exit", "sonde_end", (*gen).end},
		{"task_rename", "sonde_rename", (*gen).rename},
	}
	if s.Target.Procs {
		list = append(list, entry{"sched_process_free", "sonde_free", (*gen).free})
	}
	if signals {
		list = append(list, entry{"signal_deliver", "sonde_signal", (*gen).deliver})
		// Who ignores the signal is not the current task, so that its user, name and cgroup cannot be tested.
		if !s.Target.Unstable() {
			list = append(list, entry{"signal_generate", "sonde_ignore", (*gen).ignore})
		}
	}
	var out []LifeProgram
	for _, e := range list {
		g, err := s.gen(false)
		if err != nil {
			return nil, err
		}
		g.say("%s", e.tracepoint)
		g.emit(asm.Mov.Reg(r6, r1))
		e.body(g)
		out = append(out, LifeProgram{g.program(e.name), e.tracepoint})
	}
	return out, nil
}

// member reads size bytes at an offset of the structure whose address is in base to fp+to.
func (g *gen) member(base asm.Register, off, to, size int) {
	g.emit(asm.Mov.Reg(r3, base), asm.Add.Imm(r3, int32(off)), asm.Mov.Reg(r1, fp), asm.Add.Imm(r1, int32(to)),
		asm.Mov.Imm(r2, int32(size)), asm.FnProbeReadKernel.Call())
}

// otherTask makes the pid_tgid of the task in argument arg, in r0.
func (g *gen) otherTask(arg int) {
	g.emit(load(r7, r6, 8*arg, u64))
	g.member(r7, g.Kernel.Task.Pid, stTmp, 4)
	g.member(r7, g.Kernel.Task.Tgid, stTmp+4, 4)
	g.emit(load(r0, fp, stTmp, u64))
}

// reserve begins a side record of the task at stPT: r7 is its address, r9 the CPU's counters. The body is the caller's to fill.
func (g *gen) reserve(kind wire.Kind) {
	g.say("begin the side record")
	size := int32(wire.HeaderSize + wire.LifeSize(kind))
	g.emit(asm.FnKtimeGetNs.Call(), store(fp, stTime, r0, u64))
	g.statistics()
	g.emit(mapPtr(r1, MapSide), asm.Mov.Imm(r2, size), asm.Mov.Imm(r3, 0), asm.FnRingbufReserve.Call(), asm.JEq.Imm(r0, 0, "lost"), asm.Mov.Reg(r7, r0))
	g.fetchAdd(r9, StatSide, r2, g.Kernel.Atomics)
	g.emit(store(r7, wire.OffSeq, r2, u32), storeImm(r7, wire.OffSize, size, u32), storeImm(r7, wire.OffKind, int32(kind), u32),
		load(r1, fp, stTime, u64), store(r7, wire.OffTime, r1, u64), storeImm(r7, wire.OffProbe, 0, u32),
		load(r1, fp, stCPU, u32), store(r7, wire.OffCPU, r1, u32), load(r1, fp, stPT, u64), store(r7, wire.OffTid, r1, u64),
		storeImm(r7, wire.OffIP, 0, u64), storeImm(r7, wire.OffMask, 0, u32))
	g.later(func() {
		g.say("the side record is lost")
		g.bind("lost")
		g.fetchAdd(r9, StatSide, r2, g.Kernel.Atomics)
		g.count(r9, StatSideLost)
		g.emit(asm.Ja.Label("exit"))
	})
}

// submit sends the side record. Life-cycle records are rare: the poll is soon enough.
func (g *gen) submit() {
	g.emit(asm.Mov.Reg(r1, r7), asm.Mov.Imm(r2, noWakeup), asm.FnRingbufSubmit.Call())
	g.bind("exit")
	g.emit(asm.Mov.Imm(r0, 0), asm.Return())
}

// set stores a u32 constant or register value in a hash for the key at stKey; on failure it goes to full.
func (g *gen) set(name string, value func(), full string) {
	value()
	g.emit(mapPtr(r1, name), asm.Mov.Reg(r2, fp), asm.Add.Imm(r2, stKey), asm.Mov.Reg(r3, fp), asm.Add.Imm(r3, stState),
		asm.Mov.Imm(r4, 0), asm.FnMapUpdateElem.Call(), asm.JNE.Imm(r0, 0, full))
}

// known applies the tests of user, name and cgroup to the life of tasks outside of a follow set. Within one it is told whole:
// who passes now may have a parent, or a former name, that does not.
func (g *gen) known() {
	if !g.Target.Procs {
		g.identity(&g.Target, "exit")
	}
}

// fork handles task_newtask(task, clone_flags), in the parent before the child first runs.
func (g *gen) fork(follow bool) {
	g.emit(asm.FnGetCurrentPidTgid.Call(), asm.Mov.Reg(r8, r0))
	self, have := g.label("self"), g.label("have")
	if g.Target.Procs && g.Target.SelfPid != 0 {
		g.emit(asm.Mov.Reg(r1, r0), asm.RSh.Imm(r1, 32), asm.JEq.Imm(r1, int32(g.Target.SelfPid), self))
		g.later(func() {
			g.say("this process starts a command")
			g.bind(self)
			g.emit(store(fp, stPT, r8, u64), mapValue(r1, MapArming, 0), load(r1, r1, 0, u32), asm.JEq.Imm(r1, 0, "exit"),
				load(r1, r6, 8, u64), asm.JSet.Imm(r1, cloneThread, "exit"), asm.Mov.Imm(r7, ProcPending), asm.Mov.Imm(r8, 1), asm.Ja.Label(have))
		})
	}
	g.tasks(&g.Target, "exit")
	g.known()
	g.emit(asm.Mov.Imm(r8, 0))
	if follow {
		g.emit(asm.Mov.Imm(r8, 1))
	}
	g.bind(have)
	g.emit(load(r9, r6, 0, u64))
	g.member(r9, g.Kernel.Task.Pid, stTmp, 4)
	g.member(r9, g.Kernel.Task.Tgid, stTmp+4, 4)
	added := g.label("added")
	g.emit(asm.JEq.Imm(r8, 0, added))
	full := g.label("full")
	if g.Target.Procs {
		thread := g.label("thread")
		g.emit(load(r1, r6, 8, u64), asm.JSet.Imm(r1, cloneThread, thread), load(r1, fp, stTmp+4, u32), store(fp, stKey, r1, u32))
		g.set(MapProcs, func() { g.emit(asm.And.Imm(r7, ProcActive|ProcPending), store(fp, stState, r7, u32)) }, full)
		g.bind(thread)
	}
	if g.Target.Threads {
		g.emit(load(r1, fp, stTmp, u32), store(fp, stKey, r1, u32))
		g.set(MapThreads, func() { g.emit(storeImm(fp, stState, 1, u32)) }, full)
	}
	g.bind(added)
	g.reserve(wire.Fork)
	g.emit(load(r1, fp, stTmp, u32), store(r7, wire.HeaderSize, r1, u32), load(r1, fp, stTmp+4, u32), store(r7, wire.HeaderSize+4, r1, u32),
		load(r1, r6, 8, u64), store(r7, wire.HeaderSize+8, r1, u64))
	g.submit()
	g.later(func() {
		g.say("the follow set is full")
		g.bind(full)
		g.statistics()
		g.count(r9, StatFollowFull)
		g.emit(asm.Ja.Label(added))
	})
}

// exec handles sched_process_exec(task, old_pid, bprm), after the new program is in place.
func (g *gen) exec() {
	g.emit(asm.FnGetCurrentPidTgid.Call(), store(fp, stPT, r0, u64))
	// A thread that is not the leader takes over the leader's id: what is known of it moves along.
	moved, same := g.label("moved"), g.label("same")
	g.emit(load(r8, r6, 8, u64), load(r1, fp, stPT, u32), store(fp, stKey, r8, u32), asm.JNE.Reg32(r1, r8, moved))
	g.bind(same)
	g.later(func() {
		g.say("a thread other than the leader executes a program")
		g.bind(moved)
		if g.Target.Threads {
			alone := g.label("alone")
			g.lookup(MapThreads, stKey)
			g.emit(asm.JEq.Imm(r0, 0, alone), load(r1, fp, stPT, u32), store(fp, stKey, r1, u32))
			g.set(MapThreads, func() { g.emit(storeImm(fp, stState, 1, u32)) }, alone)
			g.bind(alone)
			g.emit(store(fp, stKey, r8, u32))
		}
		g.lookup(MapState, stKey)
		g.emit(asm.JEq.Imm(r0, 0, same), load(r1, r0, 0, u32), store(fp, stState, r1, u32))
		g.dropState()
		g.statistics()
		g.setStateStored()
		g.emit(asm.Ja.Label(same))
	})
	g.emit(load(r0, fp, stPT, u64))
	g.tasks(&g.Target, "exit")
	g.known()
	if g.Target.Procs {
		g.say("the command runs: its calls are shown from here")
		active := g.label("active")
		g.emit(load(r1, fp, stPT+4, u32), store(fp, stKey, r1, u32))
		g.lookup(MapProcs, stKey)
		g.emit(asm.JEq.Imm(r0, 0, active), storeImm(r0, 0, ProcActive, u32))
		g.bind(active)
	}
	g.reserve(wire.Exec)
	g.emit(store(r7, wire.HeaderSize, r8, u32), storeImm(r7, wire.HeaderSize+4, 0, u32),
		storeImm(r7, wire.HeaderSize+8, 0, u64), storeImm(r7, wire.HeaderSize+16, 0, u64),
		asm.Mov.Reg(r1, r7), asm.Add.Imm(r1, wire.HeaderSize+8), asm.Mov.Imm(r2, 16), asm.FnGetCurrentComm.Call())
	g.submit()
}

// end handles sched_process_exit(task), late in do_exit.
func (g *gen) end() {
	g.emit(asm.FnGetCurrentPidTgid.Call())
	g.tasks(&g.Target, "exit")
	g.known()
	t := g.Kernel.Task
	g.emit(load(r8, r6, 0, u64))
	g.member(r8, t.Signal, stTmp, 8)
	g.emit(load(r9, fp, stTmp, u64))
	g.member(r9, t.Live, stComm, 4)
	g.member(r8, t.ExitCode, stComm+8, 4)
	// r8: all threads are gone.
	alive := g.label("alive")
	g.emit(load(r1, fp, stComm, u32), asm.Mov.Imm(r8, 0), asm.JNE.Imm(r1, 0, alive), asm.Mov.Imm(r8, 1))
	if g.Target.Procs {
		g.emit(load(r1, fp, stPT+4, u32), store(fp, stKey, r1, u32))
		g.lookup(MapProcs, stKey)
		g.emit(asm.JEq.Imm(r0, 0, alive), load(r1, r0, 0, u32), asm.Or.Imm(r1, ProcDead), store(r0, 0, r1, u32))
	}
	g.bind(alive)
	g.emit(load(r1, fp, stPT, u32), store(fp, stKey, r1, u32))
	g.dropState()
	if g.Target.Threads {
		g.emit(mapPtr(r1, MapThreads), asm.Mov.Reg(r2, fp), asm.Add.Imm(r2, stKey), asm.FnMapDeleteElem.Call())
	}
	g.reserve(wire.Exit)
	g.emit(load(r1, fp, stComm+8, u32), store(r7, wire.HeaderSize, r1, u32), store(r7, wire.HeaderSize+4, r8, u32))
	// The end of a process may be the end of the session: wake the reader, who waits on the ring of calls, with a record
	// that is thrown away.
	g.emit(asm.Mov.Reg(r1, r7), asm.Mov.Imm(r2, noWakeup), asm.FnRingbufSubmit.Call(), asm.JEq.Imm(r8, 0, "exit"),
		mapPtr(r1, MapRing), asm.Mov.Imm(r2, 8), asm.Mov.Imm(r3, 0), asm.FnRingbufReserve.Call(), asm.JEq.Imm(r0, 0, "exit"),
		asm.Mov.Reg(r1, r0), asm.Mov.Imm(r2, forceWakeup), asm.FnRingbufDiscard.Call())
	g.bind("exit")
	g.emit(asm.Mov.Imm(r0, 0), asm.Return())
}

// free handles sched_process_free(task): its ids may now be given to another task.
func (g *gen) free() {
	g.otherTask(0)
	g.emit(load(r1, fp, stTmp, u32), load(r2, fp, stTmp+4, u32), asm.JNE.Reg(r1, r2, "exit"), store(fp, stKey, r1, u32),
		mapPtr(r1, MapProcs), asm.Mov.Reg(r2, fp), asm.Add.Imm(r2, stKey), asm.FnMapDeleteElem.Call())
	g.bind("exit")
	g.emit(asm.Mov.Imm(r0, 0), asm.Return())
}

// notPending leaves at exit when the Proc bits in r7 say pending.
func (g *gen) notPending() { g.emit(asm.JSet.Imm(r7, ProcPending, "exit")) }

// rename handles task_rename(task, comm), before the name changes.
func (g *gen) rename() {
	g.otherTask(0)
	g.tasks(&g.Target, "exit")
	g.notPending()
	g.identity(&g.Target, "exit")
	g.emit(load(r8, r6, 8, u64))
	g.reserve(wire.Rename)
	g.emit(storeImm(r7, wire.HeaderSize, 0, u64), storeImm(r7, wire.HeaderSize+8, 0, u64),
		asm.Mov.Reg(r1, r7), asm.Add.Imm(r1, wire.HeaderSize), asm.Mov.Imm(r2, 16), asm.Mov.Reg(r3, r8), asm.FnProbeReadKernelStr.Call())
	g.submit()
}

// Offsets and sizes in siginfo_t, and special values of the kernel's siginfo pointers (include/linux/sched/signal.h).
const (
	siginfoKernel = 48 // sizeof(struct kernel_siginfo)
	siginfoCode   = 8
	siginfoPid    = 16
	siginfoUID    = 20
	sendSigNoInfo = 0
	sendSigPriv   = 1
	siKernel      = 0x80
	traceIgnored  = 1 // TRACE_SIGNAL_IGNORED; 0 is TRACE_SIGNAL_DELIVERED (include/trace/events/signal.h)
	sigKill       = 9
	// SIGNAL_GROUP_EXIT in signal_struct.flags (include/linux/sched/signal.h).
	signalGroupExit = 4
)

// deliver handles signal_deliver(sig, info, ka) in the task that gets the signal. Every thread of a process that ends gets
// a SIGKILL, whatever ended it: that one says nothing.
func (g *gen) deliver() {
	g.emit(load(r1, r6, 0, u64), asm.JEq.Imm32(r1, sigKill, "exit"), asm.FnGetCurrentPidTgid.Call())
	g.tasks(&g.Target, "exit")
	g.notPending()
	g.identity(&g.Target, "exit")
	g.signal(false)
}

// ignore handles signal_generate(sig, info, task, group, result), in the sender, for signals that will not be delivered as
// themselves: those that the target ignores, and those that end its process at once (kernel/signal.c, complete_signal).
func (g *gen) ignore() {
	t := g.Kernel.Task
	g.emit(load(r1, r6, 0, u64), asm.JEq.Imm32(r1, sigKill, "exit"), load(r1, r6, 32, u64), asm.JGT.Imm32(r1, traceIgnored, "exit"), load(r8, r6, 16, u64))
	g.member(r8, t.Signal, stTmp, 8)
	g.emit(load(r9, fp, stTmp, u64))
	g.member(r9, t.SignalFlags, stComm, 4)
	send, fatal := g.label("send"), g.label("fatal")
	g.emit(load(r2, fp, stComm, u32), load(r1, r6, 32, u64), asm.JEq.Imm32(r1, 0, fatal),
		// What is sent to a process that ends is nothing that it ignores.
		asm.JSet.Imm(r2, signalGroupExit, "exit"))
	g.bind(send)
	g.otherTask(2)
	g.tasks(&g.Target, "exit")
	g.notPending()
	g.signal(true)
	g.later(func() {
		g.say("does this signal end the process")
		g.bind(fatal)
		g.emit(asm.JSet.Imm(r2, signalGroupExit, send), asm.Ja.Label("exit"))
	})
}

// signal sends the record; generated says that the program is on signal_generate, which tells the result.
func (g *gen) signal(generated bool) {
	g.reserve(wire.Signal)
	const info = wire.HeaderSize + 8
	g.emit(load(r1, r6, 0, u64), store(r7, wire.HeaderSize, r1, u32))
	if generated {
		g.emit(load(r1, r6, 32, u64), store(r7, wire.HeaderSize+4, r1, u32))
	} else {
		g.emit(storeImm(r7, wire.HeaderSize+4, 0, u32))
	}
	for off := 0; off < 128; off += 8 {
		g.emit(storeImm(r7, info+off, 0, u64))
	}
	special, done := g.label("special"), g.label("info")
	g.emit(load(r3, r6, 8, u64), asm.JLE.Imm(r3, sendSigPriv, special),
		asm.Mov.Reg(r1, r7), asm.Add.Imm(r1, info), asm.Mov.Imm(r2, siginfoKernel), asm.FnProbeReadKernel.Call())
	g.bind(done)
	g.submit()
	g.later(func() {
		g.say("the kernel has no siginfo for this signal")
		g.bind(special)
		user := g.label("user")
		g.emit(load(r1, r6, 0, u64), store(r7, info, r1, u32), asm.JEq.Imm(r3, sendSigNoInfo, user),
			storeImm(r7, info+siginfoCode, siKernel, u32), asm.Ja.Label(done))
		g.bind(user)
		g.emit(asm.FnGetCurrentPidTgid.Call(), asm.RSh.Imm(r0, 32), store(r7, info+siginfoPid, r0, u32),
			asm.FnGetCurrentUidGid.Call(), store(r7, info+siginfoUID, r0, u32), asm.Ja.Label(done))
	})
}
