package algo

import "slices"

// hierarchicalAllReduce sums inside each node, then between nodes, and distributes the sums inside each node. With m
// nodes of k ranks each and N elements, a rank sends 2N(k-1)/k elements to ranks of its node, and 2N(m-1)/(mk) to the
// rank with its local index on the next node. So 2N(m-1)/m elements leave a node, on k connections at once. In a ring
// of all ranks, 2N(n-1)/n leave it, on one connection.
//
//	node 0        node 1
//	rank 0 ─────▸ rank 2      ring of the first ranks: they sum the first half of the chunks
//	  ↕             ↕         inside: each with each
//	rank 1 ─────▸ rank 3      ring of the second ranks: the second half
//
// Chunk i·m+c, which the ranks with local index i sum, is summed inside node a in the order of local indices i, i+1, …
// i-1, and over the nodes in the order of c, c+1, … c-1.
//
// If each rank is a node, this is Ring: a reduce-scatter and an all-gather around the ring (Patarasuk and Yuan,
// "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009). With n ranks, a rank sends 2(n-1)
// consecutive messages, and 2N(n-1)/n elements in all, the lower bound.
func (b *builder) hierarchicalAllReduce() {
	local, rail := b.localRanks(), b.rail()
	k, m := len(local), len(rail)
	i, a := slices.Index(local, b.Rank), slices.Index(rail, b.Rank)
	chunk := func(buf Buffer, place, c int) Span { return b.chunk(buf, place*m+mod(c, m)) }
	sent := make([]int, b.Size) // by chunk: the step that sent it last, before its sum arrives
	made := make([]int, m)      // by chunk of this local index: the step that wrote it last
	sum := make([]Span, m)      // by chunk of this local index: the partial sum of this node

	for s := range m { // in the order in which the ring needs them
		c := mod(a-s, m)
		for d := 1; d < k; d++ {
			p := mod(i-d, k)
			sent[p*m+c] = b.send(local[p], chunk(In, p, c), None)
		}
		sum[c], made[c] = chunk(In, i, c), None
		for d := 1; d < k; d++ {
			made[c] = b.recvReduce(local[(i+d)%k], chunk(Out, i, c), sum[c], made[c])
			sum[c] = chunk(Out, i, c)
		}
	}

	next, prev := rail[(a+1)%m], rail[mod(a-1, m)]
	for s := range m - 1 {
		c := mod(a-s, m)
		sent[i*m+c] = b.send(next, sum[c], made[c])
		c = mod(a-s-1, m)
		made[c] = b.recvReduceLeft(prev, chunk(Out, i, c), sum[c], made[c])
		sum[c] = chunk(Out, i, c)
	}
	for s := range m { // the sums, in the order of their arrival at this node
		c := mod(a+1-s, m)
		if s > 0 {
			made[c] = b.recv(prev, chunk(Out, i, c), sent[i*m+c])
		}
		if s < m-1 {
			b.send(next, chunk(Out, i, c), made[c])
		}
		for d := 1; d < k; d++ {
			b.send(local[mod(i-d, k)], chunk(Out, i, c), made[c])
			p := (i + d) % k
			b.recv(local[p], chunk(Out, p, c), sent[p*m+c])
		}
	}
}

// even reports whether there are several nodes, all with the same number of ranks, which is more than one.
func (r *Request) even() bool {
	ranks := map[int]int{}
	for _, node := range r.Nodes {
		ranks[node]++
	}
	k := len(r.Nodes) / max(len(ranks), 1)
	for _, n := range ranks {
		if n != k {
			return false
		}
	}
	return len(ranks) > 1 && k > 1
}

// localRanks returns the ranks of this rank's node, including itself.
func (r *Request) localRanks() (ranks []int) {
	for rank, node := range r.Nodes {
		if node == r.Nodes[r.Rank] {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// rail returns the ranks with this rank's index in their nodes, by node.
func (r *Request) rail() (ranks []int) {
	before := map[int]int{} // by node: number of ranks seen
	place := slices.Index(r.localRanks(), r.Rank)
	for rank, node := range r.Nodes {
		if before[node] == place {
			ranks = append(ranks, rank)
		}
		before[node]++
	}
	return ranks
}
