package model

import (
	"math"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// normal is the normal duration of activities of a kind: a running median, which moves by an eighth towards each
// sample. A single stall hardly changes it.
type normal struct {
	median  int64 // nanoseconds
	samples uint8 // up to minSamples
}

const (
	minSamples = 4   // below, the median doesn't count
	maxSamples = 128 // of one mean: enough to move a median from a minute to some microseconds
)

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

// duration is 0 while there are too few samples.
func (n *normal) duration() int64 {
	if n.samples < minSamples {
		return 0
	}
	return n.median
}

// The calls, acts and sizes that have their own normal. Those that only a newer writer knows share the last one.
const (
	numCalls = 64
	numActs  = 32
	numSizes = tape.SizeClasses
)

// normals are the normal durations of a process, of operations by call and size, and of acts. Their size is fixed.
type normals struct {
	ops  [numCalls][numSizes]normal
	acts [numActs]normal
	seen []counted // by tape.Tally.Index
}

// counted holds the counts of a tally when it was last read.
type counted struct {
	count uint64
	took  time.Duration
}

func (n *normals) class(call lifecycle.Call, size uint8) *normal {
	return &n.ops[min(call, numCalls-1)][min(size, numSizes-1)]
}

// Learn takes the tallies; see Look. For each kind of ordinary operations it learns the mean duration of those counted
// since the last call, once for each operation, but at most maxSamples times.
func (p *Process) Learn(tallies []tape.Tally) {
	n := &p.normal
	for i := range tallies {
		t := &tallies[i]
		for len(n.seen) <= t.Index {
			n.seen = append(n.seen, counted{})
		}
		before := &n.seen[t.Index]
		count, took := t.Ordinary-before.count, t.OrdinaryTime-before.took
		*before = counted{t.Ordinary, t.OrdinaryTime}
		if count == 0 || took <= 0 {
			continue
		}
		kind, mean := n.class(t.Call, t.SizeClass), int64(took)/int64(min(count, math.MaxInt64))
		for range min(count, maxSamples) {
			kind.learn(max(mean, 1))
		}
	}
}
