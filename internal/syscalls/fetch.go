package syscalls

// FetchKind says how a [Fetch] walks the caller's memory.
type FetchKind uint8

const (
	FetchInvalid FetchKind = iota
	// FetchString copies text up to and without its NUL, at most the string limit (or Len.Max when set; paths use 4096).
	FetchString
	// FetchBytes copies Len bytes.
	FetchBytes
	// FetchStrings walks a NULL-terminated array of pointers to strings (argv, envp): one segment for the pointers,
	// one for each string.
	FetchStrings
	// FetchIovec walks an array of struct iovec of Len elements (Len.Elem is ignored): one segment for the array, one
	// for each buffer, each cut at the string limit. When Total is set it bounds the sum of the buffers (readv: the
	// return value).
	FetchIovec
	// FetchSocket is not memory: it tells what kind of socket the descriptor Base is, and gives nothing when it is none.
	// Its data are four 16-bit numbers, family, type, protocol and zero, from which later fetches may take their own.
	FetchSocket
	// FetchDescriptor is not memory: it tells what the descriptor Base refers to, and gives nothing when it is not open or
	// when the session does not ask what descriptors refer to. It is for descriptors that are not arguments themselves.
	FetchDescriptor
)

// Source says where a number comes from.
type Source uint8

const (
	FromNothing   Source = iota
	FromConst            // N
	FromArg              // argument N of the call, as the register holds it (32-bit ABIs: zero-extended)
	FromRet              // the return value; exit fetches only; negative counts as zero
	FromMem              // Width bytes at Off in the data of fetch N of the same list, which must be a FetchBytes or FetchSocket
	FromIoctlSize        // the size in the ioctl command (_IOC_SIZE, asm-generic/ioctl.h) that argument N holds
)

// Number is an operand of a Fetch.
type Number struct {
	From  Source
	N     uint32
	Off   uint16
	Width uint8 // FromMem: 1, 2, 4 or 8
}

// Length is Number × Elem + Add bytes, at most Max. Max zero means the string limit for data that the -s flag governs.
type Length struct {
	Number
	Elem uint16 // 0 means 1
	Add  uint16
	Max  uint32
}

// Cond restricts a Fetch to some calls: Value & Mask (0: all bits) must be one of Any, or none of them when Not.
// The zero Cond always holds.
type Cond struct {
	Value Number
	Mask  uint64
	Any   []uint64
	Not   bool
}

// Fetch is one piece of the caller's memory to copy into the record of a call. The kernel program takes it when it can;
// a failed read is recorded with its errno, and a failed FetchString or FetchBytes at entry is tried again at exit.
// Decoders do not name fetches: they ask for memory by address and find it if a fetch took it.
type Fetch struct {
	Kind  FetchKind
	Base  Number // the pointer: FromArg or FromMem; NULL is skipped without a segment
	Off   uint16 // added to the pointer
	Len   Length
	Total Number // FetchIovec
	When  Cond
}

// Limits of the kernel programs. What lies beyond is shown as not captured, never as absent.
const (
	MaxFetches = 16   // per call and direction
	MaxIovecs  = 16   // buffers of one FetchIovec
	MaxStrings = 32   // strings of one FetchStrings
	PathMax    = 4096 // include/uapi/linux/limits.h
)

// Short forms. Str(1) is the string that argument 1 points to.

func Arg(n int) Number { return Number{From: FromArg, N: uint32(n)} }
func Ret() Number      { return Number{From: FromRet} }

// Mem is a little-endian number of the given width at off in the data of fetch n of the same list.
func Mem(n, off, width int) Number {
	return Number{From: FromMem, N: uint32(n), Off: uint16(off), Width: uint8(width)}
}
func Const(n int) Number { return Number{From: FromConst, N: uint32(n)} }

func Str(arg int) Fetch { return Fetch{Kind: FetchString, Base: Arg(arg)} }
func Path(arg int) Fetch {
	return Fetch{Kind: FetchString, Base: Arg(arg), Len: Length{Max: PathMax}}
}

// Socket is the kind of socket that argument arg is.
func Socket(arg int) Fetch { return Fetch{Kind: FetchSocket, Base: Arg(arg)} }

// Descriptor is what the descriptor with the number n refers to.
func Descriptor(n Number) Fetch { return Fetch{Kind: FetchDescriptor, Base: n} }

// Fixed is a structure of n bytes.
func Fixed(arg, n int) Fetch {
	return Fetch{Kind: FetchBytes, Base: Arg(arg), Len: Length{Number: Const(n), Max: uint32(n)}}
}

// Buf is a buffer of n bytes, cut at the string limit.
func Buf(arg int, n Number) Fetch {
	return Fetch{Kind: FetchBytes, Base: Arg(arg), Len: Length{Number: n}}
}

// Vec is an array of n elements of size bytes, at most max bytes.
func Vec(arg int, n Number, size, max int) Fetch {
	return Fetch{Kind: FetchBytes, Base: Arg(arg), Len: Length{Number: n, Elem: uint16(size), Max: uint32(max)}}
}

// If adds a condition: argument arg is one of the values.
func (f Fetch) If(arg int, any ...uint64) Fetch {
	f.When = Cond{Value: Arg(arg), Any: any}
	return f
}
