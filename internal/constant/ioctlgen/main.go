// Command ioctlgen writes ../ioctlcmd_gen.go: the names of ioctl(2) commands, from the kernel's UAPI headers. A command is a
// macro without arguments whose text builds a number by _IO, _IOR, _IOW, _IOWR or _IOC, or one of the older commands
// that oldStyle lists by header, whose numbers are written out. The host's C compiler says what each is.
//
//	go run ./ioctlgen DIR      DIR is an unpacked linux-libc-dev package (the directory above usr)
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// oldStyle are commands with numbers of their own, by header.
var oldStyle = map[string]string{
	"asm-generic/ioctls.h":  `^(TC|TIO|FIO)[A-Z0-9]+$`,
	"linux/sockios.h":       `^SIOC[A-Z0-9]+$`,
	"asm-generic/sockios.h": `^(SIOC|FIO)[A-Z_]+$`,
	"linux/if_ppp.h":        `^$`,
	"linux/kd.h":            `^(G|P)IO_[A-Z]+$|^KD[A-Z0-9_]{3,}$`,
	"linux/vt.h":            `^VT_(OPENQRY|GETMODE|SETMODE|GETSTATE|SENDSIG|RELDISP|ACTIVATE|WAITACTIVE|DISALLOCATE|RESIZE|RESIZEX|LOCKSWITCH|UNLOCKSWITCH|GETHIFONTMASK|WAITEVENT|SETACTIVATE|GETCONSIZECSRPOS)$`,
	"linux/loop.h":          `^LOOP_(SET|CLR|GET|CHANGE|CONFIGURE|CTL)[A-Z0-9_]*$`,
	"linux/hdreg.h":         `^HDIO_[A-Z0-9_]+$`,
	"linux/cdrom.h":         `^(CDROM(PAUSE|RESUME|PLAY|READ|STOP|START|EJECT|VOLCTRL|SUBCHNL|MULTISESSION|_GET|CLOSETRAY|RESET|VOLREAD|GETSPINDOWN|SETSPINDOWN|AUDIOBUFSIZ|_)[A-Z0-9_]*|DVD_READ_STRUCT|DVD_WRITE_STRUCT|DVD_AUTH)$`,
	"linux/nbd.h":           `^NBD_(SET|DO|CLEAR|PRINT|DISCONNECT)[A-Z0-9_]*$`,
	"scsi/sg.h":             `^SG_(EMULATED_HOST|SET_|GET_|NEXT_|IO$|SCSI_RESET)[A-Z0-9_]*$`,
	"scsi/scsi.h":           `^SCSI_IOCTL_[A-Z0-9_]+$`,
	"scsi/scsi_ioctl.h":     `^SCSI_IOCTL_[A-Z0-9_]+$`,
	"linux/fd.h":            `^FD[A-Z]+$`,
	"linux/lp.h":            `^LP[A-Z]+$`,
	"linux/i2c-dev.h":       `^I2C_(RETRIES|TIMEOUT|SLAVE|SLAVE_FORCE|TENBIT|FUNCS|RDWR|PEC|SMBUS)$`,
	"linux/ppdev.h":         `^$`,
	"linux/wireless.h":      `^SIOC[A-Z0-9]+$`,
	"linux/vhost.h":         `^$`,
}

var builds = regexp.MustCompile(`(?m)^#\s*define\s+([A-Z][A-Za-z0-9_]+)\s+\(?(_IO|_IOR|_IOW|_IOWR|_IOC|[A-Z0-9]+_IOC?[RW]*|[A-Z0-9_]*IO[RW]*)\s*\(`)

// defines leaves out macros that are other names of a macro.
var defines = regexp.MustCompile(`(?m)^#\s*define\s+([A-Z][A-Za-z0-9_]+)\s+(?:[0-9(]|_IO|[A-Z0-9_]+\s*\(|\(?[A-Z0-9_]+\s*[+|])`)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: ioctlgen DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "ioctlgen:", err)
		os.Exit(1)
	}
}

