package metric

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	prombridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/telemetry/otlp"
)

// Push periodically sends the metrics of a Gatherer to the receiver that the OTEL_* variables name. A nil Push sends
// nothing.
type Push struct{ provider *sdkmetric.MeterProvider }

// PushConfig configures a Push. All fields are required but Logger.
type PushConfig struct {
	// Gatherer is the registry that /metrics serves, so that both show the same metrics.
	Gatherer prometheus.Gatherer
	// Resource describes the process, as for spans: trace.Resource.
	Resource *resource.Resource
	// Logger gets a line when metrics can't be sent, and when they can again; nil means slog.Default().
	Logger *slog.Logger
}

// NewPush starts sending if the environment asks for it; otherwise it returns nil. Close ends it.
//
// The environment asks by OTEL_METRICS_EXPORTER (otlp or console; none and prometheus, which is /metrics, send nothing)
// or by any OTEL_EXPORTER_OTLP_METRICS_ variable. OTEL_EXPORTER_OTLP_ENDPOINT alone is not enough, as it is often a
// receiver of traces only. OTEL_METRIC_EXPORT_INTERVAL and OTEL_METRIC_EXPORT_TIMEOUT are in milliseconds. Nothing is
// queued: a receiver that was slow or unreachable gets the next values. The error names the variable, its value and
// what is allowed.
func NewPush(ctx context.Context, cfg PushConfig) (*Push, error) {
	if own, _ := otlp.Asked("METRICS"); !own {
		return nil, nil //nolint:nilnil // a nil Push sends nothing
	}
	exporter, err := pushExporter(ctx)
	if exporter == nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	// OpenTelemetry's autoexport won't do: it has one source of metrics for all nodes of a program.
	reader := sdkmetric.NewPeriodicReader(&pushGate{Exporter: exporter, log: cfg.Logger},
		sdkmetric.WithInterval(otlp.Milliseconds(cfg.Logger, "OTEL_METRIC_EXPORT_INTERVAL", time.Minute)),
		sdkmetric.WithTimeout(otlp.Milliseconds(cfg.Logger, "OTEL_METRIC_EXPORT_TIMEOUT", 30*time.Second)),
		sdkmetric.WithProducer(prombridge.NewMetricProducer(prombridge.WithGatherer(cfg.Gatherer))))
	return &Push{sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(cfg.Resource))}, nil
}

// Flush sends the present metrics, for as long as ctx allows. On nil it does nothing.
func (p *Push) Flush(ctx context.Context) error {
	if p == nil {
		return nil
	}
	return p.provider.ForceFlush(ctx)
}

// Close sends the last values and ends, for as long as ctx allows.
func (p *Push) Close(ctx context.Context) error {
	if p == nil {
		return nil
	}
	return p.provider.Shutdown(ctx)
}

// pushExporter makes the exporter that the environment names; nil if it names none.
func pushExporter(ctx context.Context) (sdkmetric.Exporter, error) {
	switch name := os.Getenv("OTEL_METRICS_EXPORTER"); name {
	case "none", "prometheus":
		return nil, nil
	case "console":
		return stdoutmetric.New()
	case "otlp", "":
	default:
		return nil, fmt.Errorf("metric: OTEL_METRICS_EXPORTER is %q, "+
			"allowed is otlp, console, prometheus (what /metrics is) or none", name)
	}
	exporter, err := otlp.NewMetricExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("metric: %w", err)
	}
	return exporter, nil
}

// pushGate logs when an exporter begins to fail and when it succeeds again; OpenTelemetry would print each error.
type pushGate struct {
	sdkmetric.Exporter
	log    *slog.Logger
	outage otlp.Outage
}

// Export passes the metrics on. It returns no error.
func (g *pushGate) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	mendExemplars(m)
	err := g.Exporter.Export(ctx, m)
	if errors.Is(err, context.Canceled) { // by Close, which sends the last values next
		return nil
	}
	switch changed := g.outage.Changed(err); {
	case changed && err != nil:
		g.log.Warn("metrics can't be sent; they stay at /metrics", "error", err)
	case changed:
		g.log.Info("metrics are sent again")
	}
	return nil
}

// mendExemplars decodes the ids of exemplars, which the bridge leaves as hexadecimal text.
func mendExemplars(m *metricdata.ResourceMetrics) {
	for _, scope := range m.ScopeMetrics {
		for _, metric := range scope.Metrics {
			histogram, ok := metric.Data.(metricdata.Histogram[float64])
			if !ok {
				continue // only histograms have exemplars
			}
			for _, point := range histogram.DataPoints {
				for i := range point.Exemplars {
					e := &point.Exemplars[i]
					e.TraceID, e.SpanID = idOf(e.TraceID), idOf(e.SpanID)
				}
			}
		}
	}
}

// idOf decodes an id in hexadecimal digits; anything else it returns as it is.
func idOf(text []byte) []byte {
	if id, err := hex.DecodeString(string(text)); err == nil &&
		(len(id) == len(oteltrace.TraceID{}) || len(id) == len(oteltrace.SpanID{})) {
		return id
	}
	return text
}
