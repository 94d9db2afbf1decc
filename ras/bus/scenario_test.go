package bus_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// TestScenarios plays the files in testdata, in virtual time: what a command answers is what a subscriber gets of it.
// The commands:
//
//	once|open|change|close KEY [cause=KEY] [job=JOB] [warning|critical]
//	            publishes, with the input as text; KEY is "-" for none
//	wait TIME   lets time go by
//	end         closes the bus
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) {
			b := newBus(t, bus.Config{})
			s := b.Attach(bus.Filter{}, "")
			began := time.Now()
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				out := command(t, b, d)
				synctest.Wait()
				for s.Waiting() {
					out += fmt.Sprintf("%v %s\n", time.Since(began), shown(next(t, s)))
				}
				return out
			})
		})
	})
}

func command(t *testing.T, b *bus.Bus, d *datadriven.TestData) string {
	if d.Cmd == "end" {
		b.Close()
		return ""
	}
	if len(d.CmdArgs) == 0 {
		d.Fatalf(t, "%s what?", d.Cmd)
	}
	if d.Cmd == "wait" {
		wait, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		time.Sleep(wait) // virtual
		return ""
	}
	stages := map[string]bus.Stage{"once": bus.Once, "open": bus.Opened, "change": bus.Changed, "close": bus.Closed}
	stage, known := stages[d.Cmd]
	if !known {
		d.Fatalf(t, "there is no command %q", d.Cmd)
	}
	ev := bus.Event{Type: semconv.EventPrefix + d.Cmd, Stage: stage, Text: d.Input}
	if key := d.CmdArgs[0].Key; key != "-" {
		ev.Key = key
	}
	d.MaybeScanArgs(t, "cause", &ev.Cause)
	d.MaybeScanArgs(t, "job", &ev.Job)
	for _, severity := range []bus.Severity{bus.Warning, bus.Critical} {
		if d.HasArg(severity.String()) {
			ev.Severity = severity
		}
	}
	if err := b.Publish(ev); err != nil {
		d.Fatalf(t, "%v", err)
	}
	return ""
}

func shown(ev *bus.Event) string {
	out := fmt.Sprintf("%s %s %s", ev.Severity, strings.TrimPrefix(ev.Type, semconv.EventPrefix), ev.Key)
	if ev.Text != "" {
		out += ": " + ev.Text
	}
	if ev.Repeats > 0 {
		out += fmt.Sprintf(" (%d like it)", ev.Repeats)
	}
	if ev.Suppressed > 0 {
		out += fmt.Sprintf(" (%d symptoms)", ev.Suppressed)
	}
	return out
}

// newBus makes a Bus that ends with the test.
func newBus(t *testing.T, cfg bus.Config) *bus.Bus {
	t.Helper()
	b := bus.New(cfg)
	t.Cleanup(b.Close)
	return b
}

// next takes what must be there already.
func next(t *testing.T, s *bus.Subscription) *bus.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ev, err := s.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return ev
}
