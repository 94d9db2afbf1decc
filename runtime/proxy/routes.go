package proxy

// Routes are the connections between the ranks of a communicator on different nodes.
//
// Without PXN, each pair has a connection. With it, a rank of node A reaches a rank of node B through the rank of A
// that is on the rail of B's rank: the one with the same local index, modulo the number of ranks of A.
type Routes struct {
	Node  []int   // node index, by rank
	Ranks [][]int // ranks of each node, ascending
	PXN   bool

	index []int // local index, by rank
}

// NewRoutes makes the Routes of ranks on the given nodes.
func NewRoutes(node []int, ranks [][]int, pxn bool) Routes {
	r := Routes{Node: node, Ranks: ranks, PXN: pxn, index: make([]int, len(node))}
	for _, local := range ranks {
		for i, rank := range local {
			r.index[rank] = i
		}
	}
	return r
}

// Carrier returns the rank whose proxy sends rank from's data for rank to: from itself, or another rank of its node.
func (r Routes) Carrier(from, to int) int {
	local := r.Ranks[r.Node[from]]
	if !r.PXN || r.Node[from] == r.Node[to] {
		return from
	}
	return local[r.index[to]%len(local)]
}

// Connected reports whether two ranks of different nodes have a connection: one of them carries for the other.
func (r Routes) Connected(a, b int) bool { return r.Carrier(a, b) == a || r.Carrier(b, a) == b }

// Carries reports whether rank carrier is the carrier of rank from, a rank of its node, for rank to.
func (r Routes) Carries(carrier, from, to int) bool {
	return from != to && r.Node[from] == r.Node[carrier] && r.Carrier(from, to) == carrier
}
