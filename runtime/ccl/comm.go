package ccl

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/petermattis/goid"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/runtime/profiler"
	"github.com/carillon-rt/carillon/runtime/transport"
	"github.com/carillon-rt/carillon/runtime/transport/fabric"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// Comm is one rank's handle of a communicator. Calls may come from any goroutine; calls on one Comm run one after
// another, in the order in which they were made. All ranks must make the same collective calls in the same order.
//
// The caller that makes a communicator must end it, with Destroy, Abort or Close. If it becomes unreachable before
// that, it is reported as leaked, with the place where it was made, and aborted.
type Comm struct {
	*core // never points back at the Comm, so that an unreachable Comm is noticed

	caller lastCaller // used by the turn's holder. Not in core, as a context may refer to the Comm
}

// core is a communicator without its handle, for the runtime and the goroutines of its operations.
type core struct {
	rt       *Runtime
	life     *lifecycle.Life
	tape     *tape.CommWriter
	blocking bool
	kind     engine.DeviceKind // kind of the rank's device; nil if it has none
	secret   []byte            // authenticates the ranks to each other; children's are derived from it
	start    *Work             // the call that makes this communicator

	// Set before start is done, and constant then.
	id         CommID
	name       string
	rank, size int
	meets      []string // by rank: where its process can hold a rendezvous; "" for this process
	links      *fabric.Links
	comm       *engine.Comm // links, as the engine sees them
	engine     engine.Engine
	device     engine.Device  // nil if the rank has none
	profile    *profiler.Comm // nil if no plug-in runs

	turn         turn
	ops          [2]engine.Op  // used by the turn's holder: saves an allocation per operation
	over         bool          // Finalize, Destroy or Abort had its turn: refuses later calls; set by the turn's holder
	disconnected bool          // set by the turn's holder
	group        profiler.ID   // group being made; set by the turn's holder
	collectives  atomic.Uint64 // number launched so far; written by the turn's holder. The ranks agree on it
	messages     []pairCounter // by peer, made by the first Send or Recv; used by the turn's holder
	together     uint64        // number of calls whose operations progress together; used by the turn's holder

	numbering  sync.Mutex                // guards acts and pairs, and taking the place in the line with the number
	acts       map[lifecycle.Call]uint64 // counts splits, shrinks, grows, groups with collectives; same on all ranks
	pairs      uint64                    // counts groups without collectives; each rank has its own
	openGroups openGroups

	maker  int64       // the goroutine that made the communicator
	shared atomic.Bool // calls also came from another goroutine

	reported atomic.Bool // reported as leaked

	// refusal is why this rank's last operation was refused, unless it has made one since: an Abort without a cause
	// passes it to the other ranks.
	refusal atomic.Pointer[string]

	jobs    jobs         // background work of non-blocking calls
	workers workers      // goroutines of this communicator
	ending  atomic.Int32 // number of running calls that may end the communicator: the last one retires it

	calls    *scope                // for operations in flight, or the init: ended by Revoke, or at the end
	whole    *scope                // for the communicator, and so for calls and meetings
	meetings atomic.Pointer[scope] // for ranks that meet anew, also after a Revoke: now, and in the future
}

// scope bounds running calls.
type scope struct {
	context.Context
	end context.CancelCauseFunc
}

func newScope(within context.Context) *scope {
	ctx, end := context.WithCancelCause(within)
	return &scope{ctx, end}
}

// pairCounter counts the messages to and from one peer: both sides give a message the same number.
type pairCounter struct{ sent, received uint64 }

// absent reports whether there is no communicator: the handle is nil, as for a rank that passed NoColor to Split, or
// zero.
func (c *Comm) absent() bool { return c == nil || c.core == nil }

// info describes the communicator, as far as it is known. A child of Split or Shrink learns its rank and size while it
// initializes, and a child of Grow its id.
func (c *Comm) info() lifecycle.Info {
	if c.absent() {
		return lifecycle.Info{Rank: -1}
	}
	return c.life.Info()
}

// Rank returns this rank's number in the communicator, from 0 to Size-1; -1 for a child of Split or Shrink that does
// not know it yet, and for a nil Comm.
func (c *Comm) Rank() int { return c.info().Rank }

// Size returns the number of ranks; 0 for a child of Split or Shrink that does not know it yet, and for a nil Comm.
func (c *Comm) Size() int { return c.info().Size }

// ID returns the communicator's id, the same on all ranks; zero for a nil Comm.
func (c *Comm) ID() CommID { return c.info().ID }

// Name returns the communicator's name, see WithName; empty for a nil Comm.
func (c *Comm) Name() string { return c.info().Name }

