package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/lifecycle/words"
)

// MissingError says that an exchange did not complete because some ranks didn't come, or because one left. Every rank
// gets it with the same roll. It matches [lifecycle.ErrNotJoined], the code of its *[lifecycle.PeerError] (about the
// rank to look at first), its Cause and, if Self's context was canceled, [lifecycle.ErrCanceled].
type MissingError struct {
	Roll
	Self   int           // the rank that waited
	Since  time.Time     // when it began to wait
	Waited time.Duration // for how long
	// Cause is what ended this rank's wait: its context's error or an *UnreachableError; nil if another rank ended it.
	Cause error
}

// Error names the ranks that are missing, those that left and how, and those that are present.
func (e *MissingError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "rendezvous %q: rank %d of %d waited %s", e.Key, e.Self, e.Size, words.Round(e.Waited))
	if _, ok := errors.AsType[*UnreachableError](e.Cause); ok {
		return b.String() + ": " + e.Cause.Error()
	}
	missing, gone := e.Missing(), e.Gone()
	if len(missing) > 0 {
		fmt.Fprintf(&b, "; %s not arrived", Have(missing))
	}
	if len(gone) > 0 {
		fmt.Fprintf(&b, "; left: %s", formatMembers(gone, Member.story))
	}
	if present := e.Present(); len(present) > 0 {
		fmt.Fprintf(&b, "; arrived: %s", FormatMembers(present))
	}
	if len(missing) > 0 && len(gone) == 0 && !e.canceled() {
		b.WriteString("; see whether the missing ranks were started, and their logs")
	}
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	return b.String()
}

// Is reports whether target is lifecycle.ErrNotJoined.
func (e *MissingError) Is(target error) bool { return target == lifecycle.ErrNotJoined }

func (e *MissingError) canceled() bool { return errors.Is(e.Cause, context.Canceled) }

// Unwrap returns lifecycle.ErrCanceled if this rank's context was canceled, so that the error has its code; then the
// *lifecycle.PeerError about the rank to look at first, and the Cause.
func (e *MissingError) Unwrap() []error {
	var errs []error
	if e.canceled() {
		errs = append(errs, lifecycle.ErrCanceled)
	}
	if peer := e.peer(); peer != nil {
		errs = append(errs, peer)
	}
	if e.Cause != nil {
		errs = append(errs, e.Cause)
	}
	return errs
}

// peer chooses the rank to look at first: one that another rank contradicts, that died or shut its server, was lost,
// closed its rendezvous or withdrew, in this order; else a missing rank; else one that gave up, as it did so because of
// others. It is not Self, whose rank another process may have claimed.
func (e *MissingError) peer() *lifecycle.PeerError {
	if _, ok := errors.AsType[*UnreachableError](e.Cause); ok {
		return nil // the UnreachableError carries it
	}
	gone := slices.DeleteFunc(e.Gone(), func(m Member) bool { return m.Rank == e.Self && e.Cause != nil })
	hows := []Departure{Refuted, Died, Shut, Lost, Closed, Withdrew}
	if e.Cause != nil {
		hows = hows[:5] // whatever canceled this rank's context may have canceled the others' too
	}
	for _, how := range hows {
		for _, m := range gone {
			if m.How == how {
				return e.blame(m)
			}
		}
	}
	for _, rank := range e.Missing() {
		if rank != e.Self {
			return &lifecycle.PeerError{
				Code: lifecycle.CodeNotJoined, Rank: rank, Self: e.Self, Since: e.Since,
				Detail: "it has not arrived at the rendezvous",
			}
		}
	}
	if len(gone) > 0 {
		return e.blame(gone[0])
	}
	return nil
}

