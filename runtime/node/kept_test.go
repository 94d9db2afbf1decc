package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/ras/mesh"
	"github.com/carillon-rt/carillon/runtime/node"
	osprocess "github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
	"github.com/carillon-rt/carillon/telemetry/tape/tapetest"
)

// TestAgentNamesProcesses: the agent names processes by their own host's name, as in a container, and by the pid that
// it sees. Their tapes keep that pid.
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

// TestAgentTellsProcessesApart: the agent distinguishes processes, including those of containers that had ended before
// it found them, for which it has only the containers' own pids. It notes their ends by these pids, in the containers'
// pid namespaces.
func TestAgentTellsProcessesApart(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CARILLON_HEALTH_ADDR", "127.0.0.1:0")
	t.Setenv("CARILLON_RAS_MIN_POLL_INTERVAL", "off")
	job := filepath.Join(dir, "j")
	if err := os.Mkdir(job, 0o700); err != nil {
		t.Fatal(err)
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	const pid = 1 << 28                      // which no process of the machine has
	contained := space != "pid:[4026531836]" // in a container, the agent can't know that others have ended
	for rank, host := range []string{"pod-a", "pod-b"} {
		f := tapetest.Forge{
			PID: pid, PIDSpace: uint64(7 + rank), Host: host, Job: "j", Rank: rank, JobSize: 2, Closed: contained,
			KernelBoot: osprocess.Self().BootID, CreatedMono: 1, CreatedWall: time.Now().Add(time.Minute).UnixNano(),
		}
		if err := os.WriteFile(filepath.Join(job, host+".tape"), f.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, err := node.StartAgent(t.Context(), "", node.FromEnv(), node.WithTapeDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	a.Scan()
	_, text := get(t, a.URL()+"jobs/")
	self, err := mesh.Self(-1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for rank, suffix := range []string{"", ".1"} {
		link := fmt.Sprintf(`jobs/j/%s-%d%s/">j, rank %d (pod-%c-%[2]d)</a>`, self.Host, pid, suffix, rank, 'a'+rank)
		if !strings.Contains(text, link) {
			t.Errorf("the list of processes has no %s: %s", link, text)
		}
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	entries, err := osprocess.ReadLedger(filepath.Join(job, osprocess.Ledger))
	if err != nil {
		t.Fatal(err)
	}
	spaces := map[uint64]int{}
	for _, e := range entries {
		if e.PID != 0 {
			spaces[e.PIDSpace] = e.PID
		}
	}
	if !contained && !maps.Equal(spaces, map[uint64]int{7: pid, 8: pid}) {
		t.Errorf("the ends are noted as %+v", entries)
	}
}

// TestAgentSweepsTapes: when a job begins, the agent removes tapes of older jobs, as the job's own processes remove
// none.
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
