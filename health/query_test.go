package health

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// sample is a snapshot with one of everything.
func sample() *Snapshot {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return &Snapshot{
		Time: at, Job: "train", Rank: 1, Size: 2, Host: "h1", PID: 4711,
		Ranks: []Rank{
			{
				Job: "train", Rank: 0, State: "dead", Since: at, Member: "h1-4710", Host: "h1", PID: 4710,
				Text: "killed by signal 9",
			},
			{Job: "train", Rank: 1, State: "alive", Member: "h1-4711"},
		},
		Comms: []Comm{{
			Job: "train", Name: "world", Rank: 1, Size: 2, State: "ready", Launched: 3, Completed: 2, Begun: 3,
			Place:    tape.Place{Node: 1, Local: 2, Locals: 4, Connections: 1, PXN: tape.PXNOn},
			InFlight: &Op{Call: "all_reduce", Seq: 3},
		}},
		Verdicts: []Verdict{{Job: "train", ID: "0123", Since: at, Verdict: verdict.Verdict{
			Reason: verdict.RankDead, Culprits: []verdict.Rank{{Job: 0, Comm: 0}},
			Text: verdict.Sentence("rank 0 was killed by signal 9"),
		}}},
		Conditions: []Condition{{
			Job: "train", Code: "rank_dead", Severity: bus.Critical, Text: "rank 0 was killed", Since: at,
		}},
	}
}

// queryRoutes are the routes of a server that doesn't listen.
func queryRoutes(cfg Config) []Route {
	return (&Server{cfg: cfg, access: &access{}, seed: maphash.MakeSeed(), metrics: newMetrics(nil, nil)}).queryRoutes()
}

// asked sends a query to the handler of a path.
func asked(t testing.TB, routes []Route, path, from string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.RemoteAddr = from
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	for _, route := range routes {
		if route.Path == path {
			w := httptest.NewRecorder()
			route.Handler.ServeHTTP(w, r)
			return w
		}
	}
	t.Fatalf("nothing is at %s", path)
	return nil
}

// TestDocuments is the schema: a name changed here changes for all readers of the documents.
func TestDocuments(t *testing.T) {
	p := &Publisher{}
	routes := queryRoutes(Config{Publisher: p})
	if w := asked(t, routes, "/api/v1/ras", "10.0.0.1:1"); w.Code != http.StatusServiceUnavailable ||
		w.Header().Get("Retry-After") != "1" {
		t.Errorf("before the first snapshot: %d %v", w.Code, w.Header())
	}
	p.Publish(sample())
	const (
		head  = `"schema": 1, "time": "2026-01-02T03:04:05Z"`
		ranks = `"ranks": [{"job": "train", "rank": 0, "state": "dead", "since": "2026-01-02T03:04:05Z",
			"member": "h1-4710", "host": "h1", "pid": 4710, "text": "killed by signal 9"},
			{"job": "train", "rank": 1, "state": "alive", "member": "h1-4711"}]`
		comms = `"comms": [{"job": "train", "id": "00000000000000000000000000000000", "name": "world", "rank": 1,
			"size": 2, "place": {"node": 1, "rail": 2, "node_ranks": 4, "connections": 1, "pxn": "on"},
			"state": "ready", "launched": 3, "completed": 2, "begun": 3,
			"in_flight": {"call": "all_reduce", "seq": 3, "bytes": 0, "dtype": "", "age_seconds": 0}}]`
		verdicts = `"verdicts": [{"job": "train", "id": "0123", "since": "2026-01-02T03:04:05Z",
			"reason": "rank_dead", "confidence": "possible", "culprits": [{"rank": 0, "comm_rank": 0}],
			"age_seconds": 0, "text": "rank 0 was killed by signal 9"}]`
	)
	for path, want := range map[string]string{
		"/api/v1/ranks":    `{` + head + `, "total": 2, ` + ranks + `}`,
		"/api/v1/comms":    `{` + head + `, "total": 1, ` + comms + `}`,
		"/api/v1/verdicts": `{` + head + `, "total": 1, ` + verdicts + `}`,
		"/api/v1/ras": `{` + head + `, "status": "critical", "job": "train", "rank": 1, "size": 2, "host": "h1",
			"pid": 4711, ` + ranks + `, ` + comms + `, "comms_total": 1, ` + verdicts + `,
			"conditions": [{"job": "train", "code": "rank_dead", "severity": "critical", "text": "rank 0 was killed",
			"since": "2026-01-02T03:04:05Z"}]}`,
	} {
		w := asked(t, routes, path, "10.0.0.1:1")
		var got, wanted any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%s: %d %v\n%s", path, w.Code, err, w.Body)
		}
		if err := json.Unmarshal([]byte(want), &wanted); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
		for name, value := range map[string]string{
			"Content-Type":   "application/json",
			"Content-Length": fmt.Sprint(w.Body.Len()), "Cache-Control": "no-cache",
		} {
			if got := w.Header().Get(name); got != value {
				t.Errorf("%s: %s is %q, want %q", path, name, got, value)
			}
		}
	}
	p.Publish(&Snapshot{})
	w := asked(t, routes, "/api/v1/ras", "10.0.0.2:1")
	for _, want := range []string{
		`"status": "ok"`, `"ranks": []`, `"comms": []`, `"verdicts": []`, `"conditions": []`,
	} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("an empty snapshot lacks %s:\n%s", want, w.Body)
		}
	}
}

