package watch

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/tests/e2e"
)

// TestAskingIsPleasant: a person runs several commands in parallel, also while a program queries all ranks without a
// pause, and gets an answer each time.
func TestAskingIsPleasant(t *testing.T) {
	_, tapes, _ := start(t)
	first := e2e.Start(t, nil, "carillon", "watch", tapes)
	second := e2e.Start(t, nil, "carillon", "watch", "--lines", tapes)
	first.Await(`verdict\.opened: rank 2`)
	second.Await(`verdict\.opened: rank 2`)
	awaitStatus(t, 2, tapes)
	for range health.DefaultPollBurst + 5 {
		if code, text := status(t, tapes); code != 2 {
			t.Fatalf("exit code %d, want 2\n%s", code, text)
		}
	}
	for _, url := range endpoints(t, tapes) {
		refused := false
		for !refused {
			code, body := ask(t, url+"/api/v1/ras")
			if !json.Valid(body) {
				t.Fatalf("status %d is not in JSON: %s", code, body)
			}
			refused = code == http.StatusTooManyRequests
		}
	}
	if code, text := status(t, tapes); code != 2 {
		t.Errorf("after all ranks have refused another program: exit code %d, want 2\n%s", code, text)
	}
}

// endpoints returns the URLs of the ranks' health endpoints.
func endpoints(t *testing.T, tapes string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(tapes, "*", "*.tape"))
	if err != nil || len(paths) != 4 {
		t.Fatalf("tapes %v: %v", paths, err)
	}
	urls := make([]string, len(paths))
	for i, path := range paths {
		if urls[i], err = health.ReadAddress(path); err != nil {
			t.Fatal(err)
		}
	}
	return urls
}

// ask makes a query for JSON.
func ask(t *testing.T, url string) (status int, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // it is read
	if body, err = io.ReadAll(answer.Body); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, body
}
