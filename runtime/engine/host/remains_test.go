package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/kernels"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/engine/host"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
)

// mortal is the links of a rank that can die: it then sends nothing more, even if there is room again.
type mortal struct {
	*fabric.Links
	mu    sync.Mutex
	dead  bool
	spare int // bytes that it still sends to each peer
}

func (m *mortal) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dead = true
}

func (m *mortal) Conn(peer int) transport.Conn {
	c := m.Links.Conn(peer)
	if c == nil {
		return nil
	}
	return &mortalConn{Conn: c, of: m, spare: m.spare}
}

// live undoes die.
func (m *mortal) live() {
	m.mu.Lock()
	m.dead = false
	m.mu.Unlock()
	m.Waiter().Ring()
}

type mortalConn struct {
	transport.Conn
	of    *mortal
	spare int
}

func (c *mortalConn) TrySend(p []byte) (int, error) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.of.dead {
		p = p[:min(len(p), c.spare)]
	}
	n, err := c.Conn.TrySend(p)
	c.spare -= min(n, c.spare)
	return n, err
}

// markDead tells the ranks below `before` that rank dead has died, as a fabric does.
func (c *cluster) markDead(dead, before int) {
	for r := range before {
		if r != dead {
			c.links[r].Waiter().PeerLost(dead, &lifecycle.PeerError{
				Code: lifecycle.CodeRankDead, Rank: dead,
				Detail: "its process ended",
			})
		}
	}
}

// gather is rank's part in a gather to rank 0 of the given number of bytes per rank, each of which identifies its rank.
func gather(rank, size, count int) engine.Op {
	op := engine.Op{
		Call: lifecycle.CallGather, Count: count, DataType: kernels.Uint8, Peer: 0,
		Send: bytes.Repeat([]byte{byte(rank + 1)}, count),
	}
	if rank == 0 {
		op.Recv = make([]byte, size*count)
	}
	return op
}

// promptly is the time limit of a test in which nothing else would end a wait.
const promptly = 15 * time.Second

// One rank is late, and another one dies after it has sent a part of its data: the part is not enough to continue, and
// the death is reported at once.
func TestPeerDiesWithAPartSent(t *testing.T) {
	const size, dead, late = 4, 2, 3
	ops := map[string]func(rank int) engine.Op{
		"gather of 16 MiB": func(rank int) engine.Op { return gather(rank, size, 16<<20) },
	}
	for _, a := range algo.For(lifecycle.CallAllReduce) {
		for _, bytes := range []int{20 << 10, 1 << 20} {
			ops[fmt.Sprintf("all_reduce of %d KiB by %v", bytes>>10, a)] = allReduce(bytes, a, false)
		}
	}
	for name, how := range transports() {
		for what, op := range ops {
			if name == "inproc" && op(dead).Call == lifecycle.CallGather {
				continue // its memory is lent, so all data is there
			}
			if o := op(dead); name == "shm" && o.Algorithm == algo.OneShot && len(o.Send)+64 <= transport.BoardBytes {
				continue // it has posted everything
			}
			t.Run(name+"/"+what, func(t *testing.T) {
				mortals := make([]*mortal, size)
				c := newClusterOf(t, size, how, func(rank int, l *fabric.Links) engine.Links {
					mortals[rank] = &mortal{Links: l}
					return mortals[rank]
				})
				for r, err := range c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
					if rank == late {
						for r := range late {
							c.awaitWait(r, late)
						}
						mortals[dead].die()
						c.markDead(dead, late)
						return nil
					}
					ctx, cancel := context.WithTimeout(ctx, promptly)
					defer cancel()
					o := op(rank)
					return run(ctx, e, seq, o)
				}) {
					if r == late {
						continue
					}
					if p := peerError(t, r, err); p.Code != lifecycle.CodeRankDead || p.Rank != dead {
						t.Errorf("rank %d has %v, want that rank %d died", r, p, dead)
					}
				}
			})
		}
	}
}

// Among many ranks, those whose agreement waits for the late rank are told by those that communicate with the dead one.
func TestPeerDiesInALateAgreement(t *testing.T) {
	const size, late = 17, 16
	for _, a := range algo.For(lifecycle.CallAllReduce) {
		for dead := 1; dead < late; dead += 7 {
			t.Run(fmt.Sprintf("%v/%d", a, dead), func(t *testing.T) {
				c := newCluster(t, size, transports()["inproc"])
				op := allReduce(1<<10, a, false)
				for r, err := range c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
					if rank == late {
						for r := range late {
							c.awaitWait(r, -1)
						}
						c.markDead(dead, late)
						return nil
					}
					ctx, cancel := context.WithTimeout(ctx, promptly)
					defer cancel()
					o := op(rank)
					return run(ctx, e, seq, o)
				}) {
					if r == late {
						continue
					}
					if p := peerError(t, r, err); p.Code != lifecycle.CodeRankDead || p.Rank != dead {
						t.Errorf("rank %d has %v, want that rank %d died", r, p, dead)
					}
				}
			})
		}
	}
}

