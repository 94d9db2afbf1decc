package tape

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// jobTape leaves a tape in the folder of a job, last written some hours ago.
func jobTape(t *testing.T, dir, job string, hours int, closed bool) {
	t.Helper()
	w, err := Create(Config{Dir: dir, Job: job, Slots: 1, LifeRecords: 1, OpRecords: 1})
	if err != nil {
		t.Fatal(err)
	}
	if closed {
		err = w.Close()
	} else {
		t.Cleanup(func() { _ = w.Close() })
	}
	at := time.Now().Add(-time.Duration(hours) * time.Hour)
	if err := errors.Join(err, os.Chtimes(w.Path(), at, at)); err != nil {
		t.Fatal(err)
	}
}

func TestSweepJobsKeepsTheLastAndTheLiving(t *testing.T) {
	dir := t.TempDir()
	jobTape(t, dir, "oldest", 9, true)
	jobTape(t, dir, "alive", 8, false)
	jobTape(t, dir, "old", 7, true)
	jobTape(t, dir, "mixed", 6, true)
	jobTape(t, dir, "newer", 2, true)
	jobTape(t, dir, "newest", 1, true)
	notes := filepath.Join(dir, "mixed", "notes.txt")
	foreign := filepath.Join(dir, "photos", "x.jpg")
	if err := errors.Join(os.WriteFile(notes, nil, 0o600), os.Mkdir(filepath.Dir(foreign), 0o700),
		os.WriteFile(foreign, nil, 0o600),
		os.Symlink(filepath.Join(dir, "newest"), filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	removed, err := SweepJobs(dir, 2)
	want := []string{filepath.Join(dir, "old"), filepath.Join(dir, "oldest")}
	slices.Sort(removed)
	if err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed %v, %v; want %v", removed, err, want)
	}
	var left []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"alive", "link", "mixed", "newer", "newest", "photos"}; !slices.Equal(left, want) {
		t.Errorf("%v are left, want %v", left, want)
	}
	if mixed, _ := filepath.Glob(filepath.Join(dir, "mixed", "*")); !slices.Equal(mixed, []string{notes}) {
		t.Errorf("in mixed there is %v, want %v", mixed, notes)
	}
	if removed, err := SweepJobs(filepath.Join(dir, "no-such"), 2); err != nil || removed != nil {
		t.Errorf("a folder that isn't there: %v, %v", removed, err)
	}
}

// TestSweepTakesWhatLiesBesideATape: files that a killed process left beside its tape don't keep the job's folder for
// ever.
func TestSweepTakesWhatLiesBesideATape(t *testing.T) {
	dir := t.TempDir()
	jobTape(t, dir, "killed", 2, true)
	tapes, err := filepath.Glob(filepath.Join(dir, "killed", "*.tape"))
	if err != nil || len(tapes) != 1 {
		t.Fatal(tapes, err)
	}
	for _, suffix := range []string{".ras", ".health"} {
		if err := os.WriteFile(strings.TrimSuffix(tapes[0], ".tape")+suffix, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if removed, err := SweepJobs(dir, 0); err != nil || len(removed) != 1 {
		t.Errorf("removed %v, %v; want the job's folder", removed, err)
	}
}
