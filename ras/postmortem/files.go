package postmortem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	osprocess "github.com/carillon-rt/carillon/telemetry/process"
)

// list lists the tapes among paths, and in the folders among them at any depth, with the launchers' ledgers beside
// them. What looks like a tape and can't be one is a Problem. It is an error if a path isn't there.
func (r *Report) list(paths []string) (files, ledgers []string, err error) {
	for _, root := range paths {
		info, err := os.Stat(root)
		if err != nil {
			return nil, nil, fmt.Errorf("postmortem: %w", err)
		}
		if !info.IsDir() {
			files = append(files, filepath.Clean(root))
			ledgers = append(ledgers, filepath.Join(filepath.Dir(root), osprocess.Ledger)) // if it is there
			continue
		}
		// The slash lets a link to a folder count as the folder; links below it are not followed.
		err = filepath.WalkDir(root+string(filepath.Separator), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				r.problem(path, "can't be looked into: %v", cause(err))
				if d != nil && d.IsDir() {
					return fs.SkipDir
				}
			case d.IsDir():
			case strings.HasPrefix(d.Name(), ".") && filepath.Ext(path) == ".new":
				r.problem(path, "was never finished: its process ended while it made its tape")
			case d.Name() == osprocess.Ledger:
				ledgers = append(ledgers, path)
			case filepath.Ext(path) != ".tape":
			case d.Type()&fs.ModeSymlink != 0:
				r.problem(path, "is a symbolic link, and was not followed: a tape is a regular file")
			default: // Open says what is wrong if it is no regular file
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			return nil, nil, fmt.Errorf("postmortem: %w", err)
		}
	}
	slices.Sort(files)
	slices.Sort(ledgers)
	return slices.Compact(files), slices.Compact(ledgers), nil
}

// cause is a path error's cause, for messages that have the path already.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
