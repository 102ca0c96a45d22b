package attach

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/perfevent"
)

// Feature is one ability of the running kernel, proved by using it, never by its version.
type Feature struct {
	Name  string // "ring buffer"
	For   string // what sonde uses it for
	Needs Need
	Err   error  // nil: it works here. Otherwise why not
	Note  string // what was seen: the place of tracefs, the hits of a self-test
	Fix   string // what to do about it, where something can be done
}

// Need says what sonde is without a feature.
type Need uint8

const (
	Required Need = iota // no session without it
	Optional             // something is slower, less exact or missing
	Info                 // a fact about the machine, not an ability
)

// Features proves every feature in turn, in well under a second, on this process's own memory and functions only. It
// works without privileges too: what cannot be tried then says so.
func Features() []Feature {
	p := prober{loadable: probeLoad()}
	return []Feature{
		p.privileges(),
		p.lockdown(),
		p.feature(Required, "BPF programs", "everything", p.loadable, "run as root, or with CAP_BPF and CAP_PERFMON; kernel.unprivileged_bpf_disabled does not matter then"),
		p.feature(Required, "BPF ring buffer", "the way of all records to sonde", p.orLoad(func() error { return features.HaveMapType(ebpf.RingBuf) }), "Linux 5.8 or later"),
		p.feature(Required, "raw tracepoints", "syscalls, forks, execs, exits, signals", p.orLoad(probeRawTracepoint), "CAP_PERFMON, and a kernel with CONFIG_BPF_EVENTS"),
		p.feature(Required, "kernel BTF", "finding fields of kernel structures", readable("/sys/kernel/btf/vmlinux"), "a kernel with CONFIG_DEBUG_INFO_BTF"),
		p.feature(Optional, "atomic operations", "several records in the making on one CPU", p.orLoad(probeAtomics), "Linux 5.12 or later; without them a nested record is counted as lost"),
		p.feature(Optional, "find_vma", "call stacks (-k)", p.orLoad(haveFindVMA), "Linux 5.17 or later"),
		p.tracefs(),
		p.uprobe(),
		p.feature(Optional, "uprobe_multi", "thousands of user functions at once", p.orLoad(probeUprobeMulti), "Linux 6.6 or later; without it one tracefs event carries them"),
		p.kprobe(),
		p.feature(Optional, "fentry", "kernel functions with typed arguments, cheaper than kprobes", p.orLoad(probeFentry), "CONFIG_FUNCTION_TRACER and an architecture with BPF trampolines (arm64: 6.0)"),
		p.breakpoint("hardware breakpoints", "break: probes", perfevent.ModeExecute),
		p.breakpoint("hardware watchpoints", "watch: probes", perfevent.ModeWrite),
		p.paranoid(),
	}
}

type prober struct{ loadable error }

// orLoad tries f only when programs can be loaded at all, so that one cause is named once.
func (p *prober) orLoad(f func() error) error {
	if p.loadable != nil {
		return fmt.Errorf("cannot be tried: %w", p.loadable)
	}
	return f()
}

func (p *prober) feature(n Need, name, use string, err error, fix string) Feature {
	f := Feature{Name: name, For: use, Needs: n, Err: err}
	if err != nil {
		f.Fix = fix
	}
	return f
}

