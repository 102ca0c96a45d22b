package attach

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/sonde-trace/sonde/internal/bpfgen"
	"github.com/sonde-trace/sonde/internal/objfile"
	"github.com/sonde-trace/sonde/internal/unwind"
	"github.com/sonde-trace/sonde/internal/wire"
)

// Stacks holds the tables from which the kernel walks user stacks. A file's table is loaded once and serves every process that
// has it mapped. Its methods may be called from several goroutines.
type Stacks struct {
	mu     sync.Mutex
	maps   map[string]*ebpf.Map
	chunks []chunk
	next   uint32 // first free word
	rules  map[unwind.KernelRule]uint32
	files  map[fileKey]uint32 // number of the module
	count  uint32             // modules so far
}

type chunk struct {
	m   *ebpf.Map
	mem []byte
}

// fileKey is how the kernel names a file: inode and device in its own encoding (include/linux/kdev_t.h).
type fileKey struct {
	ino uint64
	dev uint32
}

// Module is a file that has a table.
type Module struct {
	Number  uint32
	Path    string
	BuildID []byte
}

func chunkSpec() *ebpf.MapSpec {
	return &ebpf.MapSpec{Name: "chunk", Type: ebpf.Array, KeySize: 4, ValueSize: bpfgen.ChunkSize, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE}
}

// stackMaps are the maps of the walk.
func stackMaps(cpus int) []ebpf.MapSpec {
	return []ebpf.MapSpec{
		{Name: bpfgen.MapUnwind, Type: ebpf.Array, KeySize: 4, ValueSize: bpfgen.UnwindStateSize, MaxEntries: uint32(cpus * bpfgen.Slots)},
		{Name: bpfgen.MapChunks, Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: bpfgen.MaxChunks, InnerMap: chunkSpec()},
		{Name: bpfgen.MapRules, Type: ebpf.Array, KeySize: 4, ValueSize: bpfgen.RuleSize, MaxEntries: bpfgen.MaxRules},
		{Name: bpfgen.MapFiles, Type: ebpf.Hash, KeySize: bpfgen.FileKeySize, ValueSize: bpfgen.FileValueSize, MaxEntries: bpfgen.MaxFiles, Flags: unix.BPF_F_NO_PREALLOC},
		{Name: bpfgen.MapStacks, Type: ebpf.LRUHash, KeySize: 8, ValueSize: 4, MaxEntries: bpfgen.MaxStacks},
	}
}

func newStacks(maps map[string]*ebpf.Map) *Stacks {
	return &Stacks{maps: maps, rules: make(map[unwind.KernelRule]uint32), files: make(map[fileKey]uint32)}
}

// haveFindVMA reports whether programs can ask which file is mapped at an address (Linux 5.17), without which stacks are not walked.
func haveFindVMA() error { return features.HaveProgramHelper(ebpf.RawTracepoint, asm.FnFindVma) }

// errNoRoom says that the tables are full.
var errNoRoom = errors.New("the tables for stacks are full")

// word returns a word of the tables by index; the chunk is made when it is the first of it.
func (s *Stacks) word(i uint32) (*uint32, error) {
	at := int(i / bpfgen.ChunkWords)
	for len(s.chunks) <= at {
		if len(s.chunks) == bpfgen.MaxChunks {
			return nil, errNoRoom
		}
		m, err := ebpf.NewMap(chunkSpec())
		if err != nil {
			return nil, explain("creating a map for stacks", err)
		}
		mem, err := unix.Mmap(m.FD(), 0, bpfgen.ChunkSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			m.Close()
			return nil, fmt.Errorf("mapping a table for stacks: %w", err)
		}
		s.chunks = append(s.chunks, chunk{m, mem})
		if err := s.maps[bpfgen.MapChunks].Put(uint32(len(s.chunks)-1), m); err != nil {
			return nil, fmt.Errorf("filling the tables for stacks: %w", err)
		}
	}
	return (*uint32)(unsafe.Pointer(&s.chunks[at].mem[4*(i%bpfgen.ChunkWords)])), nil
}

