package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kept is an exporter that can still be read after its shutdown, and counts its shutdowns.
type kept struct {
	*tracetest.InMemoryExporter
	ended int
}

func (k *kept) Shutdown(context.Context) error {
	k.ended++
	return nil
}

// TestService scrapes the service once, and finds the metrics of the service, Go and Carillon, each once. The service's
// exporter gets the spans of the service and of Carillon, its log gets Carillon's lines, and its mux has Carillon's
// pages.
func TestService(t *testing.T) {
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") ||
			strings.HasPrefix(name, "CARILLON_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("CARILLON_TAPE_DIR", t.TempDir())
	t.Setenv("CARILLON_GPU", "off")
	t.Setenv("NCCL_DEBUG", "INFO")
	exporter := &kept{InMemoryExporter: tracetest.NewInMemoryExporter()}
	var logged lines
	var mux *http.ServeMux
	app := fxtest.New(t, service("127.0.0.1:0"), fx.Populate(&mux), fx.Decorate(
		func(sdktrace.SpanExporter) sdktrace.SpanExporter { return exporter },
		func(*slog.Logger) *slog.Logger { return slog.New(slog.NewTextHandler(&logged, nil)) },
	))
	app.RequireStart()
	if code, body := ask(t, mux, "POST /mean", "1 2 3 4 5 6"); code != http.StatusOK || body != "3.5\n" {
		t.Errorf("the mean is %d %q", code, body)
	}
	if code, body := ask(t, mux, "POST /mean", "one"); code != http.StatusBadRequest {
		t.Errorf("the mean of one is %d %q", code, body)
	}
	scrape(t, mux)
	if code, body := ask(t, mux, "GET /carillon/readyz?verbose", ""); code != http.StatusOK ||
		!strings.Contains(body, "[+]workers ok") {
		t.Errorf("/carillon/readyz: %d %s", code, body)
	}
	app.RequireStop()

	names := map[string]string{} // each span's service, by its name
	for _, s := range exporter.GetSpans() {
		of, _ := s.Resource.Set().Value("service.name")
		names[s.Name] = of.AsString()
	}
	for _, want := range []string{"mean", "ccl.comm.init", "ccl.comm.destroy"} {
		if names[want] != "mean" {
			t.Errorf("the exporter's spans are of %v; want %s, of the service mean", names, want)
		}
	}
	if exporter.ended != 1 {
		t.Errorf("the exporter was ended %d times", exporter.ended)
	}
	if !strings.Contains(logged.String(), "msg=ccl.comm.init rank=0 comm=workers") {
		t.Errorf("the log is\n%s", logged.String())
	}
}

// scrape reads /metrics as Prometheus does.
func scrape(t *testing.T, mux http.Handler) {
	t.Helper()
	code, body := ask(t, mux, "GET /metrics", "")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if code != http.StatusOK || err != nil {
		t.Fatalf("/metrics: %d, %v:\n%s", code, err, body)
	}
	var series []string
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "#") {
			name, _, _ := strings.Cut(line, " ")
			series = append(series, name)
		}
	}
	slices.Sort(series)
	for i := 1; i < len(series); i++ {
		if series[i] == series[i-1] {
			t.Errorf("%s is there twice", series[i])
		}
	}
	for _, want := range []string{
		"go_goroutines", "process_cpu_seconds_total", "mean_requests_total", "ccl_communicators",
	} {
		if families[want] == nil {
			t.Errorf("%s is missing", want)
		}
	}
	if all := families["ccl_operations_total"]; all == nil ||
		!strings.Contains(fmt.Sprint(all.GetMetric()), "all_reduce") {
		t.Errorf("the all-reduces are not counted: %v", all)
	}
}

func ask(t *testing.T, h http.Handler, what, body string) (int, string) {
	t.Helper()
	method, path, _ := strings.Cut(what, " ")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	text, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(text)
}

// lines collects the lines of a log. It is safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
