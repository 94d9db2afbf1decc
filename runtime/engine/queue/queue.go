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

// A Backend is an engine that puts operations on streams.
type Backend interface {
	// Put puts one collective, or a set of concurrent point-to-point operations, on the stream of the first, and calls
	// Add for its launches unless the stream is being captured. After an error, the stream may hold kernels that were
	// not counted: they leave.
	Put(call lifecycle.Call, seq uint64, ops []engine.Op, captured bool) error
	// Trouble returns why an operation that was put on a stream will never be done; nil if the backend knows of no
	// reason.
	Trouble() error
	// Leave makes running operations, and those launched from now on, end early. It doesn't wait for them. It may be
	// called from any goroutine, any number of times.
	Leave()
}

// A Queue holds what one rank of a communicator has put on streams. Check, Wait, Current and Trouble may be called from
// any goroutine. All other methods may only be called by the goroutine whose turn it is on the communicator.
type Queue struct {
	Page  *Page        // for kernels outside graphs; see Start
	Side  *cuda.Stream // a stream of the queue's own, on which nothing waits
	Fence *cuda.Event  // orders streams

	comm    *engine.Comm
	context *cuda.Context
	backend Backend
	failed  func(error)

	mu       sync.Mutex   // guards last
	last     *cuda.Stream // the stream on which something was enqueued last
	captured atomic.Bool  // something was enqueued on a stream under capture: it may be launched at any time
	launched atomic.Uint32
	graphs   graphs
	fetch    fetching
	measure  measuring
	overdue  overdue
	watcher  *watcher

	recentMu sync.Mutex   // guards recent
	recent   [1024]recent // by launch

	left    bool         // Left has returned that memory is unused
	reading sync.RWMutex // held while pages are read, which may happen after Close
	freed   bool         // the pages are gone; guarded by reading
}

// recent describes a launch.
type recent struct {
	launch uint32
	call   lifecycle.Call
	seq    uint64
	bytes  int
	op     tape.Launched
}

// New makes the queue of a rank. For failed, see engine.DeviceKind.Open.
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

// Start starts watching the queue, until Left. words is where in GPU memory kernels that don't report to the page
// record that they are done, in the page's format; 0 if all kernels report to the page.
func (q *Queue) Start(b Backend, words cuda.Pointer) {
	q.backend, q.fetch.words = b, words
	q.watcher.running.Go(q.watch)
	q.watcher.asking.Go(q.ask)
}

// Watch starts looking at the queue already while a captured call, whose place in the order is set, waits for other
// ranks. For calls that aren't captured, there is nothing to look at before they are enqueued.
func (q *Queue) Watch() { q.watcher.start() }

// Enqueue implements engine.Device.
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

// order makes a stream wait for what was enqueued on another one. Captured operations are not ordered against others:
// the caller decides when they are launched.
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

// After makes stream s wait for what is on the other stream now.
func (q *Queue) After(s, other *cuda.Stream) error {
	if s.Handle() == other.Handle() {
		return nil
	}
	return errors.Join(q.Fence.Record(other), s.Wait(q.Fence))
}

// Next returns the number of the next launch that is not captured.
func (q *Queue) Next() uint32 { return q.launched.Load() + 1 }

// tellEvery is the interval, in launches, at which a launch reports to the page that it is done. The tape has room for
// 32 launches that aren't known to be done (see tape.CommWriter.Launched), and reads the page every 16th launch.
const tellEvery = 8

// Tells reports whether the next launch should report to the page that it is done.
func (q *Queue) Tells() bool { return q.Next()%tellEvery == 0 }

// Add counts a launch that is not captured. It returns the launch's number, which the GPU writes when the launch is
// done.
func (q *Queue) Add(call lifecycle.Call, seq uint64, bytes int) (number uint32) {
	number = q.Next()
	q.recentMu.Lock()
	q.recent[number%uint32(len(q.recent))] = recent{number, call, seq, bytes, q.comm.Tape.Last()}
	q.recentMu.Unlock()
	q.launched.Store(number)
	return number
}

// find returns the record of a launch, if it is still known.
func (q *Queue) find(number uint32) (r recent, ok bool) {
	q.recentMu.Lock()
	defer q.recentMu.Unlock()
	r = q.recent[number%uint32(len(q.recent))]
	return r, number != 0 && r.launch == number
}

// mark records an event behind everything enqueued outside graphs. The page's words are not enough to know that a
// kernel has ended: it ends later, and only then is what it wrote visible to others. The caller holds the mutex.
func (q *Queue) mark(e *cuda.Event) error {
	if q.last.Destroyed() {
		return q.context.Synchronize()
	}
	return e.Record(q.last)
}

// idle reports whether everything enqueued is known to be done, and no graph may launch more.
func (q *Queue) idle() bool { return !q.captured.Load() && q.Page.Done() == q.launched.Load() }

// Wait implements engine.Device.
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
		odd, stopped := q.troubled(), q.comm.Stopped() // after the query: a kernel that has given up ends, too
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

// troubled returns the backend's Trouble, or nil once the pages are gone.
func (q *Queue) troubled() error {
	q.reading.RLock()
	defer q.reading.RUnlock()
	if q.freed {
		return nil
	}
	return q.backend.Trouble()
}

// Launch returns what a launch was for, if that is still known.
func (q *Queue) Launch(number uint32) (call lifecycle.Call, seq uint64, bytes int, ok bool) {
	r, ok := q.find(number)
	if !ok {
		return lifecycle.CallNone, 0, 0, false
	}
	return r.call, r.seq, r.bytes, true
}

// Current implements engine.Device.
func (q *Queue) Current() (call lifecycle.Call, seq uint64, peer int, ok bool) {
	q.reading.RLock()
	defer q.reading.RUnlock()
	if q.freed {
		return lifecycle.CallNone, 0, -1, false
	}
	if call, seq, _, ok = q.Launch(q.Page.Done() + 1); !ok { // the oldest launch that is not done
		return lifecycle.CallNone, 0, -1, false
	}
	waits, _ := q.Page.Waits()
	return call, seq, int(waits.Peer), true
}

// Stop makes kernels leave, also those that graphs launch later.
func (q *Queue) Stop() {
	q.Page.Stop()
	q.graphs.page.Stop()
}

// Left stops watching, and waits until everything enqueued outside graphs has ended. ended reports whether it has;
// unused reports whether, in addition, no graph may launch more. In that case no operation uses the communicator's
// memory any more.
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

// end does Left's work, and returns its first result.
func (q *Queue) end() bool {
	q.watcher.stop()
	q.graphs.close()
	if !q.idle() {
		q.backend.Leave() // before any call to the driver, which may wait for kernels to leave
	}
	q.watcher.asking.Wait()
	q.mu.Lock()
	none, err := q.last == nil, error(nil)
	if !none {
		err = q.mark(q.Fence)
	}
	q.mu.Unlock() // other goroutines mark, too, while this one waits
	if none || err != nil {
		return none
	}
	return within(func() error {
		err := errors.Join(q.Fence.Query(), q.Side.Query())
		if errors.Is(err, cuda.ErrNotReady) {
			_ = q.fetch.look(q) // its result is queried above
		}
		return err
	})
}

// Settled waits until everything put on Side is done. It returns false if that takes longer than LeaveTime, or fails.
func (q *Queue) Settled() bool { return within(q.Side.Query) }

// Free frees what the queue holds. It does nothing on a nil Queue.
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
