package algo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/carillon-rt/carillon/lifecycle"
)

// Rule says which algorithm to take for one call. A limit of 0 is none.
type Rule struct {
	Call      lifecycle.Call
	OneHost   bool // only if all ranks share a host
	MaxSize   int  // up to so many ranks
	MaxBytes  int  // up to so many bytes (Request.Bytes)
	Algorithm Algorithm
}

func (u *Rule) matches(r *Request) bool {
	return u.Call == r.Call && (!u.OneHost || r.OneHost()) && (u.MaxSize == 0 || r.Size <= u.MaxSize) &&
		(u.MaxBytes == 0 || r.Bytes() <= u.MaxBytes)
}

// Tuning is how an algorithm is chosen. All ranks of a communicator must have the same.
type Tuning struct {
	// Rules are looked through in order; the first that matches decides. If none does, it is the first of For(call).
	Rules []Rule

	// Override goes before the rules. An algorithm that there is not for a call, and Auto, are as if they were not there.
	Override map[lifecycle.Call]Algorithm
}

// DefaultTuning follows from the algorithms' message and byte counts. BenchmarkAllReduceBy of package host compares
// them on the machine at hand.
func DefaultTuning() Tuning {
	const kib, mib = 1 << 10, 1 << 20
	return Tuning{Rules: []Rule{
		// Ranks that share memory reach each other at once, at the cost of one copy.
		{Call: lifecycle.CallAllReduce, OneHost: true, MaxSize: 8, Algorithm: Direct},
		{Call: lifecycle.CallAllReduce, OneHost: true, MaxBytes: 8 * kib, Algorithm: RecursiveDoubling},
		{Call: lifecycle.CallAllReduce, OneHost: true, Algorithm: Direct},
		{Call: lifecycle.CallBroadcast, OneHost: true, MaxSize: 4, Algorithm: Direct},
		{Call: lifecycle.CallReduce, OneHost: true, MaxSize: 4, Algorithm: Direct},

		// Across hosts a rank has one link: few messages where latency counts, a ring where bandwidth does.
		{Call: lifecycle.CallAllReduce, MaxSize: 2, Algorithm: Direct},
		{Call: lifecycle.CallAllReduce, MaxBytes: 64 * kib, Algorithm: RecursiveDoubling},
		{Call: lifecycle.CallAllReduce, Algorithm: Ring},
		{Call: lifecycle.CallAllGather, MaxBytes: 8 * kib, Algorithm: RecursiveDoubling},
		{Call: lifecycle.CallAllGather, MaxSize: 8, Algorithm: Direct},
		{Call: lifecycle.CallAllGather, Algorithm: Ring},
		{Call: lifecycle.CallReduceScatter, MaxBytes: 64 * kib, Algorithm: Direct},
		{Call: lifecycle.CallReduceScatter, Algorithm: Ring},
		{Call: lifecycle.CallBroadcast, MaxBytes: mib, Algorithm: Tree},
		{Call: lifecycle.CallBroadcast, Algorithm: Ring},
		{Call: lifecycle.CallReduce, MaxBytes: mib, Algorithm: Tree},
		{Call: lifecycle.CallReduce, Algorithm: Ring},
	}}
}

// Choose picks the algorithm for r. It is Auto, for which there is no plan, only if r's call is no collective.
func Choose(r Request, t Tuning) Algorithm {
	all := For(r.Call)
	if a := t.Override[r.Call]; slices.Contains(all, a) {
		return a
	}
	for i := range t.Rules {
		if u := &t.Rules[i]; u.matches(&r) && slices.Contains(all, u.Algorithm) {
			return u.Algorithm
		}
	}
	if len(all) == 0 {
		return Auto
	}
	return all[0]
}

// ParseOverride reads what a user writes to choose by hand: one algorithm for every call that has it ("ring"), or a
// list of calls with theirs ("all_reduce:ring,broadcast:tree"); an empty text overrides nothing. The error names the
// part that is wrong and what is allowed.
func ParseOverride(text string) (map[lifecycle.Call]Algorithm, error) {
	over := map[lifecycle.Call]Algorithm{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		call, name, ok := strings.Cut(part, ":")
		if !ok {
			call, name = "", part
		}
		a, err := ParseAlgorithm(name)
		if err != nil {
			return nil, err
		}
		if err := override(over, strings.TrimSpace(call), a); err != nil {
			return nil, err
		}
	}
	return over, nil
}

func override(over map[lifecycle.Call]Algorithm, name string, a Algorithm) error {
	var known []string
	for c := lifecycle.CallAllReduce; c <= lifecycle.CallBarrier; c++ {
		all := For(c)
		if all == nil {
			continue
		}
		known = append(known, c.String())
		if name != "" && !strings.EqualFold(name, c.String()) {
			continue
		}
		if slices.Contains(all, a) || a == Auto {
			over[c] = a
		} else if name != "" {
			return fmt.Errorf("there is no algorithm %v for %v, only %v", a, c, all)
		}
		if name != "" {
			return nil
		}
	}
	if name != "" {
		return fmt.Errorf("%q is none of the collectives %s", name, strings.Join(known, ", "))
	}
	return nil
}
