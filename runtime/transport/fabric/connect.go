package fabric

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/carillon-rt/carillon/lifecycle"
)

// connect opens the connections. What is open when it fails is closed by Close.
func (l *Links) connect(ctx context.Context, p *Port, ways []way, cards []*card) error {
	for peer, w := range ways {
		switch w {
		case viaInproc:
			c := l.f.hub.take(l.id, l.rank, peer)
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
	return l.connectTCP(ctx, p, ways, cards)
}

// openSHM opens the peer's inbox and watches its process. If that does not work, it says so and leaves the peer to TCP.
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
		conn.Fail(dead) // unless it has connected, closed and ended since its inbox was opened
		return
	}
	l.unwatch = append(l.unwatch, cancel)
}

// agree waits until every peer whose inbox this rank could open has said whether it could open this rank's, too.
func (l *Links) agree(ctx context.Context, ways []way) error {
	if l.inbox == nil {
		return nil
	}
	kept := l.shms[:0]
	for _, c := range l.shms {
		peer := c.Peer()
		var opened, known bool
		for {
			// The loss first: a peer that agreed, and gave up right after, is connected.
			_, lost := l.FirstLost()
			if opened, known = c.Agreed(); known {
				break
			}
			if lost != nil {
				return lost
			}
			if err := l.waiter.Idle(ctx); err != nil {
				return &lifecycle.PeerError{
					Code: lifecycle.CodeNotJoined, Rank: peer, Self: l.rank, Comm: l.id,
					Detail: "it has not opened its connections; what does it do?", Err: err,
				}
			}
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

// lastWords is how long a peer that has ended may still turn out to be connected: it may have connected, closed in
// order and ended while this rank had not yet read what the kernel had for it. All of that is on this host.
const lastWords = time.Second

// connectTCP connects all peers that are left, at the same time. A peer whose process has ended is not waited for,
// where that can be seen from here.
func (l *Links) connectTCP(ctx context.Context, p *Port, ways []way, cards []*card) error {
	peers, ctx := errgroup.WithContext(ctx)
	for peer, w := range ways {
		if w == viaTCP {
			peers.Go(func() error { return l.connectPeer(ctx, p, peer, cards[peer]) })
		}
	}
	return peers.Wait()
}

func (l *Links) connectPeer(ctx context.Context, p *Port, peer int, its *card) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	dead := l.dead(peer, its)
	if its.hostID == p.card.hostID && its.process.Near(p.card.process) {
		ended := func() { time.AfterFunc(lastWords, func() { stop(dead) }) }
		unwatch, err := l.f.deaths.watch(its.process, ended)
		if err != nil { // it has ended
			ended()
		} else {
			defer unwatch() // from here on the connection itself tells of a death
		}
	}
	conn, err := p.gate.Connect(ctx, l.rank, peer, its.tcp, its.gate, l.waiter)
	if err != nil && errors.Is(context.Cause(ctx), dead) {
		return dead
	}
	if err != nil {
		return err
	}
	l.conns[peer] = conn
	return nil
}

func (l *Links) dead(peer int, c *card) *lifecycle.PeerError {
	return &lifecycle.PeerError{
		Code: lifecycle.CodeRankDead, Rank: peer, Self: l.rank, Comm: l.id,
		Detail: fmt.Sprintf("process %d of this host (%s) ended; its kernel tells", c.process.PID, c.host),
	}
}
