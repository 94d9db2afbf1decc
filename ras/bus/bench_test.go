package bus_test

import (
	"fmt"
	"testing"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// BenchmarkPublish is what a publisher pays while nobody reads: for an event that is passed on, and one that is folded.
func BenchmarkPublish(b *testing.B) {
	for _, subscribers := range []int{0, 1, 1000} {
		for _, key := range []string{"", "gpu0"} {
			kind := "told"
			if key != "" {
				kind = "folded"
			}
			b.Run(fmt.Sprintf("subscribers=%d/%s", subscribers, kind), func(b *testing.B) {
				events := bus.New(bus.Config{})
				defer events.Close()
				for range subscribers {
					defer events.Attach(bus.Filter{}, "").Close()
				}
				ev := bus.Event{
					Type: semconv.EventGPUXid, Key: key, Severity: bus.Warning, Text: "Xid 79",
					Data: map[string]int{"xid": 79},
				}
				b.ReportAllocs()
				for b.Loop() {
					if err := events.Publish(ev); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
