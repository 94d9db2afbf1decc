package logsink

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
)

const queueSize = 1024

// queue hands records to a handler in a goroutine of its own, so that a caller never waits. A full one drops them.
type queue struct {
	records chan queued
	flushes chan chan struct{} // each is closed when what was queued is written
	dropped atomic.Uint64
	done    chan struct{} // closed when the goroutine has ended

	mu     sync.RWMutex // held to read while a record is queued
	closed bool
}

type queued struct {
	ctx    context.Context //nolint:containedctx // it goes to the handler with the record, as slog has it
	to     slog.Handler
	record slog.Record
}

func newQueue() *queue {
	q := &queue{records: make(chan queued, queueSize), flushes: make(chan chan struct{}), done: make(chan struct{})}
	go q.run()
	return q
}

func (q *queue) run() {
	defer close(q.done)
	for {
		select {
		case e, ok := <-q.records:
			if !ok {
				return
			}
			e.write()
		case flushed := <-q.flushes:
			for range len(q.records) {
				if e, ok := <-q.records; ok {
					e.write()
				}
			}
			close(flushed)
		}
	}
}

func (e *queued) write() {
	_ = e.to.Handle(e.ctx, e.record) // a line that can't be written has no other place
}

// flush waits until what is in the queue is written, or ctx ends.
func (q *queue) flush(ctx context.Context) error {
	flushed := make(chan struct{})
	select {
	case q.flushes <- flushed:
	case <-q.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-flushed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close ends the queue, once what is in it is written, or ctx ends. What is logged later is dropped.
func (q *queue) close(ctx context.Context) error {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.records)
	}
	q.mu.Unlock()
	select {
	case <-q.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type queuing struct {
	slog.Handler
	q *queue
}

// Handle implements slog.Handler. It never blocks.
func (h queuing) Handle(ctx context.Context, r slog.Record) error {
	h.q.mu.RLock()
	defer h.q.mu.RUnlock()
	if !h.q.closed {
		select {
		case h.q.records <- queued{context.WithoutCancel(ctx), h.Handler, r.Clone()}:
			return nil
		default:
		}
	}
	h.q.dropped.Add(1)
	return nil
}

// WithAttrs implements slog.Handler.
func (h queuing) WithAttrs(attrs []slog.Attr) slog.Handler {
	return queuing{h.Handler.WithAttrs(attrs), h.q}
}

// WithGroup implements slog.Handler.
func (h queuing) WithGroup(name string) slog.Handler { return queuing{h.Handler.WithGroup(name), h.q} }
