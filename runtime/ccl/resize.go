package ccl

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	rtcp "github.com/carillon-rt/carillon/runtime/rendezvous/tcp"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// ShrinkMode says what Shrink does with the operations that are in flight.
type ShrinkMode int

// The modes, as NCCL_SHRINK_DEFAULT and NCCL_SHRINK_ABORT.
const (
	// ShrinkDefault waits for operations in flight. It is for a communicator that is well.
	ShrinkDefault ShrinkMode = iota
	// ShrinkAbort cancels them, as Revoke does. It is for a communicator that has failed, say because a rank died.
	ShrinkAbort
)

// Shrink makes a communicator of the ranks that are left when exclude are taken away; they keep their order. All of
// those call it, with the same list, and the excluded ranks do not. The parent stays as it is, and must be destroyed;
// with ShrinkAbort, it is revoked. A communicator that has failed or was revoked can be shrunk, which is what Shrink is
// for.
//
// It blocks until all remaining ranks have come, bounded by ctx; a non-blocking communicator returns the child with
// ErrInProgress. When a rank dies meanwhile, or the ranks pass different lists, it fails, and may be called again, by
// all that remain. The ranks that its errors name are those of the new communicator; Lost tells which of this one are
// gone.
func (c *Comm) Shrink(ctx context.Context, exclude []int, mode ShrinkMode, opts ...Option) (*Comm, error) {
	if c.absent() {
		return nil, nilComm(lifecycle.CallShrink)
	}
	defer runtime.KeepAlive(c)
	if err := c.check(lifecycle.CallShrink); err != nil {
		return nil, err
	}
	members, err := c.without(exclude, mode)
	if err != nil {
		return nil, c.invalid(ctx, err)
	}
	site := callSite()
	if err := c.clear(ctx, mode, fmt.Errorf("it shrinks to %d of %d ranks", len(members), c.size), site); err != nil {
		return nil, err
	}
	if err := c.everReady(ctx, lifecycle.CallShrink); err != nil {
		return nil, err
	}
	number, place := c.enter(tape.ActShrink, lifecycle.CallShrink)
	a := c.begin(ctx, tape.ActShrink, lifecycle.CallShrink, number, site)
	child, born, err := c.child(ctx, a, shrunkID(c.id, number, members), opts)
	if err != nil {
		c.turn.forgo(place)
		a.end(err)
		return nil, err
	}
	c.parenthood(ctx, child.core)
	return child.initialize(ctx, born, func(ctx context.Context) error {
		err := c.shrink(ctx, a, child.core, born, place, members)
		a.end(err)
		return err
	})
}

// clear deals with what stands in the way of a Shrink, as its mode says.
func (c *core) clear(ctx context.Context, mode ShrinkMode, why error, site lifecycle.Site) error {
	if mode == ShrinkDefault {
		return c.mayChange(ctx, lifecycle.CallShrink)
	}
	c.visit()
	if err := c.outsideGroup(ctx, lifecycle.CallShrink); err != nil {
		return err
	}
	if c.revoke(why, site) != nil { // it was revoked before, which is as good, or has ended
		return c.check(lifecycle.CallShrink)
	}
	return nil
}

// everReady refuses a call that needs the other ranks, although they have never met: the init failed. The communicator
// is not initializing any more.
func (c *core) everReady(ctx context.Context, call lifecycle.Call) error {
	if c.links != nil {
		return nil
	}
	err := c.usage(call, "it was never ready, so there are no ranks to go on with: Destroy it, and make a new one")
	err.Code, err.Cause = lifecycle.CodeFailed, c.life.Cause()
	return c.refused(ctx, call, err)
}

// without are the ranks that remain, ascending.
func (c *core) without(exclude []int, mode ShrinkMode) ([]int, error) {
	bad := func(format string, args ...any) error {
		return c.usage(lifecycle.CallShrink, fmt.Sprintf(format, args...))
	}
	if mode != ShrinkDefault && mode != ShrinkAbort {
		return nil, bad("mode is %d: it must be ShrinkDefault or ShrinkAbort", mode)
	}
	gone := make([]bool, c.size)
	for _, r := range exclude {
		switch {
		case r < 0 || r >= c.size:
			return nil, bad("excluded rank %d is not a rank of the communicator: ranks are 0 to %d", r, c.size-1)
		case gone[r]:
			return nil, bad("rank %d is excluded twice", r)
		case r == c.rank:
			return nil, bad("rank %d excludes itself: excluded ranks do not call Shrink", r)
		}
		gone[r] = true
	}
	if len(exclude) == 0 {
		return nil, bad("no rank is excluded: there is nothing to shrink")
	}
	var members []int
	for r := range gone {
		if !gone[r] {
			members = append(members, r)
		}
	}
	return members, nil
}

// shrunkID is the id of the communicator of members, which must agree on who they are.
func shrunkID(parent CommID, number uint64, members []int) CommID {
	id := lifecycle.ChildCommID(parent, number, -2) // no color of a Split
	for _, m := range members {
		id = lifecycle.ChildCommID(id, number, m)
	}
	return id
}

// shrink is the part of Shrink that talks to the other ranks.
func (c *core) shrink(ctx context.Context, a *act, child *core, born *act, place *ticket, members []int) error {
	if err := c.turn.wait(ctx, place); err != nil {
		return c.abandoned(lifecycle.CallShrink, err)
	}
	defer c.turn.leave()
	if err := c.overtaken(lifecycle.CallShrink); err != nil {
		return err
	}
	at, err := c.reunion(a, members)
	if err != nil {
		return err
	}
	child.seat(slices.Index(members, c.rank), len(members))
	a.members = members
	ctx, blame := c.heldUp(ctx)
	return blame(child.meet(ctx, born, at, child.rank, child.size))
}

