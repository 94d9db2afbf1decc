package ccl

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/wire"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/meet"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// derivation is a call that makes a communicator, the child, from another one: Split, Shrink or Grow.
type derivation struct {
	call lifecycle.Call
	site lifecycle.Site
	text string // text of the record of the act's start
	opts []Option
	rank int // rank and size of the child; -1 and 0 if not known yet
	size int
	id   func(number uint64) CommID  // id of the child; a preliminary one for Grow
	meet func(context.Context) error // makes the child ready, together with the other ranks

	// Set by derive.
	act   *act // act of the parent
	place *ticket
	child *core
	init  *act // act of the child
}

func (c *Comm) derive(ctx context.Context, d *derivation) (*Comm, error) {
	number, place := c.enter(d.call)
	d.act, d.place = c.act(ctx, d.call, number, d.site), place
	d.act.rec.Text = d.text
	d.act.start().rec.Text = ""
	o := options{devices: c.devices(), Info: lifecycle.Info{
		ID: d.id(number), Parent: c.id, Name: fmt.Sprintf("%s/%d", c.name, number), Rank: d.rank, Size: d.size,
		NonBlocking: !c.blocking, Call: d.call, Site: d.site,
	}}
	if number > tape.Unagreed {
		o.Name = fmt.Sprintf("%s/after-revoke/%d", c.name, number-tape.Unagreed)
	}
	for _, set := range d.opts {
		set(&o)
	}
	child, err := c.rt.newComm(&o)
	if err != nil {
		c.giveBack(ctx, d.call, place, err)
		d.act.end(err)
		return nil, err
	}
	d.child, d.init = child.core, child.initAct(ctx, d.call, d.site)
	if d.call != lifecycle.CallGrow { // Grow learns the id first
		child.tape.From(c.tape)
		secret := hmac.New(sha256.New, c.secret) // only ranks with the parent's secret can compute it
		secret.Write([]byte("carillon child"))
		secret.Write(child.id[:])
		child.secret = secret.Sum(nil)
		d.act.rec.Child = child.id
		d.init.start()
	}
	c.expect(ctx, child.core)
	return child.initialize(ctx, d.init, func(ctx context.Context) error {
		err := d.meet(ctx)
		d.act.end(err)
		// A grow keeps the ranks' numbers.
		d.init.foreignRanks = d.act.members == nil && d.call != lifecycle.CallGrow
		return err
	})
}

// expect makes a non-blocking communicator in progress until child is ready or has failed: from now on, or from the end
// of the group, so that a group can make several. The job has no error: the child has its own.
func (c *Comm) expect(ctx context.Context, child *core) {
	j := &Work{done: child.start.done}
	switch g := groupOf(ctx); {
	case c.blocking:
	case g != nil:
		g.expect(c, j)
	default:
		c.jobs.add(j)
	}
}

// setMembers sets the child's rank and size: its ranks are the given members of the parent.
func (d *derivation) setMembers(members []int) {
	d.act.members = members
	c := d.child
	c.rank, c.size = slices.Index(members, d.act.c.rank), len(members)
	c.life.Place(c.rank, c.size)
}

// enter takes the next place in the line of calls, and the next number among acts of its kind. Both must agree on all
// ranks.
func (c *core) enter(call lifecycle.Call) (number uint64, place *ticket) {
	c.numbering.Lock()
	defer c.numbering.Unlock()
	if call == lifecycle.CallSplit && c.life.State() == lifecycle.StateRevoked {
		c.acts[call] = max(c.acts[call], tape.Unagreed)
	}
	c.acts[call]++
	return c.acts[call], c.turn.line(call)
}

// enterGroup is enter for a group's part on this communicator.
func (c *core) enterGroup(calls []engine.Op) (number uint64, place *ticket) {
	if slices.ContainsFunc(calls, func(op engine.Op) bool { return op.Call.IsCollective() }) {
		return c.enter(lifecycle.CallGroupEnd)
	}
	c.numbering.Lock()
	defer c.numbering.Unlock()
	return c.ownGroup(), c.turn.line(lifecycle.CallGroupEnd)
}

// ownGroup takes the next number of a group on which the ranks needn't agree. The caller holds the lock.
func (c *core) ownGroup() uint64 {
	c.pairs++
	return tape.Unagreed + c.pairs
}

// everReady refuses a call that needs the other ranks if they have never met because the init failed.
func (c *core) everReady(ctx context.Context, call lifecycle.Call) error {
	if c.links != nil {
		return nil
	}
	err := c.usage(call, lifecycle.CodeFailed,
		"it was never ready, so there are no ranks to go on with: Destroy it, and make a new one")
	err.Cause = c.life.Cause()
	return c.refused(ctx, call, err)
}

