package ccl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/meet"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// World makes the communicator of all processes of the job, as described by the environment of the launcher: torchrun,
// Slurm, Open MPI, carillon run and the others that package launch knows. It blocks until all have arrived, bounded by
// ctx, or by MeetingLimit if ctx has no deadline; meanwhile, and in its error, it says which ranks are missing. Each
// further call, on all ranks, makes another communicator. Without a launcher it makes a communicator of one rank.
//
// A call does not count if it ends before it tries to meet the others, because it is refused or rank 0 can't open the
// job's address: the rank may call World again by itself.
func (rt *Runtime) World(ctx context.Context, opts ...Option) (*Comm, error) {
	if rt.absent() {
		return nil, errNoRuntime(lifecycle.CallInitRank)
	}
	w := rt.cfg.World
	m := rt.making(ctx, lifecycle.CallInitRank, max(w.Size, 1), w.Rank, append([]Option{WithName("world")}, opts...))
	c, at, err := m.openWorld()
	if err != nil {
		return nil, err
	}
	return c.meetFirst(ctx, at, c.joinRun)
}

// joinRun makes the process part of the run that rank 0 of a world has, and gives the world its id in that run. Until
// then the world has an id that all runs in the same environment share.
func (c *core) joinRun(zero *meet.Introduction) {
	c.rt.metWorld.Store(true)
	c.rt.inRun(zero.Run)
	c.id = lifecycle.RunCommID(c.id, zero.Run)
	c.life.Identify(c.id)
	c.tape.Describe(c.tapeInfo(CommID{}, transport.Topology{}))
}

// inRun makes the process part of a run, unless it already is part of one.
func (rt *Runtime) inRun(run lifecycle.Run) {
	if rt.run.CompareAndSwap(0, uint64(run)) {
		rt.cfg.Tape.Run(run)
	}
}

// openWorld gives a World its number, on which the ranks agree, and prepares everything that needs no other rank.
func (m *making) openWorld() (*Comm, rendezvous.Rendezvous, error) {
	rt := m.rt
	rt.naming.Lock()
	defer rt.naming.Unlock()
	id, err := rt.cfg.World.UniqueID(rt.worlds)
	if err != nil {
		return nil, nil, m.ended(err)
	}
	m.ID = lifecycle.RootCommID(id)
	if err := m.outsideGroup(); err != nil {
		return nil, nil, err
	}
	if m.Rank == 0 {
		rt.inRun(lifecycle.NewRun())
	}
	at := rendezvous.Rendezvous(mem.New().Rank())
	switch {
	case m.Size == 1:
	case rt.cfg.Rendezvous != nil:
		if at, err = rt.cfg.Rendezvous(id); err != nil {
			return nil, nil, m.ended(err)
		}
	default:
		if m.Rank == 0 {
			if err := rt.point.ServeWorld(id, rt.cfg.World.ListenAddress()); err != nil {
				return nil, nil, m.ended(err)
			}
		}
		at = rt.point.DialWorld(id, rt.metWorld.Load())
	}
	c, err := m.open(id)
	if err != nil {
		return nil, nil, errors.Join(err, at.Close())
	}
	rt.worlds++
	return c, at, nil
}

// InitRank makes a communicator of nranks ranks, in which the caller is rank. All ranks call it, with an id that one of
// them made with NewUniqueID. It blocks until all have arrived, bounded by ctx, or by MeetingLimit if ctx has no
// deadline; if that ends first, the error names the missing ranks. Its span shows the phases rendezvous, topology and
// connect.
func (rt *Runtime) InitRank(ctx context.Context, id UniqueID, nranks, rank int, opts ...Option) (*Comm, error) {
	return rt.initRank(ctx, lifecycle.CallInitRank, []UniqueID{id}, nranks, rank, opts)
}

// InitRankScalable is InitRank with several unique ids, made by different ranks, whose processes share the work of the
// rendezvous: it is for communicators of thousands of ranks. All ranks pass the same ids in the same order, at most one
// id per rank. The first id identifies the communicator.
func (rt *Runtime) InitRankScalable(
	ctx context.Context, ids []UniqueID, nranks, rank int, opts ...Option,
) (*Comm, error) {
	return rt.initRank(ctx, lifecycle.CallInitRankScalable, ids, nranks, rank, opts)
}

