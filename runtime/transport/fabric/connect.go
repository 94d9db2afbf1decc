package fabric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/proxy"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// connect opens the connections. If it fails, Close closes those that are open.
func (l *Links) connect(ctx context.Context, p *Port, ways []way, cards []*card) error {
	for peer, w := range ways {
		switch w {
		case viaInproc:
			c := l.f.hub.take(p.id, p.card.gate, cards[peer].gate, l.rank, peer)
			c.Attach(l.waiter)
			l.waiter.OnRest(c.Rest)
			l.conns[peer] = c
			l.inprocs = append(l.inprocs, c)
		case viaSHM:
			l.openSHM(peer, cards[peer], ways)
		case self, viaTCP:
		}
	}
	if err := l.agree(ctx, ways); err != nil {
		return err
	}
	if err := l.connectRails(ctx, p, ways, cards); err != nil {
		return err
	}
	return l.confirm(ctx)
}

// openSHM opens the peer's inbox and watches its process. If that does not work, it tells the peer so and uses TCP for
// it.
func (l *Links) openSHM(peer int, c *card, ways []way) {
	conn, err := l.inbox.Open(l.rank, peer, c.process.PID, c.inbox, l.waiter)
	if err != nil {
		l.inbox.Refuse(peer)
		ways[peer] = viaTCP
		return
	}
	l.conns[peer] = conn
	l.shms = append(l.shms, conn)
	dead := l.dead(peer, c)
	cancel, err := l.f.deaths.watch(c.process, func() { conn.Fail(dead) })
	if err != nil {
		conn.Fail(dead) // no effect if the peer has connected, closed and ended since its inbox was opened
		return
	}
	l.unwatch = append(l.unwatch, cancel)
}

// agree waits until every peer whose inbox this rank could open has said whether it could open this rank's inbox, too.
func (l *Links) agree(ctx context.Context, ways []way) error {
	if l.inbox == nil {
		return nil
	}
	kept := l.shms[:0]
	for _, c := range l.shms {
		peer := c.Peer()
		var opened, known bool
		for {
			// Check for losses first: a peer that agreed, and gave up right after, is connected.
			_, lost := l.FirstLost()
			if opened, known = c.Agreed(); known {
				break
			}
			if lost != nil {
				return lost
			}
			if err := l.waiter.Idle(ctx); err != nil {
				return l.late(peer, err)
			}
			c.GaveUp()
		}
		l.waiter.Active()
		if opened {
			kept = append(kept, c)
			continue
		}
		_ = c.Close() // can't fail
		l.conns[peer], ways[peer] = nil, viaTCP
	}
	clear(l.shms[len(kept):])
	l.shms = kept
	l.inbox.Seal()
	return nil
}

// connectRails opens the streams to all remaining peers, and the connections that the streams need, concurrently. It
// returns early when a connected peer is lost.
func (l *Links) connectRails(ctx context.Context, p *Port, ways []way, cards []*card) error {
	if err := l.openStreams(p, ways, cards); err != nil || l.endpoint == nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	peers, ctx := errgroup.WithContext(ctx)
	var left atomic.Int32
	for _, peer := range l.endpoint.Rails() {
		left.Add(1)
		peers.Go(func() error {
			defer l.waiter.Ring()
			defer left.Add(-1)
			c := cards[peer]
			conn, err := p.gate.Connect(ctx, l.rank, peer, c.tcp, c.gate, l.endpoint.Rail(peer))
			if err == nil {
				l.endpoint.Attach(peer, conn)
			}
			return err
		})
	}
	var lost error
	for left.Load() > 0 && lost == nil && l.waiter.Idle(ctx) == nil {
		_, lost = l.FirstLost()
	}
	l.waiter.Active()
	if lost != nil {
		stop(lost)
	}
	err := cmp.Or(peers.Wait(), lost)
	if err == nil {
		l.waiter.Poll(l.endpoint.Poll)
	}
	return err
}