func (p *prober) privileges() Feature {
	f := Feature{Name: "privileges", For: "loading programs and reading other tasks", Needs: Info}
	caps, err := effectiveCaps()
	if err != nil {
		f.Err = err
		return f
	}
	var have, miss []string
	for _, c := range []struct {
		name string
		bit  uint
	}{{"CAP_BPF", unix.CAP_BPF}, {"CAP_PERFMON", unix.CAP_PERFMON}, {"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN}, {"CAP_SYS_PTRACE", unix.CAP_SYS_PTRACE}, {"CAP_SYS_RESOURCE", unix.CAP_SYS_RESOURCE}} {
		if caps&(1<<c.bit) != 0 {
			have = append(have, c.name)
		} else {
			miss = append(miss, c.name)
		}
	}
	f.Note = fmt.Sprintf("uid %d, has %s", os.Geteuid(), listOr(have, "none of the capabilities it uses"))
	if len(miss) > 0 {
		f.Note += ", lacks " + strings.Join(miss, ", ")
	}
	admin := caps&(1<<unix.CAP_SYS_ADMIN) != 0
	if !admin && caps&(1<<unix.CAP_BPF|1<<unix.CAP_PERFMON) != 1<<unix.CAP_BPF|1<<unix.CAP_PERFMON {
		f.Err = errors.New("not enough to trace")
		f.Fix = "run as root (sudo sonde …), or give it CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE"
	}
	return f
}

func listOr(s []string, none string) string {
	if len(s) == 0 {
		return none
	}
	return strings.Join(s, ", ")
}

// effectiveCaps reads CapEff of proc_pid_status(5).
func effectiveCaps() (uint64, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read the capabilities of this process: %w", err)
	}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		if v, ok := strings.CutPrefix(sc.Text(), "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(v), 16, 64)
		}
	}
	return 0, errors.New("/proc/self/status has no CapEff line")
}

// lockdown reads the mode of kernel_lockdown(7) from securityfs, which need not be mounted.
func (p *prober) lockdown() Feature {
	f := Feature{Name: "lockdown", For: "what the kernel forbids even to root", Needs: Info}
	b, err := os.ReadFile("/sys/kernel/security/lockdown")
	if err != nil {
		f.Note = "not known: " + unwrapPath(err)
		return f
	}
	mode := string(b)
	if i, j := strings.IndexByte(mode, '['), strings.IndexByte(mode, ']'); i >= 0 && j > i {
		mode = mode[i+1 : j]
	}
	f.Note = "mode " + strings.TrimSpace(mode)
	if mode == "confidentiality" {
		f.Err = errors.New("this mode forbids BPF to read kernel memory")
		f.Fix = "boot without lockdown=confidentiality"
	}
	return f
}

func unwrapPath(err error) string {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Path + ": " + pe.Err.Error()
	}
	return err.Error()
}

func readable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return errors.New(unwrapPath(err))
	}
	return f.Close()
}

// probeLoad loads the smallest program that sessions need the rights for.
func probeLoad() error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "sonde_probe", Type: ebpf.RawTracepoint, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return plain(err)
	}
	return prog.Close()
}

// plain turns an errno of bpf(2) or perf_event_open(2) into words.
func plain(err error) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return errors.New("not permitted")
	case errors.Is(err, unix.ENOSYS), errors.Is(err, ebpf.ErrNotSupported):
		return errors.New("this kernel does not have it")
	}
	return err
}

func probeRawTracepoint() error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "sonde_probe", Type: ebpf.RawTracepoint, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return plain(err)
	}
	defer prog.Close()
	for _, name := range []string{"sys_enter", "sys_exit", "task_newtask", "sched_process_exec", "sched_process_exit", "signal_deliver", "signal_generate"} {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: prog})
		if err != nil {
			return fmt.Errorf("%s: %w", name, plain(err))
		}
		l.Close()
	}
	return nil
}

// probeAtomics runs a compare-and-exchange and looks at its result: kernels before 5.12 refuse it, and a wrong encoding
// would add instead.
func probeAtomics() error {
	cmpxchg := asm.CmpXchg.Mem(asm.R10, asm.R1, asm.DWord, -8)
	cmpxchg.Constant = 0xf1 // BPF_CMPXCHG; see instruction-set.rst. The assembler leaves it out.
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "sonde_probe", Type: ebpf.SocketFilter, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.StoreImm(asm.R10, -8, 0, asm.Word), asm.StoreImm(asm.R10, -4, 0, asm.Word),
			asm.Mov.Imm(asm.R0, 0), asm.Mov.Imm(asm.R1, 7),
			cmpxchg,
			asm.LoadMem(asm.R0, asm.R10, -8, asm.DWord), asm.Return(),
		},
	})
	if err != nil {
		if errors.Is(err, unix.EINVAL) {
			return errors.New("this kernel does not have them")
		}
		return plain(err)
	}
	defer prog.Close()
	got, err := prog.Run(&ebpf.RunOptions{Data: make([]byte, 14)})
	if err != nil {
		return fmt.Errorf("test run: %w", err)
	}
	if got != 7 {
		return fmt.Errorf("compare-and-exchange gave %d, not 7", got)
	}
	return nil
}

