package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// server is a Prometheus that scrapes and evaluates five times a second.
type server struct {
	t   *testing.T
	url string
	run *e2e.Job
}

// interval is how often the server scrapes, and evaluates rules.
const interval = "200ms"

// scrapeOf is the shipped scrape configuration for a job's targets, with lists from a folder and a token.
func scrapeOf(t *testing.T, job, targets, token string) map[string]any {
	t.Helper()
	var config struct {
		ScrapeConfigs []map[string]any `yaml:"scrape_configs"`
	}
	readYAML(t, filepath.Join(dashboards, "prometheus.yml"), &config)
	i := slices.IndexFunc(config.ScrapeConfigs, func(c map[string]any) bool { return c["job_name"] == job })
	if i < 0 {
		t.Fatalf("prometheus.yml scrapes no %s", job)
	}
	scrape := config.ScrapeConfigs[i]
	scrape["file_sd_configs"] = []any{map[string]any{"files": []string{targets + "/*.json"}, "refresh_interval": "1s"}}
	if scrape["authorization"] != nil {
		scrape["authorization"] = map[string]string{"credentials_file": token}
	}
	return scrape
}

// startServer starts a Prometheus with the shipped rules.
func startServer(t *testing.T, scrape map[string]any) *server {
	t.Helper()
	prometheus := tool(t, "prometheus", "prometheus")
	var rules []string
	for _, file := range glob(t, "rules/*.yml") {
		abs, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, abs)
	}
	config, err := yaml.Marshal(map[string]any{
		"global": map[string]any{
			"scrape_interval": interval, "scrape_timeout": interval,
			"evaluation_interval": interval,
		},
		"rule_files": rules, "scrape_configs": []any{scrape},
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	addr := e2e.FreeAddr(t) // Prometheus can't be asked for its port
	s := &server{t: t, url: "http://" + addr}
	s.run = e2e.Start(t, nil, prometheus, "--config.file="+file, "--storage.tsdb.path="+dir+"/data",
		"--web.listen-address="+addr,
		"--enable-feature=exemplar-storage")
	s.run.Await(`Server is ready to receive web requests`)
	return s
}

// ask queries the HTTP API and decodes the data of the answer.
func (s *server) ask(path string, data any) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Status != "success" {
		s.t.Fatalf("%s: %s %s, %v", path, resp.Status, answer.Error, err)
	}
}

// alert is a pending or firing alert.
type alert struct {
	Labels, Annotations map[string]string
	State               string
}

func (s *server) alerts() []alert {
	s.t.Helper()
	var data struct{ Alerts []alert }
	s.ask("/api/v1/alerts", &data)
	return data.Alerts
}

// await queries the server until its alerts satisfy is.
func (s *server) await(what string, is func([]alert) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		alerts := s.alerts()
		if is(alerts) {
			return
		}
		select {
		case <-ctx.Done():
			s.t.Fatalf("%s: not within a minute; the alerts are %+v", what, alerts)
		case <-tick.C:
		}
	}
}

// firing finds a firing alert.
func firing(alerts []alert, name string) (alert, bool) {
	for _, a := range alerts {
		if a.Labels["alertname"] == name && a.State == "firing" {
			return a, true
		}
	}
	return alert{}, false
}

