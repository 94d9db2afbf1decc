package ccl

import (
	"context"

	"github.com/carillon-rt/carillon/lifecycle"
)

// Work is an operation, or a group of operations, that runs in the background. It owns its buffers until it is done. A
// nil or zero Work has no operation: its error is a UsageError.
type Work struct {
	done chan struct{}
	err  error // written before done is closed
}

func newWork() *Work { return &Work{done: make(chan struct{})} }

func failedWork(err error) *Work {
	w := newWork()
	w.finish(err)
	return w
}

func (w *Work) finish(err error) {
	w.err = err
	close(w.done)
}

// absent reports whether there is no operation.
func (w *Work) absent() bool { return w == nil || w.done == nil }

func nilWork() error {
	return noHandle(lifecycle.CallNone,
		"there is no operation: the Work is nil or zero; the calls that begin with I make one")
}

func (w *Work) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// Wait blocks until the operation is done, and returns its error, or until ctx ends, and returns ctx's error; the
// operation then continues. An operation of a group begins when the group ends: to wait for it inside of the group's
// function blocks until ctx ends.
func (w *Work) Wait(ctx context.Context) error {
	if w.absent() {
		return nilWork()
	}
	if w.ended() {
		return w.err
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done returns a channel that is closed when the operation has ended.
func (w *Work) Done() <-chan struct{} {
	if w.absent() {
		return failedWork(nilWork()).done
	}
	return w.done
}

// Err returns the operation's error: ErrInProgress while it runs, nil if it succeeded.
func (w *Work) Err() error {
	if w.absent() {
		return nilWork()
	}
	if w.ended() {
		return w.err
	}
	return ErrInProgress
}
