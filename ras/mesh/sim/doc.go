// Package sim is a network and its machines in one process: thousands of members, with delay, loss, cut cables, and
// processes that are killed and stopped. The members are real meshes, with memberlist and its encryption; the network,
// the pidfds and /proc are not.
//
//	Network ─┬─ Machine ─┬─ Process ── mesh.Config.Host, mesh.Config.Transport
//	         │           └─ Process
//	         └─ Machine …
//
// # Time
//
// memberlist reads the machine's clock. In a bubble of testing/synctest that clock is virtual, so hours pass in
// seconds: a test calls synctest.Test, and a command calls Main, which runs a function in such a bubble.
//
// # What is deterministic
//
// Everything follows from the seed, with times to the nanosecond: the network, when members start, the random choices
// of the meshes, and those of memberlist. memberlist uses math/rand's global source, which StartJob seeds and Job.Close
// makes unpredictable again, so a program simulates one job at a time. Secrets, nonces and instances remain
// crypto/rand's; nothing that is measured depends on them.
//
// This needs a single thread: Main sees to it, and a test calls runtime.GOMAXPROCS(1). Events at one instant happen in
// no defined order, in a bubble as on a machine. So no two members start at one instant, no two packets arrive at one,
// and intervals differ by a few nanoseconds. Two exceptions remain: in jobs of up to ten members, a suspicion of
// memberlist's ends at the instant of a probe; and the runtime preempts a goroutine after 10 ms of real time, or when
// the race detector does. Often that has no effect, as the random sources are seeded anew every 10 ms. Otherwise a time
// changes, and what follows from it.
package sim
