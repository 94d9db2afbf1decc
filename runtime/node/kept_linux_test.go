package node_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/runtime/node"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestAgentHearsOfTapes: an agent that has just looked follows the next process at once, as a process that fails right
// after its first calls ends soon.
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
		t.Fatal(err)
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
