package job

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"time"
)

const (
	// quiet is how long an unfinished line is held back in the hope of its end. A prompt or a progress bar without a
	// newline shows after this time.
	quiet = 100 * time.Millisecond

	// longest is how much of one line is held back, in bytes. A longer line is shown in pieces.
	longest = 64 << 10

	// drain is how long to read on after a rank and all its group are gone. Only a process that left the group can
	// still hold the pipe then.
	drain = 500 * time.Millisecond
)

// reader takes one output stream of one rank from its pipe to the console and to the rank's log.
type reader struct {
	pipe *os.File
	rank int
	to   *console
	log  *logFile // nil: none
	done chan struct{}

	mu       sync.Mutex
	draining bool // no deadline is moved any more
}

func startReader(pipe *os.File, rank int, to *console, log *logFile) *reader {
	r := &reader{pipe: pipe, rank: rank, to: to, log: log, done: make(chan struct{})}
	go r.run()
	return r
}

// run reads until the last writer has closed the pipe, or until it is told to finish.
func (r *reader) run() {
	defer close(r.done)
	defer r.pipe.Close()
	buf := make([]byte, 0, longest)
	for {
		n, err := r.pipe.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		cut := endOfLines(buf)
		if len(buf) == cap(buf) && cut == 0 || err != nil {
			cut = len(buf)
		}
		r.show(buf[:cut])
		buf = append(buf[:0], buf[cut:]...)
		if late := errors.Is(err, os.ErrDeadlineExceeded); err != nil && (!late || r.ending()) {
			r.to.finish(r.rank)
			return
		}
		r.expect(len(buf) > 0)
	}
}

// endOfLines returns how much of b is finished lines. A carriage return at the very end may be half an end and is not
// counted.
func endOfLines(b []byte) int {
	newline := bytes.LastIndexByte(b, '\n')
	if len(b) == 0 {
		return 0
	}
	return 1 + max(newline, bytes.LastIndexByte(b[:len(b)-1], '\r'))
}

func (r *reader) show(text []byte) {
	if len(text) > 0 {
		r.log.write(text)
		r.to.write(r.rank, text)
	}
}

// expect sets how long the next read may take: when part of a line is held back, not long.
func (r *reader) expect(more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining {
		return
	}
	var until time.Time
	if more {
		until = time.Now().Add(quiet)
	}
	_ = r.pipe.SetReadDeadline(until) // a pipe always takes one
}

func (r *reader) ending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.draining
}

// finish waits until all that was written is shown. Nobody of the rank's group may be alive any more.
func (r *reader) finish() {
	r.mu.Lock()
	r.draining = true
	_ = r.pipe.SetReadDeadline(time.Now().Add(drain)) // fails only when run is done with the pipe
	r.mu.Unlock()
	<-r.done
}

// logFile is a rank's log: all that it printed, without a prefix. A nil logFile takes everything and keeps nothing.
type logFile struct {
	mu     sync.Mutex
	f      *os.File
	failed func(error) // called once; the job goes on without the log
}

func openLog(path string, failed func(error)) (*logFile, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &logFile{f: f, failed: failed}, nil
}

func (l *logFile) write(text []byte) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return
	}
	if _, err := l.f.Write(text); err != nil {
		l.f.Close()
		l.f = nil
		l.failed(err)
	}
}

func (l *logFile) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return
	}
	if err := l.f.Close(); err != nil {
		l.failed(err)
	}
	l.f = nil
}
