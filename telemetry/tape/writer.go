package tape

import (
	"errors"

	"github.com/carillon-rt/carillon/lifecycle"
)

// Writer is one process's tape. A nil *Writer is the tape switched off: every method is a no-op.
type Writer struct{ path string }

// Create makes the process's tape.
func Create(cfg Config) (*Writer, error) { return nil, errors.New("tape: not on this branch yet") }

// Path is the file's name; empty for a nil Writer.
func (w *Writer) Path() string { return "" }

// Close marks the tape as closed cleanly.
func (w *Writer) Close() error { return nil }

// Comm takes a slot of the in-flight table for a communicator.
func (w *Writer) Comm(info CommInfo) *CommWriter { return nil }

// CommWriter writes what one communicator does. A nil *CommWriter is the tape switched off: every method is a no-op.
//
// Start, Phase, Wait and End come from one goroutine at a time; the others from any goroutine at any time.
type CommWriter struct{}

// Describe adds what became known about the communicator since Comm.
func (c *CommWriter) Describe(info CommInfo) {}

// State puts the communicator's state into its slot.
func (c *CommWriter) State(s lifecycle.State) {}

// Life writes one moment of an act.
func (c *CommWriter) Life(r LifeRecord) {}

// Start launches the communicator's next operation and returns its number, from 1. A nil CommWriter returns 0: who
// needs the number with the tape off counts on its own.
func (c *CommWriter) Start(sig Signature, algorithm uint8) uint64 { return 0 }

// Phase says that the oldest operation in flight went into another phase.
func (c *CommWriter) Phase(p Phase) {}

// Wait says which rank the oldest operation in flight waits for, -1 for none.
func (c *CommWriter) Wait(peer int32) {}

// End says that an operation ended, and how.
func (c *CommWriter) End(seq uint64, code lifecycle.Code) {}

// Close frees the communicator's slot.
func (c *CommWriter) Close() {}
