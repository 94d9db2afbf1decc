package prometheus

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// TestAgentAsTarget scrapes an agent as the shipped configuration does: its metrics of the processes that it follows
// have their job and rank, and its own metrics its host. Its death is an alert.
func TestAgentAsTarget(t *testing.T) {
	dir, tapes := t.TempDir(), t.TempDir()
	token, addr := filepath.Join(dir, "token"), e2e.FreeAddr(t)
	text, err := json.Marshal([]target{{Targets: []string{addr}}})
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{token: []byte("0123456789abcdef"), dir + "/agents.json": text} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	agent := e2e.Start(t, []string{"CARILLON_HEALTH_ADDR=" + addr, "CARILLON_HEALTH_TOKEN_FILE=" + token},
		"carillon", "agent", "--tape-dir", tapes)
	agent.Await(`agent: a page for each process is at `)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	job := e2e.Start(t, []string{
		roleVariable + "=steps", "CARILLON_STALL_THRESHOLD=off", "CARILLON_RAS=off", "CARILLON_HEALTH_ADDR=off",
	}, "carillon", "run", "-n", "2", "--job", "followed", "--tape-dir", tapes, "--", program)
	s := startServer(t, scrapeOf(t, "carillon-agent", dir, token))
	s.awaitSeries(`up{job="carillon-agent",rank="",host="127.0.0.1"} == 1`)
	for rank := range 2 {
		s.awaitSeries(fmt.Sprintf(`ccl_operations_total{job="followed",rank="%d",host="127.0.0.1"} > 0`, rank))
	}
	agent.Signal(syscall.SIGKILL)
	s.await("the agent is down", func(alerts []alert) bool {
		for _, a := range alerts { // the alert fires a minute later
			if a.Labels["alertname"] == "CarillonAgentDown" && a.Labels["host"] == "127.0.0.1" {
				return true
			}
		}
		return false
	})
	job.Signal(syscall.SIGTERM)
	if code := job.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
