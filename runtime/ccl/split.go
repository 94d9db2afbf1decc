package ccl

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Split divides the communicator: the ranks that pass the same color make up a new one, ordered by key, and by their
// rank here where keys are equal. A rank that passes NoColor gets nil. All ranks of the communicator call it. It blocks
// until all have, and the new communicator is connected. A non-blocking communicator returns the child with
// ErrInProgress: the child may be used once AsyncError of both no longer says so.
//
// When ctx ends before all ranks have called Split, the parent fails; after that, only the child.
func (c *Comm) Split(ctx context.Context, color, key int, opts ...Option) (*Comm, error) {
	if c == nil {
		return nil, nilComm(lifecycle.CallSplit)
	}
	site := caller()
	if err := c.life.Check(lifecycle.CallSplit); err != nil {
		return nil, c.refused(ctx, lifecycle.CallSplit, err)
	}
	if color < 0 && color != NoColor {
		return nil, c.invalid(ctx, c.usage(lifecycle.CallSplit, fmt.Sprintf("color is %d: it must be 0 or more, or NoColor", color)))
	}
	if err := c.settle(ctx); err != nil {
		return nil, err
	}
	o := options{nonBlocking: !c.blocking}
	for _, set := range opts {
		set(&o)
	}
	blocking := c.rt.cfg.Blocking || !o.nonBlocking

	place, number := c.line(&c.splits) // the child's id is made of the number
	if o.name == "" {
		o.name = fmt.Sprintf("%s/%d", c.name, number)
	}

	a := c.begin(ctx, tape.ActSplit, lifecycle.CallSplit, number, site)
	if color == NoColor {
		leaveOut := func(ctx context.Context) error {
			_, err := c.exchangeSplit(ctx, place, splitEntry{color: NoColor, key: key})
			a.end(err)
			return err
		}
		if g := groupOf(ctx); g != nil && c.blocking {
			j := newJob()
			g.await(c, j)
			c.crew.start(func() { j.end(leaveOut(ctx)) })
			return nil, nil //nolint:nilnil // as for every rank with NoColor
		}
		return nil, c.perform(ctx, leaveOut)
	}

	id := lifecycle.ChildCommID(c.id, number, color)
	child, err := c.rt.newComm(lifecycle.Info{
		ID: id, Parent: c.id, Name: o.name, Rank: -1, NonBlocking: !blocking, Call: lifecycle.CallSplit, Site: site,
	}, childSecret(c.secret, id))
	if err != nil {
		c.giveBack(ctx, place, err)
		a.end(err)
		return nil, err
	}
	a.rec.Child = id
	ours := newJob() // the parent's part
	if !c.blocking {
		c.jobs.add(ours)
	}
	born := child.begin(ctx, tape.ActInit, lifecycle.CallSplit, 0, site)
	return child.initialize(ctx, born, func(ctx context.Context) error {
		err := c.split(ctx, child, born, place, splitEntry{color: color, key: key})
		a.end(err)
		ours.end(nil) // if it made the parent fail, AsyncError knows
		return err
	})
}

// split is the part of Split that talks to the other ranks.
func (c *Comm) split(ctx context.Context, child *Comm, born *act, place *ticket, mine splitEntry) error {
	born.phase(tape.PhaseRendezvous)
	port, err := c.rt.fabric.Prepare(child.id, child.secret, c.size)
	if err != nil {
		c.giveBack(ctx, place, err)
		return err
	}
	mine.card = port.Card()
	all, err := c.exchangeSplit(ctx, place, mine)
	if err != nil {
		port.Close()
		return err
	}
	members := membersOf(all, mine.color)
	cards := make([][]byte, len(members))
	for i, m := range members {
		cards[i] = all[m].card
		if m == c.rank {
			child.rank = i
		}
	}
	child.size = len(members)
	child.life.Place(child.rank, child.size)
	return child.connect(ctx, born, port, cards)
}

// membersOf are the ranks with a color, in the order of their keys.
func membersOf(all []splitEntry, color int) []int {
	var members []int
	for r, e := range all {
		if e.color == color {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(all[a].key, all[b].key) })
	return members
}

// exchangeSplit tells all ranks of the parent what this one wants, and returns what all want. It uses up the place in
// the line.
func (c *Comm) exchangeSplit(ctx context.Context, place *ticket, mine splitEntry) ([]splitEntry, error) {
	if err := c.queue(ctx, lifecycle.CallSplit, place); err != nil {
		return nil, err
	}
	defer c.turn.leave()
	if c.over {
		return nil, c.refused(ctx, lifecycle.CallSplit, c.life.Check(lifecycle.CallSplit))
	}
	number := c.collectives.Add(1)
	seq := c.tape.Start(number, tape.Signature{Call: lifecycle.CallSplit, Peer: -1}, 0)
	payloads, err := c.engine.Exchange(ctx, number, mine.encode())
	c.tape.End(seq, lifecycle.CodeOf(err))
	if err != nil {
		return nil, c.fail(lifecycle.CallSplit, err)
	}
	all := make([]splitEntry, len(payloads))
	for r, p := range payloads {
		if err := all[r].decode(p); err != nil {
			return nil, c.fail(lifecycle.CallSplit, fmt.Errorf("split: what rank %d sent: %w", r, err))
		}
	}
	return all, nil
}

// giveBack gives a place in the line up without having used it, because of err: the other ranks would wait for this one
// in vain, so the communicator fails.
func (c *Comm) giveBack(ctx context.Context, place *ticket, err error) {
	if c.queue(ctx, lifecycle.CallSplit, place) != nil {
		return // it has failed by that
	}
	defer c.turn.leave()
	if !c.over {
		c.engine.Abandon(err)
		_ = c.fail(lifecycle.CallSplit, err) // is err, which the caller has
	}
}

// splitEntry is what a rank says in a split: two numbers, and how its new communicator's ranks reach it.
type splitEntry struct {
	color, key int
	card       []byte
}

func (e *splitEntry) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(e.color))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.key))
	return append(b, e.card...)
}

func (e *splitEntry) decode(b []byte) error {
	if len(b) < 16 {
		return fmt.Errorf("%d bytes, want at least 16", len(b))
	}
	e.color, e.key = int(binary.LittleEndian.Uint64(b)), int(binary.LittleEndian.Uint64(b[8:]))
	e.card = b[16:]
	return nil
}
