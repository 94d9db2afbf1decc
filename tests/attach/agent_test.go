package attach

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// report returns the output of carillon status --json for a job once it matches want.
func report(t *testing.T, want string, args ...string) string {
	t.Helper()
	matches := regexp.MustCompile(want)
	for t.Context().Err() == nil { // snapshots are some moments old; the timeout of go test bounds the loop
		s := e2e.Start(t, nil, "carillon", append([]string{"status", "--json"}, args...)...)
		if s.ExitCode(); matches.MatchString(s.Output()) {
			return s.Output()
		}
	}
	return ""
}

// alike returns the lines of a text without parts that differ from run to run, such as who waits longest.
func alike(text string, pids [4]int) []string {
	for r, pid := range pids {
		text = regexp.MustCompile(fmt.Sprintf(`\b%d\b`, pid)).ReplaceAllString(text, fmt.Sprintf("PID%d", r))
	}
	text = regexp.MustCompile(`,\n *"at the time of the verdict: .*"`).ReplaceAllString(text, "") // an agent's only
	for _, differs := range []string{
		`[0-9a-f]{16,32}`, `\d{4}-\d\d-\d\dT[\d:.]+Z`, `\d+(\.\d+)?(µs|ms|s)\b`, `\d\.\d\d of a processor`,
		`(?m)_seconds": .*$`,
	} {
		text = regexp.MustCompile(differs).ReplaceAllString(text, "~")
	}
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return lines
}

// TestAgentFindsWhatProcessesDo: for processes without telemetry, an agent reaches the same verdict, in the same words,
// as processes with telemetry do, and carillon status knows all the same about both jobs.
func TestAgentFindsWhatProcessesDo(t *testing.T) {
	t.Parallel()
	texts := map[bool][]string{}
	for _, kept := range []bool{false, true} {
		tapes, env := t.TempDir(), own
		if kept {
			env = none
			agent(t, tapes)
		}
		job, pids := start(t, tapes, env)
		said := report(t, `"reason": "not_entered"[^§]*it sleeps or waits`, tapes)
		texts[kept] = alike(said, pids)
		e2e.Kill(t, pids[2], syscall.SIGUSR1)
		report(t, `"status": "ok"`, tapes)
		job.Signal(syscall.SIGUSR2)
		if code := job.ExitCode(); code != 0 {
			t.Errorf("the job's exit code is %d", code)
		}
	}
	if diff := cmp.Diff(texts[false], texts[true]); diff != "" {
		t.Errorf("processes with telemetry of their own (-), and those with an agent (+):\n%s", diff)
	}
}

// spansOf returns the spans that an exporter wrote to the console.
func spansOf(t *testing.T, output string) map[string]string {
	t.Helper()
	spans := map[string]string{}
	for line := range strings.Lines(output) {
		_, text, found := strings.Cut(line, `{"Name":`)
		if !found {
			continue
		}
		var s struct {
			Name        string
			SpanContext struct{ TraceID, SpanID string }
		}
		text = `{"Name":` + strings.TrimSpace(text)
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		spans[s.SpanContext.TraceID+" "+s.SpanContext.SpanID+" "+s.Name] = text
	}
	return spans
}

// TestAgentMakesTheSameSpans: the agent exports the same spans as the processes, each identical in every byte.
func TestAgentMakesTheSameSpans(t *testing.T) {
	t.Parallel()
	tapes := t.TempDir()
	// Only the agent looks for stalls, which may occur on a busy machine.
	a, _ := agent(t, tapes, "OTEL_TRACES_EXPORTER=console", "CARILLON_STALL_THRESHOLD=1m")
	job := e2e.Start(t, append(slices.Clone(none), "OTEL_TRACES_EXPORTER=console", roleVariable+"="), "carillon", "run",
		"-n", "4", "--tape-dir", tapes, "--", "digits", "-epochs", "12")
	if code := job.ExitCode(); code != 0 {
		t.Fatalf("the job's exit code is %d", code)
	}
	a.Signal(syscall.SIGTERM)
	if code := a.ExitCode(); code != 0 {
		t.Errorf("the agent's exit code is %d", code)
	}
	want, got := spansOf(t, job.Output()), spansOf(t, a.Output())
	if len(want) < 4*5 {
		t.Fatalf("the job exported %d spans", len(want))
	}
	if !maps.Equal(want, got) {
		t.Errorf("%d spans of the processes, %d of the agent:\n%s", len(want), len(got), cmp.Diff(want, got))
	}
}

// get returns the answer of an endpoint's page.
func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// metrics returns the lines of the agent's metrics that match.
func metrics(t *testing.T, url, want string) []string {
	t.Helper()
	code, body := get(t, url+"/metrics")
	if code != http.StatusOK {
		t.Errorf("the metrics answer %d: %s", code, body)
	}
	return regexp.MustCompile("(?m)"+want).FindAllString(body, -1)
}

