package logsink

import (
	"context"
	"log/slog"

	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/carillon-rt/carillon/telemetry/otlp"
)

// gate wraps OpenTelemetry's batch processor with a bounded otlp.Queue.
type gate struct {
	*sdklog.BatchProcessor
	*otlp.Queue
	provider *sdklog.LoggerProvider // whose processor the gate is
	log      *slog.Logger           // logs here, not to the collector
	failure  slog.Level             // of the line about an outage
	room     int64                  // the size of the queue
	outage   otlp.Outage
}

// OnEmit queues the record, or drops and counts it. It never blocks.
func (g *gate) OnEmit(ctx context.Context, r *sdklog.Record) error {
	if !g.Admit(g.room) {
		return nil
	}
	return g.BatchProcessor.OnEmit(ctx, r)
}

// Shutdown exports the queued records until ctx ends; the rest then counts as failed.
func (g *gate) Shutdown(ctx context.Context) error {
	defer g.Abandon()
	defer context.AfterFunc(ctx, g.Abandon)() // ends an export in progress, too
	return g.BatchProcessor.Shutdown(ctx)
}

// lost counts the records that the collector didn't get.
func (g *gate) lost() uint64 {
	stats := g.Stats()
	return stats.Dropped + stats.Failed
}

// countingExporter counts the records that leave the gate's queue.
type countingExporter struct {
	sdklog.Exporter
	gate *gate
}

// Export exports a batch. It returns no error: failures are counted, and logged when they begin and when they stop.
func (o *countingExporter) Export(ctx context.Context, records []sdklog.Record) error {
	if len(records) == 0 {
		return nil
	}
	g := o.gate
	err := g.Export(ctx, len(records), func(ctx context.Context) error { return o.Exporter.Export(ctx, records) })
	switch changed := g.outage.Changed(err); {
	case changed && err != nil:
		g.log.Log(ctx, g.failure, "log records can't be exported (OTEL_LOGS_EXPORTER=none exports none)",
			"error", err, "records", len(records))
	case changed:
		g.log.Info("log records are exported again", "dropped_until_now", g.lost())
	}
	return nil
}
