//go:build linux && cgo

package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/cuda"
	"github.com/carillon-rt/carillon/runtime/engine"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// A Backend is the engine that puts operations on streams.
type Backend interface {
	// Put puts one collective, or point-to-point operations all at the same time, on the stream of the first, and Adds
	// its launches unless the stream is captured. After an error a part may be on the stream that is not counted: it
	// leaves.
	Put(call lifecycle.Call, seq uint64, ops []engine.Op, captured bool) error
	// Trouble is why an operation that was put on a stream will never be done; nil if the backend knows of nothing.
	Trouble() error
	// Leave has operations that run, and those launched from now on, end early, and doesn't wait for that. Any
	// goroutine may call it, any number of times.
	Leave()
}

// A Queue is what one rank of a communicator has put on streams. Check, Wait, Current and Trouble may be called by any
// goroutine; all other methods belong to the goroutine whose turn it is on the communicator.
type Queue struct {
	Page  *Page        // for the kernels of no graph; see Start
	Side  *cuda.Stream // a stream of the queue's own, on which nothing waits
	Fence *cuda.Event  // for the order of streams

	comm    *engine.Comm
	context *cuda.Context
	backend Backend
	failed  func(error)

	mu       sync.Mutex   // guards last
	last     *cuda.Stream // on which something was enqueued last
	captured atomic.Bool  // something was enqueued on a stream that was captured: it may be launched at any time
	launched atomic.Uint32
	graphs   graphs
	fetch    fetching
	measure  measuring
	overdue  overdue
	watcher  *watcher

	recentMu sync.Mutex   // guards recent
	recent   [1024]recent // by launch

	left    bool         // Left has answered that memory is unused
	reading sync.RWMutex // held by whoever reads pages and may do so after Close
	freed   bool         // they are gone; guarded by reading
}

// recent is what a launch was for.
type recent struct {
	launch uint32
	call   lifecycle.Call
	seq    uint64
	bytes  int
	op     tape.Launched
}

// New makes the queue of a rank. failed is engine.DeviceKind.Open's.
func New(comm *engine.Comm, c *cuda.Context, failed func(error)) (q *Queue, err error) {
	q = &Queue{comm: comm, context: c, failed: failed, watcher: newWatcher()}
	if q.Page, err = newPage(c, comm.Tape); err == nil {
		q.graphs.page, err = newPage(c, nil)
	}
	if err == nil {
		q.fetch.page, err = newPage(c, nil)
	}
	if err == nil {
		q.Side, err = c.Stream(0)
	}
	if err == nil {
		q.Fence, err = c.Event(false)
	}
	if err == nil {
		err = q.measure.open(c)
	}
	if err != nil {
		q.Free()
		return nil, err
	}
	return q, nil
}

// Start has the queue watched until Left. words is where in the GPU's memory kernels that don't tell the page that they
// are done say so, in the page's format; 0 if all tell the page.
func (q *Queue) Start(b Backend, words cuda.Pointer) {
	q.backend, q.fetch.words = b, words
	q.watcher.running.Go(q.watch)
	q.watcher.asking.Go(q.ask)
}

// Watch has the queue looked at already while a captured call, which has its order, waits for other ranks. Of calls
// that aren't captured there is nothing to look at before they are enqueued.
func (q *Queue) Watch() { q.watcher.start() }

// Enqueue is engine.Device's.
func (q *Queue) Enqueue(call lifecycle.Call, seq uint64, ops []engine.Op) (number uint32, err error) {
	if err := q.comm.Stopped(); err != nil {
		return 0, err
	}
	captured, err := q.order(ops[0].Stream)
	if err == nil {
		err = q.backend.Put(call, seq, ops, captured)
	}
	q.watcher.start()
	switch {
	case err == nil && captured:
		return 0, nil
	case err == nil:
		q.measure.end(q.comm.Tape, q.last)
		return q.launched.Load(), nil
	}
	defer q.backend.Leave()
	return 0, q.comm.Stop(&lifecycle.SystemError{
		Code: lifecycle.CodeSystem, Op: fmt.Sprintf("put %s number %d on a stream", call, seq), Err: err,
	})
}