// JoinGrow makes this process a rank of a communicator that grows: id was made by one of its ranks, nranks is the new
// size, and rank one of the new numbers. It blocks until all ranks have arrived, bounded as in InitRank.
func (rt *Runtime) JoinGrow(ctx context.Context, id UniqueID, nranks, rank int, opts ...Option) (*Comm, error) {
	return rt.initRank(ctx, lifecycle.CallGrow, []UniqueID{id}, nranks, rank, opts)
}

func (rt *Runtime) initRank(
	ctx context.Context, call lifecycle.Call, ids []UniqueID, nranks, rank int, opts []Option,
) (*Comm, error) {
	if rt.absent() {
		return nil, errNoRuntime(call)
	}
	m := rt.making(ctx, call, nranks, rank, opts)
	if err := m.check(ids); err != nil {
		return nil, err
	}
	return m.make(ids[0], rt.point.Dial(ids...))
}

// check checks the arguments of a call that makes a communicator from ids.
func (m *making) check(ids []UniqueID) error {
	n, rank := m.Size, m.Rank
	if len(m.devices) > 1 {
		return m.refused("there are %d devices for one rank: give it one", len(m.devices))
	}
	if len(ids) == 0 || len(ids) > max(n, 1) {
		return m.refused("there are %d unique ids: with nranks %d, 1 to %d are allowed", len(ids), n, max(n, 1))
	}
	m.ID = lifecycle.RootCommID(ids[0])
	if n < 1 || n > MaxRanks {
		return m.refused("nranks is %d: a communicator has 1 to %d ranks", n, MaxRanks)
	}
	if rank < 0 || rank >= n {
		return m.refused("rank is %d: with nranks %d it must be 0 to %d", rank, n, n-1)
	}
	seen := map[UniqueID]int{}
	for i, id := range ids {
		if err := id.Valid(); err != nil {
			return m.refused("the unique id is not one that NewUniqueID made: %s", plainly(err))
		}
		if j, twice := seen[id]; twice {
			return m.refused("unique ids %d and %d are the same: each must be made by a NewUniqueID of its own", j, i)
		}
		seen[id] = i
	}
	return nil
}

// InitAll makes a communicator of n ranks that are all in this process, and returns them by rank. It is for goroutines
// that work as ranks: each uses its own Comm. If ctx ends before they are connected, the error is a SystemError.
func (rt *Runtime) InitAll(ctx context.Context, n int, opts ...Option) ([]*Comm, error) {
	if rt.absent() {
		return nil, errNoRuntime(lifecycle.CallInitAll)
	}
	switch m := rt.making(ctx, lifecycle.CallInitAll, n, -1, opts); {
	case n < 1 || n > MaxRanks:
		return nil, m.refused("n is %d: a communicator has 1 to %d ranks", n, MaxRanks)
	case len(m.devices) > 1 && len(m.devices) != n:
		return nil, m.refused("there are %d devices: %d ranks need one for each, or one for all", len(m.devices), n)
	}
	id, err := lifecycle.NewUniqueID("")
	if err != nil {
		return nil, err
	}
	at := mem.New()
	comms, errs := make([]*Comm, n), make([]error, n)
	ranks, making := errgroup.WithContext(ctx)
	if groupOf(ctx) != nil {
		making = ctx // in a group, the ranks outlive this call
	}
	for r := range n {
		m := rt.making(making, lifecycle.CallInitAll, n, r, opts)
		ranks.Go(func() error {
			if comms[r], errs[r] = m.make(id, at.Rank()); errors.Is(errs[r], ErrInProgress) {
				return nil
			}
			return errs[r]
		})
	}
	if err := ranks.Wait(); err != nil {
		for _, c := range comms {
			_ = c.Close() // the first error is returned
		}
		if cause := context.Cause(ctx); cause != nil { // no rank is at fault: all belong to this call
			err = &SystemError{
				Code: lifecycle.CodeOf(cause), Op: fmt.Sprintf("make the %d ranks of InitAll", n), Err: cause,
			}
		}
		return nil, err
	}
	return comms, errs[0]
}

