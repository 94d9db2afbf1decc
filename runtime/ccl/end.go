package ccl

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// closeGrace bounds how long Close and Runtime.Close wait for operations in flight.
const closeGrace = 10 * time.Second

// Finalize waits for the operations in flight, bounded by ctx; after it only Destroy and Abort are legal. Its error is
// ErrFailed when one of them made the communicator fail: then it has failed, and is not finalized. A non-blocking
// communicator returns ErrInProgress and finalizes in the background.
func (c *Comm) Finalize(ctx context.Context) error {
	if c.absent() {
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
	a, place := c.begin(ctx, tape.ActFinalize, lifecycle.CallFinalize, 0, site), c.turn.line(lifecycle.CallFinalize)
	return c.perform(ctx, func(ctx context.Context) error {
		err := c.drain(ctx, lifecycle.CallFinalize, place)
		c.over = true
		c.turn.leave()
		if _, done := c.life.Signal(lifecycle.EventFinalizeDone, nil); !done && err == nil {
			err = c.life.Check(lifecycle.CallFinalize) // it failed, or was ended meanwhile
		}
		a.end(err)
		return err
	})
}

// Destroy ends the communicator and frees what it holds. It waits for operations in flight, bounded by ctx; when ctx
// ends first it abandons them, and its error lists them. A second Destroy, or any other call after it, is a UsageError
// that tells where the first one was made. The communicator is gone when Destroy returns, whatever it returns, unless
// it returns another UsageError or ErrInProgress.
func (c *Comm) Destroy(ctx context.Context) error {
	if c.absent() {
		return nilComm(lifecycle.CallDestroy)
	}
	defer runtime.KeepAlive(c)
	if err := c.mayChange(ctx, lifecycle.CallDestroy); err != nil {
		return err
	}
	err, refused := c.destroy(ctx, callSite())
	if refused {
		return c.refused(ctx, lifecycle.CallDestroy, err)
	}
	return err
}

// destroy is Destroy on a communicator without unfinished jobs. refused is true when the call was not allowed, and did
// nothing.
func (c *core) destroy(ctx context.Context, site lifecycle.Site) (err error, refused bool) { //nolint:revive // refused says what the error is
	c.ending.Add(1)
	defer c.retire()
	if _, err := c.life.Do(lifecycle.CallDestroy, site); err != nil {
		return err, true
	}
	a := c.begin(ctx, tape.ActDestroy, lifecycle.CallDestroy, 0, site)
	err = c.drain(ctx, lifecycle.CallDestroy, c.turn.line(lifecycle.CallDestroy))
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
	if c.absent() {
		return nilComm(lifecycle.CallAbort)
	}
	defer runtime.KeepAlive(c)
	c.visit()
	if err := c.abort(cause, callSite()); err != nil {
		return c.refused(context.Background(), lifecycle.CallAbort, err)
	}
	return nil
}

// abort is Abort. Its error says that the call was not allowed, and did nothing.
func (c *core) abort(cause error, site lifecycle.Site) error {
	c.ending.Add(1)
	defer c.retire()
	ctx := context.Background()
	if _, err := c.life.Do(lifecycle.CallAbort, site); err != nil {
		return err
	}
	a := c.begin(ctx, tape.ActAbort, lifecycle.CallAbort, 0, site)
	err := c.stopped(lifecycle.CallAbort, lifecycle.CodeAborted, "the communicator was aborted", site, cause)
	c.giveUp(err)
	c.interrupt(err)
	_ = c.turn.take(ctx, lifecycle.CallAbort) // what held it was interrupted
	c.release()
	c.life.Signal(lifecycle.EventAbortDone, nil)
	if cause != nil {
		a.rec.Text = cause.Error()
	}
	a.end(nil)
	return nil
}

// Revoke cancels what is in flight on the communicator, here and on the other ranks, whose calls return a PeerError.
// Afterwards it may be split or shrunk (by all ranks that are to be in the new one), and must be destroyed. It does not
// wait for the other ranks.
func (c *Comm) Revoke(cause error) error {
	if c.absent() {
		return nilComm(lifecycle.CallRevoke)
	}
	defer runtime.KeepAlive(c)
	c.visit()
	if err := c.revoke(cause, callSite()); err != nil {
		return c.refused(context.Background(), lifecycle.CallRevoke, err)
	}
	return nil
}

// revoke is Revoke. Its error says that the call was not allowed, and did nothing.
func (c *core) revoke(cause error, site lifecycle.Site) error {
	if _, err := c.life.Do(lifecycle.CallRevoke, site); err != nil {
		return err
	}
	a := c.begin(context.Background(), tape.ActRevoke, lifecycle.CallRevoke, 0, site)
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
	} else if refusal := c.refusal.Load(); refusal != nil {
		detail += "; its last call was refused: " + *refusal
	}
	rank, _ := c.place()
	return &UsageError{
		Call: call, Code: code, State: c.life.State(), Comm: c.ident(), Name: c.name, Rank: rank, First: site, Detail: detail, Cause: cause,
	}
}

// Close is the idempotent form of Destroy, for defer: the first call destroys, and gives what is in progress ten
// seconds to end; a call on a communicator that was destroyed, aborted or closed already, or is just being so by
// another goroutine, does nothing and is no error. On a communicator that isn't ready yet it aborts. It never returns
// ErrInProgress.
func (c *Comm) Close() error {
	if !c.State().Live() {
		return nil
	}
	defer runtime.KeepAlive(c)
	c.visit()
	site := callSite()
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	var err error
	if c.life.State() == lifecycle.StateInitializing || c.jobs.wait(ctx) != nil {
		err = c.abort(errClosed, site)
	} else {
		err, _ = c.destroy(ctx, site)
	}
	return alreadyEnded(err)
}

