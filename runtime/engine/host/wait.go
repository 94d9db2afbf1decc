package host

import (
	"context"
	"errors"
	"time"

	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// blocked is an operation in which nothing moves: a collective, an agreement, or a group of sends and receives.
type blocked interface {
	waitsFor() int      // the rank without which it can't go on, -1 if none
	wants(rank int) int // bytes that it still wants from that rank; endless if that rank must take some
	agreed() bool       // are the headers through?
}

// waiting is how the running operation is blocked.
type waiting struct {
	ctx        context.Context
	collective uint64 // its number; 0 for messages
	op         blocked
	idles      int       // passes without progress
	since      time.Time // when the first sleep since the last progress began; zero if there was none
	phase      tape.Phase
}

// sleeper has the engine told when its Waiter is about to sleep. A wait that ends before that is part of every
// operation; one that does not must be known to others before the rank falls asleep.
type sleeper struct{ e *Engine }

// Rest implements transport.Rester.
func (s sleeper) Rest() { s.e.report() }

// idle is called when nothing moved. It returns when it is worth while to look again, or with an error when the
// operation can't succeed any more.
func (e *Engine) idle(b blocked) error {
	e.w.op = b
	e.w.idles++
	if s := e.stopped.Load(); s != nil {
		return s.err
	}
	if _, err := e.links.FirstLost(); err != nil {
		if err := e.lostPeers(b); err != nil {
			return err
		}
	}
	if err := e.waiter.Idle(e.w.ctx); err != nil {
		return e.expired(b, err)
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
		e.now.peer.Store(-1)
		e.tape.Wait(-1)
	}
}

// report puts on the tape for which rank the operation waits, and in which phase, if that is new.
func (e *Engine) report() {
	b := e.w.op
	if b == nil {
		return
	}
	phase := tape.PhaseAgree
	if b.agreed() {
		phase = tape.PhaseTransfer
	}
	peer := int32(b.waitsFor())
	first := e.w.since.IsZero()
	if first {
		e.w.since = time.Now()
	}
	if phase != e.w.phase {
		e.w.phase = phase
		e.tape.Phase(phase)
	}
	if first || peer != e.now.peer.Load() {
		e.now.peer.Store(peer)
		e.tape.Wait(peer)
	}
}

// lostPeers returns the error of an operation to which the loss of a peer matters. One that gave up (a notice) takes
// the others along, but not out of a collective that is done on its side: all have called that, and it can be done
// here, too. One that died, or for which a collective is done, matters if more is wanted of it than it has sent. A peer
// that has left in good order is not even lost: it was faster.
func (e *Engine) lostPeers(b blocked) error {
	for r := range e.all {
		err := e.links.Lost(r)
		if err == nil {
			continue
		}
		var notice *transport.NoticeError
		if errors.As(err, &notice) && (e.w.collective == 0 || notice.Notice.Passed < e.w.collective) {
			return e.lost(r, err)
		}
		if n := b.wants(r); n > 0 && !e.suffices(r, n) {
			return e.lost(r, err)
		}
	}
	return nil
}
