package watch

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/view"
	"github.com/carillon-rt/carillon/ras/bus"
)

// Control sequences: https://invisible-island.net/xterm/ctlseqs/ctlseqs.html
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l" // the alternate screen, no cursor, no wrapping
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	beginFrame  = "\x1b[?2026h\x1b[H" // a synchronized update, where supported
	endFrame    = "\x1b[J\x1b[?2026l"
	endLine     = "\x1b[K"
)

const maxEvents = 256

// screen draws each frame over the last one, without flicker, and skips an unchanged one.
type screen struct {
	out     *os.File
	in      *os.File    // nil: there are no keys
	cooked  *term.State // of in
	colored bool

	events []*bus.Event
	drawn  []byte

	winch  chan os.Signal
	redraw chan struct{}
	quit   chan struct{}
	ending sync.WaitGroup
	closed sync.Once
}

// NewScreen returns a Display on the terminal out. It reads keys from in if that is a terminal. end restores both
// terminals; it may be called twice.
func NewScreen(out, in *os.File, colored bool) (d Display, end func(), err error) {
	s := &screen{
		out: out, colored: colored, winch: make(chan os.Signal, 1), redraw: make(chan struct{}, 1),
		quit: make(chan struct{}),
	}
	if in != nil && term.IsTerminal(int(in.Fd())) {
		if s.cooked, err = term.MakeRaw(int(in.Fd())); err != nil {
			return nil, nil, fmt.Errorf("read keys from the terminal: %w", err)
		}
		s.in = in
		go s.keys()
	}
	signal.Notify(s.winch, syscall.SIGWINCH)
	s.ending.Go(s.resizes)
	_, _ = s.out.WriteString(enterScreen) // it fails only if the terminal is gone
	return s, s.close, nil
}

func (s *screen) close() {
	s.closed.Do(func() {
		signal.Stop(s.winch)
		close(s.winch)
		s.ending.Wait()
		if s.in != nil {
			_ = term.Restore(int(s.in.Fd()), s.cooked)
		}
		_, _ = s.out.WriteString(leaveScreen)
	})
}

func (s *screen) Event(ev *bus.Event) {
	if len(s.events) == maxEvents {
		s.events = append(s.events[:0], s.events[maxEvents/2:]...)
	}
	s.events = append(s.events, ev)
}

func (s *screen) State(r *view.Report, note string) {
	columns, rows, err := term.GetSize(int(s.out.Fd()))
	if err != nil || columns <= 0 || rows <= 0 {
		columns, rows = 80, 24
	}
	frame := view.Frame{Report: r, Events: s.events, Note: note, Columns: columns - 1, Rows: rows, Colored: s.colored}
	var b bytes.Buffer
	b.WriteString(beginFrame)
	for i, l := range frame.Lines() {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(l + endLine)
	}
	b.WriteString(endFrame)
	if !bytes.Equal(b.Bytes(), s.drawn) {
		s.drawn = b.Bytes()
		_, _ = s.out.Write(s.drawn)
	}
}

func (s *screen) Redraw() <-chan struct{} { return s.redraw }
func (s *screen) Quit() <-chan struct{}   { return s.quit }

func (s *screen) resizes() {
	for range s.winch {
		select {
		case s.redraw <- struct{}{}:
		default:
		}
	}
}

// keys reads keys until q, ^C or ^D; in raw mode, ^C raises no signal. If none of them is pressed, it runs until the
// process ends.
func (s *screen) keys() {
	defer close(s.quit)
	var b [64]byte
	for {
		n, err := s.in.Read(b[:])
		if err != nil || bytes.ContainsAny(b[:n], "qQ\x03\x04") {
			return
		}
	}
}
