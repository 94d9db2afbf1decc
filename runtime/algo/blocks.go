package algo

// allGather gives every rank all ranks' In. With blocks of N elements, every rank sends N(n-1) elements in all.
//
//   - Ring: n-1 consecutive messages (streaming), to one neighbor only;
//   - RecursiveDoubling: ceil(log2 n) exchanges of 1, 2, 4 … blocks, for any n, as by Bruck et al., "Efficient
//     algorithms for all-to-all communications", 1997; blocks are placed directly, so no rotation is needed at the end,
//     but a message that wraps around the end of the buffer goes in two pieces;
//   - Direct: to all others at once, one step.
func (b *builder) allGather(a Algorithm) {
	own := b.in(0, b.Count)
	kept := b.copy(b.outBlock(b.Rank), own, None)
	switch a { //nolint:exhaustive // validated: one of For's algorithms
	case Ring:
		b.send(b.rank(1), own, None)
		for s := 1; s < b.Size; s++ {
			block := b.outBlock(b.rank(-s))
			got := b.recv(b.rank(-1), block, None)
			if s < b.Size-1 {
				b.send(b.rank(1), block, got)
			}
		}
	case RecursiveDoubling:
		if kept == None {
			return
		}
		for have := 1; have < b.Size; have *= 2 {
			got := Range{0, len(b.steps)}
			take := min(have, b.Size-have)
			for _, s := range b.blocks(b.Rank, take) {
				b.wait(b.send(b.rank(-have), s, None), got)
			}
			for _, s := range b.blocks(b.rank(have), take) {
				b.recv(b.rank(have), s, None)
			}
		}
	case Direct:
		for d := 1; d < b.Size; d++ {
			b.send(b.rank(-d), own, None)
			b.recv(b.rank(d), b.outBlock(b.rank(d)), None)
		}
	}
}

// blocks returns n blocks of Out from block first on, wrapping around the end of the buffer: one span, or two.
func (b *builder) blocks(first, n int) []Span {
	straight := min(n, b.Size-first)
	s := []Span{b.out(first*b.Count, straight*b.Count)}
	if n > straight {
		s = append(s, b.out(0, (n-straight)*b.Count))
	}
	return s
}

// reduceScatter gives rank r the sum of all ranks' block r. With blocks of N elements, every rank sends N(n-1)
// elements.
//
//   - Ring: n-1 consecutive messages (streaming). Block r is summed in the order of ranks r+1, r+2, … r;
//   - Direct: every rank sends each other rank its block, at once: one step. Block r is summed in the order of ranks r,
//     r+1, … r-1.
func (b *builder) reduceScatter(a Algorithm) {
	out := b.out(0, b.Count)
	if a == Direct {
		for d := 1; d < b.Size; d++ {
			p := b.rank(-d)
			b.send(p, b.inBlock(p), None)
		}
		acc, made := b.inBlock(b.Rank), None
		for d := 1; d < b.Size; d++ {
			made = b.recvReduce(b.rank(d), out, acc, made)
			acc = out
		}
		return
	}
	// Incoming data is summed into one slot of scratch while the other slot is being sent. With one slot, each rank
	// would wait for the next one to make room, around the whole ring.
	next, prev := b.rank(1), b.rank(-1)
	var slots [2]Span
	if b.Size > 2 {
		slots = [2]Span{b.tmp(b.Count), b.tmp(b.Count)}
	}
	sending := [2]int{None, None} // by slot: the step that sends it
	b.send(next, b.inBlock(prev), None)
	for s := 2; s < b.Size; s++ {
		block, slot := b.inBlock(b.rank(-s)), slots[s%2]
		got := b.recvReduceLeft(prev, slot, block, sending[s%2])
		sending[s%2] = b.send(next, slot, got)
	}
	b.recvReduceLeft(prev, out, b.inBlock(b.Rank), None)
}

// allToAll exchanges block p of rank r with block r of rank p, all at once. With blocks of N elements, every rank sends
// N(n-1) elements in n-1 messages.
func (b *builder) allToAll() {
	b.copy(b.outBlock(b.Rank), b.inBlock(b.Rank), None)
	for d := 1; d < b.Size; d++ {
		b.send(b.rank(-d), b.inBlock(b.rank(-d)), None)
		b.recv(b.rank(d), b.outBlock(b.rank(d)), None)
	}
}
