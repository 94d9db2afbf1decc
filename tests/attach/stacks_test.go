package attach

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// TestAgentTellsWhereTheCulpritIs: what the process that a verdict names is doing becomes evidence a moment after the
// verdict, both from the kernel and from py-spy, which is called once.
func TestAgentTellsWhereTheCulpritIs(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	asked := filepath.Join(bin, "asked")
	err := os.WriteFile(filepath.Join(bin, "py-spy"), []byte(`#!/bin/sh
echo "$@" >>`+asked+`
printf '[{"os_thread_id": 1, "thread_name": "Thread-1", "frames": [{"name": "run", "filename": "a.py", "line": 1}]},'
printf '{"os_thread_id": %s, "thread_name": "MainThread", "frames": [' $5
printf '{"name": "read", "filename": "/data/load.py", "line": 7}, {"name": "main", "filename": "t.py", "line": 30}]}]'
`), 0o700)
	if err != nil {
		t.Fatal(err)
	}
	tapes := t.TempDir()
	job, pids := start(t, tapes, none)
	agent(t, tapes, "PATH="+bin+":"+os.Getenv("PATH"))
	report(t, `"reason": "not_entered"[^§]*"at the time of the verdict: rank 2 (sleeps|runs)[^§]*`+
		`"at the time of the verdict: rank 2 is in Python at read \(load\.py:7\) ← main \(t\.py:30\)"`, tapes)
	e2e.Kill(t, pids[2], syscall.SIGUSR1)
	report(t, `"status": "ok"`, tapes)
	job.Signal(syscall.SIGUSR2)
	job.ExitCode()
	text, err := os.ReadFile(asked)
	if err != nil || strings.Count(string(text), "\n") != 1 {
		t.Errorf("py-spy was asked %q, %v; want once", text, err)
	}
}
