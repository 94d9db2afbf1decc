package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/telemetry/tape"
)

// oldJobs writes the tapes of n jobs, job-0 the oldest, and returns the names of the jobs that are left after a run
// with these arguments.
func oldJobs(t *testing.T, n int, keep, variable string, args ...string) (left []string, stderr string, code int) {
	t.Helper()
	dir := t.TempDir()
	for i := range n {
		w, err := tape.Create(tape.Config{
			Dir: dir, Job: fmt.Sprintf("job-%d", i), Slots: 1, LifeRecords: 1, OpRecords: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-time.Duration(n-i) * time.Minute)
		if err := errors.Join(w.Close(), os.Chtimes(w.Path(), at, at)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(tape.KeepVariable, keep)
	t.Setenv(tape.DirVariable, "")
	if variable != "" {
		t.Setenv(variable, dir)
	} else {
		args = append([]string{"--tape-dir", dir}, args...)
	}
	_, stderr, code = carillon(t, append(append([]string{"run"}, args...), "--", "true")...)
	folders, err := filepath.Glob(filepath.Join(dir, "job-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		left = append(left, filepath.Base(f))
	}
	return left, stderr, code
}

func TestRunSweepsOldTapes(t *testing.T) {
	for _, c := range []struct {
		keep, variable string
		code           int
		left, stderr   string
	}{
		{"2", "", 0, "job-2 job-3", "removed the tapes of 2 older jobs"},
		{"2", tape.DirVariable, 0, "job-2 job-3", "removed the tapes of 2 older jobs"},
		{"0", "", 0, "", "removed the tapes of 4 older jobs"},
		{"", "", 0, "job-0 job-1 job-2 job-3", ""}, // a directory that the user named is only swept on request
		{"off", "", 0, "job-0 job-1 job-2 job-3", ""},
		{"-1", "", usageCode, "job-0 job-1 job-2 job-3", `CARILLON_TAPE_KEEP is "-1"`},
		{"all", "", usageCode, "job-0 job-1 job-2 job-3", `CARILLON_TAPE_KEEP is "all"`},
	} {
		left, stderr, code := oldJobs(t, 4, c.keep, c.variable, "-v")
		if code != c.code || strings.Join(left, " ") != c.left || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%s=%q: exit code %d, %q are left: %s", tape.KeepVariable, c.keep, code, left, stderr)
		}
	}
}
