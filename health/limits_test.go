package health

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// listen starts a server with one check that is well, and stops it with the test.
func listen(t testing.TB, cfg Config) *Server {
	t.Helper()
	if cfg.Registry == nil {
		cfg.Registry = &Registry{}
		if err := cfg.Registry.Register("process", Live|Ready, 0, func(context.Context) error {
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := Listen(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return s
}

// dial opens a connection, which ends with the test at the latest.
func dial(t testing.TB, s *Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// send writes bytes on a connection of their own, and reads an answer.
func send(t testing.TB, s *Server, request string) (*http.Response, string) {
	t.Helper()
	conn := dial(t, s)
	defer conn.Close()
	_, _ = io.WriteString(conn, request) // the server may hang up before it has read all
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%.40q: %v", request, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// request is a GET with more header lines.
func request(path string, lines ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
		strings.Join(append(lines, "", ""), "\r\n")
}

// TestBadRequests sends requests that no client of ours would send, and a normal request afterwards.
func TestBadRequests(t *testing.T) {
	s, impatient := listen(t, Config{}), defaultTimes
	impatient.request = time.Second // an endless body takes all of it
	for name, tc := range map[string]struct {
		request string
		status  int
		header  string
	}{
		"no HTTP":         {"\x16\x03\x01 hello\r\n\r\n", 400, ""},
		"zeros":           {strings.Repeat("\x00", 4096) + "\r\n\r\n", 400, ""},
		"no such version": {"GET / HTTP/9.9\r\n\r\n", 505, ""},
		"no host":         {"GET / HTTP/1.1\r\n\r\n", 400, ""},
		"another host":    {"GET /livez HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 421, ""},
		"a host like ours": {
			"GET /livez HTTP/1.1\r\nHost: localhost.evil.example\r\nConnection: close\r\n\r\n", 421,
			"",
		},
		"two hosts":           {"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400, ""},
		"another site's page": {request("/api", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"), 403, ""},
		"a large header":      {request("/livez", "X: "+strings.Repeat("x", 64<<10)), 431, ""},
		"many headers":        {request("/livez", strings.Repeat("X: y\r\n", 10_000)+"Z: z"), 431, ""},
		"a long path":         {request("/" + strings.Repeat("x", 64<<10)), 431, ""},
		"POST": {
			"POST /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405,
			"Allow: GET, HEAD",
		},
		"DELETE": {
			"DELETE / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405,
			"Allow: GET, HEAD",
		},
		"CONNECT": {
			"CONNECT localhost:1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405,
			"Allow: GET, HEAD",
		},
		"made up": {
			"BREW /pot HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405,
			"Allow: GET, HEAD",
		},
		"a large body": {
			"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n", 413,
			"Connection: close",
		},
		"an endless body": {"GET /livez HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n20000\r\n" +
			strings.Repeat("x", 0x20000), 413, "Connection: close"},
		"a small body": {request("/livez", "Content-Length: 5") + "hello", 200, ""},
		"two lengths":  {request("/livez", "Content-Length: 5", "Content-Length: 6") + "hello", 400, ""},
		"length and chunks": {request("/livez", "Content-Length: 5", "Transfer-Encoding: chunked") +
			"0\r\n\r\n", 200, ""},
		"a path out of here":        {request("/livez/../../etc/passwd"), 307, ""},
		"an escape that is none":    {request("/%zz"), 400, ""},
		"a query that isn't one":    {request("/livez?%zz&;=&exclude=%ff"), 200, ""},
		"a route that is not there": {request("/api/v1/nothing"), 404, ""},
	} {
		to := s
		if name == "an endless body" {
			to = listen(t, Config{times: impatient})
		}
		resp, body := send(t, to, tc.request)
		if resp.StatusCode != tc.status {
			t.Errorf("%s: %d %.80q, want %d", name, resp.StatusCode, body, tc.status)
		}
		if key, value, ok := strings.Cut(tc.header, ": "); ok && resp.Header.Get(key) != value &&
			(key != "Connection" || !resp.Close) {
			// ReadResponse takes Connection out
			t.Errorf("%s: %s is %q, want %q", name, key, resp.Header.Get(key), value)
		}
	}
	for _, host := range []string{"localhost:1", "LOCALHOST", "127.0.0.7", "[::1]:80"} {
		if resp, body := send(t, s,
			"GET /livez HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n"); resp.StatusCode != 200 {
			t.Errorf("host %s: %d %q", host, resp.StatusCode, body)
		}
	}
}

// TestProbesGetInWhileOthersHoldOn: more connections than allowed, none of which sends anything, or ends its request,
// or reads its answer.
func TestProbesGetInWhileOthersHoldOn(t *testing.T) {
	big := strings.Repeat("x", 32<<20) // more than the kernel buffers
	entered := make(chan struct{}, 64)
	for name, hold := range map[string]struct {
		request string
		serving bool
	}{
		"silent":     {"", false},
		"slow-loris": {"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-a: b", false},
		"no reader":  {request("/big"), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := listen(t,
				Config{
					Routes: []Route{
						{Path: "/big", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
							entered <- struct{}{}
							_, _ = io.WriteString(w, big)
						})},
					},
				})
			s.connections.mu.Lock()
			s.connections.max = 16
			s.connections.mu.Unlock()
			for range 40 {
				if _, err := io.WriteString(dial(t, s), hold.request); err != nil {
					t.Fatal(err)
				}
				if hold.serving {
					<-entered
				}
			}
			for range 3 {
				if resp, body := send(t, s, request("/livez")); resp.StatusCode != http.StatusOK || body != "ok" {
					t.Errorf("%d %q", resp.StatusCode, body)
				}
			}
			if n := s.connections.count(); n > 16 {
				t.Errorf("%d connections are open", n)
			}
			if cut := testutil.ToFloat64(s.metrics.cut); cut < 40-16 {
				t.Errorf("%v were cut", cut)
			}
		})
	}
}

// TestConnectionsAreCounted: after all clients have gone, no connection is counted, whatever they did.
func TestConnectionsAreCounted(t *testing.T) {
	var cs connections
	cs.max, cs.maxStreams, cs.cut = 4, 2, func() {}
	var opened []*connection
	enter := func() *connection {
		a, b := net.Pipe()
		t.Cleanup(func() { _, _ = a.Close(), b.Close() })
		c := cs.context(context.Background(), a).Value(connectionKey{}).(*connection)
		opened = append(opened, c)
		return c
	}
	stream1, stream2, other := enter(), enter(), enter()
	ends := map[*connection]func(){}
	for i, want := range []bool{true, true, false} {
		ends[opened[i]] = opened[i].serve()
		if got := opened[i].stream(); got != want {
			t.Errorf("stream %d: %v", i, got)
		}
	}
	ends[other]()
	for range 6 {
		enter()
	}
	if cs.count() != 4 || cs.open[stream1.conn] == nil || cs.open[stream2.conn] == nil || cs.open[other.conn] != nil {
		t.Errorf("%d are open; streams stay, and who waits longest goes", cs.count())
	}
	ends[stream1]()
	if cs.streams != 1 || stream1.doing != waiting {
		t.Errorf("%d streams after the end of one", cs.streams)
	}
	cs.state(stream2.conn, http.StateClosed) // before its handler knows
	ends[stream2]()
	other.serve()() // it was cut
	for _, c := range opened {
		cs.state(c.conn, http.StateClosed)
	}
	if cs.count() != 0 || cs.streams != 0 {
		t.Errorf("left: %d open, %d streams", cs.count(), cs.streams)
	}
}

// TestPanicsAreContained: the client gets an answer, or sees that its answer is incomplete.
func TestPanicsAreContained(t *testing.T) {
	var log strings.Builder
	var mu sync.Mutex
	s := listen(t, Config{
		Logger: slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return log.Write(b)
		}), nil)),
		Routes: []Route{
			{Path: "/early", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oh") })},
			{Path: "/late", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "10")
				_, _ = io.WriteString(w, "half")
				_ = http.NewResponseController(w).Flush()
				panic(errors.New("ah"))
			})},
		},
	})
	if resp, body := send(t, s, request("/early")); resp.StatusCode != http.StatusInternalServerError ||
		strings.Contains(body, "oh") {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	conn := dial(t, s)
	if _, err := io.WriteString(conn, request("/late")); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(text), "half") {
		t.Errorf("%q, %v", text, err)
	}
	if resp, _ := send(t, s, request("/livez")); resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d", resp.StatusCode)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"panic=oh", "panic=ah", "/early", "limits_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestStreams: a stream outlives the times that other requests have, and the server's end ends it, even in the middle
// of a write.
func TestStreams(t *testing.T) {
	deadline := make(chan error, 1)
	ended := make(chan error, 2)
	s := listen(t, Config{Routes: []Route{
		{Path: EventsPath, Stream: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			out := http.NewResponseController(w)
			deadline <- errors.Join(out.SetWriteDeadline(time.Time{}), out.Flush())
			<-r.Context().Done()
			ended <- nil
		})},
		{Path: "/full", Stream: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			deadline <- http.NewResponseController(w).SetWriteDeadline(time.Time{})
			for {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					ended <- err
					return
				}
			}
		})},
	}})
	s.connections.mu.Lock()
	s.connections.maxStreams = 2
	s.connections.mu.Unlock()
	for _, path := range []string{EventsPath, "/full"} {
		if _, err := io.WriteString(dial(t, s), request(path)); err != nil {
			t.Fatal(err)
		}
		if err := <-deadline; err != nil {
			t.Fatal(err)
		}
	}
	if resp, _ := send(t, s, request(EventsPath)); resp.StatusCode != http.StatusServiceUnavailable ||
		resp.Header.Get("Retry-After") == "" {
		t.Errorf("a third: %d %v", resp.StatusCode, resp.Header)
	}
	s.connections.endStreams() // as Stop does first
	for range 2 {
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Fatal("a stream goes on")
		}
	}
}

