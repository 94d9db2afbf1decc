// Package chaos hurts jobs of real processes, and holds what RAS says of it against what was done to them.
//
//	┌─ namespace a ──────┐                             ┌─ namespace b ──────┐
//	│ ranks 0 and 1  eth0├── cable ── switch ── cable ──┤eth0  ranks 2 and 3 │
//	└────────────────────┘             │               └────────────────────┘
//	                        webhook receiver, Alertmanager
//
// Two network and UTS namespaces are two hosts: each has its own name, address, host id and folder of tapes, and its
// own carillon run. The receiver verifies signatures; Alertmanager is a real one. Each fault must give one verdict,
// with the right reason and the right rank, at both, nothing else at warning or above, and be withdrawn when it is
// over.
//
// The tests run in a network namespace of their own: nothing of it is seen outside, and nothing of it stays. They need
// root, iproute2, nftables and Alertmanager.
package chaos
