package host

import (
	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// step is a step of a plan, whose spans are in bytes.
type step struct {
	algo.Step
	n     int  // its length
	opens bool // it writes to the user's memory: it must wait until the ranks agree
	whole int  // size of the data its output is a piece of; 0 if other steps wait for it, as they read that soon
}

func writes(s *algo.Step) bool { return s.Kind != algo.StepSend && s.Kind != algo.StepPost }

// plan is an algorithm's plan for one shape of operations, ready to run on one rank: in bytes, with the steps of each
// peer and direction in a list of their own.
type plan struct {
	algorithm algo.Algorithm
	steps     []step
	sends     [][]int // by rank
	recvs     [][]int // by rank
	local     []int
	peers     []int // ranks that the plan sends to or receives from, in the order of Engine.others
	tmp       int   // bytes of scratch
	together  bool  // each rank sends to all others, and no send waits for another step
}

// key is what a plan depends on, besides the engine's own rank and size.
type key struct {
	call      lifecycle.Call
	dataType  kernels.DataType
	algorithm algo.Algorithm // as requested: may be Auto
	root      int
	count     int
}

// maxPlans bounds the cache. A job that cycles through more shapes plans each operation anew.
const maxPlans = 256

// plan returns the plan of a collective, from the cache if possible.
func (e *Engine) plan(op *engine.Op) *plan {
	k := key{op.Call, op.DataType, op.Algorithm, op.Peer, op.Count}
	if e.last != nil && e.lastKey == k {
		return e.last
	}
	p := e.plans[k]
	if p == nil {
		p = e.compile(op)
		if len(e.plans) >= maxPlans {
			clear(e.plans)
		}
		e.plans[k] = p
	}
	e.last, e.lastKey = p, k
	return p
}

func (e *Engine) compile(op *engine.Op) *plan {
	es := op.DataType.Size()
	r := algo.Request{
		Call: op.Call, Rank: e.rank, Size: e.size, Root: max(op.Peer, 0),
		Count: op.Count, ElemSize: es, Nodes: e.nodes,
	}
	if e.board != nil {
		r.Board = transport.BoardBytes - headerSize
	}
	made := algo.Make(r, op.Algorithm)
	p := &plan{
		algorithm: made.Algorithm,
		steps:     make([]step, len(made.Steps)),
		sends:     make([][]int, e.size),
		recvs:     make([][]int, e.size),
		tmp:       made.Tmp * es,
	}
	waits := false
	for i, s := range made.Steps {
		for _, span := range []*algo.Span{&s.Dst, &s.Src, &s.Src2} {
			span.Off, span.Len = span.Off*es, span.Len*es
		}
		p.steps[i] = step{Step: s, n: s.Len(), opens: writes(&s) && s.Dst.Buf == algo.Out, whole: r.Bytes()}
		if s.After != algo.None {
			p.steps[s.After].whole = 0
		}
		for w := s.Wait.From; w < s.Wait.To; w++ {
			p.steps[w].whole = 0
		}
		switch s.Kind {
		case algo.StepSend:
			waits = waits || s.After != algo.None || s.Wait != algo.Range{}
			p.sends[s.Peer] = append(p.sends[s.Peer], i)
		case algo.StepRecv, algo.StepRecvReduce:
			p.recvs[s.Peer] = append(p.recvs[s.Peer], i)
		case algo.StepCopy, algo.StepReduce, algo.StepPost:
			p.local = append(p.local, i)
		}
	}
	for _, r := range e.others {
		if len(p.sends[r])+len(p.recvs[r]) > 0 {
			p.peers = append(p.peers, r)
		}
		waits = waits || len(p.sends[r]) == 0
	}
	p.together = !waits && e.board == nil && e.size <= maxHeaders
	return p
}
