package metric

import (
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// nameSummary sums up the communicators of one name.
type nameSummary struct {
	inFlight  uint64
	oldest    time.Duration // age of the oldest operation in flight
	launched  uint64        // the highest
	completed uint64        // the lowest
	captured  uint64
}

// collectTable sums up the in-flight table by state and by name, so that the number of series is bounded.
func collectTable(to scrape, slots []tape.Slot, devices map[uint32]model.Device, names *names, now int64) {
	states, byName := make(map[lifecycle.State]int), make(map[string]*nameSummary)
	for i := range slots {
		s := &slots[i]
		states[s.State]++
		label := names.label(s.Name)
		n := byName[label]
		if n == nil {
			n = &nameSummary{completed: s.Completed}
			byName[label] = n
		}
		n.launched = max(n.launched, s.Launched)
		n.completed = min(n.completed, s.Completed)
		n.captured += s.Captured
		if s.Launched != s.Completed {
			n.inFlight += s.Launched - s.Completed
			n.oldest = max(n.oldest, time.Duration(now-max(s.OpStart, devices[s.Generation].Moved)))
		}
	}
	for _, state := range lifecycle.States() {
		if state != lifecycle.StateNone {
			to.gauge(semconv.MetricCommunicators, float64(states[state]), state.String())
		}
	}
	for name, n := range byName {
		to.gauge(semconv.MetricInFlight, float64(n.inFlight), name)
		to.gauge(semconv.MetricOldestAge, n.oldest.Seconds(), name)
		to.gauge(semconv.MetricLaunchedSeq, float64(n.launched), name)
		to.gauge(semconv.MetricCompletedSeq, float64(n.completed), name)
		to.gauge(semconv.MetricCaptured, float64(n.captured), name)
	}
}
