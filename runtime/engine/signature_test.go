package engine_test

import (
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// A send and a receive that don't match get a text that says why, and encoded signatures are decoded unchanged.
func TestMessageMismatch(t *testing.T) {
	sign := func(call lifecycle.Call, peer, count int, dt kernels.DataType, seq uint64) *engine.Signature {
		made := engine.Sign(call, &engine.Op{Call: call, Peer: peer, Count: count, DataType: dt}, seq, 0)
		if call == lifecycle.CallRecv {
			made = made.Beside(3)
		}
		sent := make([]byte, engine.SignatureSize)
		made.Put(sent)
		came := engine.GetSignature(sent)
		if came != made || call == lifecycle.CallRecv && came.Sends() != 3 {
			t.Errorf("%+v came as %+v", made, came)
		}
		return &came
	}
	mine := sign(lifecycle.CallSend, 1, 8, kernels.Int32, 5)
	if fits := sign(lifecycle.CallRecv, 0, 8, kernels.Int32, 5); !mine.Meets(fits) {
		t.Errorf("%+v does not meet %+v", mine, fits)
	}
	for want, peers := range map[string]*engine.Signature{
		"data type: rank 0 says send to rank 1 int32, rank 1 says recv from rank 0 int64": sign(
			lifecycle.CallRecv, 0, 8, kernels.Int64, 5),
		"count: rank 0 says send to rank 1 8, rank 1 says recv from rank 0 9": sign(
			lifecycle.CallRecv, 0, 9, kernels.Int32, 5),
		"number of the operation: rank 0 says send to rank 1 5, rank 1 says recv from rank 0 6": sign(
			lifecycle.CallRecv, 0, 8, kernels.Int32, 6),
		"and each waits for the other":        sign(lifecycle.CallSend, 0, 8, kernels.Int32, 6),
		"rank 1 says barrier":                 sign(lifecycle.CallBarrier, 0, 0, 0, 4),
		"rank 1 says something that is no op": {},
	} {
		text := engine.MessageMismatch(0, mine, 1, peers, true)
		if !strings.Contains(text, want) || mine.Meets(peers) {
			t.Errorf("%+v and %+v give %q, want %q", mine, peers, text, want)
		}
	}
}
