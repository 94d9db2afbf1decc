package algo

import "github.com/carillon-rt/carillon/lifecycle"

// The most bytes that a rank posts if the tuning may choose: above that, other algorithms are faster. In a one-shot
// all-reduce, each rank reads all data; a second shot saves nothing between two ranks. BenchmarkAllReduceBy of package
// host compares them.
const (
	oneShotLimit       = 16 << 10
	oneShotReduceLimit = 2 << 10
	twoShotLimit       = 1 << 20
)

// postAlgorithm returns the algorithm with posts that suits a call, or Auto if there is none.
func (r *Request) postAlgorithm() Algorithm {
	limit := oneShotLimit
	if r.Call == lifecycle.CallAllReduce {
		limit = oneShotReduceLimit
	}
	switch n := r.input(); {
	case n <= limit && r.canPost(OneShot):
		return OneShot
	case n <= twoShotLimit && r.Size > 2 && r.canPost(TwoShot):
		return TwoShot
	}
	return Auto
}

// canPost reports whether the ranks can do a call by an algorithm with posts: each rank's input fits into its post and,
// in two rounds, each rank has something to post.
func (r *Request) canPost(a Algorithm) bool {
	return r.Board > 0 && r.input() <= r.Board &&
		(a == OneShot || r.Call == lifecycle.CallAllReduce && r.Count >= r.Size)
}

// input returns the largest input of a rank, in bytes.
func (r *Request) input() int {
	switch r.Call { //nolint:exhaustive // of all others it is Count
	case lifecycle.CallReduceScatter, lifecycle.CallAllToAll, lifecycle.CallScatter:
		return r.Bytes() * r.Size
	case lifecycle.CallBarrier:
		return 0
	}
	return r.Bytes()
}

// oneShot makes every rank read its part of all posts, including its own, as Out may be In. No rank sends anything.
// Posts are combined in rank order.
func (b *builder) oneShot() {
	root := b.Rank == b.Root
	switch b.Call { //nolint:exhaustive // validated: one of For's calls
	case lifecycle.CallAllReduce:
		b.combinePosts(b.out(0, b.Count), 0)
	case lifecycle.CallReduce:
		if root {
			b.combinePosts(b.out(0, b.Count), 0)
		}
	case lifecycle.CallReduceScatter:
		b.combinePosts(b.out(0, b.Count), b.Rank*b.Count)
	case lifecycle.CallBroadcast:
		b.readPost(b.out(0, b.Count), b.Root, 0)
	case lifecycle.CallScatter:
		b.readPost(b.out(0, b.Count), b.Root, b.Rank*b.Count)
	case lifecycle.CallAllGather, lifecycle.CallGather:
		for p := range b.Size {
			if root || b.Call == lifecycle.CallAllGather {
				b.readPost(b.outBlock(p), p, 0)
			}
		}
	case lifecycle.CallAllToAll:
		for p := range b.Size {
			b.readPost(b.outBlock(p), p, b.Rank*b.Count)
		}
	}
}

// twoShot is an all-reduce in which each rank combines one chunk of all posts, and posts the result for the others.
func (b *builder) twoShot() {
	own := b.chunk(Out, b.Rank)
	made := b.combinePosts(own, own.Off)
	b.wait(b.add(Step{Kind: StepPost, Round: 1, Src: own, After: None}), one(made))
	for d := 1; d < b.Size; d++ {
		p := b.rank(d)
		chunk := b.chunk(Out, p)
		b.add(Step{Kind: StepCopy, Peer: p, Round: 1, Dst: chunk, Src: Span{Posted, 0, chunk.Len}, After: None})
	}
}

// combinePosts combines all posts, from off on, into dst. Ranks 0 and 1 combine their own input directly with each
// other's post.
func (b *builder) combinePosts(dst Span, off int) int {
	posted, own := Span{Posted, off, dst.Len}, Span{In, off, dst.Len}
	next, first := 2, Step{Kind: StepReduce, Peer: 1 - b.Rank, Dst: dst, Src: own, Src2: posted, After: None}
	if b.Rank == 1 {
		first.Src, first.Src2 = posted, own
	}
	if b.Rank > 1 || b.Size == 1 {
		next, first = 1, Step{Kind: StepCopy, Dst: dst, Src: posted, After: None}
	}
	made := b.add(first)
	for p := next; p < b.Size; p++ {
		made = b.add(Step{Kind: StepReduce, Peer: p, Dst: dst, Src: dst, Src2: posted, After: made})
	}
	return made
}

func (b *builder) readPost(dst Span, peer, off int) {
	b.add(Step{Kind: StepCopy, Peer: peer, Dst: dst, Src: Span{Posted, off, dst.Len}, After: None})
}
