package prometheus

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// rule is a recording or alerting rule.
type rule struct {
	Record      string
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
	file        string
}

// severities returns the severities that an alert can have.
func (r *rule) severities() []string {
	switch s := r.Labels["severity"]; {
	case r.Alert == "":
		return nil
	case s == "{{ $labels.severity }}":
		return []string{"critical", "warning"}
	default:
		return []string{s}
	}
}

// rules returns the rules of all files.
func rules(t *testing.T) []rule {
	t.Helper()
	var all []rule
	for _, file := range glob(t, "rules/*.yml") {
		var f struct{ Groups []struct{ Rules []rule } }
		readYAML(t, file, &f)
		for _, g := range f.Groups {
			for _, r := range g.Rules {
				r.file = filepath.Base(file)
				all = append(all, r)
			}
		}
	}
	return all
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// runTool runs a checker, which must succeed.
func runTool(t *testing.T, path string, args ...string) {
	t.Helper()
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Errorf("%s %s: %v\n%s", filepath.Base(path), strings.Join(args, " "), err, out)
	}
}

func TestCheckersAreContent(t *testing.T) {
	promtool := tool(t, "promtool", "prometheus")
	runTool(t, promtool, append([]string{"check", "rules"}, glob(t, "rules/*.yml")...)...)
	runTool(t, promtool, append([]string{"test", "rules"}, glob(t, "rules/tests/*.yml")...)...)
	runTool(t, promtool, "check", "config", "--syntax-only", filepath.Join(dashboards, "prometheus.yml"))
	alertmanager := filepath.Join(dashboards, "alertmanager.yml")
	amtool := tool(t, "amtool", "prometheus-alertmanager")
	runTool(t, amtool, "check-config", alertmanager)
	for _, r := range rules(t) {
		for _, severity := range r.severities() {
			receiver := map[string]string{"critical": "on-call", "warning": "daytime", "info": "daytime"}[severity]
			runTool(t, amtool, "config", "routes", "test", "--config.file="+alertmanager,
				"--verify.receivers="+receiver, "alertname="+r.Alert, "severity="+severity)
		}
	}
	// The alerts of inhibit rules must exist.
	var config struct {
		InhibitRules []struct {
			SourceMatchers []string `yaml:"source_matchers"`
			TargetMatchers []string `yaml:"target_matchers"`
		} `yaml:"inhibit_rules"`
	}
	readYAML(t, alertmanager, &config)
	alerts := map[string]bool{}
	for _, r := range rules(t) {
		alerts[r.Alert] = true
	}
	if len(config.InhibitRules) == 0 {
		t.Error("nothing is inhibited: a cause comes with all its symptoms")
	}
	for _, i := range config.InhibitRules {
		for _, name := range regexp.MustCompile(`Carillon\w+`).FindAllString(fmt.Sprint(i), -1) {
			if !alerts[name] {
				t.Errorf("alertmanager.yml inhibits by, or of, %s: there is no such alert", name)
			}
		}
	}
}

