package job

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// drain is how long to read on after a rank and all of its group have ended, if a process that left the group still
	// holds the pipe.
	drain = 500 * time.Millisecond

	// wholePipe is how many bytes a pipe has at most, unless a privileged process has enlarged it.
	wholePipe = 1 << 20
)

// rankPipe copies what a rank writes to a stream.
type rankPipe struct {
	from *os.File
	over chan struct{} // closed when all is copied
}

// newPipe returns a pipe that copies to a writer, and the end for the rank.
func newPipe(to io.Writer) (p *rankPipe, w *os.File, err error) {
	p = &rankPipe{over: make(chan struct{})}
	if p.from, w, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	go p.copy(to)
	return p, w, nil
}

// copy copies until nobody holds the pipe any more, or until the time of end. All that is in the pipe then is copied,
// however long the writer took for what came before: the rank may have left it there.
func (p *rankPipe) copy(to io.Writer) {
	defer close(p.over)
	defer p.from.Close()
	if _, err := io.Copy(to, p.from); !errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	_ = p.from.SetReadDeadline(time.Time{}) // it is open
	buf := make([]byte, 64<<10)
	for copied := 0; copied < wholePipe; {
		n := p.readNow(buf)
		if n <= 0 {
			return
		}
		_, _ = to.Write(buf[:n]) // an output never fails
		copied += n
	}
}

// readNow reads what is in the pipe. It returns 0 or less if there is nothing.
func (p *rankPipe) readNow(buf []byte) (n int) {
	c, err := p.from.SyscallConn()
	if err != nil {
		return 0
	}
	_ = c.Read(func(fd uintptr) bool {
		for n, err = unix.Read(int(fd), buf); errors.Is(err, unix.EINTR); {
			n, err = unix.Read(int(fd), buf)
		}
		return true
	})
	return n
}

// end limits the time for which more is awaited.
func (p *rankPipe) end(at time.Time) { _ = p.from.SetReadDeadline(at) } // it fails if all is copied already
