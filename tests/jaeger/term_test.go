package jaeger

import (
	"syscall"
	"testing"
)

// TestSIGTERM looks for the spans of ranks that a plain SIGTERM ended before any batch was due.
func TestSIGTERM(t *testing.T) {
	j := Start(t)
	env := append(j.Env("grpc"), "OTEL_BSP_SCHEDULE_DELAY=3600000")
	run, _ := startRole(t, "stay", "terminated", "has destroyed it twice", env, "--tape-dir", t.TempDir())
	run.Signal(syscall.SIGTERM)
	if code := run.ExitCode(); code != 128+15 {
		t.Errorf("exit code %d, want %d", code, 128+15)
	}
	births := await(j, "terminated", "ccl.comm.init", 2*4)
	checkAct(t, one(t, of(births, "world")), "ccl.comm.init", "terminated", 4)
	checkAct(t, one(t, of(births, "part")), "ccl.comm.init", "terminated", 4)
	checkAct(t, one(t, await(j, "terminated", "ccl.comm.split", 4)), "ccl.comm.split", "terminated", 4)
	checkDoubleDestroy(t, one(t, await(j, "terminated", "ccl.comm.destroy", 2*4)))
}