// making is a call that makes a communicator without a parent.
type making struct {
	rt  *Runtime
	ctx context.Context
	options
}

func (rt *Runtime) making(ctx context.Context, call lifecycle.Call, nranks, rank int, opts []Option) *making {
	info := lifecycle.Info{Call: call, Rank: rank, Size: nranks, Name: "comm", Site: callSite()}
	m := &making{rt, ctx, options{Info: info}}
	for _, set := range opts {
		set(&m.options)
	}
	return m
}

// refused records that the call was not allowed because of an argument, and returns the error.
func (m *making) refused(format string, args ...any) error {
	return m.refusedBy(lifecycle.CodeInvalidArgument, fmt.Sprintf(format, args...))
}

func (m *making) refusedBy(code lifecycle.Code, detail string) error {
	return m.ended(&UsageError{Call: m.Call, Code: code, Comm: m.ID, Name: m.Name, Rank: m.Rank, Detail: detail})
}

func (m *making) outsideGroup() error {
	if why := groupOf(m.ctx).closedTo(m.rt); why != "" {
		return m.refusedBy(lifecycle.CodeInvalidUsage, why)
	}
	return nil
}

// ended records a call that ended before there was a communicator, on a tape slot of its own, and returns err. The call
// was refused if err is a UsageError or the runtime is closed; otherwise it failed.
func (m *making) ended(err error) error {
	w := m.rt.cfg.Tape.Comm(tape.CommInfo{
		ID: m.ID, Name: m.Name, Rank: m.Rank, Size: m.Size, Engine: m.rt.cfg.Engine.Name,
	})
	defer w.Close()
	rec := tape.LifeRecord{
		Act: actOf[m.Call], Call: m.Call, Stage: tape.StageMisuse, Code: lifecycle.CodeOf(err),
		State: lifecycle.StateNone, Peer: -1, Site: m.Site, Caller: callerSpan(m.ctx),
	}
	if _, usage := errors.AsType[*UsageError](err); errors.Is(err, ErrRuntimeClosed) {
		rec.Code = lifecycle.CodeInvalidUsage
	} else if !usage {
		rec.Stage, rec.Start = tape.StageStart, tape.Now()
		w.Life(rec)
		rec.Stage = tape.StageEnd
	}
	rec.Text = err.Error()
	w.Life(rec)
	return err
}

func (m *making) make(id UniqueID, at rendezvous.Rendezvous) (*Comm, error) {
	m.ID = lifecycle.RootCommID(id)
	if err := m.outsideGroup(); err != nil {
		return nil, err
	}
	c, err := m.open(id)
	if err != nil {
		return nil, err
	}
	return c.meetFirst(m.ctx, at, nil)
}

func (m *making) open(id UniqueID) (*Comm, error) {
	c, err := m.rt.newComm(&m.options)
	if err != nil {
		return nil, m.ended(err)
	}
	c.secret = id.Secret()
	return c, nil
}

// meetFirst makes a communicator without a parent ready, with the ranks that arrive at a rendezvous. met, if not nil,
// gets rank 0's introduction.
func (c *Comm) meetFirst(
	ctx context.Context, at rendezvous.Rendezvous, met func(zero *meet.Introduction),
) (*Comm, error) {
	info := c.life.Info()
	a := c.initAct(ctx, info.Call, info.Site).start()
	return c.initialize(ctx, a, func(ctx context.Context) error {
		return c.meet(ctx, a, at, info.Rank, info.Size, met)
	})
}

// MeetingLimit is how long the ranks of World, InitRank and JoinGrow wait for the others if the context has no
// deadline.
const MeetingLimit = 10 * time.Minute

// limited gives ctx a limit if it has no deadline. explain adds to an error that the limit was the reason.
func limited(ctx context.Context, limit time.Duration) (
	bounded context.Context, cancel context.CancelFunc, explain func(error) error,
) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}, func(err error) error { return err }
	}
	bounded, cancel = context.WithTimeout(ctx, limit)
	return bounded, cancel, func(err error) error {
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w (%v is the limit where a context has no deadline)", err, limit)
		}
		return err
	}
}

