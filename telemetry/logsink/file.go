package logsink

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// expand replaces %h by the host's name, %p by the process's number and %% by %, as NCCL does with NCCL_DEBUG_FILE;
// what else follows a % is left as it is. In the host's name / and % become -.
func expand(path, host string, pid int) string {
	host = strings.Map(func(r rune) rune {
		if r == '/' || r == '%' {
			return '-'
		}
		return r
	}, host)
	return strings.NewReplacer("%%", "%", "%h", host, "%p", strconv.Itoa(pid)).Replace(path)
}

// open opens a file for lines. What is in it is lost, as with NCCL; ranks that share one append.
func open(path string) (*os.File, error) {
	// Not blocking: a pipe that nobody reads is an error, and doesn't hold the program up.
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND|syscall.O_NONBLOCK, 0o644)
}

// file is a file for lines that says when it takes none, and counts those.
type file struct {
	*os.File
	tell func(error) // called for the first
	lost atomic.Uint64
}

// Write writes a line.
func (f *file) Write(line []byte) (int, error) {
	n, err := f.File.Write(line)
	if err != nil && !errors.Is(err, os.ErrClosed) { // what is logged after the end has no place, as is said of Close
		if f.lost.Add(1) == 1 {
			f.tell(err)
		}
	}
	return n, err
}
