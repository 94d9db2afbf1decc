package trace_test

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
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// collector is an OTLP collector over HTTP that counts requests.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	bodies [][]byte
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bodies = append(c.bodies, body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(bytes.Join(c.bodies, nil))
}

func someLife(p *projector) {
	p.act(world, tape.LifeRecord{Act: tape.ActInit, Call: lifecycle.CallInitRank, State: lifecycle.StateReady}, ms,
		2*ms)
}

func TestExportByOTLP(t *testing.T) {
	c := newCollector(t)
	p := newProjector(t, func(*trace.Config) {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
		t.Setenv("OTEL_SERVICE_NAME", "the environment's name")
	})
	someLife(p)
	p.close()
	for _, want := range []string{"ccl.comm.init", "ccl.comm.init (started)", "the environment's name", "job1"} {
		if !strings.Contains(c.text(), want) {
			t.Errorf("the collector didn't get %q", want)
		}
	}
	if got := p.Stats(); got != (trace.Stats{Exported: 2}) {
		t.Errorf("Stats = %+v, want 2 exported", got)
	}
}

// TestCloseAtItsDeadline has a collector that takes requests and never answers.
func TestCloseAtItsDeadline(t *testing.T) {
	asked := make(chan struct{}, 10)
	hung := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only after that does the server see the client go
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer hung.Close()
	p := newProjector(t, func(*trace.Config) {
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", hung.URL+"/v1/traces")
		t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	})
	someLife(p)
	<-asked
	p.closed = true
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	start := time.Now()
	if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close = %v, want its deadline", err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("Close took %s", d)
	}
	if n := len(p.Store().Acts(0)); n != 1 {
		t.Errorf("the store has %d traces, want 1", n)
	}
}

// TestNothingLeavesUnasked sets an endpoint but excludes traces from it; and sets no variable about traces.
func TestNothingLeavesUnasked(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"exporter none": {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "URL"},
		"metrics only":  {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "URL"},
		"nothing":       {},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t)
			p := newProjector(t, func(*trace.Config) {
				for k, v := range env {
					t.Setenv(k, strings.ReplaceAll(v, "URL", c.URL))
				}
			})
			someLife(p)
			p.close()
			if c.text() != "" || p.Stats() != (trace.Stats{}) {
				t.Errorf("something was exported: %+v", p.Stats())
			}
			if n := len(p.Store().Acts(0)); n != 1 {
				t.Errorf("the store has %d traces, want 1", n)
			}
		})
	}
}

func TestSDKDisabled(t *testing.T) {
	p := newProjector(t, func(*trace.Config) {
		t.Setenv("OTEL_SDK_DISABLED", "true")
		t.Setenv("OTEL_TRACES_EXPORTER", "no such exporter") // not even looked at
	})
	someLife(p)
	if n := len(p.spans()) + len(p.Store().Acts(0)); n != 0 {
		t.Errorf("%d spans were made", n)
	}
}

// TestMalformedResource: the Projector still starts, with the valid part.
func TestMalformedResource(t *testing.T) {
	var logged bytes.Buffer
	p := newProjector(t, func(c *trace.Config) {
		t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "team=red,nonsense")
		c.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	})
	someLife(p)
	res := p.spans()[0].Resource.String()
	if !strings.Contains(res, "team=red") || !strings.Contains(res, "service.name=carillon") {
		t.Errorf("resource is %s", res)
	}
	if !strings.Contains(logged.String(), "nonsense") {
		t.Errorf("the malformed part isn't named: %q", logged.String())
	}
}

func TestGlobalStateIsLeftAlone(t *testing.T) {
	before := otel.GetTracerProvider()
	p := newProjector(t, nil)
	someLife(p)
	p.close()
	if otel.GetTracerProvider() != before {
		t.Error("the global tracer provider was set")
	}
}

// consoleEnv makes the test binary a program that writes spans to its standard output. The console exporter keeps the
// standard output of the time at which the program starts.
const consoleEnv = "CARILLONTEST_CONSOLE"

// console is that program.
func console() int {
	process := model.New(model.Limits{})
	p, err := trace.New(context.Background(), trace.Config{Process: process, Rank: 1, Wall: wall})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, r := range []tape.LifeRecord{
		{Act: tape.ActInit, Call: lifecycle.CallInitRank, Stage: tape.StageStart, Time: ms},
		{Act: tape.ActInit, Call: lifecycle.CallInitRank, Stage: tape.StageEnd, Time: 2 * ms, Start: ms},
	} {
		step := process.Apply(&tape.Event{Comm: world, IsLife: true, Life: r})
		p.Observe(&step)
	}
	if err := p.Close(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestConsole(t *testing.T) {
	noExport(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), consoleEnv+"=1", "OTEL_TRACES_EXPORTER=console")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{`"Name":"ccl.comm.init (started)"`, `"Name":"ccl.comm.init"`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the console doesn't show %s:\n%s", want, out)
		}
	}
}

