package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/webhook"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

const secret = "a secret of the right size"

// verify checks a signature as a receiver does.
func verify(header http.Header, body []byte, secret string) error {
	wh, err := standardwebhooks.NewWebhookRaw([]byte(secret))
	return errors.Join(err, wh.Verify(body, header))
}

// receiver answers in memory, and remembers when it was asked.
type receiver struct {
	mu     sync.Mutex
	answer func(n int, req *http.Request) (*http.Response, error)
	asked  []time.Duration
	began  time.Time
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.asked = append(r.asked, time.Since(r.began))
	n := len(r.asked)
	r.mu.Unlock()
	return r.answer(n, req)
}

func status(code int, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: code, Header: h, Body: http.NoBody}
}

// deliver sends one event in virtual time, and returns when it was tried and what became of it.
func deliver(t *testing.T, cfg webhook.Config, answer func(n int, req *http.Request) (*http.Response,
	error),
) ([]time.Duration, bus.Stats, string) {
	t.Helper()
	var asked []time.Duration
	var stats bus.Stats
	var logged bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		b := bus.New(bus.Config{})
		r := &receiver{answer: answer, began: time.Now()}
		cfg.Bus, cfg.Transport, cfg.Logger = b, r, slog.New(slog.NewTextHandler(&logged, nil))
		if cfg.URL == "" {
			cfg.URL = "https://hooks.example/token-in-the-path"
		}
		sink, err := webhook.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Publish(bus.Event{Type: semconv.EventRankDead, Text: "dead"}); err != nil {
			t.Fatal(err)
		}
		b.Close()
		if err := sink.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		asked, stats = r.asked, sink.Stats()
	})
	return asked, stats, logged.String()
}

// TestRetry: intervals double, with jitter of half, until the event is taken.
func TestRetry(t *testing.T) {
	asked, stats, logged := deliver(t, webhook.Config{}, func(n int, _ *http.Request) (*http.Response, error) {
		switch n {
		case 1:
			return nil, errors.New("connection refused")
		case 5:
			return status(http.StatusNoContent), nil
		}
		return status(http.StatusInternalServerError), nil
	})
	if stats != (bus.Stats{Pushed: 1}) || len(asked) != 5 {
		t.Fatalf("%v, %+v, %s", asked, stats, logged)
	}
	if lines := strings.Split(logged, "\n"); len(lines) != 3 || !strings.Contains(lines[0], "it is tried again") ||
		!strings.Contains(lines[0], "500 Internal Server Error") || !strings.Contains(lines[1], "takes events again") {
		t.Errorf("logged %q, want a line about the second failure, and one about the success", logged)
	}
	for i, normal := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second} {
		if gap := asked[i+1] - asked[i]; gap < normal/2 || gap > normal*3/2 {
			t.Errorf("attempt %d came %v behind the one before, want %v ± half", i+2, gap, normal)
		}
	}
}

