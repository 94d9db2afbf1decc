package ccl

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/meet"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// ShrinkMode says how Shrink treats operations in flight.
type ShrinkMode int

// The modes, as NCCL_SHRINK_DEFAULT and NCCL_SHRINK_ABORT.
const (
	// ShrinkDefault waits for operations in flight. It is for a healthy communicator.
	ShrinkDefault ShrinkMode = iota
	// ShrinkAbort cancels them, as Revoke does. It is for a communicator that has failed, for instance because a rank
	// died.
	ShrinkAbort
)

// The colors from which the ids of children of Shrink and Grow are derived; no Split uses them.
const (
	shrinkColor = -2
	growColor   = -3
)

// Shrink makes a communicator of the remaining ranks when exclude are removed; they keep their order. All remaining
// ranks call it, with the same list, and the excluded ranks do not. The parent stays as it is, and must be destroyed;
// with ShrinkAbort, it is revoked. A communicator that has failed or was revoked can be shrunk, which is the purpose of
// Shrink.
//
// It blocks until all remaining ranks have arrived, bounded by ctx; a non-blocking communicator returns the child with
// ErrInProgress. If a rank dies meanwhile, or the ranks pass different lists, it fails, and may be called again, by all
// remaining ranks. Its errors use the rank numbers of the new communicator; Lost returns which ranks of this one are
// lost.
func (c *Comm) Shrink(ctx context.Context, exclude []int, mode ShrinkMode, opts ...Option) (*Comm, error) {
	defer runtime.KeepAlive(c)
	if err := c.check(lifecycle.CallShrink); err != nil {
		return nil, err
	}
	members, err := c.without(exclude, mode)
	if err != nil {
		return nil, c.refused(ctx, lifecycle.CallShrink, err)
	}
	site := callSite()
	if err := c.clear(ctx, mode, fmt.Errorf("it shrinks to %d of %d ranks", len(members), c.size), site); err != nil {
		return nil, err
	}
	if err := c.everReady(ctx, lifecycle.CallShrink); err != nil {
		return nil, err
	}
	rank := slices.Index(members, c.rank)
	d := &derivation{
		call: lifecycle.CallShrink, site: site, text: withoutText(exclude), opts: opts, rank: rank, size: len(members),
		id: func(number uint64) CommID { // makes ranks agree on the members
			id := lifecycle.ChildCommID(c.id, number, shrinkColor)
			for _, m := range members {
				id = lifecycle.ChildCommID(id, number, m)
			}
			return id
		},
	}
	d.meet = func(ctx context.Context) error {
		meet := func(ctx context.Context, at rendezvous.Rendezvous) error {
			d.act.members = members
			return d.child.meet(ctx, d.init, at, d.rank, d.size, nil)
		}
		return c.meetAgain(ctx, d.act, d.place, members, rank, meet)
	}
	return c.derive(ctx, d)
}

// clear prepares the communicator for a Shrink, according to its mode.
func (c *Comm) clear(ctx context.Context, mode ShrinkMode, why error, site lifecycle.Site) error {
	if mode == ShrinkDefault {
		return c.mayChange(ctx, lifecycle.CallShrink)
	}
	c.visit()
	if err := c.outsideGroup(ctx, lifecycle.CallShrink); err != nil {
		return err
	}
	if c.revoke(why, site) != nil { // it was already revoked, or has ended
		return c.check(lifecycle.CallShrink)
	}
	return nil
}

// mostText bounds the length of the list of ranks in the record of a shrink's start.
const mostText = 1000

// withoutText returns the text on the tape about the ranks that a shrink leaves out.
func withoutText(exclude []int) string {
	b, ranks := []byte("without ranks "), slices.Sorted(slices.Values(exclude))
	for from, to := 0, 0; from < len(ranks); from = to {
		for to = from + 1; to < len(ranks) && ranks[to] == ranks[to-1]+1; to++ {
		}
		if from > 0 {
			b = append(b, ',')
		}
		if len(b) > mostText {
			return string(append(b, "..."...))
		}
		if b = strconv.AppendInt(b, int64(ranks[from]), 10); to > from+1 {
			b = strconv.AppendInt(append(b, '-'), int64(ranks[to-1]), 10)
		}
	}
	return string(b)
}

// without returns the remaining ranks, ascending.
func (c *core) without(exclude []int, mode ShrinkMode) ([]int, error) {
	bad := func(format string, args ...any) error {
		return c.usage(lifecycle.CallShrink, lifecycle.CodeInvalidArgument, format, args...)
	}
	if mode != ShrinkDefault && mode != ShrinkAbort {
		return nil, bad("mode is %d: it must be ShrinkDefault or ShrinkAbort", mode)
	}
	if len(exclude) == 0 {
		return nil, bad("no rank is excluded: there is nothing to shrink")
	}
	for i, r := range exclude {
		switch {
		case r < 0 || r >= c.size:
			return nil, bad("excluded rank %d is not a rank of the communicator: ranks are 0 to %d", r, c.size-1)
		case slices.Contains(exclude[:i], r):
			return nil, bad("rank %d is excluded twice", r)
		case r == c.rank:
			return nil, bad("rank %d excludes itself: excluded ranks do not call Shrink", r)
		}
	}
	var members []int
	for r := range c.size {
		if !slices.Contains(exclude, r) {
			members = append(members, r)
		}
	}
	return members, nil
}

