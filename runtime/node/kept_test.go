package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/runtime/node"
	osprocess "github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestAgentNamesProcesses: by the host's name as they have it, as in a container, and the number that the agent has for
// them. Their tapes keep that one.
func TestAgentNamesProcesses(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CARILLON_HEALTH_ADDR", "127.0.0.1:0")
	t.Setenv("CARILLON_RAS_MIN_POLL_INTERVAL", "off")
	w, err := tape.Create(tape.Config{Dir: dir, Job: "j", Size: tape.MinSize, Host: "pod-1", Rank: 1, JobSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	a, err := node.StartAgent(t.Context(), "", node.FromEnv(), node.WithTapeDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	a.Scan()
	self, err := mesh.Self(1, 2)
	if err != nil {
		t.Fatal(err)
	}
	r, err := tape.Open(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	if h := r.Header(); h.AgentPID != self.PID || h.KnownPID() != self.PID {
		t.Errorf("on the tape, it is process %d", h.AgentPID)
	}
	code, text := get(t, a.URL()+"jobs/j/"+self.Name+"/api/v1/ras")
	var s struct {
		Host string
		PID  int
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil || s.Host != "pod-1" || s.PID != self.PID {
		t.Errorf("%d, %v: %s", code, err, text)
	}
	if _, text := get(t, a.URL()+"jobs/"); !strings.Contains(text, fmt.Sprintf("rank 1 (pod-1-%d)", self.PID)) {
		t.Errorf("the list of processes is %s", text)
	}
	if err := errors.Join(a.Stop(t.Context()), r.Close(), w.Close()); err != nil {
		t.Error(err)
	}
}

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