// A rank that dies after it has sent all its data fails no operation, however late another rank is: its bytes are used,
// wherever they are.
func TestPeerDiesWithAllSent(t *testing.T) {
	const size, dead, late = 4, 2, 3
	for name, how := range transports() {
		for _, count := range []int{1001, 100_000} {
			t.Run(fmt.Sprintf("%s/%d", name, count), func(t *testing.T) {
				c := newCluster(t, size, how)
				via := c.links[0].Conn(dead).Name()
				if via == "shm" {
					for range 20 { // later data wraps around the end of the ring
						c.run(func(rank int) engine.Op { return gather(rank, size, 100_000) })
					}
				}
				var got []byte
				for r, err := range c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
					ctx, cancel := context.WithTimeout(ctx, promptly)
					defer cancel()
					o := gather(rank, size, count)
					switch rank {
					case 0:
						c.awaitWait(dead, late)
						for via == "tcp" { // its bytes arrive gradually
							if window, _ := c.links[0].Conn(dead).Peek(); len(window) >= count {
								break
							}
							runtime.Gosched()
						}
						c.markDead(dead, 1)
						got = o.Recv
					case late:
						c.awaitWait(0, late) // it has checked what is there
					}
					return run(ctx, e, seq, o)
				}) {
					if err != nil {
						t.Errorf("rank %d: %v", r, err)
					}
				}
				for r := range size {
					if part := got[r*count:][:count]; !bytes.Equal(part, bytes.Repeat([]byte{byte(r + 1)}, count)) {
						t.Errorf("what rank %d sent came as something else", r)
					}
				}
			})
		}
	}
}

// A receive without any data, from a rank that has sent another message and ended, does not keep waiting.
func TestPeerDiesBetweenSends(t *testing.T) {
	const dead, late = 1, 2
	for name, how := range transports() {
		t.Run(name, func(t *testing.T) {
			c, sent := newCluster(t, 3, how), make(chan struct{})
			errs := c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
				ctx, cancel := context.WithTimeout(ctx, promptly)
				defer cancel()
				switch rank {
				case 0:
					return run(ctx, e, seq,
						recv(late, make([]byte, 1<<20)), recv(dead, make([]byte, 1<<20)),
						recv(dead, make([]byte, 1<<20)),
					)
				case dead:
					defer close(sent)
					op := send(0, make([]byte, 1<<20))
					return run(ctx, e, seq, op)
				}
				<-sent
				c.awaitWait(0, late)
				c.markDead(dead, 1)
				return nil
			})
			if p := peerError(t, 0, errs[0]); errs[dead] != nil || p.Code != lifecycle.CodeRankDead || p.Rank != dead {
				t.Errorf("rank 0 has %v, want that rank %d died; that one has %v", p, dead, errs[dead])
			}
		})
	}
}

// A collective that is done on one rank is not canceled elsewhere by what that rank does next, however late the others
// are: rank 1 leaves while the root still waits for data that rank 2 holds back.
func TestCollectiveIsDoneAlthoughARankLeaves(t *testing.T) {
	const size, leaves, late, count = 3, 1, 2, 100_000
	for name, how := range transports() {
		t.Run(name, func(t *testing.T) {
			slow := &mortal{dead: true, spare: 40} // a header
			c := newClusterOf(t, size, how, func(rank int, l *fabric.Links) engine.Links {
				if rank != late {
					return l
				}
				slow.Links = l
				return slow
			})
			var got []byte
			for r, err := range c.each(func(ctx context.Context, rank int, e *host.Engine, seq uint64) error {
				ctx, cancel := context.WithTimeout(ctx, promptly)
				defer cancel()
				o := gather(rank, size, count)
				switch rank {
				case 0:
					got = o.Recv
				case leaves:
					err := run(ctx, e, seq, o)
					c.awaitWait(0, late)
					c.comms[rank].Interrupt(errors.New("the user said so"))
					for c.links[0].Lost(leaves) == nil {
						runtime.Gosched()
					}
					slow.live()
					return err
				}
				return run(ctx, e, seq, o)
			}) {
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			}
			for r := range size {
				if part := got[r*count:][:count]; !bytes.Equal(part, bytes.Repeat([]byte{byte(r + 1)}, count)) {
					t.Errorf("what rank %d sent came as something else", r)
				}
			}
		})
	}
}
