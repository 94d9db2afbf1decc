package watch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/endpoint"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/find"
	"github.com/carillon-rt/carillon/cmd/carillon/internal/view"
	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/sse"
	"github.com/carillon-rt/carillon/telemetry/semconv"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rank is the health endpoint of a process, with a real bus behind it.
type rank struct {
	*httptest.Server
	t   *testing.T
	bus *bus.Bus

	mu       sync.Mutex
	resumed  []string // the Last-Event-IDs of streams
	asked    int
	cut      context.CancelFunc
	snapshot map[string]any
}

func newRank(t *testing.T, number int) *rank {
	t.Helper()
	b := bus.New(bus.Config{Source: fmt.Sprintf("/jobs/train/ranks/%d", number), Job: "train"})
	events := sse.New(b)
	r := &rank{t: t, bus: b, snapshot: map[string]any{
		"schema": 1, "job": "train", "rank": number, "size": 2,
		"pid": 100 + number, "host": "a",
	}}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/ras", func(w http.ResponseWriter, _ *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked++
		_ = json.NewEncoder(w).Encode(r.snapshot)
	})
	mux.HandleFunc("/api/v1/events", func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		r.mu.Lock()
		r.resumed, r.cut = append(r.resumed, req.Header.Get("Last-Event-ID")), cancel
		r.mu.Unlock()
		events.ServeHTTP(w, req.WithContext(ctx))
	})
	r.Server = httptest.NewServer(mux)
	running, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = events.Run(running)
	}()
	<-events.Begun() // streams are refused before
	t.Cleanup(func() {
		stop()
		<-stopped
		b.Close()
		r.Close()
	})
	return r
}

// tell publishes an event of a verdict.
func (r *rank) tell(id string, stage bus.Stage) {
	r.t.Helper()
	kind := map[bus.Stage]string{
		bus.Opened: semconv.EventVerdictOpened, bus.Changed: semconv.EventVerdictChanged,
		bus.Closed: semconv.EventVerdictWithdrawn,
	}[stage]
	if err := r.bus.Publish(bus.Event{
		Type: kind, Stage: stage, Severity: bus.Critical, Key: "verdict/" + id, Subject: "rank 1", Text: "verdict " +
			id, Data: map[string]any{"id": id, "text": id},
	}); err != nil {
		r.t.Error(err)
	}
}

// die ends the endpoint and all its connections.
func (r *rank) die() {
	r.CloseClientConnections()
	r.Listener.Close()
}

// display passes on the events that it is to show.
type display struct {
	events chan string
	quit   chan struct{}
	mu     sync.Mutex
	last   *view.Report
}

func newDisplay() *display {
	return &display{events: make(chan string, 100), quit: make(chan struct{})}
}

func (d *display) Event(ev *bus.Event) {
	d.events <- strings.TrimPrefix(ev.Type, semconv.EventPrefix) + " " + ev.Text
}

func (d *display) State(r *view.Report, _ string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = r
}
func (*display) Redraw() <-chan struct{} { return nil }
func (d *display) Quit() <-chan struct{} { return d.quit }

// await checks the next events that are shown.
func (d *display) await(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		select {
		case got := <-d.events:
			if got != w {
				t.Fatalf("it shows %q, want %q", got, w)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("it doesn't show %q", w)
		}
	}
}

