package host

import (
	"context"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Engine runs the calls of one rank of a communicator on host memory; it implements engine.Engine. Its methods may only
// be called by one goroutine at a time.
type Engine struct {
	comm       *engine.Comm
	links      engine.Links
	waiter     *transport.Waiter
	tape       *tape.CommWriter
	rank, size int
	nodes      []int
	all        []*link // by rank; nil for this rank
	others     []int   // the ranks of other nodes, which are further away, then those of this node; nearest first
	proxied    []*proxied
	board      *transport.Board
	posts      uint64 // number of this rank's posts: a header for each collective, with or without data

	plans   map[key]*plan
	last    *plan
	lastKey key

	scratch []byte // plan.tmp, grown as needed
	scaled  []byte // Send of a PreMulSum, scaled; grown as needed
	digests *digests

	call lifecycle.Call
	seq  uint64
	ops  []engine.Op
	x    execution
	w    waiting
	g    group

	clocks time.Duration // how far the tape's clock is ahead of transport's
}

// Kind returns the kind of this package's engines.
func Kind() engine.Kind {
	return engine.Kind{Name: "host", New: func(c *engine.Comm) engine.Engine { return New(c) }}
}

// New makes the engine of a rank.
func New(c *engine.Comm) *Engine {
	e := &Engine{
		comm: c, links: c.Links, waiter: c.Links.Waiter(), tape: c.Tape,
		rank: c.Rank, size: c.Size, board: c.Links.Board(), plans: map[key]*plan{},
	}
	e.clocks = time.Duration(tape.Now()) - transport.Clock()
	e.nodes = e.links.Topology().Node
	e.waiter.OnRest(e.report)
	e.all = make([]*link, e.size)
	for _, here := range []bool{false, true} {
		for d := 1; d < e.size; d++ {
			if r := (e.rank + d) % e.size; (e.nodes[r] == e.nodes[e.rank]) == here {
				e.others = append(e.others, r)
			}
		}
	}
	for r := range e.all {
		if r != e.rank {
			e.all[r] = e.newLink(r)
		}
	}
	e.x.e, e.g.e = e, e
	return e
}

func (e *Engine) newLink(rank int) *link {
	l := &link{conn: e.links.Conn(rank), rank: rank}
	l.placer, _ = l.conn.(transport.Placer)
	if c, ok := l.conn.(proxyConn); ok && e.tape != nil {
		l.proxied = newProxied(c, rank)
		e.proxied = append(e.proxied, l.proxied)
	}
	return l
}

// Close frees the engine's memory.
func (e *Engine) Close() { e.plans, e.last, e.scratch, e.scaled = nil, nil, nil, nil }

// Begin implements engine.Engine. Ranks that share memory post their headers, and small data.
func (e *Engine) Begin(call lifecycle.Call, seq uint64, ops []engine.Op) algo.Algorithm {
	e.call, e.seq, e.ops = call, seq, ops
	op := &ops[0]
	if !op.Call.IsCollective() {
		return algo.Auto
	}
	x := &e.x
	x.p = e.plan(op)
	x.own = engine.Sign(call, op, seq, x.p.algorithm)
	x.bufs[algo.In], x.bufs[algo.Out] = e.input(op), op.Recv
	if e.board != nil && e.comm.Stopped() == nil {
		x.post()
	}
	return x.p.algorithm
}

// Run implements engine.Engine. It checks its context only while waiting.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.comm.Stopped(); err != nil {
		e.forget()
		return err
	}
	e.enter(ctx)
	op := &e.ops[0]
	if !op.Call.IsCollective() {
		if err := e.together(e.ops); err != nil {
			return e.fail(err)
		}
		e.leave()
		return nil
	}
	e.w.collective = e.seq
	if e.x.p.together {
		e.waiter.Together(e.seq)
	}
	if err := e.x.run(op); err != nil {
		return e.fail(err)
	}
	e.leave()
	e.comm.Passed(e.seq)
	if op.Reduction == kernels.Avg && op.Call.Reduces() {
		kernels.Divide(op.Recv, op.DataType, e.size)
	}
	return nil
}

// input returns what op's plan reads: Send, or for PreMulSum a scaled copy of it.
func (e *Engine) input(op *engine.Op) []byte {
	if op.Reduction != kernels.PreMulSum || !op.Call.Reduces() {
		return op.Send
	}
	e.scaled = grow(e.scaled, len(op.Send))
	kernels.Scale(e.scaled, op.Send, op.DataType, op.Scale)
	return e.scaled
}

// grow returns n bytes of b's memory, or of new memory if b is too small. The contents are lost.
func grow(b []byte, n int) []byte {
	if cap(b) < n {
		b = make([]byte, n)
	}
	return b[:n]
}

// copyBytes copies a piece of data of whole bytes, unless both slices are the same memory, as with in-place operations.
func copyBytes(dst, src []byte, whole int) {
	if len(src) == 0 || &dst[0] == &src[0] {
		return
	}
	kernels.CopyPiece(dst, src, whole)
}

// enter makes the call passed to Begin the current one.
func (e *Engine) enter(ctx context.Context) {
	e.w = waiting{ctx: ctx}
	if at := e.tape.Began(); at != 0 { // the tape has read the clock just now
		e.waiter.Began(time.Duration(at) - e.clocks)
		e.w.began = at
	}
	e.waiter.Enter()
	e.comm.Begin(e.call, e.seq)
}

func (e *Engine) leave() {
	if len(e.proxied) > 0 && e.tape.Detailed() {
		e.tellProxied(lifecycle.CodeOK)
	}
	e.waiter.Leave()
	e.forget()
	e.comm.End()
}

// forget drops references to the caller's data.
func (e *Engine) forget() {
	e.ops, e.x.bufs = nil, [3][]byte{}
	e.w.ctx, e.w.op = nil, nil
}

// fail ends the running call with err, and returns the error to give to the caller.
func (e *Engine) fail(err error) error {
	for _, r := range e.others {
		e.all[r].unplace() // the caller owns the memory again
	}
	e.tellProxied(lifecycle.CodeOf(err))
	e.waiter.Leave()
	e.forget()
	return e.comm.Fail(err)
}

// lost returns the error of a call that can't continue because the connection to peer is lost.
func (e *Engine) lost(peer int, err error) error {
	if stopped := e.comm.Stopped(); stopped != nil {
		return stopped
	}
	// The Waiter has the first cause; a connection's error may be a consequence.
	if first := e.links.Lost(peer); first != nil {
		err = first
	}
	p := e.comm.Explain(peer, err)
	p.Since = e.w.since
	return p
}
