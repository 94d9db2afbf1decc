package node_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// own is the observability of a program that already has all of it.
type own struct {
	registry *prometheus.Registry
	exporter *tracetest.InMemoryExporter
	spans    *tracetest.SpanRecorder
	resource *resource.Resource
	log      safeBuffer
	steps    int
}

func newOwn() *own {
	o := &own{
		registry: prometheus.NewRegistry(), exporter: tracetest.NewInMemoryExporter(),
		spans:    tracetest.NewSpanRecorder(),
		resource: resource.NewSchemaless(attribute.String("service.name", "orders")),
	}
	o.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return o
}

func (o *own) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(&o.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// options makes Carillon use the program's parts.
func (o *own) options() []node.Option {
	return []node.Option{
		node.WithSpanProcessor(o.spans), node.WithSpanExporter(kept{o.exporter}),
		node.WithObserver(node.Observer{}, node.Observer{Step: func(*model.Step) { o.steps++ }}),
		node.WithCheck(node.Check{
			Name: "orders", Kind: health.Ready, Check: func(context.Context) error { return nil },
		}),
		node.WithRoute(health.Route{Path: "/orders", Handler: http.NotFoundHandler()}),
	}
}

// kept is an exporter that only the program may end.
type kept struct{ *tracetest.InMemoryExporter }

func (kept) Shutdown(context.Context) error { return errors.New("it is the program's to end") }

// TestOwnObservability: with Start and with Module, Carillon uses a program's registry, spans, resource, log, mux,
// checks and observers.
func TestOwnObservability(t *testing.T) {
	for _, key := range []string{"OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SERVICE_NAME"} {
		t.Setenv(key, "")
	}
	cfg := node.Default()
	cfg.TapeDir, cfg.Health, cfg.GPU, cfg.LogVersion = t.TempDir(), "", node.NoGPUs, true
	for name, start := range map[string]func(*testing.T, *own) (*node.Node, func()){
		"Start": func(t *testing.T, o *own) (*node.Node, func()) {
			n, err := node.Start(t.Context(), append([]node.Option{
				node.WithConfig(cfg), node.WithLog(o.logger()), node.WithRegisterer(o.registry),
				node.WithResource(o.resource),
			}, o.options()...)...)
			if err != nil {
				t.Fatal(err)
			}
			return n, func() {
				if err := n.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			}
		},
		"Module": func(t *testing.T, o *own) (n *node.Node, stop func()) {
			var provided []any
			for _, opt := range o.options() {
				provided = append(provided, func() node.Option { return opt })
			}
			app := fxtest.New(t, node.Module, fx.Supply(cfg), fx.NopLogger, fx.Populate(&n), // cfg by value
				fx.Supply(o.resource, fx.Annotate(o.registry, fx.As(new(prometheus.Registerer)))), fx.Provide(o.logger),
				node.Provide(provided...))
			app.RequireStart()
			return n, func() { app.RequireStop() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOwn()
			n, stop := start(t, o)
			world, err := n.Runtime().World(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(world.Close(), n.Telemetry().Sync(t.Context())); err != nil {
				t.Error(err)
			}
			names := metricNames(t, o.registry)
			for want, times := range map[string]int{
				semconv.MetricBuildInfo: 1, "go_goroutines": 1, "ccl_health_connections": 1,
			} {
				if names[want] != times {
					t.Errorf("the program's registry has %s %d times, want %d", want, names[want], times)
				}
			}
			if both := metricNames(t, prometheus.Gatherers{
				prometheus.NewRegistry(), n.Telemetry().Registry(),
			}); both["go_goroutines"] != 0 {
				t.Error("Carillon's registry has metrics of Go")
			}

			mux := http.NewServeMux()
			mux.Handle("/carillon/", http.StripPrefix("/carillon", n.HealthHandler()))
			server := httptest.NewServer(mux)
			defer server.Close()
			if n.HealthURL() != "" {
				t.Errorf("it listens at %s", n.HealthURL())
			}
			if code, body := get(t, server.URL+"/carillon/readyz?verbose"); code != http.StatusOK ||
				!strings.Contains(body, "[+]orders ok") {
				t.Errorf("/carillon/readyz: %d %s", code, body)
			}
			if _, body := get(t, server.URL+"/carillon/metrics"); strings.Contains(body, "go_goroutines") {
				t.Error("its /metrics has what the program's registry has")
			}

			stop()
			if names := metricNames(t, o.registry); names[semconv.MetricBuildInfo] != 0 {
				t.Error("after Stop its metrics are in the program's registry")
			}
			if o.steps == 0 {
				t.Error("the observer was told nothing")
			}
			if !strings.Contains(o.log.String(), "level=") {
				t.Error("the program's log has no line")
			}
			for line := range strings.Lines(o.log.String()) {
				if !strings.Contains(line, " rank=0") {
					t.Errorf("a line without the rank: %s", line)
				}
			}
			for what, spans := range map[string][]string{
				"processor": spanNames(o.spans.Ended()), "exporter": spanNames(o.exporter.GetSpans().Snapshots()),
			} {
				if !slices.Contains(spans, "ccl.comm.init") {
					t.Errorf("the %s got %v", what, spans)
				}
			}
			if name, _ := o.spans.Ended()[0].Resource().Set().Value("service.name"); name.AsString() != "orders" {
				t.Errorf("the spans are of %q", name.AsString())
			}
		})
	}
}

func metricNames(t *testing.T, g prometheus.Gatherer) map[string]int {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]int{}
	for _, f := range families {
		names[f.GetName()]++
	}
	return names
}

func spanNames(spans []sdktrace.ReadOnlySpan) (names []string) {
	for _, s := range spans {
		names = append(names, s.Name())
	}
	return names
}

// TestTwoNodesOneRegistry: the second node of a process needs its own labels, and the error says so.
func TestTwoNodesOneRegistry(t *testing.T) {
	registry := prometheus.NewRegistry()
	with := func(r prometheus.Registerer) (*node.Node, error) {
		return node.Start(t.Context(), node.WithTapeDir(t.TempDir()), node.WithHealth(""), node.WithRegisterer(r))
	}
	first, err := with(prometheus.WrapRegistererWith(prometheus.Labels{"node": "a"}, registry))
	if err != nil {
		t.Fatal(err)
	}
	second, err := with(prometheus.WrapRegistererWith(prometheus.Labels{"node": "b"}, registry))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := with(prometheus.WrapRegistererWith(prometheus.Labels{"node": "a"}, registry)); err == nil ||
		!strings.Contains(err.Error(), "WrapRegistererWith") {
		t.Errorf("a third node, with the labels of the first: %v", err)
	}
	metricNames(t, registry) // without an error
	if err := errors.Join(second.Stop(context.Background()), first.Stop(context.Background())); err != nil {
		t.Error(err)
	}
}

// TestTwoConfigs: an fx program that supplies two configurations gets an error; none is ignored.
func TestTwoConfigs(t *testing.T) {
	cfg := node.Default()
	if err := fx.New(node.Module, fx.Supply(cfg, &cfg), fx.NopLogger).Err(); err == nil ||
		!strings.Contains(err.Error(), "want one of them") {
		t.Errorf("a Config and a *Config: %v", err)
	}
	cfg.World.Rank = 7
	if err := fx.New(node.Module, fx.Supply(cfg), fx.NopLogger).Err(); err == nil ||
		!strings.Contains(err.Error(), "World.Rank is 7") {
		t.Errorf("a Config by value that is wrong: %v", err)
	}
}
