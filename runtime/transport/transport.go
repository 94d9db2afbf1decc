package transport

import (
	"errors"

	"github.com/carillon-rt/carillon/lifecycle"
)

// ErrClosed is what a Conn answers after Close.
var ErrClosed = errors.New("connection is closed")

// Conn is one rank's end of the connection to one peer: a reliable, ordered stream of bytes each way, with flow
// control. It never blocks; who can't go on waits on the Doorbell that the Conn was made with, which the Conn rings
// when bytes arrive, when room becomes free, and when the peer is lost.
//
// TrySend and the pair Peek and Release are independent of each other. Each of the two may be used by one goroutine at a time.
//
// A stream is aligned: as long as the user sends and releases in multiples of 8 bytes, no naturally aligned
// element of up to 8 bytes is ever split over the end of a Peek window by the transport's own buffer. (TCP may still show a part of
// an element as the last bytes of a window, until the rest arrives.)
type Conn interface {
	// TrySend hands over as much of p as possible now and returns how many bytes of p the transport needs no more:
	// the caller may overwrite those, and those alone. When n < len(p), the caller goes on later with p[n:], the same
	// memory with the same contents: a transport may already have shown it to the peer without a copy. So p must not be
	// modified, nor another message begun, until all of it was taken, or Close returned.
	TrySend(p []byte) (n int, err error)

	// Peek returns the bytes that have arrived and were not released yet, as one contiguous window, or an empty one when there are
	// none now (or when only part of them is contiguous: the next Peek after a Release shows the rest). The memory belongs to the transport
	// (it may be the peer's own buffer) and stays as it is until Release. It must not be written.
	// After the peer is lost, Peek still returns what had arrived before, then the error.
	Peek() ([]byte, error)

	// Release gives the first n bytes of the last Peek back.
	Release(n int)

	// Notify tells the peer out of band, best effort and without blocking, that this rank gave up; the peer's
	// Doorbell gets PeerLost with a *NoticeError. Nothing can be sent after it.
	Notify(n Notice)

	// Close ends the connection. It waits until the peer is no longer reading from memory that this side had passed to TrySend,
	// so that the caller may reuse it. Idempotent.
	Close() error

	// Name is the transport's: "inproc", "shm", "tcp".
	Name() string
}

// Doorbell wakes a rank that waits for its connections. One is shared by all connections of a rank in one
// communicator. Its implementations are package transport's.
type Doorbell interface {
	// Ring wakes the waiter, now or at its next Wait. It never blocks, makes no system call unless the waiter sleeps, and does not allocate.
	Ring()
	// PeerLost says that the connection to peer is of no use any more, and why. The first cause per peer is kept. It rings.
	PeerLost(peer int, err error)
}

// Notice is what a rank tells the others when it gives up on a communicator.
type Notice struct {
	Code    lifecycle.Code // CodePeerAborted, CodeAbandoned, CodeMismatch, CodeRankDead, or CodeInternal
	Culprit int32          // the rank at fault, as far as the sender knows; -1 if none
	Seq     uint64         // sequence number of the operation in which the sender was
	Detail  string         // at most MaxDetail bytes, for people
}

// MaxDetail is the most bytes of a Notice's Detail that a transport must carry.
const MaxDetail = 400

// NoticeError is the error of a connection whose peer sent a Notice.
type NoticeError struct {
	Peer   int
	Notice Notice
}
