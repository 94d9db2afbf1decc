package tape

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Sweep removes the tapes in a job's folder that no reader will ask for any more: those of processes that are dead or closed
// them, once nothing was written to them for keep, and beginnings of tapes that were never finished. It touches no tape of a
// process that is alive or that can't be seen from here, and no file that is not a tape. It returns what it removed.
func Sweep(dir string, keep time.Duration) (removed []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("tape: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < keep || !ended(path) {
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("tape: %w", err))
			continue
		}
		removed = append(removed, path)
	}
	return removed, errors.Join(errs...)
}

// ended says whether a file is a tape on which nothing will be written any more.
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
	return r.Header().Closed || r.Liveness() == Dead
}
