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
// All follows from the seed, times to the nanosecond: what the network does, when members start, what the meshes leave
// to chance, and what memberlist does. memberlist draws from math/rand's global source, which StartJob seeds and
// Job.Close makes unpredictable again; so a program simulates one job at a time. Secrets, nonces and instances stay
// crypto/rand's: nothing that is measured depends on them.
//
// It takes one thread, which Main sees to; a test calls runtime.GOMAXPROCS(1). What is due at one instant happens in no
// order, in a bubble as on a machine: so no two members start at one instant, no two packets arrive at one, and
// intervals are a few nanoseconds apart. Two things remain: in jobs of up to ten members, a suspicion of memberlist's
// ends at the instant of a probe; and the runtime interrupts a goroutine after 10 ms of the machine's time, or as the
// race detector wants it. Often that leaves no trace, as chance begins anew every 10 ms. Else a time changes, and what
// follows from it.
package sim
