package metric_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	oteltrace "go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/metric"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const second = int64(time.Second)

// observe uses a new model for each event: the metrics don't depend on the model's counts.
func observe(c *metric.Collector, ev *tape.Event) {
	step := model.New(model.Limits{}).Apply(ev)
	c.Observe(&step)
}

// spanOf is the span of the event being observed.
var spanOf oteltrace.SpanContext

func newCollector(t testing.TB, slots []tape.Slot) (*metric.Collector, *prometheus.Registry) {
	t.Helper()
	c, err := metric.NewCollector(metric.Config{
		Slots:   func() []tape.Slot { return slots },
		Devices: func() map[uint32]model.Device { return map[uint32]model.Device{movedAt80s: {Moved: 80 * second}} },
		Now:     func() int64 { return 100 * second },
		Missed:  func() tape.Missed { return tape.Missed{Life: 1, Op: 20} },
		Unexpected: func() tape.Unexpected {
			return tape.Unexpected{3, 0, 0, 2}
		},
		Places:  metric.Places{Communicators: 16, Tallies: 4},
		Span:    func() oteltrace.SpanContext { return spanOf },
		Spans:   func() otlp.Stats { return otlp.Stats{Exported: 5, Dropped: 6, Failed: 7} },
		Version: "v1.2.3",
	})
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	return c, reg
}

// movedAt80s is the generation of a communicator whose device reached the operation in flight at 80 s.
const movedAt80s = 7

// slot is a live communicator, idle after completed operations.
func slot(name string, completed uint64) tape.Slot {
	return tape.Slot{
		CommInfo: tape.CommInfo{Name: name, Size: 2, Engine: "host"}, State: lifecycle.StateReady, Launched: completed,
		Completed: completed, Wait: -1,
	}
}

// busy is slot with one more operation, launched at since.
func busy(name string, completed uint64, since int64) tape.Slot {
	s := slot(name, completed)
	s.Launched++
	s.OpStart = since
	return s
}

func compare(t *testing.T, reg *prometheus.Registry, want string, names ...string) {
	t.Helper()
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}

func TestInFlightTable(t *testing.T) {
	failed := slot("dp", 3)
	failed.State = lifecycle.StateFailed
	ahead := busy("tp", 2, 60*second)
	ahead.Generation = movedAt80s
	capturing := slot("world", 10)
	capturing.Captured = 4
	_, reg := newCollector(t, []tape.Slot{
		capturing, busy("dp", 7, 90*second), busy("dp", 9, 60*second), ahead, failed, slot("", 1),
	})
	compare(t, reg, `
# HELP ccl_operation_completed_seq Lowest sequence number completed, over the communicators of one name.
# TYPE ccl_operation_completed_seq gauge
ccl_operation_completed_seq{comm="dp"} 3
ccl_operation_completed_seq{comm="tp"} 2
ccl_operation_completed_seq{comm="unnamed"} 1
ccl_operation_completed_seq{comm="world"} 10
# HELP ccl_operation_launched_seq Highest sequence number launched, over the communicators of one name.
# TYPE ccl_operation_launched_seq gauge
ccl_operation_launched_seq{comm="dp"} 10
ccl_operation_launched_seq{comm="tp"} 3
ccl_operation_launched_seq{comm="unnamed"} 1
ccl_operation_launched_seq{comm="world"} 10
# HELP ccl_operation_oldest_age_seconds Age of the oldest operation in flight, by communicator name; 0 if there is none.
# TYPE ccl_operation_oldest_age_seconds gauge
ccl_operation_oldest_age_seconds{comm="dp"} 40
ccl_operation_oldest_age_seconds{comm="tp"} 20
ccl_operation_oldest_age_seconds{comm="unnamed"} 0
ccl_operation_oldest_age_seconds{comm="world"} 0
# HELP ccl_operations_captured Operations captured in CUDA graphs, whose launches are not seen.
# TYPE ccl_operations_captured gauge
ccl_operations_captured{comm="dp"} 0
ccl_operations_captured{comm="tp"} 0
ccl_operations_captured{comm="unnamed"} 0
ccl_operations_captured{comm="world"} 4
# HELP ccl_operations_in_flight Operations launched and not completed, by communicator name.
# TYPE ccl_operations_in_flight gauge
ccl_operations_in_flight{comm="dp"} 2
ccl_operations_in_flight{comm="tp"} 1
ccl_operations_in_flight{comm="unnamed"} 0
ccl_operations_in_flight{comm="world"} 0
`, semconv.MetricInFlight, semconv.MetricOldestAge, semconv.MetricLaunchedSeq, semconv.MetricCompletedSeq,
		semconv.MetricCaptured)

	got := map[string]float64{}
	for _, m := range gather(t, reg)[semconv.MetricCommunicators] {
		if v := m.GetGauge().GetValue(); v != 0 {
			got[m.GetLabel()[0].GetValue()] = v
		}
	}
	if diff := cmp.Diff(map[string]float64{"ready": 5, "failed": 1}, got); diff != "" {
		t.Errorf("communicators by state (-want +got):\n%s", diff)
	}
}

