package terminal

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Line is the event as a line, with a line break.
func Line(ev *bus.Event) string {
	severity := ev.Severity.String()
	switch { // what was critical may be over
	case ev.Stage == bus.Closed && ev.Unresolved:
		severity = "given up"
	case ev.Stage == bus.Closed:
		severity = "over"
	case ev.Severity > bus.Info:
		severity = strings.ToUpper(severity)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %-8s %s", ev.Time.Local().Format("15:04:05"), severity,
		Shown(strings.TrimPrefix(ev.Type, semconv.EventPrefix)))
	if ev.Subject != "" && !strings.HasPrefix(ev.Text, ev.Subject) { // most texts begin with it
		b.WriteString(" " + Shown(ev.Subject))
	}
	if ev.Text != "" {
		b.WriteString(": " + Shown(ev.Text))
	}
	if more := remarks(ev); len(more) > 0 {
		b.WriteString(" (" + strings.Join(more, ", ") + ")")
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
