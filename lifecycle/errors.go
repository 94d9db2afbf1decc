package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

type sentinel Code

func (s sentinel) Error() string   { return "carillon: " + Code(s).String() }
func (s sentinel) ErrorCode() Code { return Code(s) }

// One sentinel for each code: errors.Is(err, ErrDestroyed) holds for every error of this package with CodeDestroyed,
// however it is wrapped.
var (
	ErrInProgress      error = sentinel(CodeInProgress)
	ErrInvalidArgument error = sentinel(CodeInvalidArgument)
	ErrInvalidUsage    error = sentinel(CodeInvalidUsage)
	ErrInitializing    error = sentinel(CodeInitializing)
	ErrFinalized       error = sentinel(CodeFinalized)
	ErrDestroyed       error = sentinel(CodeDestroyed)
	ErrAborted         error = sentinel(CodeAborted)
	ErrFailed          error = sentinel(CodeFailed)
	ErrRevoked         error = sentinel(CodeRevoked)
	ErrLeaked          error = sentinel(CodeLeaked)
	ErrUnfinished      error = sentinel(CodeUnfinished)
	ErrRankDead        error = sentinel(CodeRankDead)
	ErrNotJoined       error = sentinel(CodeNotJoined)
	ErrMismatch        error = sentinel(CodeMismatch)
	ErrAbandoned       error = sentinel(CodeAbandoned)
	ErrPeerAborted     error = sentinel(CodePeerAborted)
	ErrUnreachable     error = sentinel(CodeUnreachable)
	ErrAuth            error = sentinel(CodeAuth)
	ErrSystem          error = sentinel(CodeSystem)
	ErrTimeout         error = sentinel(CodeTimeout)
	ErrInternal        error = sentinel(CodeInternal)
	ErrCanceled        error = sentinel(CodeCanceled)
)

// CodeOf is the code of err: CodeOK for nil; else the code of the outermost error in its tree that has one (a method
// ErrorCode() Code, as all errors of this package have); else CodeTimeout or CodeCanceled for the end of a context;
// else CodeSystem.
func CodeOf(err error) Code {
	if err == nil {
		return CodeOK
	}
	var coded interface{ ErrorCode() Code }
	switch {
	case errors.As(err, &coded):
		return coded.ErrorCode()
	case errors.Is(err, context.DeadlineExceeded):
		return CodeTimeout
	case errors.Is(err, context.Canceled):
		return CodeCanceled
	default:
		return CodeSystem
	}
}

// UsageError is the caller's mistake: the call was refused, and nothing changed.
type UsageError struct {
	Call   Call   // the call that was refused; CallNone if it isn't a communicator's
	Code   Code   // why
	State  State  // of the communicator, when it was refused
	Comm   CommID // the communicator; zero if there is none
	Name   string // its name; may be empty
	Rank   int    // the caller's rank in it
	Site   Site   // where the refused call was made; zero if unknown
	First  Site   // where the earlier call was made that makes this one illegal, such as Destroy; zero if none
	Cause  error  // for CodeFailed: why the communicator failed; errors.Is and As look into it
	Detail string // what to do instead
}

// invalid is the UsageError for an invalid value, without a communicator.
func invalid(format string, args ...any) error {
	return &UsageError{Code: CodeInvalidArgument, Detail: fmt.Sprintf(format, args...)}
}

