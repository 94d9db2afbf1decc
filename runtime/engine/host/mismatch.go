package host

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// maxHeaders is the largest communicator in which each rank sends its header to every other one. In larger ones,
// headers are merged on the way: see digest.go.
const maxHeaders = 16

// gatherTime is how long a rank that has seen a mismatch waits for the remaining ranks, so that the error names all.
const gatherTime = 200 * time.Millisecond

// gatherHeaders waits up to gatherTime for the headers of the other ranks, except lost ones, and returns the error.
func (x *execution) gatherHeaders() error {
	e := x.e
	ctx, cancel := context.WithTimeout(e.w.ctx, gatherTime)
	defer cancel()
	silent := x.active[:0]
	for _, l := range x.active {
		if !l.met || len(l.rest) > 0 && l.step == algo.None {
			silent = append(silent, l)
		}
	}
	for len(silent) > 0 {
		moved := false
		silent = slices.DeleteFunc(silent, func(l *link) bool {
			m, settled := x.gatherHeader(l)
			moved = moved || m
			return settled
		})
		if moved {
			e.proceed()
		} else if e.w.idles++; e.waiter.Idle(ctx) != nil {
			break
		}
	}
	claims := engine.Claims{{Signature: x.own, Ranks: []int{e.rank}}}
	for _, l := range e.all {
		switch {
		case l == nil || !l.met:
		case l.odd:
			claims.Add(l.head, l.rank)
		default:
			claims.Add(x.own, l.rank)
		}
	}
	return e.mismatch(claims)
}

// told turns the error of a collective's passes into the collective's error. A rank that was told of a mismatch may be
// able to see it itself.
func (x *execution) told(err error) error {
	if !x.open && errors.Is(err, lifecycle.ErrMismatch) {
		for _, l := range x.active {
			if !l.met {
				_, _ = x.take(l) // a header that arrived before the peer was lost
			}
		}
	}
	if x.odd {
		return x.gatherHeaders()
	}
	return err
}

// gatherHeader receives one rank's header, and sends that rank the rest of ours. settled is true when both are done or
// have failed.
func (x *execution) gatherHeader(l *link) (moved, settled bool) {
	if len(l.rest) > 0 && l.step == algo.None {
		n, err := l.flush()
		if err != nil {
			l.rest = nil
		}
		moved = n > 0
	}
	if !l.met {
		taken, err := x.take(l)
		if err != nil {
			return moved, true
		}
		moved = moved || taken
	}
	return moved, l.met && (len(l.rest) == 0 || l.step != algo.None)
}

// mismatch returns the error of ranks that made different calls. The first claim is this rank's.
func (e *Engine) mismatch(claims engine.Claims) error {
	culprit, detail := claims.Mismatch(e.size)
	return e.comm.PeerError(lifecycle.CodeMismatch, culprit, detail)
}

// mismatchOf is mismatch for one other rank, whose header differs from this rank's.
func (e *Engine) mismatchOf(own, theirs header, rank int) error {
	return e.mismatch(engine.Claims{{Signature: own, Ranks: []int{e.rank}}, {Signature: theirs, Ranks: []int{rank}}})
}