func (e *MissingError) blame(m Member) *lifecycle.PeerError {
	codes := [...]lifecycle.Code{
		Died: lifecycle.CodeRankDead, Shut: lifecycle.CodeRankDead, Lost: lifecycle.CodeUnreachable,
		Closed: lifecycle.CodePeerAborted, GaveUp: lifecycle.CodeAbandoned, Withdrew: lifecycle.CodeAbandoned,
		Refuted: lifecycle.CodeMismatch,
	}
	return &lifecycle.PeerError{Code: codes[m.How], Rank: m.Rank, Self: e.Self, Since: m.Left, Detail: m.story()}
}

// UnreachableError says that the rendezvous itself could not be reached before the context ended.
type UnreachableError struct {
	Address  string // host:port that was tried
	Rank     int    // the rank whose process is the server, or NoRank
	Self     int    // the rank that tried
	Attempts int
	Since    time.Time
	Context  error // why Self stopped trying
	Last     error // of the last attempt; nil if none has ended
}

// NoRank stands for the rank of a server that isn't a rank's process, such as etcd.
const NoRank = -1

// Error names the address, the attempts and the last cause.
func (e *UnreachableError) Error() string {
	of, server := "", "it"
	if e.Rank != NoRank {
		of, server = fmt.Sprintf(" of rank %d", e.Rank), "that rank"
	}
	s := fmt.Sprintf("the rendezvous%s at %s was not reached in %d attempts (%v)", of, e.Address, e.Attempts, e.Context)
	if e.Last != nil {
		s += "; the last one: " + e.Last.Error()
	}
	return s + "; see whether " + server + " runs and its address is right"
}

// Unwrap returns the fault of the serving rank, the context's error, and the last attempt's.
func (e *UnreachableError) Unwrap() []error {
	var errs []error
	if e.Rank == NoRank {
		errs = append(errs, &lifecycle.SystemError{
			Code: lifecycle.CodeSystem, Op: "reach the rendezvous at " + e.Address, Err: e.Context,
		})
	} else {
		errs = append(errs, &lifecycle.PeerError{
			Code: lifecycle.CodeNotJoined, Rank: e.Rank, Self: e.Self, Since: e.Since,
			Detail: "its rendezvous at " + e.Address + " was not reached",
		})
	}
	if e.Context != nil {
		errs = append(errs, e.Context)
	}
	if e.Last != nil {
		errs = append(errs, e.Last)
	}
	return errs
}

// ConflictError says that the ranks of an exchange contradict each other. Every rank of the exchange gets it, with the
// same claims. It wraps a *[lifecycle.PeerError] with [lifecycle.CodeMismatch].
type ConflictError struct {
	Roll
	Self   int
	Claims []Member // the members that contradict each other, by rank
	Detail string   // the contradiction, and what to do
}

// Error names the claims, and the members that made them.
func (e *ConflictError) Error() string { return fmt.Sprintf("rendezvous %q: %s", e.Key, e.Detail) }

// Unwrap returns the fault as a *lifecycle.PeerError about a rank that contradicts Self.
func (e *ConflictError) Unwrap() error {
	peer := &lifecycle.PeerError{Code: lifecycle.CodeMismatch, Rank: e.Self, Self: e.Self, Detail: e.Error()}
	for _, m := range e.Claims {
		if m.Rank != e.Self {
			peer.Rank, peer.Since = m.Rank, m.Arrived
			break
		}
	}
	return peer
}

// StaleError says that a unique id or a key cannot be used: it was used before, the server has forgotten it, or the
// server doesn't know it. It wraps a *[lifecycle.UsageError] with [lifecycle.CodeInvalidArgument].
type StaleError struct {
	Key    string // of the exchange
	Self   int
	Detail string // why it can't be used, and what to do
}

// Error says why the id or key can't be used, and what to do.
func (e *StaleError) Error() string {
	return fmt.Sprintf("rendezvous %q: rank %d: %s", e.Key, e.Self, e.Detail)
}

// Unwrap returns the mistake as a *lifecycle.UsageError.
func (e *StaleError) Unwrap() error {
	return &lifecycle.UsageError{Code: lifecycle.CodeInvalidArgument, Rank: e.Self, Detail: e.Detail}
}
