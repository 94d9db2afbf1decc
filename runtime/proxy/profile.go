package proxy

import (
	"sync"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/profiler"
)

// Profile has the plug-ins of the profiler told of what the Endpoint's rails send, for its own rank and for others, of
// what arrives for its rank, and of what its rank waits for before it can send. Whose an operation is, they are told as
// data.
func (e *Endpoint) Profile(c *profiler.Comm) {
	c.Bind(e.token.Generation)
	e.profile.Store(c)
}

// events are an operation and its step, as the plug-ins of one Endpoint are told; 0 where they are not.
type events struct{ op, step profiler.ID }

const profiled = profiler.ProxyOp | profiler.ProxyStep

// profileStart tells of an operation that waits for its turn on a rail. Those without data are not told.
func (e *Endpoint) profileStart(o *op) {
	c := e.profile.Load()
	if o.kind != kindData || !c.Wants(profiled) {
		return
	}
	o.events.op = c.StartProxyOp(&profiler.ProxyOperation{
		Owner: ownerFor(c, o.token), Peer: o.to, Steps: (len(o.data) + stepBytes - 1) / stepBytes, ChunkSize: stepBytes,
		IsSend: true,
	}, 0)
}

// profileStep tells of the next step of an operation, of n bytes.
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

// profileStepEnd tells that the step of an operation has gone out, if it was told of.
func (e *Endpoint) profileStepEnd(ev *events, code lifecycle.Code) {
	if ev.step != 0 {
		e.profile.Load().Stop(ev.step, code)
		ev.step = 0
	}
}

// profileEnd tells of the end of an operation, if it was told of.
func (e *Endpoint) profileEnd(ev *events, code lifecycle.Code) {
	e.profileStepEnd(ev, code)
	if ev.op != 0 {
		e.profile.Load().Stop(ev.op, code)
		ev.op = 0
	}
}

// profileOne begins an operation of one step between the Endpoint's own rank and a peer.
func profileOne(c *profiler.Comm, peer int, isSend bool, s profiler.State) (ev events) {
	owner := c.Owner()
	ev.op = c.StartProxyOp(&profiler.ProxyOperation{
		Owner: owner, Peer: peer, Steps: 1, ChunkSize: stepBytes, IsSend: isSend,
	}, profiler.ProxyOpInProgress)
	ev.step = c.StartProxyStep(ev.op, owner, 0, s, 0)
	return ev
}

// profileWait tells that the rank has data for the peer and waits, for credit or for an operation: there is none yet,
// so the wait is told as one. c.mu is held.
func (c *Conn) profileWait() {
	if c.waiting.op != 0 {
		return
	}
	if p := c.e.profile.Load(); p.Wants(profiled) {
		c.waiting = profileOne(p, c.peer, true, profiler.SendPeerWait)
	}
}

// arrivals are the steps of a stream that have begun to come and that the rank has not taken, as plug-ins are told.
type arrivals struct {
	some atomic.Bool // without a plug-in, this is all that is looked at
	mu   sync.Mutex
	list []arrival // the oldest first
}

type arrival struct {
	events
	end uint64 // where the step ends in the stream
}

// profileArrival tells of a step of n bytes that begins to come, and returns it.
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

// profileTaken tells of the end of the steps that end up to there.
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

// ownerFor is whose an operation is, as plug-ins are told.
func ownerFor(c *profiler.Comm, t Token) profiler.Owner {
	return profiler.Owner{Comm: c.Owner().Comm, Rank: t.Rank, PID: t.PID, Generation: t.Generation}
}
