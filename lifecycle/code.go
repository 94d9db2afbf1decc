package lifecycle

import "strconv"

// Code is the stable number of an error: what a program, a record on the tape, a span's error.type and the C side branch on. Its
// name (String) is as stable as its number.
type Code uint16

// No error.
const (
	CodeOK         Code = 0
	CodeInProgress Code = 1 // a non-blocking communicator has not finished its last call
)

// The caller's mistakes (UsageError).
const (
	CodeInvalidArgument Code = 100 // a value that is out of range
	CodeInvalidUsage    Code = 101 // a call that makes no sense here
	CodeInitializing    Code = 102 // too early: the communicator is not ready yet
	CodeFinalized       Code = 103 // used after Finalize
	CodeDestroyed       Code = 104 // used or destroyed after Destroy
	CodeAborted         Code = 105 // used after Abort
	CodeFailed          Code = 106 // used after a failure: only Shrink, Revoke, Abort and Destroy are legal
	CodeRevoked         Code = 107 // used after Revoke
	CodeLeaked          Code = 108 // never destroyed
	CodeUnfinished      Code = 109 // destroyed with operations in flight that did not end in time
)

// Faults of other ranks (PeerError).
const (
	CodeRankDead    Code = 200 // the peer's process ended
	CodeNotJoined   Code = 201 // the peer never arrived at a rendezvous
	CodeMismatch    Code = 202 // the ranks made different calls
	CodeAbandoned   Code = 203 // the peer gave up an operation: its context expired
	CodePeerAborted Code = 204 // the peer aborted or destroyed the communicator
	CodeUnreachable Code = 205 // the connection broke, and the peer is not known dead
	CodeAuth        Code = 206 // the peer does not have the job's secret
)

// Faults of the system (SystemError).
const (
	CodeSystem   Code = 300 // a socket, a file, memory
	CodeTimeout  Code = 301 // the caller's context expired
	CodeInternal Code = 302 // a bug in Carillon
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

// codes is what is known of each code. Says is what an error's text says of its subject: the communicator for a caller's mistake, a
// peer for its fault (%s is "rank 3").
var codes = []struct {
	code Code
	name string
	nccl int
	says string
}{
	{CodeOK, "ok", ncclSuccess, "no error"},
	{CodeInProgress, "in_progress", ncclInProgress, "its last call is still in progress"},

	{CodeInvalidArgument, "invalid_argument", ncclInvalidArgument, "invalid argument"},
	{CodeInvalidUsage, "invalid_usage", ncclInvalidUsage, "invalid usage"},
	{CodeInitializing, "initializing", ncclInvalidUsage, "it is still initializing"},
	{CodeFinalized, "finalized", ncclInvalidUsage, "it was already finalized"},
	{CodeDestroyed, "destroyed", ncclInvalidUsage, "it was already destroyed"},
	{CodeAborted, "aborted", ncclInvalidUsage, "it was already aborted"},
	{CodeFailed, "failed", ncclInvalidUsage, "it has failed"},
	{CodeRevoked, "revoked", ncclInvalidUsage, "it was already revoked"},
	{CodeLeaked, "leaked", ncclInvalidUsage, "it was never destroyed"},
	{CodeUnfinished, "unfinished", ncclInvalidUsage, "it was destroyed with operations in flight"},

	{CodeRankDead, "rank_dead", ncclRemoteError, "the process of %s has ended"},
	{CodeNotJoined, "not_joined", ncclRemoteError, "%s has not arrived"},
	{CodeMismatch, "mismatch", ncclInvalidUsage, "the call of %s does not match"},
	{CodeAbandoned, "abandoned", ncclRemoteError, "%s gave up the operation"},
	{CodePeerAborted, "peer_aborted", ncclRemoteError, "%s aborted or destroyed the communicator"},
	{CodeUnreachable, "unreachable", ncclRemoteError, "the connection to %s broke"},
	{CodeAuth, "auth", ncclRemoteError, "%s does not have this job's secret"},

	{CodeSystem, "system", ncclSystemError, "system error"},
	{CodeTimeout, "timeout", ncclRemoteError, "the context ended first"},
	{CodeInternal, "internal", ncclInternalError, "internal error"},
}

// Codes lists all codes in order, CodeOK first.
func Codes() []Code {
	all := make([]Code, len(codes))
	for i := range codes {
		all[i] = codes[i].code
	}
	return all
}

// String is the code's stable name: "rank_dead".
func (c Code) String() string {
	for i := range codes {
		if codes[i].code == c {
			return codes[i].name
		}
	}
	return "code(" + strconv.Itoa(int(c)) + ")"
}

// NCCL is the ncclResult_t that a C program gets for the code. One that does not exist is ncclInternalError.
func (c Code) NCCL() int {
	for i := range codes {
		if codes[i].code == c {
			return codes[i].nccl
		}
	}
	return ncclInternalError
}

// says is the half sentence of the code for an error's text.
func (c Code) says() string {
	for i := range codes {
		if codes[i].code == c {
			return codes[i].says
		}
	}
	return c.String()
}
