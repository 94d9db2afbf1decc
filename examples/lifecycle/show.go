package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// width is the width of a line, and indent that of the label before a text.
const (
	width  = 110
	indent = 10
)

type printer struct {
	out  io.Writer
	mask func(string) string // hides what differs between runs; may be nil
}

func (p *printer) show(number int, m mistake, o outcome) {
	p.line("%d. %s", number, m.title)
	p.text("why", m.why)
	said := ""
	if o.err != nil {
		said = o.err.Error()
		p.text("error", said)
	} else {
		for _, line := range slices.Sorted(strings.Lines(o.log)) {
			p.text("log", line)
		}
	}
	p.span(o.traces, m.span, said)
	p.line("")
}

// span shows the span that the mistake left, and the span's text unless it was already shown.
func (p *printer) span(store *trace.Store, name, said string) {
	if name == "" {
		p.text("span", "none")
		return
	}
	spans := failures(store, name)
	if len(spans) == 0 {
		p.text("span", "no "+name)
		return
	}
	s := spans[0]
	status := "Error"
	if s.Error == "" {
		status = "Unset: postponed, which is no error"
	}
	p.text("span", s.Name+", status "+status)
	if text := cmp.Or(s.Error, s.Attributes.Get(semconv.Postponed)); p.masked(text) != p.masked(said) {
		p.text("says", text)
	}
	p.text("trace", s.TraceID.String())
	var with []string
	for _, key := range telling {
		if value := s.Attributes.Get(key); value != "" {
			with = append(with, string(key)+"="+filepath.Base(value))
		}
	}
	p.text("with", strings.Join(with, " "))
	for _, l := range s.Links {
		p.text("link", linked(store, &s, l))
	}
	if n := len(spans) - 1; n > 0 {
		p.text("more", fmt.Sprintf("%d of the same name", n))
	}
}

// telling are the attributes to show.
var telling = []attribute.Key{
	semconv.ErrorType, semconv.GroupOps, semconv.PeerRank, semconv.SharedGoroutines,
	semconv.CodeFunction, semconv.CodeFile, semconv.CodeLine,
	semconv.FirstFunction, semconv.FirstFile, semconv.FirstLine, semconv.FirstGoroutine, semconv.FirstTime,
}

// failures returns the spans of a name whose calls failed or were refused or postponed, by rank and then by time.
func failures(store *trace.Store, name string) []trace.Span {
	var found []trace.Span
	for _, t := range store.Acts(0) {
		for _, s := range t.Spans {
			if s.Name == name && (s.Error != "" || s.Attributes.Get(semconv.Postponed) != "") {
				found = append(found, s)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b trace.Span) int {
		return cmp.Or(cmp.Compare(a.Attributes.Get(semconv.Rank), b.Attributes.Get(semconv.Rank)),
			a.Start.Compare(b.Start))
	})
	return found
}

func linked(store *trace.Store, s *trace.Span, l trace.Link) string {
	where := "trace " + l.TraceID.String()
	if l.TraceID == s.TraceID {
		where = "the same trace"
	}
	what := "a span"
	there, _ := store.Trace(l.TraceID)
	for _, other := range there.Spans {
		if other.SpanID == l.SpanID {
			what = other.Name
		}
	}
	return fmt.Sprintf("%s: %s in %s", l.Kind, what, where)
}

func (p *printer) whereToLook() {
	p.line("Where to look, in a job of yours")
	p.text("now", "GET /api/v1/traces?trace=ID at the health endpoint of any rank (CARILLON_HEALTH_ADDR)")
	p.text("Jaeger", "set OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318, and search for a trace id from above")
	p.text("counted", `ccl_lifecycle_errors_total{call="destroy",error_type="destroyed"} and its like, at /metrics`)
}

// text prints a text after a label, on as many lines as it needs.
func (p *printer) text(label, text string) {
	for _, line := range wrap(p.masked(text), width-indent) {
		p.line("%-*s%s", indent, "  "+label, line)
		label = ""
	}
}

func (p *printer) masked(text string) string {
	if p.mask == nil {
		return text
	}
	return p.mask(text)
}

func (p *printer) line(format string, args ...any) {
	fmt.Fprintln(p.out, strings.TrimRight(fmt.Sprintf(format, args...), " "))
}

func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
