package job

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	// room is how many bytes wait for a stream's reader before ranks must wait for it, too.
	room = 64 << 10

	// piece is how many bytes are written at once. A pipe takes so many if it takes any, so a slow reader is told from
	// one that has stopped reading.
	piece = 4 << 10

	// patience is how long a piece waits for its reader once the job is told to end.
	patience = time.Second
)

// console shows the output of many ranks on one stream, with the rank before each line. Lines of different ranks never
// run into each other, even if a rank leaves a line unfinished.
//
// Only its own goroutine writes to the stream, so only that one waits for somebody to read it. Ranks wait for room, as
// they do when they write to a pipe. The launcher never waits.
type console struct {
	prefixes [][]byte // by place on this host
	w        io.Writer
	failed   func(error)
	over     chan struct{} // closed when nothing more will be written

	mu      sync.Mutex
	changed *sync.Cond
	queue   []byte
	open    int  // the rank whose unfinished line was queued last, or nobody
	closing bool // nothing more will be queued
	dropped bool // nothing more is written, as nobody reads it or a write failed

	began time.Time   // when the write in progress began; zero: there is none
	late  *time.Timer // gives up; nil: the job isn't told to end
}

// nobody stands for a rank while no line is unfinished, and own for the launcher itself.
const (
	nobody = -1
	own    = -2
)

// ansiColors can be read on a dark and on a light background.
var ansiColors = [...]int{36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91}

// newConsole returns a console for ranks first to first+n-1, which must be closed. failed is called once, by the
// writing goroutine, when a write to w fails.
func newConsole(w io.Writer, first, n int, color bool, failed func(error)) *console {
	c := &console{w: w, open: nobody, failed: failed, over: make(chan struct{})}
	c.changed = sync.NewCond(&c.mu)
	width := len(fmt.Sprintf("[%d]", first+n-1))
	for i := range n {
		label := fmt.Sprintf("[%d]", first+i)
		pad := fmt.Sprintf("%*s", width-len(label)+1, "")
		if color {
			label = fmt.Sprintf("\x1b[%dm%s\x1b[0m", ansiColors[(first+i)%len(ansiColors)], label)
		}
		c.prefixes = append(c.prefixes, []byte(label+pad))
	}
	go c.show()
	return c
}

// show writes the queue to the stream until the console is closed or drops it.
func (c *console) show() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.dropped {
		switch {
		case len(c.queue) > 0:
			c.showPiece()
		case c.closing:
			close(c.over)
			return
		default:
			c.changed.Wait()
		}
	}
}

// showPiece writes the queue's beginning, with mu unlocked meanwhile.
func (c *console) showPiece() {
	text := c.queue[:min(len(c.queue), piece)]
	c.began = time.Now()
	if c.late != nil {
		c.late.Reset(patience)
	}
	c.mu.Unlock()
	_, err := c.w.Write(text)
	c.mu.Lock()
	c.began = time.Time{}
	switch {
	case c.dropped:
	case err != nil:
		c.failed(err)
		c.drop()
	default:
		c.queue = append(c.queue[:0], c.queue[len(text):]...)
		if len(c.queue) <= room/2 {
			c.changed.Broadcast()
		}
	}
}

// drop drops all that is not written.
func (c *console) drop() {
	c.dropped, c.queue = true, nil
	close(c.over)
	c.changed.Broadcast()
}

// hurry makes the console drop its text if nobody reads it for some time. The job is told to end.
func (c *console) hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late == nil {
		c.late = time.AfterFunc(patience, c.giveUp)
	}
}

func (c *console) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dropped && !c.began.IsZero() && time.Since(c.began) >= patience {
		c.drop()
	}
}

// close ends the console when all is written or dropped: then over is closed.
func (c *console) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	c.changed.Broadcast()
}

// write queues text of a rank: any number of lines, of which the last may be unfinished. A carriage return alone ends a
// line too, so that progress bars show.
func (c *console) write(rank int, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for rank != own && len(c.queue) >= room {
		c.changed.Wait()
	}
	if c.open != nobody && c.open != rank {
		c.add([]byte{'\n'})
		c.open = nobody
	}
	for len(text) > 0 {
		if c.open == nobody && rank != own {
			c.add(c.prefixes[rank])
		}
		end := bytes.IndexAny(text, "\r\n")
		if end < 0 {
			c.add(text)
			c.open = rank
			break
		}
		c.add(text[:end])
		c.add([]byte{'\n'})
		c.open = nobody
		if bytes.HasPrefix(text[end:], []byte("\r\n")) {
			end++
		}
		text = text[end+1:]
	}
}

func (c *console) finish(rank int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == rank {
		c.add([]byte{'\n'})
		c.open = nobody
	}
}

// say shows a message of the launcher in a line.
func (c *console) say(format string, args ...any) {
	c.write(own, fmt.Appendf(nil, "carillon: "+format+"\n", args...))
}

func (c *console) add(text []byte) {
	if c.dropped {
		return
	}
	if len(c.queue) == 0 {
		c.changed.Broadcast()
	}
	c.queue = append(c.queue, text...)
}

// screen is where a job's output goes: a console for each stream.
type screen struct {
	stdout, stderr *console   // the same for one stream
	lost           chan error // the first error of a write
}

func newScreen(cfg *Config) *screen {
	s := &screen{lost: make(chan error, 1)}
	failed := func(err error) {
		select {
		case s.lost <- err:
		default:
		}
	}
	s.stderr = newConsole(cfg.Stderr, cfg.firstRank(), cfg.Ranks, cfg.Color.On(cfg.Stderr), failed)
	s.stdout = s.stderr
	if !sameStream(cfg.Stdout, cfg.Stderr) {
		s.stdout = newConsole(cfg.Stdout, cfg.firstRank(), cfg.Ranks, cfg.Color.On(cfg.Stdout), failed)
	}
	return s
}

func (s *screen) close() {
	s.stdout.close()
	s.stderr.close()
}

func (s *screen) hurry() {
	s.stdout.hurry()
	s.stderr.hurry()
}

// sameStream tells whether two files are the same stream.
func sameStream(a, b *os.File) bool {
	x, err := a.Stat()
	if err != nil {
		return false
	}
	y, err := b.Stat()
	return err == nil && os.SameFile(x, y)
}