// State returns the communicator's lifecycle state; lifecycle.StateNone for a nil Comm.
func (c *Comm) State() lifecycle.State {
	if c.absent() {
		return lifecycle.StateNone
	}
	return c.life.State()
}

// Topology returns the node of each rank, and the transport over which this rank reaches it. It is the zero Topology
// until the communicator is ready, and for a nil Comm.
func (c *Comm) Topology() transport.Topology {
	if !c.absent() && c.start.ended() && c.links != nil {
		return c.links.Topology()
	}
	return transport.Topology{}
}

// String describes the communicator for humans: name, short id, rank and size.
func (c *Comm) String() string {
	if c.absent() {
		return "no communicator"
	}
	return c.core.String()
}

// String is Comm.String.
func (c *core) String() string {
	i := c.life.Info()
	return fmt.Sprintf("%s (%s) rank %d of %d", i.Name, i.ID.Short(), i.Rank, i.Size)
}

// AsyncError returns the communicator's status, without blocking: nil when it is ready for the next call, ErrInProgress
// while a non-blocking call is unfinished, and otherwise the error that made it fail. It completes a non-blocking call
// that has ended, and returns that call's error once.
func (c *Comm) AsyncError() error {
	defer runtime.KeepAlive(c)
	if err := c.check(lifecycle.CallAsyncError); err != nil {
		return err
	}
	if err := c.jobs.poll(); err != nil {
		return err
	}
	if c.start.ended() && c.links != nil {
		if lost := c.comm.FirstLost(); lost != nil && c.life.State() == lifecycle.StateReady {
			lost.Call, lost.Seq, _, _ = c.current()
			return c.fail(lifecycle.CallAsyncError, c.collectives.Load(), lost)
		}
	}
	return c.life.Cause()
}

// Wait blocks until the communicator is no longer in progress and all operations on streams are done, or until ctx
// ends. It returns what AsyncError would, or ctx's error, with the operation on a stream that is not done.
func (c *Comm) Wait(ctx context.Context) error {
	defer runtime.KeepAlive(c)
	if err := c.check(lifecycle.CallWait); err != nil {
		return err
	}
	for {
		if err := c.jobs.wait(ctx); err != nil {
			return err
		}
		// The communicator is in progress again if another goroutine has begun a call meanwhile.
		err := c.AsyncError()
		if err == nil && c.start.ended() {
			err = c.waitForDevice(ctx)
		}
		if !errors.Is(err, ErrInProgress) {
			return err
		}
	}
}

// check consults the lifecycle table whether call is legal now. An illegal call is recorded, with its call site.
func (c *Comm) check(call lifecycle.Call) error {
	if c.absent() {
		return nilComm(call)
	}
	if err := c.life.Check(call); err != nil {
		return c.refused(context.Background(), call, err)
	}
	return nil
}

// refused records a call that was not allowed, in itself or because of its arguments, and returns its error.
func (c *core) refused(ctx context.Context, call lifecycle.Call, err error) error {
	usage, ok := errors.AsType[*UsageError](err)
	if !ok {
		return err
	}
	if usage.Code == lifecycle.CodeInvalidArgument {
		refusal := usage.Call.String() + ": " + usage.Detail
		c.refusal.Store(&refusal)
	}
	c.tape.Life(tape.LifeRecord{
		Act: actOf[call], Call: call, Stage: tape.StageMisuse, Code: usage.Code, State: c.life.State(), Peer: -1,
		Text: err.Error(), Site: callSite(), First: usage.First, Caller: callerSpan(ctx), Shared: c.shared.Load(),
	})
	return err
}

// fail moves the communicator to the failed state because of err, and returns err. call is the one that failed, and seq
// its number. A usage error is returned and changes nothing.
func (c *core) fail(call lifecycle.Call, seq uint64, err error) error {
	if err == nil {
		return nil
	}
	if _, usage := errors.AsType[*UsageError](err); usage {
		return err
	}
	if state, changed := c.life.Signal(lifecycle.EventAsyncFailure, err); changed {
		c.rt.troubled.Store(true)
		c.tape.State(state)
		c.tape.Life(tape.LifeRecord{
			Call: call, Stage: tape.StageEnd, Seq: seq, Code: lifecycle.CodeOf(err), State: state,
			Peer: culprit(err), Text: err.Error(),
		})
		c.openGroups.tell()
	}
	return err
}

// visit records whether calls come from goroutines other than the one that made the communicator.
func (c *core) visit() {
	if !c.shared.Load() && goid.Get() != c.maker {
		c.shared.Store(true)
	}
}

func callSite() lifecycle.Site {
	return lifecycle.Caller("github.com/carillon-rt/carillon/runtime/ccl")
}
