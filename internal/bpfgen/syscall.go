package bpfgen

import (
	"fmt"

	"github.com/cilium/ebpf/asm"

	"github.com/sonde-trace/sonde/internal/wire"
)

// Syscalls describes the dispatchers of a session.
type Syscalls struct {
	Kernel Kernel
	Target Target
	// Others records calls beyond the table too.
	Others   bool
	RingSize int
	Block    bool
	// Paths makes programs tell what descriptors found in memory refer to (FetchDescriptor).
	Paths bool
	// Regs adds the registers at entries and hits.
	Regs bool
	// StackDepth is the most frames to take of the user stack at entries and hits; 0: no stacks.
	StackDepth int
	// Answered makes entries leave a note, by which the program of [Syscalls.Late] knows that it need not make one.
	Answered bool
}

// Flags of bpf_ringbuf_output and bpf_ringbuf_submit (include/uapi/linux/bpf.h).
const (
	noWakeup    = 1
	forceWakeup = 2
)

// A wake-up costs as much as fifty records, so the reader polls and is woken only when the ring is more than 1/wakeShare
// full; and that is asked only once every wakeEvery records of a CPU.
const (
	wakeShare = 16
	wakeEvery = 32
)

// gen is one program being generated.
type gen struct {
	*builder
	*Syscalls
	arch *arch
	exit bool
	late bool
}

func (s *Syscalls) gen(exit bool) (*gen, error) {
	a := arches[s.Kernel.Arch]
	if a == nil {
		return nil, fmt.Errorf("generating programs for %s: architecture not supported; amd64 and arm64 are", s.Kernel.Arch)
	}
	return &gen{builder: newBuilder(), Syscalls: s, arch: a, exit: exit}, nil
}

// Enter is the dispatcher on raw_tp/sys_enter: bpf_raw_tracepoint_args{pt_regs *, long nr}.
func (s *Syscalls) Enter() (*Program, error) {
	g, err := s.gen(false)
	if err != nil {
		return nil, err
	}
	g.say("is the number selected")
	g.emit(asm.Mov.Reg(r6, r1), load(r1, r6, 8, u64), asm.Mov.Reg32(r8, r1))
	g.tableSlot("exit")
	g.emit(asm.FnGetCurrentPidTgid.Call())
	g.tasks(&s.Target, "exit")
	g.pendingOnly()
	g.identity(&s.Target, "exit")
	g.registers()
	g.abiWord()
	g.statistics()

	g.say("count the call")
	g.sequence(StatMade)
	if s.Target.Unstable() || s.Answered {
		g.setState(stateIn)
	}
	g.execState()
	g.waitForRoom()
	g.record("sonde_enter")
	p := g.program("sonde_enter")
	if s.StackDepth > 0 {
		p.withWalk(&s.Kernel)
	}
	return p, nil
}

// Exit is the dispatcher on raw_tp/sys_exit: bpf_raw_tracepoint_args{pt_regs *, long ret}.
func (s *Syscalls) Exit() (*Program, error) {
	g, err := s.gen(true)
	if err != nil {
		return nil, err
	}
	g.say("is the number selected")
	g.numberAtReturn()
	g.tableSlot("exit")
	g.emit(asm.FnGetCurrentPidTgid.Call())
	g.tasks(&s.Target, "exit")
	g.pendingOnly()
	g.takeState("exit")
	g.registers()
	g.abiWord()
	g.newTask()
	g.statistics()
	g.say("count the return")
	g.sequence(StatReturned)
	g.retry()
	g.waitForRoom()
	g.record("sonde_exit")
	return g.program("sonde_exit"), nil
}

