package bus_test

import (
	"context"
	"errors"
	"testing"

	"github.com/carillon-rt/carillon/ras/bus"
)

// TestSinkCounts: an event that isn't accepted has failed, unless it was the end of the context that prevented it.
func TestSinkCounts(t *testing.T) {
	b := newBus(t, bus.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	sink := bus.NewSink(b, "fails", bus.Filter{}, func(_ context.Context, ev *bus.Event) error {
		if ev.Text == "last" {
			cancel()
		}
		return errors.New("no")
	})
	publish(t, b, "first")
	publish(t, b, "last")
	if err := sink.Run(ctx); err != nil || sink.Stats() != (bus.Stats{Failed: 1}) {
		t.Errorf("%v, %+v", err, sink.Stats())
	}
}
