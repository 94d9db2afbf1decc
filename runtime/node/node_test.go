package node_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/lifecycle"
	"github.com/carillon-rt/carillon/runtime/ccl"
	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/telemetry/model"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

func TestMain(m *testing.M) {
	if play := programs[os.Getenv(programEnv)]; play != nil {
		os.Exit(play())
	}
	goleak.VerifyTestMain(m)
}

// environ is an environment of its own.
func environ(vars map[string]string) node.Option {
	return node.FromEnviron(func(name string) string { return vars[name] })
}

func start(t *testing.T, opts ...node.Option) *node.Node {
	t.Helper()
	n, err := node.Start(t.Context(), append([]node.Option{node.WithTapeDir(t.TempDir())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// get asks the health endpoint.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestNodeShowsItsCommunicators(t *testing.T) {
	n := start(t, environ(map[string]string{"CARILLON_RAS_MIN_POLL_INTERVAL": "off"}))
	ctx := t.Context()
	world, err := n.Runtime().World(ctx)
	if err != nil {
		t.Fatal(err)
	}
	buf := []float32{1, 2}
	if err := ccl.AllReduce(ctx, world, buf, buf, ccl.Sum); err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSuffix(n.HealthURL(), "/")
	for path, says := range map[string]string{
		"/livez":         "ok",
		"/readyz":        "ok",
		"/healthz":       "ok",
		"/metrics":       `ccl_`,
		"/api/v1/comms":  `"name":"world"`,
		"/api/v1/ras":    `"name":"world"`,
		"/api/v1/ranks":  `"state":"alive"`,
		"/api/v1/traces": `ccl.comm.init`,
		"/":              "Carillon, rank 0 of 1",
	} {
		code, body := get(t, url+path)
		compact := func() string { return strings.ReplaceAll(body, `": "`, `":"`) }
		for strings.HasPrefix(path, "/api/") && !strings.Contains(compact(), says) && t.Context().Err() == nil {
			code, body = get(t, url+path) // the tape is read, and snapshots are taken, while the program goes on
		}
		if code != http.StatusOK || !strings.Contains(compact(), says) {
			t.Errorf("%s: %d, %q does not say %q", path, code, body, says)
		}
	}
	if err := world.Destroy(ctx); err != nil {
		t.Error(err)
	}
}

// TestQueriesAreLimited: by default, some queries are answered at once, and then one a second.
func TestQueriesAreLimited(t *testing.T) {
	url := strings.TrimSuffix(start(t).HealthURL(), "/") + "/api/v1/ras"
	for i := range health.DefaultPollBurst {
		if code, body := get(t, url); code != http.StatusOK {
			t.Errorf("query %d: %d %s", i, code, body)
		}
	}
	for code := http.StatusOK; code != http.StatusTooManyRequests; { // one more may be allowed by now
		var body string
		if code, body = get(t, url); code != http.StatusOK && code != http.StatusTooManyRequests {
			t.Fatalf("%d %s", code, body)
		}
	}
}

func TestStopReportsLeaks(t *testing.T) {
	dir := t.TempDir()
	n, err := node.Start(t.Context(), node.WithTapeDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Runtime().World(t.Context(), ccl.WithName("forgotten")); err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	tapes, err := filepath.Glob(filepath.Join(dir, "*", "*.tape"))
	if err != nil || len(tapes) != 1 {
		t.Fatalf("tapes: %v, %v", tapes, err)
	}
	r, err := tape.Open(tapes[0])
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if !r.Header().Closed {
		t.Error("the tape was not closed cleanly")
	}
	var acts []string
	for e, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if e.IsLife && e.Life.Act == tape.ActLeak {
			acts = append(acts, e.Life.Text)
			if e.Life.Code != lifecycle.CodeLeaked || !strings.Contains(e.Life.Site.File, "node_test.go") {
				t.Errorf("the leak is %v at %v", e.Life.Code, e.Life.Site)
			}
		}
	}
	if len(acts) != 1 || !strings.Contains(acts[0], "forgotten") {
		t.Errorf("leaks: %q", acts)
	}
}

func TestEveryProblemIsNamedAtOnce(t *testing.T) {
	_, err := node.Start(t.Context(), environ(map[string]string{
		"CARILLON_TAPE":      "perhaps",
		"CARILLON_ALGO":      "magic",
		"CARILLON_LOG":       "loud",
		"NCCL_SHM_DISABLE":   "-3",
		"RANK":               "5",
		"WORLD_SIZE":         "4",
		"MASTER_ADDR":        "127.0.0.1",
		"MASTER_PORT":        "99999",
		"NCCL_COMM_BLOCKING": "x",
		"CARILLON_SIMD":      "mmx",
	}))
	if err == nil {
		t.Fatal("started")
	}
	for _, part := range []string{
		"CARILLON_TAPE", "perhaps", "CARILLON_ALGO", "magic", "CARILLON_LOG",
		"loud", "NCCL_SHM_DISABLE", "-3", "RANK", "5", "MASTER_PORT", "99999", "NCCL_COMM_BLOCKING", "CARILLON_SIMD",
		"mmx",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not name %q:\n%v", part, err)
		}
	}
}

func TestBadTapeDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	required := environ(map[string]string{"CARILLON_TAPE": "required", "CARILLON_TAPE_DIR": file})
	_, err := node.Start(t.Context(), required)
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "CARILLON_TAPE=on") {
		t.Errorf("%v, want an error that names %s and the way out", err, file)
	}
	n := start(t, node.WithTapeDir(file), node.WithoutTape())
	if code, _ := get(t, strings.TrimSuffix(n.HealthURL(), "/")+"/readyz"); code != http.StatusOK {
		t.Errorf("without a tape /readyz answers %d", code)
	}
}