func gather(t testing.TB, reg *prometheus.Registry) map[string][]*dto.Metric {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]*dto.Metric{}
	for _, f := range families {
		all[f.GetName()] = f.GetMetric()
	}
	return all
}

func op(comm string, call lifecycle.Call, bytes uint64, d time.Duration, code lifecycle.Code) *tape.Event {
	return &tape.Event{
		Comm: tape.CommInfo{ID: lifecycle.CommID{1}, Name: comm, Rank: 1, Size: 4, Engine: "host"},
		Op: tape.OpRecord{
			Stage: tape.StageEnd, Seq: 1, Start: second, Time: second + int64(d), Code: code, Wait: -1,
			Signature: tape.Signature{Call: call, Peer: -1, Bytes: bytes},
		},
	}
}

func TestOperations(t *testing.T) {
	c, reg := newCollector(t, nil)
	for range 3 {
		observe(c, op("world", lifecycle.CallAllReduce, 1<<20, time.Millisecond, lifecycle.CodeOK))
	}
	observe(c, op("world", lifecycle.CallAllReduce, 1<<20, time.Second, lifecycle.CodeRankDead))
	observe(c, op("", lifecycle.CallBarrier, 0, time.Microsecond, lifecycle.CodeOK))
	// In a split, the ranks exchange data.
	observe(c, op("world", lifecycle.CallSplit, 8, time.Millisecond, lifecycle.CodeOK))
	started := op("world", lifecycle.CallAllReduce, 8, 0, lifecycle.CodeOK)
	started.Op.Stage = tape.StageStart
	observe(c, started)
	captured := op("gpu", lifecycle.CallAllReduce, 1<<20, time.Microsecond, lifecycle.CodeOK) // and not launched
	captured.Op.Phase = tape.PhaseCaptured
	observe(c, captured)
	// A call that enqueues moves no bytes. The time on the device is measured for some calls.
	enqueued := op("gpu", lifecycle.CallAllReduce, 1<<20, time.Microsecond, lifecycle.CodeOK)
	enqueued.Comm.Engine = "nccl 2.28.9"
	observe(c, enqueued)
	device := *enqueued
	device.Op.Stage, device.Op.Time = tape.StageDevice, device.Op.Start+int64(time.Millisecond)
	observe(c, &device)

	compare(t, reg, `
# HELP ccl_operation_bytes_total Bytes of the buffers of operations that ended well, by kind.
# TYPE ccl_operation_bytes_total counter
ccl_operation_bytes_total{kind="all_reduce"} 4.194304e+06
ccl_operation_bytes_total{kind="barrier"} 0
# HELP ccl_operations_total Operations that ended, by kind and error type; the error type is empty for those that ended well.
# TYPE ccl_operations_total counter
ccl_operations_total{error_type="",kind="all_reduce"} 4
ccl_operations_total{error_type="",kind="barrier"} 1
ccl_operations_total{error_type="rank_dead",kind="all_reduce"} 1
`, semconv.MetricOperations, semconv.MetricBytes)

	all := gather(t, reg)
	got := map[string]string{}
	for _, m := range all[semconv.MetricDuration] {
		got["duration "+labels(m)] = fmt.Sprintf("%d, %.6f s", m.GetHistogram().GetSampleCount(),
			m.GetHistogram().GetSampleSum())
	}
	for _, m := range all[semconv.MetricBusBandwidth] {
		got["bandwidth "+labels(m)] = fmt.Sprintf("%d, %.0f B/s", m.GetHistogram().GetSampleCount(),
			m.GetHistogram().GetSampleSum())
	}
	want := map[string]string{
		"duration comm=world engine=host kind=all_reduce size=le_1MiB":       "3, 0.003000 s",
		"duration comm=unnamed engine=host kind=barrier size=le_1KiB":        "1, 0.000001 s",
		"bandwidth comm=world engine=host kind=all_reduce size=le_1MiB":      "3, 4718592000 B/s",
		"duration comm=gpu engine=nccl 2.28.9 kind=all_reduce size=le_1MiB":  "1, 0.000001 s",
		"bandwidth comm=gpu engine=nccl 2.28.9 kind=all_reduce size=le_1MiB": "1, 1572864000 B/s",
		"bandwidth comm=unnamed engine=host kind=barrier size=le_1KiB":       "0, 0 B/s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("histograms (-want +got):\n%s", diff)
	}
}

