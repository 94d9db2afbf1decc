package tapetest_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/carillon-rt/carillon/telemetry/tape/tapetest"
)

// dirVariable names the folder in which a writer under test makes its tape. If it is set, the test binary is Go's
// writer, in its own process like any writer.
const dirVariable = "TAPETEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(dirVariable); dir != "" {
		if _, err := playGo(dir, os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// playWith is a player that has a command play scripts.
func playWith(env []string, name string) player {
	return func(t *testing.T, script io.Reader) string {
		t.Helper()
		path, err := tapetest.PlayWith(exec.Command(name), dirVariable, t.TempDir(), script, env...)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
}

func TestGoWriter(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The race detector makes a process linger for a second at its end, if nobody objects.
	testWriter(t, playWith([]string{"GORACE=atexit_sleep_ms=0"}, exe))
}
