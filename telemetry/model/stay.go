package model

import (
	"time"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

// StayWindow is how far back a Stay goes.
const StayWindow = 20 * time.Second

const (
	stayParts   = 20 // of the window
	partTime    = int64(StayWindow) / stayParts
	longestLook = int64(time.Second) // the most time that one look stands for
)

// Device is the activity of a communicator's device as seen by looks at its marks. The tape can't show it later.
type Device struct {
	Moved int64 // it made progress after this time; 0: none was seen
	Stay  Stay
}

// Stay is how a communicator's device spent the last StayWindow, by looks at random moments.
type Stay struct {
	Span
	Newer Span // of the newer half
}

// Span is how a communicator's device spent some time. Durations are in nanoseconds.
type Span struct {
	Looks int
	Over  int64 // the time that the looks stand for
	// Inside is the time in collectives that the device had reached and that no rank can complete alone. Each one
	// counts for longestWait at most.
	Inside int64
	// Busy is an upper bound of the time that the device was in operations. Unknown time counts: in operations without
	// a mark, or that the device may not have reached, and with graphs.
	Busy int64
	Ops  int // collectives seen from inside
	Done int // collectives that were completed, seen or not
}

func (s *Span) add(o *Span) {
	s.Looks, s.Over, s.Inside, s.Busy = s.Looks+o.Looks, s.Over+o.Over, s.Inside+o.Inside, s.Busy+o.Busy
	s.Ops, s.Done = s.Ops+o.Ops, s.Done+o.Done
}

// staying holds the result of the last look, and the sums of looks for each part of the window.
type staying struct {
	op     uint64 // that the device was in
	since  int64  // the first look that saw it
	done   uint64
	looked bool
	parts  *[stayParts]stayPart // by number, modulo their count
}

// stayPart is the sum of the looks in one part of the window.
type stayPart struct {
	Span
	number int64
}

// stay adds a look at the communicator now, which stands for the time took.
func (c *Comm) stay(p *Process, now, took int64) {
	if !c.Enqueues() {
		return
	}
	was := c.staying
	if was.parts == nil {
		was.parts = new([stayParts]stayPart)
	}
	number := now / partTime
	part := &was.parts[number%stayParts]
	if part.number != number {
		*part = stayPart{number: number}
	}
	c.staying = staying{done: c.Done, looked: true, parts: was.parts}
	part.Looks++
	part.Over += took
	if was.looked && c.Done > was.done {
		part.Done += int(c.Done - was.done)
	}
	if p.mayBeBusy(c, now) {
		part.Busy += took
	}
	if s := c.Slot; s != nil && s.Launched != s.Completed && s.Reached && s.Op.Meets() {
		if c.staying.op, c.staying.since = s.Seq, was.since; was.since == 0 || was.op != s.Seq {
			c.staying.since = now
			part.Ops++
		}
		if now-c.staying.since < longestWait {
			part.Inside += took
		}
	}
	c.Stay = Stay{}
	for i := range was.parts {
		part := &was.parts[i]
		if number-part.number < stayParts {
			c.Stay.add(&part.Span)
		}
		if number-part.number < stayParts/2 {
			c.Stay.Newer.add(&part.Span)
		}
	}
}

// mayBeBusy tells whether the communicator's device may be in one of its operations. An operation that may be
// unfinished, but would have stalled by now, is not counted: it shows no repeated waits.
func (p *Process) mayBeBusy(c *Comm, now int64) bool {
	s := c.Slot
	switch {
	case s == nil || s.Captured > 0:
		return true
	case s.Launched != s.Completed:
		return s.Phase != tape.PhaseQueued
	case s.Unproven || !s.Marked && s.Launched > 0:
		_, stalled := p.Thresholds(&c.Last)
		return p.Age(max(s.OpStart, c.Moved), now) < stalled
	default:
		return false
	}
}
