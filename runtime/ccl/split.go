package ccl

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/wire"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Split divides the communicator: the ranks that pass the same color make up a new one, ordered by key, and by their
// rank here where keys are equal. A rank that passes NoColor gets nil. All ranks of the communicator call it. It blocks
// until all have, and the new communicator is connected. A non-blocking communicator returns the child with
// ErrInProgress: the child may be used once AsyncError of both no longer says so.
//
// When ctx ends before all ranks have called Split, the parent fails; after that, only the child. A revoked
// communicator may be split.
func (c *Comm) Split(ctx context.Context, color, key int, opts ...Option) (*Comm, error) {
	if c.absent() {
		return nil, nilComm(lifecycle.CallSplit)
	}
	defer runtime.KeepAlive(c)
	if err := c.check(lifecycle.CallSplit); err != nil {
		return nil, err
	}
	if color < 0 && color != NoColor {
		return nil, c.invalid(ctx, c.usage(lifecycle.CallSplit, fmt.Sprintf("color is %d: it must be 0 or more, or NoColor", color)))
	}
	if err := c.mayChange(ctx, lifecycle.CallSplit); err != nil {
		return nil, err
	}
	if err := c.everReady(ctx, lifecycle.CallSplit); err != nil {
		return nil, err
	}
	number, place := c.enter(tape.ActSplit, lifecycle.CallSplit)
	a := c.begin(ctx, tape.ActSplit, lifecycle.CallSplit, number, callSite())
	if color == NoColor {
		leaveOut := func(ctx context.Context) error {
			_, err := c.exchange(ctx, a, place, entry{color: NoColor, key: key}.encode())
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
	child, born, err := c.child(ctx, a, lifecycle.ChildCommID(c.id, number, color), opts)
	if err != nil {
		c.giveBack(ctx, lifecycle.CallSplit, place, err)
		a.end(err)
		return nil, err
	}
	c.parenthood(ctx, child.core)
	return child.initialize(ctx, born, func(ctx context.Context) error {
		err := c.split(ctx, a, child.core, born, place, entry{color: color, key: key})
		a.end(err)
		return err
	})
}

// parenthood makes a non-blocking communicator in progress until child is filled in: from now on, or, for a call in a
// group, from the group's end, so that a group can make several. The job has no error: the child has its own, and a
// parent that failed has it as its cause.
func (c *core) parenthood(ctx context.Context, child *core) {
	j := &job{done: child.start.done}
	switch g := groupOf(ctx); {
	case c.blocking:
	case g != nil:
		g.begot(c, j)
	default:
		c.jobs.add(j)
	}
}

// enter takes the next place in the line of calls, and the next number among the acts of its kind: both must agree on
// all ranks.
func (c *core) enter(kind tape.Act, call lifecycle.Call) (number uint64, place *ticket) {
	c.numbering.Lock()
	defer c.numbering.Unlock()
	return c.count(kind), c.turn.line(call)
}

// enterGroup is enter for a group's part on the communicator.
func (c *core) enterGroup(calls []host.Op) (number uint64, place *ticket) {
	c.numbering.Lock()
	defer c.numbering.Unlock()
	return c.countGroup(calls), c.turn.line(lifecycle.CallGroupEnd)
}

// passGroup takes a number as enterGroup does, for a part that is not made.
func (c *core) passGroup(calls []host.Op) uint64 {
	c.numbering.Lock()
	defer c.numbering.Unlock()
	return c.countGroup(calls)
}

// ownGroups is where the numbers of the groups without a collective begin. They are none of those that the ranks agree
// on: one rank may send and receive in a group, and others not.
const ownGroups = 1_000_000_000

// countGroup gives a group's part its number. The caller holds c.numbering.
func (c *core) countGroup(calls []host.Op) uint64 {
	if slices.ContainsFunc(calls, func(op host.Op) bool { return !pointToPoint(op.Call) }) {
		return c.count(tape.ActGroup)
	}
	c.pairs++
	return ownGroups + c.pairs
}

// afterRevoke is where the numbers of the splits of a revoked communicator begin. Of those before, one rank may have
// made one more than another, which it interrupted by the revoke.
const afterRevoke = 1_000_000_000

// count gives an act its number. The caller holds c.numbering.
func (c *core) count(kind tape.Act) uint64 {
	if kind == tape.ActSplit && c.life.State() == lifecycle.StateRevoked {
		c.acts[kind] = max(c.acts[kind], afterRevoke)
	}
	c.acts[kind]++
	return c.acts[kind]
}

// child makes the communicator that act a makes of this one. Its rank and size are not known yet.
func (c *core) child(ctx context.Context, a *act, id CommID, opts []Option) (*Comm, *act, error) {
	child, err := c.bear(a, id, opts)
	if err != nil {
		return nil, nil, err
	}
	child.tape.From(c.tape)
	child.secret = childSecret(c.secret, id)
	a.rec.Child = id
	return child, child.begin(ctx, tape.ActInit, a.rec.Call, 0, a.rec.Site), nil
}

// bear puts the communicator that act a makes of this one on the books.
func (c *core) bear(a *act, id CommID, opts []Option) (*Comm, error) {
	o := options{nonBlocking: !c.blocking, name: c.childName(a.rec.Seq)}
	for _, set := range opts {
		set(&o)
	}
	info := lifecycle.Info{ID: id, Parent: c.id, Name: o.name, Rank: -1, Site: a.rec.Site}
	return c.rt.newComm(a.rec.Call, info, c.rt.cfg.Blocking || !o.nonBlocking)
}

// childName is the name of the child that act number makes, if it is given none.
func (c *core) childName(number uint64) string {
	if number > afterRevoke {
		return fmt.Sprintf("%s/after-revoke/%d", c.name, number-afterRevoke)
	}
	return fmt.Sprintf("%s/%d", c.name, number)
}

// split is the part of Split that talks to the other ranks.
func (c *core) split(ctx context.Context, a *act, child *core, born *act, place *ticket, mine entry) error {
	born.phase(tape.PhaseRendezvous)
	port, err := child.prepare(c.links.Local(), c.size)
	if err != nil {
		c.giveBack(ctx, lifecycle.CallSplit, place, err)
		return err
	}
	mine.card = port.Card()
	payloads, err := c.exchange(ctx, a, place, mine.encode())
	if err != nil {
		port.Close()
		return err
	}
	all := make([]entry, len(payloads))
	for r, p := range payloads {
		if err := all[r].decode(p); err != nil {
			port.Close()
			return c.fail(lifecycle.CallSplit, fmt.Errorf("split: what rank %d sent: %w", r, err))
		}
	}
	members := membersOf(all, mine.color)
	ranks := make([]introduction, len(members))
	for i, m := range members {
		ranks[i] = introduction{meets: c.meets[m], card: all[m].card}
	}
	child.seat(slices.Index(members, c.rank), len(members))
	a.members = members
	return child.connect(ctx, born, port, ranks)
}

// seat tells a child its place.
func (c *core) seat(rank, size int) {
	c.rank, c.size = rank, size
	c.life.Place(rank, size)
}

// membersOf are the ranks with a color, in the order of their keys.
func membersOf(all []entry, color int) []int {
	var members []int
	for r, e := range all {
		if e.color == color {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(all[a].key, all[b].key) })
	return members
}

// exchange tells all ranks what this one wants of act a, and returns what all want. It uses up the place in the line.
// Where the connections are of no use any more, because the communicator was revoked, the ranks meet anew.
func (c *core) exchange(ctx context.Context, a *act, place *ticket, mine []byte) ([][]byte, error) {
	call := a.rec.Call
	if a.rec.Seq > afterRevoke {
		if err := c.turn.wait(ctx, place); err != nil {
			return nil, c.abandoned(call, err)
		}
		defer c.turn.leave()
		if err := c.overtaken(call); err != nil {
			return nil, err
		}
		everyone := make([]int, c.size)
		for r := range everyone {
			everyone[r] = r
		}
		return c.reunite(ctx, a, everyone, mine)
	}
	if err := c.queue(ctx, call, place); err != nil {
		return nil, err
	}
	defer c.turn.leave()
	if err := c.overtaken(call); err != nil {
		return nil, c.refused(ctx, call, err)
	}
	number := c.collectives.Add(1)
	launched := c.tape.Start(number, tape.Signature{Call: call, Peer: -1}, 0)
	payloads, err := c.engine.Exchange(ctx, call, number, mine)
	c.tape.End(launched, lifecycle.CodeOf(err))
	return payloads, c.fail(call, err)
}

// giveBack gives a place in the line up without having used it, because of err: the other ranks would wait for this one
// in vain, so the communicator fails.
func (c *core) giveBack(ctx context.Context, call lifecycle.Call, place *ticket, err error) {
	if c.life.State() == lifecycle.StateRevoked {
		c.turn.forgo(place)
		return // the others see it when they meet
	}
	if c.queue(ctx, call, place) != nil {
		return // it has failed by that
	}
	defer c.turn.leave()
	if !c.over {
		c.engine.Abandon(err)
		_ = c.fail(call, err) // is err, which the caller has
	}
}

// entry is what a rank says in a split: two numbers, and how its new communicator's ranks reach it.
type entry struct {
	color, key int
	card       []byte
}

func (e entry) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(e.color))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.key))
	return append(b, e.card...)
}

func (e *entry) decode(b []byte) error {
	r := wire.NewReader(b)
	e.color, e.key, e.card = int(r.Uint64()), int(r.Uint64()), r.Rest()
	return r.Err()
}
