package logsink_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	oteltrace "go.opentelemetry.io/otel/trace"
	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/carillon-rt/carillon/telemetry/logsink"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// collector is an OTLP receiver of logs.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	records []*logspb.LogRecord
	asked   chan struct{} // gets a value with each request, if there is room
}

func newCollector(t *testing.T, answer func(w http.ResponseWriter, r *http.Request) bool) *collector {
	t.Helper()
	c := &collector{asked: make(chan struct{}, 1)}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // it gave up
		}
		select {
		case c.asked <- struct{}{}:
		default:
		}
		if answer != nil && !answer(w, r) {
			return
		}
		var req collogs.ExportLogsServiceRequest
		if err := proto.Unmarshal(body, &req); err != nil || r.URL.Path != "/v1/logs" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, rl := range req.GetResourceLogs() {
			for _, sl := range rl.GetScopeLogs() {
				c.records = append(c.records, sl.GetLogRecords()...)
			}
		}
	}))
	t.Cleanup(c.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
	return c
}

func TestCollectorGetsRecordsWithTraceIDs(t *testing.T) {
	c := newCollector(t, nil)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	s, out := newSink(t, logsink.Config{
		Level: slog.LevelError, Release: "v1",
		Attrs: []slog.Attr{slog.Int(semconv.LogRank, 3)},
	})
	sc := oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: oteltrace.TraceID{1}, SpanID: oteltrace.SpanID{2},
		TraceFlags: 1,
	})
	ctx := oteltrace.ContextWithSpanContext(t.Context(), sc)
	slog.New(s.Events()).InfoContext(ctx, "ccl.comm.init", semconv.LogComm, "world", semconv.LogCommRank, 2)
	s.Logger().Debug("not for a collector")
	s.Logger().Info("hidden", semconv.LogSubsystem, "COLL")
	s.Logger().Log(ctx, logsink.LevelVersion, "version")
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out.String() != "" {
		t.Errorf("standard error has %s", out.String())
	}
	if len(c.records) != 2 {
		t.Fatalf("%d records came: %v", len(c.records), c.records)
	}
	r := c.records[0]
	if r.GetBody().GetStringValue() != "ccl.comm.init" || oteltrace.TraceID(r.GetTraceId()) != sc.TraceID() ||
		oteltrace.SpanID(r.GetSpanId()) != sc.SpanID() {
		t.Errorf("got %v", r)
	}
	got := map[string]*commonpb.AnyValue{}
	for _, kv := range r.GetAttributes() {
		got[kv.GetKey()] = kv.GetValue()
	}
	if len(got) != 3 || got[string(semconv.CommName)].GetStringValue() != "world" ||
		got[string(semconv.Rank)].GetIntValue() != 2 ||
		got[string(semconv.ProcessRank)].GetIntValue() != 3 {
		t.Errorf("attributes %v", got)
	}
	if v := c.records[1]; v.GetSeverityNumber() != logspb.SeverityNumber_SEVERITY_NUMBER_INFO ||
		v.GetSeverityText() != "INFO" {
		t.Errorf("the version has severity %v %q", v.GetSeverityNumber(), v.GetSeverityText())
	}
	if local, export := s.Lost(); local+export != 0 {
		t.Errorf("lost %d and %d", local, export)
	}
}

func TestNothingLeavesTheProcessUnlessAskedFor(t *testing.T) {
	c := newCollector(t, func(http.ResponseWriter, *http.Request) bool {
		t.Error("a request came")
		return false
	})
	for _, env := range []map[string]string{
		{},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": c.URL},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_LOGS_EXPORTER": "none"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT": c.URL, "OTEL_SDK_DISABLED": "true"},
	} {
		t.Run("", func(t *testing.T) {
			for name, value := range env {
				t.Setenv(name, value)
			}
			s, _ := newSink(t, logsink.Config{})
			s.Logger().Warn("hello")
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestExporterThatDoesNotExist(t *testing.T) {
	t.Setenv("OTEL_LOGS_EXPORTER", "pigeon")
	s, out := newSink(t, logsink.Config{})
	s.Logger().Info("later")
	for _, part := range []string{"level=WARN", `OTEL_LOGS_EXPORTER=\"pigeon\" takes otlp`, "msg=later"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("standard error does not say %s:\n%s", part, out.String())
		}
	}
}

// A collector that refuses everything is logged once, and lost records are counted; it is a warning only if the
// collector was named for logs.
func TestCollectorThatRefuses(t *testing.T) {
	for variable, level := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":      "INFO",
		"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "WARN",
	} {
		t.Run(variable, func(t *testing.T) {
			c := newCollector(t, func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(http.StatusNotFound)
				return false
			})
			t.Setenv(variable, c.URL)
			s, out := newSink(t, logsink.Config{})
			for range 600 { // more than a batch
				s.Logger().Info("hello")
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if _, got := s.Lost(); got != 600 {
				t.Errorf("%d counted as lost, want 600", got)
			}
			if text := `level=` + level +
				` msg="log records can't be exported`; strings.Count(out.String(), text) != 1 {
				t.Errorf("%s is not there once:\n%.500s", text, out.String())
			}
		})
	}
}

// A collector that never answers blocks nobody: records that don't fit are dropped and counted, and Close gives up.
func TestCollectorThatNeverAnswers(t *testing.T) {
	c := newCollector(t, func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done() // the exporter gave up
		return false
	})
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_BLRP_MAX_QUEUE_SIZE", "100")
	t.Setenv("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE", "10")
	s, out := newSink(t, logsink.Config{Level: slog.LevelWarn})
	log := slog.New(s.Events())
	for i := 0; i < 10; i++ {
		log.Info("a batch")
	}
	<-c.asked
	for range 200 {
		log.Info("more")
	}
	if _, got := s.Lost(); got != 110 { // 100 wait, among them the ten on their way
		t.Errorf("%d were dropped, want 110", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(ctx); err != nil && !strings.Contains(err.Error(), "log lines") {
		t.Errorf("a collector's silence is an error: %v", err)
	}
	if !strings.Contains(out.String(), "not all exported") {
		t.Errorf("nobody says that records were left behind: %q", out)
	}
}