func (s *Stacks) rule(k unwind.KernelRule) (uint32, error) {
	if k == (unwind.KernelRule{}) {
		return 0, nil
	}
	id, ok := s.rules[k]
	if ok {
		return id, nil
	}
	if id = uint32(len(s.rules) + 1); id >= bpfgen.MaxRules {
		return 0, errNoRoom
	}
	b := k.Bytes()
	if err := s.maps[bpfgen.MapRules].Put(id, b[:]); err != nil {
		return 0, fmt.Errorf("filling the rules for stacks: %w", err)
	}
	s.rules[k] = id
	return id, nil
}

// Known reports whether the file at path has a table already.
func (s *Stacks) Known(path string) bool {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.files[keyOf(&st)]
	return ok
}

func keyOf(st *unix.Stat_t) fileKey {
	return fileKey{st.Ino, unix.Major(st.Dev)<<20 | unix.Minor(st.Dev)}
}

// Add loads the table of the file at path, and of the name it is known by in what is shown. ok is false when it was loaded before.
func (s *Stacks) Add(path, name string) (m Module, ok bool, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return m, false, fmt.Errorf("%s: %w", path, err)
	}
	return s.add(keyOf(&st), path, name)
}

// AddAs is Add for a file that the kernel named by inode and device in the record of a stack, and that is found at path: also
// where file systems tell stat(2) another device, and when the name is gone.
func (s *Stacks) AddAs(dev uint32, ino uint64, path, name string) (m Module, ok bool, err error) {
	return s.add(fileKey{ino, dev}, path, name)
}

// AddVDSO loads the table of the vdso, which is no file: f is its image.
func (s *Stacks) AddVDSO(f *objfile.File) (m Module, ok bool, err error) {
	return s.load(fileKey{}, f, "[vdso]")
}

func (s *Stacks) add(key fileKey, path, name string) (m Module, ok bool, err error) {
	s.mu.Lock()
	_, known := s.files[key]
	s.mu.Unlock()
	if known {
		return m, false, nil
	}
	f, err := objfile.Open(path)
	if err != nil {
		return m, false, err
	}
	defer f.Close()
	return s.load(key, f, name)
}

