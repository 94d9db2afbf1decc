package algo

import "math/bits"

func (b *builder) allReduce(a Algorithm) {
	switch a { //nolint:exhaustive // validated: one of For's algorithms
	case Ring:
		b.Nodes = make([]int, b.Size)
		for r := range b.Nodes {
			b.Nodes[r] = r // a node of its own
		}
		b.hierarchicalAllReduce()
	case RecursiveDoubling:
		b.recursiveDoubling()
	case Tree:
		b.treeAllReduce()
	case Hierarchical:
		b.hierarchicalAllReduce()
	case Direct:
		if b.Bytes() <= oneShotBytes {
			b.oneShotAllReduce()
		} else {
			b.directAllReduce()
		}
	}
}

// recursiveDoubling exchanges partial results with partners at distance 1, 2, 4 … (Thakur, Rabenseifner and Gropp,
// "Optimization of Collective Communication Operations in MPICH", 2005). With n = 2^k ranks and N elements, a rank
// sends k messages of N. Otherwise, with n = 2^k + m, the even ones of the first 2m ranks first send their data to
// their neighbor and get the result last: they send 1 message of N, and the neighbor k+1. Neighbors are summed first.
//
// Partners exchange at the same time, so a rank receives into one of two slots while it sends from the other.
func (b *builder) recursiveDoubling() {
	whole := b.in(0, b.Count)
	pairs := b.Size - 1<<(bits.Len(uint(b.Size))-1) // m
	if b.Rank < 2*pairs && b.Rank%2 == 0 {
		up := b.send(b.Rank+1, whole, None)
		b.recv(b.Rank+1, b.out(0, b.Count), up)
		return
	}
	slots := [2]Span{b.tmp(b.Count), b.tmp(b.Count)}
	sending := [2]int{None, None} // by slot: the step that sends it
	acc, made, fromIn, turn := whole, None, None, 0
	if b.Rank < 2*pairs {
		acc, made, turn = slots[0], b.recvReduceLeft(b.Rank-1, slots[0], acc, None), 1
	}
	for bit := 1; bit < b.Size-pairs; bit <<= 1 {
		peer := b.partner(bit, pairs)
		s := b.send(peer, acc, made)
		if acc.Buf == In {
			fromIn = s
		} else {
			sending[1-turn] = s
		}
		free := sending[turn]
		if peer < b.Rank {
			made = b.recvReduceLeft(peer, slots[turn], acc, made)
		} else {
			made = b.recvReduce(peer, slots[turn], acc, made)
		}
		b.wait(made, one(free))
		acc, turn = slots[turn], 1-turn
	}
	if b.Rank < 2*pairs {
		b.send(b.Rank-1, acc, made)
	}
	b.wait(b.copy(b.out(0, b.Count), acc, made), one(fromIn))
}

// partner returns the rank at distance bit among the 2^k ranks that take part in the doubling.
func (b *builder) partner(bit, pairs int) int {
	v := b.Rank - pairs
	if b.Rank < 2*pairs {
		v = b.Rank / 2
	}
	if v ^= bit; v < pairs {
		return 2*v + 1
	}
	return v + pairs
}

// treeAllReduce reduces to rank 0 up a binomial tree and broadcasts down the same tree. It takes up to 2 ceil(log2 n)
// consecutive messages; a rank sends N elements to its parent and N to each child, 2N(n-1) over all ranks.
func (b *builder) treeAllReduce() {
	b.Root = 0
	down := children(b.Rank, b.Size)
	acc, made := b.in(0, b.Count), None
	for _, c := range down {
		made = b.recvReduce(c, b.out(0, b.Count), acc, made)
		acc = b.out(0, b.Count)
	}
	if b.Rank != 0 {
		up := b.send(parent(b.Rank), acc, made)
		made = b.recv(parent(b.Rank), b.out(0, b.Count), up)
	}
	for i := len(down) - 1; i >= 0; i-- { // largest subtree first
		b.send(down[i], b.out(0, b.Count), made)
	}
}

// oneShotBytes is the largest all-reduce that Direct does in one shot. Above that, arithmetic costs more than messages.
const oneShotBytes = 16 << 10

// oneShotAllReduce sends all data to all ranks, and each sums it in rank order: in one exchange, each rank sends N(n-1)
// elements in n-1 concurrent messages. It has the lowest latency between ranks that share memory.
func (b *builder) oneShotAllReduce() {
	own := b.in(0, b.Count)
	for d := 1; d < b.Size; d++ {
		b.send(b.rank(-d), own, None)
	}
	sends := Range{0, len(b.steps)}
	sum := b.tmp(b.Count)
	var made int
	switch b.Rank {
	case 0:
		made = b.recvReduce(1, sum, own, None)
	case 1:
		made = b.recvReduceLeft(0, sum, own, None)
	default:
		made = b.recv(0, sum, None)
		made = b.recvReduce(1, sum, sum, made)
	}
	for p := 2; p < b.Size; p++ {
		if p == b.Rank {
			made = b.reduce(sum, sum, own, made)
		} else {
			made = b.recvReduce(p, sum, sum, made)
		}
	}
	b.wait(b.copy(b.out(0, b.Count), sum, made), sends)
}

// directAllReduce gives each rank one chunk: the rank gets that chunk from all others at once, sums it, and sends the
// sum to all others at once. A rank sends 2N(n-1)/n elements as in the ring, but in 2 steps instead of 2(n-1). Chunk c
// is summed in the order of ranks c, c+1, … c-1.
func (b *builder) directAllReduce() {
	sent := make([]int, b.Size)
	for d := 1; d < b.Size; d++ {
		p := b.rank(-d) // rank r receives from r+1 first, so it sends to r-1 first
		sent[p] = b.send(p, b.chunk(In, p), None)
	}
	acc, sum, made := b.chunk(In, b.Rank), b.chunk(Out, b.Rank), None
	for d := 1; d < b.Size; d++ {
		made = b.recvReduce(b.rank(d), sum, acc, made)
		acc = sum
	}
	for d := 1; d < b.Size; d++ {
		b.send(b.rank(-d), sum, made)
	}
	for d := 1; d < b.Size; d++ {
		p := b.rank(d)
		b.recv(p, b.chunk(Out, p), sent[p])
	}
}
