package watch

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/view"
	"github.com/carillon-rt/carillon/lifecycle/words"
	"github.com/carillon-rt/carillon/ras/bus"
)

type lines struct {
	out, notes io.Writer
	greeted    bool
	waiting    string
	stale      map[int]bool // ranks reported as stale
	quiet      bool         // reported: no snapshot arrives
}

// NewLines returns a Display that writes a line for each event to out, with the evidence of an open verdict below it,
// and remarks about the watching to notes.
func NewLines(out, notes io.Writer) Display { return &lines{out: out, notes: notes} }

func (l *lines) Event(ev *bus.Event) {
	fmt.Fprintln(l.out, view.EventLine(ev)) // SIGPIPE ends this process when the reader is gone
	if ev.Stage != bus.Opened && ev.Stage != bus.Changed {
		return
	}
	for evidence := range strings.Lines(ev.Description) {
		fmt.Fprintf(l.out, "         - %s\n", words.Line(strings.TrimSpace(evidence)))
	}
}

func (l *lines) State(r *view.Report, note string) {
	switch {
	case r == nil && note != l.waiting:
		l.waiting = note
		fmt.Fprintf(l.notes, "carillon: %s\n", words.Line(note))
	case r != nil && !l.greeted && (r.Size > 0 || len(r.Jobs) > 0):
		l.greeted = true
		fmt.Fprintf(l.notes, "carillon: watching %s\n", r.Summary())
	}
	if r != nil {
		l.staleness(r)
	}
}

func (l *lines) staleness(r *view.Report) {
	is := map[int]bool{}
	for _, s := range r.Stale {
		is[s.Rank] = true
	}
	news := slices.DeleteFunc(slices.Clone(r.Stale), func(s view.Stale) bool { return l.stale[s.Rank] })
	back := slices.DeleteFunc(slices.Clone(r.Told), func(rank int) bool { return !l.stale[rank] || is[rank] })
	l.stale = is
	if len(news) > 0 {
		fmt.Fprintf(l.notes, "carillon: stale: %s\n", words.Line(view.StaleText(news)))
	}
	if len(back) > 0 {
		fmt.Fprintf(l.notes, "carillon: no longer stale: %s\n", words.Ranks(back))
	}
	switch quiet := r.Quiet() > 0; {
	case quiet && !l.quiet:
		fmt.Fprintf(l.notes, "carillon: no process has answered for %v\n", words.Round(r.Quiet()))
	case !quiet && l.quiet:
		fmt.Fprintln(l.notes, "carillon: processes answer again")
	}
	l.quiet = r.Quiet() > 0
}

func (*lines) Redraw() <-chan struct{} { return nil }
func (*lines) Quit() <-chan struct{}   { return nil }
