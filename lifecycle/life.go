package lifecycle

import (
	"sync"
	"sync/atomic"
)

// Info describes a communicator.
type Info struct {
	ID, Parent  CommID // ID may be preliminary, see Identify; Parent is zero for a root communicator
	Name        string // may be empty
	Rank, Size  int
	NonBlocking bool // calls while it initializes are refused with CodeInProgress, not CodeInitializing
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
	acts  map[Call]Site // sites of the calls that changed the state; the table allows each of them once
	cause error
}

// Handle names the life in its registry.
func (l *Life) Handle() Handle { return l.handle }

// Info is the Info given to Open, with the changes of Place and Identify.
func (l *Life) Info() Info {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.info
}

// Place sets the rank and the size of a child communicator, which are known only while it initializes.
func (l *Life) Place(rank, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.info.Rank, l.info.Size = rank, size
}

// Identify replaces the preliminary id that Open was given: a child of Grow learns its id from another rank while it
// initializes.
func (l *Life) Identify(id CommID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.info.ID = id
}

// State is the communicator's present state, which other goroutines may change at any time.
func (l *Life) State() State { return State(l.state.Load()) }

// Cause is the error of the Signal with which the communicator failed; nil if it never failed.
func (l *Life) Cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// Check tells whether call is legal now: its error is nil or a *UsageError. It is for calls that don't change the
// state, such as operations. For a legal call it takes one atomic load and a table look-up, and no lock.
func (l *Life) Check(call Call) error {
	if _, code := Next(l.State(), call); code == CodeOK {
		return nil
	}
	return l.refuse(call)
}

// Do makes call, which was made at site, if it is legal, and returns the new state. Otherwise nothing changes, and the
// error is a *UsageError. Of several goroutines that call Destroy (or Abort, Finalize, Revoke) at the same time,
// exactly one succeeds and must do the work; the errors of the others say where and when its call was made.
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

// Signal applies an event. It returns the new state, and whether it differs from the old one: an event that comes too
// late changes nothing. cause is stored if the communicator fails with the event.
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

// Retire makes the life's handle stale. It is called when the communicator's resources are freed, after Destroy or
// Abort, and changes destroying to destroyed and aborting to aborted. It returns false for a live communicator, and for
// one that was retired before. Later calls still get errors with the site of the call that ended the communicator.
func (l *Life) Retire() bool {
	l.Signal(EventDestroyDone, nil)
	l.Signal(EventAbortDone, nil)
	return l.State().Gone() && l.registry.retire(l)
}

// refuse is the slow path of Check. It looks the call up again under the lock, so that the error is consistent; the
// communicator may have become ready meanwhile.
func (l *Life) refuse(call Call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.next(call, Site{})
	return err
}

// next returns the state after call, or why call is refused. The caller holds l.mu.
func (l *Life) next(call Call, site Site) (State, error) {
	from := l.State()
	to, code := Next(from, call)
	if code != CodeOK {
		return from, l.refusal(call, code, site)
	}
	return to, nil
}

// stale is the error of a call with a handle of a retired life.
func (l *Life) stale() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	code := CodeDestroyed
	if l.State() == StateAborted {
		code = CodeAborted
	}
	return l.refusal(CallNone, code, Site{})
}

// refusal returns the error of an illegal call, with this code. The caller holds l.mu.
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

// remedies say what to do instead of a call that is refused with a code.
var remedies = map[Code]struct {
	by          Call   // the earlier call that makes later ones fail with this code
	then, again string // advice; again is for by itself
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

// advice is what to do instead of a call that was refused with a code.
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
