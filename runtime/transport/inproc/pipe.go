package inproc

import "sync/atomic"

const (
	// ringSize is the size of a direction's ring, a power of two. It is small, since only small messages go through it
	// and there may be many communicators.
	ringSize = 16 << 10
	// eagerMax is the longest message that is copied. Up to this length, a copy is cheaper than making the sender wait
	// until the receiver has read.
	eagerMax = 4 << 10
)

// line puts the following fields on other cache lines than the previous ones. Processors fetch lines in pairs.
type line [128]byte

// pipe is one direction of a connection. Positions count bytes since the beginning and never wrap.
//
// Invariants: head ≤ tail ≤ head+ringSize; loanHead ≤ loanTail; while loanHead < loanTail, tail does not move
// and loan is the memory that ends at loanTail. ring is set before tail leaves 0.
type pipe struct {
	_ line

	// Written by the sender.
	tail     atomic.Uint64 // end of the data in the ring
	loanTail atomic.Uint64 // end of the lent data
	ring     []byte
	loan     []byte
	revoked  atomic.Bool // the sender closed: lent memory must not be accessed any more

	confirmed atomic.Bool // the sender is connected to all ranks

	_ line

	// Written by the receiver.
	head     atomic.Uint64
	loanHead atomic.Uint64
	reading  atomic.Bool // the receiver may be reading lent memory

	_ line
}
