package bus_test

import (
	"context"
	"sync"
	"testing"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/bustest"
)

func TestChannelConforms(t *testing.T) {
	bustest.Run(t, bustest.Subject{New: func(t *testing.T, b *bus.Bus, filter bus.Filter, queue int,
		r *bustest.Receiver,
	) bus.Sink {
		sink, err := bus.NewChannel(bus.ChannelConfig{Bus: b, Filter: filter, Queue: queue})
		if err != nil {
			t.Fatal(err)
		}
		var reader sync.WaitGroup
		ctx, stop := context.WithCancel(context.Background())
		reader.Go(func() {
			for {
				select {
				case ev, ok := <-sink.C():
					if !ok {
						return
					}
					r.Take([]byte(ev.Text))
				case <-ctx.Done():
					return
				}
			}
		})
		t.Cleanup(func() { stop(); reader.Wait() })
		return sink
	}})
}