func (p *prober) tracefs() Feature {
	f := Feature{Name: "tracefs", For: "formats of tracepoints, many uprobes in one event", Needs: Optional}
	for _, dir := range tracefsMounts() {
		if _, err := os.Stat(filepath.Join(dir, "events")); err == nil {
			f.Note = "mounted at " + dir
			return f
		}
	}
	fd, err := openTracefs()
	if err != nil {
		f.Err = fmt.Errorf("not mounted, and cannot be opened privately: %w", plain(err))
		f.Fix = "mount -t tracefs tracefs /sys/kernel/tracing"
		return f
	}
	unix.Close(fd)
	f.Note = "not mounted; opened privately"
	return f
}

// tracefsMounts lists where proc_pid_mountinfo(5) says a tracefs is, and the place below a debugfs.
func tracefsMounts() (dirs []string) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		before, after, ok := strings.Cut(sc.Text(), " - ")
		fields := strings.Fields(before)
		if !ok || len(fields) < 5 {
			continue
		}
		switch {
		case strings.HasPrefix(after, "tracefs "):
			dirs = append(dirs, fields[4])
		case strings.HasPrefix(after, "debugfs "):
			dirs = append(dirs, filepath.Join(fields[4], "tracing"))
		}
	}
	return dirs
}

// openTracefs makes a mount of its own that no directory shows (fsopen(2), fsmount(2), Linux 5.2) and returns its
// descriptor, for openat(2).
func openTracefs() (int, error) {
	fs, err := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
}

// probed is the function that self-tests set their probes on.
//
//go:noinline
func probed(p *uint64, v uint64) { *p = v }

// probedOffset is the place of probed in the file of this program, for a uprobe.
func probedOffset() (uint64, error) {
	return fileOffset(uint64(funcEntry(probed)))
}

// fileOffset is the place in its file of an address of this process.
func fileOffset(pc uint64) (uint64, error) {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0, err
	}
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		var lo, hi, off uint64
		var perms string
		if n, _ := fmt.Sscanf(sc.Text(), "%x-%x %s %x", &lo, &hi, &perms, &off); n == 4 && lo <= pc && pc < hi {
			return pc - lo + off, nil
		}
	}
	return 0, errors.New("no mapping holds the function")
}

func funcEntry(f func(*uint64, uint64)) uintptr {
	return **(**uintptr)(unsafe.Pointer(&f))
}

