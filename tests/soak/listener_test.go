package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// listeners follow the events of all ranks, from the first event until the ranks end.
type listeners struct {
	wrong   chan string // events that must not be reported
	ending  atomic.Bool // the job was told to end: ranks may leave
	resumed atomic.Int64
	running sync.WaitGroup
	cancel  context.CancelFunc
}

func newListeners() *listeners { return &listeners{wrong: make(chan string, 256)} }

// listen listens to the ranks with these endpoints.
func (l *listeners) listen(urls []string) {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	for rank, url := range urls {
		l.running.Go(func() { l.follow(ctx, rank, url) })
	}
}

// close ends the listening; wait waits until all ranks have ended their streams.
func (l *listeners) close() {
	if l.cancel != nil {
		l.cancel()
	}
	l.wait()
}

func (l *listeners) wait() { l.running.Wait() }

// follow listens to one rank, and resumes after the last event if its stream breaks.
func (l *listeners) follow(ctx context.Context, rank int, url string) {
	after := "0" // all events that the rank remembers
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		err := l.stream(ctx, rank, url, &after)
		if ctx.Err() != nil || l.ending.Load() {
			return
		}
		l.resumed.Add(1)
		if err != nil {
			l.report("the events of rank %d can't be heard: %v", rank, err)
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// stream listens until the stream ends. It returns an error if there was no stream.
func (l *listeners) stream(ctx context.Context, rank int, url string, after *string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/v1/events", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Last-Event-ID", *after)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 2*bus.MaxData)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var ev bus.Event
		if err := json.Unmarshal([]byte(data), &ev); err != nil {
			return err
		}
		if !ev.Notice() {
			*after = ev.ID
		}
		l.event(rank, &ev)
	}
	return nil
}

// event handles an event from a rank.
func (l *listeners) event(rank int, ev *bus.Event) {
	switch {
	case ev.Type == semconv.EventRankJoined:
	case ev.Type == semconv.EventRankLeft && l.ending.Load():
	default:
		l.report("rank %d tells, at %s: %s: %s", rank, ev.Time.Format("15:04:05.000"),
			strings.TrimPrefix(ev.Type, semconv.EventPrefix), ev.Text)
	}
}

func (l *listeners) report(format string, args ...any) {
	select {
	case l.wrong <- fmt.Sprintf(format, args...):
	default: // enough errors were found
	}
}
