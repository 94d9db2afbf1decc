package algo

import "math/bits"

// builder collects the steps of a plan. Its step methods return the new step's index, or None if the spans are empty:
// an empty message is not sent, and the peer's planner, which knows the same lengths, does not expect it.
type builder struct {
	Request
	steps   []Step
	scratch int
}

func (b *builder) add(s Step) int {
	if s.Len() == 0 {
		return None
	}
	b.steps = append(b.steps, s)
	return len(b.steps) - 1
}

func (b *builder) send(peer int, src Span, after int) int {
	return b.add(Step{Kind: StepSend, Peer: peer, Src: src, After: after})
}

func (b *builder) recv(peer int, dst Span, after int) int {
	return b.add(Step{Kind: StepRecv, Peer: peer, Dst: dst, After: after})
}

// recvReduce makes dst = src op incoming.
func (b *builder) recvReduce(peer int, dst, src Span, after int) int {
	return b.add(Step{Kind: StepRecvReduce, Peer: peer, Dst: dst, Src: src, After: after})
}

// recvReduceLeft makes dst = incoming op src.
func (b *builder) recvReduceLeft(peer int, dst, src Span, after int) int {
	return b.add(Step{Kind: StepRecvReduce, Peer: peer, Dst: dst, Src: src, IncomingFirst: true, After: after})
}

func (b *builder) copy(dst, src Span, after int) int {
	return b.add(Step{Kind: StepCopy, Dst: dst, Src: src, After: after})
}

func (b *builder) reduce(dst, src, src2 Span, after int) int {
	return b.add(Step{Kind: StepReduce, Dst: dst, Src: src, Src2: src2, After: after})
}

// wait makes step start only after the steps of r. Either may be empty.
func (b *builder) wait(step int, r Range) {
	if step != None {
		b.steps[step].Wait = r
	}
}

// one returns the range of a single step, or of none.
func one(step int) Range {
	if step == None {
		return Range{}
	}
	return Range{step, step + 1}
}

func (b *builder) in(off, n int) Span  { return Span{In, off, n} }
func (b *builder) out(off, n int) Span { return Span{Out, off, n} }

// tmp takes n elements of scratch.
func (b *builder) tmp(n int) Span {
	b.scratch += n
	return Span{Tmp, b.scratch - n, n}
}

// inBlock and outBlock return rank i's block of a buffer of Size blocks of Count.
func (b *builder) inBlock(i int) Span  { return b.in(i*b.Count, b.Count) }
func (b *builder) outBlock(i int) Span { return b.out(i*b.Count, b.Count) }

// chunkAlign is the number of elements of which large chunks are a multiple, so that they start on cache lines.
const chunkAlign = 64

// chunk returns part i of Count elements in Size parts that are as equal as alignment allows.
func (b *builder) chunk(buf Buffer, i int) Span {
	start, end := b.chunkStart(i), b.chunkStart(i+1)
	return Span{buf, start, end - start}
}

func (b *builder) chunkStart(i int) int {
	if i == b.Size {
		return b.Count
	}
	// Count / Size first: Count * i might overflow.
	start := b.Count/b.Size*i + b.Count%b.Size*i/b.Size
	if b.Count >= 4*chunkAlign*b.Size {
		start &^= chunkAlign - 1
	}
	return start
}

// rank returns the rank at distance d from this one, around the ring.
func (b *builder) rank(d int) int { return mod(b.Rank+d, b.Size) }

func mod(a, n int) int { return ((a % n) + n) % n }

// A binomial tree over relative ranks v, with its root at 0: the parent of v is v without its lowest bit, and its
// children are v+1, v+2, v+4 … below that bit. The subtree of v has the relative ranks from v up to, but not including,
// v plus that bit.

// relative returns this rank's place in a tree with its root at Root; absolute is the inverse.
func (b *builder) relative() int      { return mod(b.Rank-b.Root, b.Size) }
func (b *builder) absolute(v int) int { return (v + b.Root) % b.Size }

func parent(v int) int { return v & (v - 1) }

// children returns the children of v, nearest first.
func children(v, size int) []int {
	var c []int
	for bit := 1; bit < lowBit(v, size) && v+bit < size; bit <<= 1 {
		c = append(c, v+bit)
	}
	return c
}

// lowBit returns v's lowest bit; for the root, the first power of two that is not below size.
func lowBit(v, size int) int {
	if v == 0 {
		return 1 << bits.Len(uint(size-1))
	}
	return v & -v
}
