package sse_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/bus/sse"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// BenchmarkFanout is the time from Publish until a client has read the event, over TCP on loopback, server and clients
// in one process; an event is published when all clients have the one before. All latencies of each client count. The
// silent clients beside them never read.
func BenchmarkFanout(b *testing.B) {
	for _, c := range []struct{ clients, silent int }{{1, 0}, {100, 0}, {1000, 0}, {1000, 100}} {
		b.Run(fmt.Sprintf("clients=%d/silent=%d", c.clients, c.silent), func(b *testing.B) {
			fanout(b, c.clients, c.silent)
		})
	}
}

func fanout(b *testing.B, clients, silent int) {
	events := bus.New(bus.Config{})
	handler := sse.New(events)
	ctx, cancel := context.WithCancel(b.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = handler.Run(ctx) })
	<-handler.Begun()
	server := httptest.NewServer(handler)
	transport := &http.Transport{}
	var got sync.WaitGroup // of the event that is on its way
	latencies := make([][]time.Duration, clients)
	for i := range clients + silent {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			b.Fatal(err)
		}
		answer, err := transport.RoundTrip(req)
		if err != nil || answer.StatusCode != http.StatusOK {
			b.Fatal(answer, err)
		}
		defer answer.Body.Close()
		if i < clients {
			ended.Go(func() { latencies[i] = read(answer, &got) })
		}
	}
	ev := bus.Event{
		Type: semconv.EventVerdictOpened, Severity: bus.Critical, Reason: "not_entered", Rank: "3",
		Text: "rank 3 has not entered all_reduce #41 of world",
		Data: map[string]any{"seq": 41, "waiting": []int{0, 1, 2}},
	}
	for b.Loop() {
		got.Add(clients)
		ev.Subject = strconv.FormatInt(time.Now().UnixNano(), 10)
		if err := events.Publish(ev); err != nil {
			b.Fatal(err)
		}
		got.Wait()
	}
	if handler.Clients() != clients+silent {
		b.Errorf("%d clients are left", handler.Clients())
	}
	cancel()
	transport.CloseIdleConnections()
	ended.Wait()
	server.Close()
	events.Close()
	all := slices.Concat(latencies...)
	slices.Sort(all)
	for _, p := range []struct {
		name string
		part float64
	}{{"p50-ms", 0.5}, {"p99-ms", 0.99}, {"max-ms", 1}} {
		b.ReportMetric(float64(all[int(p.part*float64(len(all)-1))].Microseconds())/1000, p.name)
	}
}

// read reads a stream to its end, and returns how old each event was.
func read(answer *http.Response, got *sync.WaitGroup) []time.Duration {
	var ages []time.Duration
	subject := []byte(`"subject":"`)
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		_, rest, found := bytes.Cut(lines.Bytes(), subject)
		if !found {
			continue
		}
		digits, _, _ := bytes.Cut(rest, []byte{'"'})
		sent, err := strconv.ParseInt(string(digits), 10, 64)
		if err != nil {
			continue
		}
		ages = append(ages, time.Since(time.Unix(0, sent)))
		got.Done()
	}
	return ages
}
