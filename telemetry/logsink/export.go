package logsink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	sdklog "go.opentelemetry.io/otel/sdk/log"

	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// The variable that names the exporter of logs, and the one that bounds its queue, with OpenTelemetry's default.
const (
	exporterVariable = "OTEL_LOGS_EXPORTER"
	queueVariable    = "OTEL_BLRP_MAX_QUEUE_SIZE"
	defaultRoom      = 2048
)

// export is the way to the collector.
type export struct {
	gate     *gate
	provider *sdklog.LoggerProvider
}

// newExport makes the way to the collector that the environment asks for; nil if it asks for none. Log hears of the collector's troubles.
func newExport(ctx context.Context, cfg *Config, log *slog.Logger) (*export, error) {
	named, wanted := exportWanted(os.Environ())
	if !wanted || strings.EqualFold(strings.TrimSpace(os.Getenv("OTEL_SDK_DISABLED")), "true") {
		return nil, nil //nolint:nilnil // a nil export is logs that stay in the process
	}
	exporter, err := newExporter(ctx, os.Getenv(exporterVariable))
	if err != nil {
		return nil, fmt.Errorf("exporter of logs: %w (%s=%q takes otlp, console or none; OTEL_EXPORTER_OTLP_PROTOCOL=%q takes http/protobuf or grpc)",
			err, exporterVariable, os.Getenv(exporterVariable), os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"))
	}
	if autoexport.IsNoneLogExporter(exporter) {
		return nil, nil //nolint:nilnil // as above
	}
	room := defaultRoom
	if n, err := strconv.Atoi(os.Getenv(queueVariable)); err == nil && n > 0 {
		room = n
	}
	// Who names an endpoint for spans may have a collector that takes nothing but spans, as Jaeger does. That is worth no warning.
	failure := slog.LevelInfo
	if named {
		failure = slog.LevelWarn
	}
	e := &export{gate: newGate(exporter, room, log, failure)}
	opts := []sdklog.LoggerProviderOption{sdklog.WithProcessor(e.gate)}
	if cfg.Resource != nil {
		opts = append(opts, sdklog.WithResource(cfg.Resource))
	}
	e.provider = sdklog.NewLoggerProvider(opts...)
	return e, nil
}

// newExporter makes the exporter of that name; OpenTelemetry's default is OTLP.
func newExporter(ctx context.Context, name string) (sdklog.Exporter, error) {
	if name == "" || name == "otlp" {
		return otlp.NewLogExporter(ctx)
	}
	return autoexport.NewLogExporter(ctx)
}

// handler takes what is logged.
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
