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

// Split divides the communicator: the ranks that pass the same color make up a new one, ordered by key, and by their rank here where
// keys are equal. A rank that passes NoColor gets nil. All ranks of the communicator call it. It blocks until all have, and the new communicator is
// connected. A non-blocking communicator returns the child with ErrInProgress: the child may be used once AsyncError of both no longer says so.
//
// When ctx ends before all ranks have called Split, the parent fails; after that, only the child.
func (c *Comm) Split(ctx context.Context, color, key int, opts ...Option) (*Comm, error) {
	if c == nil {
		return nil, nilComm(lifecycle.CallSplit)
	}
	site := lifecycle.Caller(1)
	if err := c.life.Check(lifecycle.CallSplit); err != nil {
		return nil, c.refused(ctx, lifecycle.CallSplit, err, 1)
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

	// The number of the split, which is in the child's id, and its place among the calls must agree on all ranks.
	c.splitting.Lock()
	c.splits++
	number := c.splits
	place := c.turn.line()
	c.splitting.Unlock()
	if o.name == "" {
		o.name = fmt.Sprintf("%s/%d", c.name, number)
	}

	a := c.begin(ctx, tape.ActSplit, lifecycle.CallSplit, number, site)
	if color == NoColor {
		err := c.perform(ctx, func(ctx context.Context) error {
			_, err := c.exchangeSplit(ctx, place, splitEntry{color: NoColor, key: key})
			a.end(err)
			return err
		})
		return nil, err
	}

	id := lifecycle.ChildCommID(c.id, number, color)
	child, err := c.rt.newComm(lifecycle.CallSplit, lifecycle.Info{ID: id, Parent: c.id, Name: o.name, Rank: -1, Site: site}, blocking)
	if err != nil {
		a.end(err)
		return nil, err
	}
	child.secret = childSecret(c.secret, id)
	a.rec.Child = id
	born := child.begin(ctx, tape.ActInit, lifecycle.CallSplit, 0, site)
	return child.initialize(ctx, born, func(ctx context.Context) error {
		err := c.split(ctx, child, born, place, splitEntry{color: color, key: key})
		a.end(err)
		return err
	})
}

// split is the part of Split that talks to the other ranks.
func (c *Comm) split(ctx context.Context, child *Comm, born *act, place *ticket, mine splitEntry) error {
	born.phase(tape.PhaseRendezvous)
	port, err := c.rt.fabric.Prepare(child.id, child.secret, c.size)
	if err != nil {
		c.turnBack(place)
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

// exchangeSplit tells all ranks of the parent what this one wants, and returns what all want. It uses up the place in the line.
func (c *Comm) exchangeSplit(ctx context.Context, place *ticket, mine splitEntry) ([]splitEntry, error) {
	if err := c.queue(ctx, lifecycle.CallSplit, place); err != nil {
		return nil, err
	}
	defer c.turn.leave()
	if c.over {
		return nil, c.life.Check(lifecycle.CallSplit)
	}
	c.collectives++
	seq := c.tape.Start(c.collectives, tape.Signature{Call: lifecycle.CallSplit, Peer: -1}, 0)
	payloads, err := c.engine.Exchange(ctx, c.collectives, mine.encode())
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

// turnBack gives a place in the line up without having used it: the other ranks wait for this one in vain, so the communicator fails.
func (c *Comm) turnBack(place *ticket) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrAborted)
	if c.queue(ctx, lifecycle.CallSplit, place) == nil {
		c.turn.leave()
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
