package engine

import (
	"errors"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Links is one rank's connections to all other ranks of a communicator, as *fabric.Links implements it. Lost,
// FirstLost, Notify and Close may be called from several goroutines, and Close more than once.
type Links interface {
	Rank() int
	Size() int
	Conn(peer int) transport.Conn // nil for this rank
	Waiter() *transport.Waiter    // rung by all the Conns
	Board() *transport.Board      // nil unless all ranks share memory
	Topology() transport.Topology
	Lost(peer int) error
	FirstLost() (peer int, err error)
	Notify(n transport.Notice)
	Close()
}

// Comm is one rank of a communicator as its engines see it: how it reaches the other ranks, its current call, and the
// error that stopped it, if any. Its methods may be called from any goroutine at any time, unless they say otherwise.
type Comm struct {
	ID         lifecycle.CommID
	Name       string
	Rank, Size int
	Links      Links
	Tape       *tape.CommWriter // nil for none

	op      atomic.Uint64 // the current call: type in the upper 8 bits, number below; 0 for none
	peer    atomic.Int32  // the rank it has been waiting for long enough to be reported; -1 for none
	passed  atomic.Uint64 // the number of the last collective that this rank completed
	stopped atomic.Pointer[stop]
}

// stop is the reason why a communicator's engines carry out no more calls.
type stop struct {
	err    error
	notice transport.Notice // for the other ranks
}

// NewComm makes the Comm of the rank that links belongs to. The Comm owns links: Close and any error of an operation
// close them. The name is for errors.
func NewComm(id lifecycle.CommID, name string, links Links, tw *tape.CommWriter) *Comm {
	c := &Comm{ID: id, Name: name, Rank: links.Rank(), Size: links.Size(), Links: links, Tape: tw}
	c.peer.Store(-1)
	return c
}

const seqBits = 56

// Begin makes a call the current one. Only the goroutine that runs calls may call Begin, Passed and End.
func (c *Comm) Begin(call lifecycle.Call, seq uint64) {
	transport.StoreRelease(&c.op, uint64(call)<<seqBits|seq&(1<<seqBits-1))
}

// Passed says that this rank has completed the current call, a collective: other ranks needn't give it up because of
// what happens to this rank from now on.
func (c *Comm) Passed(seq uint64) { transport.StoreRelease(&c.passed, seq) }

// End ends the current call.
func (c *Comm) End() { transport.StoreRelease(&c.op, 0) }

// WaitsFor records, here and on the tape, which rank the current call waits for; -1 when it no longer waits.
func (c *Comm) WaitsFor(peer int) {
	c.peer.Store(int32(peer))
	c.Tape.Wait(int32(peer))
}

// Current returns the current call, its number, and the rank that it waits for, or -1 for none. ok is false without a
// current call.
func (c *Comm) Current() (call lifecycle.Call, seq uint64, peer int, ok bool) {
	v := c.op.Load()
	if v == 0 {
		return lifecycle.CallNone, 0, -1, false
	}
	return lifecycle.Call(v >> seqBits), v & (1<<seqBits - 1), int(c.peer.Load()), true
}

// Stopped returns the error of every further call once an error, Interrupt, Abandon or Close has stopped the
// communicator; nil before that.
func (c *Comm) Stopped() error {
	if s := c.stopped.Load(); s != nil {
		return s.err
	}
	return nil
}

// halt makes err the communicator's last word, unless it has one already, and returns the one in effect.
func (c *Comm) halt(err error, n transport.Notice) *stop {
	c.stopped.CompareAndSwap(nil, &stop{err, n})
	return c.stopped.Load()
}

// Interrupt makes the current call, and every later one, return err, and tells the other ranks that this rank has left
// the communicator. It does not wait for the current call to return.
func (c *Comm) Interrupt(err error) { c.quit(lifecycle.CodePeerAborted, err) }

// Abandon is Interrupt for a call that this rank gave up before its turn came: the other ranks are told that.
func (c *Comm) Abandon(err error) { c.quit(lifecycle.CodeAbandoned, err) }

// Stop is Fail for an error of a call that has returned but continues on a device. The links stay open, as other
// goroutines may read from them.
func (c *Comm) Stop(err error) error {
	s := c.halt(err, c.notice(err))
	c.Links.Notify(s.notice)
	c.Links.Waiter().Ring()
	return s.err
}

func (c *Comm) quit(code lifecycle.Code, err error) {
	n := c.notice(err)
	n.Code, n.Culprit = code, int32(c.Rank)
	s := c.halt(err, n)
	c.Links.Notify(s.notice)
	c.Links.Waiter().Ring()
}

// Fail ends the current call with err. It tells the other ranks and closes the links, so that no peer reads the
// caller's memory any more. It returns the error for the caller.
func (c *Comm) Fail(err error) error {
	s := c.halt(err, c.notice(err))
	c.Links.Notify(s.notice)
	c.Links.Close()
	c.peer.Store(-1)
	c.End()
	return s.err
}

func (c *Comm) notice(err error) transport.Notice {
	n := transport.NoticeOf(err, c.Rank)
	n.Passed = c.passed.Load()
	return n
}

// Close closes the links. No call may be running: call Interrupt first. Close may be called more than once.
func (c *Comm) Close() {
	c.Links.Close()
	c.halt(&lifecycle.UsageError{
		Code: lifecycle.CodeDestroyed, State: lifecycle.StateDestroyed,
		Comm: c.ID, Name: c.Name, Rank: c.Rank, Detail: "its engine was closed",
	}, transport.Notice{Code: lifecycle.CodePeerAborted, Culprit: int32(c.Rank)})
}

// PeerError makes an error of the current call that is the fault of the given rank.
func (c *Comm) PeerError(code lifecycle.Code, rank int, detail string) *lifecycle.PeerError {
	call, seq, _, _ := c.Current()
	return &lifecycle.PeerError{
		Code: code, Rank: rank, Comm: c.ID, Name: c.Name, Self: c.Rank,
		Seq: seq, Call: call, Detail: detail,
	}
}

// Lost returns why a peer was lost, as an error of this communicator; nil if it wasn't lost.
func (c *Comm) Lost(peer int) *lifecycle.PeerError { return c.Explain(peer, c.Links.Lost(peer)) }

// FirstLost returns why the first lost peer was lost, as an error of this communicator; nil if none was lost.
func (c *Comm) FirstLost() *lifecycle.PeerError { return c.Explain(c.Links.FirstLost()) }

// Explain turns the error of the connection to peer into an error of this communicator, and nil into nil.
func (c *Comm) Explain(peer int, err error) *lifecycle.PeerError {
	if err == nil {
		return nil
	}
	if n, ok := errors.AsType[*transport.NoticeError](err); ok { // which rank relayed it does not matter
		culprit := n.Culprit()
		if n.Notice.Code == lifecycle.CodeMismatch && n.Notice.Culprit == -1 {
			culprit = -1 // two ranks' calls differ, and the sender can't tell which is wrong
		}
		return c.PeerError(n.Notice.Code, culprit, n.Notice.Detail)
	}
	p := c.PeerError(lifecycle.CodeUnreachable, peer, "")
	p.Err = err
	if known, ok := errors.AsType[*lifecycle.PeerError](err); ok {
		p.Code, p.Rank, p.Detail, p.Err = known.Code, known.Rank, known.Detail, known.Err
	}
	return p
}
