package ccl

import (
	"context"
	"errors"
	"runtime"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous/meet"
)

// Lost returns, in ascending order, the ranks whose processes have ended or can't be reached any more: the ranks that
// Shrink should exclude. A PeerError only names the rank that one operation met; others may have died at the same time,
// or since. So Lost connects to every rank's process, at the address where that can hold a rendezvous. A rank that
// lives counts as not lost, even if it aborted the communicator or is stopped.
//
// It may be called at any time between the communicator's init and its end, in particular after it has failed. It
// blocks for at most two seconds if a host does not answer, bounded by ctx. Ranks that call it at the same time may see
// different deaths: see Shrink for the consequences.
func (c *Comm) Lost(ctx context.Context) ([]int, error) {
	if c.absent() {
		return nil, nilComm(lifecycle.CallNone)
	}
	defer runtime.KeepAlive(c)
	if err := c.life.Check(lifecycle.CallAsyncError); err != nil { // Lost has no row: it is legal where AsyncError is
		if usage, ok := errors.AsType[*UsageError](err); ok {
			usage.Call = lifecycle.CallNone
		}
		return nil, c.refused(ctx, lifecycle.CallAsyncError, err)
	}
	if !c.start.ended() || c.links == nil {
		return nil, ErrInProgress
	}
	gone := make([]bool, c.size)
	for r := range gone { // the connections know of deaths from the kernel, or from another rank
		if p := c.comm.Lost(r); p != nil && p.Code == lifecycle.CodeRankDead && p.Rank >= 0 {
			gone[p.Rank] = true
		}
	}
	gone[c.rank] = true // needn't be asked
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
