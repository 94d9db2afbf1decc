package trace

import (
	"context"
	"log/slog"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/carillon-rt/carillon/telemetry/otlp"
)

// Generator is the id generator, for tests.
type Generator = generator

// Gate is a gate that tests may fill and wait for.
type Gate struct {
	*gate
	closed chan struct{}
}

// NewGate makes a Gate in front of an exporter.
func NewGate(exporter sdktrace.SpanExporter, log *slog.Logger, b otlp.Batching) *Gate {
	g := &Gate{closed: make(chan struct{})}
	g.gate = newGate(closeNotifier{exporter, g.closed}, log, b)
	return g
}

// Wait waits until the batch processor's goroutines have ended, which close the exporter last.
func (g *Gate) Wait() { <-g.closed }

type closeNotifier struct {
	sdktrace.SpanExporter
	closed chan struct{}
}

func (c closeNotifier) Shutdown(ctx context.Context) error {
	defer close(c.closed)
	return c.SpanExporter.Shutdown(ctx)
}

// Deliveries are the marks of queued and exported spans.
type Deliveries struct{ deliveries }

// NewDeliveries makes Deliveries that call tell.
func NewDeliveries(tell func(int64), now func() int64) *Deliveries {
	return &Deliveries{deliveries{tell: tell, now: now}}
}

func (d *Deliveries) Queued(spans uint64, until int64) { d.queued(spans, until) }
func (d *Deliveries) Reached(spans uint64)             { d.reached(spans) }