func run(uapi string) error {
	include := filepath.Join(uapi, "usr/include")
	names := make(map[uint32]map[string]bool)
	count := 0
	for _, dir := range []string{"linux", "sound", "mtd", "rdma", "misc", "scsi", "video", "asm-generic", "drm", "xen"} {
		err := filepath.WalkDir(filepath.Join(include, dir), func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".h") {
				return nil // not every package has every directory
			}
			header, err := filepath.Rel(include, path)
			if err != nil {
				return err
			}
			found, err := ofHeader(include, header, path)
			if err != nil {
				return err
			}
			for name, num := range found {
				if names[num] == nil {
					names[num] = make(map[string]bool)
				}
				names[num][name] = true
				count++
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if count < 1500 {
		return fmt.Errorf("%d commands found under %s; these cannot be all", count, include)
	}
	return write(names)
}

// ofHeader returns the commands of one header that the compiler can give a number.
func ofHeader(include, header, path string) (map[string]uint32, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	text = bytes.ReplaceAll(text, []byte("\\\n"), []byte(" ")) // definitions of several lines
	set := make(map[string]bool)
	for _, m := range builds.FindAllSubmatch(text, -1) {
		set[string(m[1])] = true
	}
	if re, ok := oldStyle[header]; ok {
		re := regexp.MustCompile(re)
		for _, m := range defines.FindAllSubmatch(text, -1) {
			if re.Match(m[1]) {
				set[string(m[1])] = true
			}
		}
	}
	if len(set) == 0 {
		return nil, nil
	}
	var list []string
	for n := range set {
		list = append(list, n)
	}
	sort.Strings(list)
	return evaluate(include, header, list)
}

var errorLine = regexp.MustCompile(`(?m)^[^\n:]*values\.c:(\d+):\d+: error`)

// evaluate compiles and runs a program that prints the numbers; names that do not compile are left out.
func evaluate(include, header string, names []string) (map[string]uint32, error) {
	tmp, err := os.MkdirTemp("", "sonde-ioctl-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	src, bin := filepath.Join(tmp, "values.c"), filepath.Join(tmp, "values")
	for range 4 {
		var b bytes.Buffer
		fmt.Fprintf(&b, "#include <stdio.h>\n#include <stdint.h>\n#include <stddef.h>\n#include <stdbool.h>\n#include <time.h>\n#include <sys/socket.h>\n#include <net/if.h>\n#include <linux/types.h>\n#include <linux/ioctl.h>\n#include <%s>\nint main(void) {\n", header)
		head := bytes.Count(b.Bytes(), []byte("\n"))
		for _, n := range names {
			fmt.Fprintf(&b, "printf(\"%s %%u\\n\", (unsigned int)(%s));\n", n, n)
		}
		b.WriteString("return 0; }\n")
		if err := os.WriteFile(src, b.Bytes(), 0o600); err != nil {
			return nil, err
		}
		out, err := exec.Command("gcc", "-w", "-fmax-errors=0", "-isystem", include, "-isystem", filepath.Join(include, "x86_64-linux-gnu"), "-o", bin, src).CombinedOutput()
		if err == nil {
			return runValues(bin)
		}
		bad := make(map[int]bool)
		for _, m := range errorLine.FindAllSubmatch(out, -1) {
			n, _ := strconv.Atoi(string(m[1]))
			bad[n-head-1] = true
		}
		var good []string
		for i, n := range names {
			if !bad[i] {
				good = append(good, n)
			}
		}
		if len(good) == len(names) || len(good) == 0 {
			return nil, nil // the header itself does not compile here
		}
		names = good
	}
	return nil, nil
}

func runValues(bin string) (map[string]uint32, error) {
	out, err := exec.Command(bin).Output()
	if err != nil {
		return nil, err
	}
	found := make(map[string]uint32)
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		name, num, ok := strings.Cut(sc.Text(), " ")
		if !ok {
			return nil, errors.New("a line of the values cannot be read: " + sc.Text())
		}
		n, err := strconv.ParseUint(num, 10, 32)
		if err != nil {
			return nil, err
		}
		if n > 0xff { // smaller ones are numbers of commands within a family, not commands
			found[name] = uint32(n)
		}
	}
	return found, nil
}

func write(names map[uint32]map[string]bool) error {
	var nums []uint32
	for n := range names {
		nums = append(nums, n)
	}
	sort.Slice(nums, func(i, j int) bool { return nums[i] < nums[j] })
	var b bytes.Buffer
	b.WriteString("// Code generated by constant/ioctlgen from the kernel's UAPI headers; DO NOT EDIT.\n\npackage constant\n\n")
	b.WriteString("// ioctls are the commands of ioctl(2) by number; several names of one number are joined by \" or \".\nvar ioctls = []Entry{\n")
	for _, n := range nums {
		var list []string
		for name := range names[n] {
			list = append(list, name)
		}
		sort.Strings(list)
		fmt.Fprintf(&b, "{%q, %#x},\n", strings.Join(list, " or "), n)
	}
	b.WriteString("}\n")
	src, err := format.Source(b.Bytes())
	if err != nil {
		return err
	}
	return os.WriteFile("ioctlcmd_gen.go", src, 0o644)
}