// TestStallMakesTheAlertFire lets a rank of a running job pause: the shipped alert fires, names which rank waits for
// which, and clears when the rank goes on.
func TestStallMakesTheAlertFire(t *testing.T) {
	pushed := newPushed(t)
	job, targets := startJob(t, "steps", "CARILLON_RAS_ALERTMANAGERS="+pushed.url)
	s := startServer(t, scrapeOf(t, "carillon", targets, ""))
	s.awaitRanks(2)
	if a, ok := firing(s.alerts(), "CarillonOperationStalled"); ok {
		t.Fatalf("it fires before anything stalls: %+v", a)
	}

	job.Signal(syscall.SIGUSR1)
	s.await("the stall fires", func(alerts []alert) bool {
		_,
			ok := firing(alerts, "CarillonOperationStalled")
		return ok
	})
	a, _ := firing(s.alerts(), "CarillonOperationStalled")
	for label, want := range map[string]string{
		"job": "steps", "rank": "0", "comm": "world", "kind": "all_reduce", "wait_rank": fmt.Sprint(pausing),
		"severity": "critical",
	} {
		if a.Labels[label] != want {
			t.Errorf("the alert has %s=%q, want %q: %v", label, a.Labels[label], want, a.Labels)
		}
	}
	if want := "Rank 0 of steps hangs in all_reduce, waiting for rank 1."; a.Annotations["summary"] != want {
		t.Errorf("it says %q, want %q", a.Annotations["summary"], want)
	}

	// The verdict that the processes push is the same alert.
	var scraped alert
	s.await("the verdict fires", func(alerts []alert) (ok bool) {
		scraped, ok = firing(alerts, "CarillonVerdict")
		return ok
	})
	pushed.await(t, scraped.Labels)

	job.Signal(syscall.SIGUSR2)
	s.await("the stall clears",
		func(alerts []alert) bool { _, ok := firing(alerts, "CarillonOperationStalled"); return !ok })

	s.exemplars(targets)
	job.Signal(syscall.SIGTERM)
	if code := job.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// awaitRanks waits until n ranks are scraped, and recorded rules have values.
func (s *server) awaitRanks(n int) {
	s.t.Helper()
	for _, query := range []string{
		fmt.Sprintf(`sum(up{job="steps",rank!="",host!=""})==%d`, n),
		`job_comm:ccl_operation_launched_seq:spread{comm="world"}>=0`,
		`job:ccl_operations:rate1m>0`,
	} {
		s.awaitSeries(query)
	}
}

// awaitSeries waits until a query has a result.
func (s *server) awaitSeries(query string) {
	s.t.Helper()
	s.await(query, func([]alert) bool {
		var data struct{ Result []any }
		s.ask("/api/v1/query?query="+url.QueryEscape(query), &data)
		return len(data.Result) > 0
	})
}

// exemplars follows an exemplar from Prometheus to the trace that a rank keeps.
func (s *server) exemplars(targets string) {
	s.t.Helper()
	var data []struct {
		SeriesLabels map[string]string
		Exemplars    []struct{ Labels map[string]string }
	}
	now := time.Now()
	s.ask(fmt.Sprintf("/api/v1/query_exemplars?query=%s&start=%d&end=%d",
		url.QueryEscape("ccl_lifecycle_duration_seconds_bucket"),
		now.Add(-time.Minute).Unix(), now.Add(time.Minute).Unix()), &data)
	for _, series := range data {
		for _, tgt := range readTargets(s.t, targets+"/job.json") {
			if tgt.Labels["rank"] != series.SeriesLabels["rank"] {
				continue
			}
			trace := "http://" + tgt.Targets[0] + "/api/v1/traces?trace=" + series.Exemplars[0].Labels["trace_id"]
			resp, err := http.Get(trace)
			if err != nil {
				s.t.Fatal(err)
			}
			resp.Body.Close() //nolint:errcheck // only the status matters
			if resp.StatusCode != http.StatusOK {
				s.t.Errorf("%s: %s; an exemplar leads to no trace", trace, resp.Status)
			}
			return
		}
	}
	s.t.Errorf("Prometheus has no exemplars: %+v", data)
}

// pushed receives the alerts that processes push, in place of an Alertmanager.
type pushed struct {
	url    string
	labels chan map[string]string
}

func newPushed(t *testing.T) *pushed {
	p := &pushed{labels: make(chan map[string]string, 64)}
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var alerts []struct{ Labels map[string]string }
		if err := json.NewDecoder(r.Body).Decode(&alerts); err != nil {
			t.Errorf("what is pushed: %v", err)
		}
		for _, a := range alerts {
			select {
			case p.labels <- a.Labels:
			default: // a repeated alert that nobody waits for
			}
		}
	}))
	t.Cleanup(srv.Close)
	p.url = srv.URL
	return p
}

// await waits for an alert with these labels, and no others.
func (p *pushed) await(t *testing.T, want map[string]string) {
	t.Helper()
	var seen []map[string]string
	for limit := time.After(time.Minute); ; {
		select {
		case labels := <-p.labels:
			if maps.Equal(labels, want) {
				return
			}
			seen = append(seen, labels)
		case <-limit:
			t.Fatalf("Prometheus has %v, and pushed were %v", want, seen)
		}
	}
}
