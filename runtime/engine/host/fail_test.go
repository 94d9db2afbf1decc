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
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// operations are those in which a rank may be blocked.
func operations(size int) map[string]func(rank int) engine.Op {
	all := map[string]func(rank int) engine.Op{
		"barrier": func(int) engine.Op { return engine.Op{Call: lifecycle.CallBarrier, Peer: -1} },
	}
	for _, a := range algo.For(lifecycle.CallAllReduce) {
		all["all_reduce by "+a.String()] = func(int) engine.Op { return allReduce(1_000_000, a, false)(0) }
	}
	if size == 2 {
		all["send"] = func(int) engine.Op { return send(1, make([]byte, 1_000_000)) }
		all["recv"] = func(int) engine.Op { return recv(1, make([]byte, 1_000_000)) }
	}
	return all
}

// If several losses end an operation, its error is the first one, whatever the ranks' numbers.
func TestFirstLoss(t *testing.T) {
	causes := map[int]error{
		1: &transport.NoticeError{Peer: 1, Notice: transport.Notice{Code: lifecycle.CodeAborted, Culprit: 1}},
		2: &lifecycle.PeerError{Code: lifecycle.CodeRankDead, Rank: 2, Self: 0},
	}
	for _, losses := range [][]int{{1, 2}, {2, 1}} {
		want, c := losses[0], newCluster(t, 3, transports()["inproc"])
		for _, peer := range losses {
			c.links[0].Waiter().PeerLost(peer, causes[peer])
		}
		err := run(t.Context(), c.engines[0], 1, send(2, make([]byte, 1<<20)))
		if p, ok := errors.AsType[*lifecycle.PeerError](err); !ok || p.Rank != want {
			t.Errorf("the error is %v, want one of rank %d", err, want)
		}
	}
}

// The last rank never arrives: the end of its context is also the others' error.
func TestContextEnds(t *testing.T) {
	for name, how := range transports() {
		for _, size := range []int{2, 3, 17} {
			if name == "tcp" && size > 3 {
				continue
			}
			for what, op := range operations(size) {
				t.Run(fmt.Sprintf("%s/%d/%s", name, size, what), func(t *testing.T) {
					c := newCluster(t, size, how)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					errs := c.each(func(patient context.Context, rank int, e *host.Engine, seq uint64) error {
						o := op(rank)
						switch rank {
						case size - 1:
							if size < 17 {
								c.awaitWait(0, size-1)
							} else {
								c.awaitWait(0, -1)
							}
							cancel()
							return nil
						case 0:
							return run(ctx, e, seq, o)
						}
						return run(patient, e, seq, o)
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
					// The missing rank is told when it arrives. What rank 0 had sent may be enough for one operation.
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
							err = run(t.Context(), c.engines[size-1], c.seq, o)
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

// A rank's death, as the fabric reports it, ends the others' operations, and they are told which rank died.
func TestPeerDies(t *testing.T) {
	const size, dead = 4, 2
	for name, how := range transports() {
		for what, op := range operations(size) {
			t.Run(name+"/"+what, func(t *testing.T) {
				c := newCluster(t, size, how)
				errs := c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
					if rank == dead {
						// Only rank 0 sees the death: it must tell the others.
						c.links[0].Waiter().PeerLost(dead, &lifecycle.PeerError{
							Code: lifecycle.CodeRankDead, Rank: dead,
							Detail: "its process ended",
						})
						return nil
					}
					o := op(rank)
					return run(ctx, e, seq, o)
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

// A rank that leaves in order after its part is done does not disturb the ranks that are still busy.
func TestPeerLeavesEarly(t *testing.T) {
	for name, how := range transports() {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				c := newCluster(t, 4, how)
				for r, err := range c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
					op := engine.Op{
						Call: lifecycle.CallBroadcast, Count: 300_000, DataType: kernels.Uint8, Peer: 0,
						Algorithm: algo.Ring,
					}
					op.Send, op.Recv = make([]byte, op.Count), make([]byte, op.Count)
					err := run(ctx, e, seq, op)
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
				c := newCluster(t, 3, how)
				errs := c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
					if rank == 2 {
						c.awaitWait(0, -1)
						c.comms[0].Interrupt(cause)
						return nil
					}
					o := op(rank)
					return run(ctx, e, seq, o)
				})
				if !errors.Is(errs[0], cause) {
					t.Errorf("the interrupted rank has %v, want the cause", errs[0])
				}
				if p := peerError(t, 1, errs[1]); p.Code != lifecycle.CodePeerAborted || p.Rank != 0 ||
					!strings.Contains(p.Detail,
						cause.Error()) {
					t.Errorf("rank 1 has %v", p)
				}
				// The cause remains the communicator's error.
				o := op(0)
				if err := run(t.Context(), c.engines[0], c.seq+1, o); !errors.Is(err, cause) {
					t.Errorf("the next operation has %v, want the cause", err)
				}
			})
		}
	}
}

func TestAbandon(t *testing.T) {
	c := newCluster(t, 2, transports()["inproc"])
	c.comms[0].Abandon(errors.New("no time left"))
	p := peerError(t, 1, run(t.Context(), c.engines[1], 1, engine.Op{Call: lifecycle.CallBarrier, Peer: -1}))
	if p.Code != lifecycle.CodeAbandoned || p.Rank != 0 || !strings.Contains(p.Detail, "no time left") {
		t.Errorf("the other rank has %v", p)
	}
}

func TestExplain(t *testing.T) {
	c := newCluster(t, 3, transports()["inproc"])
	comm := c.comms[0]
	p := peerError(t, 0, comm.Explain(1, &transport.NoticeError{Peer: 1, Notice: transport.Notice{
		Code: lifecycle.CodeRankDead, Culprit: 2, Detail: "its process ended",
	}}))
	if p.Code != lifecycle.CodeRankDead || p.Rank != 2 || p.Self != 0 || p.Name != "test" ||
		p.Detail != "its process ended" {
		t.Errorf("a notice is explained as %#v", p)
	}
	if p := comm.Explain(1, nil); p != nil {
		t.Errorf("nil is explained as %v", p)
	}
	if p := comm.Explain(1, context.Canceled); p.Rank != 1 || !errors.Is(p, context.Canceled) {
		t.Errorf("another error is explained as %v", p)
	}
}
