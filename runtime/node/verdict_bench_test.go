package node_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// BenchmarkVerdict measures, in a job of 64 processes on this machine, how long after the stall threshold the rank that
// doesn't make its call is known: from when that rank was due, plus the threshold, until a client of the event stream
// has read the verdict, at rank 0, which coordinates, and at another rank. The other ranks enter the call within a
// step, 50 ms. It shows the median and the worst.
func BenchmarkVerdict(b *testing.B) {
	const size, culprit, threshold, times = 64, 41, 2 * time.Second, 5
	job := startProcesses(b, size, "verdict", "steps", "CARILLON_STALL_THRESHOLD="+threshold.String())
	defer end(job)
	watched := map[string]<-chan told{"coordinator": follow(b, job[0]), "other": follow(b, job[size/2])}
	after := map[string][]float64{}
	for b.Loop() {
		for range times {
			job[culprit].signal(syscall.SIGUSR1)
			due, err := strconv.ParseInt(job[culprit].answer("pauses"), 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			for who, events := range watched {
				ev := await(b, events, semconv.EventVerdictOpened)
				if ev.Reason != verdict.NotEntered.String() || ev.Rank != strconv.Itoa(culprit) {
					b.Fatalf("the verdict is %s of rank %s: %s", ev.Reason, ev.Rank, ev.Text)
				}
				after[who] = append(after[who], (ev.at.Sub(time.Unix(0, due))-threshold).Seconds()*1000)
			}
			job[culprit].signal(syscall.SIGUSR2)
			for _, events := range watched {
				await(b, events, semconv.EventVerdictWithdrawn)
			}
		}
	}
	for who, ms := range after {
		slices.Sort(ms)
		b.ReportMetric(ms[len(ms)/2], who+"-median-ms")
		b.ReportMetric(ms[len(ms)-1], who+"-worst-ms")
	}
}

// told is an event, and when it was read.
type told struct {
	bus.Event
	at time.Time
}

// follow reads a process's events of verdicts until the benchmark ends.
func follow(b *testing.B, p *process) <-chan told {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.url, "/")+health.EventsPath, nil)
	if err != nil {
		b.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil || answer.StatusCode != http.StatusOK {
		b.Fatal(answer, err)
	}
	events, ended := make(chan told, 64), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			text, ok := strings.CutPrefix(lines.Text(), "data: ")
			ev := told{at: time.Now()}
			if !ok || json.Unmarshal([]byte(text), &ev.Event) != nil ||
				!strings.HasPrefix(ev.Type, semconv.EventPrefix+"verdict.") {
				continue
			}
			select {
			case events <- ev:
			case <-ctx.Done():
			}
		}
	}()
	b.Cleanup(func() {
		cancel()
		<-ended
		_ = answer.Body.Close() // it is read
	})
	return events
}

// await returns the next event of a type.
func await(b *testing.B, events <-chan told, kind string) told {
	b.Helper()
	patience := time.NewTimer(time.Minute)
	defer patience.Stop()
	for {
		select {
		case ev := <-events:
			if ev.Type == kind {
				return ev
			}
		case <-patience.C:
			b.Fatalf("no %s within a minute", kind)
		}
	}
}
