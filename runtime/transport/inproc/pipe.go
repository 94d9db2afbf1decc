package inproc

import "sync/atomic"

const (
	// ringSize is the size of a direction's ring, a power of two. It is small, since only small messages go
	// through it, and communicators may be many.
	ringSize = 16 << 10
	// eagerMax is the longest message that is copied. Up to there a copy is cheaper than to have the sender
	// wait until the receiver has read.
	eagerMax = 4 << 10
)

// line keeps what follows it off the cache line (and the one that the processor fetches with it) of what precedes it.
type line [128]byte

// pipe is one direction of a connection. Positions count bytes since the beginning and never wrap.
//
// Invariants: head ≤ tail ≤ head+ringSize; loanHead ≤ loanTail; while loanHead < loanTail, tail does not move
// and loan is the memory that ends at loanTail. ring is set before tail leaves 0.
type pipe struct {
	_ line

	// Written by the sender.
	tail     atomic.Uint64 // end of what is in the ring
	loanTail atomic.Uint64 // end of what is lent
	ring     []byte
	loan     []byte
	revoked  atomic.Bool // the sender closed: nothing lent may be touched any more

	confirmed atomic.Bool // the sender is connected with all

	_ line

	// Written by the receiver.
	head     atomic.Uint64
	loanHead atomic.Uint64
	reading  atomic.Bool // the receiver may be reading lent memory

	_ line
}
