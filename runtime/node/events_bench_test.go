package node

import (
	"bufio"
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// BenchmarkEventStream is the time from an agent's event until a client has read it, with 1,000 clients at a node's own
// health endpoint, over TCP on loopback, in the node's process. An event is sent when all clients have the one before;
// all latencies of all clients count.
func BenchmarkEventStream(b *testing.B) {
	const clients, events = 1000, 50 // an iteration is all of these events
	n, err := Start(b.Context(), WithTapeDir(b.TempDir()), WithLog(slog.New(slog.DiscardHandler)))
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := n.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	}()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithCancel(b.Context())
	var got, reading sync.WaitGroup // got counts the event in transit
	defer reading.Wait()
	defer cancel()
	latencies := make([][]time.Duration, clients)
	for i := range clients {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet,
			strings.TrimSuffix(n.HealthURL(), "/")+health.EventsPath, nil)
		if err != nil {
			b.Fatal(err)
		}
		answer, err := transport.RoundTrip(req)
		if err != nil || answer.StatusCode != http.StatusOK {
			b.Fatal(answer, err)
		}
		reading.Go(func() {
			defer answer.Body.Close() //nolint:errcheck // it is read
			latencies[i] = ages(answer, &got)
		})
	}
	ev := bus.Event{
		Type: semconv.EventVerdictOpened, Severity: bus.Critical, Reason: "not_entered", Rank: "3",
		Text: "rank 3 has not entered all_reduce #41 of world",
		Data: map[string]any{"seq": 41, "waiting": []int{0, 1, 2}},
	}
	for b.Loop() {
		for range events {
			got.Add(clients)
			ev.Subject = strconv.FormatInt(time.Now().UnixNano(), 10)
			n.ras.event(ev, false)
			got.Wait()
		}
	}
	if left := n.ras.stream.Clients(); left != clients {
		b.Errorf("%d clients are left of %d", left, clients)
	}
	cancel()
	reading.Wait()
	all := slices.Concat(latencies...)
	slices.Sort(all)
	for _, p := range []struct {
		name string
		part float64
	}{{"p50-ms", 0.5}, {"p99-ms", 0.99}, {"max-ms", 1}} {
		b.ReportMetric(float64(all[int(p.part*float64(len(all)-1))].Microseconds())/1000, p.name)
	}
}

// ages reads a stream to its end, and returns how old each event was.
func ages(answer *http.Response, got *sync.WaitGroup) []time.Duration {
	var all []time.Duration
	subject := []byte(`"subject":"`)
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		_, rest, found := bytes.Cut(lines.Bytes(), subject)
		if !found {
			continue
		}
		digits, _, _ := bytes.Cut(rest, []byte{'"'})
		sent, err := strconv.ParseInt(string(digits), 10, 64)
		if err != nil {
			continue // not one of the benchmark's
		}
		all = append(all, time.Since(time.Unix(0, sent)))
		got.Done()
	}
	return all
}
