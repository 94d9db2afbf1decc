package watch

import (
	"strings"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// history filters out events that were already shown. All processes report the same verdicts and ends of ranks, but
// with ids of their own, so the events come again after a switch to another process. An event is news if the process
// has sent it more often than any process before, or if it closes a condition that the process's last news opened or
// changed: a new coordinator first changes a verdict that the last coordinator has already withdrawn, and then
// withdraws it as well.
type history struct {
	seen     map[eventKey]int // the most that any process sent
	now      map[eventKey]int // by the current process
	open     map[jobKey]bool  // conditions that the current process's last news left open
	switched time.Time        // the time of the last switch; zero: none
}

// eventKey identifies an event of any process. Their texts may differ.
type eventKey struct {
	job, kind, key, subject string
	stage                   bus.Stage
}

// jobKey identifies a condition, of any job.
type jobKey struct{ job, key string }

// maxSeen bounds the memory. Beyond it, some events are shown twice after a switch.
const maxSeen = 1 << 14

// begin records a switch to another process.
func (h *history) begin(at time.Time) {
	if h.seen == nil {
		h.seen = map[eventKey]int{}
	} else {
		h.switched = at
	}
	h.now, h.open = map[eventKey]int{}, map[jobKey]bool{}
}

// news tells whether the event was not shown before.
func (h *history) news(ev *bus.Event) bool {
	if ev.Notice() {
		return h.switched.IsZero() // it is about missing events, which another process may have sent
	}
	kind := strings.TrimPrefix(ev.Type, semconv.EventPrefix)
	if !strings.HasPrefix(kind, "verdict.") && !strings.HasPrefix(kind, "rank.") {
		return true // an event of this process only
	}
	if len(h.seen) > maxSeen {
		clear(h.seen)
		clear(h.now)
		clear(h.open)
	}
	if ev.Type == semconv.EventRankJoined && ev.Time.Before(h.switched) {
		return false // the process before didn't report its own join, or ended before it heard of this one
	}
	w, condition := eventKey{ev.Job, ev.Type, ev.Key, ev.Subject, ev.Stage}, jobKey{ev.Job, ev.Key}
	h.now[w]++
	closes := ev.Stage == bus.Closed && h.open[condition]
	if h.now[w] <= h.seen[w] && !closes {
		return false
	}
	h.seen[w], h.open[condition] = max(h.seen[w], h.now[w]), ev.Stage == bus.Opened || ev.Stage == bus.Changed
	return true
}
