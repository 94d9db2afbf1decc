package node

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/carillon-rt/carillon/telemetry/logsink"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// flushTimeout bounds the export between SIGTERM and the end.
const flushTimeout = 2 * time.Second

// awaitTermination waits for SIGTERM, until end is called. A program that doesn't handle it would die at once, with the
// spans and log lines of its last acts and errors still in the queues. They are written and exported, and then the
// signal is sent again, without the handler. If SIGTERM is ignored, it stays ignored.
func (n *Node) awaitTermination() (end func()) {
	if signal.Ignored(syscall.SIGTERM) {
		return func() {}
	}
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	unhandle := afterwards(told, func() {
		n.terminate()
		stop()
		// Once more to itself: without a handler it ends the process, and the parent sees the signal. A program that
		// has a handler of its own gets the signal twice.
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	})
	return func() {
		unhandle()
		stop()
	}
}

// awaitSignal notes that the program is told to end by a signal that it handles itself, if ctx is one of
// signal.NotifyContext, until end is called.
func (n *Node) awaitSignal(ctx context.Context) (end func()) {
	return afterwards(ctx, func() {
		cause := context.Cause(ctx)
		if !strings.HasSuffix(cause.Error(), received) {
			return // the program has ended ctx
		}
		n.ras.ending()
		if cause.Error() == syscall.SIGTERM.String()+received {
			n.telemetry.terminated(tape.Now())
		}
	})
}

// afterwards calls f once ctx has ended, unless end is called before. end waits for f to return if it was called.
func afterwards(ctx context.Context, f func()) (end func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		f()
	})
	return func() {
		if !stop() {
			<-done
		}
	}
}

// received ends the cause of a context that signal.NotifyContext has canceled. It begins with the signal's name.
const received = " signal received"

// terminated notes when the process was told to end by SIGTERM.
func (t *Telemetry) terminated(at int64) {
	if t.own != nil {
		t.own.Terminated(at)
	}
}

// terminate exports what the process has done so far, and tells the job's other processes that it ends.
func (n *Node) terminate() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	n.ras.ending()
	left := make(chan struct{})
	go func() {
		defer close(left)
		n.ras.announceEnd(ctx)
	}()
	n.telemetry.terminate(ctx, n.settings.sink)
	select {
	case <-left:
		_ = n.settings.sink.Flush(ctx) // lines logged meanwhile; an unreachable collector was reported
	case <-ctx.Done():
	}
}

// terminate exports what the process has done so far, spans and logs in parallel.
func (t *Telemetry) terminate(ctx context.Context, logs *logsink.Sink) {
	if t.tape == nil {
		return
	}
	until := tape.Now()
	t.terminated(until)
	unread := t.follower.Sync(ctx)
	if unread != nil {
		t.settings.Log.Warn("SIGTERM: the tape was not read to its end", "error", unread)
	}
	t.observing.Lock()
	t.process.Look(t.follower.Slots(), nil)
	t.trace.Interrupt("SIGTERM comes")
	t.observing.Unlock()
	var flushing sync.WaitGroup
	defer flushing.Wait()
	flushing.Go(func() {
		if err := logs.Flush(ctx); err != nil {
			t.settings.Log.Warn("SIGTERM: log records were not all written and exported", "error", err)
		}
	})
	if err := t.trace.Flush(ctx); err != nil {
		t.settings.Log.Warn("SIGTERM: spans were not all exported", "error", err)
		return
	}
	if unread == nil && t.trace.Complete() {
		t.own.Exported(until) // else the post-mortem would send them once more
	}
}