// TestWhoTakesTooLongIsCutOff: nothing sent, half a header, half a body, an answer that isn't read, nothing after an
// answer. Only a stream may last.
func TestWhoTakesTooLongIsCutOff(t *testing.T) {
	const soon = 200 * time.Millisecond
	entered := make(chan struct{})
	s := listen(t, Config{
		times: times{header: soon, request: soon, answer: soon, idle: soon},
		Routes: []Route{
			{Path: "/big", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(entered)
				_, _ = w.Write(make([]byte, 32<<20))
			})},
			{Path: EventsPath, Stream: true, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				out := http.NewResponseController(w)
				if err := out.SetWriteDeadline(time.Time{}); err != nil {
					t.Error(err)
				}
				select {
				case <-time.After(5 * soon): // longer than any of its times
					_, _ = io.WriteString(w, "still here")
				case <-r.Context().Done():
				}
			})},
		},
	})
	held := map[string]net.Conn{}
	for name, text := range map[string]string{
		"silent": "", "half a header": "GET / HTTP/1.1\r\nHost: localhost\r\nX-a: ", "half a body": request("/livez",
			"Content-Length: 10") + "half",
		"keep-alive": "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		held[name] = dial(t, s)
		if _, err := io.WriteString(held[name], text); err != nil {
			t.Fatal(err)
		}
	}
	if _, body := send(t, s, request(EventsPath)); body != "still here" {
		t.Errorf("the stream says %q", body)
	}
	for name, conn := range held {
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) { // the test's own deadline
			t.Errorf("%s: the connection stays", name)
		}
	}
	unread := dial(t, s)
	if _, err := io.WriteString(unread, request("/big")); err != nil {
		t.Fatal(err)
	}
	<-entered
	for deadline := time.Now().Add(20 * time.Second); s.connections.count() > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections stay", s.connections.count())
		}
	}
}

