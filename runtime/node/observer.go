package node

import (
	"context"
	"slices"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/stall"
)

// Observer is told what the process's communicators do. Each of its functions may be nil. Step and Stall are called one
// at a time, by the goroutine that reads the tape. They should be quick, as the tape's rings overwrite records that are
// read too late, and must not keep their arguments.
type Observer struct {
	// Step takes the steps of the process: all acts and errors, the operations that waited, were slow or did not end
	// well, and a sample of the others, 1 in tape.DefaultSampleEvery, or all if each operation is logged. The metrics
	// count the rest from the tape's tallies.
	Step func(s *model.Step)
	// Stall takes reports of operations and acts that are slow, stalled, or no longer so.
	Stall func(r *stall.Report)
	// Event takes RAS's events: verdicts that are opened, changed and withdrawn, and events of ranks and GPUs. It is
	// called by a goroutine of its own, from a bounded queue, and must not change the event.
	Event func(ev *bus.Event)
}

// listener is the sink that passes events to the observers; nil if none takes any.
func listener(local *bus.Bus, observers []Observer) bus.Sink {
	told := slices.DeleteFunc(slices.Clone(observers), func(o Observer) bool { return o.Event == nil })
	if len(told) == 0 {
		return nil
	}
	return bus.NewSink(local, "observers", bus.Filter{}, func(_ context.Context, ev *bus.Event) error {
		for _, o := range told {
			o.Event(ev)
		}
		return nil
	})
}
