package health

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// EventsPath is the path of the stream of events, to which clients that ask too often are referred.
const EventsPath = "/api/v1/events"

// The default limits of queries. People and their programs stay below them; a loop without a pause doesn't.
const (
	// DefaultMinPollInterval is the time between two queries of a document.
	DefaultMinPollInterval = time.Second
	// DefaultPollBurst is how many queries a client may make without waiting.
	DefaultPollBurst = 20
)

type query struct {
	part    int // in parts
	server  *Server
	limiter *pollLimiter
	link    []string // to the stream of events; nil if there is none
}

// Header values that are the same in all answers.
var (
	typeJSON = []string{"application/json"}
	typeText = []string{"text/plain; charset=utf-8"}
	typeHTML = []string{"text/html; charset=utf-8"}
	noCache  = []string{"no-cache"} // clients may store it, and must revalidate it
	noSniff  = []string{"nosniff"}
)

// ServeHTTP answers from the published snapshot. It refuses a client that asks too often, even if the answer were a
// 304. Refusals don't count, so a client that asks all the time gets an answer in each interval.
func (q *query) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	if q.link != nil {
		header["Link"] = q.link
	}
	e := q.server.cfg.Publisher.current.Load()
	if e == nil {
		header.Set("Retry-After", "1")
		respond(w, http.StatusServiceUnavailable, "nothing has been published yet\n")
		return
	}
	if wait := q.limiter.ask(pollKey{q.server.client(r), q.part}, time.Now()); wait > 0 {
		q.server.metrics.refused.Inc()
		header.Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
		text := fmt.Sprintf("asked too often: once in %v is enough", q.limiter.interval)
		if q.link != nil {
			text += "; " + EventsPath + " streams what is new"
		}
		if wantsJSON(r) {
			body, _ := json.Marshal(map[string]string{"error": text}) // of texts, which can't fail
			write(w, http.StatusTooManyRequests, typeJSON, append(body, '\n'))
			return
		}
		respond(w, http.StatusTooManyRequests, text+"\n")
		return
	}
	d := e.documents[q.part]()
	if d.err != nil {
		respond(w, http.StatusInternalServerError, d.err.Error()+"\n")
		return
	}
	header["Etag"], header["Cache-Control"], header["X-Content-Type-Options"] = d.etag, noCache, noSniff
	if matches(r.Header["If-None-Match"], d.etag[0]) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header["Content-Type"], header["Content-Length"] = typeJSON, d.length
	_, _ = w.Write(d.body) // it fails if the client has gone
}

// matches tells whether If-None-Match names the tag, which is weak, by RFC 9110's weak comparison.
func matches(fields []string, etag string) bool {
	opaque := strings.TrimPrefix(etag, "W/")
	for _, field := range fields {
		for field != "" {
			var tag string
			tag, field, _ = strings.Cut(field, ",") // our tags have no commas
			if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == opaque {
				return true
			}
		}
	}
	return false
}

// maxPollClients bounds the clients with a limiter. If there are more, all limiters are reset.
const maxPollClients = 4096

type pollLimiter struct {
	interval time.Duration // 0: no query is refused
	burst    int

	mu      sync.Mutex
	clients map[pollKey]*rate.Limiter
}

// pollKey is a client and a document, so that a client can read several documents together.
type pollKey struct {
	client client
	part   int
}

// ask returns how long the client has to wait; 0 means that the query was counted and may be answered.
func (l *pollLimiter) ask(key pollKey, now time.Time) time.Duration {
	if l.interval <= 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.clients[key]
	if limiter == nil {
		if l.clients == nil || len(l.clients) >= maxPollClients {
			l.clients = map[pollKey]*rate.Limiter{}
		}
		limiter = rate.NewLimiter(rate.Every(l.interval), max(l.burst, 1))
		l.clients[key] = limiter
	}
	answer := limiter.ReserveN(now, 1)
	wait := answer.DelayFrom(now)
	if wait > 0 {
		answer.CancelAt(now) // a refusal doesn't count
	}
	return wait
}
