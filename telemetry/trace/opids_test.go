package trace

import (
	"testing"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// What is remembered must be what would be computed, whichever operations come in between.
func TestRememberedIDs(t *testing.T) {
	var ids opIDs
	for seq := range uint64(40) {
		for _, comm := range []lifecycle.CommID{{1}, {2}, {1}} {
			for rank, call := range []lifecycle.Call{lifecycle.CallAllReduce, lifecycle.CallBarrier, lifecycle.CallSend, lifecycle.CallRecv, lifecycle.CallSendRecv} {
				who := &subject{CommInfo: tape.CommInfo{ID: comm, Rank: rank}}
				r := &tape.OpRecord{Seq: seq, Signature: tape.Signature{Call: call, Peer: 1}}
				if got, want := ids.of(who, r), OpTraceID(comm, rank, r.Signature, seq); got != want {
					t.Fatalf("%v %d of %v on rank %d: %v, want %v", call, seq, comm, rank, got, want)
				}
			}
		}
	}
}
