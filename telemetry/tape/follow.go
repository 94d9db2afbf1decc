package tape

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// The ends of a tape that is followed.
var (
	// ErrClosed means that the writer closed the tape: the program ended cleanly.
	ErrClosed = errors.New("tape: the writer closed the tape")
	// ErrDied means that the writer's process ended without closing the tape.
	ErrDied = errors.New("tape: the writer's process died")
	// ErrStopped is the error of a Follower after its Close.
	ErrStopped = errors.New("tape: the follower was closed")
)

const (
	defaultTick  = 20 * time.Millisecond
	longestPause = 16 // ticks
	manyRecords  = 16 // 1/manyRecords of the op ring is many records between two reads
)

// Follower is a Reader that also follows a tape while it is written, in the same process or another. Next and Read are
// for one goroutine; the other methods may be called from any. Whoever made it closes it.
type Follower struct {
	*Reader
	ctx    context.Context
	tick   time.Duration
	pause  time.Duration // how long to sleep next time
	slept  uint64        // cursor.op.next at the last sleep
	cursor *cursor
	bell   *bellWatch
	end    error // ErrClosed or ErrDied, once it is known

	unwatch func() // stops watching the writer's process; nil if that process can't be seen, has ended, or is this one
	died    atomic.Bool

	stopped atomic.Bool
	reading sync.Mutex // held by Read; Close waits for it

	mu       sync.Mutex // guards the fields below
	missed   Missed
	op, life uint64     // records of both rings that Read's caller has handled
	over     bool       // nothing more is read
	moved    *sync.Cond // op, life or over changed
}

// Follow follows the tape at path from the oldest record that is still there, until ctx ends or Close. It writes a word
// of the file to tell the writer that a follower sleeps. Without write permission, it follows by ticks alone. Errors
// are those of Open.
//
// tick is the latency of op records while many are written; 20 ms if 0. While few are written, less than a 16th of the
// ring between two reads, the latency doubles each time, up to 16 ticks: an idle job costs nothing. Records of acts,
// the tape's end and the writer's death come at once.
func Follow(ctx context.Context, path string, tick time.Duration) (*Follower, error) {
	if tick < 0 {
		return nil, fmt.Errorf("tape: a tick of %v: allowed are positive durations, or 0 for %v", tick, defaultTick)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := openFile(path, os.O_RDWR, false)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) {
		t, err = openFile(path, os.O_RDONLY, false)
	}
	if err != nil {
		return nil, err
	}
	f := &Follower{Reader: t, ctx: ctx, tick: cmp.Or(tick, defaultTick)}
	f.pause, f.moved = f.tick, sync.NewCond(&f.mu)
	f.cursor, err = newCursor(t)
	if err == nil {
		f.bell, err = t.watchBell()
	}
	if err != nil {
		_ = t.f.Close()
		return nil, err
	}
	if id := t.process; id.Liveness() != process.Unknown && id != process.Self() {
		f.unwatch, err = id.Watch(func(process.Exit) {
			f.died.Store(true)
			f.bell.ring()
		})
		if err != nil { // the process has ended already
			f.died.Store(true)
		}
	}
	return f, nil
}

// Next waits for the next event. After the last one it returns ErrClosed or ErrDied. When ctx, or Follow's, ends, it
// returns that context's error.
func (f *Follower) Next(ctx context.Context) (Event, error) {
	var ev [1]Event
	_, err := f.Read(ctx, ev[:])
	return ev[0], err
}

// Read waits until there is an event, and then fills events with the n available ones. It is faster than Next: it
// allocates only for the texts of acts, and reads the file in batches. It ends as Next does.
func (f *Follower) Read(ctx context.Context, events []Event) (n int, err error) {
	if len(events) == 0 {
		return 0, nil
	}
	f.reading.Lock()
	defer f.reading.Unlock()
	for {
		if f.stopped.Load() {
			return 0, ErrStopped
		}
		f.handled(false)
		n, err := f.fill(events)
		if n > 0 || err != nil {
			return n, err
		}
		if f.end != nil {
			f.handled(true)
			return 0, f.end
		}
		if err := errors.Join(ctx.Err(), f.ctx.Err()); err != nil {
			return 0, err
		}
		f.end = f.ending()
		if f.end != nil {
			f.cursor.finish()
			if err := f.cursor.refresh(); err != nil {
				return 0, err
			}
			continue // read once more: records may have been written before the end
		}
		if err := f.sleep(ctx); err != nil {
			return 0, err
		}
	}
}