// Grow makes a communicator with more ranks: the ranks of this one keep their numbers, and new ranks, in other
// processes, join with Runtime.JoinGrow. nranks is the new size. One rank makes an id with Runtime.NewUniqueID, passes
// it to the new ranks, and passes it here; the others pass the zero UniqueID, and get the id from that rank. An id
// serves for one Grow. The parent stays as it is, and must be destroyed.
//
// It blocks until all ranks, old and new, have arrived, bounded by ctx; a non-blocking communicator returns the child
// with ErrInProgress. The child's id is known once the child's AsyncError no longer returns that. If ctx ends before
// all ranks of this communicator have called Grow, this communicator fails; after that, only the child.
func (c *Comm) Grow(ctx context.Context, id UniqueID, nranks int, opts ...Option) (*Comm, error) {
	defer runtime.KeepAlive(c)
	if err := c.check(lifecycle.CallGrow); err != nil {
		return nil, err
	}
	bad := func(format string, args ...any) error {
		err := c.usage(lifecycle.CallGrow, lifecycle.CodeInvalidArgument, format, args...)
		return c.refused(ctx, lifecycle.CallGrow, err)
	}
	if nranks <= c.size || nranks > MaxRanks {
		return nil, bad("nranks is %d: it must be more than the %d there are, and at most %d", nranks, c.size, MaxRanks)
	}
	if err := id.Valid(); !id.IsZero() && err != nil {
		return nil, bad("the unique id is not one that NewUniqueID made: %s", plainly(err))
	}
	if err := c.mayChange(ctx, lifecycle.CallGrow); err != nil {
		return nil, err
	}
	d := &derivation{
		call: lifecycle.CallGrow, site: callSite(), opts: opts, rank: c.rank, size: nranks,
		// The child's id is derived from the unique id, which only one rank has. Until all have it, the child has an id
		// derived from the parent's, which therefore is the same on the parent's ranks.
		id: func(number uint64) CommID { return lifecycle.ChildCommID(c.id, number, growColor) },
	}
	d.meet = func(ctx context.Context) error { return c.grow(ctx, d, id) }
	return c.derive(ctx, d)
}

// grow is the part of Grow that communicates with the other ranks.
func (c *core) grow(ctx context.Context, d *derivation, mine UniqueID) error {
	child := d.child
	id, err := c.growID(ctx, d, mine)
	if err == nil {
		child.id, child.secret = lifecycle.RootCommID(id), id.Secret()
		child.life.Identify(child.id)
		child.tape.Describe(child.tapeInfo(c.id, transport.Topology{}))
		d.act.rec.Child = child.id
	}
	d.init.start() // now the id is known, or never will be
	if err != nil {
		if !mine.IsZero() { // only this rank can tell the joining ranks
			ctx, cancel := endedBy(ctx, err)
			defer cancel()
			at := c.rt.point.Dial(mine)
			_, _ = meet.Introduce(ctx, at, d.rank, d.size, &meet.Introduction{}) // fails
			_ = at.Close()
		}
		return err
	}
	ctx, release := c.whileConnected(ctx)
	defer release()
	return child.meet(ctx, d.init, c.rt.point.Dial(id), d.rank, d.size, nil)
}

// whileConnected returns ctx, ended when the communicator loses a rank, with that loss as its cause: a meeting does not
// notice the death of a rank that has not arrived.
func (c *core) whileConnected(ctx context.Context) (connected context.Context, release func()) {
	connected, lose := context.WithCancelCause(ctx)
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if lost := c.comm.FirstLost(); lost != nil {
					lose(lost)
				}
			case <-connected.Done():
				return
			}
		}
	})
	return connected, func() {
		lose(nil)
		looking.Wait()
	}
}

// growID passes the id that one of the ranks has to all ranks.
func (c *core) growID(ctx context.Context, d *derivation, mine UniqueID) (id UniqueID, err error) {
	var payload []byte
	if !mine.IsZero() {
		payload = mine[:]
	}
	payloads, err := c.exchange(ctx, d.act, d.place, payload)
	if err != nil {
		return id, err
	}
	from := -1
	for r, p := range payloads {
		switch {
		case len(p) == 0:
		case from >= 0:
			return id, c.usage(lifecycle.CallGrow, lifecycle.CodeInvalidArgument,
				"ranks %d and %d both pass a unique id: one rank makes it, the others pass the zero UniqueID", from, r)
		case copy(id[:], p) != len(id):
			return id, fmt.Errorf("grow: what rank %d sent has %d bytes, want %d", r, len(p), len(id))
		default:
			from = r
		}
	}
	if from < 0 {
		return id, c.usage(lifecycle.CallGrow, lifecycle.CodeInvalidArgument,
			"no rank passes a unique id: one rank makes it with NewUniqueID, and passes it")
	}
	return id, nil
}
