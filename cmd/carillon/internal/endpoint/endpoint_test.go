package endpoint

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/ras/bus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// answering is a server that always gives the same answer.
func answering(t *testing.T, code int, header, body string) Target {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		name, value, _ := strings.Cut(header, ": ")
		w.Header().Set(name, value)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return Target{URL: s.URL, Trusted: true}
}

func TestAnswers(t *testing.T) {
	c := newClient(t, Config{})
	for want, to := range map[string]Target{
		"wants a token":                   answering(t, 401, "X: y", "who are you?\x1b[2J"),
		"RAS is off there":                answering(t, 404, "X: y", ""),
		"answered 500":                    answering(t, 500, "X: y", "broken"),
		"answered 302":                    answering(t, 302, "Location: http://127.0.0.1:1/", ""),
		"something other than a snapshot": answering(t, 200, "X: y", "<html>"),
		"can't be reached":                {URL: "http://127.0.0.1:1"},
		"429 Too Many Req":                answering(t, 429, "Retry-After: 4", ""),
	} {
		_, err := c.Snapshot(t.Context(), to)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestSilentProcess: the kernel of a stopped process accepts connections, but the process sends nothing.
func TestSilentProcess(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it has served its purpose
	c := newClient(t, Config{Timeout: 50 * time.Millisecond})
	_, err = c.Snapshot(t.Context(), Target{URL: "http://" + l.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), "didn't answer within 50ms: its process may be stopped") {
		t.Errorf("%v, want that it may be stopped", err)
	}
}

// TestToken: the token is sent only to the server that it is for.
func TestToken(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer 0123456789abcdef" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w,
			`{"schema":1,"time":"2025-03-04T06:12:03Z","job":"train","ranks":[{"rank":3,"state":"alive"}]}`)
	}))
	defer s.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, Config{Token: "0123456789abcdef", CACert: ca})
	got, err := c.Snapshot(t.Context(), Target{URL: s.URL, Trusted: true})
	if err != nil || got.Job != "train" || got.Ranks[0].Rank != 3 || got.Ranks[0].State != "alive" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := c.Snapshot(t.Context(), Target{URL: s.URL}); err == nil || !strings.Contains(err.Error(),
		"wants a token") {
		t.Errorf("who isn't trusted: %v, want a refusal for want of a token", err)
	}
	wrong := newClient(t, Config{Token: "fedcba9876543210", CACert: ca})
	if _, err := wrong.Snapshot(t.Context(), Target{URL: s.URL, Trusted: true}); err == nil ||
		!strings.Contains(err.Error(), "wants another token") {
		t.Errorf("the wrong token: %v, want a refusal of it", err)
	}
	if _, err := newClient(t, Config{}).Snapshot(t.Context(), Target{URL: s.URL}); err == nil ||
		!strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server that nobody vouches for: %v, want an error about its certificate", err)
	}
}

func TestBadConfig(t *testing.T) {
	for want, cfg := range map[string]Config{
		"no such file": {CACert: "/no/such.pem"}, "no certificate in PEM": {CACert: "endpoint.go"},
		"given together": {Cert: "x"}, "--cert, --key": {Cert: "x", Key: "y"},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
	for text, want := range map[string]string{
		"node7:9400": "http://node7:9400", "https://[::1]:1/": "https://[::1]:1", "ftp://x": "", "http://": "",
		"http://u:p@h": "", "http://h/api": "", "http://h/?q": "",
	} {
		if got, err := ParseURL(text); got.URL != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", text, got.URL, err, want)
		}
	}
}

func TestStream(t *testing.T) {
	const event = `{"specversion":"1.0","id":"a-1","source":"/x","type":"dev.carillon.rank.dead","text":"gone"}`
	c := newClient(t, Config{})
	stream := func(to Target) (events []string, err error) {
		err = c.Stream(t.Context(), to, All, func() {}, func(ev *bus.Event) error {
			events = append(events, ev.ID+" "+ev.Text)
			return nil
		})
		return events, err
	}
	got, err := stream(answering(t, 200, "Content-Type: text/event-stream",
		"retry: 1\n\nid: a-1\ndata: "+event+"\n\n: heartbeat\n\n"))
	if !errors.Is(err, io.EOF) || len(got) != 1 || got[0] != "a-1 gone" {
		t.Errorf("%q, %v; want the event, and io.EOF", got, err)
	}
	for want, to := range map[string]Target{
		"in place of events":            answering(t, 200, "Content-Type: text/html", "<html>"),
		"something other than an event": answering(t, 200, "Content-Type: text/event-stream", "data: {}\n\n"),
		"too long": answering(t, 200, "Content-Type: text/event-stream",
			"data: "+strings.Repeat("x", maxEvent+1)+"\n\n"),
		"wants a token": answering(t, 403, "X: y", ""),
	} {
		if _, err := stream(to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	mute := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer mute.Close()
	c = newClient(t, Config{})
	c.silence = 100 * time.Millisecond
	if _, err := stream(Target{URL: mute.URL}); err == nil || !strings.Contains(err.Error(), "is silent") {
		t.Errorf("a stream without heartbeats: %v, want an error", err)
	}
}

func TestAll(t *testing.T) {
	c := newClient(t, Config{})
	var targets []Target
	for range 40 {
		targets = append(targets, answering(t, 200, "X: y", `{"job":"train"}`), answering(t, 500, "X: y", ""))
	}
	answers, errs := c.All(context.Background(), targets)
	if len(errs) != len(targets)/2 {
		t.Fatalf("%d of %d didn't answer, want every second one", len(errs), len(targets))
	}
	for i, to := range targets {
		if good := i%2 == 0; (answers[to] != nil) != good {
			t.Errorf("target %d: %v", i, answers[to])
		} else if !good && !strings.Contains(errs[i/2].Error(), to.URL) {
			t.Errorf("the errors are not in the order of the targets: %v", errs)
		}
	}
}

// TestAllAtOnce: endpoints that don't answer don't delay the others: all are asked before any has answered.
func TestAllAtOnce(t *testing.T) {
	var asked sync.WaitGroup
	asked.Add(atOnce)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Done()
		asked.Wait()
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(s.Close)
	targets := make([]Target, atOnce)
	for i := range targets {
		targets[i] = Target{URL: s.URL}
	}
	_, errs := newClient(t, Config{Timeout: time.Minute}).All(t.Context(), targets)
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