// Late is a second dispatcher on raw_tp/sys_exit that runs before Exit. A call that a seccomp filter answers is not entered,
// as far as tracepoints tell (kernel/entry/common.c looks at filters first): for such a one it makes the record of the entry,
// with the memory as it is now.
func (s *Syscalls) Late() (*Program, error) {
	g, err := s.gen(false)
	if err != nil {
		return nil, err
	}
	g.late = true
	g.say("is the number selected")
	g.numberAtReturn()
	g.emit(load(r1, fp, stTmp, u32), asm.JEq.Imm32(r1, -1, "exit")) // of rt_sigreturn, which was entered
	g.tableSlot("exit")
	g.emit(asm.FnGetCurrentPidTgid.Call())
	g.tasks(&s.Target, "exit")
	g.pendingOnly()
	g.say("was it entered")
	g.emit(load(r1, fp, stPT, u32), store(fp, stKey, r1, u32))
	g.lookup(MapState, stKey)
	g.emit(asm.JNE.Imm(r0, 0, "exit"))
	g.identity(&s.Target, "exit")
	g.registers()
	g.abiWord()
	g.newTask()
	g.emit(load(r1, fp, stFlags, u32), asm.Or.Imm(r1, wire.FlagAnswered), store(fp, stFlags, r1, u32))
	g.statistics()
	g.say("count the call")
	g.sequence(StatMade)
	g.setState(stateIn)
	g.waitForRoom()
	g.record("sonde_late")
	return g.program("sonde_late"), nil
}

// numberAtReturn leaves the number of the call in r8 and, as the registers hold it, at stTmp.
func (g *gen) numberAtReturn() {
	g.emit(asm.Mov.Reg(r6, r1), load(r3, r6, 0, u64), asm.Add.Imm(r3, int32(g.arch.nr)),
		asm.Mov.Reg(r1, fp), asm.Add.Imm(r1, stTmp), asm.Mov.Imm(r2, 4), asm.FnProbeReadKernel.Call(),
		load(r8, fp, stTmp, u32))
}

// tableSlot turns the number in r8 into the address of its word in the table's any row, and leaves at fail when the
// number is of no interest.
func (g *gen) tableSlot(fail string) {
	switch g.Kernel.Arch {
	case "amd64":
		g.emit(asm.And.Imm32(r8, ^int32(x32Bit)))
	case "arm64":
		native := g.label("native")
		g.emit(asm.JLT.Imm(r8, armPrivate, native), asm.JGE.Imm(r8, armPrivate+OtherSlot-privateSlot, native),
			asm.Sub.Imm(r8, armPrivate-privateSlot))
		g.bind(native)
	}
	inside := g.label("inside")
	g.emit(asm.JLT.Imm(r8, OtherSlot, inside))
	if g.exit && !g.Others {
		// A number that the kernel forgot is the return of rt_sigreturn; other large ones are not selected.
		g.emit(load(r1, fp, stTmp, u32), asm.JNE.Imm32(r1, -1, fail))
	}
	g.emit(asm.Mov.Imm(r8, OtherSlot))
	g.bind(inside)
	g.emit(asm.LSh.Imm(r8, 2), mapValue(r1, MapTable, 0), asm.Add.Reg(r8, r1), load(r1, r8, 0, u32), asm.JEq.Imm(r1, 0, fail))
}

// pendingOnly lets pending tasks pass with execve and execveat only.
func (g *gen) pendingOnly() {
	if !g.Target.Procs {
		return
	}
	pending, go_on := g.label("pending"), g.label("active")
	g.emit(asm.JSet.Imm(r7, ProcPending, pending))
	g.bind(go_on)
	g.later(func() {
		g.say("target: a pending task shows only execve")
		g.bind(pending)
		g.emit(load(r1, r8, 0, u32), asm.JSet.Imm(r1, ExecCall, go_on), asm.Ja.Label("exit"))
	})
}

// reg is where a member of the copied pt_regs stands on the stack.
func (g *gen) reg(off int) int {
	a := g.arch
	n := a.span[1] - a.span[0] - (a.hole[1] - a.hole[0])
	at := off - a.span[0]
	if a.hole[1] != 0 && off >= a.hole[1] {
		at -= a.hole[1] - a.hole[0]
	}
	return stRegs - n + at
}

// registers copies pt_regs to the stack.
func (g *gen) registers() {
	g.say("copy the registers")
	a := g.arch
	read := func(from, to int) {
		g.emit(load(r3, r6, 0, u64), asm.Add.Imm(r3, int32(from)),
			asm.Mov.Reg(r1, fp), asm.Add.Imm(r1, int32(g.reg(from))), asm.Mov.Imm(r2, int32(to-from)), asm.FnProbeReadKernel.Call())
	}
	if a.hole[1] == 0 {
		read(a.span[0], a.span[1])
	} else {
		read(a.span[0], a.hole[0])
		read(a.hole[1], a.span[1])
	}
}

