package logsink

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
)

const queueSize = 1024

// queue writes lines in a goroutine of its own, so that a caller never waits. A full queue drops them.
type queue struct {
	lines   chan func() // each writes a line
	dropped atomic.Uint64
	done    chan struct{} // closed when the goroutine has ended

	mu      sync.RWMutex    // held to read while a line is queued
	closing context.Context // ends with close, under mu
	shut    context.CancelFunc
}

func newQueue() *queue {
	q := &queue{lines: make(chan func(), queueSize), done: make(chan struct{})}
	q.closing, q.shut = context.WithCancel(context.Background())
	go q.run()
	return q
}

func (q *queue) run() {
	defer close(q.done)
	for {
		select {
		case write := <-q.lines:
			write()
		case <-q.closing.Done():
			for range len(q.lines) {
				(<-q.lines)()
			}
			return
		}
	}
}

// flush waits until the queued lines are written, or ctx ends.
func (q *queue) flush(ctx context.Context) error {
	flushed := make(chan struct{})
	select {
	case q.lines <- func() { close(flushed) }:
	case <-q.done:
	case <-ctx.Done():
	}
	return q.wait(ctx, flushed)
}

// close ends the queue when its lines are written, or ctx ends. Later lines are dropped.
func (q *queue) close(ctx context.Context) error {
	q.mu.Lock()
	q.shut()
	q.mu.Unlock()
	return q.wait(ctx, nil)
}

func (q *queue) wait(ctx context.Context, flushed <-chan struct{}) error {
	select {
	case <-flushed:
	case <-q.done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

type queuing struct {
	slog.Handler
	q *queue
}

// Handle implements slog.Handler. It never blocks.
func (h queuing) Handle(ctx context.Context, r slog.Record) error {
	ctx, r = context.WithoutCancel(ctx), r.Clone()
	h.q.mu.RLock()
	defer h.q.mu.RUnlock()
	if h.q.closing.Err() == nil {
		select {
		case h.q.lines <- func() { _ = h.Handler.Handle(ctx, r) }: // file counts lost lines
			return nil
		default:
		}
	}
	h.q.dropped.Add(1)
	return nil
}

func (h queuing) WithAttrs(attrs []slog.Attr) slog.Handler {
	return queuing{h.Handler.WithAttrs(attrs), h.q}
}

func (h queuing) WithGroup(name string) slog.Handler { return queuing{h.Handler.WithGroup(name), h.q} }
