package stall

import (
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// normal is what something takes, as far as is known: a running median, which moves an eighth towards each sample. So one that stalled
// and went on hardly teaches anything, and a hundred bring it from a minute down to some microseconds.
type normal struct {
	median  int64 // nanoseconds
	samples uint8 // up to minSamples
}

// minSamples is how many must have been seen before the median counts.
const minSamples = 4

func (n *normal) learn(d int64) {
	if n.samples < minSamples {
		n.samples++
	}
	switch step := max(n.median/8, 1); {
	case n.median == 0:
		n.median = d
	case d > n.median:
		n.median = min(n.median+step, d)
	default:
		n.median = max(n.median-step, d)
	}
}

// duration is 0 while too little is known.
func (n *normal) duration() time.Duration {
	if n.samples < minSamples {
		return 0
	}
	return time.Duration(n.median)
}

const (
	// numCalls and numActs bound the kinds that are told apart. A tape that a newer writer wrote may know more; those share the last place.
	numCalls = 64
	numActs  = 32
	numSizes = tape.SizeClasses
)

// norms are the normal durations of a process, of operations by call and size and of acts. Their size is fixed.
type norms struct {
	ops  [numCalls][numSizes]normal
	acts [numActs]normal
}

func (n *norms) op(call lifecycle.Call, bytes uint64) *normal {
	return n.class(call, tape.SizeClass(bytes))
}

func (n *norms) class(call lifecycle.Call, size uint8) *normal {
	return &n.ops[min(call, numCalls-1)][min(size, numSizes-1)]
}

func (n *norms) act(act tape.Act) *normal { return &n.acts[min(act, numActs-1)] }
