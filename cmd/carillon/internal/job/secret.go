package job

import (
	"os"
	"path/filepath"
	"strings"
)

// writeSecret puts the job's secret into a file that its user alone can read, in memory where there is such a folder;
// the ranks' environment names it. Shells and wrappers between launcher and rank pass a name on, while many close a
// descriptor. Where no folder takes a file, the environment has the secret itself, for a job needs none to run.
func (s *supervisor) writeSecret() {
	var problems []string
	for _, dir := range []string{"/dev/shm", os.TempDir()} {
		path, err := writePrivate(dir, s.cfg.Secret)
		if err == nil {
			s.cfg.secretFile = path
			return
		}
		problems = append(problems, err.Error())
	}
	s.stderr.say("the job's secret is in the environment of its ranks, as no file can be made for it: %s",
		strings.Join(problems, "; "))
}

// removeSecret removes the file of writeSecret, if there is one.
func (s *supervisor) removeSecret() {
	if s.cfg.secretFile != "" {
		_ = os.Remove(s.cfg.secretFile) // gone is gone
		s.cfg.secretFile = ""
	}
}

// writePrivate makes a new file in dir with mode 0600, and returns its absolute path.
func writePrivate(dir, text string) (path string, err error) {
	f, err := os.CreateTemp(dir, "carillon-secret-")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		path, err = filepath.Abs(f.Name())
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return path, nil
}
