package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// TestSecretIsInNoEnvironment: two launchers have the same secret, one by value and one by file. Their ranks, which are
// started by shells, meet, and nobody who sees their environment sees the secret.
func TestSecretIsInNoEnvironment(t *testing.T) {
	const secret = "known-to-this-job-alone"
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	port := e2e.FreePort(t)
	var jobs []*e2e.Job
	var files []string
	for i, given := range []string{"CARILLON_JOB_SECRET=" + secret, "CARILLON_JOB_SECRET_FILE=" + file} {
		jobs = append(jobs, e2e.Start(t, []string{given, roleVariable + "=interrupt"},
			"carillon", "run", "-n", "2", "--nnodes", "2", "--node-rank", fmt.Sprint(i), "--master-addr", "127.0.0.1",
			"--master-port", port, "--tape-dir", t.TempDir(), "--", "sh", "-c", `echo ready $$; exec "$0"`, os.Args[0]))
	}
	for rank := range 4 {
		j := jobs[rank/2]
		pid := j.AwaitPID(fmt.Sprintf(`^\[%d\] ready (\d+)$`, rank))
		j.Await(fmt.Sprintf(`^\[%d\] at work$`, rank)) // it has met the other ranks
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(env), secret) {
			t.Errorf("rank %d has the secret in its environment", rank)
		}
		for v := range strings.SplitSeq(string(env), "\x00") {
			if path, ok := strings.CutPrefix(v, "CARILLON_JOB_SECRET_FILE="); ok && path != file {
				files = append(files, path)
			}
		}
	}
	for _, j := range jobs {
		j.Signal(syscall.SIGINT)
	}
	for _, j := range jobs {
		check(t, j, 0)
	}
	if len(files) != 4 {
		t.Errorf("the ranks had the files %q", files)
	}
	for _, path := range files {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s, when the job has ended: %v", path, err)
		}
	}
}

// TestSecretOfAKilledLauncher: a launcher that is killed by SIGKILL leaves its secret file behind. The user's next
// launcher removes it, but not the file of a launcher that is still running.
func TestSecretOfAKilledLauncher(t *testing.T) {
	launch := func() (j *e2e.Job, secret string) {
		j = e2e.Start(t, nil, "carillon", "run", "-n", "1", "--", "sh", "-c",
			"echo secret $CARILLON_JOB_SECRET_FILE; exec sleep 60")
		return j, j.Await(`^\[0\] secret (.+)$`)[1]
	}
	killed, left := launch()
	living, kept := launch()
	killed.Signal(syscall.SIGKILL)
	killed.ExitCode()
	check(t, e2e.Start(t, nil, "carillon", "run", "-n", "1", "--", "true"), 0)
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s, when its launcher was killed and another one has run: %v", left, err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("the secret of a launcher that lives: %v", err)
	}
	living.Signal(syscall.SIGTERM)
	living.ExitCode()
}
