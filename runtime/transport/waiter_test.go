package transport

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/lifecycle"
)

// waiters makes one Waiter of each kind. The kind that sleeps on a word sleeps for an hour, so that a missed ring fails
// the test rather than slowing it down.
func waiters(p Patience) map[string]func() *Waiter {
	return map[string]func() *Waiter{
		"parked": func() *Waiter { return NewWaiter(4, p) },
		"word": func() *Waiter {
			w := NewSharedWaiter(4, new(atomic.Uint32), p)
			w.first, w.last = time.Hour, time.Hour
			return w
		},
	}
}

// Two ranks pass a number back and forth. Without patience each waits in the kernel every time, so every ring counts.
func TestWaiterMissesNoRing(t *testing.T) {
	for _, p := range []Patience{{}, {Yield: 10 * time.Microsecond, CPU: true}, {Spin: 3 * time.Microsecond}} {
		for name, make := range waiters(p) {
			t.Run(name, func(t *testing.T) {
				const rounds = 5000
				var turn atomic.Int64
				ranks := [2]*Waiter{make(), make()}
				var wg sync.WaitGroup
				for me, w := range ranks {
					wg.Go(func() {
						for n := int64(me); n < rounds; n += 2 {
							for turn.Load() != n {
								if err := w.Idle(t.Context()); err != nil {
									t.Error(err)
									return
								}
							}
							w.Active()
							turn.Store(n + 1)
							ranks[1-me].Ring()
						}
					})
				}
				wg.Wait()
				if got := turn.Load(); got != rounds {
					t.Errorf("%d turns, want %d", got, rounds)
				}
			})
		}
	}
}

func TestRingWordWakesASleeper(t *testing.T) {
	var word atomic.Uint32
	w := NewSharedWaiter(2, &word, Patience{})
	w.first, w.last = time.Hour, time.Hour
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		_ = w.Idle(t.Context()) // arms
		_ = w.Idle(t.Context()) // sleeps
	}()
	for word.Load() != armed {
	}
	RingWord(&word)
	<-woken
	if word.Load() != awake {
		t.Error("the word is still armed")
	}
}

func TestWaiterSeesTheEndOfItsContext(t *testing.T) {
	for name, w := range map[string]*Waiter{
		"parked": NewWaiter(2, Patience{}),
		"word":   NewSharedWaiter(2, new(atomic.Uint32), Patience{}),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer stop()
			begun := time.Now()
			var err error
			for err == nil {
				err = w.Idle(ctx)
			}
			if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took > time.Second {
				t.Errorf("after %v: %v", took, err)
			}
			if w.word.Load() != awake {
				t.Error("the word is still armed, so that ringers make system calls for nobody")
			}
		})
	}
}

func TestWaiterAllocatesNothing(t *testing.T) {
	for name, make := range waiters(Patience{Spin: time.Microsecond, Yield: time.Microsecond, CPU: true}) {
		t.Run(name, func(t *testing.T) {
			w := make()
			ctx := t.Context()
			allocs := testing.AllocsPerRun(100, func() {
				for !w.armed {
					if err := w.Idle(ctx); err != nil {
						t.Fatal(err)
					}
				}
				w.Ring()
				if err := w.Idle(ctx); err != nil { // does not sleep, since it was rung
					t.Fatal(err)
				}
				w.Active()
			})
			if allocs != 0 {
				t.Errorf("%v allocations", allocs)
			}
		})
	}
}

func TestWaiterTellsBeforeItSleeps(t *testing.T) {
	w := NewWaiter(2, Patience{})
	times := 0
	w.OnRest(func() { times++ })
	_ = w.Idle(t.Context())
	if times != 0 {
		t.Error("told before the caller looked once more")
	}
	w.Ring()
	_ = w.Idle(t.Context())
	if times != 1 {
		t.Errorf("told %d times", times)
	}
}

func TestWaiterAdaptsToACrowdedCore(t *testing.T) {
	w := NewWaiter(2, Patience{Spin: time.Hour})
	w.mask = 0
	if !w.patient() {
		t.Fatal("no patience at all")
	}
	w.since -= time.Second // as if another process had run for a second
	if w.patient() {
		t.Error("it still spins on a core that it had lost")
	}
	for range crowdedFor {
		w.idle = 1
		w.Active()
	}
	if !w.patient() {
		t.Error("it never spins again")
	}
}

