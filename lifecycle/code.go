package lifecycle

import "strconv"

// Code is the stable number of an error, for programs, tape records, spans (error.type) and C. Its name (String) is as
// stable as its number.
type Code uint16

// No error.
const (
	CodeOK         Code = 0
	CodeInProgress Code = 1 // a non-blocking communicator has not finished its last call
)

// The caller's mistakes (UsageError).
const (
	CodeInvalidArgument Code = 100 // a value that is out of range
	CodeInvalidUsage    Code = 101 // a call that is not allowed here
	CodeInitializing    Code = 102 // too early: the communicator is not ready yet
	CodeFinalized       Code = 103 // used after Finalize
	CodeDestroyed       Code = 104 // used or destroyed after Destroy
	CodeAborted         Code = 105 // used after Abort
	CodeFailed          Code = 106 // used after a failure: only Shrink, Revoke, Abort and Destroy are legal
	CodeRevoked         Code = 107 // used after Revoke
	CodeLeaked          Code = 108 // never destroyed or aborted
	CodeUnfinished      Code = 109 // destroyed with operations in flight that did not end in time
)

// Faults of other ranks (PeerError).
const (
	CodeRankDead    Code = 200 // the peer's process ended
	CodeNotJoined   Code = 201 // the peer never arrived at a rendezvous
	CodeMismatch    Code = 202 // the ranks made different calls
	CodeAbandoned   Code = 203 // the peer gave up an operation: its context ended
	CodePeerAborted Code = 204 // the peer aborted or destroyed the communicator
	CodeUnreachable Code = 205 // the connection broke, and the peer is not known to be dead
	CodeAuth        Code = 206 // the peer does not have the job's secret
)

// Faults of the system (SystemError).
const (
	CodeSystem   Code = 300 // an error of a socket, a file, memory or a GPU
	CodeTimeout  Code = 301 // the deadline of the caller's context passed
	CodeInternal Code = 302 // a bug in Carillon
	CodeCanceled Code = 303 // the caller's context was canceled
)

// The values of ncclResult_t (nccl.h) that codes map to.
const (
	ncclSuccess         = 0
	ncclSystemError     = 2
	ncclInternalError   = 3
	ncclInvalidArgument = 4
	ncclInvalidUsage    = 5
	ncclRemoteError     = 6
	ncclInProgress      = 7
)

type fact struct {
	code Code
	name string
	nccl int
	says string // the error's text about the communicator, or about the peer (%s is "rank 3")
	then string // what to do about a peer's fault
}

var codes = []fact{
	{CodeOK, "ok", ncclSuccess, "no error", ""},
	{CodeInProgress, "in_progress", ncclInProgress, "its last call is still in progress", ""},

	{CodeInvalidArgument, "invalid_argument", ncclInvalidArgument, "invalid argument", ""},
	{CodeInvalidUsage, "invalid_usage", ncclInvalidUsage, "invalid usage", ""},
	{CodeInitializing, "initializing", ncclInvalidUsage, "it is still initializing", ""},
	{CodeFinalized, "finalized", ncclInvalidUsage, "it was already finalized", ""},
	{CodeDestroyed, "destroyed", ncclInvalidUsage, "it was already destroyed", ""},
	{CodeAborted, "aborted", ncclInvalidUsage, "it was already aborted", ""},
	{CodeFailed, "failed", ncclInvalidUsage, "it has failed", ""},
	{CodeRevoked, "revoked", ncclInvalidUsage, "it was already revoked", ""},
	{CodeLeaked, "leaked", ncclInvalidUsage, "it was never destroyed", ""},
	{CodeUnfinished, "unfinished", ncclInvalidUsage, "it was destroyed with operations in flight", ""},

	{
		CodeRankDead, "rank_dead", ncclRemoteError, "the process of %s has ended",
		"find the reason in that rank's output",
	},
	{
		CodeNotJoined, "not_joined", ncclRemoteError, "%s has not arrived",
		"see whether that rank was started, with the same unique id and size",
	},
	{
		CodeMismatch, "mismatch", ncclInvalidUsage, "the call of %s does not match",
		"make the same calls in the same order on all ranks",
	},
	{
		CodeAbandoned, "abandoned", ncclRemoteError, "%s gave up the operation", "",
	},
	{
		CodePeerAborted, "peer_aborted", ncclRemoteError, "%s aborted or destroyed the communicator",
		"find the reason in that rank's output",
	},
	{
		CodeUnreachable, "unreachable", ncclRemoteError, "the connection to %s broke",
		"see whether that rank's host is up and can be reached from here",
	},
	{
		CodeAuth, "auth", ncclRemoteError, "%s does not have this job's secret",
		"start all ranks of a job with the same unique id",
	},

	{CodeSystem, "system", ncclSystemError, "system error", ""},
	{
		CodeTimeout, "timeout", ncclRemoteError, "the context's time was up first",
		"find what that rank is doing, or give the context more time",
	},
	{CodeInternal, "internal", ncclInternalError, "internal error", ""},
	{CodeCanceled, "canceled", ncclRemoteError, "the context was canceled first", ""},
}

// Codes lists all codes in order, CodeOK first.
func Codes() []Code {
	all := make([]Code, len(codes))
	for i := range codes {
		all[i] = codes[i].code
	}
	return all
}

// fact looks c up; the name of an unknown code is its number.
func (c Code) fact() fact {
	for i := range codes {
		if codes[i].code == c {
			return codes[i]
		}
	}
	name := "code(" + strconv.Itoa(int(c)) + ")"
	return fact{code: c, name: name, nccl: ncclInternalError, says: name}
}

// String is the code's stable name: "rank_dead".
func (c Code) String() string { return c.fact().name }

// NCCL is the ncclResult_t that a C program gets for the code. For a code that does not exist it is ncclInternalError.
func (c Code) NCCL() int { return c.fact().nccl }
