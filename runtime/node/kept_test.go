package node_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/node"
	osprocess "github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestAgentSweepsTapes: when a job begins, those of older jobs go, as its own processes remove none.
func TestAgentSweepsTapes(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(tape.KeepVariable, "2")
	t.Setenv("CARILLON_HEALTH_ADDR", "off")
	t.Setenv("CARILLON_RAS", "off")
	write := func(job string, age time.Duration) {
		t.Helper()
		w, err := tape.Create(tape.Config{Dir: dir, Job: job, Size: tape.MinSize})
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := w.Close(); err != nil || os.Chtimes(w.Path(), at, at) != nil {
			t.Fatal(err)
		}
	}
	write("oldest", 3*time.Hour)
	write("older", 2*time.Hour)
	for _, job := range []string{"oldest", "older"} { // the agent before this one has ended
		end := osprocess.Entry{Rank: -1, Followed: true}
		if err := osprocess.AppendEntry(filepath.Join(dir, job), end); err != nil {
			t.Fatal(err)
		}
	}
	a, err := node.StartAgent(t.Context(), "", node.FromEnv(), node.WithTapeDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	write("new", 0)
	a.Scan()
	for job, want := range map[string]bool{"oldest": false, "older": true, "new": true} {
		if _, err := os.Stat(filepath.Join(dir, job)); (err == nil) != want {
			t.Errorf("job %s is there: %v", job, !want)
		}
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
