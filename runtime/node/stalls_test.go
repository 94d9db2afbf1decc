package node_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// stallLog passes on an observer's reports of stalls.
type stallLog chan stall.Report

// take keeps a report, and so copies its communicator.
func (l stallLog) take(r *stall.Report) {
	kept := *r
	kept.Comm = &model.Comm{CommInfo: r.Comm.CommInfo}
	l <- kept
}

// TestHangIsSeenWhileItLasts writes an operation that doesn't end onto a node's tape, checks everything that shows it,
// and lets it end. Without the reports, the tape would not be read soon.
func TestHangIsSeenWhileItLasts(t *testing.T) {
	cfg := node.Default()
	cfg.TapeDir, cfg.SlowThreshold, cfg.StallThreshold = t.TempDir(), 10*time.Millisecond, 40*time.Millisecond
	if err := node.WithTick(time.Hour)(&cfg); err != nil {
		t.Fatal(err)
	}
	told := make(stallLog, 100)
	var w *tape.Writer
	var telemetry *node.Telemetry
	app := fxtest.New(t, node.Module, fx.Supply(&cfg), fx.NopLogger, fx.Populate(&w, &telemetry),
		node.Provide(func() node.Option { return node.WithObserver(node.Observer{Stall: told.take}) }))
	app.RequireStart()
	defer app.RequireStop()

	c := w.Comm(tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 1, Size: 4})
	if err := telemetry.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	caller := tape.SpanContext{TraceID: [16]byte{0xca, 0x11}, SpanID: [8]byte{0xe1}, Flags: 1}
	op := c.StartFrom(tape.Now(), &caller, 0, &tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 8}, 1)
	c.Wait(3)
	for _, want := range []stall.Stage{stall.Slow, stall.Stalled, stall.Stalled} {
		if r := <-told; r.Stage != want || r.Wait != 3 || r.Comm.Name != "world" {
			t.Errorf("told %+v, want that it is %v", r, want)
		}
	}
	series := gathered(t, telemetry, "ccl_stalled_operations")
	if series != 1 {
		t.Errorf("ccl_stalled_operations is %v while it hangs", series)
	}
	c.End(op, lifecycle.CodeOK)
	for r := range told {
		if r.Stage == stall.Cleared {
			break
		}
	}
	if series := gathered(t, telemetry, "ccl_stalled_operations"); series != 0 {
		t.Errorf("ccl_stalled_operations is %v afterwards", series)
	}
	names := map[string]int{}
	for _, kept := range telemetry.Traces().ByComm(lifecycle.CommID{1}) {
		for _, s := range kept.Spans {
			names[s.Name]++
			if !slices.ContainsFunc(s.Links, func(l trace.Link) bool { return l.TraceID == caller.TraceID }) {
				t.Errorf("%s has no link to its caller: %v", s.Name, s.Links)
			}
		}
	}
	if names["ccl.all_reduce (started)"] != 1 || names["ccl.stall"] < 2 {
		t.Errorf("spans are %v", names)
	}
	c.Close()
}

func gathered(t *testing.T, telemetry *node.Telemetry, name string) float64 {
	t.Helper()
	families, err := telemetry.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

func TestThresholds(t *testing.T) {
	for name, value := range map[string]string{
		"CARILLON_SLOW_THRESHOLD": "soon", "CARILLON_STALL_THRESHOLD": "5", "CARILLON_SIGNALS": "maybe",
	} {
		_, err := node.Start(t.Context(), environ(map[string]string{name: value}))
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), value) ||
			!strings.Contains(err.Error(), "off") {
			t.Errorf("%s=%s: %v, want an error that names both and what is allowed", name, value, err)
		}
	}
	cfg := node.Default()
	cfg.SlowThreshold, cfg.StallThreshold = time.Nanosecond, -time.Second
	_, err := node.Start(t.Context(), node.WithConfig(cfg))
	if err == nil || !strings.Contains(err.Error(), "SlowThreshold is 1ns") ||
		!strings.Contains(err.Error(), "StallThreshold is -1s") {
		t.Errorf("%v, want an error that names both fields", err)
	}
	for _, vars := range []map[string]string{
		{"CARILLON_STALL_THRESHOLD": "off"},
		{"CARILLON_SLOW_THRESHOLD": "off"},
		{"CARILLON_STALL_THRESHOLD": "100ms"}, // less than the default slow threshold, which is then lowered
	} {
		start(t, environ(vars))
	}
}

// programEnv makes the test binary a program of its own; its value says what it does.
const programEnv = "CARILLONTEST_PROGRAM"

// program starts a node, begins an init to which the other rank never comes, and waits.
func program() int {
	n, err := node.Start(context.Background(), node.FromEnv(), node.WithHealth(""))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	go func() { _, _ = n.Runtime().World(context.Background()) }()
	for len(n.Telemetry().Traces().Acts(1)) == 0 { // until the init has announced itself
		runtime.Gosched()
	}
	fmt.Println("ready")
	select {}
}

// spansSent is a receiver of OTLP that keeps what it gets.
type spansSent struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *spansSent) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Write(body)
}

