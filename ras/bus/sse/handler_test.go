package sse_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/sse"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// pipes is a listener whose connections hold nothing back: what is not read blocks its writer.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// serve runs a server with the handler until the test ends, and returns a client for it.
func serve(t *testing.T, h http.Handler) *http.Client {
	t.Helper()
	listener := newPipes()
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	var ended sync.WaitGroup
	ended.Go(func() { _ = server.Serve(listener) })
	transport := &http.Transport{DialContext: listener.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		ended.Wait()
	})
	return &http.Client{Transport: transport}
}

func newBus(t *testing.T, cfg bus.Config) *bus.Bus {
	t.Helper()
	b := bus.New(cfg)
	t.Cleanup(b.Close)
	return b
}

// start runs a handler until the test ends.
func start(t *testing.T, b *bus.Bus) *sse.Handler {
	t.Helper()
	h := sse.New(b)
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = h.Run(ctx) })
	t.Cleanup(func() { cancel(); ended.Wait() })
	<-h.Begun()
	return h
}

func publish(t *testing.T, b *bus.Bus, text string) {
	t.Helper()
	if err := b.Publish(bus.Event{Type: semconv.EventRankDead, Text: text}); err != nil {
		t.Fatal(err)
	}
}

// stream is an open stream of events.
type stream struct {
	t *testing.T
	*bufio.Reader
	*http.Response
}

func open(t *testing.T, client *http.Client, query, lastID string) *stream {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://carillon/api/v1/events"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	answer, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return &stream{t, bufio.NewReader(answer.Body), answer}
}

// block reads to the next empty line.
func (s *stream) block() string {
	s.t.Helper()
	var b strings.Builder
	for {
		line, err := s.ReadString('\n')
		if err != nil {
			s.t.Fatalf("the stream ended: %v, behind %q", err, b.String())
		}
		if line == "\n" {
			return b.String()
		}
		b.WriteString(line)
	}
}

// event reads the next event: its id line, which may be empty, and the event.
func (s *stream) event() (id string, ev bus.Event) {
	s.t.Helper()
	for line := range strings.Lines(s.block()) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			id = value
		case "event":
			ev.Type = value
		case "data":
			kind := ev.Type
			if err := ev.UnmarshalJSON([]byte(value)); err != nil || ev.Type != kind {
				s.t.Fatalf("data of %s: %v: %s", kind, err, value)
			}
		default:
			s.t.Fatalf("a line of an event is %q", line)
		}
	}
	return id, ev
}

func TestStream(t *testing.T) {
	b := newBus(t, bus.Config{Source: "/train", Job: "train"})
	client := serve(t, start(t, b))
	s := open(t, client, "", "")
	if s.StatusCode != http.StatusOK || s.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Fatalf("answer: %s %v", s.Status, s.Header)
	}
	if got := s.block(); got != "retry: 3000\n" {
		t.Fatalf("the stream begins with %q", got)
	}
	publish(t, b, "a line\nand one more")
	id, ev := s.event()
	if id == "" || id != ev.ID || ev.Text != "a line\nand one more" || ev.Source != "/train" || ev.Job != "train" {
		t.Errorf("event %s: %+v", id, ev)
	}
}

// TestNewClientHearsWhatIsOpen: a client without an id gets the open conditions that pass its filter, and then new
// events.
func TestNewClientHearsWhatIsOpen(t *testing.T) {
	b := newBus(t, bus.Config{})
	client := serve(t, start(t, b))
	tell := func(key string, stage bus.Stage, severity bus.Severity) {
		t.Helper()
		if err := b.Publish(bus.Event{
			Type: semconv.EventVerdictOpened, Key: key, Stage: stage, Severity: severity, Text: key,
		}); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, b, "past")
	tell("over", bus.Opened, bus.Critical)
	tell("open", bus.Opened, bus.Critical)
	tell("slow", bus.Opened, bus.Warning)
	tell("over", bus.Closed, bus.Critical)
	s := open(t, client, "?severity=critical", "")
	s.block()
	if id, ev := s.event(); ev.Text != "open" || id == "" {
		t.Errorf("first comes %q, want what is open", ev.Text)
	}
	tell("new", bus.Opened, bus.Critical)
	if _, ev := s.event(); ev.Text != "new" {
		t.Errorf("then comes %q, want what happens", ev.Text)
	}
}

// TestResume: a client resumes after an id, given by header or by query, and gets a notice where events are missing.
func TestResume(t *testing.T) {
	b := newBus(t, bus.Config{History: 4})
	client := serve(t, start(t, b))
	first := open(t, client, "", "")
	first.block()
	publish(t, b, "1")
	id, _ := first.event()
	for n := 2; n <= 4; n++ {
		publish(t, b, fmt.Sprint(n))
	}
	expect := func(s *stream, texts ...string) {
		t.Helper()
		s.block()
		for _, want := range texts {
			if got, ev := s.event(); ev.Text != want || got == "" {
				t.Fatalf("event %s is %q, want %q", got, ev.Text, want)
			}
		}
	}
	expect(open(t, client, "", id), "2", "3", "4")
	expect(open(t, client, "?last_event_id="+id, ""), "2", "3", "4")
	expect(open(t, client, "?last_event_id=0", ""), "1", "2", "3", "4")
	expect(open(t, client, "?last_event_id=0", id), "2", "3", "4") // a browser that comes back has both
	for n := 5; n <= 7; n++ {
		publish(t, b, fmt.Sprint(n))
	}
	for _, c := range []struct{ after, why string }{
		{id, `"missed":2,"why":"forgotten"`},
		{"0", `"missed":3,"why":"forgotten"`},
		{"0123456789abcdef-3", `"why":"unknown"`},
		{"rubbish", `"why":"malformed"`},
	} {
		s := open(t, client, "", c.after)
		s.block()
		got, ev := s.event()
		if got != "" || ev.Type != semconv.EventGap || !strings.Contains(string(ev.JSON()), c.why) {
			t.Errorf("behind %q comes %q %s %s, want a gap without an id, %s", c.after, got, ev.Type, ev.JSON(), c.why)
		}
		if _, ev := s.event(); ev.Text != "4" {
			t.Errorf("behind the gap comes %q, want what is remembered", ev.Text)
		}
	}
}

