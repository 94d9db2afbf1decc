package tapetest_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/carillon-rt/carillon/telemetry/tape/tapetest"
)

// dirVariable makes the test binary be the writer under test: another process, as any writer is.
const dirVariable = "TAPETEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(dirVariable); dir != "" {
		if _, err := tapetest.Play(dir, os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestGoWriter(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tapetest.Run(t, func(t *testing.T, script io.Reader) string {
		// The race detector makes a process linger for a second at its end, if nobody objects.
		return tapetest.PlayWith(t, exec.Command(exe), dirVariable, script, "GORACE=atexit_sleep_ms=0")
	})
}
