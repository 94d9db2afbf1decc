//go:build linux && cgo

package queue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/cuda"
)

const (
	// LeaveTime is how long a communicator that ends waits for its kernels. They leave within a millisecond, or within
	// half a second if a rank died while it accessed their buffers, unless earlier work on their stream takes longer.
	LeaveTime = 2 * time.Second
	// lookEvery is how often running operations are looked at; lookAtGraphs applies once graphs may launch kernels
	// unseen.
	lookEvery    = time.Millisecond
	lookAtGraphs = 10 * time.Millisecond
)

// A Pause is the growing interval between two looks.
type Pause struct {
	next   time.Duration
	waited time.Duration
}

// Wait waits until the next look.
func (p *Pause) Wait() {
	p.next = min(max(2*p.next, 20*time.Microsecond), lookEvery)
	time.Sleep(p.next)
	p.waited += p.next
}

// within polls done for up to LeaveTime, until it returns something other than cuda.ErrNotReady. It returns whether
// that result is nil.
func within(done func() error) bool {
	for p := (Pause{}); p.waited < LeaveTime; p.Wait() {
		if err := done(); !errors.Is(err, cuda.ErrNotReady) {
			return err == nil
		}
	}
	return false
}

// A watcher looks at what runs on the GPU, as long as something does. It makes kernels leave, and calls no driver for
// that: a thread that frees memory may block the driver until the kernels have left. Another goroutine asks the driver
// for what only the driver knows.
type watcher struct {
	on      atomic.Bool
	wake    chan struct{}
	ask     chan struct{}
	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup
	asking  sync.WaitGroup
}

func newWatcher() *watcher {
	w := &watcher{wake: make(chan struct{}, 1), ask: make(chan struct{}, 1)}
	w.ctx, w.end = context.WithCancel(context.Background())
	return w
}

// start tells the watcher that something runs.
func (w *watcher) start() {
	if !w.on.Load() && !w.on.Swap(true) {
		w.wake <- struct{}{}
	}
}

// stop ends the watcher's goroutine; the other goroutine may still be asking the driver.
func (w *watcher) stop() {
	w.end()
	w.running.Wait()
}

// watch is the watcher's goroutine.
func (q *Queue) watch() {
	w := q.watcher
	defer close(w.ask)
	defer q.Page.show()
	for {
		select {
		case <-w.wake:
		case <-w.ctx.Done():
			return
		}
		for p := (Pause{}); !q.quiet(); p.Wait() {
			if w.ctx.Err() != nil || q.look() {
				return
			}
			select {
			case w.ask <- struct{}{}:
			default:
			}
			if p.next == lookEvery && q.captured.Load() {
				time.Sleep(lookAtGraphs - lookEvery)
			}
		}
		q.Page.show()
		w.on.Store(false)
		if !q.quiet() {
			w.start()
		}
	}
}

// quiet reports whether there is nothing to look at.
func (q *Queue) quiet() bool { return q.idle() && !q.measure.launched.Load() }

// look looks once. It returns true when the communicator has stopped; it then makes what runs leave.
func (q *Queue) look() bool {
	q.graphs.look()
	q.Page.show()
	q.lookAtOverdue()
	err := q.comm.Stopped()
	if err == nil {
		if err = q.trouble(); err != nil {
			err = q.comm.Stop(err)
		}
	}
	if err == nil {
		return false
	}
	q.backend.Leave()
	q.endOverdue(lifecycle.CodeOf(err))
	q.graphs.fail(err)
	q.failed(err)
	return true
}

// trouble returns why what runs will never be done, or nil.
func (q *Queue) trouble() error {
	if err := q.backend.Trouble(); err != nil {
		return err
	}
	if lost := q.comm.FirstLost(); lost != nil {
		lost.Call, lost.Seq, _, _ = q.Current()
		return lost
	}
	return nil
}

// ask is the goroutine that asks the driver, each time the watcher has looked and the previous query has been answered.
func (q *Queue) ask() {
	for range q.watcher.ask {
		q.measure.look(q.comm.Tape)
		if err := q.fetch.look(q); err != nil && !errors.Is(err, cuda.ErrNotReady) {
			_ = q.comm.Stop(&lifecycle.SystemError{
				Code: lifecycle.CodeSystem, Op: "what was put on the GPU has failed", Err: err,
			})
		}
	}
}
