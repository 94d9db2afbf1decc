package bustest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Subject is a sink under test.
type Subject struct {
	// New makes the sink and its receiver, which hands everything to r and lives as long as t.
	New func(t *testing.T, b *bus.Bus, filter bus.Filter, r *Receiver) bus.Sink
	// States is true for a sink that tells states, not events: of events that it missed, it tells those that still
	// hold, and not that it missed any.
	States bool
	// Waits is true for a sink that can't interrupt its receiver: its Run ends once the receiver has taken what it was
	// given.
	Waits bool
}

// Run runs the suite.
func Run(t *testing.T, s Subject) {
	t.Run("in order, from before Run until the bus is closed", s.inOrder)
	t.Run("filter", s.filter)
	t.Run("a receiver that takes nothing holds nobody up", s.overflow)
	t.Run("ends with its context", s.ends)
}

// got is what a receiver got: one of the suite's events, by its number, or how many it was told that it missed.
type got struct{ event, missed int }

var known = regexp.MustCompile(`event number (\d+)\b|(\d+) events were dropped here`)

// Receiver takes what a sink sends, at the pace of the test.
type Receiver struct {
	got      chan got
	released context.Context
	// Release lets all calls of Take return, from now on.
	Release context.CancelFunc
}

// Take finds the suite's events in what came and hands them to the test. It blocks until the test has them, or is over.
func (r *Receiver) Take(raw []byte) {
	for _, match := range known.FindAllSubmatch(raw, -1) {
		event, _ := strconv.Atoi(string(match[1]))
		missed, _ := strconv.Atoi(string(match[2]))
		select {
		case r.got <- got{event, missed}:
		case <-r.released.Done():
			return
		}
	}
}

type trial struct {
	t      *testing.T
	bus    *bus.Bus
	r      *Receiver
	sink   bus.Sink
	cancel context.CancelFunc
	done   chan error
}

func (s Subject) begin(t *testing.T, queue int, filter bus.Filter) *trial {
	t.Helper()
	b := bus.New(bus.Config{Queue: queue})
	t.Cleanup(b.Close)
	r := &Receiver{got: make(chan got)}
	r.released, r.Release = context.WithCancel(context.Background())
	tr := &trial{t: t, bus: b, r: r, sink: s.New(t, b, filter, r), done: make(chan error, 1)}
	t.Cleanup(r.Release) // first, so that the receiver can end
	return tr
}

func (tr *trial) run() {
	ctx, cancel := context.WithCancel(tr.t.Context())
	tr.cancel = cancel
	tr.t.Cleanup(cancel)
	go func() { tr.done <- tr.sink.Run(ctx) }()
}

func (tr *trial) publish(number int, kind string, severity bus.Severity) {
	tr.t.Helper()
	if err := tr.bus.Publish(bus.Event{
		Type: kind, Stage: bus.Opened, Key: fmt.Sprintf("key %d", number), Severity: severity, Reason: "not_entered",
		Rank: fmt.Sprint(number), Text: fmt.Sprintf("event number %d", number),
	}); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr *trial) open(first, last int) {
	tr.t.Helper()
	for number := first; number <= last; number++ {
		tr.publish(number, semconv.EventVerdictOpened, bus.Warning)
	}
}

func within[T any](t *testing.T, c <-chan T, what string) (value T) {
	t.Helper()
	select {
	case value = <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("not within 20 s: %s", what)
	}
	return value
}

func (tr *trial) want(numbers ...int) {
	tr.t.Helper()
	for _, number := range numbers {
		if next := within(tr.t, tr.r.got, "an event"); next.event != number {
			tr.t.Fatalf("got %+v, want event %d", next, number)
		}
	}
}

// ended waits until Run has returned, and looks at what it counted.
func (tr *trial) ended(want bus.Stats) {
	tr.t.Helper()
	if err := within(tr.t, tr.done, "Run returns"); err != nil {
		tr.t.Fatalf("Run: %v", err)
	}
	if stats := tr.sink.Stats(); stats != want {
		tr.t.Fatalf("Stats are %+v, want %+v", stats, want)
	}
}

func (s Subject) inOrder(t *testing.T) {
	tr := s.begin(t, 0, bus.Filter{})
	tr.open(1, 2)
	tr.run()
	tr.want(1, 2)
	tr.open(3, 3)
	tr.want(3)
	tr.open(4, 5)
	tr.bus.Close()
	tr.want(4, 5) // what was queued is carried
	tr.ended(bus.Stats{Pushed: 5})
	if err := tr.bus.Publish(bus.Event{Type: semconv.EventRankLeft}); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Publish on a closed bus: %v, want ErrClosed", err)
	}
	if tr.sink.Name() == "" {
		t.Error("the sink has no name")
	}
}

func (s Subject) filter(t *testing.T) {
	tr := s.begin(t, 0, bus.Filter{Types: []string{"verdict."}, Least: bus.Warning})
	tr.run()
	tr.publish(1, semconv.EventVerdictOpened, bus.Info)
	tr.publish(2, semconv.EventVerdictOpened, bus.Warning)
	tr.publish(3, semconv.EventRankDead, bus.Critical)
	tr.publish(4, semconv.EventVerdictOpened, bus.Critical)
	tr.want(2, 4)
	tr.bus.Close()
	tr.ended(bus.Stats{Pushed: 2})
}

// overflow wants each event or the news that it was missed, in order; of a sink that tells what is, all of them in
// whatever order, as they all hold.
func (s Subject) overflow(t *testing.T) {
	const events, queue = 500, 4
	tr := s.begin(t, queue, bus.Filter{})
	tr.run()
	tr.open(1, 1)
	tr.want(1)
	tr.open(2, events) // must not block; the second waits in the receiver from now on, or on its way there
	come, last, missed := map[int]bool{1: true}, 1, 0
	for len(come)+missed < events {
		next := within(t, tr.r.got, "an event")
		switch {
		case next.missed > 0:
			missed += next.missed
			continue
		case come[next.event] || next.event < last && !s.States:
			t.Fatalf("event %d came behind event %d", next.event, last)
		}
		last = next.event
		come[last] = true
	}
	tr.bus.Close()
	if s.States {
		missed = int(tr.sink.Stats().Dropped)
	}
	if missed == 0 {
		t.Error("nothing was dropped: the queue is not bounded")
	}
	tr.ended(bus.Stats{Pushed: uint64(events - missed), Dropped: uint64(missed)})
}

func (s Subject) ends(t *testing.T) {
	tr := s.begin(t, 0, bus.Filter{})
	tr.run()
	tr.open(1, 1)
	tr.want(1)
	tr.open(2, 20)
	tr.want(2) // the next one is on its way
	if s.Waits {
		tr.r.Release()
	}
	tr.cancel()
	if err := within(t, tr.done, "Run returns"); err != nil {
		t.Fatalf("Run: %v", err)
	}
	tr.open(21, 21) // the bus goes on
}
