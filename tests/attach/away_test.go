package attach

import (
	"path/filepath"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// TestAway: one rank doesn't make a call that all ranks make on a communicator, and only that rank is named; a rank
// that a shrink leaves out is not. The split of a non-blocking communicator lasts beyond its call; a destroy waits for
// the operations launched before. Calls in a group last until the group's end. An operation of a non-blocking
// communicator lasts until NCCL says that it is launched, even if nobody asks. A call that NCCL refuses doesn't count,
// and an act that failed is reported. Each operation of a burst is known to be done, or not.
func TestAway(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	for _, c := range []struct{ at, blocking, want string }{
		{"split", "0", `not_joined"[^§]*"text": "rank 2 \([^)]*\) has not joined split 1 of [^§]*; ` +
			`ranks 0 and 1 wait"`},
		{"connect", "0", `not_entered"[^§]*"text": "rank 2 \([^)]*\) has not entered all_reduce 1 on [^§]*; ` +
			`ranks 0 and 1 wait"`},
		{"unasked", "0", `not_entered"[^§]*"text": "rank 2 \([^)]*\) has not entered all_reduce 1 on [^§]*; ` +
			`ranks 0 and 1 wait"`},
		{"connect in a group", "1", `unfinished_group"[^§]*"text": "rank 2 \([^)]*\) began all_reduce 1 on [^§]*, ` +
			`and it is not launched: its group has not ended; ranks 0 and 1 wait"`},
		{"shrink", "1", `not_joined"[^§]*"text": "rank 2 \([^)]*\) has not joined shrink 1 of [^§]*; rank 1 waits"`},
		{"shrink", "0", `not_joined"[^§]*"text": "rank 2 \([^)]*\) has not joined shrink 1 of [^§]*; rank 1 waits"`},
		{"destroy", "1", `not_entered"[^§]*"text": "rank 2 \([^)]*\) has not entered all_reduce 2 on [^§]*; ` +
			`ranks 0 and 1 wait"`},
		{"refused", "1", `not_entered"[^§]*"text": "rank 2 \([^)]*\) has not entered all_reduce 2 on [^§]*; ` +
			`ranks 0 and 1 wait"`},
		{"refused split", "1", `not_joined"[^§]*"text": "rank 2 \([^)]*\) has not joined split 1 of [^§]*; ` +
			`its last, a split of \S*, was refused \S* ago; ranks 0 and 1 wait"[^§]*` +
			`"the split of \S* on rank 2 failed: NCCL answered: invalid argument [^§]*color must be at least 0"`},
		{"burst", "1", `not_entered"[^§]*"text": "rank 2 \([^)]*\) has not entered reduce 42 on [^§]*; ` +
			`rank 0 waits"`},
		{"group split", "1", `unfinished_group"[^§]*"text": "rank 2 \([^)]*\) began split 1 of [^§]*, ` +
			`and it is not launched: its group has not ended; ranks 0 and 1 wait"`},
		{"group finalize", "1", `unfinished_group"[^§]*"text": "rank 2 \([^)]*\) began the finalize of [^§]*, ` +
			`and it is not launched: its group has not ended"`},
	} {
		t.Run(c.at+" "+c.blocking, func(t *testing.T) {
			tapes := t.TempDir()
			input, end := openInput(t)
			job := e2e.Start(t, []string{
				"AT=" + c.at, "NCCL_COMM_BLOCKING=" + c.blocking, "FAKENCCL_CONNECT=lazy",
				"LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "CARILLON_HEALTH_ADDR=",
				"CARILLON_STALL_THRESHOLD=500ms",
			}, "carillon", "attach", "--tape-dir", tapes, "--job", "away", "--", "sh", "-c",
				`exec "$0" processes 3 <`+input, fakenccl.Program(t, built, "away"))
			report(t, c.want, filepath.Join(tapes, "away"))
			end()
			if code := job.ExitCode(); code != 0 {
				t.Errorf("exit code %d:\n%s", code, job.Output())
			}
		})
	}
}
