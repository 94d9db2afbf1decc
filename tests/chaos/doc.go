// Package chaos injects faults into jobs of real processes, and checks RAS's reports against them.
//
//	┌─ namespace a ──────┐                             ┌─ namespace b ──────┐
//	│ ranks 0 and 1  eth0├── cable ── switch ── cable ──┤eth0  ranks 2 and 3 │
//	└────────────────────┘             │               └────────────────────┘
//	                        webhook receiver, Alertmanager
//
// Two network and UTS namespaces serve as two hosts: each has its own name, address, host id and folder of tapes, and
// its own carillon run. The receiver verifies signatures; Alertmanager is a real one. For each fault, both must receive
// one verdict, with the right reason and the right rank, and nothing else at warning or above; the verdict must be
// withdrawn when the fault is over.
//
// The tests run in a network namespace of their own: nothing of it is visible outside, and nothing of it is left
// behind. They need root, iproute2, nftables and Alertmanager.
package chaos
