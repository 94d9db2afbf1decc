package tape

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/process/futex"
)

func follow(t testing.TB, path string, tick time.Duration) *Follower {
	t.Helper()
	f, err := Follow(t.Context(), path, tick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// neverTick is a tick so long that a test can end only by a wake-up from the writer.
const neverTick = time.Hour

func TestFollowWakes(t *testing.T) {
	w := newTape(t, Config{})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "world"})
	f := follow(t, w.Path(), neverTick)
	got := make(chan Event)
	go func() {
		defer close(got)
		for {
			ev, err := f.Next(t.Context())
			if err != nil {
				if !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
				return
			}
			got <- ev
		}
	}()
	for i := range uint64(100) {
		waitAsleep(t, w)
		seq := c.Start(0, allReduce, 0)
		c.End(seq, 0)
		c.Life(LifeRecord{Act: ActSplit, Seq: i}) // wakes it
		if ev := <-got; ev.IsLife || ev.Op.Seq != seq {
			t.Fatalf("got %+v, want the end of operation %d", ev, seq)
		}
		if ev := <-got; !ev.IsLife || ev.Life.Seq != i {
			t.Fatalf("got %+v, want act %d", ev, i)
		}
	}
	waitAsleep(t, w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if ev, more := <-got; more {
		t.Errorf("an event after the end: %+v", ev)
	}
}

// Operations alone don't wake a sleeping follower until a quarter of the ring is full.
func TestFollowWakesBeforeOverrun(t *testing.T) {
	w := newTape(t, Config{OpRecords: 1024})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}})
	f := follow(t, w.Path(), neverTick)
	done := make(chan error)
	var seen int
	go func() {
		for seen < 1024 {
			if _, err := f.Next(t.Context()); err != nil {
				done <- err
				return
			}
			seen++
		}
		done <- nil
	}()
	// A fast writer gives a slow machine no time to wake the follower; this one waits where a wake-up may be needed.
	for range 4 {
		waitAsleep(t, w)
		for range 256 {
			c.End(c.Start(0, allReduce, 0), 0)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if m := f.Missed(); m != (Missed{}) {
		t.Errorf("missed %+v", m)
	}
}

// A sleeping follower waits in Go: in a system call it would, each time, keep a processor from the ranks of its process
// for a while.
func TestFollowerSleepsInGo(t *testing.T) {
	w := newTape(t, Config{})
	f := follow(t, w.Path(), neverTick)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := f.Next(ctx)
		ended <- err
	}()
	waitAsleep(t, w)
	var state string
	stacks := make([]byte, 1<<20)
	for begin := time.Now(); state != "select"; runtime.Gosched() {
		for one := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(one, "(*Follower).sleep(") {
				_, state, _ = strings.Cut(one[:strings.IndexAny(one, ",]")], "[")
			}
		}
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("it sleeps in state %q", state)
		}
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

// A follower looks after a writer has rung the bell and before the writer has checked for waiting followers: the
// follower must not then sleep unannounced.
func TestFollowLooksWhileRinging(t *testing.T) {
	w := newTape(t, Config{})
	f := follow(t, w.Path(), neverTick)
	atomic.StoreUint32(&w.waiting, 1) // the follower has slept, and its tick woke it
	atomic.AddUint32(&w.bell, 1)
	if err := f.cursor.refresh(); err != nil {
		t.Fatal(err)
	}
	w.wakeWaiting()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := f.sleep(ctx); err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Error("it slept though nobody knew that it waits")
	}
}

// waitAsleep waits until a follower has announced that it sleeps.
func waitAsleep(t *testing.T, w *Writer) {
	t.Helper()
	for atomic.LoadUint32(&w.waiting) == 0 {
		if t.Context().Err() != nil {
			t.Fatal("no follower sleeps")
		}
		runtime.Gosched()
	}
}

// A follower that missed a communicator's description finds it in the table.
func TestFollowFindsCommunicator(t *testing.T) {
	w := newTape(t, Config{LifeRecords: 128})
	f := follow(t, w.Path(), 0)
	other := w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "other"})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{2}, Name: "world"})
	for range 200 {
		other.Life(LifeRecord{Act: ActSplit})
	}
	c.End(c.Start(0, allReduce, 0), 0)
	for {
		ev, err := f.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if ev.IsLife {
			continue
		}
		if ev.Comm.Name != "world" || f.Missed().Life == 0 {
			t.Errorf("operation of %+v, missed %+v", ev.Comm, f.Missed())
		}
		return
	}
}

