package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPySpyIsBounded: one that doesn't end, prints too much or prints something else is in nobody's way.
func TestPySpyIsBounded(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for name, script := range map[string]string{
		"hangs":           "sleep 1000",
		"leaves a child":  "setsid sleep 30 & exit 0",
		"endless":         "yes",
		"no JSON":         "echo Error",
		"fails":           "echo '[]'; exit 1",
		"no such process": "exit 1",
	} {
		t.Run(name, func(t *testing.T) {
			pid := filepath.Join(t.TempDir(), "pid")
			text := "#!/bin/sh\necho $$ >" + pid + "\n" + script + "\n"
			if err := os.WriteFile(filepath.Join(dir, "py-spy"), []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			calls, err := pythonStack(t.Context(), os.Getpid())
			if err == nil || len(calls) > 0 {
				t.Errorf("it tells %q, %v", calls, err)
			}
			if took := time.Since(began); took > 2*pySpyTime {
				t.Errorf("it took %v", took)
			}
			told, err := os.ReadFile(pid)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat("/proc/" + strings.TrimSpace(string(told))); err == nil {
				t.Error("it runs still")
			}
		})
	}
}
