package attach

import (
	"encoding/json"
	"fmt"
	"regexp"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestShortProgram: a program fails some milliseconds after its first NCCL call. Afterwards it is known how it ended.
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

// TestLaterProgram: a program ends without failure, and attach does not see that. Then another one of the same job
// fails before it makes a communicator. The first one's post-mortem must not report that failure.
func TestLaterProgram(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	tapes := t.TempDir()
	env := []string{
		"EXIT=0", "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "CARILLON_TAPE_DIR=" + tapes,
		"CARILLON_HEALTH_ADDR=off", "CARILLON_JOB=again",
	}
	first := e2e.Start(t, env, "sh", "-c", `eval "$(carillon attach --print-env)"; exec "$0" rank 0 1`,
		fakenccl.Program(t, built, "fails"))
	if code := first.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	later := e2e.Start(t, env, "carillon", "attach", "--job", "again", "--", "sh", "-c", "exit 3")
	if code := later.ExitCode(); code != 3 {
		t.Errorf("exit code %d of the later one, want 3", code)
	}
	e2e.Start(t, nil, "carillon", "postmortem", tapes).Await(`Nothing went wrong`)
}

// TestHangEndedByASignal: all processes of a job that hangs get SIGINT, as from a terminal. The operations that they
// were in then become spans, once, so that the spans of their stalls have a parent.
func TestHangEndedByASignal(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	input, _ := openInput(t)
	env := []string{
		"SKIP=1", "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "CARILLON_TAPE_DIR=" + t.TempDir(),
		"CARILLON_HEALTH_ADDR=off", "CARILLON_STALL_THRESHOLD=500ms", "OTEL_TRACES_EXPORTER=console",
	}
	job := e2e.Start(t, env, "sh", "-c", `echo leader $$; exec setsid carillon attach -- "$0" processes 4 <`+input,
		fakenccl.Program(t, built, "held"))
	leader := job.AwaitPID(`^leader (\d+)$`)
	job.Await(`msg=ccl\.stall job=\S+ process=\S+ rank=0 comm_rank=0 `) // from then on, the verdict names it, too
	job.Await(`rank 3 .* has not entered all_reduce 2 .*verdict\.opened`)
	e2e.Kill(t, -leader, syscall.SIGINT)
	if code := job.ExitCode(); code != 128+2 {
		t.Errorf("exit code %d", code)
	}
	stalls := 0
	for _, text := range spansOf(t, job.Output()) {
		var s struct {
			Name   string
			Parent struct{ TraceID, SpanID string }
		}
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if s.Name != "ccl.stall" {
			continue
		}
		stalls++
		// The parent is a span of all_reduce, or of an init that was slow on a busy machine.
		is := regexp.MustCompile(fmt.Sprintf(`{"Name":"[^"]*","SpanContext":{"TraceID":"%s","SpanID":"%s"`,
			s.Parent.TraceID, s.Parent.SpanID))
		if n := len(is.FindAllString(job.Output(), -1)); n != 1 {
			t.Errorf("there are %d spans %s", n, is)
		}
	}
	if stalls == 0 {
		t.Error("there are no spans of stalls")
	}
}

// TestRefusedInALoop: a loop of refused calls hides neither the life of the communicator nor the number of these calls.
func TestRefusedInALoop(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	tapes := t.TempDir()
	env := []string{
		"LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "CARILLON_TAPE_DIR=" + tapes,
		"CARILLON_HEALTH_ADDR=off", "OTEL_TRACES_EXPORTER=console", "REFUSED=20000", "EXIT=0",
	}
	job := e2e.Start(t, env, "carillon", "attach", "--", fakenccl.Program(t, built, "fails"), "rank", "0", "1")
	if code := job.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{
		`^{"Name":"ccl.comm.init",`, `^{"Name":"ccl.comm.destroy",.*"error.type".*was destroyed before`,
		`^{"Name":"ccl.all_reduce",.*"ccl.refused.times","Value":{"Type":"INT64","Value":16384}`,
		`msg=ccl.all_reduce .* times=16384 `,
	} {
		job.Await(want)
	}
	pm := e2e.Start(t, nil, "carillon", "postmortem", tapes)
	pm.Await(`Nothing but the mistakes below went wrong`)
	pm.Await(`Rank 0: ncclCommDestroy was not called: communicator was destroyed before`)
	pm.Await(`at least 16384 such calls in all`)
}
