package trace_test

import (
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

func benchProjector(b *testing.B) *fed {
	b.Setenv("OTEL_TRACES_EXPORTER", "none")
	process := model.New(model.Limits{})
	p, err := trace.New(b.Context(), trace.Config{Process: process, Wall: wall})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.Close(b.Context()) })
	return &fed{p, process}
}

// BenchmarkOperation measures the cost of following an operation that ends well, with the default sampling.
func BenchmarkOperation(b *testing.B) {
	p := benchProjector(b)
	ev := tape.Event{Comm: world, Op: tape.OpRecord{
		Stage: tape.StageEnd, Wait: -1, Signature: tape.Signature{
			Call: lifecycle.CallAllReduce, DataType: 7,
			Peer: -1, Bytes: 1024,
		},
	}}
	b.ReportAllocs()
	for b.Loop() {
		ev.Op.Seq++
		ev.Op.Time += 2000
		ev.Op.Start = ev.Op.Time - 1000
		p.observe(&ev)
	}
}

// BenchmarkAct is the start and end of a group job.
func BenchmarkAct(b *testing.B) {
	p := benchProjector(b)
	ev := tape.Event{Comm: world, IsLife: true, Life: tape.LifeRecord{
		Act: tape.ActGroup, Call: lifecycle.CallGroupEnd,
		Peer: -1, Site: site(1),
	}}
	b.ReportAllocs()
	for b.Loop() {
		ev.Life.Seq++
		ev.Life.Stage, ev.Life.Time = tape.StageStart, ev.Life.Time+1000
		p.observe(&ev)
		ev.Life.Stage, ev.Life.Time, ev.Life.Start = tape.StageEnd, ev.Life.Time+1000, ev.Life.Time
		p.observe(&ev)
	}
}
