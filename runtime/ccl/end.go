package ccl

import (
	"context"
	"fmt"
	"runtime"
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
	defer runtime.KeepAlive(c)
	if err := c.mayChange(ctx, lifecycle.CallFinalize); err != nil {
		return err
	}
	site := callSite()
	if _, err := c.life.Do(lifecycle.CallFinalize, site); err != nil {
		return c.refused(ctx, lifecycle.CallFinalize, err)
	}
	a, place := c.begin(ctx, tape.ActFinalize, lifecycle.CallFinalize, 0, site), c.turn.line()
	return c.perform(ctx, func(ctx context.Context) error {
		err := c.drain(ctx, lifecycle.CallFinalize, place)
		c.over = true
		c.turn.leave()
		c.life.Signal(lifecycle.EventFinalizeDone, nil)
		a.end(err)
		return err
	})
}

// Destroy ends the communicator and frees what it holds. It waits for operations in flight, bounded by ctx; when ctx ends first it
// abandons them, and its error lists them. A second Destroy, or any other call after it, is a UsageError that tells where the first one was
// made. The communicator is gone when Destroy returns, whatever it returns, unless it returns another UsageError or ErrInProgress.
func (c *Comm) Destroy(ctx context.Context) error {
	if c == nil {
		return nilComm(lifecycle.CallDestroy)
	}
	defer runtime.KeepAlive(c)
	if err := c.mayChange(ctx, lifecycle.CallDestroy); err != nil {
		return err
	}
	return c.destroy(ctx, callSite())
}

