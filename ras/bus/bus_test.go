package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

func publish(t *testing.T, b *bus.Bus, text string) {
	t.Helper()
	if err := b.Publish(bus.Event{Type: semconv.EventRankDead, Text: text}); err != nil {
		t.Fatal(err)
	}
}

// texts takes n events: their texts, or the types and data of notices.
func texts(t *testing.T, s *bus.Subscription, n int) []string {
	t.Helper()
	var out []string
	for range n {
		ev := next(t, s)
		if ev.Notice() {
			out = append(out, strings.TrimPrefix(ev.Type, semconv.EventPrefix)+" "+string(ev.JSON()))
		} else {
			out = append(out, ev.Text)
		}
	}
	return out
}

func want(t *testing.T, s *bus.Subscription, wanted ...string) {
	t.Helper()
	if diff := cmp.Diff(wanted, texts(t, s, len(wanted))); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	if s.Waiting() {
		t.Fatalf("there is more: %v", next(t, s))
	}
}

// TestOverflow: a full queue drops its oldest events. Its subscriber hears how many in the place where they were, and
// no other subscriber is affected.
func TestOverflow(t *testing.T) {
	b := newBus(t, bus.Config{Queue: 2})
	slow := b.Attach(bus.Filter{}, "")
	other := b.Attach(bus.Filter{}, "")
	publish(t, b, "1")
	seen := next(t, slow)
	want(t, other, "1")
	for n := 2; n <= 6; n++ {
		publish(t, b, fmt.Sprint(n))
		want(t, other, fmt.Sprint(n))
	}
	want(t, slow, fmt.Sprintf(`events.missed {"after":%q,"missed":3}`, seen.ID), "5", "6")
	if slow.Dropped() != 3 || other.Dropped() != 0 {
		t.Errorf("dropped %d and %d, want 3 and 0", slow.Dropped(), other.Dropped())
	}
	publish(t, b, "7")
	want(t, slow, "7") // said once
}

// TestResume: after an id come the events that followed it, or a notice that the id is forgotten, unknown or malformed.
func TestResume(t *testing.T) {
	b := newBus(t, bus.Config{History: 3})
	live := b.Attach(bus.Filter{}, "")
	var ids []string
	for n := 1; n <= 5; n++ {
		publish(t, b, fmt.Sprint(n))
		ids = append(ids, next(t, live).ID)
	}
	for _, c := range []struct {
		after  string
		wanted []string
	}{
		{ids[4], nil},
		{ids[2], []string{"4", "5"}},
		{ids[1], []string{"3", "4", "5"}},
		{ids[0], []string{fmt.Sprintf(`events.gap {"after":%q,"missed":1,"why":"forgotten"}`, ids[0]), "3", "4", "5"}},
		{bus.FromStart, []string{`events.gap {"after":"0","missed":2,"why":"forgotten"}`, "3", "4", "5"}},
		{strings.TrimSuffix(ids[4], "5") + "6", []string{
			fmt.Sprintf(`events.gap {"after":%q,"why":"unknown"}`, strings.TrimSuffix(ids[4], "5")+"6"), "3", "4", "5",
		}},
		{"0123456789abcdef-3", []string{`events.gap {"after":"0123456789abcdef-3","why":"unknown"}`, "3", "4", "5"}},
		{"-3", []string{`events.gap {"after":"-3","why":"malformed"}`, "3", "4", "5"}},
	} {
		s := b.Attach(bus.Filter{}, c.after)
		want(t, s, c.wanted...)
		s.Close()
	}
	s := b.Attach(bus.Filter{}, ids[3])
	publish(t, b, "6")
	want(t, s, "5", "6") // what was missed and what is new, once each
}

// TestClose: queued events are still delivered, then subscriptions end. A closed Bus still delivers its history.
func TestClose(t *testing.T) {
	b := newBus(t, bus.Config{})
	s := b.Attach(bus.Filter{}, "")
	closed := b.Attach(bus.Filter{}, "")
	publish(t, b, "1")
	closed.Close()
	closed.Close()
	b.Close()
	b.Close()
	<-b.Done()
	want(t, s, "1")
	late := b.Attach(bus.Filter{}, bus.FromStart)
	want(t, late, "1")
	for name, s := range map[string]*bus.Subscription{"queued": s, "late": late, "closed before": closed} {
		if ev, err := s.Next(t.Context()); !errors.Is(err, bus.ErrClosed) {
			t.Errorf("%s: %v, %v, want ErrClosed", name, ev, err)
		}
	}
	if err := b.Publish(bus.Event{Type: semconv.EventRankDead}); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Publish: %v, want ErrClosed", err)
	}
	for ev := range b.Attach(bus.Filter{}, "").Events(t.Context()) {
		t.Errorf("a closed bus has news: %v", ev)
	}
}

