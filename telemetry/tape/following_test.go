package tape_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/carillon-rt/carillon/telemetry/process"
	"github.com/carillon-rt/carillon/telemetry/tape"
)

// TestFollowJob: one agent at a time follows a job, and nothing is left in its folder.
func TestFollowJob(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		first, err := tape.FollowJob(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tape.FollowJob(dir); !errors.Is(err, tape.ErrFollowed) {
			t.Errorf("a second agent: %v", err)
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if _, err := tape.FollowJob(filepath.Join(dir, "none")); err == nil || errors.Is(err, tape.ErrFollowed) {
		t.Errorf("a job without a folder: %v", err)
	}
}

// TestSweepJobsRemovesWhatAgentsLeft: a killed agent leaves its file.
func TestSweepJobsRemovesWhatAgentsLeft(t *testing.T) {
	dir := t.TempDir()
	w, err := tape.Create(tape.Config{Dir: dir, Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "j", ".agent-"+process.Self().BootID.String())
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if removed, err := tape.SweepJobs(dir, 0); err != nil || len(removed) != 1 {
		t.Errorf("removed are %v, %v", removed, err)
	}
}
