package bustest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

const patience = 20 * time.Second

// Subject is a sink under test.
type Subject struct {
	// New makes the sink and its receiver, which hands everything to r and lives as long as t. cfg is what it subscribes with.
	New func(t *testing.T, b *bus.Bus, cfg bus.SubscriptionConfig, r *Receiver) bus.Sink
	// States is true for a sink that tells what is, not what happened: of missed events it tells what holds of them, and
	// not that they were missed.
	States bool
	// Waits is true for a sink that can't interrupt its receiver: its Run ends once the receiver has taken what it was
	// given.
	Waits bool
}

// Run runs the suite.
func Run(t *testing.T, s Subject) {
	t.Run("in order, from before Run on", s.inOrder)
	t.Run("filter", s.filter)
	t.Run("a receiver that takes nothing holds nobody up", s.overflow)
	t.Run("ends with its context", s.ends)
	t.Run("drains when the bus is closed", s.drains)
}

type trial struct {
	t      *testing.T
	bus    *bus.Bus
	r      *Receiver
	sink   bus.Sink
	cancel context.CancelFunc
	done   chan error
}

func (s Subject) begin(t *testing.T, filter bus.Filter, queue int) *trial {
	t.Helper()
	b, err := bus.New(bus.Config{})
	if err != nil {
		t.Fatal(err)
	}
	tr := &trial{t: t, bus: b, r: NewReceiver(), done: make(chan error, 1)}
	t.Cleanup(b.Close)
	tr.sink = s.New(t, b, bus.SubscriptionConfig{Filter: filter, Queue: queue}, tr.r)
	t.Cleanup(tr.r.Release) // first, so that the receiver can end
	return tr
}

func (tr *trial) run() {
	ctx, cancel := context.WithCancel(tr.t.Context())
	tr.cancel = cancel
	tr.t.Cleanup(cancel)
	go func() { tr.done <- tr.sink.Run(ctx) }()
}

func (tr *trial) publish(number int, severity bus.Severity) {
	tr.t.Helper()
	err := tr.bus.Publish(bus.Event{
		Type: semconv.EventVerdictOpened, Stage: bus.Opened, Key: fmt.Sprintf("key %d",
			number), Severity: severity, Reason: "not_entered",
		Rank: fmt.Sprint(number), Text: fmt.Sprintf("event number %d", number),
	})
	if err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *trial) next() Got {
	tr.t.Helper()
	select {
	case got := <-tr.r.got:
		return got
	case <-time.After(patience):
		tr.t.Fatal("nothing came")
		return Got{}
	}
}

func (tr *trial) want(numbers ...int) {
	tr.t.Helper()
	for _, number := range numbers {
		if got := tr.next(); got.Event != number {
			tr.t.Fatalf("got %+v, want event %d", got, number)
		}
	}
}

func (tr *trial) ended() {
	tr.t.Helper()
	select {
	case err := <-tr.done:
		if err != nil {
			tr.t.Fatalf("Run: %v", err)
		}
	case <-time.After(patience):
		tr.t.Fatal("Run didn't return")
	}
}

func (tr *trial) stats(want bus.Stats) {
	tr.t.Helper()
	if got := tr.sink.Stats(); got != want {
		tr.t.Fatalf("Stats are %+v, want %+v", got, want)
	}
}

func (s Subject) inOrder(t *testing.T) {
	tr := s.begin(t, bus.Filter{}, 0)
	tr.publish(1, bus.Info)
	tr.publish(2, bus.Critical)
	tr.run()
	tr.want(1, 2)
	tr.publish(3, bus.Warning)
	tr.want(3)
	tr.publish(4, bus.Info)
	tr.publish(5, bus.Info)
	tr.want(4, 5)
	tr.bus.Close()
	tr.ended()
	tr.stats(bus.Stats{Pushed: 5})
	if tr.sink.Name() == "" {
		t.Error("the sink has no name")
	}
}

func (s Subject) filter(t *testing.T) {
	tr := s.begin(t, bus.Filter{Types: []string{"verdict."}, Least: bus.Warning}, 0)
	tr.run()
	tr.publish(1, bus.Info)
	tr.publish(2, bus.Warning)
	if err := tr.bus.Publish(bus.Event{
		Type: semconv.EventRankDead, Severity: bus.Critical,
		Text: "event number 3",
	}); err != nil {
		t.Fatal(err)
	}
	tr.publish(4, bus.Critical)
	tr.want(2, 4)
	tr.bus.Close()
	tr.ended()
	tr.stats(bus.Stats{Pushed: 2})
}

func (s Subject) overflow(t *testing.T) {
	const events, queue = 500, 4
	tr := s.begin(t, bus.Filter{}, queue)
	tr.run()
	tr.publish(1, bus.Info)
	tr.want(1)
	tr.publish(2, bus.Info) // waits in the receiver from now on, or on its way there
	for number := 3; number <= events; number++ {
		tr.publish(number, bus.Info) // must not block
	}
	if s.States {
		tr.catchesUp(events)
		return
	}
	last, missed, got := 1, 0, 1
	for last < events {
		next := tr.next()
		if next.Missed > 0 {
			missed += next.Missed
			continue
		}
		if next.Event <= last {
			t.Fatalf("event %d came behind event %d", next.Event, last)
		}
		last = next.Event
		got++
	}
	if missed+got != events {
		t.Errorf("%d events came and the receiver was told of %d that it missed; together they should be %d", got,
			missed, events)
	}
	tr.bus.Close()
	tr.ended()
	if missed = events - got; missed == 0 {
		t.Error("nothing was dropped: the queue is not bounded")
	}
	tr.stats(bus.Stats{Pushed: uint64(got), Dropped: uint64(missed)})
}

// catchesUp wants all events from the second on to come, in whatever order: they all tell of what holds.
func (tr *trial) catchesUp(events int) {
	tr.t.Helper()
	come := map[int]bool{1: true}
	for len(come) < events {
		got := tr.next()
		if come[got.Event] {
			tr.t.Fatalf("event %d came twice", got.Event)
		}
		come[got.Event] = true
	}
	tr.bus.Close()
	tr.ended()
	stats := tr.sink.Stats()
	if stats.Dropped == 0 {
		tr.t.Error("nothing was dropped: the queue is not bounded")
	}
	tr.stats(bus.Stats{Pushed: uint64(events) - stats.Dropped, Dropped: stats.Dropped})
}

func (s Subject) ends(t *testing.T) {
	tr := s.begin(t, bus.Filter{}, 0)
	tr.run()
	tr.publish(1, bus.Info)
	tr.want(1)
	for number := range 20 {
		tr.publish(2+number, bus.Info)
	}
	tr.want(2) // the next one is on its way
	if s.Waits {
		tr.r.Release()
	}
	tr.cancel()
	tr.ended()
	if err := tr.bus.Publish(bus.Event{Type: semconv.EventRankLeft}); err != nil {
		t.Errorf("the bus suffers from a sink that has ended: %v", err)
	}
}

func (s Subject) drains(t *testing.T) {
	tr := s.begin(t, bus.Filter{}, 0)
	tr.publish(1, bus.Info)
	tr.run()
	tr.want(1)
	tr.publish(2, bus.Info)
	tr.publish(3, bus.Info)
	tr.bus.Close()
	tr.want(2, 3)
	tr.ended()
	tr.stats(bus.Stats{Pushed: 3})
	if err := tr.bus.Publish(bus.Event{Type: semconv.EventRankLeft}); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Publish on a closed bus: %v, want ErrClosed", err)
	}
}
