package node_test

import (
	"context"
	"log/slog"
	"testing"

	"go.uber.org/fx"

	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Ordinary operations are counted once each, including those of ended communicators, and the counters keep their values
// after Stop.
func TestOperationsAreCounted(t *testing.T) {
	cfg := node.Default()
	cfg.TapeDir, cfg.Health, cfg.Log = t.TempDir(), "", slog.New(slog.DiscardHandler)
	var rt *ccl.Runtime
	var telemetry *node.Telemetry
	app := fx.New(node.Module, fx.Supply(&cfg), fx.NopLogger, fx.Populate(&rt, &telemetry))
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	const lives, ranks, count = 3, 2, 3000
	for range lives {
		j := &job{}
		var err error
		if j.comms, err = rt.InitAll(t.Context(), ranks); err != nil {
			t.Fatal(err)
		}
		if _, err := j.round(t.Context(), count); err != nil {
			t.Fatal(err)
		}
		for _, c := range j.comms {
			if err := c.Destroy(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := float64(lives * ranks * count)
	if got := counters(t, telemetry)[semconv.MetricOperations]; got != want {
		t.Errorf("%v operations are counted while it runs, want %v", got, want)
	}
	if err := app.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	after := counters(t, telemetry)
	if got := after[semconv.MetricOperations]; got != want {
		t.Errorf("%v operations are counted after the end, want %v", got, want)
	}
	if got := after[semconv.MetricBytes]; got != want*1024 {
		t.Errorf("%v bytes are counted after the end, want %v", got, want*1024)
	}
}
