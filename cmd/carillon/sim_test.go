package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/carillon-rt/carillon/ras/jobsim/meshed"
)

// runSim runs carillon sim in a process of its own.
func runSim(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{"sim"}, args...)...)
	// One thread: the race detector fails if two threads run timers of one bubble (https://go.dev/issue/78156).
	cmd.Env = append(os.Environ(), commandVariable+"=1", "GOMAXPROCS=1")
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out.String(), progress.String())
	}
	return out.String(), progress.String()
}

func TestSim(t *testing.T) {
	stdout, stderr := runSim(t, "--ranks", "64", "--faults", "kill,stop,sleep", "--duration", "90s", "--json")
	var r meshed.Result
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	if r.Ranks != 64 || r.Members != 8 || r.Seed != 1 || len(r.Faults) != 3 || len(r.False)+len(r.Missed) > 0 ||
		r.Bytes <= 0 {
		t.Errorf("%+v", r)
	}
	want := map[meshed.Fault]string{
		meshed.FaultKill: "rank_dead", meshed.FaultStop: "rank_stopped",
		meshed.FaultSleep: "not_entered",
	}
	for _, o := range r.Faults {
		if o.Reason != want[o.Fault] || o.Verdict <= 0 {
			t.Errorf("%s was told as %q after %v, want %s", o.Fault, o.Reason, o.Verdict, want[o.Fault])
		}
	}
	if !strings.Contains(stderr, "64 ranks: all is well") {
		t.Errorf("progress: %q", stderr)
	}
	table, _ := runSim(t, "--ranks", "64", "--faults", "sleep", "--duration", "50s")
	lines := strings.Split(table, "\n")
	if len(lines) < 3 || !strings.Contains(lines[0], "members know") ||
		!strings.HasPrefix(strings.TrimSpace(lines[2]), "64 ") {
		t.Errorf("the table is:\n%s", table)
	}
}
