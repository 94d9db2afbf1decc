package algo

import (
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
)

// Request describes the operation that a plan is for. It is the same on all ranks, except for Rank.
type Request struct {
	Call       lifecycle.Call
	Rank, Size int
	Root       int // of Broadcast, Reduce, Gather and Scatter; otherwise ignored

	// Count has NCCL's meaning, in elements: the whole buffer for AllReduce, Broadcast and Reduce; one rank's block for
	// AllGather, Gather, ReduceScatter and Scatter; a message between two ranks for AllToAll; unused by Barrier.
	Count    int
	ElemSize int // bytes

	Nodes []int // node index by rank; nil if all ranks are on one host

	// Board is how many bytes each rank can post for all others; 0 if they can't all read each other's memory.
	Board int
}

// Bytes returns Count in bytes.
func (r *Request) Bytes() int { return r.Count * r.ElemSize }

// OneHost reports whether all ranks are on one host.
func (r *Request) OneHost() bool {
	return !slices.ContainsFunc(r.Nodes, func(node int) bool { return node != r.Nodes[0] })
}

// Make plans rank r.Rank's part of r, whose call is a collective, with the algorithm override if the call has it, and
// otherwise with the algorithm that the tuning chooses. All ranks of an operation must pass the same arguments, except
// for r.Rank. The engine has checked r's numbers.
//
// The plan of a Barrier is empty: before a plan, an engine waits until all ranks make the same call.
func Make(r Request, override Algorithm) *Plan {
	a, b := choose(r, override), &builder{Request: r}
	if r.Size == 1 {
		b.copy(b.out(0, r.Count), b.in(0, r.Count), None)
		if r.Call == lifecycle.CallBarrier {
			b.steps = nil
		}
	} else {
		b.plan(a)
	}
	return &Plan{Algorithm: a, Tmp: b.scratch, Steps: b.steps}
}

func (b *builder) plan(a Algorithm) {
	switch a { //nolint:exhaustive // all others depend on the call
	case OneShot:
		b.oneShot()
		return
	case TwoShot:
		b.twoShot()
		return
	}
	switch b.Call { //nolint:exhaustive // validated: one of For's calls
	case lifecycle.CallAllReduce:
		b.allReduce(a)
	case lifecycle.CallBroadcast:
		b.broadcast(a)
	case lifecycle.CallReduce:
		b.reduceTo(a)
	case lifecycle.CallAllGather:
		b.allGather(a)
	case lifecycle.CallReduceScatter:
		b.reduceScatter(a)
	case lifecycle.CallAllToAll:
		b.allToAll()
	case lifecycle.CallGather:
		b.gather()
	case lifecycle.CallScatter:
		b.scatter()
	}
}
