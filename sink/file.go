package sink

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// FileOptions says how an output file is opened.
type FileOptions struct {
	Append bool
	// UID and GID own a file that is made, when Own is set: the user behind sudo.
	Own      bool
	UID, GID uint32
}

// OpenFile opens path for output: a new file has mode 0600. A symbolic link, a directory or a FIFO is refused, so that nobody else
// decides where a privileged tracer writes; devices like /dev/null and our own descriptors (/dev/stdout, /dev/fd/3) are fine.
// Errors name the file and the reason.
func OpenFile(path string, o FileOptions) (*os.File, error) {
	if fd, ok := ownDescriptor(path); ok {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			return nil, fmt.Errorf("output file %s: %w", path, err)
		}
		return os.NewFile(uintptr(dup), path), nil
	}
	flags := unix.O_WRONLY | unix.O_CREAT | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY
	if o.Append {
		flags |= unix.O_APPEND
	}
	made := true
	fd, err := unix.Open(path, flags|unix.O_EXCL, 0o600)
	if errors.Is(err, unix.EEXIST) {
		made = false
		// Truncated only when it is known to be a plain file. Without O_CREAT: a sticky directory's rules for files of
		// others (fs.protected_regular) would refuse what is allowed.
		fd, err = unix.Open(path, flags&^unix.O_CREAT, 0)
	}
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("output file %s: is a symbolic link, which is not followed; name the file itself", path)
	case errors.Is(err, unix.EISDIR):
		return nil, fmt.Errorf("output file %s: is a directory", path)
	case errors.Is(err, unix.ENXIO):
		return nil, fmt.Errorf("output file %s: is a FIFO or a socket, not a file", path)
	case err != nil:
		return nil, fmt.Errorf("output file %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	if err := check(f, path, made, o); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func check(f *os.File, path string, made bool, o FileOptions) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("output file %s: %w", path, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		if made && o.Own {
			if err := f.Chown(int(o.UID), int(o.GID)); err != nil {
				return fmt.Errorf("output file %s: give it to user %d: %w", path, o.UID, err)
			}
		}
		if !o.Append {
			if err := f.Truncate(0); err != nil {
				return fmt.Errorf("output file %s: %w", path, err)
			}
		}
	case unix.S_IFCHR:
	case unix.S_IFIFO:
		return fmt.Errorf("output file %s: is a FIFO, not a file; write to /dev/stdout and pipe that", path)
	default:
		return fmt.Errorf("output file %s: is neither a file nor a character device", path)
	}
	// O_NONBLOCK was for opening only.
	if err := unix.SetNonblock(int(f.Fd()), false); err != nil {
		return fmt.Errorf("output file %s: %w", path, err)
	}
	return nil
}

// ownDescriptor returns the descriptor that a path of /dev or /proc names.
func ownDescriptor(path string) (int, bool) {
	switch path {
	case "/dev/stdout":
		return 1, true
	case "/dev/stderr":
		return 2, true
	}
	for _, dir := range []string{"/dev/fd/", "/proc/self/fd/"} {
		if s, ok := strings.CutPrefix(path, dir); ok {
			n := 0
			for _, c := range s {
				if c < '0' || c > '9' || n > 1<<20 {
					return 0, false
				}
				n = n*10 + int(c-'0')
			}
			return n, s != ""
		}
	}
	return 0, false
}

// writer names the file in errors: "no space left on device" alone does not say which.
type writer struct{ *os.File }

// Writer returns f as a writer whose errors name it.
func Writer(f *os.File) interface{ Write([]byte) (int, error) } { return writer{f} }

func (w writer) Write(b []byte) (int, error) {
	n, err := w.File.Write(b)
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		err = fmt.Errorf("write %s: %w", w.Name(), err)
	}
	return n, err
}