func TestQuery(t *testing.T) {
	b := newBus(t, bus.Config{})
	client := serve(t, start(t, b))
	s := open(t, client, "?type=verdict.,gpu.&severity=warning", "")
	s.block()
	for _, ev := range []bus.Event{
		{Type: semconv.EventRankDead, Severity: bus.Critical},
		{Type: semconv.EventGPUXid, Severity: bus.Info},
		{Type: semconv.EventGPUXid, Severity: bus.Warning, Text: "this one"},
	} {
		if err := b.Publish(ev); err != nil {
			t.Fatal(err)
		}
	}
	if _, ev := s.event(); ev.Text != "this one" {
		t.Errorf("got %+v", ev)
	}
	for _, query := range []string{
		"?severity=loud", "?last_event_id=" + strings.Repeat("1", 200),
		"?type=" + strings.Repeat("a,", 40),
	} {
		if s := open(t, client, query, ""); s.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", query, s.Status)
		}
	}
}

// TestSilence: comments come at the heartbeat's interval, and a client that reads nothing is dropped after the write
// timeout, while one that reads gets everything.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBus(t, bus.Config{})
		h := start(t, b)
		synctest.Wait()
		client := serve(t, h)
		reads := open(t, client, "", "")
		reads.block()
		// The other one reads the answer's header and then nothing.
		silent, err := client.Transport.(*http.Transport).DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = silent.Close() })
		if _, err := fmt.Fprint(silent, "GET / HTTP/1.1\r\nHost: carillon\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if h.Clients() != 2 {
			t.Fatalf("%d clients, want 2", h.Clients())
		}
		began := time.Now()
		publish(t, b, "news")
		if _, ev := reads.event(); ev.Text != "news" || time.Since(began) != 0 {
			t.Errorf("the client that reads got %q after %v", ev.Text, time.Since(began))
		}
		if got := reads.block(); got != ": heartbeat\n" || time.Since(began) != 15*time.Second {
			t.Errorf("%q came after %v, want a heartbeat after 15 s", got, time.Since(began))
		}
		synctest.Wait()
		if h.Clients() != 1 {
			t.Errorf("%d clients, want 1: the silent one is dropped", h.Clients())
		}
	})
}

func TestRefusals(t *testing.T) {
	b := newBus(t, bus.Config{})
	client := serve(t, sse.New(b))
	if s := open(t, client, "", ""); s.StatusCode != http.StatusServiceUnavailable ||
		s.Header.Get("Retry-After") != "3" {
		t.Errorf("before Run: %s %v", s.Status, s.Header)
	}
	running := start(t, b)
	w := httptest.NewRecorder()
	running.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != http.MethodGet {
		t.Errorf("POST: %d %v", w.Code, w.Header())
	}
	w = httptest.NewRecorder() // has no write deadline
	running.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusInternalServerError {
		t.Errorf("a writer without deadlines: %d", w.Code)
	}
}

// FuzzRequest sends any ids and queries; whatever they are, the answer is a stream or an error in words.
func FuzzRequest(f *testing.F) {
	for _, seed := range [][2]string{
		{"0", ""},
		{"0123456789abcdef-3", "type=verdict."},
		{"\x00-\n", "severity=%zz"},
		{"", "last_event_id=0&type=,,"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, id, query string) {
		b := newBus(t, bus.Config{History: 2})
		for range 3 {
			publish(t, b, "x")
		}
		h := sse.New(b)
		ctx, cancel := context.WithCancel(context.Background())
		var ended sync.WaitGroup
		ended.Go(func() { _ = h.Run(ctx) })
		<-h.Begun()
		defer ended.Wait()
		defer cancel()
		answered := make(chan struct{})
		ended.Go(func() {
			for h.Clients() == 0 { // it is let in, or refused
				select {
				case <-answered:
					return
				default:
					runtime.Gosched()
				}
			}
			b.Close() // so that the stream ends
		})
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.URL.RawQuery = query
		req.Header["Last-Event-Id"] = []string{id}
		w := &deadliner{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(w, req)
		close(answered)
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Errorf("answered %d", w.Code)
		}
		for line := range strings.Lines(w.Body.String()) {
			if w.Code == http.StatusOK && line != "\n" && !strings.HasPrefix(line, "id: ") &&
				!strings.HasPrefix(line, "event: ") && !strings.HasPrefix(line, "data: {") &&
				!strings.HasPrefix(line, "retry: ") {
				t.Errorf("a line of the stream is %q", line)
			}
		}
	})
}

type deadliner struct{ *httptest.ResponseRecorder }

func (*deadliner) SetWriteDeadline(t time.Time) error {
	if t.IsZero() {
		return errors.New("no deadline")
	}
	return nil
}
