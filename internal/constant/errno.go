package constant

import "strconv"

// Errno is an error number as a person reads it.
type Errno struct {
	Name string // "ENOENT"
	Text string // "No such file or directory"
}

// restarts are the kernel's own codes (include/linux/errno.h). A program never sees them; a tracer sees those that tell
// the kernel to repeat an interrupted call, and the others where a driver leaks them. The texts of the first four are
// strace's, which people search for.
var restarts = [...]Errno{
	{"ERESTARTSYS", "To be restarted if SA_RESTART is set"},
	{"ERESTARTNOINTR", "To be restarted"},
	{"ERESTARTNOHAND", "To be restarted if no handler"},
	{"ENOIOCTLCMD", "Unknown error 515"},
	{"ERESTART_RESTARTBLOCK", "Interrupted by signal"},
	{"EPROBE_DEFER", "Unknown error 517"},
	{"EOPENSTALE", "Unknown error 518"},
	{"ENOPARAM", "Unknown error 519"},
	{}, // 520 is not used
	{"EBADHANDLE", "Unknown error 521"},
	{"ENOTSYNC", "Unknown error 522"},
	{"EBADCOOKIE", "Unknown error 523"},
	{"ENOTSUPP", "Unknown error 524"},
	{"ETOOSMALL", "Unknown error 525"},
	{"ESERVERFAULT", "Unknown error 526"},
	{"EBADTYPE", "Unknown error 527"},
	{"EJUKEBOX", "Unknown error 528"},
	{"EIOCBQUEUED", "Unknown error 529"},
	{"ERECALLCONFLICT", "Unknown error 530"},
}

const firstRestart = 512

// ErrnoOf returns the name and text of the positive error number n. For a number without a name, Name is empty and
// Text says "Unknown error N" as strerror(3) does.
func ErrnoOf(n int) Errno {
	if n > 0 && n < len(errnos) && errnos[n].Name != "" {
		return errnos[n]
	}
	if i := n - firstRestart; i >= 0 && i < len(restarts) && restarts[i].Name != "" {
		return restarts[i]
	}
	return Errno{Text: "Unknown error " + strconv.Itoa(n)}
}

// IsRestart reports the codes by which the kernel repeats an interrupted call, or fails it with EINTR, before the
// program sees a result.
func IsRestart(n int) bool { return n >= 512 && n <= 514 || n == 516 }

// ErrnoNum returns the number of an error's name ("ENOENT").
func ErrnoNum(name string) (int, bool) {
	if name == "" {
		return 0, false
	}
	for n := range errnos {
		if errnos[n].Name == name {
			return n, true
		}
	}
	for i := range restarts {
		if restarts[i].Name == name {
			return firstRestart + i, true
		}
	}
	switch name { // second names of the same number (asm-generic/errno.h)
	case "EWOULDBLOCK":
		return ErrnoNum("EAGAIN")
	case "EDEADLOCK":
		return ErrnoNum("EDEADLK")
	case "ENOTSUP":
		return ErrnoNum("EOPNOTSUPP")
	}
	return 0, false
}
