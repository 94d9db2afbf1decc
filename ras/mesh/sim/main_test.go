package sim_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/carillon-rt/carillon/ras/mesh/sim"
)

// commandVariable makes the test's program a command that calls sim.Main; it holds what the function returns.
const commandVariable = "SIM_TEST_COMMAND"

func TestMain(m *testing.M) {
	if ok := os.Getenv(commandVariable); ok != "" {
		sim.Main(func(out *os.File) bool {
			began := time.Now()
			time.Sleep(time.Hour)
			fmt.Fprintln(out, time.Since(began))
			return ok == "true"
		})
	}
	// One thread: the race detector fails when two run timers of one bubble (https://go.dev/issue/78156), and simulated
	// members gain little from more.
	runtime.GOMAXPROCS(1)
	goleak.VerifyTestMain(m)
}

// TestMainIsForCommands: a command gets an hour of virtual time at once, writes its own output and no other, and ends
// with its own status.
func TestMainIsForCommands(t *testing.T) {
	for ok, want := range map[string]int{"true": 0, "false": 1} {
		cmd := exec.Command(os.Args[0], "--ranks", "4") // a command's own flags don't disturb
		cmd.Env = append(os.Environ(), commandVariable+"="+ok)
		out, err := cmd.Output()
		if string(out) != "1h0m0s\n" || cmd.ProcessState.ExitCode() != want {
			t.Errorf("%s: wrote %q and exited with %d (%v), want 1h0m0s and %d",
				ok, out, cmd.ProcessState.ExitCode(), err, want)
		}
	}
}
