package jaeger

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-rt/carillon/tests/e2e"
)

// TestKilledRank looks for the operation that a rank was in when SIGKILL ended it, which only its tape has.
func TestKilledRank(t *testing.T) {
	j := Start(t)
	const job, killed = "killed", 1
	tapes := t.TempDir()
	began := time.Now()
	env := append(j.Env("http/protobuf"), "CARILLON_TAPE_DIR="+tapes, // nothing is sent before the end:
		"OTEL_BSP_SCHEDULE_DELAY=3600000", "CARILLON_SLOW_THRESHOLD=1ms", "CARILLON_STALL_THRESHOLD=1h")
	run, pids := startRole(t, "late", job, "(?:is late|makes the call)$", env, "--linger", "1m")
	inTheCall(j, run, killed)
	kill(t, run, pids, killed)
	ended := time.Now()
	run.Await(`^carillon: sent \d+ spans that 1 ended rank left on its tape$`)
	last := byRankBut(t, one(t, awaitOps(j, job, 3)), "ccl.all_reduce")[killed]
	if last.Tags["error.type"] != "unfinished" || !strings.Contains(last.Tags["otel.status_description"],
		"waiting for rank") ||
		last.Process["service.instance.id"] != strconv.Itoa(killed) ||
		last.Process["process.pid"] != strconv.Itoa(pids[killed]) {
		t.Errorf("the last act of the dead rank is %v of %v", last.Tags, last.Process)
	}
	if last.Start().Before(began) || last.End().After(ended) {
		t.Errorf("it was in it from %v to %v; the job began at %v, and was dead at %v", last.Start(), last.End(),
			began, ended)
	}
	// Its earlier spans arrive, too: it was killed before it had sent them.
	checkAct(t, one(t, await(j, job, "ccl.comm.init", 4)), "ccl.comm.init", job, 4)

	export(t, j, tapes, job, `sent 0 spans of 0 processes`)
	export(t, j, tapes, job, `sent [1-9]\d* spans of 4 processes`, "--all") // Jaeger drops duplicate spans
	awaitOps(j, job, 3)
}

// TestKilledRankThatHadSent: spans that Jaeger had received before a rank was killed are not sent again; the operation
// that the rank was in is.
func TestKilledRankThatHadSent(t *testing.T) {
	j := Start(t)
	const job, killed = "sent", 1
	tapes := t.TempDir()
	env := append(j.Env("http/protobuf"), "CARILLON_TAPE_DIR="+tapes, "CARILLON_SLOW_THRESHOLD=1ms",
		"CARILLON_STALL_THRESHOLD=1h")
	run, pids := startRole(t, "late", job, "(?:is late|makes the call)$", env, "--linger", "1m")
	inTheCall(j, run, killed)
	await(j, job, "ccl.comm.init", 4)
	kill(t, run, pids, killed)
	run.Await(`^carillon: sent 1 span that 1 ended rank left on its tape$`)
	awaitOps(j, job, 3)
}

// inTheCall waits until a rank is in the call that the missing rank doesn't make.
func inTheCall(j *Jaeger, run *e2e.Job, rank int) {
	health := run.Await(fmt.Sprintf(`^\[%d\] pid \d+ health (\S+)$`, rank))[1]
	j.poll("the rank to be in the call", func(ctx context.Context) error {
		var answer struct {
			Comms []struct {
				InFlight *struct{ Call string } `json:"in_flight"`
			}
		}
		if err := get(ctx, health+"api/v1/comms", &answer); err != nil {
			return err
		}
		if len(answer.Comms) != 1 || answer.Comms[0].InFlight == nil || answer.Comms[0].InFlight.Call != "all_reduce" {
			return fmt.Errorf("it is in %+v", answer)
		}
		return nil
	})
}

// kill kills a rank, lets the others go on, and waits for the end of the job.
func kill(t *testing.T, run *e2e.Job, pids []int, rank int) {
	t.Helper()
	e2e.Kill(t, pids[rank], syscall.SIGKILL)
	e2e.Kill(t, pids[missing], syscall.SIGUSR1)
	if code := run.ExitCode(); code != 128+9 {
		t.Errorf("exit code %d, want %d", code, 128+9)
	}
}

// export makes the post-mortem send the spans that are left on the tapes, and checks what it prints.
func export(t *testing.T, j *Jaeger, tapes, job, says string, flags ...string) {
	t.Helper()
	post := e2e.Start(t, j.Env("http/protobuf"), "carillon",
		append([]string{"postmortem", "--job", job, "--export", tapes}, flags...)...)
	if code := post.ExitCode(); code != 0 {
		t.Errorf("exit code %d of the post-mortem", code)
	}
	post.Await(`^carillon: ` + says)
}