// load puts the table of a file into the maps.
func (s *Stacks) load(key fileKey, f *objfile.File, name string) (m Module, ok bool, err error) {
	t, err := unwind.Build(f)
	if err != nil {
		return m, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.files[key]; known {
		return m, false, nil
	}
	if s.count+1 >= 1<<wire.FrameModuleBits {
		return m, false, errNoRoom
	}
	rows, base := byOffset(t, f.Offset)
	// The file is the target's: segments far from each other would make a directory as large as the way between them.
	if n := len(rows); n > 0 && (rows[n-1].PC-base)>>bpfgen.BucketBits > uint64(f.Size)>>bpfgen.BucketBits+1 {
		return m, false, fmt.Errorf("%s: unwind data of code that is not in the file", f.Path)
	}
	ids := make([]uint32, len(t.Rules))
	for i := range t.Rules {
		if ids[i], err = s.rule(t.Kernel(&t.Rules[i])); err != nil {
			return m, false, err
		}
	}
	value := make([]byte, bpfgen.FileValueSize)
	if len(rows) > 0 {
		binary.LittleEndian.PutUint64(value, base)
		dir, buckets, first, err := s.pack(rows, base, ids)
		if err != nil {
			return m, false, err
		}
		binary.LittleEndian.PutUint32(value[8:], dir)
		binary.LittleEndian.PutUint32(value[12:], buckets)
		binary.LittleEndian.PutUint32(value[16:], first)
	}
	number := s.count + 1
	binary.LittleEndian.PutUint32(value[20:], number)
	k := make([]byte, bpfgen.FileKeySize)
	binary.LittleEndian.PutUint64(k, key.ino)
	binary.LittleEndian.PutUint32(k[8:], key.dev)
	if err := s.maps[bpfgen.MapFiles].Put(k, value); err != nil {
		return m, false, fmt.Errorf("filling the table of files for stacks: %w", err)
	}
	s.count = number
	s.files[key] = number
	return Module{Number: number, Path: name, BuildID: f.BuildID()}, true, nil
}

// byOffset gives the rows by offset in the file, which is what the kernel asks for: segments with code may be moved by different
// distances, so that addresses do not do. base is where the table begins. Where two segments share bytes of the file, or lie in another
// order than in memory, the first holds.
func byOffset(t *unwind.Table, offset func(addr uint64) (uint64, bool)) (rows []unwind.Row, base uint64) {
	rows = make([]unwind.Row, 0, len(t.Rows))
	for _, r := range t.Rows {
		off, ok := offset(r.PC)
		if r.Rule == 0 && r.PC > 0 { // the end of code, behind which there may be no segment or another
			off, ok = offset(r.PC - 1)
			off++
		}
		switch n := len(rows); {
		case !ok:
		case n == 0 || off > rows[n-1].PC:
			rows = append(rows, unwind.Row{PC: off, Rule: r.Rule})
		case off == rows[n-1].PC && rows[n-1].Rule == 0:
			rows[n-1].Rule = r.Rule
		}
	}
	if len(rows) > 0 {
		base = rows[0].PC &^ (1<<bpfgen.BucketBits - 1)
	}
	return rows, base
}

// pack writes a directory, by bucket of code, and the rows behind it.
func (s *Stacks) pack(list []unwind.Row, base uint64, ids []uint32) (dir, buckets, rows uint32, err error) {
	const bits, mask = bpfgen.BucketBits, 1<<bpfgen.BucketBits - 1
	n := (list[len(list)-1].PC-base)>>bits + 1
	if n >= bpfgen.MaxChunks*bpfgen.ChunkWords/2 {
		return 0, 0, 0, errNoRoom
	}
	dir, buckets = s.next, uint32(n)
	rows = dir + buckets + 1
	at, last := rows, uint32(0)
	put := func(i, v uint32) error {
		p, err := s.word(i)
		if err == nil {
			*p = v
		}
		return err
	}
	row := 0
	for b := uint32(0); b < buckets; b++ {
		end := base + uint64(b+1)<<bits
		first := row
		for row < len(list) && list[row].PC < end {
			row++
		}
		// The rows of a bucket are in one chunk: the kernel looks for them in one. What is skipped repeats the row before.
		if k := uint32(row - first); k > 0 && at/bpfgen.ChunkWords != (at+k-1)/bpfgen.ChunkWords {
			for at%bpfgen.ChunkWords != 0 {
				if err := put(at, last); err != nil {
					return 0, 0, 0, err
				}
				at++
			}
		}
		if err := put(dir+b, at-rows); err != nil {
			return 0, 0, 0, err
		}
		for ; first < row; first++ {
			v := uint32(list[first].PC&mask) | ids[list[first].Rule]<<bits
			if at > rows && v>>bits == last>>bits {
				continue // the kernel needs less of a rule than there is
			}
			if err := put(at, v); err != nil {
				return 0, 0, 0, err
			}
			last = v
			at++
		}
	}
	if err := put(dir+buckets, at-rows); err != nil {
		return 0, 0, 0, err
	}
	s.next = at
	return dir, buckets, rows, nil
}

// Size is the memory of the tables in bytes.
func (s *Stacks) Size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return 4 * int(s.next)
}

// close releases the tables.
func (s *Stacks) close() (errs []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.chunks {
		errs = append(errs, unix.Munmap(c.mem), c.m.Close())
	}
	s.chunks = nil
	return errs
}
