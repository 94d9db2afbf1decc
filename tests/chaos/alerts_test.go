package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// alertmanager is a real Alertmanager, which all networks can reach.
type alertmanager struct{ port string }

// alert is an alert in a notification that Alertmanager sends to the person on call.
type alert struct {
	Status string            `json:"status"` // firing or resolved
	Labels map[string]string `json:"labels"`
	by     string            // the receiver in Alertmanager's configuration
}

func (a *alert) String() string {
	return fmt.Sprintf("%s %s %s of rank %s", a.Status, a.Labels["severity"], a.Labels["reason"], a.Labels["rank"])
}

// config sends a separate notification of each alert at once; those of the job slowJob also after a delay, as is usual.
const config = `
route:
  {receiver: test, group_by: [...], group_wait: 0s, group_interval: 100ms, repeat_interval: 1h, routes: [
    {receiver: slow, group_wait: 5s, matchers: ['job = "` + slowJob + `"'], continue: true},
    {receiver: test}]}
receivers:
- {name: test, webhook_configs: [{url: "http://127.0.0.1:%[1]s/alerts", send_resolved: true}]}
- {name: slow, webhook_configs: [{url: "http://127.0.0.1:%[1]s/alerts", send_resolved: true}]}
`

// slowJob is a job that is long over when Alertmanager notifies the receiver slow.
const slowJob = "killed-0"

func newAlertmanager(t *testing.T, to *receiver) *alertmanager {
	t.Helper()
	program, err := exec.LookPath("prometheus-alertmanager")
	if err != nil {
		t.Fatalf("%v; install it: apt-get install -y --no-install-recommends prometheus-alertmanager", err)
	}
	am := &alertmanager{port: e2e.FreePort(t)} // it can't be asked for its port
	dir := t.TempDir()
	file := filepath.Join(dir, "alertmanager.yml")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, to.port), 0o600); err != nil {
		t.Fatal(err)
	}
	run := e2e.Start(t, nil, program, "--config.file="+file, "--storage.path="+dir,
		"--web.listen-address=:"+am.port,
		"--cluster.listen-address=")
	run.Await(`Listening on`)
	return am
}
