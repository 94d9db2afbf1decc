package bus_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/log/embedded"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/alertmanager"
	"github.com/carillon-rt/carillon/ras/bus/otlplog"
	"github.com/carillon-rt/carillon/ras/bus/sse"
	"github.com/carillon-rt/carillon/ras/bus/webhook"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// Every sink keeps bus.Sink's promises: it sends in order what was published before and during Run, obeys its filter,
// holds nothing up if its receiver takes nothing, reports what it dropped, counts every event once, drains when the Bus
// is closed, and ends when its context does.
func TestSinksConform(t *testing.T) {
	must := func(t *testing.T, sink bus.Sink, err error) bus.Sink {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return sink
	}
	for name, s := range map[string]subject{
		"function": {waits: true, make: func(_ *testing.T, b *bus.Bus, filter bus.Filter, r *receiver) bus.Sink {
			return bus.NewSink(b, "function", filter, func(ctx context.Context, ev *bus.Event) error {
				r.take(context.WithoutCancel(ctx), []byte(ev.Text))
				return nil
			})
		}},
		"otlplog": {waits: true, make: func(_ *testing.T, b *bus.Bus, filter bus.Filter, r *receiver) bus.Sink {
			return otlplog.New(b, filter, recordTaker{to: r})
		}},
		"webhook": {make: func(t *testing.T, b *bus.Bus, filter bus.Filter, r *receiver) bus.Sink {
			cfg := webhook.Config{SinkConfig: bus.SinkConfig{Bus: b, Filter: filter}, URL: r.serve(t)}
			sink, err := webhook.New(cfg)
			return must(t, sink, err)
		}},
		"alertmanager": {states: true, make: func(t *testing.T, b *bus.Bus, filter bus.Filter, r *receiver) bus.Sink {
			sink, err := alertmanager.New(alertmanager.Config{
				SinkConfig: bus.SinkConfig{Bus: b, Filter: filter}, URLs: []string{r.serve(t)},
			})
			return must(t, sink, err)
		}},
		"sse": {make: func(t *testing.T, b *bus.Bus, filter bus.Filter, r *receiver) bus.Sink {
			h := sse.New(b)
			to := &answer{ResponseRecorder: httptest.NewRecorder(), to: r}
			to.deadline, to.over = context.WithCancel(context.Background())
			query := fmt.Sprintf("/?last_event_id=0&severity=%v&type=%s", filter.Least, strings.Join(filter.Types, ","))
			var client sync.WaitGroup
			client.Go(func() {
				<-h.Begun()
				h.ServeHTTP(to, httptest.NewRequest(http.MethodGet, query, nil))
			})
			t.Cleanup(func() { r.release(); client.Wait() })
			return h
		}},
	} {
		t.Run(name, s.conforms)
	}
}

// recordTaker hands log records to the test.
type recordTaker struct {
	embedded.Logger
	to *receiver
}

func (r recordTaker) Emit(ctx context.Context, rec log.Record) {
	r.to.take(context.WithoutCancel(ctx), []byte(rec.Body().AsString()))
}

func (recordTaker) Enabled(context.Context, log.EnabledParameters) bool { return true }

// subject is a sink under test.
type subject struct {
	// make makes the sink and its receiver, which hands everything to r and lives as long as t.
	make func(t *testing.T, b *bus.Bus, filter bus.Filter, r *receiver) bus.Sink
	// states is true for a sink that sends states, not events: of the events that it missed, it sends those that still
	// hold, and no notice that it missed any.
	states bool
	// waits is true for a sink that can't interrupt its receiver: its Run ends once the receiver has taken what it was
	// given.
	waits bool
}

func (s subject) conforms(t *testing.T) {
	t.Run("in order, from before Run until the bus is closed", s.inOrder)
	t.Run("filter", s.filter)
	t.Run("a receiver that takes nothing holds nobody up", s.overflow)
	t.Run("ends with its context", s.ends)
}

// got is what a receiver got: one of the suite's events, by its number, or how many it was told that it missed.
type got struct{ event, missed int }

