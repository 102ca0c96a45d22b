package bpfgen

// Names of the maps that programs refer to.
const (
	MapRing    = "ring"    // ring buffer of calls
	MapSide    = "side"    // ring buffer of life-cycle and signal records
	MapScratch = "scratch" // array, CPU × Slots + slot: where records with memory are put together
	MapStats   = "stats"   // array by CPU of counters, see Stat
	MapProcs   = "procs"   // hash tgid → u32 of Proc bits: the follow set
	MapThreads = "threads" // hash tid → u32, only when the target filter names threads
	MapState   = "state"   // hash tid → u32 of state bits: what the return of the current call must know
	MapLost    = "lost"    // hash pid_tgid u64 → u64: entry records lost, by thread
	MapTable   = "table"   // array of one value: what to do with each number, see Table
	MapProgs   = "progs"   // program array
	MapFetches = "fetches" // array of one value: the lists of the generic programs, see Lists
	MapControl = "control" // array of one value, see Control
	// MapArming is an array of one u32: this process is starting a command. It is written from outside, so it has a map of its own: what the
	// programs count in MapControl would be put back to what it was when it was read.
	MapArming = "arming"

	MapDenyPids     = "denypids"
	MapDenyTids     = "denytids"
	MapAllowUIDs    = "allowuids"
	MapDenyUIDs     = "denyuids"
	MapAllowCgroups = "allowcgrp"
	MapDenyCgroups  = "denycgrp"
)

// The table has one u32 per number for "any ABI", then one per ABI for entry and one per ABI for return.
const (
	TableSlots  = 1024
	OtherSlot   = TableSlots - 1 // all numbers beyond the table, and the -1 at the return of rt_sigreturn
	privateSlot = 1008           // arm's private calls 0xf0000 and up
	maxABIs     = 3
	tableRow    = TableSlots * 4
	TableSize   = tableRow * (1 + 2*maxABIs)
)

// Bits of a table word. The low halves hold 1 + the index in the program array, 0 for a record without memory.
const (
	Selected  = 1 << 31
	ExecCall  = 1 << 30 // execve, execveat: shown by pending tasks too
	forkCall  = 1 << 29 // return of 0: the new task, which made no call
	progBits  = 12
	progMask  = 1<<progBits - 1
	retryShft = progBits // return: the program to use when reads failed at entry
)

// Bits of a value in MapProcs.
const (
	ProcActive  = 1
	ProcPending = 2 // shows only execve and execveat until one succeeds
	ProcDead    = 4 // all threads have exited; the entry goes when the kernel frees the leader
)

// Bits of a value in MapState.
const (
	stateLost  = 1 // the entry record was lost: no exit record
	stateRetry = 2 // memory could not be read at entry
	stateExec  = 4 // in execve; the ABI's index + 1 is in bits 8..15
	stateIn    = 8 // the entry passed the filters that can change until the return (user, name, cgroup)
)

// Offsets of the counters in a CPU's value of MapStats.
const (
	StatMade = 8 * iota
	StatEntryRing
	StatEntryScratch
	StatReturned
	StatExitRing
	StatExitScratch
	StatFollowFull
	StatStateFull
	StatSideLost
	StatBlockWaits
	StatBlockNs
	StatSide  // side records attempted
	StatsSize = 128
)

// Offsets in the value of MapControl.
const (
	ControlStates = 0 // u64: elements in MapState, so that the common return need not look
	ControlSize   = 64
)

// Slots is the number of scratch buffers per CPU.
const Slots = 2

// A scratch buffer starts with the pid_tgid of its owner, zero when free; then comes what a shape program keeps in
// memory, then the record.
const (
	scratchOwner  = 0
	scratchRecord = 768
)
