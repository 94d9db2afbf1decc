// Package shm connects ranks of different processes on one host through rings in shared memory.
//
// Each rank owns one inbox per communicator: a sealed memfd with a header and a slot for every peer. The peer writes
// into its slot, and the owner reads from it.
//
//	inbox of rank 1
//	┌ header ───────────┬ board ─────────────┬ slot of rank 0 ────────────┬ slot of rank 1 ┬ slot of rank 2 …
//	│ magic, id, token  │ what rank 1 posts  │ tail     written by rank 0 │ (unused)       │
//	│ doorbell  (futex) │ for all others     │ head     written by rank 1 │                │
//	│ alerts            │                    │ verdict  written by rank 1 │                │
//	│ gave up, notice   │                    │ status, notice  by rank 0  │                │
//	│ shared            │                    │ ring ▒▒▒▒▒▒▒▒▒░░░░░░░░░    │                │
//	└───────────────────┴────────────────────┴────────────────────────────┴────────────────┴──
//
// Peers open it as /proc/<pid>/fd/<n>. They accept it only if it is a memfd of the same user, sealed against change of
// size, and contains the right magic, communicator and random token. This detects a descriptor number that was reused,
// and another pid namespace. The seals also mean that accessing the memory can never raise SIGBUS, and that it survives
// its owner: data sent by a dead rank can still be read.
//
// A memfd is sparse: a slot costs memory only when it is used. A rank checks the other's indices before use, so a
// misbehaving peer costs the connection, not the process.
package shm
