package logsink

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// expand replaces %h by the host's name, %p by the pid and %% by %, as NCCL does in NCCL_DEBUG_FILE, and leaves any
// other %. In the host's name, / and % become -.
func expand(path, host string, pid int) string {
	host = strings.Map(func(r rune) rune {
		if r == '/' || r == '%' {
			return '-'
		}
		return r
	}, host)
	return strings.NewReplacer("%%", "%", "%h", host, "%p", strconv.Itoa(pid)).Replace(path)
}

// open opens and truncates a file for lines, as NCCL does. Ranks that share it append their lines.
func open(path string) (*os.File, error) {
	// O_NONBLOCK: a pipe without a reader is an error, and doesn't block the program.
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND|syscall.O_NONBLOCK, 0o644)
}

// file is a file for lines that counts the lines that it can't write.
type file struct {
	*os.File
	failed func(error) // called for the first lost line
	lost   atomic.Uint64
}

// Write writes a line.
func (f *file) Write(line []byte) (int, error) {
	n, err := f.File.Write(line)
	if err != nil && !errors.Is(err, os.ErrClosed) { // lines after Close don't count
		if f.lost.Add(1) == 1 {
			f.failed(err)
		}
	}
	return n, err
}
