package transport

import "github.com/carillon-rt/carillon/telemetry/tape"

// Topology says where the ranks of a communicator are. All slices but Ranks are indexed by rank; none may be written.
type Topology struct {
	Node      []int    // node index; nodes are numbered in the order of their lowest ranks
	Ranks     [][]int  // ranks of each node, ascending
	Transport []string // name of the transport that connects this rank with that one; "" for itself
	Host      []string // host name, for people
	PID       []int    // process, in its own pid namespace

	Connections int // of this rank over the network; 0 until it is connected
	PXN         tape.PXN
}