// abiWord finds the ABI of the call, puts the arguments of narrow ABIs where the native ones stand, and leaves the
// table's word in r7. Words of zero leave at exit.
func (g *gen) abiWord() {
	g.say("which ABI")
	row := EnterRow
	if g.exit {
		row = ExitRow
	}
	have, compat := g.label("word"), g.label("compat")
	g.emit(storeImm(fp, stFlags, 0, u32))
	if g.exit {
		// An exec may change the ABI of the task before it returns: its entry has left word.
		exec, plain := g.label("exec"), g.label("plain")
		g.emit(load(r1, fp, stState, u32), asm.JSet.Imm(r1, stateExec, exec))
		g.bind(plain)
		g.later(func() {
			g.bind(exec)
			g.emit(asm.RSh.Imm(r1, 8), asm.And.Imm(r1, 0xff))
			for i := range g.arch.abis {
				next := g.label("abi")
				g.emit(asm.JNE.Imm(r1, int32(i+1), next))
				if g.arch.abis[i].narrow {
					g.emit(storeImm(fp, stFlags, wire.FlagCompat, u32))
				}
				g.emit(load(r7, r8, row(i), u32), asm.Ja.Label(have))
				g.bind(next)
			}
			g.emit(asm.Ja.Label("exit"))
		})
	}
	switch g.Kernel.Arch {
	case "amd64":
		g.emit(asm.FnGetCurrentTask.Call(), asm.Mov.Reg(r3, r0), asm.Add.Imm(r3, int32(g.Kernel.Task.Status)),
			asm.Mov.Reg(r1, fp), asm.Add.Imm(r1, stTmp), asm.Mov.Imm(r2, 4), asm.FnProbeReadKernel.Call(),
			load(r1, fp, stTmp, u32), asm.JSet.Imm(r1, x86TSCompat, compat))
		x32 := g.label("x32")
		g.emit(load(r1, fp, g.reg(g.arch.nr), u64), asm.JSet.Imm(r1, x32Bit, x32))
		g.later(func() {
			g.bind(x32)
			// The bit is also set in -1, the forgotten number after rt_sigreturn: that one is native.
			native := g.label("forgotten")
			g.emit(asm.JEq.Imm32(r1, -1, native), load(r7, r8, row(2), u32), asm.Ja.Label(have))
			g.bind(native)
			g.emit(load(r7, r8, row(0), u32), asm.Ja.Label(have))
		})
	case "arm64":
		g.emit(load(r1, fp, g.reg(armPState), u64), asm.JSet.Imm(r1, armMode32, compat))
	}
	g.emit(load(r7, r8, row(0), u32))
	g.bind(have)
	g.emit(asm.JEq.Imm(r7, 0, "exit"))
	g.later(func() {
		g.say("arguments of the 32-bit gate")
		g.bind(compat)
		g.emit(storeImm(fp, stFlags, wire.FlagCompat, u32), load(r7, r8, row(1), u32))
		regs := [6]asm.Register{r0, r1, r2, r3, r4, r5}
		for i, off := range g.arch.abis[1].args {
			g.emit(load(regs[i], fp, g.reg(off), u32))
		}
		for i, off := range g.arch.abis[0].args {
			g.emit(store(fp, g.reg(off), regs[i], u64))
		}
		g.emit(asm.Ja.Label(have))
	})
}

// statistics puts the address of the CPU's counters in r9 and the CPU at stCPU.
func (g *gen) statistics() {
	g.say("find the CPU's counters")
	g.emit(asm.FnGetSmpProcessorId.Call(), store(fp, stCPU, r0, u32))
	g.lookup(MapStats, stCPU)
	g.emit(asm.JEq.Imm(r0, 0, "exit"), asm.Mov.Reg(r9, r0))
}

// sequence adds one to a counter and leaves its former value in r8.
func (b *builder) fetchAdd(stats asm.Register, off int, dst asm.Register, atomics bool) {
	if atomics {
		b.emit(asm.Mov.Imm(dst, 1), atomic(asm.FetchAdd, stats, dst, off))
		return
	}
	// Without fetching atomics nothing may run in between either: these kernels run raw tracepoints with preemption off.
	b.emit(load(dst, stats, off, u64), asm.Mov.Reg(r1, dst), asm.Add.Imm(r1, 1), store(stats, off, r1, u64))
}

func (g *gen) sequence(off int) { g.fetchAdd(r9, off, r8, g.Kernel.Atomics) }

