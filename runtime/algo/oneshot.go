package algo

import "github.com/carillon-rt/carillon/lifecycle"

// oneShotLimit is the most that a rank posts, in bytes, where the tuning has a choice: above, the other algorithms are
// faster. BenchmarkAllReduceBy of package host compares them.
const oneShotLimit = 16 << 10

// posts says whether the ranks can do a call in one shot: what each of them puts in fits into its post.
func (r *Request) posts() bool { return r.Board > 0 && r.input() <= r.Board }

// input is the most that one rank puts in, in bytes.
func (r *Request) input() int {
	switch r.Call { //nolint:exhaustive // of all others it is Count
	case lifecycle.CallReduceScatter, lifecycle.CallAllToAll, lifecycle.CallScatter:
		return r.Bytes() * r.Size
	case lifecycle.CallBarrier:
		return 0
	}
	return r.Bytes()
}

// oneShot has every rank read what it needs of what all have posted, its own part too, as in place Out may be In. No
// rank sends anything. What is combined is combined in the order of the ranks.
func (b *builder) oneShot() {
	root := b.Rank == b.Root
	switch b.Call { //nolint:exhaustive // validated: one of For's calls
	case lifecycle.CallAllReduce:
		b.combinePosts(0)
	case lifecycle.CallReduce:
		if root {
			b.combinePosts(0)
		}
	case lifecycle.CallReduceScatter:
		b.combinePosts(b.Rank * b.Count)
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

// combinePosts leaves in Out the combination of the Count elements from off on of all posts.
func (b *builder) combinePosts(off int) {
	out := b.out(0, b.Count)
	made := b.readPost(out, 0, off)
	for p := 1; p < b.Size; p++ {
		made = b.add(Step{Kind: StepReduce, Peer: p, Dst: out, Src: out, Src2: Span{Posted, off, b.Count}, After: made})
	}
}

func (b *builder) readPost(dst Span, peer, off int) int {
	return b.add(Step{Kind: StepCopy, Peer: peer, Dst: dst, Src: Span{Posted, off, dst.Len}, After: None})
}
