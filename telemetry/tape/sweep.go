package tape

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-rt/carillon/telemetry/process"
)

// SweepJobs removes tapes from the folders of all jobs in dir but the keep most recently written ones: tapes whose
// process is dead or has closed them, and tapes that were never finished. It also removes the files that these
// processes, or an agent, left beside the tapes, and folders that become empty. It touches no tape of a process that is
// alive or can't be seen from here, no folder without a tape, and no link. It returns the removed folders.
func SweepJobs(dir string, keep int) (removed []string, err error) {
	return sweepJobs(dir, keep, func() bool { return false })
}

// sweepJobs is SweepJobs, from the oldest job on, until enough returns true.
func sweepJobs(dir string, keep int, enough func() bool) (removed []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("tape: %w", err)
	}
	type job struct {
		path  string
		wrote time.Time
	}
	var jobs []job
	for _, entry := range entries {
		if path := filepath.Join(dir, entry.Name()); entry.IsDir() {
			if wrote := lastWritten(path); !wrote.IsZero() {
				jobs = append(jobs, job{path, wrote})
			}
		}
	}
	slices.SortFunc(jobs, func(a, b job) int { return b.wrote.Compare(a.wrote) })
	var errs []error
	for _, j := range slices.Backward(jobs[min(max(keep, 0), len(jobs)):]) {
		if enough() {
			break
		}
		errs = append(errs, sweep(j.path))
		if os.Remove(j.path) == nil { // fails unless the folder is empty
			removed = append(removed, j.path)
		}
	}
	return removed, errors.Join(errs...)
}

// sweep removes what SweepJobs removes from one job's folder.
func sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	errs := []error{err}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if !ended(path) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("tape: %w", err))
			continue
		}
		for _, suffix := range beside {
			// A process that ended cleanly has removed the file itself.
			_ = os.Remove(strings.TrimSuffix(path, ".tape") + suffix)
		}
	}
	if lastWritten(dir).IsZero() {
		_ = os.Remove(filepath.Join(dir, process.Ledger)) // it says how the writers of the tapes ended
		left, _ := filepath.Glob(filepath.Join(dir, followingPrefix+"*"))
		for _, path := range left {
			if f, err := followBy(path); err == nil { // the agent was killed
				_ = f.Close()
			}
		}
	}
	return errors.Join(errs...)
}

// beside are the endings of RAS's and the health endpoint's addresses, which a killed process leaves beside its tape.
var beside = []string{".ras", ".health"}

// KeepVariable is the environment variable with the number of jobs whose tapes are kept; DefaultKeep if it is empty.
const (
	KeepVariable = "CARILLON_TAPE_KEEP"
	DefaultKeep  = 20
)

// ParseKeep reads the value of KeepVariable. keep is negative if nothing is to be swept: the value is "off", or it is
// empty and the user named the folder. spare is how many jobs keep their tapes even if there is no room, as for Make.
func ParseKeep(text string, named bool) (keep, spare int, err error) {
	switch keep, err = strconv.Atoi(text); {
	case text == "off" || text == "" && named:
		return -1, -1, nil
	case text == "":
		return DefaultKeep, 0, nil
	case err != nil || keep < 0:
		return -1, -1, fmt.Errorf("%s is %q, allowed is a number of jobs from 0 on, or off", KeepVariable, text)
	}
	return keep, keep, nil
}

// ended tells whether a file is a tape that nobody writes any more.
func ended(path string) bool {
	unfinished := strings.HasPrefix(filepath.Base(path), ".") && filepath.Ext(path) == ".new"
	if filepath.Ext(path) != ".tape" && !unfinished {
		return false
	}
	r, err := Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = r.Close() }()
	return r.Header().Closed || r.Liveness() == process.Dead
}

// lastWritten is when a tape in a job's folder was last made or written to; zero if there is none.
func lastWritten(dir string) (last time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return last
	}
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".tape" {
			continue
		}
		if info, err := entry.Info(); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}
