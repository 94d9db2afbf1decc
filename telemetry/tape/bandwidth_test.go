package tape_test

import (
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

func TestBusFactor(t *testing.T) {
	const n = 4
	for _, tc := range []struct {
		call lifecycle.Call
		peer int32
		rank int
		want float64
	}{
		{lifecycle.CallAllReduce, -1, 0, 1.5},
		{lifecycle.CallAllGather, -1, 0, 0.75},
		{lifecycle.CallReduceScatter, -1, 0, 0.75},
		{lifecycle.CallAllToAll, -1, 0, 0.75},
		{lifecycle.CallBroadcast, 0, 0, 1},
		{lifecycle.CallReduce, 0, 1, 1},
		{lifecycle.CallGather, 2, 2, 0.75},
		{lifecycle.CallGather, 2, 0, 1},
		{lifecycle.CallScatter, 0, 0, 0.75},
		{lifecycle.CallSend, 1, 0, 1},
		{lifecycle.CallBarrier, -1, 0, 0},
	} {
		sig := &tape.Signature{Call: tc.call, Peer: tc.peer}
		if got := sig.BusFactor(tc.rank, n); got != tc.want {
			t.Errorf("%s, rank %d: %v, want %v", tc.call, tc.rank, got, tc.want)
		}
	}
	if alone := (&tape.Signature{Call: lifecycle.CallAllReduce}).BusFactor(0, 1); alone != 0 {
		t.Errorf("one rank alone: %v, want 0", alone)
	}
}
