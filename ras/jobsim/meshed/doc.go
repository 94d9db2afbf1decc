// Package meshed simulates a job of thousands of ranks under RAS in virtual time: a real mesh and a real agent for each
// process, a simulated network, and faults.
//
//	Run ── Script ──▶ Job ─┬─ Model     ranks, communicators, which rank is in which collective
//	(from the seed)        ├─ mesh/sim  machines, network: real meshes on them
//	                       └─ a process: stall.Watch on its table ─▶ agent.Agent ─▶ Told
//
// # The model
//
// A rank belongs to four communicators: the world, a tensor-parallel group of the ranks of its process, a pipeline of
// four processes, and a data-parallel group of the processes at the same place of their pipelines. Each step, it
// computes and calls a collective, four times, in the same order as all others. A collective ends when all its ranks
// have come, and some milliseconds have passed. How long a rank computes is drawn from the seed. Nothing else is
// modelled: no bytes, no algorithms, and no engine that finds a death or a mismatch by itself, so that a fault is a
// hang, as it is with NCCL.
//
// An agent sees what it sees in a real process: the in-flight table, the tape's events, and stalls.
//
// # What is deterministic
//
// A Result follows from its Plan, on one thread, in all but Analysis, to the nanosecond and the byte; package mesh/sim
// says where that ends. Where times differ, reasons and culprits don't.
//
// Virtual time stands still while code runs: it measures waiting, not computing. Result.Analysis is the coordinator's
// computing time, on the machine's own clock.
package meshed
