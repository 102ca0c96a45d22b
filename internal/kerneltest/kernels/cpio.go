package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
)

// archive writes the "newc" form of cpio, which the kernel unpacks into its first root directory
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type archive struct {
	w    io.Writer
	ino  uint32
	n    int64
	dirs map[string]bool
	err  error
}

func newArchive(w io.Writer) *archive { return &archive{w: w, dirs: map[string]bool{}} }

func (a *archive) write(b []byte) {
	if a.err == nil {
		var n int
		n, a.err = a.w.Write(b)
		a.n += int64(n)
	}
}

func (a *archive) pad() {
	if r := a.n % 4; r != 0 {
		a.write(make([]byte, 4-r))
	}
}

func (a *archive) header(name string, mode uint32, size int64) {
	if a.err == nil && size >= 1<<32 {
		a.err = fmt.Errorf("%s: too big for cpio: %d bytes", name, size)
	}
	a.ino++
	nlink := uint32(1)
	if mode&0o170000 == 0o040000 {
		nlink = 2
	}
	// magic, ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
	a.write(fmt.Appendf(nil, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", a.ino, mode, 0, 0, nlink, 0, size, 0, 0, 0, 0, len(name)+1, 0))
	a.write([]byte(name))
	a.write([]byte{0})
	a.pad()
}

// dir adds a directory and those above it, once.
func (a *archive) dir(name string) {
	name = clean(name)
	if name == "." || a.dirs[name] {
		return
	}
	a.dir(path.Dir(name))
	a.dirs[name] = true
	a.header(name, 0o040755, 0)
}

func (a *archive) bytes(name string, perm uint32, data []byte) {
	name = clean(name)
	a.dir(path.Dir(name))
	a.header(name, 0o100000|perm, int64(len(data)))
	a.write(data)
	a.pad()
}

func (a *archive) symlink(name, target string) {
	name = clean(name)
	a.dir(path.Dir(name))
	a.header(name, 0o120777, int64(len(target)))
	a.write([]byte(target))
	a.pad()
}

func (a *archive) file(name, from string, perm uint32) {
	f, err := os.Open(from)
	if err != nil {
		if a.err == nil {
			a.err = err
		}
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		if a.err == nil {
			a.err = err
		}
		return
	}
	name = clean(name)
	a.dir(path.Dir(name))
	a.header(name, 0o100000|perm, st.Size())
	if a.err != nil {
		return
	}
	n, err := io.Copy(a.w, f)
	a.n += n
	if err == nil && n != st.Size() {
		err = fmt.Errorf("%s changed while it was read", from)
	}
	a.err = err
	a.pad()
}

// tree adds the regular files below from.
func (a *archive) tree(name, from string) {
	var files []string
	err := filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files = append(files, p)
		}
		return err
	})
	if err != nil && a.err == nil {
		a.err = err
	}
	sort.Strings(files)
	for _, f := range files {
		rel, err := filepath.Rel(from, f)
		if err != nil {
			continue
		}
		perm := uint32(0o644)
		if st, err := os.Stat(f); err == nil && st.Mode()&0o111 != 0 {
			perm = 0o755
		}
		a.file(path.Join(name, rel), f, perm)
	}
}

func (a *archive) close() error {
	a.header("TRAILER!!!", 0, 0)
	return a.err
}

// clean makes a name relative to the root, which is ".".
func clean(name string) string {
	if name = path.Clean("/" + name); name == "/" {
		return "."
	}
	return name[1:]
}
