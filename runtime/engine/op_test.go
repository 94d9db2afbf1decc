package engine_test

import (
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
)

// An invalid operation is reported before any of it is sent.
func TestRefused(t *testing.T) {
	three, six := make([]byte, 3), make([]byte, 6)
	op := func(call lifecycle.Call, peer int, send, recv []byte) engine.Op {
		return engine.Op{Call: call, DataType: kernels.Uint8, Peer: peer, Send: send, Recv: recv}
	}
	unknown, scaled, premul := op(lifecycle.CallAllReduce, -1, three, three), op(lifecycle.CallAllReduce, -1,
		three, three),
		op(lifecycle.CallAllReduce, -1, three, three)
	unknown.Reduction, scaled.Scaled, premul.Reduction = 77, true, kernels.PreMulSum
	for _, bad := range []struct {
		op   engine.Op
		want string
	}{
		{unknown, "reduction 77 is unknown"},
		{scaled, "a Scale belongs to PreMulSum"},
		{premul, "PreMulSum needs one"},
		{op(lifecycle.CallAllReduce, -1, three, nil), "recv has 0 elements and send 3: recv must have 3"},
		{op(lifecycle.CallReduceScatter, -1, three, three), "send has 3 elements and recv 3: send must have 6"},
		{op(lifecycle.CallAllGather, -1, three, three), "recv has 3 elements and send 3: recv must have 6"},
		{op(lifecycle.CallGather, 0, three, three), "recv must have 6"},
		{op(lifecycle.CallScatter, 0, three, three), "send must have 6"},
		{op(lifecycle.CallAllToAll, -1, three, three), "its length must be a multiple of 2"},
		{op(lifecycle.CallAllToAll, -1, six, six), "they must not overlap"},
		{op(lifecycle.CallAllReduce, -1, six[:3], six[1:4]), "must be the same slice"},
		{op(lifecycle.CallAllGather, -1, six[3:], six), "exactly elements 0 to 2"},
		{op(lifecycle.CallBroadcast, 2, three, three), "root 2 is not a rank of the communicator: ranks are 0 to 1"},
		{op(lifecycle.CallSend, -1, three, nil), "peer -1 is not a rank"},
	} {
		if err := bad.op.Check(0, 2); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%+v is answered by %v, want %q", bad.op, err, bad.want)
		}
	}
	for _, good := range []engine.Op{
		op(lifecycle.CallAllGather, -1, six[:3], six), op(lifecycle.CallGather, 1, three, six),
		op(lifecycle.CallScatter, 1,
			six, three),
		op(lifecycle.CallBroadcast, 1, nil, three), op(lifecycle.CallBarrier, -1, nil, nil), op(lifecycle.CallRecv, 1,
			nil, three),
	} {
		if err := good.Check(0, 2); err != nil {
			t.Errorf("%v is refused: %v", good.Call, err)
		}
	}
}

// Sends of a rank to itself match its receives from itself in order, or are rejected.
func TestToSelf(t *testing.T) {
	send := func(peer, n int) engine.Op { return engine.Op{Call: lifecycle.CallSend, Peer: peer, Count: n} }
	recv := func(peer, n int) engine.Op { return engine.Op{Call: lifecycle.CallRecv, Peer: peer, Count: n} }
	for _, c := range []struct {
		ops  []engine.Op
		want string
	}{
		{[]engine.Op{send(1, 3), {Call: lifecycle.CallBroadcast}}, ""},
		{[]engine.Op{send(0, 3), recv(0, 3), send(1, 9), recv(0, 2), send(0, 2)}, ""},
		{[]engine.Op{send(0, 1)}, "without the other"},
		{[]engine.Op{send(0, 3), recv(0, 3), recv(0, 3)}, "without the other"},
		{[]engine.Op{send(0, 1), recv(0, 3)}, "rank 0 sends itself 1 elements of int8, but receives 3 of int8"},
	} {
		got := ""
		if err := engine.CheckToSelf(c.ops, 0); err != nil {
			got = err.Error()
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%+v is answered by %q, want %q", c.ops, got, c.want)
		}
	}
}
