package ccl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Finalize waits for the operations in flight, bounded by ctx. After it, only Destroy and Abort are legal, and a call
// of another rank that waits for this rank returns a PeerError. Its error is ErrFailed if one of the operations made
// the communicator fail: then the communicator has failed, and is not finalized. A non-blocking communicator returns
// ErrInProgress and finalizes in the background.
func (c *Comm) Finalize(ctx context.Context) error {
	defer runtime.KeepAlive(c)
	if err := c.mayChange(ctx, lifecycle.CallFinalize); err != nil {
		return err
	}
	site := callSite()
	if _, err := c.life.Do(lifecycle.CallFinalize, site); err != nil {
		return c.refused(ctx, lifecycle.CallFinalize, err)
	}
	a, place := c.act(ctx, lifecycle.CallFinalize, 0, site).start(), c.turn.line(lifecycle.CallFinalize)
	return c.perform(ctx, func(ctx context.Context) error {
		err := c.drain(ctx, lifecycle.CallFinalize, place)
		c.over = true
		if err == nil {
			c.disconnect() // so that other ranks no longer wait for this rank
		}
		c.turn.leave()
		if _, done := c.life.Signal(lifecycle.EventFinalizeDone, nil); !done && err == nil {
			err = c.life.Check(lifecycle.CallFinalize) // the communicator failed or was ended meanwhile
		}
		a.end(err)
		return err
	})
}

// Destroy ends the communicator and frees what it holds. It waits for operations in flight, bounded by ctx; if ctx ends
// first, it abandons them, and its error lists them. A second Destroy, or any other call after it, returns a UsageError
// that says where the first one was called. The communicator no longer exists when Destroy returns, with or without an
// error, unless that is another UsageError or ErrInProgress.
func (c *Comm) Destroy(ctx context.Context) error {
	defer runtime.KeepAlive(c)
	if err := c.mayChange(ctx, lifecycle.CallDestroy); err != nil {
		return err
	}
	return c.end(ctx, ending{call: lifecycle.CallDestroy, site: callSite()})
}

// Abort ends the communicator at once: operations in flight return an error here, and the other ranks are told and
// return a PeerError. cause says why, for these ranks and for the trace; it may be nil. The caller owns the buffers of
// calls on device memory again when their streams have completed the operations.
func (c *Comm) Abort(cause error) error {
	if c.absent() {
		return nilComm(lifecycle.CallAbort)
	}
	defer runtime.KeepAlive(c)
	c.visit()
	return c.end(context.Background(), ending{call: lifecycle.CallAbort, site: callSite(), cause: cause})
}

// Close is the idempotent form of Destroy, for defer. The first call destroys the communicator, and gives calls in
// progress ten seconds to end. If the communicator was already destroyed, aborted or closed, or another goroutine is
// doing so, Close does nothing and returns nil. A communicator that isn't ready yet is aborted. Close never returns
// ErrInProgress.
func (c *Comm) Close() error {
	if !c.State().Live() {
		return nil
	}
	defer runtime.KeepAlive(c)
	c.visit()
	how := ending{call: lifecycle.CallDestroy, site: callSite(), tolerant: true}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if c.life.State() == lifecycle.StateInitializing || c.jobs.wait(ctx) != nil {
		how.call, how.cause = lifecycle.CallAbort, errors.New("it was closed before it was ready")
	}
	return c.end(ctx, how)
}

// With makes a communicator as InitRank does, calls fn with it once it is ready, and ends it: with Destroy if fn
// returns nil; with Abort and fn's error as the cause if fn returns an error or panics, so that the other ranks do not
// wait for this one.
func With(
	ctx context.Context, rt *Runtime, id UniqueID, nranks, rank int, fn func(*Comm) error, opts ...Option,
) (err error) {
	comm, err := rt.InitRank(ctx, id, nranks, rank, opts...)
	if comm == nil {
		return err
	}
	finished := false
	defer func() {
		if !finished {
			_ = comm.Abort(fmt.Errorf("the function of its scope failed: %w", cmp.Or(err, errors.New("it panicked"))))
		}
	}()
	if err = comm.Wait(ctx); err != nil {
		return err
	}
	if err = fn(comm); err != nil {
		return err
	}
	if err = comm.jobs.wait(ctx); err != nil { // the caller has no handle to ask for their results later
		return err
	}
	finished = true
	return comm.end(ctx, ending{call: lifecycle.CallDestroy, site: callSite(), tolerant: true})
}

