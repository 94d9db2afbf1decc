package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// open makes the provider with the exporter and the processors that the Config and the OTEL_* variables ask for.
func (p *Projector) open(ctx context.Context) error {
	cfg, quiet := &p.cfg, p.cfg
	quiet.Logger = cfg.Outage.Variables(cfg.Logger)
	exporter, to, err := exporterOf(ctx, &quiet)
	switch {
	case err != nil && cfg.MustExport:
		return err
	case err != nil:
		quiet.Logger.Warn("spans are not exported; this process keeps the last ones in memory until it ends",
			"error", err)
	}
	opts := []sdktrace.TracerProviderOption{
		sdktrace.WithIDGenerator(generator{}),
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // the Projector has chosen, and all ranks must choose alike
		sdktrace.WithResource(newResource(ctx, &quiet)),
	}
	if exporter != nil {
		p.gate = newGate(exporter, cfg.Logger.With("to", to), otlp.BatchingFromEnv(quiet.Logger, "OTEL_BSP", "spans"))
		p.gate.deliveries.tell, p.gate.deliveries.now = cfg.Delivered, cfg.Now
		p.gate.failed = cfg.Failed
		p.gate.outage = cmp.Or(cfg.Outage, p.gate.outage)
		opts = append(opts, sdktrace.WithSpanProcessor(p.gate))
	}
	for _, sp := range cfg.Processors {
		opts = append(opts, sdktrace.WithSpanProcessor(programProcessor{sp}))
	}
	p.provider = sdktrace.NewTracerProvider(opts...)
	p.tracer = p.provider.Tracer(semconv.ScopeName,
		oteltrace.WithInstrumentationVersion(cfg.Version), oteltrace.WithSchemaURL(semconv.SchemaURL))
	return nil
}

// exporterOf joins the exporter that the environment names and those of the program; nil if there is none. to is their
// destination, for messages. If the environment's exporter can't be made, the program's are returned with the error.
func exporterOf(ctx context.Context, cfg *Config) (all sdktrace.SpanExporter, to string, err error) {
	var named sdktrace.SpanExporter
	if !cfg.OwnExport {
		named, err = exporterFromEnv(ctx, cfg.Logger)
	}
	switch {
	case len(cfg.Exporters) == 0 && named == nil: // all must be a nil interface
		return nil, "", err
	case len(cfg.Exporters) == 0:
		return named, destination(), err
	case named == nil:
		return &exporters{programs: cfg.Exporters}, "the program's own exporter", err
	default:
		return &exporters{named, cfg.Exporters}, destination() + " and the program's own exporter", err
	}
}

// exporters holds the exporter that the environment names, nil if none, and those that the program owns.
type exporters struct {
	named    sdktrace.SpanExporter
	programs []sdktrace.SpanExporter
}

// ExportSpans passes the spans to all exporters, even if one fails.
func (e *exporters) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	var errs []error
	if e.named != nil {
		errs = append(errs, e.named.ExportSpans(ctx, spans))
	}
	for _, exporter := range e.programs {
		errs = append(errs, exporter.ExportSpans(ctx, spans))
	}
	return errors.Join(errs...)
}

// Shutdown shuts down the environment's exporter; the program shuts down its own.
func (e *exporters) Shutdown(ctx context.Context) error {
	if e.named == nil {
		return nil
	}
	return e.named.Shutdown(ctx)
}

// programProcessor is a span processor that the program owns and shuts down itself.
type programProcessor struct{ sdktrace.SpanProcessor }

// Shutdown flushes the processor.
func (p programProcessor) Shutdown(ctx context.Context) error { return p.ForceFlush(ctx) }

// exporterFromEnv makes the exporter that the OTEL_* variables name; nil if they name no usable one. Unlike in
// OpenTelemetry, without variables there is no export.
func exporterFromEnv(ctx context.Context, log *slog.Logger) (sdktrace.SpanExporter, error) {
	if own, all := otlp.Asked("TRACES"); !own && !all {
		return nil, nil
	}
	if err := checkEnv(log); err != nil {
		return nil, err
	}
	name := os.Getenv("OTEL_TRACES_EXPORTER")
	if name == "" || name == "otlp" { // OpenTelemetry's default, too
		exporter, err := otlp.NewSpanExporter(ctx)
		if err != nil {
			return nil, fmt.Errorf("exporter of spans to %s: %w", destination(), err)
		}
		return exporter, nil
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER=%q can't be used: %w; it takes otlp, console, none", name, err)
	}
	if autoexport.IsNoneSpanExporter(exporter) {
		return nil, nil
	}
	return exporter, nil
}

// Resource describes cfg's process; its spans, metrics and logs share it.
func Resource(ctx context.Context, cfg Config) *resource.Resource {
	cfg.setDefaults()
	return newResource(ctx, &cfg)
}

// newResource describes the process. cfg.Resource overrides the environment, which overrides the rest of cfg. A
// malformed variable is logged, and its valid part is used.
func newResource(ctx context.Context, cfg *Config) *resource.Resource {
	instance := strconv.Itoa(cfg.Rank)
	if cfg.Rank < 0 {
		instance = cfg.Host + "-" + strconv.Itoa(cfg.PID)
	}
	attrs := attributes{
		semconv.ServiceName.String("carillon"),
		semconv.ServiceInstanceID.String(instance),
		semconv.HostName.String(cfg.Host),
		semconv.ProcessPID.Int(cfg.PID),
	}
	attrs.when(cfg.Version != "", semconv.ServiceVersion.String(cfg.Version))
	attrs.when(cfg.Job != "", semconv.Job.String(cfg.Job))
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(), resource.WithAttributes(attrs...), resource.WithFromEnv())
	merged, unmerged := resource.Merge(res, cfg.Resource)
	for _, err := range []error{err, unmerged} {
		if err != nil && !errors.Is(err, resource.ErrSchemaURLConflict) {
			cfg.Logger.Warn("part of the resource's description is left out", "error", err)
		}
	}
	return merged
}
