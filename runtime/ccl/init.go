package ccl

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/rendezvous"
	"github.com/carillon-rt/carillon/runtime/rendezvous/mem"
	rtcp "github.com/carillon-rt/carillon/runtime/rendezvous/tcp"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// World makes the communicator of all processes of the job, as the launcher's environment says (torchrun, Slurm, Open
// MPI or carillon run). It blocks until all have come. Called again, on all ranks, it makes another one. Without a
// launcher it is a communicator of one rank.
//
// A call that ends before it tries to meet the others, because it is refused or rank 0 can't open the job's address,
// does not count: it may be made again by that rank alone.
func (rt *Runtime) World(ctx context.Context, opts ...Option) (*Comm, error) {
	if rt.absent() {
		return nil, errNoRuntime(lifecycle.CallInitRank)
	}
	w := rt.cfg.World
	info := lifecycle.Info{Call: lifecycle.CallInitRank, Rank: w.Rank, Size: max(w.Size, 1), Site: callSite()}
	c, meet, err := rt.openWorld(ctx, &info, append([]Option{WithName("world")}, opts...))
	if err != nil {
		return nil, err
	}
	return c.meetFirst(ctx, meet)
}

// openWorld gives a World its number, which the ranks agree on, and makes all that this rank can make alone.
func (rt *Runtime) openWorld(ctx context.Context, info *lifecycle.Info, opts []Option) (*Comm, rendezvous.Rendezvous, error) {
	rt.naming.Lock()
	defer rt.naming.Unlock()
	rt.mu.Lock()
	n := rt.worlds
	rt.mu.Unlock()
	id, err := rt.cfg.World.UniqueID(n)
	if err != nil {
		return nil, nil, rt.unborn(ctx, err, *info, opts)
	}
	if err := rt.mayOpen(ctx, id, *info, opts); err != nil {
		return nil, nil, err
	}
	meet := rendezvous.Rendezvous(mem.New(1))
	if info.Size > 1 {
		if info.Rank == 0 {
			if err := rt.serveWorld(id); err != nil {
				info.ID = lifecycle.RootCommID(id)
				return nil, nil, rt.unborn(ctx, err, *info, opts)
			}
		}
		meet = rtcp.Dial(id, rt.rendezvousConfig())
	}
	c, err := rt.openRoot(ctx, id, *info, opts)
	if err != nil {
		return nil, nil, errors.Join(err, meet.Close())
	}
	rt.mu.Lock()
	rt.worlds++
	rt.mu.Unlock()
	return c, meet, nil
}

// serveWorld makes this process, rank 0 of the job, the meeting point at the job's address.
func (rt *Runtime) serveWorld(id UniqueID) error {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.closed {
		return ErrRuntimeClosed
	}
	if rt.world == nil {
		s, err := rtcp.Listen(context.Background(), rt.cfg.World.ListenAddress(), rt.rendezvousConfig())
		if err != nil {
			return fmt.Errorf("rank 0 serves the rendezvous of the job at %s: %w", id.Address(), err)
		}
		rt.world = s
	}
	return rt.world.Serve(id)
}

// InitRank makes a communicator of nranks ranks, of which the caller is rank. All ranks call it, with an id that one of
// them made with NewUniqueID. It blocks until all have come, bounded by ctx; when ctx ends first the error names the
// ranks that are missing. The phases rendezvous, topology and connect are on its span.
func (rt *Runtime) InitRank(ctx context.Context, id UniqueID, nranks, rank int, opts ...Option) (*Comm, error) {
	return rt.initRank(ctx, lifecycle.CallInitRank, id, nranks, rank, opts)
}

func (rt *Runtime) initRank(ctx context.Context, call lifecycle.Call, id UniqueID, nranks, rank int, opts []Option) (*Comm, error) {
	if rt.absent() {
		return nil, errNoRuntime(call)
	}
	info := lifecycle.Info{Call: call, Rank: rank, Size: nranks, Site: callSite()}
	if err := checkRank(call, id, nranks, rank); err != nil {
		return nil, rt.refused(ctx, err, info, opts)
	}
	return rt.makeRoot(ctx, id, info, rtcp.Dial(id, rt.rendezvousConfig()), opts)
}

// checkRank checks the arguments of a call that makes a communicator from an id.
func checkRank(call lifecycle.Call, id UniqueID, nranks, rank int) *UsageError {
	bad := func(format string, args ...any) *UsageError {
		return &UsageError{
			Call: call, Code: lifecycle.CodeInvalidArgument, Comm: lifecycle.RootCommID(id), Rank: rank, Detail: fmt.Sprintf(format, args...),
		}
	}
	if nranks < 1 || nranks > MaxRanks {
		return bad("nranks is %d: a communicator has 1 to %d ranks", nranks, MaxRanks)
	}
	if rank < 0 || rank >= nranks {
		return bad("rank is %d: with nranks %d it must be 0 to %d", rank, nranks, nranks-1)
	}
	if err := id.Valid(); err != nil {
		return bad("the unique id is not one that NewUniqueID made: %s", plainly(err))
	}
	return nil
}