var known = regexp.MustCompile(`event number (\d+)\b|(\d+) events were dropped here`)

// receiver takes what a sink sends, at the pace of the test.
type receiver struct {
	got      chan got
	arrived  chan struct{} // an event has come, and waits for the test
	released context.Context
	// release lets all calls of take return, from now on.
	release context.CancelFunc
}

// take finds the suite's events in a body and hands them to the test. It blocks until the test has them or is over, or
// ctx ends.
func (r *receiver) take(ctx context.Context, raw []byte) {
	for _, match := range known.FindAllSubmatch(raw, -1) {
		event, _ := strconv.Atoi(string(match[1]))
		missed, _ := strconv.Atoi(string(match[2]))
		select {
		case r.arrived <- struct{}{}:
		default: // no test waits for so many
		}
		select {
		case r.got <- got{event, missed}:
		case <-r.released.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// serve is a server that hands what is posted to it to the test; it returns the server's URL.
func (r *receiver) serve(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.take(context.Background(), body)
	}))
	t.Cleanup(func() { r.release(); server.Close() })
	return server.URL
}

// answer is the answer to a request that is read at the pace of the test, until its deadline.
type answer struct {
	*httptest.ResponseRecorder
	to       *receiver
	deadline context.Context
	over     context.CancelFunc
}

func (a *answer) SetWriteDeadline(at time.Time) error {
	if !at.After(time.Now()) {
		a.over()
	}
	return nil
}

func (a *answer) Write(b []byte) (int, error) {
	a.to.take(a.deadline, b)
	return len(b), a.deadline.Err()
}

type trial struct {
	t      *testing.T
	bus    *bus.Bus
	r      *receiver
	sink   bus.Sink
	cancel context.CancelFunc
	done   chan error
}

func (s subject) begin(t *testing.T, queue int, filter bus.Filter) *trial {
	t.Helper()
	b := bus.New(bus.Config{Queue: queue})
	t.Cleanup(b.Close)
	r := &receiver{got: make(chan got), arrived: make(chan struct{}, 1024)}
	r.released, r.release = context.WithCancel(context.Background())
	tr := &trial{t: t, bus: b, r: r, sink: s.make(t, b, filter, r), done: make(chan error, 1)}
	t.Cleanup(r.release) // first, so that the receiver can end
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

// ended waits until Run has returned, and checks what it counted.
func (tr *trial) ended(want bus.Stats) {
	tr.t.Helper()
	if err := within(tr.t, tr.done, "Run returns"); err != nil {
		tr.t.Fatalf("Run: %v", err)
	}
	if stats := tr.sink.Stats(); stats != want {
		tr.t.Fatalf("Stats are %+v, want %+v", stats, want)
	}
}

func (s subject) inOrder(t *testing.T) {
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

func (s subject) filter(t *testing.T) {
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

// overflow wants each event or the notice that it was missed, in order. From a sink that sends states it wants all of
// them, in any order, as they all hold.
func (s subject) overflow(t *testing.T) {
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
		case come[next.event] || next.event < last && !s.states:
			t.Fatalf("event %d came behind event %d", next.event, last)
		}
		last = next.event
		come[last] = true
	}
	tr.bus.Close()
	if s.states {
		missed = int(tr.sink.Stats().Dropped)
	}
	if missed == 0 {
		t.Error("nothing was dropped: the queue is not bounded")
	}
	tr.ended(bus.Stats{Pushed: uint64(events - missed), Dropped: uint64(missed)})
}

func (s subject) ends(t *testing.T) {
	tr := s.begin(t, 0, bus.Filter{})
	tr.run()
	tr.open(1, 1)
	tr.want(1)
	tr.open(2, 20)
	tr.want(2)
	for range 3 {
		within(t, tr.r.arrived, "the third event arrives") // and its sink is held up
	}
	if s.waits {
		tr.r.release()
	}
	tr.cancel()
	if err := within(t, tr.done, "Run returns"); err != nil {
		t.Fatalf("Run: %v", err)
	}
	tr.open(21, 21) // the bus goes on
}
