package attach

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/carillon-rt/carillon/tests/e2e"
	"github.com/carillon-rt/carillon/tests/fakenccl"
)

// openInput returns an input for the processes of a job, which ends when end is called, or at the end of the test.
func openInput(t *testing.T) (path string, end func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "input")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	open, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	end = func() { _ = open.Close() } // called again at the end of the test
	t.Cleanup(end)
	return path, end
}

// TestLaunchedAndNotDone: ranks have launched an all-reduce and returned from NCCL; one rank has not called it. Marks
// on the tapes show that the streams have not done it, so that this rank is named, also after the processes were
// killed.
func TestLaunchedAndNotDone(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	tapes := t.TempDir()
	input, end := openInput(t) // each rank ends with it
	job := e2e.Start(t, []string{
		"SKIP=1", "SURVIVE=1", "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "CARILLON_TAPE_DIR=" + tapes,
		"CARILLON_HEALTH_ADDR=",
	}, "carillon", "attach", "--job", "held", "--", "sh", "-c", `exec "$0" processes 4 <`+input,
		fakenccl.Program(t, built, "held"))
	var pids []int
	for rank := range 4 {
		pids = append(pids, job.AwaitPID(fmt.Sprintf(`^rank %d of process (\d+) is held$`, rank)))
	}
	// The all-gather before it, on a communicator of two ranks, is done. The processes have no launcher: their ranks
	// are those of the largest communicator.
	said := report(t, `"reason": "not_entered"[^§]*rank 3 [^§]*has not entered all_reduce 2 on `, tapes)
	if !regexp.MustCompile(`"rank": 3,\s*"state": "alive"`).MatchString(said) {
		t.Errorf("rank 3 is not among the ranks:\n%s", said)
	}
	// Rank 0 ends in order, and would still write to its tape, which is truncated now.
	lost, err := filepath.Glob(filepath.Join(tapes, "held", fmt.Sprintf("*-%d.tape", pids[0])))
	if err != nil || len(lost) != 1 {
		t.Fatalf("rank 0's tapes are %v, %v", lost, err)
	}
	if err := os.Truncate(lost[0], 0); err != nil {
		t.Fatal(err)
	}
	job.Await(`the tape is given up: the process goes on, `)
	for _, pid := range pids[1:] {
		e2e.Kill(t, pid, syscall.SIGKILL)
	}
	end()
	job.ExitCode()
	if said := job.Output(); strings.Contains(said, "killed by signal") {
		t.Errorf("a truncated tape ended its process:\n%s", said)
	}
	after := e2e.Start(t, nil, "carillon", "postmortem", tapes)
	after.Await(`rank 3 .*has not entered all_reduce 2 on `)
	after.Await(`Somebody truncated ` + filepath.Base(lost[0]))
	if printed := after.Output(); strings.Contains(printed, "all_gather 1 of") {
		t.Errorf("what was done is in flight:\n%s", printed)
	}
}

// TestAborted: ranks wait for one that doesn't come, abort their communicator and end, as PyTorch's watchdog makes them
// do. That doesn't resolve their verdict, which is what the post-mortem finds, although all but one exit with 0.
func TestAborted(t *testing.T) {
	t.Parallel()
	buildLibrary(t)
	tapes := t.TempDir()
	input, end := openInput(t)
	job := e2e.Start(t, []string{
		"SKIP=1", "ABORT=1", "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"), "CARILLON_TAPE_DIR=" + tapes,
		"CARILLON_HEALTH_ADDR=off", "CARILLON_STALL_THRESHOLD=1s",
	}, "carillon", "attach", "--job", "aborted", "--", "sh", "-c", `exec "$0" processes 3 <`+input,
		fakenccl.Program(t, built, "held"))
	late := job.AwaitPID(`^rank 2 of process (\d+) is held$`)
	job.Await(`rank 2 .* has not entered all_reduce 2 .*verdict\.opened`)
	end()
	job.Await(`rank 2 .* has not entered all_reduce 2 .*\(withdrawn unresolved after .*verdict\.withdrawn`)
	e2e.Kill(t, late, syscall.SIGKILL)
	job.ExitCode()
	after := e2e.Start(t, nil, "carillon", "postmortem", tapes)
	after.Await(`This is how it was just before rank [01] aborted \S+, in which it waited`)
	after.Await(`rank 2 .*has not entered all_reduce 2 on `)
}