func (c *core) meet(
	ctx context.Context, a *act, at rendezvous.Rendezvous, rank, size int, met func(zero *meet.Introduction),
) error {
	defer at.Close() //nolint:errcheck // the ranks have met, or the error of that counts
	a.phase(tape.PhaseRendezvous)
	_, local := at.(*mem.Rendezvous)
	mine := meet.Introduction{Run: lifecycle.Run(c.rt.run.Load()), Device: c.kindName()}
	port, err := c.rt.fabric.Prepare(c.id, c.secret, size, local)
	if err == nil {
		mine.Card = port.Card()
	}
	if err == nil && !local {
		if contact := c.rt.cfg.Contact; contact != nil {
			mine.Contact = contact()
		}
		mine.Meets, err = c.rt.point.Addr()
	}
	bounded, cancel, explain := limited(ctx, MeetingLimit)
	defer cancel()
	meeting, cancel := endedBy(bounded, err) // ended on error, so that the others learn of it
	defer cancel()
	ranks, failed := meet.Introduce(meeting, at, rank, size, &mine)
	if err = cmp.Or(err, explain(failed)); err != nil {
		err = cmp.Or(transport.LossOf(ctx), err)
		if port != nil {
			port.GiveUp(transport.NoticeOf(err, rank))
		}
		return err
	}
	if met != nil {
		met(&ranks[0])
	}
	if err := c.connect(ctx, a, port, ranks, nil); err != nil {
		return err
	}
	var contacts []string
	for i := range ranks {
		if ranks[i].Contact != "" {
			contacts = append(contacts, ranks[i].Contact)
		}
	}
	if len(contacts) > 0 && c.rt.cfg.Met != nil {
		c.rt.cfg.Met(contacts)
	}
	return nil
}

// newComm makes a communicator that isn't connected yet, and registers it.
func (rt *Runtime) newComm(o *options) (*Comm, error) {
	info := o.Info
	info.NonBlocking = info.NonBlocking && !rt.cfg.Blocking
	c := &core{
		rt: rt, blocking: !info.NonBlocking, start: newWork(),
		maker: int64(info.Site.Goroutine), acts: map[lifecycle.Call]uint64{},
		id: info.ID, name: info.Name, rank: info.Rank, size: info.Size,
	}
	if n := len(o.devices); n > 0 {
		c.kind = o.devices[max(info.Rank, 0)%n]
	}
	c.whole = newScope(context.Background())
	c.calls = newScope(c.whole)
	c.meetings.Store(newScope(c.whole))
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		c.whole.end(nil)
		return nil, ErrRuntimeClosed
	}
	c.life = rt.lives.Open(info)
	if c.kind == nil {
		c.tape = rt.cfg.Tape.Comm(c.tapeInfo(info.Parent, transport.Topology{}))
	} else {
		c.tape = rt.cfg.Tape.DeviceComm(c.tapeInfo(info.Parent, transport.Topology{}))
	}
	rt.comms[c] = struct{}{}
	handle := &Comm{core: c}
	runtime.AddCleanup(handle, func(c *core) { // the handle is unreachable
		if c.life.State().Live() {
			rt.reap(func() {
				why := errors.New("nobody holds it any more")
				c.reclaim(why.Error(), why, false)
			})
		}
	}, c)
	return handle, nil
}

// tapeInfo describes the communicator for the tape. t is the zero Topology until the topology is known.
func (c *core) tapeInfo(parent CommID, t transport.Topology) tape.CommInfo {
	info := tape.CommInfo{
		ID: c.id, Parent: parent, Name: c.name, Rank: c.rank, Size: c.size, Nodes: len(t.Ranks),
		Engine: c.engineName(),
	}
	if t.PXN != tape.PXNUnknown {
		node := t.Node[c.rank]
		local := t.Ranks[node]
		info.Place = tape.Place{
			Node: node, Local: slices.Index(local, c.rank), Locals: len(local), Connections: t.Connections, PXN: t.PXN,
		}
	}
	return info
}

func (c *core) engineName() string {
	name := c.rt.cfg.Engine.Name
	switch {
	case c.device != nil:
		name += "+" + c.device.Name()
	case c.kind != nil:
		name += "+" + c.kind.Name()
	}
	return name
}

