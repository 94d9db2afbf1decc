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
	*sdklog.BatchProcessor
	provider *sdklog.LoggerProvider // whose processor it is
	log      *slog.Logger           // not to the collector
	failure  slog.Level             // of the line that says that the collector takes nothing

	room    int64 // records in the queue at most
	pending atomic.Int64
	failing atomic.Bool // the last export gave an error
	dropped atomic.Uint64

	abandoned context.Context // ends when Shutdown gives up: nothing is exported any more
	abandon   context.CancelFunc
}

// OnEmit queues the record, or drops and counts it. It never blocks.
func (g *gate) OnEmit(ctx context.Context, r *sdklog.Record) error {
	if g.pending.Add(1) > g.room {
		g.pending.Add(-1)
		g.dropped.Add(1)
		return nil
	}
	return g.BatchProcessor.OnEmit(ctx, r)
}

// Shutdown exports what is queued, until ctx ends; what is left then counts as dropped.
func (g *gate) Shutdown(ctx context.Context) error {
	defer g.abandon()
	defer context.AfterFunc(ctx, g.abandon)() // also an export that is in progress
	return g.BatchProcessor.Shutdown(ctx)
}

// outlet is the gate's other side: it sees what leaves the queue.
type outlet struct {
	sdklog.Exporter
	gate *gate
}

// Export passes a batch on. Its errors end here: they are counted, and logged when they begin and when they cease.
func (o *outlet) Export(ctx context.Context, records []sdklog.Record) error {
	if len(records) == 0 {
		return nil
	}
	g := o.gate
	defer g.pending.Add(-int64(len(records)))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.abandoned, cancel)()

	err := g.abandoned.Err()
	if err == nil {
		err = o.Exporter.Export(ctx, records)
	}
	switch {
	case err != nil:
		g.dropped.Add(uint64(len(records)))
		if !g.failing.Swap(true) {
			g.log.Log(ctx, g.failure, "log records can't be exported (OTEL_LOGS_EXPORTER=none exports none)", "error",
				err, "records", len(records))
		}
	case g.failing.Swap(false):
		g.log.Info("log records are exported again", "dropped_until_now", g.dropped.Load())
	}
	return nil
}
