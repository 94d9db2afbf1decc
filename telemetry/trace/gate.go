package trace

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Stats counts exported and lost spans.
type Stats = otlp.Stats

// gate wraps OpenTelemetry's batch processor with a bounded otlp.Queue. The last quarter of the queue is reserved for
// acts and errors.
type gate struct {
	sdktrace.SpanProcessor // OpenTelemetry's
	*otlp.Queue
	log        *slog.Logger
	room       int64 // the size of the queue
	outage     *otlp.Outage
	deliveries deliveries
	failed     func(error) // Config.Failed

	urgent  chan struct{}   // an error waits to be exported
	closing context.Context // ends with Shutdown
	shut    context.CancelFunc
	flushed chan struct{} // closed when flushErrors has returned
}

func newGate(exporter sdktrace.SpanExporter, log *slog.Logger, b otlp.Batching) *gate {
	g := &gate{Queue: otlp.NewQueue(), log: log, room: int64(b.Queue), outage: new(otlp.Outage)}
	g.urgent, g.flushed = make(chan struct{}, 1), make(chan struct{})
	g.closing, g.shut = context.WithCancel(context.Background())
	g.SpanProcessor = sdktrace.NewBatchSpanProcessor(&countingExporter{exporter, g},
		sdktrace.WithMaxQueueSize(b.Queue+flushMarks), sdktrace.WithMaxExportBatchSize(b.Batch),
		sdktrace.WithBatchTimeout(b.Delay), sdktrace.WithExportTimeout(b.Timeout))
	go g.flushErrors()
	return g
}

// flushMarks is the room for the marks that ForceFlush adds to the queue.
const flushMarks = 8

// urgentPause is how long an error waits for others, to be exported with them. A program that ends because of the error
// usually ends within this pause, and other processes then export its spans.
const urgentPause = 200 * time.Millisecond

// flushErrors exports errors at once: a hang should be visible before a batch is full.
func (g *gate) flushErrors() {
	defer close(g.flushed)
	for {
		select {
		case <-g.urgent:
		case <-g.closing.Done():
			return
		}
		select {
		case <-time.After(urgentPause):
		case <-g.closing.Done():
			return
		}
		_ = g.ForceFlush(g.Abandoned) // the queue counts lost spans
	}
}

// OnEnd queues the span, or drops and counts it. It never blocks.
func (g *gate) OnEnd(span sdktrace.ReadOnlySpan) {
	room := g.room
	if ordinary(span.Attributes(), span.Status().Code == codes.Error) {
		room -= room / 4
	}
	if !g.Admit(room) {
		return
	}
	g.SpanProcessor.OnEnd(span)
	if span.Status().Code == codes.Error {
		select {
		case g.urgent <- struct{}{}:
		default: // a flush is due already
		}
	}
}

// ordinary tells whether a span is that of an operation that ended well and in time.
func ordinary(attrs []attribute.KeyValue, failed bool) bool {
	if failed {
		return false
	}
	op := false
	for _, kv := range attrs {
		switch kv.Key {
		case semconv.OpSeq:
			op = true
		case semconv.OpSlow:
			return false
		}
	}
	return op
}

// Shutdown exports the queued spans, until ctx ends; the rest then counts as failed.
func (g *gate) Shutdown(ctx context.Context) error {
	g.shut()
	err := g.SpanProcessor.Shutdown(ctx)
	g.Abandon()
	<-g.flushed
	return err
}

// countingExporter counts the spans that leave the gate's queue.
type countingExporter struct {
	sdktrace.SpanExporter
	gate *gate
}

// ExportSpans exports a batch. It returns no error: failures are counted, and logged when they begin and when they
// stop.
func (o *countingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	g := o.gate
	err := g.Export(ctx, len(spans), func(ctx context.Context) error { return o.SpanExporter.ExportSpans(ctx, spans) })
	stats := g.Stats()
	if stats.Failed == 0 {
		g.deliveries.reached(stats.Exported)
	}
	switch changed := g.outage.Changed(err); {
	case changed && err != nil && g.failed != nil:
		g.failed(err)
	case changed && err != nil:
		text := "spans can't be exported; this process keeps the last ones in memory until it ends"
		if g.closing.Err() != nil {
			text = "the last spans can't be exported"
		}
		g.log.Warn(text, "error", err, "spans", len(spans))
	case changed:
		g.log.Info("spans are exported again", "failed_until_now", stats.Failed)
	}
	return nil
}

// deliveries finds out until which time all spans have been exported. Spans leave the queue in order, so it stores
// marks: how many spans had been queued when all events until a time had been projected. It keeps two marks: the next
// one that the export will reach, and the latest.
type deliveries struct {
	tell func(until int64) // nil: there is no callback
	now  func() int64

	mu           sync.Mutex
	next, latest mark
}

// mark says how many spans, in all, the events until a time had become. The zero value is none.
type mark struct {
	spans uint64
	until int64
}

// lateRecord is how long a preempted writer may delay a record: records with later times may be written before it.
const lateRecord = 50 * time.Millisecond

// queued notes that all events until a time on the tape's clock have become spans; spans is their number so far.
func (d *deliveries) queued(spans uint64, until int64) {
	if d.tell == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latest = mark{spans, until}
	if d.next == (mark{}) {
		d.next = d.latest
	}
}

// reached notes the number of spans exported so far.
func (d *deliveries) reached(spans uint64) {
	if d.tell == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	sure := d.now() - int64(lateRecord)
	switch {
	case d.latest == mark{} || d.next.spans > spans:
		return
	case d.latest.spans > spans:
		d.tell(min(d.next.until, sure))
		d.next = d.latest
	case d.latest.until > sure: // the rest is reported with the next spans
		d.tell(sure)
		d.next = d.latest
	default:
		d.tell(d.latest.until)
		d.next, d.latest = mark{}, mark{}
	}
}
