package watch

import (
	"fmt"
	"io"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/view"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/terminal"
)

// Lines is a Display for what is no terminal: a line for each event.
type Lines struct {
	out, notes io.Writer
	greeted    bool
	waiting    string
}

// NewLines writes events to out, and how the watching goes to notes.
func NewLines(out, notes io.Writer) *Lines { return &Lines{out: out, notes: notes} }

// Event implements Display.
func (l *Lines) Event(ev *bus.Event) {
	_, _ = io.WriteString(l.out, terminal.Line(ev)) // who reads no longer ends this process with SIGPIPE
}

// State implements Display.
func (l *Lines) State(r *view.Report, note string) {
	switch {
	case r == nil && note != l.waiting:
		l.waiting = note
		fmt.Fprintf(l.notes, "carillon: %s\n", terminal.Shown(note))
	case r != nil && !l.greeted && r.Size > 0:
		l.greeted = true
		fmt.Fprintf(l.notes, "carillon: watching %s\n", r.Summary())
	}
}

// Redraw implements Display.
func (*Lines) Redraw() <-chan struct{} { return nil }

// Quit implements Display.
func (*Lines) Quit() <-chan struct{} { return nil }
