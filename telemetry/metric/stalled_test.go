package metric_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/metric"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/stall"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestStalled lets two all-reduces of communicators with one name and an init stall, and end.
func TestStalled(t *testing.T) {
	now := int64(10 * time.Second)
	c, err := metric.NewCollector(metric.Config{
		Slots: func() []tape.Slot { return nil },
		Now:   func() int64 { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	expect := func(when, want string) {
		t.Helper()
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), semconv.MetricStalled,
			semconv.MetricStallAge); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	report := func(stage stall.Stage, count int, comm uint32, act tape.Act, start time.Duration, wait int32) {
		c.ObserveStall(&stall.Report{
			Stage: stage, Comm: &model.Comm{CommInfo: tape.CommInfo{Name: "world"}, Generation: comm}, Act: act,
			Count: count, Start: int64(start), Wait: wait, Op: tape.Signature{Call: lifecycle.CallAllReduce},
		})
	}
	report(stall.Slow, 0, 1, tape.ActNone, 4*time.Second, 3)
	expect("slow is not stalled", "")

	report(stall.Stalled, 1, 1, tape.ActNone, 4*time.Second, 3)
	report(stall.Stalled, 1, 2, tape.ActNone, 5*time.Second, 0)
	report(stall.Stalled, 1, 3, tape.ActInit, 2*time.Second, -1)
	report(stall.Stalled, 2, 1, tape.ActNone, 4*time.Second, 3)
	expect("three are", `
# HELP ccl_stall_age_seconds How long the oldest of those that are stalled has taken until now, and the rank that it waits for.
# TYPE ccl_stall_age_seconds gauge
ccl_stall_age_seconds{comm="world",kind="all_reduce",wait_rank="3"} 6
ccl_stall_age_seconds{comm="world",kind="init",wait_rank="none"} 8
# HELP ccl_stalled_operations Operations and acts that are stalled now, by communicator name and kind.
# TYPE ccl_stalled_operations gauge
ccl_stalled_operations{comm="world",kind="all_reduce"} 2
ccl_stalled_operations{comm="world",kind="init"} 1
`)
	report(stall.Cleared, 2, 1, tape.ActNone, 4*time.Second, 3)
	report(stall.Cleared, 1, 2, tape.ActNone, 5*time.Second, 0)
	report(stall.Cleared, 1, 3, tape.ActInit, 2*time.Second, -1)
	expect("all went on", `
# HELP ccl_stalled_operations Operations and acts that are stalled now, by communicator name and kind.
# TYPE ccl_stalled_operations gauge
ccl_stalled_operations{comm="world",kind="all_reduce"} 0
ccl_stalled_operations{comm="world",kind="init"} 0
`)
	for kind, want := range map[string]float64{"all_reduce": 2, "init": 1, "barrier": 0, "split": 0} {
		found := false
		for _, m := range gather(t, registry)[semconv.MetricStalls] {
			if labels(m) == "kind="+kind {
				found = true
				if got := m.GetCounter().GetValue(); got != want {
					t.Errorf("%v of %s, want %v", got, kind, want)
				}
			}
		}
		if !found {
			t.Errorf("no series for %s", kind)
		}
	}
}
