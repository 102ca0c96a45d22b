package attach

import (
	"github.com/sonde-trace/sonde/internal/ring"
	"github.com/sonde-trace/sonde/internal/syscalls"
)

// SyscallPlan is one selected call of one ABI: what the kernel programs take of it.
type SyscallPlan struct {
	ABI         string // "amd64", "i386", "x32", "arm64", "arm"
	Nr          uint32 // as in the ABI's table: x32 without its 0x40000000 bit
	Enter, Exit []syscalls.Fetch
	// FDs has bit i set when argument i is a descriptor, RetFD when the return value is one. They cost nothing unless
	// SyscallOptions.FDPaths is set.
	FDs   uint8
	RetFD bool
}

// TargetFilter says which tasks are traced. Lists of one kind are alternatives; kinds are combined by AND; an empty
// list is no constraint.
type TargetFilter struct {
	// AllowPids and AllowTids seed the sets of followed processes and threads, which FollowProcess and FollowThread
	// extend. With AllowTids only listed threads of a process are traced.
	AllowPids, DenyPids       []uint32
	AllowTids, DenyTids       []uint32
	AllowUIDs, DenyUIDs       []uint32 // effective at the time of the call
	AllowComms, DenyComms     []string // first 15 bytes
	AllowCgroups, DenyCgroups []uint64 // ids of version 2 cgroups
	// AllTasks traces every task of the machine that the other kinds allow, and keeps no follow set. Without it only
	// followed processes are traced.
	AllTasks bool
}

// SyscallOptions is what OpenSyscalls builds.
type SyscallOptions struct {
	Calls []SyscallPlan
	// Others also records calls (without memory) whose number is in no plan.
	Others bool
	// StrLimit is the number of bytes to take of strings and buffers that state no maximum of their own: 1 to 65536,
	// 0 means 256.
	StrLimit int
	// RingSize is the size in bytes of the ring for calls: a power of two times the page size, 0 means 8 MiB.
	RingSize int
	Follow   bool // follow children too
	Target   TargetFilter
	SelfPid  uint32 // this process: never traced
	Signals  bool   // record signals
	FDPaths  bool   // record what descriptors refer to at the time of the call
	Block    bool   // let the target wait while the ring is more than half full, up to 1 ms per record
}

// Counters are sums over all CPUs since OpenSyscalls.
//
// For the calls of targets: Made = entry records sent + EntryLostRing + EntryLostScratch. The exit of a call whose entry
// was lost is not recorded and not counted again.
type Counters struct {
	Made             uint64 // selected calls entered by targets
	EntryLostRing    uint64 // no room in the ring
	EntryLostScratch uint64 // no free scratch buffer on the CPU (nested programs)
	Returned         uint64 // selected calls of targets that returned, those of lost entries left out
	ExitLostRing     uint64
	ExitLostScratch  uint64
	EnterMissed      uint64 // hits that the kernel skipped, because a program was already running on the CPU
	ExitMissed       uint64
	FollowFull       uint64 // processes not followed for want of room in the follow set
	StateFull        uint64 // calls whose loss or retry could not be remembered until their return
	SideLost         uint64 // life-cycle and signal records without room in the side ring
	BlockWaits       uint64 // records that waited for room
	BlockNs          uint64 // and for how long in total
}

// Syscalls is a set of loaded programs and their maps. Its methods may be called from several goroutines, Close last.
type Syscalls struct {
	main, side *ring.Reader
}

// OpenSyscalls creates the maps and loads the programs of o. Nothing is attached yet. On error nothing is left behind.
func OpenSyscalls(o SyscallOptions) (*Syscalls, error) { return nil, errNotYet }

// Attach attaches all programs, or none.
func (s *Syscalls) Attach() error { return errNotYet }

// FollowProcess adds a process to the follow set.
func (s *Syscalls) FollowProcess(tgid uint32) error { return errNotYet }

// FollowThread adds a thread to the set of followed threads; it has an effect only when the target filter names threads.
func (s *Syscalls) FollowThread(tid uint32) error { return errNotYet }

// Launching says whether this process (SelfPid) is about to start a command. While on, its new children are followed in a
// pending state: they show execve and execveat only, until one succeeds.
func (s *Syscalls) Launching(on bool) error { return errNotYet }

// Followed returns the ids of the followed processes that have not ended.
func (s *Syscalls) Followed() ([]uint32, error) { return nil, errNotYet }

// Main is the ring of calls, Side the ring of life-cycle and signal records. Close closes both.
func (s *Syscalls) Main() *ring.Reader { return s.main }

// Side is the ring of life-cycle and signal records.
func (s *Syscalls) Side() *ring.Reader { return s.side }

// Counters reads the counters.
func (s *Syscalls) Counters() (Counters, error) { return Counters{}, errNotYet }

// Close detaches everything, closes the rings and unloads the programs. It may be called more than once.
func (s *Syscalls) Close() error { return errNotYet }