// initialize runs the call that makes the communicator: here, or in the background if it is non-blocking or in a group.
// Abort interrupts it.
func (c *Comm) initialize(ctx context.Context, a *act, connect func(context.Context) error) (*Comm, error) {
	g := groupOf(ctx)
	if !c.blocking {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, release := alsoEnds(ctx, c.calls)
	start := func() error {
		defer release()
		err := connect(ctx)
		if err == nil {
			c.life.Signal(lifecycle.EventInitDone, nil)
		} else {
			c.life.Signal(lifecycle.EventInitFailed, err)
		}
		c.rt.troubled.Store(err != nil)
		a.end(err)
		c.start.finish(err)
		return err
	}
	if c.blocking && g == nil {
		if err := start(); err != nil { // the caller never gets the communicator
			_ = c.end(ctx, ending{call: lifecycle.CallAbort, tolerant: true, silent: true})
			return nil, err
		}
		return c, nil
	}
	c.jobs.add(c.start)
	c.workers.start(func() {
		_ = start()          // the job has the error
		runtime.KeepAlive(c) // only the group may hold it, while its end waits for the job
	})
	if g != nil {
		g.await(c, c.start)
		return c, nil
	}
	return c, ErrInProgress
}

// endedBy returns ctx, ended with err as its cause unless err is nil.
func endedBy(ctx context.Context, err error) (ended context.Context, release func()) {
	ended, cancel := context.WithCancelCause(ctx)
	if err != nil {
		cancel(err)
	}
	return ended, func() { cancel(nil) }
}

// alsoEnds returns a context that ends with ctx or with other. The caller calls release.
func alsoEnds(ctx, other context.Context) (both context.Context, release func()) {
	both, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return both, func() {
		stop()
		cancel(nil)
	}
}

// connect connects the ranks. members has their numbers in the parent; nil without a parent, or if they keep their
// numbers.
func (c *core) connect(
	ctx context.Context, a *act, port *fabric.Port, ranks []meet.Introduction, members []int,
) error {
	a.phase(tape.PhaseTopology)
	meets, cards := make([]string, len(ranks)), make([][]byte, len(ranks))
	for r := range ranks {
		meets[r], cards[r] = ranks[r].Meets, ranks[r].Card
	}
	topology, err := port.Topology(c.rank, cards)
	if err == nil {
		err = c.sameDevices(ranks)
	}
	if err != nil {
		port.GiveUp(transport.NoticeOf(err, c.rank))
		return err
	}
	c.tape.Describe(c.tapeInfo(c.life.Info().Parent, topology))
	c.openProfile(ctx, port, len(topology.Ranks))
	a.phase(tape.PhaseConnect)
	links, err := port.Connect(ctx, c.id, c.rank, cards)
	if err != nil {
		return c.gaveUp(c.life.Info().Call, members, err)
	}
	c.links, c.meets = links, meets
	c.comm = engine.NewComm(c.id, c.name, links, c.tape)
	links.OnRefused(c.refusals())
	c.engine = c.rt.cfg.Engine.New(c.comm)
	if err := c.openDevice(ctx); err != nil {
		return err
	}
	topology = links.Topology()
	if topology.Connections > 0 || c.device != nil && c.device.Name() != c.kind.Name() { // the description has changed
		c.tape.Describe(c.tapeInfo(c.life.Info().Parent, topology))
	}
	return nil
}

// gaveUp turns the error of a connection whose peer gave up into a PeerError for the rank that the peer blames.
func (c *core) gaveUp(call lifecycle.Call, members []int, err error) error {
	notice, ok := errors.AsType[*transport.NoticeError](err)
	if !ok {
		return err
	}
	p := &PeerError{
		Code: notice.Notice.Code, Rank: notice.Culprit(), Self: c.rank, Comm: c.id, Name: c.name, Call: call,
		Detail: notice.Notice.Detail,
	}
	if rank, ok := notice.Notice.ParentCulprit(); ok {
		if p.Rank = slices.Index(members, rank); p.Rank < 0 && rank >= 0 {
			p.Detail = fmt.Sprintf("rank %d of the communicator that is split: %s", rank, p.Detail)
		}
	}
	return p
}
