package trace_test

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

const second = int64(1e9)

// TestDelivered: who wants to know is told until when all was taken, and nothing any more once something was refused.
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
		{at: 4 * second, now: 4 * second, want: []int64{4*second - 50*ms}}, // a record of a moment before may be on its way
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

// TestDeliveredOfAQueue: what is still in the queue is not said to be taken, and all is in the end, however much comes in between.
func TestDeliveredOfAQueue(t *testing.T) {
	var told []int64
	d := trace.NewDeliveries(func(until int64) { told = append(told, until) }, func() int64 { return 100 * second })
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
	if want := []int64{1 * second, 10 * second, 11 * second}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// TestLeftOutByTheTimeOfItsEvent: of an act whose rank wasn't known, a phase that ended long ago is not left out, as its process hasn't made
// its span yet.
func TestLeftOutByTheTimeOfItsEvent(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.From = 10 * second })
	child := world
	child.Rank = -1
	p.life(child, tape.LifeRecord{Act: tape.ActInit, Stage: tape.StageStart, Time: 1 * second})
	p.life(child, tape.LifeRecord{Act: tape.ActInit, Stage: tape.StagePhase, Phase: tape.PhaseTopology, Time: 2 * second})
	p.life(child, tape.LifeRecord{Act: tape.ActInit, Stage: tape.StagePhase, Phase: tape.PhaseConnect, Time: 3 * second})
	p.life(world, tape.LifeRecord{Act: tape.ActInit, Stage: tape.StageEnd, Time: 11 * second})
	var names []string
	for _, s := range p.spans() {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	if want := []string{"ccl.comm.init", "ccl.comm.init.connect", "ccl.comm.init.topology"}; !slices.Equal(names, want) {
		t.Errorf("made %q, want %q: the announcement was sent", names, want)
	}
}
