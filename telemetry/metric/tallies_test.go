package metric_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/metric"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestTallies has operations that the tape's writer counted, of two ranks in one process and of another size. A
// follower sees one of these for its span, and counts one that the writer didn't.
func TestTallies(t *testing.T) {
	tally := func(index int, class uint8, bytes uint64) tape.Tally {
		t := tape.Tally{
			Index: index, Name: "world", Engine: "host", Call: lifecycle.CallAllReduce, SizeClass: class,
			Bytes: 3 * bytes, Time: 3 * time.Millisecond, Bandwidth: 6e6,
		}
		t.Durations[0], t.Durations[5], t.Bandwidths[1] = 1, 2, 3
		return t
	}
	c, err := metric.NewCollector(metric.Config{
		Slots: func() []tape.Slot { return nil }, Now: func() int64 { return second },
		Span: func() oteltrace.SpanContext { return spanOf },
		Tallies: func() []tape.Tally {
			return []tape.Tally{
				tally(0, 5, 1000), tally(1, 5, 1000), tally(2, 6, 3000), {Index: 3, Call: lifecycle.CallBarrier},
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)

	defer func() { spanOf = oteltrace.SpanContext{} }()
	spanOf = oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: oteltrace.TraceID{1},
		SpanID:  oteltrace.SpanID{2},
	})
	sampled := op("world", lifecycle.CallAllReduce, 1000, time.Millisecond, lifecycle.CodeOK)
	sampled.Op.Tallied = true
	observe(c, sampled)
	spanOf = oteltrace.SpanContext{}
	observe(c, op("world", lifecycle.CallAllReduce, 1000, 10*time.Millisecond, lifecycle.CodeOK))

	compare(t, reg, `
# HELP ccl_operation_bytes_total Bytes of the buffers of operations that ended well, by kind.
# TYPE ccl_operation_bytes_total counter
ccl_operation_bytes_total{kind="all_reduce"} 16000
# HELP ccl_operations_total Operations that ended, by kind and error type; the error type is empty for those that ended well.
# TYPE ccl_operations_total counter
ccl_operations_total{error_type="",kind="all_reduce"} 10
`, semconv.MetricOperations, semconv.MetricBytes)
	got := map[string]string{}
	all := gather(t, reg)
	for _, m := range all[semconv.MetricDuration] {
		h := m.GetHistogram()
		got[labels(m)] = fmt.Sprintf("%d, %.3f s", h.GetSampleCount(), h.GetSampleSum())
		for i, b := range h.GetBucket() {
			if want := time.Microsecond.Seconds() * float64(uint64(1)<<(2*i)); b.GetUpperBound() != want {
				t.Errorf("bucket %d has the bound %v, want %v", i, b.GetUpperBound(), want)
			}
			if e := b.GetExemplar(); e != nil && (e.GetValue() != 0.001 || len(e.GetLabel()) != 2) {
				t.Errorf("exemplar %v", e)
			} else if e != nil {
				got["exemplar"] = labels(m)
			}
		}
	}
	small := "comm=world engine=host kind=all_reduce size=le_1KiB"
	want := map[string]string{
		small: "7, 0.016 s", "comm=world engine=host kind=all_reduce size=le_64KiB": "3, 0.003 s", "exemplar": small,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("durations (-want +got):\n%s", diff)
	}
	for _, m := range all[semconv.MetricBusBandwidth] {
		if h := m.GetHistogram(); h.GetSampleCount() != map[bool]uint64{true: 7, false: 3}[labels(m) == small] {
			t.Errorf("bandwidths of %s: %v", labels(m), h)
		}
	}
}
