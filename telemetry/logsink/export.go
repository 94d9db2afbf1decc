package logsink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

const exporterVariable = "OTEL_LOGS_EXPORTER"

// OpenTelemetry's defaults of the batch processor, and the most that it takes.
const (
	defaultRoom    = 2048
	defaultBatch   = 512
	defaultDelay   = time.Second
	defaultTimeout = 30 * time.Second

	maxRoom = 1 << 20 // room is reserved for all of them
)

// newExport makes the way to the collector that the environment asks for; nil if it asks for none. Log hears of
// failures.
func newExport(ctx context.Context, cfg *Config, log *slog.Logger) (*gate, error) {
	named, all := otlp.Asked("LOGS")
	if !named && (!all || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "") {
		return nil, nil //nolint:nilnil // a nil gate is logs that stay in the process
	}
	exporter, err := newExporter(ctx, os.Getenv(exporterVariable))
	if err != nil {
		return nil, fmt.Errorf("exporter of logs: %w (%s=%q takes otlp, console or none; "+
			"OTEL_EXPORTER_OTLP_PROTOCOL=%q "+
			"takes http/protobuf or grpc)",
			err, exporterVariable, os.Getenv(exporterVariable), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"))
	}
	if autoexport.IsNoneLogExporter(exporter) {
		return nil, nil //nolint:nilnil // as above
	}
	// OpenTelemetry reads these itself, without a word where one can't be used.
	room := otlp.Number(log, "OTEL_BLRP_MAX_QUEUE_SIZE", "records", defaultRoom, maxRoom)
	batch := otlp.Number(log, "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "records", defaultBatch, maxRoom)

	g := &gate{log: log, room: int64(room), failure: slog.LevelWarn}
	if !named { // an endpoint for spans may be a collector that takes nothing else, as Jaeger is
		g.failure = slog.LevelInfo
	}
	g.abandoned, g.abandon = context.WithCancel(context.Background())
	g.BatchProcessor = sdklog.NewBatchProcessor(&outlet{exporter, g},
		sdklog.WithMaxQueueSize(room), sdklog.WithExportMaxBatchSize(min(room, batch)),
		sdklog.WithExportInterval(otlp.Milliseconds(log, "OTEL_BLRP_SCHEDULE_DELAY", defaultDelay)),
		sdklog.WithExportTimeout(otlp.Milliseconds(log, "OTEL_BLRP_EXPORT_TIMEOUT", defaultTimeout)))
	opts := []sdklog.LoggerProviderOption{sdklog.WithProcessor(g)}
	if cfg.Resource != nil {
		opts = append(opts, sdklog.WithResource(cfg.Resource))
	}
	g.provider = sdklog.NewLoggerProvider(opts...)
	return g, nil
}

func newExporter(ctx context.Context, name string) (sdklog.Exporter, error) {
	if name == "" || name == "otlp" {
		return otlp.NewLogExporter(ctx)
	}
	return autoexport.NewLogExporter(ctx)
}

func (g *gate) handler(version string) slog.Handler {
	return otelslog.NewHandler(semconv.ScopeName,
		otelslog.WithLoggerProvider(g.provider), otelslog.WithVersion(version),
		otelslog.WithSchemaURL(semconv.SchemaURL))
}

// close exports what is queued, until ctx ends.
func (g *gate) close(ctx context.Context) error {
	// The provider may find ctx at its end before it comes to the gate, which would then go on to export.
	return errors.Join(g.provider.Shutdown(ctx), g.Shutdown(ctx))
}
