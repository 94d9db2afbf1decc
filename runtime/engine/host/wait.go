package host

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// operation is a collective, an agreement, or a group of sends and receives in progress.
type operation interface {
	pass() (moved, done bool, err error) // does all that can be done now
	waitsFor() int                       // the rank that blocks it, -1 for none
	wants(rank int) int                  // bytes still wanted from that rank; endless if it must still receive some
	agreed() bool                        // have all headers been exchanged?
}

// waiting describes how the running operation is blocked.
type waiting struct {
	ctx        context.Context
	collective uint64 // its number; 0 for messages
	op         operation
	idles      int       // passes without progress
	since      time.Time // when the first sleep since the last progress began; zero if there was none
	phase      tape.Phase
	began      int64 // when the operation began, by tape.Now; 0 without a tape
	slow       bool  // the tape has what the operation had sent to other nodes when it became slow
}

func (e *Engine) drive(o operation) error {
	for {
		moved, done, err := o.pass()
		switch {
		case err != nil:
			return err
		case moved || done:
			e.proceed()
		default:
			err = e.idle(o)
		}
		if err != nil || done {
			return err
		}
	}
}

// idle is called when nothing moved. It returns when it is worthwhile to look again, or with an error when the
// operation can no longer succeed.
func (e *Engine) idle(o operation) error {
	e.w.op = o
	e.w.idles++
	if err := e.comm.Stopped(); err != nil {
		return err
	}
	if _, err := e.links.FirstLost(); err != nil {
		if err := e.lostPeers(o); err != nil {
			return err
		}
	}
	if err := e.waiter.Idle(e.w.ctx); err != nil {
		p := e.comm.PeerError(lifecycle.CodeOf(err), o.waitsFor(), "the operation was abandoned")
		p.Err, p.Since = err, e.w.since
		if p.Since.IsZero() {
			p.Since = time.Now() // it had not waited long enough to read the clock
		}
		return p
	}
	return nil
}

// proceed is called when something moved.
func (e *Engine) proceed() {
	if e.w.idles == 0 {
		return
	}
	e.waiter.Active()
	e.w.idles = 0
	if !e.w.since.IsZero() {
		e.w.since = time.Time{}
		e.comm.WaitsFor(-1)
	}
}

// report writes onto the tape which rank the operation waits for, and in which phase, if that has changed. The Waiter
// calls it before it sleeps: shorter waits are part of every operation.
func (e *Engine) report() {
	o := e.w.op
	if o == nil {
		return
	}
	phase := tape.PhaseAgree
	if o.agreed() {
		phase = tape.PhaseTransfer
	}
	peer := o.waitsFor()
	if peer >= 0 {
		phase = e.blocked(peer, phase)
	}
	first := e.w.since.IsZero()
	if first {
		e.w.since = time.Now()
	}
	if phase != e.w.phase {
		e.w.phase = phase
		e.tape.Phase(phase)
	}
	if !e.w.slow && len(e.proxied) > 0 && e.tape.Slow() {
		e.w.slow = true
		e.tellProxied(lifecycle.CodeInProgress)
	}
	if _, _, told, _ := e.comm.Current(); first || peer != told {
		e.comm.WaitsFor(peer)
	}
}

// blocked returns the phase of an operation that waits for a rank: phase, unless data for that rank is held up here.
func (e *Engine) blocked(rank int, phase tape.Phase) tape.Phase {
	to := e.all[rank].proxied
	if to == nil {
		return phase
	}
	waits := to.Waits()
	if waits == tape.PhaseNone || waits == tape.PhaseCredit && phase != tape.PhaseTransfer { // the peer isn't there yet
		return phase
	}
	to.waits(waits)
	return waits
}

// lostPeers returns the error of an operation that the loss of a peer affects. It takes the first such loss, as later
// ones may be its consequences. A peer that gave up (a notice) makes the others give up, too, except on a collective
// that it has completed: this rank can complete it as well. Any other loss matters if the operation wants more from the
// peer than it has sent.
func (e *Engine) lostPeers(o operation) error {
	for r, err := range e.links.Waiter().Losses() {
		notice, ok := errors.AsType[*transport.NoticeError](err)
		if ok && (e.w.collective == 0 || notice.Notice.Passed < e.w.collective) {
			return e.lost(r, err)
		}
		if n := o.wants(r); n > 0 && !e.suffices(r, n) {
			return e.lost(r, err)
		}
	}
	return nil
}
