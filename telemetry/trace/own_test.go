package trace_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/carillon-rt/carillon/telemetry/trace"
)

// lent is a program's exporter or processor that counts how often it was ended.
type lent struct {
	sdktrace.SpanExporter
	sdktrace.SpanProcessor
	times, flushed int
	refuses        bool
}

func (e *lent) Shutdown(context.Context) error {
	e.times++
	return nil
}

func (e *lent) ForceFlush(ctx context.Context) error {
	e.flushed++
	return e.SpanProcessor.ForceFlush(ctx)
}

func (e *lent) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if e.refuses {
		return errors.New("not today")
	}
	return e.SpanExporter.ExportSpans(ctx, spans)
}

// TestOwnExporterAndProcessor: a program's own exporter and processor get the spans, with its resource, and the program
// ends them.
func TestOwnExporterAndProcessor(t *testing.T) {
	batches, singles := tracetest.NewInMemoryExporter(), tracetest.NewSpanRecorder()
	exporter := &lent{SpanExporter: batches}
	processor := &lent{SpanProcessor: singles}
	c := newCollector(t)
	p := newProjector(t, func(cfg *trace.Config) {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
		cfg.Exporters = []sdktrace.SpanExporter{&lent{refuses: true}, exporter}
		cfg.Processors = []sdktrace.SpanProcessor{processor}
		cfg.Resource = resource.NewSchemaless(attribute.String("service.name", "orders"), attribute.String("zone", "b"))
	})
	someLife(p)
	p.close()
	if exporter.times != 0 || processor.times != 0 || processor.flushed != 1 {
		t.Errorf("exporter ended %d times, processor ended %d times and flushed %d times; they are the program's",
			exporter.times, processor.times, processor.flushed)
	}
	if len(batches.GetSpans()) != 2 || len(singles.Ended()) != 2 || !strings.Contains(c.text(), "ccl.comm.init") {
		t.Errorf("the exporter has %d spans, the processor %d, the collector %q; want 2 each",
			len(batches.GetSpans()), len(singles.Ended()), c.text())
	}
	if got := p.Stats(); got != (trace.Stats{Failed: 2}) {
		t.Errorf("Stats = %+v, want 2 failed: one exporter didn't take them", got)
	}
	set := singles.Ended()[0].Resource().Set()
	for key, want := range map[attribute.Key]string{
		"service.name": "orders", "zone": "b", "service.instance.id": "1", "host.name": "h1",
	} {
		if got, _ := set.Value(key); got.AsString() != want {
			t.Errorf("the resource's %s is %q, want %q", key, got.AsString(), want)
		}
	}
}

// TestRegisteredExporter: an exporter that the program registered with autoexport is found by its name.
func TestRegisteredExporter(t *testing.T) {
	memory := tracetest.NewInMemoryExporter()
	autoexport.RegisterSpanExporter("memory", func(context.Context) (sdktrace.SpanExporter, error) {
		return &lent{SpanExporter: memory}, nil // its Shutdown drops no spans
	})
	p := newProjector(t, func(*trace.Config) { t.Setenv("OTEL_TRACES_EXPORTER", "memory") })
	someLife(p)
	p.close()
	if n := len(memory.GetSpans()); n != 2 {
		t.Errorf("it got %d spans, want 2", n)
	}
}
