package ccl

import (
	"context"
	"errors"
	"runtime"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous/meet"
)

// Lost returns the ranks whose processes have ended, or can't be reached any more, in ascending order: those that
// Shrink is to exclude. A PeerError names the rank that an operation met; others may have died at the same time, or
// since. So Lost asks every rank's process, with a connection to where it can hold a rendezvous. It says nothing about
// a rank that aborted the communicator, or is stopped, but lives.
//
// It may be called at any time between the communicator's init and its end, above all after it has failed. It blocks
// for two seconds at most where a host does not answer, bounded by ctx. Ranks that call it at the same time may see
// different deaths: see Shrink for what comes of that.
func (c *Comm) Lost(ctx context.Context) ([]int, error) {
	if c.absent() {
		return nil, nilComm(lifecycle.CallNone)
	}
	defer runtime.KeepAlive(c)
	if err := c.life.Check(lifecycle.CallAsyncError); err != nil { // the table has no row for Lost: it is as legal
		if usage, ok := errors.AsType[*UsageError](err); ok {
			usage.Call = lifecycle.CallNone
		}
		return nil, c.refused(ctx, lifecycle.CallAsyncError, err)
	}
	if !c.start.ended() || c.links == nil {
		return nil, ErrInProgress
	}
	gone := make([]bool, c.size)
	for r := range gone { // the connections learn of deaths from the kernel, or from another rank
		if p := c.comm.Lost(r); p != nil && p.Code == lifecycle.CodeRankDead && p.Rank >= 0 {
			gone[p.Rank] = true
		}
	}
	gone[c.rank] = true // not to be asked
	if err := meet.Probe(ctx, c.meets, gone); err != nil {
		return nil, err
	}
	var lost []int
	for r, g := range gone {
		if g && r != c.rank {
			lost = append(lost, r)
		}
	}
	return lost, nil
}