// receiver accepts what is posted, and reports whether something that matches was posted to a path.
func receiver(t *testing.T) (url string, got func(path, want string) bool) {
	t.Helper()
	var mu sync.Mutex
	bodies := map[string][]string{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // a truncated body doesn't match
		mu.Lock()
		defer mu.Unlock()
		bodies[r.URL.Path] = append(bodies[r.URL.Path], string(body))
	}))
	t.Cleanup(server.Close)
	return server.URL, func(path, want string) bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc(bodies[path], regexp.MustCompile(want).MatchString)
	}
}

// TestAgentTellsOfAKilledRank: the agent of the rank's machine reports it as dead. The metrics name its job and rank,
// the death is pushed to the receivers in the agent's environment, and the other commands report it as well, even if
// only the agent's URL is given. Killing the agent doesn't affect the job, and the next agent finds the death again.
func TestAgentTellsOfAKilledRank(t *testing.T) {
	t.Parallel()
	tapes := t.TempDir()
	job, pids := start(t, tapes, none) // before the agent starts
	first, _ := agent(t, tapes)
	report(t, `"reason": "not_entered"`, tapes)
	first.Signal(syscall.SIGKILL)
	first.ExitCode()
	to, got := receiver(t)
	a, url := agent(t, tapes, "CARILLON_RAS_WEBHOOKS="+to+"/hook", "CARILLON_RAS_ALERTMANAGERS="+to,
		"OTEL_TRACES_EXPORTER=otlp", "OTEL_LOGS_EXPORTER=otlp", "OTEL_METRICS_EXPORTER=otlp",
		"OTEL_EXPORTER_OTLP_ENDPOINT="+to)
	report(t, `"status": "critical"[^§]*"reason": "not_entered"`, "--url", url)
	code, said := get(t, url+"/healthz")
	if code != http.StatusServiceUnavailable || !strings.Contains(said, "job held-up: job_stalled") {
		t.Errorf("/healthz answers %d: %s", code, said)
	}
	if code, said := get(t, url+"/livez"); code != http.StatusOK {
		t.Errorf("/livez answers %d: %s", code, said)
	}
	var watches []*e2e.Job
	for _, of := range [][]string{{tapes}, {"--url", url}} {
		watch := e2e.Start(t, nil, "carillon", append([]string{"watch"}, of...)...)
		watch.Await(`rank 2 \([^)]*\) has not entered all_reduce 2`)
		watches = append(watches, watch)
	}
	e2e.Kill(t, pids[2], syscall.SIGKILL)
	for _, watch := range watches {
		watch.Await(`rank\.dead: rank 2`)
		watch.Await(`verdict\.opened: rank 2 .*\(reason rank_dead\)`)
	}
	a.Await(`reason=rank_dead culprit=2`)
	for _, line := range []string{
		`^ccl_ras_verdicts\{culprit="2",job="held-up",rank="0",reason="rank_dead".*\} 1$`,
		`^ccl_ras_peers\{job="held-up",rank="1",state="dead"\} [1-4]$`, // the other ranks exit with 1 when they notice
		`^ccl_build_info\{.*job="held-up",rank="3".*\} 1$`,
	} {
		if len(metrics(t, url, line)) == 0 {
			t.Errorf("no metric matches %s:\n%s", line, strings.Join(metrics(t, url, "^ccl_.*$"), "\n"))
		}
	}
	comms := e2e.Start(t, nil, "carillon", "comms", tapes)
	comms.Await(`^world +\S+ +4 +1 `)
	e2e.Start(t, nil, "carillon", "postmortem", tapes).Await(`rank_dead|rank 2 .*died|rank 2 .*SIGKILL`)
	a.Signal(syscall.SIGTERM) // on exit, everything has been pushed
	a.ExitCode()
	for path, want := range map[string]string{
		"/hook": `"reason":"rank_dead"`, "/api/v2/alerts": `"job":"held-up","rank":"2","reason":"rank_dead"`,
		"/v1/traces": `ccl\.comm\.init`, "/v1/logs": `rank_dead`, "/v1/metrics": `ccl_ras_verdicts`,
	} {
		if !got(path, want) {
			t.Errorf("to %s nothing was pushed that matches %s", path, want)
		}
	}
	job.ExitCode()
}

// TestAgentLeavesProcessesWithTelemetryAlone: events that processes report themselves are reported only once.
func TestAgentLeavesProcessesWithTelemetryAlone(t *testing.T) {
	t.Parallel()
	tapes := t.TempDir()
	job, pids := start(t, tapes, own)
	_, url := agent(t, tapes)
	report(t, `"reason": "not_entered"`, tapes)
	if got := metrics(t, url, `job="held-up"`); len(got) > 0 {
		t.Errorf("it follows them: %q", got)
	}
	e2e.Kill(t, pids[2], syscall.SIGUSR1)
	job.Signal(syscall.SIGUSR2)
	if code := job.ExitCode(); code != 0 {
		t.Errorf("the job's exit code is %d", code)
	}
}