// ending describes how a communicator ends.
type ending struct {
	call     lifecycle.Call // Destroy waits for the operations in flight, Abort interrupts them
	site     lifecycle.Site
	cause    error // reason of an Abort, for the other ranks and the trace; may be nil
	tolerant bool  // another call may end it, or have ended it, without an error here
	silent   bool  // writes no records: those of the failed init are enough
}

// end ends the communicator and frees its resources, for all calls that do so. A call that is not allowed has no
// effect.
func (c *core) end(ctx context.Context, how ending) (err error) {
	c.ending.Add(1)
	defer c.retire()
	if _, err := c.life.Do(how.call, how.site); err != nil {
		if how.tolerant {
			return nil
		}
		return c.refused(ctx, how.call, err)
	}
	a := c.act(ctx, how.call, 0, how.site)
	if !how.silent {
		a.start()
	}
	done := lifecycle.EventDestroyDone
	if how.call == lifecycle.CallDestroy {
		err = c.drain(ctx, how.call, c.turn.line(how.call))
	} else {
		done = lifecycle.EventAbortDone
		stopped := a.stopped(lifecycle.CodeAborted, "the communicator was aborted", how.cause)
		c.whole.end(stopped)
		c.interrupt(stopped)
		<-c.turn.line(how.call).granted // the holder of the turn was interrupted
	}
	c.release()
	if _, did := c.life.Signal(done, nil); !did && err == nil && !how.tolerant {
		err = c.life.Check(how.call) // an Abort overtook a Destroy
	}
	if how.silent {
		c.tape.State(c.life.State())
	} else {
		a.end(err)
	}
	return err
}

// Revoke cancels the operations in flight on the communicator, here and on the other ranks, whose calls return a
// PeerError. After that the communicator may be split or shrunk (by all ranks of the new one), and must be destroyed.
// Revoke does not wait for the other ranks.
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

// revoke is Revoke. An error means that the call was not allowed, and had no effect.
func (c *core) revoke(cause error, site lifecycle.Site) error {
	if _, err := c.life.Do(lifecycle.CallRevoke, site); err != nil {
		return err
	}
	a := c.act(context.Background(), lifecycle.CallRevoke, 0, site).start()
	c.interrupt(a.stopped(lifecycle.CodeRevoked, "the communicator was revoked", cause))
	a.end(nil)
	return nil
}

// mayChange refuses a call inside a group that would change the communicator. A blocking communicator waits for
// unfinished jobs; a non-blocking one returns ErrInProgress, and nothing changes.
func (c *Comm) mayChange(ctx context.Context, call lifecycle.Call) error {
	if c.absent() {
		return nilComm(call)
	}
	c.visit()
	if err := c.outsideGroup(ctx, call); err != nil {
		return err
	}
	if len(c.jobs.unfinished()) == 0 {
		return nil
	}
	if c.blocking && c.life.State() != lifecycle.StateInitializing {
		return c.jobs.wait(ctx)
	}
	err := c.life.Check(call)
	if err == nil {
		err = c.usage(call, lifecycle.CodeInProgress,
			"a call on the communicator is unfinished: wait for it first, with Wait or by asking AsyncError")
	}
	return c.refused(ctx, call, err)
}

// outsideGroup refuses a call that is not possible in its group: in any group, unless the call is Split, and in a group
// that has ended or belongs to another runtime.
func (c *core) outsideGroup(ctx context.Context, call lifecycle.Call) error {
	g := groupOf(ctx)
	why := g.closedTo(c.rt)
	if g != nil && call != lifecycle.CallSplit {
		why = "it was made inside a group: end the group first, and then make this call with a context that is no group"
	}
	if why == "" {
		return nil
	}
	return c.refused(ctx, call, c.usage(call, lifecycle.CodeInvalidUsage, "%s", why))
}

// perform runs the rest of a call: here, or in the background for a non-blocking communicator.
func (c *core) perform(ctx context.Context, rest func(context.Context) error) error {
	if c.blocking {
		return rest(ctx)
	}
	j := newWork()
	c.jobs.add(j)
	c.workers.start(func() { j.finish(rest(context.WithoutCancel(ctx))) })
	return ErrInProgress
}

