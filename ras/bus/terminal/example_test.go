package terminal_test

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/terminal"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

func Example() {
	b, err := bus.New(bus.Config{})
	if err != nil {
		log.Fatal(err)
	}
	sink := terminal.New(b, bus.SubscriptionConfig{}, os.Stdout)
	err = b.Publish(bus.Event{
		Type: semconv.EventRankDead, Severity: bus.Critical, Subject: "rank 3", Text: "killed by signal 9",
		Time: time.Date(2025, 3, 4, 6, 12, 3, 0, time.Local),
	})
	if err != nil {
		log.Fatal(err)
	}
	b.Close() // Run returns when what is queued is written
	if err := sink.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output: 06:12:03 CRITICAL rank.dead rank 3: killed by signal 9
}
