package symbol

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mapping is a range of addresses of a process.
type Mapping struct {
	Start, End uint64
	Off        uint64 // in the file
	Exec       bool
	Dev, Ino   uint64 // of the file, as the mapping has it: 0 for anonymous memory
	Path       string // as the process sees it, "[vdso]", or empty
	Deleted    bool   // the name is gone, or is that of another file
}

// ReadMaps reads /proc/PID/maps.
func ReadMaps(pid int) ([]Mapping, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseMaps(f)
}

// parseMaps reads the format of /proc/PID/maps, proc_pid_maps(5). Newlines in names come as \012.
func parseMaps(r io.Reader) (out []Mapping, err error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 16<<10), 64<<10)
	for sc.Scan() {
		if m, ok := parseMapping(sc.Bytes()); ok {
			out = append(out, m)
		}
	}
	return out, sc.Err()
}

func parseMapping(line []byte) (m Mapping, ok bool) {
	field := func() []byte {
		line = bytes.TrimLeft(line, " ")
		i := bytes.IndexByte(line, ' ')
		if i < 0 {
			i = len(line)
		}
		f := line[:i]
		line = line[i:]
		return f
	}
	lo, hi, dash := bytes.Cut(field(), []byte("-"))
	perm, off, dev, ino := field(), field(), field(), field()
	var ok1, ok2, ok3 bool
	m.Start, ok1 = parseHex(lo)
	m.End, ok2 = parseHex(hi)
	m.Off, ok3 = parseHex(off)
	if !dash || !ok1 || !ok2 || !ok3 || len(perm) < 4 || m.End <= m.Start {
		return m, false
	}
	m.Exec = perm[2] == 'x'
	major, minor, _ := bytes.Cut(dev, []byte(":"))
	a, _ := parseHex(major)
	b, _ := parseHex(minor)
	m.Dev = unix.Mkdev(uint32(a), uint32(b))
	m.Ino, _ = strconv.ParseUint(string(ino), 10, 64)
	m.Path = strings.ReplaceAll(string(bytes.TrimLeft(line, " ")), `\012`, "\n")
	if p, gone := strings.CutSuffix(m.Path, " (deleted)"); gone {
		m.Path, m.Deleted = p, true
	}
	return m, true
}
