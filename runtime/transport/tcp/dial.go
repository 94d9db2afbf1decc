package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// Pauses between two attempts to reach a peer.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// Connect connects rank self, whose gate this is, with rank peer, whose gate and address are given. Of two ranks, the
// lower dials and the higher waits. It blocks until the connection stands or ctx ends. Losses are told to bell.
func (g *Gate) Connect(ctx context.Context, self, peer int, addr string, gate GateID, bell transport.Doorbell) (*Conn, error) {
	var conns [kinds]*net.TCPConn
	var err error
	if self < peer {
		conns, err = g.dial(ctx, hello{gate: gate, comm: g.comm, from: uint32(self), to: uint32(peer)}, addr)
	} else {
		conns, err = g.wait(ctx, self, peer)
	}
	if err != nil {
		code := lifecycle.CodeNotJoined
		if errors.Is(err, errProof) {
			code = lifecycle.CodeAuth
		}
		return nil, &lifecycle.PeerError{
			Code: code, Rank: peer, Self: self, Comm: g.comm,
			Detail: fmt.Sprintf("no TCP connection with it, at %s: %v", addr, err), Err: err,
		}
	}
	return newConn(g.s, conns, self, peer, bell)
}

func (g *Gate) dial(ctx context.Context, h hello, addr string) (conns [kinds]*net.TCPConn, err error) {
	for k := range conns {
		h.kind = kind(k)
		if conns[k], err = dialUntil(ctx, h, g.secret, addr); err != nil {
			for _, c := range conns[:k] {
				_ = c.Close()
			}
			return conns, err
		}
	}
	return conns, nil
}

// dialUntil dials until it works, ctx ends, or the other side turns out to be a stranger.
func dialUntil(ctx context.Context, h hello, secret []byte, addr string) (*net.TCPConn, error) {
	pause := firstPause
	for {
		c, err := dialOnce(ctx, h, secret, addr)
		if err == nil || errors.Is(err, errProof) {
			return c, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w; the last attempt: %w", ctx.Err(), err)
		}
		pause = min(2*pause, lastPause)
	}
}

func dialOnce(ctx context.Context, h hello, secret []byte, addr string) (*net.TCPConn, error) {
	d := net.Dialer{KeepAlive: -1} // set later, and on the control connection alone
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(handshakeTime))
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = greet(conn, h, secret)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return conn.(*net.TCPConn), nil
}
