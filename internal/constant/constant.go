// Package constant holds the kernel's named numbers: flag sets and enumerations, generated from the UAPI headers, each
// naming the header it comes from. Syscall decoders, function prototypes and the probe language share it.
//
// The names of each set are listed in sets/*.txt; go generate asks the C compilers for their numbers, see gen.
package constant

//go:generate go run ./gen

// Entry is one name and its number. Numbers of 32 bits or less are zero-extended: -1 is 0xffffffff.
type Entry struct {
	Name string
	Num  uint64
}

// Set is a list of names for one kind of argument. For flags, an entry of several bits stands before the entries of its
// bits, so that the longest name wins; a value has one entry of Num zero at most.
type Set struct {
	// Prefix is shown for numbers without a name: 0x40 /* O_??? */.
	Prefix string
	// Entries of an enumeration are sorted by Num, so that Name can search; those of a flag set are in order of display.
	Entries []Entry
	Flags   bool

	// variants replace the set for ABIs where numbers or names differ; the set itself is that of amd64.
	variants []variant
}

type variant struct {
	abis []string
	set  *Set
}

// For returns the set as the ABI of that name (package syscalls) has it. Most sets are the same everywhere.
func (s *Set) For(abi string) *Set {
	for i := range s.variants {
		for _, a := range s.variants[i].abis {
			if a == abi {
				return s.variants[i].set
			}
		}
	}
	return s
}

// Num returns the number of a name in the set.
func (s *Set) Num(name string) (uint64, bool) {
	for i := range s.Entries {
		if s.Entries[i].Name == name {
			return s.Entries[i].Num, true
		}
	}
	return 0, false
}

// Name returns the name of num in an enumeration.
func (s *Set) Name(num uint64) (string, bool) {
	lo, hi := 0, len(s.Entries)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if s.Entries[mid].Num < num {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(s.Entries) && s.Entries[lo].Num == num {
		return s.Entries[lo].Name, true
	}
	return "", false
}
