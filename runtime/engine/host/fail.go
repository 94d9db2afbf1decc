package host

import (
	"errors"

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
	n := e.notice(err)
	n.Code, n.Culprit = code, int32(e.rank)
	s := e.halt(err, n)
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

func (e *Engine) notice(err error) transport.Notice {
	n := transport.NoticeOf(err, e.rank)
	n.Passed = e.passed.Load()
	return n
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
	p := e.Explain(peer, err)
	p.Since = e.w.since
	return p
}

// Explain turns the error of the connection to peer, as Links' Lost and FirstLost return it, into one of this engine's
// communicator; nil into nil.
func (e *Engine) Explain(peer int, err error) *lifecycle.PeerError {
	if err == nil {
		return nil
	}
	if n, ok := errors.AsType[*transport.NoticeError](err); ok { // who passed it on does not matter
		return e.peerError(n.Notice.Code, n.Culprit(), n.Notice.Detail)
	}
	p := e.peerError(lifecycle.CodeUnreachable, peer, "")
	p.Err = err
	if known, ok := errors.AsType[*lifecycle.PeerError](err); ok {
		p.Code, p.Rank, p.Detail, p.Err = known.Code, known.Rank, known.Detail, known.Err
	}
	return p
}
