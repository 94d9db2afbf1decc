package alertmanager_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/alertmanager"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

type alert struct {
	Labels, Annotations map[string]string
	StartsAt, EndsAt    time.Time
}

// am is an Alertmanager that answers with what status says.
type am struct {
	mu     sync.Mutex
	hold   chan struct{} // nil, or closed when it may answer
	status int
	posts  []post
}

type post struct {
	at     time.Time
	url    string
	alerts []alert
}

func (a *am) RoundTrip(req *http.Request) (*http.Response, error) {
	var alerts []alert
	err := json.NewDecoder(req.Body).Decode(&alerts)
	a.mu.Lock()
	hold := a.hold
	a.mu.Unlock()
	if hold != nil {
		<-hold
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.posts = append(a.posts, post{time.Now(), req.URL.String(), alerts})
	return &http.Response{StatusCode: a.status, Body: http.NoBody, Header: http.Header{}, Request: req}, err
}

func (a *am) answer(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status = status
}

func (a *am) take() []post {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	posts := a.posts
	a.posts = nil
	return posts
}

// play runs a sink in virtual time, against one Alertmanager that has the addresses given.
func play(t *testing.T, cfg alertmanager.Config, f func(t *testing.T, b *bus.Bus, a *am, s *alertmanager.Sink)) {
	playQueued(t, 0, cfg, f)
}

// playQueued is play with a bus whose queues have that many places; 0 is its default.
func playQueued(t *testing.T, queue int, cfg alertmanager.Config,
	f func(t *testing.T, b *bus.Bus, a *am, s *alertmanager.Sink),
) {
	synctest.Test(t, func(t *testing.T) {
		b := bus.New(bus.Config{Job: "train", Queue: queue})
		a := &am{status: http.StatusOK}
		cfg.Bus, cfg.Transport, cfg.Logger = b, a, slog.New(slog.DiscardHandler)
		s, err := alertmanager.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		f(t, b, a, s)
		cancel()
		ended.Wait()
		b.Close()
	})
}

func opened(key string, severity bus.Severity) bus.Event {
	return bus.Event{
		Type: semconv.EventVerdictOpened, Stage: bus.Opened, Key: key, Severity: severity, Reason: "not_entered",
		Rank: "3", Text: "rank 3 has not entered", Description: "its last call was 8 s ago",
	}
}

func publish(t *testing.T, b *bus.Bus, ev bus.Event) {
	t.Helper()
	if err := b.Publish(ev); err != nil {
		t.Fatal(err)
	}
}

// TestLife follows one alert: opened, sent again, changed to another severity, resolved.
func TestLife(t *testing.T) {
	cfg := alertmanager.Config{
		URLs: []string{"http://am1", "http://am2/prefix/"},
	}
	play(t, cfg, func(t *testing.T, b *bus.Bus, a *am, s *alertmanager.Sink) {
		began := time.Now()
		publish(t, b, opened("v1", bus.Warning))
		posts := a.take()
		if len(posts) != 2 || posts[0].url == posts[1].url {
			t.Fatalf("%d posts, want one to each: %+v", len(posts), posts)
		}
		for _, p := range posts {
			if p.url != "http://am1/api/v2/alerts" && p.url != "http://am2/prefix/api/v2/alerts" {
				t.Errorf("posted to %s", p.url)
			}
		}
		got := posts[0].alerts[0]
		for name, want := range map[string]string{
			"alertname": "CarillonVerdict", "severity": "warning", "reason": "not_entered", "rank": "3", "job": "train",
		} {
			if got.Labels[name] != want {
				t.Errorf("label %s is %q, want %q", name, got.Labels[name], want)
			}
		}
		if got.Annotations["summary"] != "rank 3 has not entered" ||
			got.Annotations["description"] != "its last call was 8 s ago" {
			t.Errorf("annotations: %v", got.Annotations)
		}
		if !got.StartsAt.Equal(began) || !got.EndsAt.Equal(began.Add(4*time.Minute)) {
			t.Errorf("from %v to %v, want from %v for 4 minutes", got.StartsAt, got.EndsAt, began)
		}

		time.Sleep(time.Minute) // virtual
		if posts = a.take(); len(posts) != 2 || !posts[0].alerts[0].EndsAt.Equal(began.Add(5*time.Minute)) {
			t.Fatalf("after a minute: %+v, want it sent again", posts)
		}

		ev := opened("v1", bus.Critical)
		ev.Type, ev.Stage = semconv.EventVerdictChanged, bus.Changed
		publish(t, b, ev)
		posts = a.take()
		if len(posts) != 2 || len(posts[0].alerts) != 2 || posts[0].alerts[0].EndsAt.After(time.Now()) ||
			posts[0].alerts[1].Labels["severity"] != "critical" {
			t.Fatalf("changed: %+v, want the old one resolved and the new one opened", posts)
		}

		time.Sleep(time.Second) // virtual
		ev.Type, ev.Stage, ev.Severity = semconv.EventVerdictWithdrawn, bus.Closed, bus.Info
		publish(t, b, ev)
		posts = a.take()
		if len(posts) != 2 || len(posts[0].alerts) != 1 || posts[0].alerts[0].Labels["severity"] != "critical" ||
			posts[0].alerts[0].EndsAt.After(time.Now()) {
			t.Fatalf("withdrawn: %+v, want it resolved by the labels it has", posts)
		}
		time.Sleep(time.Hour) // virtual
		if posts = a.take(); len(posts) != 0 {
			t.Errorf("it is resolved, and %+v is sent", posts)
		}
		if got := s.Stats(); got != (bus.Stats{Pushed: 3}) {
			t.Errorf("Stats: %+v", got)
		}
	})
}

// TestRefused: an alert that an Alertmanager doesn't accept is sent again, and so is its end.
func TestRefused(t *testing.T) {
	play(t, alertmanager.Config{URLs: []string{"http://am"}}, func(
		t *testing.T, b *bus.Bus, a *am, s *alertmanager.Sink,
	) {
		a.answer(http.StatusInternalServerError)
		publish(t, b, opened("v1", bus.Critical))
		if n := len(a.take()); n != 1 {
			t.Fatalf("%d posts", n)
		}
		time.Sleep(12 * time.Second) // virtual
		if n := len(a.take()); n != 2 {
			t.Fatalf("%d posts in 12 s, want one each 5 s", n)
		}
		if got := s.Stats(); got != (bus.Stats{}) {
			t.Errorf("Stats before it is accepted: %+v", got)
		}
		closed := opened("v1", bus.Critical)
		closed.Stage = bus.Closed
		publish(t, b, closed)
		a.take()
		a.answer(http.StatusOK)
		time.Sleep(6 * time.Second) // virtual
		posts := a.take()
		if len(posts) != 1 || posts[0].alerts[0].EndsAt.After(posts[0].at) {
			t.Fatalf("%+v, want the end", posts)
		}
		if got := s.Stats(); got != (bus.Stats{Pushed: 2}) {
			t.Errorf("Stats: %+v", got)
		}
	})
}

// TestReopens: an end that no Alertmanager has accepted is not sent once the alert is open again.
func TestReopens(t *testing.T) {
	play(t, alertmanager.Config{URLs: []string{"http://am"}}, func(
		t *testing.T, b *bus.Bus, a *am, s *alertmanager.Sink,
	) {
		publish(t, b, opened("v1", bus.Critical))
		a.take()
		a.answer(http.StatusServiceUnavailable)
		time.Sleep(time.Second) // virtual
		closed := opened("v1", bus.Critical)
		closed.Stage = bus.Closed
		publish(t, b, closed)
		a.take()
		a.answer(http.StatusOK)
		time.Sleep(time.Second) // virtual
		publish(t, b, opened("v1", bus.Critical))
		time.Sleep(30 * time.Second) // virtual
		posts := a.take()
		if len(posts) != 1 || len(posts[0].alerts) != 1 || !posts[0].alerts[0].EndsAt.After(posts[0].at) {
			t.Errorf("%+v, want the alert that is open alone", posts)
		}
		if got := s.Stats(); got != (bus.Stats{Pushed: 3}) {
			t.Errorf("Stats: %+v", got)
		}
	})
}

// TestEndsAtOnce: an alert that ends at the moment at which it began is resolved when its end has passed: Alertmanager
// keeps the end that it has in place of one that is still ahead.
func TestEndsAtOnce(t *testing.T) {
	play(t, alertmanager.Config{URLs: []string{"http://am"}}, func(
		t *testing.T, b *bus.Bus, a *am, s *alertmanager.Sink,
	) {
		publish(t, b, opened("v1", bus.Critical))
		a.take()
		closed := opened("v1", bus.Critical)
		closed.Stage = bus.Closed
		publish(t, b, closed)
		time.Sleep(time.Second) // virtual
		posts := a.take()
		if len(posts) != 1 || posts[0].alerts[0].EndsAt.After(posts[0].at) {
			t.Errorf("%+v, want one that has ended", posts)
		}
		if got := s.Stats(); got != (bus.Stats{Pushed: 2}) {
			t.Errorf("Stats: %+v", got)
		}
	})
}

// TestUnresolved: a condition with which a job ends is an alert for long enough that Alertmanager notifies somebody,
// even if no process is left to send it again. A condition that has been one for longer ends at once.
func TestUnresolved(t *testing.T) {
	for lasted, rest := range map[time.Duration]time.Duration{
		10 * time.Millisecond: 5*time.Minute - 10*time.Millisecond,
		time.Hour:             0,
	} {
		play(t, alertmanager.Config{URLs: []string{"http://am"}}, func(t *testing.T, b *bus.Bus, a *am,
			s *alertmanager.Sink,
		) {
			publish(t, b, opened("v1", bus.Critical))
			synctest.Wait()
			time.Sleep(lasted) // virtual
			a.take()
			ev := opened("v1", bus.Critical)
			ev.Type, ev.Stage, ev.Unresolved = semconv.EventVerdictWithdrawn, bus.Closed, true
			publish(t, b, ev)
			posts := a.take()
			if len(posts) != 1 || len(posts[0].alerts) != 1 || !posts[0].alerts[0].EndsAt.Equal(time.Now().Add(rest)) {
				t.Fatalf("after %v: %+v, want it to end in %v", lasted, posts, rest)
			}
			time.Sleep(time.Hour) // virtual
			if posts = a.take(); len(posts) != 0 {
				t.Errorf("all was told, and %+v is sent", posts)
			}
			if got := s.Stats(); got != (bus.Stats{Pushed: 2}) {
				t.Errorf("Stats: %+v", got)
			}
		})
	}
}

// TestMissed has the sink miss the end of one condition and the beginning of another, behind a crowd of others.
// Afterwards it sends the conditions that hold.
func TestMissed(t *testing.T) {
	cfg := alertmanager.Config{URLs: []string{"http://am"}}
	playQueued(t, 2, cfg, func(t *testing.T, b *bus.Bus, a *am, s *alertmanager.Sink) {
		publish(t, b, opened("over", bus.Critical))
		a.take()
		time.Sleep(10 * time.Minute) // virtual
		a.take()
		ended := opened("over", bus.Critical)
		ended.Type, ended.Stage, ended.Reason = semconv.EventVerdictWithdrawn, bus.Closed, "over"
		begins := opened("begins", bus.Critical)
		begins.Reason = "mismatch"
		events := []bus.Event{ended, begins}
		for i := range 3 {
			events = append(events, bus.Event{
				Type: semconv.EventGPUXid, Severity: bus.Warning, Rank: strconv.Itoa(i),
				Text: "an Xid",
			})
		}
		hold := make(chan struct{}) // the sink is busy until all are there
		a.mu.Lock()
		a.hold = hold
		a.mu.Unlock()
		publish(t, b, opened("blocks", bus.Warning))
		synctest.Wait()
		for _, ev := range events {
			publish(t, b, ev)
		}
		close(hold)
		synctest.Wait()
		firing := map[string]bool{}
		for _, p := range a.take() {
			for _, got := range p.alerts {
				firing[got.Labels["reason"]+got.Labels["severity"]] = got.EndsAt.After(time.Now())
			}
		}
		want := map[string]bool{
			"not_enteredcritical": false, "not_enteredwarning": true, "mismatchcritical": true,
			"warning": true,
		}
		if !maps.Equal(firing, want) {
			t.Errorf("firing: %v, want %v", firing, want)
		}
		if dropped := s.Stats().Dropped; dropped != 3 {
			t.Errorf("%d events were dropped, want 3 for this test to mean anything", dropped)
		}
	})
}

// TestOnceAndTwins: a momentary event is an alert for five minutes; if two conditions have the same labels, the end of
// one ends no alert.
func TestOnceAndTwins(t *testing.T) {
	cfg := alertmanager.Config{URLs: []string{"http://am"}, Resend: time.Hour}
	play(t, cfg, func(t *testing.T, b *bus.Bus, a *am, _ *alertmanager.Sink) {
		publish(t, b, bus.Event{Type: semconv.EventGPUXid, Severity: bus.Warning, Text: "Xid 79"})
		a.take()
		time.Sleep(5 * time.Minute) // virtual
		posts := a.take()
		if len(posts) != 1 || posts[0].alerts[0].Labels["alertname"] != "CarillonGPUXid" ||
			posts[0].alerts[0].EndsAt.After(posts[0].at) {
			t.Fatalf("%+v, want its end", posts)
		}
		publish(t, b, opened("v1", bus.Critical))
		publish(t, b, opened("v2", bus.Critical))
		a.take()
		closed := opened("v1", bus.Critical)
		closed.Stage = bus.Closed
		publish(t, b, closed)
		if posts := a.take(); len(posts) != 0 {
			t.Errorf("%+v, though v2 is open", posts)
		}
		closed.Key = "v2"
		time.Sleep(time.Second) // virtual
		publish(t, b, closed)
		if posts := a.take(); len(posts) != 1 {
			t.Errorf("%+v, want the end of both", posts)
		}
	})
}

func TestName(t *testing.T) {
	for _, c := range []struct{ kind, reason, want string }{
		{semconv.EventVerdictChanged, "rank_dead", "CarillonVerdict"},
		{semconv.EventVerdictOpened, "deadlock", "CarillonDeadlock"},
		{semconv.EventVerdictOpened, "straggler", "CarillonStraggler"},
		{semconv.EventRankDead, "", "CarillonRankDead"},
		{semconv.EventGPUXid, "", "CarillonGPUXid"},
		{"..odd__type-x", "", "CarillonOddTypeX"},
	} {
		if got := alertmanager.Name(&bus.Event{Type: c.kind, Reason: c.reason}); got != c.want {
			t.Errorf("%s %s is %s, want %s", c.kind, c.reason, got, c.want)
		}
	}
}

func TestValidate(t *testing.T) {
	for want, cfg := range map[string]alertmanager.Config{
		"URLs[0]": {SinkConfig: bus.SinkConfig{Bus: bus.New(bus.Config{})}, URLs: []string{"am:9093/secret"}},
		"URLs":    {},
		"Resend":  {Resend: -1},
	} {
		_, err := alertmanager.New(cfg)
		if err == nil || !strings.Contains(err.Error(), "alertmanager.Config."+want) {
			t.Errorf("%v doesn't name %s", err, want)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%v repeats an address", err)
		}
	}
}
