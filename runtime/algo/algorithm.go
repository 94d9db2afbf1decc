package algo

import (
	"strings"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
)

// Algorithm names a family of plans.
type Algorithm uint8

// The algorithms. Auto lets the tuning table choose.
const (
	Auto              Algorithm = iota
	Ring                        // each rank has two neighbors; for a rooted call, a chain from or to the root
	RecursiveDoubling           // partners at distance 1, 2, 4 …
	Tree                        // binomial
	Direct                      // every rank with every other at once; in shared memory, one copy each way
	Hierarchical                // inside each node, and rings of ranks with the same index in their nodes
	OneShot                     // every rank posts its input, and reads parts of the others' posts; see Request.Board
	TwoShot                     // two rounds: a rank reads one part of the others' inputs, and posts its result
	numAlgorithms
)

// names is read-only.
var names = [numAlgorithms]string{
	Auto: "auto", Ring: "ring", RecursiveDoubling: "recursive_doubling", Tree: "tree", Direct: "direct",
	Hierarchical: "hierarchical", OneShot: "one_shot", TwoShot: "two_shot",
}

// String returns the algorithm's name in lower case, which ParseAlgorithm reads.
func (a Algorithm) String() string { return words.Name("algorithm", names[:], a) }

// ParseAlgorithm reads an algorithm's name, in any case. The error lists the names.
func ParseAlgorithm(s string) (Algorithm, error) {
	return words.Named[Algorithm]("algorithm", names[:], strings.ToLower(strings.TrimSpace(s)))
}

// For lists the algorithms of a call, the best all-round one first; nil if the call is not a collective.
func For(call lifecycle.Call) []Algorithm {
	switch call {
	case lifecycle.CallAllReduce:
		return []Algorithm{Direct, Ring, RecursiveDoubling, Tree, Hierarchical, OneShot, TwoShot}
	case lifecycle.CallBroadcast, lifecycle.CallReduce:
		return []Algorithm{Tree, Direct, Ring, OneShot}
	case lifecycle.CallAllGather:
		return []Algorithm{Direct, Ring, RecursiveDoubling, OneShot}
	case lifecycle.CallReduceScatter:
		return []Algorithm{Direct, Ring, OneShot}
	case lifecycle.CallGather, lifecycle.CallScatter, lifecycle.CallAllToAll, lifecycle.CallBarrier:
		return []Algorithm{Direct, OneShot}
	default:
		return nil
	}
}
