package node_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

func TestBadRAS(t *testing.T) {
	secrets := filepath.Join(t.TempDir(), "none")
	for want, env := range map[string]map[string]string{
		`CARILLON_RAS="perhaps"`:                                         {"CARILLON_RAS": "perhaps"},
		`CARILLON_RAS_NETWORK="moon": want one of`:                       {"CARILLON_RAS_NETWORK": "moon"},
		`CARILLON_RAS_SEEDS="127.0.0.1:7,nowhere": "nowhere": want host`: {"CARILLON_RAS_SEEDS": "127.0.0.1:7,nowhere"},
		"CARILLON_RAS_WEBHOOKS: want URLs": {
			"CARILLON_RAS_WEBHOOKS": "ftp://user:hidden@example.org",
		},
		"CARILLON_RAS_ALERTMANAGERS: want URLs": {
			"CARILLON_RAS_ALERTMANAGERS": "localhost:9093",
		},
		"no such file": {"CARILLON_RAS_WEBHOOK_SECRET_FILE": secrets},
		"a secret has 5 bytes, want at least 16": {
			"CARILLON_RAS_WEBHOOKS":       "http://localhost:1/",
			"CARILLON_RAS_WEBHOOK_SECRET": "short",
		},
		`CARILLON_RAS_ADDR="nowhere": want host:po`: {
			"CARILLON_RAS_ADDR": "nowhere",
			"RANK":              "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "7",
		},
	} {
		n, err := node.Start(t.Context(), environ(env), node.WithTapeDir(t.TempDir()), node.WithHealth(""))
		if err == nil {
			_ = n.Stop(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%v: want an error with %q, got %v", env, want, err)
		}
	}
}

// receiver is a webhook's other end.
func receiver(t *testing.T, secret string) (url string, events <-chan *bus.Event) {
	t.Helper()
	received := make(chan *bus.Event, 16)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			verifier, _ := standardwebhooks.NewWebhookRaw([]byte(secret)) // never fails
			err = verifier.Verify(body, r.Header)
		}
		var ev bus.Event
		if err == nil {
			err = json.Unmarshal(body, &ev)
		}
		if err != nil {
			t.Errorf("what was posted: %v", err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		received <- &ev
	}))
	t.Cleanup(server.Close)
	return server.URL, received
}

// stream is the events that an endpoint streams.
func stream(t *testing.T, url string) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("events: %s", resp.Status)
	}
	lines := make(chan string, 64)
	go func() {
		defer close(lines)
		for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
			if name, ok := strings.CutPrefix(scan.Text(), "event: "); ok {
				lines <- name
			}
		}
	}()
	return lines
}

