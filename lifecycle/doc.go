// Package lifecycle defines what a communicator is and which calls are legal on it, not how they work.
//
// A communicator has a life, and the life has rules. The rules are two tables of data: (state, call) gives the next
// state or the code of an error, and (state, event) gives the next state. A call is what a user does; an event is what
// the runtime makes happen. All code that must know whether a call is legal asks these tables; table.md shows them to
// people, and carillon_lifecycle.h provides them to C.
//
//	        InitRank …         EventInitDone        Finalize          EventFinalizeDone
//	(none) ───────────▶ initializing ────▶ ready ─────────▶ finalizing ───────▶ finalized
//	                         │               │ │                 │                  │
//	                         │        Revoke │ └──────┬──────────┴────────┬─────────┘
//	                         │               ▼        │ Destroy           │
//	                         │            revoked ────┤                   │
//	                         │                        ▼                   │
//	                         │  failed ────────▶ destroying ──▶ destroyed │
//	                         │  (from initializing, ready, finalizing)    │
//	                         └── Abort, from any state above ──▶ aborting ──▶ aborted
//
// Destroy and Abort take time, so each has a state for that time, neither Live nor Gone. In destroying, operations in
// flight are awaited; for its user the communicator is already destroyed, except that Abort is legal, to end a Destroy
// that hangs. A failure in this state does not lead to failed: Destroy reports it. In aborting, operations in flight
// are being cancelled, and no call is legal.
//
// A [Life] is one communicator's walk through the tables, safe for any number of goroutines: of all concurrent calls
// that would end it, exactly one wins, and the errors of the others say where and when that call was made. A [Registry]
// holds the lives of a runtime and gives each a [Handle], which is recognised as stale when the life has ended.
//
// Errors are of three kinds: [UsageError] is the caller's fault, [PeerError] another rank's, [SystemError] the
// machine's. Each has a stable [Code], matches the sentinel of that code (errors.Is(err, ErrDestroyed)), and says what
// to do next.
//
// The package knows nothing of transports, spans or goroutine pools and imports the standard library alone.
package lifecycle
