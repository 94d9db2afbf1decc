// Package shm connects ranks of different processes on one host through rings in shared memory.
//
// Each rank owns one inbox per communicator: a sealed memfd with a header and a slot for every peer. The peer writes
// into its slot, the owner reads from there.
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
// Peers open it as /proc/<pid>/fd/<n>. They take it for what it should be only if it is a memfd of the same user,
// sealed against change of size, with the right magic, communicator and random token in it. So a number that was used
// again, or another pid namespace, is found out. The seals also mean that touching the memory can never raise SIGBUS,
// and that it stays when its owner dies: what a dead rank sent can still be read.
//
// A memfd is sparse: a slot costs memory when it is used. What a rank reads of the other's indices is checked before
// use, so a peer gone wild costs the connection, not the process.
package shm
