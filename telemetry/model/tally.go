package model

import (
	"math"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

// AddTally adds what u counted to t. What is more than t can hold is left out.
func AddTally(t, u *tape.Tally) {
	t.Bytes += min(u.Bytes, math.MaxUint64-t.Bytes)
	t.Ordinary += u.Ordinary
	t.OrdinaryTime += min(u.OrdinaryTime, math.MaxInt64-t.OrdinaryTime)
	t.Time += min(u.Time, math.MaxInt64-t.Time)
	for i, n := range u.Durations {
		t.Durations[i] += n
	}
	t.Bandwidth += u.Bandwidth
	for i, n := range u.Bandwidths {
		t.Bandwidths[i] += n
	}
}
