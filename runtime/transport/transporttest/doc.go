// Package transporttest is the conformance suite of the transports, and their benchmarks.
//
// A [Case] is the program of one rank; all ranks of it run the same function, as ranks of a communicator do. So a case runs in
// one process, with a goroutine for each rank ([Run]), or with a process for each, as package fabric's tests do. A case that
// looks into several ranks at once is Local and runs in one process alone.
package transporttest
