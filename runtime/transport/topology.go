package transport

// Topology says where the ranks of a communicator are. All slices but Ranks are indexed by rank; none may be written.
type Topology struct {
	Node      []int    // node index; nodes are numbered in the order of their lowest ranks
	Ranks     [][]int  // ranks of each node, ascending
	Transport []string // name of the transport that connects this rank with that one; "" for itself
	Host      []string // host name, for people
	PID       []int    // process, in its own pid namespace

	Connections int // of this rank over the network; 0 until it is connected
	PXN         PXN
}

// PXN says whether ranks send to other nodes through the rank of their own node that is on the receiver's rail, or why
// they don't.
type PXN uint8

// The values of PXN; tape.PXN has the same.
const (
	PXNUnknown   PXN = iota
	PXNOn            // they do
	PXNOneNode       // there is no other node
	PXNAlone         // each rank is alone on its node
	PXNDisabled      // a rank has NCCL_PXN_DISABLE
	PXNNoMemory      // a rank has no memory that it could share with others of its node
	PXNStrangers     // ranks of a node are of different users or pid namespaces
)
