package node_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
)

// TestStopSendsTheLastMetrics has a receiver of OTLP: metrics of the time right before Stop arrive, with the process's
// resource.
func TestStopSendsTheLastMetrics(t *testing.T) {
	var mu sync.Mutex
	var last collectorpb.ExportMetricsServiceRequest
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		last.Reset()
		if err != nil || proto.Unmarshal(body, &last) != nil {
			t.Errorf("%s: what came is no OTLP, %v", r.URL.Path, err)
		}
	}))
	defer receiver.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", receiver.URL)
	n, err := node.Start(t.Context(), node.WithTapeDir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	world, err := n.Runtime().World(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := ccl.Barrier(t.Context(), world); err != nil {
			t.Fatal(err)
		}
	}
	if err := world.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(last.GetResourceMetrics()) != 1 {
		t.Fatal("no metrics came")
	}
	rm := last.GetResourceMetrics()[0]
	resource := map[string]string{}
	for _, kv := range rm.GetResource().GetAttributes() {
		resource[kv.GetKey()] = kv.GetValue().GetStringValue()
	}
	if resource["service.instance.id"] != "0" || resource["service.name"] == "" {
		t.Errorf("the resource is %v", resource)
	}
	var names []string
	for _, m := range rm.GetScopeMetrics()[0].GetMetrics() {
		names = append(names, m.GetName())
		if m.GetName() == "ccl_operations_total" {
			if n := m.GetSum().GetDataPoints()[0].GetAsDouble(); n != 3 {
				t.Errorf("%v operations were sent, want 3", n)
			}
		}
	}
	if !slices.Contains(names, "ccl_operations_total") {
		t.Errorf("sent were only %q", names)
	}
}

// A collector that takes requests and never answers neither makes a job fail at its end nor delays the end for long.
func TestStopWithACollectorThatNeverAnswers(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done() // the exporter gave up
	}))
	defer receiver.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	var log safeBuffer // an exporter that gives up may say so later
	n, err := node.Start(t.Context(), node.WithTapeDir(t.TempDir()),
		node.WithLog(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	world, err := n.Runtime().World(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := world.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := n.Stop(t.Context()); err != nil {
		t.Errorf("a slow collector fails the job: %v", err)
	}
	if took := time.Since(began); took > 12*time.Second {
		t.Errorf("Stop took %v", took)
	}
	said := log.String()
	for _, want := range []string{
		"spans were not all exported", "the last metrics were not sent",
		"log records were not all exported",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the log doesn't say that %s: %s", want, said)
		}
	}
}