// Grow makes a communicator with more ranks: the ranks of this one keep their numbers, and new ones, in other
// processes, join with Runtime.JoinGrow. nranks is the new size. One rank makes an id with Runtime.NewUniqueID, carries
// it to the new ranks, and passes it here; the others pass the zero UniqueID, and get it from that rank. An id serves
// for one Grow. The parent stays as it is, and must be destroyed.
//
// It blocks until all ranks, old and new, have come, bounded by ctx; a non-blocking communicator returns the child with
// ErrInProgress. The child's id is known once AsyncError of the child no longer says so. When ctx ends before all ranks
// of this communicator have called Grow, it fails; after that, only the child.
func (c *Comm) Grow(ctx context.Context, id UniqueID, nranks int, opts ...Option) (*Comm, error) {
	if c.absent() {
		return nil, nilComm(lifecycle.CallGrow)
	}
	defer runtime.KeepAlive(c)
	if err := c.check(lifecycle.CallGrow); err != nil {
		return nil, err
	}
	if nranks <= c.size || nranks > MaxRanks {
		return nil, c.invalid(ctx, c.usage(lifecycle.CallGrow, fmt.Sprintf("nranks is %d: it must be more than the %d there are, and at most %d", nranks, c.size, MaxRanks)))
	}
	if !id.IsZero() {
		if err := id.Valid(); err != nil {
			return nil, c.invalid(ctx, c.usage(lifecycle.CallGrow, "the unique id is not one that NewUniqueID made: "+plainly(err)))
		}
	}
	if err := c.mayChange(ctx, lifecycle.CallGrow); err != nil {
		return nil, err
	}
	number, place := c.enter(tape.ActGrow, lifecycle.CallGrow)
	a := c.begin(ctx, tape.ActGrow, lifecycle.CallGrow, number, callSite())
	child, born, err := c.unknown(ctx, a, nranks, opts)
	if err != nil {
		c.giveBack(ctx, lifecycle.CallGrow, place, err)
		a.end(err)
		return nil, err
	}
	c.parenthood(ctx, child.core)
	return child.initialize(ctx, born, func(ctx context.Context) error {
		err := c.grow(ctx, a, child.core, born, place, id)
		a.end(err)
		return err
	})
}

// unknown makes the child of a Grow. Its id follows from the unique id, which only one rank has: until all have it, the
// child has one that follows from the parent, and so is the same on its ranks.
func (c *core) unknown(ctx context.Context, a *act, nranks int, opts []Option) (*Comm, *act, error) {
	child, err := c.bear(a, lifecycle.ChildCommID(c.id, a.rec.Seq, -3), opts) // no color of a Split
	if err != nil {
		return nil, nil, err
	}
	child.seat(c.rank, nranks)
	return child, child.act(ctx, tape.ActInit, lifecycle.CallGrow, 0, a.rec.Site), nil
}

// grow is the part of Grow that talks to the other ranks.
func (c *core) grow(ctx context.Context, a *act, child *core, born *act, place *ticket, mine UniqueID) error {
	id, err := c.growID(ctx, a, place, mine)
	if err == nil {
		child.identify(id)
		a.rec.Child = child.id
	}
	child.tape.Life(born.rec) // now that the id is known under which the others tell of it, or it will never be
	if err != nil {
		return err
	}
	return child.meet(ctx, born, rtcp.Dial(id, c.rt.rendezvousConfig()), child.rank, child.size)
}

// identify gives a child of Grow its id, and the secret of its ranks.
func (c *core) identify(id UniqueID) {
	c.id, c.secret = lifecycle.RootCommID(id), id.Secret()
	c.life.Identify(c.id)
	c.tape.Describe(c.tapeInfo(c.life.Info().Parent, 0))
}

// growID tells all ranks the id that one of them has.
func (c *core) growID(ctx context.Context, a *act, place *ticket, mine UniqueID) (UniqueID, error) {
	var payload []byte
	if !mine.IsZero() {
		payload = mine[:]
	}
	payloads, err := c.exchange(ctx, a, place, payload)
	if err != nil {
		return UniqueID{}, err
	}
	var id UniqueID
	from := -1
	for r, p := range payloads {
		if len(p) == 0 {
			continue
		}
		if from >= 0 {
			return id, c.usage(lifecycle.CallGrow, fmt.Sprintf("ranks %d and %d both pass a unique id: one rank makes it, the others pass the zero UniqueID", from, r))
		}
		if copy(id[:], p) != len(id) {
			return id, fmt.Errorf("grow: what rank %d sent has %d bytes, want %d", r, len(p), len(id))
		}
		from = r
	}
	if from < 0 {
		return id, c.usage(lifecycle.CallGrow, "no rank passes a unique id: one rank makes it with NewUniqueID, and passes it")
	}
	return id, nil
}

// JoinGrow makes this process a rank of a communicator that grows: id is what a rank of it made, nranks the new size,
// and rank one of the new numbers. It blocks until all ranks have come, bounded by ctx.
func (rt *Runtime) JoinGrow(ctx context.Context, id UniqueID, nranks, rank int, opts ...Option) (*Comm, error) {
	return rt.initRank(ctx, lifecycle.CallGrow, id, nranks, rank, opts)
}
