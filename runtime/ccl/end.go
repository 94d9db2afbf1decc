package ccl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// closeGrace bounds how long Close waits for operations in flight.
const closeGrace = 10 * time.Second

// Finalize waits for the operations in flight, bounded by ctx; after it only Destroy and Abort are legal. A
// non-blocking communicator returns ErrInProgress and finalizes in the background.
func (c *Comm) Finalize(ctx context.Context) error {
	if c == nil {
		return nilComm(lifecycle.CallFinalize)
	}
	site := caller()
	if err := c.settle(ctx); err != nil {
		return err
	}
	if _, err := c.life.Do(lifecycle.CallFinalize, site); err != nil {
		return c.refused(ctx, lifecycle.CallFinalize, err)
	}
	a, place := c.begin(ctx, tape.ActFinalize, lifecycle.CallFinalize, 0, site), c.turn.line()
	finalize := func(ctx context.Context) error {
		err := c.drain(ctx, lifecycle.CallFinalize, place)
		c.over = true
		c.turn.leave()
		c.life.Signal(lifecycle.EventFinalizeDone, nil)
		a.end(c.fail(lifecycle.CallFinalize, err))
		return err
	}
	return c.perform(ctx, finalize)
}

// Destroy ends the communicator and frees what it holds. It waits for operations in flight, bounded by ctx; when ctx
// ends first it abandons them, and its error lists them. A second Destroy, or any other call after it, is a UsageError
// that tells where the first one was made. The communicator is gone when Destroy returns, whatever it returns, unless
// it returns a UsageError or ErrInProgress.
func (c *Comm) Destroy(ctx context.Context) error {
	if c == nil {
		return nilComm(lifecycle.CallDestroy)
	}
	if err := c.settle(ctx); err != nil {
		return err
	}
	err, refused := c.destroy(ctx, caller())
	if refused {
		return c.refused(ctx, lifecycle.CallDestroy, err)
	}
	return err
}

// destroy is Destroy on a communicator without unfinished jobs. refused is true when the call was not allowed, and did
// nothing.
func (c *Comm) destroy(ctx context.Context, site lifecycle.Site) (err error, refused bool) { //nolint:revive // refused says what the error is
	c.ending.Add(1)
	defer c.retire()
	if _, err := c.life.Do(lifecycle.CallDestroy, site); err != nil {
		return err, true
	}
	a := c.begin(ctx, tape.ActDestroy, lifecycle.CallDestroy, 0, site)
	err = c.drain(ctx, lifecycle.CallDestroy, c.turn.line())
	c.release()
	if _, done := c.life.Signal(lifecycle.EventDestroyDone, nil); !done && err == nil {
		err = c.life.Check(lifecycle.CallDestroy) // an Abort overtook it
	}
	a.end(err)
	return err, false
}

// Abort ends the communicator at once: operations in flight return an error here, and the other ranks learn of it and
// return a PeerError. cause says why, for them and for the trace; it may be nil.
func (c *Comm) Abort(cause error) error {
	if c == nil {
		return nilComm(lifecycle.CallAbort)
	}
	if err := c.abort(cause, caller()); err != nil {
		return c.refused(context.Background(), lifecycle.CallAbort, err)
	}
	return nil
}

// abort is Abort. Its error says that the call was not allowed, and did nothing.
func (c *Comm) abort(cause error, site lifecycle.Site) error {
	c.ending.Add(1)
	defer c.retire()
	ctx := context.Background()
	if _, err := c.life.Do(lifecycle.CallAbort, site); err != nil {
		return err
	}
	a := c.begin(ctx, tape.ActAbort, lifecycle.CallAbort, 0, site)
	reason := &UsageError{
		Call: lifecycle.CallAbort, Code: lifecycle.CodeAborted, State: c.life.State(), Comm: c.id, Name: c.name, Rank: c.Rank(),
		First: site, Detail: "the communicator was aborted",
	}
	if cause != nil {
		reason.Detail = "the communicator was aborted: " + cause.Error()
	}
	c.interrupt(reason)
	_ = c.turn.take(ctx) // what held it was interrupted
	c.release()
	c.life.Signal(lifecycle.EventAbortDone, nil)
	if cause != nil {
		a.rec.Text = cause.Error()
	}
	a.end(nil)
	return nil
}