// openStreams opens the streams to the peers reached through the network.
func (l *Links) openStreams(p *Port, ways []way, cards []*card) error {
	var remote []int
	for peer, w := range ways {
		if w == viaTCP {
			remote = append(remote, peer)
		}
	}
	if len(remote) == 0 {
		return nil
	}
	members := make([]proxy.Member, len(cards))
	for i, c := range cards {
		members[i] = proxy.Member{Card: c.proxy, PID: c.process.PID, Local: c.fabric == p.card.fabric}
	}
	for _, c := range l.shms {
		members[c.Peer()].Bell = c
	}
	t := &l.topology
	routes := proxy.NewRoutes(t.Node, t.Ranks, t.PXN == tape.PXNOn)
	if routes.PXN && l.inbox != nil {
		l.waiter.Attend(l.inbox.Attends(), l.endpoint.Attend)
	}
	if err := l.endpoint.Open(l.rank, routes, members, remote, l.waiter); err != nil {
		if of, ok := errors.AsType[*lifecycle.PeerError](err); ok && l.ends(cards[of.Rank]) {
			return l.dead(of.Rank, cards[of.Rank])
		}
		return err
	}
	for _, peer := range remote {
		l.conns[peer] = l.endpoint.Conn(peer)
	}
	if !routes.PXN {
		return nil
	}
	for _, rank := range routes.Ranks[routes.Node[l.rank]] {
		if rank == l.rank || members[rank].Local {
			continue
		}
		dead := l.dead(rank, cards[rank])
		cancel, err := l.f.deaths.watch(cards[rank].process, func() { l.endpoint.LocalRankDied(rank, dead) })
		if err != nil {
			l.endpoint.LocalRankDied(rank, dead)
			continue
		}
		l.endpoint.OnShut(cancel)
	}
	return nil
}

// ends reports whether a process of this host, whose memory can't be opened, is ending: its files are closed before its
// end is reported to others.
func (l *Links) ends(c *card) bool {
	ended := make(chan struct{})
	cancel, err := l.f.deaths.watch(c.process, func() { close(ended) })
	if err != nil {
		return true
	}
	defer cancel()
	select {
	case <-ended:
		return true
	case <-time.After(time.Second):
		return false
	}
}

// confirm tells all peers that this rank is connected to all, and waits until each has said the same. So no rank is
// ready if another failed. If all ranks reach each other through shared memory, they get a Board.
func (l *Links) confirm(ctx context.Context) error {
	shared := l.inbox != nil && len(l.shms) == len(l.conns)-1
	if shared {
		l.inbox.Share()
	}
	for _, c := range l.conns {
		if c != nil {
			c.Confirm()
		}
	}
	for peer, c := range l.conns {
		for c != nil {
			// Check for losses first: a peer that has confirmed, and gave up or closed in order right after, is
			// connected.
			_, lost := l.FirstLost()
			_, err := c.Peek()
			c.Release(0)
			if c.Confirmed() {
				break
			}
			if lost != nil || err != nil {
				return cmp.Or(lost, err)
			}
			if err := l.waiter.Idle(ctx); err != nil {
				return l.late(peer, err)
			}
		}
	}
	l.waiter.Active()
	for _, c := range l.shms {
		shared = shared && c.Shares()
	}
	if shared {
		l.board = l.inbox.Board(l.rank, l.shms)
	}
	return nil
}

// late returns the error of a context that ended while this rank waited for a peer.
func (l *Links) late(peer int, err error) error {
	return &lifecycle.PeerError{
		Code: lifecycle.CodeNotJoined, Rank: peer, Self: l.rank, Comm: l.comm,
		Detail: "it has not opened its connections; what does it do?", Err: err,
	}
}

func (l *Links) dead(peer int, c *card) *lifecycle.PeerError {
	return &lifecycle.PeerError{
		Code: lifecycle.CodeRankDead, Rank: peer, Self: l.rank, Comm: l.comm,
		Detail: fmt.Sprintf("process %d of this host (%s) ended; its kernel tells", c.process.PID, c.host),
	}
}
