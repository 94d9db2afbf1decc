package polling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	clientCount = 100
	pause       = 100 * time.Millisecond // between a client's queries: together the clients make 1,000 a second
	interval    = time.Second            // CARILLON_RAS_MIN_POLL_INTERVAL's default
	burst       = 20                     // health.DefaultPollBurst
	patience    = 20 * time.Second       // for one answer
	// One of so many queries of a client is a scrape: more than one a second at each rank.
	scrapeEvery = 100
)

// documents are limited to a burst and then one query per interval; probes are not limited, and metrics only in the
// number of concurrent queries.
var (
	documents = []string{"/api/v1/ras", "/api/v1/ranks", "/api/v1/comms", "/api/v1/verdicts"}
	probes    = []string{"/healthz", "/readyz"}
)

const metricsPath = "/metrics"

// span bounds when something happened, as a client sees it: after it had sent a query, and before it had the answer.
type span struct{ sent, got time.Time }

// client queries one target, from an address of its own, as the endpoints tell clients apart by their addresses.
type client struct {
	number  int
	http    *http.Client
	asked   int
	budgets map[string]*budget // by URL of a document
	etags   map[string]string
}

func newClient(number int) *client {
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(number+1))}
	transport := &http.Transport{
		DialContext: (&net.Dialer{LocalAddr: from, Timeout: patience}).DialContext, DisableCompression: true,
		MaxIdleConnsPerHost: 1,
	}
	return &client{
		number: number, http: &http.Client{Transport: transport, Timeout: patience}, budgets: map[string]*budget{},
		etags: map[string]string{},
	}
}

// path returns the client's next path: usually that of one document, which it soon has asked for too often.
func (c *client) path() string {
	c.asked++
	if (c.asked+c.number)%scrapeEvery == 0 {
		return metricsPath
	}
	i := (c.asked + c.number) % (len(documents) + len(probes))
	if i < len(documents) {
		return documents[c.number%len(documents)]
	}
	return probes[i-len(documents)]
}

// get makes one query.
func (c *client) get(ctx context.Context, url, etag string) (*http.Response, []byte, span, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, span{}, err
	}
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	s := span{sent: time.Now()}
	answer, err := c.http.Do(req)
	if err != nil {
		return nil, nil, s, err
	}
	defer answer.Body.Close() //nolint:errcheck // it is read
	body, err := io.ReadAll(answer.Body)
	s.got = time.Now()
	return answer, body, s, err
}

// ask queries a document, a probe or the metrics, and checks the answer.
func (c *client) ask(ctx context.Context, base, path string) (status int, err error) {
	url := base + path[1:]
	etag := ""
	if c.asked%2 == 0 {
		etag = c.etags[url]
	}
	answer, body, s, err := c.get(ctx, url, etag)
	if err != nil {
		return 0, err
	}
	switch {
	case path == metricsPath:
		err = checkMetrics(answer, body)
	case slices.Contains(probes, path):
		if answer.StatusCode != http.StatusOK || string(body) != "ok" {
			err = errors.New("the job is well, and is not said to be")
		}
	default:
		err = c.checkDocument(url, answer, body, s)
	}
	if err != nil {
		err = fmt.Errorf("client %d, %s: %s %.300q: %w", c.number, path, answer.Status, body, err)
	}
	return answer.StatusCode, err
}

// budget bounds how many queries for a document the client may still make without being refused. The client doesn't
// know when its queries arrive, so it only knows that the number is between least and most. One more query comes due in
// each interval.
type budget struct {
	last        span
	least, most float64
}

// at adds what came due between the last query and this one.
func (b *budget) at(s span) {
	b.least = min(burst, b.least+max(0, s.sent.Sub(b.last.got).Seconds()/interval.Seconds()))
	b.most = min(burst, b.most+s.got.Sub(b.last.sent).Seconds()/interval.Seconds())
	b.last = s
}

// slack allows for rounding, as the limit counts in nanoseconds.
const slack = 1e-6