// terminated starts the program, and ends it with SIGTERM once it is ready.
func terminated(t *testing.T, env ...string) (syscall.WaitStatus, time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), append([]string{
		programEnv + "=1", "CARILLON_TAPE_DIR=" + t.TempDir(), "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
		"MASTER_PORT=9",
		"CARILLON_JOB_SECRET=0123456789abcdef0123456789abcdef", "OTEL_BSP_SCHEDULE_DELAY=3600000", "CARILLON_LOG=off",
	}, env...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the program says %q", lines.Text())
	}
	start := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the status tells
	return cmd.ProcessState.Sys().(syscall.WaitStatus), time.Since(start)
}

// TestSIGTERM ends a program that doesn't handle the signal during an init: its spans are exported, and it still dies
// of the signal.
func TestSIGTERM(t *testing.T) {
	sent := &spansSent{}
	receiver := httptest.NewServer(sent)
	defer receiver.Close()
	dir := t.TempDir()
	status, _ := terminated(t, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+receiver.URL, "CARILLON_TAPE_DIR="+dir)
	header := onlyTape(t, dir)
	if header.Terminated == 0 || header.Terminated > header.Exported || header.StallAfter == 0 {
		t.Errorf("its tape says that it was told to end at %d, and exported until %d",
			header.Terminated, header.Exported)
	}
	if header.Exported == 0 || header.Delivered == 0 || header.Delivered > header.Exported {
		t.Errorf("its tape says that all spans were exported until %d, and those of what had ended until %d",
			header.Exported, header.Delivered)
	}
	if !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v, want SIGTERM", status)
	}
	sent.mu.Lock()
	defer sent.mu.Unlock()
	for _, want := range []string{"ccl.comm.init (started)", "unfinished: SIGTERM comes before the init does"} {
		if !strings.Contains(sent.text.String(), want) {
			t.Errorf("%q was not sent", want)
		}
	}
}

// TestSIGTERMExportsLogs has log records in the queue when the signal comes: they are exported, too.
func TestSIGTERMExportsLogs(t *testing.T) {
	sent := &spansSent{}
	receiver := httptest.NewServer(sent)
	defer receiver.Close()
	terminated(t, "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT="+receiver.URL, "OTEL_BLRP_SCHEDULE_DELAY=3600000")
	sent.mu.Lock()
	defer sent.mu.Unlock()
	if text := sent.text.String(); !strings.Contains(text, semconv.LogMessageEnv) {
		t.Errorf("the log records were not sent; what was is %q", text)
	}
}

// onlyTape is what the only tape below dir says of its process.
func onlyTape(t *testing.T, dir string) tape.Header {
	t.Helper()
	tapes, err := filepath.Glob(filepath.Join(dir, "*", "*.tape"))
	if err != nil || len(tapes) != 1 {
		t.Fatalf("tapes %q, %v; want one", tapes, err)
	}
	r, err := tape.Open(tapes[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	return r.Header()
}

// TestSIGTERMWithoutSignals leaves the signal to the program, which has no handler: nothing is sent.
func TestSIGTERMWithoutSignals(t *testing.T) {
	sent := &spansSent{}
	receiver := httptest.NewServer(sent)
	defer receiver.Close()
	status, _ := terminated(t, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+receiver.URL, "CARILLON_SIGNALS=off")
	if !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v, want SIGTERM", status)
	}
	sent.mu.Lock()
	defer sent.mu.Unlock()
	if sent.text.Len() > 0 {
		t.Error("something was sent")
	}
}

// TestSIGTERMWithARefusingCollector: the tape must not say that the spans were exported.
func TestSIGTERMWithARefusingCollector(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer receiver.Close()
	dir := t.TempDir()
	terminated(t, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+receiver.URL, "CARILLON_TAPE_DIR="+dir)
	if header := onlyTape(t, dir); header.Exported != 0 || header.Delivered != 0 {
		t.Errorf("its tape says that its spans were exported until %d and %d", header.Exported, header.Delivered)
	}
}

// TestSIGTERMWithAHungCollector: a hung collector delays the process for flushTimeout at most.
func TestSIGTERMWithAHungCollector(t *testing.T) {
	release := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer receiver.Close()
	defer close(release)
	dir := t.TempDir()
	status, took := terminated(t, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+receiver.URL, "CARILLON_TAPE_DIR="+dir)
	if header := onlyTape(t, dir); header.Exported != 0 || header.Delivered != 0 {
		t.Errorf("its tape says that its spans were exported until %d and %d", header.Exported, header.Delivered)
	}
	if !status.Signaled() || took > 8*time.Second {
		t.Errorf("it ended with %v after %v, want SIGTERM after 2 s", status, took)
	}
}

// TestUntilLook: looks don't synchronise with something periodic at their interval, and are as frequent on average.
func TestUntilLook(t *testing.T) {
	const interval, looks = time.Second, 10_000
	var sum time.Duration
	tenths := map[time.Duration]bool{} // of its period, at which looks come
	for range looks {
		sum += node.UntilLook(interval)
		tenths[10*(sum%interval)/interval] = true
	}
	if len(tenths) != 10 {
		t.Errorf("only %d tenths of a round are looked at", len(tenths))
	}
	if mean := sum / looks; mean < interval*9/10 || mean > interval*11/10 {
		t.Errorf("the mean is %v, want %v", mean, interval)
	}
}