// setState adds bits to what the return of the current call must know. Counters in r9, pid_tgid at stPT.
func (b *builder) setState(bits int32) {
	b.emit(storeImm(fp, stState, bits, u32))
	b.setStateStored()
}

func (b *builder) setStateStored() {
	b.say("note for the return of this call")
	fresh, done := b.label("fresh"), b.label("noted")
	b.emit(load(r1, fp, stPT, u32), store(fp, stKey, r1, u32))
	b.lookup(MapState, stKey)
	b.emit(asm.JEq.Imm(r0, 0, fresh), load(r1, fp, stState, u32), load(r2, r0, 0, u32), asm.Or.Reg(r2, r1), store(r0, 0, r2, u32), asm.Ja.Label(done))
	b.bind(fresh)
	full := b.label("full")
	b.emit(mapPtr(r1, MapState), asm.Mov.Reg(r2, fp), asm.Add.Imm(r2, stKey), asm.Mov.Reg(r3, fp), asm.Add.Imm(r3, stState),
		asm.Mov.Imm(r4, 1 /* BPF_NOEXIST */), asm.FnMapUpdateElem.Call(), asm.JNE.Imm(r0, 0, full),
		mapValue(r2, MapControl, ControlStates), asm.Mov.Imm(r1, 1), xadd(r2, 0, r1), asm.Ja.Label(done))
	b.bind(full)
	b.count(r9, StatStateFull)
	b.bind(done)
}

// lostEntry notes that the entry record of the current call is lost: for its return, and in the account of its thread.
// Counters in r9, pid_tgid at stPT.
func (b *builder) lostEntry() {
	b.setState(stateLost)
	b.lossOfThread()
}

// lossOfThread counts a record that is lost in the account of its thread. pid_tgid at stPT.
func (b *builder) lossOfThread() {
	b.say("count the loss for the thread")
	first, done := b.label("first"), b.label("counted")
	b.lookup(MapLost, stPT)
	b.emit(asm.JEq.Imm(r0, 0, first), asm.Mov.Imm(r1, 1), xadd(r0, 0, r1), asm.Ja.Label(done))
	b.bind(first)
	b.emit(asm.Mov.Imm(r1, 1), store(fp, stTmp, r1, u64), mapPtr(r1, MapLost), asm.Mov.Reg(r2, fp), asm.Add.Imm(r2, stPT),
		asm.Mov.Reg(r3, fp), asm.Add.Imm(r3, stTmp), asm.Mov.Imm(r4, 0), asm.FnMapUpdateElem.Call())
	b.bind(done)
}

// dropState removes the note of the thread at stKey and counts it off. It clobbers the caller-saved registers.
func (b *builder) dropState() {
	gone := b.label("gone")
	b.emit(mapPtr(r1, MapState), asm.Mov.Reg(r2, fp), asm.Add.Imm(r2, stKey), asm.FnMapDeleteElem.Call(),
		asm.JNE.Imm(r0, 0, gone), mapValue(r2, MapControl, ControlStates), asm.Mov.Imm(r1, -1), xadd(r2, 0, r1))
	b.bind(gone)
}

// execState notes the ABI of an execve.
func (g *gen) execState() {
	exec, back := g.label("exec"), g.label("noexec")
	g.emit(asm.JSet.Imm(r7, ExecCall, exec))
	g.bind(back)
	g.later(func() {
		g.bind(exec)
		g.emit(load(r1, fp, stFlags, u32), asm.Mov.Imm(r2, 1<<8|stateExec))
		set := g.label("set")
		if len(g.arch.abis) > 2 {
			narrow := g.label("narrow")
			g.emit(asm.JNE.Imm(r1, 0, narrow), load(r1, fp, g.reg(g.arch.nr), u64), asm.Mov.Imm(r2, 1<<8|stateExec), asm.JSet.Imm(r1, x32Bit, "x32exec"), asm.Ja.Label(set))
			g.bind("x32exec")
			g.emit(asm.Mov.Imm(r2, 3<<8|stateExec), asm.Ja.Label(set))
			g.bind(narrow)
			g.emit(asm.Mov.Imm(r2, 2<<8|stateExec))
		} else {
			g.emit(asm.JEq.Imm(r1, 0, set), asm.Mov.Imm(r2, 2<<8|stateExec))
		}
		g.bind(set)
		g.emit(store(fp, stState, r2, u32))
		g.setStateStored()
		g.emit(asm.Ja.Label(back))
	})
}

