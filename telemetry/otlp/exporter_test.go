package otlp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// wire is a transport that records the requested URLs, and answers.
type wire struct {
	to, kind, body string // to: the last URL
	closed         int    // how often its idle connections were closed
}

func (w *wire) CloseIdleConnections() { w.closed++ }

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.to = r.URL.String()
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Request: r,
		Header: http.Header{"Content-Type": {w.kind}}, Body: io.NopCloser(strings.NewReader(w.body)),
	}, nil
}

// sent makes an exporter for each signal, and has it export something.
func sent(ctx context.Context, s signal) (err error) {
	end := func(shutdown func(context.Context) error) { err = errors.Join(err, shutdown(ctx)) }
	switch s {
	case "TRACES":
		e, err := NewSpanExporter(ctx)
		if err != nil {
			return err
		}
		defer end(e.Shutdown)
		return e.ExportSpans(ctx, []sdktrace.ReadOnlySpan{tracetest.SpanStub{Name: "a span"}.Snapshot()})
	case "METRICS":
		e, err := NewMetricExporter(ctx)
		if err != nil {
			return err
		}
		defer end(e.Shutdown)
		return e.Export(ctx, &metricdata.ResourceMetrics{})
	default:
		e, err := NewLogExporter(ctx)
		if err != nil {
			return err
		}
		defer end(e.Shutdown)
		return e.Export(ctx, make([]sdklog.Record, 1))
	}
}

var paths = map[signal]string{"TRACES": "/v1/traces", "METRICS": "/v1/metrics", "LOGS": "/v1/logs"}

// through sends requests through w while the test runs.
func through(t *testing.T, w *wire) {
	t.Helper()
	before := http.DefaultTransport
	http.DefaultTransport = w
	t.Cleanup(func() { http.DefaultTransport = before })
}

// environ sets variables and no others; SIGNAL stands for the signal's name.
func environ(t *testing.T, s signal, vars map[string]string) {
	t.Helper()
	for _, what := range []string{
		"ENDPOINT", "INSECURE", "CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY", "TIMEOUT",
		"PROTOCOL", "HEADERS", "COMPRESSION",
	} {
		const prefix = "OTEL_EXPORTER_OTLP_"
		t.Setenv(prefix+what, vars[prefix+what])
		t.Setenv(prefix+string(s)+"_"+what, vars[prefix+"SIGNAL_"+what])
	}
}

// Without an endpoint, exporters reach this host's collector, without TLS.
func TestWhereItGoes(t *testing.T) {
	const all, own = "OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_SIGNAL_"
	for s, path := range paths {
		for _, c := range []struct {
			vars map[string]string
			want string
		}{
			{nil, "http://localhost:4318" + path},
			{map[string]string{all + "INSECURE": "perhaps"}, "http://localhost:4318" + path},
			{map[string]string{all + "INSECURE": "false"}, "https://localhost:4318" + path},
			{map[string]string{all + "ENDPOINT": "https://far:1"}, "https://far:1" + path},
			{map[string]string{all + "ENDPOINT": "http://far:1"}, "http://far:1" + path},
			{
				map[string]string{all + "ENDPOINT": "http://far:1", own + "ENDPOINT": "https://near:2/x"},
				"https://near:2/x",
			},
		} {
			w := &wire{}
			through(t, w)
			environ(t, s, c.vars)
			if err := sent(t.Context(), s); err != nil {
				t.Errorf("%s, %v: %v", s, c.vars, err)
			}
			if w.closed != 1 {
				t.Errorf("%s, %v: its idle connections were closed %d times", s, c.vars, w.closed)
			}
			if w.to != c.want {
				t.Errorf("%s, %v: goes to %q, want %q", s, c.vars, w.to, c.want)
			}
		}
	}
}

// A web page is no acknowledgement, whatever its status; a collector's answer is one.
func TestPagesAreNoReceipts(t *testing.T) {
	for s := range paths {
		for _, c := range []struct {
			kind, body string
			page       bool
		}{
			{"text/html; charset=utf-8", "<!doctype html>", true},
			{"application/xhtml+xml", "<html/>", true},
			{"", "", false},
			{"text/plain", "ok", false},
			{"application/x-protobuf", "", false},
			{"application/json", "{}", false},
		} {
			through(t, &wire{kind: c.kind, body: c.body})
			environ(t, s, map[string]string{"OTEL_EXPORTER_OTLP_SIGNAL_ENDPOINT": "http://far:1/"})
			err := sent(t.Context(), s)
			if (err != nil) != c.page {
				t.Errorf("%s: an answer of type %q: %v", s, c.kind, err)
			}
			if err != nil && !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_"+string(s)+"_ENDPOINT") {
				t.Errorf("%s: the error names no variable: %v", s, err)
			}
		}
	}
}

func TestProtocolsAreNamed(t *testing.T) {
	for s := range paths {
		through(t, &wire{})
		environ(t, s, map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"})
		if err := sent(t.Context(), s); err == nil || !strings.Contains(err.Error(),
			`OTEL_EXPORTER_OTLP_PROTOCOL is "smoke"`) {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// Variables that ask for TLS keep it on, and the SDK keeps its own client if there are certificates.
func TestCertificates(t *testing.T) {
	const s signal = "TRACES"
	environ(t, s, map[string]string{"OTEL_EXPORTER_OTLP_SIGNAL_CLIENT_KEY": "/nonexistent.pem"})
	if own := options(s, func() string { return "insecure" }, func(*http.Client) string { return "client" },
		nil); own != nil {
		t.Errorf("with a key the exporter is mended: %v", own)
	}
	environ(t, s, map[string]string{"OTEL_EXPORTER_OTLP_TIMEOUT": "250", "OTEL_EXPORTER_OTLP_SIGNAL_TIMEOUT": "-1"})
	if got := s.client().Timeout; got != DefaultTimeout {
		t.Errorf("the timeout is %v", got)
	}
	environ(t, s, map[string]string{"OTEL_EXPORTER_OTLP_TIMEOUT": "250"})
	if got := s.client().Timeout.Milliseconds(); got != 250 {
		t.Errorf("the timeout is %d ms", got)
	}
}
