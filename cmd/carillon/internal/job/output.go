package job

import (
	"bytes"
	"os"
	"sync"
	"time"
)

const (
	// quiet is how long an unfinished line waits for its end. A prompt or a progress bar without a newline shows after
	// this time.
	quiet = 100 * time.Millisecond

	// longest is how many bytes of an unfinished line are held back. A longer line is shown in pieces.
	longest = 64 << 10
)

// output passes one stream of one rank to the console and to the rank's log.
type output struct {
	rank int
	to   *console
	log  *logFile // nil: none

	mu   sync.Mutex
	held []byte      // an unfinished line, not shown yet
	late *time.Timer // shows held
}

func newOutput(rank int, to *console, log *logFile) *output {
	o := &output{rank: rank, to: to, log: log}
	o.late = time.AfterFunc(quiet, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.show(len(o.held))
	})
	return o
}

// Write implements io.Writer. It never fails.
func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = append(o.held, text...)
	cut := endOfLines(o.held)
	if cut == 0 && len(o.held) >= longest {
		cut = len(o.held)
	}
	o.show(cut)
	o.late.Reset(quiet)
	return len(text), nil
}

// endOfLines is the length of the finished lines in b. A carriage return at the very end may be half of a line's end.
func endOfLines(b []byte) int {
	return 1 + max(bytes.LastIndexByte(b, '\n'), bytes.LastIndexByte(b[:max(len(b)-1, 0)], '\r'))
}

func (o *output) show(n int) {
	if n > 0 {
		o.log.write(o.held[:n])
		o.to.write(o.rank, o.held[:n])
		o.held = append(o.held[:0], o.held[n:]...)
	}
}

func (o *output) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.late.Stop()
	o.show(len(o.held))
	o.to.finish(o.rank)
}

// logFile is a rank's log: its output without prefixes. A nil logFile drops everything.
type logFile struct {
	f      *os.File
	failed func(error) // called once; the job goes on without the log
	ended  sync.Once
}

// openLog opens a rank's log, which is truncated unless the rank was started again.
func openLog(path string, again bool, failed func(error)) (*logFile, error) {
	if path == "" {
		return nil, nil
	}
	how := os.O_TRUNC
	if again {
		how = os.O_APPEND
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|how, 0o666)
	if err != nil {
		return nil, err
	}
	return &logFile{f: f, failed: failed}, nil
}

func (l *logFile) write(text []byte) {
	if l == nil {
		return
	}
	if _, err := l.f.Write(text); err != nil {
		l.end(err)
	}
}

func (l *logFile) close() {
	if l != nil {
		l.end(l.f.Close())
	}
}

func (l *logFile) end(err error) {
	l.ended.Do(func() {
		l.f.Close()
		if err != nil {
			l.failed(err)
		}
	})
}