// stuck is an exporter that answers only when it is released or its context ends.
type stuck struct {
	entered chan struct{}
	release chan error
}

func newStuck() *stuck { return &stuck{entered: make(chan struct{}, 100), release: make(chan error)} }

func (s *stuck) ExportSpans(ctx context.Context, _ []sdktrace.ReadOnlySpan) error {
	s.entered <- struct{}{}
	select {
	case err := <-s.release:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (*stuck) Shutdown(context.Context) error { return nil }

// ended makes a span and returns it as processors get it.
func ended(t *testing.T, failed bool, ordinary bool) sdktrace.ReadOnlySpan {
	t.Helper()
	p := newProjector(t, func(c *trace.Config) { c.SampleEvery = 1 })
	switch {
	case ordinary:
		p.op(world, tape.OpRecord{
			Time: 1, Stage: tape.StageEnd, Seq: 1, Wait: -1,
			Signature: tape.Signature{Call: lifecycle.CallBarrier},
		})
	case failed:
		p.op(world, tape.OpRecord{
			Time: 1, Stage: tape.StageEnd, Seq: 1, Wait: -1, Code: lifecycle.CodeTimeout,
			Signature: tape.Signature{Call: lifecycle.CallBarrier},
		})
	default:
		p.life(world, tape.LifeRecord{Act: tape.ActInit, Stage: tape.StageEnd, Time: 1})
	}
	return p.spans().Snapshots()[0]
}

// TestCollectorThatHangs fills the queue behind an exporter that never answers: nothing blocks, the drops are counted,
// acts and errors have room when operations have none, and Close returns at its deadline.
func TestCollectorThatHangs(t *testing.T) {
	op, act, failure := ended(t, false, true), ended(t, false, false), ended(t, true, false)
	var logged bytes.Buffer
	exporter := newStuck()
	g := trace.NewGate(exporter, slog.New(slog.NewTextHandler(&logged, nil)),
		otlp.Batching{Queue: 100, Batch: 10, Delay: time.Hour, Timeout: time.Minute})
	for range 1000 {
		g.OnEnd(op)
	}
	if got := g.Stats(); got.Dropped != 1000-75 {
		t.Errorf("%d operations dropped, want all but 75 of 1000", got.Dropped)
	}
	for range 10 {
		g.OnEnd(act)
		g.OnEnd(failure)
	}
	if got := g.Stats(); got.Dropped != 1000-75 {
		t.Errorf("%d spans dropped: acts and errors were among them", got.Dropped)
	}
	for range 100 {
		g.OnEnd(act)
	}
	if got := g.Stats(); got.Dropped != 1000-75+95 {
		t.Errorf("%d spans dropped, want %d: the room is bounded for acts too", got.Dropped, 1000-75+95)
	}
	<-exporter.entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := g.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown = %v, want its context's error", err)
	}
	g.Wait() // goroutines left by Shutdown end, though the exporter never answered
	if got := g.Stats(); got.Failed != 100 || got.Exported != 0 {
		t.Errorf("Stats = %+v, want the 100 that were queued to have failed", got)
	}
	if n := strings.Count(logged.String(), "can't be exported"); n != 1 {
		t.Errorf("the failure was logged %d times, want once:\n%s", n, logged.String())
	}
}

// TestCollectorThatRecovers refuses one batch and takes the next.
func TestCollectorThatRecovers(t *testing.T) {
	act := ended(t, false, false)
	var logged bytes.Buffer
	exporter := newStuck()
	g := trace.NewGate(exporter, slog.New(slog.NewTextHandler(&logged, nil)),
		otlp.Batching{Queue: 10, Batch: 1, Delay: time.Hour, Timeout: time.Minute})
	g.OnEnd(act)
	exporter.release <- errors.New("no")
	g.OnEnd(act)
	exporter.release <- nil
	if err := g.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := g.Stats(); got != (trace.Stats{Exported: 1, Failed: 1}) {
		t.Errorf("Stats = %+v, want 1 exported and 1 failed", got)
	}
	if !strings.Contains(logged.String(), "exported again") {
		t.Errorf("the recovery isn't logged:\n%s", logged.String())
	}
}

// TestSpanWithoutIdentity: this can't happen; if it did, the span would have ids that no exporter accepts.
func TestSpanWithoutIdentity(t *testing.T) {
	tid, sid := trace.Generator{}.NewIDs(t.Context())
	if tid.IsValid() || sid.IsValid() || (trace.Generator{}).NewSpanID(t.Context(), oteltrace.TraceID{1}).IsValid() {
		t.Error("the generator made up ids")
	}
}
