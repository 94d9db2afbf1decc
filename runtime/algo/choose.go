package algo

import (
	"slices"

	"github.com/carillon-rt/carillon/lifecycle"
)

// rule chooses an algorithm for a call. A limit of 0 means no limit.
type rule struct {
	call     lifecycle.Call
	oneHost  bool // only if all ranks share a host
	even     bool // only if Request.even
	maxSize  int  // ranks
	maxBytes int  // see Request.Bytes
	take     Algorithm
}

// rules are the tuning: the first that matches decides. BenchmarkAllReduceBy of package host compares the algorithms.
func rules() []rule {
	const kib, mib = 1 << 10, 1 << 20
	return []rule{
		// Ranks that share memory reach each other directly, at the cost of one copy.
		{call: lifecycle.CallAllReduce, oneHost: true, maxSize: 8, take: Direct},
		{call: lifecycle.CallAllReduce, oneHost: true, maxBytes: 8 * kib, take: RecursiveDoubling},
		{call: lifecycle.CallAllReduce, oneHost: true, take: Direct},
		{call: lifecycle.CallBroadcast, oneHost: true, maxSize: 4, take: Direct},
		{call: lifecycle.CallReduce, oneHost: true, maxSize: 4, take: Direct},

		// Across hosts a rank has one link: few messages where latency counts, a ring where bandwidth does.
		{call: lifecycle.CallAllReduce, maxSize: 2, take: Direct},
		{call: lifecycle.CallAllReduce, maxBytes: 64 * kib, take: RecursiveDoubling},
		{call: lifecycle.CallAllReduce, even: true, take: Hierarchical},
		{call: lifecycle.CallAllReduce, take: Ring},
		{call: lifecycle.CallAllGather, maxBytes: 8 * kib, take: RecursiveDoubling},
		{call: lifecycle.CallAllGather, maxSize: 8, take: Direct},
		{call: lifecycle.CallAllGather, take: Ring},
		{call: lifecycle.CallReduceScatter, maxBytes: 64 * kib, take: Direct},
		{call: lifecycle.CallReduceScatter, take: Ring},
		{call: lifecycle.CallBroadcast, maxBytes: mib, take: Tree},
		{call: lifecycle.CallBroadcast, take: Ring},
		{call: lifecycle.CallReduce, maxBytes: mib, take: Tree},
		{call: lifecycle.CallReduce, take: Ring},
	}
}

func choose(r Request, override Algorithm) Algorithm {
	all := For(r.Call)
	if slices.Contains(all, override) && r.can(override) {
		return override
	}
	if a := r.postAlgorithm(); a != Auto {
		return a
	}
	for _, u := range rules() {
		if u.call == r.Call && (!u.oneHost || r.OneHost()) && (!u.even || r.even()) &&
			(u.maxSize == 0 || r.Size <= u.maxSize) && (u.maxBytes == 0 || r.Bytes() <= u.maxBytes) {
			return u.take
		}
	}
	return all[0]
}

// can reports whether these ranks can use one of the call's algorithms.
func (r *Request) can(a Algorithm) bool {
	switch a { //nolint:exhaustive // all ranks can use the others
	case Hierarchical:
		return r.even()
	case OneShot, TwoShot:
		return r.canPost(a)
	}
	return true
}
