package host

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Links is one rank's connections to all others of a communicator, as *fabric.Links is. Lost, FirstLost, Notify and
// Close may be called from several goroutines, and Close more than once.
type Links interface {
	Rank() int
	Size() int
	Conn(peer int) transport.Conn // nil for the own rank
	Waiter() *transport.Waiter    // which all the Conns ring
	Board() *transport.Board      // nil unless all ranks share memory
	Topology() transport.Topology
	Lost(peer int) error
	FirstLost() (peer int, err error)
	Notify(n transport.Notice)
	Close()
}

// Config is what an engine needs to know besides its links. The zero value is right.
type Config struct {
	Comm lifecycle.CommID // for errors
	Name string           // for errors
}

// Engine runs the operations of one rank of one communicator.
//
// Plan, Run, RunGroup and Exchange belong to one goroutine at a time. Check, Current, Explain, Interrupt and Abandon
// may be called by any goroutine at any time.
type Engine struct {
	cfg        Config
	links      Links
	waiter     *transport.Waiter
	tape       *tape.CommWriter
	rank, size int
	nodes      []int
	all        []*link // by rank; nil for this one
	board      *transport.Board
	posts      uint64 // what this rank has posted there: a header for each collective, and what goes along

	plans   map[key]*Plan
	last    *Plan
	lastKey key

	scratch []byte // Plan.Tmp, grown as needed
	scaled  []byte // Send of a PreMulSum, scaled; grown as needed
	digests *digests

	x execution
	w waiting
	g group

	clocks  time.Duration // what the tape's clock is ahead of transport's
	now     current
	passed  atomic.Uint64 // the number of the last collective that is done here
	stopped atomic.Pointer[stop]
}

// New makes the engine of the rank that links belongs to. It takes the links over: Close, and any error of an
// operation, closes them. tw may be nil.
func New(links Links, tw *tape.CommWriter, cfg Config) *Engine {
	e := &Engine{
		cfg: cfg, links: links, waiter: links.Waiter(), tape: tw,
		rank: links.Rank(), size: links.Size(), board: links.Board(), plans: map[key]*Plan{},
	}
	e.clocks = time.Duration(tape.Now()) - transport.Clock()
	e.nodes = links.Topology().Node
	e.waiter.OnRest(e.report)
	e.now.peer.Store(-1)
	e.all = make([]*link, e.size)
	for r := range e.all {
		if r != e.rank {
			e.all[r] = &link{conn: links.Conn(r), rank: r}
		}
	}
	e.x.e, e.g.e = e, e
	return e
}

// Close closes the links. No operation may be running: Interrupt it first. It may be called more than once.
func (e *Engine) Close() {
	e.links.Close()
	e.plans, e.last, e.scratch, e.scaled = nil, nil, nil, nil
	e.halt(&lifecycle.UsageError{
		Code: lifecycle.CodeDestroyed, State: lifecycle.StateDestroyed,
		Comm: e.cfg.Comm, Name: e.cfg.Name, Rank: e.rank, Detail: "its engine was closed",
	}, transport.Notice{Code: lifecycle.CodePeerAborted, Culprit: int32(e.rank)})
}

// Run carries out one collective by its plan, and returns when this rank's part in it is done: its Send may be
// overwritten, its Recv has the result. That all ranks have called it, and called the same, is then certain.
//
// seq is the number by which the ranks know that they speak of the same collective. It goes up with each, by the same
// on all ranks.
//
// The error is
//   - *lifecycle.PeerError with CodeMismatch when the ranks don't agree: no rank's Recv was written;
//   - *lifecycle.PeerError with the code of what befell a peer, also when another rank noticed it and told;
//   - *lifecycle.PeerError with CodeTimeout or CodeCanceled when ctx ended, with the rank that was waited for. ctx is
//     looked at only while waiting;
//   - what Interrupt or Abandon was given.
//
// After it the other ranks have been told, the links are closed, and every further operation returns the same error.
func (e *Engine) Run(ctx context.Context, seq uint64, op *Op, p *Plan) error {
	if s := e.stopped.Load(); s != nil {
		return s.err
	}
	e.begin(ctx, op.Call, seq, seq)
	h := makeHeader(kindCollective, op, seq, p.algorithm)
	if err := e.collective(op, p, h); err != nil {
		return e.fail(err)
	}
	e.end()
	storeRelease(&e.passed, seq)
	if op.Reduction == kernels.Avg && op.Call.Reduces() {
		kernels.Divide(op.Recv, op.DataType, e.size)
	}
	return nil
}

// input is what op's plan reads: Send, or for PreMulSum a scaled copy of it.
func (e *Engine) input(op *Op) []byte {
	if op.Reduction != kernels.PreMulSum || !op.Call.Reduces() {
		return op.Send
	}
	e.scaled = grow(e.scaled, len(op.Send))
	kernels.Scale(e.scaled, op.Send, op.DataType, op.Scale)
	return e.scaled
}

// grow returns n bytes of b's memory, or of a larger one's. What was in them is lost.
func grow(b []byte, n int) []byte {
	if cap(b) < n {
		b = make([]byte, n)
	}
	return b[:n]
}

// copyBytes copies unless both are the same memory, as in place.
func copyBytes(dst, src []byte) {
	if len(src) == 0 || &dst[0] == &src[0] {
		return
	}
	kernels.Copy(dst, src)
}

// begin makes an operation the current one. collective is its number if it is a collective, and else 0.
func (e *Engine) begin(ctx context.Context, call lifecycle.Call, seq, collective uint64) {
	e.w = waiting{ctx: ctx, collective: collective}
	if at := e.tape.Began(); at != 0 { // it has read the clock just now
		e.waiter.Began(time.Duration(at) - e.clocks)
	}
	e.now.begin(call, seq)
}

func (e *Engine) end() {
	e.w.ctx, e.w.op = nil, nil
	e.now.end()
}

// current is what other goroutines may know of the running operation.
type current struct {
	op   atomic.Uint64 // call in the upper 8 bits, the number below; 0 for none
	peer atomic.Int32  // the rank it has been waiting for so long that it was reported; -1 for none
}

const seqBits = 56

func (c *current) begin(call lifecycle.Call, seq uint64) {
	storeRelease(&c.op, uint64(call)<<seqBits|seq&(1<<seqBits-1))
}

func (c *current) end() { storeRelease(&c.op, 0) }

// Current returns the operation in flight: which call, its number, and the rank that it waits for, -1 if none. ok is
// false when there is none.
func (e *Engine) Current() (call lifecycle.Call, seq uint64, peer int, ok bool) {
	v := e.now.op.Load()
	if v == 0 {
		return lifecycle.CallNone, 0, -1, false
	}
	return lifecycle.Call(v >> seqBits), v & (1<<seqBits - 1), int(e.now.peer.Load()), true
}
