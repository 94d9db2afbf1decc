package algo

import "math/bits"

// broadcast gets Count elements from the root's In to every rank's Out. All three send N(n-1) elements over all ranks.
//
//   - Tree: binomial, ceil(log2 n) messages one after the other, as in MPICH (Thakur et al., 2005);
//   - Ring: a chain from the root on, n-1 long, streaming: every rank sends N once, so for large N it takes the time
//     of one message;
//   - Direct: the root sends to all.
func (b *builder) broadcast(a Algorithm) {
	v, got := b.relative(), None
	out := b.out(0, b.Count)
	src := out
	if v == 0 {
		src = b.in(0, b.Count)
		b.copy(out, src, None)
	}
	up, down := b.family(a, v)
	if v != 0 {
		got = b.recv(b.absolute(up), out, None)
	}
	for i := len(down) - 1; i >= 0; i-- { // the largest subtree first
		b.send(b.absolute(down[i]), src, got)
	}
}

// reduceTo combines all ranks' In into the root's Out. All three send N elements by each rank but the root.
//
//   - Tree: binomial, ceil(log2 n) messages one after the other;
//   - Ring: a chain from the root's successor to the root, n-1 long, streaming;
//   - Direct: all send to the root, which combines alone.
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
	up, down := b.family(a, v)
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

// accumulator is where relative rank v keeps what it combines: only the root's Out may be written.
func (b *builder) accumulator(v int) Span {
	if v == 0 {
		return b.out(0, b.Count)
	}
	return b.tmp(b.Count)
}

// family is relative rank v's place in the tree that algorithm a makes of the ranks: a binomial one, one that is all
// trunk, or one that is all leaves. The root's parent has no meaning.
func (b *builder) family(a Algorithm, v int) (up int, down []int) {
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

// gather collects every rank's In in the root's Out.
//
//   - Direct: all send to the root at once; N(n-1) elements over all ranks;
//   - Tree: binomial, where inner ranks pass their subtree's blocks on as they come. The root receives from ceil(log2
//     n) ranks only; every block travels as many times as its rank has bits set.
func (b *builder) gather(a Algorithm) {
	v := b.relative()
	own := b.in(0, b.Count)
	if v == 0 {
		b.copy(b.outBlock(b.Rank), own, None)
		for u := 1; u < b.Size; u++ {
			b.recv(b.absolute(via(a, 0, u)), b.outBlock(b.absolute(u)), None)
		}
		return
	}
	up, _ := b.family(a, v)
	up = b.absolute(up)
	b.send(up, own, None)
	for u := v + 1; u < v+under(a, v, b.Size); u++ {
		block := b.tmp(b.Count)
		got := b.recv(b.absolute(via(a, v, u)), block, None)
		b.send(up, block, got)
	}
}

// scatter gives each rank its block of the root's In: gather the other way round, with the same counts.
func (b *builder) scatter(a Algorithm) {
	v := b.relative()
	out := b.out(0, b.Count)
	if v == 0 {
		b.copy(out, b.inBlock(b.Rank), None)
		for u := 1; u < b.Size; u++ {
			b.send(b.absolute(via(a, 0, u)), b.inBlock(b.absolute(u)), None)
		}
		return
	}
	up, _ := b.family(a, v)
	up = b.absolute(up)
	b.recv(up, out, None)
	for u := v + 1; u < v+under(a, v, b.Size); u++ {
		block := b.tmp(b.Count)
		got := b.recv(up, block, None)
		b.send(b.absolute(via(a, v, u)), block, got)
	}
}

// under is the number of relative ranks in v's subtree, v included, in the binomial tree, or in a star.
func under(a Algorithm, v, size int) int {
	if a == Tree {
		return min(lowBit(v, size), size-v)
	}
	return 1
}

// via is v's child on the way to u.
func via(a Algorithm, v, u int) int {
	if a == Tree {
		return v + 1<<(bits.Len(uint(u-v))-1)
	}
	return u
}
