package node_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/runtime/node"
)

// TestHealthAccessFromTheEnvironment: tokens from both variables give access that is refused without them.
func TestHealthAccessFromTheEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("0123456789abcdef-old\n0123456789abcdef-new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := start(t, environ(map[string]string{
		"CARILLON_HEALTH_ADDR": "0.0.0.0:0", "CARILLON_HEALTH_TOKEN": "fedcba9876543210",
		"CARILLON_HEALTH_TOKEN_FILE": file, "CARILLON_HEALTH_TRUSTED_PROXIES": "10.0.0.0/8, 192.0.2.7",
	}))
	url := strings.Replace(strings.TrimSuffix(n.HealthURL(), "/"), "[::]", "127.0.0.1", 1)
	for token, want := range map[string]int{
		"": 401, "0123456789abcdef": 401, "fedcba9876543210": 200, "0123456789abcdef-old": 200,
		"0123456789abcdef-new": 200,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("token %q: %d, want %d", token, resp.StatusCode, want)
		}
	}
	if code, body := get(t, url+"/livez"); code != http.StatusOK || body != "ok" {
		t.Errorf("/livez: %d %q", code, body)
	}
}

func TestBadHealthAccess(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, env := range map[string]map[string]string{
		"there is none":        {"CARILLON_HEALTH_TOKEN_FILE": empty},
		"no such file":         {"CARILLON_HEALTH_TOKEN_FILE": empty + "x"},
		"token 1 is malformed": {"CARILLON_HEALTH_TOKEN": "short"},
		"set together":         {"CARILLON_HEALTH_TLS_CERT": empty},
		`"10.0.0.1, proxy.example": " proxy.example": want`: {
			"CARILLON_HEALTH_TRUSTED_PROXIES": "10.0.0.1, proxy.example",
		},
		`CARILLON_RAS_MIN_POLL_INTERVAL="often"`: {"CARILLON_RAS_MIN_POLL_INTERVAL": "often"},
	} {
		n, err := node.Start(t.Context(), environ(env), node.WithTapeDir(t.TempDir()))
		if err == nil {
			_ = n.Stop(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want an error with %q, got %v", env, want, err)
		}
	}
}

// TestModuleWithRoutesAndConditions: routes that others provide are served, and their findings are published.
func TestModuleWithRoutesAndConditions(t *testing.T) {
	cfg := node.Default()
	cfg.TapeDir, cfg.MinPollInterval = t.TempDir(), 0
	var server *health.Server
	var conditions *health.Conditions
	app := fxtest.New(t, node.Module, fx.Supply(&cfg), fx.NopLogger, fx.Populate(&server, &conditions),
		node.Provide(func() node.Option {
			return node.WithRoute(health.Route{Path: "/api/v1/mine", Stream: true, Handler: http.NotFoundHandler()})
		}),
	)
	app.RequireStart()
	defer app.RequireStop()
	dead, err := conditions.Declare(health.Declaration{Code: "rank_dead"})
	if err != nil {
		t.Fatal(err)
	}
	dead.Set(health.Finding{Subject: "rank 1", Text: "killed by signal 9", Severity: bus.Critical})
	url := strings.TrimSuffix(server.URL(), "/")
	var body string
	for !strings.Contains(body, `"code": "rank_dead"`) && t.Context().Err() == nil {
		_, body = get(t, url+"/api/v1/ras")
	}
	for _, want := range []string{`"state": "alive"`, `"status": "critical"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the snapshot lacks %s:\n%s", want, body)
		}
	}
	if code, body := get(t, url+"/api/v1/mine"); code != http.StatusNotFound {
		t.Errorf("the route answers %d %q", code, body)
	}
	if code, body := get(t, url+"/metrics"); code != http.StatusOK ||
		!strings.Contains(body, `ccl_health_conditions{severity="critical"} 1`) {
		t.Errorf("the metrics lack the condition: %d", code)
	}
}

// TestAddressBesideTheTape: a reader that finds a tape finds the endpoint, as long as the process has one.
func TestAddressBesideTheTape(t *testing.T) {
	dir := t.TempDir()
	n, err := node.Start(t.Context(), node.WithTapeDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	tapes, err := filepath.Glob(filepath.Join(dir, "*", "*.tape"))
	if err != nil || len(tapes) != 1 {
		t.Fatalf("%v, %v; want one tape", tapes, err)
	}
	if got, err := health.ReadAddress(tapes[0]); err != nil || got+"/" != n.HealthURL() {
		t.Errorf("%q, %v; want %q", got, err, n.HealthURL())
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := health.ReadAddress(tapes[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Stop: %q, %v; want os.ErrNotExist", got, err)
	}
}