// TestBurst: ranks make operations faster than marks are made, so that for the last operations no mark says whether
// they are done. One rank has not made a call, or has made a different one; it is named, also after all ranks were
// killed.
func TestBurst(t *testing.T) {
	buildLibrary(t)
	for what, c := range map[string]struct{ reason, says, more string }{ // the split was number 1
		"SKIP":  {"not_entered", `has not entered all_reduce 110 on `, `[^§]*all_reduce 109 `},
		"OTHER": {"mismatch", `made a different call than the others as number 106 on `, `[^§]*rank 2: all_gather`},
	} {
		t.Run(what, func(t *testing.T) {
			tapes := t.TempDir()
			input, _ := openInput(t)
			job := e2e.Start(t, []string{
				what + "=1", "BURST=1", "LD_LIBRARY_PATH=" + fakenccl.Build(t, built, "2.28.9"),
				"CARILLON_TAPE_DIR=" + tapes, "CARILLON_HEALTH_ADDR=", "CARILLON_STALL_THRESHOLD=1s",
			}, "carillon", "attach", "--job", "burst", "--", "sh", "-c", `exec "$0" processes 3 <`+input,
				fakenccl.Program(t, built, "held"))
			var pids []int
			for rank := range 3 {
				pids = append(pids, job.AwaitPID(fmt.Sprintf(`^rank %d of process (\d+) is held$`, rank)))
			}
			report(t, `"reason": "`+c.reason+`"[^§]*rank 2 [^§]*`+c.says+c.more, tapes)
			for _, pid := range pids {
				e2e.Kill(t, pid, syscall.SIGSTOP) // so that no rank sees another one die
			}
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL) // when one has ended, the program ends the others
			}
			job.ExitCode()
			e2e.Start(t, nil, "carillon", "postmortem", tapes).Await(`rank 2 .*` + c.says)
		})
	}
}

// TestTapeOnADisk: a driver maps only memory, so marks need a tape in memory. One line of each process says so.
func TestTapeOnADisk(t *testing.T) {
	t.Setenv("LD_LIBRARY_PATH", fakenccl.Build(t, built, "2.28.9"))
	held := fakenccl.Program(t, built, "held")
	for name, c := range map[string]struct {
		dir  string
		says int
	}{
		"disk": {"$TMPDIR/disk", 2}, "memory": {"$TMPDIR/base", 0},
	} {
		t.Run(name, func(t *testing.T) {
			library := buildLibrary(t)
			// Everything but the tmpfs itself counts as a disk.
			job := e2e.Start(t, []string{
				"FAKECUDA_DISK=1", "CARILLON_NCCL_LIBRARY=" + library, "CARILLON_HEALTH_ADDR=off",
				"TMPDIR=" + t.TempDir(),
			}, "unshare", "--mount", "sh", "-ec", `umask 077; cd $TMPDIR; mkdir base disk; mount -t tmpfs none base
				chmod 700 base; mkdir base/lower base/upper base/work
				mount -t overlay -o lowerdir=base/lower,upperdir=base/upper,workdir=base/work none disk
				carillon attach --tape-dir `+c.dir+` -- `+held+` processes 2 </dev/null`)
			job.ExitCode()
			if n := strings.Count(job.Output(), "lies on a disk, where the GPU can't write"); n != c.says {
				t.Errorf("%d processes say so, want %d", n, c.says)
			}
		})
	}
}