// TestHangInOneProcess has three ranks in one process, one of which is late: the verdict is pushed, streamed, shown and
// counted, and withdrawn when the rank comes.
func TestHangInOneProcess(t *testing.T) {
	const secret = "0123456789abcdef"
	url, pushed := receiver(t, secret)
	n := start(t, environ(map[string]string{
		"CARILLON_STALL_THRESHOLD": "50ms", "CARILLON_RAS_WEBHOOKS": url, "CARILLON_RAS_WEBHOOK_SECRET": secret,
		"CARILLON_RAS_MIN_POLL_INTERVAL": "off",
	}))
	streamed := stream(t, n.HealthURL())
	comms, err := n.Runtime().InitAll(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, len(comms))
	reduce := func(c *ccl.Comm) {
		buf := []float32{1}
		done <- ccl.AllReduce(t.Context(), c, buf, buf, ccl.Sum)
	}
	go reduce(comms[0])
	go reduce(comms[1])
	ev := <-pushed
	if ev.Type != semconv.EventVerdictOpened || ev.Reason != "not_entered" || ev.Severity != bus.Critical ||
		!strings.Contains(ev.Text, "rank 2") {
		t.Errorf("pushed %s %s %v: %s", ev.Type, ev.Reason, ev.Severity, ev.Text)
	}
	if name := <-streamed; name != semconv.EventVerdictOpened {
		t.Errorf("streamed %q", name)
	}
	if code, body := get(t, n.HealthURL()+"/readyz?verbose"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "has not entered") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	if code, body := get(t, n.HealthURL()+"/livez"); code != http.StatusOK {
		t.Errorf("/livez: %d %s", code, body)
	}
	if open := n.RAS().Verdicts(); len(open) != 1 || len(open[0].Victims) != 2 {
		t.Errorf("open: %+v", open)
	}
	f, ok := n.RAS().Finding(comms[0].ID(), 1)
	if !ok || f.Rank != 2 || f.Reason != "not_entered" {
		t.Errorf("found %+v, %v", f, ok)
	}
	if got := gathered(t, n.Telemetry(), semconv.MetricRASVerdicts); got != 1 {
		t.Errorf("%s is %v", semconv.MetricRASVerdicts, got)
	}

	reduce(comms[2])
	for range comms {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	for ev := range pushed {
		if ev.Type == semconv.EventVerdictWithdrawn {
			break
		}
		if ev.Type != semconv.EventVerdictChanged {
			t.Errorf("pushed %s: %s", ev.Type, ev.Text)
		}
	}
	if open := n.RAS().Verdicts(); len(open) != 0 {
		t.Errorf("still open: %+v", open)
	}
	for _, c := range comms {
		if err := c.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestLastWordsArePushed ends a process while it hangs: the verdict is withdrawn, and the receiver gets that before
// Stop returns.
func TestLastWordsArePushed(t *testing.T) {
	const secret = "0123456789abcdef"
	url, pushed := receiver(t, secret)
	n := start(t, environ(map[string]string{
		"CARILLON_STALL_THRESHOLD": "50ms", "CARILLON_RAS_WEBHOOKS": url, "CARILLON_RAS_WEBHOOK_SECRET": secret,
	}))
	comms, err := n.Runtime().InitAll(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		buf := []float32{1}
		done <- ccl.AllReduce(ctx, comms[0], buf, buf, ccl.Sum)
	}()
	select {
	case <-pushed:
	case err := <-done:
		t.Fatalf("an all-reduce of one rank ended: %v", err)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("an all-reduce of one rank succeeded")
	}
	runtime.KeepAlive(comms) // else the other one, which nobody references, would be destroyed
	if err := n.Stop(t.Context()); err != nil {
		t.Logf("Stop: %v", err) // of the communicators that nobody destroyed
	}
	for ended := false; !ended; {
		select {
		case ev := <-pushed:
			ended = ev.Type == semconv.EventVerdictWithdrawn
		default:
			t.Fatal("Stop returned before the withdrawal was pushed")
		}
	}
}

func TestRASOff(t *testing.T) {
	n := start(t, environ(map[string]string{"CARILLON_RAS": "off"}))
	if n.RAS() != nil || n.RAS().Verdicts() != nil || n.RAS().Ranks() != nil || n.RAS().Contact() != "" {
		t.Error("RAS is off, and there")
	}
	if code, _ := get(t, n.HealthURL()+"/api/v1/events"); code != http.StatusNotFound {
		t.Errorf("events: %d", code)
	}
	const want = `"unwatched": "RAS is off (CARILLON_RAS)"`
	for _, path := range []string{"/api/v1/ras", "/api/v1/verdicts"} {
		if _, text := get(t, n.HealthURL()+path); !strings.Contains(text, want) {
			t.Errorf("%s: want %s in %s", path, want, text)
		}
	}
	if _, text := get(t, n.HealthURL()); !strings.Contains(text, "Nobody looks for what holds the job up") {
		t.Errorf("the page doesn't say that nobody looks:\n%s", text)
	}
}

func TestWithoutTapeNobodyLooks(t *testing.T) {
	n := start(t, environ(map[string]string{"CARILLON_TAPE": "off"}))
	const want = `"unwatched": "there is no tape"`
	if _, text := get(t, n.HealthURL()+"/api/v1/ras"); !strings.Contains(text, want) {
		t.Errorf("want %s in %s", want, text)
	}
}

// TestLastWordsAreStreamed: clients of the stream at the endpoint also get the last events.
func TestLastWordsAreStreamed(t *testing.T) {
	n := start(t, environ(map[string]string{"CARILLON_STALL_THRESHOLD": "50ms"}))
	streamed := stream(t, n.HealthURL())
	comms, err := n.Runtime().InitAll(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		buf := []float32{1}
		done <- ccl.AllReduce(ctx, comms[0], buf, buf, ccl.Sum)
	}()
	if name := <-streamed; name != semconv.EventVerdictOpened {
		t.Errorf("streamed %q", name)
	}
	cancel()
	<-done
	runtime.KeepAlive(comms) // as above
	if err := n.Stop(t.Context()); err != nil {
		t.Logf("Stop: %v", err) // of the communicators that nobody destroyed
	}
	last := ""
	for name := range streamed {
		if name == semconv.EventVerdictWithdrawn {
			last = name
		}
	}
	if last == "" {
		t.Error("the stream ended without a withdrawal")
	}
}
