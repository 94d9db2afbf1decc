package node

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/telemetry/logsink"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// flushTimeout bounds what is done between SIGTERM and the end.
const flushTimeout = 2 * time.Second

// termination waits for SIGTERM. A program that doesn't handle it would die at once, with the spans and log lines of
// its last acts and errors still in the queues. They are written and exported, and then the signal does what it would
// have done.
type termination struct {
	signals chan os.Signal
	stop    chan struct{}
	done    chan struct{}
}

// awaitTermination is nil where SIGTERM is ignored, as it stays then.
func awaitTermination(t *Telemetry, r *JobRAS, logs *logsink.Sink) *termination {
	if signal.Ignored(syscall.SIGTERM) {
		return nil
	}
	w := &termination{signals: make(chan os.Signal, 1), stop: make(chan struct{}), done: make(chan struct{})}
	signal.Notify(w.signals, syscall.SIGTERM)
	go func() {
		defer close(w.done)
		select {
		case <-w.stop:
			signal.Stop(w.signals)
		case <-w.signals:
			ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
			left := make(chan struct{})
			go func() {
				defer close(left)
				r.farewell(ctx)
			}()
			t.terminate(ctx, logs)
			select {
			case <-left:
				_ = logs.Flush(ctx) // what it logged on its way; a collector that is away was told of
			case <-ctx.Done():
			}
			cancel()
			signal.Stop(w.signals)
			// To itself once more: without a handler it ends the process, and says so to whoever waits for it. A program that has a
			// handler of its own gets the signal twice.
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		}
	}()
	return w
}

// end stops waiting.
func (w *termination) end() {
	if w == nil {
		return
	}
	close(w.stop)
	<-w.done
}

// terminate exports what the process has done until now, spans and logs side by side.
func (t *Telemetry) terminate(ctx context.Context, logs *logsink.Sink) {
	if t.tape == nil {
		return
	}
	until := tape.Now()
	unread := t.follower.Sync(ctx)
	if unread != nil {
		t.log.Warn("SIGTERM: the tape was not read to its end", "error", unread)
	}
	t.observing.Lock()
	t.trace.Interrupt("SIGTERM comes", t.follower.Slots())
	t.observing.Unlock()
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		if err := logs.Flush(ctx); err != nil {
			t.log.Warn("SIGTERM: log records were not all written and exported", "error", err)
		}
	}()
	defer func() { <-flushed }()
	if err := t.trace.Flush(ctx); err != nil {
		t.log.Warn("SIGTERM: spans were not all exported", "error", err)
		return
	}
	if unread == nil && t.trace.Complete() {
		t.tape.Exported(until) // or the post-mortem would send them once more
	}
}
