package watch

import (
	"strings"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// history tells what is news. Every process tells the same verdicts and ranks' ends, with ids of its own; a listener
// that goes on with another one is told much for the second time. What comes more often than it did from the others is
// news.
type history struct {
	seen  map[what]int // by all that were listened to
	now   map[what]int // by the one that is
	moved time.Time    // when the last one that was listened to was given up; zero: it is the first
}

// what an event tells, whoever tells it. Words may differ: each process sees with its own eyes.
type what struct {
	kind, key, subject string
	stage              bus.Stage
}

// maxSeen bounds what is remembered. A job in which more happened between two ranks' ends is told some of it twice.
const maxSeen = 1 << 14

// begin says that another process is listened to from now on.
func (h *history) begin(at time.Time) {
	if h.seen == nil {
		h.seen = map[what]int{}
	} else {
		h.moved = at
	}
	h.now = map[what]int{}
}

// news tells whether the event wasn't told before.
func (h *history) news(ev *bus.Event) bool {
	if ev.Notice() {
		return h.moved.IsZero() // of events that are missing, unless they are known from elsewhere
	}
	kind := strings.TrimPrefix(ev.Type, semconv.EventPrefix)
	if !strings.HasPrefix(kind, "verdict.") && !strings.HasPrefix(kind, "rank.") {
		return true // what a process tells of itself alone
	}
	if len(h.seen) > maxSeen {
		clear(h.seen)
		clear(h.now)
	}
	if ev.Type == semconv.EventRankJoined && ev.Time.Before(h.moved) {
		return false // the former one didn't tell of itself, or was gone before it heard of it
	}
	w := what{ev.Type, ev.Key, ev.Subject, ev.Stage}
	h.now[w]++
	if h.now[w] <= h.seen[w] {
		return false
	}
	h.seen[w] = h.now[w]
	return true
}
