package ccl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// closeGrace bounds how long Close and Runtime.Close wait for operations in flight.
const closeGrace = 10 * time.Second

// Finalize waits for the operations in flight, bounded by ctx; after it only Destroy and Abort are legal. A non-blocking communicator
// returns ErrInProgress and finalizes in the background.
func (c *Comm) Finalize(ctx context.Context) error {
	if c == nil {
		return nilComm(lifecycle.CallFinalize)
	}
	site := lifecycle.Caller(1)
	if err := c.settle(ctx); err != nil {
		return err
	}
	if _, err := c.life.Do(lifecycle.CallFinalize, site); err != nil {
		return c.refused(ctx, lifecycle.CallFinalize, err, 1)
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

// Destroy ends the communicator and frees what it holds. It waits for operations in flight, bounded by ctx; when ctx ends first it
// abandons them, and its error lists them. A second Destroy, or any other call after it, is a UsageError that tells where the first one was
// made. The communicator is gone when Destroy returns, whatever it returns, unless it returns a UsageError or ErrInProgress.
func (c *Comm) Destroy(ctx context.Context) error {
	if c == nil {
		return nilComm(lifecycle.CallDestroy)
	}
	return c.destroy(ctx, lifecycle.Caller(1))
}

func (c *Comm) destroy(ctx context.Context, site lifecycle.Site) error {
	if err := c.settle(ctx); err != nil {
		return err
	}
	if _, err := c.life.Do(lifecycle.CallDestroy, site); err != nil {
		return c.refused(ctx, lifecycle.CallDestroy, err, 2)
	}
	a := c.begin(ctx, tape.ActDestroy, lifecycle.CallDestroy, 0, site)
	err := c.drain(ctx, lifecycle.CallDestroy, c.turn.line())
	c.release()
	c.life.Signal(lifecycle.EventDestroyDone, nil)
	a.end(err)
	c.retire()
	return err
}

// Abort ends the communicator at once: operations in flight return an error here, and the other ranks learn of it and return a PeerError. cause
// says why, for them and for the trace; it may be nil.
func (c *Comm) Abort(cause error) error {
	if c == nil {
		return nilComm(lifecycle.CallAbort)
	}
	return c.abort(cause, lifecycle.Caller(1))
}

func (c *Comm) abort(cause error, site lifecycle.Site) error {
	ctx := context.Background()
	if _, err := c.life.Do(lifecycle.CallAbort, site); err != nil {
		return c.refused(ctx, lifecycle.CallAbort, err, 2)
	}
	a := c.begin(ctx, tape.ActAbort, lifecycle.CallAbort, 0, site)
	reason := &UsageError{
		Call: lifecycle.CallAbort, Code: lifecycle.CodeAborted, State: c.life.State(), Comm: c.id, Name: c.name, Rank: c.rank,
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
	c.retire()
	return nil
}

// Close is the idempotent form of Destroy, for defer: the first call destroys (and gives operations in flight ten seconds to end), a call on a
// communicator that was destroyed, aborted or closed already does nothing and is no error. On a communicator that isn't ready yet it aborts.
func (c *Comm) Close() error {
	if c == nil {
		return nil
	}
	switch c.life.State() { //nolint:exhaustive // in all other states the communicator is alive and ready
	case lifecycle.StateDestroyed, lifecycle.StateAborting, lifecycle.StateAborted:
		return nil
	case lifecycle.StateInitializing:
		return c.abort(ErrRuntimeClosed, lifecycle.Caller(1))
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	err := c.destroy(ctx, lifecycle.Caller(1))
	if u, ok := asUsage(err); ok && (u.Code == lifecycle.CodeDestroyed || u.Code == lifecycle.CodeAborted) {
		return nil // another goroutine was faster
	}
	return err
}

// settle deals with a call on a communicator with unfinished jobs: a blocking one waits for them, a non-blocking one answers ErrInProgress.
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
	c.work.Go(func() { j.end(rest(context.WithoutCancel(ctx))) })
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
	c.work.Wait()
}

// retire takes the communicator off the books, after the last record of its life.
func (c *Comm) retire() {
	c.tape.Close()
	c.life.Retire()
	c.rt.forget(c)
}
