package trace_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/otlp"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// TestErrorsAreExportedSoon though a batch would wait for an hour; and at most five times a second.
func TestErrorsAreExportedSoon(t *testing.T) {
	failure, act := ended(t, true, false), ended(t, false, false)
	exporter := newStuck()
	g := trace.NewGate(exporter, slog.New(slog.DiscardHandler),
		otlp.Batching{Queue: 2048, Batch: 512, Delay: time.Hour, Timeout: time.Minute})
	start := time.Now()
	g.OnEnd(act) // exported along with the urgent spans
	for range 3 {
		g.OnEnd(failure)
		<-exporter.entered
		exporter.release <- nil
	}
	if d := time.Since(start); d < 3*200*time.Millisecond {
		t.Errorf("three exports within %v: each error has one of its own", d)
	}
	if err := g.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := g.Stats(); got != (trace.Stats{Exported: 4}) {
		t.Errorf("Stats = %+v, want 4 exported", got)
	}
}

// TestInterrupt has an init and an operation open when the process is told to end.
func TestInterrupt(t *testing.T) {
	p := newProjector(t, func(c *trace.Config) { c.Now = func() int64 { return 9 * ms } })
	p.life(world, tape.LifeRecord{Act: tape.ActInit, Stage: tape.StageStart, Time: ms})
	p.life(world, tape.LifeRecord{
		Act: tape.ActInit, Stage: tape.StagePhase, Phase: tape.PhaseRendezvous,
		Time: 2 * ms, Start: ms,
	})
	p.model.Look([]tape.Slot{{
		CommInfo: world, Generation: uint32(world.ID[0]), Seq: 3, Launched: 3, Completed: 2, OpStart: 4 * ms, Wait: 2,
		Op: tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1},
	}}, nil)
	p.Interrupt("SIGTERM comes")
	want := map[string]string{
		"ccl.comm.init":  "unfinished: SIGTERM comes before the init does, in phase rendezvous",
		"ccl.all_reduce": "unfinished: SIGTERM comes before the all_reduce does, waiting for rank 2",
	}
	for _, s := range p.exporter.GetSpans() {
		if want[s.Name] == s.Status.Description && s.EndTime.Equal(wall(9*ms)) {
			delete(want, s.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("no span of %v:\n%s", want, describe(p.exporter.GetSpans()))
	}
}

// forever is an exporter that doesn't return before it is released, even if its context ends.
type forever struct{ entered, release chan struct{} }

func (f forever) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	select {
	case f.entered <- struct{}{}:
	default:
	}
	<-f.release
	return nil
}

func (forever) Shutdown(context.Context) error { return nil }

// BenchmarkExporterThatBlocks measures the cost of following operations that all have a span, with an exporter that
// always blocks and with none. Both take turns, so that other load on the machine affects them alike.
func BenchmarkExporterThatBlocks(b *testing.B) {
	const round = 1000
	ev := tape.Event{Comm: world, Op: tape.OpRecord{
		Stage: tape.StageEnd, Wait: -1, Code: lifecycle.CodeTimeout,
		Signature: tape.Signature{Call: lifecycle.CallAllReduce, Peer: -1, Bytes: 1024},
	}}
	type side struct {
		fed
		spent time.Duration
	}
	b.Setenv("OTEL_TRACES_EXPORTER", "none")
	build := func(processors ...sdktrace.SpanProcessor) *side {
		process := model.New(model.Limits{})
		p, err := trace.New(b.Context(), trace.Config{Process: process, Wall: wall, Processors: processors})
		if err != nil {
			b.Fatal(err)
		}
		return &side{fed: fed{p, process}}
	}
	stuck := forever{make(chan struct{}, 1), make(chan struct{})}
	gate := trace.NewGate(stuck, slog.New(slog.DiscardHandler), // the projector doesn't end it
		otlp.Batching{Queue: 2048, Batch: 512, Delay: time.Second, Timeout: time.Minute})
	blocked, none := build(gate), build()
	for b.Loop() {
		for _, s := range []*side{blocked, none} {
			start := time.Now()
			for range round {
				ev.Op.Seq++
				ev.Op.Time += 2000
				ev.Op.Start = ev.Op.Time - 1000
				s.observe(&ev)
			}
			s.spent += time.Since(start)
		}
	}
	n := float64(b.N * round)
	b.ReportMetric(float64(blocked.spent)/n, "blocked-ns/span")
	b.ReportMetric(float64(none.spent)/n, "none-ns/span")
	b.ReportMetric(float64(blocked.spent)/float64(none.spent), "ratio")
	<-stuck.entered
	close(stuck.release)
	for _, s := range []*side{blocked, none} {
		if err := s.Close(context.Background()); err != nil {
			b.Error(err)
		}
	}
	if err := gate.Shutdown(context.Background()); err != nil {
		b.Error(err)
	}
}
