package engine

import (
	"context"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/algo"
)

// Kind describes one implementation of Engine.
type Kind struct {
	Name string // on the tape
	// New makes the engine of a rank. No call runs on that rank meanwhile.
	New func(*Comm) Engine
}

// Engine carries out the calls of one rank of a communicator, on one kind of memory. Its methods may only be called by
// the goroutine whose turn it is on the communicator.
type Engine interface {
	// Begin begins one collective, or a set of concurrent point-to-point operations, which have passed Check and
	// CheckToSelf. It returns the algorithm of a collective, and algo.Auto for anything else. It doesn't wait: what it
	// posts for the other ranks travels while the caller records the operation. Run must be called next. The engine
	// uses ops until Run returns.
	//
	// call and seq identify the operations to the other ranks and in errors. For a collective, seq is the number by
	// which the ranks recognize the same collective. It increases with each collective, by the same amount on all
	// ranks.
	Begin(call lifecycle.Call, seq uint64, ops []Op) algo.Algorithm

	// Run carries out what Begin has begun. It returns when this rank's part is done: what it sends may be overwritten,
	// and what it receives has arrived. By then all ranks have called the same collective, and a send has been
	// received.
	//
	// The error comes from Comm.Fail: the communicator has stopped. It is
	//   - *lifecycle.PeerError with CodeMismatch when the ranks' calls differ: no collective has written to a Recv;
	//   - *lifecycle.PeerError with the code of what happened to a peer, also when another rank noticed and reported
	//     it;
	//   - *lifecycle.PeerError with CodeTimeout or CodeCanceled when ctx ended, with the rank that was waited for;
	//   - the error that Interrupt or Abandon was given.
	Run(ctx context.Context) error

	// Close frees what the engine holds. No call may be running: call Comm.Interrupt first. The Comm is closed after
	// the engine. Close may be called more than once.
	Close()
}

// DeviceKind makes engines for the memory of one device. All ranks of a communicator have the same kind, or none has
// one.
type DeviceKind interface {
	// Name is the kind's name on the tape.
	Name() string
	// Open makes the engine of a rank. All ranks call it together, and ctx bounds it. They exchange data with gather,
	// which each rank must call the same number of times; its errors come from Comm.Fail. failed is called once, by any
	// goroutine, when an enqueued operation has ended with an error.
	Open(ctx context.Context, c *Comm, gather func(mine []byte) ([][]byte, error), failed func(error)) (Device, error)
}

// Device enqueues the calls of one rank of a communicator on streams of a device. Its methods may only be called by the
// goroutine whose turn it is on the communicator, except Name, Check, Wait and Current.
type Device interface {
	// Name returns the kind's name, or the name of the fallback kind that carries the communicator instead.
	Name() string

	// Check rejects buffers that the device can't access, and streams of other devices.
	Check(op Op) error

	// Algorithm returns the algorithm of an operation, as Engine.Begin does.
	Algorithm(op *Op) algo.Algorithm

	// Enqueue puts one collective, or a set of concurrent point-to-point operations, which have passed Check and
	// CheckToSelf, on the stream of the first, and returns. Operations of one communicator run in the order in which
	// they were enqueued, whatever their streams. number is that of the last kernel, for the tape, or 0 if the
	// operations are captured in a graph. The error comes from Comm.Fail.
	Enqueue(call lifecycle.Call, seq uint64, ops []Op) (number uint32, err error)

	// Wait blocks until everything enqueued is done, the communicator has stopped, or ctx ends. In the last two cases
	// it returns the error.
	Wait(ctx context.Context) error

	// Current is Comm.Current for enqueued operations: it returns the oldest call that is not done.
	Current() (call lifecycle.Call, seq uint64, peer int, ok bool)

	// Close frees what the engine holds once its kernels have ended; they leave early if the Comm has stopped. Kernels
	// of other ranks that wait for this rank then give up, if they can be told. It is called once.
	Close()
}
