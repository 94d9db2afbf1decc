package logsink

import (
	"context"
	"log/slog"
	"slices"

	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// filter lets records through by level and subsystem.
type filter struct {
	next       slog.Handler
	least      slog.Level
	version    bool // LevelVersion passes, whatever least is
	subsystems Subsystems
	hidden     bool // a bound attribute names a subsystem that isn't in the set
	grouped    bool
}

// Enabled implements slog.Handler.
func (f *filter) Enabled(ctx context.Context, level slog.Level) bool {
	return (level >= f.least || f.version && level == LevelVersion) && f.next.Enabled(ctx, level)
}

// Handle implements slog.Handler. Warnings pass whatever subsystem they come from, as in NCCL.
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
	return f.next.Handle(ctx, r)
}

func (f *filter) hides(a slog.Attr) bool {
	return a.Key == semconv.LogSubsystem && a.Value.Kind() == slog.KindString && !f.subsystems.Has(a.Value.String())
}

// WithAttrs implements slog.Handler.
func (f *filter) WithAttrs(attrs []slog.Attr) slog.Handler {
	g := *f
	g.next = f.next.WithAttrs(attrs)
	g.hidden = f.hidden || !f.grouped && slices.ContainsFunc(attrs, f.hides)
	return &g
}

// WithGroup implements slog.Handler.
func (f *filter) WithGroup(name string) slog.Handler {
	g := *f
	g.next, g.grouped = f.next.WithGroup(name), true
	return &g
}

// ids adds the trace and span id of the context that a record is logged in.
type ids struct{ slog.Handler }

// Handle implements slog.Handler.
func (h ids) Handle(ctx context.Context, r slog.Record) error {
	if sc := oteltrace.SpanContextFromContext(ctx); sc.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String(semconv.LogTraceID, sc.TraceID().String()),
			slog.String(semconv.LogSpanID, sc.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h ids) WithAttrs(attrs []slog.Attr) slog.Handler { return ids{h.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (h ids) WithGroup(name string) slog.Handler { return ids{h.Handler.WithGroup(name)} }

// renamed gives attributes the names that spans have for them. Its records have no level but OpenTelemetry's.
type renamed struct{ slog.Handler }

// Handle implements slog.Handler.
func (h renamed) Handle(ctx context.Context, r slog.Record) error {
	level := r.Level
	if level == LevelVersion {
		level = slog.LevelInfo
	}
	s := slog.NewRecord(r.Time, level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		a.Key = semconv.LogAttribute(a.Key)
		s.AddAttrs(a)
		return true
	})
	return h.Handler.Handle(ctx, s)
}

// WithAttrs implements slog.Handler.
func (h renamed) WithAttrs(attrs []slog.Attr) slog.Handler {
	attrs = slices.Clone(attrs)
	for i := range attrs {
		attrs[i].Key = semconv.LogAttribute(attrs[i].Key)
	}
	return renamed{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler. What is in a group keeps its names.
func (h renamed) WithGroup(name string) slog.Handler { return h.Handler.WithGroup(name) }

// levelNames shows LevelVersion by its name.
func levelNames(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.LevelKey && a.Value.Any() == LevelVersion {
		a.Value = slog.StringValue("VERSION")
	}
	return a
}
