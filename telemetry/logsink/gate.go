package logsink

import (
	"context"
	"log/slog"
	"sync/atomic"

	sdklog "go.opentelemetry.io/otel/sdk/log"
)

// gate stands before and behind OpenTelemetry's batch processor, which drops the oldest records when its queue is full
// and doesn't say how many. The gate lets in no more than fit and counts those that it turns away.
type gate struct {
	batch    *sdklog.BatchProcessor
	exporter sdklog.Exporter
	log      *slog.Logger // not to the collector
	failure  slog.Level   // of the line that says that the collector takes nothing

	room    int64 // records in the queue at most
	pending atomic.Int64
	failing atomic.Bool // the last export gave an error
	dropped atomic.Uint64

	abandoned context.Context // ends when Shutdown gives up: nothing is exported any more
	abandon   context.CancelFunc
}

var (
	_ sdklog.Processor = (*gate)(nil)
	_ sdklog.Exporter  = (*gateExporter)(nil)
)

func newGate(exporter sdklog.Exporter, room int, log *slog.Logger, failure slog.Level,
	batch ...sdklog.BatchProcessorOption,
) *gate {
	g := &gate{exporter: exporter, log: log, failure: failure, room: int64(room)}
	g.abandoned, g.abandon = context.WithCancel(context.Background())
	g.batch = sdklog.NewBatchProcessor((*gateExporter)(g), batch...)
	return g
}

// Enabled implements sdklog.Processor.
func (*gate) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }

// OnEmit queues the record, or drops and counts it. It never blocks.
func (g *gate) OnEmit(ctx context.Context, r *sdklog.Record) error {
	if g.pending.Add(1) > g.room {
		g.pending.Add(-1)
		g.dropped.Add(1)
		return nil
	}
	return g.batch.OnEmit(ctx, r)
}

// ForceFlush exports what is queued.
func (g *gate) ForceFlush(ctx context.Context) error { return g.batch.ForceFlush(ctx) }

// Shutdown exports what is queued, until ctx ends; what is left then counts as dropped.
func (g *gate) Shutdown(ctx context.Context) error {
	defer g.abandon()
	defer context.AfterFunc(ctx, g.abandon)() // also an export that is in progress
	return g.batch.Shutdown(ctx)
}

// gateExporter is the gate's other side: it sees what leaves the queue.
type gateExporter gate

// Export passes a batch on. Its errors end here: they are counted, and logged when they begin and when they cease.
func (e *gateExporter) Export(ctx context.Context, records []sdklog.Record) error {
	if len(records) == 0 {
		return nil
	}
	defer e.pending.Add(-int64(len(records)))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.abandoned, cancel)()

	err := e.abandoned.Err()
	if err == nil {
		err = e.exporter.Export(ctx, records)
	}
	switch {
	case err != nil:
		e.dropped.Add(uint64(len(records)))
		if !e.failing.Swap(true) {
			e.log.Log(ctx, e.failure, "log records can't be exported (OTEL_LOGS_EXPORTER=none exports none)", "error", err,
				"records", len(records))
		}
	case e.failing.Swap(false):
		e.log.Info("log records are exported again", "dropped_until_now", e.dropped.Load())
	}
	return nil
}

// ForceFlush flushes the exporter.
func (e *gateExporter) ForceFlush(ctx context.Context) error { return e.exporter.ForceFlush(ctx) }

// Shutdown closes the exporter.
func (e *gateExporter) Shutdown(ctx context.Context) error { return e.exporter.Shutdown(ctx) }
