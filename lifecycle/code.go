package lifecycle

// Code is the stable number of an error: what a program, a record on the tape, a span's error.type and the C side branch on. Its
// name (String) is as stable as its number.
type Code uint16

// No error.
const (
	CodeOK         Code = 0
	CodeInProgress Code = 1
)

// The caller's mistakes (UsageError).
const (
	CodeInvalidArgument Code = 100 // a value that is out of range
	CodeInvalidUsage    Code = 101 // a call that makes no sense here
	CodeInitializing    Code = 102 // too early: the communicator is not ready yet
	CodeFinalized       Code = 103 // used after Finalize
	CodeDestroyed       Code = 104 // used or destroyed after Destroy
	CodeAborted         Code = 105 // used after Abort
	CodeFailed          Code = 106 // used after a failure: only Abort and Destroy are legal
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
