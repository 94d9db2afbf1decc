package engine

import (
	"context"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
)

// Kind is a kind of engines.
type Kind struct {
	Name string // on the tape
	// New makes the engine of a rank, on which no call runs.
	New func(*Comm) Engine
}

// Engine carries out the calls of one rank of a communicator, on one kind of memory. Its methods belong to one
// goroutine at a time: to the one whose turn it is on the communicator.
type Engine interface {
	// Begin begins one collective, or point-to-point operations all at the same time, which have passed Check and
	// CheckToSelf. It returns the algorithm of a collective, algo.Auto for anything else. It doesn't wait: what it posts
	// for the other ranks travels while the caller records the operation. Run must be called next; ops are the
	// caller's again when that returns.
	//
	// call is what the operations are called to the other ranks and in errors, which have its number, seq, too. Of a
	// collective that is the number by which the ranks know that they speak of the same one. It goes up with each, by
	// the same on all ranks.
	Begin(call lifecycle.Call, seq uint64, ops []Op) algo.Algorithm

	// Run carries out what Begin has begun. It returns when this rank's part in it is done: what is sent may be
	// overwritten, what is received is there. That all ranks have called the collective, and called the same, is then
	// certain; a send has been received.
	//
	// The error is Comm.Fail's: the communicator has stopped. It is
	//   - *lifecycle.PeerError with CodeMismatch when the ranks don't agree: no collective has written to a Recv;
	//   - *lifecycle.PeerError with the code of what befell a peer, also when another rank noticed it and told;
	//   - *lifecycle.PeerError with CodeTimeout or CodeCanceled when ctx ended, with the rank that was waited for;
	//   - what Interrupt or Abandon was given.
	Run(ctx context.Context) error

	// Close frees what the engine holds. No call may be running: Comm.Interrupt it first. The Comm is closed after it.
	// It may be called more than once.
	Close()
}

// DeviceKind makes engines for the memory of one device. All ranks of a communicator have one of a kind, or none has.
type DeviceKind interface {
	// Name is on the tape.
	Name() string
	// Open makes the engine of a rank; all ranks call it together, and ctx bounds it. With gather they tell each other
	// something, as often on each; its errors are Comm.Fail's. failed is called once, by any goroutine, when an
	// operation that was enqueued has ended with an error.
	Open(ctx context.Context, c *Comm, gather func(mine []byte) ([][]byte, error), failed func(error)) (Device, error)
}

// Device puts the calls of one rank of a communicator on streams of a device. Its methods belong to the goroutine whose
// turn it is on the communicator, but for Name, Check, Wait and Current.
type Device interface {
	// Name is the kind's, or that of the kind which carries the communicator in its place.
	Name() string

	// Check refuses buffers that the device can't reach, and streams that aren't its own.
	Check(op Op) error

	// Algorithm is Engine's.
	Algorithm(op *Op) algo.Algorithm

	// Enqueue puts one collective, or point-to-point operations all at the same time, which have passed Check and
	// CheckToSelf, on the stream of the first, and returns. Operations on one communicator are done in the order in
	// which they were enqueued, whatever their streams. number is that of the last kernel, for the tape; 0 if they are
	// captured in a graph. The error is Comm.Fail's.
	Enqueue(call lifecycle.Call, seq uint64, ops []Op) (number uint32, err error)

	// Wait blocks until all that was enqueued is done, the communicator has stopped, or ctx ends, and returns the error
	// of the two.
	Wait(ctx context.Context) error

	// Current is Comm.Current for what was enqueued: the oldest call that is not done.
	Current() (call lifecycle.Call, seq uint64, peer int, ok bool)

	// Close frees what the engine holds, once its kernels have ended; they leave early if the Comm has stopped. Then
	// kernels of other ranks that wait for this one give up, if they can be told. It is called once.
	Close()
}