// InitAll makes a communicator of n ranks that are all in this process, and returns them by rank. It is for goroutines
// that work as ranks: each uses its own.
func (rt *Runtime) InitAll(ctx context.Context, n int, opts ...Option) ([]*Comm, error) {
	if rt.absent() {
		return nil, errNoRuntime(lifecycle.CallInitAll)
	}
	site := callSite()
	if n < 1 || n > MaxRanks {
		return nil, rt.refused(ctx, &UsageError{
			Call: lifecycle.CallInitAll, Code: lifecycle.CodeInvalidArgument, Rank: -1,
			Detail: fmt.Sprintf("n is %d: a communicator has 1 to %d ranks", n, MaxRanks),
		}, lifecycle.Info{Rank: -1, Size: n, Site: site}, opts)
	}
	id, err := lifecycle.NewUniqueID("")
	if err != nil {
		return nil, err
	}
	stop := func() {}
	if groupOf(ctx) == nil { // in a group, the ranks outlive this call
		ctx, stop = context.WithCancel(ctx)
		defer stop()
	}
	meet := mem.New(n)
	comms, errs := make([]*Comm, n), make([]error, n)
	var first error // the others only say that they were stopped because of it
	var once sync.Once
	var wg sync.WaitGroup
	for r := range n {
		info := lifecycle.Info{Call: lifecycle.CallInitAll, Rank: r, Size: n, Site: site}
		wg.Go(func() {
			comms[r], errs[r] = rt.makeRoot(ctx, id, info, meet, opts)
			if err := errs[r]; err != nil && !errors.Is(err, ErrInProgress) {
				once.Do(func() { first = err })
				stop()
			}
		})
	}
	wg.Wait()
	if first != nil {
		for _, c := range comms {
			_ = c.Close() // the first error is what counts
		}
		return nil, first
	}
	return comms, errs[0]
}

// rootOptions are the options of a communicator that has no parent.
func rootOptions(opts []Option) options {
	o := options{name: "comm"}
	for _, set := range opts {
		set(&o)
	}
	return o
}

// refused records a call that was to make a communicator, and was not allowed. It returns err.
func (rt *Runtime) refused(ctx context.Context, err *UsageError, info lifecycle.Info, opts []Option) error {
	info.ID, info.Call = err.Comm, err.Call
	return rt.unborn(ctx, err, info, opts)
}

// unborn records a call that ended before there was a communicator: refused, if err is a UsageError or the runtime is
// closed, or failed. There is no tape of the communicator that the record could be on, so it has one of its own. It
// returns err.
func (rt *Runtime) unborn(ctx context.Context, err error, info lifecycle.Info, opts []Option) error {
	w := rt.cfg.Tape.Comm(tape.CommInfo{
		ID: info.ID, Parent: info.Parent, Name: rootOptions(opts).name, Rank: info.Rank, Size: info.Size, Engine: "host",
	})
	defer w.Close()
	rec := tape.LifeRecord{
		Act: actOf(info.Call), Call: info.Call, Stage: tape.StageMisuse, Code: lifecycle.CodeOf(err), State: lifecycle.StateNone, Peer: -1,
		Site: info.Site, Caller: callerSpan(ctx),
	}
	if _, usage := asUsage(err); !usage {
		if errors.Is(err, ErrRuntimeClosed) {
			rec.Code = lifecycle.CodeInvalidUsage
		} else {
			rec.Stage, rec.Start = tape.StageStart, tape.Now()
			w.Life(rec)
			rec.Stage = tape.StageEnd
		}
	}
	rec.Text = err.Error()
	w.Life(rec)
	return err
}

// makeRoot makes a communicator that has no parent.
func (rt *Runtime) makeRoot(ctx context.Context, id UniqueID, info lifecycle.Info, meet rendezvous.Rendezvous, opts []Option) (*Comm, error) {
	if err := rt.mayOpen(ctx, id, info, opts); err != nil {
		return nil, err
	}
	c, err := rt.openRoot(ctx, id, info, opts)
	if err != nil {
		return nil, err
	}
	return c.meetFirst(ctx, meet)
}

// mayOpen refuses to make a communicator in a group that it can't join.
func (rt *Runtime) mayOpen(ctx context.Context, id UniqueID, info lifecycle.Info, opts []Option) error {
	g := groupOf(ctx)
	if g == nil {
		return nil
	}
	why := g.closedTo(rt)
	if why == "" {
		return nil
	}
	return rt.refused(ctx, &UsageError{
		Call: info.Call, Code: lifecycle.CodeInvalidUsage, Comm: lifecycle.RootCommID(id), Name: rootOptions(opts).name, Rank: info.Rank, Detail: why,
	}, info, opts)
}

