package profiler

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

// ID identifies an event of a Comm; 0 means none.
type ID uint64

// Comm reports the events of a rank of a communicator to the plug-ins. Its methods may be called on nil, and from any
// goroutine.
type Comm struct {
	p    *Profiler
	info Info

	generation atomic.Uint64 // see Bind
	closed     atomic.Bool

	mu      sync.Mutex
	running []running // only kept while proxied operations are reported
}

// running is an operation that has not ended.
type running struct {
	id   ID
	call lifecycle.Call
	peer int
}

// Bind sets the generation of the rank's connections: operations of another generation have no parent here.
func (c *Comm) Bind(generation uint64) {
	if c != nil {
		c.generation.Store(generation)
	}
}

// Owner returns the rank as the owner of proxied operations; the zero Owner on nil.
func (c *Comm) Owner() Owner {
	if c == nil {
		return Owner{}
	}
	return Owner{Comm: c.info.ID, Rank: c.info.Rank, PID: c.p.pid, Generation: c.generation.Load()}
}

// Wants reports whether a plug-in asks for one of these types.
func (c *Comm) Wants(types Mask) bool {
	return c != nil && slices.ContainsFunc(c.p.workers, func(w *worker) bool { return w.wants(types) })
}

// StartGroup begins a group of operations.
func (c *Comm) StartGroup() ID {
	if !c.Wants(Operations) {
		return 0
	}
	r := record{kind: kindStart, Event: Event{Type: Group}}
	return c.start(Operations, &r)
}

// StartOperation begins an operation of a group or, if group is 0, one outside groups.
func (c *Comm) StartOperation(group ID, op *Operation) ID {
	if !c.Wants(Operations) {
		return 0
	}
	r := record{kind: kindStart, parent: group, Event: Event{Type: PointToPoint, Op: *op}}
	if op.Call.IsCollective() {
		r.Type = Collective
	}
	id := c.start(Operations, &r)
	if c.Wants(proxied) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running = append(c.running, running{id, op.Call, op.Peer})
	}
	return id
}

// StartProxyOp begins the sending or receiving of data by a proxy of this process. Its parent is the operation of this
// rank that the data belongs to, if this rank owns it. It begins in state s, unless s is 0.
func (c *Comm) StartProxyOp(op *ProxyOperation, s State) ID {
	if !c.Wants(askedBy(ProxyOp)) {
		return 0
	}
	r := record{kind: kindStart, state: s, Event: Event{Type: ProxyOp, Proxy: *op}}
	if op.Owner == c.Owner() {
		r.parent = c.runs(op)
	}
	return c.start(askedBy(ProxyOp), &r)
}

// runs returns the running operation that a proxied one belongs to; 0 if there is none.
func (c *Comm) runs(op *ProxyOperation) ID {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.running, func(r running) bool {
		return r.call.IsCollective() || r.peer == op.Peer && (r.call == lifecycle.CallSend) == op.IsSend
	})
	if i < 0 {
		return 0
	}
	return c.running[i].id
}

// StartProxyStep begins a step of a proxied operation, in state s. For n, see Change.
func (c *Comm) StartProxyStep(proxyOp ID, owner Owner, step int, s State, n uint64) ID {
	if !c.Wants(askedBy(ProxyStep)) {
		return 0
	}
	r := record{kind: kindStart, parent: proxyOp, state: s, n: n, Event: Event{Type: ProxyStep, Step: step}}
	r.Proxy.Owner = owner
	return c.start(askedBy(ProxyStep), &r)
}

func (c *Comm) start(askedBy Mask, r *record) ID {
	r.id = ID(c.p.events.Add(1))
	r.Rank = c.info.Rank
	c.tell(askedBy, r)
	return r.id
}

// State reports an event's new state. For n, see Change.
func (c *Comm) State(event ID, s State, n uint64) {
	if c == nil || event == 0 {
		return
	}
	c.tell(0, &record{kind: kindState, id: event, state: s, n: n})
}

// Stop ends an event.
func (c *Comm) Stop(event ID, code lifecycle.Code) {
	if c == nil || event == 0 {
		return
	}
	c.mu.Lock()
	c.running = slices.DeleteFunc(c.running, func(r running) bool { return r.id == event })
	c.mu.Unlock()
	c.tell(0, &record{kind: kindStop, id: event, code: code})
}

// Close ends the communicator. It does not wait for the plug-ins; see Profiler.Close.
func (c *Comm) Close() {
	if c == nil || c.closed.Swap(true) {
		return
	}
	c.tell(0, &record{kind: kindFinalize})
}

// tell queues a record for the plug-ins that asked for one of these types; for all plug-ins if types is 0.
func (c *Comm) tell(types Mask, r *record) {
	r.comm, r.At = c, time.Now()
	for _, w := range c.p.workers {
		if types == 0 || w.wants(types) {
			w.put(r)
		}
	}
}