func labels(m *dto.Metric) string {
	var parts []string
	for _, l := range m.GetLabel() {
		parts = append(parts, l.GetName()+"="+l.GetValue())
	}
	return strings.Join(parts, " ")
}

func TestLifecycle(t *testing.T) {
	c, reg := newCollector(t, nil)
	compare(t, reg, `
# HELP ccl_lifecycle_errors_total Failed acts, failed communicators and refused calls, by call and error type.
# TYPE ccl_lifecycle_errors_total counter
ccl_lifecycle_errors_total{call="destroy",error_type="destroyed"} 0
ccl_lifecycle_errors_total{call="leak",error_type="leaked"} 0
`, semconv.MetricLifecycleErrors)
	for _, r := range []tape.LifeRecord{
		{Act: tape.ActInit, Call: lifecycle.CallInitRank, Stage: tape.StageStart, Time: second},
		{Act: tape.ActInit, Call: lifecycle.CallInitRank, Stage: tape.StageEnd, Time: 3 * second, Start: second},
		{Act: tape.ActDestroy, Call: lifecycle.CallDestroy, Stage: tape.StageMisuse, Code: lifecycle.CodeDestroyed},
		{Act: tape.ActDestroy, Call: lifecycle.CallDestroy, Stage: tape.StageMisuse, Code: lifecycle.CodeDestroyed},
		{Act: tape.ActNone, Call: lifecycle.CallAllReduce, Stage: tape.StageMisuse, Code: lifecycle.CodeDestroyed},
		{Call: lifecycle.CallAllReduce, Stage: tape.StageMisuse, Code: lifecycle.CodeDestroyed, Times: 2},
		{Call: lifecycle.CallAllReduce, Stage: tape.StageMisuse, Code: lifecycle.CodeDestroyed, Times: 4},
		{Act: tape.ActSplit, Call: lifecycle.CallSplit, Stage: tape.StageMisuse, Code: lifecycle.CodeInProgress},
		{Act: tape.ActLeak, Call: lifecycle.CallInitRank, Stage: tape.StageEnd, Code: lifecycle.CodeLeaked},
	} {
		observe(c, &tape.Event{Comm: tape.CommInfo{ID: lifecycle.CommID{1}}, IsLife: true, Life: r})
	}
	compare(t, reg, `
# HELP ccl_lifecycle_errors_total Failed acts, failed communicators and refused calls, by call and error type.
# TYPE ccl_lifecycle_errors_total counter
ccl_lifecycle_errors_total{call="all_reduce",error_type="destroyed"} 4
ccl_lifecycle_errors_total{call="destroy",error_type="destroyed"} 2
ccl_lifecycle_errors_total{call="leak",error_type="leaked"} 1
# HELP ccl_lifecycle_postponed_total Calls that a non-blocking communicator put off because one before them was unfinished, by call. No errors.
# TYPE ccl_lifecycle_postponed_total counter
ccl_lifecycle_postponed_total{call="split"} 1
`, semconv.MetricLifecycleErrors, semconv.MetricPostponed)
	h := gather(t, reg)[semconv.MetricActDuration]
	if len(h) != 1 || labels(h[0]) != "act=init" || h[0].GetHistogram().GetSampleSum() != 2 {
		t.Errorf("durations of acts are %v", h)
	}
}

