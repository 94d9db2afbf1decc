package trace_test

import (
	"context"
	"fmt"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/trace"
)

// A follower's events go into a Projector; the spans are in its Store, and at the collector if OTEL_* variables name
// one.
func ExampleProjector() {
	ctx := context.Background()
	process := model.New(model.Limits{})
	p, err := trace.New(ctx, trace.Config{
		Rank: 1, Process: process,
		Wall: func(mono int64) time.Time { return time.Unix(1_700_000_000, mono) }, // a follower's Header().Wall
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	world := tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 1, Size: 4}
	observe := func(stage tape.Stage, time int64) {
		step := process.Apply(&tape.Event{Comm: world, Generation: 1, IsLife: true, Life: tape.LifeRecord{
			Act: tape.ActDestroy, Call: lifecycle.CallDestroy, Stage: stage, Time: time, Start: 1000, Peer: -1,
		}})
		p.Observe(&step)
	}
	observe(tape.StageStart, 1000)
	observe(tape.StageEnd, 3000)

	for _, span := range p.Store().Acts(1)[0].Spans {
		fmt.Println(span.Name, span.Seconds, "s")
	}
	if err := p.Close(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// ccl.comm.destroy (started) 1e-09 s
	// ccl.comm.destroy 2e-06 s
}