// Error says which call was refused, where, why, since when, and what to do instead.
func (e *UsageError) Error() string {
	var b strings.Builder
	subject(&b, e.Call, 0, e.Comm, e.Name, e.Rank)
	if e.Site.known() {
		b.WriteString(" at " + e.Site.String())
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(e.Code.fact().says)
	bare := e.Code == CodeInvalidArgument || e.Code == CodeInvalidUsage // only the detail matters
	if !bare {
		b.WriteString(e.First.madeBy())
	}
	if e.Cause != nil {
		b.WriteString(" (" + e.Cause.Error() + ")")
	}
	switch {
	case e.Detail == "":
	case bare:
		b.WriteString(": " + e.Detail)
		if madeBy := e.First.madeBy(); madeBy != "" {
			b.WriteString("; the first was made" + madeBy)
		}
	default:
		b.WriteString("; " + e.Detail)
	}
	return b.String()
}

// ErrorCode is e.Code.
func (e *UsageError) ErrorCode() Code { return e.Code }

// Is reports whether target is the sentinel of e's code.
func (e *UsageError) Is(target error) bool { return target == sentinel(e.Code) }

// Unwrap is e.Cause.
func (e *UsageError) Unwrap() error { return e.Cause }

// PeerError is the fault of another rank of a communicator, as seen by this one.
type PeerError struct {
	Code   Code      // what the peer did
	Rank   int       // the peer at fault; -1 if it is not known which
	Comm   CommID    // the communicator
	Name   string    // its name; may be empty
	Self   int       // the rank that reports it
	Seq    uint64    // number of the operation on the communicator; 0 if in none
	Call   Call      // the call that could not go on
	Since  time.Time // when it began to wait for the peer; zero if it did not
	Detail string    // more about the fault: "pid 4711 was killed by signal 9"
	Err    error     // the underlying error, such as the context's; may be nil
}

// Error says what could not go on, whose fault it is, since when, and what to do.
func (e *PeerError) Error() string {
	var b strings.Builder
	subject(&b, e.Call, e.Seq, e.Comm, e.Name, e.Self)
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	who := "a peer"
	if e.Rank >= 0 {
		who = fmt.Sprintf("rank %d", e.Rank)
		if e.Name != "" { // ranks have other numbers in other communicators
			who += fmt.Sprintf(" of %q", e.Name)
		}
	}
	fact := e.Code.fact()
	if strings.Contains(fact.says, "%s") {
		fmt.Fprintf(&b, fact.says, who)
	} else { // a code without a text about a peer, such as CodeTimeout
		b.WriteString("waiting for " + who + ": " + fact.says)
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Err != nil {
		b.WriteString(" (" + e.Err.Error() + ")")
	}
	if !e.Since.IsZero() {
		b.WriteString(", waited for since " + clock(e.Since))
	}
	if fact.then != "" {
		b.WriteString("; " + fact.then)
	}
	return b.String()
}

// ErrorCode is e.Code.
func (e *PeerError) ErrorCode() Code { return e.Code }

// MismatchDetail returns the Detail of a PeerError with CodeMismatch from its text, or the whole text of another error.
func MismatchDetail(text string) string {
	f := CodeMismatch.fact()
	_, detail, found := strings.Cut(text, strings.TrimPrefix(f.says, "the call of %s")+": ")
	if !found {
		return text
	}
	return strings.TrimSuffix(detail, "; "+f.then)
}

// Is reports whether target is the sentinel of e's code.
func (e *PeerError) Is(target error) bool { return target == sentinel(e.Code) }

// Unwrap is e.Err.
func (e *PeerError) Unwrap() error { return e.Err }

// SystemError is a fault of the machine (a socket, a file, memory), the end of the caller's context, or a bug of
// Carillon.
type SystemError struct {
	Code Code   // CodeSystem, CodeTimeout, CodeCanceled or CodeInternal
	Op   string // what was being done: "connect to rank 3 at 10.0.0.3:4000"
	Err  error  // the underlying error; may be nil
}

// Error says what was being done and what went wrong.
func (e *SystemError) Error() string {
	text := e.Code.fact().says
	if e.Err != nil && e.Code == CodeSystem {
		text = e.Err.Error() // says more than "system error"
	} else if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	if e.Op != "" {
		text = e.Op + ": " + text
	}
	if e.Code == CodeInternal {
		text += "; this is a bug in Carillon, please report it"
	}
	return text
}

// ErrorCode is e.Code.
func (e *SystemError) ErrorCode() Code { return e.Code }

// Is reports whether target is the sentinel of e's code.
func (e *SystemError) Is(target error) bool { return target == sentinel(e.Code) }

// Unwrap is e.Err.
func (e *SystemError) Unwrap() error { return e.Err }

// subject writes what an error is about: `all_reduce (operation 17) on communicator "dp" (9f86d081884c7d65, rank 2)`,
// leaving out unknown parts.
func subject(b *strings.Builder, call Call, seq uint64, comm CommID, name string, rank int) {
	if call != CallNone {
		b.WriteString(call.String())
	}
	if seq != 0 {
		fmt.Fprintf(b, " (operation %d)", seq)
	}
	if comm.IsZero() {
		return
	}
	if b.Len() > 0 {
		b.WriteString(" on ")
	}
	b.WriteString("communicator ")
	if name != "" {
		fmt.Fprintf(b, "%q ", name)
	}
	fmt.Fprintf(b, "(%s, rank %d)", comm.Short(), rank)
}