func TestServerMetrics(t *testing.T) {
	p := &Publisher{}
	p.Publish(sample())
	c := &Conditions{}
	w, err := c.Declare(Declaration{Code: "hot"})
	if err != nil {
		t.Fatal(err)
	}
	w.Set(Finding{Text: "90 degrees", Severity: bus.Warning})
	s := listen(t, Config{Publisher: p, Conditions: c, MinPollInterval: time.Hour})
	for _, path := range []string{
		"/livez", "/readyz/process", "/readyz/nobody", "/api/v1/ras", "/api/v1/ras", "/",
		"/made/up", "/made/up/too",
	} {
		send(t, s, request(path))
	}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(s); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP ccl_health_conditions Conditions that are open and not silent, by severity.
# TYPE ccl_health_conditions gauge
ccl_health_conditions{severity="critical"} 0
ccl_health_conditions{severity="info"} 0
ccl_health_conditions{severity="warning"} 1
# HELP ccl_health_requests_total Requests to the health endpoint that were answered, by path and status code.
# TYPE ccl_health_requests_total counter
ccl_health_requests_total{code="200",path="/"} 1
ccl_health_requests_total{code="200",path="/api/v1/ras"} 1
ccl_health_requests_total{code="200",path="/livez"} 1
ccl_health_requests_total{code="200",path="/readyz/{check}"} 1
ccl_health_requests_total{code="404",path="/readyz/{check}"} 1
ccl_health_requests_total{code="404",path="other"} 2
ccl_health_requests_total{code="429",path="/api/v1/ras"} 1
# HELP ccl_ras_queries_refused_total Queries that were answered with 429 because they came too often.
# TYPE ccl_ras_queries_refused_total counter
ccl_ras_queries_refused_total 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want),
		semconv.MetricHealthConditions, semconv.MetricHealthRequests, semconv.MetricRASQueriesRefused); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(registry, semconv.MetricHealthConnections,
		semconv.MetricHealthConnectionsCut); n != 2 || err != nil {
		t.Errorf("%d series, %v", n, err)
	}
}