// checkDocument checks an answer against the limit: a query is refused if and only if the budget is used up.
func (c *client) checkDocument(url string, answer *http.Response, body []byte, s span) error {
	b := c.budgets[url]
	if b == nil {
		b = &budget{last: s, least: burst, most: burst}
		c.budgets[url] = b
	}
	b.at(s)
	if link := answer.Header.Get("Link"); !strings.HasPrefix(link, "</api/v1/events>;") {
		return fmt.Errorf("the Link %q doesn't lead to the events", link)
	}
	switch answer.StatusCode {
	case http.StatusTooManyRequests:
		if b.least >= 1+slack {
			return fmt.Errorf("refused with %.3f queries left", b.least)
		}
		b.most = min(b.most, 1)
		wait, err := strconv.Atoi(answer.Header.Get("Retry-After"))
		if most := int(interval / time.Second); err != nil || wait < 1 || wait > most {
			return fmt.Errorf("Retry-After is %q, want 1 to %d", answer.Header.Get("Retry-After"), most)
		}
		return nil
	case http.StatusOK, http.StatusNotModified:
		if b.most < 1-slack {
			return fmt.Errorf("let in with %.3f queries left", b.most)
		}
		b.least, b.most = max(b.least-1, 0), b.most-1
		c.etags[url] = answer.Header.Get("Etag")
		if answer.StatusCode == http.StatusNotModified {
			return nil
		}
		return checkBody(body)
	}
	return errors.New("neither an answer nor a refusal")
}

// document is the part of a document that the test reads.
type document struct {
	Schema   int
	Total    int
	Ranks    []struct{ State string }
	Verdicts []json.RawMessage
}

// checkBody reads a document, in which nothing may be wrong with the job.
func checkBody(body []byte) error {
	var d document
	if err := json.Unmarshal(body, &d); err != nil {
		return err
	}
	if d.Schema == 0 || len(d.Verdicts) > 0 {
		return errors.New("the job is well, and this says otherwise")
	}
	return nil
}

// checkMetrics accepts promhttp's refusal when too many clients scrape at once.
func checkMetrics(answer *http.Response, body []byte) error {
	switch answer.StatusCode {
	case http.StatusOK:
		if !strings.Contains(string(body), "ccl_ras_peers") {
			return errors.New("metrics without those of RAS")
		}
		return nil
	case http.StatusServiceUnavailable:
		if strings.HasPrefix(string(body), "Limit of concurrent requests reached") {
			return nil
		}
	}
	return errors.New("no metrics")
}

// load is the clients, and the results of their queries.
type load struct {
	clients []*client

	mu       sync.Mutex
	statuses map[string]int // "documents 429"
	queries  int
	errs     []error
}

func newLoad() *load {
	l := &load{clients: make([]*client, clientCount), statuses: map[string]int{}}
	for i := range l.clients {
		l.clients[i] = newClient(i)
	}
	return l
}

// kind is the kind under which a path is counted.
func kind(path string) string {
	switch {
	case path == metricsPath:
		return "metrics"
	case slices.Contains(probes, path):
		return "probes"
	}
	return "documents"
}

func (l *load) note(path string, status int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queries++
	l.statuses[fmt.Sprintf("%s %d", kind(path), status)]++
	if err != nil && len(l.errs) < 10 {
		l.errs = append(l.errs, err)
	}
}

// count is the number of queries that were answered so far.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queries
}

func (l *load) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for i, what := range slices.Sorted(maps.Keys(l.statuses)) {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s: %d", what, l.statuses[what])
	}
	return b.String()
}

// start makes each client query its target, one of targets, ten times a second. It returns when each client has had an
// answer; stop ends the load, and returns when all have theirs.
func (l *load) start(targets []string, check bool) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var begun, ended sync.WaitGroup
	for i, c := range l.clients {
		begun.Add(1)
		ended.Go(func() {
			// Clients start at different times.
			first := time.NewTimer(pause * time.Duration(i) / clientCount)
			<-first.C
			ticker := time.NewTicker(pause)
			defer ticker.Stop()
			for once := sync.OnceFunc(begun.Done); ctx.Err() == nil; {
				path := c.path()
				if check {
					status, err := c.ask(context.WithoutCancel(ctx), targets[i%len(targets)], path)
					l.note(path, status, err)
				} else {
					answer, _, _, err := c.get(context.WithoutCancel(ctx), targets[i%len(targets)]+path[1:], "")
					if err == nil {
						l.note(path, answer.StatusCode, nil)
					} else {
						l.note(path, 0, err)
					}
				}
				once()
				select {
				case <-ctx.Done():
				case <-ticker.C:
				}
			}
		})
	}
	begun.Wait()
	return func() {
		cancel()
		ended.Wait()
	}
}
