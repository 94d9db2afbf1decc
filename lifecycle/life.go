package lifecycle

import (
	"sync"
	"sync/atomic"
)

// Info is what stays the same over a communicator's life.
type Info struct {
	ID, Parent  CommID // ID may be preliminary, see Identify; Parent is zero for a root communicator
	Name        string // may be empty
	Rank, Size  int
	NonBlocking bool // calls on it while it initializes answer CodeInProgress rather than CodeInitializing
	Call        Call // that made it: an Init, or Split, Shrink or Grow
	Site        Site // of that call
}

// Life is one communicator's walk through the tables. It is made by Registry.Open, in StateInitializing. All methods
// may be called from any goroutine at any time, also after the end of the communicator; none blocks.
type Life struct {
	registry *Registry
	handle   Handle
	retired  bool          // under the registry's lock
	state    atomic.Uint32 // a State, written only under mu

	mu    sync.Mutex // orders all transitions
	info  Info
	acts  map[Call]Site // where those were made that changed the state; the table lets none do so twice
	cause error
}

// Handle names the life in its registry.
func (l *Life) Handle() Handle { return l.handle }

// Info is what Open was given, and Place since.
func (l *Life) Info() Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.info
}

// Place says which rank of how many the holder is, for a child communicator: it learns that only while it initializes.
func (l *Life) Place(rank, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.info.Rank, l.info.Size = rank, size
}

// Identify gives the communicator its id, where Open could only give it a preliminary one: a child of Grow learns it
// from another rank while it initializes.
func (l *Life) Identify(id CommID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.info.ID = id
}

// State is where the communicator is now. It may have moved on when the caller looks at it.
func (l *Life) State() State { return State(l.state.Load()) }

// Cause is the error that the first failing Signal gave; nil if the communicator never failed. It stays until the end.
func (l *Life) Cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// Check answers whether call is legal now: nil, or a *UsageError. It changes nothing, so it is the guard of the calls
// that don't change the state, such as operations. For a legal call it is one atomic load and a table look-up, without
// a lock.
func (l *Life) Check(call Call) error {
	if _, code := Next(l.State(), call); code == CodeOK {
		return nil
	}
	return l.refuse(call)
}

// Do makes call, which was made at site, if it is legal: it moves the communicator to the state that it returns.
// Otherwise nothing changes, and the error is a *UsageError. Of several goroutines that call Destroy (or Abort,
// Finalize, Revoke) at once, exactly one succeeds and must do the work; the errors of the others say where and when
// that one's call was made.
func (l *Life) Do(call Call, site Site) (State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to, err := l.next(call, site)
	if to != l.State() {
		l.acts[call] = site
		l.state.Store(uint32(to))
	}
	return to, err
}

// Signal tells the communicator that event happened. It returns the state after it, and whether that is another one
// than before: false for an event that came too late to matter. cause is kept if the event makes the communicator fail.
func (l *Life) Signal(event Event, cause error) (State, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := l.State()
	to := After(from, event)
	if to == from {
		return from, false
	}
	if to == StateFailed {
		l.cause = cause
	}
	l.state.Store(uint32(to))
	return to, true
}

// Retire makes the life's handle stale. It is called once the communicator's resources are freed, after Destroy or
// Abort; a destroying one becomes destroyed by it, and an aborting one aborted. It reports whether it did so: a live
// communicator is not retired, nor is one twice. The Life and its Handle go on to answer, with the first call's site.
func (l *Life) Retire() bool {
	l.Signal(EventDestroyDone, nil)
	l.Signal(EventAbortDone, nil)
	return l.State().Gone() && l.registry.retire(l)
}

// refuse is the slow path of Check. It asks the table again, under the lock, so that the error's parts belong together;
// the communicator may have become ready meanwhile.
func (l *Life) refuse(call Call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.next(call, Site{})
	return err
}

// next is where call leads, or why it is refused. The caller holds l.mu.
func (l *Life) next(call Call, site Site) (State, error) {
	from := l.State()
	to, code := Next(from, call)
	if code != CodeOK {
		return from, l.refusal(call, code, site)
	}
	return to, nil
}

// stale is the answer to a call with a handle of a retired life.
func (l *Life) stale() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	code := CodeDestroyed
	if l.State() == StateAborted {
		code = CodeAborted
	}
	return l.refusal(CallNone, code, Site{})
}

// refusal is the error of a call that is illegal for the reason of code. The caller holds l.mu.
func (l *Life) refusal(call Call, code Code, site Site) error {
	if code == CodeInitializing && l.info.NonBlocking {
		code = CodeInProgress
	}
	e := &UsageError{
		Call: call, Code: code, State: l.State(), Comm: l.info.ID, Name: l.info.Name, Rank: l.info.Rank,
		Site: site, First: l.acts[remedies[code].by], Detail: advice(code, call),
	}
	if code == CodeFailed {
		e.Cause = l.cause
	}
	return e
}

// remedies say what to do instead of a call that code refuses.
var remedies = map[Code]struct {
	by          Call   // that brought the communicator to where code is the answer
	then, again string // again: if that call is made once more
}{
	CodeInvalidUsage: {then: "this communicator exists already; make another one with a new unique id"},
	CodeInitializing: {then: waitFirst},
	CodeInProgress:   {then: waitFirst},
	CodeFinalized: {
		CallFinalize, "make this call before Finalize; only Destroy and Abort are left to do",
		"finalize a communicator once, then Destroy it",
	},
	CodeDestroyed: {
		CallDestroy, "make this call before Destroy, or on another communicator",
		"destroy a communicator once, or use Close, which may be called any number of times",
	},
	CodeAborted: {CallAbort, "make a new communicator to go on", freedByAbort},
	CodeFailed:  {then: "Destroy or Abort it, and go on with a new one of the ranks that are left"},
	CodeRevoked: {CallRevoke, "Split or Shrink it to go on, or Destroy it", "revoke a communicator once"},
}

const (
	waitFirst    = "wait for it first, with Wait or by asking AsyncError; only Abort may come earlier"
	freedByAbort = "Abort has freed it, nothing is left to do; Close may be called any number of times"
)

// advice is what a person who made call and got code should do instead.
func advice(code Code, call Call) string {
	remedy := remedies[code]
	switch {
	case code == CodeDestroyed && call == CallAbort:
		return "Destroy has freed it, nothing is left to do"
	case code == CodeAborted && call == CallDestroy:
		return freedByAbort
	case call != CallNone && call == remedy.by:
		return remedy.again
	default:
		return remedy.then
	}
}
