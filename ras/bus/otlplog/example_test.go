package otlplog_test

import (
	"context"
	"fmt"
	stdlog "log"

	"go.opentelemetry.io/otel/log"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/otlplog"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

func Example() {
	// In the place of a LoggerProvider's Logger.
	to := logger{emit: func(r log.Record) { fmt.Println(r.EventName(), r.Severity(), r.Body().AsString()) }}

	b := bus.New(bus.Config{})
	sink := otlplog.New(b, bus.Filter{}, to)
	err := b.Publish(bus.Event{
		Type: semconv.EventRankDead, Severity: bus.Critical, Text: "rank 3 was killed by signal 9",
	})
	if err != nil {
		stdlog.Fatal(err)
	}
	b.Close() // Run returns when what is queued is handed over
	if err := sink.Run(context.Background()); err != nil {
		stdlog.Fatal(err)
	}
	// Output: dev.carillon.rank.dead ERROR rank 3 was killed by signal 9
}