func (f *Follower) fill(events []Event) (n int, err error) {
	for n < len(events) {
		var ok bool
		if ok, err = f.cursor.next(&events[n]); err != nil || !ok {
			break
		}
		n++
	}
	f.mu.Lock()
	f.missed = f.cursor.missed()
	f.mu.Unlock()
	if n > 0 {
		err = nil // it comes back with the next call
	}
	return n, err
}

// ending tells whether and how the tape has ended. The rings are read once more after it.
func (f *Follower) ending() error {
	closed := func() bool { return f.cursor.now.state == stateClosed }
	switch {
	case closed():
		return ErrClosed
	case !f.died.Load():
		return nil
	case f.cursor.refresh() == nil && closed(): // closed between the two checks
		return ErrClosed
	default:
		return ErrDied
	}
}

// sleep waits until the writer rings the bell, or for a tick, and then refreshes the cursor. It sleeps even if a few
// operations are there already, so that a busy writer's records are read in batches.
func (f *Follower) sleep(ctx context.Context) error {
	if f.cursor.now.waiting == 0 {
		// A follower announces itself and then reads again; the writer writes and then checks for waiting followers. So
		// one of the two sees the other. If the file can't be written, ticks do the work.
		_, _ = f.f.WriteAt([]byte{1, 0, 0, 0}, waitingAt)
		state, lifeHead := f.cursor.now.state, f.cursor.life.head
		if err := f.cursor.refresh(); err != nil {
			return err
		}
		op := &f.cursor.op
		if f.cursor.life.head != lifeHead || f.cursor.now.state != state || op.head-op.next >= op.size/4 {
			return nil
		}
	}
	if f.cursor.op.next-f.slept >= f.cursor.op.size/manyRecords {
		f.pause = f.tick
	}
	f.slept = f.cursor.op.next
	select {
	case <-f.bell.rang:
	case <-time.After(f.pause):
	case <-ctx.Done():
	case <-f.ctx.Done():
	}
	f.pause = min(2*f.pause, longestPause*f.tick)
	if err := f.bell.err.Load(); err != nil {
		return f.malformed("was cut short while it was followed: %v", *err)
	}
	return f.cursor.refresh()
}

// Missed counts the records that were overwritten or torn when the follower reached them.
func (f *Follower) Missed() Missed {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.missed
}

// Sync waits until the goroutine that calls Read, or Next, has handled everything that was on the tape when Sync was
// called, which shows when it calls again or gets the end of the tape. If ctx ends first, it returns its error. The
// reading goroutine itself must not call it.
func (f *Follower) Sync(ctx context.Context) error {
	op, err := f.readChanging()
	life, later := f.readChanging() // read after the first; see cursor
	if err := cmp.Or(err, later); err != nil {
		return err
	}
	f.bell.ring()
	defer context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.moved.Broadcast()
	})()
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.over && (f.op < op.opHead || f.life < life.lifeHead) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f.moved.Wait()
	}
	return nil
}

// handled notes that the caller has handled all that was read, and whether nothing more is read.
func (f *Follower) handled(over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.op, f.life, f.over = f.cursor.op.next, f.cursor.life.next, f.over || over
	if f.cursor.held {
		f.life-- // the held record is not delivered yet
	}
	f.moved.Broadcast()
}

// Close stops following. A Next or Read that waits returns ErrStopped, and Close waits for it.
func (f *Follower) Close() error {
	if f.stopped.Swap(true) {
		return nil
	}
	f.bell.ring()
	f.reading.Lock()
	defer f.reading.Unlock()
	f.handled(true)
	if f.unwatch != nil {
		f.unwatch()
	}
	f.bell.close()
	return f.f.Close()
}
