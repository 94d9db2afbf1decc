package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Color says when lines are coloured.
type Color uint8

// The ways of colouring.
const (
	Auto   Color = iota // on a terminal, unless NO_COLOR is set or TERM is dumb
	Always              // whatever Out is
	Never
)

// Config describes a Sink.
type Config struct {
	// Bus is where the events come from. Required.
	Bus *bus.Bus
	// Out is written to, a line at a time. nil means os.Stderr.
	Out    io.Writer
	Color  Color
	Filter bus.Filter
	// Queue is how many events wait; 0 means the Bus's.
	Queue int
}

// Validate names every field that has a value that is not allowed.
func (c Config) Validate() error {
	var errs []error
	if c.Bus == nil {
		errs = append(errs, errors.New("terminal.Config.Bus is nil: allowed is a Bus"))
	}
	if c.Color > Never {
		errs = append(errs, fmt.Errorf("terminal.Config.Color is %d: allowed are Auto, Always and Never", c.Color))
	}
	return errors.Join(errs...)
}

// Sink writes lines. It is a bus.Sink.
type Sink struct {
	cfg     Config
	colored bool
	sub     *bus.Subscription
	counts  bus.Counts
}

// New makes a Sink, which queues from now on and writes while Run runs.
func New(cfg Config) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Out == nil {
		cfg.Out = os.Stderr
	}
	sub := cfg.Bus.Attach(bus.SubscriptionConfig{Filter: cfg.Filter, Queue: cfg.Queue, After: bus.FromStart})
	return &Sink{cfg: cfg, colored: colored(cfg.Color, cfg.Out), sub: sub}, nil
}

// Name implements bus.Sink.
func (*Sink) Name() string { return "terminal" }

// Stats implements bus.Sink.
func (s *Sink) Stats() bus.Stats { return s.counts.Stats(s.sub.Dropped()) }

// Run implements bus.Sink. A write that blocks, as on a terminal stopped with Ctrl-S, holds it alone.
func (s *Sink) Run(ctx context.Context) error {
	defer s.sub.Close()
	return bus.Each(ctx, s.sub, func(ev *bus.Event) error {
		_, err := io.WriteString(s.cfg.Out, line(ev, s.colored))
		switch {
		case ev.Notice():
		case err != nil:
			s.counts.Failed(1) // a terminal that is gone is no reason to stop counting
		default:
			s.counts.Pushed(1)
		}
		return nil
	})
}

// Line is the event as a line without colours, with a line break.
func Line(ev *bus.Event) string { return line(ev, false) }

const (
	red    = "\x1b[1;31m"
	yellow = "\x1b[33m"
	dim    = "\x1b[2m"
	plain  = "\x1b[0m"
)

func line(ev *bus.Event, colored bool) string {
	severity, color := ev.Severity.String(), ""
	switch ev.Severity {
	case bus.Critical:
		severity, color = "CRITICAL", red
	case bus.Warning:
		severity, color = "WARNING", yellow
	case bus.Info:
	}
	switch { // what was critical, and is no longer
	case ev.Stage == bus.Closed && ev.Unresolved:
		severity, color = "given up", ""
	case ev.Stage == bus.Closed:
		severity, color = "over", ""
	}
	end := ""
	if color != "" {
		end = plain
	}
	gray, normal := dim, plain
	if !colored {
		color, end, gray, normal = "", "", "", ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s%s %s%-8s%s %s", gray, ev.Time.Local().Format("15:04:05"), normal, color, severity, end,
		Shown(strings.TrimPrefix(ev.Type, semconv.EventPrefix)))
	if ev.Subject != "" && !strings.HasPrefix(ev.Text, ev.Subject) { // most texts begin with it
		b.WriteString(" " + Shown(ev.Subject))
	}
	if ev.Text != "" {
		b.WriteString(": " + Shown(ev.Text))
	}
	if more := remarks(ev); len(more) > 0 {
		b.WriteString(gray + " (" + strings.Join(more, ", ") + ")" + normal)
	}
	b.WriteByte('\n')
	return b.String()
}

func remarks(ev *bus.Event) []string {
	var more []string
	if ev.Reason != "" {
		more = append(more, "reason "+Shown(ev.Reason))
	}
	if ev.Repeats > 0 {
		more = append(more, fmt.Sprintf("%d more like it", ev.Repeats))
	}
	if ev.Suppressed > 0 {
		more = append(more, fmt.Sprintf("%d symptoms were held back", ev.Suppressed))
	}
	return more
}

// Shown makes what a terminal would obey visible, on one line: "\x1b[2J" becomes `\u001b[2J`.
func Shown(s string) string {
	if !strings.ContainsFunc(s, hostile) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t':
			b.WriteByte(' ')
		case hostile(r):
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// hostile is true for control characters, and for those that turn the direction of text.
func hostile(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

func colored(mode Color, out io.Writer) bool {
	if mode != Auto {
		return mode == Always
	}
	f, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