// TestExemplars has one operation with a span among others, and an act.
func TestExemplars(t *testing.T) {
	c, reg := newCollector(t, nil)
	defer func() { spanOf = oteltrace.SpanContext{} }()
	span := func(n byte) oteltrace.SpanContext {
		return oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
			TraceID: oteltrace.TraceID{n},
			SpanID:  oteltrace.SpanID{n},
		})
	}
	observe(c, op("world", lifecycle.CallAllReduce, 8, time.Microsecond, lifecycle.CodeOK))
	spanOf = span(1)
	observe(c, op("world", lifecycle.CallAllReduce, 8, time.Millisecond, lifecycle.CodeOK))
	spanOf = span(2)
	observe(c, &tape.Event{
		Comm: tape.CommInfo{ID: lifecycle.CommID{1}}, IsLife: true,
		Life: tape.LifeRecord{Act: tape.ActInit, Stage: tape.StageEnd, Peer: -1, Time: 3 * second, Start: second},
	})

	got := map[string]string{}
	all := gather(t, reg)
	for _, name := range []string{semconv.MetricDuration, semconv.MetricActDuration} {
		for _, b := range all[name][0].GetHistogram().GetBucket() {
			for _, l := range b.GetExemplar().GetLabel() {
				got[fmt.Sprintf("%s %.3g %s", name, b.GetExemplar().GetValue(), l.GetName())] = l.GetValue()
			}
		}
	}
	want := map[string]string{
		semconv.MetricDuration + " 0.001 trace_id": span(1).TraceID().String(),
		semconv.MetricDuration + " 0.001 span_id":  span(1).SpanID().String(),
		semconv.MetricActDuration + " 2 trace_id":  span(2).TraceID().String(),
		semconv.MetricActDuration + " 2 span_id":   span(2).SpanID().String(),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("exemplars (-want +got):\n%s", diff)
	}
}

// TestPeerErrors has another rank die, then so many that they are counted together.
func TestPeerErrors(t *testing.T) {
	c, reg := newCollector(t, nil)
	failed := func(peer int32, code lifecycle.Code) {
		observe(c, &tape.Event{
			IsLife: true, Comm: tape.CommInfo{Name: "world"},
			Life: tape.LifeRecord{Call: lifecycle.CallAllReduce, Stage: tape.StageEnd, Code: code, Peer: peer},
		})
	}
	failed(2, lifecycle.CodeRankDead)
	failed(2, lifecycle.CodeRankDead)
	failed(1, lifecycle.CodeUnreachable)
	failed(-1, lifecycle.CodeTimeout)
	failed(3, lifecycle.CodeOK)
	compare(t, reg, `
# HELP ccl_peer_errors_total Acts and communicators that failed by another rank's fault, by communicator name, that rank and error type.
# TYPE ccl_peer_errors_total counter
ccl_peer_errors_total{comm="world",error_type="rank_dead",peer="2"} 2
ccl_peer_errors_total{comm="world",error_type="unreachable",peer="1"} 1
`, semconv.MetricPeerErrors)

	for peer := range int32(1000) {
		failed(peer, lifecycle.CodeRankDead)
	}
	all, others := gather(t, reg)[semconv.MetricPeerErrors], 0.0
	for _, m := range all {
		if strings.Contains(labels(m), "peer="+semconv.LabelValueOther) {
			others = m.GetCounter().GetValue()
		}
	}
	if len(all) != 65 || others != 1000-63 {
		t.Errorf("%d series, %v faults of others; want 65 and 937", len(all), others)
	}
}

