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

// gatherHeaders waits for the headers of the other ranks, without those that are lost, or don't call within gatherTime,
// and returns the error.
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

// told is how a collective ends whose passes ended with err. A rank that was told of a mismatch may see it for itself.
func (x *execution) told(err error) error {
	if !x.open && errors.Is(err, lifecycle.ErrMismatch) {
		for _, l := range x.active {
			if !l.met {
				_, _ = x.take(l) // a header that came before the peer was lost
			}
		}
	}
	if x.odd {
		return x.gatherHeaders()
	}
	return err
}

// gatherHeader gets the header from, and what is left of ours to, one rank, and says whether that is done, or in vain.
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

// mismatch is the error of ranks that made different calls, of which the first claim is this rank's.
func (e *Engine) mismatch(claims engine.Claims) error {
	culprit, detail := claims.Mismatch(e.size)
	return e.comm.PeerError(lifecycle.CodeMismatch, culprit, detail)
}

// mismatchOf is mismatch where a rank was heard whose header is not this rank's.
func (e *Engine) mismatchOf(own, theirs header, rank int) error {
	return e.mismatch(engine.Claims{{Signature: own, Ranks: []int{e.rank}}, {Signature: theirs, Ranks: []int{rank}}})
}