// openRoot makes a communicator that has no parent, and has not met the other ranks.
func (rt *Runtime) openRoot(ctx context.Context, id UniqueID, info lifecycle.Info, opts []Option) (*Comm, error) {
	o := rootOptions(opts)
	info.ID, info.Name = lifecycle.RootCommID(id), o.name
	c, err := rt.newComm(info.Call, info, rt.cfg.Blocking || !o.nonBlocking)
	if err != nil {
		return nil, rt.unborn(ctx, err, info, opts)
	}
	c.secret = id.Secret()
	return c, nil
}

// meetFirst makes a communicator that has no parent ready, with the ranks that come to meet.
func (c *Comm) meetFirst(ctx context.Context, meet rendezvous.Rendezvous) (*Comm, error) {
	info := c.life.Info()
	a := c.begin(ctx, tape.ActInit, info.Call, 0, info.Site)
	return c.initialize(ctx, a, func(ctx context.Context) error { return c.meet(ctx, a, meet, info.Rank, info.Size) })
}

// meet finds the other ranks at a rendezvous, and connects with them.
func (c *core) meet(ctx context.Context, a *act, at rendezvous.Rendezvous, rank, size int) error {
	defer at.Close() //nolint:errcheck // the ranks have met, or the error of that counts
	a.phase(tape.PhaseRendezvous)
	port, err := c.prepare(isLocal(at), size)
	if err != nil {
		return err
	}
	mine, err := c.introduce(port, at)
	if err != nil {
		port.Close()
		return err
	}
	payloads, err := at.Exchange(ctx, "init", rank, size, mine)
	if err != nil {
		port.Close()
		return err
	}
	ranks, err := readIntroductions(payloads)
	if err != nil {
		port.Close()
		return err
	}
	if err := c.connect(ctx, a, port, ranks); err != nil {
		return err
	}
	c.rt.met(ranks)
	return nil
}

// met tells who wants to know where the processes of other ranks can be reached.
func (rt *Runtime) met(ranks []introduction) {
	var contacts []string
	for i := range ranks {
		if ranks[i].contact != "" {
			contacts = append(contacts, ranks[i].contact)
		}
	}
	if len(contacts) > 0 && rt.cfg.Met != nil {
		rt.cfg.Met(contacts)
	}
}

// prepare makes this rank reachable. local says that all ranks, size at most, are of this runtime.
func (c *core) prepare(local bool, size int) (*fabric.Port, error) {
	if local {
		return c.rt.fabric.PrepareLocal(c.id, c.secret, size)
	}
	return c.rt.fabric.Prepare(c.id, c.secret, size)
}

// introduction is what the other ranks must know of one: where a rendezvous can be held in its process, where else its process can be
// reached, and how the rank itself is.
type introduction struct {
	meets   string
	contact string // Config.Contact
	card    []byte // of its fabric.Port
}

// introduce makes this rank's introduction, as it is sent.
func (c *core) introduce(port *fabric.Port, at rendezvous.Rendezvous) ([]byte, error) {
	i := introduction{card: port.Card()}
	if !isLocal(at) {
		s, err := c.rt.rendezvousServer()
		if err != nil {
			return nil, err
		}
		i.meets = s.Addr()
		if contact := c.rt.cfg.Contact; contact != nil {
			i.contact = contact()
		}
		if len(i.contact) > 255 {
			i.contact = "" // nowhere: its length has one byte
		}
	}
	b := append([]byte{byte(len(i.meets))}, i.meets...)
	b = append(append(b, byte(len(i.contact))), i.contact...)
	return append(b, i.card...), nil
}

// isLocal tells whether all ranks that meet there are of this runtime.
func isLocal(at rendezvous.Rendezvous) bool {
	switch at.(type) {
	case *mem.Rendezvous, *localMeeting:
		return true
	default:
		return false
	}
}

// readIntroductions takes apart what introduce made.
func readIntroductions(payloads [][]byte) ([]introduction, error) {
	all := make([]introduction, len(payloads))
	for r, p := range payloads {
		meets, p, ok := cutText(p)
		contact, p, also := cutText(p)
		if !ok || !also {
			return nil, fmt.Errorf("what rank %d sent of itself is cut short: %d bytes", r, len(payloads[r]))
		}
		all[r] = introduction{meets: meets, contact: contact, card: p}
	}
	return all, nil
}

// cutText cuts off a text that has its length in front.
func cutText(b []byte) (text string, rest []byte, ok bool) {
	if len(b) == 0 || len(b) < 1+int(b[0]) {
		return "", nil, false
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], true
}

