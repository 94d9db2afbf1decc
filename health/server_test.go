package health_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// verdict is a check's result, set by the test and read by the server.
type verdict struct {
	mu  sync.Mutex
	err error
}

func (v *verdict) set(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err = err
}

func (v *verdict) check(context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// serve starts a server with the checks "tape" (live and ready, well) and "world" (ready, as world says), and stops it
// with the test.
func serve(t *testing.T, world *verdict, routes ...health.Route) *health.Server {
	t.Helper()
	r := &health.Registry{}
	for _, err := range []error{
		r.Register("tape", health.Live|health.Ready, 0, well),
		r.Register("world", health.Ready, 0, world.check),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := health.Listen(t.Context(), health.Config{Registry: r, Routes: routes, Title: "digits, rank 0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return s
}

// get asks on a connection of its own, so that none is left idle.
func get(t *testing.T, s *health.Server, path string) (int, string) {
	t.Helper()
	return do(t, s, http.MethodGet, path, "", nil)
}

func do(t *testing.T, s *health.Server, method, path, host string, body io.Reader) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr()+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	if host != "" {
		req.Host = host
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestProbes(t *testing.T) {
	var world verdict
	s := serve(t, &world)
	broken := errors.New("rank 3 died\n[+]forged ok")
	for _, tc := range []struct {
		path   string
		world  error
		status int
		body   string
	}{
		{"/livez", nil, 200, "ok"},
		{"/readyz", nil, 200, "ok"},
		{"/healthz", nil, 200, "ok"},
		{"/readyz?verbose", nil, 200, "[+]tape ok\n[+]world ok\nreadyz check passed\n"},
		{"/livez?verbose", nil, 200, "[+]tape ok\nlivez check passed\n"},
		{"/readyz/world", nil, 200, "ok"},
		{"/livez", broken, 200, "ok"},
		{"/readyz", broken, 503, "[+]tape ok\n[-]world failed: rank 3 died; [+]forged ok\nreadyz check failed\n"},
		{"/healthz", broken, 503, "[+]tape ok\n[-]world failed: rank 3 died; [+]forged ok\nhealthz check failed\n"},
		{"/readyz?exclude=world", broken, 200, "ok"},
		{"/readyz?verbose&exclude=world", broken, 200, "[+]tape ok\n[+]world excluded: ok\nreadyz check passed\n"},
		{
			"/readyz?verbose&exclude=wrold", nil, 200,
			"[+]tape ok\n[+]world ok\nwarn: no check named \"wrold\" was excluded\nreadyz check passed\n",
		},
		{"/readyz/world", broken, 503, "[-]world failed: rank 3 died; [+]forged ok\n"},
		{"/livez/world", broken, 404, "no check named \"world\"; /livez?verbose lists them\n"},
		{"/nowhere", nil, 404, "404 page not found\n"},
	} {
		world.set(tc.world)
		status, body := get(t, s, tc.path)
		if status != tc.status {
			t.Errorf("%s: status %d, want %d", tc.path, status, tc.status)
		}
		if diff := cmp.Diff(tc.body, body); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.path, diff)
		}
	}
}

func TestIndexAndRoutes(t *testing.T) {
	var world verdict
	s := serve(t, &world, health.Route{
		Path: "/api/v1/echo", Title: "a <b>", Handler: http.HandlerFunc(func(w http.ResponseWriter,
			_ *http.Request,
		) {
			fmt.Fprint(w, "hello")
		}),
	})
	status, page := get(t, s, "/")
	if status != http.StatusOK {
		t.Errorf("status %d", status)
	}
	for _, want := range []string{
		"<h1>digits, rank 0 <span class=\"badge ok\">ok</span></h1>", `href="livez"`,
		`href="readyz"`, `href="api/v1/echo"`, "a &lt;b&gt;",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the index lacks %q:\n%s", want, page)
		}
	}
	if _, body := get(t, s, "/api/v1/echo"); body != "hello" {
		t.Errorf("the route answers %q", body)
	}
	if want := "http://" + s.Addr() + "/"; s.URL() != want {
		t.Errorf("URL is %s, want %s", s.URL(), want)
	}
}

func TestListenRefuses(t *testing.T) {
	noop := http.NotFoundHandler()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for want, cfg := range map[string]health.Config{
		"Registry is nil":                {},
		"open to anybody: set a token":   {Registry: &health.Registry{}, Addr: "0.0.0.0:0"},
		`":8080" would be open`:          {Registry: &health.Registry{}, Addr: ":8080"},
		`"example.com:80" would be open`: {Registry: &health.Registry{}, Addr: "example.com:80"},
		"want host:port":                 {Registry: &health.Registry{}, Addr: "127.0.0.1"},
		"port 0 takes any":               {Registry: &health.Registry{}, Addr: taken.Addr().String()},
		"no handler":                     {Registry: &health.Registry{}, Routes: []health.Route{{Path: "/x"}}},
		"starts with /": {
			Registry: &health.Registry{}, Routes: []health.Route{{Path: "x", Handler: noop}},
		},
		`"/a" is taken`: {Registry: &health.Registry{}, Routes: []health.Route{
			{Path: "/a", Handler: noop},
			{Path: "/a", Handler: noop},
		}},
		`"/livez/x" is taken`: {
			Registry: &health.Registry{},
			Routes:   []health.Route{{Path: "/livez/x", Handler: noop}},
		},
	} {
		s, err := health.Listen(t.Context(), cfg)
		if err == nil {
			_ = s.Stop(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}

// TestStop: Stop lets a request in progress end, and cuts off one that doesn't.
func TestStop(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	start := func() *health.Server {
		s, err := health.Listen(t.Context(), health.Config{Registry: &health.Registry{}, Routes: []health.Route{{
			Path: "/slow", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				entered <- struct{}{}
				select {
				case <-release:
					fmt.Fprint(w, "done")
				case <-r.Context().Done():
				}
			}),
		}}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	type reply struct {
		body string
		err  error
	}
	ask := func(s *health.Server) <-chan reply {
		answered := make(chan reply, 1)
		go func() {
			req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, s.URL()+"slow", nil)
			if err != nil {
				answered <- reply{err: err}
				return
			}
			req.Close = true
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				answered <- reply{err: err}
				return
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			answered <- reply{string(body), err}
		}()
		<-entered
		return answered
	}

	s := start()
	answered := ask(s)
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(context.Background()) }()
	release <- struct{}{}
	if r := <-answered; r.err != nil || r.body != "done" {
		t.Errorf("the request in progress got %q, %v", r.body, r.err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Stop: %v", err)
	}

	s = start()
	answered = ask(s)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop: %v, want its deadline", err)
	}
	if r := <-answered; r.err == nil {
		t.Errorf("the request that was cut off got %q", r.body)
	}
}

func TestCommOf(t *testing.T) {
	const second = int64(time.Second)
	slots := []tape.Slot{
		{
			CommInfo: tape.CommInfo{ID: lifecycle.CommID{1}, Name: "world", Rank: 1, Size: 4, Nodes: 2, Engine: "host"},
			State:    lifecycle.StateReady, Launched: 8, Completed: 7, Begun: 6, Seq: 6, Wait: 3,
			WaitSince: 97 * second, OpStart: 90 * second, Phase: tape.PhaseTransfer,
			Op: tape.Signature{Call: lifecycle.CallAllReduce, DataType: 7, Peer: -1, Bytes: 4096},
		},
		{
			CommInfo: tape.CommInfo{ID: lifecycle.CommID{2}, Parent: lifecycle.CommID{1}, Name: "rails", Size: 2},
			State:    lifecycle.StateInitializing, Wait: -1,
		},
	}
	comms := []health.Comm{health.CommOf(&slots[0], 100*second), health.CommOf(&slots[1], 100*second)}
	slots[0].Op.Peer, slots[0].Wait, slots[1].Parent = 9, 9, lifecycle.CommID{9} // nothing of the slots is kept
	text, err := json.Marshal(comms)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(`[
		{"id": "01000000000000000000000000000000", "name": "world", "rank": 1, "size": 4, "nodes": 2,
		 "engine": "host", "state": "ready", "launched": 8, "completed": 7, "begun": 6,
		 "in_flight": {"call": "all_reduce", "seq": 6, "bytes": 4096, "dtype": "float32", "phase": "transfer",
		 "age_seconds": 10, "wait_rank": 3, "wait_seconds": 3}},
		{"id": "02000000000000000000000000000000", "parent": "01000000000000000000000000000000", "name": "rails",
		 "rank": 0, "size": 2, "state": "initializing", "launched": 0, "completed": 0, "begun": 0}
	]`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func ExampleListen() {
	checks := &health.Registry{}
	err := checks.Register("disk", health.Ready, 0, func(context.Context) error { return errors.New("no space left") })
	if err != nil {
		fmt.Println(err)
		return
	}
	server, err := health.Listen(context.Background(), health.Config{Registry: checks})
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := http.Get(server.URL() + "readyz")
	if err != nil {
		fmt.Println(err)
		return
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	fmt.Printf("%s\n%s", resp.Status, body)
	if err := server.Stop(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 503 Service Unavailable
	// [-]disk failed: no space left
	// readyz check failed
}
