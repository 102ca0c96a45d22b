package decode

import "github.com/sonde-trace/sonde/internal/syscalls"

// fileIO is read(2), write(2) and their kin on descriptors.
var fileIO = []Spec{
	{
		Name:   "read",
		Exit:   []syscalls.Fetch{syscalls.Buf(1, syscalls.Ret())},
		Decode: args(aFD, out(func(c *Cx, i int) { c.Buffer(Out, c.Arg[1], c.Ret) }), aUlong),
	},
	{
		Name:   "write",
		Enter:  []syscalls.Fetch{syscalls.Buf(1, syscalls.Arg(2))},
		Decode: args(aFD, func(c *Cx, i int) { c.Buffer(In, c.Arg[1], int64(c.Arg[2])) }, aUlong),
	},
}
