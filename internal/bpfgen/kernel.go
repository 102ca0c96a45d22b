package bpfgen

// Kernel is what the generator must know of the kernel the programs are for.
type Kernel struct {
	Arch    string // "amd64", "arm64"
	Atomics bool   // fetching atomics (exchange, compare and exchange, fetch and add)
	Task    TaskLayout
	File    FileLayout // only for descriptors
	Walk    WalkKernel // only for stacks
}

// TaskLayout holds the offsets of the members of kernel structures that the programs read, from the kernel's BTF.
type TaskLayout struct {
	Pid, Tgid, ExitCode int // task_struct
	Signal              int // task_struct.signal
	Live                int // signal_struct.live, an atomic_t
	SignalFlags         int // signal_struct.flags
	Status              int // thread_info.status within task_struct (x86 only)
}

// An abi says where a way into the kernel finds its number and arguments in the saved registers.
type abi struct {
	name   string
	args   [6]int // offsets in pt_regs
	narrow bool   // arguments are 32 bits wide
	ptr    int
}

// arch is the layout of struct pt_regs, an ABI of the kernel (arch/x86/include/asm/ptrace.h, arch/arm64/include/asm/ptrace.h), and of
// the ways into it. Index 0 is the native ABI.
type arch struct {
	abis []abi
	nr   int    // at the return; the entry has it as an argument
	ip   int    // user instruction pointer
	span [2]int // the part of pt_regs to copy
	hole [2]int // a part of it that is not needed
}

var arches = map[string]*arch{
	"amd64": {
		abis: []abi{
			{name: "amd64", args: [6]int{112, 104, 96, 56, 72, 64}, ptr: 8},
			{name: "i386", args: [6]int{40, 88, 96, 104, 112, 32}, narrow: true, ptr: 4},
			{name: "x32", args: [6]int{112, 104, 96, 56, 72, 64}, ptr: 4},
		},
		nr: 120, ip: 128, span: [2]int{32, 144},
	},
	"arm64": {
		abis: []abi{
			{name: "arm64", args: [6]int{272, 8, 16, 24, 32, 40}, ptr: 8},
			{name: "arm", args: [6]int{272, 8, 16, 24, 32, 40}, narrow: true, ptr: 4},
		},
		nr: 280, ip: 256, span: [2]int{0, 288}, hole: [2]int{64, 256},
	},
}

const (
	x86TSCompat = 2    // thread_info.status: entered through the 32-bit gate
	armPState   = 264  // pt_regs.pstate
	armMode32   = 0x10 // PSR_MODE32_BIT
	x32Bit      = 0x40000000
	armPrivate  = 0xf0000
	cloneThread = 0x10000
)

// ABIIndex returns the index of an ABI in the tables of an architecture and the size of its pointers; ok is false for an ABI
// that the architecture does not have.
func ABIIndex(archName, abi string) (index, ptr int, ok bool) {
	a := arches[archName]
	if a == nil {
		return 0, 0, false
	}
	for i := range a.abis {
		if a.abis[i].name == abi {
			return i, a.abis[i].ptr, true
		}
	}
	return 0, 0, false
}

// Slot is the place of a number in a row of the table.
func Slot(abi string, nr uint32) int {
	if abi == "x32" {
		nr &^= x32Bit
	}
	if abi == "arm" && nr >= armPrivate && nr < armPrivate+OtherSlot-privateSlot {
		return privateSlot + int(nr-armPrivate)
	}
	if nr >= OtherSlot {
		return OtherSlot
	}
	return int(nr)
}

// IsExec reports whether a call replaces the program: the numbers of execve and execveat.
func IsExec(abi string, nr uint32) bool {
	switch abi {
	case "amd64":
		return nr == 59 || nr == 322
	case "i386":
		return nr == 11 || nr == 358
	case "x32":
		return nr&^x32Bit == 520 || nr&^x32Bit == 545
	case "arm64":
		return nr == 221 || nr == 281
	case "arm":
		return nr == 11 || nr == 387
	}
	return false
}

// ExecReturn is the number under which every successful exec of an ABI returns: x86 pretends that the call was execve
// (arch/x86/kernel/process_64.c, set_personality_64bit).
func ExecReturn(abi string) (nr uint32, ok bool) {
	switch abi {
	case "amd64":
		return 59, true
	case "i386":
		return 11, true
	case "x32":
		return 520, true
	}
	return 0, false
}

// IsSigreturn reports whether the kernel forgets the number of the call before it returns: sigreturn and rt_sigreturn.
func IsSigreturn(abi string, nr uint32) bool {
	switch abi {
	case "amd64":
		return nr == 15
	case "i386", "arm":
		return nr == 119 || nr == 173
	case "x32":
		return nr&^x32Bit == 513
	case "arm64":
		return nr == 139
	}
	return false
}

// IsFork reports whether a call makes a task, which returns from it too, with 0, without ever having entered it: clone, fork,
// vfork and clone3.
func IsFork(abi string, nr uint32) bool {
	switch abi {
	case "amd64":
		return nr >= 56 && nr <= 58 || nr == 435
	case "i386", "arm":
		return nr == 2 || nr == 120 || nr == 190 || nr == 435
	case "x32":
		nr &^= x32Bit
		return nr >= 56 && nr <= 58 || nr == 435
	case "arm64":
		return nr == 220 || nr == 435
	}
	return false
}

// Offsets of the two rows of the table.
func AnyRow() int          { return 0 }
func EnterRow(abi int) int { return tableRow * (1 + abi) }
func ExitRow(abi int) int  { return tableRow * (1 + maxABIs + abi) }

// EnterWord and ExitWord make the words of the table. prog and retry are indexes in the program array, -1 for none.
func EnterWord(abi string, nr uint32, prog int) uint32 {
	w := uint32(Selected) | uint32(prog+1)
	if IsExec(abi, nr) {
		w |= ExecCall
	}
	if IsFork(abi, nr) {
		w |= forkCall
	}
	return w
}

func ExitWord(abi string, nr uint32, prog, retry int) uint32 {
	return EnterWord(abi, nr, prog) | uint32(retry+1)<<retryShft
}

// ABIName is the name of an architecture's ABI by index, "" beyond the last.
func ABIName(archName string, index int) string {
	if a := arches[archName]; a != nil && index < len(a.abis) {
		return a.abis[index].name
	}
	return ""
}
