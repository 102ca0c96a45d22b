package decode

import "sync"

// families lists the tables of all files of this package. A name stands in one of them only.
var families = [][]Spec{
	fileIO,
	signals, creds, processes, memory, scheduling, prctlCalls, misc, futexes, sysvIPC, mqueues, ptraceCalls,
	bpfCalls,
	perfCalls,
	seccompCalls,
	socketCalls,
	messageCalls,
	optionCalls,
	keyCalls,
	aioCalls,
	uringCalls,
	securityCalls,
	kernelControl,
	fileCalls, statCalls, fdCalls, pollCalls, timeCalls, ioctlCalls, xattrCalls, mountCalls, notifyCalls, clockCalls, quotaCalls,
}

// Specs returns the rows of all families by name of the call. The map is made once and is not to be changed.
var Specs = sync.OnceValue(func() map[string]*Spec {
	m := make(map[string]*Spec, 512)
	for _, f := range families {
		for i := range f {
			row := &f[i]
			if row.RetFD && row.Ret == nil {
				row = new(Spec)
				*row = f[i]
				row.Ret = retFD
			}
			m[row.Name] = row
		}
	}
	return m
})