// TestStatusGoesByTheVerdict: a job that is slow, or about which too little is known, is no outage.
func TestStatusGoesByTheVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		verdicts []verdict.Verdict
		want     string
	}{
		"none":           {nil, "ok"},
		"a death":        {[]verdict.Verdict{{Reason: verdict.RankDead, Confidence: verdict.Certain}}, "critical"},
		"a likely death": {[]verdict.Verdict{{Reason: verdict.RankDead, Confidence: verdict.Likely}}, "critical"},
		"a possible one": {[]verdict.Verdict{{Reason: verdict.RankDead, Confidence: verdict.Possible}}, "warning"},
		"a straggler":    {[]verdict.Verdict{{Reason: verdict.Straggler, Confidence: verdict.Likely}}, "warning"},
		"unknown":        {[]verdict.Verdict{{Reason: verdict.Unknown, Confidence: verdict.Certain}}, "warning"},
		"a straggler and a death": {[]verdict.Verdict{
			{Reason: verdict.Straggler, Confidence: verdict.Likely},
			{Reason: verdict.RankDead, Confidence: verdict.Certain},
		}, "critical"},
	} {
		s := &Snapshot{}
		for _, v := range c.verdicts {
			s.Verdicts = append(s.Verdicts, Verdict{Verdict: v})
		}
		p := &Publisher{}
		p.Publish(s)
		w := asked(t, queryRoutes(Config{Publisher: p}), "/api/v1/ras", "10.0.0.1:1")
		if want := fmt.Sprintf("%q: %q", "status", c.want); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: the answer lacks %s:\n%s", name, want, w.Body)
		}
	}
}

// TestETag: a snapshot with the same contents isn't sent again, whenever it was taken; an answer without a body counts,
// too.
func TestETag(t *testing.T) {
	p := &Publisher{}
	routes := queryRoutes(Config{Publisher: p})
	const path, from = "/api/v1/ras", "10.0.0.1:1"
	p.Publish(sample())
	tag := asked(t, routes, path, from).Header().Get("ETag")
	for _, header := range []string{tag, `"x", ` + tag, strings.TrimPrefix(tag, "W/"), "*", `,,"y",` + tag} {
		w := asked(t, routes, path, from, "If-None-Match", header)
		if w.Code != http.StatusNotModified || w.Body.Len() != 0 || w.Header().Get("ETag") != tag {
			t.Errorf("If-None-Match: %s: %d, %d bytes, %v", header, w.Code, w.Body.Len(), w.Header())
		}
	}
	if w := asked(t, routes, path, from, "If-None-Match", `"x", W/"`, "If-None-Match",
		tag); w.Code != http.StatusNotModified {
		t.Errorf("in a second field: %d", w.Code)
	}
	later := sample()
	later.Time = later.Time.Add(time.Hour)
	p.Publish(later)
	if w := asked(t, routes, path, from, "If-None-Match", tag); w.Code != http.StatusNotModified {
		t.Errorf("the same, later: %d", w.Code)
	}
	later = sample()
	later.Ranks[1].State = "stopped"
	p.Publish(later)
	if w := asked(t, routes, path, from, "If-None-Match", tag); w.Code != http.StatusOK ||
		w.Header().Get("ETag") == tag {
		t.Errorf("another: %d, ETag %s", w.Code, w.Header().Get("ETag"))
	}
	for _, header := range []string{"", `"x"`, `W/"x"`, ",,,"} {
		if w := asked(t, routes, path, from, "If-None-Match", header); w.Code != http.StatusOK {
			t.Errorf("If-None-Match: %s: %d", header, w.Code)
		}
	}
}

