package attach

import (
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestShortProgram: a program fails some milliseconds after its first call of NCCL. How it ended is known afterwards.
func TestShortProgram(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	for _, c := range []struct {
		env  []string
		code int
		want string
	}{
		{[]string{"EXIT=3"}, 3, `exited with 3`},
		{nil, 128 + 6, `was ended by SIGABRT`},
	} {
		tapes := t.TempDir()
		env := append(c.env, "LD_LIBRARY_PATH="+fakenccl.Build(t, built, "2.28.9"), "CARILLON_TAPE_DIR="+tapes,
			"CARILLON_HEALTH_ADDR=off")
		job := e2e.Start(t, env, "carillon", "attach", "--", fakenccl.Program(t, built, "fails"), "rank", "0", "1")
		if code := job.ExitCode(); code != c.code {
			t.Errorf("exit code %d, want %d", code, c.code)
		}
		e2e.Start(t, nil, "carillon", "postmortem", tapes).Await(`[Rr]ank 0 \(.*` + c.want)
	}
}
