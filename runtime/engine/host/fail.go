package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
)

// stop is why an engine carries out nothing any more.
type stop struct {
	err    error
	notice transport.Notice // for the other ranks
}

// halt makes err the engine's last word, unless there is one already, and returns what is.
func (e *Engine) halt(err error, n transport.Notice) *stop {
	e.stopped.CompareAndSwap(nil, &stop{err, n})
	return e.stopped.Load()
}

// Interrupt makes the operation in flight, and every later one, return err, and tells the other ranks that this one has
// left the communicator. It does not wait for the operation to return.
func (e *Engine) Interrupt(err error) { e.quit(lifecycle.CodePeerAborted, err) }

// Abandon is Interrupt for an operation that this rank gave up before its turn came: the other ranks learn of it.
func (e *Engine) Abandon(err error) { e.quit(lifecycle.CodeAbandoned, err) }

func (e *Engine) quit(code lifecycle.Code, err error) {
	s := e.halt(err, transport.Notice{
		Code: code, Culprit: int32(e.rank), Passed: e.passed.Load(), Detail: detailOf(err),
	})
	e.links.Notify(s.notice)
	e.waiter.Ring()
}

// fail ends the running operation with err: the others are told, and the links are closed, so that no peer reads the
// caller's memory any more. It returns the error to give to the caller.
func (e *Engine) fail(err error) error {
	s := e.halt(err, e.notice(err))
	e.links.Notify(s.notice)
	e.links.Close()
	if !e.w.since.IsZero() {
		e.now.peer.Store(-1)
	}
	e.end()
	return s.err
}

// notice is what the others should know of err.
func (e *Engine) notice(err error) transport.Notice {
	n := transport.Notice{
		Code: lifecycle.CodeOf(err), Culprit: int32(e.rank), Passed: e.passed.Load(), Detail: detailOf(err),
	}
	var peer *lifecycle.PeerError
	switch {
	case n.Code == lifecycle.CodeTimeout:
		n.Code = lifecycle.CodeAbandoned
		if errors.As(err, &peer) && peer.Rank >= 0 {
			n.Detail = fmt.Sprintf("its context ended while it waited for rank %d", peer.Rank)
		}
	case errors.As(err, &peer):
		n.Culprit = int32(peer.Rank)
	default:
		n.Code = lifecycle.CodeInternal
	}
	return n
}

// detailOf is what an error says in itself, without the communicator and operation, which the reader knows.
func detailOf(err error) string {
	if peer, ok := errors.AsType[*lifecycle.PeerError](err); ok && peer.Detail != "" {
		return peer.Detail
	}
	if usage, ok := errors.AsType[*lifecycle.UsageError](err); ok && usage.Detail != "" {
		return usage.Detail
	}
	return err.Error()
}

// peerError is an error of the running operation.
func (e *Engine) peerError(code lifecycle.Code, rank int, detail string) *lifecycle.PeerError {
	call, seq, _, _ := e.Current()
	return &lifecycle.PeerError{
		Code: code, Rank: rank, Comm: e.cfg.Comm, Name: e.cfg.Name, Self: e.rank,
		Seq: seq, Call: call, Detail: detail,
	}
}

// lost is the error of an operation that can't go on because the connection to peer is gone.
func (e *Engine) lost(peer int, err error) error {
	if s := e.stopped.Load(); s != nil {
		return s.err
	}
	// The first cause is the Waiter's; what a connection says may be a consequence.
	if first := e.links.Lost(peer); first != nil {
		err = first
	}
	p := e.explain(peer, err)
	p.Since = e.w.since
	return p
}

// Explain turns the error of a connection, as Links' Lost and FirstLost return it, into the *lifecycle.PeerError of
// this engine's communicator. It returns nil for nil, and an error that is none of a peer as it is.
func (e *Engine) Explain(err error) error {
	var notice *transport.NoticeError
	var peer *lifecycle.PeerError
	switch {
	case errors.As(err, &notice):
		return e.explain(notice.Peer, err)
	case errors.As(err, &peer):
		return e.explain(peer.Rank, err)
	}
	return err
}

func (e *Engine) explain(rank int, err error) *lifecycle.PeerError {
	var notice *transport.NoticeError
	var peer *lifecycle.PeerError
	switch {
	case errors.As(err, &notice):
		n := &notice.Notice
		if n.Culprit >= 0 {
			rank = int(n.Culprit)
		}
		return e.peerError(n.Code, rank, n.Detail) // who passed it on does not matter
	case errors.As(err, &peer):
		p := e.peerError(peer.Code, peer.Rank, peer.Detail)
		p.Err = peer.Err
		return p
	}
	p := e.peerError(lifecycle.CodeUnreachable, rank, "")
	p.Err = err
	return p
}

// expired is the error of an operation whose context has ended.
func (e *Engine) expired(o operation, cause error) error {
	p := e.peerError(lifecycle.CodeTimeout, o.waitsFor(), "the operation was abandoned")
	p.Err, p.Since = cause, e.w.since
	if p.Since.IsZero() {
		p.Since = time.Now() // it had not waited long enough to look at the clock
	}
	return p
}
