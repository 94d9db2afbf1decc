package transport

import "github.com/carillon-rt/carillon/telemetry/tape"

// Topology says where the ranks of a communicator are. All slices but Ranks are indexed by rank; none may be written.
type Topology struct {
	Node      []int    // node index; nodes are numbered in the order of their lowest ranks
	Ranks     [][]int  // ranks of each node, ascending
	Transport []string // name of the transport that connects this rank to that one; "" for itself
	Host      []string // host name, for humans
	PID       []int    // process id, in its own pid namespace

	Connections int // number of this rank's network connections; 0 until it is connected
	PXN         tape.PXN
}
