package proxy

import (
	"sync"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/profiler"
)

// Profile sets the profiler's communicator. Its plug-ins get the events of the data that the Endpoint's rails send, for
// its own rank and for others, of data that arrives for its rank, and of its rank's waits before it can send. The
// events contain the owner of the operation.
func (e *Endpoint) Profile(c *profiler.Comm) {
	c.Bind(e.token.Generation)
	e.profile.Store(c)
}

// events are the profiler's ids of an operation and its step; 0 if no plug-in wants them.
type events struct{ op, step profiler.ID }

const profiled = profiler.ProxyOp | profiler.ProxyStep

// profileStart starts the event of an operation that waits for its turn on a rail. Operations without data have no
// events.
func (e *Endpoint) profileStart(o *op) {
	c := e.profile.Load()
	if !o.kind.isData() || !c.Wants(profiled) {
		return
	}
	o.events.op = c.StartProxyOp(&profiler.ProxyOperation{
		Owner: ownerFor(c, o.token), Peer: o.to, Steps: (len(o.data) + stepBytes - 1) / stepBytes, ChunkSize: stepBytes,
		IsSend: true,
	}, 0)
}

// profileStep starts the event of an operation's next step, of n bytes.
func (e *Endpoint) profileStep(o *op, n int) {
	if o.events.op == 0 {
		return
	}
	c := e.profile.Load()
	if o.sent == n {
		c.State(o.events.op, profiler.ProxyOpInProgress, 0)
	}
	step := (o.sent - n) / stepBytes
	o.events.step = c.StartProxyStep(o.events.op, ownerFor(c, o.token), step, profiler.SendWait, uint64(n))
}

// profileStepEnd stops the event of a step, if it has one.
func (e *Endpoint) profileStepEnd(ev *events, code lifecycle.Code) {
	if ev.step != 0 {
		e.profile.Load().Stop(ev.step, code)
		ev.step = 0
	}
}

// profileEnd stops the event of an operation, if it has one.
func (e *Endpoint) profileEnd(ev *events, code lifecycle.Code) {
	e.profileStepEnd(ev, code)
	if ev.op != 0 {
		e.profile.Load().Stop(ev.op, code)
		ev.op = 0
	}
}

// profileOne starts the events of an operation of one step between the Endpoint's own rank and a peer.
func profileOne(c *profiler.Comm, peer int, isSend bool, s profiler.State) (ev events) {
	owner := c.Owner()
	ev.op = c.StartProxyOp(&profiler.ProxyOperation{
		Owner: owner, Peer: peer, Steps: 1, ChunkSize: stepBytes, IsSend: isSend,
	}, profiler.ProxyOpInProgress)
	ev.step = c.StartProxyStep(ev.op, owner, 0, s, 0)
	return ev
}

// profileWait records that the rank has data for the peer and waits for credit or for an operation. There is no
// operation yet, so the wait is an operation of its own. c.mu is held.
func (c *Conn) profileWait() {
	if c.waiting.op != 0 {
		return
	}
	if p := c.e.profile.Load(); p.Wants(profiled) {
		c.waiting = profileOne(p, c.peer, true, profiler.SendPeerWait)
	}
}

// arrivals are the steps of a stream that have begun to arrive and that the rank has not taken.
type arrivals struct {
	some atomic.Bool // the list is not empty; without a plug-in, nothing else is read
	mu   sync.Mutex
	list []arrival // oldest first
}

type arrival struct {
	events
	end uint64 // the step's end in the stream
}

// profileArrival starts the event of a step of n bytes that begins to arrive, and returns it.
func (c *Conn) profileArrival(n int) profiler.ID {
	p := c.e.profile.Load()
	if !p.Wants(profiled) {
		return 0
	}
	a := &c.arrivals
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.state.Load()&closed != 0 {
		return 0
	}
	ev := profileOne(p, c.peer, false, profiler.RecvWait)
	a.list = append(a.list, arrival{ev, c.tail.Load() + uint64(n)})
	a.some.Store(true)
	return ev.step
}

// profileTaken stops the events of the steps that end at or before upTo.
func (c *Conn) profileTaken(upTo uint64, code lifecycle.Code) {
	a := &c.arrivals
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for ; n < len(a.list) && a.list[n].end <= upTo; n++ {
		c.e.profileEnd(&a.list[n].events, code)
	}
	a.list = a.list[:copy(a.list, a.list[n:])]
	a.some.Store(len(a.list) > 0)
}

// ownerFor returns the owner of a token, for plug-ins.
func ownerFor(c *profiler.Comm, t Token) profiler.Owner {
	return profiler.Owner{Comm: c.Owner().Comm, Rank: t.Rank, PID: t.PID, Generation: t.Generation}
}
