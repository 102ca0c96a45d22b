// Package constant holds the kernel's named numbers: flag sets and enumerations, generated from the UAPI headers, each
// naming the header it comes from. Syscall decoders, function prototypes and the probe language share it.
package constant

// Entry is one name and its number.
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
