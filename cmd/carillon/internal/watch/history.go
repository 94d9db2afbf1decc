package watch

import (
	"strings"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// history filters out events that were shown before. All processes report the same verdicts and ends of ranks, but with
// ids of their own, so the events come again after a switch to another process. An event is news if the process has
// sent it more often than any process before.
type history struct {
	seen     map[eventKey]int // the most that any process sent
	now      map[eventKey]int // by the current process
	switched time.Time        // the time of the last switch; zero: none
}

// eventKey identifies an event of any process. Their texts may differ.
type eventKey struct {
	kind, key, subject string
	stage              bus.Stage
}

// maxSeen bounds the memory. Beyond it, some events are shown twice after a switch.
const maxSeen = 1 << 14

// begin notes a switch to another process.
func (h *history) begin(at time.Time) {
	if h.seen == nil {
		h.seen = map[eventKey]int{}
	} else {
		h.switched = at
	}
	h.now = map[eventKey]int{}
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
	}
	if ev.Type == semconv.EventRankJoined && ev.Time.Before(h.switched) {
		return false // the process before didn't report its own join, or ended before it heard of this one
	}
	w := eventKey{ev.Type, ev.Key, ev.Subject, ev.Stage}
	h.now[w]++
	if h.now[w] <= h.seen[w] {
		return false
	}
	h.seen[w] = h.now[w]
	return true
}