// FuzzProbeQuery: every query gets a proper answer, and no client can inject lines into it.
func FuzzProbeQuery(f *testing.F) {
	for _, q := range []string{
		"verbose", "exclude=world&verbose", "exclude=a%0a[%2b]b+ok", "format=json&exclude=%ff",
		";;&&==%", "exclude",
	} {
		f.Add(q)
	}
	r := &Registry{}
	if err := r.Register("world", Ready, 0, func(context.Context) error { return nil }); err != nil {
		f.Fatal(err)
	}
	routes := []Route{
		{Path: "/readyz", Handler: http.HandlerFunc((&probe{name: "readyz", kind: Ready, registry: r}).all)},
	}
	f.Fuzz(func(t *testing.T, query string) {
		w := askedRaw(t, routes, "/readyz", query)
		if w.Code != http.StatusOK {
			t.Errorf("%d %q", w.Code, w.Body)
		}
		for line := range strings.Lines(w.Body.String()) {
			if strings.HasPrefix(line, "[") && line != "[+]world ok\n" && line != "[+]world excluded: ok\n" {
				t.Errorf("a line of the client's: %q", line)
			}
		}
	})
}

// BenchmarkRAS is a query of a snapshot of 64 ranks, answered in full, not changed, and refused.
func BenchmarkRAS(b *testing.B) {
	s := sample()
	for i := range 64 {
		s.Ranks = append(s.Ranks, Rank{Rank: i, State: "alive", Host: "h1", PID: i})
	}
	for _, bc := range []struct {
		name     string
		interval time.Duration
		header   func(etag string) http.Header
		status   int
	}{
		{"full", 0, func(string) http.Header { return http.Header{} }, http.StatusOK},
		{"same", 0, func(etag string) http.Header {
			return http.Header{"If-None-Match": {etag}}
		}, http.StatusNotModified},
		{"refused", time.Hour, func(string) http.Header { return http.Header{} }, http.StatusTooManyRequests},
	} {
		b.Run(bc.name, func(b *testing.B) {
			p := &Publisher{}
			p.Publish(s)
			routes := queryRoutes(Config{Publisher: p, MinPollInterval: bc.interval})
			handler := routes[0].Handler
			etag := asked(b, routes, "/api/v1/ras", "10.0.0.1:1").Header().Get("ETag")
			r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "/api/v1/ras", nil)
			if err != nil {
				b.Fatal(err)
			}
			r.RemoteAddr, r.Header = "10.0.0.1:1", bc.header(etag)
			w := &discard{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				handler.ServeHTTP(w, r)
			}
			if w.status != bc.status && (bc.status != http.StatusOK || w.status != 0) {
				b.Errorf("status %d", w.status)
			}
		})
	}
}

// discard is a client that looks at nothing but the status.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkServed is a query over a persistent connection, as it arrives a thousand times a second: all but one are
// refused.
func BenchmarkServed(b *testing.B) {
	p := &Publisher{}
	p.Publish(sample())
	s := listen(b, Config{Publisher: p, MinPollInterval: DefaultMinPollInterval})
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := io.WriteString(conn, "GET /api/v1/ras HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			b.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Fatal(err)
		}
	}
	perQuery := b.Elapsed() / time.Duration(b.N)
	b.ReportMetric(float64(1000*perQuery)/float64(time.Second)*100, "%core-at-1000/s") // with the client's share
}