func TestTelemetryOfTelemetry(t *testing.T) {
	_, reg := newCollector(t, []tape.Slot{busy("world", 1, second)})
	compare(t, reg, `
# HELP ccl_spans_total Spans to be exported, by what became of them: exported, dropped because the queue was full, or failed in the exporter.
# TYPE ccl_spans_total counter
ccl_spans_total{result="dropped"} 6
ccl_spans_total{result="exported"} 5
ccl_spans_total{result="failed"} 7
# HELP ccl_tape_places_free Places of the tape that are free, by part. Without one, a new communicator is in the rings alone, or its operations are read one by one.
# TYPE ccl_tape_places_free gauge
ccl_tape_places_free{part="communicators"} 15
ccl_tape_places_free{part="tallies"} 4
# HELP ccl_tape_records_missed_total Tape records that were overwritten before they were read, by ring.
# TYPE ccl_tape_records_missed_total counter
ccl_tape_records_missed_total{ring="life"} 1
ccl_tape_records_missed_total{ring="op"} 20
# HELP ccl_profiler_unexpected_calls_total Calls of NCCL to Carillon's profiler plug-in that are not as its interface has them, by reason. All are tolerated. A foreign one is about another process's event, as with PXN.
# TYPE ccl_profiler_unexpected_calls_total counter
ccl_profiler_unexpected_calls_total{reason="after_stop"} 0
ccl_profiler_unexpected_calls_total{reason="foreign"} 3
ccl_profiler_unexpected_calls_total{reason="late"} 0
ccl_profiler_unexpected_calls_total{reason="never_stopped"} 0
ccl_profiler_unexpected_calls_total{reason="no_communicator"} 0
ccl_profiler_unexpected_calls_total{reason="no_room"} 0
ccl_profiler_unexpected_calls_total{reason="not_written"} 0
ccl_profiler_unexpected_calls_total{reason="overruled"} 0
ccl_profiler_unexpected_calls_total{reason="stopped_twice"} 2
ccl_profiler_unexpected_calls_total{reason="unknown_event"} 0
`, semconv.MetricTapeMissed, semconv.MetricTapeFree, semconv.MetricSpans, semconv.MetricProfilerUnexpected)
	if m := gather(t, reg)[semconv.MetricBuildInfo]; len(m) != 1 || !strings.Contains(labels(m[0]), "version=v1.2.3") {
		t.Errorf("build info is %v", m)
	}
}

// TestLint asks Prometheus's own linter about every metric there is.
func TestLint(t *testing.T) {
	c, reg := newCollector(t, []tape.Slot{busy("world", 1, second)})
	observe(c, op("world", lifecycle.CallAllReduce, 8, time.Millisecond, lifecycle.CodeOK))
	observe(c, &tape.Event{
		Comm: tape.CommInfo{ID: lifecycle.CommID{1}}, IsLife: true,
		Life: tape.LifeRecord{Act: tape.ActInit, Stage: tape.StageEnd, Time: 2, Start: 1, Peer: -1},
	})
	observe(c, &tape.Event{
		Comm: tape.CommInfo{ID: lifecycle.CommID{1}}, IsLife: true,
		Life: tape.LifeRecord{Call: lifecycle.CallFinalize, Stage: tape.StageEnd, Code: lifecycle.CodeRankDead},
	})
	observe(c, &tape.Event{
		Comm: tape.CommInfo{ID: lifecycle.CommID{1}}, IsLife: true,
		Life: tape.LifeRecord{Call: lifecycle.CallSplit, Stage: tape.StageMisuse, Code: lifecycle.CodeInProgress},
	})
	c.ObserveStall(&stall.Report{
		Stage: stall.Stalled, Count: 1, Comm: &model.Comm{}, Op: tape.Signature{Call: lifecycle.CallAllReduce},
		Wait: -1,
	})
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	want := []string{
		semconv.MetricCommunicators, semconv.MetricInFlight, semconv.MetricOldestAge, semconv.MetricLaunchedSeq,
		semconv.MetricCompletedSeq, semconv.MetricCaptured,
		semconv.MetricOperations, semconv.MetricBytes, semconv.MetricDuration, semconv.MetricBusBandwidth,
		semconv.MetricActDuration,
		semconv.MetricLifecycleErrors, semconv.MetricPostponed, semconv.MetricPeerErrors, semconv.MetricTapeMissed,
		semconv.MetricTapeFree, semconv.MetricSpans, semconv.MetricBuildInfo, semconv.MetricProfilerUnexpected,
		semconv.MetricStalled, semconv.MetricStallAge, semconv.MetricStalls,
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(gather(t, reg)))); diff != "" {
		t.Errorf("the metrics that are exported (-want +got):\n%s", diff)
	}
}