// TestWhoAsksTooOftenIsRefused: each client gets one answer for each document in an interval, whatever other clients
// do.
func TestWhoAsksTooOftenIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Publisher{}
		p.Publish(sample())
		events := Route{Path: EventsPath, Handler: http.NotFoundHandler()}
		routes := queryRoutes(Config{
			Publisher: p, Routes: []Route{events}, MinPollInterval: 5 * time.Second,
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
		})
		const path = "/api/v1/ras"
		began := time.Now()
		for i, step := range []struct {
			after  time.Duration // since the begin
			path   string
			from   string
			header []string
			status int
			retry  string
		}{
			{0, path, "10.0.0.1:1", nil, 200, ""},
			{0, path, "10.0.0.1:2", nil, 429, "5"},
			{0, "/api/v1/ranks", "10.0.0.1:2", nil, 200, ""},
			{0, path, "10.0.0.1:2", []string{"User-Agent", "another program"}, 200, ""},
			{0, path, "10.0.0.1:3", []string{"User-Agent", "another program"}, 429, "5"},
			{0, path, "10.0.0.2:2", nil, 200, ""},
			{0, path, "[::ffff:10.0.0.1]:9", nil, 429, "5"},
			{0, path, "[fe80::1%eth0]:9", nil, 200, ""},
			{0, path, "[fe80::2%eth1]:9", nil, 429, "5"},
			{0, path, "10.0.0.2:3", []string{"If-None-Match", "*"}, 429, "5"},
			{0, path, "10.0.0.2:3", []string{"X-Forwarded-For", "9.9.9.9"}, 429, "5"}, // not from a proxy
			{0, path, "10.1.0.1:3", []string{"X-Forwarded-For", "9.9.9.9"}, 200, ""},
			{0, path, "10.1.0.2:3", []string{"X-Forwarded-For", "9.9.9.9"}, 429, "5"},
			{0, path, "10.1.0.1:3", []string{"X-Forwarded-For", "8.8.8.8, 9.9.9.9"}, 429, "5"}, // its own invention
			{0, path, "10.1.0.1:3", []string{"X-Forwarded-For", "9.9.9.8"}, 200, ""},
			{3900 * time.Millisecond, path, "10.0.0.1:1", nil, 429, "2"},
			{4999 * time.Millisecond, path, "10.0.0.1:1", nil, 429, "1"},
			{5 * time.Second, path, "10.0.0.1:1", nil, 200, ""}, // being refused doesn't begin a new interval
			{5 * time.Second, path, "10.0.0.1:1", nil, 429, "5"},
		} {
			time.Sleep(step.after - time.Since(began)) // of the bubble's clock
			w := asked(t, routes, step.path, step.from, step.header...)
			if w.Code != step.status || w.Header().Get("Retry-After") != step.retry {
				t.Errorf("step %d: %d, Retry-After %q; want %d, %q",
					i, w.Code, w.Header().Get("Retry-After"), step.status, step.retry)
			}
			if got, want := w.Header().Get("Link"),
				`</api/v1/events>; rel="monitor"; type="text/event-stream"`; got != want {
				t.Errorf("step %d: Link %q, want %q", i, got, want)
			}
			if w.Code == http.StatusTooManyRequests && !strings.Contains(w.Body.String(), EventsPath) {
				t.Errorf("step %d: %q doesn't name the stream", i, w.Body)
			}
		}
	})
}

// TestBurst: a client gets PollBurst answers without waiting, and the refusal in JSON if it accepts that.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Publisher{}
		p.Publish(sample())
		routes := queryRoutes(Config{Publisher: p, MinPollInterval: time.Second, PollBurst: 3})
		const path, from = "/api/v1/ras", "10.0.0.1:1"
		for i := range 3 {
			if w := asked(t, routes, path, from); w.Code != http.StatusOK {
				t.Errorf("query %d: %d", i, w.Code)
			}
		}
		w := asked(t, routes, path, from, "Accept", "application/json")
		var refusal struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &refusal); err != nil || w.Code != http.StatusTooManyRequests ||
			!strings.Contains(refusal.Error, "asked too often") ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%d %v: %v", w.Code, w.Header(), w.Body)
		}
		time.Sleep(time.Second) // of the bubble's clock
		for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			if w := asked(t, routes, path, from); w.Code != want {
				t.Errorf("a second later: %d, want %d", w.Code, want)
			}
		}
	})
}

