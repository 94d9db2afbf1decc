package transport

import "errors"

// ErrClosed is the error of a Conn after Close.
var ErrClosed = errors.New("connection is closed")

// Conn is one rank's end of the connection to one peer: a reliable, ordered stream of bytes each way, with flow
// control. It never blocks. A rank that can't make progress waits on the Waiter that the Conn was made with; the Conn
// rings it when bytes arrive, when room becomes free, and when the peer is lost.
//
// TrySend on the one hand, and Peek and Release on the other, are independent: each side may be used by one goroutine
// at a time. Notify and Close may be called from any goroutine at any time, even while the others run.
//
// A stream is aligned: as long as the user sends and releases in multiples of 8 bytes, no naturally aligned
// element of up to 8 bytes is ever split over the end of a Peek window by the transport's own buffer. (TCP may still
// show a part of an element as the last bytes of a window, until the rest arrives.)
type Conn interface {
	// TrySend hands over as much of p as possible now and returns how many bytes of p the transport no longer needs:
	// the caller may overwrite those, and only those. When n < len(p), the caller must continue later with p[n:], the
	// same memory with the same contents: a transport may already have shown it to the peer without a copy. So p must
	// not be modified, and no other message begun, until all of it was taken or Close has returned. An empty p is
	// always taken.
	TrySend(p []byte) (n int, err error)

	// Peek returns the bytes that have arrived and were not released yet, as one contiguous window. The window is empty
	// when there are none now. It may be only a part of them if they are not contiguous: the next Peek after a Release
	// shows the rest. The memory belongs to the transport (it may be the peer's own buffer, or the memory given to
	// Placer.Place) and stays unchanged until Release, the next Peek, or the rank's next Waiter.Idle, whichever comes
	// first. It must not be written. After the peer is lost, Peek still returns what had arrived before, then the
	// error.
	Peek() ([]byte, error)

	// Release returns the first n bytes of the last Peek to the transport; n may be 0.
	Release(n int)

	// Confirm tells the peer that this rank is connected to all others. Confirmed reports whether the peer has said so.
	Confirm()
	Confirmed() bool

	// Notify tells the peer out of band, best effort and without blocking, that this rank gave up; the peer's Waiter
	// gets PeerLost with a *NoticeError. Nothing can be sent after it. Only the first Notify has an effect.
	Notify(n Notice)

	// Close ends the connection. It waits until the peer no longer reads memory that TrySend was given. Idempotent.
	Close() error

	// Name returns the name of the transport: "inproc", "shm", "tcp".
	Name() string
}

// Placer is a Conn that can write arriving data directly to its destination, which saves a copy.
type Placer interface {
	// Place supplies the memory for the next len(p) bytes, whole words, counted from the first byte that was not
	// released. Bytes that have not arrived yet are written there, and Peek shows them there. The transport owns the
	// memory until all of p was released or until the next Place; Place(nil) supplies none. If the next Place comes
	// before all that had arrived in p was released, Peek must not be called again. Place waits for a read into the
	// memory that is under way, and so does the Release of the last of p. Only the goroutine that uses Peek and Release
	// may call Place.
	Place(p []byte)
}