// TestSeriesAreBounded has ten thousand communicators, each with a name of its own.
func TestSeriesAreBounded(t *testing.T) {
	var slots []tape.Slot
	for i := range 10_000 {
		slots = append(slots, busy(fmt.Sprintf("group-%d", i), 1, second))
	}
	c, reg := newCollector(t, slots)
	for i := range 10_000 {
		observe(c, op(fmt.Sprintf("group-%d", i), lifecycle.CallAllReduce, 8, time.Millisecond, lifecycle.CodeOK))
		c.ObserveStall(&stall.Report{
			Stage: stall.Stalled, Count: 1,
			Comm: &model.Comm{CommInfo: tape.CommInfo{Name: fmt.Sprintf("group-%d", i)}, Generation: uint32(i)},
			Op:   tape.Signature{Call: lifecycle.CallAllReduce}, Wait: int32(i),
		})
	}
	all := gather(t, reg)
	for name, metrics := range all {
		if len(metrics) > 21 { // the kinds that can stall: 12 calls and 9 acts
			t.Errorf("%s has %d series", name, len(metrics))
		}
	}
	others := 0.0
	for _, m := range all[semconv.MetricInFlight] {
		if m.GetLabel()[0].GetValue() == semconv.LabelValueOther {
			others = m.GetGauge().GetValue()
		}
	}
	if others != 10_000-16 {
		t.Errorf("%v communicators are counted as others, want all but 16", others)
	}
}

// TestNamesThatPrometheusRefuses come from users, who may call a communicator anything.
func TestNamesThatPrometheusRefuses(t *testing.T) {
	bad := "bad\xff\xfe name"
	long := strings.Repeat("é", 500)
	c, reg := newCollector(t, []tape.Slot{slot(bad, 1), slot(long, 1), slot("new\nline", 1)})
	observe(c, op(bad, lifecycle.CallSend, 8, time.Millisecond, lifecycle.CodeOK))
	for _, m := range gather(t, reg)[semconv.MetricInFlight] {
		if v := m.GetLabel()[0].GetValue(); len(v) > 128 || strings.Contains(v, "\xff") {
			t.Errorf("label value %q", v)
		}
	}
}

func TestScrapeWhileObserving(t *testing.T) {
	c, reg := newCollector(t, []tape.Slot{busy("world", 1, second)})
	var scrapers sync.WaitGroup
	for range 2 {
		scrapers.Go(func() {
			for range 50 {
				if _, err := reg.Gather(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 5000 {
		observe(c,
			op(fmt.Sprintf("c%d", i%20), lifecycle.CallAllReduce, uint64(i)<<10, time.Microsecond, lifecycle.CodeOK))
	}
	scrapers.Wait()
}

func TestObserveDoesNotAllocate(t *testing.T) {
	c, _ := newCollector(t, nil)
	ev := op("world", lifecycle.CallAllReduce, 8, time.Millisecond, lifecycle.CodeOK)
	step := model.New(model.Limits{}).Apply(ev)
	c.Observe(&step)
	if n := testing.AllocsPerRun(1000, func() { c.Observe(&step) }); n != 0 {
		t.Errorf("%v allocations an operation", n)
	}
}

func TestBadConfig(t *testing.T) {
	slots := func() []tape.Slot { return nil }
	for _, cfg := range []metric.Config{
		{},
		{Slots: slots},
		{Now: func() int64 { return 0 }},
	} {
		if _, err := metric.NewCollector(cfg); err == nil || !strings.Contains(err.Error(), "metric: Config.") {
			t.Errorf("%+v: the error doesn't name the field: %v", cfg, err)
		}
	}
}

// BenchmarkObserve measures the cost of following one operation.
func BenchmarkObserve(b *testing.B) {
	c, _ := newCollector(b, nil)
	ev := op("world", lifecycle.CallAllReduce, 8, time.Millisecond, lifecycle.CodeOK)
	step := model.New(model.Limits{}).Apply(ev)
	b.ReportAllocs()
	for b.Loop() {
		c.Observe(&step)
	}
}
