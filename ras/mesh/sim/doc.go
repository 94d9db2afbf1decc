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
// Loss and delay are drawn from the seed. memberlist draws from math/rand's global source, which can't be seeded, and
// goroutines run in the order that the scheduler likes: two runs with one seed differ in detail, and agree in what a
// test may assert.
package sim