// order has a stream wait for what was enqueued on another one. What is captured is not ordered against what isn't: the
// caller decides when it is launched.
func (q *Queue) order(s *cuda.Stream) (captured bool, err error) {
	if captured, err = s.Capturing(); err != nil {
		return false, err
	}
	if captured {
		q.captured.Store(true)
		return true, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last != nil && q.last.Handle() != s.Handle() {
		if err := q.mark(q.Fence); err != nil {
			return false, err
		}
		if err := s.Wait(q.Fence); err != nil {
			return false, err
		}
	}
	q.last = s
	q.measure.begin(q.comm.Tape, s)
	return false, nil
}

// After has a stream wait for what is on another one now.
func (q *Queue) After(s, other *cuda.Stream) error {
	if s.Handle() == other.Handle() {
		return nil
	}
	return errors.Join(q.Fence.Record(other), s.Wait(q.Fence))
}

// Next is the number of the next launch that is not captured.
func (q *Queue) Next() uint32 { return q.launched.Load() + 1 }

// tellEvery is of how many launches one tells the page that it is done. The tape has room for 32 that aren't known to
// be done (see tape.CommWriter.Launched), and looks at the page for every 16th.
const tellEvery = 8

// Tells tells whether the next launch should tell the page that it is done.
func (q *Queue) Tells() bool { return q.Next()%tellEvery == 0 }

// Add counts a launch that is not captured. Its number is what the GPU writes when it is done.
func (q *Queue) Add(call lifecycle.Call, seq uint64, bytes int) (number uint32) {
	number = q.Next()
	q.recentMu.Lock()
	q.recent[number%uint32(len(q.recent))] = recent{number, call, seq, bytes, q.comm.Tape.Last()}
	q.recentMu.Unlock()
	q.launched.Store(number)
	return number
}

// find returns what a launch was for, if it is known.
func (q *Queue) find(number uint32) (r recent, ok bool) {
	q.recentMu.Lock()
	defer q.recentMu.Unlock()
	r = q.recent[number%uint32(len(q.recent))]
	return r, number != 0 && r.launch == number
}

// mark records an event behind all that was enqueued but by graphs. That words say that it is done doesn't do: kernels
// end after that, and what they wrote is seen by others then. The caller holds the mutex.
func (q *Queue) mark(e *cuda.Event) error {
	if q.last.Destroyed() {
		return q.context.Synchronize()
	}
	return e.Record(q.last)
}

// idle tells whether all is known to be done that was enqueued, and no graph may launch more.
func (q *Queue) idle() bool { return !q.captured.Load() && q.Page.Done() == q.launched.Load() }

// Wait is engine.Device's.
func (q *Queue) Wait(ctx context.Context) (err error) {
	q.mu.Lock()
	none := q.last == nil
	q.mu.Unlock()
	if none {
		return nil
	}
	e, err := q.context.Event(false)
	if err == nil {
		defer e.Destroy() //nolint:errcheck // what counts is what it was recorded behind
		q.mu.Lock()
		err = q.mark(e)
		q.mu.Unlock()
	}
	for p := (Pause{}); err == nil; p.Wait() {
		ended := e.Query()
		odd, stopped := q.troubled(), q.comm.Stopped() // behind it: a kernel that has given up ends, too
		switch {
		case stopped != nil:
			return stopped
		case odd != nil:
			return q.comm.Stop(odd)
		case ended == nil:
			return nil
		case !errors.Is(ended, cuda.ErrNotReady):
			err = ended
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
	return q.comm.Stop(&lifecycle.SystemError{Code: lifecycle.CodeSystem, Op: "wait for the GPU", Err: err})
}

// troubled is the backend's Trouble; nil once the pages are gone.
func (q *Queue) troubled() error {
	q.reading.RLock()
	defer q.reading.RUnlock()
	if q.freed {
		return nil
	}
	return q.backend.Trouble()
}

// Launch is what a launch was for, if it is known.
func (q *Queue) Launch(number uint32) (call lifecycle.Call, seq uint64, bytes int, ok bool) {
	r, ok := q.find(number)
	if !ok {
		return lifecycle.CallNone, 0, 0, false
	}
	return r.call, r.seq, r.bytes, true
}

// Current is engine.Device's.
func (q *Queue) Current() (call lifecycle.Call, seq uint64, peer int, ok bool) {
	q.reading.RLock()
	defer q.reading.RUnlock()
	if q.freed {
		return lifecycle.CallNone, 0, -1, false
	}
	if call, seq, _, ok = q.Launch(q.Page.Done() + 1); !ok { // the oldest that is not done
		return lifecycle.CallNone, 0, -1, false
	}
	waits, _ := q.Page.Waits()
	return call, seq, int(waits.Peer), true
}

// Stop has kernels leave, also those that graphs launch later.
func (q *Queue) Stop() {
	q.Page.Stop()
	q.graphs.page.Stop()
}

// Left ends the watching, and waits until all has ended that was enqueued but by graphs. It tells whether that is so,
// and whether no graph may launch more either: then no operation uses the communicator's memory any more.
func (q *Queue) Left() (ended, unused bool) {
	ended = q.end()
	code := lifecycle.CodeAborted
	switch stopped := q.comm.Stopped(); {
	case stopped != nil:
		code = lifecycle.CodeOf(stopped)
	case ended:
		code = lifecycle.CodeOK
	}
	q.endOverdue(code)
	q.left = ended && !q.captured.Load()
	return ended, q.left
}

// end does what Left says, and is its first answer.
func (q *Queue) end() bool {
	q.watcher.stop()
	q.graphs.close()
	if !q.idle() {
		q.backend.Leave() // before anything calls the driver, which may wait for that
	}
	q.watcher.asking.Wait()
	q.mu.Lock()
	none, err := q.last == nil, error(nil)
	if !none {
		err = q.mark(q.Fence)
	}
	q.mu.Unlock() // others mark, too, while this waits
	if none || err != nil {
		return none
	}
	return within(func() error {
		err := errors.Join(q.Fence.Query(), q.Side.Query())
		if errors.Is(err, cuda.ErrNotReady) {
			_ = q.fetch.look(q) // what it would say is asked for above
		}
		return err
	})
}

// Settled waits until all is done that was put on Side. It is false if that takes longer than LeaveTime, or fails.
func (q *Queue) Settled() bool { return within(q.Side.Query) }

// Free frees what the queue holds. A nil Queue holds nothing.
func (q *Queue) Free() {
	if q == nil {
		return
	}
	if q.Fence != nil {
		_ = q.Fence.Destroy()
	}
	q.measure.free()
	if q.Side != nil {
		_ = q.Side.Destroy()
	}
	q.reading.Lock()
	defer q.reading.Unlock()
	q.freed = true
	for _, p := range []*Page{q.Page, q.graphs.page, q.fetch.page} {
		p.free(!q.left)
	}
}
