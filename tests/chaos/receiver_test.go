package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/carillon-rt/carillon/ras/bus"
)

const webhookSecret = "what the tests and their jobs know"

// told is an event that arrived by webhook.
type told struct {
	bus.Event
	at      time.Time
	verdict verdictData
}

// verdictData is the part of an event's data that the tests read.
type verdictData struct {
	Culprits []struct {
		Rank int    `json:"rank"`
		Host string `json:"host"`
	} `json:"culprits"`
}

func (e *told) String() string {
	return fmt.Sprintf("%s %s (%s, unresolved: %v) %s of ranks %v from %s: %s",
		e.Severity, e.Type, e.Stage, e.Unresolved, e.Reason, e.culprits(), e.Source, e.Text)
}

func (e *told) culprits() []int {
	ranks := make([]int, 0, len(e.verdict.Culprits))
	for _, c := range e.verdict.Culprits {
		ranks = append(ranks, c.Rank)
	}
	slices.Sort(ranks)
	return ranks
}

// receiver receives webhooks, and Alertmanager's notifications: it accepts signed requests, and stores them by job.
type receiver struct {
	port   string
	mu     sync.Mutex
	events map[string][]told
	alerts map[string][]alert
	seen   map[string]bool // by the webhook's id
	bad    []string        // what it has refused
	more   chan struct{}   // closed and replaced when an event has arrived
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	l, err := net.Listen("tcp4", ":0")
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{
		port: strconv.Itoa(l.Addr().(*net.TCPAddr).Port), events: map[string][]told{}, alerts: map[string][]alert{},
		seen: map[string]bool{},
		more: make(chan struct{}),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /events", r.event)
	mux.HandleFunc("POST /alerts", r.alert)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) }) // Close ends it
	t.Cleanup(func() {
		_ = server.Close() // nobody is sending any more
		served.Wait()
	})
	return r
}

// event receives a CloudEvent.
func (r *receiver) event(w http.ResponseWriter, req *http.Request) {
	at := time.Now()
	ev := told{at: at}
	body, err := io.ReadAll(io.LimitReader(req.Body, 1<<20))
	if err == nil {
		verifier, _ := standardwebhooks.NewWebhookRaw([]byte(webhookSecret)) // never fails
		err = verifier.Verify(body, req.Header)
	}
	if err == nil {
		err = json.Unmarshal(body, &ev.Event)
	}
	if data, ok := ev.Data.(json.RawMessage); err == nil && ok {
		err = json.Unmarshal(data, &ev.verdict)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := req.Header.Get(standardwebhooks.HeaderWebhookID)
	switch {
	case err != nil:
		r.bad = append(r.bad, err.Error())
		w.WriteHeader(http.StatusBadRequest)
		return
	case !r.seen[id]: // an event whose answer came too late is sent again
		r.seen[id] = true
		r.events[ev.Job] = append(r.events[ev.Job], ev)
	}
	close(r.more)
	r.more = make(chan struct{})
}

// alert receives a notification of Alertmanager.
func (r *receiver) alert(w http.ResponseWriter, req *http.Request) {
	var notification struct {
		Receiver string  `json:"receiver"`
		Alerts   []alert `json:"alerts"`
	}
	err := json.NewDecoder(io.LimitReader(req.Body, 1<<20)).Decode(&notification)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.bad = append(r.bad, err.Error())
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, a := range notification.Alerts {
		a.by = notification.Receiver
		r.alerts[a.Labels["job"]] = append(r.alerts[a.Labels["job"]], a)
	}
	close(r.more)
	r.more = make(chan struct{})
}

// of returns what has arrived about a job so far; more is closed when more has arrived.
func (r *receiver) of(job string) (events []told, alerts []alert, more <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events[job]), slices.Clone(r.alerts[job]), r.more
}