// TestPollClientsAreBounded: however many clients ask, only a fixed number is remembered, including the current ones.
func TestPollClientsAreBounded(t *testing.T) {
	l := &pollLimiter{interval: time.Hour}
	now := time.Now()
	key := func(i int) pollKey {
		return pollKey{client: client{addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}}
	}
	for i := range 10 * maxPollClients {
		if wait := l.ask(key(i), now); wait != 0 {
			t.Fatalf("client %d waits %v for its first answer", i, wait)
		}
		if wait := l.ask(key(i), now.Add(time.Minute)); wait != 59*time.Minute {
			t.Fatalf("client %d waits %v for its second answer", i, wait)
		}
	}
	if len(l.clients) > maxPollClients {
		t.Errorf("%d are remembered", len(l.clients))
	}
	if wait := l.ask(key(0), now); wait != 0 {
		t.Errorf("a client that was forgotten waits %v", wait)
	}
}

func TestForwarded(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, tc := range []struct {
		peer   string
		fields []string
		want   string
	}{
		{"192.0.2.1", []string{"203.0.113.1"}, "192.0.2.1"},
		{"10.0.0.1", nil, "10.0.0.1"},
		{"10.0.0.1", []string{"203.0.113.1"}, "203.0.113.1"},
		{"10.0.0.1", []string{" 198.51.100.9 ,203.0.113.1, 10.0.0.2"}, "203.0.113.1"},
		{"10.0.0.1", []string{"198.51.100.9", "203.0.113.1", "10.0.0.2"}, "203.0.113.1"},
		{"10.0.0.1", []string{"203.0.113.1:4711"}, "203.0.113.1"},
		{"10.0.0.1", []string{"[2001:db8::1]:4711, fd00::2"}, "2001:db8::1"},
		{"10.0.0.1", []string{"2001:db8::1%eth0"}, "2001:db8::1"},
		{"::ffff:10.0.0.1", []string{"::ffff:203.0.113.1"}, "203.0.113.1"},
		{"10.0.0.1", []string{"unknown"}, "10.0.0.1"},
		{"10.0.0.1", []string{"203.0.113.1, unknown, 10.0.0.2"}, "10.0.0.2"},
		{"10.0.0.1", []string{"203.0.113.1,"}, "10.0.0.1"},
		{"10.0.0.1", []string{strings.Repeat("10.0.0.3,", 1000) + "10.0.0.2"}, "10.0.0.3"},
	} {
		if got := forwarded(netip.MustParseAddr(tc.peer), tc.fields, trusted); got != netip.MustParseAddr(tc.want) {
			t.Errorf("%s, %.60q: %v, want %s", tc.peer, tc.fields, got, tc.want)
		}
	}
}

// FuzzForwarded: whatever a client writes, a client that isn't a trusted proxy is identified by its own address.
func FuzzForwarded(f *testing.F) {
	f.Add("203.0.113.1, 10.0.0.2", "x")
	f.Add("[2001:db8::1]:80", ",,,")
	f.Add("::ffff:10.0.0.1%lo", "10.0.0.1:65536")
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	f.Fuzz(func(t *testing.T, a, b string) {
		stranger, proxy := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.0.0.1")
		if got := forwarded(stranger, []string{a, b}, trusted); got != stranger {
			t.Errorf("a stranger became %v", got)
		}
		got := forwarded(proxy, []string{a, b, "198.51.100.7"}, trusted)
		if got != netip.MustParseAddr("198.51.100.7") {
			t.Errorf("whom the proxy saw became %v", got)
		}
		if got = forwarded(proxy, []string{a, b}, trusted); !got.IsValid() || got.Is4In6() || got.Zone() != "" {
			t.Errorf("%q, %q: %v", a, b, got)
		}
		matches([]string{a, b}, `W/"x"`)
	})
}

// askedRaw sends a query string as it is.
func askedRaw(t testing.TB, routes []Route, path, query string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.URL.RawQuery = query
	w := httptest.NewRecorder()
	routes[0].Handler.ServeHTTP(w, r)
	return w
}
