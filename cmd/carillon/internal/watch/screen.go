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

// What a terminal obeys: https://invisible-island.net/xterm/ctlseqs/ctlseqs.html
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l" // the alternate screen, no cursor, no wrapping
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	beginFrame  = "\x1b[?2026h\x1b[H" // shown at once, where that is understood
	endFrame    = "\x1b[J\x1b[?2026l"
	endLine     = "\x1b[K"
)

const maxEvents = 256

// Screen is a Display on a terminal. It draws over what it drew, so that nothing flickers, and writes nothing where
// nothing changed. Close gives the terminal back.
type Screen struct {
	out     *os.File
	in      *os.File    // nil: there are no keys
	cooked  *term.State // of in
	colored bool

	events []*bus.Event
	report *view.Report
	note   string
	drawn  []byte

	winch  chan os.Signal
	redraw chan struct{}
	quit   chan struct{}
	ending sync.WaitGroup
	closed sync.Once
}

// NewScreen takes over the terminal out, and in, if that is one: keys are read from there.
func NewScreen(out, in *os.File, colored bool) (*Screen, error) {
	s := &Screen{
		out: out, colored: colored, winch: make(chan os.Signal, 1), redraw: make(chan struct{}, 1),
		quit: make(chan struct{}),
	}
	if in != nil && term.IsTerminal(int(in.Fd())) {
		var err error
		if s.cooked, err = term.MakeRaw(int(in.Fd())); err != nil {
			return nil, fmt.Errorf("read keys from the terminal: %w", err)
		}
		s.in = in
		go s.keys()
	}
	signal.Notify(s.winch, syscall.SIGWINCH)
	s.ending.Go(s.resizes)
	_, _ = s.out.WriteString(enterScreen) // a terminal that is gone has nobody before it
	return s, nil
}

// Close gives the terminal back as it was.
func (s *Screen) Close() {
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

// Event implements Display.
func (s *Screen) Event(ev *bus.Event) {
	if len(s.events) == maxEvents {
		s.events = append(s.events[:0], s.events[maxEvents/2:]...)
	}
	s.events = append(s.events, ev)
}

// State implements Display.
func (s *Screen) State(r *view.Report, note string) {
	s.report, s.note = r, note
	columns, rows, err := term.GetSize(int(s.out.Fd()))
	if err != nil || columns <= 0 || rows <= 0 {
		columns, rows = 80, 24
	}
	frame := view.Frame{Report: r, Events: s.events, Note: note, Columns: columns - 1, Rows: rows, Colored: s.colored}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s", beginFrame)
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

// Redraw implements Display.
func (s *Screen) Redraw() <-chan struct{} { return s.redraw }

// Quit implements Display.
func (s *Screen) Quit() <-chan struct{} { return s.quit }

func (s *Screen) resizes() {
	for range s.winch {
		select {
		case s.redraw <- struct{}{}:
		default:
		}
	}
}

// keys reads keys until q, ^C or ^D, which makes no signal here. Nobody waits for its end: it sits in its read.
func (s *Screen) keys() {
	defer close(s.quit)
	var b [64]byte
	for {
		n, err := s.in.Read(b[:])
		if err != nil || bytes.ContainsAny(b[:n], "qQ\x03\x04") {
			return
		}
	}
}
