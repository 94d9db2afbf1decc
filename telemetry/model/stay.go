package model

import (
	"math"
	"time"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

const (
	stayFades   = float64(30 * time.Second) // in which what was seen comes to weigh 1/e
	longestLook = int64(time.Second)        // the most time that one look stands for
)

// Device is what looks at a communicator's marks saw its device do, which the tape doesn't tell of a later moment.
type Device struct {
	Moved int64 // it has done more since then; 0: it was not seen to
	Stay  Stay
}

// Stay is how a communicator's device spent its time lately, by looks at random moments. What is past fades, the same
// on all ranks, so that those of one communicator compare. Durations are in nanoseconds.
type Stay struct {
	Looks float64 // as many that weigh the same would tell as much
	Over  int64   // the time that they stand for
	// Inside is the time in collectives that no rank can complete alone, and that the device had come to; of each one
	// no more than of a wait counts.
	Inside int64
	// Busy is the most that the device was in operations. What isn't known counts: in operations without a mark, or
	// that the device may not have come to, and with graphs.
	Busy int64
	Ops  float64 // collectives seen from inside
	Done float64 // collectives that were done, seen or not

	squares float64 // the sum of the squares of the looks' weights, each of which fades from 1
	weights float64
}

// staying is what the last look saw.
type staying struct {
	op    uint64 // that the device was in
	since int64  // the first look that saw it
	done  uint64
}

// stay adds a look at the communicator now, which stands for the time took. What was seen before fades to that part.
func (c *Comm) stay(p *Process, now, took int64, fade float64) {
	if !c.Enqueues() {
		return
	}
	s, was := &c.Stay, c.staying
	faded := func(d int64) int64 { return int64(math.Round(float64(d) * fade)) }
	s.Over, s.Inside, s.Busy = faded(s.Over)+took, faded(s.Inside), faded(s.Busy)
	s.Ops, s.Done = s.Ops*fade, s.Done*fade
	s.weights, s.squares = s.weights*fade+1, s.squares*fade*fade+1
	s.Looks = s.weights * s.weights / s.squares
	if c.staying = (staying{done: c.Done}); c.Done > was.done && s.weights > 1 {
		s.Done += float64(c.Done - was.done)
	}
	if p.mayBeBusy(c, now) {
		s.Busy += took
	}
	slot := c.Slot
	if slot == nil || slot.Launched == slot.Completed || !slot.Reached || !slot.Op.Meets() {
		return
	}
	if c.staying.op, c.staying.since = slot.Seq, was.since; was.since == 0 || was.op != slot.Seq {
		c.staying.since = now
		s.Ops++
	}
	if now-c.staying.since < longestWait {
		s.Inside += took
	}
}

// mayBeBusy tells whether the communicator's device may be in an operation of it. One that may not be done, which
// would stall by now, is not counted: nobody waits in it again and again.
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