// takeState fetches and clears what the entry noted; it leaves at fail when there must be no exit record.
func (g *gen) takeState(fail string) {
	g.say("what did the entry note")
	none, found := g.label("none"), g.label("found")
	g.emit(storeImm(fp, stState, 0, u32))
	lookup := func() {
		g.emit(load(r1, fp, stPT, u32), store(fp, stKey, r1, u32))
		g.lookup(MapState, stKey)
	}
	if g.Target.Unstable() {
		lookup()
		g.emit(asm.JEq.Imm(r0, 0, fail))
	} else {
		g.emit(mapValue(r1, MapControl, ControlStates), load(r1, r1, 0, u64), asm.JNE.Imm(r1, 0, found))
		g.bind(none)
		g.later(func() {
			g.bind(found)
			lookup()
			g.emit(asm.JEq.Imm(r0, 0, none), asm.Ja.Label("take"))
		})
		g.later(func() {
			g.bind("take")
			g.takeFound(fail)
			g.emit(asm.Ja.Label(none))
		})
		return
	}
	g.takeFound(fail)
}

func (g *gen) takeFound(fail string) {
	g.emit(load(r7, r0, 0, u32), store(fp, stState, r7, u32))
	g.dropState()
	g.emit(asm.JSet.Imm(r7, stateLost, fail))
}

// newTask leaves at exit when a new task "returns" from the call that made it.
func (g *gen) newTask() {
	fork, back := g.label("fork"), g.label("call")
	g.emit(asm.JSet.Imm(r7, forkCall, fork))
	g.bind(back)
	g.later(func() {
		g.say("a new task made no call")
		g.bind(fork)
		g.emit(load(r1, r6, 8, u64), asm.JEq.Imm(r1, 0, "exit"), asm.Ja.Label(back))
	})
}

// retry chooses the program that reads again what could not be read at entry. After a successful exec the memory is
// another program's.
func (g *gen) retry() {
	again, back := g.label("again"), g.label("noretry")
	g.emit(load(r1, fp, stState, u32), asm.JSet.Imm(r1, stateRetry, again))
	g.bind(back)
	g.later(func() {
		g.say("read again what could not be read at entry")
		g.bind(again)
		ok := g.label("ok")
		g.emit(asm.JSet.Imm(r1, stateExec, "execret"))
		g.bind(ok)
		g.emit(asm.Mov.Reg(r1, r7), asm.RSh.Imm(r1, retryShft), asm.And.Imm(r1, progMask), asm.JEq.Imm(r1, 0, back), asm.Mov.Reg(r7, r1), asm.Ja.Label(back))
		g.bind("execret")
		g.emit(load(r1, r6, 8, u64), asm.JNE.Imm(r1, 0, ok), storeImm(fp, stState, 0, u32), asm.Ja.Label(back))
	})
}

