package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/cmd/carillon/internal/view"
	"github.com/carillon-rt/carillon/health"
	"github.com/carillon-rt/carillon/ras/bus"
	"github.com/carillon-rt/carillon/ras/verdict"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// rankAt is a health endpoint that reports a rank on a host, and the other ranks that are in ranks when it is asked. It
// requires a token.
func rankAt(t *testing.T, rank int, host string, ranks *[]health.Rank) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer 0123456789abcdef" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(&health.Snapshot{
			Job: "train", Rank: rank, Size: 3, Host: host, PID: 100 + rank, Ranks: *ranks,
			Conditions: []health.Condition{
				{Code: "gpu_hot", Severity: bus.Warning, Text: "it is hot on host " + host},
			},
		})
	}))
	t.Cleanup(s.Close)
	*ranks = append(*ranks, health.Rank{Rank: rank, State: "alive", Host: host, PID: 100 + rank, URL: s.URL})
	return s
}

// TestStatusAsksOtherHosts: one endpoint is named, and the others that it knows are asked with the same token; those
// that can't be reached are reported.
func TestStatusAsksOtherHosts(t *testing.T) {
	t.Setenv("CARILLON_HEALTH_TOKEN", "0123456789abcdef")
	var ranks []health.Rank
	first := rankAt(t, 0, "a", &ranks)
	rankAt(t, 1, "b", &ranks)
	rankAt(t, 2, "c", &ranks).Close()
	out, errs, code := carillon(t, "status", "--url", first.URL, "--color", "never")
	if code != 1 || errs != "" {
		t.Errorf("exit code %d, want 1 for a warning; it says %q", code, errs)
	}
	for _, want := range []string{
		"it is hot on host a", "it is hot on host b",
		"1 of the 2 endpoints on other hosts didn't answer: rank 2 (c-102) at " + ranks[2].URL + " can't be reached",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it lacks %q:\n%s", want, out)
		}
	}
}

// TestStatusIsOfOneMoment: while an endpoint that doesn't answer was awaited, the answers of the others became old.
// Their sentences read as they are when the report is printed.
func TestStatusIsOfOneMoment(t *testing.T) {
	began, awaited := make(chan time.Time, 1), make(chan time.Time, 1)
	answering := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		age := time.Duration(0)
		select {
		case began <- time.Now():
		default:
			age = (<-awaited).Sub(<-began)
		}
		_ = json.NewEncoder(w).Encode(&health.Snapshot{
			Job: "train", Size: 2, Host: "a", PID: 100, Verdicts: []health.Verdict{{ID: "1", Verdict: verdict.Verdict{
				Reason: verdict.RankStopped, Text: verdict.Sentence("rank 1 stopped " + age.String() + " ago"),
			}}},
		})
	}))
	defer answering.Close()
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		awaited <- time.Now()
	}))
	defer silent.Close()
	out, _, code := carillon(t, "status", "--url", answering.URL+","+silent.URL, "--timeout", "1s", "--color", "never")
	_, text, _ := strings.Cut(out, "rank 1 stopped ")
	text, _, _ = strings.Cut(text, " ago")
	if age, err := time.ParseDuration(text); err != nil || age < time.Second/2 || code != 1 {
		t.Errorf("exit code %d, and an age of %v, %v:\n%s", code, age, err, out)
	}
}

// TestStatusAsksSomeOfMany: in a large job not all endpoints are asked, and the output says so.
func TestStatusAsksSomeOfMany(t *testing.T) {
	t.Setenv("CARILLON_HEALTH_TOKEN", "0123456789abcdef")
	var ranks []health.Rank
	first := rankAt(t, 0, "a", &ranks)
	for rank := range 100 {
		rankAt(t, 1+rank, "b", &ranks).Close()
	}
	out, _, _ := carillon(t, "status", "--url", first.URL, "--color", "never")
	for _, want := range []string{
		"36 more endpoints on other hosts were not asked",
		"64 of the 64 endpoints on other hosts didn't answer",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it lacks %q:\n%s", want, out)
		}
	}
}

// TestWatchWithoutAnswer: a running job of which no process can be asked doesn't count as healthy.
func TestWatchWithoutAnswer(t *testing.T) {
	w, err := tape.Create(tape.Config{Dir: t.TempDir(), Job: "mute", Slots: 1, LifeRecords: 1, OpRecords: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() //nolint:errcheck // it is not read
	_, stderr, code := carillon(t, "watch", "--lines", "--for", "50ms", filepath.Dir(w.Path()))
	if want := "no answer within 50ms: "; code != view.CodeUnknown || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, want %d; it says %q, want %q", code, view.CodeUnknown, stderr, want)
	}
}
