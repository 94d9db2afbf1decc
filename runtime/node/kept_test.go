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

// TestAgentHearsOfTapes: an agent that has just looked follows the next process at once, as one that fails right after
// its first calls may end soon.
func TestAgentHearsOfTapes(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CARILLON_HEALTH_ADDR", "off")
	t.Setenv("CARILLON_RAS", "off")
	a, err := node.StartAgent(t.Context(), "", node.FromEnv(), node.WithTapeDir(dir), node.WithScan(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	news, err := tape.NewNews()
	if err != nil {
		t.Skip(err) // it isn't Linux
	}
	limit := time.AfterFunc(10*time.Second, func() { _ = news.Close() })
	defer limit.Stop()
	for _, job := range []string{"first", "second"} {
		w, err := tape.Create(tape.Config{Dir: dir, Job: job, Size: tape.MinSize})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close() //nolint:errcheck // it is only there
		news.Add(filepath.Join(dir, job))
		for {
			if followed, _ := filepath.Glob(filepath.Join(dir, job, ".agent-*")); followed != nil {
				break
			}
			if err := news.Wait(); err != nil {
				t.Fatalf("nobody follows the job %s: %v", job, err)
			}
		}
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
