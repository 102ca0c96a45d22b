package constant

import (
	"strconv"
	"strings"
)

// Signal numbers of the kernel. The C library keeps the first real-time signals for itself.
const (
	SIGRTMIN = 32
	SIGRTMAX = 64
)

// realtime holds SIGRT_1 to SIGRT_32, strace's names for the signals after SIGRTMIN.
var realtime = func() (t [SIGRTMAX - SIGRTMIN]string) {
	for i := range t {
		t[i] = "SIGRT_" + strconv.Itoa(i+1)
	}
	return t
}()

// SignalName returns the name of signal n ("SIGINT", "SIGRTMIN", "SIGRT_1"), or "" when the kernel has no such signal.
func SignalName(n int) string {
	if n > SIGRTMIN && n <= SIGRTMAX {
		return realtime[n-SIGRTMIN-1]
	}
	if n <= 0 {
		return ""
	}
	name, _ := Signals.Name(uint64(n))
	return name
}

// SignalNum returns the number of a signal given as people do: "SIGINT", "int", "2", "SIGRT_3".
func SignalNum(name string) (int, bool) {
	if n, err := strconv.Atoi(name); err == nil {
		return n, n > 0 && n <= SIGRTMAX
	}
	name = strings.ToUpper(name)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if n, ok := Signals.Num(name); ok {
		return int(n), true
	}
	for i, s := range realtime {
		if s == name {
			return SIGRTMIN + 1 + i, true
		}
	}
	switch name { // second names
	case "SIGIOT":
		return 6, true
	case "SIGPOLL":
		return 29, true
	case "SIGCLD":
		return 17, true
	case "SIGRTMAX":
		return SIGRTMAX, true
	}
	return 0, false
}