// newComm makes a communicator that isn't connected yet, and puts it on the books.
func (rt *Runtime) newComm(call lifecycle.Call, info lifecycle.Info, blocking bool) (*Comm, error) {
	info.Call, info.NonBlocking = call, !blocking
	c := &core{
		rt: rt, blocking: blocking, start: newJob(), maker: int64(info.Site.Goroutine), acts: map[tape.Act]uint64{},
		id: info.ID, name: info.Name, rank: info.Rank, size: info.Size,
	}
	c.whole, c.giveUp = context.WithCancelCause(context.Background())
	c.ctx, c.cancel = context.WithCancelCause(c.whole)
	if err := rt.adopt(c, info); err != nil {
		c.giveUp(nil)
		return nil, err
	}
	handle := &Comm{core: c}
	rt.watch(handle)
	return handle, nil
}

func (c *core) tapeInfo(parent CommID, nodes int) tape.CommInfo {
	return tape.CommInfo{ID: c.id, Parent: parent, Name: c.name, Rank: c.rank, Size: c.size, Nodes: nodes, Engine: "host"}
}

// initialize runs the call that makes the communicator: here, or, for a non-blocking one and in a group, in the
// background. Abort interrupts it.
func (c *Comm) initialize(ctx context.Context, a *act, connect func(context.Context) error) (*Comm, error) {
	g := groupOf(ctx)
	background := !c.blocking || g != nil
	if !c.blocking {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })
	start := func() error {
		defer cancel(nil)
		defer stop()
		err := connect(ctx)
		c.initialized(a, err)
		return err
	}
	if !background {
		if err := start(); err != nil {
			c.discard()
			return nil, err
		}
		return c, nil
	}
	c.jobs.add(c.start)
	c.crew.start(func() {
		_ = start()          // the job has its error
		runtime.KeepAlive(c) // who waits for it may hold it by the group alone
	})
	if g != nil {
		g.await(c, c.start)
		return c, nil
	}
	return c, ErrInProgress
}

// initialized ends the init: the communicator is ready, or failed.
func (c *core) initialized(a *act, err error) {
	if err == nil {
		c.life.Signal(lifecycle.EventInitDone, nil)
	} else {
		c.life.Signal(lifecycle.EventInitFailed, err)
	}
	a.end(err)
	c.start.end(err)
}

// discard takes a communicator whose blocking init failed off the books: its caller never gets it.
func (c *core) discard() {
	c.ending.Add(1)
	defer c.retire()
	if _, err := c.life.Do(lifecycle.CallAbort, lifecycle.Site{}); err != nil {
		return // Runtime.Close has it
	}
	c.giveUp(nil)
	c.life.Signal(lifecycle.EventAbortDone, nil)
	c.tape.State(c.life.State())
}

// connect connects the ranks once they know of each other.
func (c *core) connect(ctx context.Context, a *act, port *fabric.Port, ranks []introduction) error {
	a.phase(tape.PhaseTopology)
	meets, cards := make([]string, len(ranks)), make([][]byte, len(ranks))
	for r := range ranks {
		meets[r], cards[r] = ranks[r].meets, ranks[r].card
	}
	topology, err := port.Topology(c.rank, cards)
	if err != nil {
		port.Close()
		return err
	}
	c.tape.Describe(c.tapeInfo(c.life.Info().Parent, len(topology.Ranks)))
	a.phase(tape.PhaseConnect)
	links, err := port.Connect(ctx, c.rank, cards)
	if err != nil {
		return c.gaveUp(c.life.Info().Call, err)
	}
	c.links, c.meets = links, meets
	c.engine = host.New(links, c.tape, host.Config{Algorithm: c.rt.cfg.Algorithm, Comm: c.id, Name: c.name})
	return nil
}

// gaveUp is the error of a connection on which a rank said that it gives up, as the fault of the rank that it names. Other errors stay what they
// are. Once there is an engine, that explains them, and knows more.
func (c *core) gaveUp(call lifecycle.Call, err error) error {
	var notice *transport.NoticeError
	if !errors.As(err, &notice) {
		return err
	}
	rank := notice.Peer
	if notice.Notice.Culprit >= 0 {
		rank = int(notice.Notice.Culprit)
	}
	return &lifecycle.PeerError{
		Code: notice.Notice.Code, Rank: rank, Self: c.rank, Comm: c.id, Name: c.name, Call: call, Detail: notice.Notice.Detail,
	}
}

// childSecret is what authenticates the ranks of a child: only who has the parent's can know it.
func childSecret(parent []byte, child CommID) []byte {
	m := hmac.New(sha256.New, parent)
	m.Write([]byte("carillon child"))
	m.Write(child[:])
	return m.Sum(nil)
}
