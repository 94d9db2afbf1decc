package trace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// exportDelay is how long a span waits for a batch, unless OTEL_BSP_SCHEDULE_DELAY says; a hang is told soon.
const exportDelay = time.Second

// pipeline is what spans go through once they are made: the store, and the exporter if there is one.
type pipeline struct {
	provider *sdktrace.TracerProvider
	tracer   oteltrace.Tracer
	store    *Store
	gate     *gate // nil: nothing is exported
	heard    bool  // somebody hears of spans, beside the store
	disabled bool  // OTEL_SDK_DISABLED: no spans are made
}

// newPipeline builds the pipeline that cfg and the OTEL_* variables ask for.
func newPipeline(ctx context.Context, cfg *Config) (*pipeline, error) {
	p := &pipeline{store: NewStore(cfg.StoreTraces), disabled: otlp.Disabled()}
	exporter, err := exporterFromEnv(ctx, cfg.Logger)
	switch {
	case err != nil && cfg.MustExport:
		return nil, err
	case err != nil:
		cfg.Logger.Warn("spans are not exported; they stay in the process's own store", "error", err)
	}
	opts := []sdktrace.TracerProviderOption{
		sdktrace.WithIDGenerator(generator{}),
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // the Projector has chosen, and all ranks must choose alike
		sdktrace.WithResource(newResource(ctx, cfg)),
	}
	if exporter != nil {
		p.gate = newGate(exporter, cfg.Logger.With("to", destination()), batchOptions(cfg.Logger)...)
		p.gate.deliveries.tell, p.gate.deliveries.now = cfg.Delivered, cfg.Now
		opts = append(opts, sdktrace.WithSpanProcessor(p.gate))
	}
	for _, sp := range cfg.Processors {
		opts = append(opts, sdktrace.WithSpanProcessor(sp))
	}
	p.heard = p.gate != nil || len(cfg.Processors) > 0
	p.provider = sdktrace.NewTracerProvider(opts...)
	p.tracer = p.provider.Tracer(semconv.ScopeName,
		oteltrace.WithInstrumentationVersion(cfg.Version), oteltrace.WithSchemaURL(semconv.SchemaURL))
	return p, nil
}

// shutdown ends the pipeline: the gate, too, where a ctx that has ended keeps the provider from ending anything.
func (p *pipeline) shutdown(ctx context.Context) error {
	err := p.provider.Shutdown(ctx)
	if p.gate != nil {
		err = errors.Join(err, p.gate.Shutdown(ctx))
	}
	return err
}

func (p *pipeline) stats() Stats {
	if p.gate == nil {
		return Stats{}
	}
	return p.gate.stats()
}

// exporterFromEnv makes the exporter that the OTEL_* variables name; nil if they name none that can be used. With
// nothing set, unlike with OpenTelemetry, nothing leaves the process.
func exporterFromEnv(ctx context.Context, log *slog.Logger) (sdktrace.SpanExporter, error) {
	if own, all := otlp.Asked("TRACES"); !own && !all {
		return nil, nil
	}
	if err := checkEnv(log); err != nil {
		return nil, err
	}
	newExporter := func(ctx context.Context) (sdktrace.SpanExporter, error) { return autoexport.NewSpanExporter(ctx) }
	if name := os.Getenv("OTEL_TRACES_EXPORTER"); name == "" || name == "otlp" { // OpenTelemetry's default, too
		newExporter = otlp.NewSpanExporter
	}
	exporter, err := newExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("exporter of spans to %s: %w", destination(), err)
	}
	if autoexport.IsNoneSpanExporter(exporter) {
		return nil, nil
	}
	return exporter, nil
}

// Resource describes cfg's process, as its spans do; its metrics and logs take the same. OTEL_* variables win.
func Resource(ctx context.Context, cfg Config) *resource.Resource {
	cfg.setDefaults()
	return newResource(ctx, &cfg)
}

// newResource describes the process. Of a malformed variable, which is logged, what can be used is used.
func newResource(ctx context.Context, cfg *Config) *resource.Resource {
	instance := strconv.Itoa(cfg.Rank)
	if cfg.Rank < 0 {
		instance = cfg.Host + "-" + strconv.Itoa(cfg.PID)
	}
	attrs := attributes{
		semconv.ServiceName.String(cfg.Service),
		semconv.ServiceInstanceID.String(instance),
		semconv.HostName.String(cfg.Host),
		semconv.ProcessPID.Int(cfg.PID),
	}
	attrs.when(cfg.Version != "", semconv.ServiceVersion.String(cfg.Version))
	attrs.when(cfg.Job != "", semconv.Job.String(cfg.Job))
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(), resource.WithAttributes(attrs...), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrSchemaURLConflict) {
		cfg.Logger.Warn("part of the resource's description is left out", "error", err)
	}
	return res
}
