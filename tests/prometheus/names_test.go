package prometheus

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/carillon-rt/carillon/telemetry/semconv"
)

// notExportedYet are the metrics of RAS and of GPUs, which the processes of this test don't have. This is the only
// place that assumes names without checking them: if a process does export one, the test fails until it is removed
// here.
var notExportedYet = map[string][]string{
	semconv.MetricGPUXidErrors:    {semconv.LabelGPU, semconv.LabelXid},
	semconv.MetricGPUECCErrors:    {semconv.LabelGPU, semconv.LabelType},
	semconv.MetricGPUNVLinkErrors: {semconv.LabelGPU},
	semconv.MetricGPUThrottled:    {semconv.LabelGPU, semconv.LabelReason},
	semconv.MetricGPUMemoryUsed:   {semconv.LabelGPU},
	semconv.MetricGPUMemoryTotal:  {semconv.LabelGPU},
}

// exported returns what a job exports that works, makes mistakes, and hangs.
func exported(t *testing.T) names {
	t.Helper()
	job, folder := startJob(t, "mistakes")
	targets := readTargets(t, folder+"/job.json")
	n := names{}
	job.Signal(syscall.SIGUSR1)
	for deadline := time.Now().Add(time.Minute); n[semconv.MetricStallAge] == nil; {
		if time.Now().After(deadline) {
			t.Fatalf("no %s in a job that hangs", semconv.MetricStallAge)
		}
		for _, tgt := range targets {
			n.scrape(t, tgt)
		}
	}
	job.Signal(syscall.SIGUSR2)
	job.Signal(syscall.SIGTERM)
	if code := job.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for name, labels := range notExportedYet {
		if n[name] != nil {
			t.Errorf("%s is exported: take it out of notExportedYet", name)
		}
		n.add(name, append(slices.Collect(maps.Keys(n["up"])), labels...)...)
	}
	return n
}

// TestEveryExpressionNamesWhatIsExported checks all expressions, and the labels that texts and legends mention, against
// a running job.
func TestEveryExpressionNamesWhatIsExported(t *testing.T) {
	n := exported(t)
	all := rules(t)
	for _, r := range all { // recorded names first, as other rules use them
		if r.Record == "" {
			continue
		}
		labels, problems := n.check(r.Expr)
		for _, p := range problems {
			t.Errorf("%s: %s: %s", r.file, r.Record, p)
		}
		level, rest, _ := strings.Cut(r.Record, ":")
		if !strings.HasPrefix(rest, "ccl_") || !sameLabels(level, labels) {
			t.Errorf("%s: %s is not labels:metric:operation; its labels are %v", r.file, r.Record,
				slices.Sorted(maps.Keys(labels)))
		}
		n.add(r.Record, slices.Collect(maps.Keys(labels))...)
	}
	inText := regexp.MustCompile(`\$labels\.(\w+)`)
	for _, r := range all {
		if r.Alert == "" {
			continue
		}
		labels, problems := n.check(r.Expr)
		for _, text := range r.Annotations {
			for _, m := range inText.FindAllStringSubmatch(text, -1) {
				if !labels[m[1]] {
					problems = append(problems, "a text speaks of "+m[0]+", which is none of its labels")
				}
			}
		}
		for _, p := range problems {
			t.Errorf("%s: %s: %s", r.file, r.Alert, p)
		}
	}
	for _, d := range readDashboards(t) {
		checkDashboard(t, n, &d)
	}
}

// sameLabels tells whether a recorded name begins with the labels of its series: "job_comm". A label may contain
// underscores itself.
func sameLabels(level string, labels map[string]bool) bool {
	length := len(labels) - 1
	for l := range labels {
		length += len(l)
		if !strings.Contains("_"+level+"_", "_"+l+"_") {
			return false
		}
	}
	return len(level) == length
}

// The parts of a dashboard that Grafana fills in, and its queries for the values of a variable.
var (
	inLegend    = regexp.MustCompile(`\{\{(\w+)\}\}`)
	labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	variable    = regexp.MustCompile(`\$(\w+)`)
)

func checkDashboard(t *testing.T, n names, d *dashboard) {
	t.Helper()
	variables := map[string]bool{"__rate_interval": true}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
		if v.Type != "query" {
			continue
		}
		query, _ := v.Query.(map[string]any)["query"].(string)
		m := labelValues.FindStringSubmatch(query)
		if m == nil {
			t.Errorf("%s: variable %s: %q", d.file, v.Name, query)
			continue
		}
		labels, problems := n.check(m[1])
		if !labels[m[2]] {
			problems = append(problems, "no label "+m[2])
		}
		for _, p := range problems {
			t.Errorf("%s: variable %s: %s", d.file, v.Name, p)
		}
	}
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			labels, problems := n.check(strings.ReplaceAll(target.Expr, "$__rate_interval", "1m"))
			for _, m := range inLegend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !labels[m[1]] {
					problems = append(problems, "its legend speaks of "+m[1]+", which is none of its labels")
				}
			}
			for _, m := range variable.FindAllStringSubmatch(target.Expr, -1) {
				if !variables[m[1]] {
					problems = append(problems, "there is no variable "+m[1])
				}
			}
			for _, p := range problems {
				t.Errorf("%s: %s: %s", d.file, panel.Title, p)
			}
		}
	}
}

// TestEveryMetricIsShown finds metrics that no dashboard shows and no alert uses: either something is missing, or the
// metric is useless.
func TestEveryMetricIsShown(t *testing.T) {
	used := map[string]bool{}
	use := func(expr string) {
		e, err := parser.NewParser(parser.Options{}).ParseExpr(strings.ReplaceAll(expr, "$__rate_interval", "1m"))
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
			if s, ok := node.(*parser.VectorSelector); ok {
				used[regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(s.Name, "")] = true
			}
			return nil
		})
	}
	for _, r := range rules(t) {
		use(r.Expr)
	}
	for _, d := range readDashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				use(target.Expr)
			}
		}
	}
	job, folder := startJob(t, "mistakes")
	n := names{}
	for _, tgt := range readTargets(t, folder+"/job.json") {
		n.scrape(t, tgt)
	}
	job.Signal(syscall.SIGTERM)
	if code := job.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for name := range n {
		name = regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if strings.HasPrefix(name, "ccl_") && !used[name] {
			t.Errorf("nothing shows %s", name)
		}
	}
}