// TestNextObeysItsContext: the wait ends with the context's cause, and no event is lost by that.
func TestNextObeysItsContext(t *testing.T) {
	b := newBus(t, bus.Config{})
	s := b.Attach(bus.Filter{}, "")
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	var waiter sync.WaitGroup
	waiter.Go(func() {
		if ev, err := s.Next(ctx); !errors.Is(err, reason) {
			t.Errorf("%v, %v, want the cause", ev, err)
		}
	})
	cancel(reason)
	waiter.Wait()
	publish(t, b, "1")
	if _, err := s.Next(ctx); !errors.Is(err, reason) {
		t.Errorf("%v, want the cause", err)
	}
	want(t, s, "1")
}

// TestFilter: by type and severity. A subscriber that heard that a condition is critical hears of its end.
func TestFilter(t *testing.T) {
	b := newBus(t, bus.Config{})
	critical := b.Attach(bus.Filter{Least: bus.Critical}, "")
	gpus := b.Attach(bus.Filter{Types: []string{"dev.carillon.gpu.", "rank.left"}}, "")
	for _, ev := range []bus.Event{
		{Type: semconv.EventVerdictOpened, Stage: bus.Opened, Key: "v1", Severity: bus.Warning, Text: "warning"},
		{Type: semconv.EventVerdictChanged, Stage: bus.Changed, Key: "v1", Severity: bus.Critical, Text: "critical"},
		{Type: semconv.EventGPUXid, Text: "xid"},
		{Type: semconv.EventRankLeft, Text: "left"},
		{Type: semconv.EventVerdictWithdrawn, Stage: bus.Closed, Key: "v1", Text: "withdrawn"},
		{Type: semconv.EventVerdictOpened, Stage: bus.Opened, Key: "v1", Severity: bus.Warning, Text: "again"},
		{Type: semconv.EventVerdictWithdrawn, Stage: bus.Closed, Key: "v1", Text: "and over"},
	} {
		if err := b.Publish(ev); err != nil {
			t.Fatal(err)
		}
	}
	want(t, critical, "critical", "withdrawn")
	want(t, gpus, "xid", "left")
}

// TestAtOnce: publishers, subscribers that come and go, and the end of the bus don't get in each other's way. A
// subscriber that stays gets every event, or a notice that it didn't.
func TestAtOnce(t *testing.T) {
	const publishers, each = 4, 500
	b := newBus(t, bus.Config{Queue: 16})
	var readers, writers sync.WaitGroup
	for range 4 {
		s := b.Attach(bus.Filter{}, "")
		readers.Go(func() {
			last, got := map[string]int{}, 0
			for ev := range s.Events(context.Background()) {
				if ev.Notice() {
					continue
				}
				var number int
				if _, err := fmt.Sscan(ev.Text, &number); err != nil || number <= last[ev.Subject] {
					t.Errorf("%s: %s came behind %d", ev.Subject, ev.Text, last[ev.Subject])
				}
				last[ev.Subject] = number
				got++
			}
			if got+int(s.Dropped()) != publishers*each {
				t.Errorf("%d events came and %d were dropped, want %d together", got, s.Dropped(), publishers*each)
			}
		})
	}
	for p := range publishers {
		writers.Go(func() {
			for n := 1; n <= each; n++ {
				ev := bus.Event{Type: semconv.EventRankDead, Subject: fmt.Sprint("publisher ", p), Text: fmt.Sprint(n)}
				if err := b.Publish(ev); err != nil {
					t.Error(err)
				}
				if n%50 == 0 {
					b.Attach(bus.Filter{}, bus.FromStart).Close()
				}
			}
		})
	}
	writers.Wait()
	b.Close()
	readers.Wait()
}

// TestManyKeys: the gate forgets conditions that have ended, so that it doesn't grow, and passes events that it can't
// track as they are.
func TestManyKeys(t *testing.T) {
	const many = 5000
	b := newBus(t, bus.Config{Queue: 4 * many})
	s := b.Attach(bus.Filter{}, "")
	// told publishes each of many events twice, and returns how many of them are passed on.
	told := func(stage bus.Stage) (n int) {
		for i := range 2 * many {
			err := b.Publish(bus.Event{Type: semconv.EventVerdictOpened, Stage: stage, Key: fmt.Sprint(stage, i/2)})
			if err != nil {
				t.Fatal(err)
			}
		}
		for ; s.Waiting(); n++ {
			next(t, s)
		}
		return n
	}
	if got := told(bus.Once); got != many {
		t.Errorf("%d moments are told, want %d: there is room for each, as those before it are forgotten", got, many)
	}
	if again := told(bus.Opened) - many; again <= 0 || again > many/2 {
		t.Errorf("%d of %d conditions are told twice, want those alone for which there was no room", again, many)
	}
}
