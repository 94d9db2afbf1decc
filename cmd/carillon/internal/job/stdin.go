package job

import (
	"os"

	"golang.org/x/sys/unix"
)

// pump carries what is typed on a terminal to a pipe, until it is stopped or one of the two ends. It exists because a
// rank, being in a process group of its own, may not read the terminal itself.
type pump struct {
	from    *os.File // not ours to close
	to      *os.File
	wake    *os.File // closed by stop
	waiting *os.File // the other end of wake
	done    chan struct{}
}

// startPump returns the pump and the end of the pipe to read from, which the caller closes.
func startPump(from *os.File) (*pump, *os.File, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	waiting, wake, err := os.Pipe()
	if err != nil {
		read.Close()
		write.Close()
		return nil, nil, err
	}
	p := &pump{from: from, to: write, wake: wake, waiting: waiting, done: make(chan struct{})}
	go p.run()
	return p, read, nil
}

func (p *pump) run() {
	defer close(p.done)
	defer p.to.Close()
	buf := make([]byte, 4096)
	fds := []int{int(p.waiting.Fd()), int(p.from.Fd())}
	for {
		ready := poll(fds, -1)
		if ready[0] {
			return
		}
		n, err := unix.Read(fds[1], buf)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		if _, err := p.to.Write(buf[:n]); err != nil {
			return // the rank reads no more
		}
	}
}

// stop ends the pump and waits for its end. The ranks have ended: no write waits for a reader. A nil pump is none.
func (p *pump) stop() {
	if p == nil {
		return
	}
	p.wake.Close()
	<-p.done
	p.waiting.Close()
}
