package host_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// operations are what a rank may be blocked in.
func operations(size int) map[string]func(rank int) host.Op {
	all := map[string]func(rank int) host.Op{
		"barrier": func(int) host.Op { return host.Op{Call: lifecycle.CallBarrier, Peer: -1} },
	}
	for _, a := range algo.For(lifecycle.CallAllReduce) {
		all["all_reduce by "+a.String()] = func(int) host.Op { return allReduce(1_000_000, a, false)(0) }
	}
	if size == 2 {
		all["send"] = func(int) host.Op { return send(1, make([]byte, 1_000_000)) }
		all["recv"] = func(int) host.Op { return recv(1, make([]byte, 1_000_000)) }
	}
	return all
}

// The last rank never comes: its context's end is the others' error, too.
func TestContextEnds(t *testing.T) {
	for name, how := range transports() {
		for _, size := range []int{2, 3, 17} {
			if name == "tcp" && size > 3 {
				continue
			}
			for what, op := range operations(size) {
				t.Run(fmt.Sprintf("%s/%d/%s", name, size, what), func(t *testing.T) {
					c := newCluster(t, size, how, nil)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					errs := c.each(func(patient context.Context, rank int, e *host.Engine, seq uint64) error {
						o := op(rank)
						switch rank {
						case size - 1:
							if size < 17 {
								awaitWait(c.engines[0], size-1)
							} else {
								awaitWait(c.engines[0], -1)
							}
							cancel()
							return nil
						case 0:
							return run(ctx, e, seq, &o)
						}
						return run(patient, e, seq, &o)
					})
					p := peerError(t, 0, errs[0])
					if p.Code != lifecycle.CodeCanceled || !errors.Is(p, context.Canceled) || p.Since.IsZero() {
						t.Errorf("rank 0 has %v (code %v)", p, p.Code)
					}
					if size < 17 && p.Rank != size-1 {
						t.Errorf("rank 0 says that it waited for rank %d, want %d", p.Rank, size-1)
					}
					for r := 1; r < size-1; r++ {
						if p := peerError(t, r, errs[r]); p.Code != lifecycle.CodeAbandoned || p.Rank != 0 {
							t.Errorf("rank %d has %v, want that rank 0 abandoned it", r, p)
						}
					}
					// Who was not there is told when it comes. What rank 0 had sent may be enough for one operation.
					var err error
					for range 2 {
						o := op(size - 1)
						switch o.Call { //nolint:exhaustive // the others are the same on both sides
						case lifecycle.CallSend:
							o = recv(0, o.Send)
						case lifecycle.CallRecv:
							o = send(0, o.Recv)
						}
						if err == nil {
							err = run(t.Context(), c.engines[size-1], c.seq, &o)
						}
					}
					late := peerError(t, size-1, err)
					if late.Code != lifecycle.CodeAbandoned || late.Rank != 0 || !strings.Contains(late.Detail,
						"its context was canceled while it waited for rank") {
						t.Errorf("the rank that was late has %v", late)
					}
				})
			}
		}
	}
}

// A rank's death, as the fabric reports it, ends what the others do, and they know whose it is.
func TestPeerDies(t *testing.T) {
	const size, dead = 4, 2
	for name, how := range transports() {
		for what, op := range operations(size) {
			t.Run(name+"/"+what, func(t *testing.T) {
				c := newCluster(t, size, how, nil)
				errs := c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
					if rank == dead {
						// Of all ranks, only rank 0 sees it die: the others must hear it from there.
						c.links[0].Waiter().PeerLost(dead, &lifecycle.PeerError{
							Code: lifecycle.CodeRankDead, Rank: dead,
							Detail: "its process ended",
						})
						return nil
					}
					o := op(rank)
					return run(ctx, e, seq, &o)
				})
				for r, err := range errs {
					if r == dead {
						continue
					}
					p := peerError(t, r, err)
					if p.Code != lifecycle.CodeRankDead || p.Rank != dead || p.Self != r || p.Name != "test" ||
						!strings.Contains(p.Detail, "its process ended") {
						t.Errorf("rank %d has %v", r, p)
					}
				}
			})
		}
	}
}

// A rank that leaves in good order after its part is done does not disturb those who are still at it.
func TestPeerLeavesEarly(t *testing.T) {
	for name, how := range transports() {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				c := newCluster(t, 4, how, nil)
				for r, err := range c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
					op := host.Op{
						Call: lifecycle.CallBroadcast, Count: 300_000, DataType: kernels.Uint8, Peer: 0,
						Algorithm: algo.Ring,
					}
					op.Send, op.Recv = make([]byte, op.Count), make([]byte, op.Count)
					err := run(ctx, e, seq, &op)
					e.Close()
					return err
				}) {
					if err != nil {
						t.Fatalf("rank %d: %v", r, err)
					}
				}
			}
		})
	}
}

