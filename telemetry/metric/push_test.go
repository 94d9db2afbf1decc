package metric_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	oteltrace "go.opentelemetry.io/otel/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/metric"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// receiver takes metrics by OTLP over HTTP.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	got      []*collectorpb.ExportMetricsServiceRequest
	received chan struct{}
}

func newReceiver(t *testing.T, status func(n int) int) *receiver {
	r := &receiver{received: make(chan struct{}, 1000)}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		msg := &collectorpb.ExportMetricsServiceRequest{}
		if err != nil || proto.Unmarshal(body, msg) != nil || req.URL.Path != "/v1/metrics" {
			t.Errorf("%s: %v", req.URL.Path, err)
		}
		r.mu.Lock()
		r.got = append(r.got, msg)
		n := len(r.got)
		r.mu.Unlock()
		w.WriteHeader(status(n))
		r.received <- struct{}{}
	}))
	t.Cleanup(r.Close)
	return r
}

func always(status int) func(int) int { return func(int) int { return status } }

// metrics are those of the n-th request.
func (r *receiver) metrics(t *testing.T, n int) map[string]*metricspb.Metric {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if n >= len(r.got) || len(r.got[n].GetResourceMetrics()) != 1 {
		t.Fatalf("%d requests", len(r.got))
	}
	rm := r.got[n].GetResourceMetrics()[0]
	if kv := rm.GetResource().GetAttributes(); len(kv) != 1 || kv[0].GetValue().GetStringValue() != "3" {
		t.Errorf("the resource is %v", kv)
	}
	all := map[string]*metricspb.Metric{}
	for _, sm := range rm.GetScopeMetrics() {
		for _, m := range sm.GetMetrics() {
			all[m.GetName()] = m
		}
	}
	return all
}

// pushEnv sets OTEL_ variables and no others.
func pushEnv(t *testing.T, vars map[string]string) {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range vars {
		t.Setenv(name, value)
	}
}

func newPush(t *testing.T, reg prometheus.Gatherer, log io.Writer) *metric.Push {
	t.Helper()
	p, err := metric.NewPush(t.Context(), metric.PushConfig{
		Gatherer: reg, Resource: resource.NewSchemaless(attribute.String("service.instance.id", "3")),
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPushSendsWhatIsServed compares the names and one value of Push and /metrics, and looks for the exemplar.
func TestPushSendsWhatIsServed(t *testing.T) {
	r := newReceiver(t, always(http.StatusOK))
	pushEnv(t, map[string]string{"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": r.URL})
	c, reg := newCollector(t, []tape.Slot{busy("world", 1, second)})
	defer func() { spanOf = oteltrace.SpanContext{} }()
	spanOf = oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: oteltrace.TraceID{1},
		SpanID:  oteltrace.SpanID{2},
	})
	observe(c, op("world", lifecycle.CallAllReduce, 8, time.Millisecond, lifecycle.CodeOK))
	p := newPush(t, reg, io.Discard)
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	sent := r.metrics(t, 0)
	for name := range gather(t, reg) {
		if sent[name] == nil {
			t.Errorf("%s is served and not sent", name)
		}
	}
	if v := sent[semconv.MetricInFlight].GetGauge().GetDataPoints()[0].GetAsDouble(); v != 1 {
		t.Errorf("%v operations in flight are sent, want 1", v)
	}
	h := sent[semconv.MetricDuration].GetHistogram().GetDataPoints()[0]
	if x := h.GetExemplars(); len(x) != 1 || oteltrace.TraceID(x[0].GetTraceId()) != spanOf.TraceID() ||
		oteltrace.SpanID(x[0].GetSpanId()) != spanOf.SpanID() {
		t.Errorf("exemplars are %v", x)
	}
}

// TestPushGoesOn has a receiver that refuses, and then accepts: each change is logged once.
func TestPushGoesOn(t *testing.T) {
	r := newReceiver(t, func(n int) int {
		if n <= 3 {
			return http.StatusBadRequest
		}
		return http.StatusOK
	})
	pushEnv(t, map[string]string{
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": r.URL + "/v1/metrics",
		"OTEL_METRIC_EXPORT_INTERVAL":         "5",
	})
	_, reg := newCollector(t, nil)
	var log bytes.Buffer
	p := newPush(t, reg, &log)
	for range 6 {
		<-r.received
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); strings.Count(text, "can't be sent") != 1 || strings.Count(text, "are sent again") != 1 {
		t.Errorf("the log is %s", text)
	}
}

// TestPushToNobodyEndsInTime has a receiver that never answers: Close ends with its context.
func TestPushToNobodyEndsInTime(t *testing.T) {
	asked, done := make(chan struct{}, 10), make(chan struct{})
	hung := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		asked <- struct{}{}
		<-done
	}))
	defer hung.Close()
	defer close(done)
	pushEnv(t, map[string]string{
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": hung.URL + "/v1/metrics",
		"OTEL_METRIC_EXPORT_INTERVAL":         "1",
	})
	_, reg := newCollector(t, nil)
	p := newPush(t, reg, io.Discard)
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_ = p.Close(ctx) // it ends, with or without an error
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("Close took %s with 50 ms to do it in", d)
	}
}

func TestPushOnlyWhenAsked(t *testing.T) {
	_, reg := newCollector(t, nil)
	for _, vars := range []map[string]string{
		{},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
		{"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:1"},
		{"OTEL_METRICS_EXPORTER": "prometheus"},
		{"OTEL_METRICS_EXPORTER": "otlp", "OTEL_SDK_DISABLED": " TRUE "},
	} {
		pushEnv(t, vars)
		p := newPush(t, reg, io.Discard)
		if p != nil {
			t.Errorf("%v: metrics are sent", vars)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestPushBadVariables(t *testing.T) {
	for name, vars := range map[string]map[string]string{
		"OTEL_METRICS_EXPORTER": {"OTEL_METRICS_EXPORTER": "carrier-pigeon"},
		"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": {
			"OTEL_METRICS_EXPORTER":               "otlp",
			"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "smoke",
		},
		"OTEL_EXPORTER_OTLP_PROTOCOL": {"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"},
	} {
		pushEnv(t, vars)
		_, err := metric.NewPush(t.Context(), metric.PushConfig{
			Gatherer: prometheus.NewRegistry(),
			Resource: resource.Empty(),
		})
		if err == nil || !strings.Contains(err.Error(), name+" is ") || !strings.Contains(err.Error(), vars[name]) {
			t.Errorf("%v: the error doesn't name the variable and its value: %v", vars, err)
		}
	}
}

// TestPushBadTimes has invalid numbers: metrics are sent as if they weren't set, and a warning is logged.
func TestPushBadTimes(t *testing.T) {
	for _, name := range []string{"OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT"} {
		for _, value := range []string{"10s", "-1", "0", "9999999999999999"} {
			r := newReceiver(t, always(http.StatusOK))
			pushEnv(t, map[string]string{
				"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": r.URL, name: value,
			})
			var log bytes.Buffer
			p := newPush(t, prometheus.NewRegistry(), &log)
			if err := p.Close(t.Context()); err != nil {
				t.Errorf("%s=%s: %v", name, value, err)
			}
			if text := log.String(); strings.Count(text, "level=WARN") != 1 ||
				!strings.Contains(text, "variable="+name+" value="+value) {
				t.Errorf("%s=%s: logged is %s", name, value, text)
			}
		}
	}
}
