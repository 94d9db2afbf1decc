package logsink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

const exporterVariable = "OTEL_LOGS_EXPORTER"

// What the batch processor is set up by where its variables say nothing else: OpenTelemetry's defaults, and the most
// that it takes.
const (
	defaultRoom    = 2048
	defaultBatch   = 512
	defaultDelay   = 1000  // milliseconds
	defaultTimeout = 30000 // milliseconds

	maxRoom         = 1 << 20 // room is reserved for all of them
	maxMilliseconds = 1 << 31
)

type export struct {
	gate     *gate
	provider *sdklog.LoggerProvider
}

// newExport makes the way to the collector that the environment asks for; nil if it asks for none. Log hears of
// failures.
func newExport(ctx context.Context, cfg *Config, log *slog.Logger) (*export, error) {
	named, wanted := exportWanted(os.Environ())
	if !wanted || strings.EqualFold(strings.TrimSpace(os.Getenv("OTEL_SDK_DISABLED")), "true") {
		return nil, nil //nolint:nilnil // a nil export is logs that stay in the process
	}
	exporter, err := newExporter(ctx, os.Getenv(exporterVariable))
	if err != nil {
		return nil, fmt.Errorf("exporter of logs: %w (%s=%q takes otlp, console or none; OTEL_EXPORTER_OTLP_PROTOCOL=%q "+
			"takes http/protobuf or grpc)",
			err, exporterVariable, os.Getenv(exporterVariable), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"))
	}
	if autoexport.IsNoneLogExporter(exporter) {
		return nil, nil //nolint:nilnil // as above
	}
	// An endpoint for spans may be a collector that takes nothing else, as Jaeger is. That is worth no warning.
	failure := slog.LevelInfo
	if named {
		failure = slog.LevelWarn
	}
	room, batch := batchOptions(log)
	e := &export{gate: newGate(exporter, room, log, failure, batch...)}
	opts := []sdklog.LoggerProviderOption{sdklog.WithProcessor(e.gate)}
	if cfg.Resource != nil {
		opts = append(opts, sdklog.WithResource(cfg.Resource))
	}
	e.provider = sdklog.NewLoggerProvider(opts...)
	return e, nil
}

// batchOptions set all that OpenTelemetry reads from the environment itself, without a word where it can't be used.
func batchOptions(log *slog.Logger) (room int, opts []sdklog.BatchProcessorOption) {
	milliseconds := func(name string, usual int) time.Duration {
		return time.Duration(otlp.Number(log, name, "milliseconds", usual, maxMilliseconds)) * time.Millisecond
	}
	room = otlp.Number(log, "OTEL_BLRP_MAX_QUEUE_SIZE", "records", defaultRoom, maxRoom)
	return room, []sdklog.BatchProcessorOption{
		sdklog.WithMaxQueueSize(room),
		sdklog.WithExportMaxBatchSize(min(room, otlp.Number(log, "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "records", defaultBatch,
			maxRoom))),
		sdklog.WithExportInterval(milliseconds("OTEL_BLRP_SCHEDULE_DELAY", defaultDelay)),
		sdklog.WithExportTimeout(milliseconds("OTEL_BLRP_EXPORT_TIMEOUT", defaultTimeout)),
	}
}

func newExporter(ctx context.Context, name string) (sdklog.Exporter, error) {
	if name == "" || name == "otlp" {
		return otlp.NewLogExporter(ctx)
	}
	return autoexport.NewLogExporter(ctx)
}

func (e *export) handler(version string) slog.Handler {
	return renamed{otelslog.NewHandler(semconv.ScopeName,
		otelslog.WithLoggerProvider(e.provider), otelslog.WithVersion(version), otelslog.WithSchemaURL(semconv.SchemaURL))}
}

// close exports what is queued, until ctx ends.
func (e *export) close(ctx context.Context) error {
	// The provider may find ctx at its end before it comes to the gate, which would then go on to export.
	return errors.Join(e.provider.Shutdown(ctx), e.gate.Shutdown(ctx))
}

// exportWanted tells whether the environment names an exporter of logs, or an endpoint for all signals.
func exportWanted(environ []string) (named, wanted bool) {
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if value == "" {
			continue
		}
		switch rest, otlp := strings.CutPrefix(name, "OTEL_EXPORTER_OTLP_"); {
		case name == exporterVariable, otlp && strings.HasPrefix(rest, "LOGS_"):
			named, wanted = true, true
		case rest == "ENDPOINT" && otlp:
			wanted = true
		}
	}
	return named, wanted
}