func TestInterrupt(t *testing.T) {
	cause := errors.New("the user said so")
	for name, how := range transports() {
		for what, op := range operations(3) {
			t.Run(name+"/"+what, func(t *testing.T) {
				c := newCluster(t, 3, how, nil)
				errs := c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
					if rank == 2 {
						awaitWait(c.engines[0], -1)
						c.engines[0].Interrupt(cause)
						return nil
					}
					o := op(rank)
					return run(ctx, e, seq, &o)
				})
				if !errors.Is(errs[0], cause) {
					t.Errorf("the interrupted rank has %v, want the cause", errs[0])
				}
				if p := peerError(t, 1, errs[1]); p.Code != lifecycle.CodePeerAborted || p.Rank != 0 ||
					!strings.Contains(p.Detail,
						cause.Error()) {
					t.Errorf("rank 1 has %v", p)
				}
				// It is its last word.
				o := op(0)
				if err := run(t.Context(), c.engines[0], c.seq+1, &o); !errors.Is(err, cause) {
					t.Errorf("the next operation has %v, want the cause", err)
				}
			})
		}
	}
}

func TestAbandon(t *testing.T) {
	c := newCluster(t, 2, transports()["inproc"], nil)
	c.engines[0].Abandon(errors.New("no time left"))
	p := peerError(t, 1, run(t.Context(), c.engines[1], 1, &host.Op{Call: lifecycle.CallBarrier, Peer: -1}))
	if p.Code != lifecycle.CodeAbandoned || p.Rank != 0 || !strings.Contains(p.Detail, "no time left") {
		t.Errorf("the other rank has %v", p)
	}
}

func TestExplain(t *testing.T) {
	c := newCluster(t, 3, transports()["inproc"], nil)
	e := c.engines[0]
	p := peerError(t, 0, e.Explain(1, &transport.NoticeError{Peer: 1, Notice: transport.Notice{
		Code: lifecycle.CodeRankDead, Culprit: 2, Detail: "its process ended",
	}}))
	if p.Code != lifecycle.CodeRankDead || p.Rank != 2 || p.Self != 0 || p.Name != "test" ||
		p.Detail != "its process ended" {
		t.Errorf("a notice is explained as %#v", p)
	}
	if p := e.Explain(1, nil); p != nil {
		t.Errorf("nil is explained as %v", p)
	}
	if p := e.Explain(1, context.Canceled); p.Rank != 1 || !errors.Is(p, context.Canceled) {
		t.Errorf("another error is explained as %v", p)
	}
}

// What is wrong with an operation is said before anything of it goes out.
func TestRefused(t *testing.T) {
	c := newCluster(t, 2, transports()["inproc"], nil)
	e, three, six := c.engines[0], make([]byte, 3), make([]byte, 6)
	op := func(call lifecycle.Call, peer int, send, recv []byte) host.Op {
		return host.Op{Call: call, DataType: kernels.Uint8, Peer: peer, Send: send, Recv: recv}
	}
	unknown, scaled, premul := op(lifecycle.CallAllReduce, -1, three, three), op(lifecycle.CallAllReduce, -1,
		three, three),
		op(lifecycle.CallAllReduce, -1, three, three)
	unknown.Reduction, scaled.Scaled, premul.Reduction = 77, true, kernels.PreMulSum
	for _, bad := range []struct {
		op   host.Op
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
		err := e.Check(&bad.op)
		var u *lifecycle.UsageError
		if !errors.As(err, &u) || !strings.Contains(u.Detail, bad.want) {
			t.Errorf("%+v is answered by %v, want %q", bad.op, err, bad.want)
		}
	}
	for _, good := range []host.Op{
		op(lifecycle.CallAllGather, -1, six[:3], six), op(lifecycle.CallGather, 1, three, six),
		op(lifecycle.CallScatter, 1,
			six, three),
		op(lifecycle.CallBroadcast, 1, nil, three), op(lifecycle.CallBarrier, -1, nil, nil), op(lifecycle.CallRecv, 1,
			nil, three),
	} {
		if err := e.Check(&good); err != nil {
			t.Errorf("%v is refused: %v", good.Call, err)
		}
	}
	c.check(shape{call: lifecycle.CallAllReduce, count: 5})
}
