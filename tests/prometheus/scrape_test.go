package prometheus

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// target is one rank in the list that the launcher writes.
type target struct {
	Targets []string
	Labels  map[string]string
}

func readTargets(t *testing.T, file string) []target {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []target
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return all
}

// get reads a target's /metrics with a given Accept header.
func get(t *testing.T, addr, accept string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", resp.Status, err, body)
	}
	return string(body)
}

// names maps each metric of a process, with the name under which Prometheus stores it, to its labels.
type names map[string]map[string]bool

func (n names) add(name string, labels ...string) {
	if n[name] == nil {
		n[name] = map[string]bool{}
	}
	for _, l := range labels {
		n[name][l] = true
	}
}

// scrape adds what a target exports, and the labels in the target's list entry.
func (n names) scrape(t *testing.T, tgt target) {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(get(t, tgt.Targets[0], "text/plain")))
	if err != nil {
		t.Fatal(err)
	}
	listed := []string{"instance"}
	for l := range tgt.Labels {
		listed = append(listed, l)
	}
	n.add("up", listed...)
	for name, f := range families {
		for _, m := range f.GetMetric() {
			labels := listed
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName())
			}
			if f.GetType() == dto.MetricType_HISTOGRAM {
				n.add(name+"_bucket", append(labels, "le")...)
				n.add(name+"_sum", labels...)
				n.add(name+"_count", labels...)
			} else {
				n.add(name, labels...)
			}
		}
	}
}

// TestPromtoolFindsNothing passes the metrics of running ranks to Prometheus' own linter, in both formats.
func TestPromtoolFindsNothing(t *testing.T) {
	promtool := tool(t, "promtool", "prometheus")
	job, folder := startJob(t, "mistakes")
	for _, tgt := range readTargets(t, folder+"/job.json") {
		text := get(t, tgt.Targets[0], "text/plain")
		if n := strings.Count(text, "\nccl_"); n < 50 {
			t.Errorf("only %d series of Carillon: the job has hardly begun", n)
		}
		check := exec.Command(promtool, "check", "metrics")
		check.Stdin = strings.NewReader(text)
		if out, err := check.CombinedOutput(); err != nil || len(out) != 0 {
			t.Errorf("rank %s: %v\n%s", tgt.Labels["rank"], err, out)
		}
		if open := get(t, tgt.Targets[0],
			"application/openmetrics-text;version=1.0.0"); !strings.Contains(open, ` # {`) ||
			!strings.Contains(open, `trace_id="`) {
			t.Errorf("rank %s: no exemplars among what is served as OpenMetrics", tgt.Labels["rank"])
		}
	}
	job.Signal(syscall.SIGTERM)
	if code := job.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
