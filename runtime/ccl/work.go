package ccl

import (
	"context"
)

// Work is an operation, or a group of them, that runs in the background. Its buffers belong to it until it is done.
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

func (w *Work) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// Wait blocks until the operation is done, and returns its error, or until ctx ends, and returns ctx's; the operation
// goes on then.
func (w *Work) Wait(ctx context.Context) error {
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

// Done is closed when the operation has ended.
func (w *Work) Done() <-chan struct{} { return w.done }

// Err is the operation's error: ErrInProgress while it runs, nil when it ended well.
func (w *Work) Err() error {
	if w.ended() {
		return w.err
	}
	return ErrInProgress
}
