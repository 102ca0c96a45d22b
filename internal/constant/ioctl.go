package constant

//go:generate sh -c "go run ./ioctlgen $SONDE_UAPI"

// IoctlName returns the name of a command of ioctl(2), "A or B" where several have the same number. Numbers that hold the
// size of a structure are those of 64-bit ABIs.
func IoctlName(cmd uint32) (string, bool) {
	lo, hi := 0, len(ioctls)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if ioctls[mid].Num < uint64(cmd) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(ioctls) && ioctls[lo].Num == uint64(cmd) {
		return ioctls[lo].Name, true
	}
	return "", false
}
