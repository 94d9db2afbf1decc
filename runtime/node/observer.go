package node

import (
	"context"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/stall"
)

// Observer is told what the process's communicators do. Each of its functions may be nil. Step and Stall are called one
// at a time, by the goroutine that reads the tape: they should be quick, as the tape's rings overwrite what is read too
// late. They must not keep their arguments.
type Observer struct {
	// Step takes the steps of the process: all acts and errors, and of operations those that waited, were slow or did
	// not end well, with a sample, 1 in tape.DefaultSampleEvery, of the others, or all of them where each is logged.
	// The metrics count what is left out from the tape's tallies.
	Step func(s *model.Step)
	// Stall takes reports of what is slow, stalled, or no longer so.
	Stall func(r *stall.Report)
	// Event takes RAS's events: verdicts that are opened, changed and withdrawn, and what happens to ranks and GPUs. It
	// is called by a goroutine of its own, from a bounded queue, and must not change the event.
	Event func(ev *bus.Event)
}

// listener is the sink that passes events to the observers; nil if none takes any.
func listener(local *bus.Bus, observers []Observer) bus.Sink {
	var told []func(*bus.Event)
	for i := range observers {
		if f := observers[i].Event; f != nil {
			told = append(told, f)
		}
	}
	if told == nil {
		return nil
	}
	return bus.NewSink(local, "observers", bus.Filter{}, func(_ context.Context, ev *bus.Event) error {
		for _, f := range told {
			f(ev)
		}
		return nil
	})
}
