package trace_test

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

const second = int64(1e9)

// TestDelivered: the callback gets the time until which everything was exported, and nothing more once a span was
// refused.
func TestDelivered(t *testing.T) {
	c := newCollector(t)
	refuse := false
	taken := c.Config.Handler
	c.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		taken.ServeHTTP(w, r)
	})
	var clock atomic.Int64
	var told []int64 // while Flush waits
	p := newProjector(t, func(cfg *trace.Config) {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
		t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
		cfg.Now = clock.Load
		cfg.Delivered = func(until int64) { told = append(told, until) }
	})
	for _, step := range []struct {
		at, now int64
		refuse  bool
		want    []int64
	}{
		{at: 1 * second, now: 3 * second, want: []int64{1 * second}},
		{at: 4 * second, now: 4 * second, want: []int64{4*second - 50*ms}}, // an earlier record may be on its way
		{at: 5 * second, now: 6 * second, want: []int64{5 * second}},
		{at: 6 * second, now: 7 * second, refuse: true},
		{at: 8 * second, now: 9 * second},
	} {
		told, refuse = nil, step.refuse
		clock.Store(step.now)
		p.act(world, tape.LifeRecord{Act: tape.ActFinalize}, step.at-ms, step.at)
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(told, step.want) {
			t.Errorf("at %d: told %v, want %v", step.at, told, step.want)
		}
	}
}

// TestDeliveredOfAQueue: spans still in the queue are not reported as exported, and all are in the end, however many
// come in between.
func TestDeliveredOfAQueue(t *testing.T) {
	var told []int64
	now := 100 * second
	d := trace.NewDeliveries(func(until int64) { told = append(told, until) }, func() int64 { return now })
	for n := range uint64(10) {
		d.Queued(n+1, int64(n+1)*second)
	}
	for _, n := range []uint64{0, 1, 9} {
		d.Reached(n)
	}
	d.Queued(12, 11*second)
	for _, n := range []uint64{10, 11, 12, 12} {
		d.Reached(n)
	}
	d.Queued(13, 100*second) // now: the first report doesn't cover it all; the rest comes with the next
	d.Reached(13)
	now = 101 * second
	d.Reached(14)
	d.Reached(15)
	if want := []int64{
		1 * second, 10 * second, 11 * second, 100*second - 50*ms, 100 * second,
	}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// TestDeliveredWithoutAClock: Delivered needs the time.
func TestDeliveredWithoutAClock(t *testing.T) {
	if _, err := trace.New(t.Context(), trace.Config{Wall: wall, Delivered: func(int64) {}}); err == nil ||
		!strings.Contains(err.Error(), "Config.Now") {
		t.Errorf("New: %v", err)
	}
}

// TestDroppedIsNotDelivered: once a span found the queue full, nothing is reported as exported, though all queued spans
// are.
func TestDroppedIsNotDelivered(t *testing.T) {
	c := newCollector(t)
	var told []int64
	p := newProjector(t, func(cfg *trace.Config) {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
		t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
		t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "1")
		t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
		cfg.Now = func() int64 { return 100 * second }
		cfg.Delivered = func(until int64) { told = append(told, until) }
	})
	for n := range int64(100) {
		p.act(world, tape.LifeRecord{Act: tape.ActFinalize, Seq: uint64(n)}, n*second, n*second+ms)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	stats, before := p.Stats(), len(told)
	p.act(world, tape.LifeRecord{Act: tape.ActFinalize, Seq: 100}, 100*second, 100*second+ms)
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if stats.Dropped == 0 || len(told) > before {
		t.Errorf("%d spans were dropped, and then told: %v", stats.Dropped, told[before:])
	}
}

// TestEndsAreNotLeftOut: an act that never ended gets its span, even if all ended ones were sent.
func TestEndsAreNotLeftOut(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.From = 10 * second })
	p.life(world, tape.LifeRecord{Act: tape.ActInit, Stage: tape.StageStart, Time: 1 * second})
	if spans := p.spans(); len(spans) != 1 || spans[0].Name != "ccl.comm.init" {
		t.Errorf("made %s, want the init that never ended", describe(spans))
	}
}

// TestLeftOutByTheTimeOfItsEvent: if an act's rank was unknown, a phase that ended long ago is not left out, as its
// process hasn't made its span yet.
func TestLeftOutByTheTimeOfItsEvent(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.From = 10 * second })
	child := world
	child.Rank = -1
	p.life(child, tape.LifeRecord{Act: tape.ActInit, Stage: tape.StageStart, Time: 1 * second})
	p.life(child, tape.LifeRecord{
		Act: tape.ActInit, Stage: tape.StagePhase, Phase: tape.PhaseTopology, Time: 2 * second,
	})
	p.life(child, tape.LifeRecord{
		Act: tape.ActInit, Stage: tape.StagePhase, Phase: tape.PhaseConnect, Time: 3 * second,
	})
	p.life(world, tape.LifeRecord{Act: tape.ActInit, Stage: tape.StageEnd, Time: 11 * second})
	var names []string
	for _, s := range p.spans() {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	if want := []string{
		"ccl.comm.init", "ccl.comm.init.connect", "ccl.comm.init.topology",
	}; !slices.Equal(names, want) {
		t.Errorf("made %q, want %q: the announcement was sent", names, want)
	}
}