// errClosedEarly is why Close aborts.
var errClosedEarly = errors.New("it was closed while a call on it was in progress")

// Close is the idempotent form of Destroy, for defer: the first call destroys, and gives what is in progress ten
// seconds to end; a call on a communicator that was destroyed, aborted or closed already, or is just being so by
// another goroutine, does nothing and is no error. On a communicator that isn't ready yet it aborts. It never returns
// ErrInProgress.
func (c *Comm) Close() error {
	if c == nil || !c.life.State().Live() {
		return nil
	}
	site := caller()
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	var err error
	if c.life.State() == lifecycle.StateInitializing || c.jobs.wait(ctx) != nil {
		err = c.abort(errClosedEarly, site)
	} else {
		c.jobs.clear()
		err, _ = c.destroy(ctx, site)
	}
	if errors.Is(err, ErrDestroyed) || errors.Is(err, ErrAborted) {
		return nil // another goroutine was faster
	}
	return err
}

// settle deals with a call on a communicator with unfinished jobs: a blocking one waits for them, a non-blocking one
// answers ErrInProgress.
func (c *Comm) settle(ctx context.Context) error {
	if !c.jobs.unfinished() {
		return nil
	}
	if !c.blocking {
		return ErrInProgress
	}
	return c.jobs.wait(ctx)
}

// perform runs the rest of a call: here, or for a non-blocking communicator in the background.
func (c *Comm) perform(ctx context.Context, rest func(context.Context) error) error {
	if c.blocking {
		return rest(ctx)
	}
	j := newJob()
	c.jobs.add(j)
	c.crew.start(func() { j.end(rest(context.WithoutCancel(ctx))) })
	return ErrInProgress
}

// drain waits until the operations before place are done; the caller has the turn then. When ctx ends first it interrupts
// them, and returns an error that lists them: the turn is the caller's all the same.
func (c *Comm) drain(ctx context.Context, call lifecycle.Call, place *ticket) error {
	if c.turn.wait(ctx, place) == nil {
		return nil
	}
	err := &UsageError{
		Call: call, Code: lifecycle.CodeUnfinished, State: c.life.State(), Comm: c.id, Name: c.name, Rank: c.rank,
		Detail: "operations were in flight when its context ended: " + c.inFlight(),
	}
	c.interrupt(err)
	_ = c.turn.take(context.Background())
	return err
}

// inFlight lists the operations that have not ended, and what they wait for.
func (c *Comm) inFlight() string {
	var b strings.Builder
	if call, seq, peer, ok := c.engine.Current(); ok {
		fmt.Fprintf(&b, "%s number %d", call, seq)
		if peer >= 0 {
			fmt.Fprintf(&b, ", which waits for rank %d", peer)
		}
	}
	if n := c.turn.length(); n > 1 {
		fmt.Fprintf(&b, ", and %d behind it", n-1)
	}
	return b.String()
}

// interrupt makes what runs on the communicator return err, and tells the other ranks.
func (c *Comm) interrupt(err error) {
	c.cancel(err)
	<-c.start.done
	if c.engine != nil {
		c.engine.Interrupt(err)
	}
}

// release frees what the communicator holds. The caller has the turn, and keeps it: nobody else gets it any more.
func (c *Comm) release() {
	c.over = true
	c.cancel(nil)
	if c.engine != nil {
		c.engine.Close()
	}
	if c.links != nil {
		c.links.Close()
	}
	c.turn.leave() // who still waits finds the communicator destroyed
	c.crew.dismiss()
}

// retire takes the communicator off the books once it is gone, and the last call that might end it has written its
// records: an Abort may have overtaken a Destroy.
func (c *Comm) retire() {
	if c.ending.Add(-1) > 0 || !c.life.State().Gone() {
		return
	}
	c.tape.Close()
	c.life.Retire()
	c.rt.forget(c)
}