// alreadyEnded takes the error off that says that the communicator has ended: another goroutine was faster.
func alreadyEnded(err error) error {
	if errors.Is(err, ErrDestroyed) || errors.Is(err, ErrAborted) {
		return nil
	}
	return err
}

// With makes a communicator as InitRank does, calls fn with it once it is ready, and ends it: with Destroy when fn
// returns nil, with Abort and fn's error as the cause when it does not, or when it panics, so that the other ranks do
// not wait for this one.
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
	if err = comm.jobs.wait(ctx); err != nil { // nobody will ask for them any more
		return err
	}
	finished = true
	err, _ = comm.destroy(ctx, callSite())
	return alreadyEnded(err)
}

func causeOf(err error) error {
	if err == nil {
		return errPanicked
	}
	return err
}

// mayChange deals with what stands in the way of a call that changes a communicator: being inside a group, and
// unfinished jobs. A blocking communicator waits for those, a non-blocking one answers ErrInProgress, and nothing
// changes.
func (c *core) mayChange(ctx context.Context, call lifecycle.Call) error {
	c.visit()
	if err := c.outsideGroup(ctx, call); err != nil {
		return err
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

// outsideGroup refuses a call that can't be made where it is: in a group that has ended or belongs to another runtime,
// and, unless it is Split, in any group.
func (c *core) outsideGroup(ctx context.Context, call lifecycle.Call) error {
	g := groupOf(ctx)
	if g == nil {
		return nil
	}
	why := "it was made inside a group: end the group first, and then make this call with a context that is no group"
	if call == lifecycle.CallSplit {
		why = g.closedTo(c.rt)
	}
	if why == "" {
		return nil
	}
	err := c.usage(call, why)
	err.Code = lifecycle.CodeInvalidUsage
	return c.refused(ctx, call, err)
}

// perform runs the rest of a call: here, or for a non-blocking communicator in the background.
func (c *core) perform(ctx context.Context, rest func(context.Context) error) error {
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
func (c *core) drain(ctx context.Context, call lifecycle.Call, place *ticket) error {
	if c.turn.wait(ctx, place) == nil {
		return nil
	}
	rank, _ := c.place()
	err := &UsageError{
		Call: call, Code: lifecycle.CodeUnfinished, State: c.life.State(), Comm: c.ident(), Name: c.name, Rank: rank,
		Detail: "operations were in flight when its context ended: " + c.inFlight(),
	}
	if call == lifecycle.CallFinalize {
		c.anew.end(err)
		defer c.anew.begin() // it may fail now instead of being finalized, and can be shrunk then
	} else {
		c.giveUp(err)
	}
	c.interrupt(err)
	_ = c.turn.take(context.Background(), call)
	return err
}

// inFlight lists the calls that have not ended, and what the one that runs waits for: the others wait for it.
func (c *core) inFlight() string {
	const listed = 8
	calls := c.turn.calls()
	if len(calls) == 0 {
		return "the last one has ended meanwhile"
	}
	text := calls[0].String()
	if call, seq, peer, ok := c.engine.Current(); ok {
		text = fmt.Sprintf("%s number %d", call, seq)
		if peer >= 0 {
			text += fmt.Sprintf(", which waits for rank %d", peer)
		}
	}
	for i, call := range calls[1:] {
		switch {
		case i == 0:
			text += "; behind it: " + call.String()
		case i < listed:
			text += ", " + call.String()
		}
	}
	if more := len(calls) - 1 - listed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
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
	c.crew.dismiss()
	c.jobs.drop()
}

// retire takes the communicator off the books once it is gone, and the last call that might end it has written its
// records: an Abort may have overtaken a Destroy.
func (c *core) retire() {
	if c.ending.Add(-1) > 0 || !c.life.State().Gone() {
		return
	}
	c.tape.Close()
	c.life.Retire()
	c.rt.forget(c)
}

// leaked reports a communicator that nobody will end any more, and aborts it. how says how that is known.
func (c *core) leaked(how string) {
	if state := c.life.State(); !state.Live() || !c.start.ended() && c.blocking {
		_ = c.abort(ErrRuntimeClosed, lifecycle.Site{}) // a call that makes or ends it is under way in another goroutine
		return
	}
	if c.reported.Swap(true) {
		return // it is being reaped while the runtime stops
	}
	made := c.life.Info().Site
	text := fmt.Sprintf("%s, made by %s, was never destroyed, %s: call Close or Destroy on it, or make it with ccl.With", c, made, how)
	c.tape.Life(tape.LifeRecord{
		Act: tape.ActLeak, Call: lifecycle.CallDestroy, Stage: tape.StageMisuse, Code: lifecycle.CodeLeaked, State: c.life.State(), Peer: -1,
		Text: text, Site: made,
	})
	if !c.rt.cfg.TapeIsLogged {
		c.rt.log.Warn("communicator leaked", "comm", c.name, "comm_id", c.ident().Short(), "comm_rank", c.life.Info().Rank, "made_by", made.String(), "how", how)
	}
	_ = c.abort(errLeaked, lifecycle.Site{}) // another goroutine may have been faster
}
