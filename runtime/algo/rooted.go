package algo

// broadcast copies Count elements from the root's In to every rank's Out. All three algorithms send N(n-1) elements
// over all ranks.
//
//   - Tree: binomial, ceil(log2 n) consecutive messages, as in MPICH (Thakur et al., 2005);
//   - Ring: a chain from the root, n-1 long, streaming: every rank sends N once, so for large N it takes the time of
//     one message;
//   - Direct: the root sends to all.
func (b *builder) broadcast(a Algorithm) {
	v, got := b.relative(), None
	out := b.out(0, b.Count)
	src := out
	if v == 0 {
		src = b.in(0, b.Count)
		b.copy(out, src, None)
	}
	up, down := b.tree(a, v)
	if v != 0 {
		got = b.recv(b.absolute(up), out, None)
	}
	for i := len(down) - 1; i >= 0; i-- { // the largest subtree first
		b.send(b.absolute(down[i]), src, got)
	}
}

// reduceTo combines all ranks' In into the root's Out. In all three algorithms, each rank but the root sends N
// elements.
//
//   - Tree: binomial, ceil(log2 n) consecutive messages;
//   - Ring: a chain from the root's successor to the root, n-1 long, streaming;
//   - Direct: all send to the root, which does all the combining.
//
// Ranks are combined in the order root, root+1, … root-1; in the chain, in the order root+1, … root-1, root.
func (b *builder) reduceTo(a Algorithm) {
	v := b.relative()
	acc, made := b.in(0, b.Count), None
	if a == Ring {
		if v != 1 {
			dst := b.accumulator(v)
			made = b.recvReduceLeft(b.rank(-1), dst, acc, None)
			acc = dst
		}
		if v != 0 {
			b.send(b.rank(1), acc, made)
		}
		return
	}
	up, down := b.tree(a, v)
	if len(down) > 0 {
		dst := b.accumulator(v)
		for _, c := range down {
			made = b.recvReduce(b.absolute(c), dst, acc, made)
			acc = dst
		}
	}
	if v != 0 {
		b.send(b.absolute(up), acc, made)
	}
}

// accumulator returns where relative rank v combines: only the root's Out may be written.
func (b *builder) accumulator(v int) Span {
	if v == 0 {
		return b.out(0, b.Count)
	}
	return b.tmp(b.Count)
}

// tree returns relative rank v's parent and children in algorithm a's tree: a chain, a binomial tree, or a root with
// all others as leaves. The root's parent has no meaning.
func (b *builder) tree(a Algorithm, v int) (up int, down []int) {
	switch {
	case a == Ring:
		if v+1 < b.Size {
			down = []int{v + 1}
		}
		return v - 1, down
	case a == Tree:
		return parent(v), children(v, b.Size)
	case v == 0:
		for c := 1; c < b.Size; c++ {
			down = append(down, c)
		}
	}
	return 0, down
}

// gather collects every rank's In in the root's Out: all send to the root at once, N(n-1) elements over all ranks.
func (b *builder) gather() {
	own := b.in(0, b.Count)
	if b.Rank != b.Root {
		b.send(b.Root, own, None)
		return
	}
	b.copy(b.outBlock(b.Rank), own, None)
	for d := 1; d < b.Size; d++ {
		b.recv(b.rank(d), b.outBlock(b.rank(d)), None)
	}
}

// scatter gives each rank its block of the root's In. It is the reverse of gather, with the same counts.
func (b *builder) scatter() {
	out := b.out(0, b.Count)
	if b.Rank != b.Root {
		b.recv(b.Root, out, None)
		return
	}
	b.copy(out, b.inBlock(b.Rank), None)
	for d := 1; d < b.Size; d++ {
		b.send(b.rank(d), b.inBlock(b.rank(d)), None)
	}
}
