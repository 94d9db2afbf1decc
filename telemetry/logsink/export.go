package logsink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

const exporterVariable = "OTEL_LOGS_EXPORTER"

// newExport makes the export that the environment asks for; nil if it asks for none. log gets lines about failures.
func newExport(ctx context.Context, cfg *Config, log *slog.Logger) (*gate, error) {
	named, all := otlp.Asked("LOGS")
	if !named && (!all || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "") {
		return nil, nil //nolint:nilnil // without a gate, nothing is exported
	}
	exporter, err := newExporter(ctx, os.Getenv(exporterVariable))
	if err != nil {
		return nil, fmt.Errorf("exporter of logs: %w (%s=%q takes otlp, console or none; "+
			"OTEL_EXPORTER_OTLP_PROTOCOL=%q takes http/protobuf or grpc)",
			err, exporterVariable, os.Getenv(exporterVariable), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"))
	}
	if autoexport.IsNoneLogExporter(exporter) {
		return nil, nil //nolint:nilnil // as above
	}
	b := otlp.BatchingFromEnv(log, "OTEL_BLRP", "records")
	g := &gate{Queue: otlp.NewQueue(), log: log, room: int64(b.Queue), failure: slog.LevelWarn}
	if !named { // the endpoint may accept only spans, as Jaeger does
		g.failure = slog.LevelInfo
	}
	g.BatchProcessor = sdklog.NewBatchProcessor(&countingExporter{exporter, g},
		sdklog.WithMaxQueueSize(b.Queue), sdklog.WithExportMaxBatchSize(b.Batch),
		sdklog.WithExportInterval(b.Delay), sdklog.WithExportTimeout(b.Timeout))
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

// close exports the queued records, until ctx ends.
func (g *gate) close(ctx context.Context) error {
	// If ctx has ended, the provider returns without a Shutdown of the gate, which would go on exporting.
	return errors.Join(g.provider.Shutdown(ctx), g.Shutdown(ctx))
}
