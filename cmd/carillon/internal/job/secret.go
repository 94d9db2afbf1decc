package job

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// secretPrefix begins the names of secret files.
const secretPrefix = "carillon-secret-"

// writeSecret writes the job's secret to a file that only its user can read, in memory if possible; the ranks'
// environment has the file's name. Wrappers between launcher and rank pass a variable on, while many of them close file
// descriptors. If no file can be made, the environment has the secret itself. The launcher holds a lock on the file
// while it lives. A launcher that is killed leaves its file behind, and the user's next launcher removes it.
func (s *supervisor) writeSecret() {
	dirs := []string{"/dev/shm", os.TempDir()}
	for _, dir := range dirs {
		sweepSecrets(dir)
	}
	var problems []string
	for _, dir := range dirs {
		f, err := writePrivate(dir, s.cfg.Secret)
		if err == nil {
			s.secret, s.cfg.secretFile = f, f.Name()
			return
		}
		problems = append(problems, err.Error())
	}
	s.stderr.say("the job's secret is in the environment of its ranks, as no file can be made for it: %s",
		strings.Join(problems, "; "))
}

// removeSecret removes the secret file, if there is one.
func (s *supervisor) removeSecret() {
	if s.secret != nil {
		_ = os.Remove(s.secret.Name()) // it may have been removed
		_ = s.secret.Close()
		s.secret, s.cfg.secretFile = nil, ""
	}
}

// writePrivate makes a new file in dir, with mode 0600 and an absolute path, which is locked until it is closed.
func writePrivate(dir, text string) (f *os.File, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if f, err = os.CreateTemp(dir, secretPrefix); err != nil {
		return nil, err
	}
	err = lock(f)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err == nil {
		_, err = os.Lstat(f.Name()) // another launcher may have removed it as left behind before it was locked
	}
	if err != nil {
		_ = os.Remove(f.Name())
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// lock locks a file, unless another process has locked it.
func lock(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}

// sweepSecrets removes the user's secret files that no launcher has locked.
func sweepSecrets(dir string) {
	paths, _ := filepath.Glob(filepath.Join(dir, secretPrefix+"*")) // the pattern is valid
	for _, path := range paths {
		var st unix.Stat_t
		if unix.Lstat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() {
			continue
		}
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if lock(f) == nil {
			_ = os.Remove(path) // if this fails, the next launcher tries again
		}
		_ = f.Close()
	}
}