// record sends the record without memory, or hands over to the program that adds it.
func (g *gen) record(self string) {
	kind, size, lostRing, lostScratch := wire.SysEnter, int32(wire.EnterSize), StatEntryRing, StatEntryScratch
	if g.exit {
		kind, size, lostRing, lostScratch = wire.SysExit, wire.ExitSize, StatExitRing, StatExitScratch
	}
	shape, full := g.label("shape"), g.label("full")
	g.say("send the record")
	g.emit(asm.FnKtimeGetNs.Call(), store(fp, stTime, r0, u64), asm.And.Imm(r7, progMask), asm.JNE.Imm(r7, 0, shape),
		mapPtr(r1, MapRing), asm.Mov.Imm(r2, size), asm.Mov.Imm(r3, 0), asm.FnRingbufReserve.Call(),
		asm.JEq.Imm(r0, 0, full), asm.Mov.Reg(r7, r0))
	g.header(r7, 0, kind, size)
	g.wakeFlags(r2, r8)
	g.emit(asm.Mov.Reg(r1, r7), asm.FnRingbufSubmit.Call())
	g.bind("exit")
	g.emit(asm.Mov.Imm(r0, 0), asm.Return())

	lost := func(label string, counter int) {
		g.later(func() {
			g.say("the record is lost")
			g.bind(label)
			g.count(r9, counter)
			if !g.exit {
				g.lostEntry()
			}
			g.emit(asm.Ja.Label("exit"))
		})
	}
	lost(full, lostRing)
	lost("busy", lostScratch)
	g.later(func() {
		g.say("take a scratch buffer and go on in the shape's program")
		g.bind(shape)
		g.acquire("busy")
		g.header(r5, scratchRecord, kind, size)
		if g.exit {
			g.emit(load(r1, fp, stState, u32), asm.And.Imm(r1, stateRetry), store(r5, scratchRecord+tmpRetry, r1, u64))
		} else if g.StackDepth > 0 {
			g.emit(asm.Mov.Reg(r9, r5), asm.Add.Imm(r9, scratchRecord))
			g.walk(r9)
			g.statistics()
			g.say("go on in the shape's program")
		}
		if g.StackDepth == 0 {
			g.emit(store(r5, scratchRecord+tmpIndex, r7, u64)) // for the generic programs
		}
		g.emit(asm.Mov.Reg(r1, r6), mapPtr(r2, MapProgs), asm.Mov.Reg(r3, r7), asm.Sub.Imm(r3, 1), asm.FnTailCall.Call())
		// Not reached: every word names a program that is there.
		g.findOwned(r6, "exit")
		g.emit(storeImm(r6, scratchOwner, 0, u64), asm.Ja.Label("busy"))
	})
}

// scratch looks up slot k of the CPU at stCPU; r0 is its address or zero.
func (b *builder) scratch(k int) {
	b.emit(load(r1, fp, stCPU, u32), asm.Mul.Imm(r1, Slots), asm.Add.Imm(r1, int32(k)), store(fp, stKey, r1, u32))
	b.lookup(MapScratch, stKey)
}

// acquire takes a free scratch buffer of the CPU and leaves its address in r5. A buffer can be taken when a program was
// preempted, or interrupted, and another one runs on its CPU.
func (g *gen) acquire(busy string) {
	got := g.label("got")
	slots := Slots
	if !g.Kernel.Atomics {
		slots = 1
	}
	for k := range slots {
		next := g.label("next")
		g.scratch(k)
		g.emit(asm.JEq.Imm(r0, 0, "exit"), asm.Mov.Reg(r5, r0), load(r1, fp, stPT, u64))
		if g.Kernel.Atomics {
			g.emit(asm.Mov.Imm(r0, 0), atomic(asm.CmpXchg, r5, r1, scratchOwner), asm.JEq.Imm(r0, 0, got))
		} else {
			g.emit(store(r5, scratchOwner, r1, u64), asm.Ja.Label(got))
		}
		g.bind(next)
	}
	g.emit(asm.Ja.Label(busy))
	g.bind(got)
	g.keepSlot()
}

// keepSlot notes which scratch slot was looked up last.
func (b *builder) keepSlot() { b.emit(load(r1, fp, stKey, u32), store(fp, stSlot, r1, u32)) }

// findOwned puts the address of the scratch buffer that the current task holds in dst.
func (b *builder) findOwned(dst asm.Register, fail string) {
	found := b.label("owned")
	for k := range Slots {
		next := b.label("next")
		b.scratch(k)
		b.emit(asm.JEq.Imm(r0, 0, fail), asm.Mov.Reg(dst, r0), load(r1, r0, scratchOwner, u64), load(r2, fp, stPT, u64), asm.JEq.Reg(r1, r2, found))
		b.bind(next)
	}
	b.emit(asm.Ja.Label(fail))
	b.bind(found)
	b.keepSlot()
}

