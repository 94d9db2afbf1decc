package transport

import "errors"

// ErrClosed is what a Conn answers after Close.
var ErrClosed = errors.New("connection is closed")

// Conn is one rank's end of the connection to one peer: a reliable, ordered stream of bytes each way, with flow
// control. It never blocks; a rank that can't go on waits on the Waiter that the Conn was made with, which the Conn
// rings when bytes arrive, when room becomes free, and when the peer is lost.
//
// TrySend and the pair Peek and Release are independent of each other. Each of the two may be used by one goroutine
// at a time. Notify and Close may be called by any goroutine at any time, while the others run, too.
//
// A stream is aligned: as long as the user sends and releases in multiples of 8 bytes, no naturally aligned
// element of up to 8 bytes is ever split over the end of a Peek window by the transport's own buffer. (TCP may still
// show a part of an element as the last bytes of a window, until the rest arrives.)
type Conn interface {
	// TrySend hands over as much of p as possible now and returns how many bytes of p the transport needs no more:
	// the caller may overwrite those, and those alone. When n < len(p), the caller goes on later with p[n:], the same
	// memory with the same contents: a transport may already have shown it to the peer without a copy. So p must not be
	// modified, nor another message begun, until all of it was taken, or Close returned. An empty p is always taken.
	TrySend(p []byte) (n int, err error)

	// Peek returns the bytes that have arrived and were not released yet, as one contiguous window, or an empty one
	// when there are none now (or when only part of them is contiguous: the next Peek after a Release shows the rest).
	// The memory belongs to the transport (it may be the peer's own buffer, or what Placer.Place was given) and stays
	// as it is until Release, the next Peek, or the rank's next Waiter.Idle, whichever comes first. It must not be
	// written. After the peer is lost, Peek still returns what had arrived before, then the error.
	Peek() ([]byte, error)

	// Release gives the first n bytes of the last Peek back; n may be 0.
	Release(n int)

	// Confirm tells the peer that this rank is connected with all others, and Confirmed whether the peer has said so.
	Confirm()
	Confirmed() bool

	// Notify tells the peer out of band, best effort and without blocking, that this rank gave up; the peer's
	// Waiter gets PeerLost with a *NoticeError. Nothing can be sent after it. Only the first Notify counts.
	Notify(n Notice)

	// Close ends the connection. It waits until the peer no longer reads memory that TrySend was given. Idempotent.
	Close() error

	// Name is the transport's: "inproc", "shm", "tcp".
	Name() string
}

// Placer is a Conn that can write what arrives where it is wanted, which saves a copy.
type Placer interface {
	// Place gives the memory for the next len(p) bytes, whole words, from the first that was not released. What has not
	// arrived yet is written there, and Peek shows it there. The memory is the transport's until all of p was released,
	// or until the next Place; Place(nil) gives none. Peek must not be called again if the next Place came before what
	// had arrived in p was released. Place waits for a read into the memory that is under way, as does the Release of
	// the last of p. It belongs to the goroutine that uses Peek and Release.
	Place(p []byte)
}
