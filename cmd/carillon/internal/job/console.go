package job

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"
)

// console writes the output of many ranks to one stream, with the rank before each line. Lines of different ranks never
// run into each other, even if a rank leaves a line unfinished.
type console struct {
	prefixes [][]byte // by place on this host
	failed   func(error)

	mu   sync.Mutex
	w    io.Writer
	open int // the rank whose unfinished line was written last, or nobody
	buf  []byte
	err  error // once set, nothing is written any more
}

// nobody stands for a rank while no line is unfinished, and own for the launcher itself.
const (
	nobody = -1
	own    = -2
)

// ansiColors can be read on a dark and on a light background.
var ansiColors = [...]int{36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91}

// newConsole returns a console for ranks first to first+n-1. failed is called once, by the writing goroutine, when a
// write to w fails.
func newConsole(w io.Writer, first, n int, color bool, failed func(error)) *console {
	c := &console{w: w, open: nobody, failed: failed}
	width := len(fmt.Sprintf("[%d]", first+n-1))
	for i := range n {
		label := fmt.Sprintf("[%d]", first+i)
		pad := fmt.Sprintf("%*s", width-len(label)+1, "")
		if color {
			label = fmt.Sprintf("\x1b[%dm%s\x1b[0m", ansiColors[(first+i)%len(ansiColors)], label)
		}
		c.prefixes = append(c.prefixes, []byte(label+pad))
	}
	return c
}

// write shows text of a rank: any number of lines, of which the last may be unfinished. A carriage return alone ends a
// line too, so that progress bars show.
func (c *console) write(rank int, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf = c.buf[:0]
	if c.open != nobody && c.open != rank {
		c.buf = append(c.buf, '\n')
		c.open = nobody
	}
	for len(text) > 0 {
		if c.open == nobody && rank != own {
			c.buf = append(c.buf, c.prefixes[rank]...)
		}
		end := bytes.IndexAny(text, "\r\n")
		if end < 0 {
			c.buf = append(c.buf, text...)
			c.open = rank
			break
		}
		c.buf = append(append(c.buf, text[:end]...), '\n')
		c.open = nobody
		if bytes.HasPrefix(text[end:], []byte("\r\n")) {
			end++
		}
		text = text[end+1:]
	}
	c.flush()
}

func (c *console) finish(rank int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == rank {
		c.buf = append(c.buf[:0], '\n')
		c.open = nobody
		c.flush()
	}
}

// say shows a message of the launcher in a line.
func (c *console) say(format string, args ...any) {
	c.write(own, fmt.Appendf(nil, "carillon: "+format+"\n", args...))
}

func (c *console) flush() {
	if c.err != nil {
		return
	}
	if _, c.err = c.w.Write(c.buf); c.err != nil {
		c.failed(c.err)
	}
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
