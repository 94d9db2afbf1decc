package trace_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// TestBadEnvironment sets one wrong variable after another: each is named with its value and what is allowed, and the
// job goes on, with spans in its own store.
func TestBadEnvironment(t *testing.T) {
	for _, c := range []struct{ name, value, allowed string }{
		{"OTEL_TRACES_EXPORTER", "jaeger-thrift", "otlp, console, none"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "smoke", "http/protobuf, grpc"},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "http/protobuf, grpc"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318", "http://localhost:4318"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://", "a host"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://[::1", "a URL"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "milliseconds"},
		{"OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "gzip, none"},
		{"OTEL_EXPORTER_OTLP_INSECURE", "perhaps", "true, false"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent.pem", "a file"},
		{"OTEL_BSP_SCHEDULE_DELAY", "-1", "milliseconds"},
		{"OTEL_BSP_EXPORT_TIMEOUT", "1e3", "milliseconds"},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "-2048", "1048576"},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "99999999999", "1048576"},
		{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "none", "1048576"},
		{"OTEL_SDK_DISABLED", "yes", "true, false"},
		{"OTEL_TRACES_SAMPLER", "always_on", "all ranks"},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			var logged bytes.Buffer
			p := newProjector(t, func(cfg *trace.Config) {
				t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
				t.Setenv(c.name, c.value)
				cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
			})
			for _, want := range []string{c.name, c.value, c.allowed} {
				if !strings.Contains(logged.String(), want) {
					t.Errorf("the warning doesn't say %q:\n%s", want, logged.String())
				}
			}
			if n := strings.Count(logged.String(), "level=WARN"); n != 1 {
				t.Errorf("%d warnings, want one:\n%s", n, logged.String())
			}
			p.Interrupt("nothing comes") // it works
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			p.closed = true
			_ = p.Close(ctx) // there may be no receiver of spans
		})
	}
	noExport(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318")
	if _, err := trace.New(t.Context(), trace.Config{
		Process: model.New(model.Limits{}), Wall: wall,
		MustExport: true,
	}); err == nil || !strings.Contains(err.Error(), `ENDPOINT="localhost:4318"`) {
		t.Errorf("MustExport: %v, want an error that names the variable", err)
	}
	if _, err := trace.New(t.Context(), trace.Config{}); err == nil {
		t.Error("a Config without Wall is accepted")
	}
}

// TestBadEnvironmentOfSeveral: Projectors of one process read the same variables, and warn of them once.
func TestBadEnvironmentOfSeveral(t *testing.T) {
	var logged bytes.Buffer
	var outage otlp.Outage
	for range 3 {
		newProjector(t, func(cfg *trace.Config) {
			t.Setenv("OTEL_TRACES_EXPORTER", "pigeon")
			t.Setenv("OTEL_TRACES_SAMPLER", "always_on")
			cfg.Logger, cfg.Outage = slog.New(slog.NewTextHandler(&logged, nil)), &outage
		})
	}
	for _, name := range []string{"OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER"} {
		if n := strings.Count(logged.String(), name); n != 1 {
			t.Errorf("%d warnings of %s, want one:\n%s", n, name, logged.String())
		}
	}
}

// TestHeadersAreSecret: the warning names the variable but not its value.
func TestHeadersAreSecret(t *testing.T) {
	var logged bytes.Buffer
	newProjector(t, func(cfg *trace.Config) {
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key: s3cret")
		cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	})
	if !strings.Contains(logged.String(), "OTEL_EXPORTER_OTLP_HEADERS") || strings.Contains(logged.String(), "s3cret") {
		t.Errorf("logged is %s", logged.String())
	}
}

// TestBadReceivers has receivers that refuse, answer garbage or don't exist: that is logged once, with the destination,
// and the lost spans are counted.
func TestBadReceivers(t *testing.T) {
	answer := func(status int, kind, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + gone.Addr().String()
	_ = gone.Close()
	for name, url := range map[string]string{
		"refuses":         answer(http.StatusForbidden, "text/plain", "no"),
		"answers garbage": answer(http.StatusOK, "application/x-protobuf", strings.Repeat("\xff", 1000)),
		"is a web page":   answer(http.StatusOK, "text/html", "<!doctype html>"),
		"isn't there":     nobody,
	} {
		t.Run(name, func(t *testing.T) {
			var logged bytes.Buffer
			p := newProjector(t, func(cfg *trace.Config) {
				t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
				t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
				cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
			})
			someLife(p)
			start := time.Now()
			p.close()
			if d := time.Since(start); d > 10*time.Second {
				t.Errorf("Close took %v", d)
			}
			if got := p.Stats(); got != (trace.Stats{Failed: 2}) {
				t.Errorf("Stats = %+v, want 2 failed", got)
			}
			if !strings.Contains(logged.String(), "OTEL_EXPORTER_OTLP_ENDPOINT="+url) ||
				!strings.Contains(logged.String(), `msg="the last spans can't be exported"`) ||
				strings.Count(logged.String(), "WARN") != 1 {
				t.Errorf("logged is:\n%s", logged.String())
			}
		})
	}
}
