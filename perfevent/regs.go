package perfevent

import "math/bits"

// AllRegs is the mask of the user registers that a sample can have on an architecture.
func AllRegs(arch string) uint64 {
	if arch == "arm64" {
		return 1<<33 - 1
	}
	// ds, es, fs and gs (12 to 15) are refused for 64-bit tasks: REG_NOSUPPORT in arch/x86/kernel/perf_regs.c.
	return 0xff0fff
}

// Bits in a mask of registers that programs ask for by role: arch/x86/include/uapi/asm/perf_regs.h and that of arm64.
const (
	AMD64BP, AMD64SP, AMD64IP = 6, 7, 8
	ARM64FP, ARM64LR          = 29, 30
	ARM64SP, ARM64PC          = 31, 32
)

var amd64Regs = [...]string{"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "rip", "eflags", "cs", "ss", "ds", "es", "fs", "gs",
	"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"}

var arm64Regs = [...]string{"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x18",
	"x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "lr", "sp", "pc"}

// RegName is the name of a bit of a register mask, "" where there is none.
func RegName(arch string, bit int) string {
	list := amd64Regs[:]
	if arch == "arm64" {
		list = arm64Regs[:]
	}
	if bit < 0 || bit >= len(list) {
		return ""
	}
	return list[bit]
}

// ABI says of which kind a task is whose registers were taken.
type ABI uint64

const (
	ABINone ABI = 0 // there were none: a kernel thread
	ABI32   ABI = 1
	ABI64   ABI = 2
)

// Regs are the user's registers in a sample.
type Regs struct {
	ABI    ABI
	Mask   uint64
	Values Words // in the order of the mask's bits
}

// Get returns the register of a bit; ok is false when it was not taken.
func (r Regs) Get(bit int) (v uint64, ok bool) {
	if bit < 0 || bit > 63 || r.Mask>>bit&1 == 0 || r.ABI == ABINone {
		return 0, false
	}
	i := bits.OnesCount64(r.Mask & (1<<bit - 1))
	if i >= r.Values.Len() {
		return 0, false
	}
	return r.Values.At(i), true
}