// TestGivesUp: the sink gives up after a while, or at once if it is pointless to go on. The address, which is a secret,
// is in no log.
func TestGivesUp(t *testing.T) {
	hang := func(_ int, req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	always := func(r *http.Response) func(int, *http.Request) (*http.Response, error) {
		return func(_ int, req *http.Request) (*http.Response, error) {
			out := *r
			out.Request = req
			return &out, nil
		}
	}
	worse := func(n int, _ *http.Request) (*http.Response, error) {
		if n == 1 {
			return status(500), nil
		}
		return status(403), nil
	}
	for _, c := range []struct {
		name     string
		answer   func(int, *http.Request) (*http.Response, error)
		min, max int           // attempts
		within   time.Duration // when the last begins
		logged   string
		lines    int // two: also that it is tried again
	}{
		{"500", always(status(500)), 10, 40, 5 * time.Minute, "500 Internal Server Error", 2},
		{"500, and then 403", worse, 2, 2, time.Second, "403 Forbidden", 1},
		{"hangs", hang, 6, 20, 5 * time.Minute, "did not answer", 2},
		{"403", always(status(403)), 1, 1, 0, "403 Forbidden", 1},
		{"410", always(status(410)), 1, 1, 0, "410 Gone", 1},
		{"429 for longer than it is tried", always(status(429, "Retry-After", "3600")), 1, 1, 0, "429", 1},
		{"302", always(status(302, "Location", "/elsewhere")), 1, 1, 0, "redirect", 1},
		{"307 to another host", always(status(307, "Location", "https://evil.example/")), 1, 1, 0, "redirect", 1},
		{"307 to http", always(status(307, "Location", "http://hooks.example/")), 1, 1, 0, "redirect", 1},
		{"307 in a circle", always(status(307, "Location", "/again")), 2, 4, 0, "redirect", 1},
	} {
		asked, stats, logged := deliver(t, webhook.Config{}, c.answer)
		if stats != (bus.Stats{Failed: 1}) {
			t.Errorf("%s: %+v", c.name, stats)
		}
		if len(asked) < c.min || len(asked) > c.max || asked[len(asked)-1] > c.within {
			t.Errorf("%s: tried at %v, want %d to %d times within %v", c.name, asked, c.min, c.max, c.within)
		}
		if strings.Count(logged, c.logged) != c.lines || strings.Contains(logged, "token-in-the-path") ||
			strings.Count(logged, "\n") != c.lines {
			t.Errorf("%s: logged %q, want %d lines with %q and without the address", c.name, logged, c.lines, c.logged)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	asked, stats, _ := deliver(t, webhook.Config{}, func(n int, req *http.Request) (*http.Response, error) {
		switch n {
		case 1:
			return status(http.StatusTooManyRequests, "Retry-After", "17"), nil
		case 2:
			return status(http.StatusServiceUnavailable, "Retry-After",
				time.Now().Add(40*time.Second).UTC().Format(http.TimeFormat)), nil
		}
		return status(http.StatusOK), nil
	})
	if stats.Pushed != 1 || len(asked) != 3 || asked[1] != 17*time.Second || asked[2] != 57*time.Second {
		t.Errorf("tried at %v, want at 0, 17 s and 57 s", asked)
	}
}

// TestLeavesAloneForAsLongAsAsked: a receiver that asks for more time than an event has isn't sent the next one at once
// either.
func TestLeavesAloneForAsLongAsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bus.New(bus.Config{})
		r := &receiver{began: time.Now(), answer: func(n int, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return status(http.StatusTooManyRequests, "Retry-After", "600"), nil
			}
			return status(http.StatusOK), nil
		}}
		sink, err := webhook.New(webhook.Config{
			SinkConfig: bus.SinkConfig{Bus: b, Transport: r, Logger: slog.New(slog.DiscardHandler)},
			URL:        "https://hooks.example/",
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"the first", "the second", "the third"} {
			if err := b.Publish(bus.Event{Type: semconv.EventRankDead, Text: text}); err != nil {
				t.Fatal(err)
			}
		}
		b.Close()
		if err := sink.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(r.asked) != 3 || r.asked[1] != 10*time.Minute || r.asked[2] != 10*time.Minute ||
			sink.Stats() != (bus.Stats{Pushed: 2, Failed: 1}) {
			t.Errorf("asked at %v, %+v; want at 0 and, for the two that follow, at 10 min", r.asked, sink.Stats())
		}
	})
}

// TestEndsWhileLeftAlone: a sink that waits for as long as a receiver asks for ends when its context does.
func TestEndsWhileLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bus.New(bus.Config{})
		defer b.Close()
		r := &receiver{began: time.Now(), answer: func(int, *http.Request) (*http.Response, error) {
			return status(http.StatusTooManyRequests, "Retry-After", "600"), nil
		}}
		sink, err := webhook.New(webhook.Config{
			SinkConfig: bus.SinkConfig{Bus: b, Transport: r, Logger: slog.New(slog.DiscardHandler)},
			URL:        "https://hooks.example/",
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"the first", "the second"} {
			if err := b.Publish(bus.Event{Type: semconv.EventRankDead, Text: text}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		_ = sink.Run(ctx) // with the context's error, or none: what it says is not looked at here
		if took := time.Since(r.began); took != 5*time.Minute || len(r.asked) != 1 {
			t.Errorf("ended after %v, asked at %v; want after 5 min, and asked once", took, r.asked)
		}
	})
}

// TestSignsAnew: a signature that has grown old while the receiver was away is refused, so every attempt has its own.
func TestSignsAnew(t *testing.T) {
	var errs []error
	var signed []string
	_, stats, _ := deliver(t, webhook.Config{Secrets: []string{secret}},
		func(n int, req *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return nil, err
			}
			errs = append(errs, verify(req.Header, body, secret))
			signed = append(signed, req.Header.Get(standardwebhooks.HeaderWebhookSignature))
			if n == 1 {
				return status(http.StatusServiceUnavailable, "Retry-After", "240"), nil
			}
			return status(http.StatusOK), nil
		})
	if stats.Pushed != 1 || len(errs) != 2 || errors.Join(errs...) != nil || signed[0] == signed[1] {
		t.Errorf("%+v, %v, signed %v", stats, errs, signed)
	}
}

// TestSameHost follows a redirect to the same host, with body and signature.
func TestSameHost(t *testing.T) {
	var bodies []string
	_, stats, _ := deliver(t, webhook.Config{Secrets: []string{secret}},
		func(n int, req *http.Request) (*http.Response, error) {
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return nil, err
			}
			bodies = append(bodies, string(body))
			if err := verify(req.Header, body, secret); err != nil {
				t.Error(err)
			}
			if n == 1 {
				r := status(http.StatusPermanentRedirect, "Location", "/new")
				r.Request = req
				return r, nil
			}
			return status(http.StatusOK), nil
		})
	if stats.Pushed != 1 || len(bodies) != 2 || bodies[0] != bodies[1] {
		t.Errorf("%+v, %q", stats, bodies)
	}
}

