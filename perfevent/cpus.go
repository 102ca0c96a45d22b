package perfevent

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// onlineCPUs lists the CPUs that run now.
func onlineCPUs() ([]int, error) {
	b, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, fmt.Errorf("list the CPUs: %w", err)
	}
	return parseCPUs(strings.TrimSpace(string(b)))
}

// maxCPU bounds what a list may name; NR_CPUS is at most 8192.
const maxCPU = 1 << 16

// parseCPUs reads the kernel's form of a set: "0-3,8".
func parseCPUs(s string) ([]int, error) {
	var list []int
	for _, part := range strings.Split(s, ",") {
		first, last, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(first)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(last)
		}
		if err != nil || a < 0 || b < a || b >= maxCPU {
			return nil, fmt.Errorf("list of CPUs %q: cannot be read at %q", s, part)
		}
		for ; a <= b; a++ {
			list = append(list, a)
		}
	}
	return list, nil
}
