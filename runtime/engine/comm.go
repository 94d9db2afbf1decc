package engine

import (
	"errors"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Links is one rank's connections to all others of a communicator, as *fabric.Links is. Lost, FirstLost, Notify and
// Close may be called from several goroutines, and Close more than once.
type Links interface {
	Rank() int
	Size() int
	Conn(peer int) transport.Conn // nil for the own rank
	Waiter() *transport.Waiter    // which all the Conns ring
	Board() *transport.Board      // nil unless all ranks share memory
	Topology() transport.Topology
	Lost(peer int) error
	FirstLost() (peer int, err error)
	Notify(n transport.Notice)
	Close()
}

// Comm is one rank of a communicator as its engines see it: how it reaches the others, which call it is in, and why it
// has stopped, if it has. Its methods may be called by any goroutine at any time, but for those that say otherwise.
type Comm struct {
	ID         lifecycle.CommID
	Name       string
	Rank, Size int
	Links      Links
	Tape       *tape.CommWriter // nil for none

	op      atomic.Uint64 // the call that is run: in the upper 8 bits, its number below; 0 for none
	peer    atomic.Int32  // the rank it has been waiting for so long that it was reported; -1 for none
	passed  atomic.Uint64 // the number of the last collective that is done here
	stopped atomic.Pointer[stop]
}

// stop is why a communicator's engines carry out nothing any more.
type stop struct {
	err    error
	notice transport.Notice // for the other ranks
}

// NewComm makes the Comm of the rank that links belongs to. It takes the links over: Close, and any error of an
// operation, closes them. The name is for errors.
func NewComm(id lifecycle.CommID, name string, links Links, tw *tape.CommWriter) *Comm {
	c := &Comm{ID: id, Name: name, Rank: links.Rank(), Size: links.Size(), Links: links, Tape: tw}
	c.peer.Store(-1)
	return c
}

const seqBits = 56

// Begin makes a call the current one. Begin, Passed and End belong to the goroutine that runs calls.
func (c *Comm) Begin(call lifecycle.Call, seq uint64) {
	transport.StoreRelease(&c.op, uint64(call)<<seqBits|seq&(1<<seqBits-1))
}

// Passed says that the current call, a collective, is done here: what befalls this rank now is no reason for others to
// give it up.
func (c *Comm) Passed(seq uint64) { transport.StoreRelease(&c.passed, seq) }

// End ends the current call.
func (c *Comm) End() { transport.StoreRelease(&c.op, 0) }

// WaitsFor says, here and on the tape, for which rank the current call waits now; -1 for none any more.
func (c *Comm) WaitsFor(peer int) {
	c.peer.Store(int32(peer))
	c.Tape.Wait(int32(peer))
}

// Current returns the call that is run, its number, and the rank that it waits for, -1 if none. ok is false when there
// is none.
func (c *Comm) Current() (call lifecycle.Call, seq uint64, peer int, ok bool) {
	v := c.op.Load()
	if v == 0 {
		return lifecycle.CallNone, 0, -1, false
	}
	return lifecycle.Call(v >> seqBits), v & (1<<seqBits - 1), int(c.peer.Load()), true
}

// Stopped is what every call returns once an error, Interrupt, Abandon or Close has stopped the communicator; else nil.
func (c *Comm) Stopped() error {
	if s := c.stopped.Load(); s != nil {
		return s.err
	}
	return nil
}

// halt makes err the communicator's last word, unless there is one already, and returns what is.
func (c *Comm) halt(err error, n transport.Notice) *stop {
	c.stopped.CompareAndSwap(nil, &stop{err, n})
	return c.stopped.Load()
}

// Interrupt makes the call that is run, and every later one, return err, and tells the other ranks that this one has
// left the communicator. It does not wait for the call to return.
func (c *Comm) Interrupt(err error) { c.quit(lifecycle.CodePeerAborted, err) }

// Abandon is Interrupt for a call that this rank gave up before its turn came: the other ranks learn of it.
func (c *Comm) Abandon(err error) { c.quit(lifecycle.CodeAbandoned, err) }

// Stop is Fail for what befell a call that is no longer run: one that goes on on a device. The links stay open, as
// others may be read from.
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

// Fail ends the current call with err: the others are told, and the links are closed, so that no peer reads the
// caller's memory any more. It returns the error to give to the caller.
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

// Close closes the links. No call may be run: Interrupt it first. It may be called more than once.
func (c *Comm) Close() {
	c.Links.Close()
	c.halt(&lifecycle.UsageError{
		Code: lifecycle.CodeDestroyed, State: lifecycle.StateDestroyed,
		Comm: c.ID, Name: c.Name, Rank: c.Rank, Detail: "its engine was closed",
	}, transport.Notice{Code: lifecycle.CodePeerAborted, Culprit: int32(c.Rank)})
}

// PeerError is an error of the current call that is the fault of a rank.
func (c *Comm) PeerError(code lifecycle.Code, rank int, detail string) *lifecycle.PeerError {
	call, seq, _, _ := c.Current()
	return &lifecycle.PeerError{
		Code: code, Rank: rank, Comm: c.ID, Name: c.Name, Self: c.Rank,
		Seq: seq, Call: call, Detail: detail,
	}
}

// Lost is why a peer was lost, in terms of this communicator; nil if it wasn't.
func (c *Comm) Lost(peer int) *lifecycle.PeerError { return c.Explain(peer, c.Links.Lost(peer)) }

// FirstLost is why the peer was lost that was lost first, in terms of this communicator; nil if none was.
func (c *Comm) FirstLost() *lifecycle.PeerError { return c.Explain(c.Links.FirstLost()) }

// Explain turns the error of the connection to peer into one of this communicator; nil into nil.
func (c *Comm) Explain(peer int, err error) *lifecycle.PeerError {
	if err == nil {
		return nil
	}
	if n, ok := errors.AsType[*transport.NoticeError](err); ok { // who passed it on does not matter
		culprit := n.Culprit()
		if n.Notice.Code == lifecycle.CodeMismatch && n.Notice.Culprit == -1 {
			culprit = -1 // two ranks differ, and the sender can't tell which is wrong
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
