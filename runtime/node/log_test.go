package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	collogs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/protobuf/proto"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// safeBuffer holds what a logger wrote. It is safe for concurrent use.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func (b *safeBuffer) lines() []string {
	return strings.Split(strings.TrimSpace(b.String()), "\n")
}

// live leads a communicator of two ranks through a life with a mistake in it.
func live(t *testing.T, rt *ccl.Runtime) {
	t.Helper()
	ctx := t.Context()
	comms, err := rt.InitAll(ctx, 2, ccl.WithName("pair"))
	if err != nil {
		t.Fatal(err)
	}
	each := func(what string, do func(c *ccl.Comm) error) {
		errs := make([]error, len(comms))
		var wg sync.WaitGroup
		for i, c := range comms {
			wg.Go(func() { errs[i] = do(c) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	each("all-reduce", func(c *ccl.Comm) error {
		buf := []float32{1, 2}
		return ccl.AllReduce(ctx, c, buf, buf, ccl.Sum)
	})
	each("split", func(c *ccl.Comm) error {
		child, err := c.Split(ctx, 0, c.Rank())
		return errors.Join(err, child.Destroy(ctx))
	})
	each("destroy", func(c *ccl.Comm) error { return c.Destroy(ctx) })
	if err := comms[1].Destroy(ctx); !errors.Is(err, lifecycle.ErrDestroyed) {
		t.Fatalf("the second destroy: %v", err)
	}
}

// TestStopWithoutTime: a context that was canceled before leaves no time, but that must not be reported as a tape that
// is given up, or as a hang of NVML.
func TestStopWithoutTime(t *testing.T) {
	for range 20 { // in some, all is read before Stop looks
		var out safeBuffer
		n, err := node.Start(t.Context(), node.WithTapeDir(t.TempDir()),
			node.WithLog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))))
		if err != nil {
			t.Fatal(err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := n.Stop(over); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("Stop: %v", err)
		}
		if lines := strings.Join(out.lines(), "\n"); lines != "" {
			t.Errorf("it logs %s", lines)
		}
	}
}

// Every span except announcements and phases has exactly one line, which has the span's ids.
func TestOneLineForEachSpan(t *testing.T) {
	var out safeBuffer
	n, err := node.Start(t.Context(), node.WithTapeDir(t.TempDir()),
		node.WithLog(slog.New(slog.NewTextHandler(&out, nil))))
	if err != nil {
		t.Fatal(err)
	}
	live(t, n.Runtime())
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines := out.lines()
	spans := 0
	for _, tr := range n.Telemetry().Traces().Acts(1000) {
		for _, s := range tr.Spans {
			if strings.HasSuffix(s.Name, semconv.StartedSuffix) ||
				strings.HasPrefix(s.Name, semconv.SpanInit+semconv.PhaseSeparator) ||
				strings.HasPrefix(s.Name, semconv.SpanSplit+semconv.PhaseSeparator) {
				continue
			}
			spans++
			start := fmt.Sprintf("level=INFO msg=%s rank=0 comm=", s.Name)
			ids := fmt.Sprintf(" trace_id=%s span_id=%s", s.TraceID, s.SpanID)
			if found := containing(lines, start, ids); found != 1 {
				t.Errorf("%d lines have %q and %q, want 1", found, start, ids)
			}
		}
	}
	// Per rank: init, split, init and destroy of the child, destroy; and the mistake.
	if told := containing(lines, "trace_id="); spans != 2*5+1 || told != spans {
		t.Errorf("%d spans and %d lines with a trace, want 11 of each:\n%s", spans, told, strings.Join(lines, "\n"))
	}
}

// containing counts the lines that hold all parts.
func containing(lines []string, parts ...string) int {
	n := 0
lines:
	for _, l := range lines {
		for _, p := range parts {
			if !strings.Contains(l, p) {
				continue lines
			}
		}
		n++
	}
	return n
}

func TestCollectorGetsWhatSpansTell(t *testing.T) {
	type record struct{ body, trace, span string }
	var mu sync.Mutex
	var records []record
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req collogs.ExportLogsServiceRequest
		if err := errors.Join(err, proto.Unmarshal(body, &req)); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rl := range req.GetResourceLogs() {
			for _, sl := range rl.GetScopeLogs() {
				for _, r := range sl.GetLogRecords() {
					records = append(records, record{
						r.GetBody().GetStringValue(), fmt.Sprintf("%x", r.GetTraceId()),
						fmt.Sprintf("%x", r.GetSpanId()),
					})
				}
			}
			resource := fmt.Sprint(rl.GetResource())
			if !strings.Contains(resource, "service.instance.id") || !strings.Contains(resource, "carillon") {
				t.Errorf("the resource is %s", resource)
			}
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", collector.URL+"/v1/logs")
	n, err := node.Start(t.Context(), node.WithTapeDir(t.TempDir())) // nothing but warnings on standard error
	if err != nil {
		t.Fatal(err)
	}
	world, err := n.Runtime().World(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := world.ID()
	if err := errors.Join(world.Destroy(t.Context()), n.Stop(t.Context())); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, act := range []struct {
		span  string
		trace string
	}{
		{semconv.SpanInit, trace.ActTraceID(id, tape.ActInit, 0).String()},
		{semconv.SpanDestroy, trace.ActTraceID(id, tape.ActDestroy, 0).String()},
	} {
		found := 0
		for _, r := range records {
			if r.body == act.span && r.trace == act.trace && len(r.span) == 16 {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%d records of %s are in trace %s, want 1: %v", found, act.span, act.trace, records)
		}
	}
}

func TestNCCLDebugVariables(t *testing.T) {
	dir := t.TempDir()
	n, err := node.Start(t.Context(), environ(map[string]string{
		"NCCL_DEBUG": "info", "NCCL_DEBUG_FILE": filepath.Join(dir, "log.%p"), "NCCL_DEBUG_SUBSYS": "INIT,ENV,COLL",
	}), node.WithTapeDir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	live(t, n.Runtime())
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("log.%d", os.Getpid())))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(b), "\n")
	for want, parts := range map[int][][]string{
		0: {{"level=DEBUG"}, {"level=INFO", "msg=ccl.comm.destroy"}},
		1: {
			{"level=VERSION", `msg="Carillon version" rank=0 version=`},
			{"level=INFO", "msg=ccl.env rank=0 name=NCCL_DEBUG_SUBSYS value=INIT,ENV,COLL"},
		},
		2: {
			{"msg=ccl.comm.init", "comm=pair ", "took="},
			{"msg=ccl.all_reduce", "bytes=8", "dtype=float32", "trace_id="},
		},
	} {
		for _, p := range parts {
			if got := containing(lines, p...); got != want {
				t.Errorf("%d lines have %q, want %d:\n%s", got, p, want, b)
			}
		}
	}
}

func TestLogVariablesThatAreWrong(t *testing.T) {
	_, err := node.Start(context.Background(), environ(map[string]string{
		"NCCL_DEBUG": "LOUD", "NCCL_DEBUG_SUBSYS": "COLD", "CARILLON_LOG_FORMAT": "xml",
	}))
	if err == nil {
		t.Fatal("started")
	}
	for _, part := range []string{"NCCL_DEBUG=", "LOUD", "NCCL_DEBUG_SUBSYS=", "COLD", "CARILLON_LOG_FORMAT=", "xml"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %q:\n%v", part, err)
		}
	}
}