// drain waits until the operations before place are done; the caller then has the turn. If ctx ends first, it
// interrupts them, and returns an error that lists them; the caller has the turn in this case, too.
func (c *core) drain(ctx context.Context, call lifecycle.Call, place *ticket) error {
	mine := c.turn.wait(ctx, place) == nil
	if mine && (c.waitForDevice(ctx) == nil || ctx.Err() == nil) {
		return nil
	}
	err := c.usage(call, lifecycle.CodeUnfinished, "the call's context ended during %s", c.inFlight())
	if call == lifecycle.CallFinalize {
		c.meetings.Load().end(err)
		defer c.meetings.Store(newScope(c.whole)) // it may fail now instead of being finalized, and can be shrunk then
	} else {
		c.whole.end(err)
	}
	c.interrupt(err)
	if !mine {
		<-c.turn.line(call).granted
	}
	return err
}

// current returns the operation that runs, on the host or on the device, as engine.Comm.Current does.
func (c *core) current() (call lifecycle.Call, seq uint64, peer int, ok bool) {
	call, seq, peer, ok = c.comm.Current()
	if !ok && c.device != nil {
		call, seq, peer, ok = c.device.Current()
	}
	return call, seq, peer, ok
}

// inFlight lists the calls that have not ended, the running one first, with the rank that it waits for.
func (c *core) inFlight() string {
	const listed = 9
	calls := c.turn.calls()
	call, seq, peer, ok := c.current()
	text := "the last one, which has ended meanwhile"
	switch {
	case ok && peer >= 0:
		text = fmt.Sprintf("%s number %d, which waits for rank %d", call, seq, peer)
	case ok:
		text = fmt.Sprintf("%s number %d", call, seq)
	case len(calls) > 0:
		text = calls[0]
	}
	if len(calls) > 1 {
		text += "; behind it: " + strings.Join(calls[1:min(len(calls), listed)], ", ")
	}
	if more := len(calls) - listed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// interrupt makes the operations that run on the communicator return err, and tells the other ranks.
func (c *core) interrupt(err error) {
	c.calls.end(err)
	<-c.start.done
	if c.comm != nil {
		c.comm.Interrupt(err)
	}
}

// release frees the communicator's resources. The caller has the turn; later holders see that the communicator has
// ended.
func (c *core) release() {
	c.over = true
	c.whole.end(nil)
	c.disconnect()
	c.turn.leave()
	c.workers.wait()
	c.jobs.drop()
}

// disconnect closes the connections, if there are any, once: Finalize calls it, and so do the calls that end the
// communicator. The caller has the turn.
func (c *core) disconnect() {
	if c.comm == nil || c.disconnected {
		return
	}
	c.disconnected = true
	if c.device != nil {
		c.device.Close()
	}
	c.engine.Close()
	c.comm.Close()
}

// retire unregisters the communicator once it has ended and the last call that might end it has returned.
func (c *core) retire() {
	if c.ending.Add(-1) > 0 || !c.life.State().Gone() {
		return
	}
	c.profile.Close()
	c.tape.Close()
	c.life.Retire()
	c.rt.mu.Lock()
	defer c.rt.mu.Unlock()
	delete(c.rt.comms, c)
}

// reclaim ends a communicator that its user will no longer end. how says how that is known, and cause is for the other
// ranks. It returns whether the communicator was usable: that is a leak, which it reports unless excused.
func (c *core) reclaim(how string, cause error, excused bool) (usable bool) {
	if c.reported.Swap(true) {
		return false // it is already being reaped
	}
	if usable = c.life.State() == lifecycle.StateReady; usable && !excused {
		i := c.life.Info()
		c.tape.Life(tape.LifeRecord{
			Act: tape.ActLeak, Call: lifecycle.CallDestroy, Stage: tape.StageMisuse, Code: lifecycle.CodeLeaked,
			State: c.life.State(), Peer: -1, Site: i.Site,
			Text: fmt.Sprintf("%s, made by %s, was never destroyed, and %s: "+
				"call Close or Destroy on it, or make it with ccl.With", c, i.Site, how),
		})
		if !c.rt.cfg.TapeIsLogged {
			c.rt.cfg.Log.Warn("communicator leaked", "comm", i.Name, "comm_id", i.ID.Short(), "comm_rank", i.Rank,
				"made_by", i.Site.String(), "how", "and "+how)
		}
		cause = fmt.Errorf("it was leaked: %s", how)
	}
	_ = c.end(context.Background(), ending{call: lifecycle.CallAbort, cause: cause, tolerant: true})
	return usable
}
