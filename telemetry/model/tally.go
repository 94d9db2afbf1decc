package model

import (
	"math"
	"math/bits"
	"time"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

// AddTally adds what u counted to t. What is more than t can hold is left out.
func AddTally(t, u *tape.Tally) {
	t.Bytes, t.Ordinary = addUp(t.Bytes, u.Bytes), t.Ordinary+u.Ordinary
	t.OrdinaryTime, t.Time = addTimes(t.OrdinaryTime, u.OrdinaryTime), addTimes(t.Time, u.Time)
	for i, n := range u.Durations {
		t.Durations[i] += n
	}
	t.Bandwidth += u.Bandwidth
	for i, n := range u.Bandwidths {
		t.Bandwidths[i] += n
	}
}

func addUp(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// addTimes adds durations that are not negative.
func addTimes(a, b time.Duration) time.Duration {
	return time.Duration(min(uint64(a)+uint64(b), math.MaxInt64))
}