func TestLosses(t *testing.T) {
	w := NewWaiter(4, Patience{})
	if peer, err := w.FirstLost(); peer != -1 || err != nil {
		t.Errorf("a new waiter has lost %d, %v", peer, err)
	}
	one, two := errors.New("one"), errors.New("two")
	w.PeerLost(2, one)
	w.PeerLost(0, two)
	w.PeerLost(2, two)
	if peer, err := w.FirstLost(); peer != 2 || err != one { //nolint:errorlint // the very error is wanted
		t.Errorf("first lost: %d, %v", peer, err)
	}
	var order []int
	for peer := range w.Losses() {
		order = append(order, peer)
	}
	if !slices.Equal(order, []int{2, 0}) {
		t.Errorf("lost in the order %v", order)
	}
	for peer, want := range []error{two, nil, one, nil} {
		if err := w.Lost(peer); err != want { //nolint:errorlint // the very error is wanted
			t.Errorf("peer %d: %v, want %v", peer, err, want)
		}
	}
}

func TestPatienceFor(t *testing.T) {
	if p := PatienceFor(1<<20, 1, false); p.Spin != 0 || p.Yield == 0 || !p.CPU {
		t.Errorf("with more ranks than cores: %+v", p)
	}
	if p := PatienceFor(1, 1, false); p.Spin == 0 || p.CPU {
		t.Errorf("with a core for each rank: %+v", p)
	}
	if p := PatienceFor(1<<20, runtime.GOMAXPROCS(0), true); p != (Patience{}) {
		t.Errorf("with a peer on the network and no processor left to read from it: %+v", p)
	}
	for _, ranks := range []int{1, 1 << 20} {
		p := PatienceFor(ranks, runtime.GOMAXPROCS(0)-1, true)
		if runtime.GOMAXPROCS(0) > 1 && (p.Spin != 0 || p.Yield == 0 || !p.CPU) {
			t.Errorf("%d ranks, with a processor left to read from the network: %+v", ranks, p)
		}
	}
}

func TestNoticeThereAndBack(t *testing.T) {
	long := make([]byte, MaxDetail-1)
	for i := range long {
		long[i] = 'x'
	}
	for _, n := range []Notice{
		{},
		{Code: lifecycle.CodeMismatch, Culprit: -1, Passed: 1<<64 - 1, Detail: "count is 3 on rank 1"},
		{Code: lifecycle.CodeInternal, Culprit: 1<<31 - 1, Detail: string(long) + "é"}, // é no longer fits
	} {
		b := AppendNotice(nil, n)
		if len(b) > MaxNotice {
			t.Errorf("%d bytes", len(b))
		}
		got, err := DecodeNotice(b)
		if err != nil {
			t.Error(err)
		}
		if len(n.Detail) > MaxDetail {
			n.Detail = string(long)
		}
		if got != n {
			t.Errorf("got %+v, want %+v", got, n)
		}
	}
}

func FuzzDecodeNotice(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendNotice(nil, Notice{Code: lifecycle.CodeAbandoned, Culprit: 3, Passed: 9, Detail: "it took too long"}))
	f.Add([]byte{1, 0, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := DecodeNotice(b)
		if err != nil {
			return
		}
		again, err := DecodeNotice(AppendNotice(nil, n))
		if err != nil || again != n {
			t.Errorf("%+v became %+v, %v", n, again, err)
		}
	})
}

// A Waiter that was told when its wait began counts from then, once.
func TestBegan(t *testing.T) {
	w := NewWaiter(2, Patience{Yield: time.Minute})
	idle := func() {
		t.Helper()
		if err := w.Idle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.Began(Clock() - time.Hour)
	if idle(); w.armed {
		t.Error("no patience at the first look, which is none at the clock")
	}
	if idle(); !w.armed {
		t.Error("patience after an hour")
	}
	w.Active()
	idle()
	if idle(); w.armed {
		t.Error("no patience in another wait, as if it had begun then, too")
	}
}