// header writes the fixed part of a record at base+at. Sequence number in r8. It clobbers r1.
func (g *gen) header(base asm.Register, at int, kind wire.Kind, size int32) {
	put := func(off int, size asm.Size) { g.emit(store(base, at+off, r1, size)) }
	g.emit(storeImm(base, at+wire.OffSize, size, u32),
		load(r1, fp, stFlags, u32), asm.LSh.Imm(r1, 16), asm.Or.Imm(r1, int32(kind)))
	put(wire.OffKind, u32)
	g.emit(load(r1, fp, stTime, u64))
	put(wire.OffTime, u64)
	if g.exit || g.late {
		g.emit(load(r1, fp, g.reg(g.arch.nr), u32))
	} else {
		g.emit(load(r1, r6, 8, u64))
	}
	put(wire.OffProbe, u32)
	g.emit(load(r1, fp, stCPU, u32))
	put(wire.OffCPU, u32)
	g.emit(load(r1, fp, stPT, u64))
	put(wire.OffTid, u64)
	g.emit(load(r1, fp, g.reg(g.arch.ip), u64))
	put(wire.OffIP, u64)
	g.emit(store(base, at+wire.OffSeq, r8, u32), storeImm(base, at+wire.OffMask, 0, u32))
	args := wire.OffEnterArgs
	if g.exit {
		args = wire.OffExitArgs
		g.emit(load(r1, r6, 8, u64))
		put(wire.OffRet, u64)
	}
	for i, off := range g.arch.abis[0].args {
		g.emit(load(r1, fp, g.reg(off), u64))
		put(args+8*i, u64)
	}
}

// wakeFlags leaves the flags for sending a record in dst. Sequence number in seq, a callee-saved register.
func (g *gen) wakeFlags(dst, seq asm.Register) {
	ask, done := g.label("fill"), g.label("flags")
	g.emit(asm.And.Imm(seq, wakeEvery-1), asm.JEq.Imm(seq, 0, ask), asm.Mov.Imm(dst, noWakeup))
	g.bind(done)
	g.later(func() {
		g.say("wake the reader when the ring fills up")
		g.bind(ask)
		g.emit(mapPtr(r1, MapRing), asm.Mov.Imm(r2, 0 /* BPF_RB_AVAIL_DATA */), asm.FnRingbufQuery.Call(),
			asm.Mov.Imm(dst, noWakeup), asm.JLT.Imm(r0, int32(g.RingSize/wakeShare), done), asm.Mov.Imm(dst, forceWakeup), asm.Ja.Label(done))
	})
}

// waitForRoom delays the task while the ring is more than half full, at most about a millisecond.
func (g *gen) waitForRoom() {
	if !g.Block {
		return
	}
	wait, back := g.label("wait"), g.label("room")
	g.say("wait for room")
	query := func() {
		g.emit(mapPtr(r1, MapRing), asm.Mov.Imm(r2, 0), asm.FnRingbufQuery.Call())
	}
	query()
	g.emit(asm.JGT.Imm(r0, int32(g.RingSize/2), wait))
	g.bind(back)
	g.later(func() {
		g.bind(wait)
		g.emit(asm.FnKtimeGetNs.Call(), store(fp, stTime, r0, u64))
		// Wake the reader with a record that is thrown away.
		spin := g.label("spin")
		g.emit(mapPtr(r1, MapRing), asm.Mov.Imm(r2, 8), asm.Mov.Imm(r3, 0), asm.FnRingbufReserve.Call(), asm.JEq.Imm(r0, 0, spin),
			asm.Mov.Reg(r1, r0), asm.Mov.Imm(r2, forceWakeup), asm.FnRingbufDiscard.Call())
		g.bind(spin)
		g.emit(storeImm(fp, stTmp, 0, u64))
		turn, out := g.label("turn"), g.label("waited")
		// The turns bound the loop for the verifier, the clock bounds the delay. Leaving is always the branch not taken, which the
		// verifier walks first: otherwise thousands of branches would wait for it.
		full := g.label("stillfull")
		g.emit(storeImm(fp, stComm, 0, u64))
		g.bind(turn)
		g.emit(load(r1, fp, stComm, u64), asm.JGE.Imm(r1, blockTurns, out), asm.Add.Imm(r1, 1), store(fp, stComm, r1, u64))
		query()
		g.emit(asm.JGT.Imm(r0, int32(g.RingSize/2), full), asm.Ja.Label(out))
		g.bind(full)
		for range 4 {
			g.emit(asm.FnKtimeGetNs.Call())
		}
		g.emit(load(r1, fp, stTime, u64), asm.Sub.Reg(r0, r1), asm.JLT.Imm(r0, blockBudget, turn))
		g.bind(out)
		g.count(r9, StatBlockWaits)
		g.emit(asm.FnKtimeGetNs.Call(), load(r1, fp, stTime, u64), asm.Sub.Reg(r0, r1), xadd(r9, StatBlockNs, r0), asm.Ja.Label(back))
	})
}

const (
	blockBudget = 1000_000 // ns
	blockTurns  = 4096
)