// exchange sends mine, for act a, to all ranks, and returns the data of all ranks. It uses up the place in the line.
// After a revoke, which ends the use of the connections, the ranks meet anew.
func (c *core) exchange(ctx context.Context, a *act, place *ticket, mine []byte) ([][]byte, error) {
	call := a.rec.Call
	if a.rec.Seq > tape.Unagreed {
		var payloads [][]byte
		err := c.meetAgain(ctx, a, place, nil, c.rank, func(
			ctx context.Context, at rendezvous.Rendezvous,
		) (err error) {
			defer at.Close() //nolint:errcheck // the ranks have met, or the error of that counts
			payloads, err = at.Exchange(ctx, a.rec.Act.String(), c.rank, c.size, mine)
			return err
		})
		return payloads, err
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
	payloads, err := c.gather(ctx, call, number, mine)
	c.tape.End(launched, lifecycle.CodeOf(err))
	return payloads, c.fail(call, number, err)
}

// maxPayload bounds the data that one rank sends to all others.
const maxPayload = 16 << 20

// gather returns the payloads of all ranks, which may have different lengths. Ranks that gather for different calls get
// a mismatch. The caller has the turn.
func (c *core) gather(ctx context.Context, call lifecycle.Call, number uint64, mine []byte) ([][]byte, error) {
	allGather := func(block []byte) (all []byte, err error) {
		all = make([]byte, c.size*len(block))
		c.engine.Begin(call, number, []engine.Op{{
			Call: lifecycle.CallAllGather, Count: len(block), DataType: kernels.Uint8, Peer: -1, Send: block, Recv: all,
		}})
		return all, c.engine.Run(ctx)
	}
	lengths, err := allGather(binary.LittleEndian.AppendUint64(nil, uint64(len(mine))))
	if err != nil {
		return nil, err
	}
	payloads, longest := make([][]byte, c.size), uint64(0)
	for r := range payloads {
		longest = max(longest, binary.LittleEndian.Uint64(lengths[8*r:]))
	}
	if longest > maxPayload { // all ranks fail alike
		return nil, &SystemError{
			Code: lifecycle.CodeInternal, Op: "exchange", Err: fmt.Errorf("a rank sent %d bytes, more than %d", longest,
				maxPayload),
		}
	}
	blocks, err := allGather(append(mine, make([]byte, int(longest)-len(mine))...))
	if err != nil {
		return nil, err
	}
	for r := range payloads {
		payloads[r] = blocks[r*int(longest):][:binary.LittleEndian.Uint64(lengths[8*r:])]
	}
	return payloads, nil
}

// giveBack gives up an unused place in the line because of err. As the communicator fails, ranks that would wait for
// this one over their connections are told; ranks that meet anew see it at the rendezvous.
func (c *core) giveBack(ctx context.Context, call lifecycle.Call, place *ticket, err error) {
	if call == lifecycle.CallShrink || c.life.State() == lifecycle.StateRevoked {
		c.turn.cancel(place)
		return
	}
	if c.queue(ctx, call, place) != nil {
		return // the communicator has failed because of that
	}
	defer c.turn.leave()
	if !c.over {
		c.comm.Abandon(err)
		_ = c.fail(call, c.collectives.Load(), err) // returns err, which the caller has
	}
}

// meetAgain makes ranks of this communicator meet for act a, although their connections are broken or were revoked.
// members are these ranks, nil for all; rank is this rank's index among them. It uses up the place in the line, and is
// bounded by the communicator's life. If this rank can't take part, fn gets a context that has ended, so that the
// others are told.
func (c *core) meetAgain(
	ctx context.Context, a *act, place *ticket, members []int, rank int,
	fn func(context.Context, rendezvous.Rendezvous) error,
) error {
	call := a.rec.Call
	failed := c.turn.wait(ctx, place)
	if failed != nil {
		failed = c.abandoned(ctx, call)
	} else {
		defer c.turn.leave()
		failed = c.overtaken(call)
	}
	seed := slices.Concat([]byte("carillon reunion"), c.secret, c.id[:], []byte{byte(a.rec.Act)})
	seed = binary.LittleEndian.AppendUint64(seed, a.rec.Seq)
	if members == nil {
		for r := range c.size {
			members = append(members, r)
		}
	}
	at, err := c.rt.point.Again(meet.Reunion{Seed: seed, Addresses: c.meets, Members: members, Rank: rank})
	if err != nil {
		return cmp.Or(failed, err)
	}
	ctx, cancel := endedBy(ctx, failed)
	defer cancel()
	held := c.meetings.Load()
	ctx, release := alsoEnds(ctx, held)
	defer release()
	err = fn(ctx, at)
	if failed != nil {
		return failed
	}
	if err != nil && held.Err() != nil {
		return context.Cause(held)
	}
	// A rank that arrives at a meeting that is over, or is not held, has made no mistake: the ids are derived from the
	// calls that the ranks make.
	mismatch := func(detail string) error {
		return &PeerError{
			Code: lifecycle.CodeMismatch, Rank: -1, Comm: c.id, Name: c.name, Self: c.rank, Detail: detail,
		}
	}
	if stale, ok := errors.AsType[*rendezvous.StaleError](err); ok {
		return mismatch("the remaining ranks do not meet: " + stale.Detail)
	}
	if conflict, ok := errors.AsType[*rendezvous.ConflictError](err); ok && len(members) < c.size {
		return mismatch(conflict.Detail) // its members have other numbers
	}
	missing, _ := errors.AsType[*rendezvous.MissingError](err)
	if peer, ok := errors.AsType[*PeerError](err); ok && missing != nil &&
		slices.ContainsFunc(missing.Gone(), func(m rendezvous.Member) bool { return m.How == rendezvous.Refuted }) {
		return mismatch(peer.Detail) // a rank that another one contradicts need not be the wrong one
	}
	return err
}

// Split divides the communicator: the ranks that pass the same color form a new one, ordered by key, and by their rank
// here if keys are equal. A rank that passes NoColor gets nil. All ranks of the communicator call it. It blocks until
// all have called it and the new communicator is connected. A non-blocking communicator returns the child with
// ErrInProgress: the child may be used once AsyncError of neither returns that.
//
// If ctx ends before all ranks have called Split, the parent fails; after that, only the child. A revoked communicator
// may be split.
func (c *Comm) Split(ctx context.Context, color, key int, opts ...Option) (*Comm, error) {
	defer runtime.KeepAlive(c)
	if err := c.check(lifecycle.CallSplit); err != nil {
		return nil, err
	}
	if color < 0 && color != NoColor {
		return nil, c.refused(ctx, lifecycle.CallSplit, c.usage(lifecycle.CallSplit, lifecycle.CodeInvalidArgument,
			"color is %d: it must be 0 or more, or NoColor", color))
	}
	if err := c.mayChange(ctx, lifecycle.CallSplit); err != nil {
		return nil, err
	}
	if err := c.everReady(ctx, lifecycle.CallSplit); err != nil {
		return nil, err
	}
	mine := wish{color: color, key: key}
	if color == NoColor {
		return nil, c.leaveOut(ctx, mine)
	}
	d := &derivation{
		call: lifecycle.CallSplit, site: callSite(), opts: opts, rank: -1,
		id: func(number uint64) CommID { return lifecycle.ChildCommID(c.id, number, color) },
	}
	d.meet = func(ctx context.Context) error { return c.split(ctx, d, mine) }
	return c.derive(ctx, d)
}

// leaveOut takes part in a Split that gives this rank no communicator.
func (c *Comm) leaveOut(ctx context.Context, mine wish) error {
	number, place := c.enter(lifecycle.CallSplit)
	a := c.act(ctx, lifecycle.CallSplit, number, callSite()).start()
	rest := func(ctx context.Context) error {
		_, err := c.exchange(ctx, a, place, mine.encode())
		a.end(err)
		return err
	}
	if g := groupOf(ctx); g != nil && c.blocking {
		j := newWork()
		g.await(c, j)
		c.workers.start(func() { j.finish(rest(ctx)) })
		return nil
	}
	return c.perform(ctx, rest)
}

// split is the part of Split that communicates with the other ranks.
func (c *core) split(ctx context.Context, d *derivation, mine wish) error {
	d.init.phase(tape.PhaseRendezvous)
	port, err := c.rt.fabric.Prepare(d.child.id, d.child.secret, c.size, c.links.Local())
	if err != nil {
		c.giveBack(ctx, lifecycle.CallSplit, d.place, err)
		return err
	}
	mine.card, mine.device = port.Card(), d.child.kindName()
	payloads, err := c.exchange(ctx, d.act, d.place, mine.encode())
	wishes := make([]wish, len(payloads))
	for r, p := range payloads {
		if err == nil {
			if err = wishes[r].decode(p); err != nil {
				err = fmt.Errorf("split: what rank %d sent: %w", r, err)
			}
			err = c.fail(lifecycle.CallSplit, c.collectives.Load(), err)
		}
	}
	if err != nil {
		port.GiveUp(transport.NoticeOf(err, c.rank).InParent())
		return err
	}
	members := membersOf(wishes, mine.color)
	ranks := make([]meet.Introduction, len(members))
	for i, m := range members {
		ranks[i] = meet.Introduction{Meets: c.meets[m], Card: wishes[m].card, Device: wishes[m].device}
	}
	d.setMembers(members)
	err = d.child.connect(ctx, d.init, port, ranks, members)
	if p, ok := errors.AsType[*PeerError](err); ok && p.Rank == d.child.rank {
		err = cmp.Or(context.Cause(c.calls), err) // the others name this rank as the reason: it knows the actual cause
	}
	return err
}

// membersOf returns the ranks with a color, ordered by key.
func membersOf(all []wish, color int) []int {
	var members []int
	for r, e := range all {
		if e.color == color {
			members = append(members, r)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(all[a].key, all[b].key) })
	return members
}

// wish is a rank's data in a split: color and key, the kind of its device in the new communicator, and its card for the
// other ranks of that communicator.
type wish struct {
	color, key int
	device     string
	card       []byte
}

func (w wish) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(w.color))
	b = binary.LittleEndian.AppendUint64(b, uint64(w.key))
	return append(wire.AppendBytes(b, w.device), w.card...)
}

func (w *wish) decode(b []byte) error {
	r := wire.NewReader(b)
	w.color, w.key, w.device, w.card = int(r.Uint64()), int(r.Uint64()), r.Text(len(b)), r.Rest()
	return r.Err()
}