// TestLayout looks at a request as a receiver does, over TLS.
func TestLayout(t *testing.T) {
	var header http.Header
	var body []byte
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		header = req.Header
		body, _ = io.ReadAll(req.Body)
	}))
	defer server.Close()
	b := bus.New(bus.Config{Source: "/train"})
	const next = "the one that comes next"
	sink, err := webhook.New(webhook.Config{
		SinkConfig: bus.SinkConfig{Bus: b, Transport: server.Client().Transport},
		URL:        server.URL, Secrets: []string{secret, next},
	})
	if err != nil {
		t.Fatal(err)
	}
	ev := bus.Event{
		Type: semconv.EventVerdictOpened, Stage: bus.Opened, Key: "v",
		Subject: "Rang 3: 100 % \"stehen\"\r\nX: ü", Data: map[string]int{"seq": 41},
	}
	if err := b.Publish(ev); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if err := sink.Run(t.Context()); err != nil || sink.Stats().Pushed != 1 {
		t.Fatalf("%v, %+v", err, sink.Stats())
	}
	for _, with := range []string{secret, next} {
		if err := verify(header, body, with); err != nil {
			t.Error(err)
		}
	}
	if verify(header, body, "a secret of somebody else") == nil {
		t.Error("another secret signs the same")
	}
	var got bus.Event
	if err := json.Unmarshal(body, &got); err != nil || got.Subject != ev.Subject ||
		string(got.JSON()) != `{"seq":41}` {
		t.Errorf("%v: %s", err, body)
	}
	if header.Get("Content-Type") != "application/cloudevents+json" || header.Get("Webhook-Id") != got.ID {
		t.Errorf("headers %v", header)
	}
}

// TestUnknownCertificate: a receiver that can't be verified gets nothing.
func TestUnknownCertificate(t *testing.T) {
	asked := false
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	ctx, refused := context.WithCancel(t.Context())
	defer refused()
	server.Config.ErrorLog = log.New(writer(func(line []byte) {
		if bytes.Contains(line, []byte("bad certificate")) {
			refused()
		}
	}), "", 0)
	server.StartTLS()
	defer server.Close()
	b := bus.New(bus.Config{})
	sink, err := webhook.New(webhook.Config{
		SinkConfig: bus.SinkConfig{Bus: b, Logger: slog.New(slog.DiscardHandler)}, URL: server.URL,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(bus.Event{Type: semconv.EventRankDead}); err != nil {
		t.Fatal(err)
	}
	if err := sink.Run(ctx); err != nil { // until the handshake is refused: it is tried for longer
		t.Fatal(err)
	}
	if asked || sink.Stats() != (bus.Stats{}) {
		t.Errorf("asked %v, %+v", asked, sink.Stats())
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

func TestValidate(t *testing.T) {
	for want, cfg := range map[string]webhook.Config{
		"webhook.Config.URL":        {URL: "ftp://x/hidden"},
		"webhook.Config.Secrets[0]": {URL: "https://x/hidden", Secrets: []string{"short"}},
	} {
		_, err := webhook.New(cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v doesn't name %s", err, want)
		}
		if strings.Contains(err.Error(), "hidden") || strings.Contains(err.Error(), "short\"") {
			t.Errorf("%v repeats what is secret", err)
		}
	}
}

// FuzzAnswer: whatever a receiver answers, the event is counted once and the sink ends.
func FuzzAnswer(f *testing.F) {
	f.Add(200, "", "", []byte("ok"))
	f.Add(503, "99999999999999999999", "", []byte(nil))
	f.Add(429, "Wed, 21 Oct 2015 07:28:00 GMT", "", []byte(nil))
	f.Add(308, "-1", "//evil\x00", []byte("x"))
	f.Add(307, "", "https://hooks.example/again", []byte("x"))
	f.Fuzz(func(t *testing.T, code int, after, location string, body []byte) {
		_, stats, _ := deliver(t, webhook.Config{},
			func(n int, req *http.Request) (*http.Response, error) {
				r := status(code, "Retry-After", after)
				if location != "" {
					r.Header.Set("Location", location)
				}
				r.Body, r.Request = io.NopCloser(bytes.NewReader(body)), req
				return r, nil
			})
		if stats.Pushed+stats.Failed != 1 || (stats.Pushed == 1) != (code/100 == 2) {
			t.Errorf("%d %q %q: %+v", code, after, location, stats)
		}
	})
}
