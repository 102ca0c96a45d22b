package proc

// trap is brk #0. The program counter stays on it.
var trap = []byte{0, 0, 0x20, 0xd4}

func rewind(int, uint64) error { return nil }