func TestHealthOnLoopbackOnly(t *testing.T) {
	dir := t.TempDir()
	_, err := node.Start(t.Context(), node.WithTapeDir(dir), node.WithHealth("0.0.0.0:0"))
	if err == nil || !strings.Contains(err.Error(), "0.0.0.0") ||
		!strings.Contains(err.Error(), "CARILLON_HEALTH_ADDR") {
		t.Errorf("%v, want an error that names the address", err)
	}
	// The parts made before the endpoint have ended, too.
	tapes, err := filepath.Glob(filepath.Join(dir, "*", "*.tape"))
	if err != nil || len(tapes) != 1 {
		t.Fatalf("tapes %v, %v; want one", tapes, err)
	}
	r, err := tape.Open(tapes[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	if !r.Header().Closed {
		t.Error("the tape was not closed")
	}
}

func TestStartObeysItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if _, err := node.Start(ctx, node.WithTapeDir(dir)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that the context was cancelled", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("it left %v, %v", files, err)
	}
}

// counter is a user's observer.
type counter struct{ life int }

func (c *counter) step(s *model.Step) {
	if s.IsLife {
		c.life++
	}
}

func TestModuleWithObserversAndChecks(t *testing.T) {
	cfg := node.Default()
	cfg.TapeDir = t.TempDir()
	mine := &counter{}
	var server *health.Server
	app := fxtest.New(t, node.Module, fx.Supply(&cfg), fx.NopLogger,
		node.Provide(
			func() node.Option { return node.WithObserver(node.Observer{Step: mine.step}) },
			func() node.Option {
				return node.WithCheck(node.Check{
					Name: "data", Kind: health.Ready,
					Check: func(context.Context) error { return errors.New("the loader is behind") },
				})
			},
		),
		fx.Populate(&server),
		fx.Invoke(func(rt *ccl.Runtime, lc fx.Lifecycle) {
			lc.Append(fx.StartHook(func(ctx context.Context) error {
				comm, err := rt.World(ctx)
				return errors.Join(err, comm.Close())
			}))
		}),
	)
	app.RequireStart()
	code, body := get(t, strings.TrimSuffix(server.URL(), "/")+"/readyz?verbose")
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "data") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	app.RequireStop()
	if mine.life < 4 { // start and end of init and destroy
		t.Errorf("the observer saw %d lifecycle records", mine.life)
	}
}