// countHits opens the event on this thread, calls probed ten times and returns the count.
func countHits(attr *unix.PerfEventAttr, word *uint64) (uint64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr.Size = uint32(unsafe.Sizeof(*attr))
	fd, err := unix.PerfEventOpen(attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	for i := range 10 {
		probed(word, uint64(i))
	}
	var b [8]byte
	if _, err := unix.Read(fd, b[:]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

func pmuType(name string) (uint32, error) {
	b, err := os.ReadFile("/sys/bus/event_source/devices/" + name + "/type")
	if err != nil {
		return 0, errors.New("this kernel does not have them")
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 32)
	return uint32(n), err
}

func (p *prober) uprobe() Feature {
	f := Feature{Name: "uprobes", For: "user functions, USDT", Needs: Optional}
	var path []byte
	f.Err = func() error {
		typ, err := pmuType("uprobe")
		if err != nil {
			return err
		}
		off, err := probedOffset()
		if err != nil {
			return err
		}
		path = append([]byte("/proc/self/exe"), 0)
		var word uint64
		// config1 is the file's name, config2 the offset in it: perf_event_open(2).
		attr := unix.PerfEventAttr{Type: typ, Ext1: uint64(uintptr(unsafe.Pointer(&path[0]))), Ext2: off}
		hits, err := countHits(&attr, &word)
		runtime.KeepAlive(path)
		if err != nil {
			return plain(err)
		}
		if hits != 10 {
			return fmt.Errorf("armed, and %d of 10 calls were seen", hits)
		}
		f.Note = "10 of 10 calls seen"
		return nil
	}()
	if f.Err != nil {
		f.Fix = "CAP_PERFMON (on patched kernels CAP_SYS_ADMIN), and a kernel with CONFIG_UPROBE_EVENTS"
	}
	return f
}

func (p *prober) kprobe() Feature {
	f := Feature{Name: "kprobes", For: "kernel functions", Needs: Optional}
	f.Err = func() error {
		typ, err := pmuType("kprobe")
		if err != nil {
			return err
		}
		name := append([]byte(map[string]string{"amd64": "__x64_sys_getppid", "arm64": "__arm64_sys_getppid"}[runtime.GOARCH]), 0)
		attr := unix.PerfEventAttr{Type: typ, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Ext1: uint64(uintptr(unsafe.Pointer(&name[0])))}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		runtime.KeepAlive(name)
		if err != nil {
			return plain(err)
		}
		defer unix.Close(fd)
		for range 10 {
			unix.Getppid()
		}
		var b [8]byte
		if _, err := unix.Read(fd, b[:]); err != nil {
			return err
		}
		if hits := binary.LittleEndian.Uint64(b[:]); hits != 10 {
			return fmt.Errorf("armed, and %d of 10 calls were seen", hits)
		}
		f.Note = "10 of 10 calls seen"
		return nil
	}()
	if f.Err != nil {
		f.Fix = "a kernel with CONFIG_KPROBE_EVENTS, and CAP_PERFMON"
	}
	return f
}

// breakpoint proves that debug registers work.
func (p *prober) breakpoint(name, use string, mode perfevent.Mode) Feature {
	f := Feature{Name: name, For: use, Needs: Optional}
	f.Note, f.Fix, f.Err = testBreakpoint(mode)
	return f
}

func probeUprobeMulti() error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "sonde_probe", Type: ebpf.Kprobe, AttachType: ebpf.AttachTraceUprobeMulti, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return plain(err)
	}
	defer prog.Close()
	exe, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return err
	}
	off, err := probedOffset()
	if err != nil {
		return err
	}
	l, err := exe.UprobeMulti(nil, prog, &link.UprobeMultiOptions{Addresses: []uint64{off}, PID: uint32(os.Getpid())})
	if err != nil {
		if errors.Is(err, unix.EINVAL) {
			return errors.New("this kernel does not have it")
		}
		return plain(err)
	}
	return l.Close()
}

func probeFentry() error {
	name := map[string]string{"amd64": "__x64_sys_getppid", "arm64": "__arm64_sys_getppid"}[runtime.GOARCH]
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "sonde_probe", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: name, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return plain(err)
	}
	defer prog.Close()
	l, err := link.AttachTracing(link.TracingOptions{Program: prog})
	if err != nil {
		return plain(err)
	}
	return l.Close()
}

// paranoid reports perf_event_paranoid, which Debian and Ubuntu have levels of their own for (3 and 4).
func (p *prober) paranoid() Feature {
	f := Feature{Name: "perf_event_paranoid", For: "perf events without CAP_PERFMON", Needs: Info}
	b, err := os.ReadFile("/proc/sys/kernel/perf_event_paranoid")
	if err != nil {
		f.Err = errors.New(unwrapPath(err))
		return f
	}
	f.Note = "level " + strings.TrimSpace(string(b)) + "; no limit for privileged users"
	return f
}
