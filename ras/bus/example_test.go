package bus_test

import (
	"context"
	"fmt"
	"log"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// A rank dies, and the communicators that it was in stall. Subscribers hear of the death alone.
func Example() {
	b := bus.New(bus.Config{Source: "/jobs/train/ranks/0", Job: "train"})
	news := b.Attach(bus.Filter{Least: bus.Warning}, "")
	for _, ev := range []bus.Event{
		{
			Type: semconv.EventVerdictOpened, Stage: bus.Opened, Key: "dead/3", Severity: bus.Critical, Rank: "3",
			Reason: "rank_dead",
			Text:   "rank 3 was killed by signal 9",
		},
		{
			Type: semconv.EventCommFailed, Stage: bus.Opened, Key: "comm/world", Cause: "dead/3",
			Severity: bus.Critical, Text: "world can't be used any more",
		},
		{Type: semconv.EventVerdictWithdrawn, Stage: bus.Closed, Key: "dead/3", Text: "rank 3 was replaced"},
	} {
		if err := b.Publish(ev); err != nil {
			log.Fatal(err)
		}
	}
	b.Close() // what is queued is still delivered
	for ev := range news.Events(context.Background()) {
		fmt.Printf("%v %v: %s; %d symptoms\n", ev.Severity, ev.Stage, ev.Text, ev.Suppressed)
	}
	// Output:
	// critical opened: rank 3 was killed by signal 9; 0 symptoms
	// info closed: rank 3 was replaced; 1 symptoms
}