// start watches ranks until the test ends.
func start(t *testing.T, d Display, ranks ...*rank) (end <-chan End, stop func()) {
	t.Helper()
	client, err := endpoint.New(endpoint.Config{Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	var targets []endpoint.Target
	for _, r := range ranks {
		targets = append(targets, endpoint.Target{URL: r.URL})
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended, result := make(chan struct{}), make(chan End, 1)
	go func() {
		defer close(ended)
		result <- Run(ctx, Config{Client: client, Targets: targets, Display: d})
	}()
	stop = func() {
		cancel()
		<-ended
		client.Close()
	}
	t.Cleanup(stop)
	return result, stop
}

// TestMovesOn: when a rank ends, another one's stream is read; no event is shown twice or missed.
func TestMovesOn(t *testing.T) {
	a, b := newRank(t, 0), newRank(t, 1)
	d := newDisplay()
	for _, r := range []*rank{a, b} {
		r.tell("1", bus.Opened)
	}
	_, _ = start(t, d, a, b)
	d.await(t, "verdict.opened verdict 1")
	b.tell("1", bus.Closed) // a had no time to report this
	b.tell("2", bus.Opened)
	a.die()
	d.await(t, "verdict.withdrawn verdict 1", "verdict.opened verdict 2")
	b.tell("1", bus.Opened) // again, so it is news
	d.await(t, "verdict.opened verdict 1")
}

// TestWithdrawnAgain: a new coordinator changes a verdict before it withdraws it, although the last coordinator has
// already withdrawn it. The verdict doesn't stay open.
func TestWithdrawnAgain(t *testing.T) {
	a, b := newRank(t, 0), newRank(t, 1)
	d := newDisplay()
	a.tell("1", bus.Opened)
	a.tell("1", bus.Closed)
	_, _ = start(t, d, a, b)
	d.await(t, "verdict.opened verdict 1", "verdict.withdrawn verdict 1")
	for _, stage := range []bus.Stage{bus.Opened, bus.Changed, bus.Closed} {
		b.tell("1", stage)
	}
	a.die()
	d.await(t, "verdict.changed verdict 1", "verdict.withdrawn verdict 1")
}

// TestResumes: a stream that breaks resumes after the last event.
func TestResumes(t *testing.T) {
	a := newRank(t, 0)
	d := newDisplay()
	a.tell("1", bus.Opened)
	_, _ = start(t, d, a)
	d.await(t, "verdict.opened verdict 1")
	a.mu.Lock()
	a.cut()
	a.mu.Unlock()
	a.tell("2", bus.Opened)
	d.await(t, "verdict.opened verdict 2")
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.resumed) < 2 || a.resumed[0] != endpoint.All || !strings.HasSuffix(a.resumed[len(a.resumed)-1], "-1") {
		t.Errorf("streams began behind %q, want all first, and then the first event", a.resumed)
	}
	if a.asked != 1 {
		t.Errorf("the snapshot was asked for %d times in a moment, want once", a.asked)
	}
}

// TestQuietJobIsNotLost: an idle job of one process, which is rarely asked, has not ended while its event stream is
// open.
func TestQuietJobIsNotLost(t *testing.T) {
	a := newRank(t, 0)
	client, err := endpoint.New(endpoint.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	targets := []endpoint.Target{{URL: a.URL}}
	long := time.Now().Add(-time.Hour)
	w := newWatcher(Config{Client: client, Targets: targets, Display: newDisplay()})
	w.began, w.heard = long, long
	if _, over := w.look(); !over {
		t.Error("a job of which nobody has answered for an hour goes on")
	}
	a.tell("1", bus.Opened) // shows that the stream is open
	ctx, cancel := context.WithCancel(t.Context())
	w.listen(ctx, time.Now())
	for event := false; !event; {
		h := <-w.events
		if h.err != nil {
			t.Fatal(h.err)
		}
		w.hear(h)
		event = h.event != nil
	}
	w.heard = long
	if end, over := w.look(); over {
		t.Errorf("the job has ended while it is listened to: %s", end.Text)
	}
	cancel()
	w.running.Wait()
	w.stream.open = false
	if _, over := w.look(); over {
		t.Error("the job has ended at once when the stream broke")
	}
	w.listened = long
	if _, over := w.look(); !over {
		t.Error("an hour after the stream broke, the job goes on")
	}
}

// TestEndIsAwaited: when no process of a job runs any more, an endpoint that still streams, such as an agent's, has
// until the next look to tell of it.
func TestEndIsAwaited(t *testing.T) {
	w, err := tape.Create(tape.Config{Dir: t.TempDir(), Job: "over"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	job, err := find.Read(filepath.Dir(w.Path()))
	if err != nil {
		t.Fatal(err)
	}
	for _, streams := range []bool{false, true} {
		watcher := newWatcher(Config{Job: job})
		watcher.stream.open = streams
		if _, over := watcher.look(); over == streams {
			t.Errorf("with a stream %t, the first look ends the watching: %t", streams, over)
		}
		if end, over := watcher.look(); !over || !end.Job {
			t.Errorf("with a stream %t, the second look gives %+v, %t", streams, end, over)
		}
	}
}

// TestQuit: a user who quits isn't kept waiting, and everything ends.
func TestQuit(t *testing.T) {
	a := newRank(t, 0)
	d := newDisplay()
	end, _ := start(t, d, a)
	a.tell("1", bus.Opened)
	d.await(t, "verdict.opened verdict 1")
	close(d.quit)
	if got := <-end; got.Job || got.Text != "" {
		t.Errorf("%+v, want an end without a word", got)
	}
}

// TestPoller: each rank is asked once at the beginning, and then one after the other, one every two seconds.
func TestPoller(t *testing.T) {
	p := newPoller()
	targets := []endpoint.Target{{URL: "a"}, {URL: "b"}, {URL: "c"}}
	p.reach(targets)
	now := time.Now()
	last := map[endpoint.Target]time.Time{}
	for end := now.Add(time.Minute); now.Before(end); {
		to, wait := p.next(now)
		if wait > 0 {
			now = now.Add(wait)
			continue
		}
		if before := last[to]; !before.IsZero() && now.Sub(before) < pollAny {
			t.Errorf("%s is asked again after %v", to.URL, now.Sub(before))
		}
		last[to] = now
		p.done(to)
	}
	if len(last) != len(targets) {
		t.Errorf("asked were %v, want all", last)
	}
}

// TestNewsAreLookedInto: an event brings the next request forward, to a second after it; further events don't.
func TestNewsAreLookedInto(t *testing.T) {
	p := newPoller()
	p.reach([]endpoint.Target{{URL: "a"}})
	ask := func(at time.Time) time.Duration {
		to, wait := p.next(at)
		if wait <= 0 {
			p.done(to)
		}
		return wait
	}
	now := time.Now()
	if wait := ask(now); wait > 0 {
		t.Fatalf("the first question comes after %v", wait)
	}
	p.heard(now.Add(200 * time.Millisecond))
	p.heard(now.Add(900 * time.Millisecond))
	if wait := ask(now.Add(time.Second)); wait != 200*time.Millisecond {
		t.Errorf("a second later, the next question is %v away, want 200 ms", wait)
	}
	if wait := ask(now.Add(1200 * time.Millisecond)); wait > 0 {
		t.Errorf("a second after the event, the next question is %v away", wait)
	}
	if wait := ask(now.Add(1300 * time.Millisecond)); wait != pollAny-100*time.Millisecond {
		t.Errorf("the question after that is %v away", wait)
	}
}

// TestManyRanksHaveTheirTurn: with many ranks, none waits for its turn much longer than a minute.
func TestManyRanksHaveTheirTurn(t *testing.T) {
	p := newPoller()
	var targets []endpoint.Target
	for i := range 200 {
		targets = append(targets, endpoint.Target{URL: fmt.Sprint(i)})
	}
	p.reach(targets)
	now := time.Now()
	last := map[endpoint.Target]time.Time{}
	for end := now.Add(5 * time.Minute); now.Before(end); {
		to, wait := p.next(now)
		if wait > 0 {
			now = now.Add(wait)
			continue
		}
		if before := last[to]; !before.IsZero() && now.Sub(before) > pollAll+pollAny {
			t.Fatalf("%s is asked again after %v", to.URL, now.Sub(before))
		}
		last[to] = now
		p.done(to)
	}
	if len(last) != len(targets) {
		t.Errorf("%d are asked, want all %d", len(last), len(targets))
	}
}

// hole is an endpoint that accepts every request, and answers none until the test ends.
func hole(t *testing.T) endpoint.Target {
	t.Helper()
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(end) }) // before the server waits for its requests
	return endpoint.Target{URL: s.URL}
}

// TestUnreachableHoldUpNobody: ranks that don't answer don't keep a rank after them from being asked.
func TestUnreachableHoldUpNobody(t *testing.T) {
	a := newRank(t, 0)
	var targets []endpoint.Target
	for range maxOthers {
		targets = append(targets, hole(t))
	}
	targets = append(targets, endpoint.Target{URL: a.URL})
	client, err := endpoint.New(endpoint.Config{Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	w := newWatcher(Config{Client: client})
	w.poller.reach(targets)
	ctx, cancel := context.WithCancel(t.Context())
	w.ask(ctx, time.Now())
	got := <-w.answers
	if got.err != nil || got.from.URL != a.URL {
		t.Errorf("the first answer is %+v, want that of %s", got, a.URL)
	}
	cancel()
	w.running.Wait()
	// No more requests than allowed are in flight.
	p := newPoller()
	for i := range 2 * askAtOnce {
		targets = append(targets, endpoint.Target{URL: fmt.Sprint(i)})
	}
	p.reach(targets)
	now := time.Now()
	for range askAtOnce {
		if _, wait := p.next(now); wait > 0 {
			t.Fatalf("with %d asked, nobody else is", len(p.busy))
		}
	}
	if to, wait := p.next(now); wait <= 0 {
		t.Errorf("%v is asked beside %d others", to, askAtOnce)
	}
	p.done(targets[0])
	if _, wait := p.next(now); wait > 0 {
		t.Error("nobody is asked although one has answered")
	}
}

// TestMuteAreNotListenedTo: the stream avoids a rank that doesn't answer, unless its events still arrive.
func TestMuteAreNotListenedTo(t *testing.T) {
	targets := []endpoint.Target{{URL: "http://a"}, {URL: "http://b"}, {URL: "http://c"}}
	w := newWatcher(Config{Targets: targets, Display: newDisplay()})
	w.look()
	for _, mute := range targets[:2] {
		w.answer(answer{from: mute, err: errors.New("no answer")})
	}
	if to, _ := w.stream.choose(false); to != targets[2] {
		t.Errorf("it listens to %s, want %s", to.URL, targets[2].URL)
	}
	w.stream.to, w.stream.open = targets[0], true
	w.avoid()
	if to, _ := w.stream.choose(false); to != targets[0] {
		t.Errorf("it leaves %s, which is heard, for %s", targets[0].URL, to.URL)
	}
	w.stream.open = false
	w.answer(answer{from: targets[1], snapshot: &health.Snapshot{}})
	if to, _ := w.stream.choose(false); to != targets[1] {
		t.Errorf("it listens to %s, want %s, which answers again", to.URL, targets[1].URL)
	}
}

// TestWhatWasToldGrowsOld: a rank's last report stays when it no longer answers, marked as stale, until it answers
// again.
func TestWhatWasToldGrowsOld(t *testing.T) {
	targets := []endpoint.Target{{URL: "http://a"}, {URL: "http://b"}}
	w := newWatcher(Config{Targets: targets, Display: newDisplay()})
	w.look()
	told := &health.Snapshot{Job: "train", Rank: 1, Size: 2, PID: 101, Host: "b"}
	stale := func() []view.Stale { return w.view.Report(time.Now()).Stale }
	w.answer(answer{from: targets[1], snapshot: told})
	if got := stale(); len(got) > 0 {
		t.Errorf("stale are %+v as soon as it told", got)
	}
	w.answer(answer{from: targets[1], err: errors.New("no answer")})
	if got := stale(); len(got) != 1 || got[0].Rank != 1 || got[0].Host != "b" || got[0].Why != "no answer" {
		t.Errorf("stale are %+v, want rank 1 without an answer", got)
	}
	w.answer(answer{from: targets[1], snapshot: told})
	if got := stale(); len(got) > 0 {
		t.Errorf("stale are %+v when it answers again", got)
	}
}

func TestLinesTellWhatGrowsOld(t *testing.T) {
	var out, notes bytes.Buffer
	l := NewLines(&out, &notes)
	now := time.Now()
	r := &view.Report{Job: "train", Size: 3, Status: "ok", Time: now, Heard: now, Told: []int{0, 1, 2}}
	l.State(r, "")
	r.Stale = []view.Stale{{Rank: 1, Age: 12, Why: "unreachable"}, {Rank: 2, Age: 14, Why: "unreachable"}}
	l.State(r, "")
	l.State(r, "")
	r.Stale = r.Stale[1:]
	l.State(r, "")
	r.Time = now.Add(time.Minute)
	l.State(r, "")
	l.State(r, "")
	r.Heard = r.Time
	l.State(r, "")
	if want := `carillon: watching job train: healthy, 3 ranks
carillon: stale: ranks 1 and 2 (unreachable), last answer 12s to 14s ago
carillon: no longer stale: rank 1
carillon: no process has answered for 1m0s
carillon: processes answer again
`; notes.String() != want {
		t.Errorf("notes:\n%s\nwant:\n%s", &notes, want)
	}
}

func TestLines(t *testing.T) {
	var out, notes bytes.Buffer
	l := NewLines(&out, &notes)
	l.State(nil, "waiting\x1b[2J")
	l.State(nil, "waiting\x1b[2J")
	l.State(&view.Report{Job: "train", Size: 2, Status: "ok"}, "")
	l.State(&view.Report{Job: "train", Size: 2, Status: "ok"}, "")
	l.Event(&bus.Event{Type: semconv.EventRankDead, Subject: "rank 1", Text: "\x1b[2Jdead"})
	if want := "carillon: waiting\\u001b[2J\ncarillon: watching job train: healthy, 2 ranks\n"; notes.String() != want {
		t.Errorf("notes %q, want %q", &notes, want)
	}
	if want := " info     rank.dead rank 1: \\u001b[2Jdead\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("%q, want %q", &out, want)
	}
	out.Reset()
	for _, stage := range []bus.Stage{bus.Changed, bus.Closed} { // an event that ends something needs no evidence
		ev := bus.Event{Type: semconv.EventVerdictChanged, Stage: stage, Text: "late", Description: "one\ntwo\x1b[2J"}
		l.Event(&ev)
	}
	want := " info     verdict.changed: late\n         - one\n         - two\\u001b[2J\n"
	if _, got, _ := strings.Cut(out.String(), ":"); strings.Count(got, "\n") != 4 || !strings.Contains(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
