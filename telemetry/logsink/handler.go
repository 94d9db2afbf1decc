package logsink

import (
	"context"
	"log/slog"
	"slices"

	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// filter passes records on by level and subsystem, with the trace and span id of the context in which they are logged.
// For a collector, otelslog takes these ids from the context itself; there the filter renames attributes outside of
// groups to those of spans, and LevelVersion to INFO.
type filter struct {
	next       slog.Handler
	least      slog.Level
	version    bool // LevelVersion passes even below least
	subsystems Subsystems
	remote     bool // for a collector
	hidden     bool // a bound attribute names a subsystem that isn't in the set
	grouped    bool
}

func (f *filter) Enabled(ctx context.Context, level slog.Level) bool {
	return (level >= f.least || f.version && level == LevelVersion) && f.next.Enabled(ctx, level)
}

// Handle implements slog.Handler. Warnings of all subsystems pass, as in NCCL.
func (f *filter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		hidden := f.hidden
		if !f.grouped {
			r.Attrs(func(a slog.Attr) bool {
				hidden = hidden || f.hides(a)
				return true
			})
		}
		if hidden {
			return nil
		}
	}
	if f.remote {
		r = f.renamed(r)
	} else if sc := oteltrace.SpanContextFromContext(ctx); sc.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String(semconv.LogTraceID, sc.TraceID().String()),
			slog.String(semconv.LogSpanID, sc.SpanID().String()))
	}
	return f.next.Handle(ctx, r)
}

func (f *filter) hides(a slog.Attr) bool {
	return a.Key == semconv.LogSubsystem && a.Value.Kind() == slog.KindString && !f.subsystems.Has(a.Value.String())
}

// renamed returns r for a collector.
func (f *filter) renamed(r slog.Record) slog.Record {
	s := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	if r.Level == LevelVersion {
		s.Level = slog.LevelInfo
	}
	r.Attrs(func(a slog.Attr) bool {
		s.AddAttrs(f.rename(a))
		return true
	})
	return s
}

func (f *filter) rename(a slog.Attr) slog.Attr {
	if f.remote && !f.grouped {
		a.Key = semconv.LogAttribute(a.Key)
	}
	return a
}

func (f *filter) WithAttrs(attrs []slog.Attr) slog.Handler {
	g := *f
	g.hidden = f.hidden || !f.grouped && slices.ContainsFunc(attrs, f.hides)
	attrs = slices.Clone(attrs)
	for i, a := range attrs {
		attrs[i] = f.rename(a)
	}
	g.next = f.next.WithAttrs(attrs)
	return &g
}

func (f *filter) WithGroup(name string) slog.Handler {
	g := *f
	g.next, g.grouped = f.next.WithGroup(name), true
	return &g
}

// levelNames writes LevelVersion as VERSION.
func levelNames(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.LevelKey && a.Value.Any() == LevelVersion {
		a.Value = slog.StringValue("VERSION")
	}
	return a
}