func (c *core) destroy(ctx context.Context, site lifecycle.Site) error {
	if _, err := c.life.Do(lifecycle.CallDestroy, site); err != nil {
		return c.refused(ctx, lifecycle.CallDestroy, err)
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
	defer runtime.KeepAlive(c)
	c.visit()
	return c.abort(cause, callSite())
}

func (c *core) abort(cause error, site lifecycle.Site) error {
	ctx := context.Background()
	if _, err := c.life.Do(lifecycle.CallAbort, site); err != nil {
		return c.refused(ctx, lifecycle.CallAbort, err)
	}
	a := c.begin(ctx, tape.ActAbort, lifecycle.CallAbort, 0, site)
	err := c.stopped(lifecycle.CallAbort, lifecycle.CodeAborted, "the communicator was aborted", site, cause)
	c.giveUp(err)
	c.interrupt(err)
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

// Revoke cancels what is in flight on the communicator, here and on the other ranks, whose calls return a PeerError. Afterwards it may be
// split or shrunk (by all ranks that are to be in the new one), and must be destroyed. It does not wait for the other ranks.
func (c *Comm) Revoke(cause error) error {
	if c == nil {
		return nilComm(lifecycle.CallRevoke)
	}
	defer runtime.KeepAlive(c)
	c.visit()
	ctx, site := context.Background(), callSite()
	if _, err := c.life.Do(lifecycle.CallRevoke, site); err != nil {
		return c.refused(ctx, lifecycle.CallRevoke, err)
	}
	a := c.begin(ctx, tape.ActRevoke, lifecycle.CallRevoke, 0, site)
	c.interrupt(c.stopped(lifecycle.CallRevoke, lifecycle.CodeRevoked, "the communicator was revoked", site, cause))
	if cause != nil {
		a.rec.Text = cause.Error()
	}
	a.end(nil)
	return nil
}

// stopped is the error of the operations that a call stops.
func (c *core) stopped(call lifecycle.Call, code lifecycle.Code, detail string, site lifecycle.Site, cause error) error {
	if cause != nil {
		detail += ": " + cause.Error()
	}
	rank, _ := c.place()
	return &UsageError{
		Call: call, Code: code, State: c.life.State(), Comm: c.id, Name: c.name, Rank: rank, First: site, Detail: detail, Cause: cause,
	}
}

// Close is the idempotent form of Destroy, for defer: the first call destroys (and gives operations in flight ten seconds to end), a call on a
// communicator that was destroyed, aborted or closed already does nothing and is no error. On a communicator that isn't ready yet it aborts.
func (c *Comm) Close() error {
	if c == nil {
		return nil
	}
	defer runtime.KeepAlive(c)
	c.visit()
	site := callSite()
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	if c.life.State() == lifecycle.StateInitializing || c.jobs.wait(ctx) != nil {
		return c.already(c.abort(errClosed, site))
	}
	if !c.life.State().Live() {
		return nil
	}
	return c.already(c.destroy(ctx, site))
}

// already takes the error off that says that the communicator has ended before: another goroutine was faster.
func (c *core) already(err error) error {
	if u, ok := asUsage(err); ok && (u.Code == lifecycle.CodeDestroyed || u.Code == lifecycle.CodeAborted) {
		return nil
	}
	return err
}

// With makes a communicator as InitRank does, calls fn with it once it is ready, and ends it: with Destroy when fn returns nil, with
// Abort and fn's error as the cause when it does not, or when it panics, so that the other ranks do not wait for this one.
func With(ctx context.Context, rt *Runtime, id UniqueID, nranks, rank int, fn func(*Comm) error, opts ...Option) (err error) {
	comm, err := rt.InitRank(ctx, id, nranks, rank, opts...)
	if comm == nil {
		return err
	}
	finished := false
	defer func() {
		if !finished {
			_ = comm.Abort(fmt.Errorf("the function of its scope failed: %w", causeOf(err)))
		}
	}()
	if err = comm.Wait(ctx); err != nil {
		return err
	}
	if err = fn(comm); err != nil {
		return err
	}
	finished = true
	return comm.already(comm.Destroy(ctx))
}

func causeOf(err error) error {
	if err == nil {
		return errPanicked
	}
	return err
}

// mayChange deals with what stands in the way of a call that changes a communicator: being inside a group, and unfinished jobs. A blocking
// communicator waits for those, a non-blocking one answers ErrInProgress, and nothing changes.
func (c *core) mayChange(ctx context.Context, call lifecycle.Call) error {
	c.visit()
	if groupOf(ctx) != nil && call != lifecycle.CallSplit {
		err := c.usage(call, "it was made inside a group: end the group first, and then make this call with a context that is no group")
		err.Code = lifecycle.CodeInvalidUsage
		return c.refused(ctx, call, err)
	}
	if !c.jobs.unfinished() {
		return nil
	}
	if c.blocking && c.life.State() != lifecycle.StateInitializing {
		return c.jobs.wait(ctx)
	}
	if err := c.life.Check(call); err != nil {
		return c.refused(ctx, call, err)
	}
	err := c.usage(call, "a call on the communicator is unfinished: wait for it first, with Wait or by asking AsyncError")
	err.Code = lifecycle.CodeInProgress
	return c.refused(ctx, call, err)
}

// perform runs the rest of a call: here, or for a non-blocking communicator in the background.
func (c *core) perform(ctx context.Context, rest func(context.Context) error) error {
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
func (c *core) drain(ctx context.Context, call lifecycle.Call, place *ticket) error {
	if c.turn.wait(ctx, place) == nil {
		return nil
	}
	rank, _ := c.place()
	err := &UsageError{
		Call: call, Code: lifecycle.CodeUnfinished, State: c.life.State(), Comm: c.id, Name: c.name, Rank: rank,
		Detail: "operations were in flight when its context ended: " + c.inFlight(),
	}
	c.giveUp(err)
	c.interrupt(err)
	_ = c.turn.take(context.Background())
	return err
}

// inFlight lists the operations that have not ended, and what they wait for.
func (c *core) inFlight() string {
	var parts []string
	if call, seq, peer, ok := c.engine.Current(); ok {
		part := fmt.Sprintf("%s number %d", call, seq)
		if peer >= 0 {
			part += fmt.Sprintf(", which waits for rank %d", peer)
		}
		parts = append(parts, part)
	}
	if n := c.turn.length(); n > 1 {
		parts = append(parts, fmt.Sprintf("%d behind it", n-1))
	}
	return strings.Join(parts, ", and ")
}

// interrupt makes what runs on the communicator return err, and tells the other ranks.
func (c *core) interrupt(err error) {
	c.cancel(err)
	<-c.start.done
	if c.engine != nil {
		c.engine.Interrupt(err)
	}
}

// release frees what the communicator holds. The caller has the turn; who comes after it finds the communicator ended.
func (c *core) release() {
	c.over = true
	c.giveUp(nil)
	if c.engine != nil {
		c.engine.Close()
	}
	if c.links != nil {
		c.links.Close()
	}
	c.turn.leave()
	c.work.dismiss()
	c.jobs.drop()
}

// retire takes the communicator off the books, after the last record of its life.
func (c *core) retire() {
	c.tape.Close()
	c.life.Retire()
	c.rt.forget(c)
}

// leaked reports a communicator that nobody will end any more, and aborts it. how says how that is known.
func (c *core) leaked(how string) {
	if !c.life.State().Live() || c.reported.Swap(true) {
		return // it was ended, or its last call is still under way in another goroutine, or it is being reaped while the runtime stops
	}
	made := c.life.Info().Site
	text := fmt.Sprintf("%s, made by %s, was never destroyed, %s: call Close or Destroy on it, or make it with ccl.With", c, made, how)
	c.tape.Life(tape.LifeRecord{
		Act: tape.ActLeak, Call: lifecycle.CallDestroy, Stage: tape.StageMisuse, Code: lifecycle.CodeLeaked, State: c.life.State(), Peer: -1,
		Text: text, Site: made,
	})
	c.rt.log.Warn("communicator leaked", "comm", c.name, "comm_id", c.id.Short(), "comm_rank", c.life.Info().Rank, "made_by", made.String(), "how", how)
	_ = c.abort(errLeaked, lifecycle.Site{}) // another goroutine may have been faster
}
