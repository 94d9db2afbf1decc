package tape

import (
	"context"
	"math"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/lifecycle"
)

// starts returns the callers of the recorded starts, in order.
func starts(events []Event) []SpanContext {
	var callers []SpanContext
	for i := range events {
		switch ev := &events[i]; {
		case ev.IsLife:
		case ev.Op.Stage == StageStart:
			callers = append(callers, ev.Op.Caller)
		case ev.Op.Caller != SpanContext{}:
			callers = append(callers, SpanContext{Flags: 99}) // no other moment has one
		}
	}
	return callers
}

func caller(n byte) *SpanContext {
	return &SpanContext{TraceID: [16]byte{0: n, 15: 1}, SpanID: [8]byte{0: n, 7: 2}, Flags: 1}
}

// TestCaller has operations with and without a caller, one after another and at the same time.
func TestCaller(t *testing.T) {
	w := newTape(t, Config{})
	a := w.Comm(CommInfo{ID: lifecycle.CommID{1}})
	b := w.Comm(CommInfo{ID: lifecycle.CommID{2}})
	first := a.StartFrom(Now(), caller(1), 0, &allReduce, 1)
	a.Wait(3)
	second := b.Start(0, allReduce, 1)
	b.Wait(2) // tells the start
	third := b.StartFrom(Now(), caller(3), 0, &allReduce, 1)
	a.End(first, 0)
	b.End(third, 0)
	b.End(second, 0)
	fourth := b.Start(0, allReduce, 1)
	b.Phase(PhaseTransfer)
	b.End(fourth, 0)
	if diff := cmp.Diff([]SpanContext{*caller(1), {}, *caller(3), {}},
		starts(all(t, openTape(t, w.Path())))); diff != "" {
		t.Errorf("callers (-want +got):\n%s", diff)
	}
	if n := (*CommWriter)(nil).StartFrom(Now(), caller(1), 0, &allReduce, 1); n != 0 {
		t.Errorf("the tape switched off launched %d", n)
	}
}

// TestCallersOfMany lets many communicators write at once into a ring that is overwritten: an operation never gets
// another one's caller, and a caller is missing only with its start.
func TestCallersOfMany(t *testing.T) {
	w := newTape(t, Config{OpRecords: 1024})
	var writers sync.WaitGroup
	for n := range byte(8) {
		c := w.Comm(CommInfo{ID: lifecycle.CommID{n + 1}, Rank: int(n)})
		writers.Go(func() {
			for range 2000 {
				c.End(c.StartFrom(Now(), caller(n+1), 0, &allReduce, 1), 0)
			}
		})
	}
	writers.Wait()
	n, missing := 0, 0
	for _, ev := range all(t, openTape(t, w.Path())) {
		if ev.IsLife || ev.Op.Stage != StageStart {
			continue
		}
		n++
		switch ev.Op.Caller {
		case *caller(ev.Comm.ID[0]):
		case SpanContext{}:
			missing++ // the caller's record was overwritten, the start's was not
		default:
			t.Errorf("an operation of communicator %d has the caller %v", ev.Comm.ID[0], ev.Op.Caller)
		}
	}
	if n < 200 || missing > 1 {
		t.Errorf("%d operations, %d without caller", n, missing)
	}
}

// TestSync: Sync waits for a reader that lags behind.
func TestSync(t *testing.T) {
	w := newTape(t, Config{})
	c := w.Comm(CommInfo{ID: lifecycle.CommID{1}})
	f := follow(t, w.Path(), 0)
	for range 100 {
		c.End(c.Start(0, allReduce, 1), 0)
	}
	c.Life(LifeRecord{Act: ActSplit, Stage: StageStart, Peer: -1})

	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Sync(gone); err == nil {
		t.Fatal("Sync came back though nobody reads")
	}
	read := make(chan int)
	go func() {
		var n int
		events := make([]Event, 7)
		for {
			m, err := f.Read(context.Background(), events)
			if err != nil {
				read <- n
				return
			}
			n += m
			if n == 101 {
				read <- n // Sync must not return before this was taken
			}
		}
	}()
	synced := make(chan error, 1)
	go func() { synced <- f.Sync(t.Context()) }()
	select {
	case <-synced:
		t.Fatal("Sync came back before the last event was dealt with")
	case n := <-read:
		if n != 101 {
			t.Fatalf("%d events", n)
		}
	}
	if err := <-synced; err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(t.Context()); err != nil { // nothing new
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	<-read
	if err := f.Sync(t.Context()); err != nil { // it has ended
		t.Fatal(err)
	}
}

// TestSlotsInOrder takes and releases slots, over the whole table and again from its beginning: all live ones are
// found.
func TestSlotsInOrder(t *testing.T) {
	w := newTape(t, Config{Slots: 500})
	r := openTape(t, w.Path())
	var live []*CommWriter
	for i := range 1200 {
		live = append(live, w.Comm(CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: i}))
		if len(live) > 3 {
			live[0].Close()
			live = live[1:]
		}
		if slots := r.Slots(); len(slots) != len(live) {
			t.Fatalf("%d communicators are in the table after %d, want %d", len(slots), i, len(live))
		}
	}
	slots := r.Slots()
	buf := make([]Slot, 0, len(slots))
	least := math.Inf(1) // goroutines of other tests allocate, too
	for range 10 {
		least = min(least, testing.AllocsPerRun(100, func() { buf, _ = r.AppendSlots(buf[:0]) }))
	}
	if least > 0 {
		t.Errorf("reading the table again allocates %v times", least)
	}
}

// BenchmarkSlots reads a table of 16,384 slots, of which live are in use.
func BenchmarkSlots(b *testing.B) {
	for _, live := range []int{1, 100, 10_000} {
		w := newTape(b, Config{Slots: 16_384})
		for i := range live {
			c := w.Comm(CommInfo{ID: lifecycle.CommID{byte(i)}, Name: "world", Engine: "host", Rank: i})
			c.Start(0, allReduce, 1)
		}
		r := openTape(b, w.Path())
		b.Run(map[int]string{1: "live=1", 100: "live=100", 10_000: "live=10000"}[live], func(b *testing.B) {
			var slots []Slot
			cpuTime(b, func() { slots, _ = r.AppendSlots(slots[:0]) })
			if len(slots) != live {
				b.Fatalf("%d slots", len(slots))
			}
		})
	}
}
