package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/fx"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/telemetry/stall"
)

func newLogger() *slog.Logger { return slog.New(slog.NewJSONHandler(os.Stderr, nil)) }

func newResource() (*resource.Resource, error) {
	return resource.Merge(resource.Default(), resource.NewSchemaless(attribute.String("service.name", "mean")))
}

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// newExporter returns the exporter that OTEL_TRACES_EXPORTER names, or one that drops all spans.
func newExporter() (sdktrace.SpanExporter, error) {
	nowhere := func(context.Context) (sdktrace.SpanExporter, error) { return tracetest.NewNoopExporter(), nil }
	return autoexport.NewSpanExporter(context.Background(), autoexport.WithFallbackSpanExporter(nowhere))
}

// tracing is the service's tracing. Its processor also receives Carillon's spans, which come from a separate provider,
// as they have their own ids and sampling.
type tracing struct {
	provider  *sdktrace.TracerProvider
	processor sdktrace.SpanProcessor
}

func newTracing(lc fx.Lifecycle, exporter sdktrace.SpanExporter, res *resource.Resource) *tracing {
	t := &tracing{processor: sdktrace.NewBatchSpanProcessor(exporter)}
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(t.processor), sdktrace.WithResource(res))
	lc.Append(fx.StopHook(t.provider.Shutdown)) // after Carillon's own shutdown
	return t
}

// observer logs what Carillon finds wrong.
func observer(log *slog.Logger) node.Observer {
	return node.Observer{
		Stall: func(r *stall.Report) {
			log.Warn("a collective takes long", "communicator", r.Comm.Name, "stage", r.Stage)
		},
		Event: func(ev *bus.Event) { log.Info("Carillon says", "type", ev.Type, "text", ev.Text) },
	}
}