// TestEveryAlertIsComplete checks that each alert has a severity, texts, a section in the runbooks, and two unit tests:
// one in which it fires and one in which it doesn't.
func TestEveryAlertIsComplete(t *testing.T) {
	type unitTests struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, file := range glob(t, "rules/tests/*.yml") {
		var f unitTests
		readYAML(t, file, &f)
		for _, test := range f.Tests {
			for _, a := range test.AlertRuleTest {
				if len(a.ExpAlerts) > 0 {
					fires[a.Alertname] = true
				} else {
					silent[a.Alertname] = true
				}
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(dashboards, "runbooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, s := range strings.Split(string(text), "\n## ")[1:] {
		title, body, _ := strings.Cut(s, "\n")
		sections[title] = body
	}
	alerts := 0
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		alerts++
		for _, s := range r.severities() {
			if s != "critical" && s != "warning" && s != "info" {
				t.Errorf("%s: severity %q", r.Alert, s)
			}
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" ||
			!strings.Contains(r.Annotations["summary"],
				"$labels.job") {
			t.Errorf("%s: it must say in a summary which job, and have a description", r.Alert)
		}
		if !strings.HasSuffix(r.Annotations["runbook_url"], "/dashboards/runbooks.md#"+strings.ToLower(r.Alert)) {
			t.Errorf("%s: runbook_url is %q", r.Alert, r.Annotations["runbook_url"])
		}
		for _, part := range []string{"**Meaning.**", "**Do.**"} {
			if !strings.Contains(sections[r.Alert], part) {
				t.Errorf("%s: runbooks.md has no section of that name with %s", r.Alert, part)
			}
		}
		delete(sections, r.Alert)
		if !fires[r.Alert] || !silent[r.Alert] {
			t.Errorf("%s: has a unit test that shows it firing: %v, silent: %v",
				r.Alert, fires[r.Alert], silent[r.Alert])
		}
	}
	if alerts < 20 {
		t.Errorf("only %d alerts: the test looks at the wrong files", alerts)
	}
	for title := range sections {
		t.Errorf("runbooks.md: there is no alert %s", title)
	}
}

// TestRunbooksNameCommandsThatExist tries every carillon command that the texts mention.
func TestRunbooksNameCommandsThatExist(t *testing.T) {
	help, err := exec.Command("carillon", "help").Output()
	if err != nil {
		t.Fatal(err)
	}
	runHelp, err := exec.Command("carillon", "run", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`\bcarillon ([a-z]+)\b([^\n` + "`" + `]*)`)
	flag := regexp.MustCompile(`\s(--[a-z-]+)`)
	found := 0
	for _, file := range glob(t, "*.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			found++
			if !regexp.MustCompile(`(?m)^  ` + m[1] + ` `).Match(help) {
				t.Errorf("%s: there is no carillon %s", file, m[1])
			}
			args, _, _ := strings.Cut(m[2], " -- ")
			for _, f := range flag.FindAllStringSubmatch(args, -1) {
				if m[1] == "run" && !strings.Contains(string(runHelp), f[1]) {
					t.Errorf("%s: carillon run has no %s", file, f[1])
				}
			}
		}
	}
	if found < 4 {
		t.Errorf("only %d calls found: the test looks for the wrong thing", found)
	}
}

// dashboard is the part of Grafana's JSON that matters here.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []struct{ RefID, Expr, LegendFormat string }
	}
	file string
}

func readDashboards(t *testing.T) []dashboard {
	t.Helper()
	var all []dashboard
	for _, file := range glob(t, "grafana/*.json") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := dashboard{file: filepath.Base(file)}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, d)
	}
	return all
}

// TestDashboardsAreWellFormed finds errors that Grafana would show wrongly without reporting them.
func TestDashboardsAreWellFormed(t *testing.T) {
	uids, panels := map[string]bool{}, 0
	for _, d := range readDashboards(t) {
		if d.UID == "" || uids[d.UID] || !strings.HasPrefix(d.Title, "Carillon: ") || d.SchemaVersion == 0 {
			t.Errorf("%s: uid %q, title %q, schema %d", d.file, d.UID, d.Title, d.SchemaVersion)
		}
		uids[d.UID] = true
		ids, grid := map[int]string{}, map[[2]int]string{}
		for _, p := range d.Panels {
			panels++
			if ids[p.ID] != "" {
				t.Errorf("%s: %q and %q have one id", d.file, p.Title, ids[p.ID])
			}
			ids[p.ID] = p.Title
			if p.Title == "" || p.Description == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s: panel %q has no title, description or target, or is too wide", d.file, p.Title)
			}
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := grid[[2]int{x, y}]; other != "" && other != p.Title {
						t.Fatalf("%s: %q lies over %q", d.file, p.Title, other)
					}
					grid[[2]int{x, y}] = p.Title
				}
			}
		}
	}
	if len(uids) != 3 || panels < 30 {
		t.Errorf("%d dashboards, %d panels", len(uids), panels)
	}
}