func TestFollowEnds(t *testing.T) {
	w := newTape(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	f, err := Follow(ctx, w.Path(), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	short, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if _, err := f.Next(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Next's context ended: %v", err)
	}
	cancel()
	if _, err := f.Next(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("Follow's context ended: %v", err)
	}
	if _, err := Follow(ctx, w.Path(), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Follow with an ended context: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}

	f = follow(t, w.Path(), time.Millisecond)
	end := make(chan error)
	go func() {
		_, err := f.Next(t.Context())
		end <- err
	}()
	waitAsleep(t, w)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := <-end; !errors.Is(err, ErrStopped) {
		t.Errorf("the follower was closed: %v", err)
	}
	if _, err := f.Next(t.Context()); !errors.Is(err, ErrStopped) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := Follow(t.Context(), w.Path(), -1); err == nil {
		t.Error("a negative tick is accepted")
	}
}

// A goroutine that waits on a file that was cut short can't be woken; Close doesn't wait for it.
func TestCloseWhenCutShort(t *testing.T) {
	w := newTape(t, Config{})
	path := t.TempDir() + "/copy.tape"
	b, err := os.ReadFile(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Follow(t.Context(), path, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond) // some ticks, in which it announces itself
	defer stop()
	if _, err := f.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	var malformed *FormatError
	if _, err := f.Next(t.Context()); !errors.As(err, &malformed) {
		t.Errorf("Next on a file that was cut short: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- f.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(longestWait / 2):
		t.Error("Close waits for whom it can't wake")
	}
	endBellWatch(t, path, f)
}

// endBellWatch wakes the goroutine that waits for the bell of a file that was cut short: it restores the file's length
// first.
func endBellWatch(t *testing.T, path string, f *Follower) {
	t.Helper()
	if err := os.Truncate(path, headerSize); err != nil {
		t.Error(err)
	}
	for {
		_ = futex.Wake(f.bell.word(), futex.All)
		select {
		case <-f.bell.ended:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// A file that is cut short under a follower, or a reader, gives an error, and no signal.
func TestCutShortUnderReaders(t *testing.T) {
	for _, size := range []int64{headerSize + slotSize, headerSize, 600, 0} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			w := newTape(t, Config{})
			path := w.Path()
			c := w.Comm(CommInfo{ID: lifecycle.CommID{1}})
			c.End(c.Start(0, allReduce, 0), 0)
			var f *Follower
			t.Cleanup(func() { endBellWatch(t, path, f) }) // when it is closed
			f = follow(t, path, time.Millisecond)
			r := openTape(t, path)
			if _, err := f.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, size); err != nil {
				t.Fatal(err)
			}
			var malformed *FormatError
			if _, err := r.AppendSlots(nil); !errors.As(err, &malformed) {
				t.Errorf("Slots: %v", err)
			}
			for _, err := range r.Events() {
				if !errors.As(err, &malformed) {
					t.Errorf("Events: %v", err)
				}
			}
			r.Header()
			f.Slots()
			err := error(nil)
			for err == nil { // events that it had read before
				_, err = f.Next(t.Context())
			}
			if !errors.As(err, &malformed) {
				t.Errorf("Next: %v", err)
			}
		})
	}
}

// Many communicators write to one tape, and several followers see the records of each communicator in order: none torn,
// none twice, and none lost without being counted. Each slot that is read meanwhile is of one moment.
func TestConsistency(t *testing.T) {
	const writers, followers, rounds = 8, 3, 3000
	w := newTape(t, Config{OpRecords: 1 << 16, LifeRecords: 1 << 13})
	var readers, writing sync.WaitGroup
	for i := range followers {
		f := follow(t, w.Path(), time.Millisecond)
		readers.Go(func() {
			var seen int
			next := make(map[lifecycle.CommID]uint64)
			events := make([]Event, 64*i+1)
			for {
				n, err := f.Read(t.Context(), events)
				if errors.Is(err, ErrClosed) {
					break
				}
				if err != nil {
					t.Error(err)
					return
				}
				for _, ev := range events[:n] {
					seen++
					checkEvent(t, &ev, next, f.Missed())
				}
			}
			missed := f.Missed()
			if all := uint64(writers * (rounds*3 + rounds/10)); uint64(seen)+missed.Op+missed.Life < all {
				t.Errorf("follower %d saw %d events and missed %+v, of %d", i, seen, missed, all)
			}
		})
	}
	stop := make(chan struct{})
	readers.Go(func() {
		r := openTape(t, w.Path())
		for {
			slots, err := r.AppendSlots(nil)
			if err != nil {
				t.Error(err)
			}
			for _, s := range slots {
				checkSlot(t, s)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for i := range writers {
		writing.Go(func() {
			c := w.Comm(CommInfo{ID: lifecycle.CommID{byte(i + 1)}, Name: fmt.Sprint("comm", i), Rank: i})
			defer c.Close()
			for n := range uint64(rounds) {
				seq := c.Start(0, Signature{Call: lifecycle.CallAllReduce, Peer: int32(i), Bytes: n + 1}, uint8(i))
				c.Wait(int32(n % 100))
				if n%10 == 0 {
					// A record's text says what its other fields are.
					c.Life(LifeRecord{Act: ActSplit, Seq: n, Peer: int32(i), Text: fmt.Sprintf("comm%d %d", i, n)})
				}
				c.End(seq, 0)
			}
		})
	}
	writing.Wait()
	close(stop)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	readers.Wait()
}

func checkEvent(t *testing.T, ev *Event, next map[lifecycle.CommID]uint64, missed Missed) {
	t.Helper()
	if ev.Comm.Name != fmt.Sprint("comm", ev.Comm.Rank) || int(ev.Comm.ID[0]) != ev.Comm.Rank+1 {
		t.Fatalf("a communicator that never was: %+v %+v", ev, missed)
	}
	at := next[ev.Comm.ID] // operations that started
	if ev.IsLife {
		text := fmt.Sprintf("comm%d %d", ev.Comm.Rank, ev.Life.Seq)
		if ev.Life.Text != text || int(ev.Life.Peer) != ev.Comm.Rank {
			t.Fatalf("act of %s: %+v", text, ev.Life)
		}
		// It was written while operation Seq+1 was in flight.
		if missed == (Missed{}) && at != ev.Life.Seq+1 {
			t.Fatalf("act %d came after %d operations", ev.Life.Seq, at)
		}
		return
	}
	op := ev.Op
	if op.Signature.Bytes != op.Seq || int(op.Signature.Peer) != ev.Comm.Rank || int(op.Algorithm) != ev.Comm.Rank {
		t.Fatalf("torn: %+v of %+v", op, ev.Comm)
	}
	switch op.Stage {
	case StageStart:
		if missed == (Missed{}) && op.Seq != at+1 {
			t.Fatalf("operation %d follows %d", op.Seq, at)
		}
		next[ev.Comm.ID] = op.Seq
	case StageWait:
		if uint64(op.Wait) != (op.Seq-1)%100 {
			t.Fatalf("torn: %+v", op)
		}
	case StageEnd:
	default:
		t.Fatalf("nobody wrote %+v", op)
	}
}

func checkSlot(t *testing.T, s Slot) {
	t.Helper()
	if int(s.ID[0]) != s.Rank+1 || s.Name != fmt.Sprint("comm", s.Rank) || s.Launched-s.Completed > 1 {
		t.Errorf("a moment that never was: %+v", s)
	}
	if s.Launched == 0 {
		return
	}
	if s.Op.Bytes != s.Launched || int(s.Op.Peer) != s.Rank || s.OpStart == 0 {
		t.Errorf("a moment that never was: %+v", s)
	}
	if s.Launched != s.Completed && s.Wait >= 0 && (uint64(s.Wait) != (s.Launched-1)%100 || s.WaitSince < s.OpStart) {
		t.Errorf("a moment that never was: %+v", s)
	}
}

// A record that was reserved and never written is given up in the end, and doesn't hold up later records.
func TestHoleInRing(t *testing.T) {
	w := newTape(t, Config{OpRecords: 128})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}})
	c.End(c.Start(0, allReduce, 0), 0)
	*w.opRing.head++ // as if a thread was killed in between
	c.End(c.Start(0, allReduce, 0), 0)
	f := follow(t, w.Path(), time.Millisecond)
	for seq := range uint64(2) {
		ev, err := f.Next(t.Context())
		if err != nil || ev.Op.Seq != seq+1 {
			t.Fatalf("got %+v, %v, want operation %d", ev.Op, err, seq+1)
		}
	}
	if m := f.Missed(); m != (Missed{Op: 1}) {
		t.Errorf("missed %+v", m)
	}
	r := openTape(t, w.Path())
	if n := len(all(t, r)); n != 2 || r.Missed() != (Missed{Op: 1}) {
		t.Errorf("a reader sees %d events and misses %+v", n, r.Missed())
	}
}

// A follower looks seldom while a few records come, and often once there are many.
func TestFollowerGathers(t *testing.T) {
	const tick = time.Millisecond
	w := newTape(t, Config{OpRecords: 1024})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}})
	f := follow(t, w.Path(), tick)
	read := func(records int) {
		for range records {
			c.End(c.Start(0, allReduce, 0), 0)
		}
		for range records {
			if _, err := f.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 6 { // each after a sleep of its own
		read(1)
	}
	if f.pause != longestPause*tick {
		t.Errorf("it sleeps for %v while few come, want %v", f.pause, longestPause*tick)
	}
	read(1024 / manyRecords)
	read(1)
	if f.pause != 2*tick { // the next pause, after one of a tick
		t.Errorf("it sleeps for %v after many came, want %v", f.pause, 2*tick)
	}
}
